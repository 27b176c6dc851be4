// What goes wrong with communicators, through the public API: bad arguments, bad configurations,
// stale handles, ranks that do not agree, do not come, abort or die. Each failure has its code and
// a text that names argument, value and what would be right.
// SPDX-License-Identifier: Apache-2.0
#include <nccl.h>

#include "expect.h"
#include "member.h"
#include "ranks.h"
#include "stopwatch.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static ncclUniqueId make_id(void)
{
    ncclUniqueId id;
    memset(&id, 0, sizeof id);
    EXPECT_OK(ncclGetUniqueId(&id));
    return id;
}

// The last call failed with this code and a text with this part.
static void failed(ncclResult_t result, ncclResult_t expected, const char *part, int line)
{
    if (!EXPECT_EQ(result, expected) || !EXPECT_CONTAINS(ncclGetLastError(NULL), part)) {
        fprintf(stderr, "  (from line %d)\n", line);
    }
}
#define FAILS(call, expected, part) failed(call, expected, part, __LINE__)

// ---- Arguments ----------------------------------------------------------------------------------

static void library(void)
{
    int version = 0;
    EXPECT_OK(ncclGetVersion(&version));
    EXPECT_EQ(version, 23007);
    FAILS(ncclGetVersion(NULL), ncclInvalidArgument, "version is NULL");
    FAILS(ncclGetUniqueId(NULL), ncclInvalidArgument, "uniqueId is NULL");
    for (int code = 0; code < ncclNumResults; code++) {
        EXPECT(strlen(ncclGetErrorString((ncclResult_t)code)) > 5);
        for (int other = 0; other < code; other++) {
            EXPECT(strcmp(ncclGetErrorString((ncclResult_t)code),
                          ncclGetErrorString((ncclResult_t)other)) != 0);
        }
    }
    EXPECT_CONTAINS(ncclGetErrorString((ncclResult_t)99), "unknown");
    EXPECT_CONTAINS(ncclGetErrorString((ncclResult_t)-1), "unknown");
    EXPECT_STR(pncclGetErrorString(ncclSuccess), ncclGetErrorString(ncclSuccess));
}

static void init_arguments(void)
{
    ncclUniqueId id = make_id(), zero = {{0}};
    ncclComm_t comm = (ncclComm_t)&id;
    FAILS(ncclCommInitRank(NULL, 1, id, 0), ncclInvalidArgument, "comm is NULL");
    FAILS(ncclCommInitRank(&comm, 0, id, 0), ncclInvalidArgument, "nranks is 0");
    EXPECT(comm == NULL);
    FAILS(ncclCommInitRank(&comm, -5, id, 0), ncclInvalidArgument, "nranks is -5");
    FAILS(ncclCommInitRank(&comm, INT_MAX, id, 0), ncclInvalidArgument, "nranks is 2147483647");
    FAILS(ncclCommInitRank(&comm, 1, id, 1), ncclInvalidArgument, "rank is 1, must be 0 to 0");
    FAILS(ncclCommInitRank(&comm, 1, id, -1), ncclInvalidArgument, "rank is -1");
    FAILS(ncclCommInitRank(&comm, 1, zero, 0), ncclInvalidArgument, "unique id");
    EXPECT(comm == NULL);
    EXPECT_OK(ncclCommInitRank(&comm, 1, id, 0)); // none of that has used it
    EXPECT_OK(ncclCommDestroy(comm));
}

static void init_all_arguments(void)
{
    static const int bad[] = {0, 99}, twice[] = {1, 0, 1}, negative[] = {-1};
    ncclComm_t comm[4];
    FAILS(ncclCommInitAll(NULL, 1, NULL), ncclInvalidArgument, "comm is NULL");
    FAILS(ncclCommInitAll(comm, -1, NULL), ncclInvalidArgument, "ndev is -1");
    FAILS(ncclCommInitAll(comm, 1000, NULL), ncclInvalidArgument, "ndev is 1000, must be 1 to ");
    FAILS(ncclCommInitAll(comm, 2, bad), ncclInvalidArgument, "devlist[1] is 99");
    FAILS(ncclCommInitAll(comm, 1, negative), ncclInvalidArgument, "devlist[0] is -1");
    FAILS(ncclCommInitAll(comm, 3, twice), ncclInvalidUsage, "both GPU 1 (physical 1)");
}

