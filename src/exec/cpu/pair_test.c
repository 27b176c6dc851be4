// Messages of a pair by themselves, and waits in a circle. Ranks are hosts of this thread, each
// with a mapping of its own.
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/pair.h"

#include "base/log.h"
#include "exec/cpu/circle.h"
#include "exec/cpu/test_team.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct tt_message_run message(enum tt_function function, void *buffer, size_t count,
                                     int peer)
{
    static struct tt_record_line line;
    struct tt_op op = {.function = function,
                       .send = function == TT_SEND ? buffer : NULL,
                       .recv = function == TT_RECV ? buffer : NULL,
                       .count = count,
                       .type = ncclInt8,
                       .root = peer};
    return (struct tt_message_run){.op = op, .line = &line};
}

// As the work of a group does before its messages begin.
static void announce(struct tt_host *host, const struct tt_message_run *message)
{
    tt_message_announce(host, &message->op);
    atomic_fetch_add(&tt_arena_own(host->arena, host->rank)->messages, 1);
}

// Sends one message, looked at in the given order until both are over; false: that took too long.
static bool pass(struct team *team, size_t count, bool receiver_first)
{
    char *from = malloc(count + 1), *to = calloc(1, count + 1);
    for (size_t i = 0; i < count; i++) {
        from[i] = (char)(i * 7 + i / 256 + count);
    }
    struct tt_message_run run[2] = {message(TT_SEND, from, count, 1),
                                    message(TT_RECV, to, count, 0)};
    enum tt_progress progress[2] = {TT_WAITING, TT_WAITING};
    for (int i = 0; i < 2; i++) {
        int rank = i ^ (receiver_first ? 1 : 0);
        tt_message_begin(team->host[rank], &run[rank]);
        if (receiver_first && i == 0) {
            EXPECT_EQ(tt_message_step(team->host[1], &run[1]), TT_WAITING);
            EXPECT(tt_message_is_alone(team->host[1], &run[1].op, run[1].number));
        }
    }
    for (int look = 0; look < 100000; look++) {
        int rank = (look + (receiver_first ? 1 : 0)) % 2;
        if (progress[rank] == TT_WAITING) {
            progress[rank] = tt_message_step(team->host[rank], &run[rank]);
        }
    }
    bool right = progress[0] == TT_DONE && progress[1] == TT_DONE && memcmp(from, to, count) == 0;
    right = right && to[count] == 0;
    free(from);
    free(to);
    return right;
}

// Host memory of other processes: through the pair's data, around its end and around again.
static void sizes(void)
{
    static const size_t counts[] = {0,     1,      104,    105,    4096,   65535,
                                    65536, 262143, 262144, 262145, 1000001};
    struct team team;
    make_team(&team, 2, true, 0, 1);
    for (int round = 0; round < 4; round++) {
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            EXPECT(pass(&team, counts[i], (round + (int)i) % 2 == 0));
        }
    }
    free_team(&team);
}

// A sender is ahead of its receiver by as many small messages as there are places, no more.
static void ahead(void)
{
    struct team team;
    char byte[TT_PAIR_OFFERS + 1], got = 0;
    make_team(&team, 2, true, 0, 1);
    struct tt_message_run send[TT_PAIR_OFFERS + 1];
    for (int i = 0; i <= TT_PAIR_OFFERS; i++) {
        byte[i] = (char)('a' + i);
        send[i] = message(TT_SEND, &byte[i], 1, 1);
        tt_message_begin(team.host[0], &send[i]);
        EXPECT_EQ(tt_message_step(team.host[0], &send[i]),
                  i < TT_PAIR_OFFERS ? TT_DONE : TT_WAITING);
        byte[i] = i < TT_PAIR_OFFERS ? '-' : byte[i]; // it has been taken
    }
    for (int i = 0; i <= TT_PAIR_OFFERS; i++) {
        struct tt_message_run receive = message(TT_RECV, &got, 1, 0);
        tt_message_begin(team.host[1], &receive);
        EXPECT_EQ(tt_message_step(team.host[1], &receive), TT_DONE);
        EXPECT_EQ(got, 'a' + i);
        if (i == 0) {
            EXPECT_EQ(tt_message_step(team.host[0], &send[TT_PAIR_OFFERS]), TT_DONE);
        }
    }
    free_team(&team);
}

