// What collectives and messages check of their arguments, in NCCL's order.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_API_ARGUMENTS_H
#define TT_API_ARGUMENTS_H

#include "nccl.h"

#include <stdbool.h>
#include <stddef.h>

struct ncclComm;

// 0 where a call has no such argument.
struct tt_arguments {
    const char *call; // "ncclAllReduce"
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    bool reduces;     // it has `op`
    int peer;         // root, or the other rank of a pair
    bool is_pair;     // messages then say "peer", not "root"
    bool is_per_rank; // a buffer holds count elements for each rank
};

// Root or peer, type, operator, size, and what 8-bit floats and own operators need. The caller has
// entered the communicator. ncclInvalidArgument naming argument, value and what is possible.
ncclResult_t tt_check_arguments(const struct ncclComm *comm, const struct tt_arguments *arguments);
// A buffer of which the call reads or writes the first `bytes` bytes: not NULL, and with addresses
// for all of them.
ncclResult_t tt_check_buffer(const struct ncclComm *comm, const char *call, const char *name,
                             const void *buffer, size_t bytes);
// A stream of the communicator's device. ncclInvalidArgument.
ncclResult_t tt_check_stream(struct ncclComm *comm, const char *call, cudaStream_t stream);

#endif
