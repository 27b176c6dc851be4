// The sends and receives of one group on one rank. SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXEC_CPU_MESSAGES_H
#define TT_EXEC_CPU_MESSAGES_H

#include "exec/cpu/host.h"

// See tt_executor's `messages`.
ncclResult_t tt_messages_launch(struct tt_host *host, const struct tt_message *messages,
                                size_t count, bool may_wait);

#endif
