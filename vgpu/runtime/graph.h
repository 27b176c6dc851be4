// Graphs: nodes that do work, and which of them come before which.
//
// graph.c keeps the structure, graph_node.c fills nodes, graph_executable.c makes something of it
// that can be launched, capture.c adds what a stream is given. As CUDA says, one graph is for one
// thread at a time; the handles' table and captures have locks. SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_GRAPH_H
#define VGPU_RUNTIME_GRAPH_H

#include "handles.h"
#include "work.h"

struct vgpu_node;
struct vgpu_resources;

// The type of nodes of cuStreamBatchMemOp; the runtime has no name for it, the driver does.
enum { VGPU_NODE_MEMORY_OPERATIONS = 12 };

// A set of nodes, in the order in which they were added.
struct vgpu_nodes {
    struct vgpu_node **node;
    size_t count, capacity;
};
// Adds a node unless it is there. False: no memory.
bool vgpu_nodes_add(struct vgpu_nodes *nodes, struct vgpu_node *node);
bool vgpu_nodes_add_all(struct vgpu_nodes *nodes, const struct vgpu_nodes *more);
bool vgpu_nodes_hold(const struct vgpu_nodes *nodes, const struct vgpu_node *node);
void vgpu_nodes_remove(struct vgpu_nodes *nodes, const struct vgpu_node *node);
void vgpu_nodes_clear(struct vgpu_nodes *nodes); // and frees

struct vgpu_graph {
    struct vgpu_node *first, *last; // in the order in which they were made
    size_t node_count;
    struct vgpu_resources *resources; // user objects; NULL: none
    struct vgpu_node *owner;          // the node whose child graph this is; NULL: none
    unsigned captures;                // streams' captures that add to it
};

struct vgpu_node {
    struct vgpu_graph *graph;
    struct vgpu_work *work;   // exactly one of work and child is set
    struct vgpu_graph *child; // a copy of what the caller gave
    struct vgpu_nodes before; // which come before this one
    struct vgpu_nodes after;
    uint64_t serial; // unique in the process
    uint64_t origin; // in a copy: the serial of the node that this is a copy of
    bool disabled;   // in an executable graph: does nothing
    size_t position; // scratch: in an order, or a mark
    struct vgpu_node *next, *previous;
};

// ---- Graphs and nodes ---------------------------------------------------------------------------

// An empty graph that is known as a handle; NULL: no memory.
struct vgpu_graph *vgpu_graph_new(void);
void vgpu_graph_destroy(struct vgpu_graph *graph); // accepts NULL
// A copy with copies of all work and child graphs; NULL: no memory.
struct vgpu_graph *vgpu_graph_copy(const struct vgpu_graph *graph);

// A node behind `before` (NULL: none), which takes over `work` or else `child`, also where it
// fails. NULL: no memory.
struct vgpu_node *vgpu_node_new(struct vgpu_graph *graph, struct vgpu_work *work,
                                struct vgpu_graph *child, const struct vgpu_nodes *before);
// Puts `to` behind `from`. False: no memory.
bool vgpu_node_link(struct vgpu_node *from, struct vgpu_node *to);
enum cudaGraphNodeType vgpu_node_type(const struct vgpu_node *node);
const char *vgpu_node_type_name(enum cudaGraphNodeType type);

// An order in which every node comes behind those before it: [graph->node_count] nodes in *order,
// which the caller frees; sets their positions. cudaErrorInvalidValue: there is a circle.
// cudaErrorMemoryAllocation.
cudaError_t vgpu_graph_order(const char *function, const struct vgpu_graph *graph,
                             struct vgpu_node ***order_out);

// ---- Handles ------------------------------------------------------------------------------------

// cudaErrorInvalidValue where the handle is none, in the name of `function`.
cudaError_t vgpu_graph_find(const char *function, cudaGraph_t handle,
                            struct vgpu_graph **graph_out);
cudaError_t vgpu_node_find(const char *function, cudaGraphNode_t handle,
                           struct vgpu_node **node_out);
// Nodes of the graph, each once, in a list of handles. Clears *nodes_out first; the caller clears
// it later, also after an error. cudaErrorInvalidValue.
cudaError_t vgpu_nodes_find(const char *function, const struct vgpu_graph *graph,
                            const cudaGraphNode_t *handles, size_t count,
                            struct vgpu_nodes *nodes_out);
// Edges carry no data here. cudaErrorNotSupported where some of it is not 0; edges may be NULL.
cudaError_t vgpu_check_edges(const char *function, const cudaGraphEdgeData *edges, size_t count);

// ---- Work of nodes ------------------------------------------------------------------------------

// The works of `device` that nodes are made of; each checks what it is given, in the name of
// `function`. *work_out is written only on success.
cudaError_t vgpu_kernel_work(const char *function, struct vgpu_device *device,
                             const struct cudaKernelNodeParams *parameters,
                             struct vgpu_work **work_out);
cudaError_t vgpu_copy_work(const char *function, struct vgpu_device *device,
                           const struct cudaMemcpy3DParms *parameters, struct vgpu_work **work_out);
cudaError_t vgpu_fill_work(const char *function, struct vgpu_device *device,
                           const struct cudaMemsetParams *parameters, struct vgpu_work **work_out);
cudaError_t vgpu_host_work(const char *function, struct vgpu_device *device,
                           const struct cudaHostNodeParams *parameters,
                           struct vgpu_work **work_out);
// type: cudaGraphNodeTypeEventRecord or cudaGraphNodeTypeWaitEvent.
cudaError_t vgpu_event_work(const char *function, enum cudaGraphNodeType type, cudaEvent_t event,
                            struct vgpu_work **work_out);
// A flat copy as the parameters of a three-dimensional one.
struct cudaMemcpy3DParms vgpu_flat_parameters(void *destination, const void *source, size_t bytes,
                                              enum cudaMemcpyKind kind);
// What the work was made of.
void vgpu_copy_parameters(const struct vgpu_work *work, struct cudaMemcpy3DParms *parameters);
void vgpu_fill_parameters(const struct vgpu_work *work, struct cudaMemsetParams *parameters);
void vgpu_host_parameters(const struct vgpu_work *work, struct cudaHostNodeParams *parameters);
cudaEvent_t vgpu_work_event(const struct vgpu_work *work);

// ---- User objects (user_object.c) ---------------------------------------------------------------

// The references that a graph, an executable graph or a launch of one has of user objects.
// Another owner of all of them (NULL stays NULL). False: no memory.
bool vgpu_resources_copy(const struct vgpu_resources *resources, struct vgpu_resources **copy_out);
// One more owner of the same references; the last release gives them back.
struct vgpu_resources *vgpu_resources_share(struct vgpu_resources *resources);
void vgpu_resources_release(struct vgpu_resources *resources); // accepts NULL

#endif