// Ids beyond the first have no root any more, also where the initialisation fails.
static void more_ids(void)
{
    ncclUniqueId ids[2] = {make_id(), make_id()};
    ncclComm_t comm = NULL;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.minCTAs = 0;
    FAILS(ncclCommInitRankScalable(&comm, 2, 0, 2, ids, &config), ncclInvalidArgument,
          "config->minCTAs is 0");
    FAILS(ncclCommInitRank(&comm, 1, ids[1], 0), ncclInvalidUsage, "already used");
}

static void one_config(ncclConfig_t config, ncclResult_t expected, const char *part, int line)
{
    ncclComm_t comm = NULL;
    ncclResult_t result = ncclCommInitRankConfig(&comm, 1, make_id(), 0, &config);
    failed(result, expected, part, line);
    if (result == ncclSuccess) {
        EXPECT_OK(ncclCommDestroy(comm));
    } else {
        EXPECT(comm == NULL);
    }
}

#define CONFIG(expected, part, ...)                                                                \
    do {                                                                                           \
        ncclConfig_t c = NCCL_CONFIG_INITIALIZER;                                                  \
        __VA_ARGS__;                                                                               \
        one_config(c, expected, part, __LINE__);                                                   \
    } while (0)

static void configs(void)
{
    CONFIG(ncclSuccess, "", (void)c);
    CONFIG(ncclInvalidArgument, "config->magic is 0, must be 0xcafebeef", c.magic = 0);
    CONFIG(ncclInvalidArgument, "config->size is 0", c.size = 0);
    CONFIG(ncclInvalidArgument, "config->size is 18446744073709551615, must be", c.size = SIZE_MAX);
    CONFIG(ncclInvalidArgument, "config->version is 0, must be", c.version = 0);
    CONFIG(ncclInvalidArgument, "config->version is 99999", c.version = 99999);
    CONFIG(ncclInvalidUsage, "config->netName is \"IB\"", c.netName = "IB");
    CONFIG(ncclInvalidUsage, "it has: Socket", c.netName = "");
    CONFIG(ncclSuccess, "", c.netName = "socket");
    CONFIG(ncclInvalidArgument, "config->blocking is 2, must be 0 to 1", c.blocking = 2);
    CONFIG(ncclInvalidArgument, "config->cgaClusterSize is -1", c.cgaClusterSize = -1);
    CONFIG(ncclInvalidArgument, "config->cgaClusterSize is 9, must be 0 to 8",
           c.cgaClusterSize = 9);
    CONFIG(ncclInvalidArgument, "config->minCTAs is 0", c.minCTAs = 0);
    CONFIG(ncclInvalidArgument, "config->maxCTAs is -3", c.maxCTAs = -3);
    CONFIG(ncclInvalidArgument, "minCTAs is 9, more than maxCTAs, 8", c.minCTAs = 9, c.maxCTAs = 8);
    CONFIG(ncclSuccess, "", c.minCTAs = 1, c.maxCTAs = 1000);
    CONFIG(ncclInvalidArgument, "config->splitShare is 7", c.splitShare = 7);
    CONFIG(ncclInvalidArgument, "config->CTAPolicy is 4", c.CTAPolicy = 4);
    CONFIG(ncclInvalidArgument, "config->nvlsCTAs is 0", c.nvlsCTAs = 0);
    CONFIG(ncclInvalidArgument, "config->graphUsageMode is 3", c.graphUsageMode = 3);
    CONFIG(ncclInvalidArgument, "config->numRmaCtx is -1", c.numRmaCtx = -1);
    CONFIG(ncclInvalidArgument, "config->graphStreamOrdering is 2", c.graphStreamOrdering = 2);
    CONFIG(ncclSuccess, "",
           c.commName = "a name that is longer than sixty-three characters, which is "
                        "what a communicator keeps of it");
    // A program of an earlier version: what stands in fields that it does not know means nothing.
    CONFIG(ncclSuccess, "", c.version = 22809, c.size = 80, c.graphUsageMode = 77);
    CONFIG(ncclSuccess, "", c.version = 22809, c.graphStreamOrdering = 77);
    CONFIG(ncclInvalidArgument, "config->nvlinkCentricSched is 5", c.version = 22809, c.size = 80,
           c.nvlinkCentricSched = 5);
    CONFIG(ncclSuccess, "", c.version = 21400, c.size = 24, c.minCTAs = -9);
    // A program of a later one, with a larger structure.
    CONFIG(ncclSuccess, "", c.version = 29900);
}

