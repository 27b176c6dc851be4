// A rank's talk with its root: frames, exchanges, looks in between, the leave. Every wait polls in
// slices, so that an abort ends it at once.
// See bootstrap.h and wire.h. SPDX-License-Identifier: Apache-2.0
#include "bootstrap/bootstrap.h"

#include "base/holdings.h"
#include "base/log.h"
#include "base/params.h"
#include "base/wait.h"
#include "bootstrap/bootstrap_internal.h"

#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { FAREWELL_MS = 500 };

ncclResult_t tt_bootstrap_break(struct tt_bootstrap *b, ncclResult_t result)
{
    (void)snprintf(b->failure, sizeof b->failure, "%s", tt_thread_error());
    b->broken = result;
    return result;
}

ncclResult_t tt_bootstrap_wait(struct tt_bootstrap *b, short events, uint64_t deadline_ns)
{
    for (;;) {
        if (b->abort_flag != NULL &&
            atomic_load_explicit(b->abort_flag, memory_order_acquire) != 0) {
            b->may_tell = events == POLLIN && b->frame != NULL; // nothing is sent in part
            return tt_bootstrap_break(
                b, tt_fail(ncclInternalError, "rank %d: the communicator was aborted", b->rank));
        }
        struct pollfd p = {.fd = b->fd, .events = events};
        int ready = poll(&p, 1, TT_SLICE_MS);
        tt_wait_told();
        if (ready > 0) {
            return ncclSuccess;
        }
        if (ready < 0 && errno != EINTR) {
            return tt_bootstrap_break(b, tt_fail(ncclSystemError, "rank %d: poll: %m", b->rank));
        }
        if (deadline_ns != 0 && tt_now_ns() > deadline_ns) {
            return tt_bootstrap_break(
                b, tt_fail(ncclSystemError,
                           "rank %d: the root of the unique id does not answer in time (at "
                           "most TUTTI_INIT_TIMEOUT, %ld s)",
                           b->rank, tt_param_int(TT_PARAM_INIT_TIMEOUT)));
        }
    }
}

ncclResult_t tt_bootstrap_root_gone(struct tt_bootstrap *b)
{
    if (b->is_tentative) {
        b->was_dropped = true;
        return ncclRemoteError;
    }
    if (b->root.rank >= 0 && !b->root_may_end) {
        b->dead_rank = b->root.rank;
        return tt_bootstrap_break(
            b, tt_fail(ncclRemoteError,
                       "rank %d: rank %d (process %d on %.63s, which made the unique id) died, or "
                       "ended without ncclCommDestroy",
                       b->rank, b->root.rank, b->root.pid, b->root.host));
    }
    return tt_bootstrap_break(
        b,
        tt_fail(ncclRemoteError,
                "rank %d: the process that made the unique id has ended or closed the connection",
                b->rank));
}

static bool would_block(ssize_t n)
{
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

// A connection that has ended is no failure here: the answer, which every sender waits for, tells
// why.
ncclResult_t tt_bootstrap_send_all(struct tt_bootstrap *b, const void *data, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = send(b->fd, (const char *)data + done, bytes - done, MSG_NOSIGNAL);
        bool waits = would_block(n);
        ncclResult_t result = waits ? tt_bootstrap_wait(b, POLLOUT, b->deadline_ns) : ncclSuccess;
        if (result != ncclSuccess) {
            return result;
        }
        if (waits) {
            continue;
        }
        if (n <= 0) {
            return ncclSuccess;
        }
        done += (size_t)n;
    }
    return ncclSuccess;
}

ncclResult_t tt_bootstrap_receive_all(struct tt_bootstrap *b, void *data, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = recv(b->fd, (char *)data + done, bytes - done, 0);
        bool waits = would_block(n);
        ncclResult_t result = waits ? tt_bootstrap_wait(b, POLLIN, b->deadline_ns) : ncclSuccess;
        if (result != ncclSuccess) {
            return result;
        }
        if (waits) {
            continue;
        }
        if (n <= 0) {
            return tt_bootstrap_root_gone(b);
        }
        done += (size_t)n;
    }
    return ncclSuccess;
}

// Whether the root would understand another frame.
static bool can_speak(const struct tt_bootstrap *b)
{
    return b->fd >= 0 && (b->broken == ncclSuccess || b->may_tell);
}

// Best effort: one attempt, what does not fit into the socket's buffer is lost with the connection.
static void send_last(struct tt_bootstrap *b, enum tt_frame_kind kind, const char *text)
{
    unsigned char frame[1024];
    size_t bytes = strnlen(text, 500);
    if (!can_speak(b)) {
        return;
    }
    tt_wire_seal(&b->session, kind, text, bytes, NULL, 0, frame);
    ssize_t sent = send(b->fd, frame, tt_wire_frame_bytes(bytes), MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)sent;
}

