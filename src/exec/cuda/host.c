// A rank's part in the host team of real GPUs: its life, the way of its operations, failures. See
// host.h.
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/host.h"

#include "base/gpu.h"
#include "base/log.h"
#include "base/params.h"
#include "base/wait.h"
#include "exec/cuda/connections.h"
#include "exec/cuda/kernels.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// How long the end of a communicator waits for ranks that have not called its operations, and how
// long for streams that are let go.
static const uint64_t drain_ns = UINT64_C(10000000000), settle_ns = UINT64_C(500000000);

// ---- Joining ------------------------------------------------------------------------------------

static ncclResult_t copy_team(const struct tt_team *team, struct tt_host *host)
{
    size_t n = (size_t)team->nranks;
    int *process = calloc(2 * n, sizeof *process);
    if (process == NULL) {
        return tt_fail(ncclSystemError, "rank %d: no memory for a team of %d ranks", team->rank,
                       team->nranks);
    }
    memcpy(process, team->process, n * sizeof *process);
    memcpy(process + n, team->devices, n * sizeof *process);
    host->team = *team;
    host->team.process = process;
    host->team.devices = process + n;
    return ncclSuccess;
}

static ncclResult_t tell_facts(const struct tt_host *host)
{
    struct cudaDeviceProp properties;
    struct tt_facts *facts = &tt_arena_line(host->arena, host->team.rank)->facts;
    int has_mps = 0;
    TRY_CUDA(cudaGetDeviceProperties(&properties, host->team.device));
    if (cudaDeviceGetAttribute(&has_mps, cudaDevAttrMpsEnabled, host->team.device) != cudaSuccess) {
        (void)cudaGetLastError(); // a driver that does not know it
        has_mps = 0;
    }
    memcpy(facts->uuid, &properties.uuid, sizeof facts->uuid);
    facts->multiprocessors = properties.multiProcessorCount;
    facts->has_mps = has_mps;
    return ncclSuccess;
}

// CUDA loads a kernel when it is first asked about it, and may wait for everything that runs: not
// once ranks wait for each other.
static ncclResult_t load_kernels(const struct tt_host *host)
{
    static const ncclDataType_t types[] = {ncclFloat32, ncclFloat16, ncclBfloat16};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        for (int barriers = 0; barriers < 2; barriers++) {
            struct tt_norm_launch launch = {.tokens = 1,
                                            .hidden = 1024,
                                            .data_type = types[i],
                                            .nranks = host->team.nranks,
                                            .barriers = barriers != 0,
                                            .blocks = 1,
                                            .rank_count = 1,
                                            .rank = {{.rank = host->team.rank}}};
            TRY(tt_cuda((int)tt_norm_load(&launch), "loading kernels"));
        }
    }
    return ncclSuccess;
}

static void free_host(struct tt_host *host)
{
    if (host->ended != NULL) {
        (void)cudaEventDestroy(host->ended);
    }
    tt_group_leave(host->group);
    tt_arena_release(host->arena);
    (void)pthread_mutex_destroy(&host->late.mutex);
    free((int *)host->team.process);
    free(host->owed);
    free(host);
}

ncclResult_t tt_host_join(const struct tt_team *team, struct tt_host **host_out)
{
    struct tt_host *host = calloc(1, sizeof *host);
    if (host == NULL) {
        return tt_fail(ncclSystemError, "rank %d: no memory for its part in a team", team->rank);
    }
    (void)pthread_mutex_init(&host->late.mutex, NULL);
    host->arena = team->arena;
    tt_arena_hold(host->arena);
    host->compares = tt_param_int(TT_PARAM_CHECK_CALLS) != 0;
    ncclResult_t result = copy_team(team, host);
    if (result == ncclSuccess) {
        result = tt_group_join(&host->team, &host->group, &host->index);
    }
    if (result == ncclSuccess) {
        result = tt_cuda((int)cudaEventCreateWithFlags(&host->ended, cudaEventDisableTiming),
                         "cudaEventCreateWithFlags");
    }
    if (result == ncclSuccess) {
        result = tell_facts(host);
    }
    if (result == ncclSuccess) {
        result = load_kernels(host);
    }
    if (result != ncclSuccess) {
        free_host(host);
        return result;
    }
    tt_connections_check(host->group->size);
    *host_out = host;
    return ncclSuccess;
}

// ---- The way of its operations ------------------------------------------------------------------

