// The collectives of tutti.h whose sizes differ between ranks: every count and displacement is
// checked, starts are made explicit, and the operation goes the way of the even ones.
//
// A call with nothing to do on this rank is made all the same: there the others may have something.
// SPDX-License-Identifier: Apache-2.0
#include "api/arguments.h"
#include "api/collectives.h"
#include "api/function.h"
#include "base/log.h"
#include "comm/comm.h"
#include "comm/group.h"
#include "tutti.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// Counts and starts of one buffer as the caller gave them, with the names of the arguments.
struct list {
    const size_t *counts, *starts; // counts NULL: the buffer is one piece
    const char *counts_name;
};

struct call {
    const char *name;
    enum tt_function function;
    const void *sendbuff;
    void *recvbuff;
    struct list send, recv;
    size_t count; // of the buffer that is one piece
    ncclDataType_t type;
    ncclRedOp_t op;
    int root;
    ncclComm_t comm;
    cudaStream_t stream;
};

// What the group keeps until its end. Arrays of the operation: `counts`, [nranks] each: send
// counts, send starts, receive counts, receive starts; those of a buffer that is one piece unused.
struct launch {
    struct tt_collective collective; // first
    bool sends_list, recvs_list;
    size_t counts[];
};

// ---- Pieces -------------------------------------------------------------------------------------

// The pieces of a buffer: [first, first + count) in elements.
struct pieces {
    const char *name;            // of the buffer
    const char *base;            // its address
    const size_t *count, *first; // [pieces]
    int pieces;
};

// [from, to) of a piece; empty where count is 0.
struct range {
    uintptr_t from, to;
};

static struct range range_of(const struct pieces *p, int i, size_t element)
{
    uintptr_t from = (uintptr_t)p->base + p->first[i] * element;
    return (struct range){from, from + p->count[i] * element};
}

static bool overlap(struct range a, struct range b)
{
    return a.from < a.to && b.from < b.to && a.from < b.to && b.from < a.to;
}

// Copies the counts and makes the starts explicit: packed where the caller gave none.
static ncclResult_t fill(const struct call *call, const struct list *list, size_t *counts,
                         size_t *starts)
{
    const struct ncclComm *comm = call->comm;
    size_t end = 0, most = PTRDIFF_MAX / tt_type_bytes(call->type);
    if (list->counts == NULL) {
        return tt_fail(ncclInvalidArgument, "%s: rank %d: %s is NULL, must be %d counts",
                       call->name, comm->rank, list->counts_name, comm->nranks);
    }
    for (int i = 0; i < comm->nranks; i++) {
        size_t count = list->counts[i], start = list->starts != NULL ? list->starts[i] : end;
        if (count > 0 && (start > most || count > most - start)) {
            return tt_fail(ncclInvalidArgument,
                           "%s: rank %d: %s[%d] is %zu, from element %zu on: that ends behind what "
                           "an address space holds, %zu elements",
                           call->name, comm->rank, list->counts_name, i, count, start, most);
        }
        counts[i] = count;
        starts[i] = count > 0 ? start : 0;
        end = start + count; // where packed
    }
    return ncclSuccess;
}

// Pieces that are written must not overlap.
static ncclResult_t check_written(const struct call *call, const struct pieces *p)
{
    size_t element = tt_type_bytes(call->type), end = 0;
    bool is_ascending = true;
    for (int i = 0; i < p->pieces; i++) {
        if (p->count[i] > 0) {
            is_ascending = is_ascending && p->first[i] >= end;
            end = p->first[i] + p->count[i];
        }
    }
    for (int i = 0; i < p->pieces && !is_ascending; i++) {
        for (int j = 0; j < i; j++) {
            if (overlap(range_of(p, i, element), range_of(p, j, element))) {
                return tt_fail(
                    ncclInvalidArgument,
                    "%s: rank %d: in %s, %zu elements from %zu on of rank %d overlap %zu "
                    "elements from %zu on of rank %d: where ranks write must be apart",
                    call->name, call->comm->rank, p->name, p->count[j], p->first[j], j, p->count[i],
                    p->first[i], i);
            }
        }
    }
    return ncclSuccess;
}

