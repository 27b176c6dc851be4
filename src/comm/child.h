// Making a communicator of some ranks of another one: what split and shrink share.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_COMM_CHILD_H
#define TT_COMM_CHILD_H

#include "nccl.h"

#include <stdbool.h>
#include <stdint.h>

struct ncclComm;
struct tt_making;

// Whether children can be made of it: ncclInvalidUsage where its ranks share no memory.
ncclResult_t tt_child_check_parent(const struct ncclComm *parent, const char *call);
// A child of unknown ranks in state TT_COMM_INIT; *comm_out is valid at once, so that another
// thread can abort it.
ncclResult_t tt_child_allocate(const struct ncclComm *parent, const ncclConfig_t *config,
                               const char *call, ncclComm_t *comm_out, struct ncclComm **child_out);
// Makes it, once its members are known. Collective over them; each is in its group's job, with the
// child's device current.
ncclResult_t tt_child_make(struct ncclComm *child, const struct tt_making *making);

#endif
