// Sends and receives in groups: all those of a communicator in one group are one launch, behind the
// group's collectives.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_COMM_MESSAGES_H
#define TT_COMM_MESSAGES_H

#include "exec/executor.h"

struct ncclComm;
struct tt_jobs;

// Hands a checked message to the calling thread's group; outside of one it is launched at once. The
// caller is inside `comm`.
ncclResult_t tt_message_submit(struct ncclComm *comm, const struct tt_message *message);

// The end of a group: adds a launch for each communicator with messages, in an order that is the
// same on all ranks of them. ncclInvalidUsage, naming it, where a message to the rank itself has no
// partner in the group, or another's count or type.
ncclResult_t tt_messages_gather(struct tt_jobs *jobs);

#endif
