// Bytes per link of whole plans, in vectors of S bytes: what direct and ring plans take, what the
// switch saves; and the times and texts of drawings. SPDX-License-Identifier: Apache-2.0
#include "plan/traffic.h"

#include "expect.h"
#include "plan/build.h"
#include "plan/draw.h"
#include "plan/schedule.h"

#include <stdlib.h>
#include <string.h>

enum { N = 8, COUNT = 64 * 1024, S = COUNT * 4 };

static const struct tt_algorithm *named(const char *name)
{
    for (int i = 0; tt_algorithms[i] != NULL; i++) {
        if (strcmp(tt_algorithms[i]->name, name) == 0) {
            return tt_algorithms[i];
        }
    }
    return NULL;
}

struct team {
    struct tt_problem problem;
    const struct tt_plan *plans[N];
};

static struct team make(enum tt_function function, const char *algorithm, int nranks)
{
    bool in_parts = function == TT_ALL_GATHER || function == TT_REDUCE_SCATTER;
    struct team team = {.problem = {.function = function,
                                    .nranks = nranks,
                                    .count = in_parts ? COUNT / N : COUNT,
                                    .element = 4,
                                    .accumulator = 4,
                                    .lanes = 1}};
    for (int rank = 0; rank < nranks; rank++) {
        team.plans[rank] = tt_plan_build(named(algorithm), &team.problem, rank);
    }
    return team;
}

static void release(struct team *team)
{
    for (int rank = 0; rank < team->problem.nranks; rank++) {
        tt_plan_free(team->plans[rank]);
    }
}

// The busiest port's bytes in and out, in S.
static void expect_ports(enum tt_function function, const char *algorithm, double in, double out)
{
    struct team team = make(function, algorithm, N);
    struct tt_traffic traffic;
    double most_in = 0;
    double most_out = 0;
    if (!EXPECT(tt_plan_traffic(&team.problem, team.plans, &traffic))) {
        return;
    }
    for (int rank = 0; rank < N; rank++) {
        struct tt_port port = tt_traffic_port(&traffic, rank);
        most_in = (double)port.in > most_in ? (double)port.in : most_in;
        most_out = (double)port.out > most_out ? (double)port.out : most_out;
    }
    EXPECT_NEAR(most_in / S, in, 1e-9);
    EXPECT_NEAR(most_out / S, out, 1e-9);
    tt_traffic_free(&traffic);
    release(&team);
}

static void ports(void)
{
    expect_ports(TT_ALL_REDUCE, "direct", 1.75, 1.75);
    expect_ports(TT_ALL_REDUCE, "ring", 2, 2); // partial results one way, results on
    expect_ports(TT_ALL_REDUCE, "switch", 1.125, 1.125);
    expect_ports(TT_REDUCE_SCATTER, "direct", 0.875, 0.875);
    expect_ports(TT_REDUCE_SCATTER, "switch", 0.125, 1);
    expect_ports(TT_ALL_GATHER, "direct", 0.875, 0.875);
    expect_ports(TT_ALL_GATHER, "ring", 0.875, 0.875);
    expect_ports(TT_ALL_GATHER, "switch", 1, 0.125);
    expect_ports(TT_BROADCAST, "direct", 1, 7);
    expect_ports(TT_BROADCAST, "ring", 1, 1);
    expect_ports(TT_BROADCAST, "tree", 1, 2);
    expect_ports(TT_BROADCAST, "switch", 1, 1); // to 8 as cheap at the root as to 1
    expect_ports(TT_REDUCE, "direct", 1.75, 1);
    expect_ports(TT_REDUCE, "switch", 1, 1);
}

static void links(void)
{
    struct team team = make(TT_BROADCAST, "ring", N);
    struct tt_traffic traffic;
    EXPECT(tt_plan_traffic(&team.problem, team.plans, &traffic));
    for (int from = 0; from < N; from++) {
        for (int to = 0; to < N; to++) {
            EXPECT_EQ(traffic.link[from * N + to], to == from + 1 ? S : 0);
        }
    }
    tt_traffic_free(&traffic);
    release(&team);
}

// Waits end after their signals, steps of a lane follow each other.
static void schedules(void)
{
    struct team team = make(TT_ALL_REDUCE, "ring", 4);
    struct tt_schedule schedule;
    if (!EXPECT(tt_schedule_make(&schedule, &team.problem, team.plans))) {
        return;
    }
    EXPECT(!schedule.is_stuck);
    EXPECT_EQ(schedule.walk.lanes, 4);
    for (int lane = 0; lane < schedule.walk.lanes; lane++) {
        double now = 0;
        for (uint32_t i = 0; i < schedule.walk.lane[lane].steps; i++) {
            EXPECT(schedule.begin[schedule.first[lane] + i] >= now);
            now = schedule.end[schedule.first[lane] + i];
            EXPECT(now >= schedule.begin[schedule.first[lane] + i]);
        }
        EXPECT(now <= schedule.length);
    }
    // Rank 3 waits for partial results of three ranks, one after the other.
    size_t last = schedule.first[3];
    EXPECT_EQ(tt_walk_steps(&schedule.walk, 3)->kind, TT_STEP_WAIT);
    EXPECT(schedule.end[last] > schedule.end[schedule.first[2]]);
    EXPECT(schedule.end[schedule.first[2]] > schedule.end[schedule.first[1]]);
    tt_schedule_free(&schedule);
    release(&team);
}

static char *drawn(struct team *team, bool as_text)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    if (as_text) {
        tt_plan_print(file, &team->problem, team->plans[1]);
    } else {
        EXPECT(tt_plan_draw(file, &team->problem, team->plans));
    }
    (void)fclose(file);
    return text;
}

static int count_of(const char *text, const char *part)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++) {
        count++;
    }
    return count;
}

static void drawings(void)
{
    struct team team = make(TT_ALL_REDUCE, "direct", 4);
    char *text = drawn(&team, true);
    EXPECT_STR(text, "rank 1: 1 lane, 1 steps, 0 bytes of scratch\n"
                     "   0.0    reduce 16384 elements: recv of all [16384, 32768) = send of all "
                     "[16384, 32768)\n");
    free(text);
    release(&team);
    team = make(TT_BROADCAST, "ring", 4);
    text = drawn(&team, false);
    int steps = 0;
    for (int rank = 0; rank < 4; rank++) {
        steps += (int)team.plans[rank]->steps;
    }
    EXPECT_EQ(count_of(text, "<title>"), steps);
    EXPECT_EQ(count_of(text, "class=\"arrow\""), 2 * 8); // 8 chunks, two ranks pass them on
    EXPECT_EQ(count_of(text, "<svg"), 1);
    EXPECT_EQ(count_of(text, "</svg>"), 1);
    EXPECT_EQ(count_of(text, "class=\"copy\""), 3 * 8 + 1); // and the legend's
    free(text);
    release(&team);
}

int main(void)
{
    RUN(ports);
    RUN(links);
    RUN(schedules);
    RUN(drawings);
    return expect_result();
}
