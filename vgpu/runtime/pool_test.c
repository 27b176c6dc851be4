// The pool: blocks that wait for other blocks, of their grid and of other devices; grids that are
// larger than memory; work that must get in while blocks wait. SPDX-License-Identifier: Apache-2.0
#include "expect.h"
#include "kernel_by_hand.h"
#include "stopwatch.h"
#include "vgpu/native.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif
#ifdef __SANITIZE_THREAD__
enum { FIBERS_ARE_FEW = 1 }; // 4096 in the process
#else
enum { FIBERS_ARE_FEW = 0 };
#endif

enum { DEVICES = 8 };

// ---- Waiting across blocks ----------------------------------------------------------------------

struct meeting {
    atomic_int arrived;
    int expected;
};

// Every block waits until all blocks have begun.
KERNEL(waits_for_all_blocks, struct meeting, 0)
{
    if (threadIdx.x == 0) {
        atomic_fetch_add(&data->arrived, 1);
        while (atomic_load(&data->arrived) < data->expected) {
            vgpu_yield();
        }
    }
    vgpu_syncthreads();
}

static void a_grid_may_wait_for_all_its_blocks(void)
{
    int blocks = FIBERS_ARE_FEW ? 60 : 500;
    struct meeting meeting = {.expected = blocks};
    EXPECT_CUDA(LAUNCH(waits_for_all_blocks, blocks, 32, 0, &meeting));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(meeting.arrived, blocks);
}

struct devices {
    atomic_int arrived[2][512]; // by phase and block index
    int count;                  // devices
    atomic_int finished;
};

// Block i of every device meets block i of the others at its begin and its end, as blocks do at LSA
// barriers.
KERNEL(meets_across_devices, struct devices, 0)
{
    for (int phase = 0; phase < 2; phase++) {
        vgpu_syncthreads();
        if (threadIdx.x == 0) {
            atomic_int *arrived = &data->arrived[phase][blockIdx.x];
            atomic_fetch_add(arrived, 1);
            while (atomic_load(arrived) < data->count) {
                vgpu_yield();
            }
        }
        vgpu_syncthreads();
    }
    if (threadIdx.x == 0) {
        atomic_fetch_add(&data->finished, 1);
    }
}

static long resident_kib(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file || fscanf(file, "%*d %ld", &pages) != 1) {
        pages = 0;
    }
    if (file) {
        (void)fclose(file);
    }
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void a_million_threads_on_eight_devices_need_little_memory(void)
{
    static struct devices all;
    int blocks = SANITIZED ? 24 : 512;
    int threads = FIBERS_ARE_FEW ? 64 : 256;
    long before = resident_kib();
    memset(&all, 0, sizeof(all));
    all.count = DEVICES;
    for (int d = 0; d < DEVICES; d++) {
        EXPECT_CUDA(cudaSetDevice(d));
        EXPECT_CUDA(LAUNCH(meets_across_devices, blocks, threads, 0, &all));
    }
    for (int d = 0; d < DEVICES; d++) {
        EXPECT_CUDA(cudaSetDevice(d));
        EXPECT_CUDA(cudaDeviceSynchronize());
    }
    EXPECT_CUDA(cudaSetDevice(0));
    EXPECT_EQ(all.finished, DEVICES * blocks);
    long grown = resident_kib() - before;
    printf("%d devices x %d blocks x %d threads: %ld KiB more memory\n", DEVICES, blocks, threads,
           grown);
    if (!SANITIZED) {
        EXPECT(grown < 200 * 1024);
    }
}

KERNEL(counts_threads, atomic_int, 0)
{
    atomic_fetch_add(data, 1);
}

static void large_grids_run(void)
{
    atomic_int count = 0;
    int blocks = SANITIZED ? 2000 : 100000;
    EXPECT_CUDA(LAUNCH(counts_threads, blocks, 1, 0, &count));
    int wide = SANITIZED ? 50 : 1000;
    EXPECT_CUDA(LAUNCH(counts_threads, wide, 1024, 0, &count));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(count, blocks + wide * 1024);
}

// ---- Work that must get in ----------------------------------------------------------------------

// Meets and yields for ever, until a word is set by another stream.
KERNEL(polls_with_barriers, atomic_int, 0)
{
    static const char site;
    int *stop = vgpu_shared(&site, sizeof(int), 4);
    do {
        vgpu_syncthreads();
        if (threadIdx.x == 0) {
            vgpu_yield();
            *stop = atomic_load(data);
        }
        vgpu_syncthreads();
    } while (!*stop);
}

KERNEL(sets_the_word, atomic_int, 0)
{
    atomic_store(data, 1);
}

static void a_busy_block_does_not_keep_others_out(void)
{
    atomic_int word = 0;
    cudaStream_t busy;
    cudaStream_t other;
    EXPECT_CUDA(cudaStreamCreateWithFlags(&busy, cudaStreamNonBlocking));
    EXPECT_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    EXPECT_CUDA(LAUNCH(polls_with_barriers, 4, 64, busy, &word));
    EXPECT_CUDA(LAUNCH(sets_the_word, 1, 1, other, &word));
    EXPECT_CUDA(cudaStreamSynchronize(busy));
    EXPECT_CUDA(cudaStreamDestroy(busy));
    EXPECT_CUDA(cudaStreamDestroy(other));
}

struct sums {
    atomic_ullong sum;
    int steps;
};

// Computes, and yields at every step as ordered loads do.
KERNEL(sums_with_yields, struct sums, 0)
{
    unsigned long long sum = 0;
    for (int i = 0; i < data->steps; i++) {
        sum += (unsigned long long)i * (threadIdx.x + 1);
        vgpu_yield();
    }
    atomic_fetch_add(&data->sum, sum);
}

