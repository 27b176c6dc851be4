// The memory that all ranks of a machine share in one communicator: its room in a file, which each
// process has mapped once. It does not depend on windows or on access between devices.
//
// Everything in it has one writer and only grows (sequence numbers, counters); nothing is ever
// reset. It begins as zeros and is sparse: what is not used costs nothing. What everybody uses lies
// together, a page for 8 ranks.
//
//   header | own words [rank] | entries [rank][2] | segments [rank] | peers [rank]
//   | signals [reader][writer][channel] | pair lines [from][to] | uneven counts [rank]
//   | then, mapped when first needed: pair data [from][to] | scratch [rank], in sizes that double
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXEC_CPU_ARENA_H
#define TT_EXEC_CPU_ARENA_H

#include "exec/entry.h"
#include "exec/executor.h"
#include "exec/failure.h"
#include "nccl.h"
#include "plan/plan.h"
#include "reduce/reduce.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    TT_ARENA_MOST_RANKS = 2048,
    TT_ARENA_SLOTS = 2,         // entries of a rank, used in turn
    TT_ARENA_PAIR_BYTES = 1024, // lines of a pair
    TT_ARENA_SEGMENTS = 32,     // pieces of a rank's memory that others can know at once
};

struct tt_arena_header {
    // 1: work of a rank has failed, and what it works with may be freed: no rank begins anything
    // any more.
    _Alignas(64) _Atomic uint32_t given_up;
    struct tt_failure failure;
};
_Static_assert(sizeof(struct tt_arena_header) == 512, "eight lines");

// A piece of memory that a rank has made known, for processes that want to map it.
struct tt_arena_segment {
    _Atomic uint64_t version; // even: it stands; grows by 2 with each new content
    int32_t pid, descriptor;
    uint64_t inode;
    unsigned char key[16];
    uint64_t bytes;
    uint64_t unused[2];
};
_Static_assert(sizeof(struct tt_arena_segment) == 64, "lines");

// The words of one rank, written by it alone.
struct tt_own {
    // Operations entered, and those whose memory this rank does not touch any more (release).
    _Alignas(64) _Atomic uint64_t entered;
    // A struct tt_call: of the operation entered last, or being entered. Read while it changes, for
    // reports (relaxed).
    _Atomic uint64_t call[2];
    uint64_t multicast; // tt_multicast.where of the running operation; before it enters
    // Grows by one when messages of a group begin, once the last numbers of their pairs are set,
    // and when they end: odd while they run (release).
    _Atomic uint64_t messages;
    _Atomic uint64_t turns; // calls whose turn is over, of those that went to a stream (release)
    // What the next call that was put on a stream is behind there: work of another communicator
    // (its hash; 0: of none, or it has begun), namely of that turn (48 bits) of that rank there.
    _Atomic uint64_t behind, behind_turn;
    _Alignas(64) _Atomic uint64_t left;
    _Atomic uint64_t waits;   // grows when it begins to wait for signals, and when it has them: odd
                              // while it waits (release)
    _Atomic uint64_t is_over; // enum tt_end, whatever the rest says (release)
    // 1: work of this rank has its turn, and may touch the memory of other ranks. In one order with
    // `given_up`: who gives up sees that this one works, or is seen.
    _Atomic uint32_t works;
    _Alignas(64) _Atomic uint32_t workers; // threads that can run its lanes; before it is ready
    // Changes when a segment is made known or withdrawn (release).
    _Atomic uint32_t segments_version;
    _Atomic uint64_t called;   // turns that were given to calls (release)
    _Atomic uint64_t launches; // work of graphs that was launched and is not over
    _Atomic int32_t pid;       // before it is ready
};
_Static_assert(sizeof(struct tt_own) == (size_t)64 * 3, "lines");

// One process's mapping.
struct tt_arena {
    _Atomic int references;
    struct tt_room room;
    int nranks;
    char *base; // the room's: of the part that is always mapped
    size_t bytes;
    char *own, *entries, *segments, *peers, *signals, *pairs, *uneven; // in it
    struct tt_arena_later *later;                                      // what is mapped when needed
};

