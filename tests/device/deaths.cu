// A rank dies while the others' kernels wait for it in an LSA barrier, and nobody asks the library
// anything: the kernels end with an error that names it, and the communicator has failed.
// SPDX-License-Identifier: Apache-2.0
#include "ranks_of_devices.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, VICTIM = 2 };

__global__ void meet_once(ncclDevComm comm)
{
    ncclCoopCta cta;
    ncclLsaBarrierSession<ncclCoopCta> barrier(cta, comm, ncclTeamTagLsa(), blockIdx.x);
    barrier.sync(cta, cuda::memory_order_acq_rel);
}

static bool join(int rank, int size, ncclComm_t *comm, ncclDevComm *device_comm)
{
    ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    needs.lsaBarrierCount = 2;
    member me;
    bool joined = member_join(&me, rank, size);
    *comm = me.comm;
    return joined && EXPECT_OK(ncclDevCommCreate(*comm, &needs, device_comm));
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
    double start = now_s();
    EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    EXPECT(now_s() - start < 3);
    ncclResult_t state = ncclSuccess;
    EXPECT_OK(ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclRemoteError);
    EXPECT_CONTAINS(ncclGetLastError(nullptr), "rank 2 (process");
    EXPECT_CONTAINS(ncclGetLastError(nullptr), "died");
    start = now_s();
    EXPECT_OK(ncclCommAbort(comm));
    EXPECT(now_s() - start < 2);
    poll(nullptr, 0, 500); // the root's process serves the others
    _exit(expect_failures() != 0);
}

static void dead_peer_of_a_barrier()
{
    int statuses[RANKS];
    run_ranks_status(RANKS, wait_for_the_dead, 60, statuses);
    for (int r = 0; r < RANKS; r++) {
        EXPECT(r == VICTIM ? WIFSIGNALED(statuses[r])
                           : WIFEXITED(statuses[r]) && WEXITSTATUS(statuses[r]) == 0);
    }
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
            double start = now_s();
            EXPECT_CUDA(cudaDeviceSynchronize());
            EXPECT(now_s() - start < 3);
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
        double start = now_s();
        EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
        EXPECT(now_s() - start < 3);
    }
    EXPECT_OK(ncclCommDestroy(comm));
    ranks_barrier();
    _exit(expect_failures() != 0);
}

static void leaving_peer_of_a_barrier()
{
    run_ranks(3, wait_for_the_leaver, 60);
}

int main(void)
{
    RUN(dead_peer_of_a_barrier);
    RUN(leaving_peer_of_a_barrier);
    RUN(aborting_peer_of_a_barrier);
    return expect_result();
}
