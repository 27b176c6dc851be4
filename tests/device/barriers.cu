// LSA barriers: many indices and rounds, every memory order, multicast and stores, several groups
// in a block, time-outs, aborts.
// SPDX-License-Identifier: Apache-2.0
#include "ranks_of_devices.h"

// Few under the thread sanitizer, to which one round tells the order as well as another, and on
// real GPUs: there each costs processes without MPS some milliseconds.
#ifdef __SANITIZE_THREAD__
enum { ROUNDS = 8 };
#else
enum { ROUNDS = is_virtual ? 100 : 20 };
#endif
enum { BARRIERS = 8, THREADS = 64 };

// Each block has a word per rank in the window. In every round a block writes the round's number
// into its word on every rank, meets the others, and checks that all words have that number; a
// second barrier keeps fast ranks from writing the next number too early.
template <typename Coop>
__device__ void count_rounds(Coop coop, ncclWindow_t window, ncclDevComm const &comm, int index,
                             bool multimem, bool split, unsigned *wrong)
{
    int self = comm.lsaRank;
    int members = comm.lsaSize;
    size_t own = ((size_t)index * members + self) * 4;
    ncclLsaBarrierSession<Coop> barrier(coop, comm, ncclTeamTagLsa(), index, multimem);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        for (int m = coop.thread_rank(); m < members; m += coop.size()) {
            *static_cast<uint32_t *>(ncclGetLsaPointer(window, own, m)) = round;
        }
        if (split) {
            barrier.arrive(coop, cuda::memory_order_release);
            barrier.wait(coop, cuda::memory_order_acquire);
        } else {
            barrier.sync(coop, cuda::memory_order_acq_rel);
        }
        for (int m = coop.thread_rank(); m < members; m += coop.size()) {
            size_t word = ((size_t)index * members + m) * 4;
            if (*static_cast<uint32_t *>(ncclGetLocalPointer(window, word)) != round) {
                atomicAdd(wrong, 1u);
            }
        }
        barrier.sync(coop, cuda::memory_order_acq_rel);
    }
}

enum group { BLOCK, WARP, THREAD, SPAN };

__global__ void rounds(ncclWindow_t window, ncclDevComm comm, group kind, bool multimem, bool split,
                       unsigned *wrong)
{
    int warp = threadIdx.x / 32;
    switch (kind) {
    case BLOCK:
        count_rounds(ncclCoopCta(), window, comm, blockIdx.x, multimem, split, wrong);
        break;
    case WARP: // two groups in a block, each with its own barrier
        count_rounds(ncclCoopWarp(), window, comm, 2 * blockIdx.x + warp, multimem, split, wrong);
        break;
    case THREAD:
        if (threadIdx.x == 33) {
            count_rounds(ncclCoopThread(), window, comm, blockIdx.x, multimem, split, wrong);
        }
        break;
    case SPAN:
        count_rounds(ncclCoopWarpSpan(0, 2, 3), window, comm, blockIdx.x, multimem, split, wrong);
        break;
    }
}

static unsigned run_rounds(device_rank &me, const test_window &window, const ncclDevComm &comm,
                           group kind, bool multimem, bool split)
{
    unsigned *wrong = nullptr;
    unsigned result = 1;
    EXPECT_CUDA(cudaMalloc((void **)&wrong, sizeof *wrong));
    EXPECT_CUDA(cudaMemsetAsync(wrong, 0, sizeof *wrong, me.stream));
    meet(me);
    rounds<<<BARRIERS / 2, THREADS, 0, me.stream>>>(window.handle, comm, kind, multimem, split,
                                                    wrong);
    EXPECT_CUDA(cudaGetLastError());
    read_back(me, &result, wrong, sizeof result);
    EXPECT_CUDA(cudaFree(wrong));
    return result;
}

