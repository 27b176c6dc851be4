// Messages of a pair of ranks. See pair.h.
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/pair.h"

#include "base/log.h"
#include "exec/cpu/buffers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// What is copied in one step, so that messages of a group go on side by side.
enum { STEP_BYTES = 1 << 20, PIECE_BYTES = 64 << 10 };

enum way { PULL, PUSH, THROUGH }; // who copies, or through the pair's data

struct tt_pair *tt_pair_of(const struct tt_host *host, int from, int to)
{
    return tt_arena_pair(host->arena, from, to);
}

static bool is_send(const struct tt_message_run *message)
{
    return message->op.function == TT_SEND;
}

static struct tt_pair *pair_of(const struct tt_host *host, const struct tt_op *op)
{
    return op->function == TT_SEND ? tt_pair_of(host, host->rank, op->root)
                                   : tt_pair_of(host, op->root, host->rank);
}

static size_t bytes_of(const struct tt_message_run *message)
{
    return message->op.count * tt_type_bytes(message->op.type);
}

// ---- Agreement ----------------------------------------------------------------------------------

// The other rank's message is not this one's.
static enum tt_progress disagree(struct tt_host *host, const struct tt_message_run *message,
                                 uint64_t count, uint64_t type)
{
    struct tt_op other = {.function = is_send(message) ? TT_RECV : TT_SEND,
                          .count = count,
                          .type = type < ncclNumTypes ? (ncclDataType_t)type : ncclNumTypes,
                          .root = host->rank};
    char mine[120], theirs[120];
    tt_op_describe(&message->op, mine, sizeof mine);
    tt_op_describe(&other, theirs, sizeof theirs);
    (void)tt_host_fail(host, ncclInvalidUsage,
                       "rank %d: %s, message %" PRIu64 " of this pair on %s, but rank %d called "
                       "%s: count and type must be the same",
                       host->rank, mine, message->number,
                       host->team.comm_name == NULL ? "?" : host->team.comm_name, message->op.root,
                       theirs);
    return TT_FAILED;
}

static bool agrees(const struct tt_message_run *message, uint64_t count, uint64_t type)
{
    return count == message->op.count && type == (uint64_t)message->op.type;
}

// How a message goes, by what the two ranks told of their buffers.
static enum way way_of(const struct tt_host *host, int peer, uint64_t send_shared,
                       uint64_t recv_shared)
{
    bool is_near = host->team.process[peer] == host->team.process[host->rank];
    return is_near || send_shared != 0 ? PULL : recv_shared != 0 ? PUSH : THROUGH;
}

// ---- Moving -------------------------------------------------------------------------------------

// Copies on between this rank's buffer and the other's, which told where it is. TT_DONE: all is
// there.
static enum tt_progress copy_on(struct tt_host *host, struct tt_message_run *message,
                                uint64_t address, uint64_t shared)
{
    size_t bytes = bytes_of(message), left = bytes - message->moved;
    size_t now = left < STEP_BYTES ? left : STEP_BYTES;
    message->has_moved = true;
    if (now > 0) {
        char *theirs = NULL;
        ncclResult_t result =
            tt_buffers_reach(host, message->op.root, address, shared, bytes, &theirs);
        if (result != ncclSuccess) {
            (void)tt_host_fail_again(host, result);
            return TT_FAILED;
        }
        if (is_send(message)) {
            tt_buffers_move(theirs + message->moved,
                            (const char *)message->op.send + message->moved, now);
        } else {
            tt_buffers_move((char *)message->op.recv + message->moved, theirs + message->moved,
                            now);
        }
    }
    message->moved += now;
    return message->moved == bytes ? TT_DONE : TT_WAITING;
}

// Moves what fits now through the pair's data, a ring of which `filled` bytes ever went in and
// `drained` came out.
static enum tt_progress pass_on(struct tt_host *host, struct tt_message_run *message,
                                struct tt_pair *pair)
{
    size_t room = 0, bytes = bytes_of(message);
    bool sends = is_send(message);
    int peer = message->op.root;
    char *data = sends ? tt_arena_pair_data(host->arena, host->rank, peer, &room)
                       : tt_arena_pair_data(host->arena, peer, host->rank, &room);
    if (data == NULL) {
        (void)tt_host_fail_again(host, ncclSystemError);
        return TT_FAILED;
    }
    while (message->moved < bytes) {
        uint64_t filled = atomic_load_explicit(&pair->sender.filled, memory_order_acquire);
        uint64_t drained = atomic_load_explicit(&pair->receiver.drained, memory_order_acquire);
        if (filled - drained > room) {
            (void)tt_host_fail(host, ncclInternalError,
                               "rank %d: the memory for messages of rank %d is damaged", host->rank,
                               peer);
            return TT_FAILED;
        }
        size_t held = (size_t)(filled - drained), at = (size_t)((sends ? filled : drained) % room);
        size_t now = sends ? room - held : held, left = bytes - message->moved;
        now = now < left ? now : left;
        now = now < room - at ? now : room - at;
        now = now < PIECE_BYTES ? now : PIECE_BYTES;
        if (now == 0) {
            return TT_WAITING;
        }
        if (sends) {
            tt_buffers_move(data + at, (const char *)message->op.send + message->moved, now);
            atomic_store_explicit(&pair->sender.filled, filled + now, memory_order_release);
        } else {
            tt_buffers_move((char *)message->op.recv + message->moved, data + at, now);
            atomic_store_explicit(&pair->receiver.drained, drained + now, memory_order_release);
        }
        message->moved += now;
        message->has_moved = true;
    }
    return TT_DONE;
}

