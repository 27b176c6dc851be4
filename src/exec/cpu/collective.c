// One rank's part in a collective. See collective.h.
//
// Small ones are over when all have entered: the entries carry the whole input, every rank reduces
// for itself. Two entries that are used in turn make that safe: nobody writes an entry anew before
// all have entered the operation after it. Larger ones run a plan between entering and leaving.
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/collective.h"

#include "base/log.h"
#include "exec/cpu/choose.h"
#include "exec/cpu/payload.h"
#include "exec/cpu/run.h"
#include "exec/cpu/task.h"

#include <stdlib.h>
#include <string.h>
#include <vgpu/native.h>

// Work that the thread which calls may do itself: as long as giving it to others, and being woken
// at its end, takes (some 40 us). Where ranks outnumber a process's cores, blocks of one pool are
// cheaper to switch than threads.
enum { SHORT_BYTES = 1 << 20, SHORT_BYTES_CROWDED = 64 << 10, LANE_BYTES = 256 << 10 };

enum { NEW, ENTERED, RUNNING, LEAVING, OVER }; // struct collective's phase

struct collective {
    struct tt_task task; // first
    struct tt_op op;     // its arrays: `counts`
    struct tt_multicast multicast;
    bool is_payload;
    _Atomic uint32_t phase;      // written by part 0 (release), read by the others
    _Atomic uint32_t parts_done; // parts whose lanes are over (release)
    const struct tt_plan *plan;
    size_t counts[]; // of uneven operations: up to 4 x [nranks], in the order of struct tt_uneven
};

// ---- Uneven counts ------------------------------------------------------------------------------

enum { UNEVEN_ARRAYS = 4 };

static const size_t **uneven_array(struct tt_uneven *uneven, int which)
{
    const size_t **array[UNEVEN_ARRAYS] = {&uneven->send_count, &uneven->send_first,
                                           &uneven->recv_count, &uneven->recv_first};
    return array[which];
}

// Copies the arrays of the caller's operation behind the structure.
static void copy_counts(struct collective *to, const struct tt_op *op, size_t nranks)
{
    struct tt_uneven from = op->uneven;
    for (int which = 0; which < UNEVEN_ARRAYS; which++) {
        const size_t *array = *uneven_array(&from, which);
        if (array != NULL) {
            memcpy(to->counts + (size_t)which * nranks, array, nranks * sizeof *array);
        }
    }
}

// The structure has been copied: the operation's arrays are those behind it.
static void find_counts(struct collective *collective, size_t nranks)
{
    for (int which = 0; which < UNEVEN_ARRAYS; which++) {
        const size_t **array = uneven_array(&collective->op.uneven, which);
        if (*array != NULL) {
            *array = collective->counts + (size_t)which * nranks;
        }
    }
}

// Tells the others, before this rank enters.
static void tell_counts(const struct tt_host *host, const struct collective *collective)
{
    uint64_t *told = tt_arena_uneven(host->arena, host->rank);
    size_t n = (size_t)host->nranks;
    struct tt_uneven uneven = collective->op.uneven;
    for (int which = 0; which < UNEVEN_ARRAYS; which++) {
        const size_t *array = *uneven_array(&uneven, which);
        for (size_t i = 0; i < n; i++) {
            told[(size_t)which * n + i] = array == NULL ? 0 : array[i];
        }
    }
}

// ---- Entering -----------------------------------------------------------------------------------

static bool is_in_place(const struct tt_host *host, const struct tt_op *op)
{
    size_t element = tt_type_bytes(op->type), rank = (size_t)host->rank;
    const uintptr_t send = (uintptr_t)op->send, recv = (uintptr_t)op->recv; // NULL where unused
    const struct tt_uneven *uneven = &op->uneven;
    size_t send_first = rank * op->count, recv_first = rank * op->count;
    if (op->is_uneven) {
        size_t send_bytes = tt_op_send_bytes(op, host->rank, host->nranks);
        size_t recv_bytes = tt_op_recv_bytes(op, host->rank, host->nranks);
        if (send_bytes == 0 || recv_bytes == 0) {
            return op->function != TT_ALL_TO_ALL; // as much as not: one is not there
        }
        send_first = uneven->send_first == NULL ? 0 : uneven->send_first[rank];
        recv_first = uneven->recv_first == NULL ? 0 : uneven->recv_first[rank];
    }
    switch (op->function) {
    case TT_ALL_GATHER:
    case TT_GATHER:
        return send == recv + recv_first * element;
    case TT_REDUCE_SCATTER:
    case TT_SCATTER:
        return recv == send + send_first * element;
    case TT_ALL_TO_ALL:
        return false;
    default:
        return send == recv;
    }
}

