// See tutti_parallel/sequence.h: from partial sums to normed rows, as one fused operation or as
// reduce-scatter, norm and all-gather, and back. SPDX-License-Identifier: Apache-2.0
#include "tutti_parallel/sequence.h"

#include "device.h"
#include "elements.h"
#include "fail.h"
#include "norm_check.h"
#include "part.h"

#include <math.h>
#include <nccl_device.h>
#include <stdbool.h>
#include <stdlib.h>

struct tuttiBoundary {
    struct tuttiNorm norm;
    size_t most; // tokens
    ncclComm_t comm;
    cudaStream_t stream;
    bool is_fused;
    void *rows; // [most x width] activations, in a window
    ncclWindow_t window;
    // The residual and x of the own tokens. Fused: [most x width], of which only the own rows are
    // touched, because the operation wants them in their place. Halves: [own x width].
    void *residual;
    void *gamma; // [width] activations, where weights have another type
};

static bool is_fusible_type(ncclDataType_t type)
{
    return type == ncclFloat32 || type == ncclBfloat16;
}

// Says why the norm cannot be fused here; NULL: it can.
static const char *why_not_fused(const struct tuttiNorm *norm, const ncclCommProperties_t *comm)
{
    if (norm->kind != TUTTI_RMS_NORM) {
        return "the norm is LayerNorm";
    }
    if (!is_fusible_type(norm->types.activations)) {
        return "activations are ncclFloat64";
    }
    if (isinf((float)norm->eps)) {
        return "eps is beyond what float has";
    }
    if (!comm->deviceApiSupport) {
        return "the communicator has no windows";
    }
    return comm->nLsaTeams == 1 ? NULL : "not all ranks are in one LSA team";
}

static ncclResult_t choose(const char *call, struct tuttiBoundary *b, enum tuttiBoundaryWay way)
{
    ncclCommProperties_t properties = NCCL_COMM_PROPERTIES_INITIALIZER;
    TRY(ncclCommQueryProperties(b->comm, &properties));
    const char *why = why_not_fused(&b->norm, &properties);
    if (way == TUTTI_BOUNDARY_FUSED && why != NULL) {
        return tuttiFail(ncclInvalidUsage,
                         "%s: way is TUTTI_BOUNDARY_FUSED, but %s; "
                         "use TUTTI_BOUNDARY_AUTO or TUTTI_BOUNDARY_HALVES",
                         call, why);
    }
    b->is_fused = way != TUTTI_BOUNDARY_HALVES && why == NULL;
    return ncclSuccess;
}

// What ranks tell each other at creation.
enum { WISHES = 7 };
struct wish {
    bool is_good; // its arguments by themselves
    size_t numbers[WISHES];
    double eps;
};
static const char *const wish_names[WISHES] = {
    "norm's kind", "norm's width", "types.activations", "types.weights", "types.gradients",
    "most",        "way"};

static ncclResult_t check_create(const char *call, const struct tuttiNorm *norm, size_t most,
                                 enum tuttiBoundaryWay way, struct tuttiBoundary *const *boundary)
{
    if (boundary == NULL) {
        return tuttiFail(ncclInvalidArgument, "%s: boundary is NULL", call);
    }
    TRY(parallel_norm_check(call, norm, most));
    if (most < 1) {
        return tuttiFail(ncclInvalidArgument, "%s: most is 0, must be at least 1 token", call);
    }
    if ((int)way < TUTTI_BOUNDARY_AUTO || way > TUTTI_BOUNDARY_HALVES) {
        return tuttiFail(ncclInvalidArgument, "%s: way is %d, must be 0 to %d", call, (int)way,
                         TUTTI_BOUNDARY_HALVES);
    }
    return ncclSuccess;
}

