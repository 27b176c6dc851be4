// A libFuzzer target for all that peers can send to a root: any bytes before the secret is proved,
// and any frames after it. Nothing may crash, leak, or be read or written out of bounds, and no
// stranger may become a member. Build and run: the CMake target bootstrap_fuzz.
//
// The input is a list of actions {what, which connection, length} with `length` bytes each.
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "bootstrap/root.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PEERS = 4, ACTION_BYTES = 4, ID_BYTES = 128 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct peer {
    struct tt_peer_connection *connection; // NULL: dropped
    int fd;                                // the peer's end
};

static const unsigned char secret[TT_SECRET_BYTES] = {1, 2, 3};

// Every number names the one root.
static struct tt_root *find_root(void *context, uint64_t number, const unsigned char **secret_out)
{
    (void)number;
    *secret_out = secret;
    return context;
}

static void drop(struct tt_root *root, struct peer *peer)
{
    if (peer->connection == NULL) {
        return;
    }
    struct tt_peer_connection **at = root->connections;
    while (*at != peer->connection) {
        at = &(*at)->next;
    }
    *at = peer->connection->next;
    if (peer->connection->root != NULL) {
        tt_members_drop(root, peer->connection);
    }
    tt_connection_free(peer->connection);
    close(peer->fd);
    peer->connection = NULL;
}

static void add_peer(struct tt_root *root, struct peer *peer)
{
    int pair[2];
    struct sockaddr_storage from = {.ss_family = AF_INET};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) {
        abort();
    }
    peer->fd = pair[1];
    peer->connection = tt_connection_accept(pair[0], &from, 0);
    if (peer->connection == NULL) {
        abort();
    }
    peer->connection->next = *root->connections;
    *root->connections = peer->connection;
}

// What a stranger sends: taken byte for byte as the root's loop does.
static void send_bytes(struct tt_root *root, struct peer *peer, const uint8_t *data, size_t bytes)
{
    enum tt_frame_kind kind;
    unsigned char *body;
    size_t body_bytes;
    const char *problem = NULL;
    if (write(peer->fd, data, bytes) < 0) {
        return;
    }
    struct tt_root_finder finder = {find_root, root};
    enum tt_receive_result got =
        tt_connection_receive(peer->connection, &finder, 4096, &kind, &body, &body_bytes, &problem);
    if (got == TT_RECEIVED_FRAME) {
        abort(); // nobody guesses the proof
    }
    if (got != TT_RECEIVE_AGAIN) {
        drop(root, peer);
    }
}

static void act(struct tt_root *root, struct peer *peers, const uint8_t *action,
                const uint8_t *data, size_t bytes)
{
    struct peer *peer = &peers[action[1] % PEERS];
    if (peer->connection == NULL) {
        add_peer(root, peer);
    }
    switch (action[0] % 4) {
    case 0:
        if (peer->connection->root == NULL) {
            send_bytes(root, peer, data, bytes);
        }
        break;
    case 1:
        peer->connection->root = root;
        tt_members_take(root, peer->connection, (enum tt_frame_kind)(action[0] / 4), data, bytes);
        tt_members_watch_clock(root, (action[1] & 0x80) != 0);
        break;
    case 2: {
        unsigned char frame[512];
        enum tt_frame_kind kind;
        unsigned char *body;
        size_t body_bytes;
        memcpy(frame, data, bytes);
        if (tt_wire_unseal(&peer->connection->session, frame, bytes, &kind, &body, &body_bytes)) {
            abort(); // nobody forges a seal
        }
        break;
    }
    default:
        drop(root, peer);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tt_peer_connection *connections = NULL;
    struct tt_root root = {.connections = &connections};
    tt_members_begin(&root);
    root.next_notice_ms = UINT64_MAX;
    struct peer peers[PEERS] = {0};
    if (size >= ID_BYTES) {
        ncclUniqueId id;
        struct tt_id read;
        memcpy(&id, data, sizeof id);
        (void)tt_id_read(&id, &read);
    }
    while (size >= ACTION_BYTES) {
        size_t bytes = (data[2] | (size_t)data[3] << 8) % 512;
        bytes = bytes < size - ACTION_BYTES ? bytes : size - ACTION_BYTES;
        act(&root, peers, data, data + ACTION_BYTES, bytes);
        data += ACTION_BYTES + bytes;
        size -= ACTION_BYTES + bytes;
    }
    for (int i = 0; i < PEERS; i++) {
        drop(&root, &peers[i]);
    }
    tt_members_end(&root);
    return 0;
}
