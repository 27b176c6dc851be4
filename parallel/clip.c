// Clipping by the global norm. Device memory is read and written in pieces by way of the host, so
// that there is one code for all devices. See tutti_parallel/data.h.
// SPDX-License-Identifier: Apache-2.0
#include "device.h"
#include "fail.h"
#include "part.h"
#include "tutti_parallel/data.h"

#include <math.h>
#include <stdlib.h>

enum { PIECE_BYTES = 1 << 18, LANES = 16 };

struct flat {
    const char *call;
    char *buffer;
    ncclDataType_t type;
    size_t element_bytes;
    const struct tuttiPart *parts;
    int part_count;
    cudaStream_t stream;
};

static ncclResult_t check(const struct flat *f)
{
    const size_t most = PTRDIFF_MAX / sizeof(double);
    if (f->type != ncclFloat32 && f->type != ncclFloat64) {
        return tuttiFail(ncclInvalidArgument,
                         "%s: type is %d, must be ncclFloat32 (%d) or ncclFloat64 (%d)", f->call,
                         (int)f->type, (int)ncclFloat32, (int)ncclFloat64);
    }
    if (f->part_count < 0 || (f->part_count > 0 && f->parts == NULL)) {
        return tuttiFail(ncclInvalidArgument,
                         "%s: partCount is %d and parts %p; must be at least 0, and an array",
                         f->call, f->part_count, (const void *)f->parts);
    }
    for (int i = 0; i < f->part_count; i++) {
        if (f->parts[i].count > 0 && f->buffer == NULL) {
            return tuttiFail(ncclInvalidArgument,
                             "%s: buffer is NULL, and parts[%d] has %zu "
                             "elements",
                             f->call, i, f->parts[i].count);
        }
        if (f->parts[i].count > most || f->parts[i].offset > most - f->parts[i].count) {
            return tuttiFail(ncclInvalidArgument,
                             "%s: parts[%d] is %zu elements at %zu, more than memory has", f->call,
                             i, f->parts[i].count, f->parts[i].offset);
        }
    }
    return ncclSuccess;
}

// Elements from part `first`'s on that lie one behind the other, in *next - first parts.
static size_t run_length(const struct flat *f, int first, int *next)
{
    size_t begin = f->parts[first].offset, end = begin + f->parts[first].count;
    int i = first + 1;
    while (i < f->part_count && f->parts[i].offset == end) {
        end += f->parts[i].count;
        i++;
    }
    *next = i;
    return end - begin;
}

// The squares of n elements: LANES sums, which are added in pairs at the end.
#define DEFINE_SQUARES(name, type)                                                                 \
    static double name(const type *x, size_t n)                                                    \
    {                                                                                              \
        double lanes[LANES] = {0};                                                                 \
        size_t i = 0;                                                                              \
        for (; i + LANES <= n; i += LANES) {                                                       \
            for (size_t k = 0; k < LANES; k++) {                                                   \
                lanes[k] += (double)x[i + k] * (double)x[i + k];                                   \
            }                                                                                      \
        }                                                                                          \
        for (size_t k = 0; i + k < n; k++) {                                                       \
            lanes[k] += (double)x[i + k] * (double)x[i + k];                                       \
        }                                                                                          \
        for (size_t half = LANES / 2; half > 0; half /= 2) {                                       \
            for (size_t k = 0; k < half; k++) {                                                    \
                lanes[k] += lanes[k + half];                                                       \
            }                                                                                      \
        }                                                                                          \
        return lanes[0];                                                                           \
    }

DEFINE_SQUARES(squares_of_floats, float)
DEFINE_SQUARES(squares_of_doubles, double)

// Elements [begin, end) of the buffer are at `data`: the squares of what parts first to next - 1
// have of them.
static double add_squares(const struct flat *f, const char *data, size_t begin, size_t end,
                          int first, int next, const int *replicas)
{
    double sum = 0;
    for (int i = first; i < next; i++) {
        size_t low = f->parts[i].offset, high = low + f->parts[i].count;
        low = low > begin ? low : begin;
        high = high < end ? high : end;
        if (low < high) {
            const void *x = data + (low - begin) * f->element_bytes;
            double squares = f->type == ncclFloat32 ? squares_of_floats(x, high - low)
                                                    : squares_of_doubles(x, high - low);
            sum += squares / (replicas == NULL ? 1 : replicas[i]);
        }
    }
    return sum;
}

