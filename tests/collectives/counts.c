// Bytes that a collective moves, counted for each device's port and exact: what the direct plans
// take, what rings take, what the switch saves. Prints the table.
//
// S is a whole vector, n the ranks, one on each device. Direct: each rank reduces, or fetches, its
// part from all others and stores it to all others. Ring: each passes on to the next. NVLS: one
// load that the switch combines, one store that it multiplies: to broadcast to 8 costs the root's
// port as much as to 1.
// SPDX-License-Identifier: Apache-2.0
#include "collectives.h"

#include <pthread.h>
#include <stdio.h>
#include <vgpu/stats.h>

enum { RANKS = 8, MEGA = 1 << 20, TIMES = 4 };

struct traffic {
    enum function function;
    const char *algorithm;         // NCCL_ALGO
    double most_in, most_out, all; // of the busiest port, of all ports in, in S
    bool is_far;                   // the buffers are in no window
};

static const struct traffic table[] = {
    {ALL_REDUCE, "direct", 1.75, 1.75, 14, false},
    {ALL_REDUCE, "NVLS", 1.125, 1.125, 9, false},
    {REDUCE_SCATTER, "direct", 0.875, 0.875, 7, false},
    {REDUCE_SCATTER, "NVLS", 0.125, 1, 1, false},
    {ALL_GATHER, "direct", 0.875, 0.875, 7, false},
    {ALL_GATHER, "Ring", 0.875, 0.875, 7, false},
    {ALL_GATHER, "NVLS", 1, 0.125, 8, false},
    {BROADCAST, "direct", 1, 7, 7, false},
    {BROADCAST, "Ring", 1, 1, 7, false},
    {BROADCAST, "Tree", 1, 2, 7, false},
    {BROADCAST, "NVLS", 1, 1, 8, false},
    {REDUCE, "direct", 1.75, 1, 7.875, false},
    {REDUCE, "NVLS", 1, 1, 1, false},
    // Copied to the switch's own memory, and out of it, on each device.
    {ALL_REDUCE, "NVLS", 1.125, 1.125, 9, true},
    {REDUCE_SCATTER, "NVLS", 0.125, 1, 1, true},
    {ALL_GATHER, "NVLS", 1, 0.125, 8, true},
    {BROADCAST, "NVLS", 1, 1, 8, true},
    {REDUCE, "NVLS", 1, 1.125, 1.875, true},
    // Partial results, in scratch memory.
    {ALL_REDUCE, "Ring", 2, 2, 14, false},
    {ALL_REDUCE, "Tree", 2, 3, 14, false},
    {REDUCE, "Ring", 1, 1, 8, false},
    {REDUCE_SCATTER, "Ring", 1.125, 1, 7.875, false},
};

enum { CASES = sizeof table / sizeof table[0], WHOLE_CASES = CASES - 4 };

static const char *const names[FUNCTIONS] = {[ALL_REDUCE] = "AllReduce",
                                             [REDUCE] = "Reduce",
                                             [BROADCAST] = "Broadcast",
                                             [REDUCE_SCATTER] = "ReduceScatter",
                                             [ALL_GATHER] = "AllGather"};

static const struct traffic *this_case(void)
{
    const char *number = getenv("TUTTI_TEST_CASE");
    return &table[number != NULL ? strtoul(number, NULL, 10) % CASES : 0];
}

// Each link but the last carries one vector, from a rank to the next; no other carries anything.
static void along_the_ring(void)
{
    for (int from = 0; from < RANKS; from++) {
        for (int to = 0; to < RANKS; to++) {
            EXPECT_EQ(from == to ? 0 : vgpuStatsLink(from, to),
                      to == from + 1 ? (uint64_t)TIMES * MEGA : 0);
        }
    }
}

// The buffers lie in a window, as the switch wants it, but for those that are far from it.
static void count_traffic(int rank, int size)
{
    const struct traffic *this = this_case();
    struct member m;
    bool in_parts = this->function == REDUCE_SCATTER || this->function == ALL_GATHER;
    struct form form = {.function = this->function,
                        .type = ncclFloat32,
                        .count = MEGA / sizeof(float) / (in_parts ? (size_t)size : 1)};
    char *far = NULL;
    if (!member_join(&m, rank, size) || !member_open_window(&m, 2 * MEGA) ||
        !EXPECT_CUDA(cudaMalloc((void **)&far, 2 * MEGA))) {
        return;
    }
    char *memory = this->is_far ? far : m.memory;
    EXPECT_OK(call_form(&form, memory, memory + MEGA, &m)); // the first may set things up
    EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    ranks_barrier();
    if (rank == 0) {
        vgpuStatsStart();
    }
    ranks_barrier();
    for (int i = 0; i < TIMES; i++) {
        EXPECT_OK(call_form(&form, memory, memory + MEGA, &m));
    }
    EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    ranks_barrier();
    if (rank == 0) {
        struct vgpu_device_stats stats[RANKS];
        double most_in = 0, most_out = 0, all = 0;
        EXPECT_EQ(vgpuStatsRead(stats, RANKS), RANKS);
        for (int d = 0; d < RANKS; d++) {
            double in = (double)stats[d].bytes_in / MEGA / TIMES;
            double out = (double)stats[d].bytes_out / MEGA / TIMES;
            most_in = in > most_in ? in : most_in;
            most_out = out > most_out ? out : most_out;
            all += in;
        }
        printf("%-14s %-7s %6.3f %6.3f %7.3f\n", names[this->function], this->algorithm, most_in,
               most_out, all);
        EXPECT_NEAR(most_in, this->most_in, 1e-9);
        EXPECT_NEAR(most_out, this->most_out, 1e-9);
        EXPECT_NEAR(all, this->all, 1e-9);
        if (this->function == BROADCAST && strcmp(this->algorithm, "Ring") == 0) {
            along_the_ring();
        }
        vgpuStatsStop();
    }
    ranks_barrier();
    EXPECT_CUDA(cudaFree(far));
    member_leave(&m);
}

// A process of its own: it reads the environment.
static void as_threads(int rank, int size)
{
    (void)rank, (void)size;
    run_thread_ranks(RANKS, count_traffic, 60);
}

static void count_cases(int first, int end)
{
    printf("%-14s %-7s %6s %6s %7s  (vectors; busiest port, all ports)\n", "function", "plan", "in",
           "out", "sum");
    fflush(stdout);
    for (int i = first; i < end; i++) {
        char number[16];
        (void)snprintf(number, sizeof number, "%d", i);
        (void)setenv("TUTTI_TEST_CASE", number, 1);
        (void)setenv("NCCL_ALGO", table[i].algorithm, 1);
        run_ranks(1, as_threads, 60);
    }
    (void)unsetenv("NCCL_ALGO");
}

static void ports(void)
{
    count_cases(0, WHOLE_CASES);
}

static void partial_results(void)
{
    count_cases(WHOLE_CASES, CASES);
}

int main(void)
{
    RUN(ports);
    RUN(partial_results);
    return expect_result();
}
