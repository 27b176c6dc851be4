// Registering windows and making device communicators: bad input of one rank is an error with a
// clear text on all ranks, nothing hangs, nothing leaks, and the communicator stays usable.
// SPDX-License-Identifier: Apache-2.0
#include "../support/expect.h"
#include "../support/member.h"
#include "../support/ranks.h"

#include <nccl.h>
#include <nccl_device.h>

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#ifdef VGPU_CUDA_RUNTIME_API_H
enum { RANKS = 4 };
#else
enum { RANKS = 3 }; // a process takes a second to start on a real GPU
#endif
enum { BYTES = 65536 };

// Its memory: 1 MiB from ncclMemAlloc.
static bool join(struct member *me, int rank, int size)
{
    return member_join(me, rank, size) && EXPECT_OK(ncclMemAlloc((void **)&me->memory, 1 << 20));
}

static void works(struct member *me)
{
    ncclWindow_t window = NULL;
    if (EXPECT_OK(ncclCommWindowRegister(me->comm, me->memory, BYTES, &window, 0))) {
        EXPECT(window != NULL);
        EXPECT_OK(ncclCommWindowDeregister(me->comm, window));
    }
}

// All ranks get `result` and a text with both parts.
static void refused(struct member *me, void *pointer, size_t bytes, ncclResult_t result,
                    const char *part, const char *other)
{
    ncclWindow_t window = (ncclWindow_t)(uintptr_t)1;
    EXPECT_EQ(ncclCommWindowRegister(me->comm, pointer, bytes, &window, 0), result);
    EXPECT(window == NULL);
    EXPECT_CONTAINS(ncclGetLastError(me->comm), part);
    EXPECT_CONTAINS(ncclGetLastError(me->comm), other);
    ranks_barrier(); // the text is one for all threads of a process
    works(me);
    ranks_barrier();
}

static void bad_windows(int rank, int size)
{
    struct member me;
    if (!join(&me, rank, size)) {
        return;
    }
    bool odd = rank == 2;
    refused(&me, odd ? NULL : me.memory, BYTES, ncclInvalidArgument, "rank 2", "buff is NULL");
    refused(&me, me.memory, odd ? 0 : BYTES, ncclInvalidArgument, "rank 2", "size is 0");
    refused(&me, me.memory, odd ? 8192 : 4096, ncclInvalidArgument, "rank 2 has 8192",
            "rank 0 has 4096 bytes");
    refused(&me, me.memory + (odd ? 100 : 0), BYTES, ncclInvalidArgument, "rank 2",
            "must be a multiple of 4096");
    refused(&me, me.memory + (odd ? 8192 : 4096), BYTES, ncclInvalidArgument,
            "offsets in the allocation differ", "8192");
    refused(&me, me.memory, odd ? (size_t)1 << 40 : BYTES, ncclInvalidArgument, "rank 2",
            "beyond its allocation");
    void *plain = NULL;
    EXPECT_CUDA(cudaMalloc(&plain, BYTES));
    refused(&me, odd ? plain : me.memory, BYTES, ncclInvalidArgument, "rank 2",
            "allocate it with ncclMemAlloc");
    EXPECT_CUDA(cudaFree(plain));
    void *host = malloc(BYTES);
    refused(&me, odd ? host : me.memory, BYTES, ncclInvalidArgument, "rank 2",
            "allocate it with ncclMemAlloc");
    free(host);
    int devices = 0;
    EXPECT_CUDA(cudaGetDeviceCount(&devices));
    if (devices > 1) {
        char *elsewhere = NULL;
        EXPECT_CUDA(cudaSetDevice((me.device + 1) % devices));
        EXPECT_OK(ncclMemAlloc((void **)&elsewhere, BYTES));
        EXPECT_CUDA(cudaSetDevice(me.device));
        refused(&me, odd ? elsewhere : me.memory, BYTES, ncclInvalidArgument, "rank 2",
                "the communicator's is GPU");
        EXPECT_OK(ncclMemFree(elsewhere));
    }
    EXPECT_EQ(ncclCommWindowRegister(me.comm, me.memory, BYTES, NULL, 0), ncclInvalidArgument);
    ncclWindow_t window;
    EXPECT_EQ(ncclCommWindowRegister(NULL, me.memory, BYTES, &window, 0), ncclInvalidArgument);
    EXPECT_OK(ncclCommWindowDeregister(me.comm, NULL));
    EXPECT_EQ(ncclCommWindowDeregister(me.comm, (ncclWindow_t)(uintptr_t)64), ncclInvalidArgument);
    member_leave(&me);
}

static void bad_requirement(struct member *me, const ncclDevCommRequirements_t *needs,
                            ncclResult_t result, const char *part)
{
    ncclDevComm_t comm;
    EXPECT_EQ(ncclDevCommCreate(me->comm, needs, &comm), result);
    EXPECT_CONTAINS(ncclGetLastError(me->comm), part);
    ranks_barrier();
}

