// A builder gathers lanes, steps and places in lists that grow; a plan is those lists in one block.
// SPDX-License-Identifier: Apache-2.0
#include "plan/build.h"

#include "plan/parts.h"

#include <stdlib.h>
#include <string.h>

struct list {
    void *data;
    size_t count, room; // elements
};

struct tt_builder {
    const struct tt_problem *problem;
    int rank;
    struct list lanes, steps, places;
    struct list spare; // tt_build_list's
    size_t scratch;
    bool no_memory;
};

// Room for `more` elements at the list's end; NULL, noted in the builder, without memory.
static void *extend(struct tt_builder *builder, struct list *list, size_t more, size_t bytes)
{
    if (builder->no_memory || more > UINT32_MAX - list->count) {
        builder->no_memory = true;
        return NULL;
    }
    if (list->count + more > list->room) {
        size_t room = list->room * 2 + more + 8;
        void *data = realloc(list->data, room * bytes);
        if (data == NULL) {
            builder->no_memory = true;
            return NULL;
        }
        list->data = data;
        list->room = room;
    }
    void *end = (char *)list->data + list->count * bytes;
    list->count += more;
    return end;
}

void tt_build_lane(struct tt_builder *builder)
{
    struct tt_lane *lanes = builder->lanes.data;
    uint32_t first = (uint32_t)builder->steps.count;
    if (builder->lanes.count > 0 && lanes[builder->lanes.count - 1].steps == 0) {
        return; // the open one is still empty
    }
    struct tt_lane *lane = extend(builder, &builder->lanes, 1, sizeof *lane);
    if (lane != NULL) {
        *lane = (struct tt_lane){first, 0};
    }
}

static void add_step(struct tt_builder *builder, const struct tt_step *step)
{
    if (builder->lanes.count == 0) {
        tt_build_lane(builder);
    }
    struct tt_step *place = extend(builder, &builder->steps, 1, sizeof *place);
    if (place != NULL) {
        *place = *step;
        struct tt_lane *lanes = builder->lanes.data;
        lanes[builder->lanes.count - 1].steps++;
    }
}

// Returns where they begin in the list.
static uint32_t add_places(struct tt_builder *builder, const struct tt_place *places, int count)
{
    uint32_t first = (uint32_t)builder->places.count;
    struct tt_place *end = extend(builder, &builder->places, (size_t)count, sizeof *end);
    if (end != NULL) {
        memcpy(end, places, (size_t)count * sizeof *end);
    }
    return first;
}

void tt_build_reduce(struct tt_builder *builder, const struct tt_place *out, int outs,
                     const struct tt_place *in, int ins, size_t count, unsigned flags)
{
    if (count == 0) {
        return;
    }
    struct tt_step step = {.kind = TT_STEP_REDUCE,
                           .flags = flags,
                           .count = count,
                           .in = add_places(builder, in, ins),
                           .ins = (uint32_t)ins,
                           .outs = (uint32_t)outs};
    step.out = add_places(builder, out, outs);
    add_step(builder, &step);
}

// Whether the two places are one in memory because the operation is in place.
static bool is_same(const struct tt_builder *builder, struct tt_place a, struct tt_place b)
{
    if (a.rank != b.rank || a.rank < 0) {
        return false;
    }
    if (a.buffer == b.buffer) {
        return a.offset == b.offset;
    }
    size_t first[TT_BUFFERS] = {0};
    if (!builder->problem->in_place || a.buffer == TT_BUFFER_SCRATCH ||
        b.buffer == TT_BUFFER_SCRATCH ||
        !tt_in_place_first(builder->problem, a.rank, &first[TT_BUFFER_SEND],
                           &first[TT_BUFFER_RECV])) {
        return false;
    }
    size_t element = builder->problem->element;
    return a.offset + first[a.buffer] * element == b.offset + first[b.buffer] * element;
}

