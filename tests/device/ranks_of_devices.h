// For tests of the device API: a rank with its communicator and stream, and one test body run as
// threads, as processes, and as processes of two threads each.
// SPDX-License-Identifier: Apache-2.0
#ifndef TESTS_DEVICE_RANKS_OF_DEVICES_H
#define TESTS_DEVICE_RANKS_OF_DEVICES_H

#include "../support/expect.h"
#include "../support/member.h"
#include "../support/ranks.h"

#include <nccl.h>
#include <nccl_device.h>

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef VGPU_CUDA_RUNTIME_API_H
static const bool is_virtual = true;
#else
static const bool is_virtual = false; // real GPUs
#endif

struct device_rank : member {
    ncclCommProperties properties;
    pthread_barrier_t *pair; // of the two ranks of a process; nullptr where ranks are alone
    bool leads_pair;
};
typedef void (*device_test)(device_rank &me);

// A barrier among all ranks, whatever they are. On real GPUs ranks meet before each launch of a
// kernel that waits for other ranks': from there to the kernel's end no rank may make a call that
// waits for the whole GPU, as cudaMalloc and cudaFree do.
static inline void meet(device_rank &me)
{
    if (me.pair == nullptr) {
        ranks_barrier();
        return;
    }
    pthread_barrier_wait(me.pair);
    if (me.leads_pair) {
        ranks_barrier();
    }
    pthread_barrier_wait(me.pair);
}

// Copies results to the host once the stream is through. A copy to pageable memory waits with
// CUDA's locks held, which other ranks of the process need to launch what this one's kernel waits
// for.
static inline bool read_back(device_rank &me, void *to, const void *from, size_t bytes)
{
    return EXPECT_CUDA(cudaStreamSynchronize(me.stream)) &&
           EXPECT_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, me.stream)) &&
           EXPECT_CUDA(cudaStreamSynchronize(me.stream));
}

// A stream's first kernel, run alone. On real GPUs, where kernels are loaded with the program
// (CUDA_MODULE_LOADING=EAGER), the first kernels of new streams can wait for the end of a stream
// that has two kernels in a row, which would wait for them.
static __global__ void first_kernel() {}
static inline bool begin_stream(const device_rank &me)
{
    if (is_virtual) {
        return true;
    }
    first_kernel<<<1, 1, 0, me.stream>>>();
    return EXPECT_CUDA(cudaGetLastError()) && EXPECT_CUDA(cudaStreamSynchronize(me.stream));
}

// Joins as a rank, runs the test, leaves.
static inline void run_as_rank(int rank, int size, const ncclUniqueId &id, device_test test,
                               pthread_barrier_t *pair = nullptr)
{
    device_rank me = {};
    me.pair = pair;
    me.leads_pair = rank % 2 == 0;
    if (!member_join_id(&me, rank, size, id) || !begin_stream(me)) {
        return;
    }
    me.properties = NCCL_COMM_PROPERTIES_INITIALIZER;
    EXPECT_OK(ncclCommQueryProperties(me.comm, &me.properties));
    test(me);
    member_leave(&me);
}

// Body of one rank thread or rank process.
template <device_test test> static void as_rank(int rank, int size)
{
    run_as_rank(rank, size, share_id(rank), test);
}

struct rank_thread {
    int rank, size;
    ncclUniqueId id;
    device_test test;
    pthread_barrier_t *pair;
};
static inline void *rank_thread_main(void *argument)
{
    const rank_thread *mine = static_cast<rank_thread *>(argument);
    run_as_rank(mine->rank, mine->size, mine->id, mine->test, mine->pair);
    return nullptr;
}

// Body of a process of two ranks.
template <device_test test> static void as_two_ranks(int process, int processes)
{
    ncclUniqueId id = share_id(process);
    rank_thread both[2];
    pthread_t thread;
    pthread_barrier_t pair;
    pthread_barrier_init(&pair, nullptr, 2);
    for (int i = 0; i < 2; i++) {
        both[i] = {2 * process + i, 2 * processes, id, test, &pair};
    }
    EXPECT_EQ(pthread_create(&thread, nullptr, rank_thread_main, &both[1]), 0);
    rank_thread_main(&both[0]);
    pthread_join(thread, nullptr);
    pthread_barrier_destroy(&pair);
}

// All three ways; size is even. On real GPUs, where a process takes a second to start, the third
// stands for the second.
template <device_test test> static void run_all_ways(int size, int timeout_s)
{
    run_thread_ranks(size, as_rank<test>, timeout_s);
    if (is_virtual) {
        run_ranks(size, as_rank<test>, timeout_s);
    }
    run_ranks(size / 2, as_two_ranks<test>, timeout_s);
}

// The same; under the thread sanitizer, which does not see other processes, threads alone.
template <device_test test> static void run_ways(int size, int timeout_s)
{
#ifdef __SANITIZE_THREAD__
    run_thread_ranks(size, as_rank<test>, timeout_s);
#else
    run_all_ways<test>(size, timeout_s);
#endif
}

// Memory of this rank, registered as a window on all ranks.
struct test_window {
    char *memory;
    size_t bytes;
    ncclWindow_t handle;
};
static inline bool open_window(device_rank &me, size_t bytes, test_window *window)
{
    *window = {nullptr, bytes, nullptr};
    bool good = EXPECT_OK(ncclMemAlloc((void **)&window->memory, bytes)) &&
                EXPECT_OK(ncclCommWindowRegister(me.comm, window->memory, bytes, &window->handle,
                                                 NCCL_WIN_COLL_SYMMETRIC));
    return EXPECT(good && window->handle != nullptr);
}
static inline void close_window(device_rank &me, test_window *window)
{
    EXPECT_OK(ncclCommWindowDeregister(me.comm, window->handle));
    EXPECT_OK(ncclMemFree(window->memory));
}

// A device communicator with LSA barriers, and multimem where the machine has it.
static inline bool open_device_comm(device_rank &me, int lsa_barriers, ncclDevComm *device_comm)
{
    ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    needs.lsaBarrierCount = lsa_barriers;
    needs.lsaMultimem = me.properties.multimemSupport;
    return EXPECT_OK(ncclDevCommCreate(me.comm, &needs, device_comm));
}

#endif