static void enter(struct tt_host *host, struct collective *collective)
{
    struct tt_op *op = &collective->op;
    size_t n = (size_t)host->nranks;
    struct tt_entry entry = {.call = {.count = op->is_uneven ? 0 : op->count,
                                      .root = op->root,
                                      .function = (uint8_t)op->function,
                                      .type = (uint8_t)op->type,
                                      .op = (uint8_t)op->op}};
    if (op->is_uneven) {
        find_counts(collective, n);
        tell_counts(host, collective);
        entry.call.flags |= TT_CALL_UNEVEN;
        entry.call.count = op->count;
    }
    if (op->op == TT_REDUCE_SCALED_SUM) {
        entry.scale =
            op->scale_device == NULL ? op->scale : tt_scalar_of(op->type, op->scale_device);
    }
    if (collective->is_payload) {
        tt_payload_write(host, op, &entry);
    } else {
        entry.call.flags |= is_in_place(host, op) ? TT_CALL_IN_PLACE : 0;
        size_t send = tt_op_send_bytes(op, host->rank, host->nranks);
        size_t recv = tt_op_recv_bytes(op, host->rank, host->nranks);
        entry.places = (struct tt_places){.send = (uintptr_t)op->send,
                                          .recv = (uintptr_t)op->recv,
                                          .send_shared = tt_choose_tell(host, op->send, send),
                                          .recv_shared = tt_choose_tell(host, op->recv, recv)};
    }
    tt_arena_own(host->arena, host->rank)->multicast = collective->multicast.where;
    tt_host_enter(host, &entry, host->checks ? tt_op_signature(op) : 0);
}

// ---- Running ------------------------------------------------------------------------------------

// All have entered: whatever is left until the lanes can run. False: the communicator has failed.
static bool prepare(struct tt_host *host, struct collective *collective)
{
    struct tt_run *run = host->run;
    const struct tt_op *op = &collective->op;
    run->type = op->type;
    run->op = op->op;
    run->is_scaled = op->op == TT_REDUCE_SCALED_SUM;
    run->in_switch[TT_BUFFER_SEND] = collective->multicast.send;
    run->in_switch[TT_BUFFER_RECV] = collective->multicast.recv;
    for (int rank = 0; run->is_scaled && rank < host->nranks; rank++) {
        run->scale[rank] = tt_host_entry(host, rank)->scale;
    }
    ncclResult_t result = tt_choose(host, op, &collective->plan);
    if (result == ncclSuccess && !tt_run_begin(run, collective->plan)) {
        result = tt_fail(ncclSystemError, "rank %d: no memory to run a plan of %d lanes",
                         host->rank, collective->plan->lanes);
    }
    if (result != ncclSuccess) {
        (void)tt_host_fail_again(host, result);
    }
    return result == ncclSuccess;
}

// Part 0, until the lanes can run.
static enum tt_progress begin(struct tt_host *host, struct collective *collective, uint32_t phase)
{
    if (phase == NEW) {
        enter(host, collective);
        atomic_store_explicit(&collective->phase, ENTERED, memory_order_relaxed);
    }
    enum tt_progress progress = tt_host_meet(host);
    if (progress == TT_WAITING) {
        return TT_WAITING;
    }
    bool go = progress == TT_DONE;
    if (go && collective->is_payload) {
        tt_payload_finish(host, &collective->op);
        return TT_DONE;
    }
    go = go && prepare(host, collective);
    atomic_store_explicit(&collective->phase, go ? RUNNING : OVER, memory_order_release);
    return go ? TT_DONE : TT_FAILED;
}

// Lanes part, part + parts, ... of the plan.
static enum tt_progress run_lanes(struct tt_host *host, const struct collective *collective,
                                  unsigned part)
{
    enum tt_progress all = TT_DONE;
    for (unsigned lane = part; lane < (unsigned)collective->plan->lanes;
         lane += collective->task.parts) {
        enum tt_progress progress = tt_run_step(host, host->run, (int)lane);
        if (progress == TT_FAILED) {
            return TT_FAILED;
        }
        all = progress == TT_WAITING ? TT_WAITING : all;
    }
    return all;
}

