// What the programs from outside share. SPDX-License-Identifier: Apache-2.0
#ifndef OUTSIDE_TRY_H
#define OUTSIDE_TRY_H

#include <nccl.h>
#include <stdio.h>

// A call of NCCL or CUDA that must succeed; else main returns 1.
#define TRY(call)                                                                                  \
    do {                                                                                           \
        int status = (int)(call);                                                                  \
        if (status != 0) {                                                                         \
            fprintf(stderr, "%s gave %d: %s\n", #call, status, ncclGetLastError(NULL));            \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

#endif
