// Operations of every kind one after another on two streams, with nothing in between: those that
// fit into entries, those that run plans, in device memory, host memory and both, the fused
// RMSNorm, and memory that comes and goes, so that what a rank has mapped of others is out of date.
// SPDX-License-Identifier: Apache-2.0
#include "collectives.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tutti.h>

enum { MOST_RANKS = 8, BATCH = 6, AREA = 1 << 20, HIDDEN = 64, TOKENS = 9 };

struct mix {
    struct member m;
    cudaStream_t other; // stream
    int *device[2], *host[2];
    uint64_t seed; // the same on all ranks
    uint64_t own;  // this rank's
};

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

// One operation whose result is judged later.
struct operation {
    int function; // 0 .. 4; 5: RMSNorm
    size_t count;
    int root, round;
    int *send, *recv; // in this rank's area
};

static int value(int rank, size_t i, int round)
{
    return (int)((i * 7 + (size_t)rank * 31 + (size_t)round * 13) % 1009);
}

static int sum_of(int size, size_t i, int round)
{
    int sum = 0;
    for (int rank = 0; rank < size; rank++) {
        sum += value(rank, i, round);
    }
    return sum;
}

// Elements of the buffers of all ranks together that a rank has.
static size_t send_count(const struct operation *o, int size)
{
    return o->count * (o->function == 1 || o->function == 4 ? (size_t)size : 1);
}

static size_t recv_count(const struct operation *o, int size)
{
    return o->count * (o->function == 2 || o->function == 4 ? (size_t)size : 1);
}

static int wanted(const struct operation *o, const struct member *m, size_t i)
{
    size_t rank = (size_t)m->rank, from = i / o->count, at = i % o->count;
    switch (o->function) {
    case 0:
        return sum_of(m->size, i, o->round);
    case 1:
        return sum_of(m->size, rank * o->count + i, o->round);
    case 2:
        return value((int)from, at, o->round);
    case 3:
        return value(o->root, i, o->round);
    default:
        return value((int)from, rank * o->count + at, o->round);
    }
}

static void call(const struct operation *o, struct member *m, cudaStream_t stream)
{
    switch (o->function) {
    case 0:
        EXPECT_OK(ncclAllReduce(o->send, o->recv, o->count, ncclInt, ncclSum, m->comm, stream));
        break;
    case 1:
        EXPECT_OK(ncclReduceScatter(o->send, o->recv, o->count, ncclInt, ncclSum, m->comm, stream));
        break;
    case 2:
        EXPECT_OK(ncclAllGather(o->send, o->recv, o->count, ncclInt, m->comm, stream));
        break;
    case 3:
        EXPECT_OK(ncclBroadcast(o->send, o->recv, o->count, ncclInt, o->root, m->comm, stream));
        break;
    default:
        EXPECT_OK(ncclAlltoAll(o->send, o->recv, o->count, ncclInt, m->comm, stream));
    }
}

static void judge(const struct operation *o, const struct member *m)
{
    int wrong = 0;
    for (size_t i = 0; i < recv_count(o, m->size); i++) {
        wrong += o->recv[i] != wanted(o, m, i);
    }
    if (!EXPECT_EQ(wrong, 0)) {
        fprintf(stderr, "rank %d of %d: function %d, count %zu, root %d, round %d\n", m->rank,
                m->size, o->function, o->count, o->root, o->round);
    }
}

// Sums of ones are the number of ranks; normalised, each is one again.
static void normalise(struct member *m)
{
    float *in = (float *)(void *)m->memory, *out = in + TOKENS * HIDDEN;
    for (int i = 0; i < TOKENS * HIDDEN; i++) {
        in[i] = 1;
        out[i] = 0;
    }
    EXPECT_OK(tuttiAllReduceRMSNorm(in, out, TOKENS, HIDDEN, NULL, ncclFloat, m->comm, m->stream));
}

static void judge_norm(const struct member *m)
{
    const float *out = (const float *)(const void *)m->memory + TOKENS * HIDDEN;
    int wrong = 0;
    for (int i = 0; i < TOKENS * HIDDEN; i++) {
        wrong += fabsf(out[i] - 1) > 1e-4f;
    }
    EXPECT_EQ(wrong, 0);
}

// The next buffer of a batch: of this rank's device or host memory, at any element.
static int *take(struct mix *x, int which, size_t *used, size_t count)
{
    int *area = next(&x->own) % 3 == 0 ? x->host[which] : x->device[which];
    size_t first = *used + next(&x->own) % 16;
    *used = first + count;
    return area + first;
}

