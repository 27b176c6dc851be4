// The soak: communicators live and die in random ways, for as long as it is told to, with results
// checked; what its processes hold of the system is the same at the end as after a warm-up.
//   soak [--seconds S] [--seed N] [--ranks R] [--first K]
// SPDX-License-Identifier: Apache-2.0
#include "soak.h"
#include "holdings.h"
#include "ranks.h"
#include "stopwatch.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <tutti.h>
#include <unistd.h>

enum { SCENARIO_S = 60, PROGRESS_S = 10, MOST_GUESTS = 2 };
enum { TOUCHED_BYTES = 6 << 20, REMEMBERED = 256 };
enum { LEAST = 12 }; // scenarios before the first look, and the same again before the last

static const char usage[] =
    "usage: soak [--seconds S] [--seed N] [--ranks R] [--first K]\n"
    "Communicators live and die in random ways; results, and what is left behind, are checked.\n"
    "  --seconds S  how long, 1 to 86400 (5); a fifth of it, at most 60 s, is the warm-up\n"
    "  --seed N     what is drawn from (the time); a seed draws the same scenarios each time\n"
    "  --ranks R    the most ranks of a team, 2 to 8 (8)\n"
    "  --first K    the number of the first scenario (0)\n";

struct options {
    int seconds;
    unsigned long seed;
    int ranks, first;
};

// For the processes of the soak: its options, and a descriptor of what they share.
static void export_options(const struct options *o, int descriptor)
{
    char text[120];
    (void)snprintf(text, sizeof text, "%d %lu %d %d %d", o->seconds, o->seed, o->ranks, o->first,
                   descriptor);
    (void)setenv("TUTTI_SOAK", text, 1);
}

static bool import_options(struct options *o)
{
    const char *text = getenv("TUTTI_SOAK");
    int descriptor = -1;
    if (text == NULL || sscanf(text, "%d %lu %d %d %d", &o->seconds, &o->seed, &o->ranks, &o->first,
                               &descriptor) != 5) { // NOLINT(cert-err34-c): own text
        return EXPECT(!"TUTTI_SOAK is there");
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    return EXPECT(shared != MAP_FAILED);
}

// So that what is freed is used again by other threads, and large pieces are mapped from the start.
static void set_malloc(void)
{
    (void)mallopt(M_ARENA_MAX, 1);
    (void)mallopt(M_MMAP_THRESHOLD, 128 << 10);
}

// ---- Guests -------------------------------------------------------------------------------------

static const char guest_option[] = "--guest"; // not for people

static pid_t start_guest(int player, int processes, int number)
{
    extern char **environ;
    char option[sizeof guest_option], text[80];
    char *arguments[] = {program_invocation_name, option, text, NULL};
    pid_t pid = -1;
    (void)snprintf(option, sizeof option, "%s", guest_option);
    (void)snprintf(text, sizeof text, "%d %d %d %d", player, processes, number, (int)getpid());
    EXPECT_EQ(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ), 0);
    return pid;
}

static int be_guest(const char *text)
{
    struct options options;
    int player, processes, number, parent;
    if (!EXPECT_EQ(sscanf(text, "%d %d %d %d", &player, &processes, &number, &parent), 4)) {
        return 1; // NOLINT(cert-err34-c): own text
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || !import_options(&options)) {
        return 1;
    }
    struct scenario s = draw_scenario(options.seed, number, processes, options.ranks);
    count_event(GUESTS);
    play(&s, player);
    return expect_failures() > 0;
}

// Kills them when they have begun, at a random moment.
static void kill_guests(const struct scenario *s, const pid_t *guests)
{
    struct draws draws = {s->draws.state + 7};
    struct stopwatch watch = stopwatch_start();
    while (atomic_load(&shared->begun) < s->guests &&
           EXPECT(stopwatch_is_within(&watch, SCENARIO_S))) {
        sleep_ms(1);
    }
    for (int i = 0; i < s->guests; i++) {
        sleep_ms((int)draw_size(&draws, 200));
        EXPECT_EQ(kill(guests[i], SIGKILL), 0);
        count_event(KILLS);
    }
}

