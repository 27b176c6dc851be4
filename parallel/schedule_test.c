// Schedules of pipelines, played through: each action once and in a right order, no more in flight
// than is promised, no stage waiting in a circle where a send ends with its receive alone, and the
// time that the formula says. SPDX-License-Identifier: Apache-2.0
#include "schedule.h"

#include "expect.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_STAGES = 6, MOST_MICRO = 12, MOST_ACTIONS = 2 * MOST_MICRO };

static const enum tuttiPipelineSchedule schedules[] = {tuttiPipelineGPipe, tuttiPipeline1F1B};

struct game {
    enum tuttiPipelineSchedule schedule;
    int p, m;
    double seconds[2]; // of a forward and of a backward action
    struct tuttiPipelineAction action[MOST_STAGES][MOST_ACTIONS];
    double posted[MOST_STAGES][MOST_ACTIONS + 1]; // group k starts; negative: not known
    double passed[MOST_STAGES][MOST_ACTIONS + 1]; // group k and those before have ended
    double begin[MOST_STAGES][MOST_ACTIONS], end[MOST_STAGES][MOST_ACTIONS];
};

static bool load(struct game *g, enum tuttiPipelineSchedule schedule, int p, int m)
{
    memset(g, 0, sizeof *g);
    g->schedule = schedule;
    g->p = p;
    g->m = m;
    bool good = true;
    for (int s = 0; s < p; s++) {
        good = EXPECT_OK(tuttiPipelineActions(schedule, p, m, s, g->action[s])) && good;
    }
    return good;
}

// ---- Orders -------------------------------------------------------------------------------------

static int position(const struct game *g, int s, enum tuttiPipelineKind kind, int micro)
{
    int found = -1, times = 0;
    for (int k = 0; k < 2 * g->m; k++) {
        if (g->action[s][k].kind == kind && g->action[s][k].microBatch == micro) {
            found = k;
            times++;
        }
    }
    EXPECT_EQ(times, 1);
    return found;
}

static void check_order(const struct game *g, int s)
{
    int promised = 0, flying = 0, most = 0;
    EXPECT_OK(tuttiPipelineInFlight(g->schedule, g->p, g->m, s, &promised));
    for (int k = 0; k < 2 * g->m; k++) {
        flying += g->action[s][k].kind == tuttiPipelineForward ? 1 : -1;
        most = flying > most ? flying : most;
    }
    EXPECT_EQ(most, promised);
    EXPECT_EQ(flying, 0);
    EXPECT_EQ(promised, g->schedule == tuttiPipelineGPipe || g->m < g->p - s ? g->m : g->p - s);
    for (int i = 0; i < g->m; i++) {
        int forward = position(g, s, tuttiPipelineForward, i);
        int backward = position(g, s, tuttiPipelineBackward, i);
        EXPECT(forward < backward);
        if (i > 0) { // the order in which gradients are added
            EXPECT(position(g, s, tuttiPipelineForward, i - 1) < forward);
            EXPECT(position(g, s, tuttiPipelineBackward, i - 1) < backward);
        }
        if (i >= promised) { // its place is free
            EXPECT(position(g, s, tuttiPipelineBackward, i - promised) < forward);
        }
    }
}

// ---- Playing with rendezvous --------------------------------------------------------------------

static struct schedule_exchange messages(const struct game *g, int s, int k)
{
    return parallel_schedule_exchange(g->action[s], 2 * g->m, k, s, g->p);
}

// The group of `peer` with the other side of a message; negative: there is none.
static int other_side(const struct game *g, int s, const struct schedule_message *message,
                      bool is_send)
{
    for (int k = 0; k <= 2 * g->m; k++) {
        struct schedule_exchange there = messages(g, message->peer, k);
        const struct schedule_message *other = is_send ? &there.receive : &there.send;
        if (other->exists && other->peer == s && other->kind == message->kind &&
            other->microBatch == message->microBatch) {
            return k;
        }
    }
    return -1;
}

// When a message is over: both groups have started. Negative: not known.
static double met(const struct game *g, int s, int k, const struct schedule_message *message,
                  bool is_send)
{
    int other = other_side(g, s, message, is_send);
    if (!EXPECT(other >= 0) || g->posted[s][k] < 0 || g->posted[message->peer][other] < 0) {
        return -1;
    }
    return fmax(g->posted[s][k], g->posted[message->peer][other]);
}

