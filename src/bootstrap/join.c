// Unique ids, and how a rank reaches the root that its id names: connects, proves the secret,
// claims its number. All of it together takes at most TUTTI_INIT_TIMEOUT.
// See bootstrap.h and wire.h. SPDX-License-Identifier: Apache-2.0
#include "base/holdings.h"
#include "base/log.h"
#include "base/params.h"
#include "base/wait.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/bootstrap_internal.h"
#include "bootstrap/interface.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- Ids ----------------------------------------------------------------------------------------

// The secret of an address that all ranks know: nobody carries it, so every rank must know that,
// too. setting: what has given the address, for messages.
static ncclResult_t shared_secret(const struct tt_address *address, const char *setting,
                                  unsigned char *secret_out)
{
    const char *text = tt_param_text(TT_PARAM_SECRET);
    bool is_loopback = tt_address_is_loopback(address);
    if (*text == 0 && !is_loopback && tt_param_int(TT_PARAM_INSECURE) == 0) {
        return tt_fail(ncclInvalidUsage,
                       "%s off loopback needs TUTTI_SECRET, the same on all ranks "
                       "(TUTTI_INSECURE=1 lets anybody in)",
                       setting);
    }
    if (*text == 0 && !is_loopback) {
        tt_say("%s without TUTTI_SECRET, as TUTTI_INSECURE=1 allows: anybody who reaches it can "
               "join",
               setting);
    } else if (*text == 0) {
        tt_log(TT_LOG_WARN, TT_LOG_BOOTSTRAP, "%s without TUTTI_SECRET: any local program can join",
               setting);
    }
    crypto_generichash(secret_out, TT_SECRET_BYTES, (const unsigned char *)text, strlen(text), NULL,
                       0);
    return ncclSuccess;
}

static ncclResult_t begin_id(struct tt_id *id)
{
    *id = (struct tt_id){.magic = TT_ID_MAGIC, .revision = TT_ID_REVISION};
    return sodium_init() < 0
               ? tt_fail(ncclSystemError, "libsodium does not start: no source of random numbers")
               : ncclSuccess;
}

static void hand_out(struct tt_id *id, ncclUniqueId *id_out)
{
    char text[64];
    tt_address_print(&id->address, text, sizeof text);
    tt_log(TT_LOG_INFO, TT_LOG_BOOTSTRAP, "made a unique id; its ranks meet at %s", text);
    memset(id_out, 0, sizeof *id_out);
    memcpy(id_out, id, sizeof *id);
    sodium_memzero(id, sizeof *id);
}

ncclResult_t tt_bootstrap_fixed_id(const struct tt_address *address, const char *setting,
                                   ncclUniqueId *id_out)
{
    struct tt_id id;
    TRY(begin_id(&id));
    TRY(shared_secret(address, setting, id.secret));
    id.address = *address;
    id.root_at_rank_0 = 1;
    hand_out(&id, id_out);
    return ncclSuccess;
}

ncclResult_t tt_bootstrap_make_id(enum tt_reach reach, ncclUniqueId *id_out)
{
    struct tt_id id;
    const char *fixed = tt_param_text(TT_PARAM_COMM_ID);
    if (*fixed != 0) {
        struct tt_address address;
        TRY(tt_interface_parse(fixed, &address));
        return tt_bootstrap_fixed_id(&address, "NCCL_COMM_ID", id_out);
    }
    TRY(begin_id(&id));
    TRY(tt_interface_pick(reach, &id.address));
    randombytes_buf(id.secret, sizeof id.secret);
    while (id.number == TT_ONLY_ROOT) {
        randombytes_buf(&id.number, sizeof id.number);
    }
    TRY(tt_root_start(&id));
    hand_out(&id, id_out);
    return ncclSuccess;
}

// ---- Reaching the root --------------------------------------------------------------------------

enum { HANDSHAKE_MS = 30000, WIRE_REVISION = 2, RETRY_MS = 50, ROOT_PATIENCE_S = 10 };

static uint64_t init_timeout_ns(void)
{
    return (uint64_t)tt_param_int(TT_PARAM_INIT_TIMEOUT) * UINT64_C(1000000000);
}

