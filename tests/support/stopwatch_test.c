// The stopwatch: its rule in numbers; that a late end counts where nobody else wants the core, and
// the test's own work always; that what other programs take is not counted. All on one core, so
// that a few processes load it, whatever the machine.
// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "expect.h"
#include "ranks.h"
#include "stopwatch.h"

#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TRIES = 4, LOADERS = 3, SPAN_MS = 200 };
static const double span_s = SPAN_MS * 1e-3;

static void the_rule(void)
{
    // Two cores, 10 s: idle; the system's own bits; the test alone on both.
    EXPECT_NEAR(stopwatch_rule_s(10, 0, 0, 2), 10, 1e-9);
    EXPECT_NEAR(stopwatch_rule_s(10, 0, 0.8, 2), 10, 1e-9);
    EXPECT_NEAR(stopwatch_rule_s(10, 20, 20, 2), 10, 1e-9);
    EXPECT_NEAR(stopwatch_rule_s(10, 20.1, 20, 2), 10, 1e-9); // read a tick apart
    // Others have one core; half a core beside the test's one; all but what the test gets.
    EXPECT_NEAR(stopwatch_rule_s(10, 0, 10, 2), 5, 1e-9);
    EXPECT_NEAR(stopwatch_rule_s(10, 10, 15, 2), 7.5, 1e-9);
    EXPECT_NEAR(stopwatch_rule_s(10, 2, 20, 2), 1, 1e-9);
    EXPECT_NEAR(stopwatch_rule_s(10, 0, 20, 2), 0.5, 1e-9); // a twentieth always counts
    EXPECT_NEAR(stopwatch_rule_s(10, 0, 0, 0), 10, 1e-9);   // nothing is known
}

static void use_one_core(void)
{
    cpu_set_t usable, one;
    int core = 0;
    EXPECT_EQ(sched_getaffinity(0, sizeof usable, &usable), 0);
    while (core < CPU_SETSIZE - 1 && !CPU_ISSET(core, &usable)) {
        core++;
    }
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    EXPECT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
}

static void sleep_for(double seconds)
{
    struct stopwatch watch = stopwatch_start();
    while (stopwatch_s(&watch) < seconds) { // signals may end a sleep early
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    }
}

static double cpu_s(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

// Computes all the time; the CPU time that it got.
static double spin(void)
{
    struct stopwatch watch = stopwatch_start();
    double start = cpu_s();
    while (stopwatch_s(&watch) < span_s) {
    }
    return cpu_s() - start;
}

// Whether anything but this thread runs, or could, on any core.
static bool others_run(void)
{
    char line[512];
    int running = 2;
    FILE *file = fopen("/proc/stat", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL &&
           sscanf(line, "procs_running %d", &running) != 1) {
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return running > 1;
}

// A sleep in which nobody else ran, between two times in which nobody else wanted the core.
static void a_late_end_counts(void)
{
    bool was_quiet = false, counts = false;
    for (int i = 0; i < TRIES && !counts; i++) {
        bool is_quiet = spin() > 0.995 * span_s;
        struct stopwatch watch = stopwatch_start();
        while (stopwatch_s(&watch) < span_s) {
            nanosleep(&(struct timespec){0, 5000000}, NULL);
            is_quiet = is_quiet && !others_run();
        }
        double counted = stopwatch_counted_s(&watch);
        is_quiet = is_quiet && spin() > 0.995 * span_s;
        was_quiet = was_quiet || is_quiet;
        counts = is_quiet && counted > 0.9 * span_s;
    }
    if (!was_quiet) {
        SKIP("the machine has other work all the time");
        return;
    }
    EXPECT(counts);
}

// While the test computes the core is never idle: what counts is what the test gets, the whole time
// where it is alone. /proc/stat is no better than a few ticks.
static void own_work_counts(void)
{
    double error = 1;
    for (int i = 0; i < TRIES && error > span_s / 4; i++) {
        struct stopwatch watch = stopwatch_start();
        double used = spin();
        error = fabs(stopwatch_counted_s(&watch) - used);
    }
    EXPECT_NEAR(error, 0, span_s / 4);
}

// Rank 1 computes, rank 0 sleeps meanwhile and looks.
static void compute_beside(int rank, int size)
{
    double error = 1;
    EXPECT_EQ(size, 2);
    for (int i = 0; i < TRIES && error > span_s / 4; i++) {
        double used = 0, all[2];
        ranks_barrier();
        struct stopwatch watch = stopwatch_start();
        if (rank == 1) {
            used = spin();
        } else {
            sleep_for(span_s);
        }
        double counted = stopwatch_counted_s(&watch);
        ranks_gather(&used, all, sizeof used);
        error = fabs(counted - all[1]);
        ranks_broadcast(&error, sizeof error);
    }
    EXPECT_NEAR(error, 0, span_s / 4);
}

static void other_ranks_work_counts(void)
{
    run_ranks(2, compute_beside, 30);
}

// Processes that compute for ever, until they are killed or this one ends.
static void load(pid_t *pids)
{
    for (int i = 0; i < LOADERS; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            alarm(20);
            while (true) {
            }
        }
        EXPECT(pids[i] > 0);
    }
}

static void others_work_does_not_count(void)
{
    pid_t pids[LOADERS];
    int status;
    load(pids);
    sleep_for(0.05); // they have begun
    struct stopwatch watch = stopwatch_start();
    sleep_for(0.5);
    EXPECT(stopwatch_counted_s(&watch) < 0.15);
    EXPECT(stopwatch_counted_s(&watch) >= 0.025);
    EXPECT(stopwatch_s(&watch) >= 0.5);
    EXPECT_WITHIN(watch, 0.15);
    EXPECT(!stopwatch_is_within(&watch, 0.004)); // nor five times that, under sanitizers
    for (int i = 0; i < LOADERS; i++) {
        EXPECT_EQ(kill(pids[i], SIGKILL), 0);
        EXPECT_EQ(waitpid(pids[i], &status, 0), pids[i]);
    }
}

// The check itself fails when time is over: in a rank, whose end is looked at.
static void be_late(int rank, int size)
{
    (void)rank;
    (void)size;
    struct stopwatch watch = stopwatch_start();
    sleep_for(span_s);
    EXPECT_WITHIN(watch, span_s / 100); // over on any machine, with sanitizers, too
}

static void a_check_that_fails(void)
{
    int status = 0;
    EXPECT(run_ranks_status(1, be_late, 10, &status));
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

int main(void)
{
    use_one_core();
    RUN(the_rule);
    RUN(a_late_end_counts);
    RUN(own_work_counts);
    RUN(other_ranks_work_counts);
    RUN(others_work_does_not_count);
    RUN(a_check_that_fails);
    return expect_result();
}
