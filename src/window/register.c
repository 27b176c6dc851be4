// Registering windows, and asking about them by handle.
// SPDX-License-Identifier: Apache-2.0
#include "window/register.h"

#include "base/log.h"
#include "comm/comm.h"
#include "comm/group.h"
#include "reduce/reduce.h"
#include "window/window_internal.h"

#include <stdio.h>
#include <string.h>

struct registration {
    void *pointer;
    size_t bytes;
    ncclWindow_t *window_out;
    int flags;
};

static ncclResult_t run_registration(struct ncclComm *comm, void *argument)
{
    const struct registration *registration = argument;
    struct tt_wish wish = {
        .pointer = registration->pointer,
        .bytes = registration->bytes,
        .flags = registration->flags,
    };
    (void)tt_windows_get(comm, &wish.verdict);
    int number = comm->windows != NULL ? comm->windows->last_number + 1 : 1;
    char what[48];
    (void)snprintf(what, sizeof what, "registering window %d", number);
    wish.number = number;
    wish.what = what;
    struct tt_registered *registered = NULL;
    TRY(tt_registered_create(comm, &wish, &registered));
    if (registered == NULL) {
        const char *obstacle = tt_symmetric_obstacle(comm);
        tt_log(TT_LOG_INFO, TT_LOG_REG, "rank %d: no window: %s", comm->rank,
               obstacle != NULL ? obstacle : "another rank cannot share memory");
        *registration->window_out = NULL;
        return ncclSuccess;
    }
    ncclResult_t result = tt_device_comm_internal(comm, registered->window.multimem_base != NULL);
    if (result != ncclSuccess) {
        tt_registered_destroy(registered);
        return result;
    }
    registered->flags = registration->flags;
    comm->windows->last_number = number;
    *registration->window_out = registered->window.handle;
    tt_log(TT_LOG_INFO, TT_LOG_REG,
           "rank %d: window %d has %zu bytes at %p, flat at %p + rank * %zu%s", comm->rank, number,
           registered->window.bytes, registered->window.user_pointer,
           (void *)registered->window.flat_base, registered->window.stride,
           registered->window.multimem_base != NULL ? ", with multicast" : "");
    return ncclSuccess;
}

ncclResult_t tt_window_register(struct ncclComm *comm, void *pointer, size_t bytes,
                                ncclWindow_t *window_out, int flags)
{
    struct registration registration = {pointer, bytes, window_out, flags};
    *window_out = NULL;
    return tt_group_submit(comm, TT_GROUP_WINDOW, run_registration, &registration,
                           sizeof registration);
}

static ncclResult_t refuse_window(const struct ncclComm *comm, ncclWindow_t window)
{
    return tt_fail(ncclInvalidArgument,
                   "ncclCommWindowDeregister: win %p is not a window of this communicator (rank "
                   "%d, \"%s\"); it may have been deregistered already",
                   (void *)window, comm->rank, comm->name);
}

static ncclResult_t run_deregistration(struct ncclComm *comm, void *argument)
{
    ncclWindow_t window;
    memcpy(&window, argument, sizeof window);
    struct tt_registered *registered = tt_handles_take(window, comm);
    if (registered == NULL) {
        return refuse_window(comm, window);
    }
    tt_registered_destroy(registered);
    return ncclSuccess;
}

ncclResult_t tt_window_deregister(struct ncclComm *comm, ncclWindow_t window)
{
    struct tt_registered found = {0};
    if (!tt_handles_read(window, &found) || found.comm != comm || found.window.number == 0) {
        return refuse_window(comm, window);
    }
    return tt_group_launch(comm, TT_GROUP_DEREGISTER, NULL, run_deregistration, &window,
                           sizeof window);
}

// What is known of the window, the offset checked. A null handle is a window that was not
// supported.
static ncclResult_t find_checked(ncclWindow_t window, size_t offset, void **pointer_out,
                                 const char *call, struct tt_registered *out)
{
    if (pointer_out == NULL) {
        return tt_fail(ncclInvalidArgument,
                       "%s: outPtr is NULL, expected where to write the address", call);
    }
    *pointer_out = NULL;
    if (window == NULL) {
        return tt_fail(ncclInvalidArgument,
                       "%s: window is NULL; its registration failed or was not supported", call);
    }
    if (!tt_handles_read(window, out)) {
        return tt_fail(ncclInvalidArgument, "%s: window %p is not a registered window", call,
                       (void *)window);
    }
    if (offset >= out->window.bytes) {
        return tt_fail(ncclInvalidArgument,
                       "%s: rank %d: offset %zu is outside window %d of %zu bytes", call,
                       out->image.worldRank, offset, out->window.number, out->window.bytes);
    }
    return ncclSuccess;
}

ncclResult_t tt_window_member_pointer(ncclWindow_t window, size_t offset, int lsa_rank,
                                      void **pointer_out, const char *call)
{
    struct tt_registered found = {0};
    TRY(find_checked(window, offset, pointer_out, call, &found));
    if (lsa_rank < 0 || lsa_rank >= found.image.lsaSize) {
        return tt_fail(ncclInvalidArgument, "%s: rank %d: lsaRank %d, expected 0 to %d", call,
                       found.image.worldRank, lsa_rank, found.image.lsaSize - 1);
    }
    *pointer_out = found.window.flat_base + (size_t)lsa_rank * found.window.stride + offset;
    return ncclSuccess;
}

