// What a program gives back inside a group, behind operations that use it: windows, device
// communicators, communicators.
// SPDX-License-Identifier: Apache-2.0
#include "expect.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <nccl_device.h>
#include <string.h>
#include <tutti.h>

enum { RANKS = 2, BYTES = 1 << 20, TOKENS = 8, HIDDEN = 64, ROWS = TOKENS * HIDDEN };

struct world {
    ncclComm_t comm[RANKS];
    cudaStream_t stream[RANKS];
    float *memory[RANKS];
    ncclWindow_t window[RANKS];
};

static void register_all(struct world *w)
{
    EXPECT_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        EXPECT_OK(ncclCommWindowRegister(w->comm[r], w->memory[r], BYTES, &w->window[r],
                                         NCCL_WIN_COLL_SYMMETRIC));
    }
    EXPECT_OK(ncclGroupEnd());
}

static bool open_world(struct world *w)
{
    memset(w, 0, sizeof *w);
    if (!EXPECT_OK(ncclCommInitAll(w->comm, RANKS, (const int[]){0, 1}))) {
        return false;
    }
    for (int r = 0; r < RANKS; r++) {
        EXPECT_CUDA(cudaSetDevice(r));
        EXPECT_CUDA(cudaStreamCreate(&w->stream[r]));
        EXPECT_OK(ncclMemAlloc((void **)&w->memory[r], BYTES));
        EXPECT_CUDA(cudaMemset(w->memory[r], 0x3f, ROWS * sizeof(float))); // about 0.75
    }
    register_all(w);
    return true;
}

// The windows are gone.
static void close_world(struct world *w, bool also_comms)
{
    for (int r = 0; r < RANKS; r++) {
        EXPECT_CUDA(cudaSetDevice(r));
        EXPECT_OK(ncclMemFree(w->memory[r]));
        EXPECT_CUDA(cudaStreamDestroy(w->stream[r]));
    }
    for (int r = 0; r < RANKS && also_comms; r++) {
        EXPECT_OK(ncclCommDestroy(w->comm[r]));
    }
}

static ncclResult_t normalise(struct world *w, int r)
{
    return tuttiAllReduceRMSNorm(w->memory[r], w->memory[r] + ROWS, TOKENS, HIDDEN, NULL, ncclFloat,
                                 w->comm[r], w->stream[r]);
}

// Rows of equal numbers become ones; where nothing has run, the results are still zeros.
static void check_results(struct world *w, bool has_run)
{
    float row[ROWS];
    for (int r = 0; r < RANKS; r++) {
        int wrong = 0;
        EXPECT_CUDA(
            cudaMemcpyAsync(row, w->memory[r] + ROWS, sizeof row, cudaMemcpyDefault, w->stream[r]));
        EXPECT_CUDA(cudaStreamSynchronize(w->stream[r]));
        for (int i = 0; i < ROWS; i++) {
            wrong += has_run ? row[i] < 0.999f || row[i] > 1.001f : row[i] != 0;
        }
        EXPECT_EQ(wrong, 0);
        EXPECT_CUDA(cudaMemsetAsync(w->memory[r] + ROWS, 0, sizeof row, w->stream[r]));
    }
}

static void deregister_all(struct world *w)
{
    for (int r = 0; r < RANKS; r++) {
        EXPECT_OK(ncclCommWindowDeregister(w->comm[r], w->window[r]));
    }
}

static void expect_deregistered(struct world *w)
{
    for (int r = 0; r < RANKS; r++) {
        EXPECT_EQ(normalise(w, r), ncclInvalidArgument);
        EXPECT_CONTAINS(ncclGetLastError(w->comm[r]), "not in a symmetric window");
        EXPECT_EQ(ncclCommWindowDeregister(w->comm[r], w->window[r]), ncclInvalidArgument);
    }
}

