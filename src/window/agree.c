// Verdicts, and the step in which all ranks compare them.
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "comm/comm.h"
#include "comm/meet.h"
#include "window/window_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void tt_verdict_fail(struct tt_verdict *verdict, ncclResult_t result, const char *format, ...)
{
    if (verdict->result != ncclSuccess) {
        return;
    }
    verdict->result = (int32_t)result;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(verdict->text, sizeof verdict->text, format, arguments);
    va_end(arguments);
}

bool tt_verdict_driver(struct tt_verdict *verdict, CUresult error, const char *call)
{
    if (error == CUDA_SUCCESS) {
        return true;
    }
    const char *name = NULL;
    const char *text = NULL;
    (void)cuGetErrorName(error, &name);
    (void)cuGetErrorString(error, &text);
    const char *detail = tt_cuda_detail();
    tt_verdict_fail(verdict, ncclUnhandledCudaError, "%s failed: %s (%s)%s%s", call,
                    text != NULL ? text : "unknown error", name != NULL ? name : "?",
                    *detail != 0 ? ": " : "", detail);
    return false;
}

bool tt_verdict_cuda(struct tt_verdict *verdict, cudaError_t error, const char *call)
{
    if (error == cudaSuccess) {
        return true;
    }
    const char *detail = tt_cuda_detail();
    tt_verdict_fail(verdict, ncclUnhandledCudaError, "%s failed: %s (%s)%s%s", call,
                    cudaGetErrorString(error), cudaGetErrorName(error), *detail != 0 ? ": " : "",
                    detail);
    return false;
}

ncclResult_t tt_agree(struct ncclComm *comm, const struct tt_verdict *mine, const char *what)
{
    struct tt_verdict *all = calloc((size_t)comm->nranks, sizeof *all);
    if (all == NULL) {
        return tt_fail(ncclSystemError, "rank %d: no memory for %d verdicts", comm->rank,
                       comm->nranks);
    }
    all[comm->rank] = *mine;
    ncclResult_t result = tt_meet_allgather(comm, all, sizeof *all);
    for (int r = 0; result == ncclSuccess && r < comm->nranks; r++) {
        if (all[r].result != ncclSuccess) {
            result =
                tt_fail((ncclResult_t)all[r].result, "%s: rank %d: %.235s", what, r, all[r].text);
        }
    }
    free(all);
    return result;
}
