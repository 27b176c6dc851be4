// What happens to a team's communicators: work in them, splits, shrinks, ends in all ways. See
// soak.h. SPDX-License-Identifier: Apache-2.0
#include "soak.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static struct life *free_place(struct player *p)
{
    int i = 0;
    while (i < FAMILY && p->lives[i].members != 0) {
        i++;
    }
    return i < FAMILY ? &p->lives[i] : NULL;
}

static struct life *any_life(struct player *p)
{
    int count = 0, choice;
    for (int i = 0; i < FAMILY; i++) {
        count += p->lives[i].members != 0;
    }
    choice = (int)draw(&p->common, (unsigned)(count > 0 ? count : 1));
    for (int i = 0; i < FAMILY; i++) {
        if (p->lives[i].members != 0 && choice-- == 0) {
            return &p->lives[i];
        }
    }
    return NULL;
}

// ---- Children -----------------------------------------------------------------------------------

static void add_member(struct life *life, int rank)
{
    life->order[life->count++] = rank;
    life->members |= 1u << rank;
}

// The child has its place among the lives, or ends where there is none.
static void place_child(struct player *p, const struct life *child)
{
    struct life *life = free_place(p);
    if (child->comm != NULL) {
        int rank = -1, size = -1;
        EXPECT_OK(ncclCommUserRank(child->comm, &rank));
        EXPECT_OK(ncclCommCount(child->comm, &size));
        EXPECT_EQ(rank, place_of(child, p->rank));
        EXPECT_EQ(size, child->count);
        count_event(COMMUNICATORS);
    }
    if (child->members != 0 && life != NULL) {
        *life = *child;
    } else if (child->comm != NULL) {
        EXPECT_OK(ncclCommDestroy(child->comm));
    }
}

// Up to three colours, and perhaps a rank that gets none; reversed or not; blocking or not; alone
// or in a group with work of the parent.
static void split(struct player *p, struct life *parent)
{
    enum { COLORS = 3 };
    unsigned colors = 1 + draw(&p->common, COLORS), none = draw(&p->common, 6);
    bool reversed = draw(&p->common, 2) != 0, blocks = draw(&p->common, 3) != 0;
    struct life child[COLORS] = {{.count = 0}, {.count = 0}, {.count = 0}};
    for (int i = 0; i < parent->count; i++) {
        int from = reversed ? parent->count - 1 - i : i;
        if ((unsigned)from != none) {
            add_member(&child[(unsigned)from % colors], parent->order[from]);
        }
    }
    if (parent->comm != NULL) {
        int place = place_of(parent, p->rank);
        int color = (unsigned)place == none ? NCCL_SPLIT_NOCOLOR : place % (int)colors;
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        ncclComm_t comm = NULL;
        config.blocking = blocks;
        ncclResult_t result =
            ncclCommSplit(parent->comm, color, reversed ? -place : place, &comm, &config);
        EXPECT(result == ncclSuccess || (!blocks && result == ncclInProgress));
        is_well(await_ready(parent->comm, 30));
        EXPECT_EQ(comm == NULL, color == NCCL_SPLIT_NOCOLOR);
        if (comm != NULL) {
            is_well(await_ready(comm, 30));
            child[color].comm = comm;
        }
    }
    for (unsigned c = 0; c < COLORS; c++) {
        place_child(p, &child[c]);
    }
}

static void await_end(struct player *p, struct life *life);

// Without one member. Aborting: that member never comes to what the others wait for, and the parent
// is over.
static void shrink(struct player *p, struct life *parent)
{
    int out = (int)draw(&p->common, (unsigned)parent->count);
    bool aborts = draw(&p->common, 3) == 0;
    int place = place_of(parent, p->rank);
    struct life child = {.count = 0};
    if (parent->count < 2) {
        return;
    }
    if (aborts) {
        meet(p); // nobody is in an operation before
    }
    for (int i = 0; i < parent->count; i++) {
        if (i != out) {
            add_member(&child, parent->order[i]);
        }
    }
    if (place >= 0 && place != out) {
        void *memory = NULL;
        if (aborts) {
            EXPECT_CUDA(cudaMalloc(&memory, 4000));
            (void)ncclAllReduce(memory, memory, 1000, ncclFloat, ncclSum, parent->comm,
                                p->stream); // fails where another one shrinks already
            (void)await_ready(parent->comm, 30);
        }
        ncclResult_t result = ncclCommShrink(parent->comm, &out, 1, &child.comm, NULL,
                                             aborts ? NCCL_SHRINK_ABORT : NCCL_SHRINK_DEFAULT);
        is_well(result);
        is_well(await_ready(child.comm, 30));
        if (!aborts) {
            is_well(await_ready(parent->comm, 30));
        }
        (void)cudaStreamSynchronize(p->stream);
        EXPECT_CUDA(cudaFree(memory));
        count_event(SHRINKS);
    }
    if (aborts) {
        await_end(p, parent);
    }
    place_child(p, &child);
}