void tt_build_copy(struct tt_builder *builder, const struct tt_place *out, int outs,
                   struct tt_place in, size_t count)
{
    if (count == 0) {
        return;
    }
    struct tt_step step = {.kind = TT_STEP_COPY,
                           .count = count,
                           .in = add_places(builder, &in, 1),
                           .ins = 1,
                           .out = (uint32_t)builder->places.count};
    for (int i = 0; i < outs; i++) {
        if (!is_same(builder, in, out[i])) {
            (void)add_places(builder, &out[i], 1);
            step.outs++;
        }
    }
    if (step.outs > 0) {
        add_step(builder, &step);
    }
}

void tt_build_signal(struct tt_builder *builder, int peer, int channel)
{
    add_step(builder,
             &(struct tt_step){.kind = TT_STEP_SIGNAL, .peer = peer, .channel = (uint16_t)channel});
}

void tt_build_wait(struct tt_builder *builder, int peer, int channel, uint32_t number)
{
    add_step(builder, &(struct tt_step){.kind = TT_STEP_WAIT,
                                        .peer = peer,
                                        .channel = (uint16_t)channel,
                                        .number = number});
}

struct tt_place *tt_build_list(struct tt_builder *builder, int count)
{
    builder->spare.count = 0;
    return extend(builder, &builder->spare, (size_t)count, sizeof(struct tt_place));
}

void tt_build_scratch(struct tt_builder *builder, size_t bytes)
{
    bytes = (bytes + 63) & ~(size_t)63;
    builder->scratch = bytes > builder->scratch ? bytes : builder->scratch;
}

// The plan and its lists, in one block: plan, steps, places, lanes.
static struct tt_plan *pack(const struct tt_builder *builder, const struct tt_algorithm *algorithm)
{
    size_t lanes = builder->lanes.count;
    const struct tt_lane *lane = builder->lanes.data;
    if (lanes > 0 && lane[lanes - 1].steps == 0) {
        lanes--;
    }
    size_t step_bytes = builder->steps.count * sizeof(struct tt_step);
    size_t place_bytes = builder->places.count * sizeof(struct tt_place);
    size_t lane_bytes = lanes * sizeof(struct tt_lane);
    struct tt_plan *plan = malloc(sizeof *plan + step_bytes + place_bytes + lane_bytes);
    if (plan == NULL) {
        return NULL;
    }
    char *steps = (char *)(plan + 1);
    char *places = steps + step_bytes;
    char *lane_data = places + place_bytes;
    *plan = (struct tt_plan){.algorithm = algorithm,
                             .rank = builder->rank,
                             .nranks = builder->problem->nranks,
                             .scratch = builder->scratch,
                             .lanes = (int)lanes,
                             .steps = (uint32_t)builder->steps.count,
                             .places = (uint32_t)builder->places.count,
                             .lane = (const struct tt_lane *)lane_data,
                             .step = (const struct tt_step *)steps,
                             .place = (const struct tt_place *)places};
    const void *from[] = {builder->steps.data, builder->places.data, lane};
    size_t bytes[] = {step_bytes, place_bytes, lane_bytes};
    char *to[] = {steps, places, lane_data};
    for (int i = 0; i < 3; i++) {
        if (bytes[i] > 0) {
            memcpy(to[i], from[i], bytes[i]);
        }
    }
    return plan;
}

const struct tt_plan *tt_plan_build(const struct tt_algorithm *algorithm,
                                    const struct tt_problem *problem, int rank)
{
    struct tt_builder builder = {.problem = problem, .rank = rank};
    algorithm->build(problem, rank, &builder);
    struct tt_plan *plan = builder.no_memory ? NULL : pack(&builder, algorithm);
    free(builder.lanes.data);
    free(builder.steps.data);
    free(builder.places.data);
    free(builder.spare.data);
    return plan;
}

size_t tt_plan_bytes(const struct tt_plan *plan)
{
    return sizeof *plan + plan->steps * sizeof(struct tt_step) +
           plan->places * sizeof(struct tt_place) + (size_t)plan->lanes * sizeof(struct tt_lane);
}

void tt_plan_free(const struct tt_plan *plan)
{
    free((void *)plan);
}
