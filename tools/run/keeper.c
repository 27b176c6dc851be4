// A small process in a session of its own that reads a pipe whose other end only tutti-run has. If
// tutti-run is killed, the pipe ends without a word, and the keeper ends the tasks and all that
// they have started. See run.h. SPDX-License-Identifier: Apache-2.0
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct run_keeper {
    pid_t pid;
    int pipe; // tutti-run's end
    // Process groups of tasks, 0: none. tutti-run writes, the keeper reads once the pipe has ended.
    _Atomic pid_t groups[RUN_TASKS_MAX];
};

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *where)
{
    (void)status;
    (void)where;
    (void)(kind == FTW_DP ? rmdir(path) : unlink(path));
    return 0;
}

void run_remove_folder(const char *folder)
{
    (void)nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void keep(const struct run_keeper *keeper, int fd, const char *folder)
{
    char word;
    ssize_t got;
    (void)setsid();
    do {
        got = read(fd, &word, 1);
    } while (got < 0 && errno == EINTR);
    if (got > 0) {
        _exit(0); // all have ended
    }
    for (int i = 0; i < RUN_TASKS_MAX; i++) {
        pid_t group = atomic_load(&keeper->groups[i]);
        if (group > 0) {
            (void)kill(-group, SIGKILL);
        }
    }
    run_remove_folder(folder);
    _exit(0);
}

struct run_keeper *run_keeper_start(const char *folder)
{
    int ends[2];
    struct run_keeper *keeper =
        mmap(NULL, sizeof *keeper, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (keeper == MAP_FAILED || pipe2(ends, O_CLOEXEC) != 0) {
        run_tell("what it needs to watch its tasks: %s", strerror(errno));
        return NULL;
    }
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[1]);
        // Whoever reads tutti-run's output must not wait for this process.
        for (int fd = 0; fd <= 2; fd++) {
            close(fd);
        }
        keep(keeper, ends[0], folder);
    }
    close(ends[0]);
    keeper->pipe = ends[1];
    keeper->pid = pid; // what both write, the child would make 0
    if (pid < 0) {
        run_tell("no process to watch its tasks: %s", strerror(errno));
        return NULL;
    }
    return keeper;
}

void run_keeper_add(struct run_keeper *keeper, int task, pid_t group)
{
    atomic_store(&keeper->groups[task], group);
}

void run_keeper_forget(struct run_keeper *keeper, int task)
{
    atomic_store(&keeper->groups[task], 0);
}

void run_keeper_end(struct run_keeper *keeper)
{
    while (write(keeper->pipe, "", 1) < 0 && errno == EINTR) {
    }
    close(keeper->pipe);
    while (waitpid(keeper->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    (void)munmap(keeper, sizeof *keeper);
}
