// The meeting board of fused operations: how ranks find out that their peers' input is ready, that
// they all mean the same operation, and that everybody is done.
//
// Each rank has one line on every rank's board, written by it alone. An operation has a sequence
// number per communicator. Entering: the rank writes what it was asked for into its lines, then
// the number. Leaving: the number again, in another word. Numbers only grow, nothing is ever
// reset, and a line is written anew only after all ranks have left the operation before. All
// blocks of a rank share the rank's lines, so ranks may use different numbers of blocks.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXEC_CPU_BOARD_H
#define TT_EXEC_CPU_BOARD_H

#include "exec/executor.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

// What must agree between ranks.
struct tt_claim {
    uint64_t tokens, hidden;
    uint64_t input_offset, output_offset;
    float eps;
    uint16_t input_window, output_window;
    uint8_t data_type, has_gamma, has_residual;
    uint8_t unused;
};

struct tt_board_line {
    _Atomic uint64_t
        entered; // written by the line's rank (release), read by the board's owner (acquire)
    _Atomic uint64_t left; // the same
    struct tt_claim claim; // before `entered`
};
_Static_assert(sizeof(struct tt_board_line) == 64, "one cache line per writer");

// This rank's own words, at the start of its board. Used by this rank only.
struct tt_board_local {
    _Alignas(64) _Atomic uint64_t enqueued; // operations so far; written by the enqueueing thread
    _Alignas(64) _Atomic uint64_t begun;    // the operation whose entry is written or being written
    _Atomic uint64_t done;                  // operations that have ended on this rank
    _Atomic uint64_t next_token;  // of the running operation: own tokens handed out to blocks
    _Atomic uint32_t blocks_done; // of the running operation
};
_Static_assert(sizeof(struct tt_board_local) == 128, "tt_executor_board_bytes counts on it");

static inline struct tt_board_local *tt_board_local(const struct tt_board *board, int rank)
{
    return (struct tt_board_local *)(void *)(board->memory.base +
                                             (size_t)rank * board->memory.stride);
}

// The line of rank `writer` on the board of rank `owner`.
static inline struct tt_board_line *tt_board_line(const struct tt_board *board, int owner,
                                                  int writer)
{
    char *start = board->memory.base + (size_t)owner * board->memory.stride;
    return (struct tt_board_line *)(void *)(start + sizeof(struct tt_board_local)) + writer;
}

// One rank's part in one operation.
struct tt_meeting {
    const struct tt_board *board;
    int rank, nranks;
    uint64_t number;  // of the operation, from 1
    const char *name; // of the function, for messages
    bool speaks;      // this caller reports late ranks (one block per rank does)
};

// Waits until this rank's operation before has ended, enters, and waits for all others to enter.
// False where the communicator was aborted or has failed. Called by every block of the rank with
// the same claim.
bool tt_meeting_enter(const struct tt_meeting *meeting, const struct tt_claim *claim);
// Whether all ranks claimed the same; where not, says so and leaves ncclInvalidUsage as the
// asynchronous error. After tt_meeting_enter.
bool tt_meeting_agrees(const struct tt_meeting *meeting, const struct tt_claim *claim);
// To be called by every block of the rank at its end, whatever came before; the last of
// `block_count` does the work: leaves, waits for the others to leave (unless `failed`: aborted, or
// ranks disagree) and marks the operation as ended.
void tt_meeting_leave(const struct tt_meeting *meeting, unsigned block_count, bool failed);

#endif
