// How the ranks of a communicator exchange what set-up needs, and learn of each other's ends: over
// the rendezvous where the communicator was made with a unique id, on its board (board.h) where it
// is another one's child. A rank alone has neither, and needs none.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_COMM_MEET_H
#define TT_COMM_MEET_H

#include "nccl.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct ncclComm;

// data: nranks slots of `bytes` bytes, the caller's own filled; all filled on return. Collective.
ncclResult_t tt_meet_allgather(struct ncclComm *comm, void *data, size_t bytes);
ncclResult_t tt_meet_barrier(struct ncclComm *comm);
// What the next exchanges are for, for the line that names ranks that are late for one: the public
// call.
void tt_meet_describe(struct ncclComm *comm, const char *what);
const char *tt_meet_what(void); // of this thread's call
// Whether the communicator has been ended by a rank that failed or died: its error, else
// ncclSuccess. Never blocks; any thread, also while another one is inside a call.
ncclResult_t tt_meet_look(struct ncclComm *comm);
// What it has found so far: whether it was so, why (a text of tt_meet_failure's `bytes`), and whose
// death it was (-1: of none).
bool tt_meet_has_failed(const struct ncclComm *comm);
void tt_meet_failure(const struct ncclComm *comm, char *text, size_t bytes);
int tt_meet_dead_rank(const struct ncclComm *comm);
// [nranks]: 1 where the rank has left in good order (acquire). NULL: there are no others.
const _Atomic unsigned char *tt_meet_left(const struct ncclComm *comm);

// Tells the others that this rank failed, so that their pending calls end with "rank 2 failed:
// text". Never blocks. try: false where another thread is inside a call; nothing was told then.
void tt_meet_report_failure(struct ncclComm *comm, const char *text);
bool tt_meet_try_reporting(struct ncclComm *comm, const char *text);
// The secret of the unique id stretched for another purpose: `label` keeps the keys of different
// uses apart.
void tt_meet_derive_key(const struct ncclComm *comm, const char *label, unsigned char key_out[32]);
// A clean leave, or, of a communicator that has failed, a drop.
void tt_meet_leave(struct ncclComm *comm);

#endif