// Takes it into use; one reference. See tt_executor->arena_map.
size_t tt_arena_bytes(int nranks);
ncclResult_t tt_arena_map(const struct tt_room *room, int nranks, struct tt_arena **arena_out);
void tt_arena_hold(struct tt_arena *arena);
void tt_arena_release(struct tt_arena *arena); // NULL: nothing

// ---- Places in it -------------------------------------------------------------------------------

static inline struct tt_arena_header *tt_arena_header(const struct tt_arena *arena)
{
    return (struct tt_arena_header *)(void *)arena->base;
}

static inline struct tt_own *tt_arena_own(const struct tt_arena *arena, int rank)
{
    return (struct tt_own *)(void *)arena->own + rank;
}

// TT_ARENA_SEGMENTS of them, written by the rank alone.
static inline struct tt_arena_segment *tt_arena_segments(const struct tt_arena *arena, int rank)
{
    return (struct tt_arena_segment *)(void *)arena->segments + (size_t)rank * TT_ARENA_SEGMENTS;
}

// Bits: ranks with which this one ever had messages, or whose signals it waited for, so that nobody
// else's pairs are looked at (which would make them take memory). Written by the rank alone.
static inline _Atomic uint64_t *tt_arena_peers(const struct tt_arena *arena, int rank, int peer)
{
    size_t words = ((size_t)arena->nranks + 63) / 64;
    return (_Atomic uint64_t *)(void *)arena->peers + (size_t)rank * words + (size_t)peer / 64;
}

// What a rank entered last; its own words are told by it alone.
static inline void tt_arena_tell_call(struct tt_own *own, const struct tt_call *call)
{
    uint64_t word[2];
    memcpy(word, call, sizeof word);
    atomic_store_explicit(&own->call[0], word[0], memory_order_relaxed);
    atomic_store_explicit(&own->call[1], word[1], memory_order_relaxed);
}

static inline struct tt_call tt_arena_last_call(const struct tt_own *own)
{
    uint64_t word[2] = {atomic_load_explicit(&own->call[0], memory_order_relaxed),
                        atomic_load_explicit(&own->call[1], memory_order_relaxed)};
    struct tt_call call;
    memcpy(&call, word, sizeof call);
    return call;
}

static inline struct tt_entry *tt_arena_entry(const struct tt_arena *arena, int rank,
                                              uint64_t sequence)
{
    return (struct tt_entry *)(void *)arena->entries + (size_t)rank * TT_ARENA_SLOTS +
           sequence % TT_ARENA_SLOTS;
}

// A counter written by rank `writer` for rank `reader`: see tt_host_signal.
_Atomic uint64_t *tt_arena_signal(const struct tt_arena *arena, int reader, int writer,
                                  int channel);
// TT_ARENA_PAIR_BYTES bytes for messages and signals from one rank to another, which may be the
// same; 64-byte aligned; zeros before their first use. Both may write, each its own lines.
void *tt_arena_pair(const struct tt_arena *arena, int from, int to);
// Where a rank tells its uneven counts: 4 x [nranks], in the order of struct tt_uneven. Written
// before it enters, read by all until it leaves.
uint64_t *tt_arena_uneven(const struct tt_arena *arena, int rank);

// Memory for the contents of messages from one rank to another, page-aligned; mapped at the first
// call. *bytes_out: how many, the same for all pairs. NULL: tt_fail has been called.
void *tt_arena_pair_data(struct tt_arena *arena, int from, int to, size_t *bytes_out);

// Scratch memory of at least `bytes` for every rank: rank r's begins at the result + r *
// *stride_out. To be asked for by every rank of an operation once all have entered it; what was
// there before may be gone. NULL: tt_fail has been called.
char *tt_arena_scratch(struct tt_arena *arena, size_t bytes, size_t *stride_out);

// Adds each rank's share of what was mapped later.
void tt_arena_memory(const struct tt_arena *arena, struct tt_memory *memory);

#endif
