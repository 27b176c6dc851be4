// What board.c and exchange.c share: how a board lies in memory.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_COMM_BOARD_INTERNAL_H
#define TT_COMM_BOARD_INTERNAL_H

#include "comm/board.h"

enum {
    TT_BOARD_PLACES = 4, // of an exchange's data, used in turn
    TT_BOARD_SMALL = 8,  // bytes that lie on the desk itself
};

// What a rank tells the others.
struct tt_desk {
    _Alignas(64) _Atomic uint64_t posted;    // number of its last exchange, size (release)
    _Atomic uint64_t small[TT_BOARD_PLACES]; // data of up to TT_BOARD_SMALL bytes
    _Atomic uint64_t survivor;               // tag (release)
    _Atomic uint64_t gave_up, offered;       // tags (release) of what stands in its note
};
_Static_assert(sizeof(struct tt_desk) == 64, "one line");

// What a rank says more, seldom.
struct tt_note {
    // To be read with `offered`, which is 0 while they change.
    _Alignas(64) _Atomic uint64_t offered_hash;
    _Atomic uint32_t offered_slot, offered_turn;
    // Bit r % 64 for each rank r that its shrink leaves out; to be read with `survivor`, which is 0
    // while it changes.
    _Atomic uint64_t left_out;
    char why[232]; // it gave up
};

struct tt_board_head {
    // TT_FAILURE_OF + p while process p writes it, then TT_FAILURE_STANDS (release, acquire).
    _Alignas(64) _Atomic uint32_t failed;
    int32_t result, dead;
};
enum { TT_FAILURE_STANDS = 1, TT_FAILURE_OF = 2, TT_BOARD_REASON = 512 }; // bytes of the text

struct tt_board {
    struct tt_board *next; // board.c's mutex
    int ranks;             // of this process that have it; the same mutex
    struct tt_family *family;
    struct tt_room_slot slot;
    int nranks;
    char *base;
    struct tt_arena *arena;
    int process[]; // [nranks]
};

struct tt_board_head *tt_board_head(const struct tt_board *board);
struct tt_desk *tt_board_desk(const struct tt_board *board, int rank);
struct tt_note *tt_board_note(const struct tt_board *board, int rank);
// Where a rank's data of exchange `step` lie: words, so that who reads what is being written anew
// reads something, and sees so afterwards.
_Atomic uint64_t *tt_board_data(const struct tt_board *board, int rank, uint64_t step,
                                size_t bytes);
// Whether the rank's process has died, or ended, and the rank had not left before; and the text.
bool tt_board_has_died(const struct tt_board *board, int rank);
void tt_board_describe_death(const struct tt_board *board, int rank, char *text, size_t bytes);

#endif
