// The runtime's functions with typed pointers, kernels and symbols instead of void pointers. C++,
// host side.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_TEMPLATES_H
#define VGPU_RUNTIME_TEMPLATES_H

#include "../cuda_runtime_api.h"

#include <utility>

extern "C++" {

// ---- Memory ------------------------------------------------------------------------------------

template <class Value> inline cudaError_t cudaMalloc(Value **pointer, size_t bytes)
{
    return ::cudaMalloc(reinterpret_cast<void **>(pointer), bytes);
}
template <class Value>
inline cudaError_t cudaMallocHost(Value **pointer, size_t bytes, unsigned int flags = 0)
{
    return ::cudaHostAlloc(reinterpret_cast<void **>(pointer), bytes, flags);
}
template <class Value>
inline cudaError_t cudaHostAlloc(Value **pointer, size_t bytes, unsigned int flags)
{
    return ::cudaHostAlloc(reinterpret_cast<void **>(pointer), bytes, flags);
}
template <class Value>
inline cudaError_t cudaHostGetDevicePointer(Value **device_pointer, void *host_pointer,
                                            unsigned int flags)
{
    return ::cudaHostGetDevicePointer(reinterpret_cast<void **>(device_pointer), host_pointer,
                                      flags);
}
template <class Value>
inline cudaError_t cudaMallocManaged(Value **pointer, size_t bytes,
                                     unsigned int flags = cudaMemAttachGlobal)
{
    return ::cudaMallocManaged(reinterpret_cast<void **>(pointer), bytes, flags);
}
template <class Value>
inline cudaError_t cudaMallocPitch(Value **pointer, size_t *pitch, size_t width, size_t height)
{
    return ::cudaMallocPitch(reinterpret_cast<void **>(pointer), pitch, width, height);
}
template <class Value>
inline cudaError_t cudaMallocAsync(Value **pointer, size_t bytes, cudaStream_t stream)
{
    return ::cudaMallocAsync(reinterpret_cast<void **>(pointer), bytes, stream);
}

template <class Value>
inline cudaError_t cudaMallocFromPoolAsync(Value **pointer, size_t bytes, cudaMemPool_t pool,
                                           cudaStream_t stream)
{
    return ::cudaMallocFromPoolAsync(reinterpret_cast<void **>(pointer), bytes, pool, stream);
}
template <class Value>
inline cudaError_t cudaMallocAsync(Value **pointer, size_t bytes, cudaMemPool_t pool,
                                   cudaStream_t stream)
{
    return ::cudaMallocFromPoolAsync(reinterpret_cast<void **>(pointer), bytes, pool, stream);
}
template <class Value>
inline cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, Value *pointer, size_t bytes = 0,
                                            unsigned int flags = cudaMemAttachSingle)
{
    return ::cudaStreamAttachMemAsync(stream, static_cast<void *>(pointer), bytes, flags);
}

// ---- Symbols -----------------------------------------------------------------------------------
// symbol: the __device__ or __constant__ variable itself.

template <class Parameter, class Value>
inline cudaError_t cudaGetSymbolAddress(Parameter **pointer, const Value &symbol)
{
    return ::cudaGetSymbolAddress(reinterpret_cast<void **>(pointer),
                                  static_cast<const void *>(&symbol));
}
template <class Value> inline cudaError_t cudaGetSymbolSize(size_t *bytes, const Value &symbol)
{
    return ::cudaGetSymbolSize(bytes, static_cast<const void *>(&symbol));
}
template <class Value>
inline cudaError_t cudaMemcpyToSymbol(const Value &symbol, const void *source, size_t bytes,
                                      size_t offset = 0,
                                      cudaMemcpyKind kind = cudaMemcpyHostToDevice)
{
    return ::cudaMemcpyToSymbol(static_cast<const void *>(&symbol), source, bytes, offset, kind);
}
template <class Value>
inline cudaError_t cudaMemcpyFromSymbol(void *destination, const Value &symbol, size_t bytes,
                                        size_t offset = 0,
                                        cudaMemcpyKind kind = cudaMemcpyDeviceToHost)
{
    return ::cudaMemcpyFromSymbol(destination, static_cast<const void *>(&symbol), bytes, offset,
                                  kind);
}
template <class Value>
inline cudaError_t
cudaMemcpyToSymbolAsync(const Value &symbol, const void *source, size_t bytes, size_t offset = 0,
                        cudaMemcpyKind kind = cudaMemcpyHostToDevice, cudaStream_t stream = 0)
{
    return ::cudaMemcpyToSymbolAsync(static_cast<const void *>(&symbol), source, bytes, offset,
                                     kind, stream);
}
template <class Value>
inline cudaError_t
cudaMemcpyFromSymbolAsync(void *destination, const Value &symbol, size_t bytes, size_t offset = 0,
                          cudaMemcpyKind kind = cudaMemcpyDeviceToHost, cudaStream_t stream = 0)
{
    return ::cudaMemcpyFromSymbolAsync(destination, static_cast<const void *>(&symbol), bytes,
                                       offset, kind, stream);
}

