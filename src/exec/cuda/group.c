// Groups and their meetings. See group.h.
//
// No call of CUDA is made with the group's mutex held: it may wait for room in a queue, which only
// another rank's launch makes.
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/group.h"

#include "base/gpu.h"
#include "base/log.h"

#include <cuda.h>

#include <stdlib.h>

static pthread_mutex_t groups_mutex = PTHREAD_MUTEX_INITIALIZER; // the list and its references
static struct tt_group *groups;

// ---- Life ---------------------------------------------------------------------------------------

static bool is_member(const struct tt_team *team, int rank)
{
    return team->process[rank] == team->process[team->rank] && team->devices[rank] == team->device;
}

static void free_group(struct tt_group *group)
{
    while (group->open != NULL) { // given up
        struct tt_meeting *next = group->open->next;
        group->open->next = group->spare;
        group->spare = group->open;
        group->open = next;
    }
    while (group->spare != NULL) {
        struct tt_meeting *next = group->spare->next;
        for (int i = 0; i < group->size; i++) {
            if (group->spare->arrival[i].before != NULL) {
                (void)cudaEventDestroy(group->spare->arrival[i].before);
            }
        }
        free(group->spare);
        group->spare = next;
    }
    for (int i = 0; i < TT_GROUP_STREAMS && group->stream[i] != NULL; i++) {
        (void)cudaStreamDestroy(group->stream[i]);
    }
    if (group->done != NULL) {
        (void)cudaEventDestroy(group->done);
    }
    if (group->fork != NULL) {
        (void)cudaEventDestroy(group->fork);
    }
    (void)pthread_mutex_destroy(&group->mutex);
    free((void *)group->stream_id);
    free(group->captured);
    free(group->rank);
    free(group);
}

static ncclResult_t make_group(const struct tt_team *team, struct tt_group **group_out)
{
    struct tt_group *group = calloc(1, sizeof *group);
    int *rank = calloc((size_t)team->nranks, sizeof *rank);
    _Atomic unsigned long long *ids = calloc((size_t)team->nranks, sizeof *ids);
    struct tt_captured *captured = calloc((size_t)team->nranks, sizeof *captured);
    if (group == NULL || rank == NULL || ids == NULL || captured == NULL) {
        free(group);
        free(captured);
        free(rank);
        free((void *)ids);
        return tt_fail(ncclSystemError, "rank %d: no memory for the ranks of %s", team->rank,
                       tt_gpu(team->device)->name);
    }
    group->comm_hash = team->comm_hash;
    group->device = team->device;
    group->rank = rank;
    group->stream_id = ids;
    group->captured = captured;
    (void)pthread_mutex_init(&group->mutex, NULL);
    for (int r = 0; r < team->nranks; r++) {
        if (is_member(team, r)) {
            group->rank[group->size++] = r;
        }
    }
    ncclResult_t result =
        tt_cuda((int)cudaEventCreateWithFlags(&group->done, cudaEventDisableTiming),
                "cudaEventCreateWithFlags");
    if (result == ncclSuccess) {
        result = tt_cuda((int)cudaEventCreateWithFlags(&group->fork, cudaEventDisableTiming),
                         "cudaEventCreateWithFlags");
    }
    if (result != ncclSuccess) {
        free_group(group);
        return result;
    }
    *group_out = group;
    return ncclSuccess;
}

ncclResult_t tt_group_join(const struct tt_team *team, struct tt_group **group_out, int *index_out)
{
    ncclResult_t result = ncclSuccess;
    (void)pthread_mutex_lock(&groups_mutex);
    struct tt_group *group = groups;
    while (group != NULL &&
           (group->comm_hash != team->comm_hash || group->device != team->device)) {
        group = group->next;
    }
    if (group == NULL) {
        result = make_group(team, &group);
        if (result == ncclSuccess) {
            group->next = groups;
            groups = group;
        }
    }
    if (result == ncclSuccess) {
        group->references++;
        *group_out = group;
        for (*index_out = 0; group->rank[*index_out] != team->rank; ++*index_out) {
        }
    }
    (void)pthread_mutex_unlock(&groups_mutex);
    return result;
}

