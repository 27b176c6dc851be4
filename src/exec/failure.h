// The first failure of a rank of a host team, in memory that all its ranks share: it ends the waits
// of all, and its text is every rank's.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXEC_FAILURE_H
#define TT_EXEC_FAILURE_H

#include "nccl.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct tt_team;

enum { TT_FAILURE_TEXT = 484 };

// Begins as zeros.
struct tt_failure {
    _Atomic uint32_t state; // 0; 1 while a rank writes the rest; 2: it stands (release, acquire)
    int32_t result;         // ncclResult_t
    int32_t rank;
    char text[TT_FAILURE_TEXT];
};

// Whether the team's communicator is aborted or has failed, on whichever rank; what another rank
// failed with becomes this rank's failure.
bool tt_failure_is_over(const struct tt_failure *failure, const struct tt_team *team);
// The communicator fails on all ranks of the team. The first failure stays; its text begins with
// "rank N: ". is_ending: this rank ends the communicator already, which only the others still have
// to. Returns `result`.
ncclResult_t tt_failure_set(struct tt_failure *failure, const struct tt_team *team, bool is_ending,
                            ncclResult_t result, const char *text);
// The same with the text of this thread's last tt_fail.
ncclResult_t tt_failure_set_again(struct tt_failure *failure, const struct tt_team *team,
                                  bool is_ending, ncclResult_t result);

#endif
