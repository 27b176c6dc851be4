// The shared memory of a host team: file, layout, parts that are mapped later. See arena.h.
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/arena.h"

#include "base/holdings.h"
#include "base/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

enum {
    PAGE = 4096,
    LINE = 64,
    SIGNAL_BYTES = TT_CHANNELS * 8,
    MOST_PAIR_DATA = 256 << 10,
    FIRST_CLASS = 16,     // scratch of 2^16 bytes a rank
    SCRATCH_IN_ROOM = 41, // of all ranks in all classes less than 2^41 bytes, half the room
};
// The file holds offsets in eight bytes whatever the system's default.
_Static_assert(sizeof(off_t) == 8, "large files");
static const size_t all_pair_data = (size_t)1 << 30; // where it is less than MOST_PAIR_DATA each

// What is mapped when it is needed; the arena's ranks of this process share it.
struct tt_arena_later {
    pthread_mutex_t mutex; // guards the rest
    char *pair_data;       // NULL: not mapped
    char *scratch;
    int scratch_class;
};

// Byte offsets from the base.
struct layout {
    size_t own, entries, segments, peers, signals, pairs, uneven, end;
};

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static size_t pair_data_bytes(int nranks)
{
    size_t each = all_pair_data / ((size_t)nranks * (size_t)nranks);
    each = each < MOST_PAIR_DATA ? each / PAGE * PAGE : MOST_PAIR_DATA;
    return each > 0 ? each : PAGE;
}

// A page more than the power of two: at distances that are large powers of two the ranks' scratch
// would share cache ways.
static size_t scratch_stride(int class)
{
    return ((size_t)1 << class) + PAGE;
}

static size_t scratch_offset(int nranks, int class)
{
    size_t offset = 0;
    for (int smaller = FIRST_CLASS; smaller < class; smaller++) {
        offset += (size_t)nranks * scratch_stride(smaller);
    }
    return offset;
}

static struct layout layout_of(int nranks)
{
    size_t n = (size_t)nranks;
    struct layout at = {.own = sizeof(struct tt_arena_header)};
    at.entries = at.own + n * sizeof(struct tt_own);
    at.segments = at.entries + n * TT_ARENA_SLOTS * sizeof(struct tt_entry);
    at.peers = at.segments + n * TT_ARENA_SEGMENTS * sizeof(struct tt_arena_segment);
    at.signals = round_up(at.peers + n * ((n + 63) / 64) * sizeof(uint64_t), LINE);
    at.pairs = at.signals + n * n * SIGNAL_BYTES;
    at.uneven = at.pairs + n * n * TT_ARENA_PAIR_BYTES;
    at.end = at.uneven + n * 4 * n * sizeof(uint64_t);
    return at;
}

// Of scratch memory, behind the data of pairs, in what is mapped later.
static size_t scratch_start(int nranks)
{
    return (size_t)nranks * (size_t)nranks * pair_data_bytes(nranks);
}

// ---- Mapping ------------------------------------------------------------------------------------

size_t tt_arena_bytes(int nranks)
{
    return layout_of(nranks).end;
}

// Maps some of what comes later.
static void *map(const struct tt_room *room, size_t bytes, size_t offset)
{
    int flags = MAP_NORESERVE | (room->descriptor < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
    off_t at = room->descriptor < 0 ? 0 : (off_t)(room->later + offset);
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, room->descriptor, at);
}

static void unmap(void *base, size_t bytes, enum tt_holding what)
{
    munmap(base, bytes);
    tt_holdings_remove(what, bytes);
}

ncclResult_t tt_arena_map(const struct tt_room *room, int nranks, struct tt_arena **arena_out)
{
    struct tt_arena *arena = calloc(1, sizeof *arena);
    struct tt_arena_later *later = calloc(1, sizeof *later);
    struct layout at = layout_of(nranks);
    if (arena == NULL || later == NULL) {
        free(arena);
        free(later);
        return tt_fail(ncclSystemError, "no memory for the host team");
    }
    char *base = room->base;
    pthread_mutex_init(&later->mutex, NULL);
    *arena = (struct tt_arena){.references = 1,
                               .room = *room,
                               .nranks = nranks,
                               .base = base,
                               .bytes = at.end,
                               .own = base + at.own,
                               .entries = base + at.entries,
                               .segments = base + at.segments,
                               .peers = base + at.peers,
                               .signals = base + at.signals,
                               .pairs = base + at.pairs,
                               .uneven = base + at.uneven,
                               .later = later};
    *arena_out = arena;
    return ncclSuccess;
}

void tt_arena_hold(struct tt_arena *arena)
{
    atomic_fetch_add(&arena->references, 1);
}

void tt_arena_release(struct tt_arena *arena)
{
    if (arena == NULL || atomic_fetch_sub(&arena->references, 1) > 1) {
        return;
    }
    struct tt_arena_later *later = arena->later;
    size_t n = (size_t)arena->nranks;
    if (later->pair_data != NULL) {
        unmap(later->pair_data, n * n * pair_data_bytes(arena->nranks), TT_HOLD_STAGING);
    }
    if (later->scratch != NULL) {
        unmap(later->scratch, n * scratch_stride(later->scratch_class), TT_HOLD_SCRATCH);
    }
    pthread_mutex_destroy(&later->mutex);
    if (arena->room.leave != NULL) {
        arena->room.leave(arena->room.owner);
    }
    free(later);
    free(arena);
}

