// tuttiAllReduceRMSNorm in the ways in which ranks call it: one thread for all of them, in groups
// and one after another, on streams of their own, on one and on several; far ahead of
// each other. And what ends its waits: calls that differ, a rank that is late, aborts, finalizes,
// dies.
// SPDX-License-Identifier: Apache-2.0
#include "fused.h"
#include "ranks.h"

#include <pthread.h>
#include <stdint.h>

// ---- One thread for all ranks -------------------------------------------------------------------

static void run_from_one_thread(struct member *all, int size, enum way way, int round)
{
    for (int r = 0; r < size; r++) {
        fill(&all[r], round, all[r].stream);
    }
    if (way != NO_GROUP) {
        EXPECT_OK(ncclGroupStart());
    }
    for (int r = 0; r < size; r++) {
        EXPECT_OK(call(&all[r], all[way == ONE_STREAM ? 0 : r].stream));
    }
    if (way != NO_GROUP) {
        EXPECT_OK(ncclGroupEnd());
    }
    for (int r = 0; r < size; r++) {
        check(&all[r], round, all[way == ONE_STREAM ? 0 : r].stream);
    }
}

static void one_thread(void)
{
    struct member all[MOST];
    for (int size = 2; size <= MOST; size *= 2) {
        if (join_all(all, size)) {
            for (int round = 0; round < 6; round++) {
                run_from_one_thread(all, size, (enum way)(round % possible_ways()), round);
            }
        }
        for (int r = 0; r < size; r++) {
            member_leave(&all[r]);
        }
    }
}

// ---- Several streams in one group ---------------------------------------------------------------

struct member_on_two {
    struct member member;
    cudaStream_t other;
};

static ncclResult_t call_rows(const struct member *m, size_t tokens, cudaStream_t stream)
{
    return tuttiAllReduceRMSNorm(m->memory, m->memory + bytes, tokens, HIDDEN, NULL, ncclFloat,
                                 m->comm, stream);
}

// Makes the second call long after the first.
static void *call_late(void *argument)
{
    const struct member_on_two *m = argument;
    EXPECT_CUDA(cudaSetDevice(0));
    EXPECT_OK(call_rows(&m->member, 1, m->member.stream));
    usleep(50000);
    EXPECT_OK(call_rows(&m->member, TOKENS, m->other));
    return NULL;
}

// What comes on any of a rank's streams behind a group comes behind all that the group launched:
// the second operation alone fills all rows, on another stream than the one that is waited for.
static void run_on_two_streams(struct member_on_two *all, int size, int round)
{
    pthread_t thread;
    struct member_on_two *last = &all[size - 1];
    for (int r = 0; r < size; r++) {
        fill(&all[r].member, round, all[r].member.stream);
    }
    EXPECT_EQ(pthread_create(&thread, NULL, call_late, last), 0);
    EXPECT_OK(ncclGroupStart());
    for (int r = 0; r < size - 1; r++) {
        EXPECT_OK(call_rows(&all[r].member, 1, all[r].member.stream));
        EXPECT_OK(call_rows(&all[r].member, TOKENS, all[r].other));
    }
    EXPECT_OK(ncclGroupEnd());
    for (int r = 0; r < size - 1; r++) {
        check(&all[r].member, round, all[r].member.stream);
    }
    pthread_join(thread, NULL);
    check(&last->member, round, last->other);
}

static void several_streams(void)
{
    struct member joined[4];
    struct member_on_two all[4];
    bool good = join_all(joined, 4);
    for (int r = 0; r < 4; r++) {
        all[r].member = joined[r];
        good = EXPECT_CUDA(cudaStreamCreateWithFlags(&all[r].other, cudaStreamNonBlocking)) && good;
    }
    for (int round = 0; good && round < 3; round++) {
        run_on_two_streams(all, 4, round);
    }
    for (int r = 0; r < 4; r++) {
        member_leave(&all[r].member);
        EXPECT_CUDA(cudaStreamDestroy(all[r].other));
    }
}

// ---- Groups of several threads ------------------------------------------------------------------

enum { TURNS = 4 };

// A rank whose inputs and outputs are copied by its stream alone, with no wait on the host between.
struct queued {
    struct member member;
    float *source, *result; // on the device; [TURNS][ELEMENTS]
};

static bool open_queued(struct queued *all, int size)
{
    struct member joined[MOST];
    bool good = join_all(joined, size);
    float *host = malloc(TURNS * bytes);
    for (int r = 0; good && r < size; r++) {
        all[r].member = joined[r];
        for (int i = 0; i < TURNS * ELEMENTS; i++) {
            host[i] = input_value(r, i % ELEMENTS, i / ELEMENTS);
        }
        good = EXPECT_CUDA(cudaMalloc((void **)&all[r].source, TURNS * bytes)) &&
               EXPECT_CUDA(cudaMalloc((void **)&all[r].result, TURNS * bytes)) &&
               EXPECT_CUDA(cudaMemcpy(all[r].source, host, TURNS * bytes, cudaMemcpyHostToDevice));
    }
    free(host);
    return good;
}

