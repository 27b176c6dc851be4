// Where the library's own operations meet their peers: memory that every communicator with windows
// has.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_WINDOW_BOARD_H
#define TT_WINDOW_BOARD_H

#include "exec/executor.h"

#include <stdbool.h>

struct ncclComm;

// Describes the communicator's board. False where it has no windows yet.
bool tt_window_board(struct ncclComm *comm, struct tt_board *board_out);

// Waits until all operations of this rank that use the board have ended. Accepts a communicator
// without windows. Where peers do not come any more they are given up after 10 s.
void tt_window_board_drain(struct ncclComm *comm);

#endif