// Groups of a rank go one after the other. Starts group k, and ends it where it can.
static bool play_group(struct game *g, int s, int k)
{
    struct schedule_exchange here = messages(g, s, k);
    double before = k == 0 ? 0 : g->passed[s][k - 1], called = k == 0 ? 0 : g->end[s][k - 1];
    if (g->passed[s][k] >= 0 || before < 0 || called < 0) {
        return false;
    }
    if (!here.send.exists && !here.receive.exists) {
        g->passed[s][k] = before;
        return true;
    }
    bool moved = g->posted[s][k] < 0;
    g->posted[s][k] = fmax(before, called);
    double sent = here.send.exists ? met(g, s, k, &here.send, true) : 0;
    double received = here.receive.exists ? met(g, s, k, &here.receive, false) : 0;
    if (sent >= 0 && received >= 0) {
        g->passed[s][k] = fmax(g->posted[s][k], fmax(sent, received));
        moved = true;
    }
    return moved;
}

// When the place of what the action makes is free: two messages of its kind earlier have left.
static double place_free(const struct game *g, int s, int k)
{
    struct tuttiPipelineAction action = g->action[s][k];
    if (action.microBatch < 2 || !messages(g, s, k + 1).send.exists) {
        return 0;
    }
    return g->passed[s][position(g, s, action.kind, action.microBatch - 2) + 1];
}

static bool play_action(struct game *g, int s, int k)
{
    double before = k == 0 ? 0 : g->end[s][k - 1], free_at = place_free(g, s, k);
    double there = messages(g, s, k).receive.exists ? g->passed[s][k] : 0;
    if (g->end[s][k] >= 0 || before < 0 || there < 0 || free_at < 0) {
        return false;
    }
    g->begin[s][k] = fmax(before, fmax(there, free_at));
    g->end[s][k] = g->begin[s][k] + g->seconds[g->action[s][k].kind];
    return true;
}

static void play(struct game *g, double forward, double backward)
{
    bool moved = true;
    g->seconds[0] = forward;
    g->seconds[1] = backward;
    for (int s = 0; s < g->p; s++) {
        for (int k = 0; k <= 2 * g->m; k++) {
            g->posted[s][k] = g->passed[s][k] = -1;
        }
        for (int k = 0; k < 2 * g->m; k++) {
            g->begin[s][k] = g->end[s][k] = -1;
        }
    }
    while (moved) {
        moved = false;
        for (int s = 0; s < g->p; s++) {
            for (int k = 0; k <= 2 * g->m; k++) {
                moved = play_group(g, s, k) || moved;
                moved = (k < 2 * g->m && play_action(g, s, k)) || moved;
            }
        }
    }
}

// All has run, everything after what it needs, in the time of the formula.
static void check_played(const struct game *g)
{
    double last = 0;
    const int actions = 2 * g->m;
    for (int s = 0; s < g->p; s++) {
        EXPECT(g->passed[s][actions] >= 0);
        for (int k = 0; k < actions; k++) {
            struct tuttiPipelineAction action = g->action[s][k];
            int from = action.kind == tuttiPipelineForward ? s - 1 : s + 1;
            EXPECT(g->end[s][k] >= 0);
            last = fmax(last, g->end[s][k]);
            if (from >= 0 && from < g->p) {
                int there = position(g, from, action.kind, action.microBatch);
                EXPECT(g->begin[s][k] >= g->end[from][there]);
            }
        }
    }
    if (!EXPECT_NEAR(last, (g->m + g->p - 1) * (g->seconds[0] + g->seconds[1]), 1e-9)) {
        (void)printf("schedule %d, %d stages, %d micro-batches, %g + %g\n", (int)g->schedule, g->p,
                     g->m, g->seconds[0], g->seconds[1]);
    }
}

// ---- Ideal times --------------------------------------------------------------------------------

static void check_ideal(const struct game *g)
{
    static struct tuttiPipelineTime times[MOST_STAGES * MOST_ACTIONS];
    double bubble = -1, measured = -1;
    EXPECT_OK(
        tuttiPipelineIdealTimes(g->schedule, g->p, g->m, g->seconds[0], g->seconds[1], times));
    for (int s = 0; s < g->p; s++) {
        for (int k = 0; k < 2 * g->m; k++) {
            const struct tuttiPipelineTime *time = &times[(size_t)s * 2 * (size_t)g->m + (size_t)k];
            EXPECT_EQ(time->action.kind, g->action[s][k].kind);
            EXPECT_EQ(time->action.microBatch, g->action[s][k].microBatch);
            EXPECT_NEAR(time->end - time->begin, g->seconds[time->action.kind], 1e-9);
            EXPECT(time->begin <= g->begin[s][k] + 1e-9); // messages wait for nothing there
        }
    }
    EXPECT_OK(tuttiPipelineIdealBubble(g->p, g->m, &bubble));
    EXPECT_NEAR(bubble, (g->p - 1.0) / (g->m + g->p - 1.0), 1e-12);
    EXPECT_OK(tuttiPipelineBubble(g->p, g->m, times, &measured));
    EXPECT_NEAR(measured, bubble, 1e-9);
}

// ---- Cases --------------------------------------------------------------------------------------

