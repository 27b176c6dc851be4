// See child.h. The first of a child's ranks takes room in the family's file and tells the others
// where; each process maps it once; then all meet there. What goes wrong before is said on the
// parent's board.
// SPDX-License-Identifier: Apache-2.0
#include "comm/child.h"

#include "base/log.h"
#include "base/wait.h"
#include "comm/board.h"
#include "comm/comm.h"
#include "comm/init_log.h"
#include "comm/local.h"

#include <sodium.h>
#include <stdlib.h>

ncclResult_t tt_child_check_parent(const struct ncclComm *parent, const char *call)
{
    if (parent->board == NULL && parent->nranks > 1) {
        return tt_fail(ncclInvalidUsage,
                       "not implemented yet: %s: rank %d: the ranks of %s are on several machines, "
                       "or too many to share memory",
                       call, parent->rank, parent->name);
    }
    return ncclSuccess;
}

ncclResult_t tt_child_allocate(const struct ncclComm *parent, const ncclConfig_t *config,
                               const char *call, ncclComm_t *comm_out, struct ncclComm **child_out)
{
    ncclConfig_t complete = NCCL_CONFIG_INITIALIZER;
    int before = -1;
    TRY(tt_config_read(config, parent, call, &complete));
    TRY_CUDA(cudaGetDevice(&before));
    if (before != parent->cuda_device) {
        TRY_CUDA(cudaSetDevice(parent->cuda_device));
    }
    ncclResult_t result = tt_comm_allocate(0, parent->rank, &complete, call, child_out);
    if (before != parent->cuda_device) {
        (void)cudaSetDevice(before);
    }
    if (result == ncclSuccess) {
        // Another thread may wait for it, to abort: release, pairs with the acquire of who reads
        // it.
        __atomic_store_n(comm_out, *child_out, __ATOMIC_RELEASE);
    }
    return result;
}

// What is known of the members without a word from them.
static ncclResult_t copy_peers(struct ncclComm *child, const struct tt_making *making)
{
    struct tt_peer *peers = calloc((size_t)making->count, sizeof *peers);
    if (peers == NULL) {
        return tt_fail(ncclSystemError, "rank %d: no memory for %d ranks", child->rank,
                       making->count);
    }
    for (int i = 0; i < making->count; i++) {
        peers[i] = making->parent->peers[making->members[i]];
        if (making->members[i] == making->parent->rank) {
            __atomic_store_n(&child->rank, i, __ATOMIC_RELAXED); // see tt_comm_rank
        }
    }
    __atomic_store_n(&child->nranks, making->count, __ATOMIC_RELAXED); // see tuttiDumpState
    child->peers = peers;
    return ncclSuccess;
}

// The child's hash, and its slot in the family: from its first rank, which has it from now on.
static ncclResult_t agree_on_slot(const struct ncclComm *child, const struct tt_making *making,
                                  struct tt_offer_of_slot *offer_out)
{
    struct ncclComm *parent = making->parent;
    if (child->rank != 0) {
        return tt_board_await_offer(parent, making->tag, making->members[0], offer_out);
    }
    randombytes_buf(&offer_out->hash, sizeof offer_out->hash);
    if (child->nranks == 1) {
        return ncclSuccess;
    }
    TRY(tt_family_take(tt_board_family(parent->board), &offer_out->slot));
    tt_board_offer(parent, making->tag, offer_out);
    return ncclSuccess;
}

static ncclResult_t open_board(struct ncclComm *child, const struct tt_making *making,
                               struct tt_room_slot slot)
{
    const struct tt_board *parents = making->parent->board;
    struct tt_family *family = tt_board_family(parents);
    int *process = malloc((size_t)child->nranks * sizeof *process);
    if (process == NULL) {
        return tt_fail(ncclSystemError, "rank %d: no memory for %d ranks", child->rank,
                       child->nranks);
    }
    for (int r = 0; r < child->nranks; r++) {
        process[r] = tt_board_process(parents, making->members[r]);
    }
    ncclResult_t result = tt_board_open(family, slot, process, child->nranks, &child->board);
    free(process);
    if (result == ncclRemoteError) { // all have left it again; who failed first has said why
        TRY(tt_board_look_at_members(making->parent, making->tag, making->members, making->count));
    }
    return result;
}

static ncclResult_t join(struct ncclComm *child, const struct tt_making *making)
{
    struct tt_offer_of_slot offer = {.slot.number = -1};
    TRY(copy_peers(child, making));
    tt_peers_arrange(child);
    TRY(agree_on_slot(child, making, &offer));
    child->hash = offer.hash;
    tt_comm_name(child);
    if (offer.slot.number >= 0) {
        ncclResult_t result = open_board(child, making, offer.slot);
        if (child->rank == 0) { // those have it who have opened it
            tt_family_leave(tt_board_family(making->parent->board), offer.slot.number);
        }
        TRY(result);
    }
    TRY(tt_local_join(child));
    TRY(tt_team_join(child));
    return tt_peers_agree(child);
}

ncclResult_t tt_child_make(struct ncclComm *child, const struct tt_making *making)
{
    uint64_t start = tt_now_ns();
    tt_init_log_start(child);
    child->making = making;
    making->parent->child = child;
    ncclResult_t result = join(child, making);
    making->parent->child = NULL;
    child->making = NULL;
    if (result != ncclSuccess && making->parent->board != NULL) {
        tt_board_give_up(making->parent, making->tag, tt_thread_error());
    }
    result = tt_comm_begun(child, result, start);
    if (result == ncclSuccess) {
        tt_log(TT_LOG_INFO, TT_LOG_INIT, "rank %d of %s is rank %d of %d of its child %s",
               making->parent->rank, making->parent->name, child->rank, child->nranks, child->name);
    }
    return result;
}
