// Runs a step on symbols: races, then values. See check_internal.h.
//
// Races are found as in FastTrack (Flanagan, Freund, PLDI 2009): each lane has a clock of what it
// has seen of every lane; each stretch of memory knows its last write and the reads since.
// SPDX-License-Identifier: Apache-2.0
#include "plan/check_internal.h"

#include <stdlib.h>
#include <string.h>

static const uint32_t *clock_of(const struct tt_check *check, int lane)
{
    return check->clock + (size_t)lane * (size_t)check->walk.lanes;
}

// Whether the running step comes after the access in every order.
static bool is_after(const struct tt_check *check, struct tt_access access)
{
    return access.lane < 0 || access.lane == check->lane ||
           clock_of(check, check->lane)[access.lane] >= access.epoch;
}

static struct tt_access here(const struct tt_check *check)
{
    return (struct tt_access){check->lane, check->epoch};
}

static enum tt_buffer memory_of(const struct tt_check *check, const struct tt_operand *operand)
{
    return check->rank[operand->place.rank].in[operand->place.buffer];
}

static void tell_race(struct tt_check *check, const struct tt_operand *operand, size_t at,
                      const char *does, struct tt_access other, const char *did)
{
    char step[96];
    char place[96];
    char other_step[96];
    tt_check_note(check, TT_PLAN_RACE, "%s %s %s, which %s %s: nothing orders the two",
                  tt_check_step(check, here(check), step, sizeof step), does,
                  tt_check_place(check, operand->place.rank, memory_of(check, operand), at, place,
                                 sizeof place),
                  tt_check_step(check, other, other_step, sizeof other_step), did);
}

// ---- Operands -----------------------------------------------------------------------------------

static int expand(struct tt_check *check, const struct tt_place *place, size_t width,
                  bool is_partial, struct tt_operand *operand)
{
    int first = place->rank < 0 ? 0 : place->rank;
    int end = place->rank < 0 ? check->problem->nranks : place->rank + 1;
    for (int rank = first; rank < end; rank++) {
        struct tt_checked_rank *state = &check->rank[rank];
        *operand++ = (struct tt_operand){
            .place = {place->buffer, rank, place->offset},
            .memory = &state->memory[state->in[place->buffer]],
            .begin = state->base[place->buffer] + place->offset,
            .width = width,
            .is_partial = is_partial,
        };
    }
    return end - first;
}

// Copies are looked at byte by byte: they may carry anything.
static void expand_all(struct tt_check *check, const struct tt_step *step)
{
    const struct tt_plan *plan = check->plans[check->walk.lane[check->lane].rank];
    const struct tt_problem *problem = check->problem;
    bool is_copy = step->kind == TT_STEP_COPY;
    check->ins = 0;
    check->outs = 0;
    for (uint32_t i = 0; i < step->ins; i++) {
        bool is_partial = i == 0 && (step->flags & TT_PARTIAL_IN) != 0;
        size_t width = is_partial ? problem->accumulator : problem->element;
        check->ins += expand(check, &plan->place[step->in + i], is_copy ? 1 : width, is_partial,
                             check->in + check->ins);
    }
    for (uint32_t i = 0; i < step->outs; i++) {
        bool is_partial = (step->flags & TT_PARTIAL_OUT) != 0;
        size_t width = is_partial ? problem->accumulator : problem->element;
        check->outs += expand(check, &plan->place[step->out + i], is_copy ? 1 : width, is_partial,
                              check->out + check->outs);
    }
}

static bool overlap(const struct tt_operand *a, const struct tt_operand *b, size_t count)
{
    return a->memory == b->memory && a->begin < b->begin + count * b->width &&
           b->begin < a->begin + count * a->width;
}

