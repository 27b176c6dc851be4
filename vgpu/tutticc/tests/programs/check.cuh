// What the programs that test tutticc share: a failed check names its line and makes the program
// fail.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTICC_TESTS_CHECK_H
#define TUTTICC_TESTS_CHECK_H

#include <cstdio>
#include <cstdlib>
#include <cstring>

static int failures;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);                   \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)
#define CHECK_CUDA(call)                                                                           \
    do {                                                                                           \
        cudaError_t error_ = (call);                                                               \
        if (error_ != cudaSuccess) {                                                               \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_));      \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

// Managed memory for results: host and device see the same.
template <class T> static T *make(int count)
{
    void *memory = nullptr;
    CHECK_CUDA(cudaMallocManaged(&memory, count * sizeof(T)));
    memset(memory, 0, count * sizeof(T));
    return static_cast<T *>(memory);
}

static int report()
{
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_CUDA(cudaGetLastError());
    printf(failures ? "failed\n" : "ok\n");
    return failures != 0;
}

#endif
