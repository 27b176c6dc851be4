// A rank dies, or leaves, while the others' kernels wait for it in an LSA barrier or an exchange,
// and nobody asks the library anything: the kernels end, on virtual GPUs with an error that names
// it, and the communicator has failed. And device communicators that are destroyed, or none.
// SPDX-License-Identifier: Apache-2.0
#define NCCL_LL_A2A_PATIENCE_NS 300000000ull // else 10 s
#include "../support/stopwatch.h"
#include "ranks_of_devices.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, VICTIM = 2 };

// How kernels end that wait for the dead.
static const cudaError_t bereaved = is_virtual ? cudaErrorLaunchFailure : cudaSuccess;

__global__ void meet_once(ncclDevComm comm)
{
    ncclCoopCta cta;
    ncclLsaBarrierSession<ncclCoopCta> barrier(cta, comm, ncclTeamTagLsa(), blockIdx.x);
    barrier.sync(cta, cuda::memory_order_acq_rel);
}

// Each rank sends its number plus one to all and waits for theirs (zero comes where the wait is
// given up). strict: else the kernel fails.
__global__ void exchange_once(ncclDevComm comm, ncclLLA2AHandle handle, bool strict)
{
    ncclCoopCta cta;
    ncclLLA2ASession<ncclCoopCta> session(cta, comm, ncclTeamLsa(comm), handle, blockIdx.x, 8);
    int peer = (int)threadIdx.x;
    if (peer < comm.nRanks) {
        session.send(peer, comm.rank, comm.rank + 1);
        if (session.template recv<int>(peer) != peer + 1 && strict) {
            printf("rank %d: the value of rank %d is wrong\n", comm.rank, peer);
            __trap();
        }
    }
    session.endEpoch(cta);
}

// slots: what else the device communicator is to have.
static bool join(int rank, int size, ncclComm_t *comm, ncclDevComm *device_comm,
                 ncclDevResourceRequirements *slots = nullptr)
{
    ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    needs.lsaBarrierCount = 2;
    needs.resourceRequirementsList = slots;
    member me;
    bool joined = member_join(&me, rank, size);
    *comm = me.comm;
    return joined && EXPECT_OK(ncclDevCommCreate(*comm, &needs, device_comm));
}

// What was launched ends so, within a time.
static void ends_with(cudaError_t error, double most_s)
{
    struct stopwatch watch = stopwatch_start();
    EXPECT_EQ(cudaDeviceSynchronize(), error);
    EXPECT_WITHIN(watch, most_s);
}

// Of processes of which one dies, all others go well.
static void with_a_dead_rank(rank_function function)
{
    int statuses[RANKS];
    run_ranks_status(RANKS, function, 60, statuses);
    for (int r = 0; r < RANKS; r++) {
        EXPECT(r == VICTIM ? WIFSIGNALED(statuses[r])
                           : WIFEXITED(statuses[r]) && WEXITSTATUS(statuses[r]) == 0);
    }
}

static void wait_for_the_dead(int rank, int size)
{
    ncclComm_t comm;
    ncclDevComm device_comm;
    if (!join(rank, size, &comm, &device_comm)) {
        return;
    }
    ranks_barrier();
    if (rank == VICTIM) {
        poll(nullptr, 0, 300);
        kill(getpid(), SIGKILL);
    }
    meet_once<<<2, 32>>>(device_comm);
    ends_with(bereaved, 3);
    ncclResult_t state = ncclSuccess;
    EXPECT_OK(ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclRemoteError);
    EXPECT_CONTAINS(ncclGetLastError(nullptr), "rank 2 (process");
    EXPECT_CONTAINS(ncclGetLastError(nullptr), "died");
    struct stopwatch watch = stopwatch_start();
    EXPECT_OK(ncclCommAbort(comm));
    EXPECT_WITHIN(watch, 2);
    poll(nullptr, 0, 500); // the root's process serves the others
    _exit(expect_failures() != 0);
}

