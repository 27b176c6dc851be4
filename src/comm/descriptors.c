// Descriptors between the processes of one machine: a unix connection per pair of processes, made at the first use.
//
// Each process's leader (its first rank) listens at an abstract name of 128 random bits that the ranks learn over the sealed
// rendezvous. The process with the lower number connects; both sides then prove a key derived from the unique id's secret before a
// descriptor passes. SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "bootstrap/bootstrap.h"
#include "comm/comm.h"
#include "comm/local.h"
#include "comm/local_internal.h"

#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { NAME_BYTES = 16, SLICE_MS = 20, FDS_PER_MESSAGE = 64, PROOF_BYTES = 32 };

struct greeting {
    int32_t process; // the sender's number
    unsigned char proof[PROOF_BYTES];
};
struct message {
    int32_t count;
    int32_t rank[FDS_PER_MESSAGE];
};

static ncclResult_t wait_readable(const struct ncclComm *comm, int fd)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (atomic_load(comm->abort_flag) != 0 || atomic_load(&comm->local->group->failed) != 0) {
            return tt_fail(ncclInternalError, "rank %d: the communicator was aborted", comm->rank);
        }
        if (poll(&p, 1, SLICE_MS) > 0) {
            return ncclSuccess;
        }
    }
}

static socklen_t abstract_name(const unsigned char *random, struct sockaddr_un *out)
{
    char hex[2 * NAME_BYTES + 1];
    memset(out, 0, sizeof *out);
    out->sun_family = AF_UNIX;
    sodium_bin2hex(hex, sizeof hex, random, NAME_BYTES);
    int n = snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "tutti-%s", hex);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

// The proof that `from` gives to `to`: a keyed hash of both numbers and both names, which are fresh.
static void make_proof(const struct ncclComm *comm, const unsigned char *names, int from, int to, unsigned char *out)
{
    unsigned char key[32];
    int32_t numbers[2] = {from, to};
    crypto_generichash_state state;
    tt_bootstrap_derive_key(comm->bootstrap, "descriptor passing", key);
    crypto_generichash_init(&state, key, sizeof key, PROOF_BYTES);
    crypto_generichash_update(&state, (const unsigned char *)numbers, sizeof numbers);
    crypto_generichash_update(&state, names + (size_t)from * NAME_BYTES, NAME_BYTES);
    crypto_generichash_update(&state, names + (size_t)to * NAME_BYTES, NAME_BYTES);
    crypto_generichash_final(&state, out, PROOF_BYTES);
    sodium_memzero(key, sizeof key);
}

static ncclResult_t greet(const struct ncclComm *comm, const unsigned char *names, int fd, int to)
{
    struct greeting greeting = {.process = comm->peers[comm->rank].process};
    make_proof(comm, names, greeting.process, to, greeting.proof);
    if (send(fd, &greeting, sizeof greeting, MSG_NOSIGNAL) != (ssize_t)sizeof greeting) {
        return tt_fail(ncclSystemError, "rank %d: greeting another process: %m", comm->rank);
    }
    return ncclSuccess;
}

// Reads a greeting; *process_out is -1 where it is not believed.
static ncclResult_t read_greeting(const struct ncclComm *comm, const unsigned char *names, int fd, int *process_out)
{
    struct greeting greeting;
    unsigned char right[PROOF_BYTES];
    *process_out = -1;
    TRY(wait_readable(comm, fd));
    if (recv(fd, &greeting, sizeof greeting, MSG_WAITALL) != (ssize_t)sizeof greeting || greeting.process < 0 ||
        greeting.process >= comm->local->socket_count) {
        return ncclSuccess;
    }
    make_proof(comm, names, greeting.process, comm->peers[comm->rank].process, right);
    if (sodium_memcmp(right, greeting.proof, sizeof right) == 0) {
        *process_out = greeting.process;
    }
    return ncclSuccess;
}

static ncclResult_t open_listener(const struct ncclComm *comm, const unsigned char *name, int *fd_out)
{
    struct sockaddr_un where;
    socklen_t length = abstract_name(name, &where);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&where, length) != 0 || listen(fd, SOMAXCONN) != 0) {
        ncclResult_t result = tt_fail(ncclSystemError, "rank %d: a unix socket for descriptors: %m", comm->rank);
        if (fd >= 0) {
            close(fd);
        }
        return result;
    }
    *fd_out = fd;
    return ncclSuccess;
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

