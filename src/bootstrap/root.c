// The roots of a process: one thread with a poll loop that serves one connection per rank.
//
// All roots whose ids this process has made come in at one port, which the first id opens; a root
// at a fixed address (NCCL_COMM_ID) has a port of its own. An id that nobody uses costs no
// descriptor and no thread. A peer first proves a root's secret; until then it may take PATIENCE_MS
// and is not believed in anything. A communicator goes through three states: gathering (ranks
// join), running (all have joined: gathers are served) and finished (an error, or all left).
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/root.h"

#include "base/log.h"
#include "base/thread.h"
#include "base/wait.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum {
    PATIENCE_MS = 10000,        // for a peer to prove itself and join
    CROWDED_PATIENCE_MS = 1000, // the same where too many have come
    CROWDED_PAUSE_MS = 50,      // until the next look at who waits
    STRANGERS_LIMIT = 512,      // unproved connections at a time; fewer where descriptors are few
    JOIN_FRAME_LIMIT = 4096,    // a peer that has not joined sends no longer frame
    COMPLAINT_EVERY_MS = 1000,  // at most one line about strangers
    TICK_MS = 50,               // between two looks at the clock
    CALM_TICK_MS = 1000,        // the same where nothing depends on it
    PORT_PATIENCE_MS = 10000,   // for a fixed port to become free
    END_PATIENCE_MS = 100,      // of a process that ends, for what its roots still have to say
};

struct tt_listener {
    struct tt_listener *next;
    int fd;
    struct tt_address address;
    bool is_shared; // by all roots but those at fixed addresses
};

// Everything of this process. The thread has the mutex except while it sleeps; others only add a
// root or a listener in front.
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed; // is_settled
    pid_t owner;            // the process whose thread runs; 0: none
    int wake;               // eventfd
    bool is_ending, is_settled;
    struct tt_listener *listeners;
    struct tt_root *roots;
    struct tt_peer_connection *connections; // newest first
    // Strangers: connections that have not joined.
    int stranger_count, stranger_limit;
    uint64_t next_complaint_ms, accept_again_ms;
    unsigned complaints;
    struct pollfd *poll_set;
    size_t poll_capacity;
} hub = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

uint64_t tt_root_now_ms(void)
{
    return tt_now_ns() / 1000000;
}

static pthread_once_t process_once = PTHREAD_ONCE_INIT;
static uint64_t process_number;

static void choose_process_number(void)
{
    randombytes_buf(&process_number, sizeof process_number);
}

uint64_t tt_root_process(void)
{
    pthread_once(&process_once, choose_process_number);
    return process_number;
}

// ---- Connections --------------------------------------------------------------------------------

static void complain(const struct tt_peer_connection *connection, const char *what)
{
    char address[64];
    hub.complaints++;
    if (tt_root_now_ms() < hub.next_complaint_ms) {
        return;
    }
    hub.next_complaint_ms = tt_root_now_ms() + COMPLAINT_EVERY_MS;
    tt_address_print(&connection->address, address, sizeof address);
    tt_say("refused a connection from %s: %s (%u refused so far)", address, what, hub.complaints);
}

static void drop(struct tt_peer_connection *connection)
{
    struct tt_peer_connection **at = &hub.connections;
    while (*at != connection) {
        at = &(*at)->next;
    }
    *at = connection->next;
    hub.stranger_count -= !connection->joined;
    if (connection->root != NULL) {
        connection->root->attached--;
        tt_members_drop(connection->root, connection);
    }
    tt_connection_free(connection);
}

static struct tt_root *find_root(void *context, uint64_t number, const unsigned char **secret_out)
{
    struct tt_root *root = hub.roots;
    while (root != NULL && (root->listener != context || root->number != number)) {
        root = root->next;
    }
    *secret_out = root != NULL ? root->secret : NULL;
    return root;
}

// Takes one frame; false: nothing more to take. *ends_out: the connection is over.
static bool take_frame(struct tt_peer_connection *connection, bool *ends_out)
{
    enum tt_frame_kind kind;
    unsigned char *body;
    size_t bytes;
    const char *problem = NULL;
    bool was_unknown = connection->root == NULL, had_joined = connection->joined;
    struct tt_root_finder finder = {find_root, connection->listener};
    enum tt_receive_result got =
        tt_connection_receive(connection, &finder, had_joined ? TT_FRAME_LIMIT : JOIN_FRAME_LIMIT,
                              &kind, &body, &bytes, &problem);
    if (was_unknown && connection->root != NULL) {
        connection->root->attached++;
    }
    if (got == TT_RECEIVED_FRAME) {
        tt_members_take(connection->root, connection, kind, body, bytes);
        hub.stranger_count -= !had_joined && connection->joined;
    } else if (got == TT_RECEIVE_REFUSED && problem != NULL) {
        complain(connection, problem);
    }
    *ends_out = got == TT_RECEIVE_REFUSED || got == TT_RECEIVE_ENDED;
    return got == TT_RECEIVED_FRAME;
}

