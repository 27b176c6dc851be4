// Chunks travel from rank to rank; receive buffers are where they rest, so nobody waits for room.
// See spread.h.
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/spread.h"

#include "algorithms/chain.h"

enum { MOST_LANES = TT_CHANNELS / (TT_CHAIN_CHANNELS + 1) };

// Where a chunk goes: the receive buffers of those the rank passes on to, and its own.
static int outs_of(const struct tt_spread *spread, int rank, size_t offset, struct tt_place *out)
{
    int outs = 0;
    for (; outs < spread->tos; outs++) {
        out[outs] = tt_place(TT_BUFFER_RECV, spread->to[outs], offset);
    }
    out[outs] = tt_place(TT_BUFFER_RECV, rank, offset);
    return outs + 1;
}

static void tell(const struct tt_spread *spread, struct tt_builder *builder, int channel)
{
    for (int i = 0; i < spread->tos; i++) {
        if (spread->passes_on[i]) {
            tt_build_signal(builder, spread->to[i], channel);
        }
    }
}

// Passes on chunk `number`, as anybody but the root does.
static void pass_on(const struct tt_spread *spread, struct tt_builder *builder, int rank,
                    int channel, size_t number, size_t offset, size_t count)
{
    struct tt_place out[3];
    if (spread->tos == 0) {
        return;
    }
    int outs = outs_of(spread, rank, offset, out) - 1;
    tt_build_wait(builder, spread->from, channel, (uint32_t)number + 1);
    tt_build_copy(builder, out, outs, tt_place(TT_BUFFER_RECV, rank, offset), count);
    tell(spread, builder, channel);
}

void tt_spread_broadcast(const struct tt_problem *problem, int rank, struct tt_builder *builder,
                         tt_spread_function *place)
{
    size_t element = problem->element;
    int nranks = problem->nranks;
    struct tt_part whole = {0, problem->count};
    struct tt_spread spread = {0};
    place(nranks, problem->root, (rank - problem->root + nranks) % nranks, &spread);
    int lanes = tt_lanes_for(problem, problem->count, MOST_LANES);
    for (int lane = 0; lane < lanes; lane++) {
        struct tt_part share = tt_share(whole, element, lanes, lane);
        size_t chunk = tt_chunk_elements(TT_CHAIN_CHUNK_BYTES, share.count, element);
        tt_build_lane(builder);
        for (size_t i = 0; i < tt_chunks(share.count, chunk); i++) {
            struct tt_part part = tt_chunk(share, chunk, i);
            size_t offset = part.first * element;
            if (spread.from >= 0) {
                pass_on(&spread, builder, rank, lane, i, offset, part.count);
                continue;
            }
            struct tt_place out[3];
            int outs = outs_of(&spread, rank, offset, out);
            tt_build_copy(builder, out, outs, tt_place(TT_BUFFER_SEND, rank, offset), part.count);
            tell(&spread, builder, lane);
        }
    }
}

// One lane's share of an AllReduce. While a result travels, later chunks are being reduced: a rank
// passes a chunk on when the reduction is about as many chunks further as there are ranks between.
static void reduce_and_spread(struct tt_chain *chain, const struct tt_spread *spread,
                              struct tt_part share, int channel)
{
    size_t element = chain->problem->element;
    int nranks = chain->problem->nranks;
    int rank = chain->rank;
    size_t late = spread->from < 0 ? 0 : (size_t)(nranks - rank + spread->depth);
    for (size_t i = 0; i < chain->items + late; i++) {
        if (i < chain->items) {
            struct tt_part part = tt_chunk(share, chain->slot, i);
            struct tt_place out[3];
            int outs = outs_of(spread, rank, part.first * element, out);
            tt_chain_reduce(chain, part.first, part.count, out, outs);
        }
        if (spread->from < 0) {
            tell(spread, chain->builder, channel);
        } else if (i >= late) {
            struct tt_part part = tt_chunk(share, chain->slot, i - late);
            pass_on(spread, chain->builder, rank, channel, i - late, part.first * element,
                    part.count);
        }
    }
}

void tt_spread_all_reduce(const struct tt_problem *problem, int rank, struct tt_builder *builder,
                          tt_spread_function *place)
{
    int nranks = problem->nranks;
    struct tt_part whole = {0, problem->count};
    struct tt_spread spread = {0};
    place(nranks, nranks - 1, (rank + 1) % nranks, &spread);
    int lanes = tt_lanes_for(problem, problem->count, MOST_LANES);
    size_t scratch = 0;
    for (int lane = 0; lane < lanes; lane++) {
        struct tt_part share = tt_share(whole, problem->element, lanes, lane);
        size_t chunk = tt_chunk_elements(TT_CHAIN_CHUNK_BYTES, share.count, problem->element);
        int channel = lane * (TT_CHAIN_CHANNELS + 1);
        struct tt_chain chain = {.problem = problem,
                                 .builder = builder,
                                 .rank = rank,
                                 .channel = channel,
                                 .scratch = scratch,
                                 .slot = chunk,
                                 .items = tt_chunks(share.count, chunk)};
        scratch += nranks > 1 ? tt_chain_scratch(problem, chunk) : 0;
        tt_build_lane(builder);
        reduce_and_spread(&chain, &spread, share, channel + TT_CHAIN_CHANNELS);
    }
    tt_build_scratch(builder, scratch);
}
