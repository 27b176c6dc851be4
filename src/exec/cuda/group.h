// The ranks of a communicator in one process on one GPU. For each operation they have a *meeting*:
// every call comes to it, the last one launches. Counted; made by the first rank that joins.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXEC_CUDA_GROUP_H
#define TT_EXEC_CUDA_GROUP_H

#include "exec/executor.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

// One rank's call.
struct tt_arrival {
    struct tt_rmsnorm operation;
    cudaStream_t stream;
    unsigned long long stream_id;
    bool same_stream; // as in this rank's call before
    // The call is in an ncclGroup whose end has not returned: who launches puts the stream in
    // order, before the launch and behind it.
    bool is_lent;
    const void *thread; // that called: an address of its own
    cudaEvent_t before; // what the operation comes behind in the stream; made once
    bool waits;         // its stream waits for the group's word (tt_words.met)
    bool is_behind;     // such a wait was in its stream already: this call can never be reached
};

// A rank's last call that is in a graph.
struct tt_captured {
    unsigned long long capture; // the number of the capture; 0: it made none
    cudaStream_t stream;
    uint64_t number; // of the captured calls
};

enum { TT_MEETING_OPEN, TT_MEETING_LAUNCHED, TT_MEETING_FAILED };

struct tt_meeting {
    struct tt_meeting *next;
    uint64_t number;             // of the operation
    int come, left;              // ranks
    _Atomic int state;           // release by who launches
    struct tt_arrival arrival[]; // [tt_group.size]
};

enum { TT_GROUP_STREAMS = 128 }; // of TT_NORM_RANKS ranks each

struct tt_group {
    struct tt_group *next; // the next two: of group.c's mutex
    int references;
    uint64_t comm_hash;
    int device, size;
    int *rank;                             // [size] in the team, ascending
    _Atomic unsigned long long *stream_id; // [size] of each rank's last call; 0: it made none

    pthread_mutex_t mutex;           // guards the next five
    struct tt_captured *captured;    // [size]
    struct tt_meeting *open, *spare; // meetings that not all have left, and those to use again
    bool closed;                     // a rank has given up: nobody launches any more
    int launching;                   // calls that launch now
    _Atomic uint64_t launched;       // number of the last operation that was launched
    _Atomic bool is_watched;         // somebody wants to see the end of the next one

    // Of the call that launches; there is one at a time.
    cudaEvent_t done, fork;                // done: behind the last launch
    cudaStream_t stream[TT_GROUP_STREAMS]; // its own; made when they are needed
};

// Of a rank of this process; its GPU is the current device. *index_out: the rank in it.
ncclResult_t tt_group_join(const struct tt_team *team, struct tt_group **group_out, int *index_out);
void tt_group_leave(struct tt_group *group); // NULL: nothing

// Rank `index` comes to meeting `number`, with what its arrival says but the event, which is made
// and recorded here, unless it is the last to come or lends its stream. patient: it will wait here
// until the last one has launched, or ask for tt_meeting_lose_patience; otherwise its stream is
// going to wait.
// *last_out: it is the one that launches, and calls tt_meeting_launched. Errors: ncclInternalError
// where the group is closed, or CUDA's.
ncclResult_t tt_meeting_come(struct tt_group *group, int index, uint64_t number,
                             const struct tt_arrival *arrival, bool patient,
                             struct tt_meeting **meeting_out, bool *last_out);
// What a lent stream has been given until now is put down: its call may then lose patience. Unless
// all have come: then it stays lent.
ncclResult_t tt_meeting_take_back(struct tt_group *group, struct tt_meeting *meeting, int index);
// True: the stream of `index` is going to wait. False: not yet, as all have come and the launch is
// at hand, or as the stream is lent in another rank's name.
bool tt_meeting_lose_patience(struct tt_group *group, struct tt_meeting *meeting, int index);
// `ranks`, the one that has launched among them, need the meeting no more.
void tt_meeting_launched(struct tt_group *group, struct tt_meeting *meeting, bool success,
                         int ranks);
// Another one needs it no more.
void tt_meeting_leave(struct tt_group *group, struct tt_meeting *meeting);

// Whether an arrival's stream is that of a rank before it, of those that lend theirs, or of
// `index`.
bool tt_meeting_has_stream(const struct tt_meeting *meeting, int arrival, int index);

// Whether another rank's last call was on this stream too.
bool tt_group_shares_stream(const struct tt_group *group, int index, unsigned long long stream_id);

// Rank `index` is about to capture a call. Returns a rank of the team whose same call it would
// stand behind in the stream, so that the graph could never end; -1: none.
int tt_group_capture(struct tt_group *group, int index, const struct tt_captured *call);

// Its own stream number `number`; NULL after tt_fail.
cudaStream_t tt_group_stream(struct tt_group *group, int number);

#endif
