// Counts of the uneven forms, and what each rank's receive buffer must hold.
// SPDX-License-Identifier: Apache-2.0
#include "perf.h"

static size_t weight(enum perf_uneven pattern, int index, int n)
{
    switch (pattern) {
    case PERF_UNEVEN_RAMP:
        return (size_t)index + 1;
    case PERF_UNEVEN_HOLES:
        return n == 1 || index % 2 == 1;
    default:
        return 1;
    }
}

// Rank r gets elements floor(before / all) to floor(upto / all) of the weights, so that parts are
// whole and their sum exact. SPLIT is tuttiSplitCounts: the first ranks get one more.
void perf_share(enum perf_uneven pattern, size_t total, int n, int shift, size_t *parts)
{
    size_t weights = 0;
    for (int i = 0; i < n; i++) {
        weights += weight(pattern, i, n);
    }
    if (pattern == PERF_UNEVEN_SPLIT) {
        for (int i = 0; i < n; i++) {
            parts[(i + shift) % n] = total / (size_t)n + ((size_t)i < total % (size_t)n);
        }
        return;
    }
    size_t before = 0;
    for (int i = 0; i < n; i++) {
        size_t upto = before + weight(pattern, i, n);
        // total / weights * x + total % weights * x / weights: without overflow
        size_t from = total / weights * before + total % weights * before / weights;
        size_t to = total / weights * upto + total % weights * upto / weights;
        parts[(i + shift) % n] = to - from;
        before = upto;
    }
}

static struct perf_segment part_of(int rank, size_t first, size_t start, size_t count)
{
    return (struct perf_segment){
        .start = start, .count = count, .source = PERF_FROM_RANK, .rank = rank, .first = first};
}

static struct perf_segment reduction(size_t first, size_t count)
{
    return (struct perf_segment){.count = count, .source = PERF_FROM_ALL, .first = first};
}

// The parts of all ranks, one after the other.
static int gathered(const struct perf_shape *s, int rank, struct perf_segment *segments)
{
    const size_t n = (size_t)s->nranks;
    for (int r = 0; r < s->nranks; r++) {
        switch (s->operation->kind) {
        case PERF_ALL_TO_ALL:
            segments[r] = part_of(r, s->count * (size_t)rank, s->count * (size_t)r, s->count);
            break;
        case PERF_ALL_TO_ALL_V: {
            size_t i = (size_t)r * n + (size_t)rank;
            segments[r] = part_of(r, s->first[i], s->received[i], s->parts[i]);
            break;
        }
        case PERF_ALL_GATHER_V:
        case PERF_GATHER_V:
            segments[r] = part_of(r, 0, s->first[r], s->parts[r]);
            break;
        default:
            segments[r] = part_of(r, 0, s->count * (size_t)r, s->count);
        }
    }
    return s->nranks;
}

int perf_expect(const struct perf_shape *s, int rank, struct perf_segment *segments)
{
    const size_t r = (size_t)rank;
    switch (s->operation->kind) {
    case PERF_ALL_REDUCE:
        segments[0] = reduction(0, s->count);
        return 1;
    case PERF_REDUCE:
        segments[0] = reduction(0, s->count);
        return rank == s->root;
    case PERF_BROADCAST:
        segments[0] = part_of(s->root, 0, 0, s->count);
        return 1;
    case PERF_REDUCE_SCATTER:
        segments[0] = reduction(s->count * r, s->count);
        return 1;
    case PERF_REDUCE_SCATTER_V:
        segments[0] = reduction(s->first[rank], s->parts[rank]);
        return 1;
    case PERF_SCATTER:
        segments[0] = part_of(s->root, s->count * r, 0, s->count);
        return 1;
    case PERF_SCATTER_V:
        segments[0] = part_of(s->root, s->first[rank], 0, s->parts[rank]);
        return 1;
    case PERF_SEND_RECV:
    case PERF_PUT:
        segments[0] = part_of((rank + s->nranks - 1) % s->nranks, 0, 0, s->count);
        return 1;
    case PERF_GATHER:
    case PERF_GATHER_V:
        return rank == s->root ? gathered(s, rank, segments) : 0;
    default:
        return gathered(s, rank, segments);
    }
}
