// How calls and operations end that others leave alone: communicators aborted or destroyed under
// them, peers that leave, fail or die, handles that a fork inherits. Nobody asks in between: what
// waits must end by itself, with the right error.
// SPDX-License-Identifier: Apache-2.0
#include <nccl.h>
#include <nccl_device.h>
#include <tutti.h>

#include "expect.h"
#include "member.h"
#include "ranks.h"
#include "stopwatch.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vgpu/device_runtime.h>
#include <vgpu/native.h>

enum { BYTES = 1 << 20 };

static ncclComm_t make_alone(void)
{
    ncclComm_t comm = NULL;
    ncclUniqueId id;
    EXPECT_OK(ncclGetUniqueId(&id));
    EXPECT_OK(ncclCommInitRank(&comm, 1, id, 0));
    return comm;
}

// ---- Aborts against calls of another thread -----------------------------------------------------

struct busy {
    ncclComm_t comm;
    void *memory;
    ncclResult_t last;
};

static void *call_until_refused(void *argument)
{
    struct busy *busy = argument;
    busy->last = ncclSuccess;
    while (busy->last == ncclSuccess) {
        ncclWindow_t window = NULL;
        void *pointer = NULL;
        ncclDevComm_t device_comm;
        ncclDevCommRequirements_t needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
        ncclCommProperties_t properties = NCCL_COMM_PROPERTIES_INITIALIZER;
        needs.lsaBarrierCount = 2;
        (void)ncclGroupStart();
        (void)ncclCommWindowRegister(busy->comm, busy->memory, 4096, &window, 0);
        busy->last = ncclGroupEnd();
        (void)ncclWinGetUserPtr(busy->comm, window, &pointer);
        (void)ncclGetLsaDevicePointer(window, 0, 0, &pointer);
        (void)ncclCommQueryProperties(busy->comm, &properties);
        if (ncclDevCommCreate(busy->comm, &needs, &device_comm) == ncclSuccess) {
            (void)ncclDevCommDestroy(busy->comm, &device_comm);
        }
        (void)tuttiAllReduceRMSNorm(busy->memory, busy->memory, 2, 16, NULL, ncclFloat, busy->comm,
                                    NULL);
        if (window != NULL) {
            (void)ncclCommWindowDeregister(busy->comm, window);
        }
    }
    return NULL;
}

static void abort_against_calls(void)
{
    for (int round = 0; round < 20; round++) {
        struct busy busy = {.comm = make_alone()};
        pthread_t thread;
        EXPECT_OK(ncclMemAlloc(&busy.memory, BYTES));
        EXPECT_EQ(pthread_create(&thread, NULL, call_until_refused, &busy), 0);
        usleep(500 + (unsigned)round * 311);
        EXPECT_OK(ncclCommAbort(busy.comm));
        pthread_join(thread, NULL);
        EXPECT(busy.last != ncclSuccess);
        EXPECT_CUDA(cudaDeviceSynchronize());
        EXPECT_OK(ncclMemFree(busy.memory));
    }
}

static void *ask_until_refused(void *comm)
{
    int answer;
    ncclResult_t state, result = ncclSuccess;
    while (result == ncclSuccess) {
        result = ncclCommCount(comm, &answer);
        (void)ncclCommGetAsyncError(comm, &state);
    }
    return (void *)(intptr_t)result;
}

// Questions of another thread do not keep a communicator from being destroyed.
static void destroy_against_questions(void)
{
    for (int round = 0; round < 20; round++) {
        ncclComm_t comm = make_alone();
        pthread_t thread;
        void *result = NULL;
        EXPECT_EQ(pthread_create(&thread, NULL, ask_until_refused, comm), 0);
        usleep(500 + (unsigned)round * 97);
        EXPECT_OK(ncclCommDestroy(comm));
        pthread_join(thread, &result);
        EXPECT_EQ((intptr_t)result, ncclInvalidArgument);
    }
}