// All ranks have all wishes, so either all go on or none does.
static ncclResult_t compare_wishes(const struct parallel_call *call, const struct wish *wishes)
{
    const struct wish *mine = &wishes[call->part.rank];
    for (int r = 0; r < call->part.size; r++) {
        if (!wishes[r].is_good) {
            return tuttiFail(ncclInvalidArgument, "%s: an argument of rank %d is bad; see there",
                             call->name, r);
        }
        for (int i = 0; i < WISHES; i++) {
            if (wishes[r].numbers[i] != mine->numbers[i]) {
                return tuttiFail(ncclInvalidArgument,
                                 "%s: %s is %zu here and %zu on rank %d, must be equal on all "
                                 "ranks",
                                 call->name, wish_names[i], mine->numbers[i], wishes[r].numbers[i],
                                 r);
            }
        }
        if (wishes[r].eps != mine->eps) {
            return tuttiFail(ncclInvalidArgument,
                             "%s: norm's eps is %g here and %g on rank %d, must be equal on all "
                             "ranks",
                             call->name, mine->eps, wishes[r].eps, r);
        }
    }
    return ncclSuccess;
}

// checked: what is wrong with this rank's own arguments.
static ncclResult_t agree(const struct parallel_call *call, const struct tuttiBoundary *b,
                          enum tuttiBoundaryWay way, ncclResult_t checked)
{
    const struct tuttiNorm *n = &b->norm;
    const struct wish mine = {checked == ncclSuccess,
                              {(size_t)n->kind, n->width, (size_t)n->types.activations,
                               (size_t)n->types.weights, (size_t)n->types.gradients, b->most,
                               (size_t)way},
                              n->eps};
    struct wish *wishes = calloc((size_t)call->part.size, sizeof *wishes);
    if (wishes == NULL) {
        return tuttiFail(ncclSystemError, "%s: no memory for %d ranks", call->name,
                         call->part.size);
    }
    ncclResult_t result = parallel_exchange(&mine, wishes, sizeof mine, b->comm, b->stream);
    if (result == ncclSuccess) {
        result = checked == ncclSuccess ? compare_wishes(call, wishes) : checked;
    }
    free(wishes);
    return result;
}

static ncclResult_t make_memory(struct tuttiBoundary *b, size_t most_own)
{
    const size_t row = b->norm.width * parallel_element_bytes(b->norm.types.activations);
    size_t kept = b->is_fused ? b->most : most_own;
    TRY(ncclMemAlloc(&b->rows, b->most * row));
    if (b->is_fused) { // else nobody needs one
        TRY(ncclCommWindowRegister(b->comm, b->rows, b->most * row, &b->window,
                                   NCCL_WIN_COLL_SYMMETRIC));
    }
    // In the order of the stream: cudaFree would wait for other ranks that share the device.
    TRY_CUDA(cudaMallocAsync(&b->residual, kept * row, b->stream));
    TRY_CUDA(cudaMallocAsync(&b->gamma, row, b->stream));
    TRY_CUDA(cudaStreamSynchronize(b->stream));
    return ncclSuccess;
}

static ncclResult_t first_of(ncclResult_t a, ncclResult_t b)
{
    return a != ncclSuccess ? a : b;
}

static ncclResult_t free_device_memory(const struct tuttiBoundary *b, void *memory)
{
    return memory == NULL ? ncclSuccess
                          : parallel_cuda((int)cudaFreeAsync(memory, b->stream), "cudaFreeAsync");
}

PARALLEL_EXPORT ncclResult_t tuttiBoundaryDestroy(struct tuttiBoundary *boundary)
{
    struct tuttiBoundary *b = boundary;
    if (b == NULL) {
        return ncclSuccess;
    }
    TRY(tuttiRefuseGroup("tuttiBoundaryDestroy"));
    int previous = 0;
    ncclResult_t entered = parallel_enter_device(b->comm, &previous);
    ncclResult_t result = first_of(
        entered, parallel_cuda((int)cudaStreamSynchronize(b->stream), "cudaStreamSynchronize"));
    if (b->window != NULL) {
        result = first_of(result, ncclCommWindowDeregister(b->comm, b->window));
    }
    result = first_of(result, ncclMemFree(b->rows));
    result = first_of(result, free_device_memory(b, b->residual));
    result = first_of(result, free_device_memory(b, b->gamma));
    if (entered == ncclSuccess) {
        parallel_leave_device(previous);
    }
    free(b);
    return result;
}

