// Work on streams; see task.h.
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/task.h"

#include "base/log.h"
#include "base/stream.h"
#include "base/wait.h"
#include "exec/cpu/buffers.h"
#include "exec/cpu/circle.h"

#include <sched.h>
#include <vgpu/device_runtime.h>
#include <vgpu/native.h>

enum { NEW, BEGINNING, BEGUN, OVER }; // of tt_task.state

// How long the calling thread stays with work before blocks go on with it. To wake a sleeping
// thread on another core costs some 20 us (ARCHITECTURE.md, section 7), so that giving up earlier
// would not pay.
static const uint64_t stay_ns = 20000;
// The same where ranks outnumber cores, so that peers may need this one: it then gives its core
// away between looks.
static const uint64_t stay_crowded_ns = 60000;
// Longer by a nanosecond for so many bytes that the work moves: its peers move as many.
enum { BYTES_PER_NS = 8 };
// Else it seldom does, for a peer that lost its core to another program.
enum { LOOKS_PER_CLOCK = 32, LOOKS_PER_YIELD_CROWDED = 4, LOOKS_PER_YIELD = 256 };

// ---- Recording ----------------------------------------------------------------------------------

static struct tt_record_line *record_call(const struct tt_task *task, struct tt_record_tape *tape,
                                          cudaStream_t stream)
{
    return task->op_offset == 0
               ? tape->record->nowhere
               : tt_record_called(
                     tape, (const struct tt_op *)((const char *)task + task->op_offset), stream);
}

static void record_failure(const struct tt_task *task)
{
    const struct tt_host *host = task->host;
    if (task->line != NULL) {
        int error = atomic_load(&host->closed) // the communicator may be gone
                        ? ncclInternalError
                        : atomic_load_explicit(host->team.async_error, memory_order_relaxed);
        tt_record_failed(task->line, (ncclResult_t)error);
    }
}

// ---- Stepping -----------------------------------------------------------------------------------

static enum tt_progress begin(struct tt_task *task)
{
    uint32_t expected = NEW;
    if (!atomic_compare_exchange_strong_explicit(&task->state, &expected, BEGINNING,
                                                 memory_order_acquire, memory_order_acquire)) {
        return expected == BEGUN ? TT_DONE : expected == OVER ? TT_FAILED : TT_WAITING;
    }
    enum tt_progress progress =
        task->is_left_out ? TT_FAILED : tt_host_begin(task->host, task->turn);
    if (progress == TT_DONE) {
        if (task->line == NULL) { // of a graph
            task->line = record_call(task, &task->host->record->replays, NULL);
        }
        task->host->line = task->line;
        tt_circle_begun(task->host, task->turn);
        tt_buffers_begin(task->host->buffers);
        atomic_store_explicit(&task->parts_left, task->parts, memory_order_relaxed);
    } else if (progress == TT_FAILED) {
        record_failure(task);
    }
    atomic_store_explicit(&task->state,
                          progress == TT_DONE     ? BEGUN
                          : progress == TT_FAILED ? OVER
                                                  : NEW,
                          memory_order_release);
    return progress;
}

// A part is over.
static void end_part(struct tt_task *task, enum tt_progress progress)
{
    if (progress == TT_FAILED) {
        record_failure(task);
        atomic_store_explicit(&task->has_failed, true, memory_order_relaxed);
    }
    if (atomic_fetch_sub_explicit(&task->parts_left, 1, memory_order_acq_rel) == 1) {
        if (atomic_load_explicit(&task->has_failed, memory_order_relaxed)) {
            tt_host_give_up(task->host);
            while (!tt_host_is_let_go(task->host)) {
                vgpu_yield();
            }
        }
        tt_record_ended(task->line);
        tt_host_end(task->host, task->turn);
    }
}

// Steps a part of work; not TT_WAITING: it is over and must not be stepped again.
static enum tt_progress step(struct tt_task *task, unsigned part)
{
    if (atomic_load_explicit(&task->state, memory_order_acquire) != BEGUN) {
        enum tt_progress progress = begin(task);
        if (progress != TT_DONE) {
            return progress;
        }
    }
    enum tt_progress progress = task->step(task, part);
    if (progress != TT_WAITING) {
        end_part(task, progress);
    }
    return progress;
}

