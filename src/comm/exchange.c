// Exchanges on a board, and what a child's making needs. See board.h.
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "base/wait.h"
#include "comm/board_internal.h"
#include "comm/comm.h"
#include "comm/meet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE_BITS = 20 }; // of an exchange, in the word that tells its number
static const uint64_t look_ns = 20000000, first_notice_ns = UINT64_C(10000000000);

// ---- Waiting ------------------------------------------------------------------------------------

// What is waited for, by rank.
struct awaited {
    // 1: it has come; 0: not yet; less: it will not, and tt_fail was called with the result -r.
    int (*has_come)(const struct ncclComm *comm, int rank, const struct awaited *what);
    uint64_t value;
    const int *members; // whose; NULL: all ranks
    int count;
    const uint64_t *before; // [nranks][2] survivor and gave_up of each when it began
    bool of_survivors;      // the communicator has failed, and others' deaths mean nothing
};

static int member_of(const struct awaited *what, int index)
{
    return what->members == NULL ? index : what->members[index];
}

// Names who is late, from the index-th on.
static void tell_late(const struct ncclComm *comm, const struct awaited *what, int index,
                      uint64_t waited_ns)
{
    char list[256];
    size_t used = 0;
    int late = 0;
    for (int i = index; i < what->count; i++) {
        int rank = member_of(what, i);
        if (what->has_come(comm, rank, what) != 0) {
            continue;
        }
        late++;
        if (used + 24 < sizeof list) {
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%d", used > 0 ? ", " : "",
                                     rank);
        } else if (list[used - 1] != '.') {
            used += (size_t)snprintf(list + used, sizeof list - used, ", ...");
        }
    }
    tt_say("rank %d: %s: waiting for %d of %d ranks of %s: %s, for %llu s so far", comm->rank,
           tt_meet_what(), late, what->count, comm->name, list,
           (unsigned long long)(waited_ns / 1000000000));
}

static ncclResult_t was_aborted(const struct ncclComm *comm)
{
    return tt_fail(ncclInternalError, "rank %d: the communicator was aborted", comm->rank);
}

// Whether the wait may go on.
static ncclResult_t check_aborts(const struct ncclComm *comm, const struct awaited *what)
{
    const struct ncclComm *child = comm->child;
    const struct tt_making *making = comm->making;
    if (atomic_load(&comm->is_aborted) ||
        (making != NULL && atomic_load(&making->parent->is_aborted))) {
        return was_aborted(comm);
    }
    if (child != NULL && atomic_load_explicit(child->abort_flag, memory_order_acquire) != 0) {
        return was_aborted(child);
    }
    if (!what->of_survivors && atomic_load_explicit(comm->abort_flag, memory_order_acquire) != 0) {
        int error = atomic_load(&comm->async_error);
        bool is_told = atomic_load_explicit(&comm->told, memory_order_acquire) == 2;
        return error == ncclSuccess || !is_told
                   ? was_aborted(comm)
                   : tt_fail((ncclResult_t)error, "%s", tt_comm_failure_text(comm));
    }
    return ncclSuccess;
}

static ncclResult_t check_others(struct ncclComm *comm, const struct awaited *what)
{
    const struct tt_board *board = comm->board;
    const struct tt_making *making = comm->making;
    char text[512];
    if (making != NULL) {
        TRY(tt_board_look_at_members(making->parent, making->tag, making->members, making->count));
    }
    if (!what->of_survivors) {
        ncclResult_t result = tt_meet_look(comm);
        if (result != ncclSuccess) {
            tt_meet_failure(comm, text, sizeof text);
            return tt_fail(result, "%s", text);
        }
    }
    bool has_deaths = tt_family_has_deaths(board->family);
    for (int i = 0; i < what->count; i++) {
        int rank = member_of(what, i);
        if (has_deaths && tt_board_has_died(board, rank)) {
            tt_board_describe_death(board, rank, text, sizeof text);
            return tt_fail(ncclRemoteError, "rank %d: %s", comm->rank, text);
        }
        // First: who has left may have come before.
        bool has_left =
            atomic_load_explicit(&tt_board_left(board)[rank], memory_order_acquire) != 0;
        if (has_left && what->has_come(comm, rank, what) == 0) {
            return tt_fail(ncclRemoteError,
                           "rank %d: rank %d has destroyed the communicator while others wait for "
                           "it",
                           comm->rank, rank);
        }
    }
    return ncclSuccess;
}