static void dead_peer_of_a_barrier()
{
    with_a_dead_rank(wait_for_the_dead);
}

// A peer's abort ends a kernel without an error of the device: the communicator can be made anew.
static void wait_for_the_aborting(int rank, int size)
{
    for (int round = 0; round < 2; round++) {
        ncclComm_t comm;
        ncclDevComm device_comm;
        if (!join(rank, size, &comm, &device_comm)) {
            return;
        }
        ranks_barrier();
        if (rank == 1) {
            poll(nullptr, 0, 200);
        } else {
            ncclResult_t state = ncclSuccess;
            meet_once<<<2, 32>>>(device_comm);
            ends_with(cudaSuccess, 3);
            EXPECT_OK(ncclCommGetAsyncError(comm, &state));
            EXPECT_EQ(state, ncclRemoteError);
        }
        EXPECT_OK(ncclCommAbort(comm));
        ranks_barrier();
    }
}

static void aborting_peer_of_a_barrier()
{
    run_ranks(2, wait_for_the_aborting, 60);
    run_thread_ranks(2, wait_for_the_aborting, 60);
}

// A peer that destroys the communicator instead of coming.
static void wait_for_the_leaver(int rank, int size)
{
    ncclComm_t comm;
    ncclDevComm device_comm;
    if (!join(rank, size, &comm, &device_comm)) {
        return;
    }
    meet_once<<<2, 32>>>(device_comm); // this one all come to
    EXPECT_CUDA(cudaDeviceSynchronize());
    if (rank == 0) {
        poll(nullptr, 0, 200);
    } else {
        meet_once<<<2, 32>>>(device_comm);
        ends_with(cudaErrorLaunchFailure, 3);
    }
    EXPECT_OK(ncclCommDestroy(comm));
    ranks_barrier();
    _exit(expect_failures() != 0);
}

static void leaving_peer_of_a_barrier()
{
    run_ranks(3, wait_for_the_leaver, 60);
}

// ---- The same while values are waited for -------------------------------------------------------

static ncclLLA2AHandle exchange;

static bool open_exchange(int rank, int size, ncclComm_t *comm, ncclDevComm *device_comm)
{
    ncclDevResourceRequirements slots = {};
    EXPECT_OK(ncclLLA2ACreateRequirement(2, ncclLLA2ACalcSlots(8, sizeof(int)), &exchange, &slots));
    return join(rank, size, comm, device_comm, &slots);
}

static void exchange_with_the_dead(int rank, int size)
{
    ncclComm_t comm = nullptr;
    ncclDevComm device_comm;
    if (!open_exchange(rank, size, &comm, &device_comm)) {
        return;
    }
    exchange_once<<<2, 32>>>(device_comm, exchange, true);
    EXPECT_CUDA(cudaDeviceSynchronize());
    ranks_barrier();
    if (rank == VICTIM) {
        poll(nullptr, 0, 300);
        kill(getpid(), SIGKILL);
    }
    exchange_once<<<2, 32>>>(device_comm, exchange, is_virtual);
    ends_with(bereaved, 3);
    EXPECT_OK(ncclCommAbort(comm));
    poll(nullptr, 0, 500); // the root's process serves the others
    _exit(expect_failures() != 0);
}

static void dead_peer_of_an_exchange()
{
    with_a_dead_rank(exchange_with_the_dead);
}

static void exchange_with_the_leaver(int rank, int size)
{
    ncclComm_t comm = nullptr;
    ncclDevComm device_comm;
    if (!open_exchange(rank, size, &comm, &device_comm)) {
        return;
    }
    exchange_once<<<2, 32>>>(device_comm, exchange, true);
    EXPECT_CUDA(cudaDeviceSynchronize());
    if (rank == 0) {
        poll(nullptr, 0, 200);
    } else {
        exchange_once<<<2, 32>>>(device_comm, exchange, true);
        ends_with(cudaErrorLaunchFailure, 4);
    }
    EXPECT_OK(ncclCommDestroy(comm));
    ranks_barrier();
    _exit(expect_failures() != 0);
}