static void disagreement(void)
{
    static const struct {
        size_t send, recv;
        ncclDataType_t type;
    } cases[] = {
        {3, 4, ncclInt8},    {4, 3, ncclInt8},       {4, 4, ncclUint8},       {3, 9000, ncclInt8},
        {9000, 3, ncclInt8}, {9000, 9001, ncclInt8}, {9000, 2250, ncclInt32},
    };
    static char from[16384], to[16384];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct team team;
        make_team(&team, 2, true, 0, 1);
        struct tt_message_run send = message(TT_SEND, from, cases[i].send, 1);
        struct tt_message_run receive = message(TT_RECV, to, cases[i].recv, 0);
        receive.op.type = cases[i].type;
        tt_message_begin(team.host[0], &send);
        tt_message_begin(team.host[1], &receive);
        (void)tt_message_step(team.host[0], &send);
        EXPECT_EQ(tt_message_step(team.host[1], &receive), TT_FAILED);
        EXPECT(tt_host_is_over(team.host[0]));
        for (int rank = 0; rank < 2; rank++) {
            char text[64];
            EXPECT_EQ(atomic_load(&team.errors[rank]), ncclInvalidUsage);
            (void)snprintf(text, sizeof text, "rank 0 called Send(count %zu, ", cases[i].send);
            EXPECT_CONTAINS(team.told[rank], text);
            (void)snprintf(text, sizeof text, "rank 1: Recv(count %zu, ", cases[i].recv);
            EXPECT_CONTAINS(team.told[rank], text);
        }
        free_team(&team);
    }
}

// ---- Circles ------------------------------------------------------------------------------------

// Everybody sends to the next: no circle before the last one does, and none where a receive comes
// with it.
static void circles(void)
{
    static char memory[8192];
    for (int with_receive = 0; with_receive < 2; with_receive++) {
        struct team team;
        struct tt_message_run run[3], receive;
        make_team(&team, 3, true, 0, 1);
        for (int rank = 0; rank < 3; rank++) {
            EXPECT_OK(atomic_load(&team.errors[0]));
            run[rank] = message(TT_SEND, memory, sizeof memory, (rank + 1) % 3);
            announce(team.host[rank], &run[rank]);
            tt_message_begin(team.host[rank], &run[rank]);
            if (with_receive && rank == 2) { // in the same work
                receive = message(TT_RECV, memory, sizeof memory, 1);
                tt_message_announce(team.host[2], &receive.op);
            }
            (void)tt_message_step(team.host[rank], &run[rank]);
            for (int who = 0; who <= rank; who++) {
                tt_circle_look(team.host[who]);
            }
        }
        if (with_receive) {
            EXPECT_OK(atomic_load(&team.errors[2]));
            tt_message_begin(team.host[2], &receive);
            tt_circle_look(team.host[2]);
            EXPECT_OK(atomic_load(&team.errors[2]));
            for (int i = 0; i < 3; i++) { // the rest waits for nobody in a circle
                tt_circle_look(team.host[i]);
                EXPECT_OK(atomic_load(&team.errors[i]));
            }
        } else {
            EXPECT(tt_host_is_over(team.host[1]));
            EXPECT_EQ(atomic_load(&team.errors[1]), ncclInvalidUsage);
            EXPECT_CONTAINS(team.told[1], "circle");
            EXPECT_CONTAINS(team.told[1], "rank 2 in Send(count 8192, int8, to rank 0); put");
        }
        free_team(&team);
    }
}

