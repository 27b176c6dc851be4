// Every algorithm, for every function it can do, proved right by the checker: rank counts, counts,
// roots, lanes, in place or not, even and uneven. `algorithms_test everything [FIRST [STEP]]`:
// rank counts FIRST, FIRST + STEP and so on to 64; both are 1 if not given.
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/algorithms.h"
#include "expect.h"
#include "plan/build.h"
#include "plan/check.h"
#include "plan/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 64 };

static long checked;

// Plans of all ranks, checked; false after a failure, which is printed.
static bool check(const struct tt_algorithm *algorithm, const struct tt_problem *problem)
{
    const struct tt_plan *plans[MOST_RANKS] = {NULL};
    struct tt_plan_finding finding = {TT_PLAN_MEMORY, "no plan"};
    bool built = true;
    for (int rank = 0; rank < problem->nranks; rank++) {
        plans[rank] = tt_plan_build(algorithm, problem, rank);
        built = built && plans[rank] != NULL;
    }
    bool right = built && tt_plan_check(problem, plans, &finding);
    if (!right) {
        char text[120];
        tt_problem_describe(problem, text, sizeof text);
        printf("%s, %s, accumulators of %zu bytes, %d lanes: %s\n", algorithm->name, text,
               problem->accumulator, problem->lanes, finding.text);
    }
    for (int rank = 0; rank < problem->nranks; rank++) {
        tt_plan_free(plans[rank]);
    }
    checked++;
    return right;
}

// Scratch in the switch is bounded, so that plans grow with the count: these take too long here.
static bool is_too_long(const struct tt_algorithm *algorithm, const struct tt_problem *problem)
{
    return algorithm->needs_multicast && algorithm->is_staged && problem->count >> 32 != 0;
}

// The problem by all algorithms that can do it, in place too where the function can.
static bool check_all(struct tt_problem problem)
{
    bool right = true;
    int able = 0;
    for (int i = 0; tt_algorithms[i] != NULL; i++) {
        for (int in_place = 0; in_place < 2; in_place++) {
            problem.in_place = in_place == 1;
            if (tt_algorithms[i]->can(&problem) && !is_too_long(tt_algorithms[i], &problem)) {
                right = check(tt_algorithms[i], &problem) && right;
                able++;
            }
        }
    }
    return EXPECT(right) && EXPECT(able >= 2); // direct and staged can do everything
}

static const size_t counts[] = {0, 1, 2, 15, 16, 17, 63, 64, 65, 1001, 100003};
enum { COUNTS = sizeof counts / sizeof counts[0] };

// All functions for one rank count, element size and number of lanes.
static bool check_functions(int nranks, size_t element, size_t accumulator, int lanes, size_t count)
{
    bool right = true;
    for (int function = 0; function < TT_FUSED_RMSNORM; function++) {
        struct tt_problem problem = {.function = (enum tt_function)function,
                                     .nranks = nranks,
                                     .count = count,
                                     .element = element,
                                     .accumulator = accumulator,
                                     .lanes = lanes};
        bool is_rooted = function == TT_REDUCE || function == TT_BROADCAST ||
                         function == TT_GATHER || function == TT_SCATTER;
        right = check_all(problem) && right;
        problem.root = nranks - 1;
        right = (!is_rooted || nranks == 1 || check_all(problem)) && right;
        problem.root = nranks / 2;
        right = (!is_rooted || nranks < 3 || nranks > 8 || check_all(problem)) && right;
    }
    return right;
}

static void small_teams(void)
{
    for (int nranks = 1; nranks <= 9; nranks++) {
        for (int i = 0; i < COUNTS; i++) {
            for (int lanes = 1; lanes <= 4; lanes += i < 8 ? 3 : 1) {
                if (!check_functions(nranks, 4, 4, lanes, counts[i])) {
                    return;
                }
            }
        }
    }
}

// Half precision and smaller: accumulators are larger than elements.
static void partial_results(void)
{
    for (int nranks = 1; nranks <= 8; nranks++) {
        for (int i = 0; i < COUNTS; i++) {
            if (!check_functions(nranks, 2, 4, 2, counts[i]) ||
                !check_functions(nranks, 1, 4, 3, counts[i]) ||
                !check_functions(nranks, 8, 8, 1, counts[i])) {
                return;
            }
        }
    }
}

static void large_teams(void)
{
    static const int teams[] = {10, 11, 12, 13, 14, 15, 16, 17, 32, 64};
    for (int i = 0; i < 10; i++) {
        bool right = check_functions(teams[i], 4, 4, 1, 1) &&
                     check_functions(teams[i], 4, 4, 3, 1001) &&
                     (teams[i] > 17 || check_functions(teams[i], 2, 4, 2, 70001));
        if (!right) {
            return;
        }
    }
}

// Counts beyond 2^31 and 2^32 cost no more: the checker looks at stretches, not at elements.
static void huge_counts(void)
{
    EXPECT(check_functions(2, 1, 4, 1, ((size_t)1 << 31) + 7));
    EXPECT(check_functions(3, 8, 8, 4, ((size_t)1 << 33) + 1));
}

// ---- Uneven sizes -------------------------------------------------------------------------------

struct tables {
    size_t send_count[MOST_RANKS * MOST_RANKS], send_first[MOST_RANKS * MOST_RANKS];
    size_t recv_count[MOST_RANKS * MOST_RANKS], recv_first[MOST_RANKS * MOST_RANKS];
};

static unsigned next_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