void tt_group_leave(struct tt_group *group)
{
    if (group == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&groups_mutex);
    bool last = --group->references == 0;
    for (struct tt_group **link = &groups; last && *link != NULL; link = &(*link)->next) {
        if (*link == group) {
            *link = group->next;
            break;
        }
    }
    (void)pthread_mutex_unlock(&groups_mutex);
    if (last) {
        free_group(group);
    }
}

bool tt_group_shares_stream(const struct tt_group *group, int index, unsigned long long stream_id)
{
    for (int i = 0; i < group->size; i++) {
        if (i != index &&
            atomic_load_explicit(&group->stream_id[i], memory_order_relaxed) == stream_id) {
            return true;
        }
    }
    return false;
}

int tt_group_capture(struct tt_group *group, int index, const struct tt_captured *call)
{
    int before = -1;
    (void)pthread_mutex_lock(&group->mutex);
    for (int i = 0; i < group->size; i++) {
        const struct tt_captured *other = &group->captured[i];
        if (i != index && other->capture == call->capture && other->stream == call->stream &&
            other->number >= call->number) {
            before = group->rank[i];
        }
    }
    group->captured[index] = *call;
    (void)pthread_mutex_unlock(&group->mutex);
    return before;
}

cudaStream_t tt_group_stream(struct tt_group *group, int number)
{
    for (int i = 0; i <= number; i++) { // without gaps
        if (group->stream[i] == NULL &&
            tt_cuda((int)cudaStreamCreateWithFlags(&group->stream[i], cudaStreamNonBlocking),
                    "cudaStreamCreateWithFlags") != ncclSuccess) {
            group->stream[i] = NULL;
            return NULL;
        }
    }
    return group->stream[number];
}

// ---- Meetings -----------------------------------------------------------------------------------

// With the mutex held: the meeting of an operation, opened where it is the first call. NULL: no
// memory.
static struct tt_meeting *find_meeting(struct tt_group *group, uint64_t number)
{
    struct tt_meeting *meeting = group->open;
    while (meeting != NULL && meeting->number != number) {
        meeting = meeting->next;
    }
    if (meeting != NULL) {
        return meeting;
    }
    meeting = group->spare;
    if (meeting != NULL) {
        group->spare = meeting->next;
    } else {
        meeting = calloc(1, sizeof *meeting + (size_t)group->size * sizeof meeting->arrival[0]);
    }
    if (meeting != NULL) {
        meeting->number = number;
        meeting->come = meeting->left = 0;
        atomic_store_explicit(&meeting->state, TT_MEETING_OPEN, memory_order_relaxed);
        meeting->next = group->open;
        group->open = meeting;
    }
    return meeting;
}

static ncclResult_t make_event(struct tt_arrival *mine)
{
    return mine->before != NULL
               ? ncclSuccess
               : tt_cuda((int)cudaEventCreateWithFlags(&mine->before, cudaEventDisableTiming),
                         "cudaEventCreateWithFlags");
}

static ncclResult_t record_before(const struct tt_arrival *mine, cudaStream_t stream)
{
    return tt_cuda((int)cuEventRecord(mine->before, stream), "cuEventRecord");
}

// Whether another rank's call has come on the stream of `index`, and its stream waits (lent: and
// has lent it). With the mutex held.
static bool stream_waits(const struct tt_group *group, const struct tt_meeting *meeting, int index,
                         bool lent)
{
    for (int i = 0; i < group->size; i++) {
        const struct tt_arrival *other = &meeting->arrival[i];
        if (i != index && (lent ? other->is_lent : other->waits) &&
            other->stream_id == meeting->arrival[index].stream_id) {
            return true;
        }
    }
    return false;
}