static ncclResult_t connect_to(const struct ncclComm *comm, const unsigned char *names, int process)
{
    struct sockaddr_un where;
    socklen_t length = abstract_name(names + (size_t)process * NAME_BYTES, &where);
    int other, fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return tt_fail(ncclSystemError, "rank %d: a unix socket: %m", comm->rank);
    }
    comm->local->sockets[process] = fd;
    while (connect(fd, (struct sockaddr *)&where, length) != 0) {
        if (errno != EINTR && errno != EAGAIN) {
            return tt_fail(ncclSystemError,
                           "rank %d: reaching another process of this machine over an abstract unix socket: %m; the "
                           "ranks must share a network namespace",
                           comm->rank);
        }
        poll(NULL, 0, 1);
    }
    TRY(greet(comm, names, fd, process));
    TRY(read_greeting(comm, names, fd, &other));
    if (other != process) {
        return tt_fail(ncclSystemError, "rank %d: a process that listens for descriptors does not know the secret",
                       comm->rank);
    }
    return ncclSuccess;
}

// Accepts until every lower process has come. Strangers are sent away.
static ncclResult_t accept_from_lower(const struct ncclComm *comm, const unsigned char *names, int listener)
{
    int missing = 0, mine = comm->peers[comm->rank].process;
    for (int p = 0; p < mine; p++) {
        missing += is_neighbour(comm, p);
    }
    while (missing > 0) {
        int process;
        TRY(wait_readable(comm, listener));
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) {
            continue;
        }
        ncclResult_t result = read_greeting(comm, names, fd, &process);
        if (result != ncclSuccess || process < 0 || process >= mine || comm->local->sockets[process] >= 0) {
            close(fd);
            TRY(result);
            continue;
        }
        comm->local->sockets[process] = fd;
        missing--;
        TRY(greet(comm, names, fd, process));
    }
    return ncclSuccess;
}

static ncclResult_t connect_leaders(struct ncclComm *comm, const unsigned char *names, int listener)
{
    for (int p = comm->peers[comm->rank].process + 1; p < comm->local->socket_count; p++) {
        // The greeting is answered only when the other accepts, so a chain of waits ends at the highest process.
        if (is_neighbour(comm, p)) {
            TRY(connect_to(comm, names, p));
        }
    }
    return accept_from_lower(comm, names, listener);
}

// Makes the connections. Collective: the names travel through the rendezvous.
static ncclResult_t open_connections(struct ncclComm *comm)
{
    struct tt_local *local = comm->local;
    int processes = 0, listener = -1;
    for (int r = 0; r < comm->nranks; r++) {
        processes = comm->peers[r].process >= processes ? comm->peers[r].process + 1 : processes;
    }
    unsigned char *by_rank = calloc((size_t)comm->nranks, NAME_BYTES);
    unsigned char *names = calloc((size_t)processes, NAME_BYTES);
    local->sockets = malloc((size_t)processes * sizeof *local->sockets);
    local->socket_count = processes;
    ncclResult_t result = ncclSuccess;
    if (by_rank == NULL || names == NULL || local->sockets == NULL) {
        result = tt_fail(ncclSystemError, "rank %d: no memory for %d processes", comm->rank, processes);
    }
    for (int p = 0; result == ncclSuccess && p < processes; p++) {
        local->sockets[p] = -1;
    }
    if (result == ncclSuccess && local->index == 0) {
        randombytes_buf(by_rank + (size_t)comm->rank * NAME_BYTES, NAME_BYTES);
        result = open_listener(comm, by_rank + (size_t)comm->rank * NAME_BYTES, &listener);
    }
    if (result == ncclSuccess) {
        result = tt_bootstrap_allgather(comm->bootstrap, by_rank, NAME_BYTES);
    }
    if (result == ncclSuccess && local->index == 0) {
        for (int r = comm->nranks - 1; r >= 0; r--) { // the first rank of a process is its leader
            memcpy(names + (size_t)comm->peers[r].process * NAME_BYTES, by_rank + (size_t)r * NAME_BYTES, NAME_BYTES);
        }
        result = connect_leaders(comm, names, listener);
    }
    if (listener >= 0) {
        close(listener);
    }
    free(by_rank);
    free(names);
    return result;
}

void tt_local_close_sockets(struct tt_local *local)
{
    for (int p = 0; local->sockets != NULL && p < local->socket_count; p++) {
        if (local->sockets[p] >= 0) {
            close(local->sockets[p]);
        }
    }
    free(local->sockets);
    local->sockets = NULL;
}

// ---- Passing --------------------------------------------------------------------------------------------------------

union control {
    char bytes[CMSG_SPACE(sizeof(int) * FDS_PER_MESSAGE)];
    struct cmsghdr align;
};

