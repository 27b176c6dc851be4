// Windows: registering them, and their device addresses on the host.
// SPDX-License-Identifier: Apache-2.0
#include "api/function.h"
#include "base/log.h"
#include "comm/comm.h"
#include "comm/group.h"
#include "window/register.h"

// A bad buffer or size of one rank is told to all ranks, so it is not refused here, before the
// others are met.
TT_FUNCTION(ncclResult_t, CommWindowRegister,
            (ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags))
{
    ncclResult_t result = tt_comm_enter(comm, "ncclCommWindowRegister");
    if (result != ncclSuccess) {
        return tt_group_latch(result);
    }
    result = win == NULL ? tt_group_latch(tt_fail(ncclInvalidArgument,
                                                  "ncclCommWindowRegister: rank %d: win is NULL, "
                                                  "expected where to write the window",
                                                  comm->rank))
                         : tt_window_register(comm, buff, size, win, winFlags);
    tt_comm_leave(comm);
    return result;
}

TT_FUNCTION(ncclResult_t, CommWindowDeregister, (ncclComm_t comm, ncclWindow_t win))
{
    if (win == NULL) {
        return ncclSuccess;
    }
    ncclResult_t result = tt_comm_enter(comm, "ncclCommWindowDeregister");
    if (result != ncclSuccess) {
        return tt_group_latch(result);
    }
    result = tt_window_deregister(comm, win);
    tt_comm_leave(comm);
    return result == ncclSuccess ? result : tt_group_latch(result);
}

TT_FUNCTION(ncclResult_t, WinGetUserPtr, (ncclComm_t comm, ncclWindow_t win, void **outUserPtr))
{
    TRY(tt_comm_enter(comm, "ncclWinGetUserPtr"));
    ncclResult_t result =
        outUserPtr == NULL
            ? tt_fail(ncclInvalidArgument,
                      "ncclWinGetUserPtr: outUserPtr is NULL, expected where to write the address")
            : tt_window_user_pointer(comm, win, outUserPtr);
    tt_comm_leave(comm);
    return result;
}

TT_FUNCTION(ncclResult_t, GetLsaMultimemDevicePointer,
            (ncclWindow_t window, size_t offset, void **outPtr))
{
    return tt_window_multimem_pointer(window, offset, NULL, outPtr,
                                      "ncclGetLsaMultimemDevicePointer");
}

TT_FUNCTION(ncclResult_t, GetMultimemDevicePointer,
            (ncclWindow_t window, size_t offset, ncclMultimemHandle_t multimem, void **outPtr))
{
    return tt_window_multimem_pointer(window, offset, &multimem, outPtr,
                                      "ncclGetMultimemDevicePointer");
}

TT_FUNCTION(ncclResult_t, GetLsaDevicePointer,
            (ncclWindow_t window, size_t offset, int lsaRank, void **outPtr))
{
    return tt_window_member_pointer(window, offset, lsaRank, outPtr, "ncclGetLsaDevicePointer");
}

TT_FUNCTION(ncclResult_t, GetPeerDevicePointer,
            (ncclWindow_t window, size_t offset, int peer, void **outPtr))
{
    return tt_window_peer_pointer(window, offset, peer, outPtr, "ncclGetPeerDevicePointer");
}
