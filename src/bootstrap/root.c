// The root of one rendezvous: a thread with a poll loop that serves one connection per rank.
//
// A peer first proves the secret; until then it may take TT_PATIENCE_MS and is not believed in
// anything. A communicator goes through three states: gathering (ranks join), running (all have
// joined: gathers are served) and finished (an error, or all left). The thread ends when nobody is
// connected any more after that; connecting to its port is then refused by the kernel.
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/root.h"

#include "base/log.h"
#include "base/thread.h"
#include "base/wait.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    PATIENCE_MS = 10000,        // for a peer to prove itself and join
    CROWDED_PATIENCE_MS = 1000, // the same where too many have come
    CROWDED_PAUSE_MS = 50,      // until the next look at who waits
    STRANGERS_LIMIT = 512,      // unproved connections at a time; fewer where descriptors are few
    FIRST_NOTICE_MS = 10000,    // until the missing ranks are named
    JOIN_FRAME_LIMIT = 4096,    // a peer that has not joined sends no longer frame
    LINGER_MS = 10000,          // how long latecomers of a failed communicator get the reason
    COMPLAINT_EVERY_MS = 1000,  // at most one line about strangers
    TICK_MS = 50,               // between two looks at the clock
    PORT_PATIENCE_MS = 10000,   // for a fixed port to become free
    CALM_TICK_MS = 1000,        // the same where nothing depends on it
};

uint64_t tt_root_now_ms(void)
{
    return tt_now_ns() / 1000000;
}

// ---- Connections --------------------------------------------------------------------------------

static void complain(struct tt_root *root, const struct tt_peer_connection *connection,
                     const char *what)
{
    char address[64];
    root->complaints++;
    if (tt_root_now_ms() < root->next_complaint_ms) {
        return;
    }
    root->next_complaint_ms = tt_root_now_ms() + COMPLAINT_EVERY_MS;
    tt_address_print(&connection->address, address, sizeof address);
    (void)fprintf(stderr, "tutti: refused a connection from %s: %s (%u refused so far)\n", address,
                  what, root->complaints);
}

static void drop(struct tt_root *root, struct tt_peer_connection *connection)
{
    struct tt_peer_connection **at = &root->connections;
    while (*at != connection) {
        at = &(*at)->next;
    }
    *at = connection->next;
    root->stranger_count -= !connection->joined;
    tt_members_drop(root, connection);
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
        while ((got = tt_connection_receive(connection, root->secret,
                                            connection->joined ? TT_FRAME_LIMIT : JOIN_FRAME_LIMIT,
                                            &kind, &body, &bytes, &problem)) == TT_RECEIVED_FRAME) {
            tt_members_take(root, connection, kind, body, bytes);
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
    uint64_t now = tt_root_now_ms();
    struct tt_peer_connection *next;
    for (struct tt_peer_connection *c = root->connections; c != NULL && root->stranger_count > 0;
         c = next) {
        next = c->next;
        if (!c->joined && now - c->since_ms > PATIENCE_MS) {
            complain(root, c, "it did not prove the secret in time");
            drop(root, c);
        }
    }
}

// Makes room for one more stranger. False: all that are there came so lately that they may yet
// prove themselves.
static bool drop_oldest_stranger(struct tt_root *root)
{
    struct tt_peer_connection *oldest = NULL; // new ones are put in front: the last is the oldest
    for (struct tt_peer_connection *c = root->connections; c != NULL; c = c->next) {
        oldest = c->joined ? oldest : c;
    }
    if (oldest == NULL || tt_root_now_ms() - oldest->since_ms < CROWDED_PATIENCE_MS) {
        return false;
    }
    complain(root, oldest, "too many connections without a proof");
    drop(root, oldest);
    return true;
}

// Takes waiting connections as far as there is room; the others wait in the kernel's queue.
static void accept_all(struct tt_root *root)
{
    while (root->stranger_count < root->stranger_limit || drop_oldest_stranger(root)) {
        struct sockaddr_storage from;
        socklen_t length = sizeof from;
        int fd = accept4(root->listener, (struct sockaddr *)&from, &length,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            bool exhausted =
                errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
            if (exhausted && !drop_oldest_stranger(root)) {
                root->accept_again_ms = tt_root_now_ms() + CROWDED_PAUSE_MS;
            }
            return;
        }
        struct tt_peer_connection *connection = tt_connection_accept(fd, &from, tt_root_now_ms());
        if (connection != NULL) {
            connection->next = root->connections;
            root->connections = connection;
            root->stranger_count++;
        }
    }
    root->accept_again_ms = tt_root_now_ms() + CROWDED_PAUSE_MS;
}

// ---- The thread ---------------------------------------------------------------------------------

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
    bool accepts = tt_root_now_ms() >= root->accept_again_ms;
    root->poll_set[0] = (struct pollfd){.fd = accepts ? root->listener : -1, .events = POLLIN};
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
           tt_root_now_ms() - root->finished_ms > LINGER_MS;
}

