// How much of everything a route has, from the tables that all ranks know, and the memory for it.
// SPDX-License-Identifier: Apache-2.0
#include "fail.h"
#include "moe.h"

#include <stdlib.h>

static size_t align_up(size_t value, size_t to)
{
    return (value + to - 1) / to * to;
}

static size_t rows_of_rank(const struct tuttiMoe *moe, const struct moe_counts *counts, int rank)
{
    size_t rows = 0;
    for (size_t e = moe->first_expert[rank]; e < moe->first_expert[rank + 1]; e++) {
        rows += align_up(counts->kept[e], moe->options.align);
    }
    return rows;
}

// Of a rank as forwarder: one for each record of its host from sources of its lane.
static size_t slots_of_rank(const struct tuttiMoe *moe, const struct moe_counts *counts, int rank)
{
    size_t slots = 0;
    int first = rank / moe->lanes * moe->lanes;
    for (int source = rank % moe->lanes; source < moe->ranks; source += moe->lanes) {
        for (int lane = 0; lane < moe->lanes; lane++) {
            slots += (size_t)moe_records_for(moe, counts, source, first + lane);
        }
    }
    return slots;
}

static void lay_out_rows(const struct tuttiMoe *moe, const struct moe_counts *counts,
                         tuttiMoeRoute_t route)
{
    size_t first = moe->first_expert[moe->rank], last = moe->first_expert[moe->rank + 1], row = 0;
    for (size_t e = first; e < last; e++) {
        route->counts[e - first] = counts->kept[e];
        route->offsets[e - first] = row;
        row += align_up(counts->kept[e], moe->options.align);
        route->report.rows += counts->kept[e];
    }
    route->row_count = row;
    route->report.padded = row - route->report.rows;
    for (int e = 0; e < moe->options.experts; e++) {
        route->demand[e] = counts->demand[e];
        route->dropped[e] = counts->demand[e] - counts->kept[e];
        size_t rows = (size_t)moe_rows_for(counts, moe->rank, e);
        size_t left = counts->kept[e] > counts->base[e] ? counts->kept[e] - counts->base[e] : 0;
        route->report.ownDropped += rows > left ? rows - left : 0;
    }
    for (int r = 0; r < moe->ranks; r++) {
        size_t rows = rows_of_rank(moe, counts, r), slots = slots_of_rank(moe, counts, r);
        route->most_rows = rows > route->most_rows ? rows : route->most_rows;
        route->most_slots = slots > route->most_slots ? slots : route->most_slots;
    }
}

static void lay_out_items(const struct tuttiMoe *moe, const struct moe_counts *counts,
                          tuttiMoeRoute_t route)
{
    for (int r = 0; r < moe->ranks; r++) {
        route->pairs_to[r] = (size_t)moe_records_for(moe, counts, moe->rank, r);
        route->records_from[r] = (size_t)moe_records_for(moe, counts, r, moe->rank);
        route->pairs += route->pairs_to[r];
        route->records += route->records_from[r];
    }
    for (int h = 0; h < moe->hosts; h++) {
        int other = h * moe->lanes + moe->lane; // in that host with this lane
        size_t to = (size_t)moe_items_for(moe, counts, moe->rank, h);
        size_t from = (size_t)moe_items_for(moe, counts, other, moe->host);
        route->items += from;
        route->parts += to;
        if (h < moe->host) {
            route->own_first += from;
            route->part_first += to;
        }
        if (h == moe->host) {
            route->own_items = to;
        } else {
            route->items_to[other] = to;
            route->items_from[other] = from;
            route->out_rows += to;
            route->in_rows += from;
        }
    }
}

// Places of arrays in one allocation.
struct places {
    char *base; // NULL: only to be counted
    size_t bytes;
};

static void *place(struct places *places, size_t count, size_t bytes)
{
    size_t at = places->bytes;
    places->bytes += align_up(count * bytes, 64);
    return places->base == NULL ? NULL : places->base + at;
}

static void place_arrays(tuttiMoeRoute_t route, struct places *places)
{
    const struct tuttiMoe *moe = route->moe;
    size_t grads = moe_record_choices(moe) * moe->weight_bytes;
    size_t experts = moe->first_expert[moe->rank + 1] - moe->first_expert[moe->rank];
    route->record = place(places, route->records, moe->record_bytes);
    route->pair = place(places, route->pairs, moe->record_bytes);
    route->item = place(places, route->items, moe->item_words * sizeof *route->item);
    route->out_token = place(places, route->out_rows, sizeof *route->out_token);
    route->part = place(places, route->tokens * (size_t)moe->hosts, sizeof *route->part);
    route->padding = place(places, 2 * experts, sizeof *route->padding);
    route->record_grad = place(places, route->records, grads);
    route->pair_grad = place(places, route->pairs, grads);
}

static ncclResult_t allocate_tables(const struct tuttiMoe *moe, tuttiMoeRoute_t route)
{
    size_t experts = (size_t)moe->options.experts, ranks = (size_t)moe->ranks;
    size_t *all = calloc(4 * experts + 4 * ranks, sizeof *all);
    if (all == NULL) {
        return tuttiFail(ncclSystemError, "tuttiMoeDispatch: no memory for %zu experts, %zu ranks",
                         experts, ranks);
    }
    route->counts = all; // of all experts, of which this rank has at most all
    route->offsets = all + experts;
    route->demand = all + 2 * experts;
    route->dropped = all + 3 * experts;
    route->pairs_to = all + 4 * experts;
    route->records_from = route->pairs_to + ranks;
    route->items_to = route->pairs_to + 2 * ranks;
    route->items_from = route->pairs_to + 3 * ranks;
    return ncclSuccess;
}

ncclResult_t moe_layout(tuttiMoe_t moe, const struct moe_counts *counts, tuttiMoeRoute_t route)
{
    struct places places = {0};
    TRY(allocate_tables(moe, route));
    lay_out_rows(moe, counts, route);
    lay_out_items(moe, counts, route);
    struct tuttiMoeReport *report = &route->report;
    report->capacity = counts->capacity;
    report->demand = route->demand;
    report->dropped = route->dropped;
    report->choices = counts->tokens * (size_t)moe->options.choices - report->ownDropped;
    report->toRanks = route->pairs;
    report->toHosts = route->out_rows;
    report->forwarded = route->in_rows;
    report->received = route->records;
    place_arrays(route, &places);
    // In the stream: cudaFree waits for all work of the device, also of other ranks.
    TRY_CUDA(cudaMallocAsync((void **)&route->memory, places.bytes + 64, route->stream));
    places = (struct places){route->memory, 0};
    place_arrays(route, &places);
    return ncclSuccess;
}
