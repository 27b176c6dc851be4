// The memory of a communicator in which its ranks exchange what set-up needs, and tell of their
// ends: one piece of its family's file, mapped once by each process, with the executor's arena at
// its end.
//
// Every rank has a desk that it alone writes. An exchange has a number; its data lie in places used
// in turn. Two would do, as nobody begins an exchange before all have begun the one before; but
// ranks that refuse some in a row are ahead. Nobody waits for a rank that has died, left or given
// up.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_COMM_BOARD_H
#define TT_COMM_BOARD_H

#include "comm/family.h"
#include "nccl.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ncclComm;
struct tt_arena;
struct tt_board;

// Opens the board in a slot of the family, and the arena behind it: once in this process, by its
// first rank of that communicator; one reference for each. process: [nranks] numbers of processes
// in the family; copied. The family is held, and its slot. ncclRemoteError where nobody has that
// any more.
ncclResult_t tt_board_open(struct tt_family *family, struct tt_room_slot slot, const int *process,
                           int nranks, struct tt_board **board_out);
void tt_board_release(struct tt_board *board); // NULL: nothing
struct tt_arena *tt_board_arena(const struct tt_board *board);
struct tt_family *tt_board_family(const struct tt_board *board);
int tt_board_process(const struct tt_board *board, int rank);
size_t tt_board_bytes(const struct tt_board *board); // mapped by this process

// ---- Exchanges of all ranks ---------------------------------------------------------------------
// Of comm->board. One call at a time in a communicator.

// data: nranks slots of `bytes` bytes, the caller's own filled; all filled on return.
ncclResult_t tt_board_allgather(struct ncclComm *comm, void *data, size_t bytes);
// Gives this rank's bytes (at most TT_BOARD_PIECE) to the next exchange, which it will not wait
// for: it cannot do what the others exchange them for. Never blocks.
enum { TT_BOARD_PIECE = 512 };
void tt_board_refuse(struct ncclComm *comm, const void *data, size_t bytes);
// The number of the exchange that this rank began last.
uint64_t tt_board_step(const struct ncclComm *comm);

// ---- Making a child -----------------------------------------------------------------------------
// tag: tells one child from all others of this board, on all its ranks.

// Says that this rank goes on without some others, and waits for `count` ranks to say the same with
// this tag. members: ascending.
ncclResult_t tt_board_gather_survivors(struct ncclComm *comm, uint64_t tag, const int *members,
                                       int count);
struct tt_offer_of_slot {
    uint64_t hash; // of the child
    struct tt_room_slot slot;
};
// The child's first rank tells the others.
void tt_board_offer(struct ncclComm *comm, uint64_t tag, const struct tt_offer_of_slot *offer);
// Waits for that of `rank`.
ncclResult_t tt_board_await_offer(struct ncclComm *comm, uint64_t tag, int rank,
                                  struct tt_offer_of_slot *offer_out);
// This rank cannot become a member of the child: why.
void tt_board_give_up(struct ncclComm *comm, uint64_t tag, const char *text);
// Whether one of `count` ranks has: tt_fail has been called.
ncclResult_t tt_board_look_at_members(const struct ncclComm *comm, uint64_t tag, const int *members,
                                      int count);

// ---- Failing and leaving ------------------------------------------------------------------------

// The communicator has failed: the first reason stays. dead: whose death it was, -1: nobody's.
void tt_board_fail(struct tt_board *board, ncclResult_t result, int dead, const char *text);
// Why it has; ncclSuccess: it has not. text_out: may be NULL.
ncclResult_t tt_board_failure(const struct tt_board *board, int *dead_out, const char **text_out);
// Looks for ranks that have died without leaving: the communicator fails then.
ncclResult_t tt_board_look(const struct ncclComm *comm);
// [nranks]: 1 where the rank has left in good order (acquire: what it did before is visible).
_Atomic unsigned char *tt_board_left(const struct tt_board *board);

#endif
