// The root of one rendezvous: a thread with a poll loop that serves one connection per rank.
//
// A peer first proves the secret; until then it may take TT_PATIENCE_MS and is not believed in anything. A communicator goes
// through three states: gathering (ranks join), running (all have joined: gathers are served) and finished (an error, or all left).
// The thread ends when nobody is connected any more after that; connecting to its port is then refused by the kernel.
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/root.h"

#include "base/log.h"
#include "base/params.h"
#include "base/thread.h"
#include "base/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PATIENCE_MS = 10000,        // for a peer to prove itself and join
    STRANGERS_LIMIT = 2048,     // unproved connections at a time; the oldest goes first
    FIRST_NOTICE_MS = 10000,    // until the missing ranks are named
    JOIN_FRAME_LIMIT = 4096,    // a peer that has not joined sends no longer frame
    LINGER_MS = 10000,          // how long latecomers of a failed communicator get the reason
    COMPLAINT_EVERY_MS = 1000,  // at most one line about strangers
};

static uint64_t now_ms(void)
{
    return tt_now_ns() / 1000000;
}

static void report(struct tt_root *root, const char *text)
{
    struct tt_peer_connection *zero = root->state == TT_ROOT_GATHERING ? root->members[0] : NULL;
    if (zero != NULL) {
        tt_connection_send(zero, TT_FRAME_NOTICE, text, strlen(text), NULL, 0);
    } else {
        fprintf(stderr, "tutti: %s\n", text);
    }
}

// Ends the communicator: everybody connected gets the reason, and so does who comes later.
static void fail_all(struct tt_root *root, ncclResult_t result, const char *text)
{
    if (root->state == TT_ROOT_FINISHED) {
        return;
    }
    root->state = TT_ROOT_FINISHED;
    root->finish_result = result;
    root->finished_ms = now_ms();
    snprintf(root->finish_text, sizeof root->finish_text, "%s", text);
    int32_t code = result;
    for (struct tt_peer_connection *c = root->connections; c != NULL; c = c->next) {
        if (c->joined) {
            tt_connection_send(c, TT_FRAME_ERROR, &code, sizeof code, text, strlen(text));
        }
    }
}

static void fail_one(struct tt_peer_connection *connection, ncclResult_t result, const char *text)
{
    int32_t code = result;
    tt_connection_send(connection, TT_FRAME_ERROR, &code, sizeof code, text, strlen(text));
    connection->closing = true;
}

// ---- Joining --------------------------------------------------------------------------------------------------------

static void describe_claim(const struct tt_join *join, char *text, size_t bytes)
{
    snprintf(text, bytes, "rank %d of %d (process %d on %.63s)", join->rank, join->nranks, join->pid, join->host);
}

// NULL, or why the claim cannot stand beside the earlier ones.
static const char *refuse_claim(struct tt_root *root, const struct tt_join *join)
{
    static char text[512];
    char mine[160], other[160];
    describe_claim(join, mine, sizeof mine);
    if (join->nranks < 1 || join->rank < 0 || join->rank >= join->nranks) {
        snprintf(text, sizeof text, "a rank lies outside its communicator: %s", mine);
        return text;
    }
    if (root->nranks == 0) {
        return NULL;
    }
    describe_claim(&root->first_claim, other, sizeof other);
    if (join->version != root->first_claim.version) {
        snprintf(text, sizeof text, "different library versions: %s has %u, %s has %u", other,
                 root->first_claim.version, mine, join->version);
        return text;
    }
    if (join->nranks != root->nranks) {
        snprintf(text, sizeof text, "different numbers of ranks: %s, but %s", other, mine);
        return text;
    }
    if (root->members[join->rank] != NULL) {
        describe_claim(&root->members[join->rank]->claim, other, sizeof other);
        snprintf(text, sizeof text, "two ranks of one number: %s and %s", other, mine);
        return text;
    }
    return NULL;
}

static bool make_room(struct tt_root *root, int nranks)
{
    root->members = calloc((size_t)nranks, sizeof(struct tt_peer_connection *));
    root->nranks = root->members == NULL ? 0 : nranks;
    return root->members != NULL;
}

