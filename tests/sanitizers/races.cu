// Programs with a race, and their correct twins: races CASE, where CASE is
//   block, block-good    threads of a block exchange values through shared memory
//   once, once-good      threads of a block add to one number, without any barrier
//   warp, warp-good      lanes exchange values through shared memory
//   blocks, blocks-good  blocks of one launch add to one number
//   streams, streams-good  a kernel and a copy on two streams
//   reuse-good           kernels that know nothing of each other, in the same shared memory
//   ranks, ranks-good    two ranks, threads of this process, exchange values through a window
// What is computed may be wrong in the racy ones, so nothing is checked here: the sanitizer judges.
// SPDX-License-Identifier: Apache-2.0
#include <cuda/atomic>
#include <nccl.h>
#include <nccl_device.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thread>

enum { THREADS = 64, RANKS = 2 };

#define CHECK(call)                                                                                \
    do {                                                                                           \
        int status = (int)(call);                                                                  \
        if (status != 0) {                                                                         \
            fprintf(stderr, "%s:%d: %s gave %d\n", __FILE__, __LINE__, #call, status);             \
            exit(2);                                                                               \
        }                                                                                          \
    } while (0)

static __global__ void exchange_in_block(int *out, bool good)
{
    __shared__ int value[THREADS];
    value[threadIdx.x] = threadIdx.x;
    if (good)
        __syncthreads();
    out[threadIdx.x] = value[THREADS - 1 - threadIdx.x];
}

static __global__ void add_up(int *sum, bool good)
{
    if (good)
        atomicAdd(sum, 1);
    else
        *sum += 1;
}

static __global__ void exchange_in_warp(int *out, bool good)
{
    __shared__ int value[THREADS];
    value[threadIdx.x] = threadIdx.x;
    if (good)
        __syncwarp();
    out[threadIdx.x] = value[threadIdx.x ^ 1];
}

// Each rank writes to its peer what the peer then reads.
static __global__ void exchange_between_ranks(ncclWindow_t window, ncclDevComm comm, int *out,
                                              bool good)
{
    ncclCoopCta block;
    ncclLsaBarrierSession<ncclCoopCta> barrier(block, comm, ncclTeamTagLsa(), blockIdx.x);
    barrier.sync(block, cuda::memory_order_relaxed);
    int *theirs = (int *)ncclGetLsaPointer(window, 0, 1 - comm.rank);
    const int *mine = (const int *)ncclGetLsaPointer(window, 0, comm.rank);
    theirs[threadIdx.x] = comm.rank;
    if (good)
        barrier.sync(block, cuda::memory_order_acq_rel);
    out[threadIdx.x] = mine[threadIdx.x];
    barrier.sync(block, cuda::memory_order_relaxed);
}

static void run_rank(int rank, ncclComm_t comm, bool good)
{
    void *memory;
    int *out;
    ncclWindow_t window;
    ncclDevComm device_comm;
    cudaStream_t stream;
    CHECK(cudaSetDevice(rank));
    CHECK(ncclMemAlloc(&memory, THREADS * sizeof(int)));
    CHECK(ncclCommWindowRegister(comm, memory, THREADS * sizeof(int), &window,
                                 NCCL_WIN_COLL_SYMMETRIC));
    ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    needs.lsaBarrierCount = 1;
    CHECK(ncclDevCommCreate(comm, &needs, &device_comm));
    CHECK(cudaMalloc(&out, THREADS * sizeof(int)));
    CHECK(cudaStreamCreate(&stream));
    exchange_between_ranks<<<1, THREADS, 0, stream>>>(window, device_comm, out, good);
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(out));
    CHECK(ncclDevCommDestroy(comm, &device_comm));
    CHECK(ncclCommWindowDeregister(comm, window));
    CHECK(ncclMemFree(memory));
    CHECK(ncclCommDestroy(comm));
}

static void run_ranks(bool good)
{
    ncclComm_t comm[RANKS];
    CHECK(ncclCommInitAll(comm, RANKS, nullptr));
    std::thread second(run_rank, 1, comm[1], good);
    run_rank(0, comm[0], good);
    second.join();
}

// A copy that must follow a kernel, on another stream.
static void run_streams(int *memory, bool good)
{
    cudaStream_t first, second;
    cudaEvent_t done;
    int host[THREADS];
    CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&done));
    exchange_in_block<<<1, THREADS, 0, first>>>(memory, true);
    CHECK(cudaEventRecord(done, first));
    if (good)
        CHECK(cudaStreamWaitEvent(second, done, 0));
    CHECK(cudaMemcpyAsync(host, memory, sizeof host, cudaMemcpyDeviceToHost, second));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaEventDestroy(done));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
}

// With one worker the second kernel gets the block and the shared memory that the first one had,
// though a copy had that block in between.
static void run_reuse(int *memory)
{
    cudaStream_t stream[3];
    for (int i = 0; i < 3; i++)
        CHECK(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
    exchange_in_block<<<1, THREADS, 0, stream[0]>>>(memory, true);
    CHECK(cudaMemcpyAsync(memory + 2 * THREADS, memory + 3 * THREADS, THREADS * sizeof(int),
                          cudaMemcpyDeviceToDevice, stream[1]));
    exchange_in_block<<<1, THREADS, 0, stream[2]>>>(memory + THREADS, true);
    CHECK(cudaDeviceSynchronize());
}

int main(int count, char **arguments)
{
    char name[16] = "";
    if (count == 2)
        snprintf(name, sizeof name, "%s", arguments[1]);
    char *dash = strchr(name, '-');
    bool good = dash != nullptr;
    if (good)
        *dash = '\0';
    int *memory;
    CHECK(cudaMalloc(&memory, 4 * THREADS * sizeof(int)));
    if (strcmp(name, "block") == 0)
        exchange_in_block<<<1, THREADS>>>(memory, good);
    else if (strcmp(name, "once") == 0)
        add_up<<<1, THREADS>>>(memory, good);
    else if (strcmp(name, "warp") == 0)
        exchange_in_warp<<<1, THREADS>>>(memory, good);
    else if (strcmp(name, "blocks") == 0)
        add_up<<<2, 1>>>(memory, good);
    else if (strcmp(name, "streams") == 0)
        run_streams(memory, good);
    else if (strcmp(name, "ranks") == 0)
        run_ranks(good);
    else if (strcmp(name, "reuse") == 0 && good)
        run_reuse(memory);
    else
        return 3;
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(memory));
    printf("%s ran\n", arguments[1]);
    return 0;
}
