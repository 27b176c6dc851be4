// tuttiAllReduceRMSNorm and its small relatives through the public API: what they refuse and with
// which words, groups, ranks that disagree, abort.
// SPDX-License-Identifier: Apache-2.0
#include "tutti.h"

#include "expect.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { RANKS = 2, WINDOW_BYTES = 1 << 20 };

struct world {
    ncclComm_t comm[RANKS];
    cudaStream_t stream[RANKS];
    char *memory[RANKS];
    ncclWindow_t window[RANKS];
};

static bool open_world(struct world *w)
{
    const int devices[RANKS] = {0, 1};
    memset(w, 0, sizeof *w);
    if (!EXPECT_OK(ncclCommInitAll(w->comm, RANKS, devices))) {
        return false;
    }
    EXPECT_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        EXPECT_CUDA(cudaSetDevice(r));
        EXPECT_CUDA(cudaStreamCreate(&w->stream[r]));
        EXPECT_OK(ncclMemAlloc((void **)&w->memory[r], WINDOW_BYTES));
        EXPECT_CUDA(cudaMemset(w->memory[r], 0, WINDOW_BYTES));
        EXPECT_OK(ncclCommWindowRegister(w->comm[r], w->memory[r], WINDOW_BYTES, &w->window[r],
                                         NCCL_WIN_COLL_SYMMETRIC));
    }
    return EXPECT_OK(ncclGroupEnd());
}

static void close_world(struct world *w)
{
    for (int r = 0; r < RANKS; r++) {
        EXPECT_OK(ncclCommWindowDeregister(w->comm[r], w->window[r]));
        EXPECT_OK(ncclMemFree(w->memory[r]));
        EXPECT_CUDA(cudaStreamDestroy(w->stream[r]));
    }
    for (int r = 0; r < RANKS; r++) {
        EXPECT_OK(ncclCommDestroy(w->comm[r]));
    }
}

static void version_and_split(void)
{
    int version = 0;
    EXPECT_OK(tuttiVersion(&version));
    EXPECT_EQ(version, TUTTI_VERSION_CODE);
    EXPECT_EQ(tuttiVersion(NULL), ncclInvalidArgument);
    size_t counts[3], first[3];
    EXPECT_OK(tuttiSplitCounts(100, 3, counts, first));
    EXPECT(counts[0] == 34 && counts[1] == 33 && counts[2] == 33);
    EXPECT(first[0] == 0 && first[1] == 34 && first[2] == 67);
    EXPECT_OK(tuttiSplitCounts(2, 3, counts, NULL));
    EXPECT(counts[0] == 1 && counts[1] == 1 && counts[2] == 0);
    EXPECT_OK(tuttiSplitCounts(SIZE_MAX, 3, NULL, first));
    EXPECT_EQ(tuttiSplitCounts(1, 0, counts, first), ncclInvalidArgument);
    EXPECT_EQ(tuttiSplitCounts(1, 1, NULL, NULL), ncclInvalidArgument);
}

// One call that must be refused with these words.
static void refused(struct world *w, const void *send, void *receive, size_t tokens, size_t hidden,
                    const struct tuttiRMSNormOptions *options, const char *words)
{
    EXPECT_EQ(tuttiAllReduceRMSNorm(send, receive, tokens, hidden, options, ncclFloat, w->comm[0],
                                    w->stream[0]),
              ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(w->comm[0]), words);
}