static void handle_join(struct tt_root *root, struct tt_peer_connection *connection, const unsigned char *body,
                        size_t bytes)
{
    struct tt_join join;
    if (bytes != sizeof join) {
        connection->closing = true;
        return;
    }
    memcpy(&join, body, sizeof join);
    join.host[sizeof join.host - 1] = 0;
    if (root->state == TT_ROOT_FINISHED) {
        fail_one(connection, root->finish_result, root->finish_text);
        return;
    }
    if (root->state == TT_ROOT_RUNNING) {
        fail_one(connection, ncclInvalidUsage, "this unique id is already used: make a new one for each communicator");
        return;
    }
    connection->claim = join;
    connection->joined = true;
    const char *refusal = refuse_claim(root, &join);
    if (refusal != NULL) {
        fail_all(root, ncclInvalidUsage, refusal);
        return;
    }
    if (root->nranks == 0) {
        root->first_claim = join;
        if (!make_room(root, join.nranks)) {
            fail_all(root, ncclSystemError, "the root has no memory for so many ranks");
            return;
        }
    }
    connection->rank = join.rank;
    root->members[join.rank] = connection;
    root->present++;
    if (root->present == root->nranks) {
        root->state = TT_ROOT_RUNNING;
        for (int r = 0; r < root->nranks; r++) {
            tt_connection_send(root->members[r], TT_FRAME_READY, NULL, 0, NULL, 0);
        }
    }
}

// "3 of 800: 12, 77, 799"; long lists end in "...".
static void list_missing(const struct tt_root *root, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "%d of %d: ", root->nranks - root->present, root->nranks);
    const char *separator = "";
    for (int r = 0; r < root->nranks; r++) {
        if (root->members[r] != NULL) {
            continue;
        }
        if (used + 24 > bytes) {
            snprintf(text + used, bytes - used, ", ...");
            return;
        }
        used += (size_t)snprintf(text + used, bytes - used, "%s%d", separator, r);
        separator = ", ";
    }
}

static void watch_the_clock(struct tt_root *root)
{
    if (root->state != TT_ROOT_GATHERING || root->nranks == 0) {
        return;
    }
    char missing[256], text[400];
    uint64_t waited = now_ms() - root->first_join_ms;
    uint64_t limit_s = (uint64_t)tt_param_int(TT_PARAM_INIT_TIMEOUT);
    if (waited >= limit_s * 1000) {
        list_missing(root, missing, sizeof missing);
        snprintf(text, sizeof text, "after %llu s (TUTTI_INIT_TIMEOUT) ranks are missing, %s",
                 (unsigned long long)limit_s, missing);
        fail_all(root, ncclTimeout, text);
    } else if (waited >= root->next_notice_ms) {
        list_missing(root, missing, sizeof missing);
        snprintf(text, sizeof text, "waiting for %s", missing);
        report(root, text);
        root->next_notice_ms *= 2;
    }
}

// ---- Gathers --------------------------------------------------------------------------------------------------------

static void finish_gather(struct tt_root *root)
{
    for (int r = 0; r < root->nranks; r++) {
        tt_connection_send(root->members[r], TT_FRAME_GATHER, &root->gather_sequence, sizeof root->gather_sequence,
                           root->gather_data, root->gather_bytes * (size_t)root->nranks);
        root->members[r]->gave = false;
    }
    free(root->gather_data);
    root->gather_data = NULL;
    root->gather_count = 0;
    root->gather_sequence++;
}

static void handle_gather(struct tt_root *root, struct tt_peer_connection *connection, const unsigned char *body,
                          size_t bytes)
{
    uint32_t sequence;
    char text[200];
    if (root->state != TT_ROOT_RUNNING || bytes < sizeof sequence) {
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
    }
    if (sequence != root->gather_sequence || data_bytes != root->gather_bytes || connection->gave) {
        snprintf(text, sizeof text,
                 "rank %d is at set-up step %u with %zu bytes, others at step %u with %zu: all ranks must make the "
                 "same calls in the same order",
                 connection->rank, sequence, data_bytes, root->gather_sequence, root->gather_bytes);
        fail_all(root, ncclInvalidUsage, text);
        return;
    }
    memcpy(root->gather_data + (size_t)connection->rank * data_bytes, body + sizeof sequence, data_bytes);
    connection->gave = true;
    if (++root->gather_count == root->nranks) {
        finish_gather(root);
    }
}

// A member that left in good order is missed only by an exchange that others have begun.
static void check_leavers(struct tt_root *root)
{
    char text[160];
    if (root->state != TT_ROOT_RUNNING || root->gather_count == 0) {
        return;
    }
    for (int r = 0; r < root->nranks; r++) {
        if (root->members[r] == NULL) {
            snprintf(text, sizeof text, "rank %d has destroyed the communicator while others wait for it", r);
            fail_all(root, ncclRemoteError, text);
            return;
        }
    }
}

