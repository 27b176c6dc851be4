// The ranks of one rendezvous as its root sees them: who has joined, whose data a gather still
// needs, who is missing or late, who has left, and what ends the communicator for all. See root.h.
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "base/params.h"
#include "bootstrap/root.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    FIRST_NOTICE_MS = 10000, // until ranks that others wait for are named; then doubled
    LEAVERS_MS = 50,         // until the others are told of ranks that left, many at a time
    LINGER_MS = 10000,       // how long latecomers of a failed communicator get the reason
};

void tt_members_begin(struct tt_root *root)
{
    root->next_notice_ms = FIRST_NOTICE_MS;
    root->finish_dead = -1;
}

void tt_members_end(struct tt_root *root)
{
    free(root->members);
    free(root->gather_data);
    free(root->leavers);
}

static void send_error(struct tt_peer_connection *connection, ncclResult_t result, int dead,
                       const char *text)
{
    int32_t numbers[2] = {(int32_t)result, dead};
    tt_connection_send(connection, TT_FRAME_ERROR, numbers, sizeof numbers, text, strlen(text));
}

// Ends the communicator: everybody connected gets the reason, and so does who comes later. dead:
// the rank whose death it is, -1: of none.
static void finish(struct tt_root *root, ncclResult_t result, int dead, const char *text)
{
    if (root->state == TT_ROOT_FINISHED) {
        return;
    }
    root->state = TT_ROOT_FINISHED;
    root->finish_result = result;
    root->finish_dead = dead;
    root->finished_ms = tt_root_now_ms();
    root->told = dead >= 0;
    (void)snprintf(root->finish_text, sizeof root->finish_text, "%s", text);
    for (struct tt_peer_connection *c = *root->connections; c != NULL; c = c->next) {
        if (c->root == root && c->joined) {
            send_error(c, result, dead, root->finish_text);
            root->told += c->rank >= 0;
        }
    }
}

static void fail_all(struct tt_root *root, ncclResult_t result, const char *text)
{
    finish(root, result, -1, text);
}

// Lives in this process.
static bool is_own(const struct tt_join *claim)
{
    return claim->process == tt_root_process() && claim->pid == (int32_t)getpid();
}

// ---- Joining ------------------------------------------------------------------------------------

static void describe_claim(const struct tt_join *join, char *text, size_t bytes)
{
    (void)snprintf(text, bytes, "rank %d of %d (process %d on %.63s)", join->rank, join->nranks,
                   join->pid, join->host);
}

// Whether the claim can stand beside the earlier ones; text: why not.
static bool may_join(const struct tt_root *root, const struct tt_join *join, char *text,
                     size_t bytes)
{
    char mine[160], other[160] = "";
    describe_claim(join, mine, sizeof mine);
    if (root->nranks > 0) {
        describe_claim(&root->first_claim, other, sizeof other);
    }
    const char *beside = root->nranks > 0 ? "; the first to come was " : "";
    if (join->nranks < 1 || join->nranks > TT_MOST_RANKS || join->rank < 0 ||
        join->rank >= join->nranks) {
        (void)snprintf(text, bytes, "a rank lies outside its communicator: %s%s%s", mine, beside,
                       other);
        return false;
    }
    if (root->nranks == 0) {
        return true;
    }
    if (join->version != root->first_claim.version) {
        (void)snprintf(text, bytes, "different library versions: %s has %u, %s has %u", other,
                       root->first_claim.version, mine, join->version);
        return false;
    }
    if (join->nranks != root->nranks) {
        (void)snprintf(text, bytes, "different numbers of ranks: %s, but %s", other, mine);
        return false;
    }
    if (root->members[join->rank] != NULL) {
        describe_claim(&root->members[join->rank]->claim, other, sizeof other);
        (void)snprintf(text, bytes, "two ranks of one number: %s and %s", other, mine);
        return false;
    }
    return true;
}

// To a rank that comes when all is over: the reason; where the others have waited in vain, perhaps
// for this rank, that it is late.
static void answer_late(const struct tt_root *root, struct tt_peer_connection *connection)
{
    char text[sizeof root->finish_text + 100];
    uint64_t late_ms = tt_root_now_ms() - root->finished_ms;
    bool gave_up = root->finish_result == ncclTimeout;
    (void)snprintf(text, sizeof text,
                   "this rank came %llu.%llu s too late: the others have given up: %s",
                   (unsigned long long)(late_ms / 1000), (unsigned long long)(late_ms / 100 % 10),
                   root->finish_text);
    send_error(connection, root->finish_result, root->finish_dead,
               gave_up ? text : root->finish_text);
    connection->closing = true;
}