// ---- Ends ---------------------------------------------------------------------------------------

// The handle is no more; others may have aborted theirs before, or failed.
static void destroy(ncclComm_t comm)
{
    ncclResult_t result = ncclCommDestroy(comm);
    if (!EXPECT(result == ncclSuccess || result == ncclRemoteError || result == ncclInvalidUsage)) {
        printf("ncclCommDestroy: %d, %s\n", (int)result, ncclGetLastError(NULL));
    }
    EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidArgument);
}

static void abort_comm(ncclComm_t comm)
{
    EXPECT_OK(ncclCommAbort(comm));
    count_event(ABORTS);
}

// Each member ends its part, when all have come, as it likes.
static void await_end(struct player *p, struct life *life)
{
    ncclComm_t comm = life->comm;
    *life = (struct life){.count = 0};
    meet(p); // nobody is in an operation that an abort would end
    if (comm == NULL) {
        return;
    }
    switch (draw(&p->own, 4)) {
    case 0:
        abort_comm(comm);
        break;
    case 1:
        (void)ncclCommFinalize(comm);
        destroy(comm);
        break;
    default:
        destroy(comm);
        break;
    }
}

// Operations are on their way when all destroy it.
static void end_with_work(struct player *p, struct life *life)
{
    enum { TIMES = 4, COUNT = 5000 };
    unsigned *memory = NULL, *host = malloc(COUNT * sizeof *host), wrong = 0, right = 1;
    if (life->comm != NULL) {
        for (int i = 0; i < COUNT; i++) {
            host[i] = 1;
        }
        EXPECT_CUDA(cudaMalloc((void **)&memory, COUNT * sizeof *memory));
        EXPECT_CUDA(cudaMemcpy(memory, host, COUNT * sizeof *memory, cudaMemcpyHostToDevice));
        for (int i = 0; i < TIMES; i++) {
            EXPECT_OK(
                ncclAllReduce(memory, memory, COUNT, ncclUint32, ncclSum, life->comm, p->stream));
            right *= (unsigned)life->count;
        }
        EXPECT_OK(ncclCommDestroy(life->comm));
        EXPECT_CUDA(cudaStreamSynchronize(p->stream));
        EXPECT_CUDA(cudaMemcpy(host, memory, COUNT * sizeof *memory, cudaMemcpyDeviceToHost));
        for (int i = 0; i < COUNT; i++) {
            wrong += host[i] != right;
        }
        EXPECT_EQ(wrong, 0);
        EXPECT_CUDA(cudaFree(memory));
    }
    free(host);
    *life = (struct life){.count = 0};
}

struct late_abort {
    ncclComm_t comm;
    int after_ms;
};

static void *abort_later(void *argument)
{
    const struct late_abort *late = argument;
    sleep_ms(late->after_ms);
    abort_comm(late->comm);
    return NULL;
}

// One member does not come to an operation, and one, perhaps the same, aborts: from another thread
// while its own waits.
static void end_while_waiting(struct player *p, struct life *life)
{
    int missing = (int)draw(&p->common, (unsigned)life->count);
    int aborting = (int)draw(&p->common, (unsigned)life->count), place = place_of(life, p->rank);
    unsigned count = 1 + draw_size(&p->common, 100000);
    struct late_abort late = {life->comm, (int)draw(&p->own, 15)};
    ncclComm_t comm = life->comm;
    void *memory = NULL;
    pthread_t thread;
    bool works = life->count > 1;
    *life = (struct life){.count = 0};
    meet(p); // nobody is in an operation before
    if (comm != NULL) {
        EXPECT_CUDA(cudaMalloc(&memory, count * sizeof(float)));
        bool aborts =
            place == aborting && EXPECT_EQ(pthread_create(&thread, NULL, abort_later, &late), 0);
        if (place != missing && works) { // an abort may come before it, or be in it
            (void)ncclAllReduce(memory, memory, count, ncclFloat, ncclSum, comm, p->stream);
        }
        (void)cudaStreamSynchronize(p->stream);
        if (aborts) {
            EXPECT_EQ(pthread_join(thread, NULL), 0);
        } else {
            abort_comm(comm);
        }
        EXPECT_CUDA(cudaFree(memory));
    }
}

