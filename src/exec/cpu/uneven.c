// See uneven.h. SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/uneven.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>

struct tt_uneven_tables {
    size_t *array[4]; // in the order of struct tt_uneven; [nranks x nranks] each
};

void tt_uneven_free(struct tt_uneven_tables *tables)
{
    for (int which = 0; tables != NULL && which < 4; which++) {
        free(tables->array[which]);
    }
    free(tables);
}

static struct tt_uneven_tables *make_tables(size_t nranks)
{
    struct tt_uneven_tables *tables = calloc(1, sizeof *tables);
    for (int which = 0; tables != NULL && which < 4; which++) {
        tables->array[which] = calloc(nranks * nranks, sizeof(size_t));
        if (tables->array[which] == NULL) {
            tt_uneven_free(tables);
            return NULL;
        }
    }
    return tables;
}

static ncclResult_t differ(struct tt_host *host, int from, size_t sent, int to, size_t expected)
{
    char text[200];
    tt_host_describe_own(host, text, sizeof text);
    return tt_host_fail(host, ncclInvalidUsage,
                        "rank %d: %s: rank %d sends %zu elements to rank %d, which expects %zu: "
                        "the counts must agree",
                        host->rank, text, from, sent, to, expected);
}

// What a rank alone sends (GatherV), or receives (ScatterV), against what the root says.
static ncclResult_t check_root(struct tt_host *host, const struct tt_op *op, const size_t *of_root)
{
    bool gathers = op->function == TT_GATHER;
    for (int rank = 0; rank < host->nranks; rank++) {
        size_t own = tt_host_entry(host, rank)->call.count;
        if (own != of_root[rank]) {
            return gathers ? differ(host, rank, own, op->root, of_root[rank])
                           : differ(host, op->root, of_root[rank], rank, own);
        }
    }
    return ncclSuccess;
}

static ncclResult_t check_pairs(struct tt_host *host, const size_t *sent, const size_t *received)
{
    size_t n = (size_t)host->nranks;
    for (size_t from = 0; from < n; from++) {
        for (size_t to = 0; to < n; to++) {
            if (sent[from * n + to] != received[to * n + from]) {
                return differ(host, (int)from, sent[from * n + to], (int)to,
                              received[to * n + from]);
            }
        }
    }
    return ncclSuccess;
}

// How many ranks give `count` for rank `of`.
static int count_alike(const size_t *list, size_t n, size_t of, size_t count)
{
    int alike = 0;
    for (size_t rank = 0; rank < n; rank++) {
        alike += list[rank * n + of] == count;
    }
    return alike;
}

// The counts of rank `of` are not one: what most give, and the first that gives another.
static ncclResult_t lists_differ(struct tt_host *host, const size_t *list, size_t n, size_t of)
{
    char text[200], others[64] = "";
    size_t usual = 0, odd = 0;
    for (size_t rank = 1; rank < n; rank++) {
        if (count_alike(list, n, of, list[rank * n + of]) >
            count_alike(list, n, of, list[usual * n + of])) {
            usual = rank;
        }
    }
    while (list[odd * n + of] == list[usual * n + of]) {
        odd++; // there is one
    }
    int alike = count_alike(list, n, of, list[usual * n + of]);
    if (alike > 1) {
        (void)snprintf(others, sizeof others, ", as on %d of %zu ranks,", alike, n);
    }
    tt_host_describe_own(host, text, sizeof text);
    return tt_host_fail(
        host, ncclInvalidUsage,
        "rank %d: %s: the count of rank %zu is %zu on rank %zu%s and %zu on rank %zu: "
        "all ranks must give the same counts",
        host->rank, text, of, list[usual * n + of], usual, others, list[odd * n + of], odd);
}

// Where every rank lists all ranks' counts, the lists must be one.
static ncclResult_t check_lists(struct tt_host *host, const size_t *list)
{
    size_t n = (size_t)host->nranks;
    for (size_t rank = 1; rank < n; rank++) {
        for (size_t i = 0; i < n; i++) {
            if (list[rank * n + i] != list[i]) {
                return lists_differ(host, list, n, i);
            }
        }
    }
    return ncclSuccess;
}

static ncclResult_t check(struct tt_host *host, const struct tt_op *op,
                          const struct tt_uneven_tables *tables)
{
    size_t root_row = (size_t)op->root * (size_t)host->nranks;
    switch (op->function) {
    case TT_ALL_GATHER:
        return check_lists(host, tables->array[2]);
    case TT_REDUCE_SCATTER:
        return check_lists(host, tables->array[0]);
    case TT_GATHER:
        return check_root(host, op, tables->array[2] + root_row);
    case TT_SCATTER:
        return check_root(host, op, tables->array[0] + root_row);
    default:
        return check_pairs(host, tables->array[0], tables->array[2]);
    }
}

ncclResult_t tt_uneven_collect(struct tt_host *host, const struct tt_op *op,
                               struct tt_uneven_all *all_out)
{
    size_t n = (size_t)host->nranks;
    if (host->uneven == NULL && (host->uneven = make_tables(n)) == NULL) {
        return tt_fail(ncclSystemError, "rank %d: no memory for the counts of %d ranks", host->rank,
                       host->nranks);
    }
    struct tt_uneven_tables *tables = host->uneven;
    for (size_t rank = 0; rank < n; rank++) {
        const uint64_t *told = tt_arena_uneven(host->arena, (int)rank);
        for (size_t i = 0; i < 4 * n; i++) {
            tables->array[i / n][rank * n + i % n] = told[i];
        }
    }
    TRY(check(host, op, tables));
    bool sends = op->function == TT_REDUCE_SCATTER || op->function == TT_SCATTER ||
                 op->function == TT_ALL_TO_ALL;
    bool receives =
        op->function == TT_ALL_GATHER || op->function == TT_GATHER || op->function == TT_ALL_TO_ALL;
    *all_out = (struct tt_uneven_all){.send_count = sends ? tables->array[0] : NULL,
                                      .send_first = sends ? tables->array[1] : NULL,
                                      .recv_count = receives ? tables->array[2] : NULL,
                                      .recv_first = receives ? tables->array[3] : NULL};
    return ncclSuccess;
}
