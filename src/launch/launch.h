// The start of a program that a launcher has started: who this process is, and the unique id that
// all of its job get. See sources.h for where that comes from, exchange.h for how the id goes.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_LAUNCH_LAUNCH_H
#define TT_LAUNCH_LAUNCH_H

#include "launch/exchange.h"
#include "launch/sources.h"

// A start that is under way. One at a time in a process: a second one waits.
struct tt_launch {
    struct tt_place place;
    struct tt_exchange exchange;
    ncclUniqueId id;
};

// Finds out who this process is. Ended by tt_launch_end, unless it fails.
ncclResult_t tt_launch_begin(struct tt_launch *launch);
// Gets launch->id. Collective over the job.
ncclResult_t tt_launch_exchange(struct tt_launch *launch);
// A communicator was made. True: it is to call tt_launch_release when it ends.
bool tt_launch_hold(const struct tt_launch *launch);
void tt_launch_release(void);
// All have joined, or none will: result, of which this thread's last text tells.
void tt_launch_end(struct tt_launch *launch, ncclResult_t result);
// Adds to this thread's last text where the ranks met, if that was the user's choice: another job
// that does so, too, mixes with this one.
void tt_launch_tell_meeting(const struct tt_launch *launch);

// What a rank tells the others of itself, for the map.
struct tt_seat {
    char host[64], gpu[48], pci[20];
    int pid;
};
// Says the map on stderr, a line for each rank, of very many the first. seats: [size].
void tt_launch_tell_map(const struct tt_launch *launch, const struct tt_seat *seats);

#endif
