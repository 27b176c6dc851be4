// What buffers hold before, and must hold after, the plans have run. See check_internal.h.
// SPDX-License-Identifier: Apache-2.0
#include "plan/check_internal.h"

#include <stdio.h>
#include <stdlib.h>

static bool fill(struct tt_memory *memory, size_t bytes)
{
    memory->bytes = bytes;
    memory->room = 8;
    memory->stretch = calloc(memory->room, sizeof *memory->stretch);
    if (memory->stretch == NULL) {
        return false;
    }
    memory->count = 1;
    memory->stretch[0] = (struct tt_stretch){.written = {-1, 0}};
    return true;
}

static bool place_buffers(struct tt_check *check, int rank)
{
    const struct tt_problem *problem = check->problem;
    struct tt_checked_rank *state = &check->rank[rank];
    state->bytes[TT_BUFFER_SEND] = tt_problem_send_count(problem, rank) * problem->element;
    state->bytes[TT_BUFFER_RECV] = tt_problem_recv_count(problem, rank) * problem->element;
    state->bytes[TT_BUFFER_SCRATCH] = check->plans[rank]->scratch;
    size_t bytes[TT_BUFFERS];
    for (int i = 0; i < TT_BUFFERS; i++) {
        state->in[i] = (enum tt_buffer)i;
        bytes[i] = state->bytes[i];
    }
    if (problem->in_place) {
        size_t send = 0;
        size_t recv = 0;
        (void)tt_in_place_first(problem, rank, &send, &recv);
        state->base[TT_BUFFER_SEND] = send * problem->element;
        state->base[TT_BUFFER_RECV] = recv * problem->element;
        state->in[TT_BUFFER_RECV] = TT_BUFFER_SEND;
        size_t send_end = state->base[TT_BUFFER_SEND] + bytes[TT_BUFFER_SEND];
        size_t recv_end = state->base[TT_BUFFER_RECV] + bytes[TT_BUFFER_RECV];
        bytes[TT_BUFFER_SEND] = send_end > recv_end ? send_end : recv_end;
        bytes[TT_BUFFER_RECV] = 0;
    }
    for (int i = 0; i < TT_BUFFERS; i++) {
        if (!fill(&state->memory[i], bytes[i])) {
            return false;
        }
    }
    struct tt_memory *memory = &state->memory[TT_BUFFER_SEND];
    size_t begin = state->base[TT_BUFFER_SEND];
    uint32_t input = tt_operands_append(&check->lists, 0, rank, 0);
    if (!tt_memory_cut(memory, begin) ||
        !tt_memory_cut(memory, begin + state->bytes[TT_BUFFER_SEND]) || input == 0) {
        return false;
    }
    if (state->bytes[TT_BUFFER_SEND] > 0) {
        memory->stretch[tt_memory_find(memory, begin)].value =
            (struct tt_value){TT_FORM_INPUT, input, 0};
    }
    return true;
}

// The reduction, in rank order, of what every rank sends to this one.
static bool want_reduced(struct tt_check *check, int rank, struct tt_value *value_out)
{
    const struct tt_problem *problem = check->problem;
    size_t first = tt_part_sent(problem, 0, rank).first;
    uint32_t node = 0;
    for (int from = 0; from < problem->nranks; from++) {
        size_t own = tt_part_sent(problem, from, rank).first;
        node = tt_operands_append(&check->lists, node, from, (ptrdiff_t)(own - first));
        if (node == 0) {
            return false;
        }
    }
    *value_out = (struct tt_value){TT_FORM_RESULT, node, first * problem->element};
    return true;
}

static bool want(struct tt_check *check, int rank)
{
    const struct tt_problem *problem = check->problem;
    struct tt_checked_rank *state = &check->rank[rank];
    state->wanted = calloc((size_t)problem->nranks, sizeof *state->wanted);
    if (state->wanted == NULL) {
        return false;
    }
    bool reduces = tt_op_reduces(problem->function);
    for (int from = 0; from < (reduces ? 1 : problem->nranks); from++) {
        struct tt_part part = tt_part_received(problem, rank, from);
        if (part.count == 0) {
            continue;
        }
        struct tt_wanted *wanted = &state->wanted[state->wanteds++];
        wanted->begin = state->base[TT_BUFFER_RECV] + part.first * problem->element;
        wanted->end = wanted->begin + part.count * problem->element;
        size_t at = tt_part_sent(problem, from, rank).first * problem->element;
        uint32_t input = tt_operands_append(&check->lists, 0, from, 0);
        wanted->value = (struct tt_value){TT_FORM_INPUT, input, at};
        if (input == 0 || (reduces && !want_reduced(check, rank, &wanted->value))) {
            return false;
        }
    }
    return true;
}

bool tt_check_prepare(struct tt_check *check)
{
    for (int rank = 0; rank < check->problem->nranks; rank++) {
        if (!place_buffers(check, rank) || !want(check, rank)) {
            return false;
        }
    }
    return true;
}

static void tell_wrong(struct tt_check *check, int rank, const struct tt_stretch *stretch,
                       size_t at, struct tt_value is, struct tt_value wanted)
{
    size_t element = check->problem->element;
    char place[96];
    char holds[160];
    char should[160];
    char writer[120] = "never written";
    tt_value_describe(&check->lists, is,
                      is.at / (is.form == TT_FORM_PARTIAL ? check->problem->accumulator : element),
                      holds, sizeof holds);
    tt_value_describe(&check->lists, wanted, wanted.at / element, should, sizeof should);
    if (stretch->written.lane >= 0) {
        char step[96];
        (void)snprintf(writer, sizeof writer, "written by %s",
                       tt_check_step(check, stretch->written, step, sizeof step));
    }
    const char *why = "it is missing";
    if (is.form == TT_FORM_PARTIAL) {
        why = "it is not rounded";
    } else if (is.form == TT_FORM_INPUT && wanted.form == TT_FORM_RESULT) {
        why = "it is not reduced";
    } else if (is.form != TT_FORM_NOTHING) {
        why = tt_operands_fault(&check->lists, is.node, wanted.node);
    }
    enum tt_buffer memory = check->rank[rank].in[TT_BUFFER_RECV];
    tt_check_note(check, TT_PLAN_RESULT, "%s holds %s instead of %s: %s; %s",
                  tt_check_place(check, rank, memory, at, place, sizeof place), holds, should, why,
                  writer);
}

static void compare(struct tt_check *check, int rank, const struct tt_wanted *wanted)
{
    const struct tt_checked_rank *state = &check->rank[rank];
    const struct tt_memory *memory = &state->memory[state->in[TT_BUFFER_RECV]];
    size_t index = tt_memory_find(memory, wanted->begin);
    for (size_t at = wanted->begin; at < wanted->end; index++) {
        const struct tt_stretch *stretch = &memory->stretch[index];
        struct tt_value is = stretch->value;
        struct tt_value should = wanted->value;
        is.at += at - stretch->begin;
        should.at += at - wanted->begin;
        if (is.form != should.form || is.node != should.node || is.at != should.at) {
            tell_wrong(check, rank, stretch, at, is, should);
            return;
        }
        at = tt_memory_end(memory, index);
    }
}

void tt_check_results(struct tt_check *check)
{
    for (int rank = 0; rank < check->problem->nranks; rank++) {
        const struct tt_checked_rank *state = &check->rank[rank];
        for (int i = 0; i < state->wanteds; i++) {
            compare(check, rank, &state->wanted[i]);
        }
    }
}
