// Flattening of graphs, and comparing flat ones. SPDX-License-Identifier: Apache-2.0
#include "graph_flat.h"

#include "error.h"

#include <stdlib.h>

enum { FIRST_CAPACITY = 16 };

static bool grow(void **list, size_t *capacity, size_t element_bytes)
{
    size_t wanted = *capacity ? 2 * *capacity : FIRST_CAPACITY;
    void *more = realloc(*list, wanted * element_bytes);
    if (more) {
        *list = more;
        *capacity = wanted;
    }
    return more != NULL;
}

// Adds an item that comes behind nothing yet. False: no memory.
static bool add_item(struct vgpu_flat *flat, struct vgpu_node *node)
{
    void *list = flat->item;
    if (flat->count == flat->capacity && !grow(&list, &flat->capacity, sizeof(*flat->item))) {
        return false;
    }
    flat->item = list;
    flat->item[flat->count++] = (struct vgpu_flat_item){node, 0, flat->before_count, 0};
    return true;
}

// Puts the last item behind another. False: no memory.
static bool add_before(struct vgpu_flat *flat, size_t index)
{
    void *list = flat->before;
    if (flat->before_count == flat->before_capacity &&
        !grow(&list, &flat->before_capacity, sizeof(size_t))) {
        return false;
    }
    flat->before = list;
    flat->before[flat->before_count++] = index;
    flat->item[flat->count - 1].before_count++;
    return true;
}

static cudaError_t flatten(const char *function, const struct vgpu_graph *graph,
                           struct vgpu_flat *flat);

// The node's items, behind its predecessors' or the entry. exits: of the nodes in the order so far.
static cudaError_t add_node(const char *function, struct vgpu_flat *flat, struct vgpu_node *node,
                            size_t entry, size_t *exits)
{
    bool enough = add_item(flat, node);
    for (size_t i = 0; enough && i < node->before.count; i++) {
        enough = add_before(flat, exits[node->before.node[i]->position]);
    }
    if (enough && node->before.count == 0) {
        enough = add_before(flat, entry);
    }
    if (!enough) {
        return vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory for the graph", function);
    }
    cudaError_t error = node->child ? flatten(function, node->child, flat) : cudaSuccess;
    exits[node->position] = flat->count - 1;
    return error;
}

// Adds the graph's nodes and its exit behind the last item, which is its entry.
static cudaError_t flatten(const char *function, const struct vgpu_graph *graph,
                           struct vgpu_flat *flat)
{
    size_t entry = flat->count - 1;
    struct vgpu_node **order = NULL;
    cudaError_t error = vgpu_graph_order(function, graph, &order);
    if (error != cudaSuccess) {
        return error;
    }
    size_t *exits = malloc((graph->node_count + 1) * sizeof(*exits));
    if (!exits) {
        error = vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory for the graph", function);
    }
    for (size_t i = 0; error == cudaSuccess && i < graph->node_count; i++) {
        error = add_node(function, flat, order[i], entry, exits);
    }
    bool enough = error == cudaSuccess && add_item(flat, NULL);
    bool empty = true;
    for (size_t i = 0; enough && i < graph->node_count; i++) {
        if (order[i]->after.count == 0) {
            enough = add_before(flat, exits[i]);
            empty = false;
        }
    }
    if (enough && empty) {
        enough = add_before(flat, entry);
    }
    if (enough) {
        flat->item[entry].exit = flat->count - 1;
    } else if (error == cudaSuccess) {
        error = vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory for the graph", function);
    }
    free(exits);
    free(order);
    return error;
}

cudaError_t vgpu_flatten(const char *function, const struct vgpu_graph *graph,
                         struct vgpu_flat *flat)
{
    if (!add_item(flat, NULL)) {
        return vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory for the graph", function);
    }
    return flatten(function, graph, flat);
}

void vgpu_flat_free(struct vgpu_flat *flat)
{
    free(flat->item);
    free(flat->before);
    *flat = (struct vgpu_flat){NULL, 0, 0, NULL, 0, 0};
}

// ---- Comparing ----------------------------------------------------------------------------------

static enum cudaGraphExecUpdateResult compare_nodes(const struct vgpu_node *one,
                                                    const struct vgpu_node *other)
{
    if (!one || !other) {
        return one == other ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateErrorTopologyChanged;
    }
    if (vgpu_node_type(one) != vgpu_node_type(other)) {
        return cudaGraphExecUpdateErrorNodeTypeChanged;
    }
    return one->work && one->work->device != other->work->device
               ? cudaGraphExecUpdateErrorParametersChanged
               : cudaGraphExecUpdateSuccess;
}

enum cudaGraphExecUpdateResult vgpu_flat_compare(const struct vgpu_flat *flat, size_t at,
                                                 const struct vgpu_flat *other,
                                                 const struct vgpu_flat_item **item_out)
{
    *item_out = NULL;
    if (flat->item[at].exit - at + 1 != other->count) {
        return cudaGraphExecUpdateErrorTopologyChanged;
    }
    for (size_t i = 1; i < other->count; i++) {
        const struct vgpu_flat_item *mine = &flat->item[at + i];
        const struct vgpu_flat_item *theirs = &other->item[i];
        enum cudaGraphExecUpdateResult result = compare_nodes(mine->node, theirs->node);
        bool same = mine->before_count == theirs->before_count;
        for (size_t k = 0; same && k < mine->before_count; k++) {
            same = flat->before[mine->first_before + k] ==
                   at + other->before[theirs->first_before + k];
        }
        if (result != cudaGraphExecUpdateSuccess || !same) {
            *item_out = theirs;
            return result != cudaGraphExecUpdateSuccess ? result
                                                        : cudaGraphExecUpdateErrorTopologyChanged;
        }
    }
    return cudaGraphExecUpdateSuccess;
}
