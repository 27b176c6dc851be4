// Buffers of other ranks; see buffers.h.
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/buffers.h"

#include "base/log.h"
#include "base/process.h"
#include "reduce/reduce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vgpu/device_runtime.h>
#include <vgpu/share.h>
#include <vgpu/stats.h>

enum { ANSWERS = 16, OFFSET_BITS = 48 };

// A piece that this rank has made known.
struct told {
    struct vgpuSharedPiece piece; // bytes 0: none
    uint64_t used;                // by the work of this number
};

// What was found out about a buffer, while the process's memory stays as it is.
struct answer {
    const void *address;
    size_t bytes;
    uint64_t shared;
    int slot; // -1: none
};

// Pieces of one other rank that are mapped here.
struct reached {
    uint32_t version; // of the rank's segments when they were last looked through
    struct {
        uint64_t version;
        char *base; // NULL: not mapped
        uint64_t bytes;
    } segment[TT_ARENA_SEGMENTS];
};

// Of a rank that has told other processes of its buffers.
struct telling {
    unsigned generation; // of the process's memory, of which `answer` is true
    struct told told[TT_ARENA_SEGMENTS];
    struct answer answer[ANSWERS];
};

struct tt_buffers {
    int nranks;
    uint64_t work;
    struct telling *telling;  // NULL: nobody was told yet
    struct reached **reached; // [nranks]; NULL: nothing of that rank, or of any
};

struct tt_buffers *tt_buffers_new(int nranks)
{
    struct tt_buffers *memory = calloc(1, sizeof *memory);
    if (memory != NULL) {
        memory->nranks = nranks;
    }
    return memory;
}

static void unmap(struct reached *reached, int slot)
{
    if (reached->segment[slot].base != NULL) {
        (void)vgpuSharedClose(reached->segment[slot].base);
        reached->segment[slot].base = NULL;
    }
}

void tt_buffers_free(struct tt_buffers *memory)
{
    for (int rank = 0; memory != NULL && memory->reached != NULL && rank < memory->nranks; rank++) {
        struct reached *reached = memory->reached[rank];
        for (int slot = 0; reached != NULL && slot < TT_ARENA_SEGMENTS; slot++) {
            unmap(reached, slot);
        }
        free(reached);
    }
    if (memory != NULL) {
        free(memory->telling);
        free(memory->reached);
    }
    free(memory);
}

void tt_buffers_begin(struct tt_buffers *memory)
{
    memory->work++;
}

// ---- Telling ------------------------------------------------------------------------------------

// Writes what others read of a slot; a piece of 0 bytes: nothing is there any more.
static void publish(struct tt_host *host, int slot, const struct vgpuSharedPiece *piece)
{
    struct tt_own *own = tt_arena_own(host->arena, host->rank);
    struct tt_arena_segment *segment = &tt_arena_segments(host->arena, host->rank)[slot];
    uint64_t version = atomic_load_explicit(&segment->version, memory_order_relaxed);
    atomic_store_explicit(&segment->version, version + 1, memory_order_release);
    segment->pid = piece->pid;
    segment->descriptor = piece->descriptor;
    segment->inode = piece->inode;
    memcpy(segment->key, piece->key, sizeof segment->key);
    segment->bytes = piece->bytes;
    atomic_store_explicit(&segment->version, version + 2, memory_order_release);
    atomic_fetch_add_explicit(&own->segments_version, 1, memory_order_release);
    host->buffers->telling->told[slot].piece = *piece;
}

// The process's memory has changed: what is gone is withdrawn, so that nobody keeps it.
static void withdraw_freed(struct tt_host *host)
{
    static const struct vgpuSharedPiece none;
    struct telling *memory = host->buffers->telling;
    for (int slot = 0; slot < TT_ARENA_SEGMENTS; slot++) {
        if (memory->told[slot].piece.bytes > 0 && !vgpuSharedExists(&memory->told[slot].piece)) {
            publish(host, slot, &none);
        }
    }
    memset(memory->answer, 0, sizeof memory->answer);
}

// The slot of a piece, made known now if need be; -1: all slots are needed by the running work.
static int slot_of(struct tt_host *host, const struct vgpuSharedPiece *piece)
{
    struct telling *memory = host->buffers->telling;
    int oldest = 0;
    for (int slot = 0; slot < TT_ARENA_SEGMENTS; slot++) {
        const struct vgpuSharedPiece *known = &memory->told[slot].piece;
        if (known->bytes > 0 && known->inode == piece->inode &&
            memcmp(known->key, piece->key, sizeof known->key) == 0) {
            return slot;
        }
        if (memory->told[slot].used < memory->told[oldest].used) {
            oldest = slot;
        }
    }
    if (memory->told[oldest].used == host->buffers->work) {
        return -1;
    }
    publish(host, oldest, piece);
    for (int i = 0; i < ANSWERS; i++) {
        if (memory->answer[i].slot == oldest) {
            memory->answer[i] = (struct answer){0};
        }
    }
    return oldest;
}

