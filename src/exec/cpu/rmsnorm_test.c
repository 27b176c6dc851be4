// The fused operation on the virtual devices themselves, with ranks as streams of this process and
// symmetric memory that is just a block of memory: results, many operations back to back, ranks
// that disagree, abort.
// SPDX-License-Identifier: Apache-2.0
#include "exec/executor.h"

#include "base/wait.h"
#include "expect.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MAX_RANKS = 8 };

struct group {
    int ranks;
    size_t stride; // of the two areas below
    char *memory;  // inputs, outputs
    struct tt_host *host[MAX_RANKS];
    _Atomic int errors[MAX_RANKS];
    _Atomic uint32_t abort_flag;
    cudaStream_t streams[MAX_RANKS];
};

// Into *group: hosts keep addresses in it.
static void make_group(struct group *group, int ranks, size_t bytes)
{
    static const int process[MAX_RANKS]; // all in this one
    memset(group, 0, sizeof *group);
    group->ranks = ranks;
    group->stride = (bytes + 4095) / 4096 * 4096;
    size_t all = 2 * (size_t)ranks * group->stride;
    group->memory = aligned_alloc(4096, all);
    memset(group->memory, 0, all);
    int devices = 0;
    const struct tt_room room = {.base = mmap(NULL, tt_executor->arena_bytes(ranks),
                                              PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                                              -1, 0),
                                 .descriptor = -1};
    struct tt_arena *arena = NULL;
    EXPECT_CUDA(cudaGetDeviceCount(&devices));
    EXPECT_OK(tt_executor->arena_map(&room, ranks, &arena));
    for (int rank = 0; rank < ranks; rank++) {
        struct tt_team team = {.rank = rank,
                               .nranks = ranks,
                               .process = process,
                               .abort_flag = &group->abort_flag,
                               .async_error = &group->errors[rank],
                               .comm_name = "test",
                               .arena = arena};
        EXPECT_CUDA(cudaSetDevice(rank % devices));
        EXPECT_CUDA(cudaStreamCreate(&group->streams[rank]));
        EXPECT_OK(tt_executor->join(&team, &group->host[rank]));
    }
    tt_executor->arena_release(arena);
}

static void free_group(struct group *group)
{
    for (int rank = 0; rank < group->ranks; rank++) {
        tt_executor->part(group->host[rank]);
        EXPECT_CUDA(cudaStreamDestroy(group->streams[rank]));
    }
    free(group->memory);
}

static char *area(const struct group *group, int which, int rank)
{
    return group->memory + (size_t)(which * group->ranks + rank) * group->stride;
}

static struct tt_rmsnorm describe(struct group *group, int rank, size_t tokens, size_t hidden)
{
    return (struct tt_rmsnorm){
        .rank = rank,
        .nranks = group->ranks,
        .host = group->host[rank],
        .input = {area(group, 0, 0), group->stride},
        .output = {area(group, 1, 0), group->stride},
        .tokens = tokens,
        .hidden = hidden,
        .eps = 1e-6f,
        .data_type = ncclFloat32,
    };
}

static void wait_for_streams(const struct group *group)
{
    for (int rank = 0; rank < group->ranks; rank++) {
        EXPECT_CUDA(cudaStreamSynchronize(group->streams[rank]));
    }
}

static float input_value(int rank, size_t i, int round)
{
    return (float)((i * 31 + (size_t)rank * 17 + (size_t)round * 7) % 101) / 101.0f - 0.3f;
}

static void fill(struct group *group, size_t elements, int round)
{
    for (int rank = 0; rank < group->ranks; rank++) {
        float *input = (float *)(void *)area(group, 0, rank);
        for (size_t i = 0; i < elements; i++) {
            input[i] = input_value(rank, i, round);
        }
    }
}

// Every element on every rank.
static double worst_error(const struct group *group, size_t tokens, size_t hidden, int round)
{
    double worst = 0;
    for (size_t token = 0; token < tokens; token++) {
        double squares = 0;
        for (int pass = 0; pass < 2; pass++) {
            for (size_t i = 0; i < hidden; i++) {
                double x = 0;
                for (int rank = 0; rank < group->ranks; rank++) {
                    x += (double)input_value(rank, token * hidden + i, round);
                }
                if (pass == 0) {
                    squares += x * x;
                    continue;
                }
                double wanted = x / sqrt(squares / (double)hidden + 1e-6);
                for (int rank = 0; rank < group->ranks; rank++) {
                    const float *out = (const float *)(void *)area(group, 1, rank);
                    double error = fabs((double)out[token * hidden + i] - wanted);
                    worst = error > worst ? error : worst;
                }
            }
        }
    }
    return worst;
}

