// The host team by itself: memory that ranks share, turns, entries that agree or do not, leaving,
// signals, failures, time limits. Ranks are hosts of this thread.
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/host.h"

#include "base/log.h"
#include "base/wait.h"
#include "exec/cpu/buffers.h"
#include "exec/cpu/test_team.h"
#include "stopwatch.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct tt_record_line *some_line(void)
{
    static struct tt_record_line line;
    return &line;
}

static void enter(struct tt_host *host, size_t count)
{
    struct tt_op op = {.function = TT_ALL_REDUCE, .count = count, .type = ncclFloat32};
    struct tt_entry entry = {
        .call = {.function = TT_ALL_REDUCE, .count = count, .type = (uint8_t)ncclFloat32}};
    memcpy(entry.payload, &count, sizeof count);
    host->line = some_line();
    tt_host_enter(host, &entry, tt_op_signature(&op));
}

static void entering(void)
{
    for (int apart = 0; apart < 2; apart++) {
        struct team team;
        make_team(&team, 3, apart != 0, 0, 0);
        for (size_t round = 1; round < 1000; round++) {
            for (int rank = 0; rank < 3; rank++) {
                enter(team.host[rank], round);
                EXPECT_EQ(tt_host_meet(team.host[rank]), rank < 2 ? TT_WAITING : TT_DONE);
            }
            for (int rank = 0; rank < 3; rank++) {
                EXPECT_EQ(tt_host_meet(team.host[rank]), TT_DONE);
                size_t theirs = 0;
                memcpy(&theirs, tt_host_entry(team.host[rank], 2 - rank)->payload, sizeof theirs);
                EXPECT_EQ(theirs, round);
            }
            for (int rank = 0; rank < 3 && round % 2 == 0; rank++) {
                tt_host_leave(team.host[rank]);
                EXPECT_EQ(tt_host_all_left(team.host[rank]), rank < 2 ? TT_WAITING : TT_DONE);
            }
        }
        free_team(&team);
    }
}

static void *enter_often(void *argument)
{
    for (size_t round = 1; round <= 20000; round++) {
        enter(argument, round);
    }
    return NULL;
}

// A rank that enters is described by others at that moment.
static void description_while_entering(void)
{
    struct team team;
    pthread_t thread;
    char text[160] = "";
    make_team(&team, 2, false, 0, 0);
    EXPECT_EQ(pthread_create(&thread, NULL, enter_often, team.host[1]), 0);
    while (strstr(text, "#20000") == NULL) {
        tt_host_describe_last(team.host[0], 1, text, sizeof text);
        if (strstr(text, "none yet") == NULL) {
            EXPECT_CONTAINS(text, "its last one was AllReduce(count ");
        }
    }
    EXPECT_EQ(pthread_join(thread, NULL), 0);
    tt_host_describe_last(team.host[0], 1, text, sizeof text);
    EXPECT_CONTAINS(text, "AllReduce(count 20000, float32, sum) #20000");
    free_team(&team);
}

// Sequence numbers have 24 bits in an entry.
static void numbers_wrap(void)
{
    struct team team;
    make_team(&team, 2, false, 0, 0);
    team.host[0]->sequence = team.host[1]->sequence = (1 << 24) - 3;
    for (size_t round = 1; round < 8; round++) {
        enter(team.host[0], round);
        EXPECT_EQ(tt_host_meet(team.host[0]), TT_WAITING);
        enter(team.host[1], round);
        EXPECT_EQ(tt_host_meet(team.host[0]), TT_DONE);
        EXPECT_EQ(tt_host_meet(team.host[1]), TT_DONE);
    }
    free_team(&team);
}

