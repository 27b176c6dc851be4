// A rank's side of the rendezvous: joins, gathers, leaves. Every wait polls in slices, so that an
// abort ends it at once.
// See bootstrap.h and wire.h. SPDX-License-Identifier: Apache-2.0
#include "bootstrap/bootstrap.h"

#include "base/log.h"
#include "base/params.h"
#include "base/wait.h"
#include "bootstrap/interface.h"
#include "bootstrap/wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLICE_MS = 20, HANDSHAKE_MS = 30000, WIRE_REVISION = 1, RETRY_MS = 50 };

struct tt_bootstrap {
    int fd;
    int rank, nranks;
    const _Atomic uint32_t *abort_flag;
    unsigned char secret[TT_SECRET_BYTES];
    struct tt_session session;
    uint32_t sequence;    // of the next gather
    ncclResult_t broken;  // once not ncclSuccess every call returns it
    bool is_tentative;    // a connection that closes is then tried again
    bool was_dropped;     // it did
    atomic_int in_use;    // by a call, or by a look from another thread
    unsigned char *frame; // the last frame received
    size_t frame_capacity;
};

static ncclResult_t broken(struct tt_bootstrap *b, ncclResult_t result)
{
    b->broken = result;
    return result;
}

// Waits for `events`; deadline_ns 0: none.
static ncclResult_t wait_for(struct tt_bootstrap *b, short events, uint64_t deadline_ns)
{
    for (;;) {
        if (b->abort_flag != NULL &&
            atomic_load_explicit(b->abort_flag, memory_order_acquire) != 0) {
            return broken(
                b, tt_fail(ncclInternalError, "rank %d: the communicator was aborted", b->rank));
        }
        struct pollfd p = {.fd = b->fd, .events = events};
        int ready = poll(&p, 1, SLICE_MS);
        tt_wait_told();
        if (ready > 0) {
            return ncclSuccess;
        }
        if (ready < 0 && errno != EINTR) {
            return broken(b, tt_fail(ncclSystemError, "rank %d: poll: %m", b->rank));
        }
        if (deadline_ns != 0 && tt_now_ns() > deadline_ns) {
            return broken(b,
                          tt_fail(ncclSystemError,
                                  "rank %d: the root of the unique id does not answer", b->rank));
        }
    }
}

static ncclResult_t root_gone(struct tt_bootstrap *b)
{
    if (b->is_tentative) {
        b->was_dropped = true;
        return ncclRemoteError;
    }
    return broken(
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
static ncclResult_t send_all(struct tt_bootstrap *b, const void *data, size_t bytes,
                             uint64_t deadline_ns)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = send(b->fd, (const char *)data + done, bytes - done, MSG_NOSIGNAL);
        bool waits = would_block(n);
        ncclResult_t result = waits ? wait_for(b, POLLOUT, deadline_ns) : ncclSuccess;
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

static ncclResult_t receive_all(struct tt_bootstrap *b, void *data, size_t bytes,
                                uint64_t deadline_ns)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = recv(b->fd, (char *)data + done, bytes - done, 0);
        bool waits = would_block(n);
        ncclResult_t result = waits ? wait_for(b, POLLIN, deadline_ns) : ncclSuccess;
        if (result != ncclSuccess) {
            return result;
        }
        if (waits) {
            continue;
        }
        if (n <= 0) {
            return root_gone(b);
        }
        done += (size_t)n;
    }
    return ncclSuccess;
}

static ncclResult_t reserve_frame(struct tt_bootstrap *b, size_t bytes)
{
    if (bytes > b->frame_capacity) {
        unsigned char *grown = realloc(b->frame, bytes);
        if (grown == NULL) {
            return broken(b,
                          tt_fail(ncclSystemError, "rank %d: no memory for a message of %zu bytes",
                                  b->rank, bytes));
        }
        b->frame = grown;
        b->frame_capacity = bytes;
    }
    return ncclSuccess;
}

static ncclResult_t send_frame(struct tt_bootstrap *b, enum tt_frame_kind kind, const void *first,
                               size_t first_bytes, const void *second, size_t second_bytes)
{
    size_t bytes = tt_wire_frame_bytes(first_bytes + second_bytes);
    TRY(reserve_frame(b, bytes));
    tt_wire_seal(&b->session, kind, first, first_bytes, second, second_bytes, b->frame);
    return send_all(b, b->frame, bytes, 0);
}