// A multimem handle that belongs to nothing is refused; an empty one has no address.
static void multimem_of_nothing(void)
{
    ncclComm_t comm = make_alone();
    void *memory = NULL, *pointer = NULL;
    ncclWindow_t window = NULL;
    ncclMultimemHandle_t handle = {.mcBasePtr = (void *)0x1234000};
    EXPECT_OK(ncclMemAlloc(&memory, BYTES));
    EXPECT_OK(ncclCommWindowRegister(comm, memory, BYTES, &window, NCCL_WIN_COLL_SYMMETRIC));
    EXPECT_EQ(ncclGetMultimemDevicePointer(window, 0, handle, &pointer), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "mcBasePtr 0x1234000) is no multimem handle");
    EXPECT(pointer == NULL);
    handle.mcBasePtr = NULL;
    EXPECT_OK(ncclGetMultimemDevicePointer(window, 0, handle, &pointer));
    EXPECT(pointer == NULL);
    EXPECT_OK(ncclCommDestroy(comm));
    EXPECT_OK(ncclMemFree(memory));
}

// ---- Memory of a rank that aborted --------------------------------------------------------------

enum { TEAM = 3 };

// Once ncclCommAbort has returned no other rank writes to this one's memory, which the program may
// free: the others' operation goes on for a moment, as they have not heard of it.
static void memory_after_abort(void)
{
    enum { FLOATS = 2 << 20, ROUNDS = 24, BLOCK = 1 << 16 };
    const size_t bytes = FLOATS * sizeof(float);
    static unsigned char pattern[BLOCK];
    float *memory[TEAM];
    cudaStream_t stream[TEAM];
    memset(pattern, 0x5a, sizeof pattern);
    for (int r = 0; r < TEAM; r++) {
        EXPECT_CUDA(cudaSetDevice(r));
        EXPECT_CUDA(cudaMalloc((void **)&memory[r], bytes));
        EXPECT_CUDA(cudaStreamCreate(&stream[r]));
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        ncclComm_t comm[TEAM];
        size_t written = 0;
        EXPECT_OK(ncclCommInitAll(comm, TEAM, NULL));
        memset(memory[0], 0, bytes);
        for (int r = 0; r < TEAM; r++) {
            EXPECT_CUDA(cudaSetDevice(r));
            EXPECT_OK(ncclAllReduce(memory[r], memory[r], FLOATS, ncclFloat, ncclSum, comm[r],
                                    stream[r]));
        }
        usleep(round * 125);
        EXPECT_OK(ncclCommAbort(comm[0]));
        memset(memory[0], pattern[0], bytes);
        for (int r = 1; r < TEAM; r++) {
            EXPECT_CUDA(cudaStreamSynchronize(stream[r]));
            EXPECT_OK(ncclCommAbort(comm[r]));
        }
        for (size_t i = 0; i < bytes; i += BLOCK) {
            written += memcmp((const char *)memory[0] + i, pattern, BLOCK) != 0;
        }
        EXPECT_EQ(written, 0);
    }
    for (int r = 0; r < TEAM; r++) {
        EXPECT_CUDA(cudaStreamDestroy(stream[r]));
        EXPECT_CUDA(cudaFree(memory[r]));
    }
}

// ---- Ends inside the caller's own open group ----------------------------------------------------

static void abort_in_group(void)
{
    for (int blocking = 0; blocking < 2; blocking++) {
        ncclComm_t comm = NULL, other = NULL;
        ncclUniqueId id, other_id;
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = blocking;
        EXPECT_OK(ncclGetUniqueId(&id));
        EXPECT_OK(ncclGetUniqueId(&other_id));
        struct stopwatch watch = stopwatch_start();
        EXPECT_OK(ncclGroupStart());
        EXPECT_OK(ncclCommInitRankConfig(&comm, 2, id, 0, &config));
        EXPECT_OK(ncclCommInitRankConfig(&other, 1, other_id, 0, &config));
        EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidArgument);
        EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidArgument);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "in an open group");
        EXPECT_OK(ncclCommAbort(comm));
        EXPECT_EQ(ncclGroupEnd(), blocking != 0 ? ncclInvalidArgument : ncclInProgress);
        EXPECT_WITHIN(watch, 5);
        if (blocking == 0) {
            EXPECT_OK(ncclCommAbort(other));
        }
        EXPECT_EQ(ncclCommAbort(comm), ncclInvalidArgument);
    }
}

// ---- Peers that leave, fail or die while this rank's work waits for them ------------------------

static bool join(struct member *m, int rank, int size)
{
    return member_join(m, rank, size) && member_open_window(m, BYTES);
}

