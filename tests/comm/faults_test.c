// C51: every allocation of one rank's init, and of its part in a split, fails once (nccl#582): all
// ranks return, the failing one with the cause, the others with its name, and nothing is left
// behind. Ranks as threads, then as processes. The test's own malloc and its relatives count down
// in the chosen thread. TUTTI_TEST_FULL=1: nothing is left behind in the processes either.
// SPDX-License-Identifier: Apache-2.0
#include <nccl.h>

#include "expect.h"
#include "member.h"
#include "ranks.h"
#include "stopwatch.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

static void faults(void)
{
    SKIP("sanitizers bring their own allocator");
}

static void faults_in_processes(void)
{
    SKIP("sanitizers bring their own allocator");
}

#else

enum { RANKS = 4, BAD = 2, MOST = 500 };

static _Thread_local int countdown; // 0: nothing fails; 1: the next allocation
static _Thread_local bool fired;

static bool fails_now(void)
{
    if (countdown == 0 || --countdown > 0) {
        return false;
    }
    fired = true;
    errno = ENOMEM;
    return true;
}

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
__attribute__((visibility("default"))) void *malloc(size_t bytes)
{
    return fails_now() ? NULL : __libc_malloc(bytes);
}
__attribute__((visibility("default"))) void *calloc(size_t count, size_t bytes)
{
    return fails_now() ? NULL : __libc_calloc(count, bytes);
}
__attribute__((visibility("default"))) void *realloc(void *old, size_t bytes)
{
    return fails_now() ? NULL : __libc_realloc(old, bytes);
}

struct rank {
    ncclUniqueId id;
    ncclComm_t parent; // to be split; NULL: a communicator is made
    int number, fail_at;
    bool fired;
    ncclResult_t result;
    char text[512];
    pthread_t thread;
};

static void *init(void *argument)
{
    struct rank *r = argument;
    ncclComm_t comm = NULL;
    memset(r->text, 0, sizeof r->text);
    fired = false;
    countdown = r->fail_at;
    r->result = r->parent == NULL ? ncclCommInitRank(&comm, RANKS, r->id, r->number)
                                  : ncclCommSplit(r->parent, 0, r->number, &comm, NULL);
    countdown = 0;
    r->fired = fired;
    strncpy(r->text, ncclGetLastError(NULL), sizeof r->text - 1);
    if (r->result == ncclSuccess) {
        EXPECT_OK(ncclCommDestroy(comm));
    } else {
        EXPECT(comm == NULL);
    }
    return NULL;
}

static int count_descriptors(void)
{
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (directory != NULL && readdir(directory) != NULL) {
        count++;
    }
    closedir(directory);
    return count;
}

// What the ranks [RANKS] say. A failure that does not matter (a cache, a message) may be survived;
// then all succeed.
static void judge(const struct rank *rank, int n)
{
    const struct rank *bad = &rank[BAD];
    for (int r = 0; r < RANKS; r++) {
        EXPECT_EQ(rank[r].result == ncclSuccess, bad->result == ncclSuccess);
        if (r != BAD && rank[r].result != ncclSuccess) {
            EXPECT_EQ(rank[r].result, ncclRemoteError);
            EXPECT_CONTAINS(rank[r].text, "rank 2");
            EXPECT_CONTAINS(rank[r].text, "failed");
        }
    }
    if (bad->result != ncclSuccess) {
        EXPECT_EQ(bad->result, ncclSystemError);
        EXPECT(bad->fired && bad->text[0] != 0);
    }
    if (expect_failures() > 0) {
        fprintf(stderr, "allocation %d fails: rank %d: %d, %s; rank 0: %d, %s\n", n, BAD,
                (int)bad->result, bad->text, (int)rank[0].result, rank[0].text);
    }
}

