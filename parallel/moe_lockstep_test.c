// All ranks' tokens in lockstep (case C91). SPDX-License-Identifier: Apache-2.0
#include "expect.h"
#include "member.h"
#include "tutti_parallel/expert.h"

#include <stdint.h>
#include <time.h>

enum { HIDDEN = 5 };
static const size_t tokens_c91[] = {500, 200, 256};
static const size_t tokens_few[] = {0, 3, 0}; // NULL pointers on two ranks
static const size_t tokens_none[] = {0, 0, 0};

static void sizes(void)
{
    size_t counts[3], first[3], steps = 0;
    EXPECT_OK(tuttiMoeChunk(tokens_c91, 3, 256, 0, counts, first, &steps));
    EXPECT_EQ(steps, 2);
    EXPECT(counts[0] == 256 && counts[1] == 200 && counts[2] == 256);
    EXPECT(first[0] == 0 && first[1] == 0 && first[2] == 0);
    EXPECT_OK(tuttiMoeChunk(tokens_c91, 3, 256, 1, counts, first, NULL));
    EXPECT(counts[0] == 244 && counts[1] == 0 && counts[2] == 0);
    EXPECT(first[0] == 256 && first[1] == 200 && first[2] == 256);
    EXPECT_OK(tuttiMoeChunk(tokens_c91, 3, 256, 2, counts, NULL, NULL));
    EXPECT(counts[0] == 0 && counts[1] == 0 && counts[2] == 0);
    EXPECT_OK(tuttiMoeChunk(tokens_c91, 3, 1000, 0, counts, NULL, &steps));
    EXPECT(steps == 1 && counts[0] == 500);
    EXPECT_EQ(tuttiMoeChunk(NULL, 3, 256, 0, counts, first, &steps), ncclInvalidArgument);
    EXPECT_EQ(tuttiMoeChunk(tokens_c91, 0, 256, 0, counts, first, &steps), ncclInvalidArgument);
    EXPECT_EQ(tuttiMoeChunk(tokens_c91, 3, 0, 0, counts, first, &steps), ncclInvalidArgument);
}

struct work {
    struct member m;
    size_t chunk;
    int calls;
};

static float element(int rank, size_t token, size_t i)
{
    return (float)(rank * 1000 + (int)(token * 7 + i) % 1000);
}

// Rank r adds (r + 1) * row; checks which rows came.
static ncclResult_t add_experts(void *context, const void *rows, void *sums, const size_t *counts,
                                cudaStream_t stream)
{
    struct work *work = context;
    const float *in = rows;
    float *out = sums;
    size_t row = 0, wrong = 0;
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    for (int r = 0; r < work->m.size; r++) {
        for (size_t t = 0; t < counts[r]; t++, row++) {
            for (size_t i = 0; i < HIDDEN; i++) {
                float value = element(r, t + work->chunk * (size_t)work->calls, i);
                wrong += in[row * HIDDEN + i] != value;
                out[row * HIDDEN + i] = (float)(work->m.rank + 1) * value;
            }
        }
    }
    EXPECT_EQ(wrong, 0);
    work->calls++;
    return ncclSuccess;
}

// Every rank's tokens come back as the sum of what all ranks add.
static void run_tokens(struct work *work, const size_t *tokens, size_t chunk, int steps)
{
    size_t count = tokens[work->m.rank], wrong = 0;
    float *in = NULL, *out = NULL;
    if (count > 0) {
        EXPECT_CUDA(cudaMalloc((void **)&in, count * HIDDEN * sizeof *in));
        EXPECT_CUDA(cudaMalloc((void **)&out, count * HIDDEN * sizeof *out));
    }
    for (size_t i = 0; i < count * HIDDEN; i++) {
        in[i] = element(work->m.rank, i / HIDDEN, i % HIDDEN);
    }
    work->chunk = chunk;
    work->calls = 0;
    struct tuttiMoeLockstep lockstep = {sizeof lockstep, tokens,      HIDDEN, chunk,
                                        ncclFloat32,     add_experts, work};
    EXPECT_OK(tuttiMoeRunLockstep(work->m.comm, &lockstep, in, out, work->m.stream));
    EXPECT_EQ(work->calls, steps);
    for (size_t i = 0; i < count * HIDDEN; i++) {
        wrong += out[i] != 6 * in[i]; // 1 + 2 + 3
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_CUDA(cudaFreeAsync(in, work->m.stream));
    EXPECT_CUDA(cudaFreeAsync(out, work->m.stream));
}

static ncclResult_t add_nothing(void *context, const void *rows, void *sums, const size_t *counts,
                                cudaStream_t stream)
{
    (void)context;
    (void)rows;
    (void)sums;
    (void)counts;
    (void)stream;
    return ncclSuccess;
}

static void refuse(const struct work *work, struct tuttiMoeLockstep lockstep, const char *part)
{
    float place = 0;
    EXPECT_EQ(tuttiMoeRunLockstep(work->m.comm, &lockstep, NULL, &place, work->m.stream),
              ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), part);
}