static void leaving_peer_of_an_exchange()
{
    run_ranks(3, exchange_with_the_leaver, 60);
}

// ---- A device communicator after its end --------------------------------------------------------

__global__ void open_session(ncclDevComm comm, int index)
{
    ncclCoopCta cta;
    ncclLsaBarrierSession<ncclCoopCta> barrier(cta, comm, ncclTeamTagLsa(), (uint32_t)index);
}

__global__ void open_barrier(ncclDevComm comm, int index)
{
    ncclCoopCta cta;
    ncclBarrierSession<ncclCoopCta> barrier(cta, ncclTeamTagLsa(), comm, (uint32_t)index);
}

// What a kernel prints that must fail.
static void fails_with(void (*kernel)(ncclDevComm, int), const ncclDevComm &comm, int index,
                       const char *text)
{
    fflush(stderr);
    int saved = dup(STDERR_FILENO), file = memfd_create("stderr", MFD_CLOEXEC);
    dup2(file, STDERR_FILENO);
    kernel<<<1, 32>>>(comm, index);
    cudaError_t error = cudaDeviceSynchronize();
    dup2(saved, STDERR_FILENO);
    close(saved);
    char said[1024] = "";
    EXPECT(pread(file, said, sizeof said - 1, 0) > 0);
    close(file);
    EXPECT_EQ(error, cudaErrorInvalidValue);
    EXPECT_CONTAINS(said, text);
    cudaDeviceReset();
}

static void use_what_was_destroyed(int rank, int size)
{
    ncclComm_t comm = nullptr;
    ncclDevComm first, second, garbage;
    ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    needs.lsaBarrierCount = 2;
    if (!join(rank, size, &comm, &first) || !EXPECT_OK(ncclDevCommCreate(comm, &needs, &second))) {
        return;
    }
    ncclDevComm copy = first;
    EXPECT_OK(ncclDevCommDestroy(comm, &first));
    EXPECT_OK(ncclCommDestroy(comm));
    memset((void *)&garbage, 0x5a, sizeof garbage);
#ifndef __SANITIZE_ADDRESS__ // which finds the look at what is left
    fails_with(open_session, copy, 0, "the device communicator of rank 0 was destroyed");
    fails_with(open_session, second, 0, "the device communicator of rank 0 was destroyed");
#endif
    fails_with(open_session, garbage, 0, "this is no device communicator");
    fails_with(open_barrier, garbage, 0, "this is no device communicator");
    fails_with(open_session, ncclDevComm{}, 0, "the device communicator is empty");
    _exit(expect_failures() != 0);
}

static void wrong_indices(int rank, int size)
{
    ncclComm_t comm = nullptr;
    ncclDevComm device_comm;
    if (join(rank, size, &comm, &device_comm)) {
        fails_with(open_session, device_comm, -1, "LSA barrier -1 of rank 0: only 2");
        _exit(expect_failures() != 0);
    }
}

static void too_few_hybrid_barriers(int rank, int size)
{
    ncclComm_t comm = nullptr;
    ncclDevComm device_comm;
    if (join(rank, size, &comm, &device_comm)) {
        fails_with(open_barrier, device_comm, 1,
                   "barrier 1, but 0 barriers were asked for (barrierCount");
        _exit(expect_failures() != 0);
    }
}

static void device_communicators_that_are_none()
{
    run_ranks(1, use_what_was_destroyed, 60);
    run_ranks(1, wrong_indices, 60);
    run_ranks(1, too_few_hybrid_barriers, 60);
}

int main(void)
{
    RUN(dead_peer_of_an_exchange);
    RUN(dead_peer_of_a_barrier);
    RUN(aborting_peer_of_a_barrier);
    if (is_virtual) { // real ones do not look who has left, nor whether a communicator is one
        RUN(leaving_peer_of_an_exchange);
        RUN(leaving_peer_of_a_barrier);
        RUN(device_communicators_that_are_none);
    }
    return expect_result();
}