static void all_kinds(device_rank &me)
{
    test_window window;
    ncclDevComm comm;
    if (!open_window(me, 65536, &window) || !open_device_comm(me, BARRIERS, &comm)) {
        return;
    }
    // The same barriers again and again: their counts go on from kernel to kernel.
    for (group kind : {BLOCK, WARP, THREAD, SPAN, BLOCK}) {
        EXPECT_EQ(run_rounds(me, window, comm, kind, false, false), 0);
        EXPECT_EQ(run_rounds(me, window, comm, kind, false, true), 0);
        if (me.properties.multimemSupport) {
            EXPECT_EQ(run_rounds(me, window, comm, kind, true, false), 0);
        }
    }
    EXPECT_OK(ncclDevCommDestroy(me.comm, &comm));
    close_window(me, &window);
}

// A relaxed barrier orders nothing but itself: a peer's arrival is never seen early or missed.
__global__ void relaxed_rounds(ncclDevComm comm, int count)
{
    ncclCoopCta cta;
    ncclLsaBarrierSession<ncclCoopCta> barrier(cta, comm, ncclTeamTagLsa(), blockIdx.x);
    for (int i = 0; i < count; i++) {
        barrier.sync(cta, cuda::memory_order_relaxed);
    }
}

// Barriers of a team of two made by a requirement of its own.
__global__ void pairs(ncclDevComm comm, ncclLsaBarrierHandle handle, ncclWindow_t window,
                      unsigned *wrong)
{
    ncclCoopCta cta;
    ncclTeam pair = ncclTeamInnerFactor(ncclTeamLsa(comm), 2);
    int other = ncclTeamRankToLsa(comm, pair, 1 - pair.rank);
    ncclLsaBarrierSession<ncclCoopCta> barrier(cta, comm, pair, handle, blockIdx.x);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        if (threadIdx.x == 0) {
            *static_cast<uint32_t *>(ncclGetLsaPointer(window, 4 * blockIdx.x, other)) = round;
        }
        barrier.sync(cta, cuda::memory_order_acq_rel);
        if (*static_cast<uint32_t *>(ncclGetLocalPointer(window, 4 * blockIdx.x)) != round) {
            atomicAdd(wrong, 1u);
        }
        barrier.sync(cta, cuda::memory_order_acq_rel);
    }
}

static void own_requirement(device_rank &me)
{
    test_window window;
    if (!open_window(me, 65536, &window)) {
        return;
    }
    ncclTeam_t team = ncclTeamInnerFactor(ncclTeamLsa(me.comm), 2);
    ncclLsaBarrierHandle_t handle;
    ncclDevResourceRequirements_t barriers;
    ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    ncclDevComm comm;
    EXPECT_OK(ncclLsaBarrierCreateRequirement(team, 3, &handle, &barriers));
    needs.resourceRequirementsList = &barriers;
    needs.lsaBarrierCount = 1;
    if (!EXPECT_OK(ncclDevCommCreate(me.comm, &needs, &comm))) {
        return;
    }
    unsigned *wrong = nullptr;
    unsigned result = 1;
    EXPECT_CUDA(cudaMalloc((void **)&wrong, sizeof *wrong));
    EXPECT_CUDA(cudaMemsetAsync(wrong, 0, sizeof *wrong, me.stream));
    meet(me);
    relaxed_rounds<<<1, THREADS, 0, me.stream>>>(comm, ROUNDS);
    pairs<<<3, THREADS, 0, me.stream>>>(comm, handle, window.handle, wrong);
    read_back(me, &result, wrong, sizeof result);
    EXPECT_EQ(result, 0);
    EXPECT_CUDA(cudaFree(wrong));
    EXPECT_OK(ncclDevCommDestroy(me.comm, &comm));
    close_window(me, &window);
}

