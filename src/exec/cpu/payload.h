// Operations whose whole input fits into the entries (arena.h).
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXEC_CPU_PAYLOAD_H
#define TT_EXEC_CPU_PAYLOAD_H

#include "exec/cpu/host.h"

// Whether every rank's input fits; the same answer on all ranks of an operation.
bool tt_payload_fits(const struct tt_op *op, int nranks);
// Puts this rank's input into its entry.
void tt_payload_write(const struct tt_host *host, const struct tt_op *op, struct tt_entry *entry);
// Computes this rank's result once all have entered.
void tt_payload_finish(struct tt_host *host, const struct tt_op *op);

#endif
