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

enum { TOKENS = 37, HIDDEN = 1030, ROUNDS = 20 };

static const size_t elements = (size_t)TOKENS * HIDDEN;

static float input_value(int rank, size_t i, int round)
{
    return (float)((i * 131 + (size_t)rank * 1009 + (size_t)round * 37) % 1999) / 1999.0f - 0.4f;
}

// Its window: input, then output.
static bool join(struct member *s, int rank, int size)
{
    return member_join(s, rank, size) && member_open_window(s, 2 * elements * sizeof(float));
}

static double worst_error(const float *got, int size, int round)
{
    double worst = 0;
    double *x = malloc(HIDDEN * sizeof *x);
    for (size_t token = 0; token < TOKENS; token++) {
        double squares = 0;
        for (size_t i = 0; i < HIDDEN; i++) {
            x[i] = 0;
            for (int rank = 0; rank < size; rank++) {
                x[i] += (double)input_value(rank, token * HIDDEN + i, round);
            }
            squares += x[i] * x[i];
        }
        double root = sqrt(squares / HIDDEN + 1e-6);
        for (size_t i = 0; i < HIDDEN; i++) {
            worst = fmax(worst, fabs((double)got[token * HIDDEN + i] - x[i] / root));
        }
    }
    free(x);
    return worst;
}

static void normalise(int rank, int size)
{
    struct member s;
    if (!join(&s, rank, size)) {
        return;
    }
    size_t bytes = elements * sizeof(float);
    float *host = malloc(bytes);
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < elements; i++) {
            host[i] = input_value(rank, i, round);
        }
        // Every other round in place.
        char *output = round % 2 == 0 ? s.memory + bytes : s.memory;
        EXPECT_CUDA(cudaMemcpyAsync(s.memory, host, bytes, cudaMemcpyHostToDevice, s.stream));
        EXPECT_OK(tuttiAllReduceRMSNorm(s.memory, output, TOKENS, HIDDEN, NULL, ncclFloat, s.comm,
                                        s.stream));
        EXPECT_CUDA(cudaMemcpyAsync(host, output, bytes, cudaMemcpyDeviceToHost, s.stream));
        EXPECT_CUDA(cudaStreamSynchronize(s.stream));
        EXPECT(worst_error(host, size, round) < 1e-5);
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
    free(host);
    member_leave(&s);
}

static void processes(void)
{
    static const int sizes[] = {1, 2, 3, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        run_ranks(sizes[i], normalise, 60);
    }
}

static void threads(void)
{
    static const int sizes[] = {1, 2, 3, 8, 13}; // 13: several ranks on a device
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        run_thread_ranks(sizes[i], normalise, 60);
    }
}

// Two hosts, as far as the library knows: no LSA team holds all ranks.
static void needs_one_team(int rank, int size)
{
    struct member s;
    if (join(&s, rank, size)) {
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
