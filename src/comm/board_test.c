// Boards: exchanges of every size, calls that differ, failures, whose room it is; what the process
// holds while there are communicators, and afterwards.
// SPDX-License-Identifier: Apache-2.0
#include "comm/board.h"

#include "base/holdings.h"
#include "base/log.h"
#include "comm/board_internal.h"
#include "comm/comm.h"
#include "comm/meet.h"
#include "expect.h"
#include "member.h"
#include "ranks.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// A child, which meets on a board, of all ranks.
static bool join(struct member *m, ncclComm_t *child, int rank, int size)
{
    return member_join(m, rank, size) && EXPECT_OK(ncclCommSplit(m->comm, 0, rank, child, NULL)) &&
           EXPECT((*child)->bootstrap == NULL);
}

static void leave(struct member *m, ncclComm_t child)
{
    EXPECT_OK(ncclCommDestroy(child));
    member_leave(m);
}

// Every rank's bytes are a function of rank, round and place.
static unsigned char byte_of(int rank, int round, size_t i)
{
    return (unsigned char)(31 * rank + 7 * round + (int)i);
}

static void exchange_once(ncclComm_t comm, int round, size_t bytes)
{
    size_t n = (size_t)comm->nranks, wrong = 0;
    unsigned char *data = calloc(n, bytes + 1);
    for (size_t i = 0; i < bytes; i++) {
        data[(size_t)comm->rank * bytes + i] = byte_of(comm->rank, round, i);
    }
    EXPECT_OK(tt_meet_allgather(comm, data, bytes));
    for (size_t r = 0; r < n; r++) {
        for (size_t i = 0; i < bytes; i++) {
            wrong += data[r * bytes + i] != byte_of((int)r, round, i);
        }
    }
    EXPECT_EQ(wrong, 0);
    free(data);
}

static void exchange_all(int rank, int size)
{
    static const size_t sizes[] = {0, 1, 7, 8, 9, 63, 511, 512, 513, 1024, 3000};
    struct member m;
    ncclComm_t comm = NULL;
    if (!join(&m, &comm, rank, size)) {
        return;
    }
    for (int round = 0; round < 30; round++) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            exchange_once(comm, round, sizes[i]);
        }
        EXPECT_OK(tt_meet_barrier(comm));
    }
    leave(&m, comm);
}

static void exchanges(void)
{
    run_thread_ranks(2, exchange_all, 30);
    run_thread_ranks(5, exchange_all, 60);
    run_ranks(3, exchange_all, 60);
}

// Ranks that exchange different things are told so: the communicator fails.
static void differ(int rank, int size)
{
    struct member m;
    ncclComm_t comm = NULL;
    char data[64] = {0};
    if (!join(&m, &comm, rank, size)) {
        return;
    }
    // A rank that reads when others have gone on hears of it with the next exchange.
    ncclResult_t result = tt_meet_allgather(comm, data, rank == 1 ? 4 : 16);
    if (result == ncclSuccess) {
        result = tt_meet_barrier(comm);
    }
    EXPECT_EQ(result, ncclInvalidUsage);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "all ranks must make the same calls");
    for (int i = 0; i < 1000 && tt_meet_look(comm) == ncclSuccess; i++) {
        poll(NULL, 0, 1); // another rank is still writing why
    }
    EXPECT_EQ(tt_meet_look(comm), ncclInvalidUsage);
    EXPECT_OK(ncclCommAbort(comm));
    member_leave(&m);
}

// A failure is all ranks', with the first reason.
static void fail(int rank, int size)
{
    struct member m;
    ncclComm_t comm = NULL;
    char text[512];
    if (!join(&m, &comm, rank, size)) {
        return;
    }
    EXPECT(!tt_meet_has_failed(comm) && tt_meet_dead_rank(comm) == -1);
    ranks_barrier();
    if (rank == 1) {
        tt_meet_report_failure(comm, "it wants to");
        tt_meet_report_failure(comm, "and again");
        EXPECT_OK(tt_meet_look(comm)); // no news for itself
    } else {
        EXPECT_EQ(tt_meet_barrier(comm), ncclRemoteError);
        EXPECT_EQ(tt_meet_look(comm), ncclRemoteError);
    }
    tt_meet_failure(comm, text, sizeof text);
    EXPECT_CONTAINS(text, "rank 1 failed: it wants to");
    EXPECT_OK(ncclCommAbort(comm));
    comm = NULL;
    // The room of that one is free, and zeros again.
    ranks_barrier();
    EXPECT_OK(ncclCommSplit(m.comm, 0, rank, &comm, NULL));
    EXPECT(!tt_meet_has_failed(comm));
    EXPECT_EQ(atomic_load(&tt_meet_left(comm)[1]), 0);
    exchange_once(comm, 1, 100);
    leave(&m, comm);
}

// A rank that dies while it tells of a failure keeps nobody from telling of another: its death.
static void die_as_it_fails(int rank, int size)
{
    struct member m;
    ncclComm_t comm = NULL;
    char text[512];
    if (!join(&m, &comm, rank, size)) {
        return;
    }
    struct tt_board *board = comm->board;
    ranks_barrier();
    if (rank == 1) {
        atomic_store(&tt_board_head(board)->failed,
                     TT_FAILURE_OF + (uint32_t)tt_board_process(board, 1));
        (void)kill(getpid(), SIGKILL);
    }
    for (int i = 0; i < 5000 && tt_meet_look(comm) == ncclSuccess; i++) {
        poll(NULL, 0, 1);
    }
    EXPECT_EQ(tt_meet_look(comm), ncclRemoteError);
    EXPECT_EQ(tt_meet_dead_rank(comm), 1);
    tt_meet_failure(comm, text, sizeof text);
    EXPECT_CONTAINS(text, "rank 1 (process");
    EXPECT_OK(ncclCommAbort(comm));
    EXPECT_OK(ncclCommAbort(m.comm));
    exit(expect_failures() > 0);
}