static void disagreement(void)
{
    struct team team;
    make_team(&team, 3, true, 0, 0);
    enter(team.host[0], 4);
    enter(team.host[1], 5);
    EXPECT_EQ(tt_host_meet(team.host[0]), TT_WAITING); // somebody is missing: nobody may judge
    enter(team.host[2], 4);
    EXPECT_EQ(tt_host_meet(team.host[2]), TT_FAILED);
    EXPECT_EQ(tt_host_meet(team.host[0]), TT_FAILED);
    EXPECT_EQ(tt_host_meet(team.host[1]), TT_FAILED);
    for (int rank = 0; rank < 3; rank++) {
        EXPECT_EQ(atomic_load(&team.errors[rank]), ncclInvalidUsage);
        EXPECT_CONTAINS(team.told[rank], // whoever found it
                        "rank 0: AllReduce(count 4, float32, sum) #1 on test, as 2 of 3 ranks, but "
                        "rank 1 called AllReduce(count 5, float32, sum)");
        EXPECT_EQ(tt_host_begin(team.host[rank], tt_host_call(team.host[rank])), TT_FAILED);
    }
    free_team(&team);
}

// A rank that would wait for itself knows that somebody has overwritten what it wrote.
static void overwritten_words(void)
{
    for (int which = 0; which < 2; which++) {
        struct team team;
        make_team(&team, 3, true, 0, 0);
        for (int rank = 0; rank < 3; rank++) {
            enter(team.host[rank], 4);
        }
        if (which == 0) {
            tt_arena_entry(team.host[2]->arena, 2, 1)->word ^= UINT64_C(1) << 50;
            EXPECT_EQ(tt_host_meet(team.host[1]), TT_WAITING); // of another rank it may be late
            EXPECT_EQ(tt_host_meet(team.host[2]), TT_FAILED);
            EXPECT_CONTAINS(team.told[2], "what rank 2 itself wrote to the memory that the ranks "
                                          "share, so as to enter it, was overwritten");
        } else {
            EXPECT_EQ(tt_host_meet(team.host[2]), TT_DONE);
            tt_host_leave(team.host[2]);
            tt_arena_own(team.host[2]->arena, 2)->left = 0;
            EXPECT_EQ(tt_host_all_left(team.host[2]), TT_FAILED);
            EXPECT_CONTAINS(team.told[2], "so as to finish it, was overwritten");
        }
        EXPECT_EQ(atomic_load(&team.errors[2]), ncclSystemError);
        free_team(&team);
    }
}

static void turns(void)
{
    struct team team;
    make_team(&team, 1, false, 0, 0);
    struct tt_host *host = team.host[0];
    EXPECT(tt_host_is_idle(host));
    uint64_t first = tt_host_call(host), second = tt_host_call(host);
    EXPECT(!tt_host_is_idle(host));
    EXPECT_EQ(tt_host_begin(host, second), TT_WAITING); // not yet its turn
    EXPECT_EQ(tt_host_begin(host, first), TT_DONE);
    EXPECT_EQ(tt_host_begin(host, second), TT_WAITING);
    EXPECT_EQ(tt_host_begin(host, 0), TT_WAITING); // a graph's
    EXPECT(!tt_host_take(host));
    tt_host_end(host, first);
    EXPECT_EQ(tt_host_begin(host, 0), TT_DONE); // between two calls
    EXPECT_EQ(tt_host_begin(host, second), TT_WAITING);
    tt_host_end(host, 0);
    EXPECT_EQ(tt_host_begin(host, second), TT_DONE);
    tt_host_end(host, second);
    EXPECT(tt_host_is_idle(host));
    (void)tt_host_call(host);
    tt_host_uncall(host);
    EXPECT(tt_host_is_idle(host));
    EXPECT(tt_host_take(host));
    EXPECT_EQ(tt_host_begin(host, 0), TT_WAITING);
    uint64_t kept = tt_host_keep(host);
    EXPECT(!tt_host_is_idle(host));
    tt_host_end(host, kept);
    EXPECT(tt_host_is_idle(host));
    tt_host_hold(host);
    tt_host_part(host);
    EXPECT_EQ(tt_host_begin(host, 0), TT_FAILED); // a graph that outlives the communicator
    tt_host_release(host);
}

