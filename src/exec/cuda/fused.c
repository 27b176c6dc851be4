// The fused all-reduce + RMSNorm on real GPUs: how the ranks of a group meet, and what streams wait
// for. See host.h.
//
// A call first waits a little on the host for the others of its group (in an ncclGroup: once all
// calls of the group are made): usually all come at the same time, and then events alone order
// their streams, with no wait in any stream for something that was not enqueued before. A call that
// does not find the others in time makes its stream wait for a word of the arena, which the
// launch's stream writes at its end, or the host where the communicator fails.
//
// In a capture no count survives a replay: each rank then launches for itself, and the kernels
// meet.
// SPDX-License-Identifier: Apache-2.0
#include "base/gpu.h"
#include "base/log.h"
#include "base/wait.h"
#include "exec/cuda/host.h"
#include "exec/cuda/launches.h"

#include <stddef.h>

static const char name[] = "tuttiAllReduceRMSNorm";
// How long a call waits for those of the other ranks; a quarter of that after each wait in vain, as
// where one thread calls for all ranks.
static const uint64_t most_patience_ns = 1000000;
static const uint64_t least_patience_ns = 1000;
// The same where other ranks use the same stream, in which a wait for them would be before them.
static const uint64_t shared_patience_ns = UINT64_C(10000000000);

#define TRY_DRIVER(call) TRY(tt_cuda((int)(call), #call)) // both kinds of error have CUDA's numbers

static CUdeviceptr met_word(const struct tt_host *host)
{
    return tt_arena_word(host->arena, host->group->rank[0], offsetof(struct tt_words, met));
}

// ---- The call that comes last -------------------------------------------------------------------

static ncclResult_t launch_for_all(struct tt_host *host, struct tt_meeting *meeting)
{
    struct tt_group *group = host->group;
    struct tt_arrival *mine = &meeting->arrival[host->index];
    cudaStream_t stream = mine->stream;
    bool somebody_waits = false;
    for (int i = 0; i < group->size; i++) {
        const struct tt_arrival *arrival = &meeting->arrival[i];
        somebody_waits = somebody_waits || arrival->waits;
        if (arrival != mine) {
            TRY_CUDA(cudaStreamWaitEvent(stream, arrival->before, 0));
        }
    }
    // Operations of a communicator run one after another, whatever their streams. The stream of the
    // call before this one is behind it already.
    if (!mine->same_stream) {
        TRY_CUDA(cudaStreamWaitEvent(stream, group->done, 0));
    }
    TRY(tt_launch_group(host, meeting, stream));
    TRY_CUDA(cudaEventRecord(group->done, stream));
    if (somebody_waits) {
        TRY_DRIVER(cuStreamWriteValue32(stream, met_word(host), (uint32_t)meeting->number,
                                        CU_STREAM_WRITE_VALUE_DEFAULT));
    }
    return ncclSuccess;
}

static ncclResult_t come_last(struct tt_host *host, struct tt_meeting *meeting)
{
    ncclResult_t result = launch_for_all(host, meeting);
    tt_meeting_launched(host->group, meeting, result == ncclSuccess);
    tt_meeting_leave(host->group, meeting);
    host->patience_ns = most_patience_ns;
    return result;
}

// ---- The others ---------------------------------------------------------------------------------

// The stream goes on when the launch, whenever it comes, is over.
static ncclResult_t wait_in_stream(struct tt_host *host, struct tt_meeting *meeting,
                                   cudaStream_t stream)
{
    uint32_t number = (uint32_t)meeting->number;
    tt_meeting_leave(host->group, meeting);
    TRY_DRIVER(cuStreamWaitValue32(stream, met_word(host), number, CU_STREAM_WAIT_VALUE_GEQ));
    TRY_CUDA(cudaEventRecord(host->ended, stream));
    atomic_store(&host->has_ended, true);
    return ncclSuccess;
}

// Until the launch is made. False: this call's patience has ended, or the communicator has failed
// (`over`).
static bool await_launch(struct tt_host *host, struct tt_meeting *meeting, uint64_t patience_ns,
                         bool *over)
{
    struct tt_wait wait = tt_wait_begin(host->team.abort_flag);
    bool patient = true;
    // A1: pairs with R1 in group.c.
    while (atomic_load_explicit(&meeting->state, memory_order_acquire) == TT_MEETING_OPEN) {
        if (!tt_wait_round(&wait) ||
            tt_failure_is_over(&tt_arena_header(host->arena)->failure, &host->team)) {
            *over = true;
            return false;
        }
        if (patient && tt_now_ns() - wait.start_ns >= patience_ns) {
            if (tt_meeting_lose_patience(host->group, meeting, host->index)) {
                host->patience_ns /= patience_ns == host->patience_ns ? 4 : 1;
                return false;
            }
            patient = false; // the launch is being made
        }
    }
    return true;
}

