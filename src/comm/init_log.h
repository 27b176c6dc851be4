// What a communicator says of its making, at INFO: NCCL's lines, in NCCL's order.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_COMM_INIT_LOG_H
#define TT_COMM_INIT_LOG_H

#include "comm/comm.h"

// "... - Init START", and what belongs to a process and is said once before it. The communicator
// has its device.
void tt_init_log_start(const struct ncclComm *comm);

// Where its ranks are, and "... - Init COMPLETE" with how long it took (start_ns: of tt_now_ns).
// The communicator is ready.
void tt_init_log_complete(const struct ncclComm *comm, uint64_t start_ns);

#endif