// Yields are no sign of waiting: a kernel that computes between them neither sleeps nor fills
// memory with blocks.
static void computing_between_yields_is_no_waiting(void)
{
    struct sums sums = {.steps = 40000};
    struct stopwatch watch = stopwatch_start();
    EXPECT_CUDA(LAUNCH(sums_with_yields, 2, 8, 0, &sums));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_WITHIN(watch, 20); // a sleep a round would take 40
    double long_ones = stopwatch_s(&watch);
    EXPECT_EQ(sums.sum, 2ull * 36 * (40000ull * 39999 / 2));
    struct sums many = {.steps = SANITIZED ? 20 : 300};
    int blocks = SANITIZED ? 20 : 1500;
    long before = resident_kib();
    watch = stopwatch_start();
    EXPECT_CUDA(LAUNCH(sums_with_yields, blocks, 64, 0, &many));
    EXPECT_CUDA(cudaDeviceSynchronize());
    long grown = resident_kib() - before;
    printf("8 threads x 40000 yields: %.0f ms; %d blocks: %.0f ms, %ld KiB more memory\n",
           long_ones * 1e3, blocks, stopwatch_s(&watch) * 1e3, grown);
    if (!SANITIZED) {
        EXPECT(grown < 100 * 1024);
    }
}

// A host thread may be what a kernel waits for, for longer than workers spin.
static void a_sleeping_kernel_wakes(void)
{
    atomic_int word = 0;
    EXPECT_CUDA(LAUNCH(polls_with_barriers, 2, 32, 0, &word));
    EXPECT_EQ(cudaStreamQuery(0), cudaErrorNotReady);
    usleep(30000);
    EXPECT_EQ(cudaStreamQuery(0), cudaErrorNotReady);
    atomic_store(&word, 1);
    EXPECT_CUDA(cudaStreamSynchronize(0));
    EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
}

// ---- Native functions ---------------------------------------------------------------------------

struct native {
    struct devices *all;
    int value[3];
};

static void meet_natively(void *argument, unsigned block, unsigned block_count)
{
    struct native *native = argument;
    atomic_int *arrived = &native->all->arrived[0][block];
    if (native->value[2] != 42 || !vgpu_in_kernel() || blockIdx.x != block ||
        gridDim.x != block_count) {
        return;
    }
    atomic_fetch_add(arrived, 1);
    while (atomic_load(arrived) < native->all->count) {
        vgpu_yield();
    }
    atomic_fetch_add(&native->all->finished, 1);
}

static void native_blocks_wait_for_other_devices(void)
{
    static struct devices all;
    all.count = DEVICES;
    for (int d = 0; d < DEVICES; d++) {
        EXPECT_CUDA(cudaSetDevice(d));
        struct native native = {&all, {0, 0, 42}};
        EXPECT_CUDA(vgpuLaunchNative("meet", meet_natively, &native, sizeof(native), 5, 0));
        memset(&native, 0, sizeof(native)); // it was copied
    }
    for (int d = 0; d < DEVICES; d++) {
        EXPECT_CUDA(cudaSetDevice(d));
        EXPECT_CUDA(cudaDeviceSynchronize());
    }
    EXPECT_CUDA(cudaSetDevice(0));
    EXPECT_EQ(all.finished, DEVICES * 5);
    EXPECT(vgpuWorkerCount() >= 1);
    EXPECT_EQ(vgpuLaunchNative("none", meet_natively, NULL, 0, 0, 0), cudaErrorInvalidValue);
    EXPECT_EQ(vgpuLaunchNative("none", NULL, NULL, 0, 1, 0), cudaErrorInvalidValue);
    (void)cudaGetLastError();
}

static void cooperative_launches_are_bounded(void)
{
    struct meeting meeting = {.expected = 100};
    struct meeting *pointer = &meeting;
    void *arguments[] = {&pointer};
    EXPECT_CUDA(cudaLaunchCooperativeKernel(&waits_for_all_blocks, (dim3){100, 1, 1},
                                            (dim3){32, 1, 1}, arguments, 0, 0));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(meeting.arrived, 100);
    EXPECT_EQ(cudaLaunchCooperativeKernel(&waits_for_all_blocks, (dim3){1 << 20, 1, 1},
                                          (dim3){32, 1, 1}, arguments, 0, 0),
              cudaErrorCooperativeLaunchTooLarge);
    (void)cudaGetLastError();
}

// More threads that wait for each other than can exist fail with a reason instead of hanging.
static void too_many_waiting_threads_fail(void)
{
    struct meeting meeting = {.expected = 200};
    if (!FIBERS_ARE_FEW) {
        SKIP("only the thread sanitizer limits the number of fibers");
        return;
    }
    EXPECT_CUDA(LAUNCH(waits_for_all_blocks, 200, 32, 0, &meeting));
    EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchOutOfResources);
    EXPECT_CUDA(cudaDeviceReset());
    meeting = (struct meeting){.expected = 10};
    EXPECT_CUDA(LAUNCH(waits_for_all_blocks, 10, 32, 0, &meeting));
    EXPECT_CUDA(cudaDeviceSynchronize());
}

int main(void)
{
    RUN(a_grid_may_wait_for_all_its_blocks);
    RUN(a_million_threads_on_eight_devices_need_little_memory);
    RUN(large_grids_run);
    RUN(a_busy_block_does_not_keep_others_out);
    RUN(computing_between_yields_is_no_waiting);
    RUN(a_sleeping_kernel_wakes);
    RUN(native_blocks_wait_for_other_devices);
    RUN(cooperative_launches_are_bounded);
    RUN(too_many_waiting_threads_fail);
    return expect_result();
}