// ---- Events ------------------------------------------------------------------------------------

inline cudaError_t cudaEventCreate(cudaEvent_t *event, unsigned int flags)
{
    return ::cudaEventCreateWithFlags(event, flags);
}

// ---- Graphs ------------------------------------------------------------------------------------

// The older form: there is no log and no failing node to report.
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph,
                                        cudaGraphNode_t *failed_node, char *log, size_t log_bytes)
{
    if (failed_node)
        *failed_node = nullptr;
    if (log && log_bytes > 0)
        *log = 0;
    return ::cudaGraphInstantiate(executable, graph, 0ull);
}

template <class Value>
inline cudaError_t cudaGraphAddMemcpyNodeToSymbol(cudaGraphNode_t *node, cudaGraph_t graph,
                                                  const cudaGraphNode_t *dependencies, size_t count,
                                                  const Value &symbol, const void *source,
                                                  size_t bytes, size_t offset, cudaMemcpyKind kind)
{
    return ::cudaGraphAddMemcpyNodeToSymbol(node, graph, dependencies, count,
                                            static_cast<const void *>(&symbol), source, bytes,
                                            offset, kind);
}
template <class Value>
inline cudaError_t cudaGraphAddMemcpyNodeFromSymbol(cudaGraphNode_t *node, cudaGraph_t graph,
                                                    const cudaGraphNode_t *dependencies,
                                                    size_t count, void *destination,
                                                    const Value &symbol, size_t bytes,
                                                    size_t offset, cudaMemcpyKind kind)
{
    return ::cudaGraphAddMemcpyNodeFromSymbol(node, graph, dependencies, count, destination,
                                              static_cast<const void *>(&symbol), bytes, offset,
                                              kind);
}

// ---- Kernels -----------------------------------------------------------------------------------

template <class Value>
inline cudaError_t cudaLaunchKernel(Value *kernel, dim3 grid, dim3 block, void **arguments,
                                    size_t shared_bytes = 0, cudaStream_t stream = 0)
{
    return ::cudaLaunchKernel(reinterpret_cast<const void *>(kernel), grid, block, arguments,
                              shared_bytes, stream);
}
template <class Value>
inline cudaError_t cudaLaunchCooperativeKernel(Value *kernel, dim3 grid, dim3 block,
                                               void **arguments, size_t shared_bytes = 0,
                                               cudaStream_t stream = 0)
{
    return ::cudaLaunchCooperativeKernel(reinterpret_cast<const void *>(kernel), grid, block,
                                         arguments, shared_bytes, stream);
}
template <class Value>
inline cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, Value *kernel,
                                       void **arguments)
{
    return ::cudaLaunchKernelExC(config, reinterpret_cast<const void *>(kernel), arguments);
}
// The arguments are converted to the kernel's parameter types first, as in a call.
template <class... Parameters, class... Arguments>
inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config,
                                      void (*kernel)(Parameters...), Arguments &&...arguments)
{
    auto launch = [config, kernel](Parameters... parameters) {
        void *pointers[sizeof...(Parameters) + 1] = {
            const_cast<void *>(static_cast<const void *>(&parameters))...};
        return ::cudaLaunchKernelExC(config, reinterpret_cast<const void *>(kernel), pointers);
    };
    return launch(std::forward<Arguments>(arguments)...);
}
template <class Value>
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, Value *kernel)
{
    return ::cudaFuncGetAttributes(attributes, reinterpret_cast<const void *>(kernel));
}
template <class Value>
inline cudaError_t cudaFuncSetAttribute(Value *kernel, cudaFuncAttribute attribute, int value)
{
    return ::cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), attribute, value);
}
template <class Value>
inline cudaError_t cudaFuncSetCacheConfig(Value *kernel, cudaFuncCache config)
{
    return ::cudaFuncSetCacheConfig(reinterpret_cast<const void *>(kernel), config);
}