static void bad_device_comms(int rank, int size)
{
    struct member me;
    if (!join(&me, rank, size)) {
        return;
    }
    const ncclDevCommRequirements_t good = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    ncclDevCommRequirements_t needs = good;
    needs.magic = 0;
    bad_requirement(&me, &needs, ncclInvalidUsage, "NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER");
    needs = good;
    needs.version = NCCL_VERSION_CODE + 1;
    bad_requirement(&me, &needs, ncclInvalidUsage, "NCCL_ENABLE_VERSION_CHECK");
    needs = good;
    needs.ginSignalCount = 2;
    bad_requirement(&me, &needs, ncclInvalidArgument, "ginSignalCount is 2");
    needs = good;
    needs.barrierCount = -1;
    bad_requirement(&me, &needs, ncclInvalidArgument, "barrierCount is -1");
    needs = good;
    needs.lsaLLA2ABlockCount = 1;
    bad_requirement(&me, &needs, ncclInvalidUsage, "ncclLLA2ACreateRequirement");
    needs = good;
    needs.lsaBarrierCount = -1;
    bad_requirement(&me, &needs, ncclInvalidArgument, "lsaBarrierCount is -1");
    ncclDevResourceRequirements_t buffer = {.bufferSize = 100, .bufferAlign = 3};
    needs = good;
    needs.resourceRequirementsList = &buffer;
    bad_requirement(&me, &needs, ncclInvalidArgument, "bufferAlign 3");
    needs = good;
    needs.lsaBarrierCount = rank == 1 ? 5 : 4;
    bad_requirement(&me, &needs, ncclInvalidArgument, "rank 1 for 5 LSA barriers");
    ncclDevComm_t comm;
    EXPECT_EQ(ncclDevCommCreate(me.comm, NULL, &comm), ncclInvalidArgument);
    EXPECT_EQ(ncclDevCommCreate(me.comm, &good, NULL), ncclInvalidArgument);
    works(&me);
    member_leave(&me);
}

// Buffers do not overlap, handles are right for every rank, the list may go after the call.
static void resources(int rank, int size)
{
    struct member me;
    if (!join(&me, rank, size)) {
        return;
    }
    ncclDevResourceHandle_t handle[3] = {0, 0, 0};
    ncclDevResourceRequirements_t *list = calloc(3, sizeof *list);
    size_t bytes[3] = {100, 5000, 64};
    for (int i = 0; i < 3; i++) {
        list[i].next = i < 2 ? &list[i + 1] : NULL;
        list[i].bufferSize = bytes[i];
        list[i].bufferAlign = i == 1 ? 4096 : 0;
        list[i].outBufferHandle = &handle[i];
    }
    ncclCommProperties_t properties = NCCL_COMM_PROPERTIES_INITIALIZER;
    EXPECT_OK(ncclCommQueryProperties(me.comm, &properties));
    ncclMultimemHandle_t multimem = {NULL};
    ncclTeamRequirements_t team = {.team = ncclTeamLsa(me.comm),
                                   .multimem = properties.multimemSupport};
    team.outMultimemHandle = &multimem;
    ncclDevCommRequirements_t needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    needs.resourceRequirementsList = list;
    needs.teamRequirementsList = &team;
    needs.lsaBarrierCount = 7;
    ncclDevComm_t comm;
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(ncclDevCommCreate(me.comm, &needs, &comm));
    memset(list, 0xff, 3 * sizeof *list);
    free(list);
    if (!EXPECT_OK(ncclGroupEnd())) {
        return;
    }
    size_t end = 7 * ncclLsaBarrierWords(size) * 4;
    for (int i = 0; i < 3; i++) {
        size_t offset = ncclGetResourceBufferOffset(handle[i]);
        EXPECT(offset >= end);
        EXPECT_EQ(offset % (i == 1 ? 4096 : 128), 0);
        end = offset + bytes[i];
    }
    EXPECT(end <= comm.resourceWindow_inlined.size);
    EXPECT_EQ(multimem.mcBasePtr != NULL, properties.multimemSupport);
    EXPECT_EQ(comm.rank, rank);
    EXPECT_EQ(comm.nRanks, size);
    EXPECT_EQ(comm.lsaSize, size);
    EXPECT_EQ(comm.lsaBarrier.nBarriers, 7);
    EXPECT(comm.abortFlag != NULL);
    EXPECT_OK(ncclDevCommDestroy(me.comm, &comm));
    member_leave(&me);
}

// Descriptors of this process. Ranks count one after the other: counting takes one itself.
static int open_descriptors(const struct member *me)
{
    int count = 0;
    for (int r = 0; r < me->size; r++) {
        ranks_barrier();
        if (r != me->rank) {
            continue;
        }
        DIR *folder = opendir("/proc/self/fd");
        while (folder != NULL && readdir(folder) != NULL) {
            count++;
        }
        if (folder != NULL) {
            closedir(folder);
        }
    }
    ranks_barrier();
    return count;
}