static void lockstep_rank(int rank, int size)
{
    struct work work = {.calls = 0};
    if (!member_join(&work.m, rank, size)) {
        return;
    }
    run_tokens(&work, tokens_c91, 256, 2);
    run_tokens(&work, tokens_c91, 1000, 1);
    run_tokens(&work, tokens_few, 2, 2);
    run_tokens(&work, tokens_none, 2, 0);
    struct tuttiMoeLockstep lockstep = {sizeof lockstep, tokens_c91,  HIDDEN, 256,
                                        ncclFloat32,     add_experts, &work};
    EXPECT_EQ(tuttiMoeRunLockstep(work.m.comm, NULL, NULL, NULL, work.m.stream),
              ncclInvalidArgument);
    refuse(&work, lockstep, "in is NULL, but it has");
    lockstep.datatype = (ncclDataType_t)77;
    refuse(&work, lockstep, "datatype is 77");
    lockstep.datatype = ncclFloat32;
    lockstep.chunk = 0;
    refuse(&work, lockstep, "chunk is 0");
    lockstep.chunk = 256;
    lockstep.hidden = SIZE_MAX / 8;
    float place = 0;
    EXPECT_EQ(tuttiMoeRunLockstep(work.m.comm, &lockstep, &place, &place, work.m.stream),
              ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "beyond what can be counted");
    static const size_t tokens_wrap[] = {SIZE_MAX, 2, SIZE_MAX}; // the sum is 0
    lockstep.hidden = HIDDEN;
    lockstep.tokens = tokens_wrap;
    lockstep.chunk = SIZE_MAX;
    EXPECT_EQ(tuttiMoeRunLockstep(work.m.comm, &lockstep, &place, &place, work.m.stream),
              ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "beyond what can be counted");
    member_leave(&work.m);
}
static void lockstep(void)
{
    run_thread_ranks(3, lockstep_rank, 60);
}

// Rank 1 never comes: what the others get is no result, and they must learn so.
static void left_alone(int rank, int size)
{
    struct work work = {.chunk = 256};
    const size_t tokens[] = {4, 4, 4};
    float *memory = NULL;
    if (!member_join(&work.m, rank, size)) {
        return;
    }
    EXPECT_CUDA(cudaMalloc((void **)&memory, 4 * HIDDEN * sizeof *memory));
    if (rank != 1) {
        struct tuttiMoeLockstep lockstep = {sizeof lockstep, tokens,      HIDDEN, 256,
                                            ncclFloat32,     add_nothing, NULL};
        EXPECT_EQ(tuttiMoeRunLockstep(work.m.comm, &lockstep, memory, memory, work.m.stream),
                  ncclRemoteError);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "rank 1 failed");
    } else {
        struct timespec time = {0, 100 * 1000000L}; // the others' step has been enqueued
        (void)nanosleep(&time, NULL);
    }
    EXPECT_OK(ncclCommAbort(work.m.comm));
    work.m.comm = NULL;
    EXPECT_CUDA(cudaFree(memory));
    member_leave(&work.m);
}

static void rank_that_leaves(void)
{
    run_ranks(3, left_alone, 60);
}

int main(void)
{
    RUN(sizes);
    RUN(lockstep);
    RUN(rank_that_leaves);
    return expect_result();
}
