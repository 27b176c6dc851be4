// Which windows a rank has: a sorted table for look-ups by address on the host, the same in device
// memory for kernels, and the process's list of handles.
// SPDX-License-Identifier: Apache-2.0
#include "comm/comm.h"
#include "window/window_internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK_ENTRIES =
        sizeof((struct ncclDevCommWindowTable *)0)->entries / sizeof(struct ncclDevCommWindowEntry)
};

// ---- The process's handles
// -------------------------------------------------------------------------------------------------

static pthread_mutex_t handles_lock = PTHREAD_MUTEX_INITIALIZER; // guards the list and its links
static struct tt_registered *handles;

void tt_handles_add(struct tt_registered *registered)
{
    (void)pthread_mutex_lock(&handles_lock);
    registered->next = handles;
    handles = registered;
    (void)pthread_mutex_unlock(&handles_lock);
}

void tt_handles_remove(struct tt_registered *registered)
{
    (void)pthread_mutex_lock(&handles_lock);
    for (struct tt_registered **link = &handles; *link != NULL; link = &(*link)->next) {
        if (*link == registered) {
            *link = registered->next;
            break;
        }
    }
    (void)pthread_mutex_unlock(&handles_lock);
}

// With the lock held.
static struct tt_registered *find(ncclWindow_t handle)
{
    struct tt_registered *registered = handles;
    while (registered != NULL && registered->window.handle != handle) {
        registered = registered->next;
    }
    return registered;
}

bool tt_handles_read(ncclWindow_t handle, struct tt_registered *out)
{
    (void)pthread_mutex_lock(&handles_lock);
    const struct tt_registered *registered = find(handle);
    if (registered != NULL) {
        *out = *registered;
    }
    (void)pthread_mutex_unlock(&handles_lock);
    return registered != NULL;
}

struct tt_registered *tt_handles_take(ncclWindow_t handle, const struct ncclComm *comm)
{
    (void)pthread_mutex_lock(&handles_lock);
    struct tt_registered *registered = find(handle);
    if (registered != NULL && (registered->comm != comm || registered->window.number == 0)) {
        registered = NULL;
    }
    for (struct tt_registered **link = &handles; registered != NULL && *link != NULL;
         link = &(*link)->next) {
        if (*link == registered) {
            *link = registered->next;
            break;
        }
    }
    (void)pthread_mutex_unlock(&handles_lock);
    return registered;
}

int tt_handles_of(const struct tt_windows *windows, struct tt_registered ***list_out)
{
    int count = 0;
    (void)pthread_mutex_lock(&handles_lock);
    for (struct tt_registered *r = handles; r != NULL; r = r->next) {
        count += r->windows == windows;
    }
    struct tt_registered **list = calloc((size_t)count + 1, sizeof(struct tt_registered *));
    int left = list != NULL ? count : 0;
    for (struct tt_registered *r = handles; left > 0; r = r->next) {
        if (r->windows == windows) {
            list[--left] = r; // the list of handles has the newest first
        }
    }
    (void)pthread_mutex_unlock(&handles_lock);
    *list_out = list;
    return list != NULL ? count : -1;
}

// ---- A rank's windows
// ------------------------------------------------------------------------------------------------------

struct tt_windows *tt_windows_get(struct ncclComm *comm, struct tt_verdict *verdict)
{
    if (comm->windows != NULL) {
        return comm->windows;
    }
    struct tt_windows *windows = calloc(1, sizeof *windows);
    if (windows == NULL) {
        tt_verdict_fail(verdict, ncclSystemError, "no memory for the table of windows");
        return NULL;
    }
    if (!tt_verdict_cuda(verdict,
                         cudaStreamCreateWithFlags(&windows->stream, cudaStreamNonBlocking),
                         "cudaStreamCreateWithFlags")) {
        free(windows);
        return NULL;
    }
    windows->device = comm->cuda_device;
    comm->windows = windows;
    return windows;
}

bool tt_windows_upload(struct tt_windows *windows, void *device, const void *host, size_t bytes,
                       struct tt_verdict *verdict)
{
    return tt_verdict_cuda(
               verdict,
               cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, windows->stream),
               "cudaMemcpyAsync") &&
           tt_verdict_cuda(verdict, cudaStreamSynchronize(windows->stream),
                           "cudaStreamSynchronize");
}

