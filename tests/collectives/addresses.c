// Buffers that are not there. The call returns, the device that met the address fails as a kernel's
// would, and every rank learns of it, whether the calling thread did the work (short) or blocks of
// the stream (long). A buffer that ends beyond the last address is refused by the call.
// SPDX-License-Identifier: Apache-2.0
#include "collectives.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <tutti.h>
#include <unistd.h>

enum { RANKS = 2, MOST_S = 2 };

// The sizes travel in the entries, are done by the thread that calls, and by blocks.
static const size_t sizes[] = {4, 16 << 10, 4 << 20};
enum { SIZES = 3, LONGEST = 4 << 20 };

enum way { BAD_SEND, BAD_RECV, BAD_ROOT, BAD_MESSAGE, WAYS };

// Rank 0 has a buffer that nobody may touch.
static ncclResult_t call_way(enum way way, struct member *m, char *good, char *bad, size_t bytes)
{
    char *other = good + LONGEST, *theirs = m->rank == 0 ? bad : good;
    switch (way) {
    case BAD_SEND:
        return ncclAllReduce(theirs, other, bytes, ncclInt8, ncclSum, m->comm, m->stream);
    case BAD_RECV:
        return ncclAllReduce(other, theirs, bytes, ncclInt8, ncclSum, m->comm, m->stream);
    case BAD_ROOT:
        return ncclBroadcast(theirs, other, bytes, ncclInt8, 0, m->comm, m->stream);
    default:
        return m->rank == 0 ? ncclSend(bad, bytes, ncclInt8, 1, m->comm, m->stream)
                            : ncclRecv(other, bytes, ncclInt8, 0, m->comm, m->stream);
    }
}

// Also a rank whose part was over before the other's failed is told.
static ncclResult_t await_failure(struct member *m)
{
    struct stopwatch watch = stopwatch_start();
    ncclResult_t state = wait_within(m, MOST_S);
    while (state == ncclSuccess && stopwatch_is_within(&watch, MOST_S)) {
        usleep(1000);
        state = member_state(m);
    }
    return state;
}

// Whichever rank meets the address, whose buffer or another's, fails; all learn of it.
static void fail_once(int rank, int size, enum way way, size_t bytes)
{
    struct member m;
    char *good = NULL, *bad = mmap(NULL, LONGEST, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!member_join(&m, rank, size) || !EXPECT(bad != MAP_FAILED) ||
        !EXPECT_CUDA(cudaMalloc((void **)&good, 2 * LONGEST))) {
        return;
    }
    int before = expect_failures();
    if (rank == 1) {
        EXPECT_OK(call_way(way, &m, good, bad, bytes));
    }
    ranks_barrier();
    if (rank == 0) {
        EXPECT_OK(call_way(way, &m, good, bad, bytes));
    }
    ncclResult_t state = await_failure(&m);
    EXPECT(state == ncclUnhandledCudaError || state == ncclRemoteError);
    EXPECT_CONTAINS(ncclGetLastError(m.comm), "failed: an illegal memory access was encountered");
    cudaError_t error = cudaStreamSynchronize(m.stream);
    EXPECT(error == cudaErrorIllegalAddress || (error == cudaSuccess && state == ncclRemoteError));
    EXPECT(call_way(way, &m, good, good, bytes) != ncclSuccess);
    int failed = error == cudaErrorIllegalAddress, all[RANKS];
    ranks_gather(&failed, all, sizeof failed);
    EXPECT(all[0] || all[1]);
    EXPECT_OK(ncclCommAbort(m.comm));
    ranks_barrier();
    (void)cudaDeviceReset();
    (void)munmap(bad, LONGEST);
    if (expect_failures() > before) {
        fprintf(stderr, "  (way %d, %zu bytes)\n", (int)way, bytes);
    }
    ranks_barrier();
}

static void fail(int rank, int size)
{
    for (enum way way = 0; way < WAYS; way++) {
        for (int s = 0; s < SIZES; s++) {
            fail_once(rank, size, way, sizes[s]);
        }
    }
}

