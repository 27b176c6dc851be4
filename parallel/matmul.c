// See tutti_parallel/matmul.h: arguments, and which way a product is computed.
// SPDX-License-Identifier: Apache-2.0
#include "tutti_parallel/matmul.h"

#include "blas.h"
#include "elements.h"
#include "fail.h"
#include "matmul_internal.h"

#include <limits.h>
#include <stdbool.h>

static const char *const call = "tuttiMatmul";

// One of the three matrices, as it lies.
struct lying {
    const char *name;
    const void *data;
    size_t rows, columns;
    size_t *stride;
    ncclDataType_t type;
};

static ncclResult_t check_matrix(const struct lying *matrix)
{
    if (parallel_element_bytes(matrix->type) == 0) {
        return tuttiFail(ncclInvalidArgument,
                         "%s: type%s is %d, must be ncclFloat32 (%d), ncclBfloat16 (%d) or "
                         "ncclFloat64 (%d)",
                         call, matrix->name, (int)matrix->type, (int)ncclFloat32, (int)ncclBfloat16,
                         (int)ncclFloat64);
    }
    if (*matrix->stride == 0) {
        *matrix->stride = matrix->columns;
    }
    if (*matrix->stride < matrix->columns) {
        return tuttiFail(ncclInvalidArgument,
                         "%s: stride%s is %zu, must be 0 or at least %zu, the elements of a row",
                         call, matrix->name, *matrix->stride, matrix->columns);
    }
    TRY(parallel_check_elements(call, matrix->name, matrix->rows, *matrix->stride));
    return parallel_check_pointer(call, matrix->name, matrix->data, matrix->rows * matrix->columns);
}

static ncclResult_t check(struct matmul *m)
{
    struct tuttiProduct *p = &m->product;
    const struct lying matrices[] = {
        {"A", m->a, p->transposeA ? p->inner : p->rows, p->transposeA ? p->rows : p->inner,
         &p->strideA, p->typeA},
        {"B", m->b, p->transposeB ? p->columns : p->inner, p->transposeB ? p->inner : p->columns,
         &p->strideB, p->typeB},
        {"C", m->c, p->rows, p->columns, &p->strideC, p->typeC},
    };
    int doubles = 0;
    for (int i = 0; i < 3; i++) {
        TRY(check_matrix(&matrices[i]));
        doubles += matrices[i].type == ncclFloat64;
    }
    if (doubles != 0 && doubles != 3) {
        return tuttiFail(ncclInvalidArgument,
                         "%s: types are %d, %d and %d; ncclFloat64 (%d) must be all three or none",
                         call, (int)p->typeA, (int)p->typeB, (int)p->typeC, (int)ncclFloat64);
    }
    return ncclSuccess;
}

// Whether the BLAS library can take the matrices as they are.
static bool is_direct(const struct matmul *m)
{
    const struct tuttiProduct *p = &m->product;
    const size_t numbers[] = {p->rows, p->columns, p->inner, p->strideA, p->strideB, p->strideC};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (numbers[i] == 0 || numbers[i] > INT_MAX) {
            return false;
        }
    }
    return m->blas->sgemm != NULL && p->typeA == p->typeB && p->typeB == p->typeC &&
           p->typeC != ncclBfloat16;
}

static void run_direct(const struct matmul *m)
{
    const struct tuttiProduct *p = &m->product;
    int turn_a = p->transposeA ? BLAS_TRANSPOSED : BLAS_AS_IT_LIES;
    int turn_b = p->transposeB ? BLAS_TRANSPOSED : BLAS_AS_IT_LIES;
    int rows = (int)p->rows, columns = (int)p->columns, inner = (int)p->inner;
    if (p->typeC == ncclFloat64) {
        m->blas->dgemm(BLAS_ROW_MAJOR, turn_a, turn_b, rows, columns, inner, p->alpha, m->a,
                       (int)p->strideA, m->b, (int)p->strideB, p->beta, m->c, (int)p->strideC);
    } else {
        m->blas->sgemm(BLAS_ROW_MAJOR, turn_a, turn_b, rows, columns, inner, (float)p->alpha, m->a,
                       (int)p->strideA, m->b, (int)p->strideB, (float)p->beta, m->c,
                       (int)p->strideC);
    }
}

PARALLEL_EXPORT ncclResult_t tuttiMatmul(const struct tuttiProduct *product, const void *a,
                                         const void *b, void *c)
{
    if (product == NULL) {
        return tuttiFail(ncclInvalidArgument, "%s: product is NULL", call);
    }
    struct matmul m = {*product, a, b, c, NULL};
    TRY(check(&m));
    TRY(parallel_blas(call, &m.blas));
    if (m.product.rows == 0 || m.product.columns == 0) {
        return ncclSuccess;
    }
    if (is_direct(&m)) {
        run_direct(&m);
        return ncclSuccess;
    }
    return m.product.typeC == ncclFloat64 ? parallel_matmul_double(&m) : parallel_matmul_float(&m);
}

PARALLEL_EXPORT ncclResult_t tuttiMatmulLibrary(const char **name)
{
    const struct parallel_blas *blas = NULL;
    if (name == NULL) {
        return tuttiFail(ncclInvalidArgument, "tuttiMatmulLibrary: name is NULL");
    }
    TRY(parallel_blas("tuttiMatmulLibrary", &blas));
    *name = blas->name;
    return ncclSuccess;
}