// Between two frames that are sent: the root is told, where it knows this rank by an earlier one.
static ncclResult_t have_no_memory(struct tt_bootstrap *b, size_t bytes)
{
    ncclResult_t result =
        tt_fail(ncclSystemError, "rank %d: no memory for a message of %zu bytes", b->rank, bytes);
    if (b->frame != NULL) {
        b->has_reported = true;
        send_last(b, TT_FRAME_FAILED, tt_thread_error());
    }
    return tt_bootstrap_break(b, result);
}

static ncclResult_t reserve_frame(struct tt_bootstrap *b, size_t bytes)
{
    if (bytes > b->frame_capacity) {
        unsigned char *grown = realloc(b->frame, bytes);
        if (grown == NULL) {
            return have_no_memory(b, bytes);
        }
        b->frame = grown;
        b->frame_capacity = bytes;
    }
    return ncclSuccess;
}

ncclResult_t tt_bootstrap_send_frame(struct tt_bootstrap *b, enum tt_frame_kind kind,
                                     const void *first, size_t first_bytes, const void *second,
                                     size_t second_bytes)
{
    size_t bytes = tt_wire_frame_bytes(first_bytes + second_bytes);
    TRY(reserve_frame(b, bytes));
    tt_wire_seal(&b->session, kind, first, first_bytes, second, second_bytes, b->frame);
    return tt_bootstrap_send_all(b, b->frame, bytes);
}

static ncclResult_t read_frame(struct tt_bootstrap *b, enum tt_frame_kind *kind_out,
                               unsigned char **body_out, size_t *bytes_out)
{
    TRY(reserve_frame(b, TT_HEADER_BYTES));
    TRY(tt_bootstrap_receive_all(b, b->frame, TT_HEADER_BYTES));
    size_t rest = tt_wire_rest_bytes(b->frame);
    if (rest > 0) {
        TRY(reserve_frame(b, TT_HEADER_BYTES + rest));
        TRY(tt_bootstrap_receive_all(b, b->frame + TT_HEADER_BYTES, rest));
    }
    if (rest == 0 || !tt_wire_unseal(&b->session, b->frame, TT_HEADER_BYTES + rest, kind_out,
                                     body_out, bytes_out)) {
        return tt_bootstrap_break(
            b, tt_fail(ncclSystemError, "rank %d: damaged message from the root", b->rank));
    }
    return ncclSuccess;
}

// What a frame that ends the wait for another one means.
static ncclResult_t judge_frame(struct tt_bootstrap *b, enum tt_frame_kind kind,
                                const unsigned char *body, size_t bytes)
{
    int32_t numbers[2];
    if (kind == TT_FRAME_USED && b->is_tentative) {
        b->was_dropped = true;
        return ncclInvalidUsage;
    }
    if (kind == TT_FRAME_USED) {
        return tt_bootstrap_break(
            b, tt_fail(ncclInvalidUsage,
                       "rank %d: this unique id is already used: make a new one for "
                       "each communicator",
                       b->rank));
    }
    if (kind != TT_FRAME_ERROR || bytes < sizeof numbers) {
        return tt_bootstrap_break(b, tt_bug("rank %d: the root sent frame %d", b->rank, (int)kind));
    }
    memcpy(numbers, body, sizeof numbers);
    b->dead_rank = numbers[1];
    return tt_bootstrap_break(b, tt_fail((ncclResult_t)numbers[0], "rank %d: %.*s", b->rank,
                                         (int)(bytes - sizeof numbers),
                                         (const char *)body + sizeof numbers));
}

// Ranks that have left in good order: i32 whether the root may end now, then their numbers.
static void note_leavers(struct tt_bootstrap *b, const unsigned char *body, size_t bytes)
{
    int32_t number;
    for (size_t i = 0; i + sizeof number <= bytes; i += sizeof number) {
        memcpy(&number, body + i, sizeof number);
        if (i == 0) {
            b->root_may_end = b->root_may_end || number != 0;
        } else if (number >= 0 && number < b->nranks && b->left != NULL) {
            atomic_store_explicit(&b->left[number], 1, memory_order_release);
        }
    }
}