// ---- Occupancy ---------------------------------------------------------------------------------

template <class Value>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, Value kernel,
                                                                 int block_size,
                                                                 size_t dynamic_shared_bytes)
{
    return ::cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks, reinterpret_cast<const void *>(kernel), block_size, dynamic_shared_bytes);
}
template <class Value>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, Value kernel, int block_size, size_t dynamic_shared_bytes, unsigned int flags)
{
    return ::cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks, reinterpret_cast<const void *>(kernel), block_size, dynamic_shared_bytes, flags);
}

template <class Value>
inline cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t *dynamic_shared_bytes,
                                                             Value *kernel, int blocks,
                                                             int block_size)
{
    return ::cudaOccupancyAvailableDynamicSMemPerBlock(
        dynamic_shared_bytes, reinterpret_cast<const void *>(kernel), blocks, block_size);
}
template <class Value>
inline cudaError_t cudaOccupancyMaxPotentialClusterSize(int *cluster_size, Value *kernel,
                                                        const cudaLaunchConfig_t *config)
{
    return ::cudaOccupancyMaxPotentialClusterSize(cluster_size,
                                                  reinterpret_cast<const void *>(kernel), config);
}
template <class Value>
inline cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, Value *kernel,
                                                  const cudaLaunchConfig_t *config)
{
    return ::cudaOccupancyMaxActiveClusters(clusters, reinterpret_cast<const void *>(kernel),
                                            config);
}

// The block size (a multiple of the warp's, at most `limit` where that is not 0) with the most
// resident threads, and the grid that fills the device with it. bytes_of(block size): the dynamic
// shared memory that a block of that size needs.
template <class Value, class Function>
inline cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMem(int *min_grid, int *block_size,
                                                                  Value kernel, Function bytes_of,
                                                                  int limit = 0)
{
    int device, processors;
    cudaFuncAttributes attributes;
    cudaError_t error = ::cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = ::cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (error == cudaSuccess)
        error = ::cudaFuncGetAttributes(&attributes, reinterpret_cast<const void *>(kernel));
    if (error != cudaSuccess)
        return error;
    int largest = attributes.maxThreadsPerBlock;
    if (limit > 0 && limit < largest)
        largest = limit;
    int best_threads = 0;
    for (int size = (largest + 31) / 32 * 32; size > 0; size -= 32) {
        int candidate = size < largest ? size : largest, blocks = 0;
        error = ::cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &blocks, reinterpret_cast<const void *>(kernel), candidate,
            static_cast<size_t>(bytes_of(candidate)));
        if (error != cudaSuccess)
            return error;
        if (blocks * candidate > best_threads) {
            best_threads = blocks * candidate;
            *block_size = candidate;
            *min_grid = blocks * processors;
        }
    }
    return best_threads > 0 ? cudaSuccess : cudaErrorInvalidConfiguration;
}
template <class Value>
inline cudaError_t cudaOccupancyMaxPotentialBlockSize(int *min_grid, int *block_size, Value kernel,
                                                      size_t dynamic_shared_bytes = 0,
                                                      int limit = 0)
{
    return cudaOccupancyMaxPotentialBlockSizeVariableSMem(
        min_grid, block_size, kernel, [dynamic_shared_bytes](int) { return dynamic_shared_bytes; },
        limit);
}

template <class Value, class Function>
inline cudaError_t
cudaOccupancyMaxPotentialBlockSizeVariableSMemWithFlags(int *min_grid, int *block_size,
                                                        Value kernel, Function bytes_of,
                                                        int limit = 0, unsigned int flags = 0)
{
    if (flags & ~static_cast<unsigned int>(cudaOccupancyDisableCachingOverride))
        return cudaErrorInvalidValue;
    return cudaOccupancyMaxPotentialBlockSizeVariableSMem(min_grid, block_size, kernel, bytes_of,
                                                          limit);
}
template <class Value>
inline cudaError_t
cudaOccupancyMaxPotentialBlockSizeWithFlags(int *min_grid, int *block_size, Value kernel,
                                            size_t dynamic_shared_bytes = 0, int limit = 0,
                                            unsigned int flags = 0)
{
    return cudaOccupancyMaxPotentialBlockSizeVariableSMemWithFlags(
        min_grid, block_size, kernel, [dynamic_shared_bytes](int) { return dynamic_shared_bytes; },
        limit, flags);
}

} // extern "C++"
#endif
