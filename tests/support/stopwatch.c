// The stopwatch of stopwatch.h: clocks of the test and of its ranks against /proc/stat. It has no
// thread and waits for nothing, so that it changes nothing for what is tested. Where /proc/stat
// tells nothing, all time counts.
// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "stopwatch.h"

#include "expect.h"
#include "ranks.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const double slower = 5;
#else
static const double slower = 1;
#endif

// Parts of the machine: what is less than this is the system's own, or a tick more or less; at most
// this is excused.
static const double nobody = 0.05, most_excused = 0.95;

static double now_s(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static double own_s(void)
{
    struct rusage children;
    getrusage(RUSAGE_CHILDREN, &children);
    return ranks_cpu_s() + (double)(children.ru_utime.tv_sec + children.ru_stime.tv_sec) +
           (double)(children.ru_utime.tv_usec + children.ru_stime.tv_usec) * 1e-6;
}

// CPU time of everything on the cores that this process may use, since the machine's start.
static double busy_s(int *cores_out)
{
    cpu_set_t usable;
    char line[512];
    unsigned long long ticks = 0, t[8];
    int core;
    FILE *file = fopen("/proc/stat", "r");
    if (sched_getaffinity(getpid(), sizeof usable, &usable) != 0) {
        memset(&usable, 0xff, sizeof usable);
    }
    *cores_out = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL && strncmp(line, "cpu", 3) == 0) {
        // User, nice, system, idle, waiting for a disk, interrupts of both kinds, stolen.
        if (line[3] != ' ' && // not their sum
            sscanf(line, "cpu%d %llu %llu %llu %llu %llu %llu %llu %llu", &core, &t[0], &t[1],
                   &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]) == 9 &&
            core < CPU_SETSIZE && CPU_ISSET(core, &usable)) {
            ticks += t[0] + t[1] + t[2] + t[5] + t[6] + t[7];
            *cores_out += 1;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

struct stopwatch stopwatch_start(void)
{
    int cores;
    struct stopwatch watch = {.busy_s = busy_s(&cores), .own_s = own_s(), .wall_s = now_s()};
    return watch;
}

double stopwatch_s(const struct stopwatch *watch)
{
    return now_s() - watch->wall_s;
}

double stopwatch_rule_s(double wall_s, double own_s, double busy_s, int cores)
{
    double others = cores > 0 ? (busy_s - own_s) / (wall_s * cores) : 0;
    if (others < nobody) {
        others = 0;
    } else if (others > most_excused) {
        others = most_excused;
    }
    return wall_s * (1 - others);
}

double stopwatch_counted_s(const struct stopwatch *watch)
{
    int cores;
    double wall = stopwatch_s(watch);
    double own = own_s() - watch->own_s;
    double busy = busy_s(&cores) - watch->busy_s;
    return stopwatch_rule_s(wall, own, busy, cores);
}

bool stopwatch_is_within(const struct stopwatch *watch, double most_s)
{
    return stopwatch_s(watch) < most_s * slower || stopwatch_counted_s(watch) < most_s * slower;
}

bool stopwatch_expect(const struct stopwatch *watch, double most_s, const char *file, int line)
{
    char text[160];
    bool holds = stopwatch_is_within(watch, most_s);
    (void)snprintf(text, sizeof text, "within %g s; it took %.3f s, of which %.3f s count",
                   most_s * slower, stopwatch_s(watch), stopwatch_counted_s(watch));
    return expect_true(holds, text, file, line);
}
