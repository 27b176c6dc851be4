// ncclCommRegister: handles by NCCL's rules, memory of every kind, collectives in registered
// buffers. SPDX-License-Identifier: Apache-2.0
#include "expect.h"
#include "member.h"
#include "ranks.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { BYTES = 1 << 16, COUNT = BYTES / 4 };

static char a_static[BYTES];

// Registers, and takes back what was registered, in the middle of a life with collectives.
static void sum_in(struct member *m, void *memory)
{
    int *numbers = malloc(BYTES);
    void *handle = NULL;
    for (int i = 0; i < COUNT; i++) {
        numbers[i] = i + m->rank;
    }
    EXPECT_OK(ncclCommRegister(m->comm, memory, BYTES, &handle));
    EXPECT(handle != NULL);
    EXPECT_CUDA(cudaMemcpyAsync(memory, numbers, BYTES, cudaMemcpyDefault, m->stream));
    EXPECT_OK(ncclAllReduce(memory, memory, COUNT, ncclInt, ncclSum, m->comm, m->stream));
    EXPECT_CUDA(cudaMemcpyAsync(numbers, memory, BYTES, cudaMemcpyDefault, m->stream));
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
    int wrong = 0;
    for (int i = 0; i < COUNT; i++) {
        wrong += numbers[i] != m->size * i + m->size * (m->size - 1) / 2;
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_OK(ncclCommDeregister(m->comm, handle));
    EXPECT_EQ(ncclCommDeregister(m->comm, handle), ncclInvalidUsage);
    free(numbers);
}

static void every_memory(int rank, int size)
{
    struct member m;
    if (!member_join(&m, rank, size)) {
        return;
    }
    void *device = NULL, *window = NULL, *heap = malloc(BYTES);
    EXPECT_CUDA(cudaMalloc(&device, BYTES));
    EXPECT_OK(ncclMemAlloc(&window, BYTES));
    sum_in(&m, device);
    sum_in(&m, window);
    sum_in(&m, heap);
    sum_in(&m, a_static);
    EXPECT_CUDA(cudaFree(device));
    EXPECT_OK(ncclMemFree(window));
    free(heap);
    member_leave(&m);
}

static void collectives_in_registered_buffers(void)
{
    run_ranks(3, every_memory, 60);
}

static void check_handles(int rank, int size)
{
    struct member m, other;
    char *memory = NULL;
    void *all = NULL, *part = NULL, *beside = NULL, *none = &m;
    if (!member_join(&m, rank, size) || !member_join(&other, rank, size)) {
        return;
    }
    EXPECT_CUDA(cudaMalloc((void **)&memory, BYTES));
    EXPECT_OK(ncclCommRegister(m.comm, memory, BYTES / 2, &all));
    EXPECT_OK(ncclCommRegister(m.comm, memory + 4096, 4096, &part)); // within it
    EXPECT_OK(ncclCommRegister(m.comm, memory + BYTES / 4, BYTES / 2, &beside));
    EXPECT(all == part);
    EXPECT(all != beside);
    EXPECT_EQ(ncclCommDeregister(other.comm, all), ncclInvalidUsage);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "no registration of this communicator");
    EXPECT_OK(ncclCommDeregister(m.comm, all));
    EXPECT_OK(ncclCommDeregister(m.comm, part));
    EXPECT_EQ(ncclCommDeregister(m.comm, part), ncclInvalidUsage);
    EXPECT_OK(ncclCommDeregister(m.comm, NULL));
    EXPECT_EQ(ncclCommDeregister(NULL, beside), ncclInvalidArgument);
    EXPECT_EQ(ncclCommRegister(NULL, memory, BYTES, &none), ncclInvalidArgument);
    EXPECT_EQ(ncclCommRegister(m.comm, NULL, BYTES, &none), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "buff is NULL");
    EXPECT_EQ(ncclCommRegister(m.comm, memory, BYTES, NULL), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "handle is NULL");
    EXPECT_EQ(ncclCommRegister(m.comm, memory, SIZE_MAX, &none), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "more than there are addresses");
    EXPECT_CUDA(cudaFree(memory));
    member_leave(&other);
    member_leave(&m); // `beside` goes with it
}

static void handles(void)
{
    run_ranks(1, check_handles, 60);
}

static void check_switched_off(int rank, int size)
{
    struct member m;
    char memory[64];
    void *handle = memory;
    if (!member_join(&m, rank, size)) {
        return;
    }
    EXPECT_OK(ncclCommRegister(m.comm, memory, sizeof memory, &handle));
    EXPECT(handle == NULL);
    EXPECT_OK(ncclCommDeregister(m.comm, handle));
    member_leave(&m);
}

static void switched_off(void)
{
    setenv("NCCL_LOCAL_REGISTER", "0", 1);
    run_ranks(1, check_switched_off, 60);
    unsetenv("NCCL_LOCAL_REGISTER");
}

// What is no memory of ncclMemAlloc: the text has nothing of earlier failures.
static void memory_that_is_freed_wrongly(void)
{
    char *memory = NULL;
    char text[200];
    EXPECT_OK(ncclMemAlloc((void **)&memory, BYTES));
    EXPECT_EQ(ncclMemFree((void *)0x1234), ncclUnhandledCudaError);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "ptr 0x1234 is neither from ncclMemAlloc nor from");
    EXPECT_EQ(ncclMemFree(memory + 4096), ncclInvalidArgument);
    (void)snprintf(text, sizeof text,
                   "ncclMemFree: ptr %p is not the start of memory from ncclMemAlloc, which is %p",
                   (void *)(memory + 4096), (void *)memory);
    EXPECT_STR(ncclGetLastError(NULL), text);
    EXPECT_OK(ncclMemFree(memory));
    EXPECT_EQ(ncclMemFree(memory), ncclUnhandledCudaError);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "or was freed before");
}

int main(void)
{
    RUN(collectives_in_registered_buffers);
    RUN(handles);
    RUN(switched_off);
    RUN(memory_that_is_freed_wrongly);
    return expect_result();
}
