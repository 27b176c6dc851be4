// tutti-run: starts the processes of a job on this host and looks after them. One thread: all that
// happens (signals, ends of tasks, output) comes out of one epoll descriptor. The others are PMIx's
// own, and touch nothing here.
// SPDX-License-Identifier: Apache-2.0
#include "run.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    WRONG_CALL = 2,
    NO_START = 1,
    BY_SIGNAL = 128,
    GRACE_MS = 3000, // from the first failure, or a signal, until tasks are killed
    EVENTS = 64,
    DESCRIPTORS = 2 * RUN_TASKS_MAX + 256,
};

#ifdef TUTTI_CHECKED
// libpmix keeps a few bytes of its own, some through functions of the C library, which the fast
// unwinder does not pass.
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libpmix\n";
}
__attribute__((visibility("default"))) const char *__lsan_default_options(void);
const char *__lsan_default_options(void)
{
    return "print_suppressions=0:fast_unwind_on_malloc=0";
}
#endif

// How the end is going.
struct run_end {
    bool begun, killed;
    uint64_t kill_ms; // when it is no longer waited for
};

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void begin_end(const struct run_job *job, struct run_end *end, int signal)
{
    run_tasks_signal(job, signal);
    run_tasks_signal(job, SIGCONT); // a stopped task would not hear of it
    if (!end->begun) {
        end->begun = true;
        end->kill_ms = now_ms() + GRACE_MS;
    }
}

// Ctrl-Z: tasks have groups of their own, so the terminal does not stop them.
static void stop_all(const struct run_job *job)
{
    run_tasks_signal(job, SIGSTOP);
    (void)raise(SIGSTOP);
    run_tasks_signal(job, SIGCONT);
}

static void pass_signal(struct run_job *job, struct run_end *end, int signal)
{
    bool ends = signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
    if (signal == SIGTSTP) {
        stop_all(job);
    } else if (!ends) {
        run_tasks_signal(job, signal);
    } else if (end->begun) {
        end->kill_ms = 0; // who asks twice does not want to wait
    } else {
        job->status = job->status == 0 ? BY_SIGNAL + signal : job->status;
        begin_end(job, end, signal);
    }
}

static void look_after_ends(struct run_job *job, struct run_end *end)
{
    int aborted = run_pmix_aborted();
    if (aborted != 0 && job->status == 0) {
        job->status = aborted;
        begin_end(job, end, SIGTERM);
    }
    if (run_tasks_reap(job) && !end->begun) {
        begin_end(job, end, SIGTERM);
    }
}

static void take_signals(struct run_job *job, struct run_end *end, int fd)
{
    struct signalfd_siginfo signal;
    while (read(fd, &signal, sizeof signal) == (ssize_t)sizeof signal) {
        if (signal.ssi_signo == SIGCHLD) {
            look_after_ends(job, end);
        } else {
            pass_signal(job, end, (int)signal.ssi_signo);
        }
    }
}

static void take_output(struct run_job *job, struct run_end *end, struct run_output *output)
{
    if (!run_output_pass(output) && !end->begun) {
        job->status = job->status == 0 ? BY_SIGNAL + SIGPIPE : job->status;
        (void)fprintf(stderr, "tutti-run: nobody reads the output: the processes are ended\n");
        begin_end(job, end, SIGTERM);
    }
}

static void run_rounds(struct run_job *job, int epoll, int signals)
{
    struct run_end end = {.begun = false};
    while (job->left > 0) {
        struct epoll_event events[EVENTS];
        uint64_t now = now_ms();
        int patience = -1;
        if (end.begun && !end.killed) {
            patience = end.kill_ms > now ? (int)(end.kill_ms - now) : 0;
        }
        int count = epoll_wait(epoll, events, EVENTS, patience);
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr == NULL) {
                take_signals(job, &end, signals);
            } else {
                take_output(job, &end, events[i].data.ptr);
            }
        }
        if (end.begun && !end.killed && now_ms() >= end.kill_ms) {
            run_tasks_signal(job, SIGKILL);
            end.killed = true;
        }
    }
}

