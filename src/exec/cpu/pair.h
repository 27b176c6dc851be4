// Messages and signals from one rank to another: what the two tell each other in the lines of their
// pair (arena.h), and how the bytes move.
//
// Messages of an ordered pair have numbers, from 1, and are matched by them. The sender offers
// message n, the receiver claims it; small contents ride in the offer. Otherwise whoever can reach
// the other's buffer copies, the receiver first of all; where neither can, the contents go through
// the pair's data in pieces. Both sides decide by the same rule. Signals are counted: those that
// the one rank has given the other, and those that the other has waited for. Everything here is for
// whoever has the rank's turn (host.h).
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXEC_CPU_PAIR_H
#define TT_EXEC_CPU_PAIR_H

#include "exec/cpu/host.h"

enum {
    TT_PAIR_OFFERS = 4,    // that a sender can be ahead with small contents
    TT_PAIR_PAYLOAD = 104, // bytes that an offer carries
};

// One side's view of a message.
struct tt_claim {
    uint64_t count;
    uint64_t type;    // ncclDataType_t
    uint64_t address; // of the buffer, for ranks of the same process
    uint64_t shared;  // for others: see tt_buffers_tell
};

// The offer of message n is in place n % TT_PAIR_OFFERS.
struct tt_offer {
    _Alignas(64) _Atomic uint64_t number; // release, acquire
    uint64_t count;
    uint64_t type;
    union {
        unsigned char payload[TT_PAIR_PAYLOAD];
        struct {
            uint64_t address, shared;
        };
    };
};
_Static_assert(sizeof(struct tt_offer) == 128, "two lines");

// `last` is set before `at`: the last message of the work that its rank is in, or was in last.
struct tt_pair {
    struct tt_offer offer[TT_PAIR_OFFERS];
    struct { // written by the sender
        _Alignas(64) _Atomic uint64_t last;
        _Atomic uint64_t at;     // the message that it is at, or was at last
        _Atomic uint64_t ended;  // messages of which its buffer is the caller's again
        _Atomic uint64_t pushed; // the last message that it copied to the receiver's buffer
        _Atomic uint64_t filled; // bytes that went into the pair's data, ever
        _Atomic uint64_t behind; // what the next message has to wait for; see behind.c
    } sender;
    struct { // written by the receiver
        _Alignas(64) _Atomic uint64_t last;
        _Atomic uint64_t at;      // release: the claim is that of this message
        _Atomic uint64_t ended;   // messages that it has
        _Atomic uint64_t drained; // bytes that came out of the pair's data, ever
        struct tt_claim claim;
    } receiver;
    // Signals, ever: those that were given, written by the sender (release), and those that the
    // receiver has waited for, or waits for now; `asked` of these by its last wait. Written by the
    // receiver.
    _Alignas(64) _Atomic uint64_t given;
    _Alignas(64) _Atomic uint64_t wanted;
    _Atomic uint64_t asked;
};
_Static_assert(sizeof(struct tt_pair) <= TT_ARENA_PAIR_BYTES, "has its place in the arena");

// QUEUED: behind one of its pair; HELD: behind a receive into the memory that it reads.
enum tt_message_phase {
    TT_MESSAGE_QUEUED,
    TT_MESSAGE_HELD,
    TT_MESSAGE_BEGUN,
    TT_MESSAGE_OPEN,
    TT_MESSAGE_OVER,
};

enum { TT_MESSAGE_NEVER = UINT32_MAX };

// A message as one of its ranks goes on with it.
struct tt_message_run {
    struct tt_op op; // TT_SEND or TT_RECV; root: the peer. To the rank itself: the send, with where
                     // it is received
    struct tt_record_line *line;
    uint64_t number;
    size_t moved;  // bytes
    uint32_t next; // message of the same pair and direction behind this one; 0: none (task's)
    uint32_t phase;
    uint32_t reads_at, writes_at; // places of its send and receive in the group's calls, or NEVER
    bool is_behind;               // it has to wait for others of its group (behind.h)
    bool has_moved;               // something, in the last step
};

// The pair from rank `from` to rank `to`.
struct tt_pair *tt_pair_of(const struct tt_host *host, int from, int to);
// Whether `rank` ever had messages with `peer`, or waited for its signals. Pairs of others are not
// looked at, so that they take no memory.
bool tt_pair_is_known(const struct tt_host *host, int rank, int peer);
// Whether an offer carries the whole contents.
static inline bool tt_pair_is_small(uint64_t count, ncclDataType_t type)
{
    return count <= TT_PAIR_PAYLOAD && count * tt_type_bytes(type) <= TT_PAIR_PAYLOAD;
}
// Says that the work which is about to begin has this send or receive. To be called for all of
// them before the first begins.
void tt_message_announce(struct tt_host *host, const struct tt_op *op);
// Begins a message, which is the next of its pair.
void tt_message_begin(struct tt_host *host, struct tt_message_run *message);
// Goes on with it. TT_FAILED: the communicator has failed, with a text that names both calls.
enum tt_progress tt_message_step(struct tt_host *host, struct tt_message_run *message);
// Whether the other rank has not come to this message of this rank yet, the number-th of its pair.
bool tt_message_is_alone(const struct tt_host *host, const struct tt_op *op, uint64_t number);

// Gives rank `peer`, which may be this one, a signal: what this rank did before happens before what
// the peer does once it has seen it.
void tt_signal_give(struct tt_host *host, int peer);
// The number, from 1, that the next signal to `peer` has.
uint64_t tt_signal_number(const struct tt_host *host, int peer);
// This rank waits for `signals` more of `peer`: returns how many must have been given by then. To
// be called before tt_own.waits says that it waits.
uint64_t tt_signal_want(struct tt_host *host, int peer, uint64_t signals);
// How many signals `peer` has given this rank.
uint64_t tt_signal_given(const struct tt_host *host, int peer);
// Whether `rank` waits for a signal of `peer`, or waited last for one, that is not given. False
// where it never waited for that rank.
bool tt_signal_is_owed(const struct tt_host *host, int rank, int peer);
// "1 of 3; in collectives its last one was ...": what `peer` has given of the signals that this
// rank's last wait asked it for.
void tt_signal_describe(const struct tt_host *host, int peer, char *text, size_t bytes);

#endif