// Fills what ranks send each other: many zeros, gaps between parts; first places of receive buffers
// differ from rank to rank unless `alike`.
static void fill(struct tables *tables, enum tt_function function, int nranks, size_t most,
                 bool alike, unsigned *random)
{
    for (int r = 0; r < nranks; r++) {
        for (int q = 0; q < nranks; q++) {
            size_t count = next_random(random) % 3 == 0 ? 0 : next_random(random) % (most + 1);
            tables->send_count[r * nranks + q] = count;
        }
    }
    bool same_counts = function == TT_ALL_GATHER || function == TT_REDUCE_SCATTER;
    for (int r = 0; r < nranks; r++) {
        for (int q = 0; q < nranks && same_counts; q++) {
            tables->send_count[r * nranks + q] = tables->send_count[q];
        }
    }
    for (int r = 0; r < nranks; r++) {
        size_t send = alike ? 0 : (size_t)r;
        size_t recv = alike ? 0 : 2 * (size_t)r;
        for (int q = 0; q < nranks; q++) {
            int index = r * nranks + q;
            tables->recv_count[index] =
                same_counts ? tables->send_count[index] : tables->send_count[q * nranks + r];
            tables->send_first[index] = send;
            tables->recv_first[index] = recv;
            send += tables->send_count[index] + (size_t)(q % 2);
            recv += tables->recv_count[index] + (size_t)(q % 3);
        }
    }
}

static bool check_uneven(int nranks, size_t most, int lanes, unsigned *random)
{
    static const enum tt_function functions[] = {TT_ALL_GATHER, TT_REDUCE_SCATTER, TT_ALL_TO_ALL,
                                                 TT_GATHER, TT_SCATTER};
    static struct tables tables;
    bool right = true;
    for (int i = 0; i < 10; i++) {
        struct tt_problem problem = {.function = functions[i % 5],
                                     .nranks = nranks,
                                     .root = (int)(next_random(random) % (unsigned)nranks),
                                     .element = 2,
                                     .accumulator = 4,
                                     .is_uneven = true,
                                     .lanes = lanes};
        bool is_rooted = problem.function == TT_GATHER || problem.function == TT_SCATTER;
        problem.root = is_rooted ? problem.root : 0;
        fill(&tables, problem.function, nranks, most, i < 5, random);
        problem.uneven = (struct tt_uneven_all){tables.send_count, tables.send_first,
                                                tables.recv_count, tables.recv_first};
        right = check_all(problem) && right;
    }
    return right;
}

static void uneven_sizes(void)
{
    unsigned random = 1;
    for (int nranks = 1; nranks <= 17; nranks++) {
        for (int lanes = 1; lanes <= 4; lanes += 3) {
            if (!check_uneven(nranks, 0, lanes, &random) ||
                !check_uneven(nranks, 3, lanes, &random) ||
                !check_uneven(nranks, 5000, lanes, &random) ||
                (nranks <= 5 && !check_uneven(nranks, 200000, lanes, &random))) {
                return;
            }
        }
    }
}

// A rank that does not know that another calls in place does the same.
static void in_place_is_local(void)
{
    for (int i = 0; tt_algorithms[i] != NULL; i++) {
        for (int function = 0; function < TT_FUSED_RMSNORM; function++) {
            struct tt_problem problem = {.function = (enum tt_function)function,
                                         .nranks = 5,
                                         .root = 3,
                                         .count = 70001,
                                         .element = 4,
                                         .accumulator = 4,
                                         .in_place = true,
                                         .lanes = 2};
            if (!tt_algorithms[i]->can(&problem)) {
                continue;
            }
            const struct tt_plan *plans[5];
            for (int rank = 0; rank < 5; rank++) {
                problem.in_place = rank % 2 == 0;
                plans[rank] = tt_plan_build(tt_algorithms[i], &problem, rank);
            }
            struct tt_plan_finding finding;
            problem.in_place = true;
            EXPECT(tt_plan_check(&problem, plans, &finding));
            EXPECT_STR(finding.text, "");
            for (int rank = 0; rank < 5; rank++) {
                tt_plan_free(plans[rank]);
            }
        }
    }
}

static int first_team, team_step;

static void everything(void)
{
    unsigned random = 7;
    if (!EXPECT(first_team >= 1 && team_step >= 1)) {
        return;
    }
    for (int nranks = first_team; nranks <= MOST_RANKS; nranks += team_step) {
        for (int i = 0; i < COUNTS; i++) {
            // Blocks for each of many ranks have many steps: 20011 elements are enough for several
            // chunks.
            size_t count = nranks > 17 && counts[i] > 20011 ? 20011 : counts[i];
            for (int lanes = 1; lanes <= 4; lanes++) {
                if (!check_functions(nranks, 4, 4, lanes, count)) {
                    return;
                }
            }
            if (!check_functions(nranks, 1, 4, 2, count)) {
                return;
            }
        }
        if (!check_uneven(nranks, 300, 2, &random)) {
            return;
        }
        printf("%d ranks: %ld plans checked\n", nranks, checked);
        (void)fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "everything") == 0) {
        first_team = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 1;
        team_step = argc > 3 ? (int)strtol(argv[3], NULL, 10) : 1;
        RUN(everything);
    } else {
        RUN(small_teams);
        RUN(partial_results);
        RUN(large_teams);
        RUN(huge_counts);
        RUN(uneven_sizes);
        RUN(in_place_is_local);
    }
    printf("%ld plans checked\n", checked);
    return expect_result();
}