// ---- Events of a connection -------------------------------------------------------------------------------------------

static void handle_frame(struct tt_root *root, struct tt_peer_connection *connection, enum tt_frame_kind kind,
                         const unsigned char *body, size_t bytes)
{
    char text[600];
    if (!connection->joined) {
        if (kind != TT_FRAME_JOIN) {
            connection->closing = true;
            return;
        }
        if (root->first_join_ms == 0) {
            root->first_join_ms = now_ms();
        }
        handle_join(root, connection, body, bytes);
        return;
    }
    switch (kind) {
    case TT_FRAME_GATHER:
        handle_gather(root, connection, body, bytes);
        break;
    case TT_FRAME_FAILED:
        snprintf(text, sizeof text, "rank %d failed: %.*s", connection->claim.rank, (int)(bytes < 500 ? bytes : 500),
                 (const char *)body);
        fail_all(root, ncclRemoteError, text);
        break;
    case TT_FRAME_LEAVE:
        connection->left = true;
        break;
    default:
        connection->closing = true;
        break;
    }
}

static void complain(struct tt_root *root, const struct tt_peer_connection *connection, const char *what)
{
    char address[64];
    root->complaints++;
    if (now_ms() - root->last_complaint_ms < COMPLAINT_EVERY_MS && root->last_complaint_ms != 0) {
        return;
    }
    root->last_complaint_ms = now_ms();
    tt_address_print(&connection->address, address, sizeof address);
    tt_log(TT_LOG_WARN, TT_LOG_BOOTSTRAP, "refused a connection from %s: %s (%u refused so far)", address, what,
           root->complaints);
}

static void drop(struct tt_root *root, struct tt_peer_connection *connection)
{
    struct tt_peer_connection **at = &root->connections;
    while (*at != connection) {
        at = &(*at)->next;
    }
    *at = connection->next;
    bool member = connection->rank >= 0 && root->members != NULL && root->members[connection->rank] == connection;
    if (member) {
        root->members[connection->rank] = NULL;
        root->present--;
        if (!connection->left) {
            char text[160];
            snprintf(text, sizeof text, "rank %d (process %d on %s) died or aborted", connection->rank,
                     connection->claim.pid, connection->claim.host);
            fail_all(root, ncclRemoteError, text);
        }
        check_leavers(root);
    }
    tt_connection_free(connection);
}

// Takes what has arrived. Drops connections that end, lie or time out.
static void serve(struct tt_root *root, struct tt_peer_connection *connection, short events)
{
    const char *problem = NULL;
    if ((events & POLLOUT) != 0 && !tt_connection_flush(connection)) {
        connection->closing = true;
        connection->out_bytes = 0;
    }
    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) {
        enum tt_frame_kind kind;
        unsigned char *body;
        size_t bytes;
        enum tt_receive_result got;
        while ((got = tt_connection_receive(connection, root->secret, connection->joined ? TT_FRAME_LIMIT : JOIN_FRAME_LIMIT,
                                            &kind, &body, &bytes, &problem)) == TT_RECEIVED_FRAME) {
            handle_frame(root, connection, kind, body, bytes);
        }
        if (got == TT_RECEIVE_REFUSED) {
            complain(root, connection, problem);
        }
        if (got == TT_RECEIVE_REFUSED || got == TT_RECEIVE_ENDED) {
            drop(root, connection);
            return;
        }
    }
    if (connection->closing && connection->out_bytes == 0) {
        drop(root, connection);
    }
}

static void drop_late_strangers(struct tt_root *root)
{
    uint64_t now = now_ms();
    struct tt_peer_connection *next;
    for (struct tt_peer_connection *c = root->connections; c != NULL; c = next) {
        next = c->next;
        if (!c->joined && now - c->since_ms > PATIENCE_MS) {
            complain(root, c, "it did not prove the secret in time");
            drop(root, c);
        }
    }
}

static void drop_oldest_stranger(struct tt_root *root)
{
    struct tt_peer_connection *oldest = NULL; // new ones are put in front: the last is the oldest
    for (struct tt_peer_connection *c = root->connections; c != NULL; c = c->next) {
        oldest = c->joined ? oldest : c;
    }
    if (oldest != NULL) {
        complain(root, oldest, "too many connections without a proof");
        drop(root, oldest);
    }
}

