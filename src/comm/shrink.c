// ncclCommShrink: a communicator of the ranks that remain when some are left out, because they have
// died, perhaps. Those that are left out take no part. See comm.h and child.h.
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "base/wait.h"
#include "comm/board.h"
#include "comm/child.h"
#include "comm/comm.h"
#include "comm/group.h"
#include "comm/meet.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char call[] = "ncclCommShrink";
enum { MOST_TIMES = 1 << 30 }; // that ranks shrink to the same; their tags follow each other
static const uint64_t is_shrink = UINT64_C(1) << 63; // of a tag: those of splits are numbers

// How often this rank has shrunk the communicator to the ranks with this hash.
struct tt_shrinks {
    struct tt_shrinks *next;
    uint64_t hash, times;
};

struct shrinking {
    struct tt_beginning beginning;
    bool aborts;
    int count, members[]; // [count] ascending
};

void tt_shrinks_free(struct tt_shrinks *shrinks)
{
    while (shrinks != NULL) {
        struct tt_shrinks *next = shrinks->next;
        free(shrinks);
        shrinks = next;
    }
}

static uint64_t tag_of(uint64_t hash, uint64_t time)
{
    return (hash + time) | is_shrink;
}

bool tt_shrinks_reach(uint64_t tag, uint64_t other)
{
    bool are_shrinks = (tag & other & is_shrink) != 0;
    return tag == other || (are_shrinks && ((tag - other) & ~is_shrink) < MOST_TIMES);
}

bool tt_shrinks_know(const struct tt_shrinks *shrinks, uint64_t tag)
{
    for (; shrinks != NULL; shrinks = shrinks->next) {
        for (uint64_t time = 0; time < shrinks->times; time++) {
            if (tag == tag_of(shrinks->hash, time)) {
                return true;
            }
        }
    }
    return false;
}

// The same on all ranks that remain, and another one for each time.
static ncclResult_t make_tag(struct ncclComm *parent, const int *members, int count,
                             uint64_t *tag_out)
{
    uint64_t hash[2];
    crypto_generichash((unsigned char *)hash, sizeof hash, (const unsigned char *)members,
                       (size_t)count * sizeof *members, NULL, 0);
    struct tt_shrinks *known = parent->shrinks;
    while (known != NULL && known->hash != hash[0]) {
        known = known->next;
    }
    if (known == NULL) {
        known = calloc(1, sizeof *known);
        if (known == NULL) {
            return tt_fail(ncclSystemError, "rank %d: no memory for another child", parent->rank);
        }
        *known = (struct tt_shrinks){.next = parent->shrinks, .hash = hash[0]};
        parent->shrinks = known;
    }
    *tag_out = tag_of(hash[0], known->times++);
    return ncclSuccess;
}

// Others may hear of it before they see who has died.
static void report_shrink(struct ncclComm *parent)
{
    char text[400] = "it called ncclCommShrink with NCCL_SHRINK_ABORT";
    const char *why = NULL;
    if (parent->board != NULL && tt_board_look(parent) != ncclSuccess &&
        tt_board_failure(parent->board, NULL, &why) != ncclSuccess) {
        (void)snprintf(text, sizeof text, "it called ncclCommShrink with NCCL_SHRINK_ABORT: %.300s",
                       why);
    }
    tt_meet_report_failure(parent, text);
}

// What the parent still does ends, with an error; on the ranks that are left out too.
static ncclResult_t end_parents_work(struct ncclComm *parent)
{
    bool gave_up = false;
    if (!tt_meet_has_failed(parent)) {
        report_shrink(parent);
    }
    (void)tt_comm_fail(parent, ncclInternalError,
                       "the communicator was shrunk with NCCL_SHRINK_ABORT");
    if (!tt_team_drain(parent, &gave_up)) {
        return tt_fail(ncclInternalError,
                       "%s: rank %d: operations on %s do not end, though they were given up: "
                       "another kernel keeps them from it",
                       call, parent->rank, parent->name);
    }
    return ncclSuccess;
}

