// Tokens to their experts' ranks in three ways: ncclAlltoAll padded to the most rows of any pair of
// ranks, tuttiAllToAllV by counts (both one row for each token and expert, packed first, counts
// exchanged first), and tuttiMoeDispatch (one row for each token and rank; grouped by expert).
// SPDX-License-Identifier: Apache-2.0
#include "skew.h"

#include "team.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 5, TOKENS = 1024, HIDDEN = 2048, CHOICES = 8 };
static const size_t row_bytes = HIDDEN * sizeof(uint16_t);

const char *const skew_ways[WAYS] = {"ncclAlltoAll, padded", "tuttiAllToAllV", "tuttiMoeDispatch"};

struct exchange {
    size_t send[RANKS], recv[RANKS]; // rows
    size_t most;                     // of any pair
    char *packed, *received;
    size_t *all; // device memory: [RANKS x RANKS], then this rank's
};

// Rows for each rank, from all ranks.
static void exchange_counts(const struct rank *self, struct exchange *x)
{
    size_t *all = x->all, *mine = all + RANKS * RANKS;
    memset(x->send, 0, sizeof x->send);
    for (size_t i = 0; i < TOKENS * CHOICES; i++) {
        x->send[self->indices[i] / (EXPERTS / RANKS)]++;
    }
    memcpy(mine, x->send, sizeof x->send);
    NCCL(ncclAllGather(mine, all, RANKS, ncclUint64, self->comm, self->stream));
    CUDA(cudaStreamSynchronize(self->stream));
    x->most = 0;
    for (int r = 0; r < RANKS; r++) {
        x->recv[r] = all[r * RANKS + self->number];
        for (int to = 0; to < RANKS; to++) {
            x->most = all[r * RANKS + to] > x->most ? all[r * RANKS + to] : x->most;
        }
    }
}

// stride: rows from one rank's part to the next; 0: one behind the other.
static void pack(const struct rank *self, struct exchange *x, size_t stride)
{
    size_t next[RANKS], at = 0;
    for (int r = 0; r < RANKS; r++) {
        next[r] = stride > 0 ? (size_t)r * stride : at;
        at += x->send[r];
    }
    for (size_t i = 0; i < TOKENS * CHOICES; i++) {
        size_t row = next[self->indices[i] / (EXPERTS / RANKS)]++;
        memcpy(x->packed + row * row_bytes, (char *)self->token + i / CHOICES * row_bytes,
               row_bytes);
    }
}

static void go_padded(struct rank *self, struct exchange *x)
{
    exchange_counts(self, x);
    pack(self, x, x->most);
    NCCL(ncclAlltoAll(x->packed, x->received, x->most * HIDDEN, ncclBfloat16, self->comm,
                      self->stream));
}

static void go_by_counts(struct rank *self, struct exchange *x)
{
    size_t send[RANKS], recv[RANKS];
    exchange_counts(self, x);
    pack(self, x, 0);
    for (int r = 0; r < RANKS; r++) {
        send[r] = x->send[r] * HIDDEN;
        recv[r] = x->recv[r] * HIDDEN;
    }
    NCCL(tuttiAllToAllV(x->packed, send, NULL, x->received, recv, NULL, ncclBfloat16, self->comm,
                        self->stream));
}

static tuttiMoeRoute_t go_dispatch(struct rank *self, tuttiMoe_t moe)
{
    tuttiMoeRoute_t route = NULL;
    NCCL(tuttiMoeDispatch(moe, self->token, TOKENS, self->indices, self->weights, &route,
                          self->stream));
    return route;
}

// What rank 0 finds out for all.
struct shared {
    struct skew_point *point;
    double times[WAYS][ROUNDS];
};

static void one_way(struct rank *self, struct exchange *x, tuttiMoe_t moe, int way,
                    struct shared *s, int round)
{
    tuttiMoeRoute_t route = NULL;
    double start = meet();
    if (way == 0) {
        go_padded(self, x);
    } else if (way == 1) {
        go_by_counts(self, x);
    } else {
        route = go_dispatch(self, moe);
    }
    CUDA(cudaStreamSynchronize(self->stream));
    double end = meet();
    if (self->number == 0 && round >= 0) {
        s->times[way][round] = (end - start) * 1e3;
    }
    if (route != NULL) {
        struct tuttiMoeReport report;
        NCCL(tuttiMoeGetReport(route, &report));
        NCCL(tuttiMoeRouteDestroy(route));
        if (round < 0) {
            double *to = &s->point->bytes[2];
            for (int r = 0; r < RANKS; r++, (void)meet()) { // one after the other
                *to += r == self->number ? (double)(report.toRanks * row_bytes) : 0;
                s->point->share = r == self->number && (double)report.rows > s->point->share
                                      ? (double)report.rows
                                      : s->point->share;
            }
        }
    }
}

static void measure(struct rank *self, void *argument)
{
    struct shared *s = argument;
    struct exchange x = {0};
    tuttiMoe_t moe = NULL;
    struct tuttiMoeOptions options = TUTTI_MOE_OPTIONS_INITIALIZER;
    size_t room = (size_t)TOKENS * CHOICES * RANKS * row_bytes; // all to one rank
    options.experts = EXPERTS;
    options.choices = CHOICES;
    options.hidden = HIDDEN;
    options.maxTokens = TOKENS;
    options.datatype = ncclBfloat16;
    fill_rank(self, TOKENS, HIDDEN, CHOICES, s->point->skew);
    x.packed = touched(room);
    x.received = touched(room);
    x.all = touched((RANKS * RANKS + RANKS) * sizeof *x.all);
    NCCL(tuttiMoeCreate(self->comm, &options, &moe));
    for (int round = -1; round < ROUNDS; round++) {
        for (int way = 0; way < WAYS; way++) {
            one_way(self, &x, moe, way, s, round);
        }
    }
    if (self->number == 0) {
        s->point->bytes[0] = (double)(x.most * RANKS * RANKS * row_bytes);
        s->point->bytes[1] = (double)((size_t)TOKENS * CHOICES * RANKS * row_bytes);
    }
    NCCL(tuttiMoeDestroy(moe));
    empty_rank(self);
    CUDA(cudaFree(x.packed));
    CUDA(cudaFree(x.received));
    CUDA(cudaFree(x.all));
}

void measure_skews(struct skew_point *points)
{
    printf(
        "\n4 ranks, %d tokens each of %d bf16, %d of %d experts; tokens to their experts' ranks, "
        "ms (MB that travel)\n%6s  %13s",
        TOKENS, HIDDEN, CHOICES, EXPERTS, "skew", "busiest rank");
    for (int way = 0; way < WAYS; way++) {
        printf("  %22s", skew_ways[way]);
    }
    printf("\n");
    for (int i = 0; i < SKEWS; i++) {
        struct shared s = {.point = &points[i]};
        points[i] = (struct skew_point){.skew = 0.4 * i};
        run_team(measure, &s);
        points[i].share /= (double)(TOKENS * CHOICES * RANKS);
        printf("%6.1f  %11.0f %%", points[i].skew, points[i].share * 100);
        for (int way = 0; way < WAYS; way++) {
            points[i].time[way] = median(s.times[way], ROUNDS);
            printf("  %12.2f (%7.1f)", points[i].time[way], points[i].bytes[way] / 1e6);
        }
        printf("\n");
        (void)fflush(stdout);
    }
}