static ncclResult_t come_early(struct tt_host *host, struct tt_meeting *meeting,
                               cudaStream_t stream, uint64_t patience_ns)
{
    bool over = false;
    if (!await_launch(host, meeting, patience_ns, &over)) {
        // Where the communicator has failed nobody may launch it any more: nothing to wait for.
        return over ? ncclSuccess : wait_in_stream(host, meeting, stream);
    }
    bool launched =
        atomic_load_explicit(&meeting->state, memory_order_acquire) == TT_MEETING_LAUNCHED;
    ncclResult_t result = launched ? tt_cuda((int)cudaStreamWaitEvent(stream, host->group->done, 0),
                                             "cudaStreamWaitEvent")
                                   : ncclSuccess; // who launches has failed for all
    tt_meeting_leave(host->group, meeting);
    return result;
}

// ---- The call -----------------------------------------------------------------------------------

static ncclResult_t refuse_stream(const struct tt_host *host)
{
    return tt_fail(ncclInvalidUsage,
                   "rank %d: %s: another rank of %s called it on the same stream, which waits "
                   "for this call already; give each rank a stream of its own, or make the calls "
                   "of all ranks in one group",
                   host->team.rank, name, tt_gpu(host->team.device)->name);
}

// Fills the stream's number, which no other stream ever has, and whether it is that of the call
// before.
static ncclResult_t identify_stream(struct tt_host *host, struct tt_arrival *arrival)
{
    unsigned long long before = host->stream_id;
    TRY_CUDA(cudaStreamGetId(arrival->stream, &host->stream_id));
    arrival->stream_id = host->stream_id;
    arrival->same_stream = before == arrival->stream_id && host->owed_count == 0;
    atomic_store_explicit(&host->group->stream_id[host->index], host->stream_id,
                          memory_order_relaxed);
    return ncclSuccess;
}

static uint64_t patience_for(const struct tt_host *host, const struct tt_arrival *arrival)
{
    if (arrival->stream == NULL || arrival->stream == cudaStreamLegacy ||
        tt_group_shares_stream(host->group, host->index, arrival->stream_id)) {
        return shared_patience_ns;
    }
    return host->patience_ns >= least_patience_ns ? host->patience_ns : 0;
}

static ncclResult_t meet(struct tt_host *host, const struct tt_rmsnorm *operation,
                         cudaStream_t stream, uint64_t number)
{
    struct tt_arrival arrival = {.operation = *operation, .stream = stream};
    struct tt_meeting *meeting = NULL;
    bool last = false, owes = !operation->may_wait && host->owed_count < TT_MOST_OWED;
    TRY(identify_stream(host, &arrival));
    uint64_t patience_ns = owes || operation->may_wait ? patience_for(host, &arrival) : 0;
    TRY(tt_meeting_come(host->group, host->index, number, &arrival, owes || patience_ns > 0,
                        &meeting, &last));
    if (meeting->arrival[host->index].is_behind) {
        if (last) {
            tt_meeting_launched(host->group, meeting, false);
        }
        return refuse_stream(host);
    }
    if (last) {
        return come_last(host, meeting);
    }
    if (owes) {
        host->owed[host->owed_count++] = (struct tt_owed){meeting, stream, patience_ns};
        return ncclSuccess;
    }
    return come_early(host, meeting, stream, patience_ns);
}

// The calls of a group have been made: now they may wait for those of other threads.
ncclResult_t tt_fused_settle(struct tt_host *host)
{
    int count = host->owed_count, before = -1;
    host->owed_count = 0;
    if (count == 0) {
        return ncclSuccess;
    }
    TRY_CUDA(cudaGetDevice(&before));
    TRY_CUDA(cudaSetDevice(host->team.device));
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < count && result == ncclSuccess; i++) {
        const struct tt_owed *owed = &host->owed[i];
        result = come_early(host, owed->meeting, owed->stream, owed->patience_ns);
    }
    if (before != host->team.device) {
        (void)cudaSetDevice(before);
    }
    return result == ncclSuccess ? result : tt_host_fail_again(host, result);
}

static ncclResult_t run_alone(struct tt_host *host, const struct tt_rmsnorm *operation,
                              cudaStream_t stream)
{
    TRY(tt_launch_rank(host, operation, stream));
    TRY_CUDA(cudaEventRecord(host->ended, stream));
    atomic_store(&host->has_ended, true);
    return ncclSuccess;
}

ncclResult_t tt_fused_enqueue(const struct tt_rmsnorm *operation, cudaStream_t stream)
{
    struct tt_host *host = operation->host;
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    if (host->way == TT_WAY_UNKNOWN) {
        host->patience_ns = most_patience_ns;
        TRY(tt_host_choose_way(host));
    }
    TRY_CUDA(cudaStreamIsCapturing(stream, &capture));
    if (capture != cudaStreamCaptureStatusNone) {
        return tt_launch_rank(host, operation, stream);
    }
    if (host->team.nranks == 1) {
        return run_alone(host, operation, stream);
    }
    uint64_t number = atomic_fetch_add(&host->calls, 1) + 1;
    if (!tt_host_tell(host, operation, number)) {
        return ncclSuccess; // the communicator has failed, and says so
    }
    ncclResult_t result = meet(host, operation, stream, number);
    if (result != ncclSuccess) { // the others would wait for it for ever
        (void)tt_host_fail_again(host, result);
    }
    return result;
}