// Takes what has arrived. Drops connections that end, lie or time out.
static void serve(struct tt_peer_connection *connection, short events)
{
    bool ends = false;
    if ((events & POLLOUT) != 0 && !tt_connection_flush(connection)) {
        connection->closing = true;
        connection->out_bytes = 0;
    }
    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) {
        while (take_frame(connection, &ends)) {
        }
    }
    if (ends || (connection->closing && connection->out_bytes == 0)) {
        drop(connection);
    }
}

static void drop_late_strangers(void)
{
    uint64_t now = tt_root_now_ms();
    struct tt_peer_connection *next;
    for (struct tt_peer_connection *c = hub.connections; c != NULL && hub.stranger_count > 0;
         c = next) {
        next = c->next;
        if (!c->joined && now - c->since_ms > PATIENCE_MS) {
            complain(c, "it did not prove the secret in time");
            drop(c);
        }
    }
}

// Makes room for one more stranger. False: all that are there came so lately that they may yet
// prove themselves.
static bool drop_oldest_stranger(void)
{
    struct tt_peer_connection *oldest = NULL; // new ones are put in front: the last is the oldest
    for (struct tt_peer_connection *c = hub.connections; c != NULL; c = c->next) {
        oldest = c->joined ? oldest : c;
    }
    if (oldest == NULL || tt_root_now_ms() - oldest->since_ms < CROWDED_PATIENCE_MS) {
        return false;
    }
    complain(oldest, "too many connections without a proof");
    drop(oldest);
    return true;
}

// Takes waiting connections as far as there is room; the others wait in the kernel's queue.
static void accept_all(struct tt_listener *listener)
{
    while (hub.stranger_count < hub.stranger_limit || drop_oldest_stranger()) {
        struct sockaddr_storage from;
        socklen_t length = sizeof from;
        int fd =
            accept4(listener->fd, (struct sockaddr *)&from, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            bool exhausted =
                errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
            if (exhausted && !drop_oldest_stranger()) {
                hub.accept_again_ms = tt_root_now_ms() + CROWDED_PAUSE_MS;
            }
            return;
        }
        struct tt_peer_connection *connection = tt_connection_accept(fd, &from, tt_root_now_ms());
        if (connection != NULL) {
            connection->listener = listener;
            connection->next = hub.connections;
            hub.connections = connection;
            hub.stranger_count++;
        }
    }
    hub.accept_again_ms = tt_root_now_ms() + CROWDED_PAUSE_MS;
}

// ---- The thread ---------------------------------------------------------------------------------

static bool grow_poll_set(size_t count)
{
    if (count > hub.poll_capacity) {
        struct pollfd *grown = realloc(hub.poll_set, 2 * count * sizeof *grown);
        if (grown == NULL) {
            return false;
        }
        hub.poll_set = grown;
        hub.poll_capacity = 2 * count;
    }
    return true;
}

// The wake-up, then the listeners, then the connections. 0: no memory.
static size_t fill_poll_set(void)
{
    size_t count = 1;
    for (const struct tt_listener *l = hub.listeners; l != NULL; l = l->next) {
        count++;
    }
    for (const struct tt_peer_connection *c = hub.connections; c != NULL; c = c->next) {
        count++;
    }
    if (!grow_poll_set(count)) {
        return 0;
    }
    bool accepts = tt_root_now_ms() >= hub.accept_again_ms;
    size_t i = 0;
    hub.poll_set[i++] = (struct pollfd){.fd = hub.wake, .events = POLLIN};
    for (const struct tt_listener *l = hub.listeners; l != NULL; l = l->next) {
        hub.poll_set[i++] = (struct pollfd){.fd = accepts ? l->fd : -1, .events = POLLIN};
    }
    for (const struct tt_peer_connection *c = hub.connections; c != NULL; c = c->next) {
        hub.poll_set[i++] = (struct pollfd){
            .fd = c->fd, .events = (short)(POLLIN | (c->out_bytes > 0 ? POLLOUT : 0))};
    }
    return count;
}