static bool same_gpu(const struct tt_host *host, int a, int b)
{
    return memcmp(tt_arena_line(host->arena, a)->facts.uuid,
                  tt_arena_line(host->arena, b)->facts.uuid, 16) == 0;
}

bool tt_host_leads(const struct tt_host *host, int rank)
{
    for (int r = 0; r < rank; r++) {
        if (host->team.process[r] == host->team.process[rank] && same_gpu(host, r, rank)) {
            return false;
        }
    }
    return true;
}

// How many ranks the GPU of `rank` has, how many processes, and whether all of them use MPS. first:
// no lower rank has that GPU.
struct sharing {
    int ranks, processes;
    bool first, all_mps;
};

static struct sharing sharing_of(const struct tt_host *host, int rank)
{
    struct sharing sharing = {.first = true, .all_mps = true};
    for (int r = 0; r < host->team.nranks; r++) {
        if (same_gpu(host, r, rank)) {
            sharing.ranks++;
            sharing.processes += tt_host_leads(host, r);
            sharing.first = sharing.first && r >= rank;
            sharing.all_mps = sharing.all_mps && tt_arena_line(host->arena, r)->facts.has_mps != 0;
        }
    }
    return sharing;
}

static void tell_of_streams(const struct tt_host *host, const struct sharing *sharing)
{
    tt_say("rank %d: %s: %d processes share %s without MPS, so that their kernels take turns: "
           "fused operations wait for each other by their streams, some hundreds of microseconds "
           "each; for kernels that run side by side start the daemon first: "
           "nvidia-cuda-mps-control -d",
           host->team.rank, host->team.comm_name, sharing->processes,
           tt_gpu(host->team.device)->name);
}

ncclResult_t tt_host_choose_way(struct tt_host *host)
{
    enum tt_way way = TT_WAY_TOGETHER;
    const struct tt_facts *mine = &tt_arena_line(host->arena, host->team.rank)->facts;
    for (int r = 0; r < host->team.nranks; r++) {
        struct sharing sharing = sharing_of(host, r);
        const struct tt_facts *facts = &tt_arena_line(host->arena, r)->facts;
        host->sharers = sharing.ranks > host->sharers ? sharing.ranks : host->sharers;
        if (tt_host_leads(host, r) && r != host->group->rank[0] && way == TT_WAY_TOGETHER) {
            way = TT_WAY_BARRIERS;
        }
        if (sharing.processes > 1 && !sharing.all_mps) {
            way = TT_WAY_STREAMS;
            if (sharing.first && r == host->team.rank) {
                tell_of_streams(host, &sharing);
            }
        }
        if (facts->multiprocessors != mine->multiprocessors) {
            return tt_fail(ncclInvalidUsage,
                           "rank %d: %s has %d multiprocessors, that of rank %d has %d: fused "
                           "operations need GPUs of one kind",
                           host->team.rank, tt_gpu(host->team.device)->name, mine->multiprocessors,
                           r, facts->multiprocessors);
        }
    }
    host->way = way;
    return ncclSuccess;
}

// ---- Failing ------------------------------------------------------------------------------------

static bool is_ending(const struct tt_host *host)
{
    return atomic_load(&host->ends) == TT_DESTROYED;
}

ncclResult_t tt_host_fail(struct tt_host *host, ncclResult_t result, const char *format, ...)
{
    char text[TT_FAILURE_TEXT];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return tt_failure_set(&tt_arena_header(host->arena)->failure, &host->team, is_ending(host),
                          result, text);
}

ncclResult_t tt_host_fail_again(struct tt_host *host, ncclResult_t result)
{
    return tt_failure_set_again(&tt_arena_header(host->arena)->failure, &host->team,
                                is_ending(host), result);
}

// Streams compare words as numbers that go round.
static void raise_word(_Atomic uint32_t *word, uint64_t number)
{
    if ((int32_t)(atomic_load(word) - (uint32_t)number) < 0) {
        atomic_store(word, (uint32_t)number);
    }
}

void tt_host_let_go(struct tt_host *host)
{
    uint64_t number = atomic_load(&host->calls);
    raise_word(&tt_arena_words(host->arena, host->group->rank[0])->met, number);
    for (int r = 0; host->way == TT_WAY_STREAMS && r < host->team.nranks; r++) {
        raise_word(&tt_arena_words(host->arena, r)->in, number);
        raise_word(&tt_arena_words(host->arena, r)->out, number);
    }
}

// ---- Ending -------------------------------------------------------------------------------------

