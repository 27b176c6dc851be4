// Warp functions: each of 32 lanes in turn calls them against the same exchange.
// SPDX-License-Identifier: Apache-2.0
#include "cooperative_groups.h"
#include "cooperative_groups/reduce.h"
#include "cooperative_groups/scan.h"
#include "cuda_bf16.h"
#include "expect.h"
#include "fake_runtime.h"

#include <cstring>

namespace
{

template <class T> void deposit(T (*value)(unsigned lane))
{
    memset(fake_lanes, 0, sizeof(fake_lanes));
    for (unsigned i = 0; i < 32; i++) {
        T v = value(i);
        memcpy(fake_lanes[i], &v, sizeof(v));
    }
}

int lane_value(unsigned lane)
{
    return static_cast<int>(lane * lane) - 100;
}

void shuffles(void)
{
    deposit<int>(lane_value);
    for (unsigned lane = 0; lane < 32; lane++) {
        fake_become(lane);
        int own = lane_value(lane);
        for (int width = 1; width <= 32; width *= 2) {
            unsigned w = static_cast<unsigned>(width), begin = lane / w * w, end = begin + w - 1;
            for (unsigned d = 0; d < 40; d++) {
                EXPECT_EQ(__shfl_sync(~0u, own, static_cast<int>(d), width),
                          lane_value(begin + d % w));
                EXPECT_EQ(__shfl_up_sync(~0u, own, d, width),
                          d <= lane - begin ? lane_value(lane - d) : own);
                EXPECT_EQ(__shfl_down_sync(~0u, own, d, width),
                          lane + d <= end ? lane_value(lane + d) : own);
                unsigned x = lane ^ (d & 31u);
                EXPECT_EQ(__shfl_xor_sync(~0u, own, static_cast<int>(d & 31u), width),
                          x <= end ? lane_value(x) : own);
            }
        }
    }
    EXPECT_EQ(fake_mismatches, 0);
    int value = 0;
    EXPECT_EQ(fake_catch([](void *p) { __shfl_sync(~0u, *static_cast<int *>(p), 0, 3); }, &value),
              cudaErrorLaunchFailure);
}

__nv_bfloat162 pair_value(unsigned lane)
{
    return __floats2bfloat162_rn(static_cast<float>(lane), -static_cast<float>(lane));
}
double double_value(unsigned lane)
{
    return lane * 0.5;
}

void types(void)
{
    fake_become(3);
    deposit<__nv_bfloat162>(pair_value);
    EXPECT(__low2float(__shfl_sync(~0u, pair_value(3), 7)) == 7.0f);
    deposit<double>(double_value);
    EXPECT(__shfl_down_sync(~0u, double_value(3), 4) == 3.5);
}

unsigned char vote(unsigned lane)
{
    return lane % 3 == 0;
}
unsigned key(unsigned lane)
{
    return lane % 4;
}

void votes(void)
{
    fake_become(6);
    deposit<unsigned char>(vote);
    EXPECT_EQ(__ballot_sync(~0u, 1), 0x49249249u);
    EXPECT_EQ(__any_sync(~0u, 1), 1);
    EXPECT_EQ(__uni_sync(~0u, 1), 0);
    fake_mask = 0x49249249u;
    EXPECT_EQ(__uni_sync(fake_mask, 1), 1);
    fake_mask = 0x3f;
    EXPECT_EQ(__ballot_sync(0x3f, 1), 0x09u);
    fake_mask = ~0u;
    deposit<unsigned>(key);
    EXPECT_EQ(__match_any_sync(~0u, 2u), 0x44444444u);
    int all;
    EXPECT_EQ(__match_all_sync(~0u, 2u, &all), 0);
    EXPECT_EQ(all, 0);
    fake_mask = 0x44u;
    EXPECT_EQ(__match_all_sync(0x44u, 2u, &all), 0x44u);
    EXPECT_EQ(all, 1);
    fake_mask = ~0u;
}

void reductions(void)
{
    fake_become(5);
    deposit<int>(lane_value);
    EXPECT_EQ(__reduce_add_sync(~0u, lane_value(5)), 10416 - 3200);
    EXPECT_EQ(__reduce_min_sync(~0u, lane_value(5)), -100);
    EXPECT_EQ(__reduce_max_sync(~0u, lane_value(5)), 861);
    EXPECT_EQ(__reduce_max_sync(~0u, static_cast<unsigned>(lane_value(5))),
              static_cast<unsigned>(-19));
    EXPECT_EQ(__reduce_or_sync(~0u, static_cast<unsigned>(lane_value(5))), ~2u);
    fake_mask = 0x60u;
    EXPECT_EQ(__reduce_add_sync(fake_mask, lane_value(5)), 25 + 36 - 200);
    fake_mask = ~0u;
}

void groups(void)
{
    namespace cg = cooperative_groups;
    fake_become(13);
    deposit<int>(lane_value);
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    EXPECT_EQ(tile.thread_rank(), 5);
    EXPECT_EQ(tile.meta_group_rank(), 1);
    EXPECT_EQ(tile.meta_group_size(), 4);
    EXPECT_EQ(tile.mask(), 0xff00u);
    EXPECT_EQ(tile.shfl(lane_value(13), 2), lane_value(10));
    EXPECT_EQ(tile.shfl_down(lane_value(13), 2), lane_value(15));
    EXPECT_EQ(tile.shfl_down(lane_value(13), 3), lane_value(13));
    fake_mask = 0xff00u;
    deposit<unsigned char>(vote);
    EXPECT_EQ(tile.ballot(0), 0x92u);
    fake_mask = ~0u;
    fake_mask = 0x2480u; // lanes 7, 10, 13
    auto together = cg::coalesced_threads();
    EXPECT(together.size() == 3 && together.thread_rank() == 2);
    deposit<int>(lane_value);
    EXPECT_EQ(cg::reduce(together, lane_value(13), cg::plus<int>()),
              lane_value(7) + lane_value(10) + lane_value(13));
    EXPECT_EQ(cg::exclusive_scan(together, lane_value(13)), lane_value(7) + lane_value(10));
    fake_mask = 0x2000u;
    auto one = cg::tiled_partition<1>(tile);
    EXPECT_EQ(cg::reduce(one, lane_value(13), cg::plus<int>()), lane_value(13));
    fake_mask = ~0u;
    EXPECT_EQ(cg::this_thread_block().thread_rank(), 13);
    EXPECT(!cg::this_grid().is_valid() && cg::this_grid().size() == 32);
}

} // namespace

int main(void)
{
    RUN(shuffles);
    RUN(types);
    RUN(votes);
    RUN(reductions);
    RUN(groups);
    return expect_result();
}
