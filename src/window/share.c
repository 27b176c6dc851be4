// Where the ranks of a process meet in one step of making a window. A share belongs to nobody: the
// first rank that comes opens it, the last one that leaves frees it, so a rank that is aborted
// half-way leaves nothing dangling.
// SPDX-License-Identifier: Apache-2.0
#include "comm/comm.h"
#include "comm/local.h"
#include "window/window_internal.h"

#include <pthread.h>
#include <stdlib.h>

static pthread_mutex_t shares_lock =
    PTHREAD_MUTEX_INITIALIZER; // guards the list and the users of its shares
static struct tt_share *shares;

struct tt_share *tt_share_enter(const struct ncclComm *comm, int sequence,
                                const struct tt_share_slot *mine)
{
    int size = tt_local_size(comm);
    (void)pthread_mutex_lock(&shares_lock);
    struct tt_share *share = shares;
    while (share != NULL && (share->comm_hash != comm->hash || share->sequence != sequence)) {
        share = share->next;
    }
    if (share == NULL) {
        share = calloc(1, sizeof *share + (size_t)size * sizeof share->slot[0]);
        if (share != NULL) {
            share->comm_hash = comm->hash;
            share->sequence = sequence;
            share->size = size;
            share->next = shares;
            shares = share;
        }
    }
    if (share != NULL) {
        share->users++;
        share->slot[tt_local_rank(comm)] = *mine;
        share->slot[tt_local_rank(comm)].filled = true;
    }
    (void)pthread_mutex_unlock(&shares_lock);
    return share;
}

void tt_share_leave(struct tt_share *share)
{
    if (share == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&shares_lock);
    bool last = --share->users == 0;
    for (struct tt_share **link = &shares; last && *link != NULL; link = &(*link)->next) {
        if (*link == share) {
            *link = share->next;
            break;
        }
    }
    (void)pthread_mutex_unlock(&shares_lock);
    if (last) {
        for (int i = 0; i < share->size; i++) {
            tt_flat_drop(share->slot[i].flat);
        }
        free(share);
    }
}