// An output may be an input, exactly; else the places of a step lie apart.
static void check_overlaps(struct tt_check *check, size_t count)
{
    for (int i = 0; i < check->outs; i++) {
        const struct tt_operand *out = &check->out[i];
        for (int k = 0; k < check->ins; k++) {
            const struct tt_operand *in = &check->in[k];
            if (overlap(out, in, count) && (out->begin != in->begin || out->width != in->width)) {
                tell_race(check, out, out->begin, "writes", here(check),
                          "reads as another element");
            }
        }
        for (int k = 0; k < i; k++) {
            if (overlap(out, &check->out[k], count)) {
                tell_race(check, out, out->begin, "writes", here(check), "writes twice");
            }
        }
    }
}

// ---- Reading ------------------------------------------------------------------------------------

static bool note_read(struct tt_check *check, const struct tt_operand *in, size_t bytes)
{
    struct tt_memory *memory = in->memory;
    size_t end = in->begin + bytes;
    if (!tt_memory_cut(memory, in->begin) || !tt_memory_cut(memory, end)) {
        return false;
    }
    for (size_t i = tt_memory_find(memory, in->begin);
         i < memory->count && memory->stretch[i].begin < end; i++) {
        struct tt_stretch *stretch = &memory->stretch[i];
        if (!is_after(check, stretch->written)) {
            tell_race(check, in, stretch->begin, "reads", stretch->written, "writes");
        }
        if (!tt_reads_add(&check->reads, here(check), &stretch->reads)) {
            return false;
        }
    }
    return true;
}

static void tell_input(struct tt_check *check, const struct tt_operand *in, size_t at,
                       const char *what)
{
    char step[96];
    char place[96];
    tt_check_note(
        check, TT_PLAN_RESULT, "%s reads %s, which is %s",
        tt_check_step(check, here(check), step, sizeof step),
        tt_check_place(check, in->place.rank, memory_of(check, in), at, place, sizeof place), what);
}

// What operand `in` holds at element `position`.
static struct tt_value value_at(const struct tt_operand *in, size_t position)
{
    const struct tt_stretch *stretch = &in->memory->stretch[in->stretch];
    struct tt_value value = stretch->value;
    value.at += in->begin + position * in->width - stretch->begin;
    return value;
}

// Why an operand of a reduction cannot be one; NULL where it can.
static const char *refusal(const struct tt_check *check, const struct tt_operand *in,
                           struct tt_value value)
{
    if (value.form == TT_FORM_NOTHING) {
        return "written by nobody";
    }
    if (in->is_partial) {
        return value.form != TT_FORM_PARTIAL ? "no partial result" : NULL;
    }
    if (value.form == TT_FORM_PARTIAL) {
        return "a partial result, read as elements";
    }
    if (value.form == TT_FORM_RESULT) {
        return "a result, rounded too early to be reduced again";
    }
    if (check->lists.node[value.node].rank != in->place.rank) {
        return "the input of another rank than the one whose memory it lies in: it would be scaled "
               "by the wrong factor";
    }
    return value.at % in->width != 0 ? "the middle of an element" : NULL;
}

// The reduction of the operands at element `position`. False: no memory.
static bool combine(struct tt_check *check, const struct tt_step *step, size_t position,
                    struct tt_value *value_out)
{
    size_t element = check->problem->element;
    size_t first = 0;
    uint32_t node = 0;
    *value_out = (struct tt_value){TT_FORM_NOTHING, 0, 0};
    for (int i = 0; i < check->ins; i++) {
        const struct tt_operand *in = &check->in[i];
        struct tt_value value = value_at(in, position);
        const char *what = refusal(check, in, value);
        if (what != NULL) {
            tell_input(check, in, in->begin + position * in->width, what);
            return true;
        }
        if (in->is_partial) {
            node = value.node;
            first = value.at / in->width;
            continue;
        }
        size_t own = value.at / element;
        first = i == 0 ? own : first;
        node = tt_operands_append(&check->lists, node, in->place.rank, (ptrdiff_t)(own - first));
        if (node == 0) {
            return false;
        }
    }
    bool is_partial = (step->flags & TT_PARTIAL_OUT) != 0;
    *value_out = (struct tt_value){is_partial ? TT_FORM_PARTIAL : TT_FORM_RESULT, node,
                                   first * (is_partial ? check->problem->accumulator : element)};
    return true;
}