// Their calls differ: an error for all of them.
static void end_with_a_mismatch(struct player *p, struct life *life)
{
    enum { COUNT = 100 };
    int place = place_of(life, p->rank), others = life->count - 1;
    unsigned odd = draw(&p->common, (unsigned)life->count);
    ncclComm_t comm = life->comm;
    *life = (struct life){.count = 0};
    if (comm != NULL && others > 0) {
        void *memory = NULL;
        ncclResult_t state = ncclSuccess;
        size_t count = (unsigned)place == odd ? COUNT - 1 : COUNT;
        EXPECT_CUDA(cudaMalloc(&memory, COUNT * sizeof(float)));
        is_well(ncclAllReduce(memory, memory, count, ncclFloat, ncclSum, comm, p->stream));
        (void)cudaStreamSynchronize(p->stream);
        EXPECT_OK(ncclCommGetAsyncError(comm, &state));
        EXPECT_EQ(state, ncclInvalidUsage);
        EXPECT_CUDA(cudaFree(memory));
    }
    meet(p); // all have seen it before one aborts
    if (comm != NULL) {
        abort_comm(comm);
    }
}

static void end(struct player *p, struct life *life)
{
    switch (draw(&p->common, 7)) {
    case 2:
        end_with_a_mismatch(p, life);
        break;
    case 0:
        end_with_work(p, life);
        break;
    case 1:
        end_while_waiting(p, life);
        break;
    default:
        await_end(p, life);
        break;
    }
}

void end_lives(struct player *p)
{
    unsigned from = draw(&p->common, FAMILY);
    for (unsigned i = 0; i < FAMILY; i++) {
        struct life *life = &p->lives[(from + i * 3) % FAMILY];
        if (life->members != 0) {
            end(p, life);
        }
    }
}

// ---- Steps --------------------------------------------------------------------------------------

// Both in one group: sums of two communicators of which this player is in one, both or none.
static void work_in_two(struct player *p, const struct life *a, const struct life *b)
{
    const struct life *lives[2] = {a, b};
    uint64_t host[2] = {1 + (uint64_t)p->rank, 1 + (uint64_t)p->rank}, *memory = NULL;
    EXPECT_CUDA(cudaMalloc((void **)&memory, sizeof host));
    EXPECT_CUDA(cudaMemcpy(memory, host, sizeof host, cudaMemcpyHostToDevice));
    EXPECT_OK(ncclGroupStart());
    for (int i = 0; i < 2; i++) {
        if (lives[i]->comm != NULL) {
            EXPECT_OK(ncclAllReduce(memory + i, memory + i, 1, ncclUint64, ncclSum, lives[i]->comm,
                                    p->stream));
        }
    }
    EXPECT_OK(ncclGroupEnd());
    EXPECT_CUDA(cudaStreamSynchronize(p->stream));
    EXPECT_CUDA(cudaMemcpy(host, memory, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 2; i++) {
        uint64_t right = 0;
        for (int r = 0; r < lives[i]->count; r++) {
            right += 1 + (uint64_t)lives[i]->order[r];
        }
        if (lives[i]->comm != NULL) {
            EXPECT_EQ(host[i], right);
        }
    }
    EXPECT_CUDA(cudaFree(memory));
}

void step(struct player *p)
{
    struct life *life = any_life(p), *other = any_life(p);
    unsigned what = draw(&p->common, 16);
    struct draws draws = draw_draws(&p->common);
    if (draw(&p->own, 8) == 0) {
        sleep_ms(1);
    }
    if (life == NULL) {
        return;
    }
    if (p->index == 0) {
        count_event(STEPS);
    }
    if (what < 2) {
        split(p, life);
    } else if (what == 2) {
        shrink(p, life);
    } else if (what == 3) {
        end(p, life);
    } else if (what == 4) {
        if (other != life) {
            work_in_two(p, life, other);
        }
    } else if (life->comm != NULL) {
        struct member m = member_of(p, life);
        work(&m, draws);
    }
}
