// An event's structure, for event.c, event_shared.c and event_work.c.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_EVENT_H
#define VGPU_RUNTIME_EVENT_H

#include "capture.h"

struct vgpu_shared_event;

struct vgpu_event {
    struct vgpu_device *device;
    unsigned flags;
    // Under the graph's lock.
    struct vgpu_operation *recorded;  // held; NULL: never recorded, or in a capture
    struct vgpu_captured captured;    // what the last record was, in a capture
    struct vgpu_shared_event *shared; // between processes; NULL: not. Constant
};

// cudaErrorInvalidResourceHandle in the name of `function`.
cudaError_t vgpu_event_find(const char *function, cudaEvent_t handle,
                            struct vgpu_event **event_out);
// A new event of the current device, known as a handle. Takes over `shared`, also where it fails.
cudaError_t vgpu_event_new(const char *function, unsigned flags, struct vgpu_shared_event *shared,
                           cudaEvent_t *event_out);
// A new operation of `device` which is what the event stands for from now on. NULL: no memory.
struct vgpu_operation *vgpu_event_recorder(struct vgpu_event *event, struct vgpu_device *device);
// The operation of the last record, held; NULL: none.
struct vgpu_operation *vgpu_event_hold_recorded(struct vgpu_event *event);

// ---- Between processes (event_shared.c) ---------------------------------------------------------

cudaError_t vgpu_shared_event_new(const char *function, struct vgpu_shared_event **shared_out);
void vgpu_shared_event_release(struct vgpu_shared_event *shared); // accepts NULL
// An operation that says to all processes when it is done, and whose number is the last. NULL: no
// memory.
struct vgpu_operation *vgpu_shared_event_recorder(struct vgpu_shared_event *shared,
                                                  struct vgpu_device *device);
// Whether the last record, in any process, is done.
bool vgpu_shared_event_done(struct vgpu_shared_event *shared);
// Waits for that. cudaErrorUnknown where the process that recorded it has ended.
cudaError_t vgpu_shared_event_wait(const char *function, struct vgpu_shared_event *shared);
// Lets the stream wait for what is the last record now.
cudaError_t vgpu_shared_event_hold_up(const char *function, struct vgpu_shared_event *shared,
                                      cudaStream_t stream);

#endif
