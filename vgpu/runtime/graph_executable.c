// Executable graphs: made of a graph, and changed without being made again.
//
// An executable graph has its own copy of the graph, so what becomes of that does not matter; its
// nodes are found by the serial numbers of those that they are copies of.
// SPDX-License-Identifier: Apache-2.0
#include "graph_executable.h"

#include "cuda_runtime_api.h"
#include "error.h"
#include "launch.h"

#include <stdlib.h>

static const unsigned long long KNOWN_FLAGS =
    cudaGraphInstantiateFlagAutoFreeOnLaunch | cudaGraphInstantiateFlagUpload |
    cudaGraphInstantiateFlagDeviceLaunch | cudaGraphInstantiateFlagUseNodePriority;

cudaError_t vgpu_executable_find(const char *function, cudaGraphExec_t handle,
                                 struct vgpu_executable **executable_out)
{
    cudaError_t allowed = vgpu_calls_allowed();
    if (allowed != cudaSuccess) {
        return allowed;
    }
    if (!vgpu_handle_known(handle, VGPU_HANDLE_EXECUTABLE)) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: %p is no executable graph", function,
                         (void *)handle);
    }
    *executable_out = (struct vgpu_executable *)(void *)handle;
    return cudaSuccess;
}

// ---- Making -------------------------------------------------------------------------------------

static void destroy(struct vgpu_executable *executable)
{
    vgpu_flat_free(&executable->flat);
    vgpu_graph_destroy(executable->graph);
    vgpu_operation_release(executable->last);
    free(executable);
}

static cudaError_t check_flags(const char *function, unsigned long long flags)
{
    if (flags & ~KNOWN_FLAGS) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "%s: flags are 0x%llx; cudaGraphInstantiateFlag* give 0x0 to 0x%llx",
                         function, flags, KNOWN_FLAGS);
    }
    if (flags & cudaGraphInstantiateFlagDeviceLaunch) {
        return vgpu_fail(cudaErrorNotSupported,
                         "%s: kernels on virtual GPUs cannot launch graphs "
                         "(cudaGraphInstantiateFlagDeviceLaunch)",
                         function);
    }
    return cudaSuccess;
}

static cudaError_t instantiate(const char *function, cudaGraphExec_t *executable, cudaGraph_t graph,
                               unsigned long long flags)
{
    cudaError_t allowed = vgpu_calls_allowed();
    if (allowed != cudaSuccess) {
        return allowed;
    }
    struct vgpu_graph *found = NULL;
    cudaError_t error = executable ? check_flags(function, flags)
                                   : vgpu_fail(cudaErrorInvalidValue,
                                               "%s: the place for the result is NULL", function);
    if (error == cudaSuccess) {
        error = vgpu_graph_find(function, graph, &found);
    }
    if (error != cudaSuccess) {
        return error;
    }
    struct vgpu_executable *made = calloc(1, sizeof(*made));
    if (made) {
        made->graph = vgpu_graph_copy(found);
        made->flags = flags;
    }
    if (!made || !made->graph) {
        error = vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory for %zu nodes", function,
                          found->node_count);
    }
    if (error == cudaSuccess) {
        error = vgpu_flatten(function, made->graph, &made->flat);
    }
    if (error == cudaSuccess && !vgpu_handle_add(made, VGPU_HANDLE_EXECUTABLE)) {
        error = vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory", function);
    }
    if (error == cudaSuccess) {
        vgpu_handle_remove(made->graph); // nobody else's to use
        *executable = (cudaGraphExec_t)(void *)made;
    } else if (made) {
        destroy(made);
    }
    return error;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph,
                                 unsigned long long flags)
{
    return instantiate("cudaGraphInstantiate", executable, graph, flags);
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *executable, cudaGraph_t graph,
                                          unsigned long long flags)
{
    return instantiate("cudaGraphInstantiateWithFlags", executable, graph, flags);
}

cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t *executable, cudaGraph_t graph,
                                           cudaGraphInstantiateParams *parameters)
{
    static const char *const function = "cudaGraphInstantiateWithParams";
    if (!parameters) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: the parameters are NULL", function);
    }
    cudaError_t error = instantiate(function, executable, graph, parameters->flags);
    parameters->errNode_out = NULL;
    parameters->result_out =
        error == cudaSuccess ? cudaGraphInstantiateSuccess
        : error == cudaErrorInvalidValue && vgpu_handle_known(graph, VGPU_HANDLE_GRAPH)
            ? cudaGraphInstantiateInvalidStructure
            : cudaGraphInstantiateError;
    if (error == cudaSuccess && (parameters->flags & cudaGraphInstantiateFlagUpload)) {
        error = cudaGraphUpload(*executable, parameters->uploadStream);
    }
    return error;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable)
{
    struct vgpu_executable *found = NULL;
    cudaError_t error = vgpu_executable_find("cudaGraphExecDestroy", executable, &found);
    if (error == cudaSuccess) {
        vgpu_handle_remove(found);
        destroy(found); // launches under way have all they need
    }
    return error;
}

cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t executable, unsigned long long *flags)
{
    struct vgpu_executable *found = NULL;
    cudaError_t error = vgpu_executable_find("cudaGraphExecGetFlags", executable, &found);
    if (error == cudaSuccess && !flags) {
        error = vgpu_fail(cudaErrorInvalidValue, "cudaGraphExecGetFlags: flags is NULL");
    }
    if (error == cudaSuccess) {
        *flags = found->flags;
    }
    return error;
}

// ---- Changing one node --------------------------------------------------------------------------

// The item of the node that `handle` names in the graph that was instantiated.
static cudaError_t find_item(const char *function, cudaGraphExec_t executable,
                             cudaGraphNode_t handle, size_t *index_out,
                             struct vgpu_executable **executable_out)
{
    struct vgpu_node *node = NULL;
    cudaError_t error = vgpu_executable_find(function, executable, executable_out);
    if (error == cudaSuccess) {
        error = vgpu_node_find(function, handle, &node);
    }
    if (error != cudaSuccess) {
        return error;
    }
    const struct vgpu_flat *flat = &(*executable_out)->flat;
    for (size_t i = 0; i < flat->count; i++) {
        if (flat->item[i].node && flat->item[i].node->origin == node->serial) {
            *index_out = i;
            return cudaSuccess;
        }
    }
    return vgpu_fail(cudaErrorInvalidValue, "%s: node %p is not of the graph that was instantiated",
                     function, (void *)handle);
}

// The executable graph's own node, of a type.
static cudaError_t find_own(const char *function, cudaGraphExec_t executable,
                            cudaGraphNode_t handle, enum cudaGraphNodeType type,
                            struct vgpu_node **node_out)
{
    size_t index;
    struct vgpu_executable *found = NULL;
    cudaError_t error = find_item(function, executable, handle, &index, &found);
    if (error != cudaSuccess) {
        return error;
    }
    *node_out = found->flat.item[index].node;
    enum cudaGraphNodeType is = vgpu_node_type(*node_out);
    return is == type ? cudaSuccess
                      : vgpu_fail(cudaErrorInvalidValue, "%s: the node is of type %s, not %s",
                                  function, vgpu_node_type_name(is), vgpu_node_type_name(type));
}

static void replace_work(struct vgpu_node *node, struct vgpu_work *work)
{
    if (work) {
        vgpu_work_destroy(node->work);
        node->work = work;
    }
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                             const struct cudaKernelNodeParams *parameters)
{
    static const char *const function = "cudaGraphExecKernelNodeSetParams";
    struct vgpu_node *own = NULL;
    struct vgpu_work *work = NULL;
    cudaError_t error = find_own(function, executable, node, cudaGraphNodeTypeKernel, &own);
    if (error == cudaSuccess) {
        error = vgpu_kernel_work(function, own->work->device, parameters, &work);
    }
    if (work) {
        vgpu_work_launch(work)->cooperative = vgpu_work_launch(own->work)->cooperative;
        replace_work(own, work);
    }
    return error;
}

cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                             const struct cudaMemcpy3DParms *parameters)
{
    static const char *const function = "cudaGraphExecMemcpyNodeSetParams";
    struct vgpu_node *own = NULL;
    struct vgpu_work *work = NULL;
    cudaError_t error = find_own(function, executable, node, cudaGraphNodeTypeMemcpy, &own);
    if (error == cudaSuccess) {
        error = vgpu_copy_work(function, own->work->device, parameters, &work);
        replace_work(own, work);
    }
    return error;
}

cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t executable, cudaGraphNode_t node,
                                               void *destination, const void *source, size_t bytes,
                                               enum cudaMemcpyKind kind)
{
    struct cudaMemcpy3DParms parameters = vgpu_flat_parameters(destination, source, bytes, kind);
    return cudaGraphExecMemcpyNodeSetParams(executable, node, &parameters);
}

cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                             const struct cudaMemsetParams *parameters)
{
    static const char *const function = "cudaGraphExecMemsetNodeSetParams";
    struct vgpu_node *own = NULL;
    struct vgpu_work *work = NULL;
    cudaError_t error = find_own(function, executable, node, cudaGraphNodeTypeMemset, &own);
    if (error == cudaSuccess) {
        error = vgpu_fill_work(function, own->work->device, parameters, &work);
        replace_work(own, work);
    }
    return error;
}

cudaError_t cudaGraphExecHostNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                           const struct cudaHostNodeParams *parameters)
{
    static const char *const function = "cudaGraphExecHostNodeSetParams";
    struct vgpu_node *own = NULL;
    struct vgpu_work *work = NULL;
    cudaError_t error = find_own(function, executable, node, cudaGraphNodeTypeHost, &own);
    if (error == cudaSuccess) {
        error = vgpu_host_work(function, own->work->device, parameters, &work);
        replace_work(own, work);
    }
    return error;
}

static cudaError_t set_event(const char *function, cudaGraphExec_t executable, cudaGraphNode_t node,
                             enum cudaGraphNodeType type, cudaEvent_t event)
{
    struct vgpu_node *own = NULL;
    struct vgpu_work *work = NULL;
    cudaError_t error = find_own(function, executable, node, type, &own);
    if (error == cudaSuccess) {
        error = vgpu_event_work(function, type, event, &work);
        replace_work(own, work);
    }
    return error;
}

cudaError_t cudaGraphExecEventRecordNodeSetEvent(cudaGraphExec_t executable, cudaGraphNode_t node,
                                                 cudaEvent_t event)
{
    return set_event("cudaGraphExecEventRecordNodeSetEvent", executable, node,
                     cudaGraphNodeTypeEventRecord, event);
}

cudaError_t cudaGraphExecEventWaitNodeSetEvent(cudaGraphExec_t executable, cudaGraphNode_t node,
                                               cudaEvent_t event)
{
    return set_event("cudaGraphExecEventWaitNodeSetEvent", executable, node,
                     cudaGraphNodeTypeWaitEvent, event);
}

// Nodes that CUDA lets be switched off: kernels, copies and fills.
static cudaError_t find_switchable(const char *function, cudaGraphExec_t executable,
                                   cudaGraphNode_t node, struct vgpu_node **node_out)
{
    size_t index;
    struct vgpu_executable *found = NULL;
    cudaError_t error = find_item(function, executable, node, &index, &found);
    if (error != cudaSuccess) {
        return error;
    }
    *node_out = found->flat.item[index].node;
    enum cudaGraphNodeType type = vgpu_node_type(*node_out);
    return type <= cudaGraphNodeTypeMemset
               ? cudaSuccess
               : vgpu_fail(cudaErrorInvalidValue,
                           "%s: the node is of type %s; kernels, memcpy and memset can be switched "
                           "off",
                           function, vgpu_node_type_name(type));
}

cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t executable, cudaGraphNode_t node,
                                    unsigned int enabled)
{
    struct vgpu_node *own = NULL;
    cudaError_t error = find_switchable("cudaGraphNodeSetEnabled", executable, node, &own);
    if (error == cudaSuccess) {
        own->disabled = !enabled;
    }
    return error;
}

cudaError_t cudaGraphNodeGetEnabled(cudaGraphExec_t executable, cudaGraphNode_t node,
                                    unsigned int *enabled)
{
    struct vgpu_node *own = NULL;
    cudaError_t error = find_switchable("cudaGraphNodeGetEnabled", executable, node, &own);
    if (error == cudaSuccess && !enabled) {
        error = vgpu_fail(cudaErrorInvalidValue, "cudaGraphNodeGetEnabled: enabled is NULL");
    }
    if (error == cudaSuccess) {
        *enabled = !own->disabled;
    }
    return error;
}

// ---- Changing all -------------------------------------------------------------------------------

