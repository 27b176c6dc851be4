// What a program can learn of ranks that wait: tuttiDumpState and the signal that does the same;
// and of those that waited: TUTTI_TRACE and TUTTI_SUMMARY. Of every kind of operation.
// SPDX-License-Identifier: Apache-2.0
#include "json.h"
#include "member.h"
#include "stopwatch.h"

#include <tutti.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RANKS = 3, COUNT = 1000, LATE = 2 };

static char folder[] = "/tmp/tutti-state-XXXXXX"; // of this test's files; ranks: in the environment

static void path_of(const char *name, char *path, size_t bytes)
{
    (void)snprintf(path, bytes, "%s/%s", getenv("STATE_TEST_FOLDER"), name);
}

// A file's text, to be freed; "" where there is none.
static char *read_file(const char *path)
{
    enum { MOST = 1 << 20 };
    char *text = calloc(1, MOST);
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        (void)!fread(text, 1, MOST - 1, file);
        EXPECT_EQ(fclose(file), 0);
    }
    return text;
}

// Waits until the file has `part`, 10 s at most.
static void expect_in_file(const char *path, const char *part)
{
    char *text = read_file(path);
    struct stopwatch watch = stopwatch_start();
    while (strstr(text, part) == NULL && stopwatch_is_within(&watch, 10)) {
        usleep(10000);
        free(text);
        text = read_file(path);
    }
    EXPECT_CONTAINS(text, part);
    free(text);
}

static void all_reduce(const struct member *m, float *memory)
{
    EXPECT_OK(ncclAllReduce(memory, memory, COUNT, ncclFloat32, ncclSum, m->comm, m->stream));
}

// Two operations of all; then the last rank comes late to the third, and rank 0 looks meanwhile.
static void one_comes_late(int rank, int size)
{
    struct member m;
    float *memory = NULL;
    char path[200];
    path_of(rank == 0 ? "0.txt" : "other.txt", path, sizeof path);
    if (!member_join(&m, rank, size) ||
        !EXPECT_CUDA(cudaMalloc((void **)&memory, COUNT * sizeof *memory))) {
        return;
    }
    EXPECT_CUDA(cudaMemset(memory, 0, COUNT * sizeof *memory));
    for (int i = 0; i < 2; i++) {
        all_reduce(&m, memory);
    }
    EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    if (rank != LATE) {
        all_reduce(&m, memory);
    }
    usleep(50000);
    ranks_barrier();
    if (rank == 0) {
        EXPECT_OK(tuttiDumpState(m.comm, path));
        char *text = read_file(path);
        EXPECT_CONTAINS(text, "rank 0 of 3");
        EXPECT_CONTAINS(text, "  is in #3 AllReduce(count 1000, float32, sum) for ");
        EXPECT_CONTAINS(text, "waits for:\n    rank 2: its last one was AllReduce(count 1000, "
                              "float32, sum) #2\n");
        EXPECT_CONTAINS(text, "    ended  #2 AllReduce(count 1000, float32, sum), called ");
        free(text);
        EXPECT_EQ(tuttiDumpState((ncclComm_t)(void *)&m, path), ncclInvalidArgument);
        EXPECT_EQ(tuttiDumpState(m.comm, "/no such folder/state"), ncclSystemError);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "/no such folder/state");
    }
    if (getenv("TUTTI_DUMP_SIGNAL") != NULL && rank == 1) {
        path_of("signal.1", path, sizeof path);
        EXPECT_EQ(kill(getpid(), SIGUSR2), 0);
        expect_in_file(path, "is in #3 AllReduce(");
        expect_in_file(path, "rank 2: its last one was AllReduce(");
    }
    ranks_barrier();
    if (rank == LATE) {
        all_reduce(&m, memory);
    }
    EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    EXPECT_CUDA(cudaFree(memory));
    member_leave(&m);
}

static void remove_files(void)
{
    static const char *const names[] = {"0.txt",        "other.txt",    "signal.0",
                                        "signal.1",     "trace.0.json", "trace.1.json",
                                        "trace.2.json", "trace.json"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[200];
        path_of(names[i], path, sizeof path);
        (void)unlink(path);
    }
}

static void of_threads(void)
{
    run_thread_ranks(RANKS, one_comes_late, 60);
    remove_files();
}

static void of_processes_and_by_signal(void)
{
    char path[200];
    path_of("signal.%r", path, sizeof path);
    setenv("TUTTI_DUMP_SIGNAL", "USR2", 1);
    setenv("TUTTI_DUMP_FILE", path, 1);
    run_ranks(RANKS, one_comes_late, 60);
    unsetenv("TUTTI_DUMP_SIGNAL");
    unsetenv("TUTTI_DUMP_FILE");
    remove_files();
}

