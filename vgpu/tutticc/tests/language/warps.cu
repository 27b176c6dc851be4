// Threads of a warp together: shuffles, votes, matches, reductions, elected and active lanes,
// cooperative groups; whole warps, parts of warps, divergent ones.
// SPDX-License-Identifier: Apache-2.0
#include "../programs/check.cuh"

#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda/atomic>
#include <cuda_bf16.h>

namespace cg = cooperative_groups;

#define WANT(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("%s:%d: thread %u: %s does not hold\n", __FILE__, __LINE__, threadIdx.x,        \
                   #condition);                                                                    \
            atomicAdd(bad, 1);                                                                     \
        }                                                                                          \
    } while (0)

struct wide {
    int a[7];
};

template <class T> __device__ void shuffle_one(int *bad, unsigned mask, int lane, int lanes)
{
    T mine = static_cast<T>(static_cast<float>(lane + 1));
    auto value = [](int from) { return static_cast<T>(static_cast<float>(from + 1)); };
    WANT(__shfl_sync(mask, mine, 3) == value(3));
    WANT(__shfl_up_sync(mask, mine, 2) == value(lane < 2 ? lane : lane - 2));
    WANT(__shfl_down_sync(mask, mine, 1, 8) == value(lane % 8 == 7 ? lane : lane + 1) ||
         lane + 1 >= lanes);
    WANT(__shfl_xor_sync(mask, mine, 1) == value(lane ^ 1) || (lane ^ 1) >= lanes);
    WANT(__shfl_sync(mask, mine, 9, 4) == value(lane / 4 * 4 + 1) || lane / 4 * 4 + 1 >= lanes);
}

// A block whose last warp has `lanes` lanes.
__global__ void shuffles(int *bad)
{
    int lane = threadIdx.x % 32, lanes = threadIdx.x < blockDim.x / 32 * 32 ? 32 : blockDim.x % 32;
    unsigned full = 0xffffffffu;
    shuffle_one<int>(bad, full, lane, lanes);
    shuffle_one<unsigned>(bad, full, lane, lanes);
    shuffle_one<long>(bad, full, lane, lanes);
    shuffle_one<unsigned long>(bad, full, lane, lanes);
    shuffle_one<long long>(bad, full, lane, lanes);
    shuffle_one<unsigned long long>(bad, full, lane, lanes);
    shuffle_one<float>(bad, full, lane, lanes);
    shuffle_one<double>(bad, full, lane, lanes);
    shuffle_one<__half>(bad, full, lane, lanes);
    shuffle_one<__nv_bfloat16>(bad, full, lane, lanes);
    __half2 pair = __floats2half2_rn(static_cast<float>(lane), 0.5f);
    WANT(__low2float(__shfl_sync(full, pair, 2)) == 2.0f);
    WANT(__low2float(__shfl_down_sync(full, pair, 32)) == static_cast<float>(lane));
}

