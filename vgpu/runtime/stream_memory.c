// Memory operations of streams: cuStreamWaitValue, cuStreamWriteValue, cuStreamBatchMemOp.
//
// A call's operations are one task of the stream. One that waits polls as a block of the pool,
// beside kernels, so what it waits for may come from the host, another stream or another process.
// SPDX-License-Identifier: Apache-2.0
#include "driver_error.h"
#include "error.h"
#include "graph.h"
#include "memory.h"
#include "stream.h"
#include "vgpu/device_runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_OPERATIONS = 256 };

struct batch {
    unsigned count;
    CUstreamBatchMemOpParams operation[];
};

// ---- What the stream does -----------------------------------------------------------------------

static uint64_t load(CUdeviceptr address, bool wide)
{
    void *place = (void *)(uintptr_t)address;
    return wide ? __atomic_load_n((uint64_t *)place, __ATOMIC_ACQUIRE)
                : __atomic_load_n((uint32_t *)place, __ATOMIC_ACQUIRE);
}

// Whether the wait is over.
static bool is_met(uint64_t found, uint64_t wanted, unsigned flags, bool wide)
{
    switch (flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ: // cyclic
        return wide ? (int64_t)(found - wanted) >= 0
                    : (int32_t)((uint32_t)found - (uint32_t)wanted) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return found == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
        return (found & wanted) != 0;
    default: {
        uint64_t neither = ~(found | wanted);
        return (wide ? neither : (uint32_t)neither) != 0;
    }
    }
}

static void run_one(const CUstreamBatchMemOpParams *operation)
{
    bool wide = operation->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
                operation->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
    switch (operation->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64: {
        uint64_t wanted = wide ? operation->waitValue.value64 : operation->waitValue.value;
        while (!is_met(load(operation->waitValue.address, wide), wanted, operation->waitValue.flags,
                       wide)) {
            vgpu_yield();
        }
        break;
    }
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        __atomic_store_n((uint32_t *)(uintptr_t)operation->writeValue.address,
                         operation->writeValue.value, __ATOMIC_RELEASE);
        break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        __atomic_store_n((uint64_t *)(uintptr_t)operation->writeValue.address,
                         operation->writeValue.value64, __ATOMIC_RELEASE);
        break;
    default:
        break; // barriers and flushes: the accesses above are ordered anyway
    }
}

static cudaError_t run_batch(void *argument)
{
    const struct batch *batch = argument;
    for (unsigned i = 0; i < batch->count; i++) {
        run_one(&batch->operation[i]);
    }
    return cudaSuccess;
}

// ---- Checks -------------------------------------------------------------------------------------

static cudaError_t check_address(const char *function, CUdeviceptr address, size_t bytes,
                                 bool writes)
{
    struct vgpu_memory_range range;
    char what[80];
    (void)snprintf(what, sizeof(what), "%s: address", function);
    if (address % bytes != 0) {
        return vgpu_fail(cudaErrorInvalidValue, "%s 0x%llx is not a multiple of %zu", what, address,
                         bytes);
    }
    cudaError_t error =
        vgpu_memory_check(what, (const void *)(uintptr_t)address, bytes, writes, &range);
    if (error == cudaSuccess && range.kind == VGPU_MEMORY_NONE) {
        error = vgpu_fail(cudaErrorInvalidValue, "%s 0x%llx is neither device memory nor pinned",
                          what, address);
    }
    return error;
}

static cudaError_t check_flags(const char *function, unsigned flags, unsigned known)
{
    return flags & ~known
               ? vgpu_fail(cudaErrorInvalidValue, "%s: flags are 0x%x; known ones are 0x%x",
                           function, flags, known)
               : cudaSuccess;
}

static cudaError_t check_one(const char *function, const CUstreamBatchMemOpParams *operation)
{
    cudaError_t error = cudaSuccess;
    switch (operation->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        error = check_flags(function, operation->waitValue.flags, 3 | CU_STREAM_WAIT_VALUE_FLUSH);
        return error != cudaSuccess
                   ? error
                   : check_address(function, operation->waitValue.address,
                                   operation->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ? 8 : 4,
                                   false);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        error = check_flags(function, operation->writeValue.flags,
                            CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER);
        return error != cudaSuccess
                   ? error
                   : check_address(function, operation->writeValue.address,
                                   operation->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64 ? 8 : 4,
                                   true);
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
        return check_flags(function, operation->flushRemoteWrites.flags, 0);
    case CU_STREAM_MEM_OP_BARRIER:
        return check_flags(function, operation->memoryBarrier.flags,
                           CU_STREAM_MEMORY_BARRIER_TYPE_GPU);
    }
    return vgpu_fail(cudaErrorInvalidValue, "%s: no operation %d", function,
                     (int)operation->operation);
}

static CUresult submit(const char *function, CUstream stream, unsigned count,
                       const CUstreamBatchMemOpParams *operations)
{
    cudaError_t before = vgpu_driver_begin();
    cudaError_t error = cudaSuccess;
    for (unsigned i = 0; error == cudaSuccess && i < count; i++) {
        error = check_one(function, &operations[i]);
    }
    if (error != cudaSuccess) {
        return vgpu_driver_end(before, error);
    }
    size_t bytes = sizeof(struct batch) + count * sizeof(*operations);
    struct batch *batch = malloc(bytes);
    if (!batch) {
        return vgpu_driver_end(before,
                               vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory", function));
    }
    batch->count = count;
    memcpy(batch->operation, operations, count * sizeof(*operations));
    error = vgpu_stream_submit(stream, (enum cudaGraphNodeType)VGPU_NODE_MEMORY_OPERATIONS,
                               function, run_batch, batch, bytes);
    free(batch);
    return vgpu_driver_end(before, error);
}

// ---- The driver's functions ---------------------------------------------------------------------

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                             unsigned int flags)
{
    CUstreamBatchMemOpParams operation = {
        .waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_32, address, {.value = value}, flags, 0}};
    return submit("cuStreamWaitValue32", stream, 1, &operation);
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                             unsigned int flags)
{
    CUstreamBatchMemOpParams operation = {
        .waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_64, address, {.value64 = value}, flags, 0}};
    return submit("cuStreamWaitValue64", stream, 1, &operation);
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                              unsigned int flags)
{
    CUstreamBatchMemOpParams operation = {
        .writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, address, {.value = value}, flags, 0}};
    return submit("cuStreamWriteValue32", stream, 1, &operation);
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                              unsigned int flags)
{
    CUstreamBatchMemOpParams operation = {
        .writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_64, address, {.value64 = value}, flags, 0}};
    return submit("cuStreamWriteValue64", stream, 1, &operation);
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count,
                            CUstreamBatchMemOpParams *operations, unsigned int flags)
{
    cudaError_t before = vgpu_driver_begin();
    if (flags != 0 || count > MOST_OPERATIONS || (count > 0 && !operations)) {
        return vgpu_driver_end(before,
                               vgpu_fail(cudaErrorInvalidValue,
                                         "cuStreamBatchMemOp: %u operations (at most %d) at %p, "
                                         "flags 0x%x (they must be 0)",
                                         count, MOST_OPERATIONS, (void *)operations, flags));
    }
    return count > 0 ? submit("cuStreamBatchMemOp", stream, count, operations) : CUDA_SUCCESS;
}