// Reads a claim and answers it where it cannot be looked at. False: that is all.
static bool read_claim(struct tt_root *root, struct tt_peer_connection *connection,
                       const unsigned char *body, size_t bytes)
{
    struct tt_join *claim = &connection->claim;
    if (bytes < sizeof *claim) {
        connection->closing = true;
        return false;
    }
    memcpy(claim, body, sizeof *claim);
    claim->host[sizeof claim->host - 1] = 0;
    if (root->state == TT_ROOT_FINISHED) {
        answer_late(root, connection);
        root->told++;
        return false;
    }
    if (root->state == TT_ROOT_RUNNING) {
        tt_connection_send(connection, TT_FRAME_USED, NULL, 0, NULL, 0);
        connection->closing = true;
        return false;
    }
    char refusal[512];
    root->first_join_ms = root->first_join_ms == 0 ? tt_root_now_ms() : root->first_join_ms;
    connection->joined = true;
    if (!may_join(root, claim, refusal, sizeof refusal)) {
        fail_all(root, ncclInvalidUsage, refusal);
        return false;
    }
    return true;
}

static void begin_running(struct tt_root *root)
{
    struct tt_ready ready = {.process = tt_root_process(), .rank = -1, .pid = (int32_t)getpid()};
    if (gethostname(ready.host, sizeof ready.host - 1) != 0) {
        (void)snprintf(ready.host, sizeof ready.host, "?");
    }
    for (int r = root->nranks - 1; r >= 0; r--) {
        ready.rank = is_own(&root->members[r]->claim) ? r : ready.rank;
    }
    root->state = TT_ROOT_RUNNING;
    for (int r = 0; r < root->nranks; r++) {
        tt_connection_send(root->members[r], TT_FRAME_READY, &ready, sizeof ready, NULL, 0);
    }
}

static void take_join(struct tt_root *root, struct tt_peer_connection *connection,
                      const unsigned char *body, size_t bytes)
{
    const struct tt_join *claim = &connection->claim;
    if (!read_claim(root, connection, body, bytes)) {
        return;
    }
    if (root->nranks == 0) {
        root->first_claim = *claim;
        root->members = calloc((size_t)claim->nranks, sizeof(struct tt_peer_connection *));
        root->leavers = calloc((size_t)claim->nranks + 1, sizeof *root->leavers);
        if (root->members == NULL || root->leavers == NULL) {
            fail_all(root, ncclSystemError, "the root has no memory for so many ranks");
            return;
        }
        root->nranks = claim->nranks;
    }
    connection->rank = claim->rank;
    root->members[claim->rank] = connection;
    root->present++;
    if (root->present == root->nranks) {
        begin_running(root);
    }
}

// A member, or one that will never be one, failed: text, `bytes` bytes.
static void take_failure(struct tt_root *root, const struct tt_peer_connection *connection,
                         const unsigned char *text, size_t bytes)
{
    char line[600];
    (void)snprintf(line, sizeof line, "rank %d failed: %.*s", connection->claim.rank,
                   (int)(bytes < 500 ? bytes : 500), (const char *)text);
    fail_all(root, ncclRemoteError, line);
    root->told += connection->rank < 0;
}

// Whether rank r keeps the others waiting: in a gather, or by not having joined.
static bool is_late(const struct tt_root *root, int r)
{
    const struct tt_peer_connection *member = root->members[r];
    return member == NULL || (root->state == TT_ROOT_RUNNING && !member->gave);
}

// "3 of 800: 12, 77, 799", with the noun behind 800; long lists end in "...".
static void list_late(const struct tt_root *root, const char *noun, char *text, size_t bytes)
{
    int count = 0;
    for (int r = 0; r < root->nranks; r++) {
        count += is_late(root, r);
    }
    size_t used = (size_t)snprintf(text, bytes, "%d of %d%s: ", count, root->nranks, noun);
    const char *separator = "";
    for (int r = 0; r < root->nranks; r++) {
        if (!is_late(root, r)) {
            continue;
        }
        if (used + 24 > bytes) {
            (void)snprintf(text + used, bytes - used, ", ...");
            return;
        }
        used += (size_t)snprintf(text + used, bytes - used, "%s%d", separator, r);
        separator = ", ";
    }
}

