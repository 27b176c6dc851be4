// Sealed frames over a socket: the handshake that proves the secret, and messages that nobody else
// can read or forge.
//
// Handshake, after the connection: the rank sends a magic number and the number of its root (not
// secret; one process has many), so that a connection whose process is gone breaks at once; the
// process sends HELLO {magic, its nonce}; the rank answers {its nonce, proof}; the root answers
// with its own proof, or with a refusal (31 zero bytes and the reason) that tells nothing but that.
// A proof is the keyed BLAKE2b hash of both nonces and the prover's role under the id's secret. Two
// session keys, one per direction, come from the same nonces. A frame is {length, sealed kind and
// body} under ChaCha20-Poly1305 with the frame's number as nonce and the length as associated data.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_BOOTSTRAP_WIRE_H
#define TT_BOOTSTRAP_WIRE_H

#include "nccl.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum {
    TT_SECRET_BYTES = 32,
    TT_NONCE_BYTES = 32,
    TT_PROOF_BYTES = 32,
    TT_SEAL_BYTES = 16,
    TT_HEADER_BYTES = 4,
    TT_FRAME_LIMIT = 256 << 20, // longest body
    TT_MOST_RANKS = 1 << 18,    // of a communicator
};
#define TT_WIRE_MAGIC UINT64_C(0x32656c747474) // first bytes of both sides

enum tt_role { TT_ROLE_RANK, TT_ROLE_ROOT };

enum tt_frame_kind {
    TT_FRAME_JOIN = 1, // rank -> root: struct tt_join
    TT_FRAME_READY,    // root -> rank: struct tt_ready. All have joined
    TT_FRAME_GATHER, // rank -> root: u32 sequence, then its data; root -> rank: u32 sequence, then
                     // everybody's
    TT_FRAME_ERROR,  // root -> rank: i32 result, i32 the rank that died (-1: none), text. The
                     // communicator is finished
    TT_FRAME_NOTICE, // root -> the first rank that waits: a text to print
    TT_FRAME_FAILED, // rank -> root: text
    TT_FRAME_USED,   // root -> rank: its id has made its communicator already
    TT_FRAME_CANNOT, // instead of JOIN: struct tt_join, then the text why it will never come
    TT_FRAME_LEAVE,  // rank -> root: in good order
    TT_FRAME_LEFT, // root -> rank: i32 whether the root's process may end now, then the i32 numbers
                   // of ranks that have left
};

// Why a root does not answer with its proof.
enum tt_refusal { TT_NOT_REFUSED, TT_REFUSED_SECRET, TT_REFUSED_NUMBER };

struct tt_join {
    uint32_t version; // NCCL_VERSION_CODE and the wire's own revision
    int32_t rank, nranks, pid;
    uint64_t process; // random, of the process
    char host[64];
};

// Of the root's process.
struct tt_ready {
    uint64_t process;
    int32_t rank; // the first rank that lives in it, -1: none
    int32_t pid;
    char host[64];
};

struct tt_hello {
    uint64_t magic;
    unsigned char nonce[TT_NONCE_BYTES];
};
struct tt_answer {
    uint64_t magic, number; // sent at once, the rest after HELLO
    unsigned char nonce[TT_NONCE_BYTES];
    unsigned char proof[TT_PROOF_BYTES];
};

// Keys and counters of one authenticated connection.
struct tt_session {
    unsigned char send_key[32], receive_key[32];
    uint64_t sent, received; // frames
};

// The proof of `role`, and whether a given one is right (constant time).
void tt_wire_prove(const unsigned char *secret, enum tt_role role, const unsigned char *root_nonce,
                   const unsigned char *rank_nonce, unsigned char *proof_out);
bool tt_wire_check(const unsigned char *secret, enum tt_role role, const unsigned char *root_nonce,
                   const unsigned char *rank_nonce, const unsigned char *proof);
// What a root sends in place of its proof, and what such bytes mean.
void tt_wire_refuse(enum tt_refusal refusal, unsigned char *out);
enum tt_refusal tt_wire_refusal(const unsigned char *proof);
void tt_wire_open_session(const unsigned char *secret, enum tt_role own_role,
                          const unsigned char *root_nonce, const unsigned char *rank_nonce,
                          struct tt_session *session);
// Keyed hash of `label`: a key for another purpose.
void tt_wire_derive(const unsigned char *secret, const char *label, unsigned char key_out[32]);

// Bytes of the frame on the wire that carries `body_bytes`.
size_t tt_wire_frame_bytes(size_t body_bytes);
// Seals kind and the two parts of a body into `frame` (tt_wire_frame_bytes(first + second) bytes).
void tt_wire_seal(struct tt_session *session, enum tt_frame_kind kind, const void *first,
                  size_t first_bytes, const void *second, size_t second_bytes,
                  unsigned char *frame);
// Bytes that follow a header; 0: the header is not one of ours.
size_t tt_wire_rest_bytes(const unsigned char *header);
// Opens a whole frame in place: *body_out points into it. False: forged, damaged or out of order.
bool tt_wire_unseal(struct tt_session *session, unsigned char *frame, size_t frame_bytes,
                    enum tt_frame_kind *kind_out, unsigned char **body_out, size_t *body_bytes_out);

// The address inside a unique id.
struct tt_address {
    uint16_t family; // AF_INET or AF_INET6
    uint16_t port;   // host order
    uint32_t scope;
    unsigned char bytes[16];
};
socklen_t tt_address_to_socket(const struct tt_address *address, struct sockaddr_storage *out);
void tt_address_from_socket(const struct sockaddr_storage *socket_address, struct tt_address *out);
// "127.0.0.1:4711" or "[::1]:4711".
void tt_address_print(const struct tt_address *address, char *text, size_t bytes);
bool tt_address_is_loopback(const struct tt_address *address);

// What a unique id holds. The secret never appears in a message.
struct tt_id {
    uint64_t magic;
    uint32_t revision;
    uint32_t root_at_rank_0; // NCCL_COMM_ID: rank 0 opens the root
    struct tt_address address;
    unsigned char secret[TT_SECRET_BYTES];
    uint64_t number; // of the root in its process
};
enum { TT_ID_REVISION = 2 };
#define TT_ONLY_ROOT UINT64_C(0) // the number of a root that has an address for itself
#define TT_ID_MAGIC  UINT64_C(0x3164696974747574)
// ncclInvalidArgument where the bytes are no id of this version.
ncclResult_t tt_id_read(const ncclUniqueId *id, struct tt_id *out);

// root.c: begins a rendezvous for the id, served by the one thread of this process that serves all.
// Listens at id->address; port 0: at the process's own port, filled in.
ncclResult_t tt_root_start(struct tt_id *id);
// Ends it, where it is in this process and nobody has come to it.
void tt_root_drop(const struct tt_id *id);
// Where it is in this process: it ends, and the others are told that `rank` was aborted before it
// had said that it comes. Otherwise it would wait for ever for the first one.
void tt_root_give_up(const struct tt_id *id, int rank);
// A random number that names this process.
uint64_t tt_root_process(void);

#endif
