// Thread groups: ranks, sizes, masks, meeting and broadcasting of each kind, alone and side by side
// in one block. Needs no communicator.
// SPDX-License-Identifier: Apache-2.0
#include "../support/expect.h"

#include <nccl.h>
#include <nccl_device.h>

#include <vector>

enum { THREADS = 544 }; // 17 warps

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            atomicAdd(&wrong[0], 1u);                                                              \
            atomicExch(&wrong[1], (unsigned)__LINE__);                                             \
        }                                                                                          \
    } while (0)

// ---- Shapes
// -----------------------------------------------------------------------------------------------

template <int n> __device__ void tile(unsigned *wrong)
{
    ncclCoopTile<n> group;
    int lane = threadIdx.x % 32;
    unsigned low = n == 32 ? ~0u : (1u << (n % 32)) - 1;
    static_assert(ncclCoopIsThread(ncclCoopTile<n>()) == (n == 1), "");
    static_assert(ncclCoopWithinWarp(ncclCoopTile<n>()), "");
    static_assert(ncclCoopTile<n>().size() == n && ncclCoopTile<n>().num_threads() == n, "");
    CHECK(group.thread_rank() == lane % n);
    CHECK(group.laneMask() == low << (lane / n * n));
    CHECK(ncclCoopGetLaneMask(group) == group.laneMask());
    group.sync();
    for (int root = 0; root < n; root++) {
        int value = ncclCoopBcast(group, lane * 10 + n, root);
        CHECK(value == (lane / n * n + root) * 10 + n);
    }
    struct wide {
        double a;
        char b[5];
    };
    wide mine = {lane + 0.5, {(char)lane, 2, 3, 4, (char)n}};
    wide got = ncclCoopBcast(group, mine, n - 1, false);
    CHECK(got.a == lane / n * n + n - 1 + 0.5 && got.b[4] == n);
    CHECK(ncclCoopCoalesced(group).size() == n);
}

__global__ void tiles(unsigned *wrong)
{
    tile<1>(wrong);
    tile<2>(wrong);
    tile<4>(wrong);
    tile<8>(wrong);
    tile<16>(wrong);
    tile<32>(wrong);
    ncclCoopThread alone;
    ncclCoopWarp warp;
    CHECK(alone.size() == 1 && warp.size() == 32 && alone.thread_rank() == 0);
}

// Different tiles of a warp do different things.
__global__ void diverging_tiles(unsigned *wrong)
{
    ncclCoopTile<8> group;
    int number = threadIdx.x / 8;
    for (int i = 0; i < number; i++) {
        CHECK(ncclCoopBcast(group, group.thread_rank() + 100 * i, 7 - i % 8) ==
              7 - i % 8 + 100 * i);
        group.sync();
    }
}

__global__ void lanes(unsigned *wrong)
{
    unsigned mask = 0x90050206u; // 7 lanes
    int lane = threadIdx.x % 32;
    ncclCoopLanes all;
    CHECK(all.lmask == ~0u && all.size() == 32 && all.thread_rank() == lane);
    static_assert(!ncclCoopIsThread(ncclCoopLanes()) && ncclCoopWithinWarp(ncclCoopLanes()), "");
    if (mask >> lane & 1) {
        ncclCoopLanes some(mask);
        int rank = __popc(mask & ((1u << lane) - 1));
        CHECK(some.size() == __popc(mask) && some.num_threads() == some.size());
        CHECK(some.thread_rank() == rank);
        CHECK(ncclCoopGetLaneMask(some) == mask && ncclCoopCoalesced(some).lmask == mask);
        some.sync();
        for (int root = 0; root < some.size(); root++) {
            CHECK(ncclCoopBcast(some, rank * 3, root) == root * 3);
        }
        ncclCoopLanes running = ncclCoopCoalesced();
        CHECK((running.lmask >> lane & 1) != 0);
    }
}

// ---- Groups of warps
// --------------------------------------------------------------------------------------

// Pairs of warps meet side by side. join: all meet at the block's barrier afterwards, which id 15
// would disturb.
__global__ void spans(unsigned *wrong, bool join)
{
    __shared__ int words[16][8];
    int warp = threadIdx.x / 32;
    static_assert(!ncclCoopIsThread(ncclCoopWarpSpan(0, 1, 0)), "");
    static_assert(!ncclCoopWithinWarp(ncclCoopWarpSpan(0, 1, 0)), "");
    if (warp < 16) {
        int id = warp / 2 * 2 + (warp / 2 == 7 && !join); // 0, 2, ... 12, 14 or 15
        ncclCoopWarpSpan pair(warp / 2 * 2, 2, id);
        CHECK(pair.size() == 64 && pair.num_threads() == 64);
        CHECK(pair.thread_rank() == (int)threadIdx.x - warp / 2 * 64);
        CHECK(ncclCoopGetLaneMask(pair) == ~0u && ncclCoopCoalesced(pair).size() == 32);
        for (int round = 0; round < 20; round++) {
            if (pair.thread_rank() == round) {
                words[warp / 2][round % 8] = round + 1000 * warp;
            }
            pair.sync();
            CHECK(words[warp / 2][round % 8] % 1000 == round);
            int root = round * 3 % 64;
            CHECK(ncclCoopBcast(pair, (long long)pair.thread_rank() << 33, root) == (long long)root
                                                                                        << 33);
            pair.sync();
        }
    }
    if (join) {
        __syncthreads();
    }
}