// Index of the first range above `base`.
static int upper_bound(const struct tt_windows *windows, uintptr_t base)
{
    int low = 0;
    int high = windows->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (windows->range[middle].base <= base) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void insert_range(struct tt_windows *windows, uintptr_t base,
                         struct tt_registered *registered)
{
    int at = upper_bound(windows, base);
    memmove(&windows->range[at + 1], &windows->range[at],
            (size_t)(windows->count - at) * sizeof windows->range[0]);
    windows->range[at] = (struct tt_window_range){base, registered->window.bytes, registered};
    windows->count++;
}

static bool reserve_ranges(struct tt_windows *windows, int more)
{
    if (windows->count + more <= windows->capacity) {
        return true;
    }
    int capacity = windows->capacity * 2 + more + 14;
    struct tt_window_range *range = realloc(windows->range, (size_t)capacity * sizeof *range);
    if (range == NULL) {
        return false;
    }
    windows->range = range;
    windows->capacity = capacity;
    return true;
}

// A free entry in a chunk, which is made and linked where all are full.
static struct tt_table_chunk *chunk_with_room(struct tt_windows *windows, int *index_out,
                                              struct tt_verdict *verdict)
{
    struct tt_table_chunk **link = &windows->chunks;
    struct tt_table_chunk *last = NULL;
    for (; *link != NULL; link = &(*link)->next) {
        last = *link;
        for (int i = 0; i < CHUNK_ENTRIES; i++) {
            if (last->image.entries[i].window == NULL) {
                *index_out = i;
                return last;
            }
        }
    }
    struct tt_table_chunk *chunk = calloc(1, sizeof *chunk);
    if (chunk == NULL) {
        tt_verdict_fail(verdict, ncclSystemError, "no memory for the table of windows");
        return NULL;
    }
    if (!tt_verdict_cuda(verdict, cudaMalloc((void **)&chunk->device, sizeof chunk->image),
                         "cudaMalloc")) {
        free(chunk);
        return NULL;
    }
    bool written =
        tt_windows_upload(windows, chunk->device, &chunk->image, sizeof chunk->image, verdict);
    if (written && last != NULL) {
        last->image.next = chunk->device;
        written =
            tt_windows_upload(windows, last->device, &last->image, sizeof last->image, verdict);
    }
    if (!written) {
        (void)cudaFree(chunk->device);
        free(chunk);
        return NULL;
    }
    *link = chunk;
    *index_out = 0;
    return chunk;
}

struct tt_table_chunk *tt_windows_table(struct tt_windows *windows, struct tt_verdict *verdict)
{
    int index = 0;
    return windows->chunks != NULL ? windows->chunks : chunk_with_room(windows, &index, verdict);
}

bool tt_windows_add(struct tt_windows *windows, struct tt_registered *registered,
                    struct tt_verdict *verdict)
{
    if (!reserve_ranges(windows, 2)) {
        tt_verdict_fail(verdict, ncclSystemError, "no memory for the table of windows");
        return false;
    }
    int index = 0;
    struct tt_table_chunk *chunk = chunk_with_room(windows, &index, verdict);
    if (chunk == NULL) {
        return false;
    }
    const struct tt_window *window = &registered->window;
    struct ncclDevCommWindowEntry *entry = &chunk->image.entries[index];
    *entry = (struct ncclDevCommWindowEntry){(uintptr_t)window->user_pointer, window->bytes,
                                             window->handle};
    if (!tt_windows_upload(windows, &chunk->device->entries[index], entry, sizeof *entry,
                           verdict)) {
        memset(entry, 0, sizeof *entry);
        return false;
    }
    insert_range(windows, (uintptr_t)window->user_pointer, registered);
    insert_range(
        windows,
        (uintptr_t)(window->flat_base + (size_t)registered->image.lsaRank * window->stride),
        registered);
    registered->listed = true;
    return true;
}

void tt_windows_remove(struct tt_windows *windows, const struct tt_registered *registered)
{
    int kept = 0;
    for (int i = 0; i < windows->count; i++) {
        if (windows->range[i].registered != registered) {
            windows->range[kept++] = windows->range[i];
        }
    }
    windows->count = kept;
    struct tt_verdict ignored = {0};
    for (struct tt_table_chunk *chunk = windows->chunks; chunk != NULL; chunk = chunk->next) {
        for (int i = 0; i < CHUNK_ENTRIES; i++) {
            struct ncclDevCommWindowEntry *entry = &chunk->image.entries[i];
            if (entry->window == registered->window.handle) {
                memset(entry, 0, sizeof *entry);
                (void)tt_windows_upload(windows, &chunk->device->entries[i], entry, sizeof *entry,
                                        &ignored);
            }
        }
    }
}

const struct tt_window *tt_window_find(const struct ncclComm *comm, const void *pointer,
                                       size_t bytes, size_t *offset_out)
{
    const struct tt_windows *windows = comm->windows;
    uintptr_t address = (uintptr_t)pointer;
    // Windows may overlap: of those that hold the bytes, the one that starts last, and the oldest
    // of those.
    const struct tt_window_range *found = NULL;
    for (int i = windows != NULL ? upper_bound(windows, address) - 1 : -1; i >= 0; i--) {
        const struct tt_window_range *range = &windows->range[i];
        if (found != NULL && range->base != found->base) {
            break;
        }
        uintptr_t offset = address - range->base;
        if (offset <= range->bytes && bytes <= range->bytes - offset) {
            found = range;
        }
    }
    if (found == NULL) {
        return NULL;
    }
    *offset_out = address - found->base;
    return &found->registered->window;
}

size_t tt_windows_memory(const struct ncclComm *comm)
{
    const struct tt_windows *windows = comm->windows;
    size_t bytes = 0;
    for (int i = 0; windows != NULL && i < windows->count; i++) {
        // A window has two ranges; each rank's share of the members' copies is one of them.
        bytes += windows->range[i].registered->flat->span;
    }
    return bytes / 2;
}
