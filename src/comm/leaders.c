// Connections between the processes of a machine, made at the first use: one unix socket per pair
// of processes, held by the processes' leaders (their first ranks).
//
// A leader listens at a name of 128 random bits that only the ranks learn, over the sealed
// rendezvous; the lower process connects to the higher one. Both prove a key derived from the
// unique id's secret before anything passes. Names are abstract; where the processes of a machine
// are in different network namespaces, which such names do not cross, they are paths in /tmp that
// are gone as soon as
// all have connected. SPDX-License-Identifier: Apache-2.0
#include "base/holdings.h"
#include "base/log.h"
#include "base/wait.h"
#include "comm/comm.h"
#include "comm/local.h"
#include "comm/local_internal.h"
#include "comm/meet.h"

#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    NAME_BYTES = 16,
    SLICE_MS = 20,
    GREETING_PATIENCE_MS = 2000, // with who may be a stranger; a rank comes again
    MOST_TRIES = 16,
    PROOF_BYTES = 32,
    TOLD_WITHIN_MS = 500
};

// What a leader tells the others about its listener.
struct card {
    uint64_t network; // its network namespace
    unsigned char name[NAME_BYTES];
};

struct greeting {
    int32_t process; // the sender's number
    unsigned char proof[PROOF_BYTES];
};

// The state of tt_leaders_connect.
struct meeting {
    struct ncclComm *comm;
    struct card *cards;  // [processes]
    bool by_path;        // not abstract
    int mine, processes; // this process's number, and how many there are
    int listener;        // -1: none
};

ncclResult_t tt_leaders_wait(struct ncclComm *comm, int fd, short events, int patience_ms,
                             bool *in_time_out)
{
    uint64_t start = tt_now_ns();
    *in_time_out = true;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = events};
        if (poll(&p, 1, SLICE_MS) > 0) {
            return ncclSuccess;
        }
        if (atomic_load_explicit(comm->abort_flag, memory_order_acquire) != 0) {
            return tt_fail(ncclInternalError, "rank %d: the communicator was aborted", comm->rank);
        }
        TRY(tt_meet_look(comm));
        if (patience_ms > 0 && tt_now_ns() - start > (uint64_t)patience_ms * 1000000) {
            *in_time_out = false;
            return ncclSuccess;
        }
    }
}

ncclResult_t tt_leaders_reason(struct ncclComm *comm, ncclResult_t result)
{
    char text[512];
    struct tt_wait wait = tt_wait_begin(comm->abort_flag);
    (void)snprintf(text, sizeof text, "%s", tt_thread_error());
    while (tt_now_ns() - wait.start_ns < TOLD_WITHIN_MS * UINT64_C(1000000)) {
        ncclResult_t told = tt_meet_look(comm);
        if (told != ncclSuccess) {
            tt_meet_failure(comm, text, sizeof text);
            return tt_fail(told, "%s", text);
        }
        if (!tt_wait_round(&wait)) {
            break;
        }
    }
    tt_restore_error(text);
    return result;
}

// Whether process p lives on this rank's machine, apart from this process.
static bool is_neighbour(const struct ncclComm *comm, int process)
{
    const struct tt_peer *me = &comm->peers[comm->rank];
    for (int r = 0; r < comm->nranks; r++) {
        if (comm->peers[r].process == process) {
            return process != me->process && comm->peers[r].machine_hash == me->machine_hash;
        }
    }
    return false;
}

static socklen_t make_address(const struct meeting *m, int process, struct sockaddr_un *out)
{
    char hex[2 * NAME_BYTES + 1];
    memset(out, 0, sizeof *out);
    out->sun_family = AF_UNIX;
    sodium_bin2hex(hex, sizeof hex, m->cards[process].name, NAME_BYTES);
    int n = m->by_path ? snprintf(out->sun_path, sizeof out->sun_path, "/tmp/tutti-%s", hex)
                       : snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "tutti-%s", hex);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

// ---- Greetings ----------------------------------------------------------------------------------

// The proof that `from` gives to `to`: a keyed hash of both numbers and both names, which are
// fresh.
static void make_proof(const struct meeting *m, int from, int to, unsigned char *out)
{
    unsigned char key[32];
    int32_t numbers[2] = {from, to};
    crypto_generichash_state state;
    tt_meet_derive_key(m->comm, "descriptor passing", key);
    crypto_generichash_init(&state, key, sizeof key, PROOF_BYTES);
    crypto_generichash_update(&state, (const unsigned char *)numbers, sizeof numbers);
    crypto_generichash_update(&state, m->cards[from].name, NAME_BYTES);
    crypto_generichash_update(&state, m->cards[to].name, NAME_BYTES);
    crypto_generichash_final(&state, out, PROOF_BYTES);
    sodium_memzero(key, sizeof key);
}

