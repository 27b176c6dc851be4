// What even and uneven collectives share between their arguments and the executor.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_API_COLLECTIVES_H
#define TT_API_COLLECTIVES_H

#include "exec/executor.h"
#include "plan/op.h"

struct ncclComm;

// Puts a reduction's operator into *op: NCCL's, or the program's own with its factor. It has been
// checked.
void tt_collective_set_operator(const struct ncclComm *comm, ncclRedOp_t kind, struct tt_op *op);
// What the group keeps of a checked collective until its end; what it keeps of an uneven one begins
// with it.
struct tt_collective {
    struct tt_op op;
    struct tt_call_context context;
    cudaStream_t stream;
};
// Hands it to the executor.
ncclResult_t tt_collective_run(struct ncclComm *comm, struct tt_collective *collective);

// Whether the communicator can do the function, and NCCL_ALGO and NCCL_PROTO leave a way:
// ncclInvalidUsage that says what is missing, or what would.
ncclResult_t tt_collective_check_choice(const struct ncclComm *comm, const char *call,
                                        enum tt_function function, bool is_uneven);

#endif
