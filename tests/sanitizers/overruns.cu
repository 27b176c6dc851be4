// Kernels that reach beyond an object, and their correct twins: overruns CASE, where CASE is
//   shared, before, dynamic, none, memory, freed, stack     and each of these with "-good" behind
//   it
// Nothing is checked here: the address sanitizer judges. SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <stdio.h>
#include <string.h>

enum { THREADS = 32, DYNAMIC_BYTES = 100 };

static __device__ int sink;

// Two objects: the red zone between them is what a step beyond the first one meets.
static __global__ void static_shared(int shift)
{
    __shared__ int first[THREADS];
    __shared__ int second[THREADS];
    second[threadIdx.x] = 0;
    first[(int)threadIdx.x + shift] = 1;
    sink = first[0] + second[0];
}

static __global__ void dynamic_shared(int offset)
{
    extern __shared__ char bytes[];
    bytes[offset] = 1;
    sink = bytes[0];
}

static __global__ void no_dynamic_shared(bool good)
{
    extern __shared__ char bytes[];
    if (!good)
        bytes[0] = 1;
}

static __global__ void write_to(int *memory, int index)
{
    memory[index] = 1;
}

static __global__ void write_to_stack(volatile int index)
{
    int local[8] = {};
    local[index] = 1;
    sink = local[0];
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
    if (cudaMalloc(&memory, 25 * sizeof(int)) != cudaSuccess)
        return 2;
    // Shared memory that other blocks have used before, with other sizes.
    static_shared<<<4, THREADS>>>(0);
    dynamic_shared<<<4, 1, 4 * DYNAMIC_BYTES>>>(4 * DYNAMIC_BYTES - 1);
    if (strcmp(name, "shared") == 0)
        static_shared<<<1, THREADS>>>(good ? 0 : 1);
    else if (strcmp(name, "before") == 0)
        static_shared<<<1, THREADS>>>(good ? 0 : -1);
    else if (strcmp(name, "dynamic") == 0)
        dynamic_shared<<<1, 1, DYNAMIC_BYTES>>>(good ? DYNAMIC_BYTES - 1 : DYNAMIC_BYTES);
    else if (strcmp(name, "none") == 0)
        no_dynamic_shared<<<1, 1>>>(good);
    else if (strcmp(name, "memory") == 0)
        write_to<<<1, 1>>>(memory, good ? 24 : 25);
    else if (strcmp(name, "stack") == 0)
        write_to_stack<<<1, 1>>>(good ? 7 : 8);
    else if (strcmp(name, "freed") != 0)
        return 3;
    if (cudaDeviceSynchronize() != cudaSuccess || cudaFree(memory) != cudaSuccess)
        return 2;
    if (strcmp(name, "freed") == 0 && !good) {
        write_to<<<1, 1>>>(memory, 0);
        if (cudaDeviceSynchronize() != cudaSuccess)
            return 2;
    }
    printf("%s ran\n", arguments[1]);
    return 0;
}
