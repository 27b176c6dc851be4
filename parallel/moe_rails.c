// See moe_rails.h. Each is one tuttiAllToAllV. SPDX-License-Identifier: Apache-2.0
#include "moe_rails.h"

#include "fail.h"
#include "tutti.h"

#include <stdlib.h>

// Counts and places of what goes to and comes from each rank, in elements. places NULL: one behind
// the other.
struct transfer {
    const size_t *send_counts, *recv_counts, *recv_places; // in things
    size_t elements;                                       // of a thing
    ncclDataType_t type;
};

static void scale(const size_t *from, int count, size_t factor, size_t *to)
{
    for (int r = 0; r < count; r++) {
        to[r] = from[r] * factor;
    }
}

static ncclResult_t send_all(const struct tuttiMoe *moe, const struct transfer *transfer,
                             const void *from, void *to, cudaStream_t stream)
{
    size_t ranks = (size_t)moe->ranks;
    size_t *all = calloc(3 * ranks, sizeof *all);
    if (all == NULL) {
        return tuttiFail(ncclSystemError, "tuttiMoe: no memory for counts of %d ranks", moe->ranks);
    }
    scale(transfer->send_counts, moe->ranks, transfer->elements, all);
    scale(transfer->recv_counts, moe->ranks, transfer->elements, all + ranks);
    if (transfer->recv_places != NULL) {
        scale(transfer->recv_places, moe->ranks, transfer->elements, all + 2 * ranks);
    }
    ncclResult_t result = tuttiAllToAllV(from, all, NULL, to, all + ranks,
                                         transfer->recv_places != NULL ? all + 2 * ranks : NULL,
                                         transfer->type, moe->comm, stream);
    free(all);
    return result;
}

// Where what comes from each rank is put if `own` things of the own host lie between.
static size_t *places_around(const struct tuttiMoe *moe, const size_t *counts, size_t own)
{
    size_t *places = calloc((size_t)moe->ranks, sizeof *places), at = 0;
    for (int r = 0; r < moe->ranks && places != NULL; r++) {
        places[r] = at;
        at += counts[r] + (r == moe->rank ? own : 0);
    }
    return places;
}

static ncclResult_t send_around(const struct tuttiMoe *moe, struct transfer *transfer, size_t own,
                                const void *from, void *to, cudaStream_t stream)
{
    size_t *places = places_around(moe, transfer->recv_counts, own);
    if (places == NULL) {
        return tuttiFail(ncclSystemError, "tuttiMoe: no memory for places of %d ranks", moe->ranks);
    }
    transfer->recv_places = places;
    ncclResult_t result = send_all(moe, transfer, from, to, stream);
    free(places);
    return result;
}

ncclResult_t moe_rails_out(tuttiMoeRoute_t route, const struct moe_job *job, cudaStream_t stream)
{
    tuttiMoe_t moe = route->moe;
    struct transfer transfer = {route->items_to, route->items_from, NULL, job->hidden, job->type};
    return send_all(moe, &transfer, moe->rail[0].memory, moe->rail[1].memory, stream);
}

ncclResult_t moe_rails_back(tuttiMoeRoute_t route, const struct moe_job *job, cudaStream_t stream)
{
    tuttiMoe_t moe = route->moe;
    struct transfer transfer = {route->items_from, route->items_to, NULL, job->hidden, job->type};
    return send_around(moe, &transfer, route->own_items, moe->rail[1].memory, moe->rail[0].memory,
                       stream);
}

ncclResult_t moe_rails_items(tuttiMoeRoute_t route, const int32_t *from, cudaStream_t stream)
{
    struct transfer transfer = {route->items_to, route->items_from, NULL, route->moe->item_words,
                                ncclInt32};
    return send_around(route->moe, &transfer, route->own_items, from, route->item, stream);
}

ncclResult_t moe_send_records(tuttiMoeRoute_t route, const void *from, void *to, size_t bytes,
                              bool back, cudaStream_t stream)
{
    struct transfer transfer = {back ? route->records_from : route->pairs_to,
                                back ? route->pairs_to : route->records_from, NULL, bytes,
                                ncclUint8};
    return send_all(route->moe, &transfer, from, to, stream);
}