uint64_t tt_buffers_tell(struct tt_host *host, const void *address, size_t bytes)
{
    struct telling *memory = host->buffers->telling;
    unsigned generation = vgpuSharedGeneration();
    if (memory == NULL) {
        memory = host->buffers->telling = calloc(1, sizeof *memory);
        if (memory == NULL) {
            return 0; // they cannot
        }
    }
    if (generation != memory->generation) {
        withdraw_freed(host);
        memory->generation = generation;
    }
    struct answer *answer =
        &memory->answer[((uintptr_t)address >> 8 ^ (uintptr_t)address >> 20) % ANSWERS];
    if (answer->address != address || answer->bytes != bytes || bytes == 0) {
        struct vgpuSharedPiece piece;
        uint64_t offset = 0;
        *answer = (struct answer){address, bytes, 0, -1};
        if (bytes > 0 && vgpuSharedDescribe(address, bytes, &piece, &offset) != 0 &&
            offset >> OFFSET_BITS == 0) {
            int slot = slot_of(host, &piece);
            if (slot < 0) {
                *answer = (struct answer){0}; // another time perhaps
                return 0;
            }
            *answer =
                (struct answer){address, bytes, (uint64_t)(slot + 1) << OFFSET_BITS | offset, slot};
        }
    }
    if (answer->slot >= 0 && answer->shared != 0) {
        memory->told[answer->slot].used = host->buffers->work;
    }
    return answer->shared;
}

// ---- Reaching -----------------------------------------------------------------------------------

// Gives up what the rank has withdrawn or replaced.
static void drop_old(const struct tt_host *host, int rank, struct reached *reached)
{
    const struct tt_own *own = tt_arena_own(host->arena, rank);
    const struct tt_arena_segment *segments = tt_arena_segments(host->arena, rank);
    uint32_t version = atomic_load_explicit(&own->segments_version, memory_order_acquire);
    for (int slot = 0; version != reached->version && slot < TT_ARENA_SEGMENTS; slot++) {
        if (atomic_load_explicit(&segments[slot].version, memory_order_acquire) !=
            reached->segment[slot].version) {
            unmap(reached, slot);
        }
    }
    reached->version = version;
}

static ncclResult_t map_segment(const struct tt_host *host, int rank, int slot,
                                struct reached *reached)
{
    const struct tt_arena_segment *segment = &tt_arena_segments(host->arena, rank)[slot];
    uint64_t version = atomic_load_explicit(&segment->version, memory_order_acquire);
    struct vgpuSharedPiece piece = {.pid = segment->pid,
                                    .descriptor = segment->descriptor,
                                    .inode = segment->inode,
                                    .bytes = segment->bytes};
    memcpy(piece.key, segment->key, sizeof piece.key);
    void *base = NULL;
    if (version % 2 != 0 ||
        atomic_load_explicit(&segment->version, memory_order_acquire) != version) {
        return tt_bug("rank %d: rank %d changes a segment that is in use", host->rank, rank);
    }
    cudaError_t error = vgpuSharedOpen(&piece, &base);
    if (error == cudaErrorInvalidResourceHandle && tt_process_has_ended(segment->pid)) {
        return tt_fail(ncclRemoteError,
                       "rank %d: rank %d (process %d) died, or ended without ncclCommDestroy",
                       host->rank, rank, segment->pid);
    }
    TRY(tt_cuda((int)error, "vgpuSharedOpen"));
    reached->segment[slot].base = base;
    reached->segment[slot].bytes = piece.bytes;
    reached->segment[slot].version = version;
    return ncclSuccess;
}

// What is mapped of a rank; NULL: there is no memory to note it in.
static struct reached *reached_of(struct tt_buffers *memory, int rank)
{
    if (memory->reached == NULL) {
        memory->reached = calloc((size_t)memory->nranks, sizeof(void *));
    }
    if (memory->reached != NULL && memory->reached[rank] == NULL) {
        memory->reached[rank] = calloc(1, sizeof *memory->reached[rank]);
    }
    return memory->reached == NULL ? NULL : memory->reached[rank];
}

ncclResult_t tt_buffers_reach(struct tt_host *host, int rank, uint64_t address, uint64_t shared,
                              size_t bytes, char **out)
{
    if (host->team.process[rank] == host->team.process[host->rank]) {
        *out = (char *)(uintptr_t)address; // NOLINT(performance-no-int-to-ptr): of this process
        return ncclSuccess;
    }
    struct reached *reached = reached_of(host->buffers, rank);
    if (reached == NULL) {
        return tt_fail(ncclSystemError, "rank %d: no memory to map that of rank %d", host->rank,
                       rank);
    }
    int slot = (int)(shared >> OFFSET_BITS) - 1;
    uint64_t offset = shared & ((UINT64_C(1) << OFFSET_BITS) - 1);
    if (slot < 0 || slot >= TT_ARENA_SEGMENTS) {
        return tt_bug("rank %d: rank %d tells of segment %d", host->rank, rank, slot);
    }
    drop_old(host, rank, reached);
    if (reached->segment[slot].base == NULL) {
        TRY(map_segment(host, rank, slot, reached));
    }
    if (bytes > reached->segment[slot].bytes || offset > reached->segment[slot].bytes - bytes) {
        return tt_bug("rank %d: rank %d tells of %zu bytes behind its segment's end", host->rank,
                      rank, bytes);
    }
    *out = reached->segment[slot].base + offset;
    return ncclSuccess;
}

// ---- Moving -------------------------------------------------------------------------------------

void tt_buffers_move(void *to, const void *from, size_t bytes)
{
    if (vgpu_counting) {
        vgpuCountTransfer(from, bytes, false);
        vgpuCountTransfer(to, bytes, true);
    }
    tt_copy(&to, 1, from, bytes, false);
}