__global__ void votes(int *bad)
{
    unsigned lane = threadIdx.x % 32, live = threadIdx.x < 32 ? ~0u : (1u << (blockDim.x - 32)) - 1;
    unsigned odd = 0xaaaaaaaau & live, even = 0x55555555u & live;
    WANT(__ballot_sync(~0u, lane & 1) == odd);
    WANT(__any_sync(~0u, lane == 4) && !__any_sync(~0u, lane == 40));
    WANT(__all_sync(~0u, lane < 32) && !__all_sync(~0u, lane != 4));
    WANT(__match_any_sync(~0u, lane & 1) == (lane & 1 ? odd : even));
    WANT(__match_any_sync(~0u, 1.5) == live);
    int same = -1;
    WANT(__match_all_sync(~0u, 7ull, &same) == live && same == 1);
    WANT(__match_all_sync(~0u, lane, &same) == 0 && same == 0);
    unsigned count = __popc(live), sum = (count - 1) * count / 2;
    WANT(__reduce_add_sync(~0u, lane) == sum && __reduce_add_sync(~0u, -1) == -int(count));
    WANT(__reduce_min_sync(~0u, int(lane) - 5) == -5 && __reduce_min_sync(~0u, lane - 5u) == 0);
    WANT(__reduce_max_sync(~0u, int(lane) - 5) == int(count) - 6);
    WANT(__reduce_and_sync(~0u, lane | 64) == 64 && __reduce_or_sync(~0u, 1u << lane) == live);
    WANT(__reduce_xor_sync(~0u, 1u << lane) == live);
    // A part of the warp, while the rest does the same with its own mask.
    unsigned mask = lane & 1 ? odd : even;
    if (lane & 1) {
        WANT(__ballot_sync(odd, lane > 2) == (odd & ~7u));
        WANT(__shfl_sync(odd, lane, 5) == 5);
    } else {
        WANT(__ballot_sync(even, lane > 2) == (even & ~7u));
        WANT(__reduce_max_sync(even, lane) == 31u - __clz(even));
    }
    __syncwarp(mask);
    unsigned leader;
    int elected = 0;
    asm volatile("{ .reg .pred p; elect.sync %0|p, %2; selp.s32 %1, 1, 0, p; }"
                 : "=r"(leader), "=r"(elected)
                 : "r"(live));
    WANT(leader == 0 && elected == (lane == 0));
    // Lanes that have ended do not hold up the others.
    if (lane > 3)
        return;
    WANT(__ballot_sync(~0u, 1) == 0xfu && __reduce_add_sync(~0u, 1u) == 4);
}

__global__ void active(int *bad, int *counter)
{
    unsigned lane = threadIdx.x % 32;
    WANT(__activemask() == ~0u);
    if (lane % 4 == 1) {
        WANT(__activemask() == 0x22222222u);
        WANT(__shfl_sync(__activemask(), lane, 5) == 5);
    } else if (lane % 4 == 2) {
        unsigned mask;
        asm volatile("activemask.b32 %0;" : "=r"(mask));
        WANT(mask == 0x44444444u);
    }
    // One atomic addition by all threads that are together.
    if (lane >= 10) {
        cg::coalesced_group group = cg::coalesced_threads();
        WANT(group.size() == 22 && group.thread_rank() == lane - 10);
        int base = 0;
        if (group.thread_rank() == 0)
            base = atomicAdd(counter, static_cast<int>(group.size()));
        base = group.shfl(base, 0);
        WANT(base % 22 == 0);
        WANT(cg::reduce(group, 1, cg::plus<int>()) == 22);
        WANT(cg::inclusive_scan(group, 2) == 2 * int(lane - 9));
        WANT(group.shfl_up(lane, 1) == (lane == 10 ? 10 : lane - 1));
        WANT(group.shfl_down(lane, 3) == (lane > 28 ? lane : lane + 3));
        cg::coalesced_group five = cg::tiled_partition(group, 4);
        WANT(five.size() == (lane >= 30 ? 2 : 4) && five.meta_group_size() == 6);
        WANT(five.meta_group_rank() == (lane - 10) / 4 && five.thread_rank() == (lane - 10) % 4);
    }
    // Each turn of a loop by those that are still in it. The compiler may have copied the call, so
    // that they are fewer; but all of them are in the same turn.
    for (unsigned i = 0; i <= lane % 3; i++) {
        unsigned mask = __activemask(), possible = i == 0   ? ~0u
                                                   : i == 1 ? 0xb6db6db6u
                                                            : 0x24924924u;
        WANT((mask & ~possible) == 0 && (mask >> lane & 1) == 1);
        WANT(__match_any_sync(mask, i) == mask);
    }
}

