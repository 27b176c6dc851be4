// The streams of a group: where a communicator's launches in it are on several, all of these
// streams wait for each other before the first and behind the last, as if each launch were on each.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_COMM_STREAMS_H
#define TT_COMM_STREAMS_H

#include "nccl.h"

struct tt_jobs;

// The end of a group, whose messages are gathered: adds the jobs that make streams wait.
// ncclInvalidUsage where one of a communicator's streams is captured into a graph and another is
// not, or into another graph.
ncclResult_t tt_streams_gather(struct tt_jobs *jobs);

#endif