// When a handshake that begins now must be over.
static uint64_t handshake_deadline_ns(void)
{
    uint64_t most = HANDSHAKE_MS * UINT64_C(1000000), limit = init_timeout_ns();
    return tt_now_ns() + (most < limit ? most : limit);
}

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
    b->is_unreachable = true; // until it has answered
    *error_out = connect(b->fd, (const struct sockaddr *)where, length) == 0 ? 0 : errno;
    if (*error_out == EINPROGRESS || *error_out == EINTR) {
        socklen_t bytes = sizeof *error_out;
        TRY(tt_bootstrap_wait(b, POLLOUT, handshake_deadline_ns()));
        getsockopt(b->fd, SOL_SOCKET, SO_ERROR, error_out, &bytes);
    }
    return ncclSuccess;
}

// error: errno's number of the last attempt to connect.
static ncclResult_t explain_absence(const struct tt_bootstrap *b, const struct tt_id *id, int error)
{
    char text[64];
    const char *absent = "the unique id is already used, or the process that made it has ended";
    const char *unreached = "no interface of this host leads there: its addresses (ip address) and "
                            "routes; NCCL_SOCKET_IFNAME of the process that makes the unique id";
    tt_address_print(&id->address, text, sizeof text);
    if (id->root_at_rank_0 != 0) {
        absent = "rank 0 has not come there, or has ended";
    }
    if (tt_address_is_loopback(&id->address)) {
        unreached = "the loopback interface is down (ip link set lo up)";
    }
    errno = error;
    if (error == ECONNREFUSED) {
        return tt_fail(ncclSystemError, "rank %d: nobody listens at %s (%m): %s", b->rank, text,
                       absent);
    }
    return tt_fail(ncclSystemError, "rank %d: %s cannot be reached (%m): %s", b->rank, text,
                   error == ENETUNREACH || error == EHOSTUNREACH || error == EADDRNOTAVAIL
                       ? unreached
                       : "the network, or what listens there");
}

// Connects; where the root is opened by rank 0 of another process, refusals are tried again until
// the time is up.
static ncclResult_t connect_to(struct tt_bootstrap *b, const struct tt_id *id)
{
    struct sockaddr_storage where;
    int error = 0;
    socklen_t length = tt_address_to_socket(&id->address, &where);
    uint64_t limit_ns = tt_now_ns() + init_timeout_ns();
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
        poll(NULL, 0, TT_SLICE_MS);
        if (b->abort_flag != NULL && atomic_load(b->abort_flag) != 0) {
            return tt_fail(ncclInternalError, "rank %d: the communicator was aborted", b->rank);
        }
    }
    return explain_absence(b, id, error);
}

// What the root answers instead of its proof.
static ncclResult_t explain_refusal(const struct tt_bootstrap *b, const struct tt_id *id,
                                    enum tt_refusal refusal)
{
    char text[64];
    tt_address_print(&id->address, text, sizeof text);
    if (refusal == TT_REFUSED_NUMBER) {
        return tt_fail(
            ncclInvalidUsage,
            "rank %d: the process at %s has no communicator to make for this unique id: "
            "it is already used, or another process has made it; make a new one for each "
            "communicator",
            b->rank, text);
    }
    return tt_fail(ncclInvalidUsage,
                   "rank %d: the root at %s refuses this rank: the secret in the rank's unique id "
                   "is not the root's; %s",
                   b->rank, text,
                   id->root_at_rank_0 != 0 ? "TUTTI_SECRET must be the same on all ranks"
                                           : "all ranks need the id as ncclGetUniqueId made it");
}