// All signals that are passed on come by a descriptor; -1: said on stderr.
static int catch_signals(struct run_job *job)
{
    static const int passed[] = {SIGCHLD, SIGINT,  SIGTERM, SIGHUP,
                                 SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof passed / sizeof passed[0]; i++) {
        sigaddset(&set, passed[i]);
    }
    (void)sigprocmask(SIG_BLOCK, &set, &job->signals);
    job->on_pipe = signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

// Two descriptors a task.
static void raise_descriptor_limit(struct run_job *job)
{
    (void)getrlimit(RLIMIT_NOFILE, &job->descriptors);
    struct rlimit limit = job->descriptors;
    if (limit.rlim_cur < DESCRIPTORS) {
        limit.rlim_cur = limit.rlim_max < DESCRIPTORS ? limit.rlim_max : DESCRIPTORS;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

// A port of the loopback that nobody has at the moment, for programs that meet at MASTER_PORT; the
// one above is for the library's ranks.
static int find_port(void)
{
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof where;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool found = fd >= 0 && bind(fd, (struct sockaddr *)&where, length) == 0 &&
                 getsockname(fd, (struct sockaddr *)&where, &length) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return found ? ntohs(where.sin_port) : 29500;
}

static bool start_tasks(struct run_job *job, int epoll)
{
    bool has_pmix = run_pmix_start(job);
    for (int task = 0; task < job->options->tasks; task++) {
        if (!run_task_start(job, task, has_pmix ? run_pmix_words(task) : NULL)) {
            return false;
        }
        for (int i = 0; i < 2; i++) {
            struct run_output *output = &job->tasks[task].output[i];
            struct epoll_event event = {.events = EPOLLIN, .data.ptr = output};
            (void)epoll_ctl(epoll, EPOLL_CTL_ADD, output->fd, &event);
        }
    }
    return true;
}

// With the folder and the keeper.
static void run_job(struct run_job *job)
{
    int signals = catch_signals(job);
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    if (signals < 0 || epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, signals, &event) != 0) {
        (void)fprintf(stderr, "tutti-run: what it needs to watch its tasks: %s\n", strerror(errno));
        job->status = NO_START;
    } else if (start_tasks(job, epoll)) {
        run_rounds(job, epoll, signals);
    } else {
        job->status = NO_START;
        run_tasks_signal(job, SIGKILL);
        while (job->left > 0) {
            usleep(1000);
            (void)run_tasks_reap(job);
        }
    }
    run_output_drain(job);
    run_pmix_end();
}

static int start(const struct run_options *options)
{
    struct run_job job = {
        .options = options, .folder = "/tmp/tutti-run.XXXXXX", .first_failed = -1};
    if (!run_find_program(&job)) {
        return job.status;
    }
    if (!run_gpus_share(options)) {
        return NO_START;
    }
    raise_descriptor_limit(&job);
    job.tasks = calloc((size_t)options->tasks, sizeof *job.tasks);
    if (job.tasks == NULL || mkdtemp(job.folder) == NULL) {
        (void)fprintf(stderr, "tutti-run: a folder in /tmp: %s\n", strerror(errno));
        free(job.tasks);
        return NO_START;
    }
    job.port = find_port();
    job.keeper = run_keeper_start(job.folder);
    if (job.keeper == NULL) {
        job.status = NO_START;
    } else {
        run_job(&job);
        run_keeper_end(job.keeper);
    }
    run_remove_folder(job.folder);
    free(job.tasks);
    return job.status;
}

int main(int argc, char **argv)
{
    struct run_options options;
    char problem[200];
    if (!run_options_read(argc, argv, &options, problem, sizeof problem)) {
        (void)fprintf(stderr, "tutti-run: %s (tutti-run --help)\n", problem);
        return WRONG_CALL;
    }
    if (options.help || options.version) {
        printf("%s", options.help ? run_options_help() : "tutti-run " RUN_VERSION "\n");
        return fflush(stdout) == 0 ? 0 : NO_START;
    }
    return start(&options);
}