static void run_block(void *argument, unsigned block, unsigned block_count)
{
    (void)block_count;
    while (step(argument, block) == TT_WAITING) {
        vgpu_yield();
    }
}

// A graph is launched: this run has its own reference, as work of a stream has.
static void launched(void *argument)
{
    struct tt_task *task = argument;
    tt_host_hold(task->host);
    task->is_left_out = !tt_host_launch(task->host);
}

// Work will not go on: its device has failed, or was reset.
static void drop(struct tt_task *task, bool has_begun, cudaError_t error)
{
    if (task->line != NULL) {
        tt_record_failed(task->line, ncclUnhandledCudaError);
    }
    tt_host_drop(task->host, task->turn, has_begun, (int)error);
}

// The blocks of work are over, or will not go on.
static void ended(void *argument, cudaError_t error)
{
    struct tt_task *task = argument;
    struct tt_host *host = task->host;
    uint32_t state = atomic_load_explicit(&task->state, memory_order_acquire);
    bool has_begun = state == BEGUN;
    bool is_over = has_begun ? atomic_load(&task->parts_left) == 0 : state == OVER;
    if (!is_over && !task->is_left_out && error != cudaSuccess) {
        drop(task, has_begun, error);
    }
    if (task->turn == 0 && !task->is_left_out) {
        tt_host_landed(host);
    }
    tt_host_release(host);
}

static ncclResult_t launch_blocks(const struct tt_task *task, size_t bytes, cudaStream_t stream)
{
    struct vgpuNativeWork work = {.name = task->name,
                                  .function = run_block,
                                  .launched = launched,
                                  .ended = ended,
                                  .argument = task,
                                  .argument_bytes = bytes,
                                  .block_count = task->parts};
    return tt_cuda((int)vgpuLaunchNativeWork(&work, stream), "vgpuLaunchNativeWork");
}

// Work of one part that has its turn, stepped by the thread that calls.
struct stay {
    struct tt_task *task;
    bool is_over; // else blocks must go on
};

// Steps it for a while.
static void run_here(void *argument)
{
    struct stay *stay = argument;
    struct tt_task *task = stay->task;
    bool crowded = task->host->nranks > vgpuWorkerCount();
    unsigned yield = crowded ? LOOKS_PER_YIELD_CROWDED : LOOKS_PER_YIELD;
    uint64_t end_ns = 0;
    enum tt_progress progress = TT_WAITING;
    for (unsigned look = 1; (progress = task->step(task, 0)) == TT_WAITING; look++) {
        if (look % yield == 0) {
            (void)sched_yield();
        }
        if (look % LOOKS_PER_CLOCK != 0) {
            continue;
        }
        uint64_t now_ns = tt_now_ns();
        if (end_ns == 0) {
            end_ns =
                now_ns + (crowded ? stay_crowded_ns : stay_ns) + task->short_bytes / BYTES_PER_NS;
        } else if (now_ns > end_ns) {
            return;
        }
    }
    if (progress == TT_FAILED) {
        struct tt_wait wait = tt_wait_begin(NULL);
        record_failure(task);
        tt_host_give_up(task->host);
        while (!tt_host_is_let_go(task->host)) {
            (void)tt_wait_round(&wait);
        }
    } else {
        tt_record_ended(task->line);
    }
    stay->is_over = true;
}

// ---- Graphs -------------------------------------------------------------------------------------

static void release_host(void *host)
{
    tt_host_release(host);
}