static void refusals(void)
{
    struct world w;
    if (!open_world(&w)) {
        return;
    }
    char *m = w.memory[0];
    static float host[64];
    struct tuttiRMSNormOptions options = TUTTI_RMSNORM_OPTIONS_INITIALIZER;
    refused(&w, m, m, 4, 0, NULL, "hidden is 0");
    refused(&w, NULL, m, 4, 4, NULL, "sendbuff is NULL");
    refused(&w, m, NULL, 4, 4, NULL, "recvbuff is NULL");
    refused(&w, m + 2, m, 4, 4, NULL, "not a multiple of the element size");
    refused(&w, host, m, 4, 4, NULL, "not in a symmetric window");
    refused(&w, m, m + WINDOW_BYTES - 64, 5, 4, NULL, "has 64 left");
    refused(&w, m, m, SIZE_MAX / 8, 16, NULL, "more than an address space");
    refused(&w, m, m + 16, 4, 4, NULL, "overlap");
    options.eps = -1.0f;
    refused(&w, m, m, 4, 4, &options, "eps is -1");
    options.eps = NAN;
    refused(&w, m, m, 4, 4, &options, "eps is");
    options.eps = 0;
    options.size = 8;
    refused(&w, m, m, 4, 4, &options, "options->size is 8");
    options.size = sizeof options;
    options.gamma = host;
    refused(&w, m, m, 4, 4, &options, "gamma");
    options.gamma = NULL;
    options.residualOut = m;
    refused(&w, m, m + 4096, 4, 4, &options, "residualOut");
    EXPECT_EQ(tuttiAllReduceRMSNorm(m, m, 4, 4, NULL, ncclInt32, w.comm[0], w.stream[0]),
              ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(w.comm[0]), "datatype is 2");
    EXPECT_EQ(tuttiAllReduceRMSNorm(m, m, 4, 4, NULL, ncclFloat, NULL, w.stream[0]),
              ncclInvalidArgument);
    EXPECT_EQ(tuttiAllReduceRMSNorm(m, m, 4, 4, NULL, ncclFloat, w.comm[0], w.stream[1]),
              ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(w.comm[0]),
                    "is of GPU 1 (physical 1), but the communicator's is GPU 0 (physical 0)");
    EXPECT_EQ(
        tuttiAllReduceRMSNorm(m, m, 4, 4, NULL, ncclFloat, w.comm[0], (cudaStream_t)(void *)m),
        ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(w.comm[0]), "is no stream of this process");
    close_world(&w);
}

// Ranks without tokens compare their calls all the same. Returns the asynchronous error.
static ncclResult_t call_with(struct world *w, size_t first_tokens, size_t second_tokens)
{
    ncclResult_t error[RANKS];
    for (int r = 0; r < RANKS; r++) {
        size_t tokens = r == 0 ? first_tokens : second_tokens;
        char *buffer = tokens == 0 ? NULL : w->memory[r];
        EXPECT_OK(tuttiAllReduceRMSNorm(buffer, buffer, tokens, 4, NULL, ncclFloat, w->comm[r],
                                        w->stream[r]));
    }
    for (int r = 0; r < RANKS; r++) {
        EXPECT_CUDA(cudaStreamSynchronize(w->stream[r]));
        EXPECT_OK(ncclCommGetAsyncError(w->comm[r], &error[r]));
    }
    EXPECT_EQ(error[0], error[1]);
    return error[0];
}

static void no_tokens(void)
{
    struct world w;
    if (!open_world(&w)) {
        return;
    }
    EXPECT_EQ(call_with(&w, 0, 0), ncclSuccess);
    EXPECT_EQ(call_with(&w, 4, 4), ncclSuccess);
    EXPECT_EQ(call_with(&w, 0, 64), ncclInvalidUsage);
    for (int r = 0; r < RANKS; r++) {
        EXPECT_OK(ncclCommAbort(w.comm[r]));
    }
}

// Memory of another device is refused; managed and page-locked memory every device reads.
static void memory_kinds(void)
{
    struct world w;
    if (!open_world(&w)) {
        return;
    }
    struct tuttiRMSNormOptions options = TUTTI_RMSNORM_OPTIONS_INITIALIZER;
    void *other = NULL, *managed = NULL, *locked = NULL;
    char *m = w.memory[0];
    EXPECT_CUDA(cudaSetDevice(1));
    EXPECT_CUDA(cudaMalloc(&other, 4096));
    EXPECT_CUDA(cudaMallocManaged(&managed, 4096, cudaMemAttachGlobal));
    EXPECT_CUDA(cudaHostAlloc(&locked, 4096, cudaHostAllocDefault));
    memset(managed, 0, 4096);
    memset(locked, 0, 4096);
    options.gamma = other;
    refused(&w, m, m, 4, 4, &options, "gamma 0x");
    EXPECT_CONTAINS(
        ncclGetLastError(w.comm[0]),
        "is memory of GPU 1 (physical 1), but the communicator's is GPU 0 (physical 0)");
    options.gamma = NULL;
    options.residual = other;
    refused(&w, m, m, 4, 4, &options, "residual 0x");
    options.residual = NULL;
    options.residualOut = other;
    refused(&w, m, m, 4, 4, &options, "residualOut 0x");
    options.gamma = managed;
    for (int r = 0; r < RANKS; r++) {
        options.residual = options.residualOut = (char *)locked + 1024 * r;
        EXPECT_OK(tuttiAllReduceRMSNorm(w.memory[r], w.memory[r], 4, 4, &options, ncclFloat,
                                        w.comm[r], w.stream[r]));
    }
    for (int r = 0; r < RANKS; r++) {
        EXPECT_CUDA(cudaStreamSynchronize(w.stream[r]));
    }
    EXPECT_CUDA(cudaFree(other));
    EXPECT_CUDA(cudaFree(managed));
    EXPECT_CUDA(cudaFreeHost(locked));
    close_world(&w);
}

