// Loaded before the libraries (LD_PRELOAD), the large collectives of a training do nothing: what
// the training then takes is its computation, and what is computed means nothing. Small ones, by
// which ranks agree, stay.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <nccl.h>
#include <tutti.h>

enum { SMALL_BYTES = 4096 };

static int is_small(size_t count, ncclDataType_t type)
{
    return count * (type == ncclFloat64 ? 8 : type == ncclBfloat16 ? 2 : 4) < SMALL_BYTES;
}

// The library's own function of this name.
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return is_small(count, type) ? NEXT(ncclAllReduce)(send, recv, count, type, op, comm, stream)
                                 : ncclSuccess;
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return is_small(count, type)
               ? NEXT(ncclReduceScatter)(send, recv, count, type, op, comm, stream)
               : ncclSuccess;
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    return is_small(count, type) ? NEXT(ncclAllGather)(send, recv, count, type, comm, stream)
                                 : ncclSuccess;
}

ncclResult_t tuttiReduceScatterV(const void *send, void *recv, const size_t *counts,
                                 ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                 cudaStream_t stream)
{
    return is_small(counts[0], type)
               ? NEXT(tuttiReduceScatterV)(send, recv, counts, type, op, comm, stream)
               : ncclSuccess;
}

ncclResult_t tuttiAllGatherV(const void *send, size_t count, void *recv, const size_t *counts,
                             const size_t *displacements, ncclDataType_t type, ncclComm_t comm,
                             cudaStream_t stream)
{
    return is_small(counts[0], type)
               ? NEXT(tuttiAllGatherV)(send, count, recv, counts, displacements, type, comm, stream)
               : ncclSuccess;
}

ncclResult_t tuttiAllReduceRMSNorm(const void *send, void *recv, size_t tokens, size_t hidden,
                                   const struct tuttiRMSNormOptions *options, ncclDataType_t type,
                                   ncclComm_t comm, cudaStream_t stream)
{
    (void)send, (void)recv, (void)tokens, (void)hidden, (void)options, (void)type, (void)comm;
    (void)stream;
    return ncclSuccess;
}