// Copies of the work of all nodes of `flat` take the places of the executable graph's from item
// `at` on. False: no memory, and nothing is changed.
static bool take_works(struct vgpu_executable *executable, size_t at, const struct vgpu_flat *flat)
{
    struct vgpu_work **works = calloc(flat->count, sizeof(struct vgpu_work *));
    bool enough = works != NULL;
    for (size_t i = 0; enough && i < flat->count; i++) {
        const struct vgpu_node *node = flat->item[i].node;
        if (node && node->work) {
            works[i] = node->work->kind->copy(node->work);
            enough = works[i] != NULL;
        }
    }
    for (size_t i = 0; works && i < flat->count; i++) {
        if (enough && works[i]) {
            replace_work(executable->flat.item[at + i].node, works[i]);
        } else {
            vgpu_work_destroy(works[i]);
        }
    }
    free(works);
    return enough;
}

// Gives the executable graph's nodes from item `at` on copies of the work of `graph`'s, if that is
// alike. *node_out: the node of `graph` that is not; NULL: none in particular.
static cudaError_t update(const char *function, struct vgpu_executable *executable, size_t at,
                          const struct vgpu_graph *graph, enum cudaGraphExecUpdateResult *result,
                          struct vgpu_node **node_out)
{
    struct vgpu_flat flat = {NULL, 0, 0, NULL, 0, 0};
    const struct vgpu_flat_item *differs = NULL;
    *node_out = NULL;
    *result = cudaGraphExecUpdateError;
    cudaError_t error = vgpu_flatten(function, graph, &flat);
    if (error == cudaSuccess) {
        *result = vgpu_flat_compare(&executable->flat, at, &flat, &differs);
        *node_out = differs ? differs->node : NULL;
        if (*result != cudaGraphExecUpdateSuccess) {
            error = vgpu_fail(
                cudaErrorGraphExecUpdateFailure,
                "%s: the graph is not like the one that was instantiated (%s)", function,
                *result == cudaGraphExecUpdateErrorNodeTypeChanged ? "a node has another type"
                : *result == cudaGraphExecUpdateErrorParametersChanged
                    ? "a node is of another device"
                    : "other nodes, or another order");
        }
    }
    if (error == cudaSuccess && !take_works(executable, at, &flat)) {
        *result = cudaGraphExecUpdateError;
        error = vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory", function);
    }
    vgpu_flat_free(&flat);
    return error;
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t executable, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo *information)
{
    static const char *const function = "cudaGraphExecUpdate";
    struct vgpu_executable *found = NULL;
    struct vgpu_graph *with = NULL;
    cudaError_t error = vgpu_executable_find(function, executable, &found);
    if (error == cudaSuccess) {
        error = vgpu_graph_find(function, graph, &with);
    }
    if (error == cudaSuccess && !information) {
        error = vgpu_fail(cudaErrorInvalidValue, "%s: the place for the result is NULL", function);
    }
    if (error != cudaSuccess) {
        return error;
    }
    struct vgpu_resources *resources = NULL;
    if (!vgpu_resources_copy(with->resources, &resources)) {
        return vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory", function);
    }
    enum cudaGraphExecUpdateResult result;
    struct vgpu_node *node = NULL;
    error = update(function, found, 0, with, &result, &node);
    *information = (cudaGraphExecUpdateResultInfo){
        .result = result, .errorNode = (cudaGraphNode_t)(void *)node, .errorFromNode = NULL};
    if (error == cudaSuccess) {
        struct vgpu_resources *before = found->graph->resources;
        found->graph->resources = resources;
        resources = before;
    }
    vgpu_resources_release(resources);
    return error;
}

cudaError_t cudaGraphExecChildGraphNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                                 cudaGraph_t child)
{
    static const char *const function = "cudaGraphExecChildGraphNodeSetParams";
    size_t index;
    struct vgpu_executable *found = NULL;
    struct vgpu_graph *with = NULL;
    cudaError_t error = find_item(function, executable, node, &index, &found);
    if (error == cudaSuccess && !found->flat.item[index].node->child) {
        error = vgpu_fail(cudaErrorInvalidValue, "%s: the node has no child graph", function);
    }
    if (error == cudaSuccess) {
        error = vgpu_graph_find(function, child, &with);
    }
    if (error == cudaSuccess) {
        enum cudaGraphExecUpdateResult result;
        struct vgpu_node *differs = NULL;
        error = update(function, found, index, with, &result, &differs);
    }
    return error;
}
