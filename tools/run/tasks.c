// Tasks: started, signalled, waited for. See run.h. SPDX-License-Identifier: Apache-2.0
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOT_FOUND = 127, NOT_RUNNABLE = 126, BY_SIGNAL = 128 }; // statuses, as shells have them

static bool is_program(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

bool run_find_program(struct run_job *job)
{
    const char *name = job->options->program[0];
    const char *path = getenv("PATH");
    bool is_path = strchr(name, '/') != NULL;
    if (is_path) {
        (void)snprintf(job->program, sizeof job->program, "%s", name);
    }
    for (const char *p = path == NULL ? "/usr/local/bin:/usr/bin:/bin" : path; !is_path;) {
        size_t length = strcspn(p, ":");
        (void)snprintf(job->program, sizeof job->program, "%.*s%s%s", (int)length, p,
                       length > 0 ? "/" : "", name);
        if (is_program(job->program) || p[length] == 0) {
            break;
        }
        p += length + 1;
    }
    if (is_program(job->program)) {
        return true;
    }
    bool exists = is_path && access(name, F_OK) == 0;
    (void)fprintf(stderr, "tutti-run: %s: %s\n", name,
                  exists    ? "not a program, or not allowed to run (chmod +x)"
                  : is_path ? "there is no such file"
                            : "no program of this name in PATH; of this folder: ./name");
    job->status = exists ? NOT_RUNNABLE : NOT_FOUND;
    return false;
}

// In the new process. What it cannot do it says on its own stderr.
__attribute__((noreturn)) static void become(const struct run_job *job, int task, pid_t parent,
                                             const int pipes[2], char **environment)
{
    int input = task == 0 && !isatty(0) ? 0 : open("/dev/null", O_RDONLY | O_CLOEXEC);
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(NOT_RUNNABLE); // it has ended meanwhile
    }
    if ((input > 0 && dup2(input, 0) < 0) || dup2(pipes[0], 1) < 0 || dup2(pipes[1], 2) < 0 ||
        !run_gpus_limit(task)) {
        _exit(NOT_RUNNABLE);
    }
    (void)signal(SIGPIPE, job->on_pipe);
    (void)sigprocmask(SIG_SETMASK, &job->signals, NULL);
    (void)setrlimit(RLIMIT_NOFILE, &job->descriptors);
    execve(job->program, job->options->program, environment);
    (void)dprintf(2, "tutti-run: %s: %s\n", job->program, strerror(errno));
    _exit(NOT_RUNNABLE);
}

static bool open_pipes(struct run_task *task, int index, int theirs[2])
{
    for (int i = 0; i < 2; i++) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) {
            return false;
        }
        theirs[i] = ends[1];
        task->output[i] = (struct run_output){.fd = ends[0], .to = i + 1, .task = index};
        (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
    }
    return true;
}

bool run_task_start(struct run_job *job, int task, char *const *pmix_words)
{
    struct run_task *started = &job->tasks[task];
    int theirs[2] = {-1, -1};
    char **environment = run_environment(job, task, pmix_words);
    pid_t parent = getpid();
    bool good = environment != NULL && open_pipes(started, task, theirs);
    pid_t pid = good ? fork() : -1;
    if (pid == 0) {
        become(job, task, parent, theirs, environment);
    }
    if (pid > 0) {
        (void)setpgid(pid, pid); // whichever of the two comes first
        run_keeper_add(job->keeper, task, pid);
        started->pid = pid;
        job->left++;
    } else {
        (void)fprintf(stderr, "tutti-run: starting process %d of %d: %s\n", task,
                      job->options->tasks, strerror(errno));
    }
    for (int i = 0; i < 2; i++) {
        if (theirs[i] >= 0) {
            close(theirs[i]);
        }
    }
    run_environment_free(environment);
    return pid > 0;
}

void run_tasks_signal(const struct run_job *job, int signal)
{
    for (int i = 0; i < job->options->tasks; i++) {
        if (job->tasks[i].pid > 0) {
            (void)kill(-job->tasks[i].pid, signal);
        }
    }
}

static void tell_failure(const struct run_job *job, int task, pid_t pid)
{
    int status = job->tasks[task].status;
    const char *rest = job->left > 0 ? "; the others are ended" : "";
    if (WIFSIGNALED(status)) {
        (void)fprintf(stderr, "tutti-run: rank %d (pid %d) was ended by signal %d (%s)%s%s\n", task,
                      (int)pid, WTERMSIG(status), strsignal(WTERMSIG(status)),
                      WCOREDUMP(status) ? ", core dumped" : "", rest);
    } else {
        (void)fprintf(stderr, "tutti-run: rank %d (pid %d) failed with status %d%s\n", task,
                      (int)pid, WEXITSTATUS(status), rest);
    }
}

static void take_end(struct run_job *job, int task, pid_t pid, int status)
{
    struct run_task *ended = &job->tasks[task];
    ended->pid = 0;
    ended->ended = true;
    ended->status = status;
    job->left--;
    (void)kill(-pid, SIGKILL); // what it has started and left
    run_keeper_forget(job->keeper, task);
}

bool run_tasks_reap(struct run_job *job)
{
    bool failed = false;
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        int task = 0;
        while (task < job->options->tasks && job->tasks[task].pid != pid) {
            task++;
        }
        if (task == job->options->tasks) {
            continue;
        }
        take_end(job, task, pid, status);
        if (status != 0 && job->first_failed < 0 && job->status == 0) {
            failed = true;
            job->first_failed = task;
            job->status = WIFEXITED(status) ? WEXITSTATUS(status) : BY_SIGNAL + WTERMSIG(status);
            for (int i = 0; i < 2; i++) { // its last words first
                (void)run_output_pass(&job->tasks[task].output[i]);
            }
            tell_failure(job, task, pid);
        }
    }
    return failed;
}
