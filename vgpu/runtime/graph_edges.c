// What a graph consists of, for programs that ask; and edges that programs add and remove.
// SPDX-License-Identifier: Apache-2.0
#include "graph.h"

#include "cuda_runtime_api.h"
#include "error.h"

#include <string.h>

// ---- CUDA's functions: lists --------------------------------------------------------------------

// Lists are asked for twice: without a place for it, how long it is; then the list, of which as
// much is given as there is room for; room beyond it is cleared.
struct list {
    cudaGraphNode_t *nodes; // NULL: count
    size_t room, used;
};

static void put(struct list *list, const struct vgpu_node *node)
{
    if (list->nodes && list->used < list->room) {
        list->nodes[list->used] = (cudaGraphNode_t)(void *)node;
    }
    list->used++;
}

static void finish(const struct list *list, size_t *count)
{
    for (size_t i = list->used; list->nodes && i < list->room; i++) {
        list->nodes[i] = NULL;
    }
    if (!list->nodes || list->used < list->room) {
        *count = list->used;
    }
}

static cudaError_t no_count(const char *function)
{
    return vgpu_fail(cudaErrorInvalidValue, "%s: the place for the number is NULL", function);
}

static cudaError_t list_nodes(const char *function, cudaGraph_t graph, cudaGraphNode_t *nodes,
                              size_t *count, bool roots)
{
    struct vgpu_graph *found = NULL;
    cudaError_t error = vgpu_graph_find(function, graph, &found);
    if (error != cudaSuccess || !count) {
        return error != cudaSuccess ? error : no_count(function);
    }
    struct list list = {nodes, nodes ? *count : 0, 0};
    for (struct vgpu_node *node = found->first; node; node = node->next) {
        if (!roots || node->before.count == 0) {
            put(&list, node);
        }
    }
    finish(&list, count);
    return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    return list_nodes("cudaGraphGetNodes", graph, nodes, count, false);
}

cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    return list_nodes("cudaGraphGetRootNodes", graph, nodes, count, true);
}

static void clear_edges(cudaGraphEdgeData *edges, size_t count)
{
    if (edges) {
        memset(edges, 0, count * sizeof(*edges));
    }
}

cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to,
                              cudaGraphEdgeData *edges, size_t *count)
{
    struct vgpu_graph *found = NULL;
    cudaError_t error = vgpu_graph_find("cudaGraphGetEdges", graph, &found);
    if (error != cudaSuccess || !count) {
        return error != cudaSuccess ? error : no_count("cudaGraphGetEdges");
    }
    if (!from != !to) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "cudaGraphGetEdges: from at %p, to at %p; both or none must be NULL",
                         (void *)from, (void *)to);
    }
    size_t room = from ? *count : 0;
    struct list sources = {from, room, 0};
    struct list targets = {to, room, 0};
    for (struct vgpu_node *node = found->first; node; node = node->next) {
        for (size_t i = 0; i < node->after.count; i++) {
            put(&sources, node);
            put(&targets, node->after.node[i]);
        }
    }
    clear_edges(edges, room);
    finish(&sources, count);
    finish(&targets, count);
    return cudaSuccess;
}

static cudaError_t list_neighbours(const char *function, cudaGraphNode_t node,
                                   cudaGraphNode_t *nodes, cudaGraphEdgeData *edges, size_t *count)
{
    struct vgpu_node *found = NULL;
    cudaError_t error = vgpu_node_find(function, node, &found);
    if (error != cudaSuccess || !count) {
        return error != cudaSuccess ? error : no_count(function);
    }
    bool before = strcmp(function, "cudaGraphNodeGetDependencies") == 0;
    const struct vgpu_nodes *neighbours = before ? &found->before : &found->after;
    struct list list = {nodes, nodes ? *count : 0, 0};
    for (size_t i = 0; i < neighbours->count; i++) {
        put(&list, neighbours->node[i]);
    }
    clear_edges(edges, list.room);
    finish(&list, count);
    return cudaSuccess;
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *dependencies,
                                         cudaGraphEdgeData *edges, size_t *count)
{
    return list_neighbours("cudaGraphNodeGetDependencies", node, dependencies, edges, count);
}

cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t *dependents,
                                           cudaGraphEdgeData *edges, size_t *count)
{
    return list_neighbours("cudaGraphNodeGetDependentNodes", node, dependents, edges, count);
}

// ---- CUDA's functions: edges --------------------------------------------------------------------

// The two ends of edge i: different nodes of the graph.
static cudaError_t find_ends(const char *function, const struct vgpu_graph *graph,
                             cudaGraphNode_t from, cudaGraphNode_t to, struct vgpu_node *ends[2])
{
    cudaError_t error = vgpu_node_find(function, from, &ends[0]);
    if (error == cudaSuccess) {
        error = vgpu_node_find(function, to, &ends[1]);
    }
    if (error != cudaSuccess) {
        return error;
    }
    if (ends[0]->graph != graph || ends[1]->graph != graph || ends[0] == ends[1]) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: the edge from %p to %p %s", function,
                         (void *)from, (void *)to,
                         ends[0] == ends[1] ? "begins and ends at one node"
                                            : "has an end in another graph");
    }
    return cudaSuccess;
}

static cudaError_t change_edge(const char *function, struct vgpu_node *ends[2], bool add)
{
    bool there = vgpu_nodes_hold(&ends[0]->after, ends[1]);
    if (there == add) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: the edge from %p to %p is %s", function,
                         (void *)ends[0], (void *)ends[1], there ? "there already" : "not there");
    }
    if (!add) {
        vgpu_nodes_remove(&ends[0]->after, ends[1]);
        vgpu_nodes_remove(&ends[1]->before, ends[0]);
        return cudaSuccess;
    }
    return vgpu_node_link(ends[0], ends[1])
               ? cudaSuccess
               : vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory", function);
}

// The ends of many edges.
struct edges {
    const cudaGraphNode_t *from, *to;
    size_t count;
};

static cudaError_t change_edges(const char *function, cudaGraph_t graph, struct edges edges,
                                const cudaGraphEdgeData *data, bool add)
{
    struct vgpu_graph *found = NULL;
    cudaError_t error = vgpu_graph_find(function, graph, &found);
    if (error == cudaSuccess && edges.count > 0 && (!edges.from || !edges.to)) {
        error = vgpu_fail(cudaErrorInvalidValue, "%s: from at %p, to at %p", function,
                          (const void *)edges.from, (const void *)edges.to);
    }
    if (error == cudaSuccess) {
        error = vgpu_check_edges(function, data, edges.count);
    }
    for (size_t i = 0; error == cudaSuccess && i < edges.count; i++) {
        struct vgpu_node *ends[2];
        error = find_ends(function, found, edges.from[i], edges.to[i], ends);
        if (error == cudaSuccess) {
            error = change_edge(function, ends, add);
        }
    }
    return error;
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                     const cudaGraphNode_t *to, const cudaGraphEdgeData *edges,
                                     size_t count)
{
    return change_edges("cudaGraphAddDependencies", graph, (struct edges){from, to, count}, edges,
                        true);
}

cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                        const cudaGraphNode_t *to, const cudaGraphEdgeData *edges,
                                        size_t count)
{
    return change_edges("cudaGraphRemoveDependencies", graph, (struct edges){from, to, count},
                        edges, false);
}
