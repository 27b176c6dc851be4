// The fused all-reduce + RMSNorm on virtual GPUs: native blocks take rows, sum them over all
// ranks' memory in place, normalise and store them straight into every rank's output. Reads and
// writes N * S bytes, the least there is.
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "base/split.h"
#include "exec/cpu/circle.h"
#include "exec/cpu/collective.h"
#include "exec/cpu/messages.h"
#include "exec/cpu/one_sided.h"
#include "exec/cpu/rmsnorm_rows.h"
#include "exec/cpu/task.h"
#include "exec/executor.h"
#include "exec/rmsnorm_claim.h"

#include <string.h>
#include <unistd.h>
#include <vgpu/device_runtime.h>
#include <vgpu/native.h>
#include <vgpu/stats.h>

static const char function_name[] = "tuttiAllReduceRMSNorm";

enum { NEW, ENTERED, RUNNING, LEAVING, OVER }; // of job.phase

// What the blocks of a rank share; copied at launch.
struct job {
    struct tt_task task; // first
    struct tt_op op;     // what the flight recorder says of it
    struct tt_rmsnorm operation;
    size_t rows_per_turn;        // that a block takes at once
    bool stream;                 // the output is larger than the caches
    bool has_run;                // part 0: its rows
    _Atomic uint32_t phase;      // written by part 0 (release), read by the others
    _Atomic uint32_t parts_done; // others that have no rows left (release)
    _Atomic uint64_t next_token; // own tokens handed out to blocks
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
static void run_rows(struct job *job)
{
    const struct tt_rmsnorm *operation = &job->operation;
    const struct tt_norm_variant *variant = tt_norm_variant();
    size_t ranks = (size_t)operation->nranks, rank = (size_t)operation->rank;
    size_t begin = tt_split_first(operation->tokens, ranks, rank);
    size_t own = tt_split_first(operation->tokens, ranks, rank + 1) - begin;
    size_t row_bytes = operation->hidden * type_of(variant, operation->data_type)->bytes;
    for (;;) {
        size_t turn =
            atomic_fetch_add_explicit(&job->next_token, job->rows_per_turn, memory_order_relaxed);
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

// Part 0, until all have entered.
static enum tt_progress begin(struct tt_host *host, struct job *job, uint32_t phase)
{
    if (phase == NEW) {
        vgpu_mark("wait for inputs");
        struct tt_entry entry;
        tt_rmsnorm_claim(&job->operation, &entry);
        tt_host_enter(host, &entry, host->checks ? tt_rmsnorm_signature(&entry) : 0);
        atomic_store_explicit(&job->phase, ENTERED, memory_order_relaxed);
    }
    enum tt_progress progress = tt_host_meet(host);
    if (progress != TT_WAITING) {
        atomic_store_explicit(&job->phase, progress == TT_DONE ? RUNNING : OVER,
                              memory_order_release);
    }
    return progress;
}

// Part 0, once no rows are left.
static enum tt_progress leave(struct tt_host *host, struct job *job)
{
    if (atomic_load_explicit(&job->parts_done, memory_order_acquire) < job->task.parts) {
        return tt_host_is_over(host) ? TT_FAILED : TT_WAITING;
    }
    if (atomic_load_explicit(&job->phase, memory_order_relaxed) == RUNNING) {
        tt_host_leave(host);
        atomic_store_explicit(&job->phase, LEAVING, memory_order_relaxed);
    }
    enum tt_progress progress = tt_host_all_left(host);
    if (progress != TT_WAITING) {
        vgpu_mark(NULL);
    }
    return progress;
}

static enum tt_progress step(struct tt_task *task, unsigned part)
{
    struct job *job = (struct job *)task;
    uint32_t phase = atomic_load_explicit(&job->phase, memory_order_acquire);
    if (part == 0 && phase < RUNNING) {
        enum tt_progress progress = begin(task->host, job, phase);
        if (progress != TT_DONE) {
            return progress;
        }
        phase = RUNNING;
    }
    if (phase < RUNNING) {
        return TT_WAITING;
    }
    if (phase == OVER) {
        return TT_FAILED;
    }
    if (part > 0 || !job->has_run) {
        run_rows(job);
        fence_streamed_stores();
        vgpu_mark("wait for peers");
        atomic_fetch_add_explicit(&job->parts_done, 1, memory_order_release);
        if (part > 0) {
            vgpu_mark(NULL);
            return TT_DONE;
        }
        job->has_run = true;
    }
    return leave(task->host, job);
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

    struct job job = {
        .task = {.host = operation->host,
                 .name = function_name,
                 .step = step,
                 .parts = (unsigned)blocks,
                 .op_offset = offsetof(struct job, op)},
        .op = {.function = TT_FUSED_RMSNORM,
               .count = operation->tokens,
               .type = operation->data_type},
        .operation = *operation,
        .rows_per_turn = rows > 0 ? rows : 1,
        // In place the lines are in the cache already, and there they are best written.
        .stream = operation->input.base != operation->output.base &&
                  row_bytes * operation->tokens > cache_bytes() / 2 / ranks,
    };
    return tt_task_launch(&job.task, sizeof job, stream);
}

static void finalize(struct tt_host *host)
{
    tt_host_finish(host, TT_FINALIZED);
}

static const struct tt_executor cpu_executor = {
    .name = "cpu",
    .no_device_hint = "see VGPU_MACHINE and CUDA_VISIBLE_DEVICES",
    .most_ranks = TT_ARENA_MOST_RANKS,
    .arena_bytes = tt_arena_bytes,
    .arena_map = tt_arena_map,
    .arena_release = tt_arena_release,
    .arena_memory = tt_arena_memory,
    .join = tt_host_join,
    .finalize = finalize,
    .drain = tt_host_drain,
    .part = tt_host_part,
    .is_over = tt_host_is_over,
    .collective = tt_collective_launch,
    .messages = tt_messages_launch,
    .one_sided = tt_one_sided_launch,
    .joined = tt_circle_joined,
    .all_reduce_rmsnorm = enqueue,
};
const struct tt_executor *const tt_executor = &cpu_executor;
