// The id by munge: rank 0 listens at an address that all ranks know and gives whoever comes a
// credential that only processes of its own user can open; so it does not matter who comes. A
// credential can be opened once on a host: everyone gets one of their own.
// See exchange.h. SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "base/params.h"
#include "base/thread.h"
#include "base/wait.h"
#include "bootstrap/wire.h"
#include "launch/exchange.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CREDENTIAL_BYTES = 4096, // longest
    PAUSE_MS = 50,           // between two attempts to reach rank 0
    ANSWER_MS = 5000,        // for rank 0 to answer who has come in
    PORT_MS = 10000,         // for the port to become free
};

// ---- Rank 0 -------------------------------------------------------------------------------------

static void answer(const struct tt_exchange *exchange, int fd)
{
    char *credential = NULL;
    if (tt_munge_seal(&exchange->offer, sizeof exchange->offer, &credential) == ncclSuccess) {
        // Fits into the socket's buffer; who does not take it gets none.
        (void)send(fd, credential, strlen(credential) + 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        free(credential);
    }
    (void)shutdown(fd, SHUT_WR);
    close(fd);
}

static void *serve(void *argument)
{
    const struct tt_exchange *exchange = argument;
    tt_thread_serves();
    for (;;) {
        struct pollfd wait[2] = {{.fd = exchange->wake, .events = POLLIN},
                                 {.fd = exchange->listener, .events = POLLIN}};
        (void)poll(wait, 2, -1);
        if (wait[0].revents != 0) {
            return NULL;
        }
        int fd = accept4(exchange->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0) {
            answer(exchange, fd);
        } else {
            (void)poll(wait, 1, errno == EMFILE || errno == ENFILE ? PAUSE_MS : 0);
        }
    }
}

static ncclResult_t listen_at(const struct tt_address *address, const char *setting, int *fd_out)
{
    struct sockaddr_storage where;
    char text[64];
    int on = 1;
    socklen_t length = tt_address_to_socket(address, &where);
    uint64_t end_ns = tt_now_ns() + PORT_MS * UINT64_C(1000000);
    tt_address_print(address, text, sizeof text);
    int fd = socket(address->family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return tt_fail(ncclSystemError, "rank 0: socket: %m");
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bool listens = false;
    while (!listens) {
        listens = bind(fd, (struct sockaddr *)&where, length) == 0 && listen(fd, SOMAXCONN) == 0;
        if (!listens && (errno != EADDRINUSE || tt_now_ns() > end_ns)) {
            ncclResult_t result =
                tt_fail(ncclSystemError,
                        "rank 0: listening for the ranks at %s (%s): %m; TUTTI_RENDEZVOUS gives "
                        "another meeting place",
                        text, setting);
            close(fd);
            return result;
        }
        if (!listens) {
            (void)poll(NULL, 0, PAUSE_MS);
        }
    }
    *fd_out = fd;
    return ncclSuccess;
}

ncclResult_t tt_credentials_put(struct tt_exchange *exchange, const struct tt_address *address)
{
    TRY(listen_at(address, exchange->setting, &exchange->listener));
    exchange->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int error = exchange->wake < 0 ? errno : tt_thread_start(&exchange->server, serve, exchange);
    exchange->serves = error == 0;
    if (error != 0) {
        errno = error;
        return tt_fail(ncclSystemError, "rank 0: no thread to hand out the unique id: %m");
    }
    return ncclSuccess;
}

void tt_credentials_end(struct tt_exchange *exchange)
{
    if (exchange->serves) {
        const uint64_t one = 1;
        ssize_t written = write(exchange->wake, &one, sizeof one);
        (void)written; // an empty eventfd takes it
        pthread_join(exchange->server, NULL);
        exchange->serves = false;
    }
    if (exchange->wake >= 0) {
        close(exchange->wake);
    }
    if (exchange->listener >= 0) {
        close(exchange->listener);
    }
    exchange->wake = exchange->listener = -1;
}

// ---- The others ---------------------------------------------------------------------------------

// Waits for `events`; false once the time is over.
static bool await(int fd, short events, uint64_t end_ns)
{
    struct pollfd wait = {.fd = fd, .events = events};
    uint64_t now_ns = tt_now_ns();
    while (now_ns < end_ns) {
        int ready = poll(&wait, 1, PAUSE_MS);
        tt_wait_told();
        if (ready > 0) {
            return true;
        }
        now_ns = tt_now_ns();
    }
    return false;
}

// A credential from who listens there; false, with errno, where it gives none.
static bool ask(const struct sockaddr_storage *where, socklen_t length, char *credential)
{
    uint64_t end_ns = tt_now_ns() + ANSWER_MS * UINT64_C(1000000);
    int fd = socket(where->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    size_t used = 0;
    int error = fd < 0 || connect(fd, (const struct sockaddr *)where, length) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
        socklen_t bytes = sizeof error;
        error = ETIMEDOUT;
        if (await(fd, POLLOUT, end_ns)) {
            (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
        }
    }
    while (fd >= 0 && error == 0 && (used == 0 || credential[used - 1] != 0)) {
        ssize_t got = await(fd, POLLIN, end_ns)
                          ? recv(fd, credential + used, CREDENTIAL_BYTES - used, 0)
                          : -1;
        error = got > 0 ? 0 : got == 0 ? EPROTO : ETIMEDOUT;
        used += got > 0 ? (size_t)got : 0;
        if (used == CREDENTIAL_BYTES && credential[used - 1] != 0) {
            error = EPROTO;
        }
    }
    error = fd < 0 ? errno : error;
    if (fd >= 0) {
        close(fd);
    }
    errno = error;
    return error == 0;
}

ncclResult_t tt_credentials_take(const struct tt_place *place, const struct tt_address *address,
                                 struct tt_offer *out)
{
    struct sockaddr_storage where;
    char text[64], credential[CREDENTIAL_BYTES];
    socklen_t length = tt_address_to_socket(address, &where);
    int limit_s = (int)tt_param_int(TT_PARAM_INIT_TIMEOUT);
    uint64_t end_ns = tt_now_ns() + (uint64_t)limit_s * UINT64_C(1000000000);
    tt_address_print(address, text, sizeof text);
    while (!ask(&where, length, credential)) {
        if (tt_now_ns() > end_ns) {
            return tt_fail(ncclSystemError,
                           "rank %d: rank 0 has not handed out the unique id at %s within %d s "
                           "(TUTTI_INIT_TIMEOUT): %m",
                           place->rank, text, limit_s);
        }
        (void)poll(NULL, 0, PAUSE_MS);
    }
    ncclResult_t result = tt_munge_open(credential, out, sizeof *out);
    if (result != ncclSuccess) {
        char why[256];
        (void)snprintf(why, sizeof why, "%s", tt_thread_error());
        return tt_fail(result, "rank %d: the unique id that came from %s cannot be opened: %s",
                       place->rank, text, why);
    }
    if (out->magic != TT_OFFER_MAGIC) {
        return tt_fail(ncclRemoteError,
                       "rank %d: what listens at %s is not this version of the library",
                       place->rank, text);
    }
    return ncclSuccess;
}
