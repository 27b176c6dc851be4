// See tutti_parallel/norm.h. With n = (x - m) * r, where r = 1 / sqrt(variance + eps) and m is the
// mean (RMSNorm: 0, and the variance is the mean of squares), and g = dy * gamma, both norms have
//     dx = r * (g - mean(g) - n * mean(g * n)),   RMSNorm without mean(g),
//     dgamma = sum over rows of dy * n,   dbeta = sum over rows of dy.
// SPDX-License-Identifier: Apache-2.0
#include "tutti_parallel/norm.h"

#include "elements.h"
#include "fail.h"
#include "norm_check.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

// Rows of [width] doubles, in one piece of memory.
struct rows {
    double *n, *dy, *gamma, *beta, *dx, *dgamma, *dbeta;
};
enum { ROWS = 7, LANES = 8 };

ncclResult_t parallel_norm_check(const char *call, const struct tuttiNorm *norm, size_t tokens)
{
    if (norm == NULL) {
        return tuttiFail(ncclInvalidArgument, "%s: norm is NULL", call);
    }
    if (norm->kind != TUTTI_RMS_NORM && norm->kind != TUTTI_LAYER_NORM) {
        return tuttiFail(ncclInvalidArgument,
                         "%s: kind is %d, must be TUTTI_RMS_NORM (%d) or TUTTI_LAYER_NORM (%d)",
                         call, (int)norm->kind, TUTTI_RMS_NORM, TUTTI_LAYER_NORM);
    }
    if (norm->width < 1) {
        return tuttiFail(ncclInvalidArgument, "%s: width is 0, must be at least 1", call);
    }
    if (!(norm->eps >= 0) || isinf(norm->eps)) {
        return tuttiFail(ncclInvalidArgument, "%s: eps is %g, must be finite and not negative",
                         call, norm->eps);
    }
    TRY(parallel_check_elements(call, "tokens x width", tokens, norm->width));
    TRY(parallel_check_elements(call, "rows x width", ROWS, norm->width));
    return parallel_check_types(call, &norm->types);
}

ncclResult_t parallel_norm_check_beta(const char *call, const struct tuttiNorm *norm,
                                      const char *name, const void *beta)
{
    return beta == NULL || norm->kind == TUTTI_LAYER_NORM
               ? ncclSuccess
               : tuttiFail(ncclInvalidArgument, "%s: %s is %p, must be NULL for TUTTI_RMS_NORM",
                           call, name, beta);
}

// Zeros; rows.n is to be freed, and NULL without memory.
static struct rows make_rows(size_t width)
{
    double *memory = calloc(ROWS * width, sizeof *memory);
    return memory == NULL ? (struct rows){0}
                          : (struct rows){memory,
                                          memory + width,
                                          memory + 2 * width,
                                          memory + 3 * width,
                                          memory + 4 * width,
                                          memory + 5 * width,
                                          memory + 6 * width};
}

static ncclResult_t no_memory(const char *call, const struct tuttiNorm *norm)
{
    return tuttiFail(ncclSystemError, "%s: no memory for rows of %zu elements", call, norm->width);
}

// The sum of a[i] * b[i] (b NULL: of a[i]), in LANES sums that are added in order.
static double sum_of(const double *a, const double *b, size_t count)
{
    double lanes[LANES] = {0}, sum = 0;
    size_t whole = count - count % LANES;
    for (size_t i = 0; i < whole; i += LANES) {
        for (size_t lane = 0; lane < LANES; lane++) {
            lanes[lane] += b == NULL ? a[i + lane] : a[i + lane] * b[i + lane];
        }
    }
    for (size_t i = whole; i < count; i++) {
        lanes[i - whole] += b == NULL ? a[i] : a[i] * b[i];
    }
    for (size_t lane = 0; lane < LANES; lane++) {
        sum += lanes[lane];
    }
    return sum;
}

// Replaces a row of x by n; gives r.
static double normalise(const struct tuttiNorm *norm, double *row)
{
    const double width = (double)norm->width;
    if (norm->kind == TUTTI_LAYER_NORM) {
        const double mean = sum_of(row, NULL, norm->width) / width;
        for (size_t i = 0; i < norm->width; i++) {
            row[i] -= mean;
        }
    }
    const double square = sum_of(row, row, norm->width) / width + norm->eps;
    const double r = square == 0 ? 0 : 1 / sqrt(square); // a row of zeros stays one
    for (size_t i = 0; i < norm->width; i++) {
        row[i] *= r;
    }
    return r;
}

// gamma, or all 1.
static void load_gamma(const struct tuttiNorm *norm, const void *gamma, double *out)
{
    if (gamma != NULL) {
        parallel_load(gamma, norm->types.weights, 0, norm->width, out);
        return;
    }
    for (size_t i = 0; i < norm->width; i++) {
        out[i] = 1;
    }
}