static ncclResult_t read_frame(struct tt_bootstrap *b, enum tt_frame_kind *kind_out,
                               unsigned char **body_out, size_t *bytes_out)
{
    TRY(reserve_frame(b, TT_HEADER_BYTES));
    TRY(receive_all(b, b->frame, TT_HEADER_BYTES, 0));
    size_t rest = tt_wire_rest_bytes(b->frame);
    if (rest > 0) {
        TRY(reserve_frame(b, TT_HEADER_BYTES + rest));
        TRY(receive_all(b, b->frame + TT_HEADER_BYTES, rest, 0));
    }
    if (rest == 0 || !tt_wire_unseal(&b->session, b->frame, TT_HEADER_BYTES + rest, kind_out,
                                     body_out, bytes_out)) {
        return broken(b,
                      tt_fail(ncclSystemError, "rank %d: damaged message from the root", b->rank));
    }
    return ncclSuccess;
}

// What a frame that ends the wait for another one means.
static ncclResult_t judge_frame(struct tt_bootstrap *b, enum tt_frame_kind kind,
                                const unsigned char *body, size_t bytes)
{
    int32_t code;
    if (kind == TT_FRAME_USED && b->is_tentative) {
        b->was_dropped = true;
        return ncclInvalidUsage;
    }
    if (kind == TT_FRAME_USED) {
        return broken(b, tt_fail(ncclInvalidUsage,
                                 "rank %d: this unique id is already used: make a new one for "
                                 "each communicator",
                                 b->rank));
    }
    if (kind != TT_FRAME_ERROR || bytes < sizeof code) {
        return broken(b, tt_bug("rank %d: the root sent frame %d", b->rank, (int)kind));
    }
    memcpy(&code, body, sizeof code);
    return broken(b, tt_fail((ncclResult_t)code, "rank %d: %.*s", b->rank,
                             (int)(bytes - sizeof code), (const char *)body + sizeof code));
}

// Waits for a frame of `kind`; prints notices, turns an error frame into its result.
static ncclResult_t expect_frame(struct tt_bootstrap *b, enum tt_frame_kind kind,
                                 unsigned char **body_out, size_t *bytes_out)
{
    for (;;) {
        enum tt_frame_kind got = TT_FRAME_ERROR;
        TRY(read_frame(b, &got, body_out, bytes_out));
        if (got == kind && kind != TT_FRAME_ERROR) {
            return ncclSuccess;
        }
        if (got != TT_FRAME_NOTICE) {
            return judge_frame(b, got, *body_out, *bytes_out);
        }
        (void)fprintf(stderr, "tutti: %.*s\n", (int)*bytes_out, (const char *)*body_out);
    }
}

// Best effort: one attempt, what does not fit into the socket's buffer is lost with the connection.
static void send_last(struct tt_bootstrap *b, enum tt_frame_kind kind, const char *text)
{
    unsigned char frame[1024];
    size_t bytes = strnlen(text, 500);
    if (b->fd < 0 || b->broken != ncclSuccess) {
        return;
    }
    tt_wire_seal(&b->session, kind, text, bytes, NULL, 0, frame);
    ssize_t sent = send(b->fd, frame, tt_wire_frame_bytes(bytes), MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)sent;
}

// ---- Ids ----------------------------------------------------------------------------------------

// The secret of NCCL_COMM_ID: nobody carries it, so every rank must know it.
static ncclResult_t shared_secret(const struct tt_address *address, unsigned char *secret_out)
{
    const char *text = tt_param_text(TT_PARAM_SECRET);
    if (*text == 0 && !tt_address_is_loopback(address) && tt_param_int(TT_PARAM_INSECURE) == 0) {
        return tt_fail(ncclInvalidUsage,
                       "NCCL_COMM_ID off loopback needs TUTTI_SECRET, the same on all ranks "
                       "(TUTTI_INSECURE=1 lets anybody in)");
    }
    if (*text == 0) {
        tt_log(TT_LOG_WARN, TT_LOG_BOOTSTRAP,
               "NCCL_COMM_ID without TUTTI_SECRET: any local program can join");
    }
    crypto_generichash(secret_out, TT_SECRET_BYTES, (const unsigned char *)text, strlen(text), NULL,
                       0);
    return ncclSuccess;
}

