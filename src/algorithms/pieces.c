// One place for all ranks where they agree, else a list of places. See pieces.h.
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/pieces.h"

// Whether what every rank sends to `rank` lies at one place of its send buffer.
static bool is_sent_alike(const struct tt_problem *problem, int rank)
{
    size_t first = tt_part_sent(problem, 0, rank).first;
    for (int from = 1; from < problem->nranks; from++) {
        if (tt_part_sent(problem, from, rank).first != first) {
            return false;
        }
    }
    return true;
}

// Whether what `rank` sends is received by every rank at one place of its receive buffer.
static bool is_received_alike(const struct tt_problem *problem, int rank)
{
    size_t first = tt_part_received(problem, 0, rank).first;
    for (int by = 1; by < problem->nranks; by++) {
        if (tt_part_received(problem, by, rank).first != first) {
            return false;
        }
    }
    return true;
}

void tt_reduce_sent(struct tt_builder *builder, const struct tt_problem *problem, int rank,
                    struct tt_place out, struct tt_part share)
{
    size_t element = problem->element;
    bool alike = is_sent_alike(problem, rank);
    int ins = alike ? 1 : problem->nranks;
    struct tt_place *in = tt_build_list(builder, ins);
    for (int from = 0; in != NULL && from < ins; from++) {
        size_t first = tt_part_sent(problem, from, rank).first + share.first;
        in[from] = tt_place(TT_BUFFER_SEND, alike ? TT_EVERY : from, first * element);
    }
    if (in != NULL) {
        tt_build_reduce(builder, &out, 1, in, ins, share.count, 0);
    }
}

void tt_copy_received(struct tt_builder *builder, const struct tt_problem *problem, int rank,
                      struct tt_part share)
{
    size_t element = problem->element;
    bool alike = is_received_alike(problem, rank);
    int outs = alike ? 1 : problem->nranks;
    struct tt_place *out = tt_build_list(builder, outs);
    for (int by = 0; out != NULL && by < outs; by++) {
        size_t first = tt_part_received(problem, by, rank).first + share.first;
        out[by] = tt_place(TT_BUFFER_RECV, alike ? TT_EVERY : by, first * element);
    }
    if (out != NULL) {
        size_t first = tt_part_sent(problem, rank, rank).first + share.first;
        tt_build_copy(builder, out, outs, tt_place(TT_BUFFER_SEND, rank, first * element),
                      share.count);
    }
}