static void reap_guests(const struct scenario *s, const pid_t *guests)
{
    for (int i = 0; i < s->guests; i++) {
        int status = -1;
        EXPECT_EQ(waitpid(guests[i], &status, 0), guests[i]);
        if (s->is_deadly) {
            EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        } else {
            EXPECT_EQ(status, 0);
        }
    }
}

// ---- Scenarios ----------------------------------------------------------------------------------

struct part {
    const struct scenario *scenario;
    int index;
    pthread_t thread;
    bool is_there;
};

static void *play_part(void *argument)
{
    const struct part *part = argument;
    play(part->scenario, part->index);
    return NULL;
}

static void await_parts(struct part *parts, int count)
{
    struct stopwatch watch = stopwatch_start();
    for (int i = 0; i < count; i++) {
        while (parts[i].is_there) {
            struct timespec until;
            (void)clock_gettime(CLOCK_REALTIME, &until);
            until.tv_sec++;
            parts[i].is_there = pthread_timedjoin_np(parts[i].thread, NULL, &until) != 0;
            if (parts[i].is_there && !stopwatch_is_within(&watch, SCENARIO_S)) {
                fprintf(stderr, "scenario %d hangs: player %d still plays\n",
                        parts[i].scenario->number, parts[i].index);
                (void)tuttiDumpState(NULL, NULL);
                if (getenv("TUTTI_SOAK_HOLD") != NULL) {
                    sleep_ms(1 << 30);
                }
                _exit(1);
            }
        }
    }
}

// This process's part in a scenario.
static void perform(const struct scenario *s, int process)
{
    struct part parts[MOST_RANKS] = {{0}};
    pid_t guests[MOST_GUESTS] = {0};
    int first = 0;
    for (int i = 0; i < process; i++) {
        first += s->threads[i];
    }
    for (int i = 0; process == 0 && i < s->guests; i++) {
        guests[i] = start_guest(s->size - s->guests + i, s->processes, s->number);
    }
    for (int i = 0; i < s->threads[process]; i++) {
        parts[i] = (struct part){.scenario = s, .index = first + i, .is_there = true};
        EXPECT_EQ(pthread_create(&parts[i].thread, NULL, play_part, &parts[i]), 0);
    }
    if (process == 0 && s->is_deadly) {
        kill_guests(s, guests);
        reap_guests(s, guests);
        atomic_store(&shared->killed, 1);
    }
    await_parts(parts, s->threads[process]);
    if (process == 0 && !s->is_deadly) {
        reap_guests(s, guests);
    }
}

// ---- Processes that stay ------------------------------------------------------------------------

static void print_progress(double seconds)
{
    static const char *const names[EVENTS] = {"scenarios", "steps",   "communicators", "aborts",
                                              "kills",     "shrinks", "guests"};
    printf("%6.0f s:", seconds);
    for (int i = 0; i < EVENTS; i++) {
        printf("%s %ld %s", i == 0 ? "" : ",", atomic_load(&shared->events[i]), names[i]);
    }
    printf("\n");
}

// Compares with `first`; what ends by itself, threads and roots that have heard of ends, has some
// seconds for that. Prints a line.
static bool compare(const struct holdings *first, bool with_devices, const char *title,
                    struct holdings *now)
{
    struct stopwatch watch = stopwatch_start();
    *now = take_holdings(with_devices);
    while (!holdings_are_kept(first, now) && stopwatch_is_within(&watch, 3)) {
        sleep_ms(50);
        *now = take_holdings(with_devices);
    }
    print_holdings(title, first, now);
    fflush(stdout);
    return holdings_are_kept(first, now);
}

// Of what the last scenario has left nothing matters.
static void begin_scenario(void)
{
    atomic_store(&shared->arrived, 0);
    atomic_store(&shared->has_ids, 0);
    atomic_store(&shared->begun, 0);
    atomic_store(&shared->killed, 0);
    count_event(SCENARIOS);
}

struct slowest {
    int number;
    double seconds;
};