// How long to sleep where nothing happens; -1: until something does.
static int patience_ms(void)
{
    if (hub.is_ending) {
        return 0;
    }
    bool counts_time = hub.stranger_count > 0 || hub.accept_again_ms > tt_root_now_ms();
    for (const struct tt_root *root = hub.roots; root != NULL && !counts_time; root = root->next) {
        counts_time = tt_members_count_time(root);
    }
    return counts_time ? TICK_MS : hub.connections != NULL || hub.roots != NULL ? CALM_TICK_MS : -1;
}

static void close_listener(struct tt_listener *listener)
{
    struct tt_peer_connection *next;
    for (struct tt_peer_connection *c = hub.connections; c != NULL; c = next) {
        next = c->next;
        if (c->listener == listener) {
            drop(c);
        }
    }
    struct tt_listener **at = &hub.listeners;
    while (*at != listener) {
        at = &(*at)->next;
    }
    *at = listener->next;
    close(listener->fd);
    free(listener);
}

static void remove_root(struct tt_root **at)
{
    struct tt_root *root = *at;
    *at = root->next;
    tt_members_end(root);
    sodium_memzero(root->secret, sizeof root->secret);
    free(root);
}

static void watch_roots(void)
{
    struct tt_root **at = &hub.roots;
    while (*at != NULL) {
        struct tt_root *root = *at;
        tt_members_watch_clock(root, hub.is_ending);
        if (!tt_members_are_over(root)) {
            at = &root->next;
            continue;
        }
        if (!root->listener->is_shared) {
            close_listener(root->listener);
        }
        remove_root(at);
    }
}

static bool is_unsent(void)
{
    for (const struct tt_peer_connection *c = hub.connections; c != NULL; c = c->next) {
        if (c->joined && c->out_bytes > 0) {
            return true;
        }
    }
    return false;
}

// One round, with the mutex. Connections come before new ones: accepting changes the list that the
// set was made from. Others only add in front meanwhile, so what was first then is still there.
static void run_round(void)
{
    size_t count = fill_poll_set();
    struct tt_listener *listener = hub.listeners;
    struct tt_peer_connection *connection = hub.connections;
    int patience = count == 0 ? TICK_MS : patience_ms();
    pthread_mutex_unlock(&hub.mutex);
    int ready = poll(hub.poll_set, count, patience);
    pthread_mutex_lock(&hub.mutex);
    bool happened = ready > 0;
    size_t first_listener = 1, i = 1;
    for (struct tt_listener *l = listener; l != NULL && count > 0; l = l->next) {
        i++;
    }
    for (; i < count; i++) {
        struct tt_peer_connection *next = connection->next;
        short events = happened ? hub.poll_set[i].revents : 0;
        if (events != 0 || connection->closing) {
            serve(connection, events);
        }
        connection = next;
    }
    for (i = first_listener; happened && count > 0 && listener != NULL; i++) {
        if (hub.poll_set[i].revents != 0) {
            accept_all(listener);
        }
        listener = listener->next;
    }
    if (happened && hub.poll_set[0].revents != 0) {
        uint64_t ignored;
        happened = read(hub.wake, &ignored, sizeof ignored) > 0;
    }
    drop_late_strangers();
    watch_roots();
    if (hub.is_ending && !happened && !is_unsent()) {
        hub.is_ending = false;
        hub.is_settled = true;
        pthread_cond_broadcast(&hub.changed);
    }
}

static void *serve_roots(void *argument)
{
    (void)argument;
    tt_thread_serves();
    pthread_mutex_lock(&hub.mutex);
    for (;;) {
        run_round();
    }
    return NULL;
}

static void wake_up(void)
{
    uint64_t one = 1;
    ssize_t written = write(hub.wake, &one, sizeof one);
    (void)written; // full: it wakes anyway
}

// A process that ends waits a moment for its roots: other ranks may still be owed what the ranks of
// this process have already got.
__attribute__((destructor)) static void let_roots_finish(void)
{
    if (hub.owner != getpid()) {
        return; // none, or a parent's
    }
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_nsec += END_PATIENCE_MS * 1000000L;
    end.tv_sec += end.tv_nsec / 1000000000L;
    end.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&hub.mutex);
    hub.is_ending = true;
    hub.is_settled = hub.roots == NULL && hub.connections == NULL;
    wake_up();
    int error = 0;
    while (!hub.is_settled && error == 0) {
        error = pthread_cond_timedwait(&hub.changed, &hub.mutex, &end);
    }
    pthread_mutex_unlock(&hub.mutex);
}