// What is read and what is written must be apart, but for a rank's own part in place.
static ncclResult_t check_apart(const struct call *call, const struct pieces *send,
                                const struct pieces *recv)
{
    size_t element = tt_type_bytes(call->type);
    int own = call->comm->rank;
    for (int i = 0; i < send->pieces; i++) {
        struct range read = range_of(send, i, element);
        for (int j = 0; j < recv->pieces; j++) {
            struct range written = range_of(recv, j, element);
            bool is_own = (send->pieces == 1 || i == own) && (recv->pieces == 1 || j == own);
            bool is_in_place =
                is_own && read.from == written.from && call->function != TT_ALL_TO_ALL;
            if (!is_in_place && overlap(read, written)) {
                return tt_fail(ncclInvalidArgument,
                               "%s: rank %d: sendbuff and recvbuff overlap: %zu elements at %p are "
                               "sent, %zu at %p received; %s",
                               call->name, own, send->count[i], (const void *)read.from,
                               recv->count[j], (const void *)written.from,
                               call->function == TT_ALL_TO_ALL
                                   ? "there is no in-place form"
                                   : "in place is only this rank's own part where it belongs");
            }
        }
    }
    return ncclSuccess;
}

// The span of all pieces.
static struct range span_of(const struct pieces *p, size_t element)
{
    struct range span = {UINTPTR_MAX, 0};
    for (int i = 0; i < p->pieces; i++) {
        struct range one = range_of(p, i, element);
        if (one.from < one.to) {
            span.from = one.from < span.from ? one.from : span.from;
            span.to = one.to > span.to ? one.to : span.to;
        }
    }
    return span;
}

// ---- Checks -------------------------------------------------------------------------------------

// "sendcounts[2] is 5", or "sendcount is 5" of a buffer that is one piece.
static void describe_own(const struct call *call, const struct list *list, const char *single,
                         char *text, size_t bytes)
{
    int rank = call->comm->rank;
    if (list->counts == NULL) {
        (void)snprintf(text, bytes, "%s is %zu", single, call->count);
    } else {
        (void)snprintf(text, bytes, "%s[%d] is %zu", list->counts_name, rank, list->counts[rank]);
    }
}

// What a rank that sends to itself says of that in two places.
static ncclResult_t check_own_count(const struct call *call)
{
    int rank = call->comm->rank;
    const size_t *sends = call->send.counts, *receives = call->recv.counts;
    bool is_single = call->function == TT_GATHER || call->function == TT_SCATTER;
    if (call->function == TT_REDUCE_SCATTER || (is_single && rank != call->root) ||
        (sends == NULL ? call->count : sends[rank]) ==
            (receives == NULL ? call->count : receives[rank])) {
        return ncclSuccess;
    }
    char sent[64], received[64];
    describe_own(call, &call->send, "sendcount", sent, sizeof sent);
    describe_own(call, &call->recv, "recvcount", received, sizeof received);
    return tt_fail(ncclInvalidArgument, "%s: rank %d: %s, but %s: both are this rank's own part",
                   call->name, rank, sent, received);
}

// A buffer that holds anything, up to the end of the last piece.
static ncclResult_t check_buffer(const struct call *call, const struct pieces *p)
{
    size_t elements = 0;
    for (int i = 0; i < p->pieces; i++) {
        size_t end = p->count[i] > 0 ? p->first[i] + p->count[i] : 0;
        elements = end > elements ? end : elements;
    }
    return elements == 0 ? ncclSuccess
                         : tt_check_buffer(call->comm, call->name, p->name, p->base,
                                           elements * tt_type_bytes(call->type));
}

static ncclResult_t check_buffers(const struct call *call, const struct launch *launch)
{
    const struct tt_op *op = &launch->collective.op;
    const struct ncclComm *comm = call->comm;
    int rank = comm->rank, n = comm->nranks;
    size_t element = tt_type_bytes(op->type), zero = 0;
    size_t send_bytes = tt_op_send_bytes(op, rank, n), recv_bytes = tt_op_recv_bytes(op, rank, n);
    size_t send_count = send_bytes / element, recv_count = recv_bytes / element;
    struct pieces send = {"sendbuff", op->send, &send_count, &zero, 1},
                  recv = {"recvbuff", op->recv, &recv_count, &zero, 1};
    if (launch->sends_list) {
        send =
            (struct pieces){"sendbuff", op->send, op->uneven.send_count, op->uneven.send_first, n};
    }
    if (launch->recvs_list) {
        recv =
            (struct pieces){"recvbuff", op->recv, op->uneven.recv_count, op->uneven.recv_first, n};
    }
    TRY(check_buffer(call, &send));
    TRY(check_buffer(call, &recv));
    TRY(check_written(call, &recv));
    bool may_clash = overlap(span_of(&send, element), span_of(&recv, element));
    return may_clash ? check_apart(call, &send, &recv) : ncclSuccess;
}

