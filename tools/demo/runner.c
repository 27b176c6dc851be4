// Runs the ranks of one configuration, as threads of this process or as processes of their own, and
// collects what they found.
// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "demo.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

// Descriptors that a child finds open.
enum { CHILD_ID = 3, CHILD_RESULT = 4, CHILD_WANTED = 5 };
// A child that takes longer is ended.
enum { CHILD_SECONDS = 60 };

static const size_t wanted_bytes = (size_t)DEMO_TOKENS * DEMO_HIDDEN * sizeof(double);

static bool write_all(int fd, const void *data, size_t bytes)
{
    const char *from = data;
    while (bytes > 0) {
        ssize_t written = write(fd, from, bytes);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return false;
        }
        from += written;
        bytes -= (size_t)written;
    }
    return true;
}

// deadline: seconds of CLOCK_MONOTONIC, 0: none.
static bool read_all(int fd, void *data, size_t bytes, time_t deadline)
{
    char *to = data;
    while (bytes > 0) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        struct pollfd waiting = {.fd = fd, .events = POLLIN};
        int left_ms = deadline == 0 ? -1 : (int)(deadline - now.tv_sec) * 1000;
        if (deadline != 0 && left_ms <= 0) {
            return false;
        }
        int ready = poll(&waiting, 1, left_ms);
        ssize_t got = ready > 0 ? read(fd, to, bytes) : 0;
        if ((ready < 0 || got < 0) && errno == EINTR) {
            continue;
        }
        if (ready <= 0 || got <= 0) {
            return false;
        }
        to += got;
        bytes -= (size_t)got;
    }
    return true;
}

static void *run_thread(void *argument)
{
    demo_run_rank(argument);
    return NULL;
}

void demo_run_threads(struct demo_run *run, const double *wanted, bool counting)
{
    pthread_t threads[DEMO_MAX_RANKS];
    pthread_barrier_t barrier;
    ncclUniqueId id;
    if (ncclGetUniqueId(&id) != ncclSuccess) {
        (void)fprintf(stderr, "demo: %s\n", ncclGetLastError(NULL));
        return;
    }
    pthread_barrier_init(&barrier, NULL, (unsigned)run->nranks);
    for (int r = 0; r < run->nranks; r++) {
        run->rank[r] = (struct demo_rank){.rank = r,
                                          .nranks = run->nranks,
                                          .id = id,
                                          .wanted = wanted,
                                          .barrier = &barrier,
                                          .counting = counting,
                                          .traffic = counting && r == 0 ? &run->traffic : NULL};
        if (pthread_create(&threads[r], NULL, run_thread, &run->rank[r]) != 0) {
            (void)fprintf(stderr, "demo: cannot start a thread for rank %d\n", r);
            exit(1);
        }
    }
    for (int r = 0; r < run->nranks; r++) {
        pthread_join(threads[r], NULL);
    }
    pthread_barrier_destroy(&barrier);
    run->started = true;
}

// What a child sends back.
struct report {
    struct demo_outcome outcome[DEMO_WAYS];
    char text[256];
    struct demo_traffic traffic;
};

int demo_child_main(int rank, int nranks, bool counting)
{
    struct demo_rank self = {.rank = rank, .nranks = nranks, .counting = counting};
    static struct report report;
    if (!read_all(CHILD_ID, &self.id, sizeof self.id, 0)) {
        return 1;
    }
    if (counting) {
        self.traffic = &report.traffic;
    } else {
        void *wanted = mmap(NULL, wanted_bytes, PROT_READ, MAP_SHARED, CHILD_WANTED, 0);
        if (wanted == MAP_FAILED) {
            perror("demo: mmap");
            return 1;
        }
        self.wanted = wanted;
    }
    demo_run_rank(&self);
    memcpy(report.outcome, self.outcome, sizeof report.outcome);
    memcpy(report.text, self.text, sizeof report.text);
    return write_all(CHILD_RESULT, &report, sizeof report) ? 0 : 1;
}

struct child {
    pid_t pid;
    int id_fd, result_fd; // our ends
};

