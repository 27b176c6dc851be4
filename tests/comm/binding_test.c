// Ranks whose processes see different GPUs under the same numbers, as launchers bind them: they
// work, and whatever is said of a GPU names the same one for everybody.
// SPDX-License-Identifier: Apache-2.0
#include "catch_stderr.h"
#include "member.h"
#include "stopwatch.h"

#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti.h>
#include <unistd.h>
#include <vgpu/device_runtime.h>
#include <vgpu/limit.h>
#include <vgpu/native.h>

enum { COUNT = 1000, BYTES = COUNT * sizeof(float) };

// Sums of all ranks' numbers, by way of plain memory, then in a window, which all ranks map.
static void use_everything(struct member *m)
{
    float numbers[COUNT], *plain = NULL;
    EXPECT_CUDA(cudaMalloc((void **)&plain, BYTES));
    for (int i = 0; i < COUNT; i++) {
        numbers[i] = (float)((m->rank + 1) * i);
    }
    if (!member_open_window(m, BYTES)) {
        return;
    }
    for (int way = 0; way < 2; way++) {
        float *memory = way == 0 ? plain : (float *)m->memory, sums[COUNT];
        EXPECT_CUDA(cudaMemcpy(memory, numbers, BYTES, cudaMemcpyHostToDevice));
        EXPECT_OK(ncclAllReduce(memory, memory, COUNT, ncclFloat, ncclSum, m->comm, m->stream));
        EXPECT_CUDA(cudaStreamSynchronize(m->stream));
        EXPECT_CUDA(cudaMemcpy(sums, memory, BYTES, cudaMemcpyDeviceToHost));
        int wrong = 0;
        for (int i = 0; i < COUNT; i++) {
            wrong += sums[i] != (float)(m->size * (m->size + 1) / 2 * i);
        }
        EXPECT_EQ(wrong, 0);
    }
    EXPECT_CUDA(cudaFree(plain));
}

// ---- C81: each task sees one GPU, both see both, one sees none
// ------------------------------------

static void sees_one(int rank, int size)
{
    struct member m;
    char number[8], said[4096];
    int count = 0;
    snprintf(number, sizeof number, "%d", rank);
    // By the task's set, by CUDA's variable, by the limit that nothing widens.
    if (rank % 3 == 2) {
        EXPECT_EQ(vgpuLimitDevices(1ull << rank), 0);
    } else {
        EXPECT_EQ(setenv(rank % 3 == 0 ? "VGPU_DEVICES" : "CUDA_VISIBLE_DEVICES", number, 1), 0);
    }
    EXPECT_CUDA(cudaGetDeviceCount(&count));
    EXPECT_EQ(count, 1);
    EXPECT_EQ(vgpuPhysicalDevice(0), rank);
    catch_stderr();
    bool has_joined = member_join(&m, rank, size);
    take_stderr(said, sizeof said);
    EXPECT_STR(said, ""); // number 0 everywhere is no shared GPU
    if (has_joined) {
        use_everything(&m);
        member_leave(&m);
    }
}

static void one_each(void)
{
    run_ranks(2, sees_one, 60);
    run_ranks(5, sees_one, 60);
}

// Both see both, in another order: the same number is another GPU, and other numbers are the same.
static void sees_both(int rank, int size)
{
    EXPECT_EQ(setenv("CUDA_VISIBLE_DEVICES", rank == 0 ? "4,6" : "6,4", 1), 0);
    for (int round = 0; round < 2; round++) {
        struct member m = {.rank = rank, .size = size, .device = round == 0 ? 0 : rank};
        char said[4096];
        ncclUniqueId id = share_id(rank);
        EXPECT_CUDA(cudaSetDevice(m.device));
        EXPECT_CUDA(cudaStreamCreateWithFlags(&m.stream, cudaStreamNonBlocking));
        catch_stderr();
        bool has_joined = EXPECT_OK(ncclCommInitRank(&m.comm, size, id, rank));
        take_stderr(said, sizeof said);
        if (round == 1 && rank == 0) { // number 0 here is number 1 there
            EXPECT_CONTAINS(said, ": 2 ranks share GPU 0 (physical 4), GPU-");
            EXPECT_CONTAINS(said, ": 0, 1\n");
        } else {
            EXPECT_STR(said, "");
        }
        if (has_joined) {
            use_everything(&m);
            member_leave(&m);
        }
    }
}

static void both_see_both(void)
{
    run_ranks(2, sees_both, 60);
}

static void one_has_none(int rank, int size)
{
    ncclComm_t comm = NULL;
    char host[64] = "", expected[200];
    if (rank == 1) {
        EXPECT_EQ(setenv("CUDA_VISIBLE_DEVICES", "", 1), 0);
    }
    gethostname(host, sizeof host - 1);
    ncclUniqueId id = share_id(rank);
    int process = (int)getpid();
    struct stopwatch watch = stopwatch_start();
    ncclResult_t result = ncclCommInitRank(&comm, size, id, rank);
    EXPECT_WITHIN(watch, 10);
    EXPECT_EQ(result, rank == 1 ? ncclUnhandledCudaError : ncclRemoteError);
    if (rank == 1) {
        snprintf(expected, sizeof expected, "rank 1 (process %d on %s) has no device", process,
                 host);
        EXPECT_CONTAINS(ncclGetLastError(NULL), expected);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "CUDA_VISIBLE_DEVICES is \"\"");
    } else {
        snprintf(expected, sizeof expected, " on %s) has no device", host);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "rank 1 ");
        EXPECT_CONTAINS(ncclGetLastError(NULL), expected);
    }
    ranks_barrier(); // rank 0's process is where they meet
}