// Zero has two signs, and they are one eps.
static void signs_of_zero(void)
{
    struct world w;
    if (!open_world(&w)) {
        return;
    }
    struct tuttiRMSNormOptions options = TUTTI_RMSNORM_OPTIONS_INITIALIZER;
    for (int r = 0; r < RANKS; r++) {
        options.eps = r == 0 ? 0.0f : -0.0f;
        EXPECT_OK(tuttiAllReduceRMSNorm(w.memory[r], w.memory[r], 4, 8, &options, ncclFloat,
                                        w.comm[r], w.stream[r]));
    }
    for (int r = 0; r < RANKS; r++) {
        ncclResult_t error = ncclInternalError;
        EXPECT_CUDA(cudaStreamSynchronize(w.stream[r]));
        EXPECT_OK(ncclCommGetAsyncError(w.comm[r], &error));
        EXPECT_EQ(error, ncclSuccess);
    }
    close_world(&w);
}

// Larger options of a later version: unknown fields must be zero.
static void later_options(void)
{
    struct world w;
    if (!open_world(&w)) {
        return;
    }
    struct {
        struct tuttiRMSNormOptions known;
        size_t more[2];
    } later = {TUTTI_RMSNORM_OPTIONS_INITIALIZER, {0, 0}};
    later.known.size = sizeof later;
    EXPECT_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        EXPECT_OK(tuttiAllReduceRMSNorm(w.memory[r], w.memory[r], 3, 5, &later.known, ncclHalf,
                                        w.comm[r], w.stream[r]));
    }
    EXPECT_OK(ncclGroupEnd());
    for (int r = 0; r < RANKS; r++) {
        EXPECT_CUDA(cudaStreamSynchronize(w.stream[r]));
    }
    later.more[1] = 1;
    refused(&w, w.memory[0], w.memory[0], 3, 5, &later.known, "does not know");
    close_world(&w);
}

// Ranks ask for different shapes: both learn of it, neither hangs, nothing is written.
static void disagreement(void)
{
    struct world w;
    if (!open_world(&w)) {
        return;
    }
    for (int r = 0; r < RANKS; r++) {
        EXPECT_CUDA(cudaMemset(w.memory[r], 0x3f, 4096));
        EXPECT_OK(tuttiAllReduceRMSNorm(w.memory[r], w.memory[r] + 4096, 4, 8 + (size_t)r, NULL,
                                        ncclFloat, w.comm[r], w.stream[r]));
    }
    for (int r = 0; r < RANKS; r++) {
        ncclResult_t error = ncclSuccess;
        float first = 1;
        EXPECT_CUDA(cudaStreamSynchronize(w.stream[r]));
        EXPECT_OK(ncclCommGetAsyncError(w.comm[r], &error));
        EXPECT_EQ(error, ncclInvalidUsage);
        EXPECT_CUDA(cudaMemcpy(&first, w.memory[r] + 4096, sizeof first, cudaMemcpyDeviceToHost));
        EXPECT(first == 0);
        EXPECT_EQ(tuttiAllReduceRMSNorm(w.memory[r], w.memory[r], 1, 1, NULL, ncclFloat, w.comm[r],
                                        w.stream[r]),
                  ncclInvalidUsage);
        EXPECT_OK(ncclCommAbort(w.comm[r]));
    }
}

// A rank that never calls: the other's operation ends with the abort.
static void abort_ends_operation(void)
{
    struct world w;
    if (!open_world(&w)) {
        return;
    }
    EXPECT_OK(tuttiAllReduceRMSNorm(w.memory[0], w.memory[0], 4, 8, NULL, ncclFloat, w.comm[0],
                                    w.stream[0]));
    EXPECT_EQ(cudaStreamQuery(w.stream[0]), cudaErrorNotReady);
    EXPECT_OK(ncclCommAbort(w.comm[0]));
    EXPECT_CUDA(cudaStreamSynchronize(w.stream[0]));
    EXPECT_OK(ncclCommAbort(w.comm[1]));
}

int main(void)
{
    RUN(version_and_split);
    RUN(refusals);
    RUN(no_tokens);
    RUN(memory_kinds);
    RUN(signs_of_zero);
    RUN(later_options);
    RUN(disagreement);
    RUN(abort_ends_operation);
    return expect_result();
}
