// Events between processes: cudaEventInterprocess and cudaIpc*EventHandle.
//
// Such an event is a page of shared memory with two numbers: how often it was recorded, and the
// greatest record that is done. A stream that waits polls them as a block of the pool, beside
// kernels. A handle names the page's descriptor in the process that made the event, with its inode
// and random key, as handles of memory do. SPDX-License-Identifier: Apache-2.0
#include "backing.h"
#include "cuda_runtime_api.h"
#include "error.h"
#include "event.h"
#include "launch.h"
#include "memory.h"
#include "pool.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { LOOKS_PER_CHECK = 4096, SLEEP_NS = 50000 };

// What is in the page. Both numbers: written by any process with seq_cst.
struct page {
    atomic_ullong recorded;
    atomic_ullong done;
    atomic_int recorder; // the process of the newest record
};

struct vgpu_shared_event {
    atomic_uint references; // the event's, and one for each record and wait under way
    struct vgpu_backing *backing;
    struct page *page;
};

struct handle {
    uint32_t magic;
    int32_t pid, fd;
    uint32_t padding;
    uint64_t inode;
    unsigned char key[16];
    unsigned char spare[24];
};
_Static_assert(sizeof(struct handle) == CUDA_IPC_HANDLE_SIZE, "a handle fills CUDA's structure");
enum { HANDLE_MAGIC = 0x76697065 };

// ---- Making -------------------------------------------------------------------------------------

// Takes over the backing. Under the memory lock.
static cudaError_t map_event(const char *function, struct vgpu_backing *backing,
                             struct vgpu_shared_event **shared_out)
{
    struct vgpu_shared_event *made = malloc(sizeof(*made));
    void *page =
        made ? vgpu_backing_map(backing, NULL, VGPU_PAGE_BYTES, 0, PROT_READ | PROT_WRITE) : NULL;
    if (!page) {
        cudaError_t error = vgpu_fail_limit(function, "no memory for an event", errno);
        free(made);
        vgpu_backing_release(backing);
        return error;
    }
    atomic_init(&made->references, 1);
    made->backing = backing;
    made->page = page;
    *shared_out = made;
    return cudaSuccess;
}

cudaError_t vgpu_shared_event_new(const char *function, struct vgpu_shared_event **shared_out)
{
    struct vgpu_label label = {.kind = VGPU_BACKING_EVENT, .bytes = VGPU_PAGE_BYTES};
    struct vgpu_backing *backing = NULL;
    vgpu_memory_lock();
    cudaError_t error = vgpu_backing_create(function, "vgpu-event", &label, -1, &backing);
    if (error == cudaSuccess) {
        error = map_event(function, backing, shared_out);
    }
    vgpu_memory_unlock();
    return error;
}

void vgpu_shared_event_release(struct vgpu_shared_event *shared)
{
    if (!shared || atomic_fetch_sub(&shared->references, 1) > 1) {
        return;
    }
    munmap(shared->page, VGPU_PAGE_BYTES);
    vgpu_memory_lock();
    vgpu_backing_release(shared->backing);
    vgpu_memory_unlock();
    free(shared);
}

static struct vgpu_shared_event *retain(struct vgpu_shared_event *shared)
{
    atomic_fetch_add(&shared->references, 1);
    return shared;
}

// ---- Recording ----------------------------------------------------------------------------------

struct record {
    struct vgpu_operation operation; // first
    struct vgpu_shared_event *shared;
    unsigned long long number;
};

static void finish_record(struct vgpu_operation *operation)
{
    struct record *record = (struct record *)operation;
    atomic_ullong *done = &record->shared->page->done;
    unsigned long long seen = atomic_load(done);
    while (seen < record->number && !atomic_compare_exchange_weak(done, &seen, record->number)) {
    }
    vgpu_operation_complete(operation);
}

static void destroy_record(struct vgpu_operation *operation)
{
    vgpu_shared_event_release(((struct record *)operation)->shared);
    free(operation);
}

struct vgpu_operation *vgpu_shared_event_recorder(struct vgpu_shared_event *shared,
                                                  struct vgpu_device *device)
{
    struct record *record = malloc(sizeof(*record));
    if (!record) {
        return NULL;
    }
    vgpu_operation_init(&record->operation, device, finish_record, destroy_record);
    record->operation.always_starts = true; // who waits must not wait for a failed device
    record->shared = retain(shared);
    atomic_store(&shared->page->recorder, getpid());
    record->number = atomic_fetch_add(&shared->page->recorded, 1) + 1;
    return &record->operation;
}

// ---- Waiting ------------------------------------------------------------------------------------

static bool is_done(const struct vgpu_shared_event *shared, unsigned long long number)
{
    return atomic_load(&shared->page->done) >= number;
}

bool vgpu_shared_event_done(struct vgpu_shared_event *shared)
{
    return is_done(shared, atomic_load(&shared->page->recorded));
}

