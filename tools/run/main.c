// tutti-run: starts the processes of a job on this host and looks after them. One thread: all that
// happens (signals, ends of tasks, output, room for it) comes out of one epoll descriptor, and
// nothing else is waited for. The others are PMIx's own, and touch nothing here.
// SPDX-License-Identifier: Apache-2.0
#include "run.h"

#include <errno.h>
#include <fcntl.h>
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
    ROOM_MS = 1000,  // after a signal, for room for the last output
    EVENTS = 4,
    OF_TASK = 3, // descriptors
    OWN = 32,    // tutti-run's and PMIx's
    DESCRIPTORS = OF_TASK * RUN_TASKS_MAX + 256,
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
// And its threads close descriptors that others of them write to as they end.
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:libpmix\n";
}
#endif

static const int enders[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
enum { ENDERS = sizeof enders / sizeof enders[0] };

// How the end is going.
struct run_end {
    bool begun, killed;
    bool is_asked;    // by a signal
    uint64_t kill_ms; // when it is no longer waited for
};

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void begin_end(struct run_job *job, struct run_end *end, int signal)
{
    job->is_ending = true;
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
    bool ends = false;
    for (int i = 0; i < ENDERS; i++) {
        ends = ends || signal == enders[i];
    }
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
    end->is_asked = end->is_asked || ends;
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

// What has become of output, which is lost where error is not 0.
static void take_error(struct run_job *job, int error)
{
    if (error != 0 && job->status == 0) {
        const char *rest = job->left > 0 ? ": the processes are ended" : "";
        job->status = error == EPIPE ? BY_SIGNAL + SIGPIPE : NO_START;
        if (error == EPIPE) {
            run_tell("nobody reads the output%s", rest);
        } else {
            run_tell("writing the output: %s%s", strerror(error), rest);
        }
    }
}

static void take_output(struct run_job *job, struct run_end *end, struct run_sink *sink, int epoll)
{
    int error = run_sink_pass(sink, epoll);
    take_error(job, error);
    if (error != 0 && !end->begun) {
        begin_end(job, end, SIGTERM);
    }
}

// Until something happens, or tasks that do not listen are to be killed; none while tasks are to be
// started.
static int count_patience(const struct run_end *end, bool starts)
{
    uint64_t now = now_ms();
    if (!starts && (!end->begun || end->killed)) {
        return -1;
    }
    return !starts && end->kill_ms > now ? (int)(end->kill_ms - now) : 0;
}

static void start_next(struct run_job *job, struct run_end *end, bool has_pmix)
{
    int task = job->started;
    if (run_task_start(job, task, has_pmix ? run_pmix_words(task) : NULL)) {
        job->started++;
    } else {
        job->status = job->status == 0 ? NO_START : job->status;
        run_tasks_signal(job, SIGKILL);
        job->is_ending = end->begun = end->killed = true;
    }
}

// Starts the tasks, one a round, so that signals and ends of tasks are heard meanwhile, and looks
// after them. True: a signal has ended it.
static bool run_rounds(struct run_job *job, int epoll, int signals)
{
    struct run_end end = {.begun = false};
    bool has_pmix = run_pmix_start(job);
    for (;;) {
        struct epoll_event events[EVENTS];
        bool starts = !end.begun && job->started < job->options->tasks;
        if (!starts && job->left == 0) {
            return end.is_asked;
        }
        int count = epoll_wait(epoll, events, EVENTS, count_patience(&end, starts));
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr == NULL) {
                take_signals(job, &end, signals);
            } else {
                take_output(job, &end, events[i].data.ptr, epoll);
            }
        }
        if (starts && !end.begun) {
            start_next(job, &end, has_pmix);
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
    static const int others[] = {SIGCHLD, SIGUSR1, SIGUSR2, SIGTSTP};
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < ENDERS; i++) {
        sigaddset(&set, enders[i]);
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        sigaddset(&set, others[i]);
    }
    (void)sigprocmask(SIG_BLOCK, &set, &job->signals);
    job->on_pipe = signal(SIGPIPE, SIG_IGN);
    job->on_child = signal(SIGCHLD, SIG_DFL); // where it is ignored, nobody hears of ends
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

// From now on, as there are no tasks to look after any more, a signal ends tutti-run, which may
// wait for room for output; the keeper tidies up.
static void let_signals_end(const struct run_job *job)
{
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < ENDERS; i++) {
        if (sigismember(&job->signals, enders[i]) == 0) {
            sigaddset(&set, enders[i]);
        }
    }
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
}

// How many descriptors there is room for, and whether all tasks can have theirs: PMIx's server ends
// the process where it has none. False: said on stderr.
static bool have_descriptors(const struct run_job *job)
{
    static int fds[DESCRIPTORS];
    int needed = OF_TASK * job->options->tasks + OWN, got = 0;
    while (got < needed && (fds[got] = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)) >= 0) {
        got++;
    }
    for (int i = 0; i < got; i++) {
        close(fds[i]);
    }
    if (got < needed) {
        run_tell("%d processes need %d descriptors; the limit (ulimit -n -H) leaves %d",
                 job->options->tasks, needed, got);
    }
    return got == needed;
}

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

// With the folder and the keeper.
static void run_job(struct run_job *job)
{
    int signals = catch_signals(job);
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    int patience_ms = -1;
    struct epoll_event event = {.events = EPOLLIN};
    job->ends = epoll_create1(EPOLL_CLOEXEC);
    if (signals < 0 || epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, signals, &event) != 0 ||
        job->ends < 0 || !run_sinks_open(job, epoll)) {
        run_tell("what it needs to watch its tasks: %s", strerror(errno));
        job->status = NO_START;
    } else {
        patience_ms = run_rounds(job, epoll, signals) ? ROOM_MS : -1;
    }
    let_signals_end(job);
    take_error(job, run_output_drain(job, patience_ms));
    run_pmix_end();
}

static int start(const struct run_options *options)
{
    struct run_job job = {.options = options, .folder = "/tmp/tutti-run.XXXXXX"};
    if (!run_find_program(&job)) {
        return job.status;
    }
    if (!run_gpus_share(options)) {
        return NO_START;
    }
    raise_descriptor_limit(&job);
    if (!have_descriptors(&job)) {
        return NO_START;
    }
    job.tasks = calloc((size_t)options->tasks, sizeof *job.tasks);
    if (job.tasks == NULL || mkdtemp(job.folder) == NULL) {
        run_tell("a folder in /tmp: %s", strerror(errno));
        free(job.tasks);
        return NO_START;
    }
    for (int task = 0; task < options->tasks; task++) {
        job.tasks[task] = (struct run_task){.handle = -1, .output = {{.fd = -1}, {.fd = -1}}};
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

// What is opened later must not take the place of an input or output that is closed.
static void open_standard(void)
{
    int fd;
    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) {
        close(fd);
    }
}

int main(int argc, char **argv)
{
    struct run_options options;
    char problem[200];
    open_standard();
    if (!run_options_read(argc, argv, &options, problem, sizeof problem)) {
        run_tell("%s (tutti-run --help)", problem);
        return WRONG_CALL;
    }
    if (options.help || options.version) {
        printf("%s", options.help ? run_options_help() : "tutti-run " RUN_VERSION "\n");
        return fflush(stdout) == 0 ? 0 : NO_START;
    }
    return start(&options);
}