// When a wait looks at the others.
struct looks {
    uint64_t start_ns, next_ns, next_notice_ns;
};

// Looks at them and tells of them, where it is time to; the first that is missing is the i-th.
static ncclResult_t look_in_time(struct ncclComm *comm, const struct awaited *what, int i,
                                 struct looks *looks)
{
    uint64_t now = tt_now_ns();
    if (now >= looks->next_ns) {
        looks->next_ns = now + look_ns;
        TRY(check_others(comm, what));
    }
    if (now >= looks->next_notice_ns) {
        tell_late(comm, what, i, now - looks->start_ns);
        looks->next_notice_ns += looks->next_notice_ns - looks->start_ns;
    }
    return ncclSuccess;
}

static ncclResult_t await(struct ncclComm *comm, const struct awaited *what)
{
    struct tt_wait wait = tt_wait_begin(NULL);
    struct looks looks = {wait.start_ns, wait.start_ns + look_ns, wait.start_ns + first_notice_ns};
    for (int i = 0; i < what->count;) {
        int come = what->has_come(comm, member_of(what, i), what);
        if (come < 0) {
            return (ncclResult_t)-come;
        }
        if (come > 0) {
            i++;
            continue;
        }
        TRY(check_aborts(comm, what));
        (void)tt_wait_round(&wait);
        TRY(wait.rounds % 64 != 0 ? ncclSuccess : look_in_time(comm, what, i, &looks));
    }
    return ncclSuccess;
}

// ---- Exchanges ----------------------------------------------------------------------------------

static uint64_t step_of(uint64_t posted)
{
    return posted >> SIZE_BITS;
}

uint64_t tt_board_step(const struct ncclComm *comm)
{
    return step_of(atomic_load_explicit(&tt_board_desk(comm->board, comm->rank)->posted,
                                        memory_order_relaxed));
}

static int has_posted(const struct ncclComm *comm, int rank, const struct awaited *what)
{
    uint64_t posted =
        atomic_load_explicit(&tt_board_desk(comm->board, rank)->posted, memory_order_acquire);
    return step_of(posted) >= what->value;
}

static void post(const struct ncclComm *comm, const void *data, size_t bytes)
{
    uint64_t step = tt_board_step(comm) + 1;
    _Atomic uint64_t *place = tt_board_data(comm->board, comm->rank, step, bytes);
    for (size_t done = 0; done < bytes; done += 8) {
        uint64_t word = 0;
        memcpy(&word, (const char *)data + done, bytes - done < 8 ? bytes - done : 8);
        atomic_store_explicit(place + done / 8, word, memory_order_relaxed);
    }
    // B1: the data are visible to who reads the number.
    atomic_store_explicit(&tt_board_desk(comm->board, comm->rank)->posted,
                          step << SIZE_BITS | (uint64_t)bytes, memory_order_release);
}

// The data of a rank's exchange `step`; an error where it is of another kind, or gone already.
static ncclResult_t read_data(const struct ncclComm *comm, int rank, uint64_t step, void *data_out,
                              size_t bytes)
{
    const struct tt_desk *desk = tt_board_desk(comm->board, rank);
    const _Atomic uint64_t *place = tt_board_data(comm->board, rank, step, bytes);
    // B2: pairs with B1.
    uint64_t posted = atomic_load_explicit(&desk->posted, memory_order_acquire);
    for (size_t done = 0; done < bytes; done += 8) {
        // Acquire: the number is looked at again after them.
        uint64_t word = atomic_load_explicit(place + done / 8, memory_order_acquire);
        memcpy((char *)data_out + done, &word, bytes - done < 8 ? bytes - done : 8);
    }
    uint64_t now = atomic_load_explicit(&desk->posted, memory_order_relaxed);
    uint64_t size = posted & ((UINT64_C(1) << SIZE_BITS) - 1);
    bool differs = step_of(posted) == step && size != bytes;
    if (!differs && step_of(now) < step + TT_BOARD_PLACES) {
        return ncclSuccess;
    }
    ncclResult_t result =
        tt_fail(ncclInvalidUsage,
                "rank %d: rank %d is at set-up step %llu with %zu bytes, this rank at step %llu "
                "with %zu: all ranks must make the same calls in the same order",
                comm->rank, rank, (unsigned long long)step_of(now), (size_t)size,
                (unsigned long long)step, bytes);
    if (differs) { // who reads later, when this rank has gone on, does not see it
        tt_board_fail(comm->board, result, -1, tt_thread_error());
    }
    return result;
}

