// The memory that all ranks of a machine share in one communicator: its room in a file, which each
// process has mapped once. It begins as zeros. Everything but the failure has one writer, and only
// grows.
//
//   header | lines [rank] | words [rank], from a page's start on: pinned, for streams
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXEC_CUDA_ARENA_H
#define TT_EXEC_CUDA_ARENA_H

#include "exec/entry.h"
#include "exec/executor.h"
#include "exec/failure.h"
#include "nccl.h"

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    TT_ARENA_MOST_RANKS = 1024,
    TT_ARENA_ENTRIES = 64, // of a rank, used in turn: calls that can still be compared
};

struct tt_arena_header {
    _Alignas(64) struct tt_failure failure;
};

// What a rank says of its GPU before the communicator is ready.
struct tt_facts {
    unsigned char uuid[16];
    int32_t multiprocessors;
    int32_t has_mps;
};

// Written by one rank alone.
struct tt_line {
    _Alignas(64) struct tt_facts facts;
    _Alignas(64) _Atomic uint64_t called; // operations called outside of captures (release)
    _Atomic uint32_t end;                 // enum tt_end (release)
    _Alignas(64) struct tt_entry entry[TT_ARENA_ENTRIES]; // of these
    struct tt_entry captured[TT_ARENA_ENTRIES];           // of those in captures, counted apart
};

// Numbers of operations as streams write them and wait for them. Those of a group (group.h) stand
// in the line of its first rank.
struct tt_words {
    _Alignas(64) _Atomic uint32_t in; // its ranks' inputs stand
    _Atomic uint32_t out;             // its outputs are stored
    _Atomic uint32_t met;             // its own streams may go on; not of every operation
};

// One process's mapping.
struct tt_arena {
    _Atomic int references;
    struct tt_room room;
    int nranks;
    char *base; // in the room's
    CUdeviceptr words_device;
};

size_t tt_arena_bytes(int nranks);
// Also pins the words, for all devices; the current device has a context afterwards.
ncclResult_t tt_arena_map(const struct tt_room *room, int nranks, struct tt_arena **arena_out);
void tt_arena_hold(struct tt_arena *arena);
void tt_arena_release(struct tt_arena *arena); // NULL: nothing
void tt_arena_memory(const struct tt_arena *arena, struct tt_memory *memory);

struct tt_line *tt_arena_line(const struct tt_arena *arena, int rank);
struct tt_words *tt_arena_words(const struct tt_arena *arena, int rank);

static inline struct tt_arena_header *tt_arena_header(const struct tt_arena *arena)
{
    return (struct tt_arena_header *)(void *)arena->base;
}

// The address of one of the words for streams.
static inline CUdeviceptr tt_arena_word(const struct tt_arena *arena, int rank,
                                        size_t offset_in_words)
{
    return arena->words_device + (size_t)rank * sizeof(struct tt_words) + offset_in_words;
}

#endif
