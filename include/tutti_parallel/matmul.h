// Products of matrices on the host, by the BLAS library of the machine where there is one, else by
// a blocked loop of our own. One thread per call: each rank computes its own, and ranks that are
// threads of one process may call at once.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_PARALLEL_MATMUL_H
#define TUTTI_PARALLEL_MATMUL_H

#include <nccl.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// C = alpha * op(A) * op(B) + beta * C, where op(A) is [rows x inner], op(B) [inner x columns] and
// C [rows x columns], row-major. Begin with TUTTI_PRODUCT_INITIALIZER.
struct tuttiProduct {
    size_t rows, columns, inner;
    int transposeA; // not 0: A lies as [inner x rows]
    int transposeB; // not 0: B lies as [columns x inner]
    // Of the elements: ncclFloat32 or ncclBfloat16, in any mixture, or ncclFloat64 for all three.
    ncclDataType_t typeA, typeB, typeC;
    // Elements from one row, as it lies, to the next; 0: rows lie one behind the other. So parts of
    // wider matrices (some columns, one head) need no copy.
    size_t strideA, strideB, strideC;
    double alpha, beta; // beta 0: C is not read
};

#define TUTTI_PRODUCT_INITIALIZER                                                                  \
    {                                                                                              \
        0, 0, 0,                                            /* rows, columns, inner */             \
            0, 0,                                           /* transposeA, transposeB */           \
            ncclFloat32, ncclFloat32, ncclFloat32, 0, 0, 0, /* types, strides */                   \
            1.0, 0.0                                        /* alpha, beta */                      \
    }

// Computes the product in this thread; synchronous. Sums are in float, in double for ncclFloat64;
// bf16 is converted in blocks, and a bf16 result rounded once. The result depends on the library
// and the sizes, not on the thread or the run. a, b, c: memory that the host reads and writes; C
// overlaps neither A nor B; NULL where the matrix has no elements.
// Errors: ncclInvalidArgument for a bad argument; ncclInvalidUsage where TUTTI_BLAS names a library
// that cannot be used; ncclSystemError without memory for the blocks. Since 0.1.
ncclResult_t tuttiMatmul(const struct tuttiProduct *product, const void *a, const void *b, void *c);

// Which library computes: "libopenblas.so.0", "libcblas.so.3", "libblas.so.3", what TUTTI_BLAS
// names, or "none" for our own loop. The first of them that is there and has cblas_sgemm and
// cblas_dgemm is loaded at the first call; OpenBLAS is then set to one thread, in the whole
// process. TUTTI_BLAS: a library's name or path, or "none".
// name: receives a text that lives as long as the process.
// Errors: ncclInvalidArgument where name is NULL; ncclInvalidUsage as above. Since 0.1.
ncclResult_t tuttiMatmulLibrary(const char **name);

#ifdef __cplusplus
}
#endif
#endif
