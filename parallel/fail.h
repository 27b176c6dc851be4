// How functions of this library fail: as those of the library below do.
// SPDX-License-Identifier: Apache-2.0
#ifndef PARALLEL_FAIL_H
#define PARALLEL_FAIL_H

#include "tutti.h"

// It returns what it is given, which clang's analyzer cannot see.
#ifdef __clang_analyzer__
// NOLINTNEXTLINE(readability-identifier-naming): the function's own name
#define tuttiFail(result, ...) (tuttiFail(result, __VA_ARGS__), (result))
#endif

// Returns on error. Only in functions that own nothing at that point.
#define TRY(expression)                                                                            \
    do {                                                                                           \
        ncclResult_t try_result = (expression);                                                    \
        if (try_result != ncclSuccess) {                                                           \
            return try_result;                                                                     \
        }                                                                                          \
    } while (0)
#define TRY_CUDA(call) TRY(parallel_cuda((int)(call), #call))

// A call of CUDA failed: its name and CUDA's text; ncclSuccess for 0.
ncclResult_t parallel_cuda(int cuda_error, const char *call);

// Public functions.
#define PARALLEL_EXPORT __attribute__((visibility("default")))

#endif