// Puts work into the graph that captures the stream. In one graph a rank's work keeps the order of
// its calls whichever streams it is on.
static ncclResult_t capture(struct tt_task *task, size_t bytes, cudaStream_t stream)
{
    struct tt_host *host = task->host;
    enum cudaStreamCaptureStatus status;
    unsigned long long id = 0;
    cudaGraph_t graph = NULL;
    cudaUserObject_t holder = NULL;
    TRY(tt_cuda((int)cudaStreamGetCaptureInfo(stream, &status, &id, &graph, NULL, NULL, NULL),
                "cudaStreamGetCaptureInfo"));
    if (host->captured == NULL) {
        TRY(tt_cuda((int)cudaEventCreateWithFlags(&host->captured, cudaEventDisableTiming),
                    "cudaEventCreateWithFlags"));
    }
    if (host->capture_id == id && host->capture_stream != stream) {
        TRY(tt_cuda((int)cudaStreamWaitEvent(stream, host->captured, 0), "cudaStreamWaitEvent"));
    }
    tt_host_hold(host);
    cudaError_t error =
        cudaUserObjectCreate(&holder, host, release_host, 1, cudaUserObjectNoDestructorSync);
    if (error != cudaSuccess) {
        tt_host_release(host);
        return tt_cuda((int)error, "cudaUserObjectCreate");
    }
    error = cudaGraphRetainUserObject(graph, holder, 1, cudaGraphUserObjectMove);
    if (error != cudaSuccess) {
        (void)cudaUserObjectRelease(holder, 1);
        return tt_cuda((int)error, "cudaGraphRetainUserObject");
    }
    task->turn = 0;
    TRY(launch_blocks(task, bytes, stream));
    host->capture_id = id;
    host->capture_stream = stream;
    return tt_cuda((int)cudaEventRecord(host->captured, stream), "cudaEventRecord");
}

// ---- Launching ----------------------------------------------------------------------------------

// Work of which this thread has done a part, or nothing, goes on as blocks of the stream.
static ncclResult_t hand_over(struct tt_task *task, size_t bytes, cudaStream_t stream)
{
    tt_host_hold(task->host); // the communicator may end while it waits for its stream
    ncclResult_t result = launch_blocks(task, bytes, stream);
    if (result == ncclSuccess) {
        return result;
    }
    tt_host_release(task->host);
    if (atomic_load_explicit(&task->state, memory_order_relaxed) == BEGUN) {
        // The others may have seen it enter: they must not wait for it.
        (void)tt_host_fail_again(task->host, result);
        record_failure(task);
        tt_host_end(task->host, task->turn);
    } else {
        tt_record_failed(task->line, result);
        tt_host_uncall(task->host);
    }
    return result;
}

// Whether this thread may do the work. Counts and checks are made for blocks.
static bool may_run_here(const struct tt_task *task, cudaStream_t stream)
{
    return task->is_short && task->parts == 1 && !vgpu_counting && !vgpu_checking &&
           tt_host_is_idle(task->host) && vgpuStreamIsIdle(stream) != 0;
}

ncclResult_t tt_task_launch(struct tt_task *task, size_t bytes, cudaStream_t stream)
{
    struct tt_host *host = task->host;
    if (may_run_here(task, stream) && tt_host_take(host)) {
        tt_buffers_begin(host->buffers);
        host->line = task->line = record_call(task, &host->record->calls, stream);
        struct stay stay = {.task = task};
        cudaError_t error = vgpuRunNative(task->name, run_here, &stay, stream);
        if (stay.is_over) {
            tt_host_give(host);
            return ncclSuccess;
        }
        task->turn = tt_host_keep(host);
        tt_circle_queued(host, task->turn, stream, true);
        if (error != cudaSuccess) {
            // The device has failed in the midst of it, and whoever watches it will tell.
            drop(task, true, error);
            return ncclSuccess;
        }
        atomic_store_explicit(&task->parts_left, 1, memory_order_relaxed);
        atomic_store_explicit(&task->state, BEGUN, memory_order_relaxed);
        return hand_over(task, bytes, stream);
    }
    unsigned long long capture_id = 0;
    TRY(tt_stream_capture(host->rank, stream, &capture_id));
    if (capture_id != 0) {
        return capture(task, bytes, stream);
    }
    task->turn = tt_host_call(host);
    task->line = record_call(task, &host->record->calls, stream);
    tt_circle_queued(host, task->turn, stream, false);
    return hand_over(task, bytes, stream);
}
