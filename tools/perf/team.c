// The workers' meeting place: a piece of anonymous shared memory, inherited by the processes of a
// run as a descriptor. A worker that fails says so here, and nobody waits any more.
// SPDX-License-Identifier: Apache-2.0
#include "perf.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

double perf_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

struct perf_team *perf_team_make(const struct perf_options *options, int *fd_out)
{
    const int workers = options->processes * options->threads;
    size_t samples = (size_t)options->iterations * (size_t)perf_ranks(options);
    size_t bytes = sizeof(struct perf_team) + samples * sizeof(double);
    int fd = memfd_create("tutti-perf", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) {
        (void)fprintf(stderr, "tutti-perf: %zu bytes of shared memory: %s\n", bytes,
                      strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return NULL;
    }
    struct perf_team *team = perf_team_open(fd);
    if (team != NULL) {
        team->workers = workers;
        team->ranks = perf_ranks(options);
        team->iterations = options->iterations;
    }
    *fd_out = fd;
    return team;
}

struct perf_team *perf_team_open(int fd)
{
    struct stat facts;
    if (fstat(fd, &facts) != 0 || (size_t)facts.st_size < sizeof(struct perf_team)) {
        (void)fprintf(stderr, "tutti-perf: descriptor %d is not the launcher's memory\n", fd);
        return NULL;
    }
    void *team = mmap(NULL, (size_t)facts.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (team == MAP_FAILED) {
        (void)fprintf(stderr, "tutti-perf: mapping shared memory: %s\n", strerror(errno));
        return NULL;
    }
    return team;
}

static struct perf_team *interruptible;

static void tell_interrupt(int signal)
{
    (void)signal;
    atomic_store(&interruptible->interrupted, 1);
}

void perf_team_heed_interrupts(struct perf_team *team)
{
    struct sigaction action = {.sa_handler = tell_interrupt, .sa_flags = SA_RESTART | SA_RESETHAND};
    interruptible = team;
    (void)sigaction(SIGINT, &action, NULL);
}

bool perf_fail(struct perf_team *team, int status)
{
    int none = PERF_OK;
    return atomic_compare_exchange_strong(&team->status, &none, status);
}

// The last worker to arrive opens the next round; the others look, then yield, then sleep, so that
// a long check of one takes no processor from it.
bool perf_barrier(struct perf_team *team)
{
    uint32_t round = atomic_load(&team->round);
    if (atomic_fetch_add(&team->arrived, 1) + 1 == (uint32_t)team->workers) {
        atomic_store(&team->arrived, 0);
        atomic_store(&team->round, round + 1);
        return atomic_load(&team->status) == PERF_OK;
    }
    for (int tries = 0; atomic_load(&team->round) == round; tries++) {
        if (atomic_load(&team->status) != PERF_OK) {
            return false;
        }
        if (tries < 2000) {
            sched_yield();
        } else {
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        }
    }
    // What the others wrote is visible by `round`. Where another process was the last to arrive, a
    // race detector that sees this process alone learns it from `arrived`.
    (void)atomic_load(&team->arrived);
    return atomic_load(&team->status) == PERF_OK;
}

bool perf_combine(struct perf_team *team, int worker, double *value, enum perf_average average)
{
    team->value[worker] = *value;
    if (!perf_barrier(team)) {
        return false;
    }
    double result = team->value[0];
    for (int w = 1; w < team->workers && average != PERF_RANK_0; w++) {
        double other = team->value[w];
        result = average == PERF_MEAN  ? result + other
                 : average == PERF_MIN ? (other < result ? other : result)
                                       : (other > result ? other : result);
    }
    *value = average == PERF_MEAN ? result / team->workers : result;
    return perf_barrier(team); // before anybody writes the next value
}

bool perf_sum(struct perf_team *team, int worker, double *value)
{
    bool good = perf_combine(team, worker, value, PERF_MEAN);
    *value *= team->workers;
    return good;
}