// True where an allocation failed. parents: [RANKS], to be split; NULL: communicators are made.
static bool fail_nth(int n, const ncclComm_t *parents)
{
    struct rank rank[RANKS];
    memset(rank, 0, sizeof rank);
    struct stopwatch watch = stopwatch_start();
    if (parents == NULL) {
        EXPECT_OK(ncclGetUniqueId(&rank[0].id));
    }
    for (int r = 0; r < RANKS; r++) {
        rank[r].id = rank[0].id;
        rank[r].parent = parents == NULL ? NULL : parents[r];
        rank[r].number = r;
        rank[r].fail_at = r == BAD ? n : 0;
        pthread_create(&rank[r].thread, NULL, init, &rank[r]);
    }
    for (int r = 0; r < RANKS; r++) {
        pthread_join(rank[r].thread, NULL);
    }
    EXPECT_WITHIN(watch, 5);
    judge(rank, n);
    return rank[BAD].fired;
}

// Failed rendezvous answer latecomers for ten seconds, then they are gone.
static void await_descriptors(int descriptors)
{
    struct stopwatch watch = stopwatch_start();
    while (count_descriptors() > descriptors && stopwatch_is_within(&watch, 15)) {
        poll(NULL, 0, 100);
    }
    EXPECT(count_descriptors() <= descriptors);
}

static void faults(void)
{
    ncclComm_t comm[2] = {NULL, NULL};
    EXPECT_OK(ncclCommInitAll(comm, 2, NULL)); // first uses are over
    EXPECT_OK(ncclCommDestroy(comm[0]));
    EXPECT_OK(ncclCommDestroy(comm[1]));
    poll(NULL, 0, 200);
    int descriptors = count_descriptors(), n = 1;
    while (n < MOST && fail_nth(n, NULL) && expect_failures() == 0) {
        n++;
    }
    EXPECT(n > 3 && n < MOST);
    ncclComm_t parent[RANKS];
    EXPECT_OK(ncclCommInitAll(parent, RANKS, NULL));
    for (n = 1; n < MOST && fail_nth(n, parent) && expect_failures() == 0;) {
        n++;
    }
    EXPECT(n > 3 && n < MOST);
    for (int r = 0; r < RANKS; r++) {
        EXPECT_OK(ncclCommDestroy(parent[r]));
    }
    await_descriptors(descriptors);
}

// The same in a process of its own for each rank; all of them go on until no allocation is left
// that could fail.
static void fail_every(ncclComm_t parent, int number)
{
    bool fires = true;
    int n = 1;
    for (; fires && n < MOST && expect_failures() == 0; n++) {
        struct rank mine = {.parent = parent, .number = number, .fail_at = number == BAD ? n : 0};
        struct rank all[RANKS];
        mine.id = parent == NULL ? share_id(number) : mine.id;
        struct stopwatch watch = stopwatch_start();
        (void)init(&mine);
        EXPECT_WITHIN(watch, 5);
        ranks_gather(&mine, all, sizeof mine);
        judge(all, n);
        fires = all[BAD].fired;
    }
    EXPECT(n > 3 && n < MOST);
}

static void fail_in_processes(int rank, int size)
{
    ncclComm_t comm = NULL;
    ncclUniqueId id = share_id(rank);
    EXPECT_EQ(size, RANKS);
    EXPECT_CUDA(cudaSetDevice(rank));
    EXPECT_OK(ncclCommInitRank(&comm, size, id, rank));
    EXPECT_OK(ncclCommDestroy(comm)); // first uses are over
    ranks_barrier();
    poll(NULL, 0, 200);
    int descriptors = count_descriptors();
    fail_every(NULL, rank);
    id = share_id(rank);
    if (EXPECT_OK(ncclCommInitRank(&comm, size, id, rank))) {
        fail_every(comm, rank);
        EXPECT_OK(ncclCommDestroy(comm));
    }
    if (getenv("TUTTI_TEST_FULL") != NULL) { // the case above has waited as long
        await_descriptors(descriptors);
    }
    ranks_barrier();
}

static void faults_in_processes(void)
{
    run_ranks(RANKS, fail_in_processes, 150);
}

#endif

int main(void)
{
    RUN(faults);
    RUN(faults_in_processes);
    return expect_result();
}