PARALLEL_EXPORT ncclResult_t tuttiBoundaryCreate(const struct tuttiNorm *norm, size_t most,
                                                 enum tuttiBoundaryWay way, ncclComm_t comm,
                                                 cudaStream_t stream,
                                                 struct tuttiBoundary **boundary)
{
    struct parallel_call call = {{0}, {0}};
    struct tuttiBoundary made = {.most = most, .comm = comm, .stream = stream};
    int previous = 0;
    if (boundary != NULL) {
        *boundary = NULL;
    }
    if (norm != NULL) {
        made.norm = *norm;
    }
    TRY(parallel_begin("tuttiBoundaryCreate", comm, most, &call));
    TRY(tuttiRefuseGroup(call.name));
    TRY(agree(&call, &made, way, check_create(call.name, norm, most, way, boundary)));
    TRY(choose(call.name, &made, way));
    struct tuttiBoundary *b = malloc(sizeof *b);
    if (b == NULL) {
        return tuttiFail(ncclSystemError, "%s: no memory for a boundary", call.name);
    }
    *b = made;
    ncclResult_t result = parallel_enter_device(comm, &previous);
    if (result != ncclSuccess) {
        free(b);
        return result;
    }
    result = make_memory(b, parallel_part_count(&call.part, 0)); // rank 0 has most
    parallel_leave_device(previous);
    if (result != ncclSuccess) {
        (void)tuttiBoundaryDestroy(b);
        return result;
    }
    *boundary = b;
    return ncclSuccess;
}

PARALLEL_EXPORT ncclResult_t tuttiBoundaryRows(struct tuttiBoundary *boundary, void **rows)
{
    if (boundary == NULL || rows == NULL) {
        return tuttiFail(ncclInvalidArgument, "tuttiBoundaryRows: %s is NULL",
                         boundary == NULL ? "boundary" : "rows");
    }
    *rows = boundary->rows;
    return ncclSuccess;
}

PARALLEL_EXPORT ncclResult_t tuttiBoundaryIsFused(const struct tuttiBoundary *boundary, int *fused)
{
    if (boundary == NULL || fused == NULL) {
        return tuttiFail(ncclInvalidArgument, "tuttiBoundaryIsFused: %s is NULL",
                         boundary == NULL ? "boundary" : "fused");
    }
    *fused = boundary->is_fused ? 1 : 0;
    return ncclSuccess;
}

static ncclResult_t begin(const char *function, const struct tuttiBoundary *b, size_t tokens,
                          struct parallel_call *call)
{
    if (b == NULL) {
        return tuttiFail(ncclInvalidArgument, "%s: boundary is NULL", function);
    }
    TRY(parallel_begin(function, b->comm, tokens, call));
    if (tokens > b->most) {
        return tuttiFail(ncclInvalidArgument,
                         "%s: tokens is %zu, must be at most %zu, what the boundary was made for",
                         call->name, tokens, b->most);
    }
    return ncclSuccess;
}

static ncclResult_t wait_for_stream(const struct parallel_call *call, const struct tuttiBoundary *b)
{
    return parallel_wait(call->name, b->comm, b->stream);
}

static struct tuttiSequence sequence_of(const struct tuttiBoundary *b, size_t tokens,
                                        ncclDataType_t type)
{
    return (struct tuttiSequence){tokens, b->norm.width, type, b->comm, b->stream};
}

// gamma in the activations' type, as the fused operation wants it.
static ncclResult_t convert_gamma(const struct parallel_call *call, const struct tuttiBoundary *b,
                                  const void *gamma)
{
    const size_t width = b->norm.width;
    double *row = NULL;
    TRY(parallel_row(call->name, width, &row));
    parallel_load(gamma, b->norm.types.weights, 0, width, row);
    parallel_store(b->gamma, b->norm.types.activations, 0, width, row);
    free(row);
    return ncclSuccess;
}

