// See connection.h. SPDX-License-Identifier: Apache-2.0
#include "bootstrap/connection.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool reserve(unsigned char **buffer, size_t *capacity, size_t bytes)
{
    if (bytes <= *capacity) {
        return true;
    }
    size_t wanted = bytes < 4096 ? 4096 : bytes;
    unsigned char *grown = realloc(*buffer, wanted);
    if (grown == NULL) {
        return false;
    }
    *buffer = grown;
    *capacity = wanted;
    return true;
}

static bool queue(struct tt_peer_connection *c, const void *data, size_t bytes)
{
    if (!reserve(&c->out, &c->out_capacity, c->out_bytes + bytes)) {
        return false;
    }
    memcpy(c->out + c->out_bytes, data, bytes);
    c->out_bytes += bytes;
    return true;
}

bool tt_connection_flush(struct tt_peer_connection *c)
{
    size_t done = 0;
    while (done < c->out_bytes) {
        ssize_t n = send(c->fd, c->out + done, c->out_bytes - done, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            break;
        }
        if (n <= 0) {
            return false;
        }
        done += (size_t)n;
    }
    if (done > 0) {
        memmove(c->out, c->out + done, c->out_bytes - done);
        c->out_bytes -= done;
    }
    return true;
}

struct tt_peer_connection *tt_connection_accept(int fd, const struct sockaddr_storage *from,
                                                uint64_t now_ms)
{
    struct tt_peer_connection *c = calloc(1, sizeof *c);
    if (c == NULL) {
        close(fd);
        return NULL;
    }
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    c->fd = fd;
    c->since_ms = now_ms;
    c->rank = -1;
    tt_address_from_socket(from, &c->address);
    randombytes_buf(c->nonce, sizeof c->nonce);
    struct tt_hello hello = {.magic = TT_WIRE_MAGIC};
    memcpy(hello.nonce, c->nonce, sizeof hello.nonce);
    if (!queue(c, &hello, sizeof hello)) {
        tt_connection_free(c);
        return NULL;
    }
    tt_connection_flush(c);
    return c;
}

void tt_connection_free(struct tt_peer_connection *c)
{
    close(c->fd);
    sodium_memzero(&c->session, sizeof c->session);
    free(c->in);
    free(c->out);
    free(c);
}

void tt_connection_send(struct tt_peer_connection *c, enum tt_frame_kind kind, const void *first,
                        size_t first_bytes, const void *second, size_t second_bytes)
{
    size_t bytes = tt_wire_frame_bytes(first_bytes + second_bytes);
    if (c->closing || !reserve(&c->out, &c->out_capacity, c->out_bytes + bytes)) {
        c->closing = true;
        return;
    }
    tt_wire_seal(&c->session, kind, first, first_bytes, second, second_bytes,
                 c->out + c->out_bytes);
    c->out_bytes += bytes;
    tt_connection_flush(c);
}

// Reads until `wanted` bytes are there.
static enum tt_receive_result fill(struct tt_peer_connection *c, size_t wanted)
{
    if (!reserve(&c->in, &c->in_capacity, wanted)) {
        return TT_RECEIVE_ENDED;
    }
    while (c->in_bytes < wanted) {
        ssize_t n = recv(c->fd, c->in + c->in_bytes, wanted - c->in_bytes, 0);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return TT_RECEIVE_AGAIN;
        }
        if (n <= 0) {
            return TT_RECEIVE_ENDED;
        }
        c->in_bytes += (size_t)n;
    }
    return TT_RECEIVED_FRAME;
}

// Tells the peer why it is not let in; the connection then ends.
static enum tt_receive_result refuse(struct tt_peer_connection *c, enum tt_refusal refusal)
{
    unsigned char answer[TT_PROOF_BYTES];
    tt_wire_refuse(refusal, answer);
    if (queue(c, answer, sizeof answer)) {
        (void)tt_connection_flush(c);
    }
    return TT_RECEIVE_REFUSED;
}

static enum tt_receive_result check_proof(struct tt_peer_connection *c,
                                          const struct tt_root_finder *finder,
                                          const char **problem_out)
{
    struct tt_answer answer;
    const unsigned char *secret = NULL;
    enum tt_receive_result got = fill(c, sizeof answer);
    if (c->in_bytes >= sizeof answer.magic) {
        memcpy(&answer.magic, c->in, sizeof answer.magic);
        if (answer.magic != TT_WIRE_MAGIC) {
            *problem_out = "it does not speak this protocol";
            return TT_RECEIVE_REFUSED;
        }
    }
    if (got != TT_RECEIVED_FRAME) {
        return got;
    }
    memcpy(&answer, c->in, sizeof answer);
    c->in_bytes = 0;
    struct tt_root *root = finder->find(finder->context, answer.number, &secret);
    if (root == NULL) {
        *problem_out = NULL; // an id that is used: the rank says so itself
        return refuse(c, TT_REFUSED_NUMBER);
    }
    if (!tt_wire_check(secret, TT_ROLE_RANK, c->nonce, answer.nonce, answer.proof)) {
        *problem_out = "it does not know the secret of the unique id";
        return refuse(c, TT_REFUSED_SECRET);
    }
    unsigned char proof[TT_PROOF_BYTES];
    tt_wire_prove(secret, TT_ROLE_ROOT, c->nonce, answer.nonce, proof);
    tt_wire_open_session(secret, TT_ROLE_ROOT, c->nonce, answer.nonce, &c->session);
    c->root = root;
    return queue(c, proof, sizeof proof) && tt_connection_flush(c) ? TT_RECEIVED_FRAME
                                                                   : TT_RECEIVE_ENDED;
}

enum tt_receive_result tt_connection_receive(struct tt_peer_connection *c,
                                             const struct tt_root_finder *finder, size_t body_limit,
                                             enum tt_frame_kind *kind_out, unsigned char **body_out,
                                             size_t *bytes_out, const char **problem_out)
{
    enum tt_receive_result got;
    if (c->root == NULL && (got = check_proof(c, finder, problem_out)) != TT_RECEIVED_FRAME) {
        return got;
    }
    if (c->in_bytes < TT_HEADER_BYTES && (got = fill(c, TT_HEADER_BYTES)) != TT_RECEIVED_FRAME) {
        return got;
    }
    size_t rest = tt_wire_rest_bytes(c->in);
    if (rest == 0 || rest > tt_wire_frame_bytes(body_limit)) {
        *problem_out = "it sent a frame of no legal length";
        return TT_RECEIVE_REFUSED;
    }
    if ((got = fill(c, TT_HEADER_BYTES + rest)) != TT_RECEIVED_FRAME) {
        return got;
    }
    c->in_bytes = 0;
    if (!tt_wire_unseal(&c->session, c->in, TT_HEADER_BYTES + rest, kind_out, body_out,
                        bytes_out)) {
        *problem_out = "it sent a damaged frame";
        return TT_RECEIVE_REFUSED;
    }
    return TT_RECEIVED_FRAME;
}