PARALLEL_EXPORT ncclResult_t tuttiNormForward(const struct tuttiNorm *norm, size_t tokens,
                                              const void *x, const void *gamma, const void *beta,
                                              void *y)
{
    static const char *const call = "tuttiNormForward";
    TRY(parallel_norm_check(call, norm, tokens));
    TRY(parallel_norm_check_beta(call, norm, "beta", beta));
    TRY(parallel_check_pointer(call, "x", x, tokens * norm->width));
    TRY(parallel_check_pointer(call, "y", y, tokens * norm->width));
    struct rows rows = make_rows(norm->width);
    if (rows.n == NULL) {
        return no_memory(call, norm);
    }
    load_gamma(norm, gamma, rows.gamma);
    if (beta != NULL) { // else zeros, from calloc
        parallel_load(beta, norm->types.weights, 0, norm->width, rows.beta);
    }
    for (size_t t = 0; t < tokens; t++) {
        parallel_load(x, norm->types.activations, t * norm->width, norm->width, rows.n);
        (void)normalise(norm, rows.n);
        for (size_t i = 0; i < norm->width; i++) {
            rows.n[i] = rows.n[i] * rows.gamma[i] + rows.beta[i];
        }
        parallel_store(y, norm->types.activations, t * norm->width, norm->width, rows.n);
    }
    free(rows.n);
    return ncclSuccess;
}

// From dy in rows->dy and x in rows->n: dx, and the sums of dgamma and dbeta.
static void backward_row(const struct tuttiNorm *norm, const struct rows *rows)
{
    const size_t width = norm->width;
    const double r = normalise(norm, rows->n);
    for (size_t i = 0; i < width; i++) {
        rows->dgamma[i] += rows->dy[i] * rows->n[i];
        rows->dbeta[i] += rows->dy[i];
        rows->dx[i] = rows->dy[i] * rows->gamma[i]; // g
    }
    const double along_n = sum_of(rows->dx, rows->n, width) / (double)width;
    const double mean =
        norm->kind == TUTTI_LAYER_NORM ? sum_of(rows->dx, NULL, width) / (double)width : 0;
    for (size_t i = 0; i < width; i++) {
        rows->dx[i] = r * (rows->dx[i] - mean - rows->n[i] * along_n);
    }
}

// Adds a sum over rows to a gradient, with one rounding. scratch: [width].
static void add_sum(const struct tuttiNorm *norm, const double *sum, double *scratch, void *to)
{
    ncclDataType_t type = parallel_weight_gradients(&norm->types);
    if (to == NULL) {
        return;
    }
    parallel_load(to, type, 0, norm->width, scratch);
    for (size_t i = 0; i < norm->width; i++) {
        scratch[i] += sum[i];
    }
    parallel_store(to, type, 0, norm->width, scratch);
}

PARALLEL_EXPORT ncclResult_t tuttiNormBackward(const struct tuttiNorm *norm, size_t tokens,
                                               const struct tuttiNormGradients *gradients)
{
    static const char *const call = "tuttiNormBackward";
    const struct tuttiNormGradients *g = gradients;
    TRY(parallel_norm_check(call, norm, tokens));
    if (g == NULL) {
        return tuttiFail(ncclInvalidArgument, "%s: gradients is NULL", call);
    }
    const size_t width = norm->width;
    TRY(parallel_norm_check_beta(call, norm, "dbeta", g->dbeta));
    TRY(parallel_check_pointer(call, "x", g->x, tokens * width));
    TRY(parallel_check_pointer(call, "dy", g->dy, tokens * width));
    TRY(parallel_check_pointer(call, "dx", g->dx, tokens * width));
    struct rows rows = make_rows(width);
    if (rows.n == NULL) {
        return no_memory(call, norm);
    }
    load_gamma(norm, g->gamma, rows.gamma);
    for (size_t t = 0; t < tokens; t++) {
        parallel_load(g->x, norm->types.activations, t * width, width, rows.n);
        parallel_load(g->dy, norm->types.gradients, t * width, width, rows.dy);
        backward_row(norm, &rows);
        if (g->added != NULL) {
            parallel_load(g->added, norm->types.gradients, t * width, width, rows.dy);
            for (size_t i = 0; i < width; i++) {
                rows.dx[i] += rows.dy[i];
            }
        }
        parallel_store(g->dx, norm->types.gradients, t * width, width, rows.dx);
    }
    add_sum(norm, rows.dgamma, rows.dy, g->dgamma);
    add_sum(norm, rows.dbeta, rows.dy, g->dbeta);
    free(rows.n);
    return ncclSuccess;
}