ncclResult_t tt_window_peer_pointer(ncclWindow_t window, size_t offset, int peer,
                                    void **pointer_out, const char *call)
{
    struct tt_registered found = {0};
    TRY(find_checked(window, offset, pointer_out, call, &found));
    if (peer < 0 || peer >= found.nranks) {
        return tt_fail(ncclInvalidArgument, "%s: rank %d: peer %d, expected 0 to %d", call,
                       found.image.worldRank, peer, found.nranks - 1);
    }
    int member = found.image.lsaRank + peer - found.image.worldRank;
    if (member >= 0 && member < found.image.lsaSize) {
        *pointer_out = found.window.flat_base + (size_t)member * found.window.stride + offset;
    }
    return ncclSuccess;
}

ncclResult_t tt_window_multimem_pointer(ncclWindow_t window, size_t offset,
                                        const ncclMultimemHandle_t *multimem, void **pointer_out,
                                        const char *call)
{
    struct tt_registered found = {0};
    TRY(find_checked(window, offset, pointer_out, call, &found));
    const void *lsa_team = tt_multimem_handle(true).mcBasePtr;
    const void *base = multimem != NULL ? multimem->mcBasePtr : lsa_team;
    if (base == NULL || (base == lsa_team && found.window.multimem_base == NULL)) {
        return ncclSuccess;
    }
    if (base == lsa_team) {
        *pointer_out = found.window.multimem_base + offset;
        return ncclSuccess;
    }
    for (int v = 0; v < NCCL_MULTIMEM_VIEWS; v++) {
        if (found.view[v] != NULL && base == tt_view_handle(v).mcBasePtr) {
            *pointer_out = (char *)(uintptr_t)found.view[v]->alias + found.offset + offset;
            return ncclSuccess;
        }
    }
    return tt_fail(ncclInvalidArgument,
                   "%s: rank %d: multimem (mcBasePtr %p) is no multimem handle; take it from "
                   "ncclDevComm_t.lsaMultimem or from a team requirement of ncclDevCommCreate",
                   call, found.image.worldRank, base);
}

ncclResult_t tt_window_user_pointer(struct ncclComm *comm, ncclWindow_t window, void **pointer_out)
{
    struct tt_registered found = {0};
    *pointer_out = NULL;
    if (window == NULL) {
        return ncclSuccess;
    }
    if (!tt_handles_read(window, &found) || found.comm != comm) {
        return tt_fail(ncclInvalidArgument,
                       "ncclWinGetUserPtr: win %p is not a window of this communicator (rank %d)",
                       (void *)window, comm->rank);
    }
    *pointer_out = found.window.user_pointer;
    return ncclSuccess;
}

// ---- Puts ---------------------------------------------------------------------------------------

static ncclResult_t check_source(const struct ncclComm *comm, const struct tt_window_put *put,
                                 size_t bytes)
{
    size_t offset = 0;
    if (put->from == NULL) {
        return tt_fail(ncclInvalidArgument,
                       "ncclPutSignal: rank %d: localbuff is NULL, must lie in a window of this "
                       "communicator",
                       comm->rank);
    }
    const struct tt_window *window = tt_window_find(comm, put->from, bytes, &offset);
    // A window is the first part of what was registered.
    if (window == NULL ||
        (((const struct tt_registered *)window)->flags & NCCL_WIN_COLL_SYMMETRIC) == 0) {
        return tt_fail(ncclInvalidArgument,
                       "ncclPutSignal: rank %d: localbuff %p, %zu bytes, %s; it must be registered "
                       "with ncclCommWindowRegister and NCCL_WIN_COLL_SYMMETRIC",
                       comm->rank, put->from, bytes,
                       window == NULL ? "lies in no window of this communicator"
                                      : "lies in a window that is not symmetric");
    }
    return ncclSuccess;
}

ncclResult_t tt_window_put_place(const struct ncclComm *comm, const struct tt_window_put *put,
                                 void **to_out)
{
    struct tt_registered found = {0};
    size_t bytes = put->count * tt_type_bytes(put->type);
    if (put->window == NULL) {
        return tt_fail(ncclInvalidArgument,
                       "ncclPutSignal: rank %d: peerWin is NULL; it must be a window of this "
                       "communicator (a registration that is not supported gives none)",
                       comm->rank);
    }
    if (!tt_handles_read(put->window, &found) || found.comm != comm || found.window.number == 0) {
        return tt_fail(ncclInvalidArgument,
                       "ncclPutSignal: rank %d: peerWin %p is not a window of this communicator",
                       comm->rank, (void *)put->window);
    }
    TRY(check_source(comm, put, bytes));
    if ((found.flags & NCCL_WIN_COLL_SYMMETRIC) == 0) {
        return tt_fail(ncclInvalidArgument,
                       "ncclPutSignal: rank %d: peerWin is window %d, which was not registered "
                       "with NCCL_WIN_COLL_SYMMETRIC",
                       comm->rank, found.window.number);
    }
    if (put->offset > found.window.bytes || bytes > found.window.bytes - put->offset) {
        return tt_fail(ncclInvalidArgument,
                       "ncclPutSignal: rank %d: peerWinOffset %zu and %zu bytes of data end beyond "
                       "window %d of %zu bytes",
                       comm->rank, put->offset, bytes, found.window.number, found.window.bytes);
    }
    int member = found.image.lsaRank + put->peer - comm->rank;
    *to_out = found.window.flat_base + (size_t)member * found.window.stride + put->offset;
    return ncclSuccess;
}
