// See tutti_parallel/tensor.h: the column-parallel and the row-parallel linear layer.
// SPDX-License-Identifier: Apache-2.0
#include "tutti_parallel/tensor.h"

#include "columns.h"
#include "elements.h"
#include "fail.h"
#include "part.h"

#include <stdbool.h>

// One call of a layer.
struct linear {
    const struct tuttiLinear *layer;
    int options;
    size_t tokens;
    struct parallel_call call; // the part: of `out` (column-parallel) or `in` (row-parallel)
};

enum split { SPLIT_IN, SPLIT_OUT };

// Checks what both layers and directions have in common. allowed: options.
static ncclResult_t begin(const char *function, struct linear *l, int allowed, enum split split)
{
    const struct tuttiLinear *layer = l->layer;
    if (layer == NULL) {
        return tuttiFail(ncclInvalidArgument, "%s: layer is NULL", function);
    }
    TRY(parallel_begin(function, layer->comm, split == SPLIT_OUT ? layer->out : layer->in,
                       &l->call));
    if ((l->options & ~allowed) != 0) {
        return tuttiFail(ncclInvalidArgument,
                         "%s: options is %d, may have no bits but those of %d here", l->call.name,
                         l->options, allowed);
    }
    if (layer->in < 1 || layer->out < 1) {
        return tuttiFail(ncclInvalidArgument, "%s: in is %zu and out %zu, both must be at least 1",
                         l->call.name, layer->in, layer->out);
    }
    TRY(parallel_check_types(l->call.name, &layer->types));
    TRY(parallel_check_elements(l->call.name, "out x in", layer->out, layer->in));
    TRY(parallel_check_elements(l->call.name, "tokens x in", l->tokens, layer->in));
    return parallel_check_elements(l->call.name, "tokens x out", l->tokens, layer->out);
}

// What is not read or written may be NULL. Widths: of x and y as this rank has them.
static ncclResult_t check_backward(const struct linear *l, const struct tuttiLinearGradients *g,
                                   size_t x_width, size_t y_width, size_t weights)
{
    if (g == NULL) {
        return tuttiFail(ncclInvalidArgument, "%s: gradients is NULL", l->call.name);
    }
    TRY(parallel_check_pointer(l->call.name, "dy", g->dy, l->tokens * y_width));
    TRY(parallel_check_pointer(l->call.name, "x", g->x, g->dw == NULL ? 0 : l->tokens * x_width));
    return parallel_check_pointer(l->call.name, "weight", g->weight, g->dx == NULL ? 0 : weights);
}

// The three matrices of a forward call, with their elements.
static ncclResult_t check_forward(const struct linear *l, const void *const pointers[3],
                                  const size_t counts[3])
{
    static const char *const names[] = {"x", "weight", "y"};
    for (int i = 0; i < 3; i++) {
        TRY(parallel_check_pointer(l->call.name, names[i], pointers[i], counts[i]));
    }
    return ncclSuccess;
}

static ncclResult_t wait_for_stream(const struct linear *l)
{
    return parallel_wait(l->call.name, l->layer->comm, l->layer->stream);
}

static ncclResult_t sum_over_ranks(const struct linear *l, void *data, size_t width,
                                   ncclDataType_t type)
{
    return ncclAllReduce(data, data, l->tokens * width, type, ncclSum, l->layer->comm,
                         l->layer->stream);
}

// A matrix, or some columns of one: elements from row to row.
struct matrix {
    const void *data;
    size_t stride;
};

// y[tokens x out] = x[tokens x in] * W[out x in]^T, of the own part.
static ncclResult_t multiply_forward(const struct linear *l, size_t in, size_t out, struct matrix x,
                                     const void *weight, void *y)
{
    struct tuttiProduct product = TUTTI_PRODUCT_INITIALIZER;
    product.rows = l->tokens;
    product.columns = out;
    product.inner = in;
    product.transposeB = 1;
    product.typeA = product.typeC = l->layer->types.activations;
    product.typeB = l->layer->types.weights;
    product.strideA = x.stride;
    return tuttiMatmul(&product, x.data, weight, y);
}

// dx[tokens x in] = (dx +) dy[tokens x out] * W[out x in], of the own part.
static ncclResult_t multiply_to_dx(const struct linear *l, size_t in, size_t out, struct matrix dy,
                                   const void *weight, void *dx)
{
    struct tuttiProduct product = TUTTI_PRODUCT_INITIALIZER;
    product.rows = l->tokens;
    product.columns = in;
    product.inner = out;
    product.typeA = product.typeC = l->layer->types.gradients;
    product.typeB = l->layer->types.weights;
    product.strideA = dy.stride;
    product.beta = (l->options & TUTTI_ADD_TO_DX) != 0 ? 1 : 0;
    return tuttiMatmul(&product, dy.data, weight, dx);
}