static void enter(struct tt_host *host, size_t count)
{
    static struct tt_record_line line;
    struct tt_op op = {.function = TT_ALL_REDUCE, .count = count, .type = ncclFloat32};
    struct tt_entry entry = {
        .call = {.function = TT_ALL_REDUCE, .count = count, .type = (uint8_t)ncclFloat32}};
    host->line = &line;
    tt_host_enter(host, &entry, tt_op_signature(&op));
}

// Two communicators in opposite orders on one stream each: rank 1's work in the first is behind its
// work in the second. While that goes on there is no circle; once it waits for rank 0 there is.
static void cross(struct team *first, struct team *second)
{
    cudaStream_t stream = (cudaStream_t)(uintptr_t)0x1000, other = (cudaStream_t)(uintptr_t)0x2000;
    make_team(first, 2, true, 0, 11);
    make_team(second, 2, true, 0, 22);
    enter(first->host[0], 5);
    uint64_t turn = tt_host_call(second->host[1]);
    tt_circle_queued(second->host[1], turn, stream, false);
    EXPECT_EQ(tt_host_begin(second->host[1], turn), TT_DONE);
    uint64_t behind = tt_host_call(first->host[1]);
    tt_circle_queued(first->host[1], behind, stream, false);
    tt_circle_look(first->host[0]);
    EXPECT_OK(atomic_load(&first->errors[0])); // rank 1 does something in the second
    enter(second->host[1], 6);
    // Rank 0's part in the second is behind its part in the first, on its own stream.
    uint64_t own = tt_host_call(first->host[0]);
    tt_circle_queued(first->host[0], own, other, true);
    uint64_t next = tt_host_call(second->host[0]);
    tt_circle_queued(second->host[0], next, other, false);
    failing = second; // whose host fails first does not matter: both have the text
}

static void uncross(struct team *first, struct team *second)
{
    atomic_store(&first->abort_flag, 1);
    atomic_store(&second->abort_flag, 1);
    tt_host_end(second->host[1], 1);
    free_team(first);
    free_team(second);
}

static void crossed(void)
{
    struct team first, second;
    cross(&first, &second);
    tt_circle_look(first.host[0]);
    EXPECT(tt_host_is_over(first.host[0]) && tt_host_is_over(second.host[1]));
    EXPECT_CONTAINS(second.told[1], "in a circle");
    EXPECT_CONTAINS(second.told[1], "AllReduce(count 5");
    EXPECT_CONTAINS(second.told[1], "AllReduce(count 6");
    EXPECT_CONTAINS(second.told[1], "rank 1's next work on test is behind rank 1's on test");
    uncross(&first, &second);
}

// A communicator that has failed waits for nobody any more, nor does a rank that has ended, here or
// in another process: what is behind their work will begin.
static void over_in_a_circle(void)
{
    for (int how = 0; how < 3; how++) {
        struct team first, second;
        cross(&first, &second);
        if (how == 0) {
            (void)tt_host_fail(second.host[0], ncclSystemError, "rank 0: gone");
        } else if (how == 1) {
            atomic_store(&second.abort_flag, 1);
        } else {
            atomic_store(&tt_arena_own(second.host[0]->arena, 1)->is_over, 1);
        }
        tt_circle_look(first.host[0]);
        EXPECT(!tt_host_is_over(first.host[0]));
        EXPECT_OK(atomic_load(&first.errors[0]));
        uncross(&first, &second);
    }
}