static void one_sees_none(void)
{
    run_ranks(3, one_has_none, 60);
}

// ---- Names --------------------------------------------------------------------------------------

static void fault(void *argument, unsigned block, unsigned block_count)
{
    (void)argument, (void)block, (void)block_count;
    vgpu_fault(cudaErrorIllegalAddress, "this test wants it");
}

// The GPU of rank 1 fails, which rank 1 calls number 0 and the machine number 5.
static void names_the_gpu(int rank, int size)
{
    static const char *const sets[] = {"7", "5", "0,3"};
    struct member m;
    char said[4096];
    EXPECT_EQ(setenv("VGPU_DEVICES", sets[rank], 1), 0);
    if (!member_join(&m, rank, size)) {
        return;
    }
    ranks_barrier();
    catch_stderr();
    if (rank == 1) {
        EXPECT_CUDA(vgpuLaunchNative("fault", fault, "", 1, 1, m.stream));
    }
    struct stopwatch watch = stopwatch_start();
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess && stopwatch_is_within(&watch, 10)) {
        usleep(1000);
        EXPECT_OK(ncclCommGetAsyncError(m.comm, &state));
    }
    take_stderr(said, sizeof said);
    EXPECT_CONTAINS(ncclGetLastError(NULL),
                    rank == 1 ? "rank 1: its GPU 0 (physical 5) has failed"
                              : "rank 1 failed: its GPU 0 (physical 5) has failed");
    if (rank == 1) {
        EXPECT_CONTAINS(said, "vgpu: device 0 (physical 5): kernel fault: block (0,0,0)");
    }
    ranks_barrier();
    EXPECT_OK(ncclCommAbort(m.comm));
}

static void failed_gpu(void)
{
    run_ranks(3, names_the_gpu, 60);
}

// The log's lines at init: NCCL's words, with the machine's number and address.
static void logs_at_init(int rank, int size)
{
    static const char *const busids[] = {"busId c3000 ", "busId 52000 "};
    struct member m;
    char path[64], text[8192] = "", expected[128];
    snprintf(path, sizeof path, "/tmp/tutti-binding-%d", (int)getpid());
    EXPECT_EQ(setenv("NCCL_DEBUG", "INFO", 1), 0);
    EXPECT_EQ(setenv("NCCL_DEBUG_SUBSYS", "ALL", 1), 0);
    EXPECT_EQ(setenv("NCCL_DEBUG_FILE", path, 1), 0);
    EXPECT_EQ(setenv("VGPU_DEVICES", rank == 0 ? "5" : "2", 1), 0);
    if (member_join(&m, rank, size)) {
        use_everything(&m);
        member_leave(&m);
    }
    FILE *file = fopen(path, "r");
    if (EXPECT(file != NULL)) {
        EXPECT(fread(text, 1, sizeof text - 1, file) > 0);
        fclose(file);
    }
    EXPECT_EQ(unlink(path), 0);
    // In this order.
    const char *const lines[] = {"NCCL_DEBUG set by environment to INFO",
                                 "NCCL INFO NCCL version ",
                                 "nranks 2 cudaDev 0 nvmlDev ",
                                 busids[rank],
                                 " - Init START, GPU 0 (physical ",
                                 "NVLS multicast support is available on dev 0 (physical ",
                                 "nRanks 2 nNodes 1 localRanks 2 localRank ",
                                 "commId 0x",
                                 " - Init COMPLETE, GPU 0 (physical ",
                                 "Init timings - ",
                                 "NCCL INFO AllReduce: sendbuff 0x",
                                 " - Destroy COMPLETE\n"};
    const char *at = text;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0] && at != NULL; i++) {
        const char *found = strstr(at, lines[i]);
        if (!EXPECT(found != NULL)) {
            printf("rank %d: \"%s\" does not come in:\n%s\n", rank, lines[i], at);
        }
        at = found;
    }
    snprintf(expected, sizeof expected, "[Rank %d] comm 0x", rank);
    EXPECT_CONTAINS(text, expected);
    EXPECT_CONTAINS(text, rank == 0 ? "nvmlDev 5 " : "nvmlDev 2 ");
    // grep finds both by either number; and the communicator by its name's digits.
    const char *gpu = rank == 0 ? "GPU 0 (physical 5)\n" : "GPU 0 (physical 2)\n";
    snprintf(expected, sizeof expected, " - Init START, %s", gpu);
    EXPECT_CONTAINS(text, expected);
    snprintf(expected, sizeof expected, " - Init COMPLETE, %s", gpu);
    EXPECT_CONTAINS(text, expected);
    const char *name = strstr(text, "Init timings - comm-");
    if (EXPECT(name != NULL)) {
        snprintf(expected, sizeof expected, " commId 0x%.16s - Init COMPLETE",
                 name + sizeof "Init timings - comm-" - 1);
        EXPECT_CONTAINS(text, expected);
    }
}

static void init_lines(void)
{
    run_ranks(2, logs_at_init, 60);
}

int main(void)
{
    RUN(one_each);
    RUN(both_see_both);
    RUN(one_sees_none);
    RUN(failed_gpu);
    RUN(init_lines);
    return expect_result();
}
