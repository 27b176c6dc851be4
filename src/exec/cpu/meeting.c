// Operations of the host team: entering, comparing, leaving, signals. See host.h.
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/host.h"

#include "base/log.h"
#include "exec/rmsnorm_claim.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SIGNATURE_BITS = 40, SIGNAL_BITS = 20 };
static const uint64_t signature_mask = (UINT64_C(1) << SIGNATURE_BITS) - 1;

static uint64_t word_of(uint64_t sequence, uint64_t signature)
{
    return sequence << SIGNATURE_BITS | (signature & signature_mask);
}

// ---- Descriptions -------------------------------------------------------------------------------

void tt_call_describe(const struct tt_call *call, char *text, size_t bytes)
{
    struct tt_op op = {.function = (enum tt_function)call->function,
                       .is_uneven = (call->flags & TT_CALL_UNEVEN) != 0,
                       .count = call->count,
                       .type = (ncclDataType_t)call->type,
                       .op = (enum tt_reduce_operator)call->op,
                       .root = call->root};
    if (call->function >= TT_FUNCTIONS || call->type >= ncclNumTypes ||
        call->op >= TT_REDUCE_OPERATORS) { // another process's memory: it may be anything
        (void)snprintf(text, bytes, "an unknown operation");
        return;
    }
    tt_op_describe(&op, text, bytes);
}

void tt_host_describe_last(const struct tt_host *host, int rank, char *text, size_t bytes)
{
    const struct tt_own *own = tt_arena_own(host->arena, rank);
    uint64_t entered = atomic_load_explicit(&own->entered, memory_order_acquire);
    if (entered == 0) {
        (void)snprintf(text, bytes, "it has entered none yet");
        return;
    }
    struct tt_call last = tt_arena_last_call(own);
    char call[120];
    tt_call_describe(&last, call, sizeof call);
    (void)snprintf(text, bytes, "its last one was %s #%" PRIu64, call, entered);
}

void tt_host_describe_own(const struct tt_host *host, char *text, size_t bytes)
{
    char call[120];
    tt_call_describe(&tt_host_entry(host, host->rank)->call, call, sizeof call);
    (void)snprintf(text, bytes, "%s #%" PRIu64 " on %s", call, host->sequence,
                   host->team.comm_name == NULL ? "?" : host->team.comm_name);
}

// ---- What is waited for -------------------------------------------------------------------------

static bool has_entered(const struct tt_host *host, int rank)
{
    // A1: pairs with R1 in tt_host_enter.
    uint64_t word = atomic_load_explicit(&tt_host_entry(host, rank)->word, memory_order_acquire);
    return word >> SIGNATURE_BITS == word_of(host->sequence, 0) >> SIGNATURE_BITS;
}

static bool has_finished(const struct tt_host *host, int rank)
{
    // A2: pairs with R2 in tt_host_leave.
    return atomic_load_explicit(&tt_arena_own(host->arena, rank)->left, memory_order_acquire) >=
           host->sequence;
}

struct step {
    bool (*has_come)(const struct tt_host *host, int rank);
    const char *name;
};
static const struct step enter_step = {has_entered, "enter"};
static const struct step leave_step = {has_finished, "finish"};

// "rank 2 (its last one was ... #3), rank 4 (...)": who has not come, from `first` on.
static int list_late(const struct tt_host *host, const struct step *step, int first, char *text,
                     size_t bytes)
{
    size_t used = 0;
    int count = 0;
    text[0] = 0;
    for (int rank = first; rank < host->nranks; rank++) {
        char last[160];
        if (step->has_come(host, rank)) {
            continue;
        }
        count++;
        tt_host_describe_last(host, rank, last, sizeof last);
        if (used + sizeof last + 24 < bytes) {
            used += (size_t)snprintf(text + used, bytes - used, "%srank %d (%s)",
                                     used > 0 ? ", " : "", rank, last);
        } else if (used + 4 < bytes && count > 1 && text[used - 1] != '.') {
            used += (size_t)snprintf(text + used, bytes - used, "...");
        }
    }
    return count;
}