static ncclResult_t shrink(struct ncclComm *parent, struct ncclComm *child,
                           const struct shrinking *shrinking)
{
    struct tt_making making = {.parent = parent,
                               .members = shrinking->members,
                               .count = shrinking->count,
                               .of_survivors = shrinking->aborts};
    ncclResult_t result = make_tag(parent, making.members, making.count, &making.tag);
    if (result == ncclSuccess && shrinking->aborts) {
        result = end_parents_work(parent);
    }
    parent->child = child;
    if (result == ncclSuccess && parent->board != NULL) {
        result = tt_board_gather_survivors(parent, making.tag, making.members, making.count);
    }
    parent->child = NULL;
    if (result == ncclSuccess) {
        return tt_child_make(child, &making);
    }
    if (parent->board != NULL && making.tag != 0) {
        tt_board_give_up(parent, making.tag, tt_thread_error());
    }
    return tt_comm_begun(child, result, 0);
}

static ncclResult_t shrink_job(struct ncclComm *comm, void *argument)
{
    const struct shrinking *shrinking = argument;
    struct ncclComm *parent = shrinking->beginning.parent;
    ncclResult_t result;
    if (tt_handle_hold(parent)) {
        result = shrink(parent, comm, shrinking);
        tt_handle_let_go(parent);
    } else {
        result = tt_fail(ncclInvalidArgument,
                         "%s: rank %d: the communicator that is shrunk was destroyed or aborted "
                         "before the group's end",
                         call, comm->rank);
        result = tt_comm_begun(comm, result, 0);
    }
    return result;
}

// This rank does not come: who waits for it is told.
static ncclResult_t tell_others(const void *argument, ncclResult_t result)
{
    const struct shrinking *shrinking = argument;
    struct ncclComm *parent = shrinking->beginning.parent;
    uint64_t tag = 0;
    if (tt_handle_hold(parent)) {
        if (parent->board != NULL &&
            make_tag(parent, shrinking->members, shrinking->count, &tag) == ncclSuccess) {
            tt_board_give_up(parent, tag, tt_thread_error());
        }
        tt_handle_let_go(parent);
    }
    return result;
}

static ncclResult_t check_list(const struct ncclComm *parent, const int *excluded, int count)
{
    if (excluded == NULL || count < 1) {
        return tt_fail(
            ncclInvalidArgument,
            "%s: rank %d: excludeRanksList is %p and excludeRanksCount %d; there must be "
            "at least one rank to leave out",
            call, parent->rank, (const void *)excluded, count);
    }
    for (int i = 0; i < count; i++) {
        if (excluded[i] < 0 || excluded[i] >= parent->nranks) {
            return tt_fail(ncclInvalidArgument,
                           "%s: rank %d: excludeRanksList[%d] is %d, must be 0 to %d", call,
                           parent->rank, i, excluded[i], parent->nranks - 1);
        }
        if (excluded[i] == parent->rank) {
            return tt_fail(ncclInvalidArgument,
                           "%s: rank %d: excludeRanksList[%d] is this rank; ranks that are left "
                           "out do not call it",
                           call, parent->rank, i);
        }
    }
    return ncclSuccess;
}

static ncclResult_t check_rest(const struct ncclComm *parent, const ncclComm_t *comm_out, int flags)
{
    if (comm_out == NULL) {
        return tt_fail(ncclInvalidArgument,
                       "%s: rank %d: newcomm is NULL, must be where to write the communicator",
                       call, parent->rank);
    }
    if (flags != NCCL_SHRINK_DEFAULT && flags != NCCL_SHRINK_ABORT) {
        return tt_fail(ncclInvalidArgument,
                       "%s: rank %d: shrinkFlags is %d, must be NCCL_SHRINK_DEFAULT (%d) or "
                       "NCCL_SHRINK_ABORT (%d)",
                       call, parent->rank, flags, NCCL_SHRINK_DEFAULT, NCCL_SHRINK_ABORT);
    }
    return tt_child_check_parent(parent, call);
}

