// The collectives of nccl.h: arguments checked in NCCL's order, one operation made of them, handed
// to the group or, outside of one, to the executor.
// SPDX-License-Identifier: Apache-2.0
#include "api/collectives.h"

#include "api/arguments.h"
#include "api/function.h"
#include "base/log.h"
#include "base/params.h"
#include "comm/comm.h"
#include "comm/estimate.h"
#include "comm/group.h"
#include "comm/operators.h"
#include "exec/executor.h"
#include "plan/op.h"
#include "plan/select.h"
#include "window/window.h"

#include <stdint.h>

// A call, as its caller made it.
struct call {
    const char *name;
    enum tt_function function;
    const void *sendbuff;
    void *recvbuff;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int root;
    ncclComm_t comm;
    cudaStream_t stream;
};

ncclResult_t tt_collective_check_choice(const struct ncclComm *comm, const char *call,
                                        enum tt_function function, bool is_uneven)
{
    if (comm->host == NULL || tt_executor->collective == NULL) {
        return tt_team_refuse(comm, tt_function_name(function));
    }
    if ((comm->ruled_out[is_uneven] >> function & 1) == 0) {
        return ncclSuccess;
    }
    struct tt_settings set = {.algorithms = tt_param_text(TT_PARAM_ALGO),
                              .protocols = tt_param_text(TT_PARAM_PROTO),
                              .nranks = comm->nranks,
                              .is_uneven = is_uneven,
                              .has_multicast = tt_multicast_possible(comm)};
    return tt_choice_refuse(call, comm->rank, function, set);
}

static ncclResult_t check(const struct call *call)
{
    bool is_per_rank = call->function == TT_REDUCE_SCATTER || call->function == TT_ALL_GATHER ||
                       call->function == TT_ALL_TO_ALL || call->function == TT_GATHER ||
                       call->function == TT_SCATTER;
    struct tt_arguments arguments = {.call = call->name,
                                     .count = call->count,
                                     .type = call->type,
                                     .op = call->op,
                                     .reduces = tt_op_reduces(call->function),
                                     .peer = call->root,
                                     .is_per_rank = is_per_rank};
    return tt_check_arguments(call->comm, &arguments);
}

// Which of NCCL's operators, or the program's own, it is.
void tt_collective_set_operator(const struct ncclComm *comm, ncclRedOp_t kind, struct tt_op *op)
{
    static const enum tt_reduce_operator known[ncclNumOps] = {
        [ncclSum] = TT_REDUCE_SUM, [ncclProd] = TT_REDUCE_PROD,   [ncclMax] = TT_REDUCE_MAX,
        [ncclMin] = TT_REDUCE_MIN, [ncclAvg] = TT_REDUCE_AVERAGE,
    };
    if (!tt_op_reduces(op->function) || kind < ncclNumOps) {
        op->op = tt_op_reduces(op->function) ? known[kind] : TT_REDUCE_SUM;
        return;
    }
    const struct tt_operator *own = tt_operator_find(comm, kind);
    op->op = TT_REDUCE_SCALED_SUM;
    op->scale = own->scale;
    op->scale_device = own->scale_device;
}

// The operation, with the buffers that mean something on this rank.
static ncclResult_t make_op(const struct call *call, struct tt_op *op)
{
    const struct ncclComm *comm = call->comm;
    *op = (struct tt_op){.function = call->function,
                         .send = call->sendbuff,
                         .recv = call->recvbuff,
                         .count = call->count,
                         .type = call->type,
                         .root = call->root};
    tt_collective_set_operator(comm, call->op, op);
    size_t send_bytes = tt_op_send_bytes(op, comm->rank, comm->nranks);
    size_t recv_bytes = tt_op_recv_bytes(op, comm->rank, comm->nranks);
    if (send_bytes > 0) {
        TRY(tt_check_buffer(comm, call->name, "sendbuff", call->sendbuff, send_bytes));
    }
    if (recv_bytes > 0) {
        TRY(tt_check_buffer(comm, call->name, "recvbuff", call->recvbuff, recv_bytes));
    }
    return ncclSuccess;
}

// The multicast address of a buffer that the switch reaches on every rank; NULL: it does not.
// *where tells its place from others.
static char *find_multicast(const struct ncclComm *comm, const void *buffer, size_t bytes,
                            uint64_t *where)
{
    size_t offset = 0;
    const struct tt_window *window = tt_window_find(comm, buffer, bytes, &offset);
    if (window == NULL || window->multimem_base == NULL) {
        return NULL;
    }
    *where = (*where * 31 + (uint64_t)window->number + 1) * UINT64_C(0x9e3779b97f4a7c15) + offset;
    return window->multimem_base + offset;
}

// Fills what the switch would load from, or store to; nothing where it does not reach all of that.
static void set_multicast(const struct ncclComm *comm, struct tt_collective *collective)
{
    const struct tt_op *op = &collective->op;
    struct tt_multicast found = {.where = 1};
    bool loads = tt_op_reduces(op->function);
    bool stores = op->function == TT_ALL_REDUCE || op->function == TT_BROADCAST ||
                  op->function == TT_ALL_GATHER;
    if (comm->windows == NULL || comm->lsa_size != comm->nranks || !(loads || stores)) {
        return;
    }
    if (loads) {
        size_t bytes = tt_op_send_bytes(op, comm->rank, comm->nranks);
        found.send = find_multicast(comm, op->send, bytes, &found.where);
    }
    if (stores) {
        size_t bytes = tt_op_recv_bytes(op, comm->rank, comm->nranks);
        found.recv = find_multicast(comm, op->recv, bytes, &found.where);
    }
    if ((found.send != NULL || !loads) && (found.recv != NULL || !stores) && found.where != 0) {
        collective->context.multicast = found;
    }
}

