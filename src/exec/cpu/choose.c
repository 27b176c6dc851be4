// See choose.h. SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/choose.h"

#include "base/log.h"
#include "exec/cpu/buffers.h"
#include "exec/cpu/run.h"
#include "exec/cpu/uneven.h"
#include "plan/cache.h"
#include "plan/parts.h"
#include "plan/select.h"

#include <string.h>
#include <unistd.h>

// ---- What all ranks know alike ------------------------------------------------------------------

static bool is_one_process(const struct tt_host *host)
{
    for (int rank = 0; rank < host->nranks; rank++) {
        if (host->team.process[rank] != host->team.process[0]) {
            return false;
        }
    }
    return true;
}

uint64_t tt_choose_tell(struct tt_host *host, const void *address, size_t bytes)
{
    return bytes == 0 || host->is_one_process ? 0 : tt_buffers_tell(host, address, bytes);
}

int tt_choose_lanes(struct tt_host *host)
{
    if (host->lanes == 0) {
        host->is_one_process = is_one_process(host);
        uint32_t least = UINT32_MAX;
        for (int rank = 0; rank < host->nranks; rank++) {
            // Written before any rank's communicator was ready.
            uint32_t workers = atomic_load_explicit(&tt_arena_own(host->arena, rank)->workers,
                                                    memory_order_acquire);
            least = workers < least ? workers : least;
        }
        uint32_t lanes = least / (uint32_t)host->nranks;
        host->lanes = lanes < 1 ? 1 : lanes > TT_CHANNELS ? TT_CHANNELS : (int)lanes;
    }
    return host->lanes;
}

// In place as far as it makes a plan: on all ranks, or on the root.
static bool is_in_place(const struct tt_host *host, const struct tt_op *op)
{
    bool is_rooted = op->function == TT_REDUCE || op->function == TT_BROADCAST ||
                     op->function == TT_GATHER || op->function == TT_SCATTER;
    for (int rank = 0; rank < host->nranks; rank++) {
        bool counts = !is_rooted || rank == op->root;
        if (counts && (tt_host_entry(host, rank)->call.flags & TT_CALL_IN_PLACE) == 0) {
            return false;
        }
    }
    return true;
}

static ncclResult_t make_problem(struct tt_host *host, const struct tt_op *op,
                                 struct tt_problem *problem)
{
    *problem = (struct tt_problem){.function = op->function,
                                   .nranks = host->nranks,
                                   .root = op->root,
                                   .count = op->is_uneven ? 0 : op->count,
                                   .element = tt_type_bytes(op->type),
                                   .accumulator = tt_accumulator_bytes(op->type),
                                   .in_place = is_in_place(host, op),
                                   .is_uneven = op->is_uneven,
                                   .lanes = tt_choose_lanes(host)};
    return op->is_uneven ? tt_uneven_collect(host, op, &problem->uneven) : ncclSuccess;
}

// Whether every rank can reach every buffer; else all go through scratch memory.
static bool is_all_reachable(const struct tt_host *host, const struct tt_problem *problem)
{
    for (int rank = 0; rank < host->nranks && !host->is_one_process; rank++) {
        const struct tt_places *places = &tt_host_entry(host, rank)->places;
        if ((places->send_shared == 0 && tt_problem_send_count(problem, rank) > 0) ||
            (places->recv_shared == 0 && tt_problem_recv_count(problem, rank) > 0)) {
            return false;
        }
    }
    return true;
}

// Whether the switch reaches all ranks' buffers, at the same place of the same window.
static bool has_multicast(const struct tt_host *host)
{
    uint64_t where = tt_arena_own(host->arena, 0)->multicast;
    for (int rank = 1; rank < host->nranks && where != 0; rank++) {
        where = tt_arena_own(host->arena, rank)->multicast == where ? where : 0;
    }
    return where != 0;
}

// ---- Buffers ------------------------------------------------------------------------------------

enum { NEEDS_SEND = 1 << TT_BUFFER_SEND, NEEDS_RECV = 1 << TT_BUFFER_RECV };

