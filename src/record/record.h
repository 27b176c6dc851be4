// The flight recorder: the last operations of every communicator and rank of this process, always
// on, for whoever asks what hangs (tuttiDumpState), how long things took (TUTTI_TRACE) and who
// comes late (TUTTI_SUMMARY).
//
// How an executor uses it. Each rank of a communicator has one record, opened when the rank's part
// of the communicator is made and closed when it goes. Then, for every operation:
//     line = tt_record_called(&record->calls, op, stream);   in the call; for work of a graph, each
//                                         time it runs, tt_record_called(&record->replays, ...)
//     tt_record_entered(line, sequence);  it has its turn, and has told the other ranks so
//     tt_record_ready(line, last);        all whom it needs have entered; it has waited, for `last`
//                                         last. Left out where all were there before it.
//     tt_record_ended(line);              its buffers are the caller's again
// or tt_record_failed(line, result) wherever it stops for good; that may come before `ended`, too.
// Stamps may come from different threads, one after another. An operation that is entered in its
// call, without a wait, can say so cheaper: tt_record_entered_at_once. After ended or failed the
// line is not touched any more: it will be another operation's.
//
// A tape (`calls`, `replays`) has one writer at a time. Where a program breaks that rule, lines mix
// up, and nothing worse happens.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_RECORD_RECORD_H
#define TT_RECORD_RECORD_H

#include "base/ticks.h"
#include "nccl.h"
#include "plan/op.h"

#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// One operation. Written by the executor, read at any time by others: all fields are released by
// their writer and acquired by their readers. A stamp older than `called` is left over from an
// operation that had the line before. What every operation writes is in the first cache line.
struct tt_record_line {
    _Alignas(128) _Atomic uint64_t head; // tt_op.function and is_uneven, as they lie in memory
    _Atomic uint64_t kind;               // tt_op.type and op
    _Atomic uint64_t count;
    _Atomic uint64_t sequence;      // 0: not entered
    _Atomic uint64_t stream;        // a cudaStream_t
    _Atomic uint64_t called, ended; // ticks
    _Atomic int32_t root, last;
    _Atomic uint64_t entered, ready, failed; // ticks
    _Atomic int32_t result;
};
_Static_assert(sizeof(struct tt_record_line) == 128, "two cache lines");

// Lines are taken block by block; a block is used again once all its operations have ended. Blocks
// lie at multiples of their size, so that the address of a line tells where its block ends.
enum { TT_RECORD_BLOCK_BYTES = 8192, TT_RECORD_LINES = 63 };
struct tt_record_block {
    _Alignas(128) _Atomic uint64_t first; // number of line[0]'s operation, from 1; 0: changes hands
    _Atomic(struct tt_record_block *) next; // a ring
    uint32_t added;                         // lines that the summary has
    struct tt_record_line line[TT_RECORD_LINES];
};
_Static_assert(sizeof(struct tt_record_block) == TT_RECORD_BLOCK_BYTES, "its lines end there");

struct tt_record_tape {
    _Atomic(struct tt_record_line *) next; // of the next operation; the end of a block: it is full
    struct tt_record *record;
};

struct tt_record {
    struct tt_record_tape calls, replays;
    struct tt_record_line *nowhere;    // for stamps of what is not recorded
    struct tt_record_details *details; // what no stamp needs
};

// What an executor can tell of the ranks of a communicator. Any thread may ask, until the record is
// closed.
struct tt_record_team {
    const void *team; // the first argument of:
    // Whether an operation that this rank is in, with the number of tt_record_entered, waits for
    // the rank: to come to it, or to give a signal.
    bool (*waits_for)(const void *team, int rank, const struct tt_op *op, uint64_t sequence);
    // What that rank did last, as far as the operation shows it: "its last one was Broadcast(count
    // 5, float32, root 0) #16", "1 of 2; in collectives it has entered none yet".
    void (*describe_last)(const void *team, int rank, const struct tt_op *op, char *text,
                          size_t bytes);
};

// Whose record it is. The name is copied.
struct tt_record_owner {
    const char *name; // of the communicator
    uint64_t hash;    // the same on all its ranks
    int rank, nranks;
    int device;
    struct tt_record_team team; // functions may both be NULL: nothing is known of other ranks
};

// ---- A record's life ----------------------------------------------------------------------------

// Opens a record. It then appears in dumps.
ncclResult_t tt_record_open(const struct tt_record_owner *whose, struct tt_record **record_out);
// Closes it. No line of it is touched any more. Accepts NULL.
void tt_record_close(struct tt_record *record);

// ---- Stamps: some instructions each -------------------------------------------------------------

