// Warps: exchanges, masks, partial warps, lanes that end, lanes that wait with different masks.
// SPDX-License-Identifier: Apache-2.0
#include "expect.h"
#include "kernel_by_hand.h"

#include <stdatomic.h>
#include <string.h>

struct slots {
    char value[32][16];
};

// The 32-bit value that `lane` gave.
static unsigned slot_of(const struct slots *slots, unsigned lane)
{
    unsigned value;
    memcpy(&value, slots->value[lane], sizeof(value));
    return value;
}

static unsigned linear_thread(void)
{
    return threadIdx.x + blockDim.x * threadIdx.y;
}

KERNEL(exchanges_in_full_warps, atomic_int, 0)
{
    unsigned lane = linear_thread() % 32;
    unsigned warp = linear_thread() / 32;
    for (unsigned round = 0; round < 40; round++) {
        unsigned mine = warp * 100000 + lane * 100 + round;
        struct slots slots;
        unsigned took_part = vgpu_warp_exchange(~0u, &mine, sizeof(mine), &slots);
        for (unsigned other = 0; other < 32; other++) {
            if (slot_of(&slots, other) != warp * 100000 + other * 100 + round) {
                atomic_fetch_add(data, 1);
            }
        }
        if (took_part != ~0u || slots.value[3][4] != 0) {
            atomic_fetch_add(data, 1);
        }
    }
}

static void full_warps_exchange(void)
{
    atomic_int wrong = 0;
    EXPECT_CUDA(
        launch_by_hand(&exchanges_in_full_warps, (dim3){3, 1, 1}, (dim3){16, 8, 1}, 0, 0, &wrong));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(wrong, 0);
}

KERNEL(exchanges_in_a_partial_warp, atomic_int, 0)
{
    unsigned mine = threadIdx.x + 1;
    struct slots slots;
    unsigned took_part = vgpu_warp_exchange(~0u, &mine, sizeof(mine), &slots);
    unsigned expected = threadIdx.x < 32 ? ~0u : (1u << 13) - 1;
    if (took_part != expected || vgpu_active_mask(__LINE__) != expected) {
        atomic_fetch_add(data, 1);
    }
    vgpu_syncwarp(~0u); // until here no lane ends
    for (unsigned lane = 0; lane < 32; lane++) {
        unsigned there = expected >> lane & 1 ? threadIdx.x / 32 * 32 + lane + 1 : 0;
        if (slot_of(&slots, lane) != there) {
            atomic_fetch_add(data, 1);
        }
    }
}

static void the_last_warp_may_be_partial(void)
{
    atomic_int wrong = 0;
    EXPECT_CUDA(LAUNCH(exchanges_in_a_partial_warp, 1, 45, 0, &wrong));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(wrong, 0);
}

// Odd and even lanes meet apart, a different number of times, then together.
KERNEL(exchanges_by_mask, atomic_int, 0)
{
    unsigned lane = threadIdx.x % 32;
    unsigned mask = lane & 1 ? 0xaaaaaaaau : 0x55555555u;
    for (unsigned round = 0; round < 5 + 20 * (lane & 1); round++) {
        unsigned mine = lane + round * 64;
        struct slots slots;
        unsigned took_part = vgpu_warp_exchange(mask, &mine, sizeof(mine), &slots);
        for (unsigned other = 0; other < 32; other++) {
            unsigned there = mask >> other & 1 ? other + round * 64 : 0;
            if (took_part != mask || slot_of(&slots, other) != there) {
                atomic_fetch_add(data, 1);
            }
        }
    }
    vgpu_syncwarp(~0u);
}

static void masks_meet_apart(void)
{
    atomic_int wrong = 0;
    EXPECT_CUDA(LAUNCH(exchanges_by_mask, 2, 64, 0, &wrong));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(wrong, 0);
}

// Lane n ends after n rounds; the mask still names all.
KERNEL(lanes_end, atomic_int, 0)
{
    unsigned lane = threadIdx.x;
    for (unsigned round = 0; round < lane; round++) {
        unsigned mine = 1;
        struct slots slots;
        unsigned took_part = vgpu_warp_exchange(~0u, &mine, sizeof(mine), &slots);
        if (took_part != ~0u << (round + 1)) {
            atomic_fetch_add(data, 1);
        }
    }
}

static void ended_lanes_are_not_waited_for(void)
{
    atomic_int wrong = 0;
    EXPECT_CUDA(LAUNCH(lanes_end, 1, 32, 0, &wrong));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(wrong, 0);
}

struct order {
    int value[64];
    atomic_int wrong;
};

KERNEL(syncs_warps, struct order, 0)
{
    unsigned t = threadIdx.x;
    for (int round = 0; round < 30; round++) {
        data->value[t] = round;
        vgpu_syncwarp(~0u);
        if (data->value[t ^ 1] != round) {
            atomic_fetch_add(&data->wrong, 1);
        }
        vgpu_syncwarp(~0u);
    }
    char sixteen[16];
    memset(sixteen, (int)t, sizeof(sixteen));
    struct slots slots;
    (void)vgpu_warp_exchange(~0u, sixteen, sizeof(sixteen), &slots);
    if (slots.value[7][15] != (char)(t / 32 * 32 + 7)) {
        atomic_fetch_add(&data->wrong, 1);
    }
}

static void syncwarp_orders_lanes(void)
{
    static struct order order;
    EXPECT_CUDA(LAUNCH(syncs_warps, 1, 64, 0, &order));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(order.wrong, 0);
}

int main(void)
{
    RUN(full_warps_exchange);
    RUN(the_last_warp_may_be_partial);
    RUN(masks_meet_apart);
    RUN(ended_lanes_are_not_waited_for);
    RUN(syncwarp_orders_lanes);
    return expect_result();
}
