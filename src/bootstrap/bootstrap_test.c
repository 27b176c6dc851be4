// The rendezvous: gathers of ranks as threads and processes, every conflict between claims, ranks
// that are missing, late, dead, failed or gone, aborts, signals. Strangers are in strangers_test.c,
// ids in ids_test.c.
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/bootstrap.h"

#include "base/log.h"

#include "expect.h"
#include "member.h"
#include "ranks.h"
#include "stopwatch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static ncclResult_t make_id(ncclUniqueId *id_out)
{
    return tt_bootstrap_make_id(TT_REACH_HOST, id_out);
}

static void sleep_s(double seconds)
{
    struct stopwatch watch = stopwatch_start();
    while (stopwatch_s(&watch) < seconds) { // signals may end a sleep early
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    }
}

static void gather_rounds(struct tt_bootstrap *b, int rank, int size, int rounds)
{
    static const size_t sizes[] = {0, 1, 8, 1000, 20000};
    for (int round = 0; round < rounds; round++) {
        size_t bytes = sizes[round % 5];
        unsigned char *data = calloc((size_t)size, bytes + 1);
        memset(data + (size_t)rank * bytes, rank + round, bytes);
        if (!EXPECT_OK(tt_bootstrap_allgather(b, data, bytes))) {
            free(data);
            return;
        }
        bool right = true;
        for (size_t i = 0; i < bytes * (size_t)size; i++) {
            right = right && data[i] == (unsigned char)((int)(i / bytes) + round);
        }
        EXPECT(right);
        EXPECT_OK(tt_bootstrap_look(b));
        free(data);
    }
}

static void join_and_gather(int rank, int size)
{
    ncclUniqueId id = share_id_by(rank, make_id);
    struct tt_bootstrap *b = NULL;
    if (!EXPECT_OK(tt_bootstrap_join(&id, rank, size, NULL, &b))) {
        return;
    }
    gather_rounds(b, rank, size, 12);
    EXPECT_OK(tt_bootstrap_barrier(b));
    unsigned char key[32], keys[64 * 32];
    tt_bootstrap_derive_key(b, "a test", key);
    ranks_gather(key, keys, sizeof key);
    EXPECT(memcmp(keys, key, sizeof key) == 0);
    tt_bootstrap_leave(b);
}

static void threads(void)
{
    for (int n = 1; n <= 8; n++) {
        run_thread_ranks(n, join_and_gather, 30);
    }
}

static void many_threads(void)
{
    run_thread_ranks(64, join_and_gather, 60);
}

static void processes(void)
{
    run_ranks(1, join_and_gather, 30);
    run_ranks(4, join_and_gather, 30);
    run_ranks(16, join_and_gather, 60);
}

// ---- Claims that do not fit ---------------------------------------------------------------------

// Joins and expects a failure whose text has all of the parts.
static void join_fails(const ncclUniqueId *id, int rank, int nranks, ncclResult_t result,
                       const char *const *parts)
{
    struct tt_bootstrap *b = NULL;
    struct stopwatch watch = stopwatch_start();
    EXPECT_EQ(tt_bootstrap_join(id, rank, nranks, NULL, &b), result);
    EXPECT_WITHIN(watch, 10);
    EXPECT(b == NULL);
    const char *text = tt_last_error();
    for (int i = 0; parts[i] != NULL; i++) {
        EXPECT_CONTAINS(text, parts[i]);
    }
}

static void claim_same_rank(int rank, int size)
{
    static const char *const parts[] = {"two ranks of one number", "rank 1 of 3", "process", NULL};
    ncclUniqueId id = share_id_by(rank, make_id);
    (void)size;
    join_fails(&id, rank == 0 ? 0 : 1, 3, ncclInvalidUsage, parts);
    ranks_barrier(); // the root's process must not end before all have heard
}

static void same_rank_twice(void)
{
    run_thread_ranks(3, claim_same_rank, 30);
    run_ranks(3, claim_same_rank, 30);
}

static void claim_other_size(int rank, int size)
{
    static const char *const parts[] = {"different numbers of ranks", "of 2", "of 3", NULL};
    ncclUniqueId id = share_id_by(rank, make_id);
    (void)size;
    join_fails(&id, rank, rank == 0 ? 2 : 3, ncclInvalidUsage, parts);
    ranks_barrier();
}

static void different_sizes(void)
{
    run_thread_ranks(2, claim_other_size, 30);
    run_ranks(2, claim_other_size, 30);
}

