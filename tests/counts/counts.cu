// Moves known amounts between devices, for counts_test to compare with VGPU_STATS.
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <stdio.h>

enum { BLOCKS = 2, THREADS = 64, COPIED = 1000 };

// Each thread: one load of 4 bytes from the other device, one store of 4 bytes to its own.
static __global__ void fetch(const int *theirs, int *mine)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int value = theirs[i];
    __syncthreads();
    mine[i] = value;
    __syncthreads();
}

// One load and one store between devices for each thread, since an atomic addition does both.
static __global__ void add(int *theirs)
{
    atomicAdd(theirs, 1);
}

int main()
{
    char *memory[2];
    for (int device = 0; device < 2; device++) {
        if (cudaSetDevice(device) != cudaSuccess ||
            cudaMalloc(&memory[device], 4096) != cudaSuccess)
            return 2;
    }
    cudaSetDevice(0);
    cudaDeviceEnablePeerAccess(1, 0);
    fetch<<<BLOCKS, THREADS>>>((const int *)memory[1], (int *)memory[0]);
    add<<<1, 3>>>((int *)memory[1]);
    cudaMemcpyPeer(memory[1], 1, memory[0], 0, COPIED);
    cudaMemcpy(memory[0], memory[0] + 2048, COPIED, cudaMemcpyDeviceToDevice);
    char host[16]; // host memory counts for nobody
    cudaMemcpy(host, memory[0], sizeof host, cudaMemcpyDeviceToHost);
    return cudaDeviceSynchronize() == cudaSuccess ? 0 : 2;
}
