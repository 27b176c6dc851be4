// What the all-reduce kernels and a broadcast move, counted to the byte on 8 ranks (compiled with
// `tutticc --count`). For S bytes and N ranks, per rank and direction:
//   two-shot by loads and stores 2 S (N - 1) / N, by multimem S (1 + 1/N)
//   one-shot by loads S (N - 1), by multimem S in and N S out
// A multimem broadcast leaves the root once. What barriers move is measured and taken off.
// SPDX-License-Identifier: Apache-2.0
#include "launch_all_reduce.cuh"

#include "ranks_for_tests.cuh"

#include <vgpu/stats.h>

#include <stdio.h>

enum { RANKS = 8, BLOCKS = 2, COUNT = RANKS * 1024, OUTPUT = 1 << 20 };

// Rank 0's input to all ranks' output.
template <bool multimem>
__global__ void broadcast(tutti::all_reduce_arguments args, ncclDevComm comm)
{
    ncclCoopCta cta;
    tutti::all_reduce_barrier barrier{cta, comm, ncclTeamTagLsa(), blockIdx.x, multimem};
    barrier.sync(cta, cuda::memory_order_acq_rel);
    const float *from = tutti::rank_pointer<const float>(args.input, comm.lsaRank);
    size_t packs = args.count / tutti::pack_size<float>;
    tutti::all_reduce_range range = tutti::share_range(comm.lsaRank == 0 ? packs : 0, 1, 0);
    tutti::multimem_sink<float> switched(args.output, comm);
    tutti::lsa_sink<float, 0> each(args.output, comm);
    for (size_t p = range.begin + threadIdx.x; p < range.end; p += blockDim.x) {
        size_t i = p * tutti::pack_size<float>;
        if (multimem) {
            switched.store(i, tutti::load_pack(from + i));
        } else {
            each.store(i, tutti::load_pack(from + i));
        }
    }
    barrier.sync(cta, cuda::memory_order_acq_rel);
}

// One of the operations on all ranks.
typedef void (*operation)(const ranks *all, int rank, const tutti::all_reduce_arguments *args);

template <bool one_shot, bool multimem>
static void all_reduce(const ranks *all, int rank, const tutti::all_reduce_arguments *args)
{
    EXPECT_CUDA(tutti::launch_all_reduce<float>({one_shot, multimem}, *args, all->device_comm[rank],
                                                BARRIERS, {BLOCKS, 1}, all->stream[rank]));
}

template <bool multimem>
static void run_broadcast(const ranks *all, int rank, const tutti::all_reduce_arguments *args)
{
    broadcast<multimem><<<BLOCKS, 1, 0, all->stream[rank]>>>(*args, all->device_comm[rank]);
    EXPECT_CUDA(cudaGetLastError());
}

// What it moves over each rank's port.
static void count_run(const ranks *all, operation run, size_t count, vgpu_device_stats *stats)
{
    vgpuStatsStart();
    for (int r = 0; r < RANKS; r++) {
        tutti::all_reduce_arguments args = {
            {all->window[r], 0}, {all->window[r], OUTPUT}, count, cuda::memory_order_acq_rel};
        EXPECT_CUDA(cudaSetDevice(r));
        run(all, r, &args);
    }
    wait_all(all);
    vgpuStatsStop();
    EXPECT_EQ(vgpuStatsRead(stats, VGPU_MAX_DEVICES), RANKS);
}

struct traffic {
    size_t in, out;
};

// `root`: of rank 0; `others`: of every other rank.
static void check(const ranks *all, const char *name, operation run, traffic root, traffic others)
{
    vgpu_device_stats with[VGPU_MAX_DEVICES], without[VGPU_MAX_DEVICES];
    count_run(all, run, COUNT, with);
    count_run(all, run, 0, without);
    for (int r = 0; r < RANKS; r++) {
        traffic wanted = r == 0 ? root : others;
        bool right = EXPECT_EQ(with[r].bytes_in - without[r].bytes_in, wanted.in);
        right = EXPECT_EQ(with[r].bytes_out - without[r].bytes_out, wanted.out) && right;
        if (!right) {
            printf("  %s, rank %d\n", name, r);
        }
    }
}

static void bytes_of_everything()
{
    ranks all;
    if (!open_ranks(&all, RANKS, 2 * OUTPUT)) {
        return;
    }
    const size_t S = COUNT * sizeof(float), N = RANKS;
    traffic shared = {2 * S * (N - 1) / N, 2 * S * (N - 1) / N};
    check(&all, "two-shot", all_reduce<false, false>, shared, shared);
    shared = {S + S / N, S + S / N};
    check(&all, "two-shot multimem", all_reduce<false, true>, shared, shared);
    shared = {S * (N - 1), S * (N - 1)};
    check(&all, "one-shot", all_reduce<true, false>, shared, shared);
    shared = {S, N * S};
    check(&all, "one-shot multimem", all_reduce<true, true>, shared, shared);
    check(&all, "broadcast", run_broadcast<false>, {0, S * (N - 1)}, {S, 0});
    check(&all, "broadcast by multimem", run_broadcast<true>, {S, S}, {S, 0});
    close_ranks(&all);
}

int main()
{
    RUN(bytes_of_everything);
    return expect_result();
}