static void batch(struct mix *x, int number)
{
    struct operation o[BATCH];
    size_t sent = 0, received = 0;
    bool with_norm = next(&x->seed) % 2 == 0 && x->m.memory != NULL;
    for (int i = 0; i < BATCH; i++) {
        size_t most = next(&x->seed) % 2 == 0 ? 12 : AREA / (BATCH + 1) / (size_t)x->m.size;
        o[i].function = (int)(next(&x->seed) % 5);
        o[i].count = 1 + next(&x->seed) % most;
        o[i].root = (int)(next(&x->seed) % (uint64_t)x->m.size);
        o[i].round = number * BATCH + i;
        o[i].send = take(x, 0, &sent, send_count(&o[i], x->m.size));
        o[i].recv = take(x, 1, &received, recv_count(&o[i], x->m.size));
        for (size_t k = 0; k < send_count(&o[i], x->m.size); k++) {
            o[i].send[k] = value(x->m.rank, k, o[i].round);
        }
        memset(o[i].recv, 255, recv_count(&o[i], x->m.size) * sizeof(int));
    }
    for (int i = 0; i < BATCH; i++) {
        if (with_norm && i == BATCH / 2) {
            normalise(&x->m);
        }
        call(&o[i], &x->m, next(&x->seed) % 2 == 0 ? x->m.stream : x->other);
    }
    EXPECT_CUDA(cudaStreamSynchronize(x->m.stream));
    EXPECT_CUDA(cudaStreamSynchronize(x->other));
    EXPECT_OK(member_state(&x->m));
    for (int i = 0; i < BATCH; i++) {
        judge(&o[i], &x->m);
    }
    if (with_norm) {
        judge_norm(&x->m);
    }
}

// Memory of another size, so that it lies in a segment of its own and takes it with it.
static void change_memory(struct mix *x, int number)
{
    size_t bytes = (AREA + 4096) * sizeof(int) + ((size_t)(number % 3) * 80 << 20);
    for (int which = 0; which < 2; which++) {
        if (x->device[which] != NULL) {
            EXPECT_CUDA(cudaFree(x->device[which]));
        }
        EXPECT_CUDA(cudaMalloc((void **)&x->device[which], bytes));
    }
}

static void mixed(int rank, int size)
{
    struct mix x = {.seed = 12345, .own = (uint64_t)rank * 977 + 5};
    if (!member_join(&x.m, rank, size) || !member_open_window(&x.m, 1 << 16)) {
        return;
    }
    EXPECT_CUDA(cudaStreamCreateWithFlags(&x.other, cudaStreamNonBlocking));
    for (int which = 0; which < 2; which++) {
        x.host[which] = malloc((AREA + 4096) * sizeof(int));
    }
    for (int number = 0; number < few_or(24, 6); number++) {
        if (number % 4 == 0) {
            change_memory(&x, number / 4);
        }
        batch(&x, number);
    }
    for (int which = 0; which < 2; which++) {
        EXPECT_CUDA(cudaFree(x.device[which]));
        free(x.host[which]);
    }
    EXPECT_CUDA(cudaStreamDestroy(x.other));
    ranks_barrier();
    member_leave(&x.m);
}

// Pieces of virtual device memory that this process has mapped, its own and others'.
static int mapped_pieces(void)
{
    char line[512];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (EXPECT(maps != NULL) && fgets(line, sizeof line, maps) != NULL) {
        count += strstr(line, "vgpu-device-memory") != NULL;
    }
    if (maps != NULL) {
        (void)fclose(maps);
    }
    return count;
}

// What others freed does not stay mapped.
static void freed_by_others(int rank, int size)
{
    struct mix x = {.seed = 54321, .own = (uint64_t)rank};
    enum { CHANGES = 12 };
    int most = 0;
    if (!member_join(&x.m, rank, size)) {
        return;
    }
    EXPECT_CUDA(cudaStreamCreateWithFlags(&x.other, cudaStreamNonBlocking));
    for (int number = 0; number < CHANGES; number++) {
        // Two pieces that are too large to be kept once they are empty.
        for (int which = 0; which < 2; which++) {
            if (x.device[which] != NULL) {
                EXPECT_CUDA(cudaFree(x.device[which]));
            }
            EXPECT_CUDA(cudaMalloc((void **)&x.device[which], (size_t)300 << 20));
            x.host[which] = x.device[which];
        }
        batch(&x, 2 * number + 1);
        int pieces = mapped_pieces();
        most = pieces > most ? pieces : most;
    }
    EXPECT(most <= 2 * size + 4);
    for (int which = 0; which < 2; which++) {
        EXPECT_CUDA(cudaFree(x.device[which]));
    }
    EXPECT_CUDA(cudaStreamDestroy(x.other));
    ranks_barrier();
    member_leave(&x.m);
}

static void threads(void)
{
    for (int size = 1; size <= MOST_RANKS; size += size < 3 ? 1 : 5) {
        run_thread_ranks(size, mixed, 60);
    }
}

static void processes(void)
{
    run_processes(2, mixed, 60);
    run_processes(5, mixed, 60);
}

static void memory_that_goes(void)
{
    run_processes(3, freed_by_others, 60);
}

int main(void)
{
    RUN(threads);
    RUN(processes);
    RUN(memory_that_goes);
    return expect_result();
}