static void signals(void)
{
    struct team team;
    make_team(&team, 3, true, 0, 0);
    for (int round = 0; round < 3; round++) {
        for (int rank = 0; rank < 3; rank++) {
            enter(team.host[rank], 1);
        }
        EXPECT(!tt_host_signalled(team.host[1], 0, 63, 1)); // those before do not count
        tt_host_signal(team.host[0], 1, 63);
        EXPECT(tt_host_signalled(team.host[1], 0, 63, 1));
        EXPECT(!tt_host_signalled(team.host[1], 0, 63, 2));
        EXPECT(!tt_host_signalled(team.host[1], 2, 63, 1));
        EXPECT(!tt_host_signalled(team.host[2], 0, 63, 1));
        EXPECT(!tt_host_signalled(team.host[1], 0, 62, 1));
        tt_host_signal(team.host[0], 1, 63);
        EXPECT(tt_host_signalled(team.host[1], 0, 63, 2));
    }
    free_team(&team);
}

// The first failure is everybody's, with its text, whoever sees it when.
static void failures(void)
{
    struct team team;
    make_team(&team, 3, true, 0, 0);
    enter(team.host[0], 1);
    EXPECT_EQ(tt_host_meet(team.host[0]), TT_WAITING);
    EXPECT_EQ(tt_host_fail(team.host[1], ncclSystemError, "rank 1: %s", "its memory is gone"),
              ncclSystemError);
    EXPECT_EQ(tt_host_meet(team.host[0]), TT_FAILED);
    (void)tt_host_fail(team.host[2], ncclInvalidUsage, "rank 2: something else");
    for (int rank = 0; rank < 3; rank++) {
        EXPECT_EQ(atomic_load(&team.errors[rank]), ncclSystemError);
        EXPECT_CONTAINS(team.told[rank], "rank 1: its memory is gone");
    }
    free_team(&team);

    // A text that names the call and the rank already names both once.
    make_team(&team, 2, false, 0, 0);
    tt_call_begin("ncclAllReduce", 1);
    (void)tt_fail(ncclUnhandledCudaError, "cudaEventRecord: no reason (1)");
    (void)tt_host_fail_again(team.host[1], ncclUnhandledCudaError);
    tt_call_end();
    EXPECT_EQ(strcmp(team.told[1], "rank 1: ncclAllReduce: cudaEventRecord: no reason (1)"), 0);
    free_team(&team);
}

static void waits_end(void)
{
    struct team team;
    make_team(&team, 2, false, 0, 0);
    enter(team.host[0], 1);
    atomic_store(&team.left[1], 1);
    EXPECT_EQ(tt_host_meet(team.host[0]), TT_FAILED);
    EXPECT_CONTAINS(team.told[0], "rank 1 has destroyed the communicator and will never enter it");
    free_team(&team);

    make_team(&team, 2, false, 20000000, 0); // 20 ms
    enter(team.host[0], 1);
    struct stopwatch watch = stopwatch_start();
    while (tt_host_meet(team.host[0]) == TT_WAITING && stopwatch_is_within(&watch, 5)) {
    }
    EXPECT_EQ(atomic_load(&team.errors[0]), ncclTimeout);
    EXPECT_CONTAINS(team.told[0], "1 of 2 did not enter within");
    EXPECT_CONTAINS(team.told[0], "rank 1 (it has entered none yet)");
    free_team(&team);

    make_team(&team, 2, false, 0, 0);
    enter(team.host[0], 1);
    EXPECT_EQ(tt_host_meet(team.host[0]), TT_WAITING);
    atomic_store(&team.abort_flag, 1);
    EXPECT_EQ(tt_host_meet(team.host[0]), TT_FAILED);
    free_team(&team);
}

// ---- Work that fails while others still work with the memory ------------------------------------

struct drained {
    struct tt_host *host;
    _Atomic bool is_over;
};

static void *drain(void *argument)
{
    struct drained *drained = argument;
    bool gave_up;
    EXPECT(tt_host_drain(drained->host, &gave_up));
    atomic_store(&drained->is_over, true);
    return NULL;
}