// ---- Sending ------------------------------------------------------------------------------------

static enum tt_progress end_send(struct tt_message_run *message, struct tt_pair *pair)
{
    atomic_store_explicit(&pair->sender.ended, message->number, memory_order_release);
    return TT_DONE;
}

// Makes the offer once its place is free. TT_DONE: the message is on its way.
static enum tt_progress offer(struct tt_host *host, struct tt_message_run *message,
                              struct tt_pair *pair)
{
    const struct tt_op *op = &message->op;
    struct tt_offer *place = &pair->offer[message->number % TT_PAIR_OFFERS];
    if (message->number > TT_PAIR_OFFERS &&
        atomic_load_explicit(&pair->receiver.ended, memory_order_acquire) <
            message->number - TT_PAIR_OFFERS) {
        return TT_WAITING;
    }
    bool is_small = tt_pair_is_small(op->count, op->type);
    place->count = op->count;
    place->type = (uint64_t)op->type;
    if (is_small) {
        if (op->count > 0) {
            memcpy(place->payload, op->send, bytes_of(message));
        }
    } else {
        place->address = (uintptr_t)op->send;
        place->shared = tt_buffers_tell(host, op->send, bytes_of(message));
    }
    // M1: the offer, and what the rank wrote before, are visible to who reads the number.
    atomic_store_explicit(&place->number, message->number, memory_order_release);
    message->phase = TT_MESSAGE_OPEN;
    message->has_moved = true;
    return is_small ? TT_DONE : TT_WAITING;
}

static enum tt_progress send_step(struct tt_host *host, struct tt_message_run *message)
{
    struct tt_pair *pair = pair_of(host, &message->op);
    if (message->phase == TT_MESSAGE_BEGUN) {
        enum tt_progress progress = offer(host, message, pair);
        return progress == TT_DONE ? end_send(message, pair) : progress;
    }
    if (atomic_load_explicit(&pair->receiver.at, memory_order_acquire) < message->number) {
        return TT_WAITING;
    }
    // M2: the receiver has copied.
    if (atomic_load_explicit(&pair->receiver.ended, memory_order_acquire) >= message->number) {
        return end_send(message, pair);
    }
    uint64_t shared = pair->offer[message->number % TT_PAIR_OFFERS].shared;
    if (way_of(host, message->op.root, shared, 0) == PULL) {
        return TT_WAITING; // the claim may be another's at any moment
    }
    struct tt_claim claim = pair->receiver.claim;
    if (!agrees(message, claim.count, claim.type)) {
        return disagree(host, message, claim.count, claim.type);
    }
    enum tt_progress progress = TT_WAITING;
    if (way_of(host, message->op.root, shared, claim.shared) == PUSH) {
        progress = copy_on(host, message, claim.address, claim.shared);
        if (progress == TT_DONE) {
            atomic_store_explicit(&pair->sender.pushed, message->number, memory_order_release);
        }
    } else {
        progress = pass_on(host, message, pair);
    }
    return progress == TT_DONE ? end_send(message, pair) : progress;
}

// ---- Receiving ----------------------------------------------------------------------------------

static enum tt_progress take(struct tt_host *host, struct tt_message_run *message,
                             struct tt_pair *pair, const struct tt_offer *given)
{
    switch (way_of(host, message->op.root, given->shared, pair->receiver.claim.shared)) {
    case PULL:
        return copy_on(host, message, given->address, given->shared);
    case PUSH:
        return atomic_load_explicit(&pair->sender.pushed, memory_order_acquire) >= message->number
                   ? TT_DONE
                   : TT_WAITING;
    default:
        return pass_on(host, message, pair);
    }
}

static enum tt_progress receive_step(struct tt_host *host, struct tt_message_run *message)
{
    struct tt_pair *pair = pair_of(host, &message->op);
    const struct tt_offer *given = &pair->offer[message->number % TT_PAIR_OFFERS];
    if (atomic_load_explicit(&given->number, memory_order_acquire) != message->number) {
        return TT_WAITING;
    }
    if (!agrees(message, given->count, given->type)) {
        return disagree(host, message, given->count, given->type);
    }
    enum tt_progress progress = TT_DONE;
    if (!tt_pair_is_small(message->op.count, message->op.type)) {
        progress = take(host, message, pair, given);
    } else if (message->op.count > 0) {
        memcpy(message->op.recv, given->payload, bytes_of(message));
    }
    if (progress == TT_DONE) {
        message->has_moved = true;
        atomic_store_explicit(&pair->receiver.ended, message->number, memory_order_release);
    }
    return progress;
}

// ---- Both ---------------------------------------------------------------------------------------

