// Communicators and their children in any order: a small random driver. All ranks draw the same
// steps (split, shrink, work, end); how a rank ends a communicator, and what it does in between, it
// draws for itself.
//   comm_lives_test SEED ROUNDS   draws from other numbers, for longer
// SPDX-License-Identifier: Apache-2.0
#include <nccl.h>

#include "expect.h"
#include "member.h"
#include "ranks.h"

#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { FAMILY = 12, STEPS = 40 };

static uint64_t seed = 1;
static int rounds = 3;

// Numbers from 0 to n - 1.
static unsigned draw(uint64_t *state, unsigned n)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(*state >> 33) % n;
}

// A communicator as all ranks know it, and this rank's part.
struct life {
    unsigned members; // bits of ranks of the first communicator; 0: there is none
    int order[32];    // [count] the members in the communicator's order
    int count;
    ncclComm_t comm; // NULL: this rank is no member
};

struct driver {
    struct member m;
    uint64_t common, own; // states of numbers that all draw, and that this rank draws for itself
    struct life life[FAMILY];
    float *buffer;
};

static int place_of(const struct life *life, int rank)
{
    for (int i = 0; i < life->count; i++) {
        if (life->order[i] == rank) {
            return i;
        }
    }
    return -1;
}

// An all-reduce, and what it gave.
static void work(struct driver *d, const struct life *life)
{
    float value = (float)(1 + place_of(life, d->m.rank)), sum = 0;
    EXPECT_CUDA(cudaStreamSynchronize(d->m.stream)); // of a split, which has the buffer, too
    EXPECT_CUDA(cudaMemcpy(d->buffer, &value, sizeof value, cudaMemcpyHostToDevice));
    EXPECT_OK(ncclAllReduce(d->buffer, d->buffer, 1, ncclFloat, ncclSum, life->comm, d->m.stream));
    EXPECT_CUDA(cudaStreamSynchronize(d->m.stream));
    EXPECT_CUDA(cudaMemcpy(&sum, d->buffer, sizeof sum, cudaMemcpyDeviceToHost));
    EXPECT_NEAR(sum, life->count * (life->count + 1) / 2, 0);
}

static void await_comm(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress && EXPECT_OK(ncclCommGetAsyncError(comm, &state))) {
        poll(NULL, 0, 1);
    }
    EXPECT_EQ(state, ncclSuccess);
}

static void check_place(const struct driver *d, const struct life *life)
{
    int rank = -1, size = -1;
    if (life->comm != NULL) {
        EXPECT_OK(ncclCommUserRank(life->comm, &rank));
        EXPECT_OK(ncclCommCount(life->comm, &size));
        EXPECT_EQ(rank, place_of(life, d->m.rank));
        EXPECT_EQ(size, life->count);
    }
}

static struct life *free_place(struct driver *d)
{
    int i = 0;
    while (i < FAMILY && d->life[i].members != 0) {
        i++;
    }
    return i < FAMILY ? &d->life[i] : NULL;
}

static struct life *any_life(struct driver *d)
{
    int count = 0, choice;
    for (int i = 0; i < FAMILY; i++) {
        count += d->life[i].members != 0;
    }
    choice = (int)draw(&d->common, (unsigned)(count > 0 ? count : 1));
    for (int i = 0; i < FAMILY; i++) {
        if (d->life[i].members != 0 && choice-- == 0) {
            return &d->life[i];
        }
    }
    return NULL;
}

// ---- Steps --------------------------------------------------------------------------------------

// Two colours, or one, and ranks that get none; reversed or not. The children are two lives at
// most.
static void split(struct driver *d, struct life *parent, bool with_work)
{
    unsigned colors = 1 + draw(&d->common, 2), none = draw(&d->common, 6);
    bool reversed = draw(&d->common, 2) != 0, blocking = draw(&d->common, 3) != 0;
    struct life child[2] = {{.count = 0}, {.count = 0}};
    for (int i = 0; i < parent->count; i++) {
        int from = reversed ? parent->count - 1 - i : i;
        unsigned color = (unsigned)from % colors;
        if ((unsigned)from != none) {
            child[color].order[child[color].count++] = parent->order[from];
            child[color].members |= 1u << parent->order[from];
        }
    }
    int place = place_of(parent, d->m.rank);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    config.blocking = blocking;
    if (place >= 0) {
        int color = (unsigned)place == none ? NCCL_SPLIT_NOCOLOR : place % (int)colors;
        EXPECT_OK(ncclGroupStart());
        EXPECT_OK(ncclCommSplit(parent->comm, color, reversed ? -place : place, &comm, &config));
        if (with_work) {
            EXPECT_OK(ncclAllReduce(d->buffer, d->buffer, 1, ncclFloat, ncclMax, parent->comm,
                                    d->m.stream));
        }
        ncclResult_t result = ncclGroupEnd();
        EXPECT(result == ncclSuccess || (!blocking && result == ncclInProgress));
        await_comm(parent->comm);
        EXPECT_EQ(comm == NULL, color == NCCL_SPLIT_NOCOLOR);
        if (comm != NULL) {
            await_comm(comm);
            child[color].comm = comm;
        }
    }
    for (int c = 0; c < 2; c++) {
        struct life *life = free_place(d);
        if (child[c].members != 0 && life != NULL) {
            *life = child[c];
            check_place(d, life);
        } else if (child[c].comm != NULL) {
            EXPECT_OK(ncclCommDestroy(child[c].comm));
        }
    }
}