static void claim_outside(int rank, int size)
{
    static const char *const parts[] = {"outside its communicator", "rank 2 of 2", NULL};
    ncclUniqueId id = share_id_by(rank, make_id);
    (void)size;
    if (rank == 1) {
        tt_bootstrap_denounce(&id, 2, 2, "");
    } else {
        join_fails(&id, 0, 2, ncclInvalidUsage, parts);
    }
    ranks_barrier();
}

static void rank_outside(void)
{
    run_thread_ranks(2, claim_outside, 30);
    run_ranks(2, claim_outside, 30);
}

static void give_up_before(int rank, int size)
{
    static const char *const parts[] = {"rank 1 failed: it has no device", NULL};
    ncclUniqueId id = share_id_by(rank, make_id);
    if (rank == 1) {
        tt_bootstrap_denounce(&id, rank, size, "it has no device");
    } else {
        join_fails(&id, rank, size, ncclRemoteError, parts);
    }
    ranks_barrier();
}

static void rank_that_cannot_join(void)
{
    run_thread_ranks(3, give_up_before, 30);
    run_ranks(3, give_up_before, 30);
}

// ---- Missing, late and dead ranks ---------------------------------------------------------------

static void wait_for_missing(int rank, int size)
{
    static const char *const parts[] = {"1 of 4: 3", "TUTTI_INIT_TIMEOUT", NULL};
    static const char *const late[] = {"rank 3: ", "this rank came ", " s too late", NULL};
    ncclUniqueId id = share_id_by(rank, make_id);
    struct stopwatch watch = stopwatch_start();
    if (rank < size - 1) {
        join_fails(&id, rank, size, ncclTimeout, parts);
        EXPECT(stopwatch_s(&watch) > 2.5 && stopwatch_is_within(&watch, 6));
    }
    ranks_barrier();
    if (rank == size - 1) {
        join_fails(&id, rank, size, ncclTimeout, late);
    }
    ranks_barrier();
}

static void missing_rank(void)
{
    setenv("TUTTI_INIT_TIMEOUT", "3", 1);
    run_ranks(4, wait_for_missing, 30);
    unsetenv("TUTTI_INIT_TIMEOUT");
}

// Ten seconds late: rank 0 says who is missing, and then all goes on.
static void come_late(int rank, int size)
{
    ncclUniqueId id = share_id_by(rank, make_id);
    struct tt_bootstrap *b = NULL;
    char text[1024] = "";
    int ends[2], saved = -1;
    if (rank == 0) {
        EXPECT_EQ(pipe(ends), 0);
        saved = dup(2);
        dup2(ends[1], 2);
        close(ends[1]);
    } else if (rank >= 2) {
        sleep_s(10.8);
    }
    EXPECT_OK(tt_bootstrap_join(&id, rank, size, NULL, &b));
    if (rank == 0) {
        dup2(saved, 2); // closes the pipe's last writing end
        EXPECT(read(ends[0], text, sizeof text - 1) > 0);
        EXPECT_CONTAINS(text, "rank 0: joining: waiting for 2 of 4 ranks: 2, 3, for 10 s");
    }
    gather_rounds(b, rank, size, 3);
    // Late for an exchange: the same, with what it is for.
    tt_bootstrap_describe(b, "making a test");
    if (rank == 1) {
        EXPECT_EQ(pipe(ends), 0);
        saved = dup(2);
        dup2(ends[1], 2);
        close(ends[1]);
    } else {
        sleep_s(rank == 0 ? 10.9 : 11.5); // rank 1 is the first that waits
    }
    EXPECT_OK(tt_bootstrap_barrier(b));
    if (rank == 1) {
        dup2(saved, 2);
        memset(text, 0, sizeof text);
        EXPECT(read(ends[0], text, sizeof text - 1) > 0);
        EXPECT_CONTAINS(text, "rank 1: making a test: waiting for 3 of 4 ranks: 0, 2, 3, for 10 s");
    }
    tt_bootstrap_leave(b);
}

static void late_ranks(void)
{
    run_ranks(4, come_late, 40);
}

static void die_in_gather(int rank, int size)
{
    ncclUniqueId id = share_id_by(rank, make_id);
    struct tt_bootstrap *b = NULL;
    EXPECT_OK(tt_bootstrap_join(&id, rank, size, NULL, &b));
    gather_rounds(b, rank, size, 2);
    if (rank == 2) {
        sleep_s(0.3);
        _exit(9);
    }
    struct stopwatch watch = stopwatch_start();
    EXPECT_EQ(tt_bootstrap_barrier(b), ncclRemoteError);
    EXPECT_WITHIN(watch, 5);
    EXPECT_CONTAINS(tt_last_error(), "rank 2 (process");
    EXPECT_CONTAINS(tt_last_error(), "died");
    EXPECT_EQ(tt_bootstrap_barrier(b), ncclRemoteError); // and ever after
    EXPECT_EQ(tt_bootstrap_look(b), ncclRemoteError);
    tt_bootstrap_leave(b);
    if (rank == 0) {
        sleep_s(0.5); // serves the others' error
    }
}

