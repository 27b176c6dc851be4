// The structure of graphs: nodes, edges, copies, and CUDA's functions about them.
// SPDX-License-Identifier: Apache-2.0
#include "graph.h"

#include "cuda_runtime_api.h"
#include "error.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 4 };

// ---- Sets of nodes ------------------------------------------------------------------------------

bool vgpu_nodes_hold(const struct vgpu_nodes *nodes, const struct vgpu_node *node)
{
    for (size_t i = 0; i < nodes->count; i++) {
        if (nodes->node[i] == node) {
            return true;
        }
    }
    return false;
}

static bool append(struct vgpu_nodes *nodes, struct vgpu_node *node)
{
    if (nodes->count == nodes->capacity) {
        size_t capacity = nodes->capacity ? 2 * nodes->capacity : FIRST_CAPACITY;
        struct vgpu_node **more = realloc(nodes->node, capacity * sizeof(struct vgpu_node *));
        if (!more) {
            return false;
        }
        nodes->node = more;
        nodes->capacity = capacity;
    }
    nodes->node[nodes->count++] = node;
    return true;
}

bool vgpu_nodes_add(struct vgpu_nodes *nodes, struct vgpu_node *node)
{
    return vgpu_nodes_hold(nodes, node) || append(nodes, node);
}

bool vgpu_nodes_add_all(struct vgpu_nodes *nodes, const struct vgpu_nodes *more)
{
    for (size_t i = 0; i < more->count; i++) {
        if (!vgpu_nodes_add(nodes, more->node[i])) {
            return false;
        }
    }
    return true;
}

void vgpu_nodes_remove(struct vgpu_nodes *nodes, const struct vgpu_node *node)
{
    for (size_t i = 0; i < nodes->count; i++) {
        if (nodes->node[i] == node) {
            memmove(&nodes->node[i], &nodes->node[i + 1],
                    (nodes->count - i - 1) * sizeof(struct vgpu_node *));
            nodes->count--;
            return;
        }
    }
}

void vgpu_nodes_clear(struct vgpu_nodes *nodes)
{
    free(nodes->node);
    *nodes = (struct vgpu_nodes){NULL, 0, 0};
}

// ---- Nodes --------------------------------------------------------------------------------------

static void free_node(struct vgpu_node *node)
{
    vgpu_work_destroy(node->work);
    vgpu_graph_destroy(node->child);
    vgpu_nodes_clear(&node->before);
    vgpu_nodes_clear(&node->after);
    free(node);
}

static void destroy_node(struct vgpu_node *node)
{
    struct vgpu_graph *graph = node->graph;
    for (size_t i = 0; i < node->before.count; i++) {
        vgpu_nodes_remove(&node->before.node[i]->after, node);
    }
    for (size_t i = 0; i < node->after.count; i++) {
        vgpu_nodes_remove(&node->after.node[i]->before, node);
    }
    *(node->previous ? &node->previous->next : &graph->first) = node->next;
    *(node->next ? &node->next->previous : &graph->last) = node->previous;
    graph->node_count--;
    vgpu_handle_remove(node);
    free_node(node);
}

bool vgpu_node_link(struct vgpu_node *from, struct vgpu_node *to)
{
    if (vgpu_nodes_hold(&to->before, from)) {
        return true;
    }
    if (!append(&to->before, from)) {
        return false;
    }
    if (!append(&from->after, to)) {
        to->before.count--;
        return false;
    }
    return true;
}

struct vgpu_node *vgpu_node_new(struct vgpu_graph *graph, struct vgpu_work *work,
                                struct vgpu_graph *child, const struct vgpu_nodes *before)
{
    static atomic_ullong serial;
    struct vgpu_node *node = calloc(1, sizeof(*node));
    if (!node) {
        vgpu_work_destroy(work);
        vgpu_graph_destroy(child);
        return NULL;
    }
    node->graph = graph;
    node->work = work;
    node->child = child;
    node->serial = atomic_fetch_add(&serial, 1) + 1;
    if (!vgpu_handle_add(node, VGPU_HANDLE_NODE)) {
        free_node(node);
        return NULL;
    }
    node->previous = graph->last;
    *(graph->last ? &graph->last->next : &graph->first) = node;
    graph->last = node;
    graph->node_count++;
    if (child) {
        child->owner = node;
    }
    for (size_t i = 0; before && i < before->count; i++) {
        if (!vgpu_node_link(before->node[i], node)) {
            destroy_node(node);
            return NULL;
        }
    }
    return node;
}

enum cudaGraphNodeType vgpu_node_type(const struct vgpu_node *node)
{
    return node->child ? cudaGraphNodeTypeGraph : node->work->type;
}

