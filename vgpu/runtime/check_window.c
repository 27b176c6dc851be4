// The windows that a library announces: named in reports, and closed around in checking mode.
//
// One table of records, one for each owner; the ranks of a process share the mapped copies, so
// several records describe the same addresses. Gone windows are remembered for a while.
// SPDX-License-Identifier: Apache-2.0
#include "backing.h"
#include "check.h"
#include "error.h"
#include "memory.h"
#include "multimem.h"
#include "sanitizer.h"

#include "vgpu/check.h"
#include "vgpu/stats.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { GONE_KEPT = 256, HANDLE_BUCKETS = 256 };

struct record {
    struct vgpu_check_window window;
    char name[48];
    int device;
    bool gone;
    struct record *next;           // newest first
    struct record *next_of_handle; // in its bucket
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards what follows
static struct record *records;
static struct record *by_handle[HANDLE_BUCKETS];
static unsigned gone_count;
// By device: 1 + the rank that owns windows there; 0: none does, or several. Relaxed; read without
// the lock, by every launch.
static atomic_int owner[VGPU_MAX_DEVICES];

// ---- Closing what lies around -------------------------------------------------------------------

// The part of a mapping that belongs to a window's member, closed before `from` and behind `to`.
static void close_around(struct vgpu_mapping *mapping, uintptr_t from, uintptr_t to)
{
    uintptr_t first = from / VGPU_PAGE_BYTES * VGPU_PAGE_BYTES;
    uintptr_t last = (to + VGPU_PAGE_BYTES - 1) / VGPU_PAGE_BYTES * VGPU_PAGE_BYTES;
    uintptr_t end = mapping->base + mapping->bytes;
    vgpu_poison((void *)mapping->base, from - mapping->base);
    vgpu_poison((void *)to, end - to);
    if (!vgpu_checking) {
        return;
    }
    if (first > mapping->base &&
        mprotect((void *)mapping->base, first - mapping->base, PROT_NONE) == 0) {
        mapping->closed_before = first - mapping->base;
    }
    if (last < end && mprotect((void *)last, end - last, PROT_NONE) == 0) {
        mapping->closed_behind = end - last;
    }
}

static void open_around(const struct vgpu_check_window *window)
{
    for (int m = 0; m < window->members && vgpu_asan(); m++) {
        vgpu_memory_lock();
        const struct vgpu_mapping *mapping =
            vgpu_mapping_find(window->base + (size_t)m * window->stride);
        if (mapping) {
            vgpu_unpoison((void *)mapping->base, mapping->bytes);
        }
        vgpu_memory_unlock();
    }
}

static void close_window(const struct vgpu_check_window *window)
{
    vgpu_memory_lock();
    for (int m = 0; m < window->members; m++) {
        uintptr_t from = window->base + (size_t)m * window->stride;
        struct vgpu_mapping *mapping = vgpu_mapping_find(from);
        if (mapping && mapping->source == VGPU_FROM_VIRTUAL &&
            window->bytes <= mapping->bytes - (from - mapping->base)) {
            close_around(mapping, from, from + window->bytes);
        }
    }
    if (window->multicast && vgpu_checking) {
        vgpu_multimem_forget(); // what was found there so far was not narrowed to the window
    }
    vgpu_memory_unlock();
}

// ---- The table ----------------------------------------------------------------------------------

static struct record **bucket_of(const void *handle)
{
    return &by_handle[(uintptr_t)handle / 256 % HANDLE_BUCKETS];
}

// Under the lock: who owns windows on a device, after that may have changed.
static void find_owner(int device)
{
    int rank = -1;
    bool several = false;
    for (const struct record *r = records; r; r = r->next) {
        if (!r->gone && r->device == device) {
            several |= rank >= 0 && rank != r->window.rank;
            rank = r->window.rank;
        }
    }
    if (device >= 0) {
        atomic_store_explicit(&owner[device], several ? 0 : rank + 1, memory_order_relaxed);
    }
}

// Under the lock: drops the oldest gone record.
static void drop_oldest(void)
{
    struct record **oldest = NULL;
    for (struct record **link = &records; *link; link = &(*link)->next) {
        oldest = (*link)->gone ? link : oldest;
    }
    if (oldest) {
        struct record *record = *oldest;
        struct record **link = bucket_of(record->window.handle);
        while (*link != record) {
            link = &(*link)->next_of_handle;
        }
        *link = record->next_of_handle;
        *oldest = record->next;
        free(record);
        gone_count--;
    }
}

// Under the lock: whether another live record describes the same memory.
static bool is_shared(uintptr_t base)
{
    for (const struct record *r = records; r; r = r->next) {
        if (!r->gone && r->window.base == base) {
            return true;
        }
    }
    return false;
}

void vgpuCheckWindowMade(const struct vgpu_check_window *window)
{
    struct record *record = calloc(1, sizeof(*record));
    if (!record) {
        return; // a report will be the poorer
    }
    record->window = *window;
    (void)snprintf(record->name, sizeof(record->name), "%s", window->name);
    record->window.name = record->name;
    struct vgpu_device *device = vgpu_current_device();
    record->device = device ? device->ordinal : -1;
    pthread_mutex_lock(&lock);
    bool shared = is_shared(window->base);
    struct record **bucket = bucket_of(window->handle);
    record->next_of_handle = *bucket;
    *bucket = record;
    record->next = records;
    records = record;
    find_owner(record->device);
    pthread_mutex_unlock(&lock);
    if (!shared) {
        close_window(window);
    }
}

void vgpuCheckWindowGone(const void *handle)
{
    struct vgpu_check_window window = {0};
    bool last = false;
    pthread_mutex_lock(&lock);
    for (struct record *r = records; r; r = r->next) {
        if (!r->gone && r->window.handle == handle) {
            r->gone = true;
            window = r->window;
            last = !is_shared(window.base);
            find_owner(r->device);
            gone_count++;
            break;
        }
    }
    if (gone_count > GONE_KEPT) {
        drop_oldest();
    }
    pthread_mutex_unlock(&lock);
    if (last) {
        open_around(&window);
        vgpu_check_forget_barriers(window.base, window.stride * (size_t)window.members);
    }
}

// ---- Addresses ----------------------------------------------------------------------------------

// How far an address is from a piece of memory: 0 inside.
struct nearness {
    size_t distance;
    bool before;
    const struct record *record;
    int member;     // -1: the multicast view; -2: the owner's own address
    uintptr_t base; // of the piece
};

// Addresses further away from a window have nothing to do with it, unless they lie between copies.
static const size_t REACH = (size_t)4 << 20;

static void consider(struct nearness *best, const struct record *record, int member, uintptr_t base,
                     uintptr_t address)
{
    size_t bytes = record->window.bytes;
    bool before = address < base;
    size_t distance = before                   ? base - address
                      : address - base < bytes ? 0
                                               : address - base - bytes + 1;
    bool between = member >= 0 && address - record->window.base <
                                      record->window.stride * (size_t)record->window.members;
    distance = between && distance >= REACH ? REACH - 1 : distance;
    bool nearer = distance < best->distance || (distance == best->distance && best->record &&
                                                best->record->gone && !record->gone);
    if (nearer) {
        *best = (struct nearness){distance, before, record, member, base};
    }
}

// Under the lock: the window's piece that is nearest to an address.
static struct nearness find_nearest(uintptr_t address)
{
    struct nearness best = {.distance = REACH};
    for (const struct record *r = records; r; r = r->next) {
        const struct vgpu_check_window *w = &r->window;
        size_t span = w->stride * (size_t)w->members;
        if (address - w->base < span) {
            size_t member = (address - w->base) / w->stride;
            consider(&best, r, (int)member, w->base + member * w->stride, address);
            if (member + 1 < (size_t)w->members) {
                consider(&best, r, (int)member + 1, w->base + (member + 1) * w->stride, address);
            }
        } else if (address < w->base) {
            consider(&best, r, 0, w->base, address);
        } else {
            consider(&best, r, w->members - 1, w->base + span - w->stride, address);
        }
        if (w->multicast) {
            consider(&best, r, -1, w->multicast, address);
        }
        if (w->local) {
            consider(&best, r, -2, w->local, address);
        }
    }
    return best;
}

// Under the lock: the window at whose handle, which kernels read, the address lies; NULL: none.
static const struct record *find_handle(uintptr_t address)
{
    enum { HANDLE_BYTES = 64 };
    const struct record *found = NULL;
    for (const struct record *r = records; r && !found; r = r->next) {
        found = address - (uintptr_t)r->window.handle < HANDLE_BYTES ? r : NULL;
    }
    return found;
}

void vgpu_check_describe_address(uintptr_t address, char *out, size_t bytes)
{
    out[0] = '\0';
    pthread_mutex_lock(&lock);
    const struct record *handle = find_handle(address);
    struct nearness near = find_nearest(address);
    if (handle) {
        (void)snprintf(out, bytes, ": the handle of %s of rank %d%s", handle->name,
                       handle->window.rank, handle->gone ? ", which has been deregistered" : "");
    } else if (near.record) {
        const struct vgpu_check_window *w = &near.record->window;
        char piece[64];
        if (near.member >= 0) {
            (void)snprintf(piece, sizeof(piece), "rank %d's copy", w->first_rank + near.member);
        } else {
            (void)snprintf(piece, sizeof(piece), "%s",
                           near.member == -1 ? "the multimem view"
                                             : "the memory that was registered");
        }
        const char *state = near.record->gone ? ", which has been deregistered" : "";
        if (near.distance == 0) {
            (void)snprintf(out, bytes, ": offset %zu in %s of %s%s (base 0x%lx, %zu bytes)",
                           (size_t)(address - near.base), piece, w->name, state,
                           (unsigned long)near.base, w->bytes);
        } else if (near.before) {
            (void)snprintf(
                out, bytes, ": %zu bytes before the start of %s of %s%s (base 0x%lx, %zu bytes)",
                near.distance, piece, w->name, state, (unsigned long)near.base, w->bytes);
        } else {
            (void)snprintf(out, bytes,
                           ": offset %zu, beyond the end of %s of %s%s (base 0x%lx, %zu bytes)",
                           (size_t)(address - near.base), piece, w->name, state,
                           (unsigned long)near.base, w->bytes);
        }
    }
    pthread_mutex_unlock(&lock);
}

bool vgpu_check_is_closed(uintptr_t address, size_t bytes, char *out, size_t out_bytes)
{
    bool closed = false;
    pthread_mutex_lock(&lock);
    for (const struct record *r = records; r && !closed && bytes > 0; r = r->next) {
        const struct vgpu_check_window *w = &r->window;
        size_t at = address - w->base;
        if (!r->gone && at < w->stride * (size_t)w->members) {
            size_t offset = at % w->stride;
            closed = offset >= w->bytes || bytes > w->bytes - offset;
        }
    }
    pthread_mutex_unlock(&lock);
    if (closed) {
        vgpu_check_describe_address(address + bytes - 1, out, out_bytes);
    }
    return closed;
}

void vgpu_check_narrow(uintptr_t *low, uintptr_t *high)
{
    pthread_mutex_lock(&lock);
    for (const struct record *r = records; r; r = r->next) {
        uintptr_t base = r->window.multicast;
        if (!r->gone && base && base >= *low && base < *high) {
            *low = base;
            *high = r->window.bytes < *high - base ? base + r->window.bytes : *high;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

// ---- Ranks --------------------------------------------------------------------------------------

int vgpu_check_rank_in(const void *arguments, size_t bytes)
{
    int rank = -1;
    pthread_mutex_lock(&lock);
    for (size_t at = 0; records && rank < 0 && at + sizeof(void *) <= bytes; at += sizeof(void *)) {
        const void *word;
        memcpy(&word, (const char *)arguments + at, sizeof(word));
        for (const struct record *r = *bucket_of(word); r && rank < 0; r = r->next_of_handle) {
            rank = r->window.handle == word ? r->window.rank : -1;
        }
    }
    pthread_mutex_unlock(&lock);
    return rank;
}

int vgpu_check_rank_on(int device)
{
    return atomic_load_explicit(&owner[device], memory_order_relaxed) - 1;
}

int vgpu_check_device_of(const void *address, int rank)
{
    int device = -1;
    pthread_mutex_lock(&lock);
    for (const struct record *r = records; r && device < 0; r = r->next) {
        size_t span = r->window.stride * (size_t)r->window.members;
        if (!r->gone && r->window.rank == rank && (uintptr_t)address - r->window.base < span) {
            device = r->device;
        }
    }
    pthread_mutex_unlock(&lock);
    return device;
}