static void shrink(struct driver *d, const struct life *parent)
{
    struct life *life = free_place(d), child = {.count = 0};
    unsigned out = draw(&d->common, (unsigned)parent->count);
    int excluded[] = {(int)out}, place = place_of(parent, d->m.rank);
    if (parent->count < 2 || life == NULL) {
        return;
    }
    for (int i = 0; i < parent->count; i++) {
        if ((unsigned)i != out) {
            child.order[child.count++] = parent->order[i];
            child.members |= 1u << parent->order[i];
        }
    }
    if (place >= 0 && (unsigned)place != out) {
        ncclResult_t result =
            ncclCommShrink(parent->comm, excluded, 1, &child.comm, NULL, NCCL_SHRINK_DEFAULT);
        EXPECT(result == ncclSuccess || result == ncclInProgress); // as its parent
        await_comm(child.comm);
        await_comm(parent->comm);
    }
    *life = child;
    check_place(d, life);
}

// Others may have aborted it before.
static void end(struct driver *d, struct life *life)
{
    unsigned way = draw(&d->own, 4);
    ncclComm_t comm = life->comm;
    *life = (struct life){.count = 0};
    ranks_barrier(); // nobody is in an operation that an abort would end
    if (comm == NULL) {
        return;
    }
    if (way == 0) {
        EXPECT_OK(ncclCommAbort(comm));
        return;
    }
    if (way == 1) {
        (void)ncclCommFinalize(comm);
    }
    ncclResult_t result = ncclCommDestroy(comm);
    if (!EXPECT(result == ncclSuccess || result == ncclRemoteError)) {
        printf("ncclCommDestroy: %d, %s\n", (int)result, ncclGetLastError(NULL));
    }
    EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidArgument);
}

static void step(struct driver *d)
{
    struct life *life = any_life(d);
    unsigned what = draw(&d->common, 8);
    if (draw(&d->own, 4) == 0) {
        poll(NULL, 0, 1);
    }
    if (life == NULL) {
        return;
    }
    if (what < 3) {
        split(d, life, what == 0);
    } else if (what == 3) {
        shrink(d, life);
    } else if (what < 6) {
        if (life->comm != NULL) {
            work(d, life);
        }
    } else {
        end(d, life);
    }
}

static void live(int rank, int size)
{
    struct driver d = {.own = seed * 1000 + (uint64_t)rank};
    const char *text = getenv("LIVES_SEED"); // for rank processes
    d.common = text != NULL ? strtoull(text, NULL, 10) : seed;
    text = getenv("LIVES_ROUNDS");
    int all = text != NULL ? atoi(text) : rounds; // NOLINT(cert-err34-c): the test's own
    for (int round = 0; round < all; round++) {
        if (!member_join(&d.m, rank, size)) {
            return;
        }
        EXPECT_CUDA(cudaMalloc((void **)&d.buffer, sizeof *d.buffer));
        d.life[0] = (struct life){.count = size, .comm = d.m.comm};
        d.m.comm = NULL;
        for (int r = 0; r < size; r++) {
            d.life[0].order[r] = r;
            d.life[0].members |= 1u << r;
        }
        for (int i = 0; i < STEPS && expect_failures() == 0; i++) {
            step(&d);
        }
        for (int i = 0; i < FAMILY; i++) {
            end(&d, &d.life[(i + (int)draw(&d.common, 1)) % FAMILY]);
        }
        EXPECT_CUDA(cudaStreamSynchronize(d.m.stream));
        EXPECT_CUDA(cudaFree(d.buffer));
        member_leave(&d.m);
    }
}

static void threads(void)
{
    static const int sizes[] = {1, 2, 3, 5};
    for (int i = 0; i < 4; i++) {
        run_thread_ranks(sizes[i], live, 200);
    }
}

static void processes(void)
{
    run_ranks(2, live, 200);
    run_ranks(4, live, 200);
}

int main(int argc, char **argv)
{
    if (argc == 3 && argv[1][0] != '-') {
        (void)setenv("LIVES_SEED", argv[1], 1);
        (void)setenv("LIVES_ROUNDS", argv[2], 1);
    }
    RUN(threads);
    RUN(processes);
    return expect_result();
}
