// A family: a first communicator, made over a rendezvous by ranks of one machine, and all that are
// split from it. They share one anonymous file, of which each process has one descriptor: a head,
// then room for each communicator (board.h). Nobody meets over sockets for a child.
//
// Each process holds a robust mutex in the head for as long as the family lives there; the kernel
// gives it up when the process dies, however it does, and whoever looks sees that.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_COMM_FAMILY_H
#define TT_COMM_FAMILY_H

#include "nccl.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ncclComm;
struct tt_family;

enum { TT_FAMILY_SLOTS = 65536 }; // communicators at a time

// Makes the family of a communicator whose ranks have met: comm->peers and comm->local are there.
// Collective; one reference for each rank.
ncclResult_t tt_family_found(struct ncclComm *comm, struct tt_family **family_out);
void tt_family_hold(struct tt_family *family);
void tt_family_release(struct tt_family *family); // NULL: nothing

// ---- Room for communicators ---------------------------------------------------------------------

int tt_family_descriptor(const struct tt_family *family);
// A slot as one communicator has it: another one that has it later has another turn.
struct tt_room_slot {
    int32_t number; // -1: none
    uint32_t turn;
};
// The first communicator's, which rank 0 has taken.
#define TT_FIRST_SLOT ((struct tt_room_slot){0, 1})

// Where the room of a slot begins; its bytes are TT_ROOM_BYTES of zeros.
uint64_t tt_family_offset(int slot);
// Takes a free slot, and is the first to have it.
ncclResult_t tt_family_take(struct tt_family *family, struct tt_room_slot *slot_out);
// One more has it. ncclRemoteError where nobody had it any more.
ncclResult_t tt_family_join(struct tt_family *family, struct tt_room_slot slot);
// One has it no more, and does not look at it; the last one makes its room zeros again. Whoever
// dies while he has it leaves it taken for as long as the family lives.
void tt_family_leave(struct tt_family *family, int slot);

// ---- Its processes ------------------------------------------------------------------------------

int tt_family_process(const struct tt_family *family); // this one's number, from 0
int tt_family_pid(const struct tt_family *family, int process);
// Whether any process has been seen to have died, while it had the family. Looks at most every
// 20 ms. Any thread.
bool tt_family_has_deaths(struct tt_family *family);
bool tt_family_is_dead(const struct tt_family *family, int process);
// The first communicator's secret stretched for another purpose; as tt_bootstrap_derive_key.
void tt_family_derive_key(const struct tt_family *family, const char *label,
                          unsigned char key_out[32]);

#endif