// Tells the first rank that waits whom it waits for, and for how long.
static void send_notice(const struct tt_root *root, uint64_t waited_ms)
{
    char late[256], text[400];
    list_late(root, " ranks", late, sizeof late);
    (void)snprintf(text, sizeof text, "waiting for %s, for %llu s so far", late,
                   (unsigned long long)(waited_ms / 1000));
    for (int r = 0; r < root->nranks; r++) {
        if (!is_late(root, r)) {
            tt_connection_send(root->members[r], TT_FRAME_NOTICE, text, strlen(text), NULL, 0);
            return;
        }
    }
}

static void watch_joining(struct tt_root *root, uint64_t now)
{
    char missing[256], text[400];
    uint64_t waited = now - root->first_join_ms;
    uint64_t limit_s = (uint64_t)tt_param_int(TT_PARAM_INIT_TIMEOUT);
    if (waited >= limit_s * 1000) {
        list_late(root, "", missing, sizeof missing);
        (void)snprintf(text, sizeof text, "after %llu s (TUTTI_INIT_TIMEOUT) ranks are missing, %s",
                       (unsigned long long)limit_s, missing);
        fail_all(root, ncclTimeout, text);
    } else if (waited >= root->next_notice_ms) {
        root->next_notice_ms *= 2;
        send_notice(root, waited);
    }
}

static void watch_gather(struct tt_root *root, uint64_t now)
{
    uint64_t waited = now - root->gather_since_ms;
    if (waited >= root->gather_notice_ms) {
        root->gather_notice_ms *= 2;
        send_notice(root, waited);
    }
}

// ---- Leaving ------------------------------------------------------------------------------------

// The root's process may end when its own ranks have left: what then comes, or does not, means
// nothing.
static bool may_end(const struct tt_root *root)
{
    for (int r = 0; r < root->nranks; r++) {
        if (root->members[r] != NULL && !root->members[r]->left &&
            is_own(&root->members[r]->claim)) {
            return false;
        }
    }
    return true;
}

static void tell_of_leavers(struct tt_root *root)
{
    if (root->leaver_count == 0) {
        return;
    }
    root->leavers[0] = may_end(root);
    for (int r = 0; r < root->nranks; r++) {
        if (root->members[r] != NULL && !root->members[r]->left) {
            tt_connection_send(root->members[r], TT_FRAME_LEFT, root->leavers,
                               (1 + (size_t)root->leaver_count) * sizeof *root->leavers, NULL, 0);
        }
    }
    root->leaver_count = 0;
}

static void take_leave(struct tt_root *root, struct tt_peer_connection *connection)
{
    connection->closing = true;
    if (connection->left || connection->rank < 0) {
        return;
    }
    connection->left = true;
    if (root->state != TT_ROOT_RUNNING) {
        return;
    }
    if (root->leaver_count == 0) {
        root->leavers_due_ms = tt_root_now_ms() + LEAVERS_MS;
    }
    root->leavers[1 + root->leaver_count++] = connection->rank;
    if (is_own(&connection->claim) && may_end(root)) {
        tell_of_leavers(root); // before this process can end
    }
}

// ---- Gathers ------------------------------------------------------------------------------------

static void finish_gather(struct tt_root *root)
{
    // Ranks of the root's own process last: when they have it they may end the process, and this
    // thread.
    for (int own = 0; own < 2; own++) {
        for (int r = 0; r < root->nranks; r++) {
            struct tt_peer_connection *member = root->members[r];
            if (is_own(&member->claim) == (own != 0)) {
                member->gave = false;
                tt_connection_send(member, TT_FRAME_GATHER, &root->gather_sequence,
                                   sizeof root->gather_sequence, root->gather_data,
                                   root->gather_bytes * (size_t)root->nranks);
            }
        }
    }
    free(root->gather_data);
    root->gather_data = NULL;
    root->gather_count = 0;
    root->gather_sequence++;
}

// A member that left in good order is missed only by a gather that others have begun.
static void check_leavers(struct tt_root *root)
{
    char text[160];
    if (root->state != TT_ROOT_RUNNING || root->gather_count == 0) {
        return;
    }
    for (int r = 0; r < root->nranks; r++) {
        if (root->members[r] == NULL || root->members[r]->left) {
            (void)snprintf(text, sizeof text,
                           "rank %d has destroyed the communicator while others wait for it", r);
            fail_all(root, ncclRemoteError, text);
            return;
        }
    }
}