ncclResult_t tt_meeting_come(struct tt_group *group, int index, uint64_t number,
                             const struct tt_arrival *arrival, bool patient,
                             struct tt_meeting **meeting_out, bool *last_out)
{
    (void)pthread_mutex_lock(&group->mutex);
    struct tt_meeting *meeting = find_meeting(group, number);
    if (meeting == NULL) {
        (void)pthread_mutex_unlock(&group->mutex);
        return tt_fail(ncclSystemError, "rank %d: no memory for an operation",
                       arrival->operation.rank);
    }
    struct tt_arrival *mine = &meeting->arrival[index];
    bool is_last = meeting->come == group->size - 1; // and launches on its stream
    if (!is_last && (mine->before == NULL || !arrival->is_lent)) {
        (void)pthread_mutex_unlock(&group->mutex);
        TRY(make_event(mine));
        TRY(arrival->is_lent ? ncclSuccess : record_before(mine, arrival->stream));
        (void)pthread_mutex_lock(&group->mutex);
    }
    bool closed = group->closed;
    if (!closed) {
        cudaEvent_t before = mine->before;
        *mine = *arrival;
        mine->before = before;
        mine->is_behind = stream_waits(group, meeting, index, false);
        *last_out = ++meeting->come == group->size;
        mine->is_lent = mine->is_lent && !*last_out;
        mine->waits = !*last_out && !patient;
        group->launching += *last_out;
    }
    (void)pthread_mutex_unlock(&group->mutex);
    *meeting_out = meeting;
    return closed ? tt_fail(ncclInternalError, "rank %d: the communicator was aborted",
                            arrival->operation.rank)
                  : ncclSuccess;
}

ncclResult_t tt_meeting_take_back(struct tt_group *group, struct tt_meeting *meeting, int index)
{
    struct tt_arrival *mine = &meeting->arrival[index];
    // Where all come meanwhile, who launches does the same: the stream has nothing new until then.
    TRY(record_before(mine, mine->stream));
    (void)pthread_mutex_lock(&group->mutex);
    if (meeting->come < group->size) { // else it is read
        mine->is_lent = false;
    }
    (void)pthread_mutex_unlock(&group->mutex);
    return ncclSuccess;
}

bool tt_meeting_lose_patience(struct tt_group *group, struct tt_meeting *meeting, int index)
{
    (void)pthread_mutex_lock(&group->mutex);
    bool waits = meeting->come < group->size && !stream_waits(group, meeting, index, true);
    if (waits) { // else it may be read
        meeting->arrival[index].waits = true;
    }
    (void)pthread_mutex_unlock(&group->mutex);
    return waits;
}

bool tt_meeting_has_stream(const struct tt_meeting *meeting, int arrival, int index)
{
    unsigned long long id = meeting->arrival[arrival].stream_id;
    for (int i = 0; i < arrival; i++) {
        if (meeting->arrival[i].is_lent && meeting->arrival[i].stream_id == id) {
            return true;
        }
    }
    return meeting->arrival[index].stream_id == id;
}

// With the mutex held.
static void leave(struct tt_group *group, struct tt_meeting *meeting, int ranks)
{
    meeting->left += ranks;
    if (meeting->left < group->size) {
        return;
    }
    struct tt_meeting **link = &group->open;
    while (*link != meeting) {
        link = &(*link)->next;
    }
    *link = meeting->next;
    for (int i = 0; i < group->size; i++) {
        meeting->arrival[i].waits = meeting->arrival[i].is_lent = false;
    }
    meeting->next = group->spare;
    group->spare = meeting;
}

void tt_meeting_launched(struct tt_group *group, struct tt_meeting *meeting, bool success,
                         int ranks)
{
    (void)pthread_mutex_lock(&group->mutex);
    group->launching--;
    if (success) {
        atomic_store_explicit(&group->launched, meeting->number, memory_order_release);
    }
    // R1: the launch happens before what A1 in fused.c does with it.
    atomic_store_explicit(&meeting->state, success ? TT_MEETING_LAUNCHED : TT_MEETING_FAILED,
                          memory_order_release);
    leave(group, meeting, ranks);
    (void)pthread_mutex_unlock(&group->mutex);
}

void tt_meeting_leave(struct tt_group *group, struct tt_meeting *meeting)
{
    (void)pthread_mutex_lock(&group->mutex);
    leave(group, meeting, 1);
    (void)pthread_mutex_unlock(&group->mutex);
}