static enum tt_progress wait_on(struct tt_host *host, const struct step *step, int first)
{
    char own[200], late[700];
    enum tt_news news = tt_host_wait(host, &host->watch);
    if (news == TT_GO_ON) {
        return TT_WAITING;
    }
    if (news == TT_OVER) {
        return TT_FAILED;
    }
    tt_host_describe_own(host, own, sizeof own);
    int count = list_late(host, step, first, late, news == TT_LIMIT ? 240 : sizeof late);
    if (news == TT_LIMIT) {
        (void)tt_host_fail(
            host, ncclTimeout,
            "rank %d: %s: %d of %d did not %s within %" PRIu64 " s (TUTTI_TIMEOUT): %s", host->rank,
            own, count, host->nranks, step->name, host->limit_ns / 1000000000, late);
        return TT_FAILED;
    }
    tt_say("rank %d: %s: waiting for %d of %d to %s: %s, for %" PRIu64 " s so far", host->rank, own,
           count, host->nranks, step->name, late, tt_watch_seconds(&host->watch));
    return TT_WAITING;
}

// Whether all ranks from *first on have made the step; *first grows.
static enum tt_progress await_step(struct tt_host *host, const struct step *step, int *first)
{
    while (*first < host->nranks && step->has_come(host, *first)) {
        ++*first;
    }
    if (*first == host->nranks) {
        return TT_DONE;
    }
    if (!step->has_come(host, host->rank)) { // it has: it comes here afterwards
        char own[200];
        tt_host_describe_own(host, own, sizeof own);
        (void)tt_host_fail(host, ncclSystemError,
                           "rank %d: %s: what rank %d itself wrote to the memory that the ranks "
                           "share, so as to %s it, was overwritten: some process of the "
                           "communicator writes where it must not",
                           host->rank, own, host->rank, step->name);
        return TT_FAILED;
    }
    int rank = *first;
    host->late = step == &enter_step ? rank : host->late;
    const char *departure = tt_host_departure(host, rank);
    if (departure != NULL && !step->has_come(host, rank)) {
        char own[200];
        tt_host_describe_own(host, own, sizeof own);
        (void)tt_host_fail(host, ncclRemoteError,
                           "rank %d: %s: rank %d has %s the communicator and will never %s it",
                           host->rank, own, rank, departure, step->name);
        return TT_FAILED;
    }
    return wait_on(host, step, rank);
}

// ---- Operations ---------------------------------------------------------------------------------

void tt_host_enter(struct tt_host *host, const struct tt_entry *entry, uint64_t signature)
{
    uint64_t sequence = ++host->sequence;
    struct tt_entry *mine = tt_arena_entry(host->arena, host->rank, sequence);
    struct tt_own *own = tt_arena_own(host->arena, host->rank);
    host->met = host->gone = 0;
    host->late = -1;
    host->watch = (struct tt_watch){0};
    mine->call = entry->call;
    memcpy(mine->payload, entry->payload, sizeof mine->payload);
    tt_arena_tell_call(own, &entry->call);
    // R1: what this rank wrote before (its input, its entry) is visible to who reads the word.
    host->word = word_of(sequence, signature);
    atomic_store_explicit(&mine->word, host->word, memory_order_release);
    atomic_store_explicit(&own->entered, sequence, memory_order_release);
    tt_record_entered(host->line, sequence);
}

static uint64_t entered_word(const struct tt_host *host, int rank)
{
    return atomic_load_explicit(&tt_host_entry(host, rank)->word, memory_order_relaxed);
}

// How many ranks called what `rank` did.
static int count_alike(const struct tt_host *host, int rank)
{
    uint64_t word = entered_word(host, rank);
    int count = 0;
    for (int r = 0; r < host->nranks; r++) {
        count += entered_word(host, r) == word;
    }
    return count;
}

// The first rank that called what most did.
static int find_usual(const struct tt_host *host)
{
    int usual = 0, most = 0;
    for (int rank = 0; rank < host->nranks && 2 * most <= host->nranks; rank++) {
        int count = count_alike(host, rank);
        usual = count > most ? rank : usual;
        most = count > most ? count : most;
    }
    return usual;
}

