// The ranks of a communicator that live in this process, and descriptors passed between the
// processes of a machine.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_COMM_LOCAL_H
#define TT_COMM_LOCAL_H

#include "nccl.h"

#include <stdbool.h>
#include <stddef.h>

struct ncclComm;

// Ranks of this process, ascending; the first is the leader, which acts for all towards other
// processes.
int tt_local_size(const struct ncclComm *comm);
int tt_local_rank(const struct ncclComm *comm); // index of this rank among them
int tt_local_world_rank(const struct ncclComm *comm, int local_rank);

// Waits for all ranks of the process. Fails on all of them when the communicator is aborted or one
// has failed.
ncclResult_t tt_local_barrier(struct ncclComm *comm);
// Shared slots: every rank gives a pointer, every rank gets the array [tt_local_size] of them.
// Valid until the next tt_local_ call; a barrier is implied on entry.
ncclResult_t tt_local_exchange(struct ncclComm *comm, void *mine, void *const **all_out);

// Descriptors: rank r gives `descriptor` (or -1: none); on return descriptors_out[q] for each world
// rank q of the same machine in another process is a descriptor of this process (the caller's rank
// owns and closes it), -1 for others and for ranks of the same process. Collective over the
// communicator; only the leader of each process receives, the other ranks get all -1. Sent with
// SCM_RIGHTS over connections that have proved the id's secret.
ncclResult_t tt_local_pass_descriptors(struct ncclComm *comm, int descriptor, int *descriptors_out);

// ---- For the communicator's life ----------------------------------------------------------------

// Joins the ranks of this process, once peers are arranged: from now on they have one copy of
// comm->peers. Local.
ncclResult_t tt_local_join(struct ncclComm *comm);
// Makes waiting ranks of this process give up with `result` and `text`; the first reason stays:
// true for it. Accepts a communicator without local part, as does the next.
bool tt_local_fail(struct ncclComm *comm, ncclResult_t result, const char *text);
void tt_local_leave(struct ncclComm *comm);
// For what shows that another process has given up: its reason, where the rendezvous tells one
// within half a second; else `result` with this thread's last failure.
ncclResult_t tt_leaders_reason(struct ncclComm *comm, ncclResult_t result);

#endif
