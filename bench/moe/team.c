// See team.h. SPDX-License-Identifier: Apache-2.0
#include "team.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static pthread_barrier_t all;
static double met_at;
static ncclUniqueId id;

void must(int result, const char *call, int line)
{
    if (result != 0) {
        fprintf(stderr, "bench: line %d: %s: %d: %s\n", line, call, result, ncclGetLastError(NULL));
        exit(1);
    }
}

double meet(void)
{
    if (pthread_barrier_wait(&all) == PTHREAD_BARRIER_SERIAL_THREAD) {
        struct timespec time;
        (void)clock_gettime(CLOCK_MONOTONIC, &time);
        met_at = (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
    }
    (void)pthread_barrier_wait(&all);
    double at = met_at;
    (void)pthread_barrier_wait(&all); // before the next one writes it
    return at;
}

struct start {
    int number;
    void (*function)(struct rank *self, void *argument);
    void *argument;
};

static void *run_rank(void *argument)
{
    const struct start *start = argument;
    struct rank self = {.number = start->number};
    CUDA(cudaSetDevice(self.number));
    NCCL(ncclCommInitRank(&self.comm, RANKS, id, self.number));
    CUDA(cudaStreamCreateWithFlags(&self.stream, cudaStreamNonBlocking));
    start->function(&self, start->argument);
    (void)meet();
    CUDA(cudaStreamDestroy(self.stream));
    NCCL(ncclCommDestroy(self.comm));
    return NULL;
}

void run_team(void (*function)(struct rank *self, void *argument), void *argument)
{
    pthread_t threads[RANKS];
    struct start starts[RANKS];
    NCCL(ncclGetUniqueId(&id));
    must(pthread_barrier_init(&all, NULL, RANKS), "pthread_barrier_init", __LINE__);
    for (int r = 0; r < RANKS; r++) {
        starts[r] = (struct start){r, function, argument};
        must(pthread_create(&threads[r], NULL, run_rank, &starts[r]), "pthread_create", __LINE__);
    }
    for (int r = 0; r < RANKS; r++) {
        (void)pthread_join(threads[r], NULL);
    }
    (void)pthread_barrier_destroy(&all);
}

void *touched(size_t bytes)
{
    void *memory = NULL;
    CUDA(cudaMalloc(&memory, bytes > 0 ? bytes : 1));
    memset(memory, 1, bytes);
    return memory;
}

static double next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) / 9007199254740992.0;
}

// Without putting back: each time one of those that are left, by its weight.
static void choose(const double *weights, int choices, uint64_t *state, int32_t *out)
{
    double left[EXPERTS], sum = 0;
    memcpy(left, weights, sizeof left);
    for (int e = 0; e < EXPERTS; e++) {
        sum += left[e];
    }
    for (int j = 0; j < choices; j++) {
        double at = next(state) * sum;
        int e = 0;
        while (e < EXPERTS - 1 && (left[e] == 0 || at >= left[e])) {
            at -= left[e++];
        }
        while (left[e] == 0) {
            e--;
        }
        out[j] = e;
        sum -= left[e];
        left[e] = 0;
    }
}

void fill_rank(struct rank *self, size_t tokens, size_t hidden, int choices, double skew)
{
    double likely[EXPERTS];
    uint64_t state = (uint64_t)self->number + 1;
    size_t n = tokens * hidden;
    self->tokens = tokens;
    self->hidden = hidden;
    self->choices = choices;
    self->token = touched(n * sizeof(uint16_t));
    self->out = touched(n * sizeof(uint16_t));
    self->weights = touched(tokens * (size_t)choices * sizeof(float));
    self->indices = touched(tokens * (size_t)choices * sizeof(int32_t));
    for (int e = 0; e < EXPERTS; e++) {
        likely[e] = 1 / pow(e + 1, skew);
    }
    for (size_t i = 0; i < n; i++) {
        ((uint16_t *)self->token)[i] = (uint16_t)(0x3f80 + i % 61);
    }
    for (size_t t = 0; t < tokens; t++) {
        choose(likely, choices, &state, self->indices + t * (size_t)choices);
        for (int j = 0; j < choices; j++) {
            ((float *)self->weights)[t * (size_t)choices + (size_t)j] = 1 / (float)choices;
        }
    }
}

void empty_rank(struct rank *self)
{
    (void)meet(); // cudaFree waits for the device
    CUDA(cudaFree(self->token));
    CUDA(cudaFree(self->out));
    CUDA(cudaFree(self->weights));
    CUDA(cudaFree(self->indices));
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return values[count / 2];
}