// Windows and device communicators come and go; descriptors stay as many.
static void leaks(int rank, int size)
{
    struct member me;
    if (!join(&me, rank, size)) {
        return;
    }
    int before = 0;
    for (int i = 0; i < 12; i++) {
        ncclWindow_t window[2];
        ncclDevComm_t comm;
        ncclDevCommRequirements_t needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
        needs.lsaBarrierCount = 3;
        EXPECT_OK(ncclCommWindowRegister(me.comm, me.memory, BYTES, &window[0], 0));
        EXPECT_OK(ncclCommWindowRegister(me.comm, me.memory + BYTES, BYTES, &window[1], 0));
        EXPECT_OK(ncclDevCommCreate(me.comm, &needs, &comm));
        EXPECT_OK(ncclDevCommDestroy(me.comm, &comm));
        EXPECT_OK(ncclCommWindowDeregister(me.comm, window[0]));
        EXPECT_OK(ncclCommWindowDeregister(me.comm, window[1]));
        if (i == 1) {
            before = open_descriptors(&me);
        }
    }
    EXPECT_EQ(open_descriptors(&me), before);
    // What is left when the communicator goes, goes with it.
    ncclWindow_t window;
    EXPECT_OK(ncclCommWindowRegister(me.comm, me.memory, BYTES, &window, 0));
    member_leave(&me);
}

// More windows than fit one chunk of the table that kernels search; groups of registrations.
static void many(int rank, int size)
{
    enum { COUNT = 70 };
    struct member me;
    if (!join(&me, rank, size)) {
        return;
    }
    ncclWindow_t window[COUNT];
    EXPECT_OK(ncclGroupStart());
    for (int i = 0; i < COUNT; i++) {
        EXPECT_OK(ncclCommWindowRegister(me.comm, me.memory + 4096 * i, 4096, &window[i], 0));
    }
    EXPECT_OK(ncclGroupEnd());
    for (int i = 0; i < COUNT; i++) {
        void *pointer = NULL;
        EXPECT_OK(ncclWinGetUserPtr(me.comm, window[i], &pointer));
        EXPECT(pointer == me.memory + 4096 * i);
    }
    for (int i = 0; i < COUNT; i++) {
        EXPECT_OK(ncclCommWindowDeregister(me.comm, window[(i * 37) % COUNT]));
    }
    member_leave(&me);
}

// One process has `spare` descriptors left: an error on all ranks that names it, or success on all;
// never a hang. A failure may cost the communicator.
static void few_descriptors(int rank, int size, int spare)
{
    struct member me;
    if (!join(&me, rank, size)) {
        return;
    }
    works(&me); // what is made once is made
    struct rlimit limit, tight;
    int used = dup(0);
    close(used);
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    tight = limit;
    tight.rlim_cur = (rlim_t)(used + spare);
    ranks_barrier();
    if (rank == 2) {
        EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
    }
    ncclWindow_t window = NULL;
    ncclResult_t result = ncclCommWindowRegister(me.comm, me.memory, BYTES, &window, 0);
    ncclResult_t all[RANKS];
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ranks_gather(&result, all, sizeof result);
    EXPECT(spare > 0 || result != ncclSuccess);
    for (int r = 0; r < size; r++) {
        EXPECT_EQ(all[r] == ncclSuccess, all[0] == ncclSuccess);
    }
    if (result == ncclSuccess) {
        EXPECT_OK(ncclCommWindowDeregister(me.comm, window));
    } else {
        EXPECT_CONTAINS(ncclGetLastError(me.comm), "rank 2");
    }
    EXPECT_OK(ncclMemFree(me.memory));
    EXPECT_OK(ncclCommAbort(me.comm));
}

static void no_descriptors(int rank, int size)
{
    for (int spare = 0; spare < 10; spare++) {
        few_descriptors(rank, size, spare);
    }
}

#define BOTH_WAYS(name)                                                                            \
    static void name##_threads(void)                                                               \
    {                                                                                              \
        run_thread_ranks(RANKS, name, 60);                                                         \
    }                                                                                              \
    static void name##_processes(void)                                                             \
    {                                                                                              \
        run_ranks(RANKS, name, 60);                                                                \
    }
BOTH_WAYS(bad_windows)
BOTH_WAYS(bad_device_comms)
BOTH_WAYS(resources)
BOTH_WAYS(leaks)
BOTH_WAYS(many)

static void no_descriptors_processes(void)
{
    run_ranks(RANKS, no_descriptors, 60);
}

int main(void)
{
    RUN(bad_windows_threads);
    RUN(bad_windows_processes);
    RUN(bad_device_comms_threads);
    RUN(bad_device_comms_processes);
    RUN(resources_threads);
    RUN(resources_processes);
    RUN(leaks_threads);
    RUN(leaks_processes);
    RUN(many_threads);
    RUN(many_processes);
    RUN(no_descriptors_processes);
    return expect_result();
}
