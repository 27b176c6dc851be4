// Tasks: started, signalled, waited for. See run.h. SPDX-License-Identifier: Apache-2.0
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOT_FOUND = 127, NOT_RUNNABLE = 126, BY_SIGNAL = 128 }; // statuses, as shells have them
enum { EVENTS = 64 };

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
    run_tell("%s: %s", name,
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
    (void)signal(SIGCHLD, job->on_child);
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

// Has job->ends and the sinks tell of the task.
static bool watch(struct run_job *job, int task)
{
    struct run_task *started = &job->tasks[task];
    struct epoll_event end = {.events = EPOLLIN, .data.u32 = (uint32_t)task};
    bool good = true;
    started->handle = (int)syscall(SYS_pidfd_open, started->pid, 0);
    if (started->handle >= 0) {
        good = epoll_ctl(job->ends, EPOLL_CTL_ADD, started->handle, &end) == 0;
    }
    if (!good) { // it is looked for by its number
        close(started->handle);
        started->handle = -1;
    }
    for (int i = 0; i < 2 && good; i++) {
        struct epoll_event output = {.events = EPOLLIN, .data.ptr = &started->output[i]};
        good = epoll_ctl(job->sinks[i].pipes, EPOLL_CTL_ADD, started->output[i].fd, &output) == 0;
    }
    return good;
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
        good = watch(job, task);
    }
    good = good && pid > 0;
    if (!good) {
        run_tell("starting process %d of %d: %s", task, job->options->tasks, strerror(errno));
    }
    for (int i = 0; i < 2; i++) {
        if (theirs[i] >= 0) {
            close(theirs[i]);
        }
    }
    run_environment_free(environment);
    return good;
}

void run_tasks_signal(const struct run_job *job, int signal)
{
    for (int i = 0; i < job->options->tasks; i++) {
        if (job->tasks[i].pid > 0) {
            (void)kill(-job->tasks[i].pid, signal);
        }
    }
}

static void tell_failure(const struct run_job *job, int task, pid_t pid, int status)
{
    const int waiting = job->options->tasks - job->started; // to be started
    char rest[80] = "";
    if (job->options->keep_going && job->left + waiting > 0) {
        (void)snprintf(rest, sizeof rest, "; the others go on");
    } else if (waiting > 0) {
        (void)snprintf(rest, sizeof rest, "; the others are ended, or not started (%d)", waiting);
    } else if (job->left > 0) {
        (void)snprintf(rest, sizeof rest, "; the others are ended");
    }
    if (WIFSIGNALED(status)) {
        run_tell("rank %d (pid %d) was ended by signal %d (%s)%s%s", task, (int)pid,
                 WTERMSIG(status), strsignal(WTERMSIG(status)),
                 WCOREDUMP(status) ? ", core dumped" : "", rest);
    } else {
        run_tell("rank %d (pid %d) failed with status %d%s", task, (int)pid, WEXITSTATUS(status),
                 rest);
    }
}

// True: it is the first that has failed, and ends the others.
static bool take_end(struct run_job *job, int task)
{
    struct run_task *ended = &job->tasks[task];
    pid_t pid = ended->pid;
    siginfo_t info = {.si_pid = 0};
    int status = 0;
    if (pid <= 0 || waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0) {
        return false;
    }
    // What it has started and left: before waitpid(), as the number may be another's after it.
    (void)kill(-pid, SIGKILL);
    run_keeper_forget(job->keeper, task);
    (void)waitpid(pid, &status, 0);
    ended->pid = 0;
    job->left--;
    if (ended->handle >= 0) {
        close(ended->handle);
    }
    bool goes_on = job->options->keep_going && !job->is_ending;
    if (status == 0 || (job->status != 0 && !goes_on)) {
        return false;
    }
    job->status = job->status != 0    ? job->status
                  : WIFEXITED(status) ? WEXITSTATUS(status)
                                      : BY_SIGNAL + WTERMSIG(status);
    for (int i = 0; i < 2; i++) { // its last words first
        (void)run_output_pass(&ended->output[i]);
    }
    tell_failure(job, task, pid, status);
    return !goes_on;
}

bool run_tasks_reap(struct run_job *job)
{
    struct epoll_event events[EVENTS];
    bool failed = false;
    int count = EVENTS;
    while (count == EVENTS) {
        count = epoll_wait(job->ends, events, EVENTS, 0);
        for (int i = 0; i < count; i++) {
            failed = take_end(job, (int)events[i].data.u32) || failed;
        }
    }
    for (int task = 0; task < job->options->tasks; task++) { // in no order, on old kernels
        failed = (job->tasks[task].handle < 0 && take_end(job, task)) || failed;
    }
    return failed;
}
