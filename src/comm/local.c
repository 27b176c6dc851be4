// The thread-ranks of one process meet here. See local.h.
//
// A group is shared by the communicators of one id in this process and counted by references. Its
// barrier is a counter and a generation: the last to come starts the next generation. Other
// processes are reached by their leaders: leaders.c, descriptors.c.
// SPDX-License-Identifier: Apache-2.0
#include "comm/local.h"

#include "base/log.h"
#include "base/wait.h"
#include "comm/comm.h"
#include "comm/local_internal.h"
#include "comm/meet.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_NS = 20000000 };

static pthread_mutex_t mutex =
    PTHREAD_MUTEX_INITIALIZER; // guards the list and the reference counts
static struct tt_local_group *groups;

static struct tt_local_group *make_group(const struct ncclComm *comm)
{
    struct tt_local_group *group = calloc(1, sizeof *group);
    if (group == NULL) {
        return NULL;
    }
    group->hash = comm->hash;
    for (int r = 0; r < comm->nranks; r++) {
        group->size += comm->peers[r].process == comm->peers[comm->rank].process;
    }
    group->world_rank = calloc((size_t)comm->nranks, sizeof *group->world_rank);
    group->slots = calloc((size_t)comm->nranks, sizeof *group->slots);
    if (group->world_rank == NULL || group->slots == NULL) {
        free(group->world_rank);
        free(group->slots);
        free(group);
        return NULL;
    }
    for (int r = 0, i = 0; r < comm->nranks; r++) {
        if (comm->peers[r].process == comm->peers[comm->rank].process) {
            group->world_rank[i++] = r;
        }
    }
    return group;
}

static struct tt_local_group *hold_group(const struct ncclComm *comm)
{
    pthread_mutex_lock(&mutex);
    struct tt_local_group *group = groups;
    while (group != NULL && group->hash != comm->hash) {
        group = group->next;
    }
    if (group == NULL && (group = make_group(comm)) != NULL) {
        group->peers = comm->peers;
        group->next = groups;
        groups = group;
    }
    if (group != NULL) {
        group->references++;
    }
    pthread_mutex_unlock(&mutex);
    return group;
}

ncclResult_t tt_local_join(struct ncclComm *comm)
{
    struct tt_local *local = calloc(1, sizeof *local);
    if (local == NULL || (local->group = hold_group(comm)) == NULL) {
        free(local);
        return tt_fail(ncclSystemError, "rank %d: no memory for the ranks of this process",
                       comm->rank);
    }
    while (local->group->world_rank[local->index] != comm->rank) {
        local->index++;
    }
    if (comm->peers != local->group->peers) { // the same, from the rank that came first
        free(comm->peers);
        comm->peers = local->group->peers;
    }
    comm->local = local;
    return ncclSuccess;
}

bool tt_local_fail(struct ncclComm *comm, ncclResult_t result, const char *text)
{
    int none = 0;
    struct tt_local_group *group = comm->local != NULL ? comm->local->group : NULL;
    bool first = group != NULL && atomic_compare_exchange_strong(&group->failed, &none, 1);
    if (first) {
        group->failure = result;
        group->failure_text = strdup(text);
        atomic_store_explicit(&group->failed, 2, memory_order_release);
    }
    return first;
}

void tt_local_leave(struct ncclComm *comm)
{
    struct tt_local *local = comm->local;
    if (local == NULL) {
        return;
    }
    tt_leaders_disconnect(local);
    struct tt_local_group *group = local->group;
    pthread_mutex_lock(&mutex);
    bool last = --group->references == 0;
    if (last) {
        struct tt_local_group **at = &groups;
        while (*at != group) {
            at = &(*at)->next;
        }
        *at = group->next;
    }
    pthread_mutex_unlock(&mutex);
    comm->peers = NULL;
    if (last) {
        free(group->peers);
        free(group->failure_text);
        free(group->world_rank);
        free(group->slots);
        free(group);
    }
    free(local);
    comm->local = NULL;
}

int tt_local_size(const struct ncclComm *comm)
{
    return comm->local->group->size;
}

int tt_local_rank(const struct ncclComm *comm)
{
    return comm->local->index;
}

int tt_local_world_rank(const struct ncclComm *comm, int local_rank)
{
    return comm->local->group->world_rank[local_rank];
}

// Whether this rank may go on waiting for the others of its process.
static ncclResult_t check_waiting(struct ncclComm *comm, struct tt_wait *wait,
                                  uint64_t *next_look_ns)
{
    const struct tt_local_group *group = comm->local->group;
    if (atomic_load_explicit(&group->failed, memory_order_acquire) == 2) {
        return tt_fail(group->failure, "rank %d: %s", comm->rank,
                       group->failure_text != NULL ? group->failure_text : "no memory for why");
    }
    if (!tt_wait_round(wait)) {
        return tt_fail(ncclInternalError, "rank %d: the communicator was aborted", comm->rank);
    }
    if (tt_now_ns() < *next_look_ns) {
        return ncclSuccess;
    }
    *next_look_ns = tt_now_ns() + LOOK_NS;
    return tt_meet_look(comm); // a rank of another process may have ended it
}

ncclResult_t tt_local_barrier(struct ncclComm *comm)
{
    struct tt_local_group *group = comm->local->group;
    uint32_t generation = atomic_load_explicit(&group->generation, memory_order_acquire);
    if (atomic_fetch_add_explicit(&group->arrived, 1, memory_order_acq_rel) + 1 == group->size) {
        atomic_store_explicit(&group->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&group->generation, generation + 1, memory_order_release);
        return ncclSuccess;
    }
    struct tt_wait wait = tt_wait_begin(comm->abort_flag);
    uint64_t next_look_ns = wait.start_ns + LOOK_NS;
    while (atomic_load_explicit(&group->generation, memory_order_acquire) == generation) {
        TRY(check_waiting(comm, &wait, &next_look_ns));
    }
    return ncclSuccess;
}

ncclResult_t tt_local_exchange(struct ncclComm *comm, void *mine, void *const **all_out)
{
    TRY(tt_local_barrier(comm));
    comm->local->group->slots[comm->local->index] = mine;
    TRY(tt_local_barrier(comm));
    *all_out = comm->local->group->slots;
    return ncclSuccess;
}