static void giving_up(void)
{
    struct team team;
    make_team(&team, 3, true, 0, 0);
    uint64_t turn = tt_host_call(team.host[1]);
    EXPECT_EQ(tt_host_begin(team.host[1], turn), TT_DONE);
    EXPECT(tt_host_take(team.host[0]));
    tt_host_give_up(team.host[0]);
    tt_host_give(team.host[0]);
    EXPECT(!tt_host_is_let_go(team.host[0])); // rank 1 works
    // Rank 2 has not heard of it: it begins nothing, and it has not failed.
    uint64_t late = tt_host_call(team.host[2]);
    EXPECT(!tt_host_take(team.host[2]));
    EXPECT_EQ(tt_host_begin(team.host[2], late), TT_WAITING);
    EXPECT(!tt_host_is_let_go(team.host[0]));
    tt_host_end(team.host[1], turn);
    EXPECT(tt_host_is_let_go(team.host[0]));
    (void)tt_host_fail(team.host[1], ncclSystemError, "rank 1: it is tired");
    EXPECT_EQ(tt_host_begin(team.host[2], late), TT_FAILED);
    free_team(&team);
}

// The end of an aborted communicator waits for the others' work, too; of one that has not failed it
// does not.
static void ends_let_go(void)
{
    for (int aborts = 0; aborts < 2; aborts++) {
        struct team team;
        pthread_t thread;
        make_team(&team, 2, true, 0, 0);
        EXPECT(tt_host_take(team.host[1]));
        struct drained drained = {.host = team.host[0]};
        atomic_store(&team.abort_flag, (uint32_t)aborts);
        EXPECT_EQ(pthread_create(&thread, NULL, drain, &drained), 0);
        struct timespec some = {.tv_nsec = 100000000};
        (void)nanosleep(&some, NULL);
        EXPECT(aborts == 0 || !atomic_load(&drained.is_over));
        if (aborts == 0) {
            EXPECT_EQ(pthread_join(thread, NULL), 0);
        }
        tt_host_give(team.host[1]);
        if (aborts != 0) {
            EXPECT_EQ(pthread_join(thread, NULL), 0);
        }
        free_team(&team);
    }
}

// A rank that does not stop is waited for half a second, one whose process has died not at all.
static void nobody_is_waited_for_long(void)
{
    struct team team;
    make_team(&team, 2, true, 0, 0);
    EXPECT(tt_host_take(team.host[1]));
    tt_host_give_up(team.host[0]);
    uint64_t start_ns = tt_now_ns();
    while (!tt_host_is_let_go(team.host[0])) {
    }
    EXPECT(tt_now_ns() - start_ns > 300000000);
    tt_host_give(team.host[1]);
    free_team(&team);

    make_team(&team, 2, true, 0, 0);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(0);
    }
    EXPECT_EQ(waitpid(pid, NULL, 0), pid);
    EXPECT(tt_host_take(team.host[1]));
    atomic_store(&tt_arena_own(team.host[0]->arena, 1)->pid, pid);
    tt_host_give_up(team.host[0]);
    EXPECT(tt_host_is_let_go(team.host[0]));
    tt_host_give(team.host[1]);
    free_team(&team);
}

static void memory_grows(void)
{
    int descriptor = make_file();
    struct tt_arena *arena[2] = {map_arena(descriptor, 3), map_arena(descriptor, 3)};
    size_t bytes[2] = {0, 0}, stride[2] = {0, 0};
    for (size_t wanted = 1000; wanted < 20000000; wanted *= 3) {
        char *a = tt_arena_scratch(arena[0], wanted, &stride[0]);
        char *b = tt_arena_scratch(arena[1], wanted, &stride[1]);
        EXPECT(a != NULL && b != NULL && stride[0] == stride[1] && stride[0] >= wanted);
        for (int rank = 0; rank < 3; rank++) {
            memset(a + (size_t)rank * stride[0], rank + 1, wanted);
        }
        for (int rank = 0; rank < 3; rank++) {
            const char *last = b + (size_t)rank * stride[1] + wanted - 1;
            EXPECT_EQ(*last, rank + 1);
        }
    }
    EXPECT(tt_arena_scratch(arena[0], (size_t)1 << 50, &stride[0]) == NULL);
    EXPECT_CONTAINS(tt_last_error(), "are too many");
    for (int from = 0; from < 3; from++) {
        for (int to = 0; to < 3; to++) {
            memset(tt_arena_pair(arena[0], from, to), 3 * from + to, TT_ARENA_PAIR_BYTES);
            char *data = tt_arena_pair_data(arena[0], from, to, &bytes[0]);
            EXPECT(data != NULL && bytes[0] >= 4096);
            data[0] = data[bytes[0] - 1] = (char)(3 * from + to);
        }
    }
    for (int from = 0; from < 3; from++) {
        for (int to = 0; to < 3; to++) {
            const char *lines = tt_arena_pair(arena[1], from, to);
            const char *data = tt_arena_pair_data(arena[1], from, to, &bytes[1]);
            EXPECT(lines[0] == 3 * from + to && lines[TT_ARENA_PAIR_BYTES - 1] == 3 * from + to);
            EXPECT(data[0] == 3 * from + to && data[bytes[1] - 1] == 3 * from + to);
        }
    }
    tt_arena_release(arena[0]);
    tt_arena_release(arena[1]);
    close(descriptor);
}