static void dead_rank(void)
{
    int statuses[4];
    run_ranks_status(4, die_in_gather, 30, statuses);
    for (int r = 0; r < 4; r++) {
        EXPECT_EQ(WIFEXITED(statuses[r]) ? WEXITSTATUS(statuses[r]) : -1, r == 2 ? 9 : 0);
    }
}

// The process of the root dies: nobody waits for ever.
static void die_with_root(int rank, int size)
{
    ncclUniqueId id = share_id_by(rank, make_id);
    struct tt_bootstrap *b = NULL;
    EXPECT_OK(tt_bootstrap_join(&id, rank, size, NULL, &b));
    if (rank == 0) {
        sleep_s(0.3);
        _exit(9);
    }
    EXPECT_EQ(tt_bootstrap_barrier(b), ncclRemoteError);
    EXPECT_CONTAINS(tt_last_error(), "rank 0 (process");
    EXPECT_CONTAINS(tt_last_error(), "died");
    EXPECT_EQ(tt_bootstrap_dead_rank(b), 0);
    tt_bootstrap_leave(b);
}

static void dead_root(void)
{
    int statuses[3];
    run_ranks_status(3, die_with_root, 30, statuses);
    for (int r = 1; r < 3; r++) {
        EXPECT_EQ(WIFEXITED(statuses[r]) ? WEXITSTATUS(statuses[r]) : -1, 0);
    }
}

static void fail_in_gather(int rank, int size)
{
    ncclUniqueId id = share_id_by(rank, make_id);
    struct tt_bootstrap *b = NULL;
    EXPECT_OK(tt_bootstrap_join(&id, rank, size, NULL, &b));
    ranks_barrier();
    if (rank == 1) {
        tt_bootstrap_report_failure(b, "no memory for 100% of it");
    } else if (rank == 2) { // not inside a call: a look tells
        struct stopwatch watch = stopwatch_start();
        while (tt_bootstrap_look(b) == ncclSuccess && stopwatch_is_within(&watch, 5)) {
            sleep_s(0.01);
        }
        EXPECT_EQ(tt_bootstrap_look(b), ncclRemoteError);
    } else {
        EXPECT_EQ(tt_bootstrap_barrier(b), ncclRemoteError);
        EXPECT_CONTAINS(tt_last_error(), "rank 1 failed: no memory for 100% of it");
    }
    ranks_barrier();
    tt_bootstrap_leave(b);
    ranks_barrier();
}

static void failed_rank(void)
{
    run_thread_ranks(4, fail_in_gather, 30);
    run_ranks(4, fail_in_gather, 30);
}

static void leave_early(int rank, int size)
{
    ncclUniqueId id = share_id_by(rank, make_id);
    struct tt_bootstrap *b = NULL;
    EXPECT_OK(tt_bootstrap_join(&id, rank, size, NULL, &b));
    if (rank == 1) {
        sleep_s(0.2);
    } else {
        EXPECT_EQ(tt_bootstrap_barrier(b), ncclRemoteError);
        EXPECT_CONTAINS(tt_last_error(), "rank 1 has destroyed the communicator");
    }
    tt_bootstrap_leave(b);
    ranks_barrier();
}

static void leaver(void)
{
    run_thread_ranks(3, leave_early, 30);
}

// Who leaves is known to the others; it is no failure, and neither is the end of the root's process
// when its own ranks have left.
static void watch_leavers(int rank, int size)
{
    ncclUniqueId id = share_id_by(rank, make_id);
    struct tt_bootstrap *b = NULL;
    EXPECT_OK(tt_bootstrap_join(&id, rank, size, NULL, &b));
    EXPECT_OK(tt_bootstrap_barrier(b));
    if (rank == 0) { // in the root's process
        tt_bootstrap_leave(b);
        _exit(expect_failures() != 0);
    }
    const _Atomic unsigned char *left = tt_bootstrap_left(b);
    struct stopwatch watch = stopwatch_start();
    while (atomic_load(&left[0]) == 0 && stopwatch_is_within(&watch, 5)) {
        EXPECT_OK(tt_bootstrap_look(b));
    }
    EXPECT_EQ(atomic_load(&left[0]), 1);
    EXPECT_EQ(atomic_load(&left[1]) + atomic_load(&left[2]), 0);
    for (watch = stopwatch_start(); stopwatch_s(&watch) < 0.5;) {
        EXPECT_OK(tt_bootstrap_look(b));
    }
    tt_bootstrap_leave(b);
}