static void questions(void)
{
    int number;
    ncclResult_t state;
    ncclComm_t comm = NULL;
    EXPECT_OK(ncclCommInitRank(&comm, 1, make_id(), 0));
    FAILS(ncclCommCount(NULL, &number), ncclInvalidArgument, "ncclCommCount: comm is NULL");
    FAILS(ncclCommCount(comm, NULL), ncclInvalidArgument, "count is NULL");
    FAILS(ncclCommUserRank(NULL, &number), ncclInvalidArgument, "ncclCommUserRank: comm is NULL");
    FAILS(ncclCommUserRank(comm, NULL), ncclInvalidArgument, "rank is NULL");
    FAILS(ncclCommCuDevice(NULL, &number), ncclInvalidArgument, "ncclCommCuDevice: comm is NULL");
    FAILS(ncclCommCuDevice(comm, NULL), ncclInvalidArgument, "device is NULL");
    FAILS(ncclCommGetAsyncError(NULL, &state), ncclInvalidArgument, "comm is NULL");
    FAILS(ncclCommGetAsyncError(comm, NULL), ncclInvalidArgument, "asyncError is NULL");
    EXPECT_OK(ncclCommDestroy(comm));
}

// ---- Collectives: what they refuse before anything else -----------------------------------------

static void collectives(void)
{
    ncclComm_t c = NULL;
    char b[16];
    const size_t huge = SIZE_MAX / 4;
    EXPECT_OK(ncclCommInitRank(&c, 1, make_id(), 0));
    FAILS(ncclAllReduce(b, b, 1, ncclInt8, ncclSum, NULL, NULL), ncclInvalidArgument,
          "comm is NULL");
    FAILS(ncclSend(b, 1, ncclInt8, 0, NULL, NULL), ncclInvalidArgument, "ncclSend: comm is NULL");
    FAILS(ncclBroadcast(b, b, 1, ncclInt8, -1, c, NULL), ncclInvalidArgument,
          "root is -1, must be 0 to 0");
    FAILS(ncclReduce(b, b, 1, ncclInt8, ncclSum, 1, c, NULL), ncclInvalidArgument,
          "root is 1, must be 0 to 0");
    FAILS(ncclGather(b, b, 1, ncclInt8, 1, c, NULL), ncclInvalidArgument, "root is 1");
    FAILS(ncclScatter(b, b, 1, ncclInt8, -2, c, NULL), ncclInvalidArgument, "root is -2");
    FAILS(ncclBcast(b, 1, ncclInt8, 1, c, NULL), ncclInvalidArgument, "root is 1");
    FAILS(ncclSend(b, 1, ncclInt8, -1, c, NULL), ncclInvalidArgument, "peer is -1, must be 0 to 0");
    FAILS(ncclRecv(b, 1, ncclInt8, 1, c, NULL), ncclInvalidArgument, "peer is 1, must be 0 to 0");
    FAILS(ncclAllGather(b, b, 1, (ncclDataType_t)12, c, NULL), ncclInvalidArgument,
          "datatype is 12, must be 0 to 11");
    FAILS(ncclAlltoAll(b, b, 1, (ncclDataType_t)-1, c, NULL), ncclInvalidArgument,
          "datatype is -1");
    FAILS(ncclAllReduce(b, b, 1, ncclInt8, (ncclRedOp_t)5, c, NULL), ncclInvalidArgument,
          "op is 5, must be 0 to 4");
    FAILS(ncclReduceScatter(b, b, 1, ncclInt8, (ncclRedOp_t)-1, c, NULL), ncclInvalidArgument,
          "op is -1");
    FAILS(ncclAllReduce(b, b, huge, ncclFloat64, ncclSum, c, NULL), ncclInvalidArgument,
          "count is 4611686018427387903");
    FAILS(ncclAllReduce(b, b, SIZE_MAX, ncclInt8, ncclSum, c, NULL), ncclInvalidArgument,
          "count is 18446744073709551615: so many elements of 1 byte are more than an address");
    FAILS(ncclAllGather(b, b, SIZE_MAX / 2, ncclFloat16, c, NULL), ncclInvalidArgument,
          "so many elements of 2 bytes for each of 1 ranks are more than an address space holds");
    EXPECT_OK(ncclAllReduce(b, b, 1, ncclInt8, ncclSum, c, NULL));
    FAILS(ncclRedOpDestroy(ncclSum, c), ncclInvalidArgument, "op is 0, which is NCCL's own");
    FAILS(pncclSend(b, 1, ncclInt8, 0, c, NULL), ncclInvalidUsage,
          "Send(count 1, int8, to rank 0): a message to the rank itself, of which the group has no "
          "receive");
    // Right arguments: this version has no more to offer.
    FAILS(ncclCommSuspend(c, NCCL_SUSPEND_MEM), ncclInvalidUsage,
          "not implemented yet: ncclCommSuspend");
    FAILS(ncclGroupSimulateEnd(NULL), ncclInvalidUsage,
          "ncclGroupSimulateEnd: there was no ncclGroupStart");
    EXPECT_OK(ncclCommDestroy(c));
}

