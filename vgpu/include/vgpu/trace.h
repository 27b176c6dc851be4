// A record of phases by device and block, for a picture of a run.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_TRACE_H
#define VGPU_TRACE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct vgpu_trace_event {
    int device;     // CUDA device number
    int worker;     // the operating-system thread that ran it
    unsigned block; // linear block index
    const char *kernel;
    const char *phase;         // as given to vgpu_mark
    uint64_t begin_ns, end_ns; // CLOCK_MONOTONIC
};

// Starts recording up to `capacity` events (later ones are dropped and counted); drops what was
// recorded before.
int vgpuTraceStart(size_t capacity);
// Stops and returns the number of events; *events stays valid until the next vgpuTraceStart.
size_t vgpuTraceStop(const struct vgpu_trace_event **events);

#ifdef __cplusplus
}
#endif
#endif
