// Steps a plan. See run.h.
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/run.h"

#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vgpu/device_runtime.h>
#include <vgpu/stats.h>

// Bytes of one place between two looks at the abort flag.
enum { CHUNK_BYTES = 64 << 10 };

struct tt_run *tt_run_new(int nranks)
{
    size_t n = (size_t)nranks, each = 2 * sizeof(char *) + sizeof(union tt_scalar) + 1;
    struct tt_run *run = calloc(1, sizeof *run + n * each);
    if (run != NULL) {
        run->nranks = nranks;
        run->send = (char **)(void *)(run + 1);
        run->recv = run->send + n;
        run->scale = (union tt_scalar *)(void *)(run->recv + n);
        run->needs = (unsigned char *)(run->scale + n);
    }
    return run;
}

static void free_lane(struct tt_run_lane *lane)
{
    free(lane->out);
    free(lane->in);
    free(lane->scale);
    *lane = (struct tt_run_lane){0};
}

void tt_run_free(struct tt_run *run)
{
    if (run == NULL) {
        return;
    }
    for (int i = 0; i < run->lane_capacity; i++) {
        free_lane(&run->lane[i]);
    }
    free(run->lane);
    free(run);
}

// ---- Room ---------------------------------------------------------------------------------------

// How many addresses `count` places stand for.
static size_t expanded(const struct tt_run *run, const struct tt_plan *plan, uint32_t first,
                       uint32_t count)
{
    size_t all = 0;
    for (uint32_t i = first; i < first + count; i++) {
        all += plan->place[i].rank < 0 ? (size_t)run->nranks : 1;
    }
    return all;
}

// The most addresses that one side of a step of the lane has.
static size_t most_places(const struct tt_run *run, const struct tt_plan *plan, int lane)
{
    size_t most = 1;
    const struct tt_step *step = &plan->step[plan->lane[lane].step];
    for (uint32_t i = 0; i < plan->lane[lane].steps; i++) {
        size_t ins = expanded(run, plan, step[i].in, step[i].ins);
        size_t outs = expanded(run, plan, step[i].out, step[i].outs);
        most = ins > most ? ins : most;
        most = outs > most ? outs : most;
    }
    return most;
}

static bool prepare_lane(struct tt_run_lane *lane, size_t places)
{
    if (lane->capacity < places) {
        free_lane(lane);
        lane->out = calloc(places, sizeof *lane->out);
        lane->in = calloc(places, sizeof *lane->in);
        lane->scale = calloc(places, sizeof *lane->scale);
        if (lane->out == NULL || lane->in == NULL || lane->scale == NULL) {
            free_lane(lane);
            return false;
        }
        lane->capacity = places;
    }
    lane->step = 0;
    lane->done = 0;
    lane->is_over = false;
    lane->watch = (struct tt_watch){0};
    return true;
}

bool tt_run_begin(struct tt_run *run, const struct tt_plan *plan)
{
    if (run->lane_capacity < plan->lanes) {
        struct tt_run_lane *more = realloc(run->lane, (size_t)plan->lanes * sizeof *more);
        if (more == NULL) {
            return false;
        }
        memset(more + run->lane_capacity, 0,
               (size_t)(plan->lanes - run->lane_capacity) * sizeof *more);
        run->lane = more;
        run->lane_capacity = plan->lanes;
    }
    for (int i = 0; i < plan->lanes; i++) {
        if (!prepare_lane(&run->lane[i], most_places(run, plan, i))) {
            return false;
        }
    }
    run->plan = plan;
    return true;
}

// ---- Places -------------------------------------------------------------------------------------

static char *place_of(const struct tt_run *run, enum tt_buffer buffer, int rank)
{
    switch (buffer) {
    case TT_BUFFER_SEND:
        return run->send[rank];
    case TT_BUFFER_RECV:
        return run->recv[rank];
    default:
        return run->scratch + (size_t)rank * run->scratch_stride;
    }
}

