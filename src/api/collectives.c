// The collectives and point-to-point calls of nccl.h: their argument checks, in NCCL's order. The
// operations themselves are not part
// of this version. SPDX-License-Identifier: Apache-2.0
#include "api/function.h"
#include "api/unavailable.h"
#include "base/log.h"
#include "comm/comm.h"
#include "comm/group.h"

#include <stdbool.h>
#include <stdint.h>

static size_t type_bytes(ncclDataType_t type)
{
    static const unsigned char bytes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return (unsigned)type < ncclNumTypes ? bytes[type] : 0;
}

// What all of them check; 0 where a call has no such argument.
struct checked {
    const char *call;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int peer;         // root, or the other rank of a pair
    bool is_pair;     // messages then say "peer", not "root"
    bool is_per_rank; // a buffer holds count elements for each rank
};

static ncclResult_t check_values(const struct ncclComm *comm, const struct checked *c)
{
    if (c->peer < 0 || c->peer >= comm->nranks) {
        return tt_fail(ncclInvalidArgument, "%s: rank %d: %s is %d, must be 0 to %d", c->call,
                       comm->rank, c->is_pair ? "peer" : "root", c->peer, comm->nranks - 1);
    }
    size_t element = type_bytes(c->type);
    if (element == 0) {
        return tt_fail(ncclInvalidArgument, "%s: rank %d: datatype is %d, must be 0 to %d", c->call,
                       comm->rank, (int)c->type, ncclNumTypes - 1);
    }
    if ((int)c->op < 0 || c->op >= ncclNumOps) {
        return tt_fail(ncclInvalidArgument,
                       "%s: rank %d: op is %d, must be 0 to %d or an operator of this communicator",
                       c->call, comm->rank, (int)c->op, ncclNumOps - 1);
    }
    size_t times = (c->is_per_rank ? (size_t)comm->nranks : 1) * element, bytes;
    if (__builtin_mul_overflow(c->count, times, &bytes) || bytes > PTRDIFF_MAX) {
        return tt_fail(
            ncclInvalidArgument,
            "%s: rank %d: count is %zu: its %zu bytes each are more than an address space holds",
            c->call, comm->rank, c->count, times);
    }
    return ncclSuccess;
}

static ncclResult_t refuse(ncclComm_t comm, struct checked c)
{
    ncclResult_t result = tt_comm_enter(comm, c.call);
    if (result == ncclSuccess) {
        result = check_values(comm, &c);
        tt_comm_leave(comm);
    }
    return tt_group_latch(result == ncclSuccess ? tt_unavailable(c.call) : result);
}

#define CHECKED(name, ...)                                                                         \
    ((struct checked){.call = "nccl" name, .count = count, .type = datatype, __VA_ARGS__})

TT_FUNCTION(ncclResult_t, AllReduce,
            (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
             ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream))
{
    (void)sendbuff, (void)recvbuff, (void)stream;
    return refuse(comm, CHECKED("AllReduce", .op = op));
}

// NOLINTNEXTLINE(readability-function-size): NCCL's signature
TT_FUNCTION(ncclResult_t, Reduce,
            (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
             ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream))
{
    (void)sendbuff, (void)recvbuff, (void)stream;
    return refuse(comm, CHECKED("Reduce", .op = op, .peer = root));
}

TT_FUNCTION(ncclResult_t, Broadcast,
            (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
             ncclComm_t comm, cudaStream_t stream))
{
    (void)sendbuff, (void)recvbuff, (void)stream;
    return refuse(comm, CHECKED("Broadcast", .peer = root));
}

TT_FUNCTION(ncclResult_t, Bcast,
            (void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
             cudaStream_t stream))
{
    (void)buff, (void)stream;
    return refuse(comm, CHECKED("Bcast", .peer = root));
}

TT_FUNCTION(ncclResult_t, ReduceScatter,
            (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
             ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream))
{
    (void)sendbuff, (void)recvbuff, (void)stream;
    return refuse(comm, CHECKED("ReduceScatter", .op = op, .is_per_rank = true));
}

TT_FUNCTION(ncclResult_t, AllGather,
            (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
             ncclComm_t comm, cudaStream_t stream))
{
    (void)sendbuff, (void)recvbuff, (void)stream;
    return refuse(comm, CHECKED("AllGather", .is_per_rank = true));
}

TT_FUNCTION(ncclResult_t, AlltoAll,
            (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
             ncclComm_t comm, cudaStream_t stream))
{
    (void)sendbuff, (void)recvbuff, (void)stream;
    return refuse(comm, CHECKED("AlltoAll", .is_per_rank = true));
}

TT_FUNCTION(ncclResult_t, Gather,
            (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
             ncclComm_t comm, cudaStream_t stream))
{
    (void)sendbuff, (void)recvbuff, (void)stream;
    return refuse(comm, CHECKED("Gather", .peer = root, .is_per_rank = true));
}

TT_FUNCTION(ncclResult_t, Scatter,
            (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
             ncclComm_t comm, cudaStream_t stream))
{
    (void)sendbuff, (void)recvbuff, (void)stream;
    return refuse(comm, CHECKED("Scatter", .peer = root, .is_per_rank = true));
}

TT_FUNCTION(ncclResult_t, Send,
            (const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
             cudaStream_t stream))
{
    (void)sendbuff, (void)stream;
    return refuse(comm, CHECKED("Send", .peer = peer, .is_pair = true));
}

TT_FUNCTION(ncclResult_t, Recv,
            (void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
             cudaStream_t stream))
{
    (void)recvbuff, (void)stream;
    return refuse(comm, CHECKED("Recv", .peer = peer, .is_pair = true));
}

// NOLINTNEXTLINE(readability-function-size): NCCL's signature
TT_FUNCTION(ncclResult_t, PutSignal,
            (const void *localbuff, size_t count, ncclDataType_t datatype, int peer,
             ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags,
             ncclComm_t comm, cudaStream_t stream))
{
    (void)localbuff, (void)peerWin, (void)peerWinOffset, (void)sigIdx, (void)ctx, (void)flags,
        (void)stream;
    return refuse(comm, CHECKED("PutSignal", .peer = peer, .is_pair = true));
}