// The calls are not one. The text is the same whichever rank finds it: what most called, and the
// first rank that called something else.
static void disagree(struct tt_host *host)
{
    int usual = find_usual(host), odd = 0;
    while (odd + 1 < host->nranks && entered_word(host, odd) == entered_word(host, usual)) {
        odd++;
    }
    const struct tt_entry *most = tt_host_entry(host, usual), *other = tt_host_entry(host, odd);
    char call[120], what[200], alike[48] = "";
    tt_call_describe(&most->call, call, sizeof call);
    int count = count_alike(host, usual);
    if (count > 1) {
        (void)snprintf(alike, sizeof alike, ", as %d of %d ranks", count, host->nranks);
    }
    const char *name = host->team.comm_name == NULL ? "?" : host->team.comm_name;
    if (most->call.function == TT_FUSED_RMSNORM && other->call.function == TT_FUSED_RMSNORM &&
        tt_rmsnorm_difference(most, other, what, sizeof what)) {
        (void)tt_host_fail(host, ncclInvalidUsage,
                           "rank %d: %s #%" PRIu64 " on %s%s: the call of rank %d differs: %s",
                           usual, call, host->sequence, name, alike, odd, what);
        return;
    }
    tt_call_describe(&other->call, what, sizeof what);
    (void)tt_host_fail(host, ncclInvalidUsage,
                       "rank %d: %s #%" PRIu64
                       " on %s%s, but rank %d called %s: all ranks must make the same calls "
                       "in the same order",
                       usual, call, host->sequence, name, alike, odd, what);
}

// All have entered: whether they mean the same. Signatures of 0 are not compared.
static bool agree(struct tt_host *host)
{
    uint64_t mine = entered_word(host, host->rank);
    for (int rank = 0; rank < host->nranks && (mine & signature_mask) != 0; rank++) {
        uint64_t theirs = entered_word(host, rank);
        if (theirs != mine && (theirs & signature_mask) != 0) {
            disagree(host);
            return false;
        }
    }
    return true;
}

// Whether all have entered and mean the same: one comparison a rank says both.
static bool is_met(const struct tt_host *host)
{
    for (int rank = 0; rank < host->nranks; rank++) {
        // A1
        if (atomic_load_explicit(&tt_host_entry(host, rank)->word, memory_order_acquire) !=
            host->word) {
            return false;
        }
    }
    return true;
}

enum tt_progress tt_host_meet(struct tt_host *host)
{
    if (host->late < 0 && is_met(host)) {
        return TT_DONE;
    }
    enum tt_progress progress = await_step(host, &enter_step, &host->met);
    if (progress == TT_DONE) {
        host->watch = (struct tt_watch){0};
        if (host->late >= 0) {
            tt_record_ready(host->line, host->late);
        }
        return agree(host) ? TT_DONE : TT_FAILED;
    }
    return progress;
}

void tt_host_leave(struct tt_host *host)
{
    // R2: what this rank wrote to others' memory is visible to who reads the number.
    atomic_store_explicit(&tt_arena_own(host->arena, host->rank)->left, host->sequence,
                          memory_order_release);
}

enum tt_progress tt_host_all_left(struct tt_host *host)
{
    return await_step(host, &leave_step, &host->gone);
}

// ---- Signals ------------------------------------------------------------------------------------
// A counter holds the operation's number above its own, so that it never goes back and needs no
// reset.

void tt_host_signal(struct tt_host *host, int peer, int channel)
{
    _Atomic uint64_t *counter = tt_arena_signal(host->arena, peer, host->rank, channel);
    uint64_t base = host->sequence << SIGNAL_BITS;
    uint64_t old = atomic_load_explicit(counter, memory_order_relaxed), next;
    do { // lanes of this rank alone write it
        next = (old > base ? old : base) + 1;
    } while (!atomic_compare_exchange_weak_explicit(counter, &old, next, memory_order_release,
                                                    memory_order_relaxed));
}

bool tt_host_signalled(const struct tt_host *host, int peer, int channel, uint32_t number)
{
    const _Atomic uint64_t *counter = tt_arena_signal(host->arena, host->rank, peer, channel);
    return atomic_load_explicit(counter, memory_order_acquire) >=
           (host->sequence << SIGNAL_BITS) + number;
}