static bool add_result(struct tt_check *check, size_t position, struct tt_value value)
{
    if (check->results == check->result_room) {
        size_t room = 2 * check->result_room + 64;
        struct tt_stretch *result = realloc(check->result, room * sizeof *result);
        if (result == NULL) {
            return false;
        }
        check->result = result;
        check->result_room = room;
    }
    check->result[check->results++] =
        (struct tt_stretch){.begin = position, .value = value, .written = here(check)};
    return true;
}

// From element `position`: how many have one history in all inputs; 0 where an element is cut.
static size_t run_length(const struct tt_check *check, size_t position, size_t count)
{
    size_t length = count - position;
    for (int i = 0; i < check->ins; i++) {
        const struct tt_operand *in = &check->in[i];
        size_t end = tt_memory_end(in->memory, in->stretch);
        size_t own = (end - (in->begin + position * in->width)) / in->width;
        length = own < length ? own : length;
    }
    return length;
}

static bool read_all(struct tt_check *check, const struct tt_step *step, size_t count)
{
    check->results = 0;
    for (int i = 0; i < check->ins; i++) {
        if (!note_read(check, &check->in[i], count * check->in[i].width)) {
            return false;
        }
    }
    for (int i = 0; i < check->ins; i++) {
        check->in[i].stretch = tt_memory_find(check->in[i].memory, check->in[i].begin);
    }
    for (size_t position = 0; position < count;) {
        size_t length = run_length(check, position, count);
        struct tt_value value = {TT_FORM_NOTHING, 0, 0};
        if (length == 0) {
            tell_input(check, &check->in[0], check->in[0].begin + position * check->in[0].width,
                       "put together from pieces of elements");
            length = 1;
        } else if (step->kind == TT_STEP_COPY) {
            value = value_at(&check->in[0], position);
            if (value.form == TT_FORM_NOTHING) {
                tell_input(check, &check->in[0], check->in[0].begin + position,
                           "written by nobody");
            }
        } else if (!combine(check, step, position, &value)) {
            return false;
        }
        if (!add_result(check, position, value)) {
            return false;
        }
        position += length;
        for (int i = 0; position < count && i < check->ins; i++) {
            struct tt_operand *in = &check->in[i];
            while (tt_memory_end(in->memory, in->stretch) <= in->begin + position * in->width) {
                in->stretch++;
            }
        }
    }
    return true;
}

// ---- Writing ------------------------------------------------------------------------------------

// Only what the function fills is written, and scratch.
static void check_stray(struct tt_check *check, const struct tt_operand *out, size_t bytes)
{
    const struct tt_checked_rank *rank = &check->rank[out->place.rank];
    enum tt_buffer memory = memory_of(check, out);
    size_t at = out->begin;
    size_t end = out->begin + bytes;
    bool moved = memory != TT_BUFFER_SCRATCH;
    while (moved && at < end) { // on to the end of what covers `at`
        moved = false;
        for (int i = 0; i < rank->wanteds && memory == rank->in[TT_BUFFER_RECV]; i++) {
            const struct tt_wanted *wanted = &rank->wanted[i];
            if (wanted->begin <= at && at < wanted->end) {
                at = wanted->end;
                moved = true;
            }
        }
    }
    if (memory != TT_BUFFER_SCRATCH && at < end) {
        char step[96];
        char place[96];
        tt_check_note(check, TT_PLAN_STRAY, "%s writes %s, which the function leaves alone",
                      tt_check_step(check, here(check), step, sizeof step),
                      tt_check_place(check, out->place.rank, memory, at, place, sizeof place));
    }
}

