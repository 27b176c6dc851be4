// Sends of a group that read what an earlier receive of the same group writes. They come behind it:
// a group does what its calls one after the other would do, as far as data goes from a receive to a
// send. Where ranks wait for each other in a circle because of that (each receives into a buffer,
// then sends it on), one of the sends goes first, whatever its buffer holds.
//
// A rank tells its peers, in the pair (pair.h), what a send is behind, so that circles are found.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXEC_CPU_BEHIND_H
#define TT_EXEC_CPU_BEHIND_H

#include "exec/cpu/pair.h"

// Sets is_behind of the sends that come behind another message of the group: reads_at and writes_at
// are set.
void tt_behind_mark(struct tt_message_run *message, size_t count);

// Looks at a send with is_behind, the next of its pair, which has not begun. False, and is_behind
// with it: it may begin.
bool tt_behind_look(struct tt_host *host, const struct tt_message_run *message, size_t count,
                    struct tt_message_run *send);

#endif
