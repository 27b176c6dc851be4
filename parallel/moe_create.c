// The life of a tuttiMoe: options, the window, buffers. SPDX-License-Identifier: Apache-2.0
#include "device.h"
#include "fail.h"
#include "moe.h"
#include "nccl_device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW_PAGE = 4096 };

// ---- Options ------------------------------------------------------------------------------------

// call: with the rank.
static ncclResult_t check_numbers(const char *call, const struct tuttiMoeOptions *options)
{
    if (options->experts < 1 || options->experts > MOE_MOST_EXPERTS) {
        return tuttiFail(ncclInvalidArgument, "%s: experts is %d, must be 1 to %d", call,
                         options->experts, MOE_MOST_EXPERTS);
    }
    int most = options->experts < MOE_MOST_CHOICES ? options->experts : MOE_MOST_CHOICES;
    if (options->choices < 1 || options->choices > most) {
        return tuttiFail(ncclInvalidArgument, "%s: choices is %d, must be 1 to %d", call,
                         options->choices, most);
    }
    if (options->hidden < 1 || options->hidden > INT32_MAX) {
        return tuttiFail(ncclInvalidArgument, "%s: hidden is %zu, must be 1 to %d", call,
                         options->hidden, INT32_MAX);
    }
    if (options->maxTokens > (size_t)INT32_MAX / (size_t)options->choices) {
        return tuttiFail(ncclInvalidArgument, "%s: maxTokens is %zu, must be at most %d", call,
                         options->maxTokens, INT32_MAX / options->choices);
    }
    if (options->align < 1 || options->align > MOE_MOST_ALIGN) {
        return tuttiFail(ncclInvalidArgument, "%s: align is %zu, must be 1 to %d", call,
                         options->align, MOE_MOST_ALIGN);
    }
    return ncclSuccess;
}

static ncclResult_t check_rules(const char *call, const struct tuttiMoeOptions *options)
{
    if (options->datatype != ncclFloat32 && options->datatype != ncclBfloat16 &&
        options->datatype != ncclFloat64) {
        return tuttiFail(ncclInvalidArgument,
                         "%s: datatype is %d, must be ncclFloat32 (%d), ncclBfloat16 (%d) or "
                         "ncclFloat64 (%d)",
                         call, (int)options->datatype, (int)ncclFloat32, (int)ncclBfloat16,
                         (int)ncclFloat64);
    }
    if ((int)options->rule < tuttiMoeGrow || (int)options->rule > tuttiMoeError) {
        return tuttiFail(ncclInvalidArgument,
                         "%s: rule is %d, must be tuttiMoeGrow, tuttiMoeDrop or tuttiMoeError",
                         call, (int)options->rule);
    }
    if (!(isfinite(options->capacityFactor) && options->capacityFactor >= 0)) {
        return tuttiFail(ncclInvalidArgument,
                         "%s: capacityFactor is %g, must be finite and not negative", call,
                         options->capacityFactor);
    }
    if ((int)options->path < tuttiMoePathAuto || (int)options->path > tuttiMoePathKernel) {
        return tuttiFail(ncclInvalidArgument,
                         "%s: path is %d, must be tuttiMoePathAuto, tuttiMoePathNative or "
                         "tuttiMoePathKernel",
                         call, (int)options->path);
    }
    return ncclSuccess;
}

static ncclResult_t check_arguments(int rank, const struct tuttiMoeOptions *options,
                                    const tuttiMoe_t *moe)
{
    char call[64];
    (void)snprintf(call, sizeof call, "tuttiMoeCreate: rank %d", rank);
    if (moe == NULL || options == NULL) {
        return tuttiFail(ncclInvalidArgument, "%s: %s is NULL", call,
                         moe == NULL ? "moe" : "options");
    }
    if (options->size != sizeof *options) {
        return tuttiFail(ncclInvalidArgument,
                         "%s: options->size is %zu, must be %zu: begin with "
                         "TUTTI_MOE_OPTIONS_INITIALIZER",
                         call, options->size, sizeof *options);
    }
    TRY(check_numbers(call, options));
    return check_rules(call, options);
}

// What ranks compare.
enum { COMPARED = 11, COMPARED_FACTOR = 9 };
static const char *const compared_names[COMPARED] = {
    "options are right", "experts",        "choices", "hidden",
    "maxTokens",         "datatype",       "rule",    "path",
    "capacity",          "capacityFactor", "align"};

static void list_options(const struct tuttiMoeOptions *options, int64_t *values)
{
    const int64_t all[COMPARED] = {1,
                                   options->experts,
                                   options->choices,
                                   (int64_t)options->hidden,
                                   (int64_t)options->maxTokens,
                                   (int64_t)options->datatype,
                                   (int64_t)options->rule,
                                   (int64_t)options->path,
                                   (int64_t)options->capacity,
                                   0,
                                   (int64_t)options->align};
    memcpy(values, all, sizeof all);
    memcpy(&values[COMPARED_FACTOR], &options->capacityFactor, sizeof values[0]); // its bits
}