// A circle whose ranks do not all fit into the text: it says how many more there are.
static void long_circle(void)
{
    static char memory[8192];
    struct team team;
    struct tt_message_run run[MOST];
    char text[32];
    int told = 0;
    make_team(&team, MOST, true, 0, 1);
    for (int rank = 0; rank < MOST; rank++) {
        run[rank] = message(TT_SEND, memory, sizeof memory, (rank + 1) % MOST);
        announce(team.host[rank], &run[rank]);
        tt_message_begin(team.host[rank], &run[rank]);
        (void)tt_message_step(team.host[rank], &run[rank]);
    }
    tt_circle_look(team.host[0]);
    EXPECT(tt_host_is_over(team.host[5]));
    for (const char *at = team.told[5]; (at = strstr(at, " in Send(")) != NULL; at++) {
        told++;
    }
    EXPECT(told >= 5);
    (void)snprintf(text, sizeof text, "; and %d more; put ", MOST - told);
    EXPECT_CONTAINS(team.told[5], text);
    free_team(&team);
}

// ---- Signals ------------------------------------------------------------------------------------

// Counted for each pair, whenever they are given; waits use them up.
static void signals(void)
{
    struct team team;
    make_team(&team, 3, true, 0, 1);
    struct tt_host *zero = team.host[0], *one = team.host[1];
    EXPECT_EQ(tt_signal_number(one, 0), 1);
    tt_signal_give(one, 0);
    tt_signal_give(one, 0);
    tt_signal_give(team.host[2], 0);
    tt_signal_give(zero, 0);
    EXPECT_EQ(tt_signal_number(one, 0), 3);
    EXPECT_EQ(tt_signal_given(zero, 1), 2);
    EXPECT_EQ(tt_signal_given(zero, 2), 1);
    EXPECT_EQ(tt_signal_given(zero, 0), 1);
    EXPECT_EQ(tt_signal_given(one, 0), 0);
    EXPECT(!tt_signal_is_owed(zero, 0, 1));
    EXPECT_EQ(tt_signal_want(zero, 1, 1), 1);
    EXPECT(!tt_signal_is_owed(zero, 0, 1));
    EXPECT_EQ(tt_signal_want(zero, 1, 3), 4);
    EXPECT(tt_signal_is_owed(zero, 0, 1));
    EXPECT(tt_signal_is_owed(one, 0, 1)); // as another rank sees it
    EXPECT(!tt_signal_is_owed(zero, 0, 2));
    EXPECT(!tt_signal_is_owed(zero, 1, 0));
    tt_signal_give(one, 0);
    EXPECT(tt_signal_is_owed(zero, 0, 1));
    tt_signal_give(one, 0);
    EXPECT(!tt_signal_is_owed(zero, 0, 1));
    free_team(&team);
}

static void start_waiting(struct tt_host *host, int peer)
{
    (void)tt_signal_want(host, peer, 1);
    atomic_fetch_add(&tt_arena_own(host->arena, host->rank)->waits, 1);
}

// Rank 0 waits for a signal of 1, 1 for one of 2: no circle before 2 waits for 0, and none where
// the signal has come meanwhile.
static void waits_for_signals(void)
{
    for (int comes = 0; comes < 2; comes++) {
        struct team team;
        make_team(&team, 3, true, 0, 1);
        for (int rank = 0; rank < 3; rank++) {
            EXPECT_OK(atomic_load(&team.errors[0]));
            start_waiting(team.host[rank], (rank + 1) % 3);
            if (comes && rank == 2) {
                tt_signal_give(team.host[1], 0);
            }
            tt_circle_look(team.host[0]);
        }
        if (comes) {
            EXPECT_OK(atomic_load(&team.errors[0]));
        } else {
            EXPECT(tt_host_is_over(team.host[0]));
            EXPECT_EQ(atomic_load(&team.errors[0]), ncclInvalidUsage);
            EXPECT_CONTAINS(team.told[0], "rank 2 in WaitSignal(1 signal, from rank 0); give ");
        }
        free_team(&team);
    }
}

int main(void)
{
    RUN(sizes);
    RUN(ahead);
    RUN(disagreement);
    RUN(circles);
    RUN(crossed);
    RUN(over_in_a_circle);
    RUN(long_circle);
    RUN(signals);
    RUN(waits_for_signals);
    return expect_result();
}
