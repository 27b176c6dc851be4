// this_grid().sync(): no block passes before all have come, meeting after meeting; refused where it
// cannot work.
// SPDX-License-Identifier: Apache-2.0
#include "expect.h"
#include "kernel_by_hand.h"

#include <stdatomic.h>
#include <string.h>

enum { BLOCKS = 24, THREADS = 40, ROUNDS = 5 };

struct rounds {
    unsigned entered[ROUNDS]; // plain: the barrier must order them
    atomic_uint arrived[ROUNDS];
    atomic_uint early;
};

static cudaError_t launch_cooperative(const struct vgpu_kernel *kernel, unsigned blocks,
                                      unsigned threads, void *data)
{
    void *arguments[] = {&data};
    return cudaLaunchCooperativeKernel(kernel, (dim3){blocks, 1, 1}, (dim3){threads, 1, 1},
                                       arguments, 0, 0);
}

KERNEL(meets_often, struct rounds, 0)
{
    for (int round = 0; round < ROUNDS; round++) {
        atomic_fetch_add_explicit(&data->arrived[round], 1, memory_order_relaxed);
        if (blockIdx.x == 0 && threadIdx.x == THREADS - 1) {
            data->entered[round] = 7;
        }
        vgpu_grid_sync();
        if (atomic_load_explicit(&data->arrived[round], memory_order_relaxed) != BLOCKS * THREADS ||
            data->entered[round] != 7) {
            atomic_fetch_add(&data->early, 1);
        }
    }
}

static void all_blocks_meet(void)
{
    struct rounds rounds;
    memset(&rounds, 0, sizeof(rounds));
    EXPECT_CUDA(launch_cooperative(&meets_often, BLOCKS, THREADS, &rounds));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(rounds.early, 0);
    EXPECT_EQ(rounds.arrived[ROUNDS - 1], BLOCKS * THREADS);
}

KERNEL(asks, int, 0)
{
    *data = vgpu_grid_is_cooperative() ? 1 : 2;
}

static void the_launch_says_whether(void)
{
    int answer = 0;
    EXPECT_CUDA(launch_cooperative(&asks, 1, 1, &answer));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(answer, 1);
    EXPECT_CUDA(LAUNCH(asks, 1, 1, 0, &answer));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(answer, 2);
    EXPECT(!vgpu_grid_is_cooperative());
}

static void an_ordinary_launch_faults(void)
{
    struct rounds rounds;
    memset(&rounds, 0, sizeof(rounds));
    EXPECT_CUDA(LAUNCH(meets_often, 2, THREADS, 0, &rounds));
    EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    (void)cudaDeviceReset();
}

KERNEL(leaves_early, struct rounds, 0)
{
    if (threadIdx.x != 3) {
        atomic_fetch_add(&data->arrived[0], 1);
        vgpu_grid_sync();
    }
}

static void a_missing_thread_faults(void)
{
    struct rounds rounds;
    memset(&rounds, 0, sizeof(rounds));
    EXPECT_CUDA(launch_cooperative(&leaves_early, 3, THREADS, &rounds));
    EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    (void)cudaDeviceReset();
}

int main(void)
{
    RUN(all_blocks_meet);
    RUN(the_launch_says_whether);
    RUN(an_ordinary_launch_faults);
    RUN(a_missing_thread_faults);
    return expect_result();
}