// Rank 0 never comes in the first kernel: the others' waits end in time, in all threads, and the
// round can be finished later.
__global__ void late(ncclDevComm comm, bool comes, unsigned *timeouts, unsigned *successes)
{
    ncclCoopCta cta;
    ncclLsaBarrierSession<ncclCoopCta> barrier(cta, comm, ncclTeamTagLsa(), blockIdx.x);
    if (comm.lsaRank == 0) {
        if (comes) {
            barrier.sync(cta, cuda::memory_order_acq_rel);
            atomicAdd(successes, 1u);
        }
        return;
    }
    ncclResult_t result = comes ? barrier.wait(cta, cuda::memory_order_acq_rel, 20000000000ull)
                                : barrier.sync(cta, cuda::memory_order_acq_rel, 1000000ull);
    if (result == ncclTimeout) {
        atomicAdd(timeouts, 1u);
    } else if (result == ncclSuccess) {
        atomicAdd(successes, 1u);
    }
}

static void time_outs(device_rank &me)
{
    ncclDevComm comm;
    unsigned *counts = nullptr;
    unsigned result[2] = {0, 0};
    if (!open_device_comm(me, 2, &comm)) {
        return;
    }
    EXPECT_CUDA(cudaMalloc((void **)&counts, sizeof result));
    meet(me);
    for (int comes = 0; comes < 2; comes++) {
        EXPECT_CUDA(cudaMemsetAsync(counts, 0, sizeof result, me.stream));
        late<<<2, THREADS, 0, me.stream>>>(comm, comes != 0, counts, counts + 1);
        read_back(me, result, counts, sizeof result);
        EXPECT_EQ(result[0], comes || me.rank == 0 ? 0 : 2 * THREADS);
        EXPECT_EQ(result[1], comes ? 2 * THREADS : 0);
        meet(me);
    }
    EXPECT_CUDA(cudaFree(counts));
    EXPECT_OK(ncclDevCommDestroy(me.comm, &comm));
}

// Rank 0 never comes: an abort ends the others' kernels.
__global__ void wait_forever(ncclDevComm comm)
{
    ncclCoopCta cta;
    ncclLsaBarrierSession<ncclCoopCta> barrier(cta, comm, ncclTeamTagLsa(), blockIdx.x);
    barrier.sync(cta, cuda::memory_order_acq_rel);
}

static void *abort_later(void *argument)
{
    struct timespec pause = {0, 100000000};
    nanosleep(&pause, nullptr);
    EXPECT_OK(ncclCommAbort(static_cast<ncclComm_t>(argument)));
    return nullptr;
}

static void aborted(device_rank &me)
{
    ncclDevComm comm;
    if (!open_device_comm(me, 2, &comm)) {
        return;
    }
    meet(me);
    if (me.rank != 0) {
        wait_forever<<<2, THREADS, 0, me.stream>>>(comm);
        EXPECT_CUDA(cudaGetLastError());
    }
    pthread_t thread;
    EXPECT_EQ(pthread_create(&thread, nullptr, abort_later, me.comm), 0);
    EXPECT_CUDA(cudaStreamSynchronize(me.stream));
    pthread_join(thread, nullptr);
    me.comm = nullptr;
}

static void run_all_kinds(void)
{
    run_ways<all_kinds>(4, 120);
}
static void run_all_kinds_alone(void)
{
    run_thread_ranks(1, as_rank<all_kinds>, 60);
}
static void run_all_kinds_odd(void)
{
    run_thread_ranks(3, as_rank<all_kinds>, 120);
}
static void run_own_requirement(void)
{
    run_ways<own_requirement>(4, 60);
}
static void run_time_outs(void)
{
    run_all_ways<time_outs>(4, 60);
}
static void run_aborted(void)
{
    run_all_ways<aborted>(4, 60);
}

int main(void)
{
    RUN(run_all_kinds);
    RUN(run_all_kinds_alone);
    RUN(run_all_kinds_odd);
    RUN(run_own_requirement);
    RUN(run_time_outs);
    RUN(run_aborted);
    return expect_result();
}