// The operation's arrays are those of this launch: it has been copied.
static void find_counts(struct launch *launch, size_t n)
{
    struct tt_uneven *uneven = &launch->collective.op.uneven;
    if (launch->sends_list) {
        uneven->send_count = launch->counts;
        uneven->send_first = launch->counts + n;
    }
    if (launch->recvs_list) {
        uneven->recv_count = launch->counts + 2 * n;
        uneven->recv_first = launch->counts + 3 * n;
    }
}

static size_t sum(const struct list *list, int n)
{
    size_t total = 0;
    for (int i = 0; list->counts != NULL && i < n; i++) {
        total += list->counts[i];
    }
    return total;
}

static ncclResult_t fill_lists(const struct call *call, struct launch *launch, size_t n)
{
    if (launch->sends_list) {
        TRY(fill(call, &call->send, launch->counts, launch->counts + n));
    }
    if (launch->recvs_list) {
        TRY(fill(call, &call->recv, launch->counts + 2 * n, launch->counts + 3 * n));
    }
    return ncclSuccess;
}

static ncclResult_t prepare(const struct call *call, struct launch *launch)
{
    struct ncclComm *comm = call->comm;
    size_t n = (size_t)comm->nranks;
    struct tt_arguments arguments = {.call = call->name,
                                     .count = call->count,
                                     .type = call->type,
                                     .op = call->op,
                                     .reduces = tt_op_reduces(call->function),
                                     .peer = call->root};
    TRY(tt_check_arguments(comm, &arguments));
    TRY(fill_lists(call, launch, n));
    if (arguments.reduces) { // what reductions of something need
        arguments.count = sum(&call->send, comm->nranks);
        TRY(tt_check_arguments(comm, &arguments));
    }
    TRY(tt_collective_check_choice(comm, call->name, call->function, true));
    TRY(check_own_count(call));
    bool is_single = call->function == TT_GATHER || call->function == TT_SCATTER;
    launch->collective.op = (struct tt_op){.function = call->function,
                                           .is_uneven = true,
                                           .send = call->sendbuff,
                                           .recv = call->recvbuff,
                                           .count = is_single ? call->count : 0,
                                           .type = call->type,
                                           .root = call->root};
    find_counts(launch, n);
    tt_collective_set_operator(comm, call->op, &launch->collective.op);
    TRY(check_buffers(call, launch));
    return tt_check_stream(comm, call->name, call->stream);
}

// ---- Submitting ---------------------------------------------------------------------------------

static ncclResult_t run_launch(struct ncclComm *comm, void *argument)
{
    struct launch *launch = argument;
    find_counts(launch, (size_t)comm->nranks);
    return tt_collective_run(comm, &launch->collective);
}

// Inside the communicator.
static ncclResult_t submit_inside(const struct call *call)
{
    struct ncclComm *comm = call->comm;
    size_t bytes = sizeof(struct launch) + 4 * (size_t)comm->nranks * sizeof(size_t);
    struct launch *launch = calloc(1, bytes);
    if (launch == NULL) {
        return tt_group_latch(tt_fail(ncclSystemError,
                                      "%s: rank %d: no memory for the counts of %d ranks",
                                      call->name, comm->rank, comm->nranks));
    }
    bool is_root = comm->rank == call->root;
    launch->collective.stream = call->stream;
    launch->sends_list = call->function == TT_REDUCE_SCATTER || call->function == TT_ALL_TO_ALL ||
                         (call->function == TT_SCATTER && is_root);
    launch->recvs_list = call->function == TT_ALL_GATHER || call->function == TT_ALL_TO_ALL ||
                         (call->function == TT_GATHER && is_root);
    ncclResult_t result = prepare(call, launch);
    if (result != ncclSuccess) {
        (void)tt_group_latch(result);
    } else {
        result = tt_group_launch(comm, TT_GROUP_LAUNCH, call->stream, run_launch, launch, bytes);
    }
    free(launch);
    return result;
}

