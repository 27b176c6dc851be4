// What each operation moves, where its data lies, and how bandwidth is counted.
//
// Counts follow nccl-tests 2.19 (GetCollByteCount of src/all_reduce.cu and its siblings): a size is
// the bytes of the whole vector; forms with a part for each rank round the part down to 16 bytes
// (here: --align).
// SPDX-License-Identifier: Apache-2.0
#include "perf.h"

#include <stdlib.h>
#include <string.h>

#define BANDWIDTH(base, bus)                                                                       \
    "Algorithm bandwidth: " base " per second.\nBus bandwidth: algorithm bandwidth " bus ".\n"
#define WHOLE  "bytes of the vector"
#define PARTS  "bytes of all ranks' parts"
#define SHARED "times (n - 1) / n, n ranks"

const struct perf_operation perf_operations[PERF_KINDS] = {
    {PERF_ALL_REDUCE, "all_reduce", "ncclAllReduce", true, false, true, false,
     "every rank gets the reduction of all", BANDWIDTH(WHOLE, "times 2 (n - 1) / n, n ranks")},
    {PERF_REDUCE, "reduce", "ncclReduce", true, true, true, false,
     "the root gets the reduction of all", BANDWIDTH(WHOLE, "itself")},
    {PERF_BROADCAST, "broadcast", "ncclBroadcast", false, true, true, false,
     "every rank gets what the root has", BANDWIDTH(WHOLE, "itself")},
    {PERF_REDUCE_SCATTER, "reduce_scatter", "ncclReduceScatter", true, false, true, true,
     "every rank gets its part of the reduction of all", BANDWIDTH(PARTS, SHARED)},
    {PERF_ALL_GATHER, "all_gather", "ncclAllGather", false, false, true, true,
     "every rank gets the parts of all", BANDWIDTH(PARTS, SHARED)},
    {PERF_ALL_TO_ALL, "alltoall", "ncclAlltoAll", false, false, false, true,
     "every rank gets a part of every rank", BANDWIDTH(PARTS, SHARED)},
    {PERF_GATHER, "gather", "ncclGather", false, true, true, true, "the root gets the parts of all",
     BANDWIDTH(PARTS, SHARED)},
    {PERF_SCATTER, "scatter", "ncclScatter", false, true, true, true,
     "every rank gets its part of what the root has", BANDWIDTH(PARTS, SHARED)},
    {PERF_SEND_RECV, "sendrecv", "ncclSend and ncclRecv", false, false, false, false,
     "every rank sends to the next and receives from the one before", BANDWIDTH(WHOLE, "itself")},
    {PERF_PUT, "put", "ncclPutSignal and ncclWaitSignal", false, false, false, false,
     "every rank puts into the next one's window and waits for the one before",
     BANDWIDTH(WHOLE, "itself")},
    {PERF_REDUCE_SCATTER_V, "reduce_scatter_v", "tuttiReduceScatterV", true, false, true, true,
     "reduce_scatter with parts of different sizes",
     BANDWIDTH(PARTS, "times what the rank with the smallest part must send, by all parts")},
    {PERF_ALL_GATHER_V, "all_gather_v", "tuttiAllGatherV", false, false, true, true,
     "all_gather with parts of different sizes",
     BANDWIDTH(PARTS, "times what the rank with the smallest part must receive, by all parts")},
    {PERF_ALL_TO_ALL_V, "all_to_all_v", "tuttiAllToAllV", false, false, false, true,
     "alltoall with parts of different sizes",
     BANDWIDTH("bytes that the busiest rank sends or receives", SHARED)},
    {PERF_GATHER_V, "gather_v", "tuttiGatherV", false, true, true, true,
     "gather with parts of different sizes",
     BANDWIDTH(PARTS, "times what the root must receive, by all parts")},
    {PERF_SCATTER_V, "scatter_v", "tuttiScatterV", false, true, true, true,
     "scatter with parts of different sizes",
     BANDWIDTH(PARTS, "times what the root must send, by all parts")},
};

const struct perf_operation *perf_operation_find(const char *name)
{
    for (int i = 0; i < PERF_KINDS; i++) {
        if (strcmp(name, perf_operations[i].name) == 0) {
            return &perf_operations[i];
        }
    }
    return NULL;
}

// ---- Types, operators ---------------------------------------------------------------------------

