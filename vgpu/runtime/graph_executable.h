// An executable graph's structure, for graph_executable.c and graph_launch.c.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_GRAPH_EXECUTABLE_H
#define VGPU_RUNTIME_GRAPH_EXECUTABLE_H

#include "graph_flat.h"

struct vgpu_executable {
    struct vgpu_graph *graph; // its own copy
    struct vgpu_flat flat;    // of that copy
    unsigned long long flags;
    struct vgpu_operation *last; // of the newest launch, held; NULL: none. Under the graph's lock
};

// cudaErrorInvalidValue in the name of `function`.
cudaError_t vgpu_executable_find(const char *function, cudaGraphExec_t handle,
                                 struct vgpu_executable **executable_out);

#endif
