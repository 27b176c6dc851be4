// Who came last, and who waited for whom: added up while operations end, told at the end.
// SPDX-License-Identifier: Apache-2.0
#include "base/params.h"
#include "record/record_internal.h"
#include "record/text.h"

#include <unistd.h>

bool tt_record_summarises(void)
{
    return tt_param_int(TT_PARAM_SUMMARY) != 0 || tt_record_traces();
}

void tt_record_add(struct tt_record_details *details, const struct tt_record_seen *seen)
{
    if (seen->state < TT_RECORD_ENDED) {
        return;
    }
    details->operations++;
    if (seen->last < 0 || seen->last >= details->owner.nranks) {
        return;
    }
    bool is_collective = seen->op.function < TT_COLLECTIVES;
    details->collectives += is_collective;
    if (seen->last == details->owner.rank) {
        details->came_last += is_collective;
        return;
    }
    uint64_t ticks = seen->ready > seen->entered ? seen->ready - seen->entered : 0;
    details->waits[seen->last].times++;
    details->waits[seen->last].ticks += ticks;
    details->longest = ticks > details->longest ? ticks : details->longest;
}

// The rank that was waited for longest, and all waits together.
struct waited {
    int most;
    uint64_t ticks;
};

static struct waited sum_up(const struct tt_record_details *details)
{
    struct waited waited = {-1, 0};
    for (int r = 0; r < details->owner.nranks; r++) {
        uint64_t ticks = details->waits[r].ticks;
        waited.ticks += ticks;
        if (ticks > 0 && (waited.most < 0 || ticks > details->waits[waited.most].ticks)) {
            waited.most = r;
        }
    }
    return waited;
}

static void print_rank(const struct tt_record_details *details, double ns_per_tick, FILE *file)
{
    char all[32], longest[32], last[48] = "-", most[64] = "-";
    struct waited waited = sum_up(details);
    tt_text_time((double)waited.ticks * ns_per_tick, all, sizeof all);
    tt_text_time((double)details->longest * ns_per_tick, longest, sizeof longest);
    if (details->collectives > 0) {
        (void)snprintf(last, sizeof last, "%llu of %llu (%.0f %%)",
                       (unsigned long long)details->came_last,
                       (unsigned long long)details->collectives,
                       100.0 * (double)details->came_last / (double)details->collectives);
    }
    if (waited.most >= 0) {
        (void)snprintf(most, sizeof most, "rank %d (%.0f %%)", waited.most,
                       100.0 * (double)details->waits[waited.most].ticks / (double)waited.ticks);
    }
    (void)fprintf(file, "tutti: %6d %12llu %24s %12s %12s   %s\n", details->owner.rank,
                  (unsigned long long)details->operations, last, all, longest, most);
}

static const struct tt_record_details *details_of(const struct tt_record *record)
{
    return record->details->waits != NULL && record->details->owner.nranks > 1 ? record->details
                                                                               : NULL;
}

// The record of communicator `hash` with the lowest rank above `above`, of both lists.
static const struct tt_record *next_rank(const struct tt_record_lists *lists, uint64_t hash,
                                         int above)
{
    const struct tt_record *heads[] = {lists->open, lists->closed}, *best = NULL;
    for (size_t i = 0; i < 2; i++) {
        for (const struct tt_record *r = heads[i]; r != NULL; r = r->details->next) {
            const struct tt_record_owner *owner = &r->details->owner;
            if (owner->hash == hash && owner->rank > above && details_of(r) != NULL &&
                (best == NULL || owner->rank < best->details->owner.rank)) {
                best = r;
            }
        }
    }
    return best;
}

static void print_communicator(const struct tt_record_lists *lists, uint64_t hash,
                               double ns_per_tick, FILE *file)
{
    const struct tt_record *record = next_rank(lists, hash, -1);
    (void)fprintf(file,
                  "tutti: %s (%d ranks), process %d: who came last, and how long ranks waited\n"
                  "tutti: %6s %12s %24s %12s %12s   %s\n",
                  record->details->name, record->details->owner.nranks, (int)getpid(), "rank",
                  "operations", "came last", "waited", "longest", "mostly for");
    while (record != NULL) {
        print_rank(record->details, ns_per_tick, file);
        record = next_rank(lists, hash, record->details->owner.rank);
    }
}

void tt_record_print_summary(const struct tt_record_lists *lists, FILE *file)
{
    const struct tt_record *heads[] = {lists->closed, lists->open};
    double ns_per_tick = tt_ticks_measure().ns_per_tick;
    for (size_t i = 0; i < 2; i++) {
        for (const struct tt_record *r = heads[i]; r != NULL; r = r->details->next) {
            // Each communicator where its first rank is met.
            if (details_of(r) != NULL && next_rank(lists, r->details->owner.hash, -1) == r) {
                print_communicator(lists, r->details->owner.hash, ns_per_tick, file);
            }
        }
    }
}