// The own rows of the residual, or zeros, go to their place in a [tokens x width] of the object's,
// and come from there as x. The operation wants a residual of all ranks or of none, but a rank
// without rows may give NULL where others have one: so there is one always.
static ncclResult_t forward_fused(const struct parallel_call *call, const struct tuttiBoundary *b,
                                  const struct tuttiBoundaryInput *in)
{
    const struct parallel_part *part = &call->part;
    const ncclDataType_t type = b->norm.types.activations;
    const size_t width = b->norm.width;
    const size_t bytes = part->count * width * parallel_element_bytes(type);
    void *own = parallel_at_mutable(b->residual, type, part->first * width);
    struct tuttiRMSNormOptions options = TUTTI_RMSNORM_OPTIONS_INITIALIZER;
    options.eps = (float)b->norm.eps;
    options.gamma = in->gamma == NULL ? NULL : b->gamma;
    options.residual = options.residualOut = b->residual;
    if (in->gamma != NULL) {
        TRY(convert_gamma(call, b, in->gamma));
    }
    if (in->residual == NULL) {
        memset(own, 0, bytes);
    } else if (bytes > 0) {
        memcpy(own, in->residual, bytes);
    }
    TRY(tuttiAllReduceRMSNorm(b->rows, b->rows, part->total, width, &options, type, b->comm,
                              b->stream));
    TRY(wait_for_stream(call, b));
    if (in->x != NULL && bytes > 0) {
        memcpy(in->x, own, bytes);
    }
    return ncclSuccess;
}

// to[own x width] += from[own x width], both activations.
static ncclResult_t add(const struct parallel_call *call, const struct tuttiBoundary *b,
                        const void *from, void *to)
{
    const ncclDataType_t type = b->norm.types.activations;
    const size_t width = b->norm.width;
    double *row = NULL;
    TRY(parallel_row(call->name, 2 * width, &row));
    for (size_t t = 0; t < call->part.count; t++) {
        parallel_load(to, type, t * width, width, row);
        parallel_load(from, type, t * width, width, row + width);
        for (size_t i = 0; i < width; i++) {
            row[i] += row[width + i];
        }
        parallel_store(to, type, t * width, width, row);
    }
    free(row);
    return ncclSuccess;
}

// Norm of the own rows into their place, then everybody's.
static ncclResult_t norm_and_gather(const struct tuttiBoundary *b, const struct parallel_part *part,
                                    const void *x, const void *gamma, const void *beta)
{
    const ncclDataType_t type = b->norm.types.activations;
    void *own = parallel_at_mutable(b->rows, type, part->first * b->norm.width);
    struct tuttiSequence sequence = sequence_of(b, part->total, type);
    TRY(tuttiNormForward(&b->norm, part->count, x, gamma, beta, own));
    return tuttiSequenceAllGather(&sequence, own, b->rows);
}

static ncclResult_t forward_halves(const struct parallel_call *call, const struct tuttiBoundary *b,
                                   const struct tuttiBoundaryInput *in)
{
    const struct parallel_part *part = &call->part;
    const size_t bytes =
        part->count * b->norm.width * parallel_element_bytes(b->norm.types.activations);
    struct tuttiSequence sequence = sequence_of(b, part->total, b->norm.types.activations);
    TRY(tuttiSequenceReduceScatter(&sequence, b->rows, b->residual));
    TRY(wait_for_stream(call, b));
    if (in->residual != NULL) {
        TRY(add(call, b, in->residual, b->residual));
    }
    if (in->x != NULL && bytes > 0) {
        memcpy(in->x, b->residual, bytes);
    }
    TRY(norm_and_gather(b, part, b->residual, in->gamma, in->beta));
    return wait_for_stream(call, b);
}