// Starts `path` with arguments, given descriptors at 3, 4 and 5 (-1: none).
static pid_t spawn(const char *path, char *const *arguments, const int descriptors[3])
{
    posix_spawn_file_actions_t actions;
    pid_t pid = -1;
    if (posix_spawn_file_actions_init(&actions) != 0) {
        return -1;
    }
    bool good = true;
    for (int i = 0; i < 3 && good; i++) {
        good = descriptors[i] < 0 ||
               posix_spawn_file_actions_adddup2(&actions, descriptors[i], CHILD_ID + i) == 0;
    }
    if (!good || posix_spawn(&pid, path, &actions, NULL, arguments, environ) != 0) {
        pid = -1;
    }
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

// A pipe whose ends are above the numbers that children use.
static bool make_pipe(int ends[2])
{
    int plain[2];
    if (pipe2(plain, O_CLOEXEC) != 0) {
        return false;
    }
    for (int i = 0; i < 2; i++) {
        ends[i] = fcntl(plain[i], F_DUPFD_CLOEXEC, 16);
        close(plain[i]);
    }
    return ends[0] >= 0 && ends[1] >= 0;
}

static struct child start_child(int rank, int nranks, int wanted_fd, bool counting)
{
    char rank_text[16], nranks_text[16];
    (void)snprintf(rank_text, sizeof rank_text, "%d", rank);
    (void)snprintf(nranks_text, sizeof nranks_text, "%d", nranks);
    char *arguments[] = {(char *)"tutti-demo",
                         (char *)"--child",
                         rank_text,
                         nranks_text,
                         counting ? (char *)"--counting" : NULL,
                         NULL};
    int id[2], result[2];
    struct child child = {-1, -1, -1};
    if (!make_pipe(id) || !make_pipe(result)) {
        return child;
    }
    const int descriptors[3] = {id[0], result[1], wanted_fd};
    child = (struct child){spawn("/proc/self/exe", arguments, descriptors), id[1], result[0]};
    close(id[0]);
    close(result[1]);
    return child;
}

static void add_traffic(struct demo_traffic *to, const struct demo_traffic *from)
{
    uint64_t *sum = (uint64_t *)to;
    const uint64_t *add = (const uint64_t *)from;
    for (size_t i = 0; i < sizeof *to / sizeof *sum; i++) {
        sum[i] += add[i];
    }
}

static void collect(struct demo_run *run, int rank, const struct child *child, time_t deadline)
{
    static struct report report;
    struct demo_rank *into = &run->rank[rank];
    *into = (struct demo_rank){.rank = rank, .nranks = run->nranks};
    if (child->pid < 0) {
        (void)snprintf(into->text, sizeof into->text, "the process could not be started");
        return;
    }
    if (read_all(child->result_fd, &report, sizeof report, deadline)) {
        memcpy(into->outcome, report.outcome, sizeof into->outcome);
        memcpy(into->text, report.text, sizeof into->text);
        add_traffic(&run->traffic, &report.traffic);
    } else {
        (void)snprintf(into->text, sizeof into->text, "the process ended or hung without a result");
        (void)kill(child->pid, SIGKILL);
    }
    int status;
    while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR) {
    }
    close(child->id_fd);
    close(child->result_fd);
}

void demo_run_processes(struct demo_run *run, int wanted_fd, bool counting)
{
    struct child children[DEMO_MAX_RANKS];
    ncclUniqueId id;
    if (ncclGetUniqueId(&id) != ncclSuccess) {
        (void)fprintf(stderr, "demo: %s\n", ncclGetLastError(NULL));
        return;
    }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    for (int r = 0; r < run->nranks; r++) {
        children[r] = start_child(r, run->nranks, wanted_fd, counting);
        (void)write_all(children[r].id_fd, &id, sizeof id);
    }
    for (int r = 0; r < run->nranks; r++) {
        collect(run, r, &children[r], now.tv_sec + CHILD_SECONDS);
    }
    run->started = true;
}

bool demo_count(struct demo_run *run)
{
    // The twin lies beside this program and has its name with "-count" behind.
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 16);
    if (length < 0) {
        return false;
    }
    memcpy(path + length, "-count", sizeof "-count");
    char nranks_text[16];
    (void)snprintf(nranks_text, sizeof nranks_text, "%d", run->nranks);
    char *arguments[] = {path, (char *)"--count", (char *)demo_mode_name(run->mode), nranks_text,
                         NULL};
    int result[2];
    if (!make_pipe(result)) {
        return false;
    }
    const int descriptors[3] = {-1, result[1], -1};
    pid_t pid = spawn(path, arguments, descriptors);
    close(result[1]);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    bool good = pid > 0 &&
                read_all(result[0], &run->traffic, sizeof run->traffic, now.tv_sec + CHILD_SECONDS);
    close(result[0]);
    if (pid > 0) {
        int status = 1;
        if (!good) {
            (void)kill(pid, SIGKILL);
        }
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
        good = good && status == 0;
    }
    return good;
}
