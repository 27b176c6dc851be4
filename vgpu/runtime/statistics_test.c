// Counts: native blocks that report, copies, multimem, and the hooks of `tutticc --count`.
// SPDX-License-Identifier: Apache-2.0
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <vgpu/device_runtime.h>
#include <vgpu/native.h>
#include <vgpu/stats.h>

#include "expect.h"

#include <stdint.h>
#include <string.h>

// What the compiler would call; the library in count_hooks.c defines them.
void __tsan_read4(void *address);
void __tsan_write8(void *address);
void __tsan_read16(void *address);
void __tsan_unaligned_write2(void *address);
void __tsan_write_range(void *address, long bytes);
unsigned int __tsan_atomic32_fetch_add(volatile void *address, unsigned int value, int order);
bool __tsan_atomic64_compare_exchange_strong(volatile void *address, void *expected,
                                             unsigned long desired, int success, int failure);

static struct vgpu_device_stats stats[VGPU_MAX_DEVICES];
static char *memory[3]; // 4096 bytes on devices 0, 1, 2

struct job {
    char *mine, *theirs;
};

static void with_hooks(void *argument, unsigned block, unsigned blocks)
{
    struct job *job = argument;
    (void)block;
    (void)blocks;
    __tsan_read4(job->mine);
    __tsan_write8(job->mine + 8);
    __tsan_read16(job->theirs);
    __tsan_unaligned_write2(job->theirs + 3);
    __tsan_write_range(job->theirs, 100);
    __tsan_read4(&block); // the stack is not device memory
    __tsan_atomic32_fetch_add(job->theirs, 5, 0);
    uint64_t expected = 77;
    __tsan_atomic64_compare_exchange_strong(job->mine, &expected, 1, 0, 0);
}

static void hooks_count_in_kernels(void)
{
#ifdef __SANITIZE_THREAD__
    SKIP("the hooks take the place of the thread sanitizer, which this program has");
    return;
#endif
    struct job job = {memory[0], memory[1]};
    EXPECT_CUDA(cudaSetDevice(0));
    EXPECT_CUDA(cudaMemset(memory[0], 0, 4096));
    EXPECT_CUDA(cudaMemset(memory[1], 0, 4096));
    EXPECT_CUDA(cudaDeviceSynchronize());
    vgpuStatsStart();
    __tsan_read4(memory[0]); // outside kernels nothing counts
    EXPECT_CUDA(vgpuLaunchNative("with_hooks", with_hooks, &job, sizeof(job), 10, 0));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(vgpuStatsRead(stats, VGPU_MAX_DEVICES), 8);
    vgpuStatsStop();
    // Read 16 + 4 of the atomic; written 2 + 100 + 4. Local: 4 + 8, and 8 read by the failed
    // exchange.
    EXPECT_EQ(stats[0].bytes_in, 10 * 20);
    EXPECT_EQ(stats[0].bytes_out, 10 * 106);
    EXPECT_EQ(stats[0].bytes_local, 10 * 20);
    EXPECT_EQ(stats[1].bytes_out, 10 * 20);
    EXPECT_EQ(stats[1].bytes_in, 10 * 106);
    EXPECT_EQ(vgpuStatsLink(1, 0), 10 * 20);
    EXPECT_EQ(vgpuStatsLink(0, 1), 10 * 106);
    EXPECT_EQ(vgpuStatsLink(0, 2), 0);
    // From device 1: the 16 bytes and the atomic's reading. To it: 2, 100 and the atomic's writing.
    EXPECT_EQ(stats[0].messages_in, 10 * 2);
    EXPECT_EQ(stats[0].messages_out, 10 * 3);
    EXPECT_EQ(stats[0].messages_local, 10 * 3);
    EXPECT_EQ(stats[1].messages_in, 10 * 3);
    EXPECT_EQ(stats[1].messages_out, 10 * 2);
    EXPECT_EQ(vgpuStatsLinkMessages(1, 0), 10 * 2);
    EXPECT_EQ(vgpuStatsLinkMessages(0, 1), 10 * 3);
    EXPECT_EQ(vgpuStatsLinkMessages(2, 1), 0);
    EXPECT_EQ(vgpuStatsLinkMessages(-1, 64), 0);
    EXPECT_EQ(stats[0].launches, 1);
    EXPECT_EQ(*(uint32_t *)memory[1], 50); // the atomics were carried out
}

static void reporting(void *argument, unsigned block, unsigned blocks)
{
    struct job *job = argument;
    (void)blocks;
    vgpuCountTransfer(job->theirs, 1000, 0);
    vgpuCountTransfer(job->theirs + block, 24, 1);
    vgpuCountTransfer(job->mine, 7, 1);
    vgpuCountDeviceTransfer(3, 5, 0);
    vgpuCountDeviceTransfer(-1, 5, 0);
}

static void native_blocks_report(void)
{
    struct job job = {memory[2], memory[1]};
    EXPECT_CUDA(cudaSetDevice(2));
    vgpuStatsStart();
    EXPECT_CUDA(vgpuLaunchNative("reporting", reporting, &job, sizeof(job), 100, 0));
    EXPECT_CUDA(cudaDeviceSynchronize());
    vgpuStatsRead(stats, VGPU_MAX_DEVICES);
    EXPECT_EQ(stats[2].bytes_in, 100 * 1005);
    EXPECT_EQ(stats[3].bytes_out, 100 * 5);
    EXPECT_EQ(stats[2].bytes_out, 100 * 24);
    EXPECT_EQ(stats[2].bytes_local, 100 * 7);
    EXPECT_EQ(stats[2].messages_in, 200);
    EXPECT_EQ(stats[2].messages_out, 100);
    EXPECT_EQ(stats[2].messages_local, 100);
    EXPECT_EQ(vgpuStatsLinkMessages(1, 2), 100);
    vgpuStatsStart(); // from zero again
    vgpuStatsRead(stats, VGPU_MAX_DEVICES);
    EXPECT_EQ(stats[2].bytes_in, 0);
    EXPECT_EQ(stats[2].messages_in, 0);
    EXPECT_EQ(vgpuStatsLinkMessages(1, 2), 0);
    vgpuStatsStop();
    EXPECT_CUDA(vgpuLaunchNative("reporting", reporting, &job, sizeof(job), 100, 0));
    EXPECT_CUDA(cudaDeviceSynchronize());
    vgpuStatsRead(stats, VGPU_MAX_DEVICES);
    EXPECT_EQ(stats[2].bytes_in, 0);
    EXPECT_CUDA(cudaSetDevice(0));
}

