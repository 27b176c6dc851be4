// Nodes that copy to and from __device__ and __constant__ variables: flat copies whose one side is
// the current device's variable. SPDX-License-Identifier: Apache-2.0
#include "cuda_runtime_api.h"
#include "error.h"
#include "graph.h"

// The address of [offset, offset + bytes) of a symbol.
static cudaError_t locate(const char *function, const void *symbol, size_t bytes, size_t offset,
                          char **address_out)
{
    void *address = NULL;
    size_t size = 0;
    cudaError_t error = cudaGetSymbolAddress(&address, symbol);
    if (error == cudaSuccess) {
        error = cudaGetSymbolSize(&size, symbol);
    }
    if (error == cudaSuccess && (offset > size || bytes > size - offset)) {
        error = vgpu_fail(cudaErrorInvalidValue,
                          "%s: %zu bytes at offset %zu of a variable of %zu bytes", function, bytes,
                          offset, size);
    }
    *address_out = (char *)address + offset;
    return error;
}

// NOLINTNEXTLINE(readability-function-size): CUDA's parameters
cudaError_t cudaGraphAddMemcpyNodeToSymbol(cudaGraphNode_t *node, cudaGraph_t graph,
                                           const cudaGraphNode_t *dependencies, size_t count,
                                           const void *symbol, const void *source, size_t bytes,
                                           size_t offset, enum cudaMemcpyKind kind)
{
    char *address = NULL;
    cudaError_t error = locate("cudaGraphAddMemcpyNodeToSymbol", symbol, bytes, offset, &address);
    return error == cudaSuccess ? cudaGraphAddMemcpyNode1D(node, graph, dependencies, count,
                                                           address, source, bytes, kind)
                                : error;
}

// NOLINTNEXTLINE(readability-function-size): CUDA's parameters
cudaError_t cudaGraphAddMemcpyNodeFromSymbol(cudaGraphNode_t *node, cudaGraph_t graph,
                                             const cudaGraphNode_t *dependencies, size_t count,
                                             void *destination, const void *symbol, size_t bytes,
                                             size_t offset, enum cudaMemcpyKind kind)
{
    char *address = NULL;
    cudaError_t error = locate("cudaGraphAddMemcpyNodeFromSymbol", symbol, bytes, offset, &address);
    return error == cudaSuccess ? cudaGraphAddMemcpyNode1D(node, graph, dependencies, count,
                                                           destination, address, bytes, kind)
                                : error;
}

cudaError_t cudaGraphMemcpyNodeSetParamsToSymbol(cudaGraphNode_t node, const void *symbol,
                                                 const void *source, size_t bytes, size_t offset,
                                                 enum cudaMemcpyKind kind)
{
    char *address = NULL;
    cudaError_t error =
        locate("cudaGraphMemcpyNodeSetParamsToSymbol", symbol, bytes, offset, &address);
    return error == cudaSuccess ? cudaGraphMemcpyNodeSetParams1D(node, address, source, bytes, kind)
                                : error;
}

cudaError_t cudaGraphMemcpyNodeSetParamsFromSymbol(cudaGraphNode_t node, void *destination,
                                                   const void *symbol, size_t bytes, size_t offset,
                                                   enum cudaMemcpyKind kind)
{
    char *address = NULL;
    cudaError_t error =
        locate("cudaGraphMemcpyNodeSetParamsFromSymbol", symbol, bytes, offset, &address);
    return error == cudaSuccess
               ? cudaGraphMemcpyNodeSetParams1D(node, destination, address, bytes, kind)
               : error;
}

cudaError_t cudaGraphExecMemcpyNodeSetParamsToSymbol(cudaGraphExec_t executable,
                                                     cudaGraphNode_t node, const void *symbol,
                                                     const void *source, size_t bytes,
                                                     size_t offset, enum cudaMemcpyKind kind)
{
    char *address = NULL;
    cudaError_t error =
        locate("cudaGraphExecMemcpyNodeSetParamsToSymbol", symbol, bytes, offset, &address);
    return error == cudaSuccess
               ? cudaGraphExecMemcpyNodeSetParams1D(executable, node, address, source, bytes, kind)
               : error;
}

cudaError_t cudaGraphExecMemcpyNodeSetParamsFromSymbol(cudaGraphExec_t executable,
                                                       cudaGraphNode_t node, void *destination,
                                                       const void *symbol, size_t bytes,
                                                       size_t offset, enum cudaMemcpyKind kind)
{
    char *address = NULL;
    cudaError_t error =
        locate("cudaGraphExecMemcpyNodeSetParamsFromSymbol", symbol, bytes, offset, &address);
    return error == cudaSuccess ? cudaGraphExecMemcpyNodeSetParams1D(executable, node, destination,
                                                                     address, bytes, kind)
                                : error;
}