// ---- Beginning ----------------------------------------------------------------------------------

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

// With the mutex held. After a fork() the parent's roots are left alone: they are the parent's.
static ncclResult_t start_thread(void)
{
    pthread_t thread;
    hub.listeners = NULL;
    hub.roots = NULL;
    hub.connections = NULL;
    hub.stranger_count = 0;
    hub.stranger_limit = choose_stranger_limit();
    hub.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (hub.wake < 0) {
        return tt_fail(ncclSystemError, "no descriptor for the rendezvous: %m");
    }
    int error = tt_thread_start(&thread, serve_roots, NULL);
    if (error != 0) {
        close(hub.wake);
        errno = error;
        return tt_fail(ncclSystemError, "no thread for the rendezvous: %m");
    }
    pthread_detach(thread);
    hub.owner = getpid();
    return ncclSuccess;
}

static bool same_place(const struct tt_address *a, const struct tt_address *b)
{
    return a->family == b->family && a->scope == b->scope &&
           memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

// The port that the process's roots share on this interface. With the mutex held.
static struct tt_listener *find_shared(const struct tt_address *address)
{
    struct tt_listener *found = hub.listeners;
    while (found != NULL && (!found->is_shared || !same_place(&found->address, address))) {
        found = found->next;
    }
    return found;
}

// With the mutex held, which waiting for a fixed port gives up.
static ncclResult_t add_listener(const struct tt_address *address, struct tt_listener **out)
{
    struct tt_listener *listener = calloc(1, sizeof *listener);
    if (listener == NULL) {
        return tt_fail(ncclSystemError, "no memory for the rendezvous");
    }
    listener->address = *address;
    listener->is_shared = address->port == 0;
    pthread_mutex_unlock(&hub.mutex);
    ncclResult_t result = listen_at(&listener->address, &listener->fd);
    pthread_mutex_lock(&hub.mutex);
    if (result != ncclSuccess) {
        free(listener);
        return result;
    }
    listener->next = hub.listeners;
    hub.listeners = listener;
    *out = listener;
    return ncclSuccess;
}

static ncclResult_t add_root(struct tt_root *root, struct tt_id *id)
{
    if (hub.owner != getpid()) {
        TRY(start_thread());
    }
    root->listener = id->address.port == 0 ? find_shared(&id->address) : NULL;
    if (root->listener == NULL) {
        TRY(add_listener(&id->address, &root->listener));
    }
    id->address = root->listener->address;
    root->next = hub.roots;
    hub.roots = root;
    wake_up();
    return ncclSuccess;
}

ncclResult_t tt_root_start(struct tt_id *id)
{
    struct tt_root *root = calloc(1, sizeof *root);
    if (root == NULL) {
        return tt_fail(ncclSystemError, "no memory for the rendezvous");
    }
    root->number = id->number;
    root->connections = &hub.connections;
    memcpy(root->secret, id->secret, sizeof root->secret);
    tt_members_begin(root);
    if (hub.owner != 0 && hub.owner != getpid()) {
        pthread_mutex_init(&hub.mutex, NULL); // the parent's thread may have had it
    }
    pthread_mutex_lock(&hub.mutex);
    ncclResult_t result = add_root(root, id);
    pthread_mutex_unlock(&hub.mutex);
    if (result != ncclSuccess) {
        free(root);
    }
    return result;
}

static struct tt_root **root_of(const struct tt_id *id)
{
    struct tt_root **at = &hub.roots;
    while (*at != NULL && ((*at)->number != id->number ||
                           sodium_memcmp((*at)->secret, id->secret, sizeof id->secret) != 0)) {
        at = &(*at)->next;
    }
    return at;
}

void tt_root_drop(const struct tt_id *id)
{
    if (hub.owner != getpid()) {
        return;
    }
    pthread_mutex_lock(&hub.mutex);
    struct tt_root **at = root_of(id);
    // The thread waits in poll() now, for connections and listeners, which stay.
    if (*at != NULL && (*at)->attached == 0 && (*at)->state == TT_ROOT_GATHERING &&
        (*at)->listener->is_shared) {
        remove_root(at);
    }
    pthread_mutex_unlock(&hub.mutex);
}

void tt_root_give_up(const struct tt_id *id, int rank)
{
    if (hub.owner != getpid()) {
        return;
    }
    pthread_mutex_lock(&hub.mutex);
    struct tt_root *root = *root_of(id);
    if (root != NULL) {
        root->given_up = 1 + rank;
        wake_up();
    }
    pthread_mutex_unlock(&hub.mutex);
}
