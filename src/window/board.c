// The board lies in the barrier records of the library's own device communicator: no kernel uses
// those where the executor needs a board.
// SPDX-License-Identifier: Apache-2.0
#include "window/board.h"

#include "base/log.h"
#include "bootstrap/bootstrap.h"
#include "comm/comm.h"
#include "window/window.h"

bool tt_window_board(struct ncclComm *comm, struct tt_board *board_out)
{
    const ncclDevComm_t *device_comm = tt_window_device_comm(comm);
    if (device_comm == NULL) {
        return false;
    }
    size_t has = ncclLsaBarrierWords(comm->lsa_size) * sizeof(uint32_t) *
                 (size_t)device_comm->lsaBarrier.nBarriers;
    if (has < tt_executor_board_bytes(comm->lsa_size)) {
        (void)tt_bug("%zu bytes of barriers do not hold a board of %d ranks", has, comm->lsa_size);
        return false;
    }
    const struct ncclWindow_vidmem *resources = &device_comm->resourceWindow_inlined;
    *board_out = (struct tt_board){
        .memory = {resources->lsaFlatBase +
                       ncclGetResourceBufferOffset(device_comm->lsaBarrier.bufHandle),
                   resources->stride},
        .abort_flag = comm->abort_flag,
        .async_error = &comm->async_error,
        .comm_name = comm->name,
        .has_left = tt_bootstrap_left(comm->bootstrap),
    };
    return true;
}

void tt_window_board_drain(struct ncclComm *comm)
{
    struct tt_board board;
    if (tt_window_board(comm, &board)) {
        tt_executor->drain(&board, comm->lsa_rank);
    }
}