static const char *const type_names[ncclNumTypes] = {"int8",   "uint8",    "int32",  "uint32",
                                                     "int64",  "uint64",   "half",   "float",
                                                     "double", "bfloat16", "f8e4m3", "f8e5m2"};
static const char *const op_names[PERF_OPERATORS] = {"sum", "prod", "max", "min", "avg", "mulsum"};

size_t perf_type_bytes(int type)
{
    static const unsigned char bytes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return bytes[type];
}

const char *perf_type_name(int type)
{
    return type_names[type];
}

const char *perf_op_name(int op)
{
    return op < 0 ? "none" : op_names[op];
}

static int find(const char *name, const char *const *names, int n)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(name, names[i]) == 0) {
            return i;
        }
    }
    return strcmp(name, "all") == 0 ? PERF_ALL : -2;
}

int perf_type_find(const char *name)
{
    return find(name, type_names, ncclNumTypes);
}

int perf_op_find(const char *name)
{
    return find(name, op_names, PERF_OPERATORS);
}

// ---- Shapes -------------------------------------------------------------------------------------

static bool is_uneven(enum perf_kind kind)
{
    return kind >= PERF_REDUCE_SCATTER_V;
}

// Elements that rank sends to all, or receives from all, of an all_to_all_v.
static size_t row(const struct perf_shape *s, int rank)
{
    size_t sum = 0;
    for (int d = 0; d < s->nranks; d++) {
        sum += s->parts[(size_t)rank * s->nranks + d];
    }
    return sum;
}

static size_t column(const struct perf_shape *s, int rank)
{
    size_t sum = 0;
    for (int r = 0; r < s->nranks; r++) {
        sum += s->parts[(size_t)r * s->nranks + rank];
    }
    return sum;
}

static bool make_uneven(struct perf_shape *s, enum perf_uneven pattern, size_t total)
{
    const bool is_matrix = s->operation->kind == PERF_ALL_TO_ALL_V;
    const size_t n = (size_t)s->nranks, rows = is_matrix ? n : 1;
    s->parts = calloc(3 * rows * n, sizeof *s->parts);
    if (s->parts == NULL) {
        return false;
    }
    s->first = s->parts + rows * n;
    s->received = s->first + rows * n;
    for (size_t r = 0; r < rows; r++) {
        perf_share(pattern, total, s->nranks, (int)r, s->parts + r * n);
        size_t start = 0;
        for (size_t d = 0; d < n; d++) {
            s->first[r * n + d] = start;
            start += s->parts[r * n + d];
        }
    }
    for (size_t d = 0; d < n && is_matrix; d++) {
        size_t start = 0;
        for (size_t r = 0; r < n; r++) {
            s->received[r * n + d] = start;
            start += s->parts[r * n + d];
        }
    }
    return true;
}

bool perf_shape_make(struct perf_shape *shape, const struct perf_options *options, int type,
                     int root, size_t bytes)
{
    const struct perf_operation *operation = options->operation;
    *shape = (struct perf_shape){.operation = operation,
                                 .nranks = perf_ranks(options),
                                 .root = root,
                                 .element = perf_type_bytes(type)};
    size_t count = bytes / shape->element;
    if (operation->per_rank) {
        size_t step = (size_t)options->align / shape->element;
        count /= (size_t)shape->nranks;
        count -= step > 1 ? count % step : 0;
    }
    shape->count = count;
    if (is_uneven(operation->kind)) {
        // The parts of all ranks, exactly what was asked for, whatever the even form would round.
        shape->count = bytes / shape->element;
        if (!make_uneven(shape, options->uneven, shape->count)) {
            return false;
        }
    }
    size_t largest = 0;
    for (int r = 0; r < shape->nranks; r++) {
        size_t send = perf_send_count(shape, r), receive = perf_receive_count(shape, r);
        largest = send > largest ? send : largest;
        largest = receive > largest ? receive : largest;
    }
    shape->bytes = largest * shape->element;
    return true;
}

void perf_shape_free(struct perf_shape *shape)
{
    free(shape->parts);
    *shape = (struct perf_shape){0};
}

