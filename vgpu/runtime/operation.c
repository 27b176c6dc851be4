// The graph of operations: who waits for whom, who may start, who is done.
// SPDX-License-Identifier: Apache-2.0
#include "operation.h"

#include "futex.h"
#include "pool.h"
#include "stream_internal.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

enum { SPIN_US = 20, FIRST_SUCCESSORS = 4 };

// Guards the edges of all operations, the streams' last operations and the lists of streams.
static pthread_mutex_t graph_lock = PTHREAD_MUTEX_INITIALIZER;

void vgpu_graph_lock(void)
{
    pthread_mutex_lock(&graph_lock);
}

void vgpu_graph_unlock(void)
{
    pthread_mutex_unlock(&graph_lock);
}

void vgpu_operation_init(struct vgpu_operation *operation, struct vgpu_device *device,
                         void (*start)(struct vgpu_operation *),
                         void (*destroy)(struct vgpu_operation *))
{
    *operation = (struct vgpu_operation){
        .device = device, .start = start, .destroy = destroy, .waiting_for = 1};
    atomic_store(&operation->references, 1);
}

void vgpu_operation_hold(struct vgpu_operation *operation)
{
    atomic_fetch_add(&operation->references, 1);
}

void vgpu_operation_release(struct vgpu_operation *operation)
{
    if (operation && atomic_fetch_sub(&operation->references, 1) == 1) {
        free(operation->successors);
        operation->destroy(operation);
    }
}

bool vgpu_operation_follow(struct vgpu_operation *later, struct vgpu_operation *earlier)
{
    if (!earlier || vgpu_operation_done(earlier)) {
        return true;
    }
    if (earlier->successor_count == earlier->successor_capacity) {
        unsigned capacity =
            earlier->successor_capacity ? 2 * earlier->successor_capacity : FIRST_SUCCESSORS;
        struct vgpu_operation **more =
            realloc(earlier->successors, capacity * sizeof(struct vgpu_operation *));
        if (!more) {
            return false;
        }
        earlier->successors = more;
        earlier->successor_capacity = capacity;
    }
    earlier->successors[earlier->successor_count++] = later;
    later->waiting_for++;
    return true;
}

// ---- Starting and ending ------------------------------------------------------------------------

// Lists of operations to deal with, by their `next`.
struct work {
    struct vgpu_operation *to_start;
    struct vgpu_operation *to_end;
    struct vgpu_operation *ended;
};

// Under the lock: the operation waits for nothing any more.
static void sort_ready(struct work *work, struct vgpu_operation *operation)
{
    bool runs =
        operation->start && (operation->always_starts ||
                             atomic_load(&operation->device->sticky_error) == (int)cudaSuccess);
    struct vgpu_operation **list = runs ? &work->to_start : &work->to_end;
    operation->next = *list;
    *list = operation;
}

// Under the lock: the operation is done. What waited for it alone is sorted.
static void end_operation(struct work *work, struct vgpu_operation *operation)
{
    operation->done_ns = vgpu_now_ns();
    atomic_store(&operation->done, 1);
    for (unsigned i = 0; i < operation->successor_count; i++) {
        struct vgpu_operation *later = operation->successors[i];
        if (--later->waiting_for == 0) {
            sort_ready(work, later);
        }
    }
    vgpu_stream_operation_ended(operation);
    operation->next = work->ended;
    work->ended = operation;
}

// Without the lock.
static void tell_end(struct vgpu_operation *operation)
{
    if (operation->ended) {
        operation->ended(operation, (cudaError_t)atomic_load(&operation->device->sticky_error));
    }
}

// Ends and starts everything on the lists, and what becomes ready by that. Called with the lock,
// returns without it.
static void settle(struct work *work)
{
    while (work->to_end) {
        struct vgpu_operation *operation = work->to_end;
        work->to_end = operation->next;
        if (operation->ended) {
            vgpu_graph_unlock();
            tell_end(operation);
            vgpu_graph_lock();
        }
        end_operation(work, operation);
    }
    vgpu_graph_unlock();
    while (work->ended) {
        struct vgpu_operation *operation = work->ended;
        work->ended = operation->next;
        if (atomic_load(&operation->sleepers) > 0) {
            vgpu_futex_wake(&operation->done, INT_MAX);
        }
        vgpu_operation_release(operation); // the submission's reference
    }
    while (work->to_start) {
        struct vgpu_operation *operation = work->to_start;
        work->to_start = operation->next;
        operation->start(operation);
    }
}

void vgpu_operation_complete(struct vgpu_operation *operation)
{
    struct work work = {0};
    tell_end(operation);
    vgpu_graph_lock();
    end_operation(&work, operation);
    settle(&work);
}

void vgpu_operation_submitted(struct vgpu_operation *operation)
{
    struct work work = {0};
    vgpu_graph_lock();
    if (--operation->waiting_for == 0) {
        sort_ready(&work, operation);
    }
    settle(&work);
}

// ---- Waiting ------------------------------------------------------------------------------------

void vgpu_operation_wait(struct vgpu_operation *operation)
{
    if (vgpu_operation_done(operation)) {
        return;
    }
    uint64_t end = vgpu_now_ns() + (uint64_t)SPIN_US * 1000;
    do {
        (void)sched_yield();
        if (vgpu_operation_done(operation)) {
            return;
        }
    } while (vgpu_now_ns() < end);
    atomic_fetch_add(&operation->sleepers, 1);
    while (!vgpu_operation_done(operation)) {
        vgpu_futex_wait(&operation->done, 0, 0);
    }
    atomic_fetch_sub(&operation->sleepers, 1);
}
