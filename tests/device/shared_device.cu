// 2, 4 and 8 ranks on one device, as threads and as processes: kernels of all ranks wait for each
// other at barriers, read each other's windows, and use multicast where the device has it; the
// native path runs too. Run with CUDA_VISIBLE_DEVICES=0. (NCCL issues 418 and 1716.)
// SPDX-License-Identifier: Apache-2.0
#include "ranks_of_devices.h"

#include <tutti.h>

#include <vector>

enum { BLOCKS = 8, THREADS = 64, ROUNDS = 5, COUNT = BLOCKS * THREADS };

static __host__ __device__ float input(int rank, int round, int i)
{
    return (float)((rank + 1) * (i % 61) + round);
}

static float sum(int ranks, int round, int i)
{
    float total = 0;
    for (int r = 0; r < ranks; r++) {
        total += input(r, round, i);
    }
    return total;
}

// Behind the inputs of COUNT elements: the sums of as many.
__global__ void add(ncclWindow_t window, ncclDevComm comm, bool multimem, int round)
{
    ncclCoopCta block;
    ncclLsaBarrierSession<ncclCoopCta> barrier(block, comm, ncclTeamTagLsa(), blockIdx.x, multimem);
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float *mine = (float *)ncclGetLocalPointer(window, 0);
    mine[i] = input(comm.rank, round, (int)i);
    barrier.sync(block, cuda::memory_order_acq_rel);
    float total = 0;
    if (multimem) {
        total = tuttiMultimemLoadSum(
            (float *)ncclGetLsaMultimemPointer(window, i * sizeof(float), comm));
    } else {
        for (int r = 0; r < comm.lsaSize; r++) {
            total += *(float *)ncclGetLsaPointer(window, i * sizeof(float), r);
        }
    }
    mine[COUNT + i] = total;
    barrier.sync(block, cuda::memory_order_acq_rel);
}

static void check(device_rank &me, const test_window &window, bool multimem)
{
    ncclDevComm comm;
    if (!open_device_comm(me, BLOCKS, &comm)) {
        return;
    }
    for (int round = 0; round < ROUNDS; round++) {
        std::vector<float> sums(COUNT);
        add<<<BLOCKS, THREADS, 0, me.stream>>>(window.handle, comm, multimem, round);
        EXPECT_CUDA(cudaGetLastError());
        read_back(me, sums.data(), window.memory + COUNT * sizeof(float), COUNT * sizeof(float));
        for (int i = 0; i < COUNT; i++) {
            if (!EXPECT_EQ(sums[i], sum(me.size, round, i))) {
                break;
            }
        }
    }
    EXPECT_OK(ncclDevCommDestroy(me.comm, &comm));
}

// Ones: their sum's norm is one.
static void check_native(device_rank &me, const test_window &window)
{
    std::vector<float> values(COUNT, 1.0f);
    EXPECT_CUDA(cudaMemcpyAsync(window.memory, values.data(), COUNT * sizeof(float),
                                cudaMemcpyHostToDevice, me.stream));
    EXPECT_CUDA(cudaStreamSynchronize(me.stream));
    meet(me);
    EXPECT_OK(tuttiAllReduceRMSNorm(window.memory, window.memory, COUNT / 32, 32, nullptr,
                                    ncclFloat, me.comm, me.stream));
    EXPECT_CUDA(cudaStreamSynchronize(me.stream));
    EXPECT_CUDA(
        cudaMemcpy(values.data(), window.memory, COUNT * sizeof(float), cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++) {
        if (!EXPECT_NEAR(values[i], 1.0, 1e-6)) {
            break;
        }
    }
}

static void share(device_rank &me)
{
    int devices = 0;
    test_window window;
    EXPECT_CUDA(cudaGetDeviceCount(&devices));
    EXPECT_EQ(devices, 1);
    const char *expected = getenv("TUTTI_TEST_MULTIMEM");
    EXPECT_EQ(me.properties.multimemSupport, expected == nullptr || atoi(expected) != 0);
    if (open_window(me, 2 * COUNT * sizeof(float), &window)) {
        check(me, window, false);
        if (me.properties.multimemSupport) {
            check(me, window, true);
        } else { // never a success that fails later
            ncclDevComm comm;
            ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
            needs.lsaMultimem = true;
            EXPECT_EQ(ncclDevCommCreate(me.comm, &needs, &comm), ncclInvalidUsage);
            EXPECT_CONTAINS(ncclGetLastError(me.comm), "multimem");
        }
        meet(me);
        check_native(me, window);
        meet(me);
        close_window(me, &window);
    }
}

// Kernels of processes take turns on a real GPU without MPS: each barrier then takes milliseconds.
static int most_processes(void)
{
#ifdef __SANITIZE_THREAD__ // which does not see other processes
    return 0;
#else
    const char *most = getenv("TUTTI_TEST_PROCESSES");
    return most == nullptr ? 8 : atoi(most);
#endif
}

static void ranks_on_one_device(void)
{
    for (int size = 2; size <= 8; size *= 2) {
        run_thread_ranks(size, as_rank<share>, 60);
        if (size <= most_processes()) {
            run_ranks(size, as_rank<share>, 60);
        }
    }
}

int main(void)
{
    RUN(ranks_on_one_device);
    return expect_result();
}
