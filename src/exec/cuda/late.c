// What ranks tell each other on the host: which operations they call, whether these are the same,
// and who is late. See host.h.
// SPDX-License-Identifier: Apache-2.0
#include "base/gpu.h"
#include "base/log.h"
#include "base/wait.h"
#include "exec/cuda/host.h"
#include "exec/rmsnorm_claim.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SIGNATURE_BITS = 40 };
static const uint64_t signature_mask = (UINT64_C(1) << SIGNATURE_BITS) - 1;
// A rank that is this late is named, and again each time the wait has doubled. It is no error.
static const uint64_t late_ns = UINT64_C(10000000000);

// ---- Comparing ----------------------------------------------------------------------------------

static struct tt_entry *entry_of(const struct tt_host *host, int rank, uint64_t number,
                                 bool captured)
{
    struct tt_line *line = tt_arena_line(host->arena, rank);
    return (captured ? line->captured : line->entry) + number % TT_ARENA_ENTRIES;
}

static void describe(const struct tt_entry *entry, char *text, size_t bytes)
{
    struct tt_op op = {.function = TT_FUSED_RMSNORM,
                       .count = entry->call.count,
                       .type = entry->call.type < ncclNumTypes ? (ncclDataType_t)entry->call.type
                                                               : ncclInt8};
    tt_op_describe(&op, text, bytes);
}

static void disagree(struct tt_host *host, const struct tt_entry *mine,
                     const struct tt_entry *theirs, int rank, const char *number)
{
    char call[120], what[200];
    // As the lower of both ranks sees it.
    const struct tt_entry *lower = rank < host->team.rank ? theirs : mine;
    const struct tt_entry *upper = rank < host->team.rank ? mine : theirs;
    int first = rank < host->team.rank ? rank : host->team.rank;
    int second = rank < host->team.rank ? host->team.rank : rank;
    describe(lower, call, sizeof call);
    if (!tt_rmsnorm_difference(lower, upper, what, sizeof what)) {
        (void)snprintf(what, sizeof what, "by an unknown field");
    }
    (void)tt_host_fail(host, ncclInvalidUsage,
                       "rank %d: %s %s on %s: the call of rank %d differs: %s", first, call, number,
                       host->team.comm_name, second, what);
}

// Whether a rank's call is that of `mine`, as far as it can be known.
static bool agrees(struct tt_host *host, const struct tt_entry *mine, uint64_t word, int rank,
                   uint64_t number, bool captured)
{
    struct tt_entry *entry = entry_of(host, rank, number, captured), copy;
    char text[48];
    uint64_t theirs = atomic_load(&entry->word);
    if (theirs == word || theirs >> SIGNATURE_BITS != word >> SIGNATURE_BITS) {
        return true; // the same, not there yet, or long ago
    }
    copy.call = entry->call;
    memcpy(copy.payload, entry->payload, sizeof copy.payload);
    if (atomic_load(&entry->word) != theirs) {
        return true; // it has gone on meanwhile, and was compared by who came later
    }
    (void)snprintf(text, sizeof text, "#%" PRIu64 "%s", number,
                   captured ? " of those captured" : "");
    disagree(host, mine, &copy, rank, text);
    return false;
}

bool tt_host_tell(struct tt_host *host, const struct tt_rmsnorm *operation, uint64_t number,
                  bool captured)
{
    struct tt_line *line = tt_arena_line(host->arena, host->team.rank);
    struct tt_entry *entry = entry_of(host, host->team.rank, number, captured), mine;
    tt_rmsnorm_claim(operation, &mine);
    uint64_t word = number << SIGNATURE_BITS | (tt_rmsnorm_signature(&mine) & signature_mask);
    atomic_store(&entry->word, 0);
    entry->call = mine.call;
    memcpy(entry->payload, mine.payload, sizeof entry->payload);
    // In one order with the looks at others' words: of two ranks at least one sees both.
    atomic_store(&entry->word, word);
    if (!captured) {
        atomic_store_explicit(&line->called, number, memory_order_release);
    }
    for (int r = 0; host->compares && r < host->team.nranks; r++) {
        if (r != host->team.rank && !agrees(host, &mine, word, r, number, captured)) {
            return false;
        }
    }
    return true;
}

// ---- Who is late --------------------------------------------------------------------------------

static uint64_t called_by(const struct tt_host *host, int rank)
{
    return atomic_load_explicit(&tt_arena_line(host->arena, rank)->called, memory_order_acquire);
}

// What a rank has done with the communicator, so that it calls nothing any more; NULL: nothing.
static const char *departure(const struct tt_host *host, int rank)
{
    uint32_t end =
        atomic_load_explicit(&tt_arena_line(host->arena, rank)->end, memory_order_acquire);
    bool has_left = host->team.has_left != NULL &&
                    atomic_load_explicit(&host->team.has_left[rank], memory_order_acquire) != 0;
    return end == TT_FINALIZED ? "finalized" : end == TT_DESTROYED || has_left ? "destroyed" : NULL;
}

