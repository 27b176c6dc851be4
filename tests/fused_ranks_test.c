// tuttiAllReduceRMSNorm with ranks as processes and as threads: right on every rank, the same bits
// on every rank, again and again; the split of tokens as tuttiSplitCounts says.
// SPDX-License-Identifier: Apache-2.0
#include "expect.h"
#include "member.h"
#include "ranks.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tutti.h>

struct shape {
    size_t tokens, hidden;
    int rounds;
    bool with_gamma; // of ones, which lie where 16 bytes do not begin on odd ranks
};
static const struct shape odd = {37, 1030, 20, false};
// Rows of whole 16 bytes.
static const struct shape even = {37, 1024, 4, false};
// So many bytes that two GPUs take another way than with few, unless it is in place.
static const struct shape large = {2051, 1024, 2, true};

static float input_value(int rank, size_t i, int round)
{
    return (float)((i * 131 + (size_t)rank * 1009 + (size_t)round * 37) % 1999) / 1999.0f - 0.4f;
}

// Its window: input, then output.
static bool join(struct member *s, int rank, int size, const struct shape *shape)
{
    return member_join(s, rank, size) &&
           member_open_window(s, 2 * shape->tokens * shape->hidden * sizeof(float));
}

static double worst_error(const float *got, int size, int round, const struct shape *shape)
{
    double worst = 0;
    size_t hidden = shape->hidden;
    double *x = malloc(hidden * sizeof *x);
    for (size_t token = 0; token < shape->tokens; token++) {
        double squares = 0;
        for (size_t i = 0; i < hidden; i++) {
            x[i] = 0;
            for (int rank = 0; rank < size; rank++) {
                x[i] += (double)input_value(rank, token * hidden + i, round);
            }
            squares += x[i] * x[i];
        }
        double root = sqrt(squares / (double)hidden + 1e-6);
        for (size_t i = 0; i < hidden; i++) {
            worst = fmax(worst, fabs((double)got[token * hidden + i] - x[i] / root));
        }
    }
    free(x);
    return worst;
}

static float *make_gamma(int rank, const struct shape *shape)
{
    float *all = NULL, *ones = malloc(shape->hidden * sizeof *ones);
    for (size_t i = 0; i < shape->hidden; i++) {
        ones[i] = 1;
    }
    EXPECT_CUDA(cudaMalloc((void **)&all, (shape->hidden + 1) * sizeof *all));
    EXPECT_CUDA(
        cudaMemcpy(all + rank % 2, ones, shape->hidden * sizeof *ones, cudaMemcpyHostToDevice));
    free(ones);
    return all;
}

static void normalise(int rank, int size, const struct shape *shape)
{
    struct member s;
    if (!join(&s, rank, size, shape)) {
        return;
    }
    size_t elements = shape->tokens * shape->hidden, bytes = elements * sizeof(float);
    float *host = malloc(bytes), *gamma = shape->with_gamma ? make_gamma(rank, shape) : NULL;
    struct tuttiRMSNormOptions options = TUTTI_RMSNORM_OPTIONS_INITIALIZER;
    options.gamma = gamma == NULL ? NULL : gamma + rank % 2;
    for (int round = 0; round < shape->rounds; round++) {
        for (size_t i = 0; i < elements; i++) {
            host[i] = input_value(rank, i, round);
        }
        // Every other round in place.
        char *output = round % 2 == 0 ? s.memory + bytes : s.memory;
        EXPECT_CUDA(cudaMemcpyAsync(s.memory, host, bytes, cudaMemcpyHostToDevice, s.stream));
        EXPECT_OK(tuttiAllReduceRMSNorm(s.memory, output, shape->tokens, shape->hidden, &options,
                                        ncclFloat, s.comm, s.stream));
        EXPECT_CUDA(cudaMemcpyAsync(host, output, bytes, cudaMemcpyDeviceToHost, s.stream));
        EXPECT_CUDA(cudaStreamSynchronize(s.stream));
        EXPECT(worst_error(host, size, round, shape) < 1e-5);
        uint64_t hash = 14695981039346656037u, hashes[RANKS_MAX];
        for (size_t i = 0; i < elements; i++) {
            uint32_t bits;
            memcpy(&bits, &host[i], sizeof bits);
            hash = (hash ^ bits) * 1099511628211u;
        }
        ranks_gather(&hash, hashes, sizeof hash);
        for (int r = 0; r < size; r++) {
            EXPECT(hashes[r] == hash);
        }
    }
    EXPECT_CUDA(cudaFree(gamma));
    free(host);
    member_leave(&s);
}

static void normalise_odd(int rank, int size)
{
    normalise(rank, size, &odd);
}
static void normalise_even(int rank, int size)
{
    normalise(rank, size, &even);
}
static void normalise_large(int rank, int size)
{
    normalise(rank, size, &large);
}

static void processes(void)
{
    static const int sizes[] = {1, 2, 3, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        run_ranks(sizes[i], normalise_odd, 60);
    }
    run_ranks(2, normalise_large, 60);
}

static void threads(void)
{
    static const int sizes[] = {1, 2, 3, 8, 13}; // 13: several ranks on a device
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        run_thread_ranks(sizes[i], normalise_odd, 60);
    }
    run_thread_ranks(8, normalise_even, 60);
    run_thread_ranks(2, normalise_large, 60);
}

// Two hosts, as far as the library knows: no LSA team holds all ranks.
static void needs_one_team(int rank, int size)
{
    struct member s;
    if (join(&s, rank, size, &odd)) {
        EXPECT_EQ(
            tuttiAllReduceRMSNorm(s.memory, s.memory, 4, 4, NULL, ncclFloat, s.comm, s.stream),
            ncclInvalidUsage);
        EXPECT_CONTAINS(ncclGetLastError(s.comm), "all ranks in one LSA team");
        member_leave(&s);
    }
}

static void two_hosts(void)
{
    (void)setenv("TUTTI_FAKE_HOSTS", "2,2", 1);
    run_ranks(4, needs_one_team, 60);
    (void)unsetenv("TUTTI_FAKE_HOSTS");
}

int main(void)
{
    RUN(processes);
    RUN(threads);
    RUN(two_hosts);
    return expect_result();
}
