// See arguments.h. SPDX-License-Identifier: Apache-2.0
#include "api/arguments.h"

#include "base/gpu.h"
#include "base/log.h"
#include "base/stream.h"
#include "comm/comm.h"
#include "comm/operators.h"

#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>

static ncclResult_t check_operator(const struct ncclComm *comm, const struct tt_arguments *a)
{
    if ((int)a->op >= 0 && (a->op < ncclNumOps || tt_operator_find(comm, a->op) != NULL)) {
        return ncclSuccess;
    }
    return tt_fail(ncclInvalidArgument,
                   "%s: rank %d: op is %d, must be 0 to %d or an operator of this communicator",
                   a->call, comm->rank, (int)a->op, ncclNumOps - 1);
}

static bool is_float8(ncclDataType_t type)
{
    return type == ncclFloat8e4m3 || type == ncclFloat8e5m2;
}

// Reductions of 8-bit floats need compute capability 9.0 on all ranks.
static ncclResult_t check_float8(const struct ncclComm *comm, const struct tt_arguments *a)
{
    for (int r = 0; r < comm->nranks; r++) {
        if (comm->peers[r].major < 9) {
            return tt_fail(ncclInvalidArgument,
                           "%s: rank %d: datatype is %d, an 8-bit float, of which reductions need "
                           "compute capability 9.0; rank %d's %s has %d.%d",
                           a->call, comm->rank, (int)a->type, r, tt_peer_gpu(&comm->peers[r]).text,
                           comm->peers[r].major, comm->peers[r].minor);
        }
    }
    return ncclSuccess;
}

static ncclResult_t check_reduction(const struct ncclComm *comm, const struct tt_arguments *a)
{
    if (is_float8(a->type)) {
        TRY(check_float8(comm, a));
    }
    const struct tt_operator *own = a->op < ncclNumOps ? NULL : tt_operator_find(comm, a->op);
    if (own != NULL && own->type != a->type) {
        return tt_fail(ncclInvalidArgument,
                       "%s: rank %d: datatype is %d, but op was made for datatype %d", a->call,
                       comm->rank, (int)a->type, (int)own->type);
    }
    return ncclSuccess;
}

ncclResult_t tt_check_arguments(const struct ncclComm *comm, const struct tt_arguments *a)
{
    if (a->peer < 0 || a->peer >= comm->nranks) {
        return tt_fail(ncclInvalidArgument, "%s: rank %d: %s is %d, must be 0 to %d", a->call,
                       comm->rank, a->is_pair ? "peer" : "root", a->peer, comm->nranks - 1);
    }
    size_t element = tt_type_bytes(a->type);
    if (element == 0) {
        return tt_fail(ncclInvalidArgument, "%s: rank %d: datatype is %d, must be 0 to %d", a->call,
                       comm->rank, (int)a->type, ncclNumTypes - 1);
    }
    if (a->reduces) {
        TRY(check_operator(comm, a));
    }
    size_t times = (a->is_per_rank ? (size_t)comm->nranks : 1) * element, bytes;
    if (__builtin_mul_overflow(a->count, times, &bytes) || bytes > PTRDIFF_MAX) {
        char ranks[32] = "";
        if (a->is_per_rank) {
            (void)snprintf(ranks, sizeof ranks, " for each of %d ranks", comm->nranks);
        }
        return tt_fail(ncclInvalidArgument,
                       "%s: rank %d: count is %zu: so many elements of %zu byte%s%s are more than "
                       "an address space holds",
                       a->call, comm->rank, a->count, element, element == 1 ? "" : "s", ranks);
    }
    return a->reduces && a->count > 0 ? check_reduction(comm, a) : ncclSuccess;
}

ncclResult_t tt_check_buffer(const struct ncclComm *comm, const char *call, const char *name,
                             const void *buffer, size_t bytes)
{
    if (buffer == NULL) {
        return tt_fail(ncclInvalidArgument,
                       "%s: rank %d: %s is NULL, must be a buffer on this rank", call, comm->rank,
                       name);
    }
    return bytes <= UINTPTR_MAX - (uintptr_t)buffer
               ? ncclSuccess
               : tt_fail(ncclInvalidArgument,
                         "%s: rank %d: %s is %p, from where on %zu bytes are more than there are "
                         "addresses",
                         call, comm->rank, name, buffer, bytes);
}

// A stream works on the device that it was made on.
ncclResult_t tt_check_stream(struct ncclComm *comm, const char *call, cudaStream_t stream)
{
    if (stream == comm->checked_stream) { // if it was destroyed meanwhile, its use is an error
        return ncclSuccess;
    }
    bool is_default = stream == NULL || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    int device = comm->cuda_device;
    cudaError_t error = is_default ? cudaSuccess : cudaStreamIsCapturing(stream, &capture);
    if (error == cudaSuccess && capture != cudaStreamCaptureStatusNone) {
        return ncclSuccess; // the question would end the capture
    }
    error = error == cudaSuccess && !is_default ? cudaStreamGetDevice(stream, &device) : error;
    TRY(tt_stream_error(comm->rank, stream, (int)error, "cudaStreamGetDevice"));
    if (device != comm->cuda_device) {
        return tt_fail(ncclInvalidArgument,
                       "%s: rank %d: stream %p is of %s, but the communicator's is %s; make the "
                       "stream there",
                       call, comm->rank, (void *)stream, tt_gpu(device)->name,
                       tt_gpu(comm->cuda_device)->name);
    }
    comm->checked_stream = stream;
    return ncclSuccess;
}
