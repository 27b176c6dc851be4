// What a program can learn of ranks that wait: tuttiDumpState and the signal that does the same;
// and of those that waited: TUTTI_TRACE and TUTTI_SUMMARY.
// SPDX-License-Identifier: Apache-2.0
#include "json.h"
#include "member.h"

#include <tutti.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
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
    for (double start = now_s(); strstr(text, part) == NULL && now_s() - start < 10;) {
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

// Of rank `rank`'s trace: how many all-reduces, and who was waited for in the third.
static void check_trace(int rank)
{
    char name[32], path[200];
    size_t wrong;
    (void)snprintf(name, sizeof name, "trace.%d.json", rank);
    path_of(name, path, sizeof path);
    char *text = read_file(path);
    struct json *trace = json_parse(text, &wrong);
    const struct json *events = json_get(trace, "traceEvents");
    int operations = 0, long_waits = 0;
    EXPECT(events != NULL && events->kind == JSON_ARRAY);
    for (const struct json *e = events != NULL ? events->first : NULL; e != NULL; e = e->next) {
        operations += strcmp(json_string(e, "name", ""), "AllReduce") == 0;
        long_waits += strcmp(json_string(e, "name", ""), "wait for rank 2") == 0 &&
                      json_number(e, "dur", 0) > 40000;
    }
    EXPECT_EQ(operations, 3);
    EXPECT_EQ(long_waits, rank == LATE ? 0 : 1);
    json_free(trace);
    free(text);
}

static void traces_of_processes(void)
{
    char path[200];
    path_of("trace.json", path, sizeof path);
    setenv("TUTTI_TRACE", path, 1);
    run_ranks(RANKS, one_comes_late, 60);
    unsetenv("TUTTI_TRACE");
    for (int rank = 0; rank < RANKS; rank++) {
        check_trace(rank);
    }
    remove_files();
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
    if (is_first) {
        (void)rmdir(folder);
    }
    return expect_result();
}