// ---- Stale handles ------------------------------------------------------------------------------

static void stale_handles(void)
{
    ncclComm_t comm = NULL, other = NULL, many[300];
    int number = 0;
    EXPECT_OK(ncclCommInitRank(&comm, 1, make_id(), 0));
    EXPECT_OK(ncclCommInitRank(&other, 1, make_id(), 0));
    EXPECT_OK(ncclCommFinalize(comm));
    FAILS(ncclCommFinalize(comm), ncclInvalidArgument, "finalized");
    FAILS(ncclCommCount(comm, &number), ncclInvalidArgument,
          "only ncclCommGetAsyncError, ncclCommDestroy and ncclCommAbort may follow");
    EXPECT_OK(ncclCommDestroy(comm));
    for (int i = 0; i < 100; i++) { // others come and go
        EXPECT_OK(ncclCommInitRank(&many[i], 1, make_id(), 0));
        EXPECT(many[i] != comm);
    }
    FAILS(ncclCommDestroy(comm), ncclInvalidArgument, "was destroyed");
    FAILS(ncclCommAbort(comm), ncclInvalidArgument, "was destroyed");
    FAILS(ncclCommFinalize(comm), ncclInvalidArgument, "was destroyed");
    FAILS(ncclCommCount(comm, &number), ncclInvalidArgument, "was destroyed");
    FAILS(ncclAllReduce(&number, &number, 1, ncclInt, ncclSum, comm, NULL), ncclInvalidArgument,
          "was destroyed");
    ncclResult_t state;
    FAILS(ncclCommGetAsyncError(comm, &state), ncclInvalidArgument, "was destroyed");
    FAILS(ncclCommDestroy((ncclComm_t)(uintptr_t)0x1234), ncclInvalidArgument, "no communicator");
    FAILS(ncclCommDestroy((ncclComm_t)&number), ncclInvalidArgument, "no communicator");
    EXPECT_OK(ncclCommDestroy(NULL));
    EXPECT_OK(ncclCommAbort(NULL));
    EXPECT_OK(ncclCommFinalize(NULL));
    EXPECT_OK(ncclCommCount(other, &number)); // unharmed
    EXPECT_EQ(number, 1);
    for (int i = 0; i < 100; i++) {
        EXPECT_OK(ncclCommAbort(many[i]));
    }
    EXPECT_OK(ncclCommDestroy(other));
}

static void *destroy_it(void *comm)
{
    return (void *)(intptr_t)ncclCommDestroy(comm);
}

// Two threads destroy one communicator: one of them succeeds.
static void destroyed_by_two(void)
{
    for (int i = 0; i < 50; i++) {
        ncclComm_t comm = NULL;
        pthread_t thread[2];
        void *result[2];
        EXPECT_OK(ncclCommInitRank(&comm, 1, make_id(), 0));
        pthread_create(&thread[0], NULL, destroy_it, comm);
        pthread_create(&thread[1], NULL, destroy_it, comm);
        pthread_join(thread[0], &result[0]);
        pthread_join(thread[1], &result[1]);
        EXPECT_EQ((intptr_t)result[0] + (intptr_t)result[1], ncclInvalidArgument);
    }
}

