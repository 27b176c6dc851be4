// One-sided communication: arguments checked in NCCL's order, one operation made of them, handed to
// the group or, outside of one, to the executor.
// SPDX-License-Identifier: Apache-2.0
#include "api/arguments.h"
#include "api/function.h"
#include "base/log.h"
#include "comm/comm.h"
#include "comm/estimate.h"
#include "comm/group.h"
#include "comm/stage.h"
#include "exec/executor.h"
#include "window/register.h"

#include <stdio.h>
#include <stdlib.h>

// What the group keeps until its end.
struct launch {
    cudaStream_t stream;
    struct tt_one_sided call;
};

// The arguments of a put or a signal, as their caller gave them.
struct put {
    const char *name;
    enum tt_function function;
    size_t count;
    ncclDataType_t type;
    int peer, signal, context;
    unsigned int flags;
    struct tt_window_put window; // TT_PUT_SIGNAL
    cudaStream_t stream;
};

// ---- Checking -----------------------------------------------------------------------------------

static ncclResult_t check_support(struct ncclComm *comm, const char *name)
{
    const char *obstacle = tt_one_sided_obstacle(comm);
    return obstacle == NULL ? ncclSuccess
                            : tt_fail(ncclInvalidArgument,
                                      "%s: rank %d: this communicator has no one-sided "
                                      "communication (hostRmaSupport of ncclCommQueryProperties "
                                      "is false): %s",
                                      name, comm->rank, obstacle);
}

// Of what there is one for now. where: "signalDescs[2]." or "".
static ncclResult_t check_zero(const struct ncclComm *comm, const char *name, const char *where,
                               const char *argument, long long value)
{
    return value == 0 ? ncclSuccess
                      : tt_fail(ncclInvalidArgument, "%s: rank %d: %s%s is %lld, must be 0", name,
                                comm->rank, where, argument, value);
}

static ncclResult_t check_put(struct ncclComm *comm, const struct put *put, void **to)
{
    struct tt_arguments arguments = {.call = put->name,
                                     .count = put->count,
                                     .type = put->type,
                                     .peer = put->peer,
                                     .is_pair = true};
    TRY(tt_check_arguments(comm, &arguments));
    TRY(check_support(comm, put->name));
    TRY(check_zero(comm, put->name, "", "ctx", put->context));
    TRY(check_zero(comm, put->name, "", "sigIdx", put->signal));
    TRY(check_zero(comm, put->name, "", "flags", put->flags));
    if (put->function == TT_PUT_SIGNAL) {
        TRY(tt_window_put_place(comm, &put->window, to));
    }
    return tt_check_stream(comm, put->name, put->stream);
}

static ncclResult_t check_descriptor(const struct ncclComm *comm, const ncclWaitSignalDesc_t *desc,
                                     int number)
{
    char where[32];
    static const char name[] = "ncclWaitSignal";
    (void)snprintf(where, sizeof where, "signalDescs[%d].", number);
    if (desc->opCnt <= 0) {
        return tt_fail(ncclInvalidArgument, "%s: rank %d: %sopCnt is %d, must be at least 1", name,
                       comm->rank, where, desc->opCnt);
    }
    if (desc->peer < 0 || desc->peer >= comm->nranks) {
        return tt_fail(ncclInvalidArgument, "%s: rank %d: %speer is %d, must be 0 to %d", name,
                       comm->rank, where, desc->peer, comm->nranks - 1);
    }
    TRY(check_zero(comm, name, where, "sigIdx", desc->sigIdx));
    return check_zero(comm, name, where, "ctx", desc->ctx);
}

static ncclResult_t check_wait(struct ncclComm *comm, int count, const ncclWaitSignalDesc_t *descs,
                               cudaStream_t stream)
{
    static const char name[] = "ncclWaitSignal";
    TRY(check_support(comm, name));
    if (count <= 0) {
        return tt_fail(ncclInvalidArgument, "%s: rank %d: nDesc is %d, must be at least 1", name,
                       comm->rank, count);
    }
    TRY(tt_check_buffer(comm, name, "signalDescs", descs, (size_t)count * sizeof *descs));
    for (int i = 0; i < count; i++) {
        TRY(check_descriptor(comm, &descs[i], i));
    }
    return tt_check_stream(comm, name, stream);
}

// ---- Launching ----------------------------------------------------------------------------------

