// See behind.h. SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/behind.h"

#include "base/log.h"

#include <stdint.h>

// What a send is behind, as one word: whose messages to this rank it waits for, and up to which.
// 0: it is behind nothing.
enum { RANK_BITS = 12 };

static uint64_t word_of(int rank, uint64_t number)
{
    return number << RANK_BITS | (uint64_t)(rank + 1);
}

// ---- Which memory -------------------------------------------------------------------------------

struct range {
    uintptr_t first, end;
};

static struct range range_of(const void *memory, const struct tt_op *op)
{
    uintptr_t first = (uintptr_t)memory;
    return (struct range){first, first + op->count * tt_type_bytes(op->type)};
}

static bool overlap(struct range a, struct range b)
{
    return a.first < b.end && b.first < a.end;
}

// Whether `send` reads what `other`, a message whose receive was called before it, writes.
static bool comes_behind(const struct tt_message_run *send, const struct tt_message_run *other)
{
    return other != send && other->writes_at < send->reads_at &&
           overlap(range_of(send->op.send, &send->op), range_of(other->op.recv, &other->op));
}

void tt_behind_mark(struct tt_message_run *message, size_t count)
{
    struct range all = {UINTPTR_MAX, 0}; // what receives write, and what lies between
    for (size_t i = 0; i < count; i++) {
        struct range one = range_of(message[i].op.recv, &message[i].op);
        if (message[i].writes_at != TT_MESSAGE_NEVER && one.first < one.end) {
            all.first = one.first < all.first ? one.first : all.first;
            all.end = one.end > all.end ? one.end : all.end;
        }
    }
    for (size_t i = 0; i < count; i++) {
        struct tt_message_run *send = &message[i];
        bool may =
            send->reads_at != TT_MESSAGE_NEVER && overlap(range_of(send->op.send, &send->op), all);
        for (size_t j = 0; may && !send->is_behind && j < count; j++) {
            send->is_behind = comes_behind(send, &message[j]);
        }
    }
}

// ---- Circles ------------------------------------------------------------------------------------

static uint64_t get(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

// Follows who is behind what from this rank's send, which is behind `word`. True: back to it. The
// ranks of a circle wait for good, so it does not matter that they are not looked at all at once.
static bool is_in_circle(const struct tt_host *host, const struct tt_message_run *send,
                         uint64_t word)
{
    int rank = host->rank;
    for (int steps = 0; steps < 2 * host->nranks; steps++) {
        int from = (int)(word & ((1 << RANK_BITS) - 1)) - 1;
        uint64_t number = word >> RANK_BITS;
        if (from < 0 || from >= host->nranks) {
            return false;
        }
        const struct tt_pair *pair = tt_pair_of(host, from, rank);
        word = get(&pair->sender.behind);
        if (word == 0 || get(&pair->sender.at) >= number) {
            return false; // nothing keeps it
        }
        if (from == host->rank && rank == send->op.root) {
            return true;
        }
        rank = from;
    }
    return false;
}

// ---- Looking ------------------------------------------------------------------------------------

// The first message that the send has to wait for; NULL: all are over.
static const struct tt_message_run *what(const struct tt_message_run *message, size_t count,
                                         const struct tt_message_run *send)
{
    for (size_t i = 0; i < count; i++) {
        if (message[i].phase != TT_MESSAGE_OVER && comes_behind(send, &message[i])) {
            return &message[i];
        }
    }
    return NULL;
}

// The message's number, or that of one before it of its pair.
static uint64_t number_of(const struct tt_host *host, const struct tt_message_run *message)
{
    const struct tt_pair *pair = tt_pair_of(host, message->op.root, host->rank);
    return message->op.root == host->rank ? get(&pair->sender.at) + 1 : get(&pair->receiver.at);
}

bool tt_behind_look(struct tt_host *host, const struct tt_message_run *message, size_t count,
                    struct tt_message_run *send)
{
    _Atomic uint64_t *behind = &tt_pair_of(host, host->rank, send->op.root)->sender.behind;
    const struct tt_message_run *first = what(message, count, send);
    bool is_copying = first != NULL && first->op.root == host->rank &&
                      first->phase == TT_MESSAGE_BEGUN; // that ends by itself
    uint64_t word =
        first == NULL || is_copying ? 0 : word_of(first->op.root, number_of(host, first));
    if (atomic_load_explicit(behind, memory_order_relaxed) != word) {
        atomic_store_explicit(behind, word, memory_order_release);
    }
    send->is_behind = first != NULL;
    if (word != 0 && is_in_circle(host, send, word)) {
        char call[120];
        tt_op_describe(&send->op, call, sizeof call);
        tt_log(TT_LOG_WARN, TT_LOG_COLL,
               "rank %d: %s reads what an earlier receive of the same group writes, and so do "
               "other ranks' sends, in a circle: what it sends is undefined",
               host->rank, call);
        atomic_store_explicit(behind, 0, memory_order_release);
        send->is_behind = false;
    }
    return send->is_behind;
}