// Takes a frame that no call waits for; false: it is none of those.
static bool take_news(struct tt_bootstrap *b, enum tt_frame_kind kind, const unsigned char *body,
                      size_t bytes)
{
    if (kind == TT_FRAME_NOTICE && b->what[0] != 0) {
        tt_say("rank %d: %s: %.*s", b->rank, b->what, (int)bytes, (const char *)body);
    } else if (kind == TT_FRAME_NOTICE) {
        tt_say("rank %d: joining: %.*s", b->rank, (int)bytes, (const char *)body);
    } else if (kind == TT_FRAME_LEFT) {
        note_leavers(b, body, bytes);
    } else {
        return false;
    }
    return true;
}

ncclResult_t tt_bootstrap_expect(struct tt_bootstrap *b, enum tt_frame_kind kind,
                                 unsigned char **body_out, size_t *bytes_out)
{
    for (;;) {
        enum tt_frame_kind got = TT_FRAME_ERROR;
        TRY(read_frame(b, &got, body_out, bytes_out));
        if (got == kind && kind != TT_FRAME_ERROR) {
            return ncclSuccess;
        }
        if (!take_news(b, got, *body_out, *bytes_out)) {
            return judge_frame(b, got, *body_out, *bytes_out);
        }
    }
}

// ---- Exchanges ----------------------------------------------------------------------------------

static ncclResult_t gather(struct tt_bootstrap *b, void *data, size_t bytes)
{
    unsigned char *body = NULL;
    size_t body_bytes = 0;
    if (b->broken != ncclSuccess) { // by an earlier call, or seen by a look
        return tt_fail(b->broken, "%s", b->failure);
    }
    if (bytes > ((size_t)TT_FRAME_LIMIT - sizeof b->sequence) / (size_t)b->nranks) {
        return tt_bug("an exchange of %zu bytes a rank over %d ranks", bytes, b->nranks);
    }
    TRY(tt_bootstrap_send_frame(b, TT_FRAME_GATHER, &b->sequence, sizeof b->sequence,
                                (char *)data + (size_t)b->rank * bytes, bytes));
    TRY(tt_bootstrap_expect(b, TT_FRAME_GATHER, &body, &body_bytes));
    if (body_bytes != sizeof b->sequence + bytes * (size_t)b->nranks) {
        return tt_bootstrap_break(b, tt_bug("an exchange gave %zu bytes", body_bytes));
    }
    memcpy(data, body + sizeof b->sequence, bytes * (size_t)b->nranks);
    b->sequence++;
    return ncclSuccess;
}

// ---- One user at a time -------------------------------------------------------------------------

// A look is short, and two calls at once are an error of the user's. False: aborted meanwhile.
static bool acquire(struct tt_bootstrap *b, const _Atomic uint32_t *abort_flag)
{
    struct tt_wait wait = tt_wait_begin(abort_flag);
    while (atomic_exchange(&b->in_use, 1) != 0) {
        if (!tt_wait_round(&wait)) {
            return false;
        }
    }
    return true;
}

static void wake_when_readable(struct tt_bootstrap *b)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = b->watch_key};
    (void)epoll_ctl(b->watcher, EPOLL_CTL_MOD, b->fd, &event);
}

// The watcher may have woken meanwhile and found the connection in use: then it must wake again for
// what is still to be read.
static void release(struct tt_bootstrap *b)
{
    bool is_over = b->broken != ncclSuccess || b->root_ended;
    atomic_store(&b->in_use, 0);
    if (!is_over && atomic_load(&b->armed) != 0 && atomic_exchange(&b->disarmed, 0) != 0) {
        wake_when_readable(b);
    }
}

ncclResult_t tt_bootstrap_watch(struct tt_bootstrap *b, int watcher, void *key)
{
    struct epoll_event event = {.events = EPOLLONESHOT, .data.ptr = key};
    if (epoll_ctl(watcher, EPOLL_CTL_ADD, b->fd, &event) != 0) {
        return tt_fail(ncclSystemError, "rank %d: watching the connection to the root: %m",
                       b->rank);
    }
    b->watcher = watcher;
    b->watch_key = key;
    return ncclSuccess;
}

void tt_bootstrap_arm(struct tt_bootstrap *b)
{
    if (b->watcher >= 0) {
        atomic_store(&b->armed, 1);
        wake_when_readable(b);
    }
}

void tt_bootstrap_woken(struct tt_bootstrap *b)
{
    atomic_store(&b->disarmed, 1);
}

void tt_bootstrap_describe(struct tt_bootstrap *b, const char *what)
{
    if (acquire(b, b->abort_flag)) {
        (void)snprintf(b->what, sizeof b->what, "%s", what);
        release(b);
    }
}

ncclResult_t tt_bootstrap_allgather(struct tt_bootstrap *b, void *data, size_t bytes)
{
    if (!acquire(b, b->abort_flag)) {
        return tt_fail(ncclInternalError, "rank %d: the communicator was aborted", b->rank);
    }
    ncclResult_t result = gather(b, data, bytes);
    release(b);
    return result;
}

