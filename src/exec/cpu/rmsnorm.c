// The fused all-reduce + RMSNorm on virtual GPUs: native blocks take rows, sum them over all
// ranks' memory in place, normalise and store them straight into every rank's output. Reads and
// writes N * S bytes, the least there is.
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "base/split.h"
#include "base/wait.h"
#include "exec/cpu/board.h"
#include "exec/cpu/rmsnorm_rows.h"
#include "exec/executor.h"

#include <string.h>
#include <unistd.h>
#include <vgpu/device_runtime.h>
#include <vgpu/native.h>
#include <vgpu/stats.h>

static const char function_name[] = "tuttiAllReduceRMSNorm";
// How long the end of a communicator waits for the other ranks' part in its operations.
static const uint64_t drain_ns = UINT64_C(10000000000);

// What a block gets; copied at launch.
struct job {
    struct tt_rmsnorm operation;
    uint64_t number;      // of the operation on its board
    size_t rows_per_turn; // that a block takes at once
    bool stream;          // the output is larger than the caches
};

static const struct tt_norm_type *type_of(const struct tt_norm_variant *variant,
                                          ncclDataType_t type)
{
    switch (type) {
    case ncclFloat32:
        return &variant->float32;
    case ncclFloat16:
        return &variant->float16;
    case ncclBfloat16:
        return &variant->bfloat16;
    default:
        return NULL;
    }
}

static void count_all_ranks(const struct tt_symmetric *memory, int ranks, size_t offset,
                            size_t bytes, int is_store)
{
    for (int rank = 0; rank < ranks; rank++) {
        vgpuCountTransfer(memory->base + (size_t)rank * memory->stride + offset, bytes, is_store);
    }
}

static void count_load(const struct tt_norm_row *row, size_t offset, size_t bytes)
{
    count_all_ranks(&row->input, row->ranks, offset, bytes, 0);
    if (row->residual != NULL) {
        vgpuCountTransfer(row->residual + offset, bytes, 0);
    }
}

static void count_store(const struct tt_norm_row *row, size_t offset, size_t bytes)
{
    count_all_ranks(&row->output, row->ranks, offset, bytes, 1);
    if (row->gamma != NULL) {
        vgpuCountTransfer(row->gamma + offset, bytes, 0);
    }
    if (row->residual_out != NULL) {
        vgpuCountTransfer(row->residual_out + offset, bytes, 1);
    }
}

// A row in segments: forwards to add the squares up, backwards to store, so that the last segment
// is loaded once.
static void run_row(const struct job *job, const struct tt_norm_variant *variant,
                    const struct tt_norm_row *row)
{
    float x[TT_NORM_SEGMENT] __attribute__((aligned(64)));
    float partial[TT_NORM_LANES] __attribute__((aligned(64)));
    const struct tt_norm_type *type = type_of(variant, job->operation.data_type);
    size_t hidden = job->operation.hidden, first = 0, count = 0;
    memset(partial, 0, sizeof partial);
    for (first = 0;; first += TT_NORM_SEGMENT) {
        count = hidden - first < TT_NORM_SEGMENT ? hidden - first : TT_NORM_SEGMENT;
        vgpu_mark("reduce");
        type->load(x, partial, row, first, count);
        if (vgpu_counting) {
            count_load(row, first * type->bytes, count * type->bytes);
        }
        if (first + count == hidden) {
            break;
        }
    }
    vgpu_mark("normalise");
    float scale = tt_norm_scale(variant->fold(partial), hidden, job->operation.eps);
    vgpu_mark("gather");
    for (;;) {
        type->store(row, x, scale, first, count);
        if (vgpu_counting) {
            count_store(row, first * type->bytes, count * type->bytes);
        }
        if (first == 0) {
            break;
        }
        first -= TT_NORM_SEGMENT;
        count = TT_NORM_SEGMENT;
        type->load(x, partial, row, first, count);
        if (vgpu_counting) {
            count_load(row, first * type->bytes, count * type->bytes);
        }
    }
}

// Takes rows of this rank's own tokens until none is left.
static void run_rows(const struct job *job)
{
    const struct tt_rmsnorm *operation = &job->operation;
    const struct tt_norm_variant *variant = tt_norm_variant();
    struct tt_board_local *local = tt_board_local(&operation->board, operation->rank);
    size_t ranks = (size_t)operation->nranks, rank = (size_t)operation->rank;
    size_t begin = tt_split_first(operation->tokens, ranks, rank);
    size_t own = tt_split_first(operation->tokens, ranks, rank + 1) - begin;
    size_t row_bytes = operation->hidden * type_of(variant, operation->data_type)->bytes;
    for (;;) {
        size_t turn =
            atomic_fetch_add_explicit(&local->next_token, job->rows_per_turn, memory_order_relaxed);
        for (size_t i = turn; i < own && i < turn + job->rows_per_turn; i++) {
            size_t offset = (begin + i) * row_bytes;
            const char *residual = operation->residual;
            char *residual_out = operation->residual_out;
            struct tt_norm_row row = {
                .input = {operation->input.base + offset, operation->input.stride},
                .output = {operation->output.base + offset, operation->output.stride},
                .ranks = operation->nranks,
                .ahead = row_bytes,
                .gamma = operation->gamma,
                .residual = residual == NULL ? NULL : residual + offset,
                .residual_out = residual_out == NULL ? NULL : residual_out + offset,
            };
            row.stream = job->stream && ((uintptr_t)row.output.base | row.output.stride) % 64 == 0;
            run_row(job, variant, &row);
        }
        if (turn >= own || own - turn <= job->rows_per_turn) {
            return;
        }
    }
}