static ncclResult_t prove(struct tt_bootstrap *b, const struct tt_id *id)
{
    struct tt_hello hello;
    struct tt_answer answer = {.magic = TT_WIRE_MAGIC, .number = id->number};
    const size_t begin = offsetof(struct tt_answer, nonce);
    unsigned char proof[TT_PROOF_BYTES];
    TRY(tt_bootstrap_send_all(b, &answer, begin));
    TRY(tt_bootstrap_receive_all(b, &hello, sizeof hello));
    if (hello.magic != TT_WIRE_MAGIC) {
        return tt_fail(ncclSystemError,
                       "rank %d: what listens at the unique id's address is not tutti, or another "
                       "version of it",
                       b->rank);
    }
    randombytes_buf(answer.nonce, sizeof answer.nonce);
    tt_wire_prove(b->secret, TT_ROLE_RANK, hello.nonce, answer.nonce, answer.proof);
    TRY(tt_bootstrap_send_all(b, answer.nonce, sizeof answer - begin));
    TRY(tt_bootstrap_receive_all(b, proof, sizeof proof));
    enum tt_refusal refusal = tt_wire_refusal(proof);
    if (refusal != TT_NOT_REFUSED) {
        return explain_refusal(b, id, refusal);
    }
    if (!tt_wire_check(b->secret, TT_ROLE_ROOT, hello.nonce, answer.nonce, proof)) {
        return tt_fail(ncclSystemError,
                       "rank %d: what listens at the unique id's address does not know its secret",
                       b->rank);
    }
    tt_wire_open_session(b->secret, TT_ROLE_RANK, hello.nonce, answer.nonce, &b->session);
    b->is_unreachable = false;
    return ncclSuccess;
}

