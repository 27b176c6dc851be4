// C81 in kernels: ranks whose processes see one GPU each, all by number 0, or all GPUs in different
// orders, load from each other's windows, add in the switch, and meet at barriers.
// SPDX-License-Identifier: Apache-2.0
#include "../support/member.h"

#include <cuda_runtime.h>
#include <nccl_device.h>
#include <stdio.h>
#include <stdlib.h>
#include <vgpu/limit.h>

enum { COUNT = 1003, THREADS = 64 };

// in: COUNT numbers in the window; sums: those over all ranks, by loads of each; behind them, by
// the switch.
__global__ void add(ncclWindow_t window, ncclDevComm comm, int *sums)
{
    ncclCoopCta block;
    ncclLsaBarrierSession<ncclCoopCta> barrier(block, comm, ncclTeamTagLsa(), blockIdx.x);
    barrier.sync(block, cuda::memory_order_acq_rel);
    for (int i = threadIdx.x; i < COUNT; i += blockDim.x) {
        int sum = 0;
        for (int rank = 0; rank < comm.nRanks; rank++) {
            sum += *(const int *)ncclGetLsaPointer(window, i * sizeof(int), rank);
        }
        sums[i] = sum;
        const int *all = (const int *)ncclGetLsaMultimemPointer(window, i * sizeof(int), comm);
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add.s32 %0, [%1];"
                     : "=r"(sums[COUNT + i])
                     : "l"(all)
                     : "memory");
    }
    barrier.sync(block, cuda::memory_order_acq_rel);
}

static void use_kernels(struct member *m)
{
    ncclDevComm device_comm;
    ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    needs.lsaBarrierCount = 1;
    needs.lsaMultimem = true;
    int numbers[COUNT], sums[2 * COUNT], *on_device = nullptr;
    for (int i = 0; i < COUNT; i++) {
        numbers[i] = (m->rank + 1) * i;
    }
    if (!member_open_window(m, sizeof numbers) ||
        !EXPECT_OK(ncclDevCommCreate(m->comm, &needs, &device_comm))) {
        return;
    }
    EXPECT_CUDA(cudaMalloc((void **)&on_device, sizeof sums));
    EXPECT_CUDA(cudaMemcpy(m->memory, numbers, sizeof numbers, cudaMemcpyHostToDevice));
    add<<<1, THREADS, 0, m->stream>>>(m->window, device_comm, on_device);
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
    EXPECT_CUDA(cudaMemcpy(sums, on_device, sizeof sums, cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int i = 0; i < 2 * COUNT; i++) {
        wrong += sums[i] != m->size * (m->size + 1) / 2 * (i % COUNT);
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_CUDA(cudaFree(on_device));
    EXPECT_OK(ncclDevCommDestroy(m->comm, &device_comm));
}

// One GPU each: the machine's numbers 7, 5, 3.
static void alone(int rank, int size)
{
    struct member m;
    int count = 0;
    EXPECT_EQ(vgpuLimitDevices(1ull << (7 - 2 * rank)), 0);
    EXPECT_CUDA(cudaGetDeviceCount(&count));
    EXPECT_EQ(count, 1);
    EXPECT_EQ(vgpuPhysicalDevice(0), 7 - 2 * rank);
    if (member_join(&m, rank, size)) {
        use_kernels(&m);
        member_leave(&m);
    }
}

// The same GPUs under other numbers: rank r takes its number r, which is the machine's (r + r) % 3.
static void turned(int rank, int size)
{
    static const char *const orders[] = {"0,1,2", "1,2,0", "2,0,1"};
    struct member m;
    EXPECT_EQ(setenv("CUDA_VISIBLE_DEVICES", orders[rank], 1), 0);
    if (member_join(&m, rank, size)) {
        EXPECT_EQ(vgpuPhysicalDevice(m.device), 2 * rank % 3);
        use_kernels(&m);
        member_leave(&m);
    }
}

static void one_each()
{
    run_ranks(3, alone, 60);
}

static void in_other_orders()
{
    run_ranks(3, turned, 60);
}

int main()
{
    RUN(one_each);
    RUN(in_other_orders);
    return expect_result();
}