// All sixteen ids at once, one warp each.
__global__ void sixteen_spans(unsigned *wrong)
{
    int warp = threadIdx.x / 32;
    if (warp == 16) {
        return;
    }
    ncclCoopWarpSpan mine(warp, 1, warp);
    for (int round = 0; round < 20; round++) {
        float4 value = {(float)warp, (float)round, (float)mine.thread_rank(), 4.f};
        float4 got = ncclCoopBcast(mine, value, (round + warp) % 32);
        CHECK(got.x == (float)warp && got.y == (float)round &&
              got.z == (float)((round + warp) % 32) && got.w == 4.f);
        mine.sync();
    }
}

__global__ void cta(unsigned *wrong)
{
    ncclCoopCta block;
    static_assert(!ncclCoopIsThread(ncclCoopCta()) && !ncclCoopWithinWarp(ncclCoopCta()), "");
    CHECK(block.size() == (int)blockDim.x && block.num_threads() == block.size());
    CHECK(block.thread_rank() == (int)threadIdx.x && ncclCoopGetLaneMask(block) == ~0u);
    CHECK(ncclCoopCoalesced(block).size() == 32);
    for (int root = 0; root < block.size(); root += 37) {
        CHECK(ncclCoopBcast(block, (short)(block.thread_rank() ^ 5), root) == (short)(root ^ 5));
    }
    // Without the first meeting: two broadcasts, a meeting before each.
    block.sync();
    CHECK(ncclCoopBcast(block, block.thread_rank(), 1, false) == 1);
    block.sync();
    CHECK(ncclCoopBcast(block, block.thread_rank(), 2, false) == 2);
}

// ---- Any group
// ------------------------------------------------------------------------------------------------

__device__ __noinline__ int meet_as_any(ncclCoopAny group, int *word, unsigned *wrong)
{
    if (group.thread_rank() == group.size() - 1) {
        *word = group.size() * 7;
    }
    group.sync();
    int seen = *word;
    group.sync();
    CHECK(group.num_threads() == group.size());
    return seen;
}

__global__ void any(unsigned *wrong)
{
    __shared__ int words[THREADS];
    int warp = threadIdx.x / 32;
    CHECK(meet_as_any(ncclCoopCta(), &words[0], wrong) == THREADS * 7);
    __syncthreads();
    CHECK(meet_as_any(ncclCoopWarp(), &words[warp], wrong) == 32 * 7);
    __syncthreads();
    CHECK(meet_as_any(ncclCoopTile<4>(), &words[threadIdx.x / 4], wrong) == 4 * 7);
    __syncthreads();
    CHECK(meet_as_any(ncclCoopThread(), &words[threadIdx.x], wrong) == 7);
    __syncthreads();
    if (warp < 16) {
        ncclCoopAny pair = ncclCoopWarpSpan(warp / 2 * 2, 2, warp / 2);
        ncclCoopAny copy = pair;
        CHECK(meet_as_any(copy, &words[warp / 2], wrong) == 64 * 7);
    }
    __syncthreads();
    if (threadIdx.x % 32 < 3) {
        CHECK(meet_as_any(ncclCoopLanes(7), &words[100 + warp], wrong) == 3 * 7);
    }
}

// ---- The host side
// --------------------------------------------------------------------------------------------

template <typename Launch> static void expect_right(Launch launch)
{
    unsigned *wrong = nullptr;
    unsigned result[2] = {1, 0};
    EXPECT_CUDA(cudaMalloc((void **)&wrong, sizeof result));
    EXPECT_CUDA(cudaMemset(wrong, 0, sizeof result));
    launch(wrong);
    EXPECT_CUDA(cudaGetLastError());
    EXPECT_CUDA(cudaMemcpy(result, wrong, sizeof result, cudaMemcpyDeviceToHost));
    EXPECT_EQ(result[0], 0);
    EXPECT_EQ(result[1], 0); // the line
    EXPECT_CUDA(cudaFree(wrong));
}

static void run_tiles(void)
{
    expect_right([](unsigned *wrong) { tiles<<<2, 64>>>(wrong); });
    expect_right([](unsigned *wrong) { diverging_tiles<<<2, 64>>>(wrong); });
}
static void run_lanes(void)
{
    expect_right([](unsigned *wrong) { lanes<<<2, 64>>>(wrong); });
}
static void run_spans(void)
{
    expect_right([](unsigned *wrong) { spans<<<2, THREADS>>>(wrong, false); });
    expect_right([](unsigned *wrong) { spans<<<1, 512>>>(wrong, true); });
    expect_right([](unsigned *wrong) { sixteen_spans<<<2, THREADS>>>(wrong); });
}
static void run_cta(void)
{
    expect_right([](unsigned *wrong) { cta<<<3, 96>>>(wrong); });
    expect_right([](unsigned *wrong) { cta<<<1, THREADS>>>(wrong); });
}
static void run_any(void)
{
    expect_right([](unsigned *wrong) { any<<<2, THREADS>>>(wrong); });
}

int main(void)
{
    RUN(run_tiles);
    RUN(run_lanes);
    RUN(run_spans);
    RUN(run_cta);
    RUN(run_any);
    return expect_result();
}