static ncclResult_t send_some(const struct ncclComm *comm, int socket, const struct message *message, const int *fds)
{
    union control control;
    struct iovec part = {.iov_base = (void *)message, .iov_len = sizeof *message};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    memset(&control, 0, sizeof control);
    if (message->count > 0) {
        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)message->count);
        struct cmsghdr *c = CMSG_FIRSTHDR(&header);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)message->count);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)message->count);
    }
    ssize_t n;
    do {
        n = sendmsg(socket, &header, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof *message) {
        return tt_fail(ncclRemoteError, "rank %d: passing descriptors to another process: %m", comm->rank);
    }
    return ncclSuccess;
}

// Sends the process's descriptors (given[i]: of local rank i, -1 none), the last message with fewer than a full load.
static ncclResult_t send_descriptors(const struct ncclComm *comm, int socket, const int *given)
{
    struct message message = {0};
    int fds[FDS_PER_MESSAGE];
    for (int i = 0; i < comm->local->group->size; i++) {
        if (given[i] >= 0) {
            fds[message.count] = given[i];
            message.rank[message.count++] = comm->local->group->world_rank[i];
        }
        if (message.count == FDS_PER_MESSAGE) {
            TRY(send_some(comm, socket, &message, fds));
            memset(&message, 0, sizeof message);
        }
    }
    return send_some(comm, socket, &message, fds);
}

static void keep_descriptors(const struct ncclComm *comm, const struct msghdr *header, const struct message *message,
                             int *descriptors_out)
{
    for (const struct cmsghdr *c = CMSG_FIRSTHDR(header); c != NULL; c = CMSG_NXTHDR((struct msghdr *)header, (struct cmsghdr *)c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        int fds[FDS_PER_MESSAGE], count = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds, CMSG_DATA(c), (size_t)count * sizeof(int));
        for (int i = 0; i < count; i++) {
            int rank = i < message->count ? message->rank[i] : -1;
            if (rank >= 0 && rank < comm->nranks && descriptors_out[rank] < 0) {
                descriptors_out[rank] = fds[i];
            } else {
                close(fds[i]);
            }
        }
    }
}

static ncclResult_t receive_descriptors(const struct ncclComm *comm, int socket, int *descriptors_out)
{
    struct message message;
    do {
        union control control;
        struct iovec part = {.iov_base = &message, .iov_len = sizeof message};
        struct msghdr header = {
            .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
        TRY(wait_readable(comm, socket));
        ssize_t n = recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_WAITALL);
        if (n < 0 && errno == EINTR) {
            message.count = FDS_PER_MESSAGE;
            continue;
        }
        if (n != (ssize_t)sizeof message) {
            return tt_fail(ncclRemoteError, "rank %d: another process ended while it passed descriptors", comm->rank);
        }
        keep_descriptors(comm, &header, &message, descriptors_out);
        if ((header.msg_flags & MSG_CTRUNC) != 0) {
            return tt_fail(ncclSystemError,
                           "rank %d: no descriptor free for another process's memory: raise the limit (ulimit -n)",
                           comm->rank);
        }
    } while (message.count == FDS_PER_MESSAGE);
    return ncclSuccess;
}

static ncclResult_t exchange_as_leader(struct ncclComm *comm, void *const *all, int *descriptors_out)
{
    struct tt_local *local = comm->local;
    int *given = malloc((size_t)local->group->size * sizeof *given);
    if (given == NULL) {
        return tt_fail(ncclSystemError, "rank %d: no memory for descriptors", comm->rank);
    }
    for (int i = 0; i < local->group->size; i++) {
        given[i] = *(const int *)all[i];
    }
    ncclResult_t result = ncclSuccess;
    for (int p = 0; result == ncclSuccess && p < local->socket_count; p++) {
        if (local->sockets[p] >= 0) {
            result = send_descriptors(comm, local->sockets[p], given);
        }
    }
    for (int p = 0; result == ncclSuccess && p < local->socket_count; p++) {
        if (local->sockets[p] >= 0) {
            result = receive_descriptors(comm, local->sockets[p], descriptors_out);
        }
    }
    free(given);
    return result;
}

ncclResult_t tt_local_pass_descriptors(struct ncclComm *comm, int descriptor, int *descriptors_out)
{
    void *const *all;
    for (int r = 0; r < comm->nranks; r++) {
        descriptors_out[r] = -1;
    }
    if (comm->local->sockets == NULL) {
        TRY(open_connections(comm));
    }
    TRY(tt_local_exchange(comm, &descriptor, &all));
    ncclResult_t result = ncclSuccess;
    if (comm->local->index == 0) {
        result = exchange_as_leader(comm, all, descriptors_out);
        if (result != ncclSuccess) {
            tt_local_fail(comm);
        }
    }
    TRY(tt_local_barrier(comm)); // the others' descriptors stay readable until the leader has sent them
    return result;
}
