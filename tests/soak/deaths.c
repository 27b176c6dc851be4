// Guests are killed while the team works; those that remain shrink the communicator and go on. See
// soak.h. SPDX-License-Identifier: Apache-2.0
#include "soak.h"
#include "stopwatch.h"

#include <stdio.h>

// What all do until somebody dies: sums, and now and then a child. False: an operation or a call
// has failed.
static bool work_or_fail(struct player *p, struct life *life)
{
    struct member m = member_of(p, life);
    unsigned what = draw(&p->common, 8), count = 1 + draw_size(&p->common, 50000);
    if (what > 0) {
        return add_up(&m, count);
    }
    ncclComm_t child = NULL;
    ncclResult_t result = ncclCommSplit(m.comm, 0, m.rank, &child, NULL);
    bool good = (result == ncclSuccess || result == ncclInProgress) && child != NULL &&
                await_ready(m.comm, 30) == ncclSuccess && await_ready(child, 30) == ncclSuccess;
    if (child != NULL) {
        m.comm = child;
        good = good && add_up(&m, count);
        result = good ? ncclCommDestroy(child) : ncclCommAbort(child);
        EXPECT(result == ncclSuccess || result == ncclRemoteError);
    }
    return good;
}

// The ranks of the guests.
static int list_guests(const struct player *p, int *ranks_out)
{
    const struct scenario *s = p->scenario;
    for (int i = 0; i < s->guests; i++) {
        ranks_out[i] = (s->size - s->guests + i + s->shift) % s->size;
    }
    return s->guests;
}

static bool is_listed(const int *ranks, int count, int rank)
{
    for (int i = 0; i < count; i++) {
        if (ranks[i] == rank) {
            return true;
        }
    }
    return false;
}

bool survive(struct player *p)
{
    struct life *parent = &p->lives[0], child = {.count = 0};
    struct stopwatch watch = stopwatch_start();
    int dead[MOST_RANKS], count = list_guests(p, dead);
    struct draws afterwards = draw_draws(&p->common);
    ncclResult_t state = ncclSuccess;
    while (work_or_fail(p, parent) && (p->is_guest || stopwatch_is_within(&watch, 30))) {
    }
    if (p->is_guest) { // this one outlives another
        sleep_ms(60000);
    }
    watch = stopwatch_start();
    do { // a call may fail before the communicator has heard of it
        sleep_ms(1);
        EXPECT_OK(ncclCommGetAsyncError(parent->comm, &state));
    } while ((state == ncclSuccess || state == ncclInProgress) && stopwatch_is_within(&watch, 3));
    if (!EXPECT_EQ(state, ncclRemoteError)) {
        printf("%s\n", ncclGetLastError(NULL));
    }
    for (int i = 0; i < parent->count; i++) {
        if (!is_listed(dead, count, parent->order[i])) {
            child.order[child.count++] = parent->order[i];
            child.members |= 1u << parent->order[i];
        }
    }
    while (!atomic_load(&shared->killed) && !atomic_load(&shared->failed)) {
        sleep_ms(1);
    }
    ncclResult_t result =
        ncclCommShrink(parent->comm, dead, count, &child.comm, NULL, NCCL_SHRINK_ABORT);
    if (is_well(result)) {
        is_well(await_ready(child.comm, 30));
        count_event(SHRINKS);
        count_event(COMMUNICATORS);
        p->lives[1] = child;
    }
    ncclComm_t comm = parent->comm;
    *parent = (struct life){.count = 0};
    p->common = afterwards; // they have drawn more, or less, before they met the failure
    meet(p);
    if (draw(&p->own, 2) == 0) {
        EXPECT_OK(ncclCommAbort(comm));
    } else {
        (void)ncclCommDestroy(comm);
        EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidArgument);
    }
    return true;
}