// Waits for an operation that a peer will never enter, asking nothing meanwhile. That peer meets
// the others in ranks_barrier before it ends, so that all of them wait by then.
static void wait_in_vain(struct member *m, const char *why)
{
    ncclResult_t state = ncclSuccess;
    EXPECT_OK(
        tuttiAllReduceRMSNorm(m->memory, m->memory, 8, 64, NULL, ncclFloat, m->comm, m->stream));
    ranks_barrier();
    struct stopwatch watch = stopwatch_start();
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
    EXPECT_WITHIN(watch, 3);
    EXPECT_OK(ncclCommGetAsyncError(m->comm, &state));
    EXPECT_EQ(state, ncclRemoteError);
    EXPECT_CONTAINS(ncclGetLastError(NULL), why);
}

static void end(struct member *m)
{
    struct stopwatch watch = stopwatch_start();
    EXPECT_OK(ncclCommAbort(m->comm));
    EXPECT_WITHIN(watch, 1);
}

static void leave_waiters(int rank, int size)
{
    struct member m;
    if (!join(&m, rank, size)) {
        return;
    }
    if (rank == size - 1) {
        ranks_barrier();
        EXPECT_OK(ncclCommDestroy(m.comm));
    } else {
        wait_in_vain(&m, "has destroyed the communicator");
    }
    ranks_barrier();
    if (rank != size - 1) {
        end(&m);
    }
    ranks_barrier();
}

static void peer_that_leaves(void)
{
    run_ranks(3, leave_waiters, 30);
    run_thread_ranks(3, leave_waiters, 30);
}

static void fault(void *argument, unsigned block, unsigned block_count)
{
    (void)argument, (void)block, (void)block_count;
    vgpu_fault(cudaErrorIllegalAddress, "this test wants it");
}

static void fail_waiters(int rank, int size)
{
    struct member m;
    if (!join(&m, rank, size)) {
        return;
    }
    if (rank == 0) {
        ncclResult_t state = ncclSuccess;
        ranks_barrier();
        EXPECT_CUDA(vgpuLaunchNative("fault", fault, "", 1, 1, m.stream));
        EXPECT_EQ(cudaStreamSynchronize(m.stream), cudaErrorIllegalAddress);
        EXPECT_OK(ncclCommGetAsyncError(m.comm, &state)); // at once, where somebody asks
        EXPECT_EQ(state, ncclUnhandledCudaError);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "rank 0: its GPU 0 (physical 0) has failed");
    } else {
        wait_in_vain(&m, "rank 0 failed: its GPU 0 (physical 0) has failed");
    }
    ranks_barrier();
    end(&m);
}

// Nobody asks on the rank whose device has failed.
static void fail_silently(int rank, int size)
{
    struct member m;
    if (!join(&m, rank, size)) {
        return;
    }
    if (rank == 0) {
        ranks_barrier();
        EXPECT_CUDA(vgpuLaunchNative("fault", fault, "", 1, 1, m.stream));
    } else {
        wait_in_vain(&m, "rank 0 failed: its GPU 0 (physical 0) has failed");
    }
    ranks_barrier();
    end(&m);
}

static void device_that_fails(void)
{
    run_ranks(2, fail_waiters, 30);
    run_ranks(2, fail_silently, 30);
}

static void die_before_waiters(int rank, int size)
{
    struct member m;
    int victim = atoi(getenv("TUTTI_TEST_VICTIM"));
    char why[64];
    if (!join(&m, rank, size)) {
        return;
    }
    if (rank == victim) {
        ranks_barrier();
        _exit(9);
    }
    (void)snprintf(why, sizeof why, "rank %d (process", victim);
    wait_in_vain(&m, why);
    poll(NULL, 0, 500); // the root's process serves the others
    end(&m);
}

// Also the process of the root.
static void peer_that_dies(void)
{
    static const char *const victims[] = {"2", "0"};
    for (int i = 0; i < 2; i++) {
        int statuses[3];
        setenv("TUTTI_TEST_VICTIM", victims[i], 1);
        run_ranks_status(3, die_before_waiters, 30, statuses);
        for (int r = 0; r < 3; r++) {
            EXPECT_EQ(WIFEXITED(statuses[r]) ? WEXITSTATUS(statuses[r]) : -1,
                      r == atoi(victims[i]) ? 9 : 0);
        }
    }
}