static ncclResult_t reach(struct tt_host *host, const struct tt_problem *problem, int rank,
                          unsigned needs)
{
    const struct tt_places *places = &tt_host_entry(host, rank)->places;
    struct tt_run *run = host->run;
    size_t send = tt_problem_send_count(problem, rank) * problem->element;
    size_t recv = tt_problem_recv_count(problem, rank) * problem->element;
    run->send[rank] = run->recv[rank] = NULL;
    if ((needs & NEEDS_SEND) != 0 && send > 0) {
        TRY(tt_buffers_reach(host, rank, places->send, places->send_shared, send,
                             &run->send[rank]));
    }
    if ((needs & NEEDS_RECV) != 0 && recv > 0) {
        TRY(tt_buffers_reach(host, rank, places->recv, places->recv_shared, recv,
                             &run->recv[rank]));
    }
    return ncclSuccess;
}

// Finds the buffers that the plan names.
static ncclResult_t find_buffers(struct tt_host *host, const struct tt_problem *problem,
                                 const struct tt_plan *plan)
{
    struct tt_run *run = host->run;
    for (int rank = 0; rank < host->nranks; rank++) {
        run->needs[rank] = 0;
    }
    unsigned every = 0;
    for (uint32_t i = 0; i < plan->places; i++) {
        unsigned bit = 1u << plan->place[i].buffer;
        if (plan->place[i].rank >= 0) {
            run->needs[plan->place[i].rank] |= (unsigned char)bit;
        } else if (plan->place[i].rank == TT_EVERY) {
            every |= bit;
        }
    }
    for (int rank = 0; rank < host->nranks; rank++) {
        TRY(reach(host, problem, rank, run->needs[rank] | every));
    }
    run->in_switch[TT_BUFFER_SCRATCH] = host->team.switch_scratch_multicast;
    if (plan->scratch > 0 && plan->algorithm->needs_multicast) {
        run->scratch = host->team.switch_scratch.base;
        run->scratch_stride = host->team.switch_scratch.stride;
        return plan->scratch <= TT_SWITCH_SCRATCH
                   ? ncclSuccess
                   : tt_bug("rank %d: a plan of %s needs %zu bytes in the switch", host->rank,
                            plan->algorithm->name, plan->scratch);
    }
    if (plan->scratch > 0) {
        run->scratch = tt_arena_scratch(host->arena, plan->scratch, &run->scratch_stride);
        if (run->scratch == NULL) {
            return ncclSystemError;
        }
    }
    return ncclSuccess;
}

// A rank's share of the last-level cache; all ranks of the machine share it.
static size_t cache_share(const struct tt_host *host)
{
    static _Atomic size_t known; // any thread may fill it, always with the same value
    size_t bytes = atomic_load_explicit(&known, memory_order_relaxed);
    if (bytes == 0) {
        long announced = sysconf(_SC_LEVEL3_CACHE_SIZE);
        bytes = announced > 0 ? (size_t)announced : (size_t)8 << 20;
        atomic_store_explicit(&known, bytes, memory_order_relaxed);
    }
    return bytes / 2 / (size_t)host->nranks;
}

// Gets the plan from the host's cache; the one before goes back.
static ncclResult_t choose_plan(struct tt_host *host, const struct tt_problem *problem,
                                struct tt_means means, const struct tt_plan **plan_out)
{
    const struct tt_algorithm *algorithm = NULL;
    TRY(tt_select(host->choice, problem, means, &algorithm));
    tt_choose_end(host);
    host->plan = tt_plan_cache_get(host->plans, algorithm, problem, host->rank);
    *plan_out = host->plan;
    return host->plan != NULL
               ? ncclSuccess
               : tt_fail(ncclSystemError, "rank %d: no memory for a plan", host->rank);
}

void tt_choose_end(struct tt_host *host)
{
    if (host->plan != NULL) {
        tt_plan_cache_put(host->plans, host->plan);
        host->plan = NULL;
    }
}

ncclResult_t tt_choose(struct tt_host *host, const struct tt_op *op,
                       const struct tt_plan **plan_out)
{
    struct tt_problem problem;
    TRY(make_problem(host, op, &problem));
    const struct tt_plan *plan = NULL;
    struct tt_means means = {.has_multicast = has_multicast(host),
                             .is_mapped = is_all_reachable(host, &problem),
                             .switch_scratch = host->team.switch_scratch_multicast != NULL};
    TRY(choose_plan(host, &problem, means, &plan));
    TRY(find_buffers(host, &problem, plan));
    size_t output = tt_problem_recv_count(&problem, host->rank) * problem.element;
    // In place the lines are in the cache already, and there they are best written.
    host->run->stream = !problem.in_place && output > cache_share(host);
    *plan_out = plan;
    return ncclSuccess;
}