// One exchange of up to TT_BOARD_PIECE bytes a rank, which lie `pitch` bytes apart.
static ncclResult_t exchange(struct ncclComm *comm, char *data, size_t pitch, size_t bytes)
{
    struct awaited what = {
        .has_come = has_posted, .value = tt_board_step(comm), .count = comm->nranks};
    TRY(await(comm, &what)); // the place is free: everybody has begun the exchange before
    post(comm, data + (size_t)comm->rank * pitch, bytes);
    what.value++;
    TRY(await(comm, &what));
    for (int r = 0; r < comm->nranks; r++) {
        TRY(r == comm->rank ? ncclSuccess
                            : read_data(comm, r, what.value, data + (size_t)r * pitch, bytes));
    }
    return ncclSuccess;
}

ncclResult_t tt_board_allgather(struct ncclComm *comm, void *data, size_t bytes)
{
    size_t done = 0;
    do {
        size_t piece = bytes - done < TT_BOARD_PIECE ? bytes - done : TT_BOARD_PIECE;
        TRY(exchange(comm, (char *)data + done, bytes, piece));
        done += piece;
    } while (done < bytes);
    return ncclSuccess;
}

void tt_board_refuse(struct ncclComm *comm, const void *data, size_t bytes)
{
    post(comm, data, bytes);
}

// ---- Making a child -----------------------------------------------------------------------------

static ncclResult_t why_given_up(const struct ncclComm *comm, int rank)
{
    return tt_fail(ncclRemoteError, "rank %d: rank %d of %s failed: %s", comm->rank, rank,
                   comm->name, tt_board_note(comm->board, rank)->why);
}

// That child, or a later one of the same ranks, of which the word tells then.
static bool has_given_up(const struct ncclComm *comm, int rank, uint64_t tag)
{
    const struct tt_desk *desk = tt_board_desk(comm->board, rank);
    return tt_shrinks_reach(atomic_load_explicit(&desk->gave_up, memory_order_acquire), tag);
}

ncclResult_t tt_board_look_at_members(const struct ncclComm *comm, uint64_t tag, const int *members,
                                      int count)
{
    for (int i = 0; i < count; i++) {
        if (has_given_up(comm, members[i], tag)) {
            return why_given_up(comm, members[i]);
        }
    }
    return ncclSuccess;
}

void tt_board_give_up(struct ncclComm *comm, uint64_t tag, const char *text)
{
    struct tt_note *note = tt_board_note(comm->board, comm->rank);
    (void)snprintf(note->why, sizeof note->why, "%s", text);
    atomic_store_explicit(&tt_board_desk(comm->board, comm->rank)->gave_up, tag,
                          memory_order_release);
}

static uint64_t bit_of(int rank)
{
    return UINT64_C(1) << (rank % 64);
}

// The ranks that are no members, as bits; members ascend.
static uint64_t left_out_bits(int nranks, const int *members, int count)
{
    uint64_t bits = 0;
    for (int r = 0, i = 0; r < nranks; r++) {
        if (i < count && members[i] == r) {
            i++;
        } else {
            bits |= bit_of(r);
        }
    }
    return bits;
}

// Whether a rank's present shrink, of this tag, waits for this rank, too. Where this one is left
// out, that may be an earlier one, and it comes to this one's afterwards.
static bool waits_for_us(const struct ncclComm *comm, int rank, uint64_t tag)
{
    const struct tt_desk *desk = tt_board_desk(comm->board, rank);
    uint64_t bits =
        atomic_load_explicit(&tt_board_note(comm->board, rank)->left_out, memory_order_acquire);
    return (bits & bit_of(comm->rank)) == 0 &&
           atomic_load_explicit(&desk->survivor, memory_order_relaxed) == tag;
}

