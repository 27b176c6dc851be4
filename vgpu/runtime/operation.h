// What streams are made of: operations that wait for each other.
//
// Each operation counts the operations that it still waits for; a completed one tells its
// successors. One lock (in operation.c) guards the graph; host threads wait without it.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_OPERATION_H
#define VGPU_RUNTIME_OPERATION_H

#include "device.h"

struct vgpu_operation {
    struct vgpu_device *device;
    struct vgpu_stream *stream; // counted from submission to completion; NULL before and after
    // Starts the work; called once, without the lock, when everything before is complete. Whoever
    // ends the work calls vgpu_operation_complete. NULL: a marker, complete when it is reached.
    void (*start)(struct vgpu_operation *operation);
    void (*destroy)(struct vgpu_operation *operation); // frees it
    // Called without the lock when its work is over, before anybody sees that it is done. error: of
    // the device, which may have dropped the work. NULL: nobody wants to know.
    void (*ended)(struct vgpu_operation *operation, cudaError_t error);
    bool always_starts; // also when the device has failed; others are then complete at once

    atomic_uint references;
    atomic_uint done;     // futex: 0, then 1. Release by the completer, acquire by waiters
    atomic_uint sleepers; // host threads in or near the futex
    uint64_t done_ns;     // CLOCK_MONOTONIC; valid once done

    // Under the lock.
    unsigned waiting_for; // operations, plus one during submission
    struct vgpu_operation **successors;
    unsigned successor_count;
    unsigned successor_capacity;
    struct vgpu_operation *next; // in a list of operations to start or end
};

// Sets the fields above for an operation with one reference.
void vgpu_operation_init(struct vgpu_operation *operation, struct vgpu_device *device,
                         void (*start)(struct vgpu_operation *),
                         void (*destroy)(struct vgpu_operation *));
void vgpu_operation_hold(struct vgpu_operation *operation);
void vgpu_operation_release(struct vgpu_operation *operation);
// The work is done: starts what waited for it and wakes who waits. Takes the lock.
void vgpu_operation_complete(struct vgpu_operation *operation);
static inline bool vgpu_operation_done(struct vgpu_operation *operation)
{
    return atomic_load_explicit(&operation->done, memory_order_acquire) != 0;
}
// Waits for it: looks for some microseconds, then sleeps.
void vgpu_operation_wait(struct vgpu_operation *operation);

// ---- For streams --------------------------------------------------------------------------------

void vgpu_graph_lock(void);
void vgpu_graph_unlock(void);
// Under the lock: `later` waits for `earlier`, unless that is NULL or done. False: no memory.
bool vgpu_operation_follow(struct vgpu_operation *later, struct vgpu_operation *earlier);
// Ends the submission that vgpu_operation_init began: starts the operation if it waits for nothing.
// Without the lock.
void vgpu_operation_submitted(struct vgpu_operation *operation);

#endif