size_t perf_send_count(const struct perf_shape *s, int rank)
{
    const size_t n = (size_t)s->nranks;
    switch (s->operation->kind) {
    case PERF_REDUCE_SCATTER:
    case PERF_ALL_TO_ALL:
    case PERF_SCATTER: // room on every rank, as in nccl-tests; the root's counts
        return s->count * n;
    case PERF_ALL_GATHER_V:
    case PERF_GATHER_V:
        return s->parts[rank];
    case PERF_ALL_TO_ALL_V:
        return row(s, rank);
    default: // the whole vector, or a part: all forms that remain
        return s->count;
    }
}

size_t perf_receive_count(const struct perf_shape *s, int rank)
{
    switch (s->operation->kind) {
    case PERF_ALL_GATHER:
    case PERF_ALL_TO_ALL:
    case PERF_GATHER:
        return s->count * (size_t)s->nranks;
    case PERF_REDUCE_SCATTER_V:
    case PERF_SCATTER_V:
        return s->parts[rank];
    case PERF_ALL_TO_ALL_V:
        return column(s, rank);
    default:
        return s->count;
    }
}

size_t perf_send_start(const struct perf_shape *s, int rank)
{
    switch (s->operation->kind) {
    case PERF_ALL_GATHER:
    case PERF_GATHER:
        return s->count * (size_t)rank;
    case PERF_ALL_GATHER_V:
    case PERF_GATHER_V:
        return s->first[rank];
    default:
        return 0;
    }
}

size_t perf_receive_start(const struct perf_shape *s, int rank)
{
    switch (s->operation->kind) {
    case PERF_REDUCE_SCATTER:
    case PERF_SCATTER:
        return s->count * (size_t)rank;
    case PERF_REDUCE_SCATTER_V:
    case PERF_SCATTER_V:
        return s->first[rank];
    default:
        return 0;
    }
}

// ---- Bandwidth ----------------------------------------------------------------------------------

// Sources, by case: nccl-tests 2.19, doc/PERFORMANCE.md ("Bus Bandwidth", the summary) and GetBw in
// src/*.cu.
//   all_reduce                                    count           2 (n - 1) / n
//   all_gather, reduce_scatter, alltoall          count x n       (n - 1) / n
//   gather, scatter (src/gather.cu, scatter.cu)   count x n       (n - 1) / n
//   broadcast, reduce, sendrecv                   count           1
//   all_to_all_v (src/alltoallv.cu)               most of a rank  (n - 1) / n
// put is counted as sendrecv. The other uneven forms are ours, by the argument of PERFORMANCE.md:
// bytes that must pass the narrowest rank, which with equal parts is (n - 1) / n again.
//   all_gather_v, reduce_scatter_v                all parts       (all - smallest) / all
//   gather_v, scatter_v                           all parts       (all - root's) / all
void perf_bandwidth(const struct perf_shape *s, double seconds, double *algorithm_out,
                    double *bus_out)
{
    const double n = s->nranks;
    double elements = (double)s->count, factor = 1;
    size_t smallest = SIZE_MAX, busiest = 0;
    for (int r = 0; r < s->nranks && is_uneven(s->operation->kind); r++) {
        smallest = s->parts[r] < smallest ? s->parts[r] : smallest;
        size_t send = perf_send_count(s, r), receive = perf_receive_count(s, r);
        busiest = send > busiest ? send : busiest;
        busiest = receive > busiest ? receive : busiest;
    }
    switch (s->operation->kind) {
    case PERF_ALL_REDUCE:
        factor = 2 * (n - 1) / n;
        break;
    case PERF_ALL_GATHER:
    case PERF_REDUCE_SCATTER:
    case PERF_ALL_TO_ALL:
    case PERF_GATHER:
    case PERF_SCATTER:
        elements *= n;
        factor = (n - 1) / n;
        break;
    case PERF_ALL_TO_ALL_V:
        elements = (double)busiest;
        factor = (n - 1) / n;
        break;
    case PERF_ALL_GATHER_V:
    case PERF_REDUCE_SCATTER_V:
        factor = elements > 0 ? 1 - (double)smallest / elements : 0;
        break;
    case PERF_GATHER_V:
    case PERF_SCATTER_V:
        factor = elements > 0 ? 1 - (double)s->parts[s->root] / elements : 0;
        break;
    default:
        break;
    }
    *algorithm_out = seconds > 0 ? elements * (double)s->element / 1e9 / seconds : 0;
    *bus_out = *algorithm_out * factor;
}
