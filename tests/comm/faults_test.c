// Every allocation of one rank's init fails once: all ranks return, the failing one with the cause,
// the others with its name, and nothing is left behind. The test's own malloc and its relatives
// count down in the chosen thread.
// SPDX-License-Identifier: Apache-2.0
#include <nccl.h>

#include "expect.h"
#include "stopwatch.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

static void faults(void)
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
    fired = false;
    countdown = r->fail_at;
    r->result = ncclCommInitRank(&comm, RANKS, r->id, r->number);
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

// True where an allocation failed.
static bool fail_nth(int n)
{
    struct rank rank[RANKS];
    memset(rank, 0, sizeof rank);
    struct stopwatch watch = stopwatch_start();
    EXPECT_OK(ncclGetUniqueId(&rank[0].id));
    for (int r = 0; r < RANKS; r++) {
        rank[r].id = rank[0].id;
        rank[r].number = r;
        rank[r].fail_at = r == BAD ? n : 0;
        pthread_create(&rank[r].thread, NULL, init, &rank[r]);
    }
    for (int r = 0; r < RANKS; r++) {
        pthread_join(rank[r].thread, NULL);
    }
    EXPECT_WITHIN(watch, 5);
    // A failure that does not matter (a cache, a message) may be survived; then all succeed.
    for (int r = 0; r < RANKS; r++) {
        EXPECT_EQ(rank[r].result == ncclSuccess, rank[BAD].result == ncclSuccess);
        if (r != BAD && rank[r].result != ncclSuccess) {
            EXPECT_EQ(rank[r].result, ncclRemoteError);
        }
    }
    return rank[BAD].fired;
}

static void faults(void)
{
    ncclComm_t comm[2] = {NULL, NULL};
    EXPECT_OK(ncclCommInitAll(comm, 2, NULL)); // first uses are over
    EXPECT_OK(ncclCommDestroy(comm[0]));
    EXPECT_OK(ncclCommDestroy(comm[1]));
    poll(NULL, 0, 200);
    int descriptors = count_descriptors(), n = 1;
    while (n < MOST && fail_nth(n) && expect_failures() == 0) {
        n++;
    }
    EXPECT(n > 3 && n < MOST);
    // Failed rendezvous answer latecomers for ten seconds, then they are gone.
    struct stopwatch watch = stopwatch_start();
    while (count_descriptors() > descriptors && stopwatch_is_within(&watch, 15)) {
        poll(NULL, 0, 100);
    }
    EXPECT(count_descriptors() <= descriptors);
}

#endif

int main(void)
{
    RUN(faults);
    return expect_result();
}
