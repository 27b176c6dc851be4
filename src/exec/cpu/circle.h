// Waits in a circle: ranks of one or several communicators, each of which waits in an operation for
// the next, the last for the first. They are found by who waits, in what the arenas show.
//
// A rank waits for another where it has entered a collective that the other has not, where the
// other is not in the work that has the other side of a message, where the other has not given a
// signal, and where its next work is on a stream behind another communicator's. Such a wait ends
// only once the other ends what it is in now, so that a circle of them, seen twice with nothing
// changed in between, never ends. A communicator that has failed, and a rank that has ended, wait
// for nobody, whatever they were in. Circles that go through communicators that this process is
// not part of are not seen from here.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXEC_CPU_CIRCLE_H
#define TT_EXEC_CPU_CIRCLE_H

#include "exec/cpu/host.h"

// The process's communicators, which are looked through.
void tt_circle_add(struct tt_host *host);
void tt_circle_remove(struct tt_host *host);

// Work of turn `turn` is about to be put on a stream: from then on it is known what it is behind.
// is_begun: it is none any more, as it has its turn already.
void tt_circle_queued(struct tt_host *host, uint64_t turn, cudaStream_t stream, bool is_begun);
// What comes next on `after` is behind what is on `before` now.
void tt_circle_joined(struct tt_host *host, cudaStream_t before, cudaStream_t after);
// Work of that turn begins.
void tt_circle_begun(struct tt_host *host, uint64_t turn);

// Whether this rank waits, perhaps through others, for a rank of its communicator that has nothing
// called or launched which is not over: nothing that could end the wait.
bool tt_circle_waits_for_idle(const struct tt_host *host);

// Looks whether this rank, which waits, is part of a circle. Where it is, every communicator in it
// fails, with a text that names ranks, communicators and operations.
void tt_circle_look(struct tt_host *host);

#endif