// "rank 2 (its last one was #3), rank 4 (it has called none yet)". Returns how many.
static int list_late(const struct tt_host *host, uint64_t number, char *text, size_t bytes)
{
    size_t used = 0;
    int count = 0;
    text[0] = 0;
    for (int r = 0; r < host->team.nranks; r++) {
        uint64_t called = called_by(host, r);
        if (called >= number) {
            continue;
        }
        count++;
        if (used + 72 < bytes) {
            used +=
                (size_t)snprintf(text + used, bytes - used, "%srank %d ", used > 0 ? ", " : "", r);
            used += (size_t)snprintf(text + used, bytes - used,
                                     called == 0 ? "(it has called none yet)"
                                                 : "(its last one was #%" PRIu64 ")",
                                     called);
        } else if (used + 4 < bytes && text[used - 1] != '.') {
            used += (size_t)snprintf(text + used, bytes - used, "...");
        }
    }
    return count;
}

// The least number of calls that a rank has made, up to those of this one.
static uint64_t least_called(const struct tt_host *host)
{
    uint64_t least = atomic_load(&host->calls);
    for (int r = 0; r < host->team.nranks; r++) {
        uint64_t called = called_by(host, r);
        least = called < least ? called : least;
    }
    return least;
}

bool tt_host_have_all_called(const struct tt_host *host)
{
    return least_called(host) == atomic_load(&host->calls);
}

// The operation that this rank has called and that has not ended; 0: there is none. *all_out: all
// ranks have called it.
static uint64_t waited_for(const struct tt_host *host, bool *all_out)
{
    uint64_t number = atomic_load(&host->calls), least = least_called(host);
    *all_out = least == number;
    if (!*all_out) {
        return least + 1;
    }
    return number == 0 || !tt_host_is_busy(host, host->group->done) ? 0 : number;
}

// A rank that has left calls nothing any more.
static bool fail_for_leaver(struct tt_host *host, const char *call)
{
    for (int r = 0; r < host->team.nranks; r++) {
        const char *what = departure(host, r);
        if (what != NULL && called_by(host, r) < host->late.number) {
            (void)tt_host_fail(host, ncclRemoteError,
                               "rank %d: %s: rank %d has %s the communicator and will never enter "
                               "it",
                               host->team.rank, call, r, what);
            return true;
        }
    }
    return false;
}

// With the mutex of `late` held.
static void report(struct tt_host *host, uint64_t now_ns)
{
    struct tt_lateness *late = &host->late;
    char operation[120], call[240], missing[400];
    const struct tt_entry *entry = entry_of(host, host->team.rank, late->number, false);
    if (atomic_load(&entry->word) >> SIGNATURE_BITS ==
        late->number << SIGNATURE_BITS >> SIGNATURE_BITS) {
        describe(entry, operation, sizeof operation);
    } else { // this rank is far ahead
        (void)snprintf(operation, sizeof operation, "an operation");
    }
    (void)snprintf(call, sizeof call, "%s #%" PRIu64 " on %s", operation, late->number,
                   host->team.comm_name);
    uint64_t waited_ns = now_ns - late->since_ns;
    if (!late->has_come) {
        if (fail_for_leaver(host, call)) {
            return;
        }
        int count =
            list_late(host, late->number, missing, host->team.limit_ns > 0 ? 200 : sizeof missing);
        if (count > 0 && host->team.limit_ns > 0 && waited_ns >= host->team.limit_ns) {
            (void)tt_host_fail(host, ncclTimeout,
                               "rank %d: %s: %d of %d did not enter within %" PRIu64
                               " s (TUTTI_TIMEOUT): %s",
                               host->team.rank, call, count, host->team.nranks,
                               host->team.limit_ns / 1000000000, missing);
            return;
        }
        if (count > 0 && now_ns >= late->next_report_ns) {
            tt_say("rank %d: %s: waiting for %d of %d to enter: %s, for %" PRIu64 " s so far",
                   host->team.rank, call, count, host->team.nranks, missing,
                   waited_ns / 1000000000);
        }
    } else if (now_ns >= late->next_report_ns) {
        tt_say("rank %d: %s: all ranks have called it, but it has not ended on %s, for %" PRIu64
               " s so far: other work is before it in a stream; or ranks call operations of two "
               "communicators in different orders, on streams that they share; or streams share a "
               "hardware queue (CUDA_DEVICE_MAX_CONNECTIONS)",
               host->team.rank, call, tt_gpu(host->team.device)->name, waited_ns / 1000000000);
    }
    if (now_ns >= late->next_report_ns) {
        late->next_report_ns += waited_ns;
    }
}

// What has ended of the group's operations, as far as it is known.
static uint32_t ended(const struct tt_host *host)
{
    return atomic_load_explicit(&tt_arena_words(host->arena, host->group->rank[0])->met,
                                memory_order_relaxed);
}

void tt_host_look_for_late(struct tt_host *host)
{
    struct tt_lateness *late = &host->late;
    if (pthread_mutex_trylock(&late->mutex) != 0) {
        return; // somebody looks
    }
    bool has_come = false;
    uint64_t number = waited_for(host, &has_come), now_ns = tt_now_ns();
    uint32_t now_ended = ended(host);
    // Where all have called, newer calls are no progress, and ends of older ones are.
    bool stands = has_come ? late->has_come && now_ended == late->ended && late->number != 0
                           : !late->has_come && number == late->number;
    late->ended = now_ended;
    if (!stands || number == 0) {
        late->number = number;
        late->has_come = has_come;
        late->since_ns = now_ns;
        late->next_report_ns = now_ns + late_ns;
    } else {
        late->number = number;
        report(host, now_ns);
    }
    (void)pthread_mutex_unlock(&late->mutex);
    if (has_come && number != 0) {
        atomic_store_explicit(&host->group->is_watched, true, memory_order_relaxed);
    }
}