// dw[out x in] += dy[tokens x out]^T * x[tokens x in], of the own part.
static ncclResult_t multiply_to_dw(const struct linear *l, size_t in, size_t out, struct matrix dy,
                                   struct matrix x, void *dw)
{
    struct tuttiProduct product = TUTTI_PRODUCT_INITIALIZER;
    product.rows = out;
    product.columns = in;
    product.inner = l->tokens;
    product.transposeA = 1;
    product.typeA = l->layer->types.gradients;
    product.typeB = l->layer->types.activations;
    product.typeC = parallel_weight_gradients(&l->layer->types);
    product.strideA = dy.stride;
    product.strideB = x.stride;
    product.beta = 1;
    return tuttiMatmul(&product, dy.data, x.data, dw);
}

static struct parallel_columns columns_of(const struct linear *l, ncclDataType_t type)
{
    return (struct parallel_columns){l->call.name, l->call.part,   l->tokens,
                                     type,         l->layer->comm, l->layer->stream};
}

// The own columns of a matrix that all ranks have.
static struct matrix own_columns(const struct linear *l, const void *data, ncclDataType_t type)
{
    return (struct matrix){parallel_at(data, type, l->call.part.first), l->call.part.total};
}

static ncclResult_t column_forward_gathered(const struct linear *l, const void *x,
                                            const void *weight, void *y)
{
    struct parallel_columns columns = columns_of(l, l->layer->types.activations);
    struct matrix whole = {x, l->layer->in};
    void *memory = NULL;
    TRY(parallel_columns_memory(&columns, &memory));
    ncclResult_t result =
        multiply_forward(l, l->layer->in, l->call.part.count, whole, weight, memory);
    if (result == ncclSuccess) {
        result = parallel_columns_gather(&columns, memory, y);
    }
    ncclResult_t freed =
        parallel_cuda((int)cudaFreeAsync(memory, l->layer->stream), "cudaFreeAsync");
    return result != ncclSuccess ? result : freed;
}

PARALLEL_EXPORT ncclResult_t tuttiColumnLinearForward(const struct tuttiLinear *layer, int options,
                                                      size_t tokens, void *x, const void *weight,
                                                      void *y)
{
    struct linear l = {layer, options, tokens, {{0}, {0}}};
    TRY(begin("tuttiColumnLinearForward", &l, TUTTI_BROADCAST_INPUT | TUTTI_GATHER_OUTPUT,
              SPLIT_OUT));
    size_t own = l.call.part.count;
    size_t y_width = (options & TUTTI_GATHER_OUTPUT) != 0 ? layer->out : own;
    TRY(check_forward(&l, (const void *const[]){x, weight, y},
                      (const size_t[]){tokens * layer->in, own * layer->in, tokens * y_width}));
    if ((options & TUTTI_BROADCAST_INPUT) != 0) {
        TRY(ncclBroadcast(x, x, tokens * layer->in, layer->types.activations, 0, layer->comm,
                          layer->stream));
    }
    TRY(wait_for_stream(&l));
    if ((options & TUTTI_GATHER_OUTPUT) != 0) {
        return column_forward_gathered(&l, x, weight, y);
    }
    return multiply_forward(&l, layer->in, own, (struct matrix){x, layer->in}, weight, y);
}

// dx, and its sum over the ranks, which goes on while dw is computed.
static ncclResult_t column_dx(const struct linear *l, const struct tuttiLinearGradients *g,
                              struct matrix dy)
{
    if (g->dx == NULL) {
        return ncclSuccess;
    }
    TRY(multiply_to_dx(l, l->layer->in, l->call.part.count, dy, g->weight, g->dx));
    return (l->options & TUTTI_LEAVE_PARTIAL) != 0
               ? ncclSuccess
               : sum_over_ranks(l, g->dx, l->layer->in, l->layer->types.gradients);
}