// A rank's process has died, and its parent has not asked for it yet; nor has anybody heard of it.
static void memory_of_the_dead(void)
{
    struct team team;
    char *memory = NULL;
    make_team(&team, 2, true, 0, 0);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(0);
    }
    siginfo_t info;
    EXPECT_EQ(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    struct tt_arena_segment *segment = &tt_arena_segments(team.host[0]->arena, 1)[0];
    segment->pid = pid;
    segment->descriptor = 3;
    segment->bytes = 4096;
    atomic_fetch_add(&segment->version, 2);
    atomic_fetch_add(&tt_arena_own(team.host[0]->arena, 1)->segments_version, 1);
    EXPECT_EQ(tt_buffers_reach(team.host[0], 1, 0, UINT64_C(1) << 48, 64, &memory),
              ncclRemoteError);
    EXPECT_CONTAINS(tt_thread_error(), "rank 0: rank 1 (process ");
    EXPECT_CONTAINS(tt_thread_error(), ") died");
    EXPECT_EQ(waitpid(pid, NULL, 0), pid);
    EXPECT_EQ(tt_buffers_reach(team.host[0], 1, 0, UINT64_C(1) << 48, 64, &memory),
              ncclRemoteError);
    free_team(&team);
}

static void note_end(void *owner)
{
    ++*(int *)owner;
}

// A rank alone has no file; who owns the room hears of the arena's end once.
static void memory_of_one(void)
{
    int ends = 0;
    size_t bytes = 0, stride = 0;
    struct tt_room room = {.base = aligned_alloc(64, tt_arena_bytes(1) / 64 * 64 + 64),
                           .descriptor = -1,
                           .leave = note_end,
                           .owner = &ends};
    memset(room.base, 0, tt_arena_bytes(1));
    struct tt_arena *arena = NULL;
    EXPECT_OK(tt_arena_map(&room, 1, &arena));
    char *data = tt_arena_pair_data(arena, 0, 0, &bytes);
    char *scratch = tt_arena_scratch(arena, 100000, &stride);
    EXPECT(data != NULL && scratch != NULL);
    data[0] = data[bytes - 1] = scratch[99999] = 1;
    EXPECT(tt_arena_scratch(arena, 200000, &stride) != NULL && stride >= 200000);
    tt_arena_hold(arena);
    tt_arena_release(arena);
    EXPECT_EQ(ends, 0);
    tt_arena_release(arena);
    EXPECT_EQ(ends, 1);
    free(room.base);
}

int main(void)
{
    RUN(entering);
    RUN(description_while_entering);
    RUN(numbers_wrap);
    RUN(disagreement);
    RUN(overwritten_words);
    RUN(turns);
    RUN(signals);
    RUN(failures);
    RUN(waits_end);
    RUN(giving_up);
    RUN(ends_let_go);
    RUN(nobody_is_waited_for_long);
    RUN(memory_grows);
    RUN(memory_of_one);
    RUN(memory_of_the_dead);
    return expect_result();
}