// ---- Groups -------------------------------------------------------------------------------------

static void groups(void)
{
    ncclComm_t comm[2] = {NULL, NULL};
    ncclUniqueId id = make_id();
    FAILS(ncclGroupEnd(), ncclInvalidUsage, "there was no ncclGroupStart");
    // The first error is the end's, and the rest of the group is dropped.
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(ncclCommInitRank(&comm[0], 2, id, 0));
    EXPECT(comm[0] != NULL);
    EXPECT_EQ(ncclCommInitRank(&comm[1], 2, id, 2), ncclInvalidArgument);
    EXPECT_EQ(ncclAllReduce(NULL, NULL, 0, ncclInt, ncclSum, NULL, NULL), ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    EXPECT(comm[0] == NULL && comm[1] == NULL);
    EXPECT_OK(ncclGroupStart()); // and it is forgotten
    EXPECT_OK(ncclGroupEnd());
    // Ranks of one thread that do not agree.
    id = make_id();
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(ncclCommInitRank(&comm[0], 2, id, 0));
    EXPECT_OK(ncclCommInitRank(&comm[1], 2, id, 0));
    FAILS(ncclGroupEnd(), ncclInvalidUsage, "two ranks of one number");
    EXPECT(comm[0] == NULL && comm[1] == NULL);
    // Blocking and nonblocking ones.
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    id = make_id();
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(ncclCommInitRank(&comm[0], 2, id, 0));
    EXPECT_OK(ncclCommInitRankConfig(&comm[1], 2, id, 1, &config));
    FAILS(ncclGroupEnd(), ncclInvalidArgument, "config->blocking must be equal");
    EXPECT(comm[0] == NULL && comm[1] == NULL);
}

// One of two communicators of a group cannot be made, its partner will not come: the group ends all
// the same.
static void partner_in_group(void)
{
    ncclComm_t a = NULL, b[2] = {NULL, NULL};
    ncclUniqueId alone = make_id(), both = make_id();
    struct stopwatch watch = stopwatch_start();
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(ncclCommInitRank(&a, 2, alone, 0)); // rank 1 never comes
    EXPECT_OK(ncclCommInitRank(&b[0], 2, both, 1));
    EXPECT_OK(ncclCommInitRank(&b[1], 3, both, 0));
    FAILS(ncclGroupEnd(), ncclInvalidUsage, "different numbers of ranks");
    EXPECT_WITHIN(watch, 10);
    EXPECT(a == NULL && b[0] == NULL && b[1] == NULL);
}

// ---- Ranks that do not agree or do not come -----------------------------------------------------

static void disagree(int rank, int size)
{
    ncclComm_t comm = NULL;
    ncclUniqueId id = share_id(rank);
    EXPECT_EQ(ncclCommInitRank(&comm, rank == 1 ? size + 1 : size, id, rank), ncclInvalidUsage);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "different numbers of ranks");
    EXPECT(comm == NULL);
    ranks_barrier();
    id = share_id(rank);
    EXPECT_EQ(ncclCommInitRank(&comm, size, id, rank == 2 ? 1 : rank), ncclInvalidUsage);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "two ranks of one number");
    ranks_barrier();
    id = share_id(rank);
    ncclResult_t result = ncclCommInitRank(&comm, size, id, rank == 2 ? size : rank);
    EXPECT_EQ(result, rank == 2 ? ncclInvalidArgument : ncclInvalidUsage);
    EXPECT_CONTAINS(ncclGetLastError(NULL), rank == 2 ? "must be 0 to 2" : "rank 3 of 3");
    ranks_barrier();
    // A bad configuration on one rank.
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = rank == 0 ? 7 : 1;
    id = share_id(rank);
    result = ncclCommInitRankConfig(&comm, size, id, rank, &config);
    EXPECT_EQ(result, rank == 0 ? ncclInvalidArgument : ncclRemoteError);
    EXPECT_CONTAINS(ncclGetLastError(NULL),
                    rank == 0 ? "config->blocking is 7" : "rank 0 failed: ");
    ranks_barrier();
}

static void disagreement(void)
{
    run_ranks(3, disagree, 60);
}

