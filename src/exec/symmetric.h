// Symmetric memory as addresses: what kernels and executors share.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXEC_SYMMETRIC_H
#define TT_EXEC_SYMMETRIC_H

#include <stddef.h>

// The same piece of symmetric memory on all ranks: rank r's copy starts at base + r * stride in
// this process's addresses.
struct tt_symmetric {
    char *base;
    size_t stride;
};

#endif
