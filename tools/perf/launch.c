// Ranks as processes: the program starts itself once for each, hands them the team's descriptor and
// waits. When one fails or dies, the others get a few seconds to end by themselves.
// SPDX-License-Identifier: Apache-2.0
#include "perf.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { TEAM_FD = 3, GRACE_S = 10 };

static pid_t start(int index, int fd, char **arguments, size_t count)
{
    char which[32];
    (void)snprintf(which, sizeof which, "--child=%d:%d", index, TEAM_FD);
    arguments[count] = which;
    arguments[count + 1] = NULL;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    // dup2 onto itself clears close-on-exec too.
    posix_spawn_file_actions_adddup2(&actions, fd, TEAM_FD);
    pid_t pid = -1;
    int error = posix_spawn(&pid, "/proc/self/exe", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
        (void)fprintf(stderr, "tutti-perf: starting process %d: %s\n", index, strerror(error));
        return -1;
    }
    return pid;
}

// What an ended process says about the run. is_killed: by end_all, perhaps.
static void judge(struct perf_team *team, int index, int status, bool is_killed)
{
    if (WIFEXITED(status)) {
        if (WEXITSTATUS(status) != PERF_OK) {
            perf_fail(team, WEXITSTATUS(status));
        }
    } else if (!is_killed) {
        (void)fprintf(stderr, "tutti-perf: process %d ended by signal %d (%s)\n", index,
                      WTERMSIG(status), strsignal(WTERMSIG(status)));
        perf_fail(team, PERF_INTERNAL);
    }
}

static void end_all(const pid_t *pids, int n)
{
    for (int i = 0; i < n; i++) {
        if (pids[i] > 0) {
            (void)kill(pids[i], SIGKILL);
        }
    }
}

// Until all have ended; after a failure not longer than GRACE_S.
static void wait_for_all(struct perf_team *team, pid_t *pids, int n)
{
    double failed_at = 0;
    bool is_killed = false;
    for (int left = n; left > 0;) {
        for (int i = 0; i < n; i++) {
            int status;
            if (pids[i] > 0 && waitpid(pids[i], &status, WNOHANG) == pids[i]) {
                pids[i] = 0;
                left--;
                judge(team, i, status, is_killed);
            }
        }
        if (atomic_load(&team->status) != PERF_OK && failed_at == 0) {
            failed_at = perf_now();
        }
        if (failed_at != 0 && perf_now() - failed_at > GRACE_S) {
            is_killed = true;
            end_all(pids, n);
        }
        if (left > 0) {
            usleep(2000);
        }
    }
}

int perf_launch(const struct perf_options *options, char **argv)
{
    int fd;
    struct perf_team *team = perf_team_make(options, &fd);
    size_t count = 0;
    while (argv[count] != NULL) {
        count++;
    }
    char **arguments = calloc(count + 2, sizeof *arguments);
    pid_t *pids = calloc((size_t)options->processes, sizeof *pids);
    if (team == NULL || arguments == NULL || pids == NULL) {
        free(arguments);
        free(pids);
        return PERF_INTERNAL;
    }
    if (options->cycles == 0) {
        perf_team_heed_interrupts(team); // the processes end by themselves
    }
    memcpy(arguments, argv, count * sizeof *arguments);
    (void)fflush(NULL);
    int started = 0;
    while (started < options->processes) {
        pids[started] = start(started, fd, arguments, count);
        if (pids[started] < 0) {
            perf_fail(team, PERF_INTERNAL);
            break;
        }
        started++;
    }
    wait_for_all(team, pids, started);
    free(arguments);
    free(pids);
    return atomic_load(&team->status);
}
