// The flight recorder: the last operations of every communicator and rank of this process, always
// on, for whoever asks what hangs (tuttiDumpState), how long things took (TUTTI_TRACE) and who
// comes late (TUTTI_SUMMARY).
//
// How an executor uses it. Each rank of a communicator has one record, opened when the rank's part
// of the communicator is made and closed when it goes. Then, for every operation:
//     line = tt_record_called(record, op, sequence, stream);   where it gets its sequence number
//     tt_record_entered(line);           the stream has come to it; the rank has told the others
//     tt_record_ready(line, last);       all whom it needs have entered; `last` came last
//     tt_record_ended(line);             its buffers are the caller's again
// or tt_record_failed(line, result) wherever it stops for good. Stamps may come from different
// threads, one after another. A stamp may be left out: `entered` then reads as called, `ready` as
// ended; so an operation that runs through without a wait needs only the first and the last. After
// ended or failed the line is not touched any more: it will be another operation's.
// tt_record_called has one caller at a time per record (what orders the operations orders it).
//
// What other processes know of a rank is its face, in memory that all ranks of the host share:
// written when somebody wants to know (tt_record_publish), at the latest by the next tick of the
// thread that watches communicators.
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
// their writer and acquired by their readers. A stamp older than `called` is of an operation that
// had the line before.
struct tt_record_line {
    _Atomic uint64_t head; // tt_op.function and is_uneven, as they lie in memory
    _Atomic uint64_t kind; // tt_op.type and op
    _Atomic uint64_t count;
    _Atomic uint64_t sequence;
    _Atomic(cudaStream_t) stream;
    _Atomic uint64_t called, entered, ready, ended, failed; // ticks
    _Atomic int32_t root, last, result;
    int32_t unused;
};

enum { TT_RECORD_BLOCK = 32 }; // lines

// Lines are taken block by block; a block is used again once all its operations have ended.
struct tt_record_block {
    _Atomic uint64_t first; // number of line[0] among the record's operations, from 1; 0: changes
    _Atomic(struct tt_record_block *) next; // a ring
    struct tt_record_line line[TT_RECORD_BLOCK];
};

// What the others of a host know of one rank. Lies in shared memory; zero before its first use.
// `version` is odd while it is written.
struct tt_record_known {
    uint64_t head, kind, count, sequence, when; // when: ticks; 0: there was none
    int32_t root, unused;
};
struct tt_record_face {
    _Alignas(64) _Atomic uint64_t version;
    _Atomic uint64_t published; // ticks
    struct {
        _Atomic uint64_t head, kind, count, sequence, when, root;
    } latest[3]; // the last operation that was called, that entered, that ended
};

struct tt_record {
    _Atomic(struct tt_record_line *) next; // the line of the next operation: those before it stand
    struct tt_record_line *end;            // of the block that `next` is in
    struct tt_record_block *block;         // the same
    struct tt_record_details *details;     // what no stamp needs
};

// Whose record it is. Texts are copied.
struct tt_record_owner {
    const char *name; // of the communicator
    uint64_t hash;    // the same on all its ranks
    int rank, nranks;
    int device;
    struct tt_record_face *faces; // [nranks] shared by the ranks of the host; NULL: nobody sees any
};

// ---- A record's life ----------------------------------------------------------------------------

// Opens a record. It then appears in dumps. faces: must live until it is closed.
ncclResult_t tt_record_open(const struct tt_record_owner *owner, struct tt_record **record_out);
// Closes it: its trace and summary are kept for the end of the process. No line of it is touched
// any more. Accepts NULL.
void tt_record_close(struct tt_record *record);

// ---- Stamps: some instructions each
// --------------------------------------------------------------

// The next block begins: rarely. Never NULL: without memory the oldest lines are used again.
struct tt_record_line *tt_record_turn(struct tt_record *record);

_Static_assert(offsetof(struct tt_op, function) % 8 == 0 &&
                   offsetof(struct tt_op, is_uneven) == offsetof(struct tt_op, function) + 4 &&
                   offsetof(struct tt_op, op) == offsetof(struct tt_op, type) + 4,
               "lines keep these pairs as one word each");

// Operation number `sequence` (of the communicator, or of its pair) was called for `stream`. op is
// not needed afterwards.
static inline struct tt_record_line *tt_record_called(struct tt_record *record,
                                                      const struct tt_op *op, uint64_t sequence,
                                                      cudaStream_t stream)
{
    struct tt_record_line *line = atomic_load_explicit(&record->next, memory_order_relaxed);
    if (__builtin_expect(line == record->end, 0)) {
        line = tt_record_turn(record);
    }
    uint64_t head, kind;
    memcpy(&head, (const char *)op + offsetof(struct tt_op, function), sizeof head);
    memcpy(&kind, (const char *)op + offsetof(struct tt_op, type), sizeof kind);
    atomic_store_explicit(&line->head, head, memory_order_release);
    atomic_store_explicit(&line->kind, kind, memory_order_release);
    atomic_store_explicit(&line->count, op->count, memory_order_release);
    atomic_store_explicit(&line->root, op->root, memory_order_release);
    atomic_store_explicit(&line->sequence, sequence, memory_order_release);
    atomic_store_explicit(&line->stream, stream, memory_order_release);
    atomic_store_explicit(&line->called, tt_ticks(), memory_order_release);
    atomic_store_explicit(&record->next, line + 1, memory_order_release);
    return line;
}

static inline void tt_record_entered(struct tt_record_line *line)
{
    atomic_store_explicit(&line->entered, tt_ticks(), memory_order_release);
}

// last: the rank that this one waited for last; its own where all others were there before it.
static inline void tt_record_ready(struct tt_record_line *line, int last)
{
    atomic_store_explicit(&line->last, last, memory_order_release);
    atomic_store_explicit(&line->ready, tt_ticks(), memory_order_release);
}

static inline void tt_record_ended(struct tt_record_line *line)
{
    atomic_store_explicit(&line->ended, tt_ticks(), memory_order_release);
}

static inline void tt_record_failed(struct tt_record_line *line, ncclResult_t result)
{
    atomic_store_explicit(&line->result, (int32_t)result, memory_order_release);
    atomic_store_explicit(&line->failed, tt_ticks(), memory_order_release);
}

// ---- What others ask
// -----------------------------------------------------------------------------

// Writes the face of the record's rank now. Any thread. An executor that finds calls that do not
// match does it, so that the others can name this rank's call.
void tt_record_publish(struct tt_record *record);
// The same for all records of the process.
void tt_record_publish_all(void);
// What rank `rank` did last, by its face: "its last call was Broadcast(count 5, float32, root 0)
// #16, which ended 3.2 s ago". faces may be NULL: text then says that nothing is known.
void tt_record_tell(const struct tt_record_face *faces, int rank, char *text, size_t bytes);
// The call with which a rank is in operation `sequence`, for messages about calls that do not
// match: false where its face does not have it (yet).
bool tt_record_find(const struct tt_record_face *faces, int rank, uint64_t sequence, char *text,
                    size_t bytes);

// Writes the state of every record of the communicator `hash` (0: of all) to a descriptor: last
// operations, what is waited for, who is missing.
void tt_record_dump(uint64_t hash, int descriptor);

#endif