static void close_queued(struct queued *all, int size)
{
    float *host = malloc(TURNS * bytes);
    for (int r = 0; r < size; r++) {
        EXPECT_CUDA(cudaMemcpy(host, all[r].result, TURNS * bytes, cudaMemcpyDeviceToHost));
        for (int turn = 0; turn < TURNS; turn++) {
            expect_norm(host + (size_t)turn * ELEMENTS, size, turn);
        }
        EXPECT_CUDA(cudaFree(all[r].source));
        EXPECT_CUDA(cudaFree(all[r].result));
        member_leave(&all[r].member);
    }
    free(host);
}

// The ranks of one thread: two of each of two communicators, which it calls in its own order.
struct caller {
    struct queued *first[2], *second[2];
    bool one_stream;
    useconds_t delay_us;
};

static cudaStream_t stream_for(const struct caller *caller, int rank)
{
    return caller->first[caller->one_stream ? 0 : rank]->member.stream;
}

static void *call_in_groups(void *argument)
{
    const struct caller *caller = argument;
    EXPECT_CUDA(cudaSetDevice(0));
    for (int turn = 0; turn < TURNS; turn++) {
        size_t at = (size_t)turn * ELEMENTS;
        for (int i = 0; i < 4; i++) {
            const struct queued *q = i < 2 ? caller->first[i] : caller->second[i - 2];
            EXPECT_CUDA(cudaMemcpyAsync(q->member.memory, q->source + at, bytes,
                                        cudaMemcpyDeviceToDevice, stream_for(caller, i % 2)));
        }
        usleep(caller->delay_us);
        EXPECT_OK(ncclGroupStart());
        for (int i = 0; i < 4; i++) {
            const struct queued *q = i < 2 ? caller->first[i] : caller->second[i - 2];
            EXPECT_OK(call(&q->member, stream_for(caller, i % 2)));
        }
        EXPECT_OK(ncclGroupEnd());
        for (int i = 0; i < 4; i++) {
            const struct queued *q = i < 2 ? caller->first[i] : caller->second[i - 2];
            EXPECT_CUDA(cudaMemcpyAsync(q->result + at, q->member.memory + bytes, bytes,
                                        cudaMemcpyDeviceToDevice, stream_for(caller, i % 2)));
        }
    }
    EXPECT_CUDA(cudaStreamSynchronize(stream_for(caller, 0)));
    EXPECT_CUDA(cudaStreamSynchronize(stream_for(caller, 1)));
    return NULL;
}

// The second thread calls together with the first or later; where one launch does for all ranks,
// also in the other order of communicators, and with one stream for its ranks.
static void groups_of_threads(void)
{
    static const useconds_t delays_us[] = {0, 20000};
    bool together = possible_ways() == WAYS;
    for (int way = 0; way < (together ? 4 : 2); way++) {
        struct queued a[4], b[4];
        pthread_t thread;
        bool good = open_queued(a, 4);
        good = open_queued(b, 4) && good;
        struct caller caller[2] = {
            {{&a[0], &a[1]}, {&b[0], &b[1]}, way >= 2, 0},
            {{&a[2], &a[3]}, {&b[2], &b[3]}, way >= 2, delays_us[way % 2]},
        };
        if (together) {
            caller[1] =
                (struct caller){{&b[2], &b[3]}, {&a[2], &a[3]}, way >= 2, delays_us[way % 2]};
        }
        if (good) {
            EXPECT_EQ(pthread_create(&thread, NULL, call_in_groups, &caller[1]), 0);
            (void)call_in_groups(&caller[0]);
            pthread_join(thread, NULL);
        }
        close_queued(a, 4);
        close_queued(b, 4);
    }
}

// ---- Far ahead ----------------------------------------------------------------------------------

// Rank 0 has made all its calls before the others begin.
static void run_ahead(int rank, int size)
{
    struct member m;
    if (!join(&m, rank, size)) {
        return;
    }
    fill(&m, 0, m.stream);
    for (int turn = 0; turn < 2; turn++) {
        if (turn == (rank != 0)) {
            for (int i = 0; i < 100; i++) {
                EXPECT_OK(call(&m, m.stream));
            }
        }
        ranks_barrier();
    }
    check(&m, 0, m.stream);
    ranks_barrier();
    member_leave(&m);
}

static void far_ahead(void)
{
    run_thread_ranks(3, run_ahead, 60);
    run_ranks(2, run_ahead, 60);
}