// Option number i of this rank and of another one.
static ncclResult_t differs(int i, int rank, int64_t here, int64_t there)
{
    if (i == 0) {
        return tuttiFail(ncclInvalidUsage, "tuttiMoeCreate: rank %d's options are refused there",
                         rank);
    }
    if (i == COMPARED_FACTOR) {
        double factors[2];
        memcpy(&factors[0], &here, sizeof here);
        memcpy(&factors[1], &there, sizeof there);
        return tuttiFail(ncclInvalidUsage,
                         "tuttiMoeCreate: %s differs between ranks (rank %d): %g here, %g there",
                         compared_names[i], rank, factors[0], factors[1]);
    }
    return tuttiFail(ncclInvalidUsage,
                     "tuttiMoeCreate: %s differs between ranks (rank %d): %lld here, %lld there",
                     compared_names[i], rank, (long long)here, (long long)there);
}

// Collective. own: what this rank thinks of its options.
static ncclResult_t compare_options(ncclComm_t comm, const struct tuttiMoeOptions *options,
                                    ncclResult_t own, cudaStream_t stream)
{
    int ranks = 0;
    int64_t mine[COMPARED] = {0};
    TRY(ncclCommCount(comm, &ranks));
    if (own == ncclSuccess) {
        list_options(options, mine);
    }
    int64_t *all = calloc((size_t)ranks, sizeof mine);
    if (all == NULL) {
        return tuttiFail(ncclSystemError, "tuttiMoeCreate: no memory for %d ranks' options", ranks);
    }
    ncclResult_t result = parallel_exchange(mine, all, sizeof mine, comm, stream);
    for (int r = 0; r < ranks && own == ncclSuccess && result == ncclSuccess; r++) {
        for (int i = 0; i < COMPARED && result == ncclSuccess; i++) {
            int64_t other = all[r * COMPARED + i];
            if (other != mine[i]) {
                result = differs(i, r, mine[i], other);
            }
        }
    }
    free(all);
    return own != ncclSuccess ? own : result;
}

// ---- Memory -------------------------------------------------------------------------------------

// Deregistering waits for all work of the device, also of other ranks, in which they may wait for
// this one: nobody may enqueue any between a meeting of all before it and one after it.
static void free_window(tuttiMoe_t moe)
{
    if (moe->window != NULL) {
        (void)ncclCommWindowDeregister(moe->comm, moe->window);
    }
    (void)ncclMemFree(moe->memory);
    moe->window = NULL;
    moe->memory = NULL;
    moe->rows_room = moe->slots_room = 0;
}

// Collective; on the host. Rows begin a page, and so do slots. A rank without memory registers
// NULL, so that all learn of it.
static ncclResult_t new_window(tuttiMoe_t moe, size_t rows_room, size_t slots_room)
{
    size_t bytes = rows_room + slots_room;
    ncclResult_t own = ncclMemAlloc((void **)&moe->memory, bytes);
    ncclResult_t registered = ncclCommWindowRegister(moe->comm, moe->memory, bytes, &moe->window,
                                                     NCCL_WIN_COLL_SYMMETRIC);
    if (own != ncclSuccess) {
        return tuttiFail(own, "tuttiMoe: rank %d: no memory for %zu bytes of rows and results",
                         moe->rank, bytes);
    }
    TRY(registered);
    if (moe->window == NULL) {
        return tuttiFail(ncclInvalidUsage,
                         "tuttiMoeCreate: this communicator has no symmetric windows "
                         "(deviceApiSupport of ncclCommQueryProperties)");
    }
    moe->rows_room = rows_room;
    moe->slots_room = slots_room;
    for (int lane = 0; lane < moe->lanes; lane++) {
        TRY(ncclGetLsaDevicePointer(moe->window, 0, lane, (void **)&moe->peers[lane]));
    }
    return ncclSuccess;
}

// Waits on the host for all ranks: a split that makes nothing.
static ncclResult_t meet_on_host(ncclComm_t comm)
{
    ncclComm_t none = NULL;
    return ncclCommSplit(comm, NCCL_SPLIT_NOCOLOR, 0, &none, NULL);
}

// A quarter more than is asked for, in pages, where it has to grow.
static size_t grown(size_t has, size_t needs)
{
    size_t larger = (needs + needs / 4 + WINDOW_PAGE - 1) / WINDOW_PAGE * WINDOW_PAGE;
    return needs <= has ? has : larger > 0 ? larger : WINDOW_PAGE;
}

