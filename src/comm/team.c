// The host team of a communicator: all ranks of a machine, with memory that they share. See comm.h
// and exec/executor.h.
// SPDX-License-Identifier: Apache-2.0
#include "base/gpu.h"
#include "base/holdings.h"
#include "base/log.h"
#include "base/params.h"
#include "comm/board.h"
#include "comm/comm.h"
#include "comm/meet.h"
#include "exec/executor.h"
#include "plan/select.h"
#include "window/window.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static bool is_one_machine(const struct ncclComm *comm)
{
    for (int r = 0; r < comm->nranks; r++) {
        if (comm->peers[r].machine_hash != comm->peers[0].machine_hash) {
            return false;
        }
    }
    return true;
}

bool tt_team_is_possible(const struct ncclComm *comm)
{
    return comm->nranks <= tt_executor->most_ranks && is_one_machine(comm);
}

static void fail(void *owner, ncclResult_t result, const char *text)
{
    (void)tt_comm_fail(owner, result, text);
}

// What the user chose of algorithms: read once, as it is the same for all communicators. NULL:
// tt_fail has been called.
static const struct tt_choice *chosen(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; // guards the rest
    static struct tt_choice choice;
    static bool is_read;
    pthread_mutex_lock(&mutex);
    is_read = is_read || tt_choice_parse(tt_param_text(TT_PARAM_ALGO), &choice) == ncclSuccess;
    const struct tt_choice *found = is_read ? &choice : NULL;
    pthread_mutex_unlock(&mutex);
    return found;
}

// Reads what the user chose. A rank alone needs no algorithm.
static ncclResult_t read_choice(struct ncclComm *comm, const struct tt_choice **choice_out)
{
    uint32_t without_protocol = 0;
    const struct tt_choice *choice = *choice_out = chosen();
    if (choice == NULL) {
        return ncclInvalidUsage;
    }
    TRY(tt_protocols_parse(tt_param_text(TT_PARAM_PROTO), &without_protocol));
    if (comm->nranks > 1) {
        bool has_multicast = tt_multicast_possible(comm);
        comm->ruled_out[0] =
            without_protocol | tt_choice_rules_out(choice, comm->nranks, has_multicast);
        comm->ruled_out[1] = without_protocol | tt_choice_rules_out(choice, comm->nranks, false);
    }
    return ncclSuccess;
}

// Scratch memory in the switch, where all ranks chose so that some function may need it. NULL:
// none.
static ncclResult_t make_scratch(struct ncclComm *comm, const struct tt_choice *choice,
                                 const struct tt_window **scratch_out)
{
    *scratch_out = NULL;
    if (comm->nranks < 2 || comm->lsa_size != comm->nranks ||
        !tt_choice_wants_scratch(choice, comm->nranks)) {
        return ncclSuccess;
    }
    for (int r = 1; r < comm->nranks; r++) {
        if (comm->peers[r].algorithms != comm->peers[0].algorithms) {
            return ncclSuccess;
        }
    }
    TRY(tt_peers_agree(comm)); // windows ask whether memory can be mapped
    return tt_window_scratch(comm, TT_SWITCH_SCRATCH, scratch_out);
}

static ncclResult_t join(struct ncclComm *comm, struct tt_arena *arena)
{
    const struct tt_choice *choice = NULL;
    const struct tt_window *scratch = NULL;
    TRY(read_choice(comm, &choice));
    TRY(make_scratch(comm, choice, &scratch));
    int *process = malloc(2 * (size_t)comm->nranks * sizeof *process);
    if (process == NULL) {
        return tt_fail(ncclSystemError, "rank %d: no memory for %d ranks", comm->rank,
                       comm->nranks);
    }
    int *devices = process + comm->nranks;
    for (int r = 0; r < comm->nranks; r++) {
        const struct tt_peer *peer = &comm->peers[r];
        process[r] = peer->process;
        devices[r] = peer->process == comm->peers[comm->rank].process ? peer->cuda_device
                                                                      : tt_gpu_find(peer->gpu_uuid);
    }
    struct tt_team team = {.rank = comm->rank,
                           .nranks = comm->nranks,
                           .device = comm->cuda_device,
                           .process = process,
                           .devices = devices,
                           .abort_flag = comm->abort_flag,
                           .async_error = &comm->async_error,
                           .device_error = &comm->device_error,
                           .comm_name = comm->name,
                           .comm_hash = comm->hash,
                           .has_left = tt_meet_left(comm),
                           .arena = arena,
                           .fail = fail,
                           .owner = comm,
                           .choice = choice,
                           .limit_ns = (uint64_t)tt_param_int(TT_PARAM_TIMEOUT) * 1000000000};
    if (scratch != NULL) {
        team.switch_scratch = (struct tt_symmetric){scratch->flat_base, scratch->stride};
        team.switch_scratch_multicast = scratch->multimem_base;
    }
    ncclResult_t result = tt_executor->join(&team, &comm->host);
    free(process);
    return result;
}

static void unmap_room(void *base)
{
    munmap(base, tt_executor->arena_bytes(1));
    tt_holdings_remove(TT_HOLD_MAPPINGS, tt_executor->arena_bytes(1));
}

// Of a rank alone.
static ncclResult_t make_arena(struct tt_arena **arena_out)
{
    size_t bytes = tt_executor->arena_bytes(1);
    struct tt_room room = {.descriptor = -1, .leave = unmap_room};
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        return tt_fail(ncclSystemError, "%zu bytes for a rank alone cannot be mapped: %m", bytes);
    }
    tt_holdings_add(TT_HOLD_MAPPINGS, bytes);
    room.base = room.owner = base;
    ncclResult_t result = tt_executor->arena_map(&room, 1, arena_out);
    if (result != ncclSuccess) {
        unmap_room(base);
    }
    return result;
}

ncclResult_t tt_team_join(struct ncclComm *comm)
{
    if (!tt_team_is_possible(comm)) {
        return ncclSuccess;
    }
    if (comm->board == NULL) {
        TRY(make_arena(&comm->arena));
    } else {
        comm->arena = tt_board_arena(comm->board);
    }
    return join(comm, comm->arena);
}

ncclResult_t tt_team_refuse(const struct ncclComm *comm, const char *what)
{
    if (comm->host != NULL) {
        return tt_fail(ncclInvalidUsage, "not implemented yet: rank %d: %s on real GPUs",
                       comm->rank, what);
    }
    if (!is_one_machine(comm)) {
        return tt_fail(ncclInvalidUsage, "not implemented yet: rank %d: %s among several machines",
                       comm->rank, what);
    }
    return tt_fail(ncclInvalidUsage,
                   "rank %d: %s: %s has %d ranks on one machine, of which at most %d can work "
                   "together",
                   comm->rank, what, comm->name, comm->nranks, tt_executor->most_ranks);
}

void tt_team_finalize(struct ncclComm *comm)
{
    if (comm->host != NULL) {
        tt_executor->finalize(comm->host);
    }
}

bool tt_team_drain(struct ncclComm *comm, bool *gave_up_out)
{
    *gave_up_out = false;
    return comm->host == NULL || tt_executor->drain(comm->host, gave_up_out);
}

void tt_team_leave(struct ncclComm *comm)
{
    struct tt_host *host = comm->host;
    if (host != NULL) {
        tt_executor->part(host);
        comm->host = NULL;
    }
    if (comm->board == NULL && comm->arena != NULL) {
        tt_executor->arena_release(comm->arena);
    }
    comm->arena = NULL;
}
