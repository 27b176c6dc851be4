// What the programs that test tuttiAllReduceRMSNorm have in common: ranks with a window each,
// inputs that are known, results that are compared with doubles.
// SPDX-License-Identifier: Apache-2.0
#ifndef TESTS_FUSED_H
#define TESTS_FUSED_H

#include "expect.h"
#include "member.h"
#include "stopwatch.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tutti.h>
#include <unistd.h>

enum { TOKENS = 24, HIDDEN = 520, ELEMENTS = TOKENS * HIDDEN, MOST = 8 };
static const size_t bytes = ELEMENTS * sizeof(float);

static inline float input_value(int rank, int i, int round)
{
    return (float)((i * 131 + rank * 1009 + round * 37) % 1999) / 1999.0f - 0.4f;
}

static inline void expect_norm(const float *got, int size, int round)
{
    for (int token = 0; token < TOKENS; token += 5) {
        double x[HIDDEN], squares = 0, worst = 0;
        for (int i = 0; i < HIDDEN; i++) {
            x[i] = 0;
            for (int r = 0; r < size; r++) {
                x[i] += (double)input_value(r, token * HIDDEN + i, round);
            }
            squares += x[i] * x[i];
        }
        for (int i = 0; i < HIDDEN; i++) {
            double expected = x[i] / sqrt(squares / HIDDEN + 1e-6);
            worst = fmax(worst, fabs((double)got[token * HIDDEN + i] - expected));
        }
        EXPECT(worst < 1e-5);
    }
}

static inline bool join(struct member *m, int rank, int size)
{
    return member_join(m, rank, size) && member_open_window(m, 2 * bytes);
}

static inline void fill(const struct member *m, int round, cudaStream_t stream)
{
    float *host = malloc(bytes);
    for (int i = 0; i < ELEMENTS; i++) {
        host[i] = input_value(m->rank, i, round);
    }
    EXPECT_CUDA(cudaMemcpyAsync(m->memory, host, bytes, cudaMemcpyHostToDevice, stream));
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    free(host);
}

static inline void check(const struct member *m, int round, cudaStream_t stream)
{
    float *host = malloc(bytes);
    // A copy to pageable memory waits with CUDA's locks held, which other ranks of the process need
    // to launch what the operation waits for.
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    EXPECT_CUDA(cudaMemcpyAsync(host, m->memory + bytes, bytes, cudaMemcpyDeviceToHost, stream));
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    expect_norm(host, m->size, round);
    free(host);
}

static inline ncclResult_t call(const struct member *m, cudaStream_t stream)
{
    return tuttiAllReduceRMSNorm(m->memory, m->memory + bytes, TOKENS, HIDDEN, NULL, ncclFloat,
                                 m->comm, stream);
}

// All ranks of this process on its first device.
static inline bool join_all(struct member *all, int size)
{
    ncclUniqueId id;
    bool good = EXPECT_OK(ncclGetUniqueId(&id)) && EXPECT_CUDA(cudaSetDevice(0));
    memset(all, 0, (size_t)size * sizeof *all);
    EXPECT_OK(ncclGroupStart());
    for (int r = 0; good && r < size; r++) {
        all[r].rank = r;
        all[r].size = size;
        good = EXPECT_OK(ncclCommInitRank(&all[r].comm, size, id, r)) &&
               EXPECT_CUDA(cudaStreamCreateWithFlags(&all[r].stream, cudaStreamNonBlocking)) &&
               EXPECT_OK(ncclMemAlloc((void **)&all[r].memory, 2 * bytes));
    }
    good = EXPECT_OK(ncclGroupEnd()) && good;
    EXPECT_OK(ncclGroupStart());
    for (int r = 0; good && r < size; r++) {
        good = EXPECT_OK(ncclCommWindowRegister(all[r].comm, all[r].memory, 2 * bytes,
                                                &all[r].window, NCCL_WIN_COLL_SYMMETRIC));
    }
    return EXPECT_OK(ncclGroupEnd()) && good;
}

// ONE_STREAM: for the executor of real GPUs, which launches for all ranks at once; with that of
// virtual ones the ranks of one stream would wait for each other for ever.
enum way { OWN_STREAMS, NO_GROUP, ONE_STREAM, WAYS };

static inline int possible_ways(void)
{
#ifdef ONE_STREAM_TOO
    return WAYS;
#else
    return getenv("ONE_STREAM_TOO") != NULL ? WAYS : WAYS - 1;
#endif
}

// The communicator's failure, when it is there.
static inline ncclResult_t await_error(const struct member *m)
{
    struct stopwatch watch = stopwatch_start();
    while (member_state(m) == ncclSuccess && stopwatch_is_within(&watch, 20)) {
        usleep(1000);
    }
    return member_state(m);
}

static inline void end(struct member *m)
{
    EXPECT_OK(ncclCommAbort(m->comm));
    EXPECT_OK(ncclMemFree(m->memory));
    EXPECT_CUDA(cudaStreamDestroy(m->stream));
}

#endif