// False: the other side has hung up.
static bool greet(const struct meeting *m, int fd, int to)
{
    struct greeting greeting = {.process = m->mine};
    make_proof(m, m->mine, to, greeting.proof);
    ssize_t n;
    do {
        n = send(fd, &greeting, sizeof greeting, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof greeting;
}

static ncclResult_t greeting_failed(const struct meeting *m)
{
    return tt_leaders_reason(
        m->comm, tt_fail(ncclSystemError, "rank %d: greeting another process: %m", m->comm->rank));
}

// Reads a greeting; *process_out is -1 where none comes in time or it is not believed. patience_ms
// 0: for ever.
static ncclResult_t read_greeting(const struct meeting *m, int fd, int patience_ms,
                                  int *process_out)
{
    struct greeting greeting;
    unsigned char right[PROOF_BYTES];
    bool in_time;
    *process_out = -1;
    ssize_t n;
    do {
        TRY(tt_leaders_wait(m->comm, fd, POLLIN, patience_ms, &in_time));
        n = in_time ? recv(fd, &greeting, sizeof greeting, MSG_DONTWAIT) : 0;
    } while (n < 0 && (errno == EINTR || errno == EAGAIN));
    if (n != (ssize_t)sizeof greeting || greeting.process < 0 || greeting.process >= m->processes) {
        return ncclSuccess;
    }
    make_proof(m, greeting.process, m->mine, right);
    if (sodium_memcmp(right, greeting.proof, sizeof right) == 0) {
        *process_out = greeting.process;
    }
    return ncclSuccess;
}

// ---- Connecting ---------------------------------------------------------------------------------

static ncclResult_t open_listener(struct meeting *m)
{
    struct sockaddr_un where;
    socklen_t length = make_address(m, m->mine, &where);
    m->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (m->listener < 0 || bind(m->listener, (struct sockaddr *)&where, length) != 0 ||
        listen(m->listener, SOMAXCONN) != 0) {
        return tt_fail(ncclSystemError, "rank %d: a unix socket for descriptors: %m",
                       m->comm->rank);
    }
    return ncclSuccess;
}

static void hold_socket(struct tt_local *local, int process, int fd)
{
    local->sockets[process] = fd;
    tt_holdings_add(TT_HOLD_CONNECTIONS, 1);
}

static void drop_socket(struct tt_local *local, int process)
{
    close(local->sockets[process]);
    local->sockets[process] = -1;
    tt_holdings_remove(TT_HOLD_CONNECTIONS, 1);
}

static ncclResult_t connect_to(const struct meeting *m, int process)
{
    struct sockaddr_un where;
    bool in_time;
    socklen_t length = make_address(m, process, &where);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return tt_fail(ncclSystemError, "rank %d: a unix socket for descriptors: %m",
                       m->comm->rank);
    }
    hold_socket(m->comm->local, process, fd);
    while (connect(fd, (struct sockaddr *)&where, length) != 0) {
        if (errno != EINTR && errno != EAGAIN) {
            return tt_leaders_reason(
                m->comm,
                tt_fail(ncclSystemError,
                        "rank %d: reaching another process of this machine over a unix socket: %m; "
                        "processes that share device memory must share a network namespace or /tmp",
                        m->comm->rank));
        }
        TRY(tt_leaders_wait(m->comm, -1, 0, 1, &in_time)); // its queue is full
    }
    return ncclSuccess;
}

// Connects and greets, of `tries` as often as it must: a rank that takes long to greet, as it has
// no processor, is sent away as a stranger is.
static ncclResult_t reach(const struct meeting *m, int process, int *tries)
{
    TRY(connect_to(m, process));
    while (!greet(m, m->comm->local->sockets[process], process)) {
        if (--*tries == 0) {
            return greeting_failed(m);
        }
        drop_socket(m->comm->local, process);
        TRY(connect_to(m, process));
    }
    return ncclSuccess;
}

// Takes one connection, of a lower process or a stranger; strangers are sent away.
static ncclResult_t accept_one(const struct meeting *m, int *missing)
{
    int process = -1;
    bool in_time;
    TRY(tt_leaders_wait(m->comm, m->listener, POLLIN, 0, &in_time));
    int fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
        return tt_fail(ncclSystemError,
                       "rank %d: no descriptor for a connection to another process: %m (raise the "
                       "limit, ulimit -n)",
                       m->comm->rank);
    }
    if (fd < 0) {
        return ncclSuccess;
    }
    ncclResult_t result = read_greeting(m, fd, GREETING_PATIENCE_MS, &process);
    if (result != ncclSuccess || process < 0 || process >= m->mine ||
        m->comm->local->sockets[process] >= 0) {
        close(fd);
        return result;
    }
    hold_socket(m->comm->local, process, fd);
    *missing -= 1;
    return greet(m, fd, process) ? ncclSuccess : greeting_failed(m);
}

static ncclResult_t accept_from_lower(const struct meeting *m)
{
    int missing = 0;
    for (int p = 0; p < m->mine; p++) {
        missing += is_neighbour(m->comm, p);
    }
    while (missing > 0) {
        TRY(accept_one(m, &missing));
    }
    return ncclSuccess;
}

