// Marks for a picture of a run: phases by device and block, in one array.
//
// Workers add events without a lock; the array is replaced only by vgpuTraceStart, which its caller
// runs while no kernel does. SPDX-License-Identifier: Apache-2.0
#include "vgpu/trace.h"

#include "block.h"
#include "pool.h"

#include <stdlib.h>

static atomic_bool recording;
static struct vgpu_trace_event *recorded; // [capacity]; written while `recording`
static size_t recorded_capacity;
static atomic_size_t recorded_count; // may exceed the capacity: the rest was dropped

int vgpuTraceStart(size_t capacity)
{
    atomic_store(&recording, false);
    struct vgpu_trace_event *events = calloc(capacity ? capacity : 1, sizeof(*events));
    if (!events) {
        return -1;
    }
    free(recorded);
    recorded = events;
    recorded_capacity = capacity;
    atomic_store(&recorded_count, 0);
    atomic_store(&recording, true);
    return 0;
}

size_t vgpuTraceStop(const struct vgpu_trace_event **events)
{
    atomic_store(&recording, false);
    size_t count = atomic_load(&recorded_count);
    if (events) {
        *events = recorded;
    }
    return count < recorded_capacity ? count : recorded_capacity;
}

static void end_phase(struct vgpu_block *block, uint64_t now)
{
    const char *phase = block->phase;
    block->phase = NULL;
    if (!phase || !atomic_load_explicit(&recording, memory_order_acquire)) {
        return;
    }
    size_t place = atomic_fetch_add_explicit(&recorded_count, 1, memory_order_relaxed);
    if (place >= recorded_capacity) {
        return;
    }
    recorded[place] = (struct vgpu_trace_event){
        .device = block->launch->operation.device->ordinal,
        .worker = block->worker->number,
        .block = (unsigned)block->number,
        .kernel = block->launch->name,
        .phase = phase,
        .begin_ns = block->phase_begin_ns,
        .end_ns = now,
    };
}

void vgpu_trace_block_end(struct vgpu_block *block)
{
    if (block->phase) {
        end_phase(block, vgpu_now_ns());
    }
}

// The first thread speaks for its block.
void vgpu_mark(const char *phase)
{
    struct vgpu_thread *thread = vgpu_current_thread;
    if (!atomic_load_explicit(&recording, memory_order_relaxed) || !thread || thread->linear != 0 ||
        thread->block->phase == phase) {
        return;
    }
    uint64_t now = vgpu_now_ns();
    end_phase(thread->block, now);
    thread->block->phase = phase;
    thread->block->phase_begin_ns = now;
}