static void no_device_here(int rank, int size)
{
    ncclComm_t comm = NULL;
    ncclUniqueId id = share_id(rank);
    EXPECT_EQ(ncclCommInitRank(&comm, size, id, rank), ncclUnhandledCudaError);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "no device");
    EXPECT_CONTAINS(ncclGetLastError(NULL), "VGPU_MACHINE");
    FAILS(ncclCommInitAll(&comm, 1, NULL), ncclUnhandledCudaError, "has no device: ");
    EXPECT_CONTAINS(ncclGetLastError(NULL), "VGPU_MACHINE");
}

static void no_device(void)
{
    setenv("VGPU_MACHINE", "none", 1);
    run_ranks(2, no_device_here, 30);
    unsetenv("VGPU_MACHINE");
}

static void miss_last(int rank, int size)
{
    ncclComm_t comm = NULL;
    ncclUniqueId id = share_id(rank);
    struct stopwatch watch = stopwatch_start();
    if (rank < size - 1) {
        EXPECT_EQ(ncclCommInitRank(&comm, size, id, rank), ncclTimeout);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "1 of 4: 3");
        EXPECT(stopwatch_s(&watch) > 4.5 && stopwatch_is_within(&watch, 8));
    }
    ranks_barrier();
}

static void missing_rank(void)
{
    setenv("TUTTI_INIT_TIMEOUT", "5", 1);
    run_ranks(4, miss_last, 30);
    unsetenv("TUTTI_INIT_TIMEOUT");
}

// ---- Aborts -------------------------------------------------------------------------------------

struct waiting {
    ncclComm_t comm;
    ncclUniqueId id;
    int rank;
    ncclResult_t result;
    char text[300];
    atomic_int done;
};

static void *init_of_three(void *argument)
{
    struct waiting *w = argument;
    w->result = ncclCommInitRank(&w->comm, 3, w->id, w->rank);
    (void)snprintf(w->text, sizeof w->text, "%s", ncclGetLastError(NULL));
    atomic_store(&w->done, 1);
    return NULL;
}

// A blocking init of two ranks whose partner does not come, aborted from another thread: the other
// one is told.
static void abort_init(void)
{
    struct waiting w = {.id = make_id()}, other = {.id = w.id, .rank = 1};
    pthread_t thread, second;
    pthread_create(&thread, NULL, init_of_three, &w);
    pthread_create(&second, NULL, init_of_three, &other);
    poll(NULL, 0, 500);
    EXPECT_EQ(atomic_load(&w.done), 0);
    ncclComm_t comm = __atomic_load_n(&w.comm, __ATOMIC_ACQUIRE);
    EXPECT(comm != NULL);
    struct stopwatch watch = stopwatch_start();
    EXPECT_OK(ncclCommAbort(comm));
    EXPECT_WITHIN(watch, 1);
    pthread_join(thread, NULL);
    EXPECT(w.result != ncclSuccess);
    FAILS(ncclCommAbort(comm), ncclInvalidArgument, "was destroyed or aborted");
    pthread_join(second, NULL);
    EXPECT_EQ(other.result, ncclRemoteError);
    EXPECT_STR(other.text,
               "ncclCommInitRank: rank 1: rank 0 failed: it was aborted while it joined");
}

static void abort_nonblocking_init(void)
{
    ncclComm_t comm = NULL;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, make_id(), 0, &config), ncclInProgress);
    poll(NULL, 0, 100);
    ncclResult_t state = ncclSuccess;
    EXPECT_OK(ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclInProgress);
    struct stopwatch watch = stopwatch_start();
    EXPECT_OK(ncclCommAbort(comm));
    EXPECT_WITHIN(watch, 1);
}

// A nonblocking init that fails keeps its error, and the communicator, until it is destroyed.
static void failed_nonblocking_init(void)
{
    ncclComm_t comm[2] = {NULL, NULL};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id = make_id();
    int number;
    config.blocking = 0;
    for (int i = 0; i < 2; i++) {
        EXPECT_EQ(ncclCommInitRankConfig(&comm[i], 2, id, 0, &config), ncclInProgress);
    }
    for (int i = 0; i < 2; i++) {
        ncclResult_t state = ncclInProgress;
        struct stopwatch watch = stopwatch_start();
        while (state == ncclInProgress && stopwatch_is_within(&watch, 10)) {
            EXPECT_OK(ncclCommGetAsyncError(comm[i], &state));
            poll(NULL, 0, 1);
        }
        EXPECT_EQ(state, ncclInvalidUsage);
        EXPECT_EQ(ncclCommCount(comm[i], &number), ncclInvalidUsage);
    }
    EXPECT_OK(ncclCommDestroy(comm[0]));
    EXPECT_OK(ncclCommAbort(comm[1]));
}