static int survives(const struct ncclComm *comm, int rank, const struct awaited *what)
{
    const struct tt_desk *desk = tt_board_desk(comm->board, rank);
    uint64_t gave_up = atomic_load_explicit(&desk->gave_up, memory_order_acquire);
    uint64_t tag = atomic_load_explicit(&desk->survivor, memory_order_acquire);
    if (tt_shrinks_reach(gave_up, what->value)) {
        return -(int)why_given_up(comm, rank);
    }
    if (tag == what->value) {
        return 1;
    }
    // It has begun another one since, or given one up. Those that this rank has been in, too, it is
    // only slower to leave.
    const uint64_t *before = what->before + 2 * (size_t)rank;
    bool is_news = tag != before[0] || (gave_up == tag && gave_up != before[1]);
    if (tag != 0 && is_news && !tt_shrinks_know(comm->shrinks, tag) &&
        waits_for_us(comm, rank, tag)) {
        return -(int)tt_fail(
            ncclInvalidUsage,
            "rank %d: rank %d shrinks %s with another list of excluded ranks: all that remain must "
            "give the same",
            comm->rank, rank, comm->name);
    }
    return 0;
}

ncclResult_t tt_board_gather_survivors(struct ncclComm *comm, uint64_t tag, const int *members,
                                       int count)
{
    struct tt_board *board = comm->board;
    uint64_t *before = malloc(2 * (size_t)comm->nranks * sizeof *before);
    if (before == NULL) {
        return tt_fail(ncclSystemError, "rank %d: no memory for %d ranks", comm->rank,
                       comm->nranks);
    }
    for (int r = 0; r < comm->nranks; r++) {
        const struct tt_desk *theirs = tt_board_desk(board, r);
        uint64_t *of_rank = before + 2 * (size_t)r;
        of_rank[0] = atomic_load_explicit(&theirs->survivor, memory_order_acquire);
        of_rank[1] = atomic_load_explicit(&theirs->gave_up, memory_order_acquire);
    }
    struct tt_desk *desk = tt_board_desk(board, comm->rank);
    atomic_store_explicit(&desk->survivor, 0, memory_order_relaxed);
    atomic_store_explicit(&tt_board_note(board, comm->rank)->left_out,
                          left_out_bits(comm->nranks, members, count), memory_order_release);
    atomic_store_explicit(&desk->survivor, tag, memory_order_release);
    struct awaited what = {.has_come = survives,
                           .value = tag,
                           .members = members,
                           .count = count,
                           .before = before,
                           .of_survivors = true};
    ncclResult_t result = await(comm, &what);
    free(before);
    return result;
}

void tt_board_offer(struct ncclComm *comm, uint64_t tag, const struct tt_offer_of_slot *offer)
{
    struct tt_note *note = tt_board_note(comm->board, comm->rank);
    struct tt_desk *desk = tt_board_desk(comm->board, comm->rank);
    atomic_store_explicit(&desk->offered, 0, memory_order_relaxed);
    // C1: who reads one of them sees that the offer before is none any more.
    atomic_store_explicit(&note->offered_hash, offer->hash, memory_order_release);
    atomic_store_explicit(&note->offered_slot, (uint32_t)offer->slot.number, memory_order_release);
    atomic_store_explicit(&note->offered_turn, offer->slot.turn, memory_order_release);
    atomic_store_explicit(&desk->offered, tag, memory_order_release);
}

static int has_offered(const struct ncclComm *comm, int rank, const struct awaited *what)
{
    const struct tt_desk *desk = tt_board_desk(comm->board, rank);
    if (atomic_load_explicit(&desk->offered, memory_order_acquire) == what->value) {
        return 1;
    }
    return has_given_up(comm, rank, what->value) ? -(int)why_given_up(comm, rank) : 0;
}

ncclResult_t tt_board_await_offer(struct ncclComm *comm, uint64_t tag, int rank,
                                  struct tt_offer_of_slot *offer_out)
{
    struct awaited what = {.has_come = has_offered,
                           .value = tag,
                           .members = &rank,
                           .count = 1,
                           .of_survivors = comm->child->making->of_survivors};
    TRY(await(comm, &what));
    const struct tt_note *note = tt_board_note(comm->board, rank);
    // C2: pairs with C1.
    struct tt_offer_of_slot offer = {
        .hash = atomic_load_explicit(&note->offered_hash, memory_order_acquire),
        .slot.number = (int32_t)atomic_load_explicit(&note->offered_slot, memory_order_acquire),
        .slot.turn = atomic_load_explicit(&note->offered_turn, memory_order_acquire)};
    if (atomic_load_explicit(&tt_board_desk(comm->board, rank)->offered, memory_order_relaxed) !=
        tag) {
        return tt_fail(ncclRemoteError, "rank %d: rank %d of %s has given it up for another one",
                       comm->rank, rank, comm->name);
    }
    *offer_out = offer;
    return ncclSuccess;
}
