// The roots of a process: root.c is the one thread that serves their connections, members.c decides
// what the ranks' messages mean to one root.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_BOOTSTRAP_ROOT_H
#define TT_BOOTSTRAP_ROOT_H

#include "bootstrap/connection.h"

enum tt_root_state { TT_ROOT_GATHERING, TT_ROOT_RUNNING, TT_ROOT_FINISHED };

struct tt_listener;

// One rendezvous. Used by the roots' thread alone once it is in its list.
struct tt_root {
    struct tt_root *next;
    uint64_t number;
    unsigned char secret[TT_SECRET_BYTES];
    struct tt_listener *listener;            // where its ranks come in
    struct tt_peer_connection **connections; // all of the process, newest first; filter by root
    int attached;                            // of them, this root's
    enum tt_root_state state;
    int given_up; // 1 + a rank of this process that was aborted on its way here; 0: none was
    int nranks;   // 0: nobody has joined
    int present;  // members connected
    struct tt_join first_claim;
    struct tt_peer_connection **members; // [nranks], NULL where absent
    uint64_t first_join_ms, next_notice_ms, finished_ms;
    ncclResult_t finish_result; // why it finished
    int finish_dead;            // whose death it was, -1: none
    int told;                   // ranks that know that it finished
    char finish_text[600];
    uint32_t gather_sequence;
    int gather_count;
    size_t gather_bytes;
    unsigned char *gather_data;
    uint64_t gather_since_ms, gather_notice_ms;
    // Ranks that left, of which the others are not told yet: [1 + nranks], behind the word "may
    // end".
    int32_t *leavers;
    int leaver_count;
    uint64_t leavers_due_ms;
};

// Milliseconds of CLOCK_MONOTONIC.
uint64_t tt_root_now_ms(void);
// What a root is before anything happens.
void tt_members_begin(struct tt_root *root);
// Frees what they have; not the root itself.
void tt_members_end(struct tt_root *root);

// A frame of a connection that has proved the secret.
void tt_members_take(struct tt_root *root, struct tt_peer_connection *connection,
                     enum tt_frame_kind kind, const unsigned char *body, size_t bytes);
// A connection of the root ends: a member that did not say goodbye ends the communicator.
void tt_members_drop(struct tt_root *root, const struct tt_peer_connection *connection);
// Names ranks that others wait for when it is time, ends the communicator at TUTTI_INIT_TIMEOUT or
// where a rank has given it up, tells who has left. at_once: whether or not it is time for that.
void tt_members_watch_clock(struct tt_root *root, bool at_once);
// Whether the root is needed no more.
bool tt_members_are_over(const struct tt_root *root);
// Whether something hangs on the clock soon.
bool tt_members_count_time(const struct tt_root *root);

#endif