// cudaErrorUnknown where the process that the record is of has ended: it never completes.
static cudaError_t check_recorder(const char *function, const struct vgpu_shared_event *shared,
                                  unsigned long long number)
{
    int pid = atomic_load(&shared->page->recorder);
    if (kill(pid, 0) == 0 || errno != ESRCH || is_done(shared, number)) {
        return cudaSuccess;
    }
    return vgpu_fail(cudaErrorUnknown,
                     "%s: process %d, which recorded the event, ended before its work did",
                     function, pid);
}

struct wait {
    struct vgpu_shared_event *shared;
    unsigned long long number;
};

// Runs as a block.
static cudaError_t run_wait(void *argument)
{
    const struct wait *wait = argument;
    cudaError_t error = cudaSuccess;
    for (unsigned looks = 1; error == cudaSuccess && !is_done(wait->shared, wait->number);
         looks++) {
        if (looks % LOOKS_PER_CHECK == 0) {
            error = check_recorder("cudaStreamWaitEvent", wait->shared, wait->number);
        }
        vgpu_yield();
    }
    vgpu_shared_event_release(wait->shared);
    return error;
}

cudaError_t vgpu_shared_event_hold_up(const char *function, struct vgpu_shared_event *shared,
                                      cudaStream_t stream)
{
    struct wait wait = {shared, atomic_load(&shared->page->recorded)};
    if (is_done(shared, wait.number)) {
        return cudaSuccess;
    }
    retain(shared);
    cudaError_t error = vgpu_stream_submit(stream, cudaGraphNodeTypeWaitEvent, function, run_wait,
                                           &wait, sizeof(wait));
    if (error != cudaSuccess) {
        vgpu_shared_event_release(shared);
    }
    return error;
}

cudaError_t vgpu_shared_event_wait(const char *function, struct vgpu_shared_event *shared)
{
    unsigned long long number = atomic_load(&shared->page->recorded);
    cudaError_t error = cudaSuccess;
    for (unsigned looks = 1; error == cudaSuccess && !is_done(shared, number); looks++) {
        struct timespec pause = {0, SLEEP_NS};
        (void)nanosleep(&pause, NULL);
        if (looks % 64 == 0) {
            error = check_recorder(function, shared, number);
        }
    }
    return error;
}

// ---- CUDA's functions ---------------------------------------------------------------------------

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event)
{
    static const char *const function = "cudaIpcGetEventHandle";
    struct vgpu_event *found = NULL;
    cudaError_t error = vgpu_event_find(function, event, &found);
    if (error != cudaSuccess) {
        return error;
    }
    if (!handle || !found->shared || found->shared->backing->imported) {
        return vgpu_fail(handle ? cudaErrorInvalidResourceHandle : cudaErrorInvalidValue, "%s: %s",
                         function,
                         !handle          ? "the place for the handle is NULL"
                         : !found->shared ? "the event was made without cudaEventInterprocess"
                                          : "the event is another process's");
    }
    const struct vgpu_backing *backing = found->shared->backing;
    struct handle made = {.magic = HANDLE_MAGIC, .pid = getpid()};
    made.fd = backing->fd;
    made.inode = backing->inode;
    memcpy(made.key, backing->label.key, sizeof(made.key));
    memcpy(handle, &made, sizeof(made));
    return cudaSuccess;
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle)
{
    static const char *const function = "cudaIpcOpenEventHandle";
    struct handle wanted;
    memcpy(&wanted, &handle, sizeof(wanted));
    if (!event || wanted.magic != HANDLE_MAGIC) {
        return vgpu_fail(event ? cudaErrorInvalidResourceHandle : cudaErrorInvalidValue, "%s: %s",
                         function,
                         event ? "these 64 bytes are not a handle of cudaIpcGetEventHandle"
                               : "the place for the event is NULL");
    }
    if (wanted.pid == getpid()) {
        return vgpu_fail(cudaErrorDeviceUninitialized,
                         "%s: the event is this process's own; use it itself", function);
    }
    struct vgpu_backing *backing = NULL;
    struct vgpu_shared_event *shared = NULL;
    vgpu_memory_lock();
    cudaError_t error =
        vgpu_backing_open(function, wanted.pid, wanted.fd, wanted.inode, wanted.key, &backing);
    if (error == cudaSuccess &&
        (backing->label.kind != VGPU_BACKING_EVENT || backing->label.bytes != VGPU_PAGE_BYTES)) {
        vgpu_backing_release(backing);
        error =
            vgpu_fail(cudaErrorInvalidResourceHandle, "%s: the handle is of no event", function);
    }
    if (error == cudaSuccess) {
        error = map_event(function, backing, &shared);
    }
    vgpu_memory_unlock();
    if (error != cudaSuccess) {
        return error;
    }
    return vgpu_event_new(function, cudaEventInterprocess | cudaEventDisableTiming, shared, event);
}