static void take_gather(struct tt_root *root, struct tt_peer_connection *connection,
                        const unsigned char *body, size_t bytes)
{
    uint32_t sequence;
    char text[256];
    if (root->state != TT_ROOT_RUNNING || connection->rank < 0 || bytes < sizeof sequence) {
        return;
    }
    memcpy(&sequence, body, sizeof sequence);
    size_t data_bytes = bytes - sizeof sequence;
    if (root->gather_count == 0) {
        root->gather_bytes = data_bytes;
        root->gather_data = malloc(data_bytes * (size_t)root->nranks + 1);
        if (root->gather_data == NULL) {
            fail_all(root, ncclSystemError, "the root has no memory for an exchange");
            return;
        }
        root->gather_since_ms = tt_root_now_ms();
        root->gather_notice_ms = FIRST_NOTICE_MS;
    }
    if (sequence != root->gather_sequence || data_bytes != root->gather_bytes || connection->gave) {
        (void)snprintf(
            text, sizeof text,
            "rank %d is at set-up step %u with %zu bytes, others at step %u with %zu: all "
            "ranks must make the same calls in the same order",
            connection->rank, sequence, data_bytes, root->gather_sequence, root->gather_bytes);
        fail_all(root, ncclInvalidUsage, text);
        return;
    }
    memcpy(root->gather_data + (size_t)connection->rank * data_bytes, body + sizeof sequence,
           data_bytes);
    connection->gave = true;
    if (++root->gather_count == root->nranks) {
        finish_gather(root);
    } else {
        check_leavers(root);
    }
}

// ---- Events -------------------------------------------------------------------------------------

void tt_members_take(struct tt_root *root, struct tt_peer_connection *connection,
                     enum tt_frame_kind kind, const unsigned char *body, size_t bytes)
{
    if (!connection->joined) {
        if (kind == TT_FRAME_JOIN) {
            take_join(root, connection, body, bytes);
        } else if (kind != TT_FRAME_CANNOT) {
            connection->closing = true;
        } else if (read_claim(root, connection, body, bytes)) {
            take_failure(root, connection, body + sizeof connection->claim,
                         bytes - sizeof connection->claim);
        }
        return;
    }
    switch (kind) {
    case TT_FRAME_GATHER:
        take_gather(root, connection, body, bytes);
        break;
    case TT_FRAME_FAILED:
        take_failure(root, connection, body, bytes);
        break;
    case TT_FRAME_LEAVE:
        take_leave(root, connection);
        check_leavers(root);
        break;
    default:
        connection->closing = true;
        break;
    }
}

void tt_members_drop(struct tt_root *root, const struct tt_peer_connection *connection)
{
    if (connection->rank < 0 || root->members[connection->rank] != connection) {
        return;
    }
    root->members[connection->rank] = NULL;
    root->present--;
    if (!connection->left) {
        char text[200];
        (void)snprintf(text, sizeof text,
                       "rank %d (process %d on %.63s) died, or ended without ncclCommDestroy",
                       connection->rank, connection->claim.pid, connection->claim.host);
        finish(root, ncclRemoteError, connection->rank, text);
    }
    check_leavers(root);
}

// ---- The clock ----------------------------------------------------------------------------------

void tt_members_watch_clock(struct tt_root *root, bool at_once)
{
    uint64_t now = tt_root_now_ms();
    if (root->state == TT_ROOT_GATHERING && root->given_up > 0) {
        char text[100];
        (void)snprintf(text, sizeof text, "rank %d (process %d) was aborted before it joined",
                       root->given_up - 1, (int)getpid());
        finish(root, ncclRemoteError, -1, text);
    } else if (root->state == TT_ROOT_GATHERING && root->nranks > 0) {
        watch_joining(root, now);
    }
    if (root->state == TT_ROOT_RUNNING && root->gather_count > 0) {
        watch_gather(root, now);
    }
    if (root->state == TT_ROOT_RUNNING && (at_once || now >= root->leavers_due_ms)) {
        tell_of_leavers(root);
    }
}

bool tt_members_are_over(const struct tt_root *root)
{
    if (root->attached > 0 || root->state == TT_ROOT_GATHERING) {
        return false;
    }
    return root->state == TT_ROOT_RUNNING || (root->nranks > 0 && root->told >= root->nranks) ||
           tt_root_now_ms() - root->finished_ms > LINGER_MS;
}

bool tt_members_count_time(const struct tt_root *root)
{
    return root->leaver_count > 0 || (root->state == TT_ROOT_GATHERING && root->nranks > 0);
}