static ncclResult_t run_launch(struct ncclComm *comm, void *argument)
{
    const struct launch *launch = argument;
    const struct tt_op *op = &launch->call.op;
    if (tt_estimate_instead(comm, 2 * tt_op_send_bytes(op, comm->rank, comm->nranks))) {
        return ncclSuccess;
    }
    return tt_executor->one_sided(comm->host, &launch->call, tt_group_may_wait(), launch->stream);
}

static ncclResult_t submit(struct ncclComm *comm, struct launch *launch)
{
    size_t bytes = sizeof *launch + launch->call.wait_count * sizeof launch->call.wait[0];
    return tt_group_launch(comm, TT_GROUP_ONE_SIDED, launch->stream, run_launch, launch, bytes);
}

static ncclResult_t put(struct ncclComm *comm, const struct put *put)
{
    void *to = NULL;
    ncclResult_t result = tt_comm_enter(comm, put->name);
    if (result != ncclSuccess) {
        return tt_group_latch(result);
    }
    result = check_put(comm, put, &to);
    if (result != ncclSuccess) {
        (void)tt_group_latch(result);
    } else {
        struct launch launch = {.stream = put->stream,
                                .call.op = {.function = put->function,
                                            .send = put->window.from,
                                            .recv = to,
                                            .count = put->count,
                                            .type = put->type,
                                            .root = put->peer}};
        result = submit(comm, &launch);
    }
    tt_comm_leave(comm);
    return result;
}

static ncclResult_t submit_wait(struct ncclComm *comm, int count, const ncclWaitSignalDesc_t *descs,
                                cudaStream_t stream)
{
    size_t waits = (size_t)count;
    struct launch *launch = calloc(1, sizeof *launch + waits * sizeof launch->call.wait[0]);
    if (launch == NULL) {
        return tt_group_latch(tt_fail(ncclSystemError,
                                      "ncclWaitSignal: rank %d: no memory for %d descriptors",
                                      comm->rank, count));
    }
    launch->stream = stream;
    launch->call.op.function = TT_WAIT_SIGNAL;
    launch->call.op.root = descs[0].peer;
    launch->call.wait_count = waits;
    for (int i = 0; i < count; i++) {
        launch->call.op.count += (size_t)descs[i].opCnt;
        launch->call.op.root = descs[i].peer == launch->call.op.root ? descs[i].peer : -1;
        launch->call.wait[i].peer = descs[i].peer;
        launch->call.wait[i].signals = (uint64_t)descs[i].opCnt;
    }
    ncclResult_t result = submit(comm, launch);
    free(launch);
    return result;
}

// ---- The functions ------------------------------------------------------------------------------

// NOLINTNEXTLINE(readability-function-size): NCCL's signature
TT_FUNCTION(ncclResult_t, PutSignal,
            (const void *localbuff, size_t count, ncclDataType_t datatype, int peer,
             ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags,
             ncclComm_t comm, cudaStream_t stream))
{
    return put(comm, &(struct put){"ncclPutSignal",
                                   TT_PUT_SIGNAL,
                                   count,
                                   datatype,
                                   peer,
                                   sigIdx,
                                   ctx,
                                   flags,
                                   {localbuff, count, datatype, peer, peerWin, peerWinOffset},
                                   stream});
}

TT_FUNCTION(ncclResult_t, Signal,
            (int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
             cudaStream_t stream))
{
    return put(comm, &(struct put){.name = "ncclSignal",
                                   .function = TT_SIGNAL,
                                   .type = ncclInt8,
                                   .peer = peer,
                                   .signal = sigIdx,
                                   .context = ctx,
                                   .flags = flags,
                                   .stream = stream});
}

TT_FUNCTION(ncclResult_t, WaitSignal,
            (int nDesc, ncclWaitSignalDesc_t *signalDescs, ncclComm_t comm, cudaStream_t stream))
{
    ncclResult_t result = tt_comm_enter(comm, "ncclWaitSignal");
    if (result != ncclSuccess) {
        return tt_group_latch(result);
    }
    result = check_wait(comm, nDesc, signalDescs, stream);
    if (result != ncclSuccess) {
        (void)tt_group_latch(result);
    } else {
        result = submit_wait(comm, nDesc, signalDescs, stream);
    }
    tt_comm_leave(comm);
    return result;
}
