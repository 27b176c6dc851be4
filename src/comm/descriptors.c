// Passing descriptors between the processes of a machine, over the connections of leaders.c.
//
// Each leader sends the descriptors of its process's ranks to every other leader in messages of up
// to 64, then takes what the others sent. The messages of one pass fit a socket's buffer, so nobody
// waits for a reader while he should read himself.
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "comm/comm.h"
#include "comm/local.h"
#include "comm/local_internal.h"
#include "comm/meet.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FDS_PER_MESSAGE = 64, FULL_PATIENCE_TURNS = 10000 };

struct message {
    uint32_t pass;                 // tt_local.passes of the sender
    int32_t count;                 // descriptors that come with it
    int32_t is_last;               // of this pass
    int32_t rank[FDS_PER_MESSAGE]; // whose they are
};

union control {
    char bytes[CMSG_SPACE(sizeof(int) * FDS_PER_MESSAGE)];
    struct cmsghdr align;
};

static ncclResult_t send_one(struct ncclComm *comm, int socket, struct message *message,
                             const int *fds)
{
    union control control;
    struct iovec part = {.iov_base = message, .iov_len = sizeof *message};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    bool in_time;
    memset(&control, 0, sizeof control);
    if (message->count > 0) {
        size_t bytes = sizeof(int) * (size_t)message->count;
        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE(bytes);
        struct cmsghdr *c = CMSG_FIRSTHDR(&header);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(bytes);
        memcpy(CMSG_DATA(c), fds, bytes);
    }
    for (int turn = 0; turn < FULL_PATIENCE_TURNS; turn++) {
        if (sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof *message) {
            return ncclSuccess;
        }
        // EAGAIN: the socket is full; ETOOMANYREFS: others must take descriptors first.
        if (errno != EAGAIN && errno != ETOOMANYREFS && errno != EINTR) {
            break;
        }
        TRY(tt_leaders_wait(comm, errno == EAGAIN ? socket : -1, POLLOUT, 1, &in_time));
    }
    bool has_ended = errno == EPIPE || errno == ECONNRESET;
    ncclResult_t result = tt_fail(has_ended ? ncclRemoteError : ncclSystemError,
                                  "rank %d: passing %d descriptors to another process: %m",
                                  comm->rank, message->count);
    return has_ended ? tt_leaders_reason(comm, result) : result;
}

// Sends the process's descriptors (given[i]: of local rank i, -1 none).
static ncclResult_t send_all(struct ncclComm *comm, int socket, const int *given)
{
    const struct tt_local_group *group = comm->local->group;
    int next = 0;
    while (next < group->size) {
        struct message message = {.pass = comm->local->passes};
        int fds[FDS_PER_MESSAGE] = {0};
        for (; next < group->size && message.count < FDS_PER_MESSAGE; next++) {
            fds[message.count] = given[next];
            message.rank[message.count] = group->world_rank[next];
            message.count += given[next] >= 0;
        }
        message.is_last = next == group->size;
        TRY(send_one(comm, socket, &message, fds));
    }
    return ncclSuccess;
}

// Takes the descriptors that came with a message from `process`; closes what does not belong to it.
static void keep(const struct ncclComm *comm, int process, struct msghdr *header,
                 const struct message *message, int *descriptors_out)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c != NULL; c = CMSG_NXTHDR(header, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        int fds[FDS_PER_MESSAGE];
        int count = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds, CMSG_DATA(c), (size_t)count * sizeof(int));
        for (int i = 0; i < count; i++) {
            int rank = i < message->count ? message->rank[i] : -1;
            if (rank >= 0 && rank < comm->nranks && comm->peers[rank].process == process &&
                descriptors_out[rank] < 0) {
                descriptors_out[rank] = fds[i];
            } else {
                close(fds[i]);
            }
        }
    }
}

// One message; *is_last_out: it was the last of the pass.
static ncclResult_t receive_one(struct ncclComm *comm, int process, int *descriptors_out,
                                bool *is_last_out)
{
    struct message message = {0};
    union control control;
    struct iovec part = {.iov_base = &message, .iov_len = sizeof message};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof control.bytes};
    bool in_time;
    TRY(tt_leaders_wait(comm, comm->local->sockets[process], POLLIN, 0, &in_time));
    ssize_t n = recvmsg(comm->local->sockets[process], &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
        return ncclSuccess;
    }
    if (n <= 0) {
        return tt_leaders_reason(
            comm,
            tt_fail(ncclRemoteError, "rank %d: another process ended while it passed descriptors",
                    comm->rank));
    }
    keep(comm, process, &header, &message, descriptors_out);
    if ((header.msg_flags & MSG_CTRUNC) != 0) {
        return tt_fail(ncclSystemError,
                       "rank %d: no descriptor free for another process's memory: raise the limit "
                       "(ulimit -n)",
                       comm->rank);
    }
    if (n != (ssize_t)sizeof message || message.pass != comm->local->passes) {
        return tt_bug("rank %d: descriptors of pass %u came in pass %u", comm->rank, message.pass,
                      comm->local->passes);
    }
    *is_last_out = message.is_last != 0;
    return ncclSuccess;
}

static ncclResult_t receive_all(struct ncclComm *comm, int process, int *descriptors_out)
{
    bool is_last = false;
    while (!is_last) {
        TRY(receive_one(comm, process, descriptors_out, &is_last));
    }
    return ncclSuccess;
}

static ncclResult_t exchange_as_leader(struct ncclComm *comm, void *const *all,
                                       int *descriptors_out)
{
    struct tt_local *local = comm->local;
    int *given = calloc((size_t)local->group->size, sizeof *given);
    if (given == NULL) {
        return tt_fail(ncclSystemError, "rank %d: no memory for descriptors", comm->rank);
    }
    for (int i = 0; i < local->group->size; i++) {
        given[i] = *(const int *)all[i];
    }
    ncclResult_t result = ncclSuccess;
    for (int p = 0; result == ncclSuccess && p < local->socket_count; p++) {
        if (local->sockets[p] >= 0) {
            result = send_all(comm, local->sockets[p], given);
        }
    }
    for (int p = 0; result == ncclSuccess && p < local->socket_count; p++) {
        if (local->sockets[p] >= 0) {
            result = receive_all(comm, p, descriptors_out);
        }
    }
    local->passes++;
    free(given);
    return result;
}

static ncclResult_t pass(struct ncclComm *comm, int descriptor, int *descriptors_out)
{
    void *const *all;
    if (comm->local->sockets == NULL) {
        TRY(tt_leaders_connect(comm));
    }
    TRY(tt_local_exchange(comm, &descriptor, &all));
    if (comm->local->index == 0) {
        TRY(exchange_as_leader(comm, all, descriptors_out));
    }
    return tt_local_barrier(
        comm); // the others' descriptors stay open until the leader has sent them
}

ncclResult_t tt_local_pass_descriptors(struct ncclComm *comm, int descriptor, int *descriptors_out)
{
    for (int r = 0; r < comm->nranks; r++) {
        descriptors_out[r] = -1;
    }
    ncclResult_t result = pass(comm, descriptor, descriptors_out);
    if (result != ncclSuccess) {
        // Halfway through, ranks have no common state to go on from: it ends for all, with this
        // reason.
        char text[512];
        (void)snprintf(text, sizeof text, "%s", tt_last_error());
        tt_meet_report_failure(comm, text);
        tt_local_fail(comm, result, text);
        for (int r = 0; r < comm->nranks; r++) {
            if (descriptors_out[r] >= 0) {
                close(descriptors_out[r]);
                descriptors_out[r] = -1;
            }
        }
    }
    return result;
}