ncclResult_t moe_reserve(tuttiMoe_t moe, size_t row_bytes, size_t slot_bytes, cudaStream_t stream)
{
    size_t rows_room = grown(moe->rows_room, row_bytes);
    size_t slots_room = grown(moe->slots_room, slot_bytes);
    if (moe->window != NULL && rows_room == moe->rows_room && slots_room == moe->slots_room) {
        return ncclSuccess;
    }
    TRY(moe_meet(moe, stream)); // nobody uses the old window any more
    TRY_CUDA(cudaStreamSynchronize(stream));
    free_window(moe);
    return new_window(moe, rows_room, slots_room);
}

ncclResult_t moe_reserve_rail(tuttiMoe_t moe, int number, size_t bytes, cudaStream_t stream)
{
    struct moe_buffer *buffer = &moe->rail[number];
    if (bytes <= buffer->bytes) {
        return ncclSuccess;
    }
    TRY_CUDA(cudaStreamSynchronize(stream)); // in whichever stream the program goes on
    if (buffer->memory != NULL) {
        TRY_CUDA(cudaFreeAsync(buffer->memory, stream));
    }
    *buffer = (struct moe_buffer){NULL, 0};
    size_t larger = grown(0, bytes);
    TRY_CUDA(cudaMallocAsync((void **)&buffer->memory, larger, stream));
    buffer->bytes = larger;
    return ncclSuccess;
}

// ---- Create and destroy -------------------------------------------------------------------------

// On one rank; the first has as many as any other (tuttiSplitCounts).
static size_t most_experts(const struct tuttiMoe *moe)
{
    return moe->first_expert[1];
}

size_t moe_record_choices(const struct tuttiMoe *moe)
{
    size_t choices = (size_t)moe->options.choices;
    return most_experts(moe) < choices ? most_experts(moe) : choices;
}

// Rows have numbers of 32 bits, and bytes of size_t, with a quarter more where buffers grow. The
// same on all ranks.
static ncclResult_t check_rows(const struct tuttiMoe *moe)
{
    const struct tuttiMoeOptions *options = &moe->options;
    size_t ranks = (size_t)moe->ranks, choices = (size_t)options->choices;
    if (options->maxTokens * choices > (size_t)INT32_MAX / ranks) {
        return tuttiFail(ncclInvalidArgument,
                         "tuttiMoeCreate: maxTokens is %zu: %d ranks' choices of %d expert%s would "
                         "be more than %d rows",
                         options->maxTokens, moe->ranks, options->choices,
                         options->choices == 1 ? "" : "s", INT32_MAX);
    }
    size_t rows = ranks * options->maxTokens * choices;
    size_t padding = most_experts(moe) * (options->align - 1);
    if (padding > (size_t)INT32_MAX - rows) {
        return tuttiFail(ncclInvalidArgument,
                         "tuttiMoeCreate: align is %zu: with %zu expert%s on a rank, and at most "
                         "%zu rows for them, it would have more than %d rows",
                         options->align, most_experts(moe), most_experts(moe) == 1 ? "" : "s", rows,
                         INT32_MAX);
    }
    if (rows + padding > SIZE_MAX / 4 / sizeof(double) / options->hidden) {
        return tuttiFail(ncclInvalidArgument,
                         "tuttiMoeCreate: hidden is %zu: the bytes of %zu such rows are beyond "
                         "what can be counted",
                         options->hidden, rows + padding);
    }
    return ncclSuccess;
}

// Ranks, hosts, experts, sizes.
static ncclResult_t describe(tuttiMoe_t moe)
{
    TRY(ncclCommCount(moe->comm, &moe->ranks));
    TRY(ncclCommUserRank(moe->comm, &moe->rank));
    TRY(ncclCommCuDevice(moe->comm, &moe->device));
    ncclTeam_t team = ncclTeamLsa(moe->comm);
    moe->lanes = team.nRanks > 0 ? team.nRanks : 1;
    moe->lane = team.nRanks > 0 ? team.rank : 0;
    moe->host = moe->rank / moe->lanes;
    moe->hosts = moe->ranks / moe->lanes;
    size_t experts = (size_t)moe->options.experts, ranks = (size_t)moe->ranks;
    size_t choices = (size_t)moe->options.choices;
    moe->first_expert = calloc(ranks + 1, sizeof *moe->first_expert);
    moe->peers = calloc((size_t)moe->lanes, sizeof *moe->peers);
    if (moe->first_expert == NULL || moe->peers == NULL) {
        return tuttiFail(ncclSystemError, "tuttiMoeCreate: no memory for %d ranks", moe->ranks);
    }
    TRY(tuttiSplitCounts(experts, moe->ranks, NULL, moe->first_expert));
    moe->first_expert[ranks] = experts;
    moe->weight_bytes = moe->options.datatype == ncclFloat64 ? sizeof(double) : sizeof(float);
    size_t lanes = (size_t)moe->lanes;
    moe->item_words = MOE_ITEM_HEAD + 2 * (lanes < choices ? lanes : choices);
    moe->record_bytes =
        sizeof(struct moe_record) + moe_record_choices(moe) * sizeof(struct moe_choice);
    return check_rows(moe);
}