static void note_time(struct slowest *slowest, int number, double seconds)
{
    if (seconds > slowest->seconds) {
        *slowest = (struct slowest){number, seconds};
    }
}

enum order { GO_ON, WARM, LOOK, STOP };

// What process 0 tells the others after a scenario, by the clock.
static enum order decide(const struct options *o, const struct stopwatch *watch, bool is_warm,
                         double *next_look)
{
    double now = stopwatch_s(watch), warm = o->seconds / 5.0;
    long done = atomic_load(&shared->events[SCENARIOS]);
    if (!is_warm) {
        *next_look = now + PROGRESS_S;
        return now >= (warm < 60 ? warm : 60) && done >= LEAST ? WARM : GO_ON;
    }
    if (now >= o->seconds && done >= 2 * LEAST) {
        return STOP;
    }
    if (now < *next_look) {
        return GO_ON;
    }
    *next_look = now + (o->seconds > 300 ? 6 : 1) * PROGRESS_S;
    return LOOK;
}

// What each device needs once, so that it is not taken for something left behind; and pages of the
// segments that device memory is cut from, more than a scenario uses: they stay once touched.
static void warm_devices(void)
{
    int devices = 0;
    EXPECT_CUDA(cudaGetDeviceCount(&devices));
    for (int i = 0; i < devices; i++) {
        void *memory[3] = {NULL, NULL, NULL};
        cudaStream_t stream;
        EXPECT_CUDA(cudaSetDevice(i));
        EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        EXPECT_CUDA(cudaMalloc(&memory[0], TOUCHED_BYTES));
        EXPECT_OK(ncclMemAlloc(&memory[1], 1 << 20));
        EXPECT_CUDA(cudaMallocHost(&memory[2], 1 << 20));
        EXPECT_CUDA(cudaMemsetAsync(memory[0], 1, TOUCHED_BYTES, stream));
        EXPECT_CUDA(cudaMemcpyAsync(memory[0], memory[1], 1 << 20, cudaMemcpyDefault, stream));
        EXPECT_CUDA(cudaStreamSynchronize(stream));
        EXPECT_CUDA(cudaFree(memory[0]));
        EXPECT_OK(ncclMemFree(memory[1]));
        EXPECT_CUDA(cudaFreeHost(memory[2]));
        EXPECT_CUDA(cudaStreamDestroy(stream));
    }
    EXPECT_CUDA(cudaSetDevice(0));
}

// The library remembers the last 256 communicators that ended, so that a handle of theirs is an
// error, and leaves the flags of 256 that were aborted raised; the runtime remembers 256 windows:
// now as many as ever.
static void fill_memories(void)
{
    ncclUniqueId id;
    ncclComm_t parent = NULL;
    void *memory = NULL;
    EXPECT_OK(ncclGetUniqueId(&id));
    EXPECT_OK(ncclCommInitRank(&parent, 1, id, 0));
    EXPECT_OK(ncclMemAlloc(&memory, 1 << 20));
    for (int i = 0; i < REMEMBERED; i++) {
        ncclComm_t child = NULL;
        ncclWindow_t window = NULL;
        EXPECT_OK(ncclCommSplit(parent, 0, 0, &child, NULL));
        EXPECT_OK(ncclCommWindowRegister(parent, memory, 1 << 20, &window, NCCL_WIN_DEFAULT));
        EXPECT_OK(ncclCommWindowDeregister(parent, window));
        EXPECT_OK(ncclCommAbort(child));
    }
    EXPECT_OK(ncclMemFree(memory));
    EXPECT_OK(ncclCommDestroy(parent));
}

// What a process held when it was warm, and since.
struct held {
    struct holdings first;
    double first_s;
    struct course course;
};