// Rank `rank`'s trace, to be freed, and its events.
static struct json *read_trace(int rank, const struct json **events_out)
{
    char name[32], path[200];
    size_t wrong;
    (void)snprintf(name, sizeof name, "trace.%d.json", rank);
    path_of(name, path, sizeof path);
    char *text = read_file(path);
    struct json *trace = json_parse(text, &wrong);
    free(text);
    *events_out = json_get(trace, "traceEvents");
    EXPECT(*events_out != NULL && (*events_out)->kind == JSON_ARRAY);
    return trace;
}

// How many all-reduces, and who was waited for in the third.
static void check_trace(int rank)
{
    const struct json *events;
    struct json *trace = read_trace(rank, &events);
    int operations = 0, long_waits = 0;
    for (const struct json *e = events != NULL ? events->first : NULL; e != NULL; e = e->next) {
        operations += strcmp(json_string(e, "name", ""), "AllReduce") == 0;
        long_waits += strcmp(json_string(e, "name", ""), "wait for rank 2") == 0 &&
                      json_number(e, "dur", 0) > 40000;
    }
    EXPECT_EQ(operations, 3);
    EXPECT_EQ(long_waits, rank == LATE ? 0 : 1);
    json_free(trace);
}

// Each rank writes one.
static void run_traced(rank_function function)
{
    char path[200];
    path_of("trace.json", path, sizeof path);
    setenv("TUTTI_TRACE", path, 1);
    run_ranks(RANKS, function, 60);
    unsetenv("TUTTI_TRACE");
}

static void traces_of_processes(void)
{
    run_traced(one_comes_late);
    for (int rank = 0; rank < RANKS; rank++) {
        check_trace(rank);
    }
    remove_files();
}

// ---- Puts, signals, waits for them, uneven sizes ------------------------------------------------

static void dump_contains(const struct member *m, const char *const *texts)
{
    char name[16], path[200];
    (void)snprintf(name, sizeof name, "forms.%d.txt", m->rank);
    path_of(name, path, sizeof path);
    EXPECT_OK(tuttiDumpState(m->comm, path));
    char *text = read_file(path);
    for (; *texts != NULL; texts++) {
        EXPECT_CONTAINS(text, *texts);
    }
    free(text);
    (void)unlink(path);
}

// Rank r gives r + 1 numbers to all, and to rank 0; rank 1 waits for a put and a signal of rank 0,
// which comes 50 ms late; rank 2 for a message that comes when it has looked.
static void many_forms(int rank, int size)
{
    static const char *const texts[RANKS][6] = {
        {"is in no operation", "ended  #1 AllGatherV(int32), ",
         "ended  #2 GatherV(count 1, int32, root 0), ",
         "ended  #1 PutSignal(count 5, int32, to rank 1), ", "ended  #2 Signal(to rank 1), "},
        {"ended  #2 GatherV(count 2, int32, root 0), ",
         "ended  #1 WaitSignal(2 signals, from rank 0), ", ", for rank 0 last\n"},
        {"is in #1 Recv(count 5, int32, from rank 0) for ",
         "; waits for:\n    rank 0: in collectives its last one was GatherV(",
         "ended  #2 GatherV(count 3, int32, root 0), "}};
    struct member m;
    size_t counts[RANKS] = {1, 2, 3};
    ncclWaitSignalDesc_t wait = {.opCnt = 2, .peer = 0};
    if (!member_join(&m, rank, size) || !member_open_window(&m, 4096)) {
        return;
    }
    char *recv = m.memory + 1024;
    EXPECT_OK(
        tuttiAllGatherV(m.memory, counts[rank], recv, counts, NULL, ncclInt, m.comm, m.stream));
    EXPECT_OK(
        tuttiGatherV(m.memory, counts[rank], recv, counts, NULL, ncclInt, 0, m.comm, m.stream));
    EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    ranks_barrier();
    if (rank == 0) {
        usleep(50000);
        EXPECT_OK(ncclPutSignal(m.memory, 5, ncclInt, 1, m.window, 512, 0, 0, 0, m.comm, m.stream));
        EXPECT_OK(ncclSignal(1, 0, 0, 0, m.comm, m.stream));
    } else if (rank == 1) {
        EXPECT_OK(ncclWaitSignal(1, &wait, m.comm, m.stream));
    } else {
        EXPECT_OK(ncclRecv(recv, 5, ncclInt, 0, m.comm, m.stream));
    }
    if (rank != 2) {
        EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    }
    dump_contains(&m, texts[rank]);
    ranks_barrier();
    if (rank == 0) {
        EXPECT_OK(ncclSend(m.memory, 5, ncclInt, 2, m.comm, m.stream));
    }
    EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    member_leave(&m);
}