static void bad_addresses(void)
{
    if (IS_SANITIZED) {
        SKIP("the sanitizer handles signals");
        return;
    }
    run_thread_ranks(RANKS, fail, 60);
    run_processes(RANKS, fail, 60);
}

// ---- Buffers that end nowhere -------------------------------------------------------------------

#define REFUSED(name, bytes, call)                                                                 \
    do {                                                                                           \
        EXPECT_EQ((call), ncclInvalidArgument);                                                    \
        EXPECT_CONTAINS(ncclGetLastError(comm),                                                    \
                        name " is 0xfffffffffffffff0, from where on " bytes                        \
                             " bytes are more than there are addresses");                          \
    } while (0)

// Rank 0 of two alone calls: none of it reaches the other.
static void refuse(ncclComm_t comm, void *good, cudaStream_t stream)
{
    void *last = (void *)(UINTPTR_MAX & ~(uintptr_t)15); // 15 bytes have addresses from here on
    const ncclDataType_t type = ncclInt32;
    REFUSED("sendbuff", "16", ncclAllReduce(last, good, 4, type, ncclSum, comm, stream));
    REFUSED("recvbuff", "16", ncclAllReduce(good, last, 4, type, ncclSum, comm, stream));
    REFUSED("sendbuff", "16", ncclReduce(last, good, 4, type, ncclSum, 1, comm, stream));
    REFUSED("recvbuff", "16", ncclReduce(good, last, 4, type, ncclSum, 0, comm, stream));
    REFUSED("recvbuff", "16", ncclBroadcast(good, last, 4, type, 1, comm, stream));
    REFUSED("sendbuff", "16", ncclBcast(last, 4, type, 0, comm, stream));
    REFUSED("sendbuff", "32", ncclReduceScatter(last, good, 4, type, ncclSum, comm, stream));
    REFUSED("recvbuff", "16", ncclReduceScatter(good, last, 4, type, ncclSum, comm, stream));
    REFUSED("sendbuff", "16", ncclAllGather(last, good, 4, type, comm, stream));
    REFUSED("recvbuff", "24", ncclAllGather(good, last, 3, type, comm, stream));
    REFUSED("sendbuff", "24", ncclAlltoAll(last, good, 3, type, comm, stream));
    REFUSED("recvbuff", "24", ncclAlltoAll(good, last, 3, type, comm, stream));
    REFUSED("sendbuff", "16", ncclGather(last, good, 4, type, 1, comm, stream));
    REFUSED("recvbuff", "24", ncclGather(good, last, 3, type, 0, comm, stream));
    REFUSED("sendbuff", "24", ncclScatter(last, good, 3, type, 0, comm, stream));
    REFUSED("recvbuff", "16", ncclScatter(good, last, 4, type, 1, comm, stream));
    REFUSED("sendbuff", "16", ncclSend(last, 4, type, 1, comm, stream));
    REFUSED("recvbuff", "16", ncclRecv(last, 4, type, 1, comm, stream));
}

static void refuse_on_one(int rank, int size)
{
    struct member m;
    int *memory = NULL;
    if (!member_join(&m, rank, size) || !EXPECT_CUDA(cudaMalloc((void **)&memory, 4096))) {
        return;
    }
    if (rank == 0) {
        refuse(m.comm, memory, m.stream);
    }
    // Nothing of that is known to the other, and the communicator goes on.
    EXPECT_OK(ncclAllReduce(memory, memory, 4, ncclInt32, ncclSum, m.comm, m.stream));
    EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    EXPECT_EQ(member_state(&m), ncclSuccess);
    ranks_barrier();
    EXPECT_CUDA(cudaFree(memory));
    member_leave(&m);
}

static void beyond_the_last_address(void)
{
    run_thread_ranks(RANKS, refuse_on_one, 30);
}

int main(void)
{
    RUN(bad_addresses);
    RUN(beyond_the_last_address);
    return expect_result();
}
