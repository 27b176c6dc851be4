// A graph as one list in which everything comes behind what it waits for, child graphs included:
// what can be launched. SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_GRAPH_FLAT_H
#define VGPU_RUNTIME_GRAPH_FLAT_H

#include "graph.h"

// One entry. A graph, and every child graph, has two of its own around its nodes': the entry, which
// its first nodes come behind, and the exit, which comes behind its last ones. They only order.
struct vgpu_flat_item {
    struct vgpu_node
        *node;           // NULL: an exit, or the entry of the whole; a child's entry has its node
    size_t exit;         // an entry: the index of its exit; else 0
    size_t first_before; // in vgpu_flat.before
    size_t before_count;
};

struct vgpu_flat {
    struct vgpu_flat_item *item; // [count]; the first is the whole's entry, the last its exit
    size_t count, capacity;
    size_t *before; // indices of the items that each comes behind
    size_t before_count, before_capacity;
};

// Fills *flat, which is empty. The caller frees it, also after an error. The nodes stay the
// graph's. cudaErrorInvalidValue where there is a circle, cudaErrorMemoryAllocation.
cudaError_t vgpu_flatten(const char *function, const struct vgpu_graph *graph,
                         struct vgpu_flat *flat);
void vgpu_flat_free(struct vgpu_flat *flat);

// Whether the items of `flat` from index `at` on, an entry to its exit, are ordered as all of
// `other`, with nodes of the same types and devices. *item_out: the first of other's that differs,
// NULL where their number does.
enum cudaGraphExecUpdateResult vgpu_flat_compare(const struct vgpu_flat *flat, size_t at,
                                                 const struct vgpu_flat *other,
                                                 const struct vgpu_flat_item **item_out);

#endif
