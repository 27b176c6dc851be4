// The state of a root thread, and its two halves: root.c serves connections, members.c decides what
// the ranks' messages mean.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_BOOTSTRAP_ROOT_H
#define TT_BOOTSTRAP_ROOT_H

#include "bootstrap/connection.h"

#include <poll.h>

enum tt_root_state { TT_ROOT_GATHERING, TT_ROOT_RUNNING, TT_ROOT_FINISHED };

// Used by the root's own thread alone.
struct tt_root {
    int listener;
    unsigned char secret[TT_SECRET_BYTES];
    enum tt_root_state state;
    int nranks;  // 0: nobody has joined
    int present; // members connected
    struct tt_join first_claim;
    struct tt_peer_connection *connections; // all, newest first
    struct tt_peer_connection **members;    // [nranks], NULL where absent
    uint64_t first_join_ms, next_notice_ms, finished_ms;
    ncclResult_t finish_result; // why it finished
    char finish_text[600];
    uint32_t gather_sequence;
    int gather_count;
    size_t gather_bytes;
    unsigned char *gather_data;
    // Strangers: connections that have not joined.
    int stranger_count, stranger_limit;
    uint64_t next_complaint_ms, accept_again_ms;
    unsigned complaints;
    struct pollfd *poll_set;
    size_t poll_capacity;
};

// Milliseconds of CLOCK_MONOTONIC.
uint64_t tt_root_now_ms(void);

// A frame of a connection that has proved the secret.
void tt_members_take(struct tt_root *root, struct tt_peer_connection *connection,
                     enum tt_frame_kind kind, const unsigned char *body, size_t bytes);
// A connection ends: a member that did not say goodbye ends the communicator.
void tt_members_drop(struct tt_root *root, const struct tt_peer_connection *connection);
// Names missing ranks when it is time, ends the communicator at TUTTI_INIT_TIMEOUT.
void tt_members_watch_clock(struct tt_root *root);

#endif
