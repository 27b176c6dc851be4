// What the ranks of a fused RMSNorm must agree on, as it lies in their entries.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXEC_RMSNORM_CLAIM_H
#define TT_EXEC_RMSNORM_CLAIM_H

#include "exec/entry.h"
#include "exec/executor.h"

// Writes a rank's entry.
void tt_rmsnorm_claim(const struct tt_rmsnorm *operation, struct tt_entry *entry_out);
// Of all fields of a claim.
uint64_t tt_rmsnorm_signature(const struct tt_entry *entry);
// The first field in which two claims differ, as "hidden is 64 here and 128 there"; false where
// they agree.
bool tt_rmsnorm_difference(const struct tt_entry *mine, const struct tt_entry *theirs, char *text,
                           size_t bytes);

#endif
