// The shared memory of a host team: file, layout, parts that are mapped later. See arena.h.
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/arena.h"

#include "base/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PAGE = 4096,
    SIGNAL_BYTES = TT_CHANNELS * 8,
    MOST_PAIR_DATA = 256 << 10,
    FIRST_CLASS = 16, // scratch of 2^16 bytes a rank
    LAST_CLASS = 40,
};
// The file holds offsets in eight bytes whatever the system's default.
_Static_assert(sizeof(off_t) == 8, "large files");
static const uint64_t arena_magic = UINT64_C(0x616e657261747474);
enum { VERSION = 3 };
static const size_t all_pair_data = (size_t)1 << 30; // where it is less than MOST_PAIR_DATA each

// What is mapped when it is needed; the arena's ranks of this process share it.
struct tt_arena_later {
    pthread_mutex_t mutex; // guards the rest
    char *pair_data;       // NULL: not mapped
    char *scratch;
    int scratch_class;
};

// Byte offsets in the file.
struct layout {
    size_t own, entries, signals, pairs, uneven, pair_data, scratch, end;
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
    at.signals = at.entries + n * TT_ARENA_SLOTS * sizeof(struct tt_entry);
    at.pairs = at.signals + n * n * SIGNAL_BYTES;
    at.uneven = at.pairs + n * n * TT_ARENA_PAIR_BYTES;
    at.pair_data = round_up(at.uneven + n * 4 * n * sizeof(uint64_t), PAGE);
    at.scratch = at.pair_data + n * n * pair_data_bytes(nranks);
    at.end = at.scratch + scratch_offset(nranks, LAST_CLASS + 1);
    return at;
}

// ---- Making and mapping -------------------------------------------------------------------------

ncclResult_t tt_arena_create(int nranks, int *descriptor_out)
{
    // Named as vgpu's own: its checking mode need not expect that another process ends what a
    // kernel waits for in it.
    int descriptor = memfd_create("vgpu-tutti-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (descriptor < 0) {
        return tt_fail(ncclSystemError, "no memory that ranks can share (memfd_create): %m");
    }
    struct tt_arena_header header = {
        .magic = arena_magic, .version = VERSION, .nranks = (uint32_t)nranks};
    if (ftruncate(descriptor, (off_t)layout_of(nranks).end) != 0 ||
        pwrite(descriptor, &header, sizeof header, 0) != sizeof header ||
        fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        (void)tt_fail(ncclSystemError, "the memory that %d ranks share cannot be made: %m", nranks);
        close(descriptor);
        return ncclSystemError;
    }
    *descriptor_out = descriptor;
    return ncclSuccess;
}

// Whether a descriptor of another process is what it should be.
static ncclResult_t check_file(int descriptor, int nranks)
{
    struct stat status;
    struct tt_arena_header header;
    int seals = fcntl(descriptor, F_GET_SEALS);
    if (fstat(descriptor, &status) != 0 || seals < 0 || (seals & F_SEAL_SHRINK) == 0 ||
        (size_t)status.st_size != layout_of(nranks).end ||
        pread(descriptor, &header, sizeof header, 0) != sizeof header ||
        header.magic != arena_magic || header.version != VERSION ||
        header.nranks != (uint32_t)nranks) {
        return tt_fail(ncclSystemError,
                       "the memory that ranks share is not that of %d ranks of this version: all "
                       "processes must load the same libnccl.so.2",
                       nranks);
    }
    return ncclSuccess;
}

ncclResult_t tt_arena_map(int descriptor, int nranks, struct tt_arena **arena_out)
{
    struct tt_arena *arena = calloc(1, sizeof *arena);
    struct tt_arena_later *later = calloc(1, sizeof *later);
    ncclResult_t result = check_file(descriptor, nranks);
    if (arena == NULL || later == NULL) {
        (void)tt_fail(ncclSystemError, "no memory for the host team");
        result = ncclSystemError;
    }
    void *base = MAP_FAILED;
    size_t bytes = layout_of(nranks).pair_data;
    if (result == ncclSuccess) {
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
        if (base == MAP_FAILED) {
            result = tt_fail(ncclSystemError, "%zu bytes that %d ranks share cannot be mapped: %m",
                             bytes, nranks);
        }
    }
    if (result != ncclSuccess) {
        free(arena);
        free(later);
        close(descriptor);
        return result;
    }
    pthread_mutex_init(&later->mutex, NULL);
    *arena = (struct tt_arena){.references = 1,
                               .descriptor = descriptor,
                               .nranks = nranks,
                               .base = base,
                               .bytes = bytes,
                               .own = (char *)base + layout_of(nranks).own,
                               .entries = (char *)base + layout_of(nranks).entries,
                               .signals = (char *)base + layout_of(nranks).signals,
                               .pairs = (char *)base + layout_of(nranks).pairs,
                               .uneven = (char *)base + layout_of(nranks).uneven,
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
        munmap(later->pair_data, n * n * pair_data_bytes(arena->nranks));
    }
    if (later->scratch != NULL) {
        munmap(later->scratch, n * scratch_stride(later->scratch_class));
    }
    munmap(arena->base, arena->bytes);
    close(arena->descriptor);
    pthread_mutex_destroy(&later->mutex);
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

static char *map_later(const struct tt_arena *arena, size_t bytes, size_t offset, const char *what)
{
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                      arena->descriptor, (off_t)offset);
    if (base == MAP_FAILED) {
        (void)tt_fail(ncclSystemError, "%zu bytes of %s for %d ranks cannot be mapped: %m", bytes,
                      what, arena->nranks);
        return NULL;
    }
    return base;
}

void *tt_arena_pair_data(struct tt_arena *arena, int from, int to, size_t *bytes_out)
{
    struct tt_arena_later *later = arena->later;
    size_t n = (size_t)arena->nranks, each = pair_data_bytes(arena->nranks);
    pthread_mutex_lock(&later->mutex);
    if (later->pair_data == NULL) {
        later->pair_data =
            map_later(arena, n * n * each, layout_of(arena->nranks).pair_data, "messages");
    }
    char *base = later->pair_data;
    pthread_mutex_unlock(&later->mutex);
    *bytes_out = each;
    return base == NULL ? NULL : base + ((size_t)from * n + (size_t)to) * each;
}

static int class_of(size_t bytes)
{
    int class = FIRST_CLASS;
    while (class < LAST_CLASS && ((size_t)1 << class) < bytes) {
        class ++;
    }
    return class;
}

// Takes a larger class into use. The memory of the smaller one goes back to the system.
static void grow_scratch(struct tt_arena *arena, int class)
{
    struct tt_arena_later *later = arena->later;
    size_t n = (size_t)arena->nranks, start = layout_of(arena->nranks).scratch;
    char *larger = map_later(arena, n * scratch_stride(class),
                             start + scratch_offset(arena->nranks, class), "scratch memory");
    if (larger == NULL) {
        return;
    }
    if (later->scratch != NULL) {
        size_t bytes = n * scratch_stride(later->scratch_class);
        munmap(later->scratch, bytes);
        (void)fallocate(arena->descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        (off_t)(start + scratch_offset(arena->nranks, later->scratch_class)),
                        (off_t)bytes);
    }
    later->scratch = larger;
    later->scratch_class = class;
}

char *tt_arena_scratch(struct tt_arena *arena, size_t bytes, size_t *stride_out)
{
    struct tt_arena_later *later = arena->later;
    int class = class_of(bytes);
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