static void accept_all(struct tt_root *root)
{
    for (;;) {
        struct sockaddr_storage from;
        socklen_t length = sizeof from;
        int fd = accept4(root->listener, (struct sockaddr *)&from, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE) {
                drop_oldest_stranger(root);
            }
            return;
        }
        int strangers = 0;
        for (struct tt_peer_connection *c = root->connections; c != NULL; c = c->next) {
            strangers += !c->joined;
        }
        if (strangers >= STRANGERS_LIMIT) {
            drop_oldest_stranger(root);
        }
        struct tt_peer_connection *connection = tt_connection_accept(fd, &from, now_ms());
        if (connection != NULL) {
            connection->next = root->connections;
            root->connections = connection;
        }
    }
}

// ---- The thread -----------------------------------------------------------------------------------------------------

static size_t fill_poll_set(struct tt_root *root)
{
    size_t count = 1;
    for (struct tt_peer_connection *c = root->connections; c != NULL; c = c->next) {
        count++;
    }
    if (count > root->poll_capacity) {
        struct pollfd *grown = realloc(root->poll_set, 2 * count * sizeof *grown);
        if (grown == NULL) {
            return 0;
        }
        root->poll_set = grown;
        root->poll_capacity = 2 * count;
    }
    root->poll_set[0] = (struct pollfd){.fd = root->listener, .events = POLLIN};
    size_t i = 1;
    for (struct tt_peer_connection *c = root->connections; c != NULL; c = c->next, i++) {
        root->poll_set[i] = (struct pollfd){
            .fd = c->fd, .events = (short)(POLLIN | (c->out_bytes > 0 ? POLLOUT : 0))};
    }
    return count;
}

static bool is_over(const struct tt_root *root)
{
    if (root->state == TT_ROOT_RUNNING) {
        return root->present == 0;
    }
    return root->state == TT_ROOT_FINISHED && root->connections == NULL &&
           now_ms() - root->finished_ms > LINGER_MS;
}

static void *root_main(void *argument)
{
    struct tt_root *root = argument;
    while (!is_over(root)) {
        size_t count = fill_poll_set(root);
        bool busy = root->state == TT_ROOT_RUNNING && root->connections != NULL;
        int ready = count == 0 ? 0 : poll(root->poll_set, count, busy ? 1000 : 100);
        // Connections come before new ones: accepting changes the list that the set was made from.
        struct tt_peer_connection *c = root->connections;
        for (size_t i = 1; i < count; i++) {
            struct tt_peer_connection *next = c->next;
            short events = ready > 0 ? root->poll_set[i].revents : 0;
            if (events != 0 || c->closing) {
                serve(root, c, events);
            }
            c = next;
        }
        if (ready > 0 && root->poll_set[0].revents != 0) {
            accept_all(root);
        }
        check_leavers(root);
        drop_late_strangers(root);
        watch_the_clock(root);
    }
    while (root->connections != NULL) {
        drop(root, root->connections);
    }
    close(root->listener);
    sodium_memzero(root->secret, sizeof root->secret);
    free(root->members);
    free(root->gather_data);
    free(root->poll_set);
    free(root);
    return NULL;
}

static ncclResult_t listen_at(struct tt_address *address, int *listener_out)
{
    struct sockaddr_storage where;
    char text[64];
    tt_address_print(address, text, sizeof text);
    int fd = socket(address->family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return tt_fail(ncclSystemError, "socket for the rendezvous: %m");
    }
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    socklen_t length = tt_address_to_socket(address, &where);
    if (bind(fd, (struct sockaddr *)&where, length) != 0 || listen(fd, SOMAXCONN) != 0 ||
        getsockname(fd, (struct sockaddr *)&where, &length) != 0) {
        ncclResult_t result = tt_fail(ncclSystemError, "listening for the ranks at %s: %m", text);
        close(fd);
        return result;
    }
    tt_address_from_socket(&where, address);
    *listener_out = fd;
    return ncclSuccess;
}

ncclResult_t tt_root_start(struct tt_address *address, const unsigned char *secret)
{
    struct tt_root *root = calloc(1, sizeof *root);
    if (root == NULL) {
        return tt_fail(ncclSystemError, "no memory for the rendezvous");
    }
    root->next_notice_ms = FIRST_NOTICE_MS;
    memcpy(root->secret, secret, sizeof root->secret);
    ncclResult_t result = listen_at(address, &root->listener);
    if (result != ncclSuccess) {
        free(root);
        return result;
    }
    pthread_t thread;
    if (tt_thread_start(&thread, root_main, root) != 0) {
        close(root->listener);
        free(root);
        return tt_fail(ncclSystemError, "no thread for the rendezvous: %m");
    }
    pthread_detach(thread);
    return ncclSuccess;
}