ncclResult_t tt_collective_run(struct ncclComm *comm, struct tt_collective *collective)
{
    const struct tt_op *op = &collective->op;
    if (tt_estimate_instead(comm, tt_op_send_bytes(op, comm->rank, comm->nranks) +
                                      tt_op_recv_bytes(op, comm->rank, comm->nranks))) {
        return ncclSuccess;
    }
    collective->context.may_wait = tt_group_may_wait();
    return tt_executor->collective(comm->host, op, &collective->context, collective->stream);
}

static ncclResult_t run_launch(struct ncclComm *comm, void *argument)
{
    return tt_collective_run(comm, argument);
}

static ncclResult_t prepare(const struct call *call, struct tt_collective *collective)
{
    TRY(check(call));
    if (call->count == 0) {
        return ncclSuccess;
    }
    TRY(tt_collective_check_choice(call->comm, call->name, call->function, false));
    TRY(make_op(call, &collective->op));
    set_multicast(call->comm, collective);
    return tt_check_stream(call->comm, call->name, call->stream);
}

// NCCL's line for a collective; which one of the communicator's it is, the executor will say.
static void log_call(const struct call *call)
{
    tt_log(TT_LOG_INFO, TT_LOG_COLL,
           "%s: sendbuff %p recvbuff %p count %zu datatype %d op %d root %d comm %p [nranks=%d] "
           "stream %p",
           call->name + sizeof "nccl" - 1, call->sendbuff, call->recvbuff, call->count,
           (int)call->type, (int)call->op, call->root, (void *)call->comm, call->comm->nranks,
           (void *)call->stream);
}

static ncclResult_t submit(const struct call *call)
{
    ncclComm_t comm = call->comm;
    struct tt_collective collective = {.stream = call->stream};
    ncclResult_t result = tt_comm_enter(comm, call->name);
    if (result != ncclSuccess) {
        return tt_group_latch(result);
    }
    result = prepare(call, &collective);
    if (result != ncclSuccess) {
        (void)tt_group_latch(result);
    } else if (call->count > 0) { // else there is nothing to do, and nothing to wait for
        log_call(call);
        result = tt_group_launch(comm, TT_GROUP_LAUNCH, call->stream, run_launch, &collective,
                                 sizeof collective);
    }
    tt_comm_leave(comm);
    return result;
}

TT_FUNCTION(ncclResult_t, AllReduce,
            (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
             ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream))
{
    return submit(&(struct call){"ncclAllReduce", TT_ALL_REDUCE, sendbuff, recvbuff, count,
                                 datatype, op, 0, comm, stream});
}

// NOLINTNEXTLINE(readability-function-size): NCCL's signature
TT_FUNCTION(ncclResult_t, Reduce,
            (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
             ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream))
{
    return submit(&(struct call){"ncclReduce", TT_REDUCE, sendbuff, recvbuff, count, datatype, op,
                                 root, comm, stream});
}

TT_FUNCTION(ncclResult_t, Broadcast,
            (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
             ncclComm_t comm, cudaStream_t stream))
{
    return submit(&(struct call){"ncclBroadcast", TT_BROADCAST, sendbuff, recvbuff, count, datatype,
                                 ncclSum, root, comm, stream});
}

TT_FUNCTION(ncclResult_t, Bcast,
            (void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
             cudaStream_t stream))
{
    return submit(&(struct call){"ncclBcast", TT_BROADCAST, buff, buff, count, datatype, ncclSum,
                                 root, comm, stream});
}

TT_FUNCTION(ncclResult_t, ReduceScatter,
            (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
             ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream))
{
    return submit(&(struct call){"ncclReduceScatter", TT_REDUCE_SCATTER, sendbuff, recvbuff, count,
                                 datatype, op, 0, comm, stream});
}

TT_FUNCTION(ncclResult_t, AllGather,
            (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
             ncclComm_t comm, cudaStream_t stream))
{
    return submit(&(struct call){"ncclAllGather", TT_ALL_GATHER, sendbuff, recvbuff, count,
                                 datatype, ncclSum, 0, comm, stream});
}

TT_FUNCTION(ncclResult_t, AlltoAll,
            (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
             ncclComm_t comm, cudaStream_t stream))
{
    return submit(&(struct call){"ncclAlltoAll", TT_ALL_TO_ALL, sendbuff, recvbuff, count, datatype,
                                 ncclSum, 0, comm, stream});
}

TT_FUNCTION(ncclResult_t, Gather,
            (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
             ncclComm_t comm, cudaStream_t stream))
{
    return submit(&(struct call){"ncclGather", TT_GATHER, sendbuff, recvbuff, count, datatype,
                                 ncclSum, root, comm, stream});
}

TT_FUNCTION(ncclResult_t, Scatter,
            (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
             ncclComm_t comm, cudaStream_t stream))
{
    return submit(&(struct call){"ncclScatter", TT_SCATTER, sendbuff, recvbuff, count, datatype,
                                 ncclSum, root, comm, stream});
}
