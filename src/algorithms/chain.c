// A rank's part in a chain: take the partial result, add, pass it on. See chain.h.
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/chain.h"

void tt_chain_reduce(struct tt_chain *chain, size_t first, size_t count, const struct tt_place *out,
                     int outs)
{
    const struct tt_problem *problem = chain->problem;
    struct tt_builder *builder = chain->builder;
    int rank = chain->rank;
    bool is_first = rank == 0;
    bool is_last = rank == problem->nranks - 1;
    int partial = chain->channel;  // to the next rank: its slot is filled
    int free = chain->channel + 1; // to the rank before: my slot is free again
    size_t item = chain->item++;
    size_t slot = chain->scratch + item % TT_CHAIN_SLOTS * chain->slot * problem->accumulator;
    struct tt_place in[2] = {tt_place(TT_BUFFER_SCRATCH, rank, slot),
                             tt_place(TT_BUFFER_SEND, rank, first * problem->element)};
    struct tt_place next = tt_place(TT_BUFFER_SCRATCH, rank + 1, slot);
    if (!is_first) {
        tt_build_wait(builder, rank - 1, partial, (uint32_t)item + 1);
    }
    if (!is_last && item >= TT_CHAIN_SLOTS) {
        tt_build_wait(builder, rank + 1, free, (uint32_t)(item - TT_CHAIN_SLOTS) + 1);
    }
    tt_build_reduce(builder, is_last ? out : &next, is_last ? outs : 1, is_first ? in + 1 : in,
                    is_first ? 1 : 2, count,
                    (is_first ? 0 : TT_PARTIAL_IN) | (is_last ? 0 : TT_PARTIAL_OUT));
    if (!is_last) {
        tt_build_signal(builder, rank + 1, partial);
    }
    if (!is_first && item + TT_CHAIN_SLOTS < chain->items) {
        tt_build_signal(builder, rank - 1, free);
    }
}
