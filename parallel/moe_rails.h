// Between hosts: rows of tokens go to the rank of each host that has this one's lane, and sums come
// back. SPDX-License-Identifier: Apache-2.0
#ifndef PARALLEL_MOE_RAILS_H
#define PARALLEL_MOE_RAILS_H

#include "moe.h"

// The rows in rail[0], by host, to their forwarders; what arrives, by host, into rail[1].
ncclResult_t moe_rails_out(tuttiMoeRoute_t route, const struct moe_job *job, cudaStream_t stream);
// The sums in rail[1] to their sources; what arrives into rail[0], by host, the own host's part
// left as it is.
ncclResult_t moe_rails_back(tuttiMoeRoute_t route, const struct moe_job *job, cudaStream_t stream);
// The items of rows that go to other hosts, to their forwarders. from: [out_rows x item_words].
ncclResult_t moe_rails_items(tuttiMoeRoute_t route, const int32_t *from, cudaStream_t stream);
// Records, or what belongs to them, to those who have them, or back. from, to: as many as pairs and
// records (or the other way round), `bytes` each.
ncclResult_t moe_send_records(tuttiMoeRoute_t route, const void *from, void *to, size_t bytes,
                              bool back, cudaStream_t stream);

#endif
