// CUDA's functions that make a graph's nodes and read and change what they do.
//
// A node's work is of the device that is current when it is made, as in CUDA; changing it makes
// new work of the same device. SPDX-License-Identifier: Apache-2.0
#include "copy.h"
#include "cuda_runtime_api.h"
#include "error.h"
#include "graph.h"
#include "launch.h"

#include <string.h>

// Where a new node goes.
struct place {
    cudaGraphNode_t *node;
    cudaGraph_t graph;
    const cudaGraphNode_t *before;
    size_t count;
};

// Takes over `work` or `child`, also where it fails. error: of making them.
static cudaError_t add_node(const char *function, struct place place, cudaError_t error,
                            struct vgpu_work *work, struct vgpu_graph *child)
{
    struct vgpu_graph *graph = NULL;
    struct vgpu_nodes before = {NULL, 0, 0};
    if (error == cudaSuccess && !place.node) {
        error = vgpu_fail(cudaErrorInvalidValue, "%s: the place for the node is NULL", function);
    }
    if (error == cudaSuccess) {
        error = vgpu_graph_find(function, place.graph, &graph);
    }
    if (error == cudaSuccess) {
        error = vgpu_nodes_find(function, graph, place.before, place.count, &before);
    }
    if (error != cudaSuccess) {
        vgpu_work_destroy(work);
        vgpu_graph_destroy(child);
    } else {
        struct vgpu_node *node = vgpu_node_new(graph, work, child, &before);
        if (node) {
            *place.node = (cudaGraphNode_t)(void *)node;
        } else {
            error = vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory for a node", function);
        }
    }
    vgpu_nodes_clear(&before);
    return error;
}

// A node of a type, for functions that read or change it.
static cudaError_t find_typed(const char *function, cudaGraphNode_t handle,
                              enum cudaGraphNodeType type, const void *parameters,
                              struct vgpu_node **node_out)
{
    cudaError_t error = vgpu_node_find(function, handle, node_out);
    if (error != cudaSuccess) {
        return error;
    }
    if (vgpu_node_type(*node_out) != type) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: the node is of type %s, not %s", function,
                         vgpu_node_type_name(vgpu_node_type(*node_out)), vgpu_node_type_name(type));
    }
    return parameters ? cudaSuccess
                      : vgpu_fail(cudaErrorInvalidValue, "%s: the parameters are NULL", function);
}

// Gives the node other work, unless that is NULL; takes it over.
static void replace_work(struct vgpu_node *node, struct vgpu_work *work)
{
    if (work) {
        vgpu_work_destroy(node->work);
        node->work = work;
    }
}

const char *vgpu_node_type_name(enum cudaGraphNodeType type)
{
    static const char *const names[cudaGraphNodeTypeCount] = {
        [cudaGraphNodeTypeKernel] = "kernel",
        [cudaGraphNodeTypeMemcpy] = "memcpy",
        [cudaGraphNodeTypeMemset] = "memset",
        [cudaGraphNodeTypeHost] = "host",
        [cudaGraphNodeTypeGraph] = "child graph",
        [cudaGraphNodeTypeEmpty] = "empty",
        [cudaGraphNodeTypeWaitEvent] = "wait for event",
        [cudaGraphNodeTypeEventRecord] = "record event",
        [cudaGraphNodeTypeMemAlloc] = "allocate",
        [cudaGraphNodeTypeMemFree] = "free",
        [VGPU_NODE_MEMORY_OPERATIONS] = "memory operations",
    };
    const char *name = (unsigned)type < cudaGraphNodeTypeCount ? names[type] : NULL;
    return name ? name : "unknown";
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type)
{
    struct vgpu_node *found = NULL;
    cudaError_t error = vgpu_node_find("cudaGraphNodeGetType", node, &found);
    if (error == cudaSuccess && !type) {
        error = vgpu_fail(cudaErrorInvalidValue, "cudaGraphNodeGetType: the place for the type is "
                                                 "NULL");
    }
    if (error == cudaSuccess) {
        *type = vgpu_node_type(found);
    }
    return error;
}

// ---- Kernels ------------------------------------------------------------------------------------

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                   const cudaGraphNode_t *dependencies, size_t count,
                                   const struct cudaKernelNodeParams *parameters)
{
    static const char *const function = "cudaGraphAddKernelNode";
    struct vgpu_work *work = NULL;
    cudaError_t error = vgpu_kernel_work(function, vgpu_current_device(), parameters, &work);
    return add_node(function, (struct place){node, graph, dependencies, count}, error, work, NULL);
}

cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node,
                                         struct cudaKernelNodeParams *parameters)
{
    static const char *const function = "cudaGraphKernelNodeGetParams";
    struct vgpu_node *found = NULL;
    cudaError_t error = find_typed(function, node, cudaGraphNodeTypeKernel, parameters, &found);
    if (error != cudaSuccess) {
        return error;
    }
    const struct vgpu_launch *launch = vgpu_work_launch(found->work);
    if (!launch->kernel) {
        return vgpu_fail(cudaErrorInvalidDeviceFunction,
                         "%s: the node runs the native function %s, which is no kernel", function,
                         launch->name);
    }
    *parameters = (struct cudaKernelNodeParams){
        .func = (void *)(uintptr_t)launch->kernel->function, // CUDA's structure has no const
        .gridDim = launch->grid,
        .blockDim = launch->block,
        .sharedMemBytes = (unsigned)launch->shared_bytes,
        .kernelParams = launch->arguments,
    };
    return cudaSuccess;
}

cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node,
                                         const struct cudaKernelNodeParams *parameters)
{
    static const char *const function = "cudaGraphKernelNodeSetParams";
    struct vgpu_node *found = NULL;
    struct vgpu_work *work = NULL;
    cudaError_t error = find_typed(function, node, cudaGraphNodeTypeKernel, parameters, &found);
    if (error == cudaSuccess) {
        error = vgpu_kernel_work(function, found->work->device, parameters, &work);
        replace_work(found, work);
    }
    return error;
}

cudaError_t cudaGraphKernelNodeSetAttribute(cudaGraphNode_t node, cudaLaunchAttributeID attribute,
                                            const cudaLaunchAttributeValue *value)
{
    static const char *const function = "cudaGraphKernelNodeSetAttribute";
    struct vgpu_node *found = NULL;
    cudaError_t error = find_typed(function, node, cudaGraphNodeTypeKernel, value, &found);
    if (error != cudaSuccess) {
        return error;
    }
    if (attribute == cudaLaunchAttributeCooperative) {
        vgpu_work_launch(found->work)->cooperative = value->cooperative != 0;
        return cudaSuccess;
    }
    if (attribute == cudaLaunchAttributePriority) {
        return cudaSuccess; // a hint
    }
    return vgpu_fail(cudaErrorNotSupported,
                     "%s: attribute %d; virtual GPUs keep cudaLaunchAttributeCooperative", function,
                     (int)attribute);
}

cudaError_t cudaGraphKernelNodeGetAttribute(cudaGraphNode_t node, cudaLaunchAttributeID attribute,
                                            cudaLaunchAttributeValue *value)
{
    static const char *const function = "cudaGraphKernelNodeGetAttribute";
    struct vgpu_node *found = NULL;
    cudaError_t error = find_typed(function, node, cudaGraphNodeTypeKernel, value, &found);
    if (error != cudaSuccess) {
        return error;
    }
    if (attribute != cudaLaunchAttributeCooperative && attribute != cudaLaunchAttributePriority) {
        return vgpu_fail(cudaErrorNotSupported,
                         "%s: attribute %d; virtual GPUs keep cudaLaunchAttributeCooperative",
                         function, (int)attribute);
    }
    memset(value, 0, sizeof(*value));
    if (attribute == cudaLaunchAttributeCooperative) {
        value->cooperative = vgpu_work_launch(found->work)->cooperative;
    }
    return cudaSuccess;
}

// ---- Copies -------------------------------------------------------------------------------------

cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                   const cudaGraphNode_t *dependencies, size_t count,
                                   const struct cudaMemcpy3DParms *parameters)
{
    static const char *const function = "cudaGraphAddMemcpyNode";
    struct vgpu_work *work = NULL;
    cudaError_t error = vgpu_copy_work(function, vgpu_current_device(), parameters, &work);
    return add_node(function, (struct place){node, graph, dependencies, count}, error, work, NULL);
}

struct cudaMemcpy3DParms vgpu_flat_parameters(void *destination, const void *source, size_t bytes,
                                              enum cudaMemcpyKind kind)
{
    struct cudaMemcpy3DParms parameters = {
        .srcPtr = {(void *)(uintptr_t)source, bytes, bytes, 1}, // CUDA's structure has no const
        .dstPtr = {destination, bytes, bytes, 1},
        .extent = {bytes, 1, 1},
        .kind = kind,
    };
    return parameters;
}