// ---- Graphs -------------------------------------------------------------------------------------

struct vgpu_graph *vgpu_graph_new(void)
{
    struct vgpu_graph *graph = calloc(1, sizeof(*graph));
    if (!graph || !vgpu_handle_add(graph, VGPU_HANDLE_GRAPH)) {
        free(graph);
        return NULL;
    }
    return graph;
}

void vgpu_graph_destroy(struct vgpu_graph *graph)
{
    if (!graph) {
        return;
    }
    vgpu_handle_remove(graph);
    while (graph->first) {
        struct vgpu_node *node = graph->first;
        graph->first = node->next;
        vgpu_handle_remove(node);
        free_node(node);
    }
    vgpu_resources_release(graph->resources);
    free(graph);
}

static bool copy_node(struct vgpu_graph *copy, struct vgpu_node *node)
{
    struct vgpu_work *work = node->work ? node->work->kind->copy(node->work) : NULL;
    struct vgpu_graph *child = node->child ? vgpu_graph_copy(node->child) : NULL;
    if (!work && !child) {
        return false;
    }
    struct vgpu_node *made = vgpu_node_new(copy, work, child, NULL);
    if (!made) {
        return false;
    }
    made->origin = node->serial;
    made->disabled = node->disabled;
    return true;
}

struct vgpu_graph *vgpu_graph_copy(const struct vgpu_graph *graph)
{
    struct vgpu_graph *copy = vgpu_graph_new();
    if (!copy) {
        return NULL;
    }
    struct vgpu_node **made = malloc((graph->node_count + 1) * sizeof(struct vgpu_node *));
    bool enough = made && vgpu_resources_copy(graph->resources, &copy->resources);
    size_t count = 0;
    for (struct vgpu_node *node = graph->first; enough && node; node = node->next) {
        enough = copy_node(copy, node);
        made[count] = copy->last;
        node->position = count++;
    }
    count = 0;
    for (struct vgpu_node *node = graph->first; enough && node; node = node->next, count++) {
        for (size_t i = 0; enough && i < node->before.count; i++) {
            enough = vgpu_node_link(made[node->before.node[i]->position], made[count]);
        }
    }
    free(made);
    if (!enough) {
        vgpu_graph_destroy(copy);
        return NULL;
    }
    return copy;
}

cudaError_t vgpu_graph_order(const char *function, const struct vgpu_graph *graph,
                             struct vgpu_node ***order_out)
{
    // Nodes whose predecessors are all in the order come next; position counts those missing.
    struct vgpu_node **order = malloc((graph->node_count + 1) * sizeof(struct vgpu_node *));
    if (!order) {
        return vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory for %zu nodes", function,
                         graph->node_count);
    }
    size_t known = 0;
    for (struct vgpu_node *node = graph->first; node; node = node->next) {
        node->position = node->before.count;
        if (node->position == 0) {
            order[known++] = node;
        }
    }
    for (size_t done = 0; done < known; done++) {
        const struct vgpu_nodes *after = &order[done]->after;
        for (size_t i = 0; i < after->count; i++) {
            if (--after->node[i]->position == 0) {
                order[known++] = after->node[i];
            }
        }
    }
    if (known < graph->node_count) {
        free(order);
        return vgpu_fail(cudaErrorInvalidValue,
                         "%s: %zu of the graph's %zu nodes wait for each other in a circle",
                         function, graph->node_count - known, graph->node_count);
    }
    for (size_t i = 0; i < known; i++) {
        order[i]->position = i;
    }
    *order_out = order;
    return cudaSuccess;
}

// ---- Handles ------------------------------------------------------------------------------------

cudaError_t vgpu_graph_find(const char *function, cudaGraph_t handle, struct vgpu_graph **graph_out)
{
    cudaError_t allowed = vgpu_calls_allowed();
    if (allowed != cudaSuccess) {
        return allowed;
    }
    if (!vgpu_handle_known(handle, VGPU_HANDLE_GRAPH)) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: %p is no graph", function, (void *)handle);
    }
    *graph_out = (struct vgpu_graph *)(void *)handle;
    return cudaSuccess;
}

cudaError_t vgpu_node_find(const char *function, cudaGraphNode_t handle,
                           struct vgpu_node **node_out)
{
    if (!vgpu_handle_known(handle, VGPU_HANDLE_NODE)) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: %p is no node of a graph", function,
                         (void *)handle);
    }
    *node_out = (struct vgpu_node *)(void *)handle;
    return cudaSuccess;
}