// Part 0, once its lanes are over.
static enum tt_progress leave(struct tt_host *host, struct collective *collective, uint32_t phase)
{
    if (phase == RUNNING) {
        if (atomic_load_explicit(&collective->parts_done, memory_order_acquire) <
            collective->task.parts - 1) {
            return tt_host_is_over(host) ? TT_FAILED : TT_WAITING;
        }
        tt_host_leave(host);
        atomic_store_explicit(&collective->phase, LEAVING, memory_order_relaxed);
    }
    return tt_host_all_left(host);
}

static enum tt_progress step(struct tt_task *task, unsigned part)
{
    struct collective *collective = (struct collective *)task;
    struct tt_host *host = task->host;
    uint32_t phase = atomic_load_explicit(&collective->phase, memory_order_acquire);
    if (part == 0 && phase < RUNNING) {
        enum tt_progress progress = begin(host, collective, phase);
        if (progress != TT_DONE || collective->is_payload) {
            return progress;
        }
        phase = RUNNING;
    }
    if (phase < RUNNING) {
        return TT_WAITING;
    }
    if (phase == OVER) {
        return TT_FAILED;
    }
    if (phase == RUNNING) {
        enum tt_progress progress = run_lanes(host, collective, part);
        if (progress != TT_DONE) {
            return progress;
        }
    }
    if (part == 0) {
        return leave(host, collective, phase);
    }
    atomic_fetch_add_explicit(&collective->parts_done, 1, memory_order_release);
    return TT_DONE;
}

// ---- Launching ----------------------------------------------------------------------------------

static unsigned parts_for(struct tt_host *host, size_t bytes)
{
    size_t lanes = (size_t)tt_choose_lanes(host), fair = bytes / LANE_BYTES;
    lanes = lanes < fair ? lanes : fair;
    return lanes > 0 ? (unsigned)lanes : 1;
}

// Whether the thread that calls may do the work. is_one_process: known once lanes are chosen.
static bool is_short(const struct tt_host *host, size_t bytes)
{
    bool is_crowded = host->is_one_process && host->nranks > vgpuWorkerCount();
    return bytes <= (size_t)(is_crowded ? SHORT_BYTES_CROWDED : SHORT_BYTES);
}

// Threads may make a rank's first calls at once.
static ncclResult_t make_run(struct tt_host *host)
{
    struct tt_run *none = NULL, *run = tt_run_new(host->nranks);
    if (run == NULL) {
        return tt_fail(ncclSystemError, "rank %d: no memory to run a collective of %d ranks",
                       host->rank, host->nranks);
    }
    if (!__atomic_compare_exchange_n(&host->run, &none, run, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        tt_run_free(run);
    }
    return ncclSuccess;
}

ncclResult_t tt_collective_launch(struct tt_host *host, const struct tt_op *op,
                                  const struct tt_call_context *context, cudaStream_t stream)
{
    if (__atomic_load_n(&host->run, __ATOMIC_ACQUIRE) == NULL) {
        TRY(make_run(host));
    }
    size_t send = tt_op_send_bytes(op, host->rank, host->nranks);
    size_t recv = tt_op_recv_bytes(op, host->rank, host->nranks);
    size_t most = send > recv ? send : recv;
    struct collective even = {.task = {.host = host,
                                       .name = tt_function_name(op->function),
                                       .step = step,
                                       .parts = parts_for(host, most),
                                       .short_bytes = most,
                                       .op_offset = offsetof(struct collective, op)},
                              .op = *op,
                              .multicast = context->multicast,
                              .is_payload = tt_payload_fits(op, host->nranks)};
    even.task.is_short = context->may_wait && is_short(host, most);
    if (!op->is_uneven) {
        return tt_task_launch(&even.task, sizeof even, stream);
    }
    size_t n = (size_t)host->nranks, bytes = sizeof even + UNEVEN_ARRAYS * n * sizeof(size_t);
    struct collective *uneven = malloc(bytes);
    if (uneven == NULL) {
        return tt_fail(ncclSystemError, "rank %d: no memory for the counts of %zu ranks",
                       host->rank, n);
    }
    *uneven = even;
    copy_counts(uneven, op, n);
    ncclResult_t result = tt_task_launch(&uneven->task, bytes, stream);
    free(uneven);
    return result;
}
