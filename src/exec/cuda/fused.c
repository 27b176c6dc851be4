// The fused all-reduce + RMSNorm on real GPUs: how the ranks of a group meet, and what streams wait
// for. See host.h.
//
// A call first waits a little on the host for the others of its group: usually all come at the same
// time, and then events alone order their streams, with no wait in any stream for something that
// was not enqueued before. A call that does not find the others in time makes its stream wait for a
// word of the arena, which the launch's stream writes at its end, or the host where the
// communicator fails.
//
// In an ncclGroup calls wait once all calls of the group are made; until then they lend their
// streams to the call that launches. It orders them with the fewest calls of CUDA: none where all
// ranks use one stream.
//
// In a capture no count survives a replay: each rank then launches for itself, and the kernels
// meet, at barriers that all graphs of the communicator share: two that run at once would take each
// other's arrivals. Calls are compared as they are captured, without a wait.
// SPDX-License-Identifier: Apache-2.0
#include "base/gpu.h"
#include "base/log.h"
#include "base/stream.h"
#include "base/wait.h"
#include "exec/cuda/host.h"
#include "exec/cuda/launches.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const char name[] = "tuttiAllReduceRMSNorm";
// How long a call waits for those of the other ranks; a quarter of that after each wait in vain, as
// where one thread calls for all ranks.
static const uint64_t most_patience_ns = 1000000;
static const uint64_t least_patience_ns = 1000;
// The same where other ranks use the same stream, in which a wait for them would be before them.
static const uint64_t shared_patience_ns = UINT64_C(10000000000);

// Of many operations that are called at once each LOOK_ATth is seen to end, whether somebody waits
// for it or not.
enum { LOOK_AT = 64 };

// Of this thread: calls that wait at the end of its group; its address tells threads apart.
static _Thread_local int owed_here;

#define TRY_DRIVER(call) TRY(tt_cuda((int)(call), #call)) // both kinds of error have CUDA's numbers

static CUdeviceptr met_word(const struct tt_host *host)
{
    return tt_arena_word(host->arena, host->group->rank[0], offsetof(struct tt_words, met));
}

// ---- The call that comes last -------------------------------------------------------------------

// The launch's stream comes behind those of all calls.
static ncclResult_t come_behind_all(const struct tt_host *host, const struct tt_meeting *meeting)
{
    const struct tt_group *group = host->group;
    const struct tt_arrival *mine = &meeting->arrival[host->index];
    for (int i = 0; i < group->size; i++) {
        const struct tt_arrival *arrival = &meeting->arrival[i];
        if (arrival == mine ||
            (arrival->is_lent && tt_meeting_has_stream(meeting, i, host->index))) {
            continue;
        }
        if (arrival->is_lent) {
            TRY_DRIVER(cuEventRecord(arrival->before, arrival->stream));
        }
        TRY_DRIVER(cuStreamWaitEvent(mine->stream, arrival->before, 0));
    }
    // Operations of a communicator run one after another, whatever their streams. The stream of the
    // call before this one is behind it already.
    if (!mine->same_stream) {
        TRY_DRIVER(cuStreamWaitEvent(mine->stream, group->done, 0));
    }
    return ncclSuccess;
}

// Whether somebody wants to see that this operation ends.
static bool is_watched(struct tt_group *group)
{
    return atomic_load_explicit(&group->is_watched, memory_order_relaxed) &&
           atomic_exchange(&group->is_watched, false);
}

// Lent streams go on behind the launch, and those that wait for the group's word. Who has seen that
// `done` is reached may unmap the word, so that its write comes before.
static ncclResult_t let_go_on(const struct tt_host *host, const struct tt_meeting *meeting)
{
    struct tt_group *group = host->group;
    cudaStream_t stream = meeting->arrival[host->index].stream;
    bool somebody_waits = meeting->number % LOOK_AT == 0 || is_watched(group);
    for (int i = 0; i < group->size; i++) {
        somebody_waits = somebody_waits || meeting->arrival[i].waits;
    }
    if (somebody_waits) {
        TRY_DRIVER(cuStreamWriteValue32(stream, met_word(host), (uint32_t)meeting->number,
                                        CU_STREAM_WRITE_VALUE_DEFAULT));
    }
    TRY_DRIVER(cuEventRecord(group->done, stream));
    for (int i = 0; i < group->size; i++) {
        const struct tt_arrival *arrival = &meeting->arrival[i];
        if (arrival->is_lent && !tt_meeting_has_stream(meeting, i, host->index)) {
            TRY_DRIVER(cuStreamWaitEvent(arrival->stream, group->done, 0));
        }
    }
    return ncclSuccess;
}