static ncclResult_t read_piece(const struct flat *f, size_t begin, size_t elements, void *piece)
{
    cudaError_t error =
        cudaMemcpyAsync(piece, f->buffer + begin * f->element_bytes, elements * f->element_bytes,
                        cudaMemcpyDeviceToHost, f->stream);
    if (error != cudaSuccess) {
        return tuttiFail(ncclUnhandledCudaError,
                         "%s: buffer is %p: elements %zu to %zu of device memory cannot be read "
                         "there: %s (%d)",
                         f->call, (void *)f->buffer, begin, begin + elements - 1,
                         cudaGetErrorString(error), (int)error);
    }
    TRY_CUDA(cudaStreamSynchronize(f->stream));
    return ncclSuccess;
}

// Of the run that begins with part `first`; next: receives the first part behind it.
static ncclResult_t sum_run(const struct flat *f, int first, const int *replicas, void *piece,
                            double *sum, int *next)
{
    size_t most = PIECE_BYTES / f->element_bytes;
    size_t begin = f->parts[first].offset, end = begin + run_length(f, first, next);
    for (size_t at = begin; at < end; at += most) {
        size_t elements = end - at < most ? end - at : most;
        TRY(read_piece(f, at, elements, piece));
        *sum += add_squares(f, piece, at, at + elements, first, *next, replicas);
    }
    return ncclSuccess;
}

static ncclResult_t sum_runs(const struct flat *f, const int *replicas, void *piece, double *sum)
{
    for (int first = 0, next = 0; first < f->part_count; first = next) {
        TRY(sum_run(f, first, replicas, piece, sum, &next));
    }
    return ncclSuccess;
}

PARALLEL_EXPORT ncclResult_t tuttiSumSquares(const void *buffer, ncclDataType_t type,
                                             const struct tuttiPart *parts, int partCount,
                                             const int *replicas, cudaStream_t stream, double *sum)
{
    struct flat f = {"tuttiSumSquares",
                     (char *)(uintptr_t)buffer,
                     type,
                     parallel_type_bytes(type),
                     parts,
                     partCount,
                     stream};
    double added = 0;
    TRY(check(&f));
    if (sum == NULL) {
        return tuttiFail(ncclInvalidArgument, "tuttiSumSquares: sum is NULL");
    }
    for (int i = 0; replicas != NULL && i < partCount; i++) {
        if (replicas[i] < 1) {
            return tuttiFail(ncclInvalidArgument,
                             "tuttiSumSquares: replicas[%d] is %d, must be at least 1", i,
                             replicas[i]);
        }
    }
    void *piece = malloc(PIECE_BYTES);
    if (piece == NULL) {
        return tuttiFail(ncclSystemError, "tuttiSumSquares: no memory");
    }
    ncclResult_t result = sum_runs(&f, replicas, piece, &added);
    free(piece);
    if (result == ncclSuccess) {
        *sum += added;
    }
    return result;
}

// Sums in rank order; the first rank whose sum is none ends it.
static ncclResult_t add_ranks(const double *sums, int ranks, double *norm)
{
    double sum = 0;
    int bad = -1;
    for (int rank = 0; rank < ranks; rank++) {
        sum += sums[rank];
        bad = bad < 0 && !(isfinite(sums[rank]) && sums[rank] >= 0) ? rank : bad;
    }
    *norm = sqrt(sum);
    if (bad >= 0) {
        return tuttiFail(ncclInvalidUsage,
                         "tuttiGlobalNorm: the squares of rank %d sum to %g, must be finite and at "
                         "least 0: a gradient of it is infinite or not a number",
                         bad, sums[bad]);
    }
    if (!isfinite(sum)) {
        return tuttiFail(ncclInvalidUsage,
                         "tuttiGlobalNorm: the squares of all %d ranks sum to %g, must be finite",
                         ranks, sum);
    }
    return ncclSuccess;
}