// tt_record_called where the next block of the tape begins. Never NULL: without memory the oldest
// lines are used again.
struct tt_record_line *tt_record_turn(struct tt_record_tape *tape, const struct tt_op *op,
                                      cudaStream_t stream);

_Static_assert(offsetof(struct tt_op, is_uneven) == offsetof(struct tt_op, function) + 4 &&
                   offsetof(struct tt_op, op) == offsetof(struct tt_op, type) + 4 &&
                   sizeof(struct tt_op) >= offsetof(struct tt_op, function) + 8,
               "lines keep these pairs as one word each");

// Releases and acquires without what makes them visible to a program's sanitizer
// (cmake/visible_atomics.h), which would cost as much again: readers and writers are both in this
// library.
static inline void tt_record_put(_Atomic uint64_t *field, uint64_t value)
{
    __atomic_store_n((uint64_t *)field, value, __ATOMIC_RELEASE);
}

static inline uint64_t tt_record_get(const _Atomic uint64_t *field)
{
    return __atomic_load_n((const uint64_t *)field, __ATOMIC_ACQUIRE);
}

static inline void tt_record_put32(_Atomic int32_t *field, int32_t value)
{
    __atomic_store_n((int32_t *)field, value, __ATOMIC_RELEASE);
}

static inline struct tt_record_line *tt_record_begin(struct tt_record_tape *tape,
                                                     struct tt_record_line *line,
                                                     const struct tt_op *op, cudaStream_t stream)
{
    uint64_t head, kind;
    memcpy(&head, (const char *)op + offsetof(struct tt_op, function), sizeof head);
    memcpy(&kind, (const char *)op + offsetof(struct tt_op, type), sizeof kind);
    tt_record_put(&line->head, head);
    tt_record_put(&line->kind, kind);
    tt_record_put(&line->count, op->count);
    tt_record_put32(&line->root, op->root);
    tt_record_put(&line->sequence, 0);
    tt_record_put(&line->stream, (uintptr_t)stream);
    tt_record_put(&line->called, tt_ticks());
    __atomic_store_n((struct tt_record_line **)&tape->next, line + 1, __ATOMIC_RELEASE);
    return line;
}

// op: not needed afterwards.
static inline struct tt_record_line *tt_record_called(struct tt_record_tape *tape,
                                                      const struct tt_op *op, cudaStream_t stream)
{
    struct tt_record_line *line = atomic_load_explicit(&tape->next, memory_order_relaxed);
    if (__builtin_expect((uintptr_t)line % TT_RECORD_BLOCK_BYTES == 0, 0)) {
        return tt_record_turn(tape, op, stream);
    }
    return tt_record_begin(tape, line, op, stream);
}

// sequence: the operation's number in the communicator, or among those of its pair; from 1.
static inline void tt_record_entered(struct tt_record_line *line, uint64_t sequence)
{
    tt_record_put(&line->entered, tt_ticks());
    tt_record_put(&line->sequence, sequence);
}

static inline void tt_record_entered_at_once(struct tt_record_line *line, uint64_t sequence)
{
    tt_record_put(&line->sequence, sequence);
}

// last: the rank that this one waited for last.
static inline void tt_record_ready(struct tt_record_line *line, int last)
{
    tt_record_put32(&line->last, last);
    tt_record_put(&line->ready, tt_ticks());
}

static inline void tt_record_ended(struct tt_record_line *line)
{
    tt_record_put(&line->ended, tt_ticks());
}

static inline void tt_record_failed(struct tt_record_line *line, ncclResult_t result)
{
    tt_record_put32(&line->result, (int32_t)result);
    tt_record_put(&line->failed, tt_ticks());
}

// ---- What others ask ----------------------------------------------------------------------------

// Writes the state of every record of communicator `hash` (0: of all) to a descriptor, in one
// piece: last operations, what is waited for, who is missing. Any thread; not in signal handlers.
ncclResult_t tt_record_dump(uint64_t hash, int descriptor);
// The same at the end of a file: `path` with %h, %p, and %r for `rank` (-1: the lowest of the
// process). NULL: of the one that TUTTI_DUMP_FILE names, else to stderr. unmade: what is written of
// a communicator that has no record yet; NULL: it has one.
ncclResult_t tt_record_dump_to(uint64_t hash, int rank, const char *unmade, const char *path);

// Where TUTTI_DUMP_SIGNAL names a signal: takes it, and returns a descriptor that can be read once
// it came; -1: there is none. Whoever sees that calls tt_record_signalled, which writes all states.
int tt_record_signal(void);
void tt_record_signalled(void);

#endif