// Orders stores past the caches before the release that tells of them.
static void fence_streamed_stores(void)
{
#if defined(__SSE__)
    __builtin_ia32_sfence();
#endif
}

static void run_block(void *argument, unsigned block, unsigned block_count)
{
    const struct job *job = argument;
    const struct tt_rmsnorm *operation = &job->operation;
    struct tt_claim claim = {
        .tokens = operation->tokens,
        .hidden = operation->hidden,
        .input_offset = operation->input_offset,
        .output_offset = operation->output_offset,
        .eps = operation->eps,
        .input_window = (uint16_t)operation->input_window,
        .output_window = (uint16_t)operation->output_window,
        .data_type = (uint8_t)operation->data_type,
        .has_gamma = operation->gamma != NULL,
        .has_residual = operation->residual != NULL,
    };
    struct tt_meeting meeting = {&operation->board, operation->rank, operation->nranks,
                                 job->number,       function_name,   block == 0};
    vgpu_mark("wait for inputs");
    bool failed = !tt_meeting_enter(&meeting, &claim) || !tt_meeting_agrees(&meeting, &claim);
    if (!failed) {
        run_rows(job);
        fence_streamed_stores();
    }
    vgpu_mark("wait for peers");
    tt_meeting_leave(&meeting, block_count, failed);
    vgpu_mark(NULL);
}

// Bytes of the last-level cache; all ranks of the host share it.
static size_t cache_bytes(void)
{
    static _Atomic size_t known; // any thread may fill it, always with the same value
    size_t bytes = atomic_load_explicit(&known, memory_order_relaxed);
    if (bytes == 0) {
        long announced = sysconf(_SC_LEVEL3_CACHE_SIZE);
        bytes = announced > 0 ? (size_t)announced : (size_t)8 << 20;
        atomic_store_explicit(&known, bytes, memory_order_relaxed);
    }
    return bytes;
}

static ncclResult_t enqueue(const struct tt_rmsnorm *operation, cudaStream_t stream)
{
    const struct tt_norm_type *type = type_of(tt_norm_variant(), operation->data_type);
    if (type == NULL) {
        return tt_bug("data type %d reached the executor", (int)operation->data_type);
    }
    size_t ranks = (size_t)operation->nranks, rank = (size_t)operation->rank;
    size_t own = tt_split_first(operation->tokens, ranks, rank + 1) -
                 tt_split_first(operation->tokens, ranks, rank);
    size_t blocks = (size_t)vgpuWorkerCount();
    blocks = blocks < own ? blocks : own;
    blocks = blocks > 0 ? blocks : 1; // a rank without tokens still meets the others

    // Turns of about 64 KiB of output, but several for each block.
    size_t row_bytes = operation->hidden * type->bytes;
    size_t rows = ((size_t)64 << 10) / row_bytes, fair = own / (4 * blocks);
    rows = rows < fair ? rows : fair;

    struct tt_board_local *local = tt_board_local(&operation->board, operation->rank);
    uint64_t before = atomic_load_explicit(&local->enqueued, memory_order_relaxed);
    struct job job = {
        .operation = *operation,
        .number = before + 1,
        .rows_per_turn = rows > 0 ? rows : 1,
        // In place the lines are in the cache already, and there they are best written.
        .stream = operation->input.base != operation->output.base &&
                  row_bytes * operation->tokens > cache_bytes() / 2 / ranks,
    };
    // Counted before the launch: drain() must not miss it. Taken back where the launch fails.
    atomic_store_explicit(&local->enqueued, job.number, memory_order_relaxed);
    ncclResult_t result = tt_cuda(
        (int)vgpuLaunchNative(function_name, run_block, &job, sizeof job, (unsigned)blocks, stream),
        "vgpuLaunchNative");
    if (result != ncclSuccess) {
        atomic_store_explicit(&local->enqueued, before, memory_order_relaxed);
    }
    return result;
}

static void drain(const struct tt_board *board, int rank)
{
    const struct tt_board_local *local = tt_board_local(board, rank);
    uint64_t last = atomic_load_explicit(&local->enqueued, memory_order_relaxed);
    uint64_t start_ns = tt_now_ns();
    struct tt_wait wait = tt_wait_begin(NULL);
    while (atomic_load_explicit(&local->done, memory_order_acquire) < last) {
        (void)tt_wait_round(&wait);
        cudaError_t device = cudaStreamQuery(cudaStreamLegacy);
        if (device != cudaSuccess && device != cudaErrorNotReady) {
            return; // the device has failed and dropped its work: what was enqueued will never run
        }
        int none = ncclSuccess;
        if (tt_now_ns() - start_ns > drain_ns &&
            atomic_compare_exchange_strong(board->async_error, &none, ncclRemoteError)) {
            (void)tt_fail(ncclRemoteError,
                          "rank %d: operations on %s still wait for other ranks 10 s after the "
                          "communicator's end was asked for; they are given up",
                          rank, board->comm_name);
        }
    }
}

static const struct tt_executor cpu_executor = {
    .name = "cpu",
    .all_reduce_rmsnorm = enqueue,
    .drain = drain,
};
const struct tt_executor *const tt_executor = &cpu_executor;