static ncclResult_t take_one_frame(struct tt_bootstrap *b)
{
    enum tt_frame_kind kind = TT_FRAME_ERROR;
    unsigned char *body;
    size_t bytes;
    TRY(read_frame(b, &kind, &body, &bytes));
    return take_news(b, kind, body, bytes) ? ncclSuccess : judge_frame(b, kind, body, bytes);
}

// Reads what has come. Outside a gather the root sends errors and news.
static ncclResult_t take_what_came(struct tt_bootstrap *b)
{
    ncclResult_t result = ncclSuccess;
    while (result == ncclSuccess && !b->root_ended) {
        unsigned char first;
        ssize_t n = recv(b->fd, &first, 1, MSG_PEEK | MSG_DONTWAIT);
        if (would_block(n)) {
            break;
        }
        if (n > 0) {
            result = take_one_frame(b);
        } else if (b->root_may_end || b->root.rank < 0) {
            b->root_ended = true; // only a later exchange would need it
        } else {
            result = tt_bootstrap_root_gone(b);
        }
    }
    return result;
}

ncclResult_t tt_bootstrap_look(struct tt_bootstrap *b)
{
    if (atomic_exchange(&b->in_use, 1) != 0) {
        return ncclSuccess; // a call is in progress, and tells itself
    }
    ncclResult_t result = ncclSuccess;
    if (!b->has_reported) {
        result = b->broken != ncclSuccess ? b->broken : take_what_came(b);
    }
    release(b);
    return result;
}

bool tt_bootstrap_has_failed(const struct tt_bootstrap *b)
{
    return b->broken != ncclSuccess;
}

const char *tt_bootstrap_failure(const struct tt_bootstrap *b)
{
    return b->failure;
}

int tt_bootstrap_dead_rank(const struct tt_bootstrap *b)
{
    return b->dead_rank;
}

const _Atomic unsigned char *tt_bootstrap_left(const struct tt_bootstrap *b)
{
    return b->left;
}

ncclResult_t tt_bootstrap_barrier(struct tt_bootstrap *bootstrap)
{
    char nothing;
    return tt_bootstrap_allgather(bootstrap, &nothing, 0);
}

static void report(struct tt_bootstrap *b, const char *text)
{
    if (!b->has_reported) {
        b->has_reported = true;
        send_last(b, TT_FRAME_FAILED, text);
    }
    release(b);
}

void tt_bootstrap_report_failure(struct tt_bootstrap *b, const char *text)
{
    if (b != NULL && acquire(b, NULL)) {
        report(b, text);
    }
}

bool tt_bootstrap_try_reporting(struct tt_bootstrap *b, const char *text)
{
    if (atomic_exchange(&b->in_use, 1) != 0) {
        return false;
    }
    report(b, text);
    return true;
}

void tt_bootstrap_derive_key(const struct tt_bootstrap *bootstrap, const char *label,
                             unsigned char key_out[32])
{
    tt_wire_derive(bootstrap->secret, label, key_out);
}

// The root of this process must have told the others of this leave before the process can end:
// it hangs up when it has.
static void await_farewell(struct tt_bootstrap *b)
{
    char ignored[256];
    uint64_t end_ns = tt_now_ns() + FAREWELL_MS * UINT64_C(1000000);
    while (tt_now_ns() < end_ns) {
        struct pollfd p = {.fd = b->fd, .events = POLLIN};
        ssize_t n = poll(&p, 1, TT_SLICE_MS) > 0 ? recv(b->fd, ignored, sizeof ignored, 0) : -1;
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            return;
        }
    }
}

void tt_bootstrap_leave(struct tt_bootstrap *b)
{
    if (b == NULL) {
        return;
    }
    send_last(b, TT_FRAME_LEAVE, "");
    if (b->root_is_here && can_speak(b)) {
        await_farewell(b);
    }
    // What is unread would make the kernel reset the connection, and the last words with it.
    char unread[512];
    while (b->fd >= 0 && recv(b->fd, unread, sizeof unread, MSG_DONTWAIT) > 0) {
    }
    if (b->watcher >= 0) {
        (void)epoll_ctl(b->watcher, EPOLL_CTL_DEL, b->fd, NULL);
    }
    if (b->fd >= 0) {
        close(b->fd);
    }
    sodium_memzero(b->secret, sizeof b->secret);
    sodium_memzero(&b->session, sizeof b->session);
    free(b->frame);
    free((void *)b->left);
    free(b);
    tt_holdings_remove(TT_HOLD_CONNECTIONS, 1);
}
