// How teams begin: in one of the ways that there are to make first communicators. See soak.h.
// SPDX-License-Identifier: Apache-2.0
#include "soak.h"
#include "stopwatch.h"

#include <stdio.h>

enum way { PLAINLY, NONBLOCKING, SCALABLE, TWO_AT_ONCE, AFTER_ONE_GIVEN_UP, WAYS };

ncclResult_t await_ready(ncclComm_t comm, double most_s)
{
    struct stopwatch watch = stopwatch_start();
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress && stopwatch_is_within(&watch, most_s)) {
        if (!EXPECT_OK(ncclCommGetAsyncError(comm, &state))) {
            return ncclInternalError;
        }
        if (state == ncclInProgress) {
            sleep_ms(1);
        }
    }
    return state;
}

bool is_well(ncclResult_t result)
{
    if (!EXPECT(result == ncclSuccess || result == ncclInProgress)) {
        printf("it was %d, %s\n", (int)result, ncclGetLastError(NULL));
        return false;
    }
    return true;
}

// One player makes ids for all. Guests that are killed do not meet the others: they only look.
static void share_ids(struct player *p, int count)
{
    int makers = p->scenario->size - p->scenario->guests;
    if (p->index == (int)draw(&p->common, (unsigned)makers)) {
        for (int i = 0; i < count; i++) {
            EXPECT_OK(ncclGetUniqueId(&shared->ids[i]));
        }
        atomic_store(&shared->has_ids, 1);
    }
    while (!atomic_load(&shared->has_ids) && !atomic_load(&shared->failed)) {
        sleep_ms(1);
    }
}

static void add_life(struct player *p, int place, ncclComm_t comm)
{
    struct life *life = &p->lives[place];
    *life = (struct life){.count = p->scenario->size, .comm = comm};
    for (int r = 0; r < life->count; r++) {
        life->order[r] = r;
        life->members |= 1u << r;
    }
    count_event(COMMUNICATORS);
}

// A communicator of one rank more than there are: nobody waits for it for ever.
static void give_one_up(struct player *p, ncclConfig_t *config)
{
    ncclComm_t comm = NULL;
    ncclResult_t result =
        ncclCommInitRankConfig(&comm, p->scenario->size + 1, shared->ids[1], p->rank, config);
    if (EXPECT_EQ(result, ncclInProgress)) {
        sleep_ms((int)draw(&p->own, 20));
        EXPECT_OK(ncclCommAbort(comm));
        count_event(ABORTS);
    }
}

// In a group, and some of the ranks in the other order.
static void begin_two(struct player *p)
{
    ncclComm_t comms[2] = {NULL, NULL};
    int first = (int)draw(&p->own, 2);
    EXPECT_OK(ncclGroupStart());
    for (int i = 0; i < 2; i++) {
        int which = i ^ first;
        EXPECT_OK(ncclCommInitRank(&comms[which], p->scenario->size, shared->ids[which], p->rank));
    }
    if (EXPECT_OK(ncclGroupEnd())) {
        add_life(p, 0, comms[0]);
        add_life(p, 1, comms[1]);
    }
}

// Guests that die before they have said who they are would be waited for: not for more than 0.3 s.
static ncclResult_t await_ready_or_deaths(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    int since_ms = 0;
    while (state == ncclInProgress && since_ms < 300 && !atomic_load(&shared->failed)) {
        sleep_ms(1);
        since_ms += atomic_load(&shared->killed);
        EXPECT_OK(ncclCommGetAsyncError(comm, &state));
    }
    return state;
}

// Where the communicator does not come about on all that remain, all give up.
static bool begin_with_the_doomed(struct player *p, ncclConfig_t *config)
{
    ncclComm_t comm = NULL;
    const struct scenario *s = p->scenario;
    ncclResult_t result;
    if (p->is_guest) {
        (void)atomic_fetch_add(&shared->begun, 1);
    }
    result = ncclCommInitRankConfig(&comm, s->size, shared->ids[0], p->rank, config);
    if (!EXPECT_EQ(result, ncclInProgress)) {
        return false;
    }
    ncclResult_t state = await_ready_or_deaths(comm);
    EXPECT(state == ncclSuccess || state == ncclInProgress || state == ncclRemoteError);
    if (p->is_guest) {
        add_life(p, 0, comm);
        return true;
    }
    bool all = true;
    atomic_store(&shared->good[p->index], state == ncclSuccess);
    meet(p);
    for (int i = 0; i < s->size - s->guests; i++) {
        all = all && atomic_load(&shared->good[i]);
    }
    meet(p);
    if (!all) {
        EXPECT_OK(ncclCommAbort(comm));
        count_event(ABORTS);
        return false;
    }
    add_life(p, 0, comm);
    return true;
}

bool begin_lives(struct player *p)
{
    const struct scenario *s = p->scenario;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    enum way way = (enum way)draw(&p->common, WAYS);
    ncclComm_t comm = NULL;
    int ids = way == TWO_AT_ONCE || way == AFTER_ONE_GIVEN_UP ? 2 : 1;
    if (way == SCALABLE) {
        ids += (int)draw(&p->common, (unsigned)(s->size < MOST_IDS ? s->size : MOST_IDS));
    }
    share_ids(p, s->is_deadly ? 1 : ids);
    config.blocking = 0;
    config.commName = "soaked";
    if (s->is_deadly) {
        return begin_with_the_doomed(p, &config);
    }
    if (way == AFTER_ONE_GIVEN_UP) {
        give_one_up(p, &config);
    }
    switch (way) {
    case TWO_AT_ONCE:
        begin_two(p);
        break;
    case NONBLOCKING:
        EXPECT_EQ(ncclCommInitRankConfig(&comm, s->size, shared->ids[0], p->rank, &config),
                  ncclInProgress);
        EXPECT_EQ(await_ready(comm, 30), ncclSuccess);
        add_life(p, 0, comm);
        break;
    case SCALABLE:
        EXPECT_OK(ncclCommInitRankScalable(&comm, s->size, p->rank, ids, shared->ids, NULL));
        add_life(p, 0, comm);
        break;
    default:
        EXPECT_OK(ncclCommInitRank(&comm, s->size, shared->ids[0], p->rank));
        add_life(p, 0, comm);
        break;
    }
    meet(p);
    return true;
}
