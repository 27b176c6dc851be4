// C66: processes that fork, before and after they have made communicators. What a child does harms
// its parent's in no way.
// SPDX-License-Identifier: Apache-2.0
#include <nccl.h>

#include "expect.h"
#include "member.h"
#include "ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)

static void after_init(void)
{
    SKIP("the thread sanitizer does not follow a fork of a process with threads");
}

static void before_init(void)
{
    SKIP("the thread sanitizer does not follow a fork of a process with threads");
}

#else

enum { COUNT = 1000, BYTES = COUNT * sizeof(int) };

static void add_up(const struct member *m, int *memory)
{
    int numbers[COUNT];
    for (int i = 0; i < COUNT; i++) {
        numbers[i] = m->rank + i;
    }
    EXPECT_CUDA(cudaMemcpy(memory, numbers, BYTES, cudaMemcpyHostToDevice));
    EXPECT_OK(ncclAllReduce(memory, memory, COUNT, ncclInt, ncclSum, m->comm, m->stream));
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
    EXPECT_CUDA(cudaMemcpy(numbers, memory, BYTES, cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int i = 0; i < COUNT; i++) {
        wrong += numbers[i] != m->size * (m->size - 1) / 2 + m->size * i;
    }
    EXPECT_EQ(wrong, 0);
}

enum way { END_AT_ONCE, EXIT, CALL, WAYS };

// 0: the child is told whose communicator it is.
static int calls_parents(const struct member *m, int *memory)
{
    char owner[64];
    (void)snprintf(owner, sizeof owner, "belongs to process %d, this is process %d", (int)getppid(),
                   (int)getpid());
    return ncclAllReduce(memory, memory, COUNT, ncclInt, ncclSum, m->comm, m->stream) !=
               ncclInvalidUsage ||
           strstr(ncclGetLastError(NULL), owner) == NULL;
}

// What a child does. Its status: 0: all was right.
static void be_child(enum way way, const struct member *m, int *memory)
{
    int status = 0;
    if (way == CALL) {
        ncclUniqueId id = {{0}};
        ncclComm_t comm = NULL;
        status = calls_parents(m, memory);
        status |= ncclCommInitRank(&comm, 1, id, 0) != ncclInvalidUsage || comm != NULL ||
                  strstr(ncclGetLastError(NULL), "a child by fork()") == NULL;
        status |= calls_parents(m, memory);
    }
#if !defined(__SANITIZE_ADDRESS__) // which would look for leaks in what threads left
    if (way != END_AT_ONCE) {
        exit(status);
    }
#endif
    _exit(status);
}

static void fork_after(int rank, int size)
{
    struct member m;
    int *memory = NULL;
    if (!member_join(&m, rank, size) || !EXPECT_CUDA(cudaMalloc((void **)&memory, BYTES))) {
        return;
    }
    add_up(&m, memory);
    for (enum way way = END_AT_ONCE; way < WAYS; way++) {
        int status = -1;
        (void)fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            be_child(way, &m, memory);
        }
        add_up(&m, memory); // while it is there
        EXPECT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
        for (int i = 0; i < 10; i++) {
            add_up(&m, memory);
        }
        EXPECT_EQ(member_state(&m), ncclSuccess);
    }
    EXPECT_CUDA(cudaFree(memory));
    member_leave(&m);
}

static void after_init(void)
{
    run_ranks(2, fork_after, 60);
    run_ranks(4, fork_after, 60);
}

static void live(int rank, int size)
{
    struct member m;
    int *memory = NULL;
    if (member_join(&m, rank, size) && EXPECT_CUDA(cudaMalloc((void **)&memory, BYTES))) {
        add_up(&m, memory);
        EXPECT_CUDA(cudaFree(memory));
        member_leave(&m);
    }
}

// In even ranks the child is the rank, in odd ones the parent, while there is a child.
static void fork_before(int rank, int size)
{
    int status = -1, ends[2];
    EXPECT_EQ(pipe(ends), 0);
    (void)fflush(NULL);
    pid_t child = fork();
    if (child == 0 && rank % 2 == 0) {
        live(rank, size);
        _exit(expect_failures() > 0);
    } else if (child == 0) {
        char none;
        close(ends[1]);
        _exit(read(ends[0], &none, 1) != 0); // until the parent closes it
    }
    if (rank % 2 == 1) {
        live(rank, size);
    }
    close(ends[0]);
    close(ends[1]);
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

static void before_init(void)
{
    run_ranks(2, fork_before, 60);
    run_ranks(3, fork_before, 60);
}

#endif

int main(void)
{
    RUN(after_init);
    RUN(before_init);
    return expect_result();
}
