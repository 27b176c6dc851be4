// What the runtime of virtual GPUs is told of windows, for its reports (vgpu/check.h). On real GPUs
// its functions do not exist, and nobody is told.
// SPDX-License-Identifier: Apache-2.0
#include "comm/comm.h"
#include "window/window_internal.h"

#include <stdio.h>
#include <vgpu/check.h>

#pragma weak vgpuCheckWindowMade
#pragma weak vgpuCheckWindowGone
#pragma weak vgpuCheckLibraryHeaders

void tt_window_announce(const struct ncclComm *comm, const struct tt_registered *registered)
{
    const struct tt_window *window = &registered->window;
    char name[48];
    if (vgpuCheckWindowMade == NULL) {
        return;
    }
    if (window->number > 0) {
        (void)snprintf(name, sizeof name, "window %d", window->number);
    } else {
        (void)snprintf(name, sizeof name, "the resources of a device communicator");
    }
    vgpuCheckLibraryHeaders("/nccl_device/");
    vgpuCheckLibraryHeaders("/nccl_device.h");
    vgpuCheckWindowMade(&(struct vgpu_check_window){
        .handle = window->handle,
        .name = name,
        .rank = comm->rank,
        .first_rank = comm->rank - comm->lsa_rank,
        .members = comm->lsa_size,
        .base = (uintptr_t)window->flat_base,
        .stride = window->stride,
        .bytes = window->bytes,
        .multicast = (uintptr_t)window->multimem_base,
        .local = (uintptr_t)window->user_pointer,
    });
}

// A handle that kernels still have after the window's end must not look like a window to them: for
// that the image at the handle becomes that of a window without members.
void tt_window_withdraw(struct tt_registered *registered)
{
    if (vgpuCheckWindowGone == NULL) {
        return;
    }
    vgpuCheckWindowGone(registered->window.handle);
    struct tt_verdict verdict = {0};
    registered->image.size = 0;
    registered->image.lsaSize = 0;
    (void)tt_windows_upload(registered->windows, registered->window.handle, &registered->image,
                            sizeof registered->image, &verdict);
}