static ncclResult_t launch_for_all(struct tt_host *host, struct tt_meeting *meeting)
{
    cudaStream_t stream = meeting->arrival[host->index].stream;
    TRY(come_behind_all(host, meeting));
    ncclResult_t result = tt_launch_group(host, meeting, stream);
    if (result != ncclSuccess) { // its begin may be in the stream, and use the words
        (void)cuEventRecord(host->group->done, stream);
        return result;
    }
    return let_go_on(host, meeting);
}

// Calls of this thread that owe nothing any more, as the launch has been made; returns how many.
static int settle_own(const struct tt_host *host, const struct tt_meeting *meeting)
{
    int settled = 0;
    for (int i = 0; i < host->group->size; i++) {
        const struct tt_arrival *arrival = &meeting->arrival[i];
        if (!arrival->is_lent || arrival->thread != &owed_here) {
            continue;
        }
        struct tt_host *other = arrival->operation.host;
        int at = 0;
        while (at < other->owed_count && other->owed[at].meeting != meeting) {
            at++;
        }
        if (at == other->owed_count) {
            continue; // it has failed
        }
        other->owed_count--;
        memmove(&other->owed[at], &other->owed[at + 1],
                (size_t)(other->owed_count - at) * sizeof other->owed[0]);
        settled++;
    }
    owed_here -= settled;
    return settled;
}

static ncclResult_t come_last(struct tt_host *host, struct tt_meeting *meeting)
{
    ncclResult_t result = launch_for_all(host, meeting);
    int settled = settle_own(host, meeting); // a communicator may be gone once it is known
    tt_meeting_launched(host->group, meeting, result == ncclSuccess, settled + 1);
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
    TRY_DRIVER(cuEventRecord(host->ended, stream));
    atomic_store(&host->has_ended, true);
    return ncclSuccess;
}

