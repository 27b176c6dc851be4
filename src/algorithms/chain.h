// Reductions along the chain of ranks 0, 1, ..., n-1: each adds its own elements to the partial
// result of the one before, in accumulators. So operands are in rank order, and every element is
// rounded once, by the last rank. Items (chunks) follow each other through two slots of scratch.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_ALGORITHMS_CHAIN_H
#define TT_ALGORITHMS_CHAIN_H

#include "algorithms/share.h"

enum {
    TT_CHAIN_SLOTS = 2,
    TT_CHAIN_CHANNELS = 2, // that a lane's chain takes
    TT_CHAIN_CHUNK_BYTES = 32 * 1024,
};

struct tt_chain {
    const struct tt_problem *problem;
    struct tt_builder *builder;
    int rank;
    int channel;        // the first of its two
    size_t scratch;     // where its slots begin, bytes
    size_t slot;        // elements of one
    size_t item, items; // the next one's number, how many there will be
};

static inline size_t tt_chain_scratch(const struct tt_problem *problem, size_t slot)
{
    return (TT_CHAIN_SLOTS * slot * problem->accumulator + TT_LINE - 1) / TT_LINE * TT_LINE;
}

// Reduces the next item: `count` (at most `slot`) elements that lie in the rank's send buffer from
// element `first`. The last rank puts the result to out[..]. All ranks call it in the same order.
void tt_chain_reduce(struct tt_chain *chain, size_t first, size_t count, const struct tt_place *out,
                     int outs);

#endif