// From now on others look at this rank's pair with `peer`.
static void know(struct tt_host *host, int peer)
{
    _Atomic uint64_t *peers = tt_arena_peers(host->arena, host->rank, peer);
    uint64_t known = atomic_load_explicit(peers, memory_order_relaxed);
    uint64_t bit = UINT64_C(1) << (unsigned)peer % 64;
    if ((known & bit) == 0) {
        atomic_store_explicit(peers, known | bit, memory_order_release);
    }
}

bool tt_pair_is_known(const struct tt_host *host, int rank, int peer)
{
    const _Atomic uint64_t *peers = tt_arena_peers(host->arena, rank, peer);
    return (atomic_load_explicit(peers, memory_order_acquire) >> (unsigned)peer % 64 & 1) != 0;
}

void tt_message_announce(struct tt_host *host, const struct tt_op *op)
{
    struct tt_pair *pair = pair_of(host, op);
    _Atomic uint64_t *last = op->function == TT_SEND ? &pair->sender.last : &pair->receiver.last;
    know(host, op->root);
    atomic_store_explicit(last, atomic_load_explicit(last, memory_order_relaxed) + 1,
                          memory_order_release);
}

void tt_message_begin(struct tt_host *host, struct tt_message_run *message)
{
    struct tt_pair *pair = pair_of(host, &message->op);
    const struct tt_op *op = &message->op;
    if (is_send(message)) {
        message->number = atomic_load_explicit(&pair->sender.at, memory_order_relaxed) + 1;
        atomic_store_explicit(&pair->sender.at, message->number, memory_order_release);
    } else {
        message->number = atomic_load_explicit(&pair->receiver.at, memory_order_relaxed) + 1;
        bool is_small = tt_pair_is_small(op->count, op->type);
        pair->receiver.claim = (struct tt_claim){
            .count = op->count,
            .type = (uint64_t)op->type,
            .address = (uintptr_t)op->recv,
            .shared = is_small ? 0 : tt_buffers_tell(host, op->recv, bytes_of(message))};
        atomic_store_explicit(&pair->receiver.at, message->number, memory_order_release);
    }
    message->phase = TT_MESSAGE_BEGUN;
    tt_record_entered(message->line, message->number);
}

enum tt_progress tt_message_step(struct tt_host *host, struct tt_message_run *message)
{
    message->has_moved = false;
    return is_send(message) ? send_step(host, message) : receive_step(host, message);
}

bool tt_message_is_alone(const struct tt_host *host, const struct tt_op *op, uint64_t number)
{
    const struct tt_pair *pair = pair_of(host, op);
    const _Atomic uint64_t *at = op->function == TT_SEND ? &pair->receiver.at : &pair->sender.at;
    return atomic_load_explicit(at, memory_order_acquire) < number;
}

// ---- Signals ------------------------------------------------------------------------------------

uint64_t tt_signal_number(const struct tt_host *host, int peer)
{
    return atomic_load_explicit(&tt_pair_of(host, host->rank, peer)->given, memory_order_relaxed) +
           1;
}

void tt_signal_give(struct tt_host *host, int peer)
{
    // S1: what this rank wrote before is visible to who reads the number.
    atomic_store_explicit(&tt_pair_of(host, host->rank, peer)->given, tt_signal_number(host, peer),
                          memory_order_release);
}

uint64_t tt_signal_want(struct tt_host *host, int peer, uint64_t signals)
{
    struct tt_pair *pair = tt_pair_of(host, peer, host->rank);
    uint64_t until = atomic_load_explicit(&pair->wanted, memory_order_relaxed) + signals;
    know(host, peer);
    atomic_store_explicit(&pair->asked, signals, memory_order_relaxed);
    atomic_store_explicit(&pair->wanted, until, memory_order_release);
    return until;
}

uint64_t tt_signal_given(const struct tt_host *host, int peer)
{
    // Pairs with S1.
    return atomic_load_explicit(&tt_pair_of(host, peer, host->rank)->given, memory_order_acquire);
}

bool tt_signal_is_owed(const struct tt_host *host, int rank, int peer)
{
    if (!tt_pair_is_known(host, rank, peer)) {
        return false;
    }
    const struct tt_pair *pair = tt_pair_of(host, peer, rank);
    return atomic_load_explicit(&pair->wanted, memory_order_acquire) >
           atomic_load_explicit(&pair->given, memory_order_acquire);
}

void tt_signal_describe(const struct tt_host *host, int peer, char *text, size_t bytes)
{
    const struct tt_pair *pair = tt_pair_of(host, peer, host->rank);
    uint64_t until = atomic_load_explicit(&pair->wanted, memory_order_acquire);
    uint64_t asked = atomic_load_explicit(&pair->asked, memory_order_relaxed);
    uint64_t given = tt_signal_given(host, peer), before = until - asked;
    char last[160];
    tt_host_describe_last(host, peer, last, sizeof last);
    (void)snprintf(text, bytes, "%" PRIu64 " of %" PRIu64 "; in collectives %s",
                   given <= before  ? 0
                   : given >= until ? asked
                                    : given - before,
                   asked, last);
}