static ncclResult_t submit(const struct call *call)
{
    ncclResult_t result = tt_comm_enter(call->comm, call->name);
    if (result != ncclSuccess) {
        return tt_group_latch(result);
    }
    result = submit_inside(call);
    tt_comm_leave(call->comm);
    return result;
}

// NOLINTNEXTLINE(readability-function-size): arguments as in MPI's function of this kind
TT_EXPORT ncclResult_t tuttiAllGatherV(const void *sendbuff, size_t sendcount, void *recvbuff,
                                       const size_t *recvcounts, const size_t *recvdispls,
                                       ncclDataType_t datatype, ncclComm_t comm,
                                       cudaStream_t stream)
{
    return submit(&(struct call){.name = "tuttiAllGatherV",
                                 .function = TT_ALL_GATHER,
                                 .sendbuff = sendbuff,
                                 .recvbuff = recvbuff,
                                 .recv = {recvcounts, recvdispls, "recvcounts"},
                                 .count = sendcount,
                                 .type = datatype,
                                 .comm = comm,
                                 .stream = stream});
}

TT_EXPORT ncclResult_t tuttiReduceScatterV(const void *sendbuff, void *recvbuff,
                                           const size_t *recvcounts, ncclDataType_t datatype,
                                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return submit(&(struct call){.name = "tuttiReduceScatterV",
                                 .function = TT_REDUCE_SCATTER,
                                 .sendbuff = sendbuff,
                                 .recvbuff = recvbuff,
                                 .send = {recvcounts, NULL, "recvcounts"},
                                 .type = datatype,
                                 .op = op,
                                 .comm = comm,
                                 .stream = stream});
}

// NOLINTNEXTLINE(readability-function-size): arguments as in MPI's function of this kind
TT_EXPORT ncclResult_t tuttiAllToAllV(const void *sendbuff, const size_t *sendcounts,
                                      const size_t *senddispls, void *recvbuff,
                                      const size_t *recvcounts, const size_t *recvdispls,
                                      ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    return submit(&(struct call){.name = "tuttiAllToAllV",
                                 .function = TT_ALL_TO_ALL,
                                 .sendbuff = sendbuff,
                                 .recvbuff = recvbuff,
                                 .send = {sendcounts, senddispls, "sendcounts"},
                                 .recv = {recvcounts, recvdispls, "recvcounts"},
                                 .type = datatype,
                                 .comm = comm,
                                 .stream = stream});
}

// NOLINTNEXTLINE(readability-function-size): arguments as in MPI's function of this kind
TT_EXPORT ncclResult_t tuttiGatherV(const void *sendbuff, size_t sendcount, void *recvbuff,
                                    const size_t *recvcounts, const size_t *recvdispls,
                                    ncclDataType_t datatype, int root, ncclComm_t comm,
                                    cudaStream_t stream)
{
    return submit(&(struct call){.name = "tuttiGatherV",
                                 .function = TT_GATHER,
                                 .sendbuff = sendbuff,
                                 .recvbuff = recvbuff,
                                 .recv = {recvcounts, recvdispls, "recvcounts"},
                                 .count = sendcount,
                                 .type = datatype,
                                 .root = root,
                                 .comm = comm,
                                 .stream = stream});
}

// NOLINTNEXTLINE(readability-function-size): arguments as in MPI's function of this kind
TT_EXPORT ncclResult_t tuttiScatterV(const void *sendbuff, const size_t *sendcounts,
                                     const size_t *senddispls, void *recvbuff, size_t recvcount,
                                     ncclDataType_t datatype, int root, ncclComm_t comm,
                                     cudaStream_t stream)
{
    return submit(&(struct call){.name = "tuttiScatterV",
                                 .function = TT_SCATTER,
                                 .sendbuff = sendbuff,
                                 .recvbuff = recvbuff,
                                 .send = {sendcounts, senddispls, "sendcounts"},
                                 .count = recvcount,
                                 .type = datatype,
                                 .root = root,
                                 .comm = comm,
                                 .stream = stream});
}