// The addresses, `skip` bytes on, that a place stands for; scale_out (NULL: not wanted): the
// factors of their ranks. Returns how many.
static size_t expand(const struct tt_run *run, const struct tt_place *place, size_t skip,
                     void **out, union tt_scalar *scale_out)
{
    size_t offset = place->offset + skip;
    if (place->rank >= 0) {
        out[0] = place_of(run, place->buffer, place->rank) + offset;
        if (scale_out != NULL) {
            scale_out[0] = run->scale[place->rank];
        }
        return 1;
    }
    if (place->rank == TT_SWITCH) { // one access of the switch, which knows its members' memory
        char *base = run->in_switch[place->buffer];
        const struct vgpu_multimem_range *range = vgpu_multimem_find((uintptr_t)(base + offset), 1);
        for (int i = 0; i < range->member_count; i++) {
            out[i] = range->member[i] + ((uintptr_t)(base + offset) - range->base);
        }
    }
    for (int rank = 0; rank < run->nranks; rank++) {
        if (place->rank == TT_EVERY) {
            out[rank] = place_of(run, place->buffer, rank) + offset;
        }
        if (scale_out != NULL) {
            scale_out[rank] = run->scale[rank];
        }
    }
    return (size_t)run->nranks;
}

// Scratch memory counts as its rank's device's.
static void count_place(const struct tt_host *host, const struct tt_place *place, size_t skip,
                        void *const *address, size_t addresses, size_t bytes, bool is_store)
{
    const struct tt_run *run = host->run;
    if (place->rank == TT_SWITCH) {
        char *base = run->in_switch[place->buffer];
        base += place->offset + skip;
        vgpu_count_multimem(vgpu_multimem_find((uintptr_t)base, bytes), bytes, !is_store);
        return;
    }
    for (size_t i = 0; i < addresses; i++) {
        if (place->buffer == TT_BUFFER_SCRATCH) {
            int rank = place->rank >= 0 ? place->rank : (int)i;
            vgpuCountDeviceTransfer(host->team.devices[rank], bytes, is_store);
        } else {
            vgpuCountTransfer(address[i], bytes, is_store);
        }
    }
}

// ---- Steps --------------------------------------------------------------------------------------

// The next `count` elements of a reduction or a copy.
static void do_chunk(const struct tt_host *host, struct tt_run_lane *lane,
                     const struct tt_step *step, size_t count)
{
    const struct tt_run *run = host->run;
    const struct tt_plan *plan = run->plan;
    bool reduces = step->kind == TT_STEP_REDUCE;
    bool partial_in = reduces && (step->flags & TT_PARTIAL_IN) != 0;
    bool partial_out = reduces && (step->flags & TT_PARTIAL_OUT) != 0;
    size_t element = tt_type_bytes(run->type), accumulator = tt_accumulator_bytes(run->type);
    size_t ins = 0, outs = 0;
    for (uint32_t i = 0; i < step->ins; i++) {
        const struct tt_place *place = &plan->place[step->in + i];
        size_t each = partial_in && i == 0 ? accumulator : element;
        void **to = (void **)lane->in + ins;
        size_t got =
            expand(run, place, lane->done * each, to, run->is_scaled ? lane->scale + ins : NULL);
        if (vgpu_counting) {
            count_place(host, place, lane->done * each, to, got, count * each, false);
        }
        ins += got;
    }
    size_t each = partial_out ? accumulator : element;
    for (uint32_t i = 0; i < step->outs; i++) {
        const struct tt_place *place = &plan->place[step->out + i];
        size_t got = expand(run, place, lane->done * each, lane->out + outs, NULL);
        if (vgpu_counting) {
            count_place(host, place, lane->done * each, lane->out + outs, got, count * each, true);
        }
        outs += got;
    }
    if (!reduces) {
        tt_copy(lane->out, (int)outs, lane->in[0], count * element, run->stream);
        return;
    }
    struct tt_reduction reduction = {.type = run->type,
                                     .op = run->op,
                                     .divisor = (uint64_t)run->nranks,
                                     .scale = run->is_scaled ? lane->scale : NULL,
                                     .partial_in = partial_in,
                                     .partial_out = partial_out};
    struct tt_reduce_places places = {lane->out, (int)outs, lane->in, (int)ins};
    tt_reduce(&reduction, &places, count, run->stream);
}