// The one slice of this name: its count, bytes and peer; -1 where it has none.
static void expect_slice(int rank, const char *name, const char *kind, const int numbers[3])
{
    static const char *const names[3] = {"count", "bytes", "peer"};
    const struct json *events;
    struct json *trace = read_trace(rank, &events);
    int found = 0;
    for (const struct json *e = events != NULL ? events->first : NULL; e != NULL; e = e->next) {
        if (strcmp(json_string(e, "name", ""), name) != 0) {
            continue;
        }
        found++;
        EXPECT_STR(json_string(e, "cat", ""), kind);
        for (int i = 0; i < 3; i++) {
            EXPECT_EQ(json_number(json_get(e, "args"), names[i], -1), numbers[i]);
        }
        EXPECT(strcmp(name, "WaitSignal") != 0 || json_number(e, "dur", 0) > 40000);
    }
    EXPECT_EQ(found, 1);
    json_free(trace);
}

static void forms_of_operations(void)
{
    run_traced(many_forms);
    for (int rank = 0; rank < RANKS; rank++) {
        expect_slice(rank, "AllGatherV", "collective", (int[]){-1, -1, -1});
        expect_slice(rank, "GatherV", "collective", (int[]){rank + 1, 4 * (rank + 1), -1});
    }
    expect_slice(0, "PutSignal", "pair", (int[]){5, 20, 1});
    expect_slice(0, "Signal", "pair", (int[]){0, 0, 1});
    expect_slice(1, "WaitSignal", "pair", (int[]){2, 0, 0});
    remove_files();
}

static void states_that_cannot_be_written(void)
{
    EXPECT_EQ(tuttiDumpState(NULL, "/dev/full"), ncclSystemError);
    EXPECT_STR(ncclGetLastError(NULL),
               "tuttiDumpState: cannot write /dev/full: No space left on device");
    EXPECT_EQ(tuttiDumpState(NULL, folder), ncclSystemError);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "tuttiDumpState: cannot write ");
    EXPECT_CONTAINS(ncclGetLastError(NULL), ": Is a directory");
}

static void only_join(int rank, int size)
{
    struct member m;
    if (member_join(&m, rank, size)) {
        member_leave(&m);
    }
}

// What is no file gets none beside it.
static void traces_of_processes_to_no_file(void)
{
    char path[200], beside[220];
    path_of("folder", path, sizeof path);
    EXPECT_EQ(mkdir(path, 0700), 0);
    setenv("TUTTI_TRACE", path, 1);
    run_ranks(2, only_join, 30);
    unsetenv("TUTTI_TRACE");
    for (int rank = 0; rank < 2; rank++) {
        (void)snprintf(beside, sizeof beside, "%s.%d", path, rank);
        EXPECT(access(beside, F_OK) != 0);
    }
    EXPECT_EQ(rmdir(path), 0); // empty
}

// A communicator that is being made, or could not be.
static void states_of_the_unmade(void)
{
    char path[200];
    ncclComm_t comm = NULL, twin = NULL;
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t state = ncclInProgress;
    config.blocking = 0;
    path_of("unmade", path, sizeof path);
    EXPECT_OK(ncclGetUniqueId(&id));
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 1, &config), ncclInProgress);
    EXPECT_OK(tuttiDumpState(comm, path));
    expect_in_file(path, "\nrank 1 of 2: the communicator is being made\n");
    EXPECT_EQ(ncclCommInitRankConfig(&twin, 2, id, 1, &config), ncclInProgress);
    struct stopwatch watch = stopwatch_start();
    while (state == ncclInProgress && stopwatch_is_within(&watch, 10)) {
        usleep(10000);
        EXPECT_OK(ncclCommGetAsyncError(comm, &state));
    }
    EXPECT_EQ(state, ncclInvalidUsage);
    EXPECT_OK(tuttiDumpState(comm, path));
    expect_in_file(path, "\nrank 1: the communicator could not be made\n");
    EXPECT_OK(ncclCommAbort(comm));
    EXPECT_OK(ncclCommAbort(twin));
    EXPECT_EQ(unlink(path), 0);
}

int main(void)
{
    bool is_first = getenv("STATE_TEST_FOLDER") == NULL; // ranks run this program again
    if (is_first) {
        EXPECT(mkdtemp(folder) != NULL);
        setenv("STATE_TEST_FOLDER", folder, 1);
    }
    RUN(of_threads);
    RUN(of_processes_and_by_signal);
    RUN(traces_of_processes);
    RUN(forms_of_operations);
    RUN(states_that_cannot_be_written);
    RUN(traces_of_processes_to_no_file);
    RUN(states_of_the_unmade);
    if (is_first) {
        (void)rmdir(folder);
    }
    return expect_result();
}