PARALLEL_EXPORT ncclResult_t tuttiColumnLinearBackward(const struct tuttiLinear *layer, int options,
                                                       size_t tokens,
                                                       const struct tuttiLinearGradients *gradients)
{
    struct linear l = {layer, options, tokens, {{0}, {0}}};
    const struct tuttiLinearGradients *g = gradients;
    TRY(begin("tuttiColumnLinearBackward", &l,
              TUTTI_GATHER_OUTPUT | TUTTI_LEAVE_PARTIAL | TUTTI_ADD_TO_DX, SPLIT_OUT));
    const size_t own = l.call.part.count;
    bool is_gathered = (options & TUTTI_GATHER_OUTPUT) != 0;
    TRY(check_backward(&l, g, layer->in, is_gathered ? layer->out : own, own * layer->in));
    struct matrix dy =
        is_gathered ? own_columns(&l, g->dy, layer->types.gradients) : (struct matrix){g->dy, own};
    TRY(wait_for_stream(&l));
    TRY(column_dx(&l, g, dy));
    return g->dw == NULL
               ? ncclSuccess
               : multiply_to_dw(&l, layer->in, own, dy, (struct matrix){g->x, layer->in}, g->dw);
}

PARALLEL_EXPORT ncclResult_t tuttiRowLinearForward(const struct tuttiLinear *layer, int options,
                                                   size_t tokens, const void *x, const void *weight,
                                                   void *y)
{
    struct linear l = {layer, options, tokens, {{0}, {0}}};
    TRY(begin("tuttiRowLinearForward", &l, TUTTI_SPLIT_INPUT | TUTTI_LEAVE_PARTIAL, SPLIT_IN));
    const size_t own = l.call.part.count;
    bool is_split = (options & TUTTI_SPLIT_INPUT) != 0;
    TRY(check_forward(&l, (const void *const[]){x, weight, y},
                      (const size_t[]){tokens * (is_split ? layer->in : own), own * layer->out,
                                       tokens * layer->out}));
    struct matrix in =
        is_split ? own_columns(&l, x, layer->types.activations) : (struct matrix){x, own};
    TRY(wait_for_stream(&l));
    TRY(multiply_forward(&l, own, layer->out, in, weight, y));
    return (options & TUTTI_LEAVE_PARTIAL) != 0
               ? ncclSuccess
               : sum_over_ranks(&l, y, layer->out, layer->types.activations);
}

// dx of a layer whose input is split here: each rank's columns, gathered.
static ncclResult_t row_dx_gathered(const struct linear *l, const struct tuttiLinearGradients *g)
{
    struct parallel_columns columns = columns_of(l, l->layer->types.gradients);
    struct matrix dy = {g->dy, l->layer->out};
    void *memory = NULL;
    TRY(parallel_columns_memory(&columns, &memory));
    ncclResult_t result =
        multiply_to_dx(l, l->call.part.count, l->layer->out, dy, g->weight, memory);
    if (result == ncclSuccess) {
        result = parallel_columns_gather(&columns, memory, g->dx);
    }
    ncclResult_t freed =
        parallel_cuda((int)cudaFreeAsync(memory, l->layer->stream), "cudaFreeAsync");
    return result != ncclSuccess ? result : freed;
}

static ncclResult_t check_row_options(const struct linear *l)
{
    const int both = TUTTI_SPLIT_INPUT | TUTTI_ADD_TO_DX;
    return (l->options & both) != both
               ? ncclSuccess
               : tuttiFail(ncclInvalidArgument,
                           "%s: options is %d, may have TUTTI_SPLIT_INPUT (%d) or TUTTI_ADD_TO_DX "
                           "(%d), not both",
                           l->call.name, l->options, TUTTI_SPLIT_INPUT, TUTTI_ADD_TO_DX);
}

PARALLEL_EXPORT ncclResult_t tuttiRowLinearBackward(const struct tuttiLinear *layer, int options,
                                                    size_t tokens,
                                                    const struct tuttiLinearGradients *gradients)
{
    struct linear l = {layer, options, tokens, {{0}, {0}}};
    const struct tuttiLinearGradients *g = gradients;
    TRY(begin("tuttiRowLinearBackward", &l, TUTTI_SPLIT_INPUT | TUTTI_ADD_TO_DX, SPLIT_IN));
    bool is_split = (options & TUTTI_SPLIT_INPUT) != 0;
    TRY(check_row_options(&l));
    const size_t own = l.call.part.count;
    TRY(check_backward(&l, g, is_split ? layer->in : own, layer->out, own * layer->out));
    struct matrix dy = {g->dy, layer->out};
    struct matrix x =
        is_split ? own_columns(&l, g->x, layer->types.activations) : (struct matrix){g->x, own};
    TRY(wait_for_stream(&l));
    if (g->dx != NULL) {
        TRY(is_split ? row_dx_gathered(&l, g)
                     : multiply_to_dx(&l, own, layer->out, dy, g->weight, g->dx));
    }
    return g->dw == NULL ? ncclSuccess : multiply_to_dw(&l, own, layer->out, dy, x, g->dw);
}