// While a stream is captured in the strictest mode, what the library does by itself and what its
// calls do beside the stream spoils nothing.
static void capture_for_long(int rank, int size)
{
    struct member m;
    cudaGraph_t graph = NULL;
    void *memory = NULL;
    ncclResult_t state = ncclInternalError;
    if (!join(&m, rank, size)) {
        return;
    }
    ranks_barrier();
    EXPECT_CUDA(cudaStreamBeginCapture(m.stream, cudaStreamCaptureModeGlobal));
    poll(NULL, 0, 700);
    EXPECT_OK(ncclMemAlloc(&memory, BYTES));
    EXPECT_OK(ncclMemFree(memory));
    EXPECT_OK(ncclCommGetAsyncError(m.comm, &state));
    EXPECT_EQ(state, ncclSuccess);
    EXPECT_CUDA(cudaStreamEndCapture(m.stream, &graph));
    ranks_barrier();
    EXPECT_CUDA(cudaGraphDestroy(graph));
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    EXPECT_OK(ncclCommDestroy(m.comm));
}

static void captures(void)
{
    run_ranks(2, capture_for_long, 30);
    run_thread_ranks(2, capture_for_long, 30);
}

// A rank that is late for an operation is named on stderr after ten seconds; it is no error.
static void come_late(int rank, int size)
{
    struct member m;
    int ends[2], saved = -1;
    char text[1024] = "";
    if (!join(&m, rank, size)) {
        return;
    }
    if (rank == 0) {
        EXPECT_EQ(pipe(ends), 0);
        saved = dup(2);
        dup2(ends[1], 2);
        close(ends[1]);
    } else {
        ranks_barrier();
    }
    struct stopwatch watch = stopwatch_start();
    EXPECT_OK(tuttiAllReduceRMSNorm(m.memory, m.memory, 8, 64, NULL, ncclFloat, m.comm, m.stream));
    if (rank == 0) {
        EXPECT(read(ends[0], text, sizeof text - 1) > 0);
        EXPECT(stopwatch_s(&watch) > 9.5);
        EXPECT_WITHIN(watch, 11.5);
        ranks_barrier(); // now the others come
    }
    EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    if (rank == 0) {
        dup2(saved, 2);
        EXPECT_CONTAINS(text, "rank 0: AllReduceRMSNorm(count 8, float32) #1 on ");
        EXPECT_CONTAINS(text, ": waiting for 2 of 3 to enter: rank 1 (it has entered none "
                              "yet), rank 2 (it has entered none yet), for 1"); // ten and more
    }
    ncclResult_t state = ncclInternalError;
    EXPECT_OK(ncclCommGetAsyncError(m.comm, &state));
    EXPECT_EQ(state, ncclSuccess);
    EXPECT_OK(ncclCommDestroy(m.comm));
}

static void late_ranks(void)
{
    run_ranks(3, come_late, 60);
}

// ---- Fork ---------------------------------------------------------------------------------------

#if defined(__SANITIZE_THREAD__)

static void inherited(void)
{
    SKIP("the thread sanitizer does not follow a fork of a process with threads");
}

#else

static void inherited(void)
{
    ncclComm_t comm[2];
    int count = 0, status = -1;
    ncclResult_t state = ncclSuccess;
    EXPECT_OK(ncclCommInitAll(comm, 2, NULL));
    pid_t child = fork();
    if (child == 0) {
        bool right = ncclCommCount(comm[0], &count) == ncclInvalidUsage &&
                     strstr(ncclGetLastError(NULL), "its child by fork()") != NULL &&
                     ncclCommGetAsyncError(comm[0], &state) == ncclInvalidUsage &&
                     ncclCommDestroy(comm[0]) == ncclInvalidUsage &&
                     ncclCommAbort(comm[1]) == ncclInvalidUsage;
        _exit(right ? 0 : 1);
    }
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    poll(NULL, 0, 300);
    for (int i = 0; i < 2; i++) { // unharmed
        EXPECT_OK(ncclCommCount(comm[i], &count));
        EXPECT_OK(ncclCommDestroy(comm[i]));
    }
}

#endif

int main(void)
{
    RUN(abort_against_calls);
    RUN(destroy_against_questions);
    RUN(multimem_of_nothing);
    RUN(memory_after_abort);
    RUN(abort_in_group);
    RUN(peer_that_leaves);
    RUN(device_that_fails);
    RUN(peer_that_dies);
    RUN(captures);
    RUN(late_ranks);
    RUN(inherited);
    return expect_result();
}