// ---- What ends its waits ------------------------------------------------------------------------

static void differ(int rank, int size)
{
    struct member m;
    if (!join(&m, rank, size)) {
        return;
    }
    size_t hidden = rank == 1 ? HIDDEN / 2 : HIDDEN;
    (void)tuttiAllReduceRMSNorm(m.memory, m.memory + bytes, TOKENS, hidden, NULL, ncclFloat, m.comm,
                                m.stream);
    EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    EXPECT_EQ(await_error(&m), ncclInvalidUsage);
    EXPECT_CONTAINS(ncclGetLastError(m.comm), "hidden is");
    ranks_barrier();
    end(&m);
}

static void calls_that_differ(void)
{
    run_thread_ranks(3, differ, 60);
    run_ranks(2, differ, 60);
}

static void *abort_soon(void *argument)
{
    usleep(300000);
    EXPECT_OK(ncclCommAbort(((struct member *)argument)->comm));
    return NULL;
}

// Rank 0 calls, and is aborted; the others never call.
static void abort_a_wait(int rank, int size)
{
    struct member m;
    pthread_t thread;
    if (!join(&m, rank, size)) {
        return;
    }
    if (rank == 0) {
        EXPECT_OK(call(&m, m.stream));
        EXPECT_EQ(pthread_create(&thread, NULL, abort_soon, &m), 0);
        struct stopwatch watch = stopwatch_start();
        EXPECT_CUDA(cudaStreamSynchronize(m.stream));
        EXPECT_WITHIN(watch, 10);
        pthread_join(thread, NULL);
    } else {
        EXPECT_EQ(await_error(&m), ncclRemoteError);
        EXPECT_OK(ncclCommAbort(m.comm));
    }
    ranks_barrier();
    EXPECT_OK(ncclMemFree(m.memory));
    EXPECT_CUDA(cudaStreamDestroy(m.stream));
}

static void aborts(void)
{
    run_thread_ranks(2, abort_a_wait, 60);
    run_ranks(2, abort_a_wait, 60);
}

// Rank 1 never calls; TUTTI_TIMEOUT is 1.
static void be_late(int rank, int size)
{
    struct member m;
    if (!join(&m, rank, size)) {
        return;
    }
    if (rank != 1) {
        EXPECT_OK(call(&m, m.stream));
        EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    }
    EXPECT_EQ(await_error(&m), ncclTimeout);
    EXPECT_CONTAINS(ncclGetLastError(m.comm), "rank 1 (it");
    ranks_barrier();
    end(&m);
}

// In processes of their own, which read the setting.
static void late_threads(int process, int processes)
{
    (void)process;
    (void)processes;
    run_thread_ranks(3, be_late, 30);
}

static void timeouts(void)
{
    (void)setenv("TUTTI_TIMEOUT", "1", 1);
    run_ranks(1, late_threads, 60);
    run_ranks(2, be_late, 60);
    (void)unsetenv("TUTTI_TIMEOUT");
}

// Rank 1 has finalized the communicator, and calls no second time.
static void finalize(int rank, int size)
{
    struct member m;
    if (!join(&m, rank, size)) {
        return;
    }
    fill(&m, 0, m.stream);
    EXPECT_OK(call(&m, m.stream));
    if (rank == 1) {
        EXPECT_OK(ncclCommFinalize(m.comm));
    }
    check(&m, 0, m.stream);
    ranks_barrier();
    if (rank != 1) {
        EXPECT_OK(call(&m, m.stream));
        EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    }
    EXPECT_EQ(await_error(&m), ncclRemoteError);
    EXPECT_CONTAINS(ncclGetLastError(m.comm), "rank 1 has finalized the communicator");
    ranks_barrier();
    end(&m);
}

static void finalizes(void)
{
    run_thread_ranks(3, finalize, 60);
    run_ranks(2, finalize, 60);
}

static void die(int rank, int size)
{
    struct member m;
    if (!join(&m, rank, size)) {
        return;
    }
    if (rank == 0) {
        EXPECT_OK(call(&m, m.stream));
    }
    ranks_barrier();
    if (rank == 1) {
        _exit(3);
    }
    EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    EXPECT_EQ(await_error(&m), ncclRemoteError);
    end(&m);
}

static void deaths(void)
{
    int status[2];
    run_ranks_status(2, die, 60, status);
    EXPECT_EQ(status[0], 0);
}

int main(void)
{
    RUN(one_thread);
    RUN(several_streams);
    RUN(groups_of_threads);
    RUN(far_ahead);
    RUN(calls_that_differ);
    RUN(aborts);
    RUN(timeouts);
    RUN(finalizes);
    RUN(deaths);
    return expect_result();
}