__global__ void tiles(int *bad)
{
    cg::thread_block block = cg::this_thread_block();
    unsigned rank = block.thread_rank(), lane = rank % 32;
    auto warp = cg::tiled_partition<32>(block);
    auto eight = cg::tiled_partition<8>(warp);
    WANT(block.size() == 64 && warp.size() == 32 && warp.thread_rank() == lane);
    WANT(warp.meta_group_rank() == rank / 32 && warp.meta_group_size() == 2);
    WANT(eight.meta_group_rank() == lane / 8 && eight.meta_group_size() == 4);
    WANT(eight.shfl(rank, 3) == rank / 8 * 8 + 3 && eight.shfl_xor(rank, 7) == (rank ^ 7));
    WANT(eight.ballot(lane & 1) == 0xaa && eight.any(lane == 31) == (lane >= 24));
    WANT(eight.match_any(lane / 4) == (lane % 8 < 4 ? 0x0fu : 0xf0u));
    int same;
    WANT(eight.match_all(lane / 8, same) == 0xff && same);
    WANT(cg::reduce(eight, lane, cg::greater<unsigned>()) == lane / 8 * 8 + 7);
    WANT(cg::reduce(warp, 1.5, cg::plus<double>()) == 48.0);
    WANT(cg::reduce(eight, 1 << (lane % 8), cg::bit_or<int>()) == 255);
    WANT(cg::exclusive_scan(eight, 3) == 3 * int(lane % 8));
    WANT(cg::inclusive_scan(eight, lane, cg::less<unsigned>()) == lane / 8 * 8);
    wide many = {{0, 0, 0, 0, 0, 0, int(rank)}};
    WANT(eight.shfl(many, 1).a[6] == int(rank / 8 * 8 + 1));
    cg::thread_group dynamic = cg::tiled_partition(block, 16);
    WANT(dynamic.size() == 16 && dynamic.thread_rank() == lane % 16);
    dynamic.sync();
    cg::coalesced_group third = cg::labeled_partition(warp, lane % 3);
    WANT(third.size() == (lane % 3 == 2 ? 10 : 11) && third.thread_rank() == lane / 3);
    WANT(third.meta_group_size() == 3 && third.meta_group_rank() == lane % 3);
    cg::coalesced_group half = cg::binary_partition(eight, lane % 8 < 3);
    WANT(half.size() == (lane % 8 < 3 ? 3 : 5));
    WANT(cg::invoke_one_broadcast(eight, [&] { return int(rank); }) == int(rank / 8 * 8));
    __shared__ int copied[64], source[64];
    source[rank] = int(rank) * 3;
    block.sync();
    cg::memcpy_async(block, copied, source, sizeof(source));
    cg::wait(block);
    WANT(copied[63 - rank] == 3 * int(63 - rank));
    __shared__ cuda::atomic<int, cuda::thread_scope_block> total;
    cg::invoke_one(block, [&] { total.store(100); });
    block.sync();
    int begin = cg::exclusive_scan_update(warp, total, 1);
    WANT((begin - 100) % 32 == int(lane));
    block.sync();
    WANT(total.load() == 164);
    cg::cluster_group cluster = cg::this_cluster();
    cluster.sync();
    WANT(cluster.num_blocks() == 1 && *cluster.map_shared_rank(&copied[5], 0) == 15);
    auto token = block.barrier_arrive();
    block.barrier_wait(std::move(token));
}

__global__ void whole_grid(int *bad, int *sums)
{
    cg::grid_group grid = cg::this_grid();
    WANT(grid.is_valid() && grid.num_blocks() == 3 && grid.size() == 96);
    for (int round = 0; round < 3; round++) {
        atomicAdd(&sums[round], static_cast<int>(grid.thread_rank()));
        grid.sync();
        WANT(sums[round] == 95 * 48);
    }
}

int main()
{
    int *bad = make<int>(1), *numbers = make<int>(4);
    shuffles<<<2, 64>>>(bad);
    shuffles<<<1, 43>>>(bad);
    votes<<<1, 32>>>(bad);
    votes<<<1, 32 + 13>>>(bad);
    active<<<3, 64>>>(bad, numbers);
    tiles<<<2, 64>>>(bad);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK(numbers[0] == 3 * 2 * 22);
    numbers[0] = 0;
    void *arguments[] = {&bad, &numbers};
    CHECK_CUDA(cudaLaunchCooperativeKernel((void *)whole_grid, dim3(3), dim3(32), arguments, 0, 0));
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK(*bad == 0);
    return report();
}
