// Point to point: arguments checked in NCCL's order, one message made of them, handed to the group.
// SPDX-License-Identifier: Apache-2.0
#include "comm/messages.h"
#include "api/arguments.h"
#include "api/function.h"
#include "base/log.h"
#include "comm/comm.h"
#include "comm/group.h"
#include "exec/executor.h"

#include <stdint.h>

// A call, as its caller made it.
struct call {
    const char *name, *buffer_name;
    enum tt_function function;
    const void *buffer;
    size_t count;
    ncclDataType_t type;
    int peer;
    ncclComm_t comm;
    cudaStream_t stream;
};

static ncclResult_t check(const struct call *call)
{
    struct tt_arguments arguments = {.call = call->name,
                                     .count = call->count,
                                     .type = call->type,
                                     .peer = call->peer,
                                     .is_pair = true};
    TRY(tt_check_arguments(call->comm, &arguments));
    if (call->comm->host == NULL || tt_executor->messages == NULL) {
        return tt_team_refuse(call->comm, "messages");
    }
    if (call->count > 0) {
        TRY(tt_check_buffer(call->comm, call->name, call->buffer_name, call->buffer,
                            call->count * tt_type_bytes(call->type)));
    }
    return tt_check_stream(call->comm, call->name, call->stream);
}

static ncclResult_t submit(const struct call *call)
{
    ncclComm_t comm = call->comm;
    ncclResult_t result = tt_comm_enter(comm, call->name);
    if (result != ncclSuccess) {
        return tt_group_latch(result);
    }
    result = check(call);
    if (result != ncclSuccess) {
        (void)tt_group_latch(result);
    } else {
        bool sends = call->function == TT_SEND;
        struct tt_message message = {.op = {.function = call->function,
                                            .send = sends ? call->buffer : NULL,
                                            .recv = sends ? NULL : (void *)(uintptr_t)call->buffer,
                                            .count = call->count,
                                            .type = call->type,
                                            .root = call->peer},
                                     .stream = call->stream};
        result = tt_message_submit(comm, &message);
    }
    tt_comm_leave(comm);
    return result;
}

TT_FUNCTION(ncclResult_t, Send,
            (const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
             cudaStream_t stream))
{
    return submit(&(struct call){"ncclSend", "sendbuff", TT_SEND, sendbuff, count, datatype, peer,
                                 comm, stream});
}

TT_FUNCTION(ncclResult_t, Recv,
            (void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
             cudaStream_t stream))
{
    return submit(&(struct call){"ncclRecv", "recvbuff", TT_RECV, recvbuff, count, datatype, peer,
                                 comm, stream});
}