PARALLEL_EXPORT ncclResult_t tuttiGlobalNorm(double squares, ncclComm_t comm, cudaStream_t stream,
                                             double *norm)
{
    struct parallel_call call = {{0}, {0}};
    double all = 0;
    TRY(parallel_begin("tuttiGlobalNorm", comm, 0, &call));
    TRY(tuttiRefuseGroup(call.name));
    const int ranks = call.part.size;
    double *sums = calloc((size_t)ranks, sizeof *sums);
    if (sums == NULL) {
        return tuttiFail(ncclSystemError, "%s: no memory for %d ranks", call.name, ranks);
    }
    ncclResult_t result = parallel_exchange(&squares, sums, sizeof squares, comm, stream);
    if (result == ncclSuccess) {
        result = add_ranks(sums, ranks, norm != NULL ? norm : &all);
    }
    free(sums);
    return norm != NULL ? result : tuttiFail(ncclInvalidArgument, "%s: norm is NULL", call.name);
}

PARALLEL_EXPORT ncclResult_t tuttiClipFactor(double norm, double most, double *factor)
{
    if (factor == NULL) {
        return tuttiFail(ncclInvalidArgument, "tuttiClipFactor: factor is NULL");
    }
    if (!(isfinite(norm) && norm >= 0)) {
        return tuttiFail(ncclInvalidArgument,
                         "tuttiClipFactor: norm is %g, must be finite and at least 0", norm);
    }
    if (!(most > 0)) {
        return tuttiFail(ncclInvalidArgument, "tuttiClipFactor: most is %g, must be more than 0",
                         most);
    }
    *factor = norm > most ? most / norm : 1;
    return ncclSuccess;
}

static void scale_piece(const struct flat *f, void *piece, size_t elements, double factor)
{
    if (f->type == ncclFloat32) {
        float *x = piece;
        for (size_t i = 0; i < elements; i++) {
            x[i] = (float)((double)x[i] * factor);
        }
    } else {
        double *x = piece;
        for (size_t i = 0; i < elements; i++) {
            x[i] *= factor;
        }
    }
}

static ncclResult_t write_piece(const struct flat *f, size_t begin, size_t elements,
                                const void *piece)
{
    TRY_CUDA(cudaMemcpyAsync(f->buffer + begin * f->element_bytes, piece,
                             elements * f->element_bytes, cudaMemcpyHostToDevice, f->stream));
    TRY_CUDA(cudaStreamSynchronize(f->stream));
    return ncclSuccess;
}

// As sum_run.
static ncclResult_t scale_run(const struct flat *f, int first, void *piece, double factor,
                              int *next)
{
    size_t most = PIECE_BYTES / f->element_bytes;
    size_t begin = f->parts[first].offset, end = begin + run_length(f, first, next);
    for (size_t at = begin; at < end; at += most) {
        size_t elements = end - at < most ? end - at : most;
        TRY(read_piece(f, at, elements, piece));
        scale_piece(f, piece, elements, factor);
        TRY(write_piece(f, at, elements, piece));
    }
    return ncclSuccess;
}

static ncclResult_t scale_runs(const struct flat *f, void *piece, double factor)
{
    for (int first = 0, next = 0; first < f->part_count; first = next) {
        TRY(scale_run(f, first, piece, factor, &next));
    }
    return ncclSuccess;
}

PARALLEL_EXPORT ncclResult_t tuttiScale(void *buffer, ncclDataType_t type,
                                        const struct tuttiPart *parts, int partCount, double factor,
                                        cudaStream_t stream)
{
    struct flat f = {"tuttiScale", buffer,    type,  parallel_type_bytes(type),
                     parts,        partCount, stream};
    TRY(check(&f));
    if (!isfinite(factor)) {
        return tuttiFail(ncclInvalidArgument, "tuttiScale: factor is %g, must be finite", factor);
    }
    if (factor == 1) {
        return ncclSuccess;
    }
    void *piece = malloc(PIECE_BYTES);
    if (piece == NULL) {
        return tuttiFail(ncclSystemError, "tuttiScale: no memory");
    }
    ncclResult_t result = scale_runs(&f, piece, factor);
    free(piece);
    return result;
}