static void copies(void)
{
    vgpuStatsStart();
    EXPECT_CUDA(cudaMemcpyPeer(memory[1], 1, memory[0], 0, 500));
    EXPECT_CUDA(cudaMemcpy(memory[0], memory[0] + 1000, 300, cudaMemcpyDeviceToDevice));
    char host[64];
    EXPECT_CUDA(cudaMemcpy(host, memory[0], 64, cudaMemcpyDeviceToHost));
    vgpuStatsRead(stats, 2);
    vgpuStatsStop();
    EXPECT_EQ(stats[0].bytes_out, 500);
    EXPECT_EQ(stats[1].bytes_in, 500);
    EXPECT_EQ(stats[0].bytes_local, 300);
    EXPECT_EQ(stats[0].bytes_in, 0);
    EXPECT_EQ(stats[0].messages_out, 1);
    EXPECT_EQ(stats[1].messages_in, 1);
    EXPECT_EQ(stats[0].messages_local, 1);
    EXPECT_EQ(vgpuStatsLinkMessages(0, 1), 1);
}

// ---- Multimem ----------------------------------------------------------------------------------

enum { MEMBERS = 3 };
static const size_t PIECE = 2 << 20;

static void multimem(void *argument, unsigned block, unsigned blocks)
{
    uintptr_t alias = *(uintptr_t *)argument;
    (void)blocks;
    const struct vgpu_multimem_range *range = vgpu_multimem_find(alias + block * 16, 16);
    vgpu_count_multimem(range, 16, true);
    vgpu_count_multimem(range, 4, false);
}

static void multimem_counts_all_members(void)
{
    CUmemGenericAllocationHandle object;
    CUmulticastObjectProp p = {.numDevices = MEMBERS, .size = PIECE};
    EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(cuMulticastCreate(&object, &p), CUDA_SUCCESS);
    CUmemGenericAllocationHandle handle[MEMBERS];
    CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    for (int i = 0; i < MEMBERS; i++) {
        EXPECT_EQ(cuMulticastAddDevice(object, i), CUDA_SUCCESS);
    }
    for (int i = 0; i < MEMBERS; i++) {
        CUmemAllocationProp of = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, i}};
        EXPECT_EQ(cuMemCreate(&handle[i], PIECE, &of, 0), CUDA_SUCCESS);
        EXPECT_EQ(cuMulticastBindMem(object, 0, handle[i], 0, PIECE, 0), CUDA_SUCCESS);
    }
    CUdeviceptr alias = 0;
    EXPECT_EQ(cuMemAddressReserve(&alias, PIECE, 0, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemMap(alias, PIECE, 0, object, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemSetAccess(alias, PIECE, &access, 1), CUDA_SUCCESS);
    uintptr_t address = (uintptr_t)alias;
    vgpuStatsStart();
    EXPECT_CUDA(vgpuLaunchNative("multimem", multimem, &address, sizeof(address), 10, 0));
    EXPECT_CUDA(cudaDeviceSynchronize());
    vgpuStatsRead(stats, MEMBERS);
    vgpuStatsStop();
    EXPECT_EQ(stats[0].multimem_loads, 10);
    EXPECT_EQ(stats[0].multimem_stores, 10);
    EXPECT_EQ(stats[1].multimem_loads, 0);
    // Device 0 loads 16 and stores 4 each time; its own port serves as one of the members.
    EXPECT_EQ(stats[0].bytes_in, 10 * (16 + 4));
    EXPECT_EQ(stats[0].bytes_out, 10 * (16 + 4));
    EXPECT_EQ(stats[2].bytes_out, 10 * 16);
    EXPECT_EQ(stats[2].bytes_in, 10 * 4);
    EXPECT_EQ(stats[0].messages_in, 10 * 2);
    EXPECT_EQ(stats[2].messages_out, 10);
    EXPECT_EQ(stats[2].messages_in, 10);
    EXPECT_EQ(vgpuStatsLink(2, 0), 10 * 16);
    EXPECT_EQ(vgpuStatsLinkMessages(2, 0), 10);
    EXPECT_EQ(vgpuStatsLinkMessages(0, 2), 10);
    EXPECT_EQ(vgpuStatsLinkMessages(0, 0), 20);
    EXPECT_EQ(cuMemUnmap(alias, PIECE), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAddressFree(alias, PIECE), CUDA_SUCCESS);
    EXPECT_EQ(cuMemRelease(object), CUDA_SUCCESS);
    for (int i = 0; i < MEMBERS; i++) {
        EXPECT_EQ(cuMemRelease(handle[i]), CUDA_SUCCESS);
    }
}

int main(void)
{
    for (int i = 0; i < 3; i++) {
        EXPECT_CUDA(cudaSetDevice(i));
        EXPECT_CUDA(cudaMalloc((void **)&memory[i], 4096));
    }
    RUN(hooks_count_in_kernels);
    RUN(native_blocks_report);
    RUN(copies);
    RUN(multimem_counts_all_members);
    return expect_result();
}