// A look at what this process holds: the first, or compared with it. Each process prints a line.
static void look(enum order order, int process, const struct options *o,
                 const struct stopwatch *watch, struct held *held)
{
    char title[80];
    struct holdings now;
    if (order == WARM) {
        sleep_ms(300); // roots have heard of the last ends
        fill_memories();
        held->first = take_holdings(true);
        held->first_s = stopwatch_s(watch);
        return;
    }
    double seconds = stopwatch_s(watch);
    if (process == 0) {
        print_progress(seconds);
    }
    ranks_barrier();
    (void)snprintf(title, sizeof title, "%s process %d", order == STOP ? "at the end" : "now",
                   process);
    EXPECT(compare(&held->first, true, title, &now));
    add_to_course(&held->course, (seconds - held->first_s) / (o->seconds - held->first_s), &now);
    if (order == STOP) {
        print_course(title, &held->course);
    }
}

static void stay(int process, int processes)
{
    struct options options;
    struct stopwatch watch = stopwatch_start();
    struct held held = {.first_s = 0};
    struct slowest slowest = {0, 0};
    double next_look = 0;
    bool is_warm = false;
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    set_malloc();
    if (!import_options(&options)) {
        return;
    }
    warm_devices();
    for (int number = options.first;; number++) {
        struct scenario s = draw_scenario(options.seed, number, processes, options.ranks);
        enum order order = GO_ON;
        if (process == 0) {
            begin_scenario();
            order = decide(&options, &watch, is_warm, &next_look);
        }
        ranks_broadcast(&order, sizeof order);
        if (order != GO_ON) {
            look(order, process, &options, &watch, &held);
            is_warm = true;
        }
        ranks_barrier();
        if (order == STOP) {
            break;
        }
        double start = stopwatch_s(&watch);
        perform(&s, process);
        end_if_failed(&s);
        ranks_barrier();
        note_time(&slowest, number, stopwatch_s(&watch) - start);
    }
    if (process == 0) {
        printf("  the slowest scenario, %d, took %.1f s\n", slowest.number, slowest.seconds);
    }
}

// ---- The program --------------------------------------------------------------------------------

static bool read_number(const char *text, unsigned long least, unsigned long most,
                        unsigned long *out)
{
    char *end;
    errno = 0;
    *out = strtoul(text, &end, 10);
    return errno == 0 && end != text && *end == 0 && *out >= least && *out <= most;
}

static bool read_options(int argc, char **argv, struct options *o)
{
    for (int i = 1; i < argc; i += 2) {
        unsigned long number = 0;
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--seconds") == 0 && read_number(value, 1, 86400, &number)) {
            o->seconds = (int)number;
        } else if (strcmp(argv[i], "--seed") == 0 && read_number(value, 0, 1u << 31, &number)) {
            o->seed = number;
        } else if (strcmp(argv[i], "--ranks") == 0 && read_number(value, 2, MOST_RANKS, &number)) {
            o->ranks = (int)number;
        } else if (strcmp(argv[i], "--first") == 0 && read_number(value, 0, 1u << 30, &number)) {
            o->first = (int)number;
        } else {
            fprintf(stderr, "soak: not understood: %s %s\n%s", argv[i], value, usage);
            return false;
        }
    }
    return true;
}

static struct options options = {.seconds = 5, .ranks = 8};

static void soak(void)
{
    int descriptor = memfd_create("tutti-soak", 0), processes = 3; // inherited
    if (!EXPECT(descriptor >= 0) || !EXPECT_EQ(ftruncate(descriptor, sizeof *shared), 0)) {
        return;
    }
    processes = options.ranks < processes ? options.ranks : processes;
    printf("soak: %d s, --seed %lu --ranks %d, %d processes that stay\n", options.seconds,
           options.seed, options.ranks, processes);
    export_options(&options, descriptor);
    struct holdings first = take_holdings(false), last;
    run_ranks(processes, stay, options.seconds * 2 + 10 * SCENARIO_S);
    EXPECT(compare(&first, false, "driver", &last));
    close(descriptor);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], guest_option) == 0) {
        return be_guest(argv[2]);
    }
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        printf("%s", usage);
        return 0;
    }
    options.seed = (unsigned long)time(NULL);
    (void)setenv("VGPU_OVERCOMMIT", "1", 1); // what is free on a device is then of this process
    // What threads keep of freed memory would count as given out.
    (void)setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1);
    if (!read_options(argc, argv, &options)) {
        return 2;
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    RUN(soak);
    return expect_result();
}
