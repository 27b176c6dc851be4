// A program to be looked at in gdb (debugger_test): two ranks, threads of this process; each thread
// of a kernel doubles
// a number, waits for its block, and stores its neighbour's. SPDX-License-Identifier: Apache-2.0
#include <nccl.h>
#include <nccl_device.h>

#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 8, BLOCKS = 2, RANKS = 2 };

#define CHECK(call)                                                                                \
    do {                                                                                           \
        int status = (int)(call);                                                                  \
        if (status != 0) {                                                                         \
            fprintf(stderr, "%s:%d: %s gave %d\n", __FILE__, __LINE__, #call, status);             \
            exit(2);                                                                               \
        }                                                                                          \
    } while (0)

static __global__ void neighbours(ncclWindow_t window, int *out, int factor)
{
    __shared__ int value[THREADS];
    int *mine = (int *)ncclGetLocalPointer(window, 0);
    int doubled = factor * mine[threadIdx.x]; // first stop
    value[threadIdx.x] = doubled;
    __syncthreads();
    int index = blockIdx.x * blockDim.x + threadIdx.x; // second stop
    out[index] = value[(threadIdx.x + 1) % blockDim.x];
}

int main()
{
    ncclComm_t comm[RANKS];
    int *memory[RANKS], *out[RANKS], failures = 0;
    ncclWindow_t window[RANKS];
    CHECK(ncclCommInitAll(comm, RANKS, nullptr));
    CHECK(ncclGroupStart());
    for (int rank = 0; rank < RANKS; rank++) {
        CHECK(cudaSetDevice(rank));
        CHECK(ncclMemAlloc((void **)&memory[rank], THREADS * sizeof(int)));
        CHECK(ncclCommWindowRegister(comm[rank], memory[rank], THREADS * sizeof(int), &window[rank],
                                     NCCL_WIN_COLL_SYMMETRIC));
    }
    CHECK(ncclGroupEnd());
    for (int rank = 0; rank < RANKS; rank++) {
        int host[BLOCKS * THREADS];
        for (int i = 0; i < THREADS; i++)
            host[i] = 100 * rank + i;
        CHECK(cudaSetDevice(rank));
        CHECK(cudaMemcpy(memory[rank], host, THREADS * sizeof(int), cudaMemcpyHostToDevice));
        CHECK(cudaMalloc(&out[rank], sizeof host));
        neighbours<<<BLOCKS, THREADS>>>(window[rank], out[rank], 2);
        CHECK(cudaMemcpy(host, out[rank], sizeof host, cudaMemcpyDeviceToHost));
        for (int i = 0; i < BLOCKS * THREADS; i++)
            failures += host[i] != 2 * (100 * rank + (i + 1) % THREADS);
    }
    printf("%d failures\n", failures);
    return failures != 0;
}