static bool write_one(struct tt_check *check, const struct tt_operand *out, size_t count)
{
    struct tt_memory *memory = out->memory;
    size_t end = out->begin + count * out->width;
    check_stray(check, out, count * out->width);
    if (!tt_memory_cut(memory, out->begin) || !tt_memory_cut(memory, end)) {
        return false;
    }
    for (size_t i = tt_memory_find(memory, out->begin);
         i < memory->count && memory->stretch[i].begin < end; i++) {
        const struct tt_stretch *stretch = &memory->stretch[i];
        if (!is_after(check, stretch->written)) {
            tell_race(check, out, stretch->begin, "writes", stretch->written, "writes");
        }
        for (uint32_t k = stretch->reads; k != 0; k = check->reads.read[k].next) {
            if (!is_after(check, check->reads.read[k].access)) {
                tell_race(check, out, stretch->begin, "writes", check->reads.read[k].access,
                          "reads");
            }
        }
    }
    for (size_t i = 0; i < check->results; i++) { // positions become bytes, and back
        check->result[i].begin = out->begin + check->result[i].begin * out->width;
    }
    bool done = tt_memory_replace(memory, out->begin, end, check->result, check->results);
    for (size_t i = 0; i < check->results; i++) {
        check->result[i].begin = (check->result[i].begin - out->begin) / out->width;
    }
    return done;
}

static bool is_in_place(const struct tt_check *check, const struct tt_operand *out)
{
    const struct tt_operand *in = &check->in[0];
    return out->memory == in->memory && out->begin == in->begin;
}

static bool move(struct tt_check *check, const struct tt_step *step)
{
    bool is_copy = step->kind == TT_STEP_COPY;
    size_t count = is_copy ? step->count * check->problem->element : step->count;
    expand_all(check, step);
    check_overlaps(check, count);
    if (!read_all(check, step, count)) {
        return false;
    }
    for (int i = 0; i < check->outs; i++) {
        bool is_nothing = is_copy && is_in_place(check, &check->out[i]);
        if (!is_nothing && !write_one(check, &check->out[i], count)) {
            return false;
        }
    }
    return true;
}

// ---- Signals ------------------------------------------------------------------------------------

// Keeps what the lane has seen, for those who will see its signal.
static bool keep_clock(struct tt_check *check)
{
    size_t lanes = (size_t)check->walk.lanes;
    if (check->kepts == check->kept_room) {
        size_t room = 2 * check->kept_room + 16;
        uint32_t *kept = realloc(check->kept, room * lanes * sizeof *kept);
        if (kept == NULL) {
            return false;
        }
        check->kept = kept;
        check->kept_room = room;
    }
    memcpy(check->kept + check->kepts * lanes, clock_of(check, check->lane),
           lanes * sizeof *check->kept);
    check->kept_row[check->first_step[check->lane] + check->epoch - 1] = (uint32_t)check->kepts++;
    return true;
}

static void see(void *context, struct tt_walk_signal signal)
{
    struct tt_check *check = context;
    size_t lanes = (size_t)check->walk.lanes;
    uint32_t *clock = check->clock + (size_t)check->lane * lanes;
    const uint32_t *seen =
        check->kept + check->kept_row[check->first_step[signal.lane] + signal.step] * lanes;
    for (size_t i = 0; i < lanes; i++) {
        clock[i] = seen[i] > clock[i] ? seen[i] : clock[i];
    }
}

bool tt_check_run(struct tt_check *check, const struct tt_step *step)
{
    size_t lane = (size_t)check->lane;
    check->clock[lane * (size_t)check->walk.lanes + lane] = check->epoch;
    switch (step->kind) {
    case TT_STEP_SIGNAL:
        return keep_clock(check);
    case TT_STEP_WAIT:
        tt_walk_seen(&check->walk, check->lane, step, see, check);
        return true;
    default:
        return move(check, step);
    }
}
