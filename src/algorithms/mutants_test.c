// Two tests of the checker against real plans. What it calls right is run on numbers, in random
// orders of lanes, with an operator that is neither commutative nor associative; and plans that
// have lost a step, or had one changed, are called wrong.
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/algorithms.h"
#include "expect.h"
#include "plan/build.h"
#include "plan/check.h"
#include "plan/parts.h"
#include "plan/walk.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 5, ELEMENT = 4, ACCUMULATOR = 8 };

static uint32_t random_state = 1;

static uint32_t next_random(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

struct team {
    struct tt_problem problem;
    const struct tt_plan *plans[N];
};

static bool make(struct team *team, const struct tt_algorithm *algorithm, enum tt_function function,
                 size_t count, int lanes)
{
    *team = (struct team){.problem = {.function = function,
                                      .nranks = N,
                                      .root = 2,
                                      .count = count,
                                      .element = ELEMENT,
                                      .accumulator = ACCUMULATOR,
                                      .lanes = lanes}};
    for (int rank = 0; algorithm->can(&team->problem) && rank < N; rank++) {
        team->plans[rank] = tt_plan_build(algorithm, &team->problem, rank);
    }
    return team->plans[0] != NULL;
}

static void release(struct team *team)
{
    for (int rank = 0; rank < N; rank++) {
        tt_plan_free(team->plans[rank]);
    }
}

// ---- On numbers ---------------------------------------------------------------------------------

// Accumulators are 64 bits that remember the order of everything before; results are their mix.
static uint64_t combine(uint64_t accumulator, uint32_t element, bool is_first)
{
    return is_first ? element + 1 : accumulator * 0x9e3779b97f4a7c15u + element + 1;
}

static uint32_t round_off(uint64_t accumulator)
{
    return (uint32_t)(accumulator ^ accumulator >> 32) | 1u << 31;
}

static uint32_t input_of(int rank, size_t element)
{
    return (uint32_t)rank * 1000003u + (uint32_t)element;
}

struct world {
    const struct team *team;
    char *memory[N][TT_BUFFERS];
    uint32_t given[N][N][TT_CHANNELS]; // from, to
    uint32_t at[N][TT_CHANNELS];       // of each rank's lanes
};

static char *address(struct world *world, const struct tt_place *place, int rank)
{
    return world->memory[rank][place->buffer] + place->offset;
}

// The reduction of element i of all inputs.
static uint64_t reduce_one(struct world *world, const struct tt_plan *plan,
                           const struct tt_step *step, size_t i)
{
    uint64_t sum = 0;
    bool is_first = true;
    for (uint32_t k = 0; k < step->ins; k++) {
        const struct tt_place *place = &plan->place[step->in + k];
        int first = place->rank < 0 ? 0 : place->rank;
        int end = place->rank < 0 ? N : place->rank + 1;
        for (int rank = first; rank < end; rank++) {
            char *from = address(world, place, rank);
            uint32_t element = 0;
            if (k == 0 && (step->flags & TT_PARTIAL_IN) != 0) {
                memcpy(&sum, from + i * ACCUMULATOR, ACCUMULATOR);
            } else {
                memcpy(&element, from + i * ELEMENT, ELEMENT);
                sum = combine(sum, element, is_first);
            }
            is_first = false;
        }
    }
    return sum;
}

static void store_one(struct world *world, const struct tt_plan *plan, const struct tt_step *step,
                      size_t i, const void *value, size_t bytes)
{
    for (uint32_t k = 0; k < step->outs; k++) {
        const struct tt_place *place = &plan->place[step->out + k];
        int first = place->rank < 0 ? 0 : place->rank;
        int end = place->rank < 0 ? N : place->rank + 1;
        for (int rank = first; rank < end; rank++) {
            memcpy(address(world, place, rank) + i * bytes, value, bytes);
        }
    }
}

static void move(struct world *world, const struct tt_plan *plan, const struct tt_step *step)
{
    const struct tt_place *in = &plan->place[step->in];
    for (size_t i = 0; i < step->count; i++) {
        if (step->kind == TT_STEP_COPY) {
            store_one(world, plan, step, i, address(world, in, in->rank) + i * ELEMENT, ELEMENT);
            continue;
        }
        uint64_t sum = reduce_one(world, plan, step, i);
        uint32_t result = round_off(sum);
        bool is_partial = (step->flags & TT_PARTIAL_OUT) != 0;
        store_one(world, plan, step, i, is_partial ? (void *)&sum : (void *)&result,
                  is_partial ? ACCUMULATOR : ELEMENT);
    }
}

// Runs the next step of a lane; false where it must wait, or has none.
static bool advance(struct world *world, int rank, int lane)
{
    const struct tt_plan *plan = world->team->plans[rank];
    if (world->at[rank][lane] == plan->lane[lane].steps) {
        return false;
    }
    const struct tt_step *step = plan->step + plan->lane[lane].step + world->at[rank][lane];
    int first = step->peer == TT_EVERY ? 0 : step->peer;
    int end = step->peer == TT_EVERY ? N : step->peer + 1;
    if (step->kind == TT_STEP_REDUCE || step->kind == TT_STEP_COPY) {
        move(world, plan, step);
    } else {
        for (int peer = first; peer < end; peer++) {
            if (step->kind == TT_STEP_SIGNAL) {
                world->given[rank][peer][step->channel]++;
            } else if (world->given[peer][rank][step->channel] < step->number) {
                return false;
            }
        }
    }
    world->at[rank][lane]++;
    return true;
}

static uint32_t wanted(const struct tt_problem *problem, int rank, int from, size_t i)
{
    if (!tt_op_reduces(problem->function)) {
        return input_of(from, tt_part_sent(problem, from, rank).first + i);
    }
    uint64_t sum = 0;
    for (int k = 0; k < N; k++) {
        sum = combine(sum, input_of(k, tt_part_sent(problem, k, rank).first + i), k == 0);
    }
    return round_off(sum);
}

static bool results_are_right(const struct world *world)
{
    const struct tt_problem *problem = &world->team->problem;
    for (int rank = 0; rank < N; rank++) {
        for (int from = 0; from < N; from++) {
            struct tt_part part = tt_part_received(problem, rank, from);
            for (size_t i = 0; i < part.count; i++) {
                uint32_t is = 0;
                memcpy(&is, world->memory[rank][TT_BUFFER_RECV] + (part.first + i) * ELEMENT,
                       ELEMENT);
                if (is != wanted(problem, rank, from, i)) {
                    return false;
                }
            }
        }
    }
    return true;
}

// Lanes in random turns, until all have ended.
static bool run_on_numbers(const struct team *team)
{
    static struct world world;
    memset(&world, 0, sizeof world);
    world.team = team;
    size_t left = 0;
    for (int rank = 0; rank < N; rank++) {
        size_t send = tt_problem_send_count(&team->problem, rank);
        size_t recv = tt_problem_recv_count(&team->problem, rank);
        world.memory[rank][TT_BUFFER_SEND] = malloc(send * ELEMENT + 1);
        world.memory[rank][TT_BUFFER_RECV] = calloc(recv * ELEMENT + 1, 1);
        world.memory[rank][TT_BUFFER_SCRATCH] = calloc(team->plans[rank]->scratch + 1, 1);
        for (size_t i = 0; i < send; i++) {
            uint32_t input = input_of(rank, i);
            memcpy(world.memory[rank][TT_BUFFER_SEND] + i * ELEMENT, &input, ELEMENT);
        }
        left += team->plans[rank]->steps;
    }
    for (long turns = 0; left > 0 && turns < 10000000; turns++) {
        int rank = (int)(next_random() % N);
        int lanes = team->plans[rank]->lanes;
        uint32_t burst = next_random() % 4;
        int lane = lanes == 0 ? 0 : (int)(next_random() % (uint32_t)lanes);
        while (lanes > 0 && advance(&world, rank, lane)) {
            left--;
            if (burst-- == 0) {
                break;
            }
        }
    }
    bool right = left == 0 && results_are_right(&world);
    for (int rank = 0; rank < N; rank++) {
        for (int i = 0; i < TT_BUFFERS; i++) {
            free(world.memory[rank][i]);
        }
    }
    return right;
}

static void numbers(void)
{
    static const size_t counts[] = {1, 37, 1000, 30011};
    struct team team;
    for (int a = 0; tt_algorithms[a] != NULL; a++) {
        for (int function = 0; function < TT_FUSED_RMSNORM; function++) {
            for (int i = 0; i < 4; i++) {
                if (make(&team, tt_algorithms[a], (enum tt_function)function, counts[i], 1 + i)) {
                    bool right = run_on_numbers(&team);
                    EXPECT(right);
                    if (!right) {
                        printf("%s by %s\n", tt_function_name((enum tt_function)function),
                               tt_algorithms[a]->name);
                    }
                    release(&team);
                }
            }
        }
    }
}

// ---- Mutants ------------------------------------------------------------------------------------

enum mutation {
    LOST,      // the step is not there
    DISPLACED, // its first output lies one element further
    SHORTENED, // one element less
    REORDERED, // its last two inputs are exchanged
    MUTATIONS,
};

// A copy of the plan with step `index` changed; NULL where that is no change.
static struct tt_plan *mutate(const struct tt_plan *plan, uint32_t index, enum mutation mutation)
{
    const struct tt_step *old = &plan->step[index];
    bool is_data = old->kind == TT_STEP_REDUCE || old->kind == TT_STEP_COPY;
    uint32_t fixed = (old->flags & TT_PARTIAL_IN) != 0 ? 1 : 0;
    if ((mutation != LOST && !is_data) || (mutation == SHORTENED && old->count == 1) ||
        (mutation == REORDERED && old->ins < 2 + fixed)) {
        return NULL;
    }
    struct tt_plan *mutant = malloc(tt_plan_bytes(plan));
    memcpy(mutant, plan, tt_plan_bytes(plan));
    ptrdiff_t moved = (char *)mutant - (const char *)plan;
    struct tt_step *step = (struct tt_step *)((char *)plan->step + moved);
    struct tt_place *place = (struct tt_place *)((char *)plan->place + moved);
    struct tt_lane *lane = (struct tt_lane *)((char *)plan->lane + moved);
    mutant->step = step;
    mutant->place = place;
    mutant->lane = lane;
    step += index;
    size_t width = (step->flags & TT_PARTIAL_OUT) != 0 ? ACCUMULATOR : ELEMENT;
    if (mutation == LOST) {
        memmove(step, step + 1, (plan->steps - index - 1) * sizeof *step);
        mutant->steps--;
        for (int i = 0; i < mutant->lanes; i++) {
            bool is_in = index >= lane[i].step && index - lane[i].step < lane[i].steps;
            lane[i].step -= lane[i].step > index;
            lane[i].steps -= is_in;
        }
    } else if (mutation == DISPLACED) {
        place[step->out].offset += width;
    } else if (mutation == SHORTENED) {
        step->count--;
    } else {
        struct tt_place *last = &place[step->in + step->ins - 1];
        struct tt_place swap = *last;
        *last = last[-1];
        last[-1] = swap;
    }
    return mutant;
}

struct tally {
    int mutants, found, waits;
};

static void check_mutants(const struct team *team, struct tally *tally)
{
    for (int rank = 0; rank < N; rank += 2) { // first, root, last
        for (uint32_t i = 0; i < team->plans[rank]->steps * (uint32_t)MUTATIONS; i++) {
            struct team with = *team;
            struct tt_plan_finding finding;
            uint32_t index = i / MUTATIONS;
            with.plans[rank] = mutate(team->plans[rank], index, (enum mutation)(i % MUTATIONS));
            if (with.plans[rank] == NULL) {
                continue;
            }
            bool right = tt_plan_check(&team->problem, with.plans, &finding);
            const struct tt_step *step = &team->plans[rank]->step[index];
            tally->mutants++;
            tally->found += !right;
            // A wait may be implied by others; all else must be missed.
            bool is_wait = step->kind == TT_STEP_WAIT;
            tally->waits += right && is_wait;
            if (!EXPECT(!right || is_wait)) {
                printf("%s, %s: rank %d, step %u, mutation %u\n",
                       tt_function_name(team->problem.function), team->plans[rank]->algorithm->name,
                       rank, index, i % MUTATIONS);
            }
            tt_plan_free(with.plans[rank]);
        }
    }
}

static void mutants(void)
{
    for (int a = 0; tt_algorithms[a] != NULL; a++) {
        struct tally tally = {0};
        for (int function = 0; function < TT_FUSED_RMSNORM; function++) {
            struct team team;
            size_t count = tt_algorithms[a]->is_staged ? 140000 : 40000; // several chunks
            if (make(&team, tt_algorithms[a], (enum tt_function)function, count, 1 + (a % 2))) {
                check_mutants(&team, &tally);
                release(&team);
            }
        }
        printf("%-10s %d of %d mutants are wrong, %d have lost a wait that others imply\n",
               tt_algorithms[a]->name, tally.found, tally.mutants, tally.waits);
        EXPECT_EQ(tally.found + tally.waits, tally.mutants);
        EXPECT(tally.waits * 3 <= tally.mutants);
    }
}

int main(void)
{
    RUN(numbers);
    RUN(mutants);
    return expect_result();
}