// ---- Places -------------------------------------------------------------------------------------

_Atomic uint64_t *tt_arena_signal(const struct tt_arena *arena, int reader, int writer, int channel)
{
    size_t pair = (size_t)reader * (size_t)arena->nranks + (size_t)writer;
    return (_Atomic uint64_t *)(void *)(arena->signals + pair * SIGNAL_BYTES) + channel;
}

void *tt_arena_pair(const struct tt_arena *arena, int from, int to)
{
    size_t pair = (size_t)from * (size_t)arena->nranks + (size_t)to;
    return arena->pairs + pair * TT_ARENA_PAIR_BYTES;
}

uint64_t *tt_arena_uneven(const struct tt_arena *arena, int rank)
{
    return (uint64_t *)(void *)arena->uneven + (size_t)rank * 4 * (size_t)arena->nranks;
}

// ---- What is mapped later -----------------------------------------------------------------------

static char *map_later(const struct tt_arena *arena, size_t bytes, size_t offset,
                       enum tt_holding what)
{
    void *base = map(&arena->room, bytes, offset);
    if (base == MAP_FAILED) {
        (void)tt_fail(ncclSystemError, "%zu bytes of %s for %d ranks cannot be mapped: %m", bytes,
                      what == TT_HOLD_SCRATCH ? "scratch memory" : "messages", arena->nranks);
        return NULL;
    }
    tt_holdings_add(what, bytes);
    return base;
}

void *tt_arena_pair_data(struct tt_arena *arena, int from, int to, size_t *bytes_out)
{
    struct tt_arena_later *later = arena->later;
    size_t n = (size_t)arena->nranks, each = pair_data_bytes(arena->nranks);
    pthread_mutex_lock(&later->mutex);
    if (later->pair_data == NULL) {
        later->pair_data = map_later(arena, n * n * each, 0, TT_HOLD_STAGING);
    }
    char *base = later->pair_data;
    pthread_mutex_unlock(&later->mutex);
    *bytes_out = each;
    return base == NULL ? NULL : base + ((size_t)from * n + (size_t)to) * each;
}

static int last_class(int nranks)
{
    int class = SCRATCH_IN_ROOM - 1;
    while ((size_t)nranks << (class + 1) > (size_t)1 << SCRATCH_IN_ROOM) {
        class --;
    }
    return class;
}

static int class_of(size_t bytes, int nranks)
{
    int class = FIRST_CLASS;
    while (class < last_class(nranks) && ((size_t)1 << class) < bytes) {
        class ++;
    }
    return class;
}

// Takes a larger class into use. The memory of the smaller one goes back to the system.
static void grow_scratch(struct tt_arena *arena, int class)
{
    struct tt_arena_later *later = arena->later;
    size_t n = (size_t)arena->nranks, start = scratch_start(arena->nranks);
    char *larger = map_later(arena, n * scratch_stride(class),
                             start + scratch_offset(arena->nranks, class), TT_HOLD_SCRATCH);
    if (larger == NULL) {
        return;
    }
    if (later->scratch != NULL) {
        size_t bytes = n * scratch_stride(later->scratch_class);
        unmap(later->scratch, bytes, TT_HOLD_SCRATCH);
        size_t offset = start + scratch_offset(arena->nranks, later->scratch_class);
        (void)fallocate(arena->room.descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        (off_t)(arena->room.later + offset), (off_t)bytes);
    }
    later->scratch = larger;
    later->scratch_class = class;
}

void tt_arena_memory(const struct tt_arena *arena, struct tt_memory *memory)
{
    struct tt_arena_later *later = arena->later;
    size_t n = (size_t)arena->nranks;
    pthread_mutex_lock(&later->mutex);
    memory->staging += later->pair_data == NULL ? 0 : n * pair_data_bytes(arena->nranks);
    memory->scratch += later->scratch == NULL ? 0 : scratch_stride(later->scratch_class);
    pthread_mutex_unlock(&later->mutex);
}

char *tt_arena_scratch(struct tt_arena *arena, size_t bytes, size_t *stride_out)
{
    struct tt_arena_later *later = arena->later;
    int class = class_of(bytes, arena->nranks);
    if (((size_t)1 << class) < bytes) {
        (void)tt_fail(ncclSystemError, "%zu bytes of scratch memory for each rank are too many",
                      bytes);
        return NULL;
    }
    pthread_mutex_lock(&later->mutex);
    if (later->scratch == NULL || later->scratch_class < class) {
        grow_scratch(arena, class);
    }
    bool enough = later->scratch != NULL && later->scratch_class >= class;
    char *base = enough ? later->scratch : NULL;
    *stride_out = scratch_stride(later->scratch_class);
    pthread_mutex_unlock(&later->mutex);
    return base;
}
