// Blocks: built-in variables, barriers and their reducing forms, named barriers, threads that end
// early, shared memory, yields. SPDX-License-Identifier: Apache-2.0
#include "expect.h"
#include "kernel_by_hand.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static void run(const struct vgpu_kernel *kernel, dim3 grid, dim3 block, void *data)
{
    EXPECT_CUDA(launch_by_hand(kernel, grid, block, 0, 0, data));
    EXPECT_CUDA(cudaDeviceSynchronize());
}

// ---- Built-in variables -------------------------------------------------------------------------

enum { GX = 3, GY = 2, GZ = 2, BX = 5, BY = 4, BZ = 3 };

struct indices {
    atomic_int seen[GX * GY * GZ][BX * BY * BZ];
    atomic_int wrong;
};

KERNEL(writes_indices, struct indices, 0)
{
    vgpu_syncthreads(); // all threads become fibers of their own
    unsigned block = blockIdx.x + GX * (blockIdx.y + GY * blockIdx.z);
    unsigned thread = threadIdx.x + BX * (threadIdx.y + BY * threadIdx.z);
    vgpu_syncthreads();
    if (gridDim.x != GX || gridDim.y != GY || gridDim.z != GZ || blockDim.x != BX ||
        blockDim.y != BY || blockDim.z != BZ ||
        thread != threadIdx.x + BX * (threadIdx.y + BY * threadIdx.z) || !vgpu_in_kernel()) {
        atomic_fetch_add(&data->wrong, 1);
    }
    atomic_fetch_add(&data->seen[block][thread], 1);
}

static void every_thread_runs_once_with_its_indices(void)
{
    static struct indices indices;
    run(&writes_indices, (dim3){GX, GY, GZ}, (dim3){BX, BY, BZ}, &indices);
    EXPECT_EQ(indices.wrong, 0);
    int others = 0;
    for (int b = 0; b < GX * GY * GZ; b++) {
        for (int t = 0; t < BX * BY * BZ; t++) {
            others += indices.seen[b][t] != 1;
        }
    }
    EXPECT_EQ(others, 0);
    EXPECT(!vgpu_in_kernel());
}

// ---- Barriers -----------------------------------------------------------------------------------

enum { THREADS = 256, ROUNDS = 50 };

struct rounds {
    int value[THREADS];
    atomic_int wrong;
};

// Each round every thread writes its value and reads its right neighbour's.
KERNEL(passes_round, struct rounds, 0)
{
    unsigned t = threadIdx.x;
    for (int i = 0; i < ROUNDS; i++) {
        data->value[t] = (int)t * 1000 + i;
        vgpu_syncthreads();
        int expected = (int)((t + 1) % THREADS) * 1000 + i;
        if (data->value[(t + 1) % THREADS] != expected) {
            atomic_fetch_add(&data->wrong, 1);
        }
        vgpu_syncthreads();
    }
}

static void barrier_orders_the_block(void)
{
    static struct rounds rounds;
    run(&passes_round, (dim3){1, 1, 1}, (dim3){THREADS, 1, 1}, &rounds);
    EXPECT_EQ(rounds.wrong, 0);
}

struct votes {
    int count[1024];
    int all[1024];
    int any[1024];
    int all_true;
    int none;
};

KERNEL(votes_each_way, struct votes, 0)
{
    unsigned t = threadIdx.x;
    data->count[t] = vgpu_syncthreads_count(t % 3 == 0 ? 7 : 0);
    data->all[t] = vgpu_syncthreads_and(t != 5);
    data->any[t] = vgpu_syncthreads_or(t == 700);
    int all_true = vgpu_syncthreads_and(-1);
    int none = vgpu_syncthreads_or(0);
    if (t == 0) {
        data->all_true = all_true;
        data->none = none;
    }
}

static void reducing_barriers_agree_in_every_thread(void)
{
    static struct votes votes;
    run(&votes_each_way, (dim3){1, 1, 1}, (dim3){1024, 1, 1}, &votes);
    int wrong = 0;
    for (int t = 0; t < 1024; t++) {
        wrong += votes.count[t] != 342 || votes.all[t] != 0 || votes.any[t] == 0;
    }
    EXPECT_EQ(wrong, 0);
    EXPECT(votes.all_true);
    EXPECT(!votes.none);
}

// Threads end one after the other; the others go on meeting.
KERNEL(ends_early, atomic_int, 0)
{
    for (unsigned i = 0; i <= threadIdx.x; i++) {
        vgpu_syncthreads();
    }
    atomic_fetch_add(data, 1);
}

static void ended_threads_count_as_arrived(void)
{
    atomic_int ended = 0;
    run(&ends_early, (dim3){2, 1, 1}, (dim3){100, 1, 1}, &ended);
    EXPECT_EQ(ended, 200);
}