cudaError_t vgpu_nodes_find(const char *function, const struct vgpu_graph *graph,
                            const cudaGraphNode_t *handles, size_t count,
                            struct vgpu_nodes *nodes_out)
{
    *nodes_out = (struct vgpu_nodes){NULL, 0, 0};
    if (count > 0 && !handles) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: %zu nodes at NULL", function, count);
    }
    for (size_t i = 0; i < count; i++) {
        struct vgpu_node *node = NULL;
        cudaError_t error = vgpu_node_find(function, handles[i], &node);
        if (error != cudaSuccess) {
            return error;
        }
        if (node->graph != graph || vgpu_nodes_hold(nodes_out, node)) {
            return vgpu_fail(cudaErrorInvalidValue, "%s: node %zu of the list (%p) is %s", function,
                             i, (void *)node,
                             node->graph != graph ? "of another graph" : "in it twice");
        }
        if (!vgpu_nodes_add(nodes_out, node)) {
            return vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory for %zu nodes", function,
                             count);
        }
    }
    return cudaSuccess;
}

cudaError_t vgpu_check_edges(const char *function, const cudaGraphEdgeData *edges, size_t count)
{
    for (size_t i = 0; edges && i < count; i++) {
        if (edges[i].from_port || edges[i].to_port || edges[i].type) {
            return vgpu_fail(cudaErrorNotSupported,
                             "%s: edge %zu has ports %u and %u and type %u; virtual GPUs have only "
                             "edges that wait for the whole node: all three must be 0",
                             function, i, edges[i].from_port, edges[i].to_port, edges[i].type);
        }
    }
    return cudaSuccess;
}

// ---- CUDA's functions: graphs -------------------------------------------------------------------

cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned int flags)
{
    cudaError_t allowed = vgpu_calls_allowed();
    if (allowed != cudaSuccess) {
        return allowed;
    }
    if (!graph || flags != 0) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "cudaGraphCreate: result at %p, flags 0x%x (they must be 0)",
                         (void *)graph, flags);
    }
    struct vgpu_graph *made = vgpu_graph_new();
    if (!made) {
        return vgpu_fail(cudaErrorMemoryAllocation, "cudaGraphCreate: no memory");
    }
    *graph = (cudaGraph_t)(void *)made;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    struct vgpu_graph *found = NULL;
    cudaError_t error = vgpu_graph_find("cudaGraphDestroy", graph, &found);
    if (error != cudaSuccess) {
        return error;
    }
    if (found->owner || found->captures > 0) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaGraphDestroy: %p %s", (void *)graph,
                         found->owner ? "belongs to a child graph node"
                                      : "is being captured into; end the capture first");
    }
    vgpu_graph_destroy(found);
    return cudaSuccess;
}

cudaError_t cudaGraphClone(cudaGraph_t *clone, cudaGraph_t graph)
{
    struct vgpu_graph *found = NULL;
    cudaError_t error = vgpu_graph_find("cudaGraphClone", graph, &found);
    if (error != cudaSuccess) {
        return error;
    }
    if (!clone) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaGraphClone: the place for the clone is NULL");
    }
    struct vgpu_graph *made = vgpu_graph_copy(found);
    if (!made) {
        return vgpu_fail(cudaErrorMemoryAllocation, "cudaGraphClone: no memory for %zu nodes",
                         found->node_count);
    }
    *clone = (cudaGraph_t)(void *)made;
    return cudaSuccess;
}

cudaError_t cudaGraphNodeFindInClone(cudaGraphNode_t *node, cudaGraphNode_t original,
                                     cudaGraph_t clone)
{
    struct vgpu_graph *graph = NULL;
    struct vgpu_node *wanted = NULL;
    cudaError_t error = vgpu_graph_find("cudaGraphNodeFindInClone", clone, &graph);
    if (error == cudaSuccess) {
        error = vgpu_node_find("cudaGraphNodeFindInClone", original, &wanted);
    }
    if (error != cudaSuccess) {
        return error;
    }
    for (struct vgpu_node *one = graph->first; node && one; one = one->next) {
        if (one->origin == wanted->serial) {
            *node = (cudaGraphNode_t)(void *)one;
            return cudaSuccess;
        }
    }
    return vgpu_fail(cudaErrorInvalidValue, "cudaGraphNodeFindInClone: result at %p; %s",
                     (void *)node, "no node of the clone is a copy of that one");
}

cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node)
{
    struct vgpu_node *found = NULL;
    cudaError_t error = vgpu_node_find("cudaGraphDestroyNode", node, &found);
    if (error != cudaSuccess) {
        return error;
    }
    if (found->graph->captures > 0) {
        return vgpu_fail(cudaErrorIllegalState,
                         "cudaGraphDestroyNode: the graph is being captured into; end the capture "
                         "first");
    }
    destroy_node(found);
    return cudaSuccess;
}