// NOLINTNEXTLINE(readability-function-size): CUDA's parameters
cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *node, cudaGraph_t graph,
                                     const cudaGraphNode_t *dependencies, size_t count,
                                     void *destination, const void *source, size_t bytes,
                                     enum cudaMemcpyKind kind)
{
    struct cudaMemcpy3DParms parameters = vgpu_flat_parameters(destination, source, bytes, kind);
    return cudaGraphAddMemcpyNode(node, graph, dependencies, count, &parameters);
}

cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node, struct cudaMemcpy3DParms *parameters)
{
    struct vgpu_node *found = NULL;
    cudaError_t error = find_typed("cudaGraphMemcpyNodeGetParams", node, cudaGraphNodeTypeMemcpy,
                                   parameters, &found);
    if (error == cudaSuccess) {
        vgpu_copy_parameters(found->work, parameters);
    }
    return error;
}

cudaError_t cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node,
                                         const struct cudaMemcpy3DParms *parameters)
{
    static const char *const function = "cudaGraphMemcpyNodeSetParams";
    struct vgpu_node *found = NULL;
    struct vgpu_work *work = NULL;
    cudaError_t error = find_typed(function, node, cudaGraphNodeTypeMemcpy, parameters, &found);
    if (error == cudaSuccess) {
        error = vgpu_copy_work(function, found->work->device, parameters, &work);
        replace_work(found, work);
    }
    return error;
}

cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void *destination,
                                           const void *source, size_t bytes,
                                           enum cudaMemcpyKind kind)
{
    struct cudaMemcpy3DParms parameters = vgpu_flat_parameters(destination, source, bytes, kind);
    return cudaGraphMemcpyNodeSetParams(node, &parameters);
}

// ---- Fills --------------------------------------------------------------------------------------

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                   const cudaGraphNode_t *dependencies, size_t count,
                                   const struct cudaMemsetParams *parameters)
{
    static const char *const function = "cudaGraphAddMemsetNode";
    struct vgpu_work *work = NULL;
    cudaError_t error = vgpu_fill_work(function, vgpu_current_device(), parameters, &work);
    return add_node(function, (struct place){node, graph, dependencies, count}, error, work, NULL);
}

cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node, struct cudaMemsetParams *parameters)
{
    struct vgpu_node *found = NULL;
    cudaError_t error = find_typed("cudaGraphMemsetNodeGetParams", node, cudaGraphNodeTypeMemset,
                                   parameters, &found);
    if (error == cudaSuccess) {
        vgpu_fill_parameters(found->work, parameters);
    }
    return error;
}

cudaError_t cudaGraphMemsetNodeSetParams(cudaGraphNode_t node,
                                         const struct cudaMemsetParams *parameters)
{
    static const char *const function = "cudaGraphMemsetNodeSetParams";
    struct vgpu_node *found = NULL;
    struct vgpu_work *work = NULL;
    cudaError_t error = find_typed(function, node, cudaGraphNodeTypeMemset, parameters, &found);
    if (error == cudaSuccess) {
        error = vgpu_fill_work(function, found->work->device, parameters, &work);
        replace_work(found, work);
    }
    return error;
}

// ---- Host functions -----------------------------------------------------------------------------

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                 const cudaGraphNode_t *dependencies, size_t count,
                                 const struct cudaHostNodeParams *parameters)
{
    static const char *const function = "cudaGraphAddHostNode";
    struct vgpu_work *work = NULL;
    cudaError_t error = vgpu_host_work(function, vgpu_current_device(), parameters, &work);
    return add_node(function, (struct place){node, graph, dependencies, count}, error, work, NULL);
}

cudaError_t cudaGraphHostNodeGetParams(cudaGraphNode_t node, struct cudaHostNodeParams *parameters)
{
    struct vgpu_node *found = NULL;
    cudaError_t error =
        find_typed("cudaGraphHostNodeGetParams", node, cudaGraphNodeTypeHost, parameters, &found);
    if (error == cudaSuccess) {
        vgpu_host_parameters(found->work, parameters);
    }
    return error;
}

cudaError_t cudaGraphHostNodeSetParams(cudaGraphNode_t node,
                                       const struct cudaHostNodeParams *parameters)
{
    static const char *const function = "cudaGraphHostNodeSetParams";
    struct vgpu_node *found = NULL;
    struct vgpu_work *work = NULL;
    cudaError_t error = find_typed(function, node, cudaGraphNodeTypeHost, parameters, &found);
    if (error == cudaSuccess) {
        error = vgpu_host_work(function, found->work->device, parameters, &work);
        replace_work(found, work);
    }
    return error;
}