static ncclResult_t read_answer(const struct meeting *m, int process, int *tries)
{
    int answered = -1;
    TRY(read_greeting(m, m->comm->local->sockets[process], 0, &answered));
    while (answered != process && --*tries > 0) {
        drop_socket(m->comm->local, process);
        TRY(reach(m, process, tries));
        TRY(read_greeting(m, m->comm->local->sockets[process], 0, &answered));
    }
    if (answered != process) {
        return tt_leaders_reason(
            m->comm, tt_fail(ncclSystemError,
                             "rank %d: another process of this machine ended, or does not know the "
                             "unique id's secret",
                             m->comm->rank));
    }
    return ncclSuccess;
}

// In three rounds, none of which waits for a later one of anybody: connect and greet, answer, read
// the answers.
static ncclResult_t connect_all(const struct meeting *m)
{
    ncclResult_t result = ncclSuccess;
    int tries = MOST_TRIES;
    for (int p = m->mine + 1; p < m->processes && result == ncclSuccess; p++) {
        result = is_neighbour(m->comm, p) ? reach(m, p, &tries) : ncclSuccess;
    }
    if (result == ncclSuccess) {
        result = accept_from_lower(m);
    }
    for (int p = m->mine + 1; p < m->processes && result == ncclSuccess; p++) {
        result = is_neighbour(m->comm, p) ? read_answer(m, p, &tries) : ncclSuccess;
    }
    return result;
}

// ---- The meeting --------------------------------------------------------------------------------

static uint64_t own_network(void)
{
    struct stat status;
    return stat("/proc/self/ns/net", &status) == 0 ? (uint64_t)status.st_ino : 0;
}

// All cards, by process. Collective.
static ncclResult_t exchange_cards(struct meeting *m)
{
    struct ncclComm *comm = m->comm;
    struct card *by_rank = calloc((size_t)comm->nranks, sizeof *by_rank);
    if (by_rank == NULL) {
        return tt_fail(ncclSystemError, "rank %d: no memory for %d ranks", comm->rank,
                       comm->nranks);
    }
    by_rank[comm->rank].network = own_network();
    randombytes_buf(by_rank[comm->rank].name, NAME_BYTES);
    ncclResult_t result = tt_meet_allgather(comm, by_rank, sizeof *by_rank);
    for (int r = comm->nranks - 1; result == ncclSuccess && r >= 0; r--) {
        m->cards[comm->peers[r].process] = by_rank[r]; // the first rank's stays: the leader's
        // The same decision on all ranks of all machines.
        for (int q = 0; q < r; q++) {
            m->by_path =
                m->by_path || (comm->peers[q].machine_hash == comm->peers[r].machine_hash &&
                               by_rank[q].network != by_rank[r].network);
        }
    }
    free(by_rank);
    return result;
}

// All ranks take part in the barriers, leaders do the rest.
static ncclResult_t meet(struct meeting *m)
{
    struct tt_local *local = m->comm->local;
    bool leads = local->index == 0;
    struct sockaddr_un where;
    TRY(exchange_cards(m));
    if (leads) {
        TRY(open_listener(m));
    }
    ncclResult_t result = tt_meet_barrier(m->comm); // all listen
    if (result == ncclSuccess && leads) {
        result = connect_all(m);
    }
    if (result == ncclSuccess) {
        result = tt_meet_barrier(m->comm); // all are connected
    }
    if (leads && m->by_path) {
        make_address(m, m->mine, &where);
        unlink(where.sun_path);
    }
    return result;
}

ncclResult_t tt_leaders_connect(struct ncclComm *comm)
{
    struct tt_local *local = comm->local;
    struct meeting m = {
        .comm = comm, .mine = comm->peers[comm->rank].process, .processes = 1, .listener = -1};
    for (int r = 0; r < comm->nranks; r++) {
        m.processes =
            comm->peers[r].process >= m.processes ? comm->peers[r].process + 1 : m.processes;
    }
    m.cards = calloc((size_t)m.processes, sizeof *m.cards);
    local->sockets = malloc((size_t)m.processes * sizeof *local->sockets);
    ncclResult_t result;
    if (m.cards == NULL || local->sockets == NULL) {
        result = tt_fail(ncclSystemError, "rank %d: no memory for %d processes", comm->rank,
                         m.processes);
    } else {
        local->socket_count = m.processes;
        for (int p = 0; p < m.processes; p++) {
            local->sockets[p] = -1;
        }
        result = meet(&m);
    }
    if (m.listener >= 0) {
        close(m.listener);
    }
    free(m.cards);
    return result;
}

void tt_leaders_disconnect(struct tt_local *local)
{
    for (int p = 0; local->sockets != NULL && p < local->socket_count; p++) {
        if (local->sockets[p] >= 0) {
            close(local->sockets[p]);
            tt_holdings_remove(TT_HOLD_CONNECTIONS, 1);
        }
    }
    free(local->sockets);
    local->sockets = NULL;
    local->socket_count = 0;
}