// Deregistered by the group that uses them, the windows last until its operations have ended.
static void windows(void)
{
    struct world w;
    if (!open_world(&w)) {
        return;
    }
    for (int round = 0; round < 3; round++) {
        EXPECT_OK(ncclGroupStart());
        for (int r = 0; r < RANKS; r++) {
            EXPECT_OK(normalise(&w, r));
            EXPECT_OK(ncclCommWindowDeregister(w.comm[r], w.window[r]));
        }
        EXPECT_OK(ncclGroupEnd());
        check_results(&w, true);
        expect_deregistered(&w);
        register_all(&w);
    }
    EXPECT_OK(ncclGroupStart()); // nothing but this
    deregister_all(&w);
    EXPECT_OK(ncclGroupEnd());
    expect_deregistered(&w);
    close_world(&w, true);
}

// A group of which a call is refused, or that is only estimated, takes no window back.
static void windows_kept(void)
{
    struct world w;
    ncclSimInfo_t estimate = NCCL_SIM_INFO_INITIALIZER;
    if (!open_world(&w)) {
        return;
    }
    EXPECT_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        EXPECT_OK(normalise(&w, r));
    }
    deregister_all(&w);
    EXPECT_EQ(ncclCommWindowDeregister(w.comm[0], w.window[1]), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(w.comm[0]), "is not a window of this communicator");
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    check_results(&w, false);
    EXPECT_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        EXPECT_OK(normalise(&w, r));
    }
    deregister_all(&w);
    EXPECT_OK(ncclGroupSimulateEnd(&estimate));
    check_results(&w, false);
    for (int r = 0; r < RANKS; r++) {
        EXPECT_OK(normalise(&w, r));
    }
    check_results(&w, true);
    EXPECT_OK(ncclGroupStart()); // the first one twice: the end says so, and the second goes, too
    EXPECT_OK(ncclCommWindowDeregister(w.comm[0], w.window[0]));
    deregister_all(&w);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "deregistered already");
    expect_deregistered(&w);
    close_world(&w, true);
}

static void device_comms(void)
{
    struct world w;
    ncclDevComm_t device_comm[RANKS];
    ncclDevCommRequirements_t requirements = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    requirements.lsaBarrierCount = 1;
    if (!open_world(&w)) {
        return;
    }
    EXPECT_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        EXPECT_OK(ncclDevCommCreate(w.comm[r], &requirements, &device_comm[r]));
    }
    EXPECT_OK(ncclGroupEnd());
    EXPECT_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        ncclDevComm_t copy = device_comm[r]; // not looked at after the call
        EXPECT_OK(normalise(&w, r));
        EXPECT_OK(ncclDevCommDestroy(w.comm[r], &copy));
    }
    EXPECT_OK(ncclGroupEnd());
    check_results(&w, true);
    for (int r = 0; r < RANKS; r++) {
        EXPECT_EQ(ncclDevCommDestroy(w.comm[r], &device_comm[r]), ncclInvalidArgument);
        EXPECT_CONTAINS(ncclGetLastError(w.comm[r]), "is destroyed already");
    }
    deregister_all(&w);
    close_world(&w, true);
}

// A communicator does not end before the group's calls on it: that is refused, and it stays.
static void communicators(void)
{
    struct world w;
    if (!open_world(&w)) {
        return;
    }
    ncclResult_t (*const ending[])(ncclComm_t comm) = {ncclCommDestroy, ncclCommFinalize};
    for (int e = 0; e < 2; e++) {
        EXPECT_OK(ncclGroupStart());
        EXPECT_OK(normalise(&w, 0));
        EXPECT_OK(normalise(&w, 1));
        EXPECT_EQ(ending[e](w.comm[1]), ncclInvalidUsage);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "the open group has tuttiAllReduceRMSNorm");
        EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
        check_results(&w, false);
    }
    for (int r = 0; r < RANKS; r++) {
        EXPECT_OK(normalise(&w, r));
    }
    check_results(&w, true);
    EXPECT_OK(ncclGroupStart()); // what a group only gives back goes with its communicator
    for (int r = 0; r < RANKS; r++) {
        EXPECT_OK(ncclCommWindowDeregister(w.comm[r], w.window[r]));
        EXPECT_OK(ncclCommDestroy(w.comm[r]));
    }
    EXPECT_OK(ncclGroupEnd());
    close_world(&w, false);
}

int main(void)
{
    RUN(windows);
    RUN(windows_kept);
    RUN(device_comms);
    RUN(communicators);
    return expect_result();
}
