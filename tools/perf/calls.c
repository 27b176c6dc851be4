// One operation by the public API. Functions that not every library has are weak, so that the
// program also starts with a libnccl.so.2 that lacks them and can say what is missing.
// SPDX-License-Identifier: Apache-2.0
#include "perf.h"

#include <dlfcn.h>

#define WEAK(name) extern __typeof__(name) name __attribute__((weak))
WEAK(ncclAlltoAll);
WEAK(ncclGather);
WEAK(ncclScatter);
WEAK(ncclPutSignal);
WEAK(ncclWaitSignal);

// The uneven forms of tutti.h; counts and starts in elements, NULL starts: one after the other.
extern ncclResult_t tuttiAllGatherV(const void *, size_t, void *, const size_t *, const size_t *,
                                    ncclDataType_t, ncclComm_t, cudaStream_t) __attribute__((weak));
extern ncclResult_t tuttiReduceScatterV(const void *, void *, const size_t *, ncclDataType_t,
                                        ncclRedOp_t, ncclComm_t, cudaStream_t)
    __attribute__((weak));
extern ncclResult_t tuttiAllToAllV(const void *, const size_t *, const size_t *, void *,
                                   const size_t *, const size_t *, ncclDataType_t, ncclComm_t,
                                   cudaStream_t) __attribute__((weak));
extern ncclResult_t tuttiGatherV(const void *, size_t, void *, const size_t *, const size_t *,
                                 ncclDataType_t, int, ncclComm_t, cudaStream_t)
    __attribute__((weak));
extern ncclResult_t tuttiScatterV(const void *, const size_t *, const size_t *, void *, size_t,
                                  ncclDataType_t, int, ncclComm_t, cudaStream_t)
    __attribute__((weak));

bool perf_library_is_tutti(void)
{
    return dlsym(RTLD_DEFAULT, "tuttiVersion") != NULL;
}

bool perf_library_has(const struct perf_operation *operation, const char **missing_out)
{
    *missing_out = operation->function;
    switch (operation->kind) {
    case PERF_ALL_TO_ALL:
        return ncclAlltoAll != NULL;
    case PERF_GATHER:
        return ncclGather != NULL;
    case PERF_SCATTER:
        return ncclScatter != NULL;
    case PERF_PUT:
        return ncclPutSignal != NULL && ncclWaitSignal != NULL;
    case PERF_REDUCE_SCATTER_V:
        return tuttiReduceScatterV != NULL;
    case PERF_ALL_GATHER_V:
        return tuttiAllGatherV != NULL;
    case PERF_ALL_TO_ALL_V:
        return tuttiAllToAllV != NULL;
    case PERF_GATHER_V:
        return tuttiGatherV != NULL;
    case PERF_SCATTER_V:
        return tuttiScatterV != NULL;
    default:
        return true;
    }
}

static ncclResult_t send_and_receive(const struct perf_call *c)
{
    const int n = c->shape->nranks, rank = c->rank->rank;
    const size_t count = c->shape->count;
    ncclDataType_t type = (ncclDataType_t)c->type;
    ncclResult_t first = ncclGroupStart();
    if (first != ncclSuccess) {
        return first;
    }
    ncclResult_t send =
        ncclSend(c->send, count, type, (rank + 1) % n, c->rank->comm, c->rank->stream);
    ncclResult_t receive =
        ncclRecv(c->receive, count, type, (rank + n - 1) % n, c->rank->comm, c->rank->stream);
    ncclResult_t end = ncclGroupEnd();
    return send != ncclSuccess ? send : receive != ncclSuccess ? receive : end;
}

static ncclResult_t put_and_wait(const struct perf_call *c)
{
    const int n = c->shape->nranks, rank = c->rank->rank;
    ncclResult_t put = ncclPutSignal(
        c->send, c->shape->count, (ncclDataType_t)c->type, (rank + 1) % n, c->rank->receive_window,
        (size_t)(c->receive - c->rank->receive), 0, 0, 0, c->rank->comm, c->rank->stream);
    if (put != ncclSuccess) {
        return put;
    }
    ncclWaitSignalDesc_t from = {.opCnt = 1, .peer = (rank + n - 1) % n};
    return ncclWaitSignal(1, &from, c->rank->comm, c->rank->stream);
}

static ncclResult_t call_uneven(const struct perf_call *c)
{
    const struct perf_shape *s = c->shape;
    const size_t rank = (size_t)c->rank->rank, n = (size_t)s->nranks;
    ncclDataType_t type = (ncclDataType_t)c->type;
    ncclComm_t comm = c->rank->comm;
    cudaStream_t stream = c->rank->stream;
    size_t from[PERF_MAX_RANKS];
    switch (s->operation->kind) {
    case PERF_REDUCE_SCATTER_V:
        return tuttiReduceScatterV(c->send, c->receive, s->parts, type, c->op, comm, stream);
    case PERF_ALL_GATHER_V:
        return tuttiAllGatherV(c->send, s->parts[rank], c->receive, s->parts, s->first, type, comm,
                               stream);
    case PERF_GATHER_V:
        return tuttiGatherV(c->send, s->parts[rank], c->receive, s->parts, s->first, type, s->root,
                            comm, stream);
    case PERF_SCATTER_V:
        return tuttiScatterV(c->send, s->parts, s->first, c->receive, s->parts[rank], type, s->root,
                             comm, stream);
    default: // all_to_all_v; starts left out, as they are what the library takes then
        for (size_t r = 0; r < n; r++) {
            from[r] = s->parts[r * n + rank];
        }
        return tuttiAllToAllV(c->send, s->parts + rank * n, NULL, c->receive, from, NULL, type,
                              comm, stream);
    }
}

ncclResult_t perf_call(const struct perf_call *c)
{
    const size_t count = c->shape->count;
    const int root = c->shape->root;
    ncclDataType_t type = (ncclDataType_t)c->type;
    ncclComm_t comm = c->rank->comm;
    cudaStream_t stream = c->rank->stream;
    switch (c->shape->operation->kind) {
    case PERF_ALL_REDUCE:
        return ncclAllReduce(c->send, c->receive, count, type, c->op, comm, stream);
    case PERF_REDUCE:
        return ncclReduce(c->send, c->receive, count, type, c->op, root, comm, stream);
    case PERF_BROADCAST:
        return ncclBroadcast(c->send, c->receive, count, type, root, comm, stream);
    case PERF_REDUCE_SCATTER:
        return ncclReduceScatter(c->send, c->receive, count, type, c->op, comm, stream);
    case PERF_ALL_GATHER:
        return ncclAllGather(c->send, c->receive, count, type, comm, stream);
    case PERF_ALL_TO_ALL:
        return ncclAlltoAll(c->send, c->receive, count, type, comm, stream);
    case PERF_GATHER:
        return ncclGather(c->send, c->receive, count, type, root, comm, stream);
    case PERF_SCATTER:
        return ncclScatter(c->send, c->receive, count, type, root, comm, stream);
    case PERF_SEND_RECV:
        return send_and_receive(c);
    case PERF_PUT:
        return put_and_wait(c);
    default:
        return call_uneven(c);
    }
}
