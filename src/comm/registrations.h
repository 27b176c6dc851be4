// Buffers that a program registers with ncclCommRegister, in whole pages. Nothing here depends on
// it: memory of every kind is reached in place, or staged, without. What is kept is who registered
// what how often, so that handles are right and wrong ones are errors.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_COMM_REGISTRATIONS_H
#define TT_COMM_REGISTRATIONS_H

#include "nccl.h"

#include <stdbool.h>
#include <stddef.h>

struct ncclComm;
struct tt_registrations;

// Registers the pages of `bytes` bytes at `buffer`. Where they lie within what is registered
// already, that is registered once more and its handle is the answer. The caller has entered.
ncclResult_t tt_registration_add(struct ncclComm *comm, const void *buffer, size_t bytes,
                                 void **handle_out);
// Takes one registration back; false: the communicator has none of that handle.
bool tt_registration_remove(struct ncclComm *comm, const void *handle);
void tt_registrations_free(struct tt_registrations *registrations); // NULL: nothing

#endif
