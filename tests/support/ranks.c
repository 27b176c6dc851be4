// Ranks as processes and threads (see ranks.h). A rank process is this program started again by
// posix_spawn with the function's offset, its rank and a shared memory descriptor in the
// environment; a constructor, linked last, sees them, runs the function instead of main, and exits.
// Rank processes die with their parent (PR_SET_PDEATHSIG). SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "ranks.h"

#include "expect.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// What the ranks of one run share. `broken` is set when a rank ended badly: barriers then give up.
struct shared {
    atomic_int arrived;
    atomic_int generation;
    atomic_int broken;
    atomic_int pids[RANKS_MAX];     // of rank processes
    atomic_llong cpu_ns[RANKS_MAX]; // their CPU time, as last seen
    int size;
    unsigned char data[RANKS_SHARED_BYTES];
};

struct thread_run {
    struct shared *shared;
    rank_function function;
    int rank;
    atomic_int done;
    pthread_t thread;
};

static _Thread_local struct shared *my_run;
static _Thread_local int my_rank;
static struct shared *process_run; // of this process, where it is a rank

extern const char __ehdr_start[]; // where the linker put this program's ELF header
extern const char etext[];        // end of its code

static double now_s(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void sleep_ms(int milliseconds)
{
    struct timespec time = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
    nanosleep(&time, NULL);
}

void ranks_barrier(void)
{
    struct shared *run = my_run;
    if (!run) {
        fprintf(stderr, "ranks_barrier: this thread is not a rank\n");
        abort();
    }
    int generation = atomic_load(&run->generation);
    if (atomic_fetch_add(&run->arrived, 1) + 1 == run->size) {
        atomic_store(&run->arrived, 0);
        atomic_store(&run->generation, generation + 1);
        return;
    }
    for (int spins = 0; atomic_load(&run->generation) == generation; spins++) {
        if (atomic_load(&run->broken)) {
            fprintf(stderr, "rank %d: gives up at a test barrier: another rank has failed\n",
                    my_rank);
            fflush(NULL);
            _exit(1);
        }
        if (spins < 1000) {
            sched_yield();
        } else {
            sleep_ms(1);
        }
    }
}

void ranks_broadcast(void *data, size_t bytes)
{
    if (bytes > RANKS_SHARED_BYTES) {
        fprintf(stderr, "ranks_broadcast: %zu bytes, at most %d\n", bytes, RANKS_SHARED_BYTES);
        abort();
    }
    if (my_rank == 0 && my_run) {
        memcpy(my_run->data, data, bytes);
    }
    ranks_barrier();
    memcpy(data, my_run->data, bytes);
    ranks_barrier();
}

void ranks_gather(const void *mine, void *all_out, size_t bytes)
{
    if (!my_run || bytes * (size_t)my_run->size > RANKS_SHARED_BYTES) {
        fprintf(stderr, "ranks_gather: not a rank, or more than %d bytes in all\n",
                RANKS_SHARED_BYTES);
        abort();
    }
    memcpy(my_run->data + (size_t)my_rank * bytes, mine, bytes);
    ranks_barrier();
    memcpy(all_out, my_run->data, bytes * (size_t)my_run->size);
    ranks_barrier();
}

double ranks_cpu_s(void)
{
    struct timespec time;
    clockid_t clock;
    long long ns = 0;
    if (process_run == NULL) {
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
        return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
    }
    for (int rank = 0; rank < process_run->size; rank++) {
        pid_t pid = atomic_load(&process_run->pids[rank]);
        if (pid != 0 && clock_getcpuclockid(pid, &clock) == 0 && clock_gettime(clock, &time) == 0) {
            atomic_store(&process_run->cpu_ns[rank], time.tv_sec * 1000000000LL + time.tv_nsec);
        }
        ns += atomic_load(&process_run->cpu_ns[rank]);
    }
    return (double)ns * 1e-9;
}

// In a started rank process: runs the function that the parent named, then exits. In any other
// program: nothing.
__attribute__((constructor)) static void become_rank(void)
{
    const char *text = getenv("TUTTI_TEST_RANK");
    if (!text) {
        return;
    }
    uintptr_t offset = 0;
    int size = 0;
    int descriptor = -1;
    int parent = 0;
    if (sscanf(text, "%d %d %d %d %zx", &my_rank, &size, &descriptor, &parent, &offset) != 5) {
        fprintf(stderr, "TUTTI_TEST_RANK: malformed: %s\n", text);
        _exit(1);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    unsetenv("TUTTI_TEST_RANK");
    my_run = mmap(NULL, sizeof *my_run, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (my_run == MAP_FAILED) {
        perror("rank: map the shared memory of the run");
        _exit(1);
    }
    close(descriptor);
    process_run = my_run;
    atomic_store(&my_run->pids[my_rank], getpid());
    expect_set_rank(my_rank);
    ((rank_function)(uintptr_t)(__ehdr_start + offset))(my_rank, size);
    exit(expect_result());
}

// Starts one rank in process group `group` (0: a new one). Returns the process id, or -1 with errno
// set.
static pid_t start_rank(int rank, int size, uintptr_t offset, int descriptor, pid_t group)
{
    char variable[160];
    snprintf(variable, sizeof variable, "TUTTI_TEST_RANK=%d %d %d %d %zx", rank, size, descriptor,
             (int)getpid(), offset);
    size_t count = 0;
    while (environ[count]) {
        count++;
    }
    char **variables = malloc((count + 2) * sizeof *variables);
    if (!variables) {
        return -1;
    }
    memcpy(variables, environ, count * sizeof *variables);
    variables[count] = variable;
    variables[count + 1] = NULL;
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&attributes, group);
    char *arguments[] = {program_invocation_name, NULL};
    pid_t pid = -1;
    int error = posix_spawn(&pid, "/proc/self/exe", NULL, &attributes, arguments, variables);
    posix_spawnattr_destroy(&attributes);
    free(variables);
    errno = error;
    return error ? -1 : pid;
}

// Notes the ranks that have ended since the last look; returns how many. A rank that ended badly
// sets run->broken where judge is true.
static int reap(struct shared *run, const pid_t *pids, int *statuses, bool *ended, bool judge)
{
    int found = 0;
    for (int rank = 0; rank < run->size; rank++) {
        if (ended[rank] || waitpid(pids[rank], &statuses[rank], WNOHANG) != pids[rank]) {
            continue;
        }
        ended[rank] = true;
        found++;
        if (judge && statuses[rank] != 0) {
            atomic_store(&run->broken, 1);
        }
    }
    return found;
}

// Waits until all `n` processes ended or the deadline passed; then kills the group. Returns the
// number that had to be killed.
static int collect(struct shared *run, const pid_t *pids, int *statuses, double deadline,
                   bool judge)
{
    int n = run->size;
    int left = n;
    bool *ended = calloc((size_t)n, sizeof *ended);
    if (!ended) {
        abort();
    }
    while (left > 0 && now_s() < deadline) {
        int found = reap(run, pids, statuses, ended, judge);
        left -= found;
        if (found == 0) {
            sleep_ms(2);
        }
    }
    if (left > 0) {
        kill(-pids[0], SIGKILL);
    }
    for (int rank = 0; rank < n; rank++) {
        if (!ended[rank]) {
            waitpid(pids[rank], &statuses[rank], 0);
            statuses[rank] = -1;
        }
    }
    free(ended);
    return left;
}

// Starts the ranks and collects their statuses; -1 where it failed to start, else as collect().
static int run_processes(int n, rank_function function, int timeout_s, int *statuses, bool judge)
{
    const char *code = (const char *)(uintptr_t)function;
    if (!EXPECT(n >= 1 && n <= RANKS_MAX) || !EXPECT(code > __ehdr_start && code < etext)) {
        return -1;
    }
    double deadline = now_s() + timeout_s;
    int descriptor = memfd_create("tutti-test-run", 0); // inherited: not close-on-exec
    struct shared *run = MAP_FAILED;
    if (descriptor >= 0 && ftruncate(descriptor, sizeof *run) == 0) {
        run = mmap(NULL, sizeof *run, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    }
    pid_t *pids = calloc((size_t)n, sizeof *pids);
    if (run == MAP_FAILED || !pids) {
        perror("run_ranks: shared memory of the run");
        abort();
    }
    run->size = n;
    fflush(NULL);
    int started = 0;
    while (started < n) {
        pids[started] = start_rank(started, n, (uintptr_t)(code - __ehdr_start), descriptor,
                                   started ? pids[0] : 0);
        if (pids[started] < 0) {
            fprintf(stderr, "run_ranks: start rank %d of %d: %s\n", started, n, strerror(errno));
            break;
        }
        started++;
    }
    close(descriptor);
    run->size = started;
    int killed = started ? collect(run, pids, statuses, started < n ? 0 : deadline, judge) : 0;
    munmap(run, sizeof *run);
    free(pids);
    return EXPECT(started == n) ? killed : -1;
}

bool run_ranks_status(int n, rank_function function, int timeout_s, int *statuses_out)
{
    int killed = run_processes(n, function, timeout_s, statuses_out, false);
    if (killed > 0) {
        fprintf(stderr, "%d of %d ranks still ran after %d s and were killed\n", killed, n,
                timeout_s);
    }
    return EXPECT(killed == 0);
}

// Says how rank `rank` ended; true when it passed or skipped.
static bool judge_rank(int rank, int n, int timeout_s, int status)
{
    if (status == -1) {
        fprintf(stderr, "rank %d of %d still ran after %d s and was killed\n", rank, n, timeout_s);
        return false;
    }
    if (WIFSIGNALED(status)) {
        fprintf(stderr, "rank %d of %d crashed: signal %d (%s)\n", rank, n, WTERMSIG(status),
                strsignal(WTERMSIG(status)));
        return false;
    }
    if (WEXITSTATUS(status) == 77) {
        return true;
    }
    if (WEXITSTATUS(status) != 0) {
        fprintf(stderr, "rank %d of %d failed: exit status %d\n", rank, n, WEXITSTATUS(status));
        return false;
    }
    return true;
}

bool run_ranks(int n, rank_function function, int timeout_s)
{
    int statuses[RANKS_MAX] = {0};
    if (run_processes(n, function, timeout_s, statuses, true) < 0) {
        return false;
    }
    int failed = 0;
    int skipped = 0;
    for (int rank = 0; rank < n; rank++) {
        failed += !judge_rank(rank, n, timeout_s, statuses[rank]);
        skipped +=
            statuses[rank] != -1 && WIFEXITED(statuses[rank]) && WEXITSTATUS(statuses[rank]) == 77;
    }
    if (!failed && skipped) {
        SKIP("ranks skipped (reason above)");
        return true;
    }
    return EXPECT_EQ(failed, 0);
}

static void *thread_rank_main(void *argument)
{
    struct thread_run *run = argument;
    my_run = run->shared;
    my_rank = run->rank;
    expect_set_rank(run->rank);
    int before = expect_failures();
    run->function(run->rank, run->shared->size);
    if (expect_failures() > before) {
        atomic_store(&run->shared->broken, 1);
    }
    atomic_store(&run->done, 1);
    return NULL;
}

// Waits for all threads; past the deadline names the late ones and ends the program.
static void join_threads(struct thread_run *runs, int n, int timeout_s)
{
    double deadline = now_s() + timeout_s;
    int left = n;
    while (left > 0 && now_s() < deadline) {
        left = 0;
        for (int rank = 0; rank < n; rank++) {
            left += !atomic_load(&runs[rank].done);
        }
        if (left > 0) {
            sleep_ms(1);
        }
    }
    for (int rank = 0; rank < n; rank++) {
        if (!atomic_load(&runs[rank].done)) {
            fprintf(stderr, "rank %d of %d still ran after %d s\n", rank, n, timeout_s);
        }
    }
    if (left > 0) {
        fflush(NULL);
        _exit(1);
    }
    for (int rank = 0; rank < n; rank++) {
        pthread_join(runs[rank].thread, NULL);
    }
}

bool run_thread_ranks(int n, rank_function function, int timeout_s)
{
    if (!EXPECT(n >= 1 && n <= RANKS_MAX)) {
        return false;
    }
    int before = expect_failures();
    struct shared *shared = calloc(1, sizeof *shared);
    struct thread_run *runs = calloc((size_t)n, sizeof *runs);
    if (!shared || !runs) {
        abort();
    }
    shared->size = n;
    for (int rank = 0; rank < n; rank++) {
        runs[rank].shared = shared;
        runs[rank].function = function;
        runs[rank].rank = rank;
        int error = pthread_create(&runs[rank].thread, NULL, thread_rank_main, &runs[rank]);
        if (error) {
            fprintf(stderr, "run_thread_ranks: start rank %d: %s\n", rank, strerror(error));
            _exit(1);
        }
    }
    join_threads(runs, n, timeout_s);
    free(runs);
    free(shared);
    return EXPECT_EQ(expect_failures(), before);
}