static bool is_unsent(const struct tt_root *root)
{
    for (const struct tt_peer_connection *c = root->connections; c != NULL; c = c->next) {
        if (c->joined && c->out_bytes > 0) {
            return true;
        }
    }
    return false;
}

// How long to sleep where nothing happens.
static int patience_ms(const struct tt_root *root)
{
    bool counts_time = root->state == TT_ROOT_FINISHED || root->stranger_count > 0 ||
                       (root->state == TT_ROOT_GATHERING && root->nranks > 0) ||
                       root->poll_set[0].fd < 0;
    return counts_time ? TICK_MS : CALM_TICK_MS;
}

// Roots that serve something at this moment. A process that ends waits a moment for them: other
// ranks may still be owed what the ranks of this process have already got.
static atomic_int busy_roots;

__attribute__((destructor)) static void let_roots_finish(void)
{
    for (int i = 0; i < 100 && atomic_load(&busy_roots) > 0; i++) {
        poll(NULL, 0, 1);
    }
}

static void *root_main(void *argument)
{
    struct tt_root *root = argument;
    tt_thread_serves();
    atomic_fetch_add(&busy_roots, 1);
    while (!is_over(root)) {
        size_t count = fill_poll_set(root);
        bool calm = !is_unsent(root);
        atomic_fetch_sub(&busy_roots, calm);
        int ready = count == 0 ? 0 : poll(root->poll_set, count, patience_ms(root));
        atomic_fetch_add(&busy_roots, calm);
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
        drop_late_strangers(root);
        tt_members_watch_clock(root);
    }
    while (root->connections != NULL) {
        drop(root, root->connections);
    }
    atomic_fetch_sub(&busy_roots, 1);
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
    bool listens = false;
    // A fixed port may still be the root's of the communicator before.
    for (int turn = 0; turn < PORT_PATIENCE_MS / TICK_MS && !listens; turn++) {
        listens = bind(fd, (struct sockaddr *)&where, length) == 0 && listen(fd, SOMAXCONN) == 0 &&
                  getsockname(fd, (struct sockaddr *)&where, &length) == 0;
        if (!listens && (address->port == 0 || errno != EADDRINUSE)) {
            break;
        }
        if (!listens) {
            poll(NULL, 0, TICK_MS);
        }
    }
    if (!listens) {
        ncclResult_t result = tt_fail(ncclSystemError, "listening for the ranks at %s: %m", text);
        close(fd);
        return result;
    }
    tt_address_from_socket(&where, address);
    *listener_out = fd;
    return ncclSuccess;
}

// At most a quarter of the process's descriptors, so that strangers cannot take what the program
// needs.
static int choose_stranger_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= (rlim_t)4 * STRANGERS_LIMIT) {
        return STRANGERS_LIMIT;
    }
    return limit.rlim_cur < 64 ? 16 : (int)(limit.rlim_cur / 4);
}

ncclResult_t tt_root_start(struct tt_address *address, const unsigned char *secret)
{
    struct tt_root *root = calloc(1, sizeof *root);
    if (root == NULL) {
        return tt_fail(ncclSystemError, "no memory for the rendezvous");
    }
    root->next_notice_ms = FIRST_NOTICE_MS;
    root->stranger_limit = choose_stranger_limit();
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
