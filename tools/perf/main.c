// tutti-perf: measures and verifies the operations of the library, in the manner of nccl-tests.
// A run of one process starts here; a run of several is started by the launcher, which touches
// neither CUDA nor the library itself.
// SPDX-License-Identifier: Apache-2.0
#include "perf.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { GRACE_S = 8 };

struct worker {
    struct perf_run run;
    ncclComm_t *comms; // made already, or NULL
    pthread_t thread;
};

static void *work(void *argument)
{
    struct worker *worker = argument;
    perf_work(&worker->run, worker->comms);
    return NULL;
}

static bool check_library(struct perf_team *team, const struct perf_operation *operation)
{
    const char *missing;
    if (perf_library_has(operation, &missing)) {
        return true;
    }
    if (perf_fail(team, PERF_NOT_THERE)) {
        int version = 0;
        (void)ncclGetVersion(&version);
        (void)fprintf(stderr, "tutti-perf: %s: the library that is loaded, %s %d, has no %s%s\n",
                      operation->name, perf_library_is_tutti() ? "tutti as NCCL" : "NCCL", version,
                      missing,
                      strncmp(missing, "tutti", 5) == 0 && !perf_library_is_tutti()
                          ? "; it is one of tutti's own functions"
                          : "");
    }
    return false;
}

// Makes the unique id in the first process, or waits for it.
static bool share_id(struct perf_team *team, int process)
{
    if (process == 0) {
        ncclResult_t result = ncclGetUniqueId(&team->id);
        if (result != ncclSuccess) {
            if (perf_fail(team, PERF_NCCL)) {
                (void)fprintf(stderr, "tutti-perf: ncclGetUniqueId: %s\n", ncclGetLastError(NULL));
            }
            return false;
        }
        atomic_store(&team->id_made, 1);
    }
    while (atomic_load(&team->id_made) == 0) {
        if (atomic_load(&team->status) != PERF_OK) {
            return false;
        }
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    return true;
}

static void run_workers(struct worker *workers, const struct perf_options *options, int process)
{
    const int gpus = options->gpus, n = options->threads * gpus;
    struct perf_run *first = &workers[0].run;
    ncclComm_t *comms = NULL;
    if (!options->parallel_init) {
        comms = calloc((size_t)n, sizeof *comms);
        if (comms == NULL || !perf_make_comms(first, process * n, n, comms)) {
            perf_fail(first->team, PERF_INTERNAL); // unless the reason is known already
            free(comms);
            return;
        }
    }
    int started = 1;
    for (int t = 0; t < options->threads; t++) {
        workers[t].comms = comms == NULL ? NULL : comms + (size_t)t * gpus;
    }
    for (; started < options->threads; started++) {
        int error = pthread_create(&workers[started].thread, NULL, work, &workers[started]);
        if (error != 0) {
            (void)fprintf(stderr, "tutti-perf: starting thread %d: %s\n", started, strerror(error));
            perf_fail(first->team, PERF_INTERNAL);
            break;
        }
    }
    work(&workers[0]);
    for (int t = 1; t < started; t++) {
        pthread_join(workers[t].thread, NULL);
    }
    free(comms);
}

// Who waits inside the library for a worker that has failed does not see that: some seconds after a
// failure the process ends as it is.
static void *watch(void *argument)
{
    struct perf_team *team = argument;
    while (atomic_load(&team->status) == PERF_OK) {
        usleep(100000);
    }
    sleep(GRACE_S);
    _exit(atomic_load(&team->status));
}

static int run_process(const struct perf_options *options, struct perf_team *team, int process,
                       struct perf_report *report)
{
    struct worker *workers = calloc((size_t)options->threads, sizeof *workers);
    if (workers == NULL) {
        perf_fail(team, PERF_INTERNAL);
        return PERF_INTERNAL;
    }
    for (int t = 0; t < options->threads; t++) {
        workers[t].run = (struct perf_run){.options = options,
                                           .team = team,
                                           .worker = process * options->threads + t,
                                           .nranks = perf_ranks(options),
                                           .report = process == 0 && t == 0 ? report : NULL};
    }
    pthread_t watcher;
    if (pthread_create(&watcher, NULL, watch, team) == 0) {
        pthread_detach(watcher);
    }
    if (check_library(team, options->operation) && share_id(team, process)) {
        run_workers(workers, options, process);
    }
    free(workers);
    return atomic_load(&team->status);
}

int main(int argc, char **argv)
{
    struct perf_options options;
    (void)setvbuf(stdout, NULL, _IOLBF, 1 << 16); // each line is seen when it is there
    int status = perf_options_read(&options, argc, argv);
    if (status != PERF_OK) {
        return status < 0 ? PERF_OK : status;
    }
    if (options.child < 0 && (!perf_file_check(options.json, "-J, --output_file") ||
                              !perf_file_check(options.plot, "--plot"))) {
        return PERF_INTERNAL;
    }
    if (options.child < 0 && options.processes > 1) {
        return perf_launch(&options, argv);
    }
    int fd = options.child_fd;
    struct perf_team *team = NULL;
    if (options.child >= 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); // the launcher ended: so does its process
        team = perf_team_open(fd);
        if (team != NULL &&
            (team->workers != options.processes * options.threads ||
             team->iterations != options.iterations || options.child >= options.processes)) {
            (void)fprintf(stderr, "tutti-perf: --child is for this program's own use\n");
            return PERF_BAD_OPTION;
        }
    } else {
        team = perf_team_make(&options, &fd);
    }
    if (team == NULL) {
        return PERF_INTERNAL;
    }
    close(fd);
    if (options.cycles == 0) {
        perf_team_heed_interrupts(team);
    }
    struct perf_report report = {.options = &options, .argv = argv, .begun = perf_now()};
    status = run_process(&options, team, options.child < 0 ? 0 : options.child, &report);
    free(report.lines);
    return status;
}