struct halves {
    int order[2][64];
    atomic_int next[2];
    atomic_int wrong;
};

// Two halves meet at barriers of their own, a different number of times, then all together.
KERNEL(meets_in_halves, struct halves, 0)
{
    int half = threadIdx.x >= 64;
    for (int i = 0; i < 10 * (half + 1); i++) {
        atomic_fetch_add(&data->next[half], 1);
        vgpu_barrier_sync(1 + half, 64);
        if (atomic_load(&data->next[half]) != (i + 1) * 64) {
            atomic_fetch_add(&data->wrong, 1);
        }
        vgpu_barrier_sync(1 + half, 64);
    }
    vgpu_barrier_sync(0, 0);
    vgpu_barrier_sync(15, 128);
}

static void named_barriers_are_separate(void)
{
    static struct halves halves;
    run(&meets_in_halves, (dim3){1, 1, 1}, (dim3){128, 1, 1}, &halves);
    EXPECT_EQ(halves.wrong, 0);
    EXPECT_EQ(halves.next[0], 640);
    EXPECT_EQ(halves.next[1], 1280);
}

// ---- Shared memory ------------------------------------------------------------------------------

struct sums {
    int sum[64];
    atomic_int misaligned;
    size_t dynamic_bytes;
};

KERNEL(sums_in_shared, struct sums, 0)
{
    static const char first_site;
    static const char second_site;
    int *values = vgpu_shared(&first_site, 128 * sizeof(int), 64);
    char *padding = vgpu_shared(&second_site, 3, 1);
    int *dynamic = vgpu_dynamic_shared();
    if ((uintptr_t)values % 64 || (uintptr_t)dynamic % 1024 || (char *)values == padding) {
        atomic_fetch_add(&data->misaligned, 1);
    }
    values[threadIdx.x] = (int)(blockIdx.x + threadIdx.x);
    dynamic[data->dynamic_bytes / sizeof(int) - 1 - threadIdx.x] = 1;
    for (unsigned stride = 64; stride > 0; stride /= 2) {
        vgpu_syncthreads();
        if (threadIdx.x < stride) {
            values[threadIdx.x] += values[threadIdx.x + stride];
        }
    }
    if (threadIdx.x == 0) {
        data->sum[blockIdx.x] = values[0];
    }
}

static void shared_memory_belongs_to_the_block(void)
{
    static struct sums sums;
    sums.dynamic_bytes = 40000;
    EXPECT_CUDA(
        launch_by_hand(&sums_in_shared, (dim3){64, 1, 1}, (dim3){128, 1, 1}, 40000, 0, &sums));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(sums.misaligned, 0);
    for (int b = 0; b < 64; b++) {
        EXPECT_EQ(sums.sum[b], 128 * b + 127 * 64);
    }
}

// ---- Yields -------------------------------------------------------------------------------------

struct chain {
    atomic_int turn;
};

// Thread t waits for thread t + 1: the last one to begin goes first.
KERNEL(waits_for_the_next, struct chain, 0)
{
    int mine = (int)(blockDim.x - 1 - threadIdx.x);
    while (atomic_load(&data->turn) != mine) {
        vgpu_yield();
    }
    atomic_store(&data->turn, mine + 1);
}

static void yielding_threads_wait_for_later_ones(void)
{
    struct chain chain = {0};
    run(&waits_for_the_next, (dim3){1, 1, 1}, (dim3){512, 1, 1}, &chain);
    EXPECT_EQ(chain.turn, 512);
    vgpu_yield(); // outside a kernel: nothing
}

struct clocks {
    long long cycles;
    unsigned long long ns;
};

KERNEL(reads_clocks, struct clocks, 0)
{
    long long cycles = vgpu_clock();
    unsigned long long ns = vgpu_global_timer();
    unsigned long long later;
    do {
        later = vgpu_global_timer();
    } while (later - ns < 2000000);
    data->ns = later - ns;
    data->cycles = vgpu_clock() - cycles; // a little more time than that
}

static void clocks_agree(void)
{
    struct clocks clocks = {0};
    run(&reads_clocks, (dim3){1, 1, 1}, (dim3){1, 1, 1}, &clocks);
    EXPECT(clocks.ns >= 2000000);
    EXPECT((double)clocks.cycles >= 1.97 * (double)clocks.ns);
    EXPECT((double)clocks.cycles < 20 * (double)clocks.ns);
}

int main(void)
{
    RUN(every_thread_runs_once_with_its_indices);
    RUN(barrier_orders_the_block);
    RUN(reducing_barriers_agree_in_every_thread);
    RUN(ended_threads_count_as_arrived);
    RUN(named_barriers_are_separate);
    RUN(shared_memory_belongs_to_the_block);
    RUN(yielding_threads_wait_for_later_ones);
    RUN(clocks_agree);
    return expect_result();
}