// The ranks that remain, as a job's argument; NULL: no memory.
static struct shrinking *find_members(struct ncclComm *parent, const int *excluded, int count)
{
    size_t n = (size_t)parent->nranks;
    struct shrinking *shrinking = calloc(1, sizeof *shrinking + n * sizeof(int));
    for (int r = 0; shrinking != NULL && r < parent->nranks; r++) {
        bool remains = true;
        for (int i = 0; i < count && remains; i++) {
            remains = excluded[i] != r;
        }
        if (remains) {
            shrinking->members[shrinking->count++] = r;
        }
    }
    if (shrinking == NULL) {
        (void)tt_fail(ncclSystemError, "%s: rank %d: no memory for %d ranks", call, parent->rank,
                      parent->nranks);
    }
    return shrinking;
}

// A group of a communicator that has failed ends by itself: nobody who asks for the state, which is
// the failure, can see that it has not yet.
static void await_failed_groups(const struct ncclComm *comm)
{
    struct tt_wait wait = tt_wait_begin(NULL);
    while (atomic_load(&comm->under_way) > 0 && atomic_load(&comm->async_error) != ncclSuccess &&
           !atomic_load(&comm->is_aborted)) {
        (void)tt_wait_round(&wait);
    }
}

// An abort may follow a failure.
static ncclResult_t enter(struct ncclComm *parent, int flags)
{
    if (flags != NCCL_SHRINK_ABORT) {
        return tt_comm_enter(parent, call);
    }
    TRY(tt_comm_enter_any(parent, call));
    int state = atomic_load(&parent->state);
    if (state == TT_COMM_READY) {
        await_failed_groups(parent);
    }
    if (state == TT_COMM_READY && atomic_load(&parent->under_way) == 0) {
        return ncclSuccess;
    }
    ncclResult_t result =
        tt_fail(ncclInvalidArgument, "%s: rank %d: the communicator %s", call, parent->rank,
                state == TT_COMM_FAILED      ? "could not be made"
                : state == TT_COMM_FINALIZED ? "is finalized; only ncclCommGetAsyncError, "
                                               "ncclCommDestroy and ncclCommAbort may follow"
                                             : "is still being made, or a group with calls on it "
                                               "is under way; poll ncclCommGetAsyncError");
    tt_comm_leave(parent);
    return result;
}

// From here on it is known who waits for this rank: what goes wrong is told.
static ncclResult_t submit(struct ncclComm *parent, const int *excluded, int count,
                           ncclComm_t *comm_out, const ncclConfig_t *config, int flags)
{
    struct ncclComm *child = NULL;
    struct shrinking *shrinking = find_members(parent, excluded, count);
    if (shrinking == NULL) {
        return ncclSystemError;
    }
    shrinking->beginning =
        (struct tt_beginning){.parent = parent, .user_comm = comm_out, .tell_others = tell_others};
    shrinking->aborts = flags == NCCL_SHRINK_ABORT;
    ncclResult_t result = check_rest(parent, comm_out, flags);
    if (result == ncclSuccess) {
        result = tt_child_allocate(parent, config, call, comm_out, &child);
    }
    result = result != ncclSuccess
                 ? tell_others(shrinking, result)
                 : tt_group_submit(child, TT_GROUP_INIT, shrink_job, shrinking,
                                   sizeof *shrinking + (size_t)shrinking->count * sizeof(int));
    free(shrinking);
    return result;
}

ncclResult_t tt_comm_shrink(struct ncclComm *parent, const int *excluded, int count,
                            ncclComm_t *comm_out, const ncclConfig_t *config, int flags)
{
    if (comm_out != NULL) {
        *comm_out = NULL;
    }
    ncclResult_t result = enter(parent, flags);
    if (result != ncclSuccess) {
        return tt_group_latch(result);
    }
    result = check_list(parent, excluded, count);
    if (result == ncclSuccess) {
        result = submit(parent, excluded, count, comm_out, config, flags);
    }
    tt_comm_leave(parent);
    return tt_group_latch(result);
}
