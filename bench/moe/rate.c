// Dispatch and combine against plain copies past the caches of the routed bytes, in turns in one
// run: 4096 tokens of 7168 bf16 on each of 4 ranks, 8 of 64 experts each.
// SPDX-License-Identifier: Apache-2.0
#include "rate.h"

#include "../copies.h"
#include "team.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 7, HIDDEN = 7168, CHOICES = 8, COPIERS = 2 };

struct measured {
    double dispatch[ROUNDS], combine[ROUNDS], copy[ROUNDS];
    size_t tokens, rows, sent; // of all ranks: rows at experts, rows sent to ranks
    char *from[COPIERS], *to[COPIERS];
};

static void one_round(struct rank *self, tuttiMoe_t moe, struct measured *m, int round)
{
    tuttiMoeRoute_t route = NULL;
    struct tuttiMoeReceived received;
    double start = meet();
    NCCL(tuttiMoeDispatch(moe, self->token, self->tokens, self->indices, self->weights, &route,
                          self->stream));
    CUDA(cudaStreamSynchronize(self->stream));
    double middle = meet();
    NCCL(tuttiMoeGetReceived(route, &received));
    NCCL(tuttiMoeCombine(route, received.rows, self->out, self->stream));
    CUDA(cudaStreamSynchronize(self->stream));
    double end = meet();
    struct tuttiMoeReport report;
    NCCL(tuttiMoeGetReport(route, &report));
    NCCL(tuttiMoeRouteDestroy(route));
    if (round < 0) { // the first touches memory
        __atomic_fetch_add(&m->rows, report.rows, __ATOMIC_RELAXED);
        __atomic_fetch_add(&m->sent, report.toRanks, __ATOMIC_RELAXED);
    } else if (self->number == 0) {
        m->dispatch[round] = middle - start;
        m->combine[round] = end - middle;
    }
}

// Weights of 1 / 8 and experts that do nothing: the tokens again.
static void check(const struct rank *self)
{
    if (memcmp(self->token, self->out, self->tokens * self->hidden * sizeof(uint16_t)) != 0) {
        fprintf(stderr, "bench: rank %d: the tokens did not come back as they were\n",
                self->number);
        exit(1);
    }
}

static void measure(struct rank *self, void *argument)
{
    struct measured *m = argument;
    tuttiMoe_t moe = NULL;
    struct tuttiMoeOptions options = TUTTI_MOE_OPTIONS_INITIALIZER;
    options.experts = EXPERTS;
    options.choices = CHOICES;
    options.hidden = HIDDEN;
    options.maxTokens = m->tokens;
    options.datatype = ncclBfloat16;
    fill_rank(self, m->tokens, HIDDEN, CHOICES, 0);
    NCCL(tuttiMoeCreate(self->comm, &options, &moe));
    for (int round = -1; round < ROUNDS; round++) {
        one_round(self, moe, m, round);
        (void)meet();
        if (self->number == 0 && round >= 0) {
            size_t bytes = m->tokens * RANKS * CHOICES * HIDDEN * sizeof(uint16_t) / COPIERS;
            m->copy[round] = bench_copies(COPIERS, m->to, m->from, bytes);
        }
        (void)meet();
    }
    check(self);
    NCCL(tuttiMoeDestroy(moe));
    empty_rank(self);
}

bool measure_rate(size_t tokens)
{
    struct measured m = {.tokens = tokens};
    size_t row = HIDDEN * sizeof(uint16_t), bytes = tokens * RANKS * CHOICES * row;
    for (int i = 0; i < COPIERS; i++) {
        m.from[i] = aligned_alloc(4096, bytes / COPIERS);
        m.to[i] = aligned_alloc(4096, bytes / COPIERS);
        if (m.from[i] == NULL || m.to[i] == NULL) {
            perror("bench");
            exit(1);
        }
        memset(m.from[i], 1, bytes / COPIERS);
        memset(m.to[i], 1, bytes / COPIERS);
    }
    run_team(measure, &m);
    double dispatch = median(m.dispatch, ROUNDS), combine = median(m.combine, ROUNDS);
    double copy = median(m.copy, ROUNDS), ratio = 2 * copy / (dispatch + combine);
    double sent = (double)m.sent / (double)m.rows;
    printf("4 ranks, %zu tokens each of %d bf16, %d of %d experts: %zu rows, %.2f GB each way; %zu "
           "rows sent to ranks\n",
           tokens, HIDDEN, CHOICES, EXPERTS, m.rows, (double)bytes / 1e9, m.sent);
    printf("dispatch %.1f ms, combine %.1f ms, copy of the rows past the caches %.1f ms (%.1f "
           "GB/s)\n",
           dispatch * 1e3, combine * 1e3, copy * 1e3, (double)bytes / copy / 1e9);
    printf("rate of dispatch + combine: %.2f of the copy of the rows at experts, %.2f of the rows "
           "sent to ranks\n",
           ratio, ratio * sent);
    for (int i = 0; i < COPIERS; i++) {
        free(m.from[i]);
        free(m.to[i]);
    }
    printf("%s at least 0.6 of the copy of the routed bytes: %.2f\n",
           ratio >= 0.6 ? "met   " : "MISSED", ratio);
    return ratio >= 0.6;
}