ncclResult_t tt_bootstrap_make_id(ncclUniqueId *id_out)
{
    struct tt_id id = {.magic = TT_ID_MAGIC, .revision = 1};
    if (sodium_init() < 0) {
        return tt_fail(ncclSystemError, "libsodium does not start: no source of random numbers");
    }
    const char *fixed = tt_param_text(TT_PARAM_COMM_ID);
    if (*fixed != 0) {
        TRY(tt_interface_parse(fixed, &id.address));
        TRY(shared_secret(&id.address, id.secret));
        id.root_at_rank_0 = 1;
    } else {
        TRY(tt_interface_pick(&id.address));
        randombytes_buf(id.secret, sizeof id.secret);
        TRY(tt_root_start(&id.address, id.secret));
    }
    char text[64];
    tt_address_print(&id.address, text, sizeof text);
    tt_log(TT_LOG_INFO, TT_LOG_BOOTSTRAP, "made a unique id; its ranks meet at %s", text);
    memset(id_out, 0, sizeof *id_out);
    memcpy(id_out, &id, sizeof id);
    sodium_memzero(&id, sizeof id);
    return ncclSuccess;
}

// ---- Joining ------------------------------------------------------------------------------------

// One attempt; *error_out is errno's number, 0: connected.
static ncclResult_t try_connecting(struct tt_bootstrap *b, const struct sockaddr_storage *where,
                                   socklen_t length, int *error_out)
{
    if (b->fd >= 0) {
        close(b->fd);
    }
    b->fd = socket(where->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (b->fd < 0) {
        return tt_fail(ncclSystemError, "rank %d: socket: %m", b->rank);
    }
    *error_out = connect(b->fd, (const struct sockaddr *)where, length) == 0 ? 0 : errno;
    if (*error_out == EINPROGRESS || *error_out == EINTR) {
        socklen_t bytes = sizeof *error_out;
        TRY(wait_for(b, POLLOUT, tt_now_ns() + (uint64_t)HANDSHAKE_MS * 1000000u));
        getsockopt(b->fd, SOL_SOCKET, SO_ERROR, error_out, &bytes);
    }
    return ncclSuccess;
}

// Connects; where the root is opened by rank 0 of another process, refusals are tried again until
// the time is up.
static ncclResult_t connect_to(struct tt_bootstrap *b, const struct tt_id *id)
{
    struct sockaddr_storage where;
    char text[64];
    int error = 0;
    socklen_t length = tt_address_to_socket(&id->address, &where);
    uint64_t limit_ns = tt_now_ns() + (uint64_t)tt_param_int(TT_PARAM_INIT_TIMEOUT) * 1000000000u;
    for (;;) {
        TRY(try_connecting(b, &where, length, &error));
        if (error == 0) {
            return ncclSuccess;
        }
        bool again = error == EAGAIN || error == ETIMEDOUT || error == ECONNRESET ||
                     (error == ECONNREFUSED && id->root_at_rank_0 != 0);
        if (!again || tt_now_ns() > limit_ns) {
            break;
        }
        poll(NULL, 0, SLICE_MS);
        if (b->abort_flag != NULL && atomic_load(b->abort_flag) != 0) {
            return tt_fail(ncclInternalError, "rank %d: the communicator was aborted", b->rank);
        }
    }
    tt_address_print(&id->address, text, sizeof text);
    errno = error;
    return tt_fail(ncclSystemError,
                   "rank %d: nobody listens at %s (%m): the unique id is already used, or the "
                   "process that made it has ended",
                   b->rank, text);
}

static ncclResult_t prove(struct tt_bootstrap *b)
{
    struct tt_hello hello;
    struct tt_answer answer = {.magic = TT_WIRE_MAGIC};
    unsigned char proof[TT_PROOF_BYTES];
    uint64_t deadline = tt_now_ns() + (uint64_t)HANDSHAKE_MS * 1000000u;
    TRY(send_all(b, &answer.magic, sizeof answer.magic, deadline));
    TRY(receive_all(b, &hello, sizeof hello, deadline));
    if (hello.magic != TT_WIRE_MAGIC) {
        return tt_fail(ncclSystemError,
                       "rank %d: what listens at the unique id's address is not tutti", b->rank);
    }
    randombytes_buf(answer.nonce, sizeof answer.nonce);
    tt_wire_prove(b->secret, TT_ROLE_RANK, hello.nonce, answer.nonce, answer.proof);
    TRY(send_all(b, answer.nonce, sizeof answer - offsetof(struct tt_answer, nonce), deadline));
    TRY(receive_all(b, proof, sizeof proof, deadline));
    if (!tt_wire_check(b->secret, TT_ROLE_ROOT, hello.nonce, answer.nonce, proof)) {
        return tt_fail(ncclSystemError,
                       "rank %d: what listens at the unique id's address does not know its secret",
                       b->rank);
    }
    tt_wire_open_session(b->secret, TT_ROLE_RANK, hello.nonce, answer.nonce, &b->session);
    return ncclSuccess;
}

// Connects and proves the secret; again where a crowded root closed the connection first.
static ncclResult_t enter(struct tt_bootstrap *b, const struct tt_id *id)
{
    uint64_t limit_ns = tt_now_ns() + (uint64_t)HANDSHAKE_MS * 1000000u;
    int on = 1;
    for (;;) {
        TRY(connect_to(b, id));
        setsockopt(b->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        b->is_tentative = true;
        b->was_dropped = false;
        ncclResult_t result = prove(b);
        b->is_tentative = false;
        if (!b->was_dropped) {
            return result;
        }
        if (tt_now_ns() > limit_ns) {
            return root_gone(b);
        }
        close(b->fd);
        b->fd = -1;
        poll(NULL, 0, RETRY_MS);
    }
}

static ncclResult_t send_claim(struct tt_bootstrap *b, enum tt_frame_kind kind, const char *text)
{
    struct tt_join claim = {.version = NCCL_VERSION_CODE * 100u + WIRE_REVISION,
                            .rank = b->rank,
                            .nranks = b->nranks,
                            .pid = (int32_t)getpid()};
    if (gethostname(claim.host, sizeof claim.host - 1) != 0) {
        (void)snprintf(claim.host, sizeof claim.host, "?");
    }
    return send_frame(b, kind, &claim, sizeof claim, text, strnlen(text, 500));
}

// Joins at a fixed address, where the root of the communicator before may still be: then again,
// until it is gone.
static ncclResult_t join_fixed(struct tt_bootstrap *b, struct tt_id *id)
{
    unsigned char *body;
    size_t bytes;
    if (b->rank == 0) {
        TRY(tt_root_start(&id->address, id->secret));
    }
    uint64_t limit_ns = tt_now_ns() + (uint64_t)HANDSHAKE_MS * 1000000u;
    for (;;) {
        TRY(enter(b, id));
        TRY(send_claim(b, TT_FRAME_JOIN, ""));
        b->is_tentative = tt_now_ns() < limit_ns;
        ncclResult_t result = expect_frame(b, TT_FRAME_READY, &body, &bytes);
        b->is_tentative = false;
        if (!b->was_dropped) {
            return result;
        }
        close(b->fd);
        b->fd = -1;
        poll(NULL, 0, RETRY_MS);
    }
}

static ncclResult_t join(struct tt_bootstrap *b, struct tt_id *id)
{
    unsigned char *body;
    size_t bytes;
    if (id->root_at_rank_0 != 0) {
        return join_fixed(b, id);
    }
    TRY(enter(b, id));
    TRY(send_claim(b, TT_FRAME_JOIN, ""));
    return expect_frame(b, TT_FRAME_READY, &body, &bytes);
}

ncclResult_t tt_bootstrap_join(const ncclUniqueId *unique_id, int rank, int nranks,
                               const _Atomic uint32_t *abort_flag,
                               struct tt_bootstrap **bootstrap_out)
{
    struct tt_id id;
    if (sodium_init() < 0) {
        return tt_fail(ncclSystemError, "libsodium does not start: no source of random numbers");
    }
    TRY(tt_id_read(unique_id, &id));
    struct tt_bootstrap *b = calloc(1, sizeof *b);
    if (b == NULL) {
        return tt_fail(ncclSystemError, "rank %d: no memory for the rendezvous", rank);
    }
    b->fd = -1;
    b->rank = rank;
    b->nranks = nranks;
    b->abort_flag = abort_flag;
    memcpy(b->secret, id.secret, sizeof b->secret);
    ncclResult_t result = join(b, &id);
    sodium_memzero(&id, sizeof id);
    if (result != ncclSuccess) {
        b->broken = result;
        tt_bootstrap_leave(b);
        return result;
    }
    *bootstrap_out = b;
    return ncclSuccess;
}

void tt_bootstrap_denounce(const ncclUniqueId *unique_id, int rank, int nranks, const char *text)
{
    struct tt_id id;
    struct tt_bootstrap b = {.fd = -1, .rank = rank, .nranks = nranks};
    unsigned char *body;
    size_t bytes;
    if (sodium_init() < 0 || tt_id_read(unique_id, &id) != ncclSuccess || id.root_at_rank_0 != 0) {
        return;
    }
    memcpy(b.secret, id.secret, sizeof b.secret);
    if (enter(&b, &id) == ncclSuccess && send_claim(&b, TT_FRAME_CANNOT, text) == ncclSuccess) {
        (void)expect_frame(&b, TT_FRAME_ERROR, &body, &bytes); // the answer: it has been told
    }
    if (b.fd >= 0) {
        close(b.fd);
    }
    free(b.frame);
    sodium_memzero(&b, sizeof b);
    sodium_memzero(&id, sizeof id);
}

// ---- Exchanges ----------------------------------------------------------------------------------

static ncclResult_t gather(struct tt_bootstrap *b, void *data, size_t bytes)
{
    unsigned char *body = NULL;
    size_t body_bytes = 0;
    if (b->broken != ncclSuccess) {
        return tt_fail(b->broken, "rank %d: an earlier call on this communicator failed", b->rank);
    }
    if (bytes > ((size_t)TT_FRAME_LIMIT - sizeof b->sequence) / (size_t)b->nranks) {
        return tt_bug("an exchange of %zu bytes a rank over %d ranks", bytes, b->nranks);
    }
    TRY(send_frame(b, TT_FRAME_GATHER, &b->sequence, sizeof b->sequence,
                   (char *)data + (size_t)b->rank * bytes, bytes));
    TRY(expect_frame(b, TT_FRAME_GATHER, &body, &body_bytes));
    if (body_bytes != sizeof b->sequence + bytes * (size_t)b->nranks) {
        return broken(b, tt_bug("an exchange gave %zu bytes", body_bytes));
    }
    memcpy(data, body + sizeof b->sequence, bytes * (size_t)b->nranks);
    b->sequence++;
    return ncclSuccess;
}

ncclResult_t tt_bootstrap_allgather(struct tt_bootstrap *b, void *data, size_t bytes)
{
    struct tt_wait wait = tt_wait_begin(b->abort_flag);
    while (atomic_exchange(&b->in_use, 1) != 0) { // a look is short
        if (!tt_wait_round(&wait)) {
            return tt_fail(ncclInternalError, "rank %d: the communicator was aborted", b->rank);
        }
    }
    ncclResult_t result = gather(b, data, bytes);
    atomic_store(&b->in_use, 0);
    return result;
}

ncclResult_t tt_bootstrap_look(struct tt_bootstrap *b)
{
    unsigned char *body, first;
    size_t body_bytes;
    if (atomic_exchange(&b->in_use, 1) != 0) {
        return ncclSuccess; // a call is in progress, and tells itself
    }
    ncclResult_t result = b->broken;
    // Outside a gather the root sends only errors. Its end is none: it may be a rank that has
    // finished.
    if (result == ncclSuccess && recv(b->fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) == 1) {
        result = expect_frame(b, TT_FRAME_ERROR, &body, &body_bytes);
    }
    atomic_store(&b->in_use, 0);
    return result;
}

ncclResult_t tt_bootstrap_barrier(struct tt_bootstrap *bootstrap)
{
    char nothing;
    return tt_bootstrap_allgather(bootstrap, &nothing, 0);
}

void tt_bootstrap_report_failure(struct tt_bootstrap *bootstrap, const char *text)
{
    if (bootstrap != NULL) {
        send_last(bootstrap, TT_FRAME_FAILED, text);
    }
}

void tt_bootstrap_derive_key(const struct tt_bootstrap *bootstrap, const char *label,
                             unsigned char key_out[32])
{
    tt_wire_derive(bootstrap->secret, label, key_out);
}

void tt_bootstrap_leave(struct tt_bootstrap *bootstrap)
{
    if (bootstrap == NULL) {
        return;
    }
    send_last(bootstrap, TT_FRAME_LEAVE, "");
    if (bootstrap->fd >= 0) {
        close(bootstrap->fd);
    }
    sodium_memzero(bootstrap->secret, sizeof bootstrap->secret);
    sodium_memzero(&bootstrap->session, sizeof bootstrap->session);
    free(bootstrap->frame);
    free(bootstrap);
}