// ---- Child graphs and empty nodes ---------------------------------------------------------------

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                       const cudaGraphNode_t *dependencies, size_t count,
                                       cudaGraph_t child)
{
    static const char *const function = "cudaGraphAddChildGraphNode";
    struct vgpu_graph *found = NULL;
    struct vgpu_graph *copy = NULL;
    cudaError_t error = vgpu_graph_find(function, child, &found);
    if (error == cudaSuccess) {
        copy = vgpu_graph_copy(found);
        error = copy ? cudaSuccess
                     : vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory for a copy", function);
    }
    return add_node(function, (struct place){node, graph, dependencies, count}, error, NULL, copy);
}

cudaError_t cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t node, cudaGraph_t *graph)
{
    struct vgpu_node *found = NULL;
    cudaError_t error =
        find_typed("cudaGraphChildGraphNodeGetGraph", node, cudaGraphNodeTypeGraph, graph, &found);
    if (error == cudaSuccess) {
        *graph = (cudaGraph_t)(void *)found->child;
    }
    return error;
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                  const cudaGraphNode_t *dependencies, size_t count)
{
    static const char *const function = "cudaGraphAddEmptyNode";
    struct vgpu_device *device = vgpu_current_device();
    cudaError_t error = vgpu_device_ready(device);
    struct vgpu_work *work = error == cudaSuccess ? vgpu_empty_work(device) : NULL;
    if (error == cudaSuccess && !work) {
        error = vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory", function);
    }
    return add_node(function, (struct place){node, graph, dependencies, count}, error, work, NULL);
}

// ---- Events -------------------------------------------------------------------------------------

static cudaError_t add_event_node(const char *function, struct place place,
                                  enum cudaGraphNodeType type, cudaEvent_t event)
{
    struct vgpu_work *work = NULL;
    cudaError_t error = vgpu_event_work(function, type, event, &work);
    return add_node(function, place, error, work, NULL);
}

static cudaError_t get_event(const char *function, cudaGraphNode_t node,
                             enum cudaGraphNodeType type, cudaEvent_t *event)
{
    struct vgpu_node *found = NULL;
    cudaError_t error = find_typed(function, node, type, event, &found);
    if (error == cudaSuccess) {
        *event = vgpu_work_event(found->work);
    }
    return error;
}

static cudaError_t set_event(const char *function, cudaGraphNode_t node,
                             enum cudaGraphNodeType type, cudaEvent_t event)
{
    struct vgpu_node *found = NULL;
    struct vgpu_work *work = NULL;
    cudaError_t error = find_typed(function, node, type, event, &found);
    if (error == cudaSuccess) {
        error = vgpu_event_work(function, type, event, &work);
        replace_work(found, work);
    }
    return error;
}

cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                        const cudaGraphNode_t *dependencies, size_t count,
                                        cudaEvent_t event)
{
    return add_event_node("cudaGraphAddEventRecordNode",
                          (struct place){node, graph, dependencies, count},
                          cudaGraphNodeTypeEventRecord, event);
}

cudaError_t cudaGraphEventRecordNodeGetEvent(cudaGraphNode_t node, cudaEvent_t *event)
{
    return get_event("cudaGraphEventRecordNodeGetEvent", node, cudaGraphNodeTypeEventRecord, event);
}

cudaError_t cudaGraphEventRecordNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event)
{
    return set_event("cudaGraphEventRecordNodeSetEvent", node, cudaGraphNodeTypeEventRecord, event);
}

cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                      const cudaGraphNode_t *dependencies, size_t count,
                                      cudaEvent_t event)
{
    return add_event_node("cudaGraphAddEventWaitNode",
                          (struct place){node, graph, dependencies, count},
                          cudaGraphNodeTypeWaitEvent, event);
}

cudaError_t cudaGraphEventWaitNodeGetEvent(cudaGraphNode_t node, cudaEvent_t *event)
{
    return get_event("cudaGraphEventWaitNodeGetEvent", node, cudaGraphNodeTypeWaitEvent, event);
}

cudaError_t cudaGraphEventWaitNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event)
{
    return set_event("cudaGraphEventWaitNodeSetEvent", node, cudaGraphNodeTypeWaitEvent, event);
}
