// The shared memory of a host team on real GPUs. See arena.h. SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/arena.h"

#include "base/log.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>

enum { PAGE = 4096 };

static size_t to_pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static size_t words_offset(int nranks)
{
    return to_pages(sizeof(struct tt_arena_header) + (size_t)nranks * sizeof(struct tt_line));
}

static size_t words_bytes(int nranks)
{
    return to_pages((size_t)nranks * sizeof(struct tt_words));
}

static ncclResult_t pin_words(struct tt_arena *arena)
{
    void *words = arena->base + words_offset(arena->nranks), *device = NULL;
    TRY(tt_cuda((int)cudaHostRegister(words, words_bytes(arena->nranks),
                                      cudaHostRegisterPortable | cudaHostRegisterMapped),
                "cudaHostRegister(memory that ranks share)"));
    ncclResult_t result = tt_cuda((int)cudaHostGetDevicePointer(&device, words, 0),
                                  "cudaHostGetDevicePointer(memory that ranks share)");
    if (result != ncclSuccess) {
        (void)cudaHostUnregister(words);
        return result;
    }
    arena->words_device = (CUdeviceptr)(uintptr_t)device;
    return ncclSuccess;
}

// From a page's start on, which is somewhere in the first page of the room.
size_t tt_arena_bytes(int nranks)
{
    return PAGE + words_offset(nranks) + words_bytes(nranks);
}

ncclResult_t tt_arena_map(const struct tt_room *room, int nranks, struct tt_arena **arena_out)
{
    struct tt_arena *arena = calloc(1, sizeof *arena);
    if (arena == NULL) {
        return tt_fail(ncclSystemError, "no memory for the host team");
    }
    *arena = (struct tt_arena){.references = 1, .room = *room, .nranks = nranks};
    arena->base = room->base + (PAGE - (uintptr_t)room->base % PAGE) % PAGE;
    ncclResult_t result = pin_words(arena);
    if (result != ncclSuccess) {
        free(arena);
        return result;
    }
    *arena_out = arena;
    return ncclSuccess;
}

void tt_arena_memory(const struct tt_arena *arena, struct tt_memory *memory)
{
    (void)arena; // nothing is mapped later
    (void)memory;
}

void tt_arena_hold(struct tt_arena *arena)
{
    (void)atomic_fetch_add_explicit(&arena->references, 1, memory_order_relaxed);
}

void tt_arena_release(struct tt_arena *arena)
{
    if (arena == NULL ||
        atomic_fetch_sub_explicit(&arena->references, 1, memory_order_acq_rel) > 1) {
        return;
    }
    // What the device may still write to stays mapped: its address must not become another's.
    if (cudaHostUnregister(arena->base + words_offset(arena->nranks)) != cudaSuccess) {
        (void)cudaGetLastError();
    } else if (arena->room.leave != NULL) {
        arena->room.leave(arena->room.owner);
    }
    free(arena);
}

struct tt_line *tt_arena_line(const struct tt_arena *arena, int rank)
{
    return (struct tt_line *)(void *)(arena->base + sizeof(struct tt_arena_header)) + rank;
}

struct tt_words *tt_arena_words(const struct tt_arena *arena, int rank)
{
    return (struct tt_words *)(void *)(arena->base + words_offset(arena->nranks)) + rank;
}