static enum tt_progress do_data(struct tt_host *host, const struct tt_run *run,
                                struct tt_run_lane *lane, const struct tt_step *step)
{
    size_t most = CHUNK_BYTES / tt_type_bytes(run->type);
    for (;;) {
        size_t left = step->count - lane->done;
        size_t count = left < most ? left : most;
        do_chunk(host, lane, step, count);
        lane->done += count;
        if (lane->done == step->count) {
            lane->done = 0;
            return TT_DONE;
        }
        if (tt_host_is_over(host)) {
            return TT_FAILED;
        }
    }
}

static bool has_all(const struct tt_host *host, const struct tt_step *step, int *missing_out)
{
    int first = step->peer == TT_EVERY ? 0 : step->peer;
    int last = step->peer == TT_EVERY ? host->nranks - 1 : step->peer;
    for (int rank = first; rank <= last; rank++) {
        if (!tt_host_signalled(host, rank, step->channel, step->number)) {
            *missing_out = rank;
            return false;
        }
    }
    return true;
}

static enum tt_progress do_wait(struct tt_host *host, struct tt_run_lane *lane,
                                const struct tt_step *step)
{
    int missing = -1;
    if (has_all(host, step, &missing)) {
        lane->watch = (struct tt_watch){0};
        return TT_DONE;
    }
    enum tt_news news = tt_host_wait(host, &lane->watch);
    if (news == TT_GO_ON) {
        return TT_WAITING;
    }
    char call[160];
    tt_call_describe(&tt_host_entry(host, host->rank)->call, call, sizeof call);
    if (news == TT_LIMIT) {
        (void)tt_host_fail(host, ncclTimeout,
                           "rank %d: %s #%" PRIu64 ": rank %d, which is in it, did not go on "
                           "within %" PRIu64 " s (TUTTI_TIMEOUT)",
                           host->rank, call, host->sequence, missing, host->limit_ns / 1000000000);
    } else if (news == TT_REPORT) {
        tt_say("rank %d: %s #%" PRIu64 ": waiting for rank %d, which is in it, for %" PRIu64
               " s so far",
               host->rank, call, host->sequence, missing, tt_watch_seconds(&lane->watch));
        return TT_WAITING;
    }
    return TT_FAILED;
}

static void do_signal(struct tt_host *host, const struct tt_run *run, const struct tt_step *step)
{
    if (run->stream) {
        tt_reduce_fence();
    }
    int first = step->peer == TT_EVERY ? 0 : step->peer;
    int last = step->peer == TT_EVERY ? host->nranks - 1 : step->peer;
    for (int rank = first; rank <= last; rank++) {
        tt_host_signal(host, rank, step->channel);
    }
}

enum tt_progress tt_run_step(struct tt_host *host, struct tt_run *run, int number)
{
    struct tt_run_lane *lane = &run->lane[number];
    const struct tt_lane *what = &run->plan->lane[number];
    while (lane->step < what->steps) {
        const struct tt_step *step = &run->plan->step[what->step + lane->step];
        enum tt_progress progress = TT_DONE;
        switch (step->kind) {
        case TT_STEP_SIGNAL:
            do_signal(host, run, step);
            break;
        case TT_STEP_WAIT:
            progress = do_wait(host, lane, step);
            break;
        default:
            progress = do_data(host, run, lane, step);
        }
        if (progress != TT_DONE) {
            return progress;
        }
        lane->step++;
    }
    if (!lane->is_over && run->stream) {
        tt_reduce_fence();
    }
    lane->is_over = true;
    return TT_DONE;
}