static void leavers_are_known(void)
{
    run_ranks(3, watch_leavers, 30);
}

static void differ_in_gather(int rank, int size)
{
    ncclUniqueId id = share_id_by(rank, make_id);
    struct tt_bootstrap *b = NULL;
    unsigned char data[64] = {0};
    EXPECT_OK(tt_bootstrap_join(&id, rank, size, NULL, &b));
    EXPECT_EQ(tt_bootstrap_allgather(b, data, rank == 1 ? 8 : 4), ncclInvalidUsage);
    EXPECT_CONTAINS(tt_last_error(), "same calls in the same order");
    tt_bootstrap_leave(b);
}

static void different_steps(void)
{
    run_thread_ranks(3, differ_in_gather, 30);
}

// ---- Aborts --------------------------------------------------------------------------------

static void *raise_later(void *flag)
{
    sleep_s(0.5);
    atomic_store((_Atomic uint32_t *)flag, 1);
    return NULL;
}

static void abort_waits(void)
{
    ncclUniqueId id;
    struct tt_bootstrap *b = NULL;
    _Atomic uint32_t flag = 0;
    pthread_t thread;
    EXPECT_OK(make_id(&id));
    pthread_create(&thread, NULL, raise_later, (void *)&flag);
    struct stopwatch watch = stopwatch_start();
    EXPECT_EQ(tt_bootstrap_join(&id, 0, 2, &flag, &b), ncclInternalError);
    EXPECT_WITHIN(watch, 1.5);
    EXPECT_CONTAINS(tt_last_error(), "aborted");
    pthread_join(thread, NULL);
}

// ---- Waiting costs little

static void wait_cheaply(int rank, int size)
{
    ncclUniqueId id = share_id_by(rank, make_id);
    struct tt_bootstrap *b = NULL;
    struct rusage before, after;
    if (rank == size - 1) {
        sleep_s(3);
    }
    getrusage(RUSAGE_SELF, &before);
    EXPECT_OK(tt_bootstrap_join(&id, rank, size, NULL, &b));
    if (rank == size - 1) {
        sleep_s(3);
    }
    EXPECT_OK(tt_bootstrap_barrier(b));
    getrusage(RUSAGE_SELF, &after);
    double used = (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec +
                           (after.ru_stime.tv_sec - before.ru_stime.tv_sec)) +
                  (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec +
                           (after.ru_stime.tv_usec - before.ru_stime.tv_usec)) /
                      1e6;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    const double allowed = 6; // sanitizers make everything dear
#else
    const double allowed = 0.02 * 6; // 2 % of a core
#endif
    EXPECT(used < allowed);
    tt_bootstrap_leave(b);
}

static void cheap_waits(void)
{
    run_ranks(8, wait_cheaply, 40);
}

// ---- Signals, many rounds -----------------------------------------------------------------------

static _Atomic int signals_seen;

static void on_alarm(int number)
{
    (void)number;
    atomic_fetch_add(&signals_seen, 1);
}

static void join_under_signals(int rank, int size)
{
    struct sigaction action = {.sa_handler = on_alarm}; // no restart: calls end with EINTR
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    ncclUniqueId id = share_id_by(rank, make_id);
    struct tt_bootstrap *b = NULL;
    if (EXPECT_OK(tt_bootstrap_join(&id, rank, size, NULL, &b))) {
        gather_rounds(b, rank, size, 200);
        tt_bootstrap_leave(b);
    }
    ranks_barrier();
    setitimer(ITIMER_REAL, &never, NULL);
    EXPECT(atomic_load(&signals_seen) > 10);
}

static void signals(void)
{
    run_ranks(4, join_under_signals, 60);
}

static void many_rounds(void)
{
    for (int i = 0; i < 50; i++) {
        run_thread_ranks(3, join_and_gather, 30);
    }
}

int main(void)
{
    RUN(threads);
    RUN(many_threads);
    RUN(processes);
    RUN(same_rank_twice);
    RUN(different_sizes);
    RUN(rank_outside);
    RUN(rank_that_cannot_join);
    RUN(missing_rank);
    RUN(late_ranks);
    RUN(dead_rank);
    RUN(dead_root);
    RUN(failed_rank);
    RUN(leaver);
    RUN(leavers_are_known);
    RUN(different_steps);
    RUN(abort_waits);
    RUN(cheap_waits);
    RUN(signals);
    RUN(many_rounds);
    return expect_result();
}
