// For tests of kernels: all ranks of a communicator, driven by one thread, with a device, a stream,
// a window and a device communicator each; and random numbers. Where there are fewer devices than
// ranks, ranks share them.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_KERNELS_RANKS_FOR_TESTS_CUH
#define TUTTI_KERNELS_RANKS_FOR_TESTS_CUH

#include "../tests/support/expect.h"

#include <nccl.h>
#include <nccl_device.h>

#include <stdint.h>
#include <string.h>

enum { BARRIERS = 16, MAX_RANKS = 8 };

// One stream and window each.
struct ranks {
    int count;
    size_t window_bytes;
    int device[MAX_RANKS];
    ncclComm_t comm[MAX_RANKS];
    cudaStream_t stream[MAX_RANKS];
    char *memory[MAX_RANKS];
    ncclWindow_t window[MAX_RANKS];
    ncclDevComm device_comm[MAX_RANKS];
    bool multimem;
};

static inline bool open_ranks(ranks *all, int count, size_t window_bytes)
{
    memset(all, 0, sizeof *all);
    all->count = count;
    all->window_bytes = window_bytes;
    int devices = 0;
    if (!EXPECT_CUDA(cudaGetDeviceCount(&devices)) || !EXPECT(devices > 0)) {
        return false;
    }
    for (int r = 0; r < count; r++) {
        all->device[r] = r % devices;
    }
    ncclUniqueId id; // ncclCommInitAll takes each device once
    EXPECT_OK(ncclGetUniqueId(&id));
    EXPECT_OK(ncclGroupStart());
    for (int r = 0; r < count; r++) {
        EXPECT_CUDA(cudaSetDevice(all->device[r]));
        EXPECT_OK(ncclCommInitRank(&all->comm[r], count, id, r));
    }
    if (!EXPECT_OK(ncclGroupEnd())) {
        return false;
    }
    for (int r = 0; r < count; r++) {
        EXPECT_CUDA(cudaSetDevice(all->device[r]));
        EXPECT_CUDA(cudaStreamCreate(&all->stream[r]));
        EXPECT_OK(ncclMemAlloc((void **)&all->memory[r], window_bytes));
    }
    EXPECT_OK(ncclGroupStart());
    for (int r = 0; r < count; r++) {
        EXPECT_OK(ncclCommWindowRegister(all->comm[r], all->memory[r], window_bytes,
                                         &all->window[r], NCCL_WIN_COLL_SYMMETRIC));
    }
    EXPECT_OK(ncclGroupEnd());
    ncclCommProperties properties = NCCL_COMM_PROPERTIES_INITIALIZER;
    EXPECT_OK(ncclCommQueryProperties(all->comm[0], &properties));
    all->multimem = properties.multimemSupport;
    EXPECT_OK(ncclGroupStart());
    for (int r = 0; r < count; r++) {
        ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
        needs.lsaBarrierCount = BARRIERS;
        needs.lsaMultimem = all->multimem;
        EXPECT_OK(ncclDevCommCreate(all->comm[r], &needs, &all->device_comm[r]));
    }
    return EXPECT_OK(ncclGroupEnd());
}

static inline void close_ranks(ranks *all)
{
    for (int r = 0; r < all->count; r++) {
        EXPECT_CUDA(cudaSetDevice(all->device[r]));
        EXPECT_OK(ncclDevCommDestroy(all->comm[r], &all->device_comm[r]));
        EXPECT_OK(ncclCommWindowDeregister(all->comm[r], all->window[r]));
        EXPECT_OK(ncclMemFree(all->memory[r]));
        EXPECT_CUDA(cudaStreamDestroy(all->stream[r]));
    }
    for (int r = 0; r < all->count; r++) {
        EXPECT_OK(ncclCommDestroy(all->comm[r]));
    }
}

static inline bool wait_all(const ranks *all)
{
    bool good = true;
    for (int r = 0; r < all->count; r++) {
        good = EXPECT_CUDA(cudaSetDevice(all->device[r])) &&
               EXPECT_CUDA(cudaStreamSynchronize(all->stream[r])) && good;
    }
    return good;
}

static uint32_t random_state = 1;
// 24 random bits.
static inline uint32_t random_bits()
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}
// -0.75 .. 1.25.
static inline float random_float()
{
    return (float)random_bits() * 0x1p-24f * 2.0f - 0.75f;
}

#endif
