// The state of a root thread. See root.c. SPDX-License-Identifier: Apache-2.0
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
    int nranks;                            // 0: nobody has joined
    int present;                           // members connected
    struct tt_join first_claim;
    struct tt_peer_connection *connections; // all, newest first
    struct tt_peer_connection **members;    // [nranks], NULL where absent
    uint64_t first_join_ms, next_notice_ms, finished_ms, last_complaint_ms;
    unsigned complaints;
    ncclResult_t finish_result;            // why it finished
    char finish_text[600];
    uint32_t gather_sequence;
    int gather_count;
    size_t gather_bytes;
    unsigned char *gather_data;
    struct pollfd *poll_set;
    size_t poll_capacity;
};

#endif
