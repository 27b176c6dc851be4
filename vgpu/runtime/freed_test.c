// Device memory that kernels use after its end; run in checking mode.
// SPDX-License-Identifier: Apache-2.0
#include "expect.h"
#include "kernel_by_hand.h"

#include <string.h>

KERNEL(writes, char, 0)
{
    *(volatile char *)data = 1;
}

static cudaError_t run(char *memory)
{
    cudaError_t error = LAUNCH(writes, 1, 1, 0, memory);
    return error ? error : cudaDeviceSynchronize();
}

static void freed_pages_are_closed(void)
{
    for (size_t bytes = 4096; bytes <= (size_t)128 << 20; bytes *= 8) {
        void *memory = NULL;
        void *neighbour = NULL;
        EXPECT_CUDA(cudaMalloc(&memory, bytes));
        EXPECT_CUDA(cudaMalloc(&neighbour, 4096));
        EXPECT_CUDA(run(memory));
        EXPECT_CUDA(cudaFree(memory));
        EXPECT_CUDA(run(neighbour));
        EXPECT_EQ(run(memory), cudaErrorIllegalAddress);
        EXPECT_CUDA(cudaDeviceReset());
        EXPECT_EQ(run(neighbour), cudaErrorIllegalAddress);
        EXPECT_CUDA(cudaDeviceReset());
    }
}

// Blocks that are cut out of what was closed can be used to their last byte.
static void closed_pages_are_opened(void)
{
    enum { BLOCKS = 300 };
    static void *block[BLOCKS];
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            size_t bytes = (size_t)(i * 37 % 23 * 999 + 1 + round * 1000);
            EXPECT_CUDA(cudaMalloc(&block[i], bytes));
            memset(block[i], i, bytes);
        }
        for (int i = 0; i < BLOCKS; i++) {
            EXPECT_EQ(*(unsigned char *)block[i], i % 256);
        }
        for (int i = 0; i < BLOCKS; i++) {
            EXPECT_CUDA(cudaFree(block[(i * 7 + round) % BLOCKS]));
        }
    }
}

int main(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    (void)freed_pages_are_closed;
    SKIP("the sanitizer handles signals");
#else
    RUN(freed_pages_are_closed);
#endif
    RUN(closed_pages_are_opened);
    return expect_result();
}