static void failures(void)
{
    int statuses[2];
    run_thread_ranks(3, differ, 30);
    run_ranks(2, differ, 30);
    run_thread_ranks(3, fail, 30);
    run_ranks(3, fail, 30);
    run_ranks_status(2, die_as_it_fails, 30, statuses);
    EXPECT(WIFEXITED(statuses[0]) && WEXITSTATUS(statuses[0]) == 0);
    EXPECT(WIFSIGNALED(statuses[1]));
}

// One of two ranks of a communicator, and a room that rank 0 has taken in its family.
struct guest {
    struct member m;
    ncclComm_t comm;
    struct tt_family *family;
    int process[2];
    struct tt_room_slot slots[2]; // rank 0's is the room
};

static bool arrive(struct guest *g, int rank, int size)
{
    *g = (struct guest){.comm = NULL};
    if (!join(&g->m, &g->comm, rank, size)) {
        return false;
    }
    g->family = tt_board_family(g->comm->board);
    for (int r = 0; r < size; r++) {
        g->process[r] = tt_board_process(g->comm->board, r);
    }
    return rank > 0 || EXPECT_OK(tt_family_take(g->family, &g->slots[0]));
}

static ncclResult_t enter(struct guest *g, struct tt_board **board_out)
{
    return tt_board_open(g->family, g->slots[0], g->process, 2, board_out);
}

// The room is theirs who have it, in whatever order those come and leave who make a communicator:
// rank 0's process comes twice, as its second thread does where the first has failed already.
static void come_again(int rank, int size)
{
    struct guest g;
    struct tt_board *board = NULL;
    struct tt_room_slot other;
    if (!arrive(&g, rank, size)) {
        return;
    }
    EXPECT_OK(tt_meet_allgather(g.comm, g.slots, sizeof g.slots[0]));
    if (rank == 1) {
        EXPECT_OK(enter(&g, &board));
        tt_board_fail(board, ncclRemoteError, -1, "rank 1 is still there");
    }
    ranks_barrier();
    for (int i = 0; rank == 0 && i < 2; i++) {
        EXPECT_OK(enter(&g, &board));
        EXPECT_EQ(tt_board_failure(board, NULL, NULL), ncclRemoteError);
        tt_board_release(board);
    }
    if (rank == 0) {
        tt_family_leave(g.family, g.slots[0].number); // as who has taken it
        EXPECT_OK(tt_family_take(g.family, &other));
        EXPECT(other.number != g.slots[0].number);
        tt_family_leave(g.family, other.number);
    }
    ranks_barrier();
    if (rank == 1) {
        EXPECT_EQ(tt_board_failure(board, NULL, NULL), ncclRemoteError);
        tt_board_release(board);
    }
    ranks_barrier();
    leave(&g.m, g.comm);
}

// A room that somebody never came to is free when the others have left, and he comes too late.
static void come_too_late(int rank, int size)
{
    struct guest g;
    struct tt_board *board = NULL;
    struct tt_room_slot other;
    if (!arrive(&g, rank, size)) {
        return;
    }
    if (rank == 0) {
        EXPECT_OK(enter(&g, &board));
        tt_family_leave(g.family, g.slots[0].number); // as who has taken it
        tt_board_release(board);
        EXPECT_OK(tt_family_take(g.family, &other)); // for another one
        EXPECT_EQ(other.number, g.slots[0].number);
    }
    EXPECT_OK(tt_meet_allgather(g.comm, g.slots, sizeof g.slots[0]));
    if (rank == 1) {
        EXPECT_EQ(enter(&g, &board), ncclRemoteError);
        EXPECT_CONTAINS(tt_thread_error(), "given up making it");
    }
    ranks_barrier();
    if (rank == 0) {
        tt_family_leave(g.family, other.number);
    }
    leave(&g.m, g.comm);
}

static void rooms(void)
{
    run_ranks(2, come_again, 60);
    run_ranks(2, come_too_late, 60);
}

// The account of the process.
static void hold(int rank, int size)
{
    struct member m;
    ncclComm_t comm = NULL;
    char text[160];
    if (!join(&m, &comm, rank, size)) {
        return;
    }
    EXPECT(tt_holdings(TT_HOLD_MAPPINGS) > 0);
    EXPECT(size == 1 || tt_holdings(TT_HOLD_CONNECTIONS) >= 1);
    member_open_window(&m, 1 << 20);
    leave(&m, comm);
    ranks_barrier();
    tt_holdings_describe(text, sizeof text);
    EXPECT_STR(text, "scratch 0, staging 0, mappings 0 bytes; 0 connections");
    ranks_barrier();
}

static void one_connection(void)
{
    char text[160];
    tt_holdings_add(TT_HOLD_CONNECTIONS, 1);
    tt_holdings_describe(text, sizeof text);
    EXPECT_STR(text, "scratch 0, staging 0, mappings 0 bytes; 1 connection");
    tt_holdings_remove(TT_HOLD_CONNECTIONS, 1);
}

static void holdings(void)
{
    run_thread_ranks(1, hold, 30);
    run_thread_ranks(3, hold, 30);
    run_ranks(2, hold, 60);
}

int main(void)
{
    RUN(exchanges);
    RUN(failures);
    RUN(rooms);
    RUN(one_connection);
    RUN(holdings);
    return expect_result();
}