static ncclResult_t choose_path(tuttiMoe_t moe, cudaStream_t stream)
{
#ifdef MOE_NATIVE
    bool kernels = moe->options.path == tuttiMoePathKernel;
    moe->path = kernels ? &moe_kernel_path : &moe_native_path;
#else
    if (moe->options.path == tuttiMoePathNative) {
        return tuttiFail(ncclInvalidUsage,
                         "tuttiMoeCreate: rank %d: path: the native path is for virtual GPUs",
                         moe->rank);
    }
    moe->path = &moe_kernel_path;
#endif
    return moe->path->open != NULL ? moe->path->open(moe, stream) : ncclSuccess;
}

// What tuttiMoeDestroy frees, also of a tuttiMoe that was not finished.
static void free_moe(tuttiMoe_t moe, cudaStream_t stream)
{
    void *const memory[] = {moe->rail[0].memory, moe->rail[1].memory, moe->meeting};
    if (moe->path != NULL && moe->path->close != NULL) {
        moe->path->close(moe);
    }
    free_window(moe);
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) {
        if (memory[i] != NULL) {
            (void)cudaFreeAsync(memory[i], stream); // cudaFree waits for other ranks' work, too
        }
    }
    free(moe->first_expert);
    free(moe->peers);
    free(moe);
}

static ncclResult_t fill_moe(tuttiMoe_t moe, const struct tuttiMoeOptions *options,
                             cudaStream_t stream)
{
    moe->options = *options;
    TRY(describe(moe));
    size_t bytes = 2 * sizeof *moe->meeting;
    TRY_CUDA(cudaMallocAsync((void **)&moe->meeting, bytes, stream));
    TRY_CUDA(cudaMemsetAsync(moe->meeting, 0, bytes, stream));
    TRY(moe_reserve(moe, 1, 1, stream));
    return choose_path(moe, stream);
}

static ncclResult_t create(ncclComm_t comm, const struct tuttiMoeOptions *options, tuttiMoe_t *moe,
                           cudaStream_t stream)
{
    int rank = 0;
    TRY(ncclCommUserRank(comm, &rank));
    ncclResult_t own = check_arguments(rank, options, moe);
    TRY(compare_options(comm, options, own, stream));
    tuttiMoe_t created = calloc(1, sizeof *created);
    if (created == NULL) {
        return tuttiFail(ncclSystemError, "tuttiMoeCreate: rank %d: no memory", rank);
    }
    created->comm = comm;
    ncclResult_t result = fill_moe(created, options, stream);
    if (result != ncclSuccess) {
        free_moe(created, stream);
        return result;
    }
    *moe = created;
    return ncclSuccess;
}

PARALLEL_EXPORT ncclResult_t tuttiMoeCreate(ncclComm_t comm, const struct tuttiMoeOptions *options,
                                            tuttiMoe_t *moe)
{
    int previous = 0;
    cudaStream_t stream = NULL;
    if (moe != NULL) {
        *moe = NULL;
    }
    TRY(tuttiRefuseGroup("tuttiMoeCreate"));
    TRY(parallel_enter_device(comm, &previous));
    ncclResult_t result =
        parallel_cuda((int)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                      "cudaStreamCreateWithFlags");
    if (result == ncclSuccess) {
        result = create(comm, options, moe, stream);
        (void)cudaStreamSynchronize(stream);
        (void)cudaStreamDestroy(stream);
    }
    parallel_leave_device(previous);
    return result;
}

static ncclResult_t meet_and_free(tuttiMoe_t moe, cudaStream_t stream)
{
    ncclComm_t comm = moe->comm;
    ncclResult_t result = moe_meet(moe, stream);
    cudaError_t error = cudaStreamSynchronize(stream);
    free_moe(moe, stream);
    TRY(result);
    TRY(parallel_cuda((int)error, "cudaStreamSynchronize"));
    return meet_on_host(comm);
}

PARALLEL_EXPORT ncclResult_t tuttiMoeDestroy(tuttiMoe_t moe)
{
    int previous = 0;
    cudaStream_t stream = NULL;
    if (moe == NULL) {
        return ncclSuccess;
    }
    TRY(tuttiRefuseGroup("tuttiMoeDestroy"));
    TRY(parallel_enter_known_device(moe->device, &previous));
    ncclResult_t result =
        parallel_cuda((int)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                      "cudaStreamCreateWithFlags");
    if (result == ncclSuccess) {
        result = meet_and_free(moe, stream);
        (void)cudaStreamSynchronize(stream);
        (void)cudaStreamDestroy(stream);
    }
    parallel_leave_device(previous);
    return result;
}
