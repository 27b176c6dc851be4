// The BLAS library of the machine, found at run time. SPDX-License-Identifier: Apache-2.0
#ifndef PARALLEL_BLAS_H
#define PARALLEL_BLAS_H

#include <nccl.h>

enum { BLAS_ROW_MAJOR = 101, BLAS_AS_IT_LIES = 111, BLAS_TRANSPOSED = 112 }; // the C interface's

// C = alpha * op(A) * op(B) + beta * C, as the C interface to BLAS names them.
typedef void (*blas_sgemm)(int order, int transpose_a, int transpose_b, int m, int n, int k,
                           float alpha, const float *a, int stride_a, const float *b, int stride_b,
                           float beta, float *c, int stride_c);
typedef void (*blas_dgemm)(int order, int transpose_a, int transpose_b, int m, int n, int k,
                           double alpha, const double *a, int stride_a, const double *b,
                           int stride_b, double beta, double *c, int stride_c);

struct parallel_blas {
    const char *name; // "none": there is none, sgemm and dgemm are NULL
    blas_sgemm sgemm;
    blas_dgemm dgemm;
};

// Finds and loads it at the first call; then gives the same to every thread. call: the public
// function. Fails with ncclInvalidUsage where TUTTI_BLAS names what cannot be used.
ncclResult_t parallel_blas(const char *call, const struct parallel_blas **blas_out);

#endif