// Connects and proves the secret; again where the root closed the connection first, which was
// crowded, or for which this rank, without a processor, was too slow.
static ncclResult_t enter(struct tt_bootstrap *b, const struct tt_id *id, uint64_t limit_ns)
{
    int on = 1;
    for (;;) {
        TRY(connect_to(b, id));
        setsockopt(b->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        b->is_tentative = true;
        b->was_dropped = false;
        b->deadline_ns = handshake_deadline_ns();
        ncclResult_t result = prove(b, id);
        b->deadline_ns = 0;
        b->is_tentative = false;
        if (!b->was_dropped) {
            return result;
        }
        if (tt_now_ns() > limit_ns) {
            return tt_bootstrap_root_gone(b);
        }
        close(b->fd);
        b->fd = -1;
        poll(NULL, 0, RETRY_MS);
    }
}

// ---- Joining ------------------------------------------------------------------------------------

static ncclResult_t send_claim(struct tt_bootstrap *b, enum tt_frame_kind kind, const char *text)
{
    struct tt_join claim = {.version = NCCL_VERSION_CODE * 100u + WIRE_REVISION,
                            .rank = b->rank,
                            .nranks = b->nranks,
                            .pid = (int32_t)getpid(),
                            .process = tt_root_process()};
    if (gethostname(claim.host, sizeof claim.host - 1) != 0) {
        (void)snprintf(claim.host, sizeof claim.host, "?");
    }
    return tt_bootstrap_send_frame(b, kind, &claim, sizeof claim, text, strnlen(text, 500));
}

// The root itself gives up after TUTTI_INIT_TIMEOUT; a root that is stopped does not.
static ncclResult_t await_ready(struct tt_bootstrap *b)
{
    unsigned char *body;
    size_t bytes;
    b->deadline_ns = tt_now_ns() + init_timeout_ns() + ROOT_PATIENCE_S * UINT64_C(1000000000);
    ncclResult_t result = tt_bootstrap_expect(b, TT_FRAME_READY, &body, &bytes);
    b->deadline_ns = 0;
    if (result == ncclSuccess && bytes >= sizeof b->root) {
        memcpy(&b->root, body, sizeof b->root);
        b->root.host[sizeof b->root.host - 1] = 0;
        b->root_is_here = b->root.process == tt_root_process() && b->root.pid == (int32_t)getpid();
    }
    return result;
}

// Joins at a fixed address, where the root of the communicator before may still be: then again,
// until it is gone.
static ncclResult_t join_fixed(struct tt_bootstrap *b, struct tt_id *id)
{
    if (b->rank == 0) {
        struct tt_id copy = *id;
        ncclResult_t result = tt_root_start(&copy);
        sodium_memzero(&copy, sizeof copy);
        TRY(result);
    }
    uint64_t limit_ns = handshake_deadline_ns();
    for (;;) {
        TRY(enter(b, id, tt_now_ns() + init_timeout_ns()));
        TRY(send_claim(b, TT_FRAME_JOIN, ""));
        b->is_tentative = tt_now_ns() < limit_ns;
        ncclResult_t result = await_ready(b);
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
    b->left = calloc((size_t)b->nranks, sizeof *b->left);
    if (b->left == NULL) {
        return tt_fail(ncclSystemError, "rank %d: no memory for %d ranks", b->rank, b->nranks);
    }
    if (id->root_at_rank_0 != 0) {
        return join_fixed(b, id);
    }
    TRY(enter(b, id, tt_now_ns() + init_timeout_ns()));
    TRY(send_claim(b, TT_FRAME_JOIN, ""));
    return await_ready(b);
}

static struct tt_bootstrap *make(int rank, int nranks, const struct tt_id *id,
                                 const _Atomic uint32_t *abort_flag)
{
    struct tt_bootstrap *b = calloc(1, sizeof *b);
    if (b != NULL) {
        b->fd = b->watcher = b->dead_rank = b->root.rank = -1;
        b->rank = rank;
        b->nranks = nranks;
        b->abort_flag = abort_flag;
        memcpy(b->secret, id->secret, sizeof b->secret);
        tt_holdings_add(TT_HOLD_CONNECTIONS, 1);
    }
    return b;
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
    struct tt_bootstrap *b = make(rank, nranks, &id, abort_flag);
    bool no_root = false; // none that could be told
    bool is_untold = b == NULL;
    ncclResult_t result = ncclSuccess;
    if (b == NULL) {
        result = tt_fail(ncclSystemError, "rank %d: no memory for the rendezvous", rank);
    } else {
        result = join(b, &id);
        no_root = b->is_unreachable;
        is_untold = result == ncclSystemError || b->was_dropped;
    }
    if (result != ncclSuccess && no_root && abort_flag != NULL && atomic_load(abort_flag) != 0) {
        tt_root_give_up(&id, rank);
    }
    sodium_memzero(&id, sizeof id);
    if (result == ncclSuccess) {
        *bootstrap_out = b;
        return ncclSuccess;
    }
    if (b != NULL) {
        b->broken = result;
        if (b->may_tell) {
            tt_bootstrap_report_failure(b, "it was aborted while it joined");
        }
        tt_bootstrap_leave(b);
    }
    if (is_untold && !no_root) {
        char text[512]; // the root may not have heard of this rank, and may yet
        (void)snprintf(text, sizeof text, "%s", tt_thread_error());
        tt_bootstrap_denounce(unique_id, rank, nranks, text);
        tt_restore_error(text);
    }
    return result;
}

void tt_bootstrap_drop_id(const ncclUniqueId *unique_id)
{
    struct tt_id id;
    if (sodium_init() >= 0 && tt_id_read(unique_id, &id) == ncclSuccess && id.root_at_rank_0 == 0) {
        tt_root_drop(&id);
        sodium_memzero(&id, sizeof id);
    }
}

void tt_bootstrap_denounce(const ncclUniqueId *unique_id, int rank, int nranks, const char *text)
{
    struct tt_id id;
    unsigned char *body;
    size_t bytes;
    if (sodium_init() < 0 || tt_id_read(unique_id, &id) != ncclSuccess || id.root_at_rank_0 != 0) {
        return;
    }
    struct tt_bootstrap *b = make(rank, nranks, &id, NULL);
    if (b == NULL) {
        sodium_memzero(&id, sizeof id);
        return;
    }
    if (enter(b, &id, handshake_deadline_ns()) == ncclSuccess &&
        send_claim(b, TT_FRAME_CANNOT, text) == ncclSuccess) {
        b->deadline_ns = handshake_deadline_ns();
        (void)tt_bootstrap_expect(b, TT_FRAME_ERROR, &body, &bytes); // the answer: it has been told
    }
    b->broken = ncclRemoteError; // nothing more to say
    sodium_memzero(&id, sizeof id);
    tt_bootstrap_leave(b);
}
