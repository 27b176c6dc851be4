// What the two halves of a rank's side share: join.c brings a rank to its root, bootstrap.c talks
// with the root.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_BOOTSTRAP_INTERNAL_H
#define TT_BOOTSTRAP_INTERNAL_H

#include "bootstrap/bootstrap.h"
#include "bootstrap/wire.h"

#include <stdbool.h>

enum { TT_SLICE_MS = 20 }; // of every wait, so that an abort ends it at once

struct tt_bootstrap {
    int fd;
    int rank, nranks;
    const _Atomic uint32_t *abort_flag;
    unsigned char secret[TT_SECRET_BYTES];
    struct tt_session session;
    uint32_t sequence;            // of the next gather
    _Atomic(ncclResult_t) broken; // once not ncclSuccess every call returns it
    char failure[512];            // its text
    bool may_tell;                // broken by an abort, between two frames: the root can be told
    bool has_reported;            // its own failure: what comes back of it is no news
    int dead_rank;                // whose death it was, -1: none
    uint64_t deadline_ns;         // of waits while joining, 0: none
    bool is_unreachable;          // no root was there to hear of this rank
    bool is_tentative;            // a connection that closes is then tried again
    bool was_dropped;             // it did
    // By a call, or by a look from another thread: who has it may use what stands above and below.
    atomic_int in_use;
    unsigned char *frame; // the last frame received
    size_t frame_capacity;
    char what[96]; // what its gathers are for, for messages
    struct tt_ready root;
    bool root_is_here;             // in this process
    bool root_may_end, root_ended; // its end means nothing; it has ended
    _Atomic unsigned char *left;   // [nranks] 1: the rank has left in good order
    int watcher;                   // epoll descriptor, -1: none
    void *watch_key;
    atomic_int armed;    // the watcher is to wake
    atomic_int disarmed; // it woke, and wakes again only when told so
};

// The communicator is over for this rank: keeps the result and this thread's last failure.
ncclResult_t tt_bootstrap_break(struct tt_bootstrap *b, ncclResult_t result);
// Waits for `events`; deadline_ns 0: none.
ncclResult_t tt_bootstrap_wait(struct tt_bootstrap *b, short events, uint64_t deadline_ns);
ncclResult_t tt_bootstrap_send_all(struct tt_bootstrap *b, const void *data, size_t bytes);
ncclResult_t tt_bootstrap_receive_all(struct tt_bootstrap *b, void *data, size_t bytes);
ncclResult_t tt_bootstrap_send_frame(struct tt_bootstrap *b, enum tt_frame_kind kind,
                                     const void *first, size_t first_bytes, const void *second,
                                     size_t second_bytes);
// Waits for a frame of `kind`; takes what comes besides, turns an error frame into its result.
ncclResult_t tt_bootstrap_expect(struct tt_bootstrap *b, enum tt_frame_kind kind,
                                 unsigned char **body_out, size_t *bytes_out);
ncclResult_t tt_bootstrap_root_gone(struct tt_bootstrap *b);

#endif
