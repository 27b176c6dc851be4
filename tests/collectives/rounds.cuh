// Kernels around an all-reduce: they put a round's values and judge the sums, COUNT of them, which
// who includes this says.
// SPDX-License-Identifier: Apache-2.0
#ifndef TESTS_COLLECTIVES_ROUNDS_CUH
#define TESTS_COLLECTIVES_ROUNDS_CUH

__global__ void put(int *to, int rank, const int *round)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < COUNT; i += gridDim.x * blockDim.x) {
        to[i] = (rank + 1) * (i % 997) + *round;
    }
}

// Counts elements that are not the sum of what all ranks put; then the next round.
__global__ void judge(const int *sum, int size, int *round, int *wrong)
{
    for (int i = threadIdx.x; i < COUNT; i += blockDim.x) {
        if (sum[i] != size * (size + 1) / 2 * (i % 997) + size * *round) {
            atomicAdd(wrong, 1);
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        ++*round;
    }
}

#endif