static void check_schedule(enum tuttiPipelineSchedule schedule, int p, int m)
{
    static const double seconds[][2] = {{1, 1}, {1, 2}, {2, 1}};
    static struct game game;
    if (!load(&game, schedule, p, m)) {
        return;
    }
    for (int s = 0; s < p; s++) {
        check_order(&game, s);
    }
    for (int i = 0; i < 3; i++) {
        play(&game, seconds[i][0], seconds[i][1]);
        check_played(&game);
        check_ideal(&game);
    }
}

static void all_schedules(void)
{
    for (int which = 0; which < 2; which++) {
        for (int i = 0; i < MOST_STAGES * MOST_MICRO; i++) {
            check_schedule(schedules[which], 1 + i / MOST_MICRO, 1 + i % MOST_MICRO);
        }
    }
}

// The second of three stages with four micro-batches, written out.
static void known_lists(void)
{
    static const char *const right[] = {"F0F1F2F3B0B1B2B3", "F0F1B0F2B1F3B2B3"};
    for (int which = 0; which < 2; which++) {
        struct tuttiPipelineAction action[8];
        char text[3 * 8 + 1] = "";
        EXPECT_OK(tuttiPipelineActions(schedules[which], 3, 4, 1, action));
        for (int k = 0; k < 8; k++) {
            (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%c%d",
                           action[k].kind == tuttiPipelineForward ? 'F' : 'B',
                           action[k].microBatch % 10);
        }
        EXPECT_STR(text, right[which]);
    }
}

// A stage that is twice as slow as the other: 1 - busy / (stages x span).
static void bubble_of_times(void)
{
    const struct tuttiPipelineTime times[] = {{{tuttiPipelineForward, 0}, 5, 6},
                                              {{tuttiPipelineBackward, 0}, 10, 11},
                                              {{tuttiPipelineForward, 0}, 6, 8},
                                              {{tuttiPipelineBackward, 0}, 8, 10}};
    const struct tuttiPipelineTime none[] = {{{tuttiPipelineForward, 0}, 1, 1},
                                             {{tuttiPipelineBackward, 0}, 1, 1}};
    double bubble = -1;
    EXPECT_OK(tuttiPipelineBubble(2, 1, times, &bubble));
    EXPECT_NEAR(bubble, 0.5, 1e-12);
    EXPECT_OK(tuttiPipelineBubble(1, 1, none, &bubble));
    EXPECT_NEAR(bubble, 0, 0);
}

static void bad_arguments(void)
{
    struct tuttiPipelineAction action[2];
    struct tuttiPipelineTime times[2];
    double bubble = 0;
    int number = 0;
    EXPECT_EQ(tuttiPipelineActions((enum tuttiPipelineSchedule)7, 1, 1, 0, action),
              ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "schedule is 7");
    EXPECT_EQ(tuttiPipelineActions(tuttiPipelineGPipe, 0, 1, 0, action), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "stages is 0");
    EXPECT_EQ(tuttiPipelineActions(tuttiPipelineGPipe, 1, -2, 0, action), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "microBatches is -2");
    EXPECT_EQ(tuttiPipelineActions(tuttiPipelineGPipe, 2, 1, 2, action), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "stage is 2, must be 0 to 1");
    EXPECT_EQ(tuttiPipelineActions(tuttiPipelineGPipe, 1, 1, 0, NULL), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "tuttiPipelineActions: actions is NULL");
    EXPECT_EQ(tuttiPipelineInFlight(tuttiPipeline1F1B, 1, 1, -1, &number), ncclInvalidArgument);
    EXPECT_EQ(tuttiPipelineInFlight(tuttiPipeline1F1B, 1, 1, 0, NULL), ncclInvalidArgument);
    EXPECT_EQ(tuttiPipelineIdealBubble(1, 0, &bubble), ncclInvalidArgument);
    EXPECT_EQ(tuttiPipelineIdealBubble(1, 1, NULL), ncclInvalidArgument);
    EXPECT_EQ(tuttiPipelineIdealTimes(tuttiPipelineGPipe, 1, 1, -1, 1, times), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "forward is -1");
    EXPECT_EQ(tuttiPipelineIdealTimes(tuttiPipelineGPipe, 1, 1, 1, (double)NAN, times),
              ncclInvalidArgument);
    EXPECT_EQ(tuttiPipelineIdealTimes(tuttiPipelineGPipe, 1, 1, 1, 1, NULL), ncclInvalidArgument);
    EXPECT_EQ(tuttiPipelineBubble(1, 1, NULL, &bubble), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "times is NULL");
    EXPECT_EQ(tuttiPipelineBubble(1, 1, times, NULL), ncclInvalidArgument);
    EXPECT_EQ(tuttiPipelineBubble(1, 1 << 21, times, &bubble), ncclInvalidArgument);
}

int main(void)
{
    RUN(known_lists);
    RUN(all_schedules);
    RUN(bubble_of_times);
    RUN(bad_arguments);
    return expect_result();
}
