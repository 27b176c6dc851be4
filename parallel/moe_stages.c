// What both paths of tuttiMoe share: meeting the other ranks, jobs. SPDX-License-Identifier: Apache-2.0
#include "device.h"
#include "fail.h"
#include "moe.h"

#include <unistd.h>

ncclResult_t moe_meet(tuttiMoe_t moe, cudaStream_t stream)
{
    return moe_meet_in(moe, ncclSum, stream);
}

ncclResult_t moe_meet_in(tuttiMoe_t moe, ncclRedOp_t of_call, cudaStream_t stream)
{
    return ncclAllReduce(moe->meeting, moe->meeting + 1, 1, ncclInt32, of_call, moe->comm, stream);
}

// Whether the rows of a host's ranks are more than half its last cache.
static int past_caches(const struct tuttiMoe *moe, size_t bytes_of_rank)
{
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    size_t known = cache > 0 ? (size_t)cache : (size_t)8 << 20;
    return bytes_of_rank > known / 2 / (size_t)moe->lanes;
}

struct moe_job moe_job_of(tuttiMoeRoute_t route, ncclDataType_t type)
{
    const struct tuttiMoe *moe = route->moe;
    struct moe_job job = {.type = type,
                          .row_type = moe->options.datatype,
                          .hidden = moe->options.hidden,
                          .row_bytes = moe->options.hidden * parallel_type_bytes(type),
                          .peers = moe->peers,
                          .window = moe->memory,
                          .slots = moe->rows_room,
                          .item = route->item,
                          .item_words = moe->item_words,
                          .item_count = route->items,
                          .record = route->record,
                          .record_bytes = moe->record_bytes,
                          .record_count = route->records,
                          .record_choices = moe_record_choices(moe),
                          .padding = route->padding,
                          .padding_count =
                              moe->first_expert[moe->rank + 1] - moe->first_expert[moe->rank],
                          .list = route->part,
                          .list_count = route->tokens,
                          .list_width = (size_t)moe->hosts,
                          .weight_grads = route->record_grad};
    job.past_caches = past_caches(moe, route->most_rows * job.row_bytes);
    return job;
}
