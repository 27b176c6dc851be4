// Reduction operators that a program makes: ncclRedOpCreatePreMulSum.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_COMM_OPERATORS_H
#define TT_COMM_OPERATORS_H

#include "nccl.h"
#include "reduce/reduce.h"

struct ncclComm;
struct tt_operators;

// Sums of inputs that are multiplied with a factor, each rank's own.
struct tt_operator {
    ncclRedOp_t handle;
    ncclDataType_t type;
    union tt_scalar scale;
    const void *scale_device; // where the factor is read when an operation runs; NULL: `scale`
};

// Adds an operator and sets its handle, which no other communicator of the process has. Copied.
ncclResult_t tt_operator_add(struct ncclComm *comm, struct tt_operator *operator_in_out);
// NULL: the communicator has no operator of that handle. Valid until the next call here.
const struct tt_operator *tt_operator_find(const struct ncclComm *comm, ncclRedOp_t handle);
// False: there is none.
bool tt_operator_remove(struct ncclComm *comm, ncclRedOp_t handle);
void tt_operators_free(struct tt_operators *operators);

#endif
