// One non-blocking connection at the root: handshake, frames in, frames out.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_BOOTSTRAP_CONNECTION_H
#define TT_BOOTSTRAP_CONNECTION_H

#include "bootstrap/wire.h"

struct tt_root;

struct tt_peer_connection {
    struct tt_peer_connection *next;
    struct tt_root *root; // NULL: the secret is not proved yet
    void *listener;       // where it came in
    int fd;
    uint64_t since_ms; // when it was accepted
    struct tt_address address;
    unsigned char nonce[TT_NONCE_BYTES];
    bool joined;  // it sent its claim
    bool left;    // it said that it goes
    bool gave;    // its part of the running gather is here
    bool closing; // close once everything is sent
    int rank;     // -1: no member
    struct tt_join claim;
    struct tt_session session;
    unsigned char *in; // what has arrived of the next piece
    size_t in_bytes, in_capacity;
    unsigned char *out; // what is still to be sent
    size_t out_bytes, out_capacity;
};

// Who knows the roots: the root with this number and, in *secret_out, its secret; NULL: there is
// none.
struct tt_root_finder {
    struct tt_root *(*find)(void *context, uint64_t number, const unsigned char **secret_out);
    void *context;
};

enum tt_receive_result {
    TT_RECEIVED_FRAME,
    TT_RECEIVE_AGAIN,
    TT_RECEIVE_ENDED,
    TT_RECEIVE_REFUSED
};

// Takes a fresh socket and sends HELLO; NULL (the socket closed) without memory.
struct tt_peer_connection *tt_connection_accept(int fd, const struct sockaddr_storage *from,
                                                uint64_t now_ms);
void tt_connection_free(struct tt_peer_connection *connection);
// Takes what the socket has; sets the connection's root once the secret is proved.
// TT_RECEIVED_FRAME: *body_out is valid until the next call. TT_RECEIVE_REFUSED: *problem_out says
// why, NULL: nothing to complain of. body_limit: the longest body that the peer may send now.
enum tt_receive_result tt_connection_receive(struct tt_peer_connection *connection,
                                             const struct tt_root_finder *finder, size_t body_limit,
                                             enum tt_frame_kind *kind_out, unsigned char **body_out,
                                             size_t *bytes_out, const char **problem_out);
// Queues a frame (body: two parts) and sends as much as the socket takes. A failure shows at the
// next receive.
void tt_connection_send(struct tt_peer_connection *connection, enum tt_frame_kind kind,
                        const void *first, size_t first_bytes, const void *second,
                        size_t second_bytes);
// False: the peer is gone.
bool tt_connection_flush(struct tt_peer_connection *connection);

#endif
