// Memory of the communicator's own that the switch reaches: a window that no user knows of.
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "comm/comm.h"
#include "window/window_internal.h"

void tt_scratch_free(struct tt_windows *windows)
{
    tt_registered_destroy(windows->scratch);
    if (windows->scratch_memory != NULL) {
        (void)tt_memory_free(windows->scratch_memory);
    }
    windows->scratch = NULL;
    windows->scratch_memory = NULL;
}

ncclResult_t tt_window_scratch(struct ncclComm *comm, size_t bytes,
                               const struct tt_window **window_out)
{
    struct tt_wish wish = {.bytes = bytes, .what = "making scratch memory in the switch"};
    struct tt_windows *windows = tt_windows_get(comm, &wish.verdict);
    *window_out = NULL;
    if (windows != NULL) {
        windows->scratch_memory = tt_memory_allocate(comm->cuda_device, bytes, &wish.verdict);
        wish.pointer = windows->scratch_memory;
    }
    struct tt_registered *registered = NULL;
    ncclResult_t result = tt_registered_create(comm, &wish, &registered);
    if (windows != NULL) {
        windows->scratch = registered;
        if (registered == NULL || registered->window.multimem_base == NULL) {
            tt_scratch_free(windows); // equally on all ranks
        } else {
            *window_out = &registered->window;
        }
    }
    tt_log(TT_LOG_INFO, TT_LOG_INIT, "rank %d: %s", comm->rank,
           *window_out != NULL ? "buffers that the switch does not reach go through scratch memory"
                               : "no scratch memory in the switch");
    return result;
}
