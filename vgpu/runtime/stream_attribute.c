// Attributes of streams. SPDX-License-Identifier: Apache-2.0
#include "cuda_runtime_api.h"
#include "error.h"
#include "stream_internal.h"

#include <string.h>

static cudaError_t find(const char *function, cudaStream_t handle, const void *value,
                        struct vgpu_stream **stream_out)
{
    *stream_out = vgpu_stream_find(handle);
    if (!*stream_out || !value) {
        return vgpu_fail(*stream_out ? cudaErrorInvalidValue : cudaErrorInvalidResourceHandle,
                         "%s: stream %p, value at %p", function, (void *)handle, value);
    }
    return cudaSuccess;
}

static cudaError_t unknown(const char *function, cudaLaunchAttributeID attribute)
{
    return vgpu_fail(cudaErrorInvalidValue,
                     "%s: streams have no attribute %d; priority, synchronisation policy and "
                     "memory domain are known",
                     function, (int)attribute);
}

static bool is_hint(cudaLaunchAttributeID attribute)
{
    return attribute == cudaLaunchAttributeAccessPolicyWindow ||
           attribute == cudaLaunchAttributeSynchronizationPolicy ||
           attribute == cudaLaunchAttributeMemSyncDomain ||
           attribute == cudaLaunchAttributeMemSyncDomainMap;
}

cudaError_t cudaStreamSetAttribute(cudaStream_t stream, cudaLaunchAttributeID attribute,
                                   const cudaLaunchAttributeValue *value)
{
    struct vgpu_stream *found = NULL;
    cudaError_t error = find("cudaStreamSetAttribute", stream, value, &found);
    if (error == cudaSuccess && attribute == cudaLaunchAttributePriority) {
        vgpu_graph_lock();
        found->priority = vgpu_stream_priority(value->priority);
        vgpu_graph_unlock();
        return cudaSuccess;
    }
    return error != cudaSuccess || is_hint(attribute)
               ? error
               : unknown("cudaStreamSetAttribute", attribute);
}

cudaError_t cudaStreamGetAttribute(cudaStream_t stream, cudaLaunchAttributeID attribute,
                                   cudaLaunchAttributeValue *value)
{
    struct vgpu_stream *found = NULL;
    cudaError_t error = find("cudaStreamGetAttribute", stream, value, &found);
    if (error == cudaSuccess && attribute != cudaLaunchAttributePriority && !is_hint(attribute)) {
        error = unknown("cudaStreamGetAttribute", attribute);
    }
    if (error != cudaSuccess) {
        return error;
    }
    memset(value, 0, sizeof(*value));
    if (attribute == cudaLaunchAttributePriority) {
        vgpu_graph_lock();
        value->priority = found->priority;
        vgpu_graph_unlock();
    } else if (attribute == cudaLaunchAttributeSynchronizationPolicy) {
        value->syncPolicy = cudaSyncPolicyAuto;
    }
    return cudaSuccess;
}

cudaError_t cudaStreamCopyAttributes(cudaStream_t destination, cudaStream_t source)
{
    cudaLaunchAttributeValue value;
    cudaError_t error = cudaStreamGetAttribute(source, cudaLaunchAttributePriority, &value);
    return error == cudaSuccess
               ? cudaStreamSetAttribute(destination, cudaLaunchAttributePriority, &value)
               : error;
}
