// What the files of the flight recorder share.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_RECORD_INTERNAL_H
#define TT_RECORD_INTERNAL_H

#include "record/record.h"

#include <stdio.h>
#include <sys/types.h>

// ---- Whose it is, and what its lines added up to ------------------------------------------------

// Waits of one rank for another.
struct tt_record_waits {
    uint64_t times, ticks;
};

struct tt_record_details {
    struct tt_record *next;                  // in the list of open or of closed records
    struct tt_record_block *calls, *replays; // any block of each ring
    bool is_closed, keeps;                   // keeps: lines stay for the trace
    uint64_t blocks, most_blocks;            // of both rings; with `keeps` at most so many
    uint64_t lost;                           // operations whose lines were used again
    // The summary, in ticks. Written where a block is used again or at the end; `totals` guards it.
    uint64_t operations, collectives, came_last, longest;
    struct tt_record_waits *waits; // [nranks] whom this rank waited for; NULL: no summary is made
    char name[64];
    struct tt_record_owner owner; // its name is the one above
};

// All records, for as long as the lock is held: NULL ends a list. The closed ones are those whose
// trace or summary is still wanted.
struct tt_record_lists {
    struct tt_record *open, *closed;
};
const struct tt_record_lists *tt_record_lock(void);
void tt_record_unlock(void);
// The process whose records this one, its child by fork(), does not have; 0: none.
pid_t tt_record_parent(void);
// In such a child: the signal that asks for the state no longer wakes the parent.
void tt_record_signal_anew(void);

// ---- Reading ------------------------------------------------------------------------------------

enum tt_record_state {
    TT_RECORD_CALLED,
    TT_RECORD_ENTERED,
    TT_RECORD_READY,
    TT_RECORD_ENDED,
    TT_RECORD_FAILED
};

// A line as it was at one moment. Ticks; 0: it has not happened.
struct tt_record_seen {
    enum tt_record_state state;
    uint64_t number; // among the operations of its tape
    bool is_replay;
    struct tt_op op; // what a description needs
    uint64_t sequence;
    cudaStream_t stream;
    uint64_t called, entered, ready, ended; // ended: or failed
    int last;                               // -1: not known
    ncclResult_t result;
};

// The operations that a record still has, by the times of their calls. *seen_out: to be freed;
// count: how many, 0 and NULL where there is none or no memory. With the lock held.
size_t tt_record_read(const struct tt_record *record, struct tt_record_seen **seen_out);

// Adds what the summary does not have yet of an operation that is over.
void tt_record_add(struct tt_record_details *details, const struct tt_record_seen *seen);

// ---- Writing, with the lock held ----------------------------------------------------------------

// Whether the environment asks for it.
bool tt_record_traces(void);
bool tt_record_summarises(void);
// Writes the trace of all records to the file that TUTTI_TRACE names.
void tt_record_write_trace(const struct tt_record_lists *lists);
// The same as text to a file.
void tt_record_print_trace(const struct tt_record_lists *lists, FILE *file);
// Who came last, who waited for whom.
void tt_record_print_summary(const struct tt_record_lists *lists, FILE *file);

#endif