PARALLEL_EXPORT ncclResult_t tuttiBoundaryForward(struct tuttiBoundary *boundary, size_t tokens,
                                                  const struct tuttiBoundaryInput *input)
{
    struct parallel_call call = {{0}, {0}};
    TRY(begin("tuttiBoundaryForward", boundary, tokens, &call));
    if (input == NULL) {
        return tuttiFail(ncclInvalidArgument, "%s: input is NULL", call.name);
    }
    TRY(parallel_norm_check_beta(call.name, &boundary->norm, "beta", input->beta));
    TRY(wait_for_stream(&call, boundary));
    return boundary->is_fused ? forward_fused(&call, boundary, input)
                              : forward_halves(&call, boundary, input);
}

PARALLEL_EXPORT ncclResult_t tuttiBoundaryReduce(struct tuttiBoundary *boundary, size_t tokens,
                                                 void *x)
{
    struct parallel_call call = {{0}, {0}};
    TRY(begin("tuttiBoundaryReduce", boundary, tokens, &call));
    TRY(parallel_check_pointer(call.name, "x", x, call.part.count * boundary->norm.width));
    struct tuttiSequence sequence = sequence_of(boundary, tokens, boundary->norm.types.activations);
    TRY(tuttiSequenceReduceScatter(&sequence, boundary->rows, x));
    return wait_for_stream(&call, boundary);
}

PARALLEL_EXPORT ncclResult_t tuttiBoundaryGather(struct tuttiBoundary *boundary, size_t tokens,
                                                 const void *x, const void *gamma, const void *beta)
{
    struct parallel_call call = {{0}, {0}};
    TRY(begin("tuttiBoundaryGather", boundary, tokens, &call));
    TRY(parallel_check_pointer(call.name, "x", x, call.part.count * boundary->norm.width));
    TRY(parallel_norm_check_beta(call.name, &boundary->norm, "beta", beta));
    TRY(wait_for_stream(&call, boundary));
    return norm_and_gather(boundary, &call.part, x, gamma, beta);
}

static ncclResult_t check_backward(const struct parallel_call *call, const struct tuttiBoundary *b,
                                   const struct tuttiBoundaryGradients *g)
{
    const size_t width = b->norm.width;
    if (g == NULL) {
        return tuttiFail(ncclInvalidArgument, "%s: gradients is NULL", call->name);
    }
    TRY(parallel_norm_check_beta(call->name, &b->norm, "dbeta", g->dbeta));
    TRY(parallel_check_pointer(call->name, "x", g->x, call->part.count * width));
    TRY(parallel_check_pointer(call->name, "dx", g->dx, call->part.count * width));
    return parallel_check_pointer(call->name, "partial", g->partial, call->part.total * width);
}

PARALLEL_EXPORT ncclResult_t tuttiBoundaryBackward(struct tuttiBoundary *boundary, size_t tokens,
                                                   const struct tuttiBoundaryGradients *gradients)
{
    const struct tuttiBoundary *b = boundary;
    const struct tuttiBoundaryGradients *g = gradients;
    struct parallel_call call = {{0}, {0}};
    TRY(begin("tuttiBoundaryBackward", b, tokens, &call));
    TRY(check_backward(&call, b, g));
    const size_t width = b->norm.width;
    const ncclDataType_t type = b->norm.types.gradients;
    struct tuttiSequence sequence = sequence_of(b, tokens, type);
    void *own = parallel_at_mutable(g->partial, type, call.part.first * width);
    TRY(tuttiSequenceReduceScatter(&sequence, g->partial, own));
    TRY(wait_for_stream(&call, b));
    const struct tuttiNormGradients local = {.x = g->x,
                                             .gamma = g->gamma,
                                             .dy = own,
                                             .added = g->hasResidual ? g->dx : NULL,
                                             .dx = g->dx,
                                             .dgamma = g->dgamma,
                                             .dbeta = g->dbeta};
    TRY(tuttiNormBackward(&b->norm, call.part.count, &local));
    return g->dy == NULL ? ncclSuccess : tuttiSequenceAllGather(&sequence, g->dx, g->dy);
}