static void *register_window(void *argument)
{
    struct waiting *w = argument;
    void *memory = NULL;
    ncclWindow_t window = NULL;
    EXPECT_OK(ncclMemAlloc(&memory, 4096));
    w->result = ncclCommWindowRegister(w->comm, memory, 4096, &window, 0);
    atomic_store(&w->done, 1);
    EXPECT_OK(ncclMemFree(memory));
    return NULL;
}

// One rank registers a window, the other never does: the abort ends the wait on both.
static void abort_registration(void)
{
    ncclComm_t comm[2];
    EXPECT_OK(ncclCommInitAll(comm, 2, NULL));
    struct waiting w = {.comm = comm[0]};
    pthread_t thread;
    pthread_create(&thread, NULL, register_window, &w);
    poll(NULL, 0, 300);
    EXPECT_EQ(atomic_load(&w.done), 0);
    struct stopwatch watch = stopwatch_start();
    EXPECT_OK(ncclCommAbort(comm[0]));
    EXPECT_WITHIN(watch, 1.5);
    pthread_join(thread, NULL);
    EXPECT(w.result != ncclSuccess);
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess && stopwatch_is_within(&watch, 5)) {
        EXPECT_OK(ncclCommGetAsyncError(comm[1], &state));
    }
    EXPECT_EQ(state, ncclRemoteError); // the other rank sees it without a call
    // Whoever sees it first.
    EXPECT_STR(ncclGetLastError(comm[1]), "rank 1: rank 0 failed: it called ncclCommAbort");
    int number;
    FAILS(ncclCommCount(comm[1], &number), ncclRemoteError,
          "only ncclCommAbort, ncclCommDestroy and ncclCommShrink with NCCL_SHRINK_ABORT may "
          "follow; it was: rank 1: rank 0 failed");
    EXPECT_OK(ncclCommAbort(comm[1]));
}

static void die(int rank, int size)
{
    ncclComm_t comm = NULL;
    ncclUniqueId id = share_id(rank);
    EXPECT_OK(ncclCommInitRank(&comm, size, id, rank));
    ranks_barrier();
    if (rank == 1) {
        _exit(9);
    }
    ncclResult_t state = ncclSuccess;
    struct stopwatch watch = stopwatch_start();
    while (state == ncclSuccess && stopwatch_is_within(&watch, 5)) {
        EXPECT_OK(ncclCommGetAsyncError(comm, &state));
        poll(NULL, 0, 1);
    }
    EXPECT_EQ(state, ncclRemoteError);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "rank 1 (process");
    watch = stopwatch_start();
    EXPECT_OK(rank == 0 ? ncclCommAbort(comm) : ncclCommDestroy(comm));
    EXPECT_WITHIN(watch, 1);
    if (rank == 0) {
        poll(NULL, 0, 500);
    }
}

static void dead_rank(void)
{
    int statuses[3];
    run_ranks_status(3, die, 30, statuses);
    for (int r = 0; r < 3; r++) {
        EXPECT_EQ(WIFEXITED(statuses[r]) ? WEXITSTATUS(statuses[r]) : -1, r == 1 ? 9 : 0);
    }
}

int main(void)
{
    RUN(library);
    RUN(init_arguments);
    RUN(init_all_arguments);
    RUN(more_ids);
    RUN(configs);
    RUN(questions);
    RUN(collectives);
    RUN(stale_handles);
    RUN(destroyed_by_two);
    RUN(groups);
    RUN(partner_in_group);
    RUN(disagreement);
    RUN(no_device);
    RUN(missing_rank);
    RUN(abort_init);
    RUN(abort_nonblocking_init);
    RUN(failed_nonblocking_init);
    RUN(abort_registration);
    RUN(dead_rank);
    return expect_result();
}