// Until the launch is made. False: this call's patience has ended, or the communicator has failed
// (`over`).
static bool await_launch(struct tt_host *host, struct tt_meeting *meeting, uint64_t patience_ns,
                         bool *over)
{
    struct tt_wait wait = tt_wait_begin(host->team.abort_flag);
    // A1: pairs with R1 in group.c.
    while (atomic_load_explicit(&meeting->state, memory_order_acquire) == TT_MEETING_OPEN) {
        if (!tt_wait_round(&wait) ||
            tt_failure_is_over(&tt_arena_header(host->arena)->failure, &host->team)) {
            *over = true;
            return false;
        }
        if (tt_now_ns() - wait.start_ns >= patience_ns &&
            tt_meeting_lose_patience(host->group, meeting, host->index)) {
            host->patience_ns /= patience_ns == host->patience_ns ? 4 : 1;
            return false;
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
    ncclResult_t result = ncclSuccess; // who launches has failed for all, or ordered a lent stream
    if (!meeting->arrival[host->index].is_lent &&
        atomic_load_explicit(&meeting->state, memory_order_acquire) == TT_MEETING_LAUNCHED) {
        result = tt_cuda((int)cuStreamWaitEvent(stream, host->group->done, 0), "cuStreamWaitEvent");
    }
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
    TRY_DRIVER(cuStreamGetId(arrival->stream, &host->stream_id));
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

static ncclResult_t make_room_to_owe(struct tt_host *host)
{
    if (host->owed_count < host->owed_room) {
        return ncclSuccess;
    }
    int room = host->owed_room == 0 ? 8 : 2 * host->owed_room;
    struct tt_owed *grown = realloc(host->owed, (size_t)room * sizeof *grown);
    if (grown == NULL) {
        return tt_fail(ncclSystemError, "rank %d: no memory for the calls of a group",
                       host->team.rank);
    }
    host->owed = grown;
    host->owed_room = room;
    return ncclSuccess;
}

static ncclResult_t meet(struct tt_host *host, const struct tt_rmsnorm *operation,
                         cudaStream_t stream, uint64_t number)
{
    bool owes = !operation->may_wait, last = false;
    struct tt_arrival arrival = {.operation = *operation,
                                 .stream = stream,
                                 .is_lent = owes && stream != cudaStreamPerThread,
                                 .thread = &owed_here};
    struct tt_meeting *meeting = NULL;
    TRY(make_room_to_owe(host));
    TRY(identify_stream(host, &arrival));
    uint64_t patience_ns = patience_for(host, &arrival);
    TRY(tt_meeting_come(host->group, host->index, number, &arrival, owes || patience_ns > 0,
                        &meeting, &last));
    if (meeting->arrival[host->index].is_behind) {
        if (last) {
            tt_meeting_launched(host->group, meeting, false, 1);
        }
        return refuse_stream(host);
    }
    if (last) {
        return come_last(host, meeting);
    }
    if (owes) {
        host->owed[host->owed_count++] = (struct tt_owed){meeting, stream, patience_ns};
        owed_here++;
        return ncclSuccess;
    }
    return come_early(host, meeting, stream, patience_ns);
}

bool tt_fused_owes(void)
{
    bool owes = owed_here > 0;
    owed_here = 0;
    return owes;
}

static ncclResult_t settle(struct tt_host *host, bool may_wait)
{
    ncclResult_t result = ncclSuccess;
    int count = host->owed_count;
    host->owed_count = may_wait ? 0 : count;
    for (int i = 0; i < count && result == ncclSuccess; i++) {
        const struct tt_owed *owed = &host->owed[i];
        if (may_wait) {
            result = come_early(host, owed->meeting, owed->stream, owed->patience_ns);
        } else if (owed->meeting->arrival[host->index].is_lent &&
                   atomic_load_explicit(&owed->meeting->state, memory_order_acquire) ==
                       TT_MEETING_OPEN) {
            result = tt_meeting_take_back(host->group, owed->meeting, host->index);
        }
    }
    return result;
}

// The calls of a group have been made: now they may wait for those of other threads.
ncclResult_t tt_fused_settle(struct tt_host *host, bool may_wait)
{
    int before = -1;
    if (host->owed_count == 0) {
        return ncclSuccess;
    }
    TRY_CUDA(cudaGetDevice(&before));
    TRY_CUDA(cudaSetDevice(host->team.device));
    ncclResult_t result = settle(host, may_wait);
    if (before != host->team.device) {
        (void)cudaSetDevice(before);
    }
    return result == ncclSuccess ? result : tt_host_fail_again(host, result);
}

static ncclResult_t run_alone(struct tt_host *host, const struct tt_rmsnorm *operation,
                              cudaStream_t stream)
{
    TRY(tt_launch_rank(host, operation, stream));
    TRY_DRIVER(cuEventRecord(host->ended, stream));
    atomic_store(&host->has_ended, true);
    return ncclSuccess;
}

// Counted once it is in the graph: a call that is refused, and made again, counts once.
static ncclResult_t capture(struct tt_host *host, const struct tt_rmsnorm *operation,
                            cudaStream_t stream)
{
    struct tt_captured call = {.stream = stream, .number = host->captured + 1};
    TRY(tt_stream_capture(host->team.rank, stream, &call.capture));
    int before = tt_group_capture(host->group, host->index, &call);
    if (before >= 0) { // that rank's part is in the graph already, and would wait for ever
        return tt_host_fail(host, ncclInvalidUsage,
                            "rank %d: %s: rank %d has captured the same call on the same stream "
                            "(%p), in which this one would stand behind it, and each wait for the "
                            "other; while a stream is captured each rank of a GPU needs a stream "
                            "of its own",
                            host->team.rank, name, before, (void *)stream);
    }
    TRY(tt_launch_rank(host, operation, stream));
    (void)tt_host_tell(host, operation, ++host->captured, true); // a failure is the communicator's
    return ncclSuccess;
}

ncclResult_t tt_fused_enqueue(const struct tt_rmsnorm *operation, cudaStream_t stream)
{
    struct tt_host *host = operation->host;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (host->way == TT_WAY_UNKNOWN) {
        host->patience_ns = most_patience_ns;
        TRY(tt_host_choose_way(host));
    }
    TRY_DRIVER(cuStreamIsCapturing(stream, &status));
    if (status != CU_STREAM_CAPTURE_STATUS_NONE) {
        return capture(host, operation, stream);
    }
    if (host->team.nranks == 1) {
        return run_alone(host, operation, stream);
    }
    uint64_t number = atomic_fetch_add(&host->calls, 1) + 1;
    if (!tt_host_tell(host, operation, number, false)) {
        return ncclSuccess; // the communicator has failed, and says so
    }
    ncclResult_t result = meet(host, operation, stream, number);
    if (result != ncclSuccess) { // the others would wait for it for ever
        (void)tt_host_fail_again(host, result);
    }
    return result;
}