// Makes the rank's device current; returns the one before, for go_back.
static int go_to_device(const struct tt_host *host)
{
    int before = -1;
    bool moves = cudaGetDevice(&before) == cudaSuccess && before != host->team.device &&
                 cudaSetDevice(host->team.device) == cudaSuccess;
    return moves ? before : -1;
}

static void go_back(int before)
{
    if (before >= 0) {
        (void)cudaSetDevice(before);
    }
}

bool tt_host_is_busy(const struct tt_host *host, cudaEvent_t event)
{
    int before = go_to_device(host);
    bool busy = cudaEventQuery(event) == cudaErrorNotReady;
    go_back(before);
    return busy;
}

// Whether nothing of this rank is waited for, or runs; a device that has failed runs nothing.
static bool is_quiet(struct tt_host *host, bool given_up)
{
    struct tt_group *group = host->group;
    bool launched =
        atomic_load_explicit(&group->launched, memory_order_acquire) >= atomic_load(&host->calls);
    if (given_up) {
        (void)pthread_mutex_lock(&group->mutex);
        launched = group->launching == 0;
        (void)pthread_mutex_unlock(&group->mutex);
    }
    return launched && !tt_host_is_busy(host, group->done) &&
           !(host->has_ended && tt_host_is_busy(host, host->ended));
}

// Tells the others that this rank calls nothing any more, once what it has called is over.
static void tell_end(struct tt_host *host)
{
    _Atomic uint32_t *end = &tt_arena_line(host->arena, host->team.rank)->end;
    uint32_t goes_on = TT_GOES_ON;
    if (atomic_load(&host->ends) == TT_FINALIZED && atomic_load(end) == TT_GOES_ON &&
        is_quiet(host, false)) {
        (void)atomic_compare_exchange_strong(end, &goes_on, TT_FINALIZED);
    }
}

bool tt_host_is_over(struct tt_host *host)
{
    if (!tt_failure_is_over(&tt_arena_header(host->arena)->failure, &host->team)) {
        tell_end(host);
        tt_host_look_for_late(host);
        return false;
    }
    tt_host_let_go(host);
    return true;
}

void tt_host_finalize(struct tt_host *host)
{
    atomic_store(&host->ends, TT_FINALIZED);
    tell_end(host);
}

static bool await_quiet(struct tt_host *host, bool given_up, uint64_t limit_ns)
{
    struct tt_wait wait = tt_wait_begin(NULL);
    while (!is_quiet(host, given_up)) {
        if (given_up) {
            tt_host_let_go(host);
        } else if (tt_host_is_over(host)) {
            return false;
        }
        if (tt_now_ns() - wait.start_ns > limit_ns &&
            (given_up || !tt_host_have_all_called(host))) {
            return false;
        }
        (void)tt_wait_round(&wait);
    }
    return true;
}

// What this rank gave to operations may be freed from now on. False: some of them do not end.
static bool give_up(struct tt_host *host)
{
    (void)pthread_mutex_lock(&host->group->mutex);
    host->group->closed = true;
    (void)pthread_mutex_unlock(&host->group->mutex);
    return await_quiet(host, true, settle_ns);
}

bool tt_host_drain(struct tt_host *host, bool *gave_up_out)
{
    int before = go_to_device(host);
    bool was_quiet = is_quiet(host, false);
    atomic_store(&host->ends, TT_DESTROYED);
    if (!tt_host_is_over(host) && !await_quiet(host, false, drain_ns) && !tt_host_is_over(host)) {
        (void)tt_host_fail(host, ncclRemoteError,
                           "rank %d: operations on %s still wait for other ranks 10 s after the "
                           "communicator's end was asked for; they are given up",
                           host->team.rank, host->team.comm_name);
    }
    bool is_over = tt_host_is_over(host);
    bool has_ended = !is_over || give_up(host);
    *gave_up_out = is_over && !was_quiet;
    atomic_store_explicit(&tt_arena_line(host->arena, host->team.rank)->end,
                          is_over ? TT_GAVE_UP : TT_DESTROYED, memory_order_release);
    host->is_drained = true;
    go_back(before);
    return has_ended;
}

void tt_host_part(struct tt_host *host)
{
    bool gave_up;
    if (host == NULL || (!host->is_drained && !tt_host_drain(host, &gave_up))) {
        return; // what does not end uses it for ever
    }
    int before = go_to_device(host);
    free_host(host);
    go_back(before);
}