static void results(void)
{
    static const size_t shapes[][2] = {{1, 1},    {1, 1000},  {3, 5},
                                       {7, 1024}, {100, 127}, {2, 40000}};
    for (int ranks = 1; ranks <= MAX_RANKS; ranks = ranks < 3 ? ranks + 1 : ranks + 5) {
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
            size_t tokens = shapes[s][0], hidden = shapes[s][1];
            struct group group;
            make_group(&group, ranks, tokens * hidden * sizeof(float));
            fill(&group, tokens * hidden, 0);
            for (int rank = 0; rank < ranks; rank++) {
                struct tt_rmsnorm operation = describe(&group, rank, tokens, hidden);
                EXPECT_OK(tt_executor->all_reduce_rmsnorm(&operation, group.streams[rank]));
            }
            wait_for_streams(&group);
            EXPECT(worst_error(&group, tokens, hidden, 0) < 1e-5);
            free_group(&group);
        }
    }
}

// Operations follow each other without a pause; the input changes between them in stream order.
struct refill {
    struct group *group;
    int rank, round;
    size_t elements;
};

static void refill_input(void *argument)
{
    const struct refill *refill = argument;
    float *input = (float *)(void *)area(refill->group, 0, refill->rank);
    for (size_t i = 0; i < refill->elements; i++) {
        input[i] = input_value(refill->rank, i, refill->round);
    }
}

static void back_to_back(void)
{
    enum { ROUNDS = 200 };
    size_t tokens = 13, hidden = 70;
    static struct group group;
    make_group(&group, 3, tokens * hidden * sizeof(float));
    static struct refill refills[ROUNDS][3];
    for (int round = 0; round < ROUNDS; round++) {
        for (int rank = 0; rank < 3; rank++) {
            refills[round][rank] = (struct refill){&group, rank, round, tokens * hidden};
            EXPECT_CUDA(
                cudaLaunchHostFunc(group.streams[rank], refill_input, &refills[round][rank]));
            struct tt_rmsnorm operation = describe(&group, rank, tokens, hidden);
            EXPECT_OK(tt_executor->all_reduce_rmsnorm(&operation, group.streams[rank]));
        }
        if (round % 50 == 49) {
            wait_for_streams(&group);
            EXPECT(worst_error(&group, tokens, hidden, round) < 1e-5);
        }
    }
    free_group(&group);
}

// Ranks that ask for different things: nothing is written, every rank learns of it, nobody waits.
static void disagreement(void)
{
    for (int field = 0; field < 4; field++) {
        struct group group;
        make_group(&group, 3, 4096);
        fill(&group, 1024, 0);
        for (int rank = 0; rank < 3; rank++) {
            struct tt_rmsnorm operation = describe(&group, rank, 8, 16);
            if (rank == 1) {
                operation.tokens -= field == 0;
                operation.hidden -= field == 1;
                operation.eps *= field == 2 ? 2.0f : 1.0f;
                operation.input_offset += field == 3 ? 64 : 0;
            }
            EXPECT_OK(tt_executor->all_reduce_rmsnorm(&operation, group.streams[rank]));
            // What was enqueued behind it does not run either.
            operation = describe(&group, rank, 8, 16);
            EXPECT_OK(tt_executor->all_reduce_rmsnorm(&operation, group.streams[rank]));
        }
        wait_for_streams(&group);
        for (int rank = 0; rank < 3; rank++) {
            EXPECT_EQ(atomic_load(&group.errors[rank]), ncclInvalidUsage);
            const float *out = (const float *)(void *)area(&group, 1, rank);
            EXPECT(out[0] == 0.0f && out[127] == 0.0f);
        }
        free_group(&group);
    }
}

// A rank that never comes: abort ends the others' operations, those that follow included.
static void abort_ends_waits(void)
{
    struct group group;
    make_group(&group, 2, 4096);
    for (int i = 0; i < 3; i++) {
        struct tt_rmsnorm operation = describe(&group, 0, 8, 16);
        EXPECT_OK(tt_executor->all_reduce_rmsnorm(&operation, group.streams[0]));
    }
    uint64_t start = tt_now_ns();
    while (tt_now_ns() - start < 50000000) {
        EXPECT_EQ(cudaStreamQuery(group.streams[0]), cudaErrorNotReady);
    }
    atomic_store(&group.abort_flag, 1);
    EXPECT_CUDA(cudaStreamSynchronize(group.streams[0]));
    free_group(&group);
}

int main(void)
{
    RUN(results);
    RUN(back_to_back);
    RUN(disagreement);
    RUN(abort_ends_waits);
    return expect_result();
}
