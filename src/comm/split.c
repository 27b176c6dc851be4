// ncclCommSplit: every rank of a communicator says its colour and key, and those of one colour make
// a communicator of their own, in the order of their keys. See comm.h and child.h.
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "comm/board.h"
#include "comm/child.h"
#include "comm/comm.h"
#include "comm/group.h"

#include <stdio.h>
#include <stdlib.h>

static const char call[] = "ncclCommSplit";

// What a rank tells the others of its call.
struct wish {
    int32_t result; // not ncclSuccess: it cannot take part, and this is why
    int32_t color, key;
    char text[200];
};

struct splitting {
    struct tt_beginning beginning;
    int color, key;
};

static ncclResult_t tell_others(const void *argument, ncclResult_t result)
{
    const struct splitting *splitting = argument;
    struct ncclComm *parent = splitting->beginning.parent;
    struct wish wish = {.result = ncclRemoteError};
    (void)snprintf(wish.text, sizeof wish.text, "%s", tt_thread_error());
    if (tt_handle_hold(parent)) {
        if (parent->board != NULL) {
            tt_board_refuse(parent, &wish, sizeof wish);
        }
        tt_handle_let_go(parent);
    }
    return result;
}

// A member, as it is sorted.
struct place {
    int rank, key;
};

static int by_key(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->key != y->key) {
        return x->key < y->key ? -1 : 1;
    }
    return (x->rank > y->rank) - (x->rank < y->rank);
}

// Ranks with this rank's colour in the order of their keys, into members [nranks]; their count.
static int find_members(const struct ncclComm *parent, const struct wish *wishes,
                        struct place *places, int *members)
{
    int count = 0;
    for (int r = 0; r < parent->nranks; r++) {
        if (wishes[r].color == wishes[parent->rank].color) {
            places[count++] = (struct place){.rank = r, .key = wishes[r].key};
        }
    }
    qsort(places, (size_t)count, sizeof *places, by_key);
    for (int i = 0; i < count; i++) {
        members[i] = places[i].rank;
    }
    return count;
}

// All ranks' wishes, where all can take part. Collective over the parent.
static ncclResult_t exchange_wishes(struct ncclComm *parent, const struct splitting *splitting,
                                    struct wish *wishes)
{
    wishes[parent->rank] = (struct wish){.color = splitting->color, .key = splitting->key};
    if (parent->board != NULL) {
        TRY(tt_board_allgather(parent, wishes, sizeof *wishes));
    }
    for (int r = 0; r < parent->nranks; r++) {
        if (wishes[r].result != ncclSuccess) {
            return tt_fail((ncclResult_t)wishes[r].result, "%s: rank %d: rank %d of %s failed: %s",
                           call, parent->rank, r, parent->name, wishes[r].text);
        }
    }
    return ncclSuccess;
}

// This rank has failed, and the others may wait for its wish, or for it in the child.
static ncclResult_t fail(struct ncclComm *parent, struct ncclComm *child,
                         const struct splitting *splitting, uint64_t step, ncclResult_t result)
{
    if (parent->board != NULL && tt_board_step(parent) == step) {
        (void)tell_others(splitting, result);
    } else if (parent->board != NULL) {
        tt_board_give_up(parent, step + 1, tt_thread_error());
    }
    return child == NULL ? result : tt_comm_begun(child, result, 0);
}

// child: NULL: none for this rank.
static ncclResult_t split(struct ncclComm *parent, struct ncclComm *child,
                          const struct splitting *splitting)
{
    size_t n = (size_t)parent->nranks;
    char *memory = calloc(n, sizeof(struct wish) + sizeof(struct place) + sizeof(int));
    uint64_t step = parent->board != NULL ? tt_board_step(parent) : 0;
    if (memory == NULL) {
        return fail(parent, child, splitting, step,
                    tt_fail(ncclSystemError, "%s: rank %d: no memory for %d ranks", call,
                            parent->rank, parent->nranks));
    }
    struct wish *wishes = (void *)memory;
    struct place *places = (void *)(wishes + n);
    int *members = (void *)(places + n);
    parent->child = child;
    ncclResult_t result = exchange_wishes(parent, splitting, wishes);
    parent->child = NULL;
    if (result != ncclSuccess) {
        result = fail(parent, child, splitting, step, result);
    } else if (child != NULL) {
        struct tt_making making = {.parent = parent,
                                   .tag = step + 1,
                                   .members = members,
                                   .count = find_members(parent, wishes, places, members)};
        result = tt_child_make(child, &making);
    }
    free(memory);
    return result;
}

// The group's job. comm: the child, or the parent where this rank gets none.
static ncclResult_t split_job(struct ncclComm *comm, void *argument)
{
    const struct splitting *splitting = argument;
    struct ncclComm *parent = splitting->beginning.parent;
    struct ncclComm *child = splitting->beginning.user_comm != NULL ? comm : NULL;
    ncclResult_t result;
    if (!tt_handle_hold(parent)) {
        result = tt_fail(ncclInvalidArgument,
                         "%s: rank %d: the communicator that is split was destroyed or aborted "
                         "before the group's end",
                         call, comm->rank);
        return child == NULL ? result : tt_comm_begun(child, result, 0);
    }
    result = split(parent, child, splitting);
    tt_handle_let_go(parent);
    return result;
}

static ncclResult_t check_arguments(const struct ncclComm *parent, int color,
                                    const ncclComm_t *comm_out)
{
    if (comm_out == NULL) {
        return tt_fail(ncclInvalidArgument,
                       "%s: rank %d: newcomm is NULL, must be where to write the communicator",
                       call, parent->rank);
    }
    if (color < 0 && color != NCCL_SPLIT_NOCOLOR) {
        return tt_fail(ncclInvalidArgument,
                       "%s: rank %d: color is %d, must be at least 0, or NCCL_SPLIT_NOCOLOR (%d) "
                       "for a rank that gets no communicator",
                       call, parent->rank, color, NCCL_SPLIT_NOCOLOR);
    }
    return tt_child_check_parent(parent, call);
}

static ncclResult_t submit(struct ncclComm *parent, struct splitting *splitting,
                           ncclComm_t *comm_out, const ncclConfig_t *config)
{
    struct ncclComm *comm = parent;
    ncclResult_t result = check_arguments(parent, splitting->color, comm_out);
    if (result == ncclSuccess && splitting->color != NCCL_SPLIT_NOCOLOR) {
        result = tt_child_allocate(parent, config, call, comm_out, &comm);
    } else if (result == ncclSuccess) {
        ncclConfig_t complete;
        result = tt_config_read(config, parent, call, &complete);
        splitting->beginning.is_nonblocking = complete.blocking == 0;
    }
    if (result != ncclSuccess) {
        return tt_group_latch(tell_others(splitting, result));
    }
    splitting->beginning.user_comm = comm == parent ? NULL : comm_out;
    return tt_group_submit(comm, TT_GROUP_INIT, split_job, splitting, sizeof *splitting);
}

ncclResult_t tt_comm_split(struct ncclComm *parent, int color, int key, ncclComm_t *comm_out,
                           const ncclConfig_t *config)
{
    struct splitting splitting = {
        .beginning = {.parent = parent, .tell_others = tell_others}, .color = color, .key = key};
    if (comm_out != NULL) {
        *comm_out = NULL;
    }
    ncclResult_t result = tt_comm_enter(parent, call);
    if (result != ncclSuccess) {
        return tt_group_latch(result);
    }
    result = submit(parent, &splitting, comm_out, config);
    tt_comm_leave(parent);
    return result;
}
