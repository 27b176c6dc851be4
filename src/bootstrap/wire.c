// Handshake proofs, session keys and sealed frames. See wire.h. SPDX-License-Identifier: Apache-2.0
#include "bootstrap/wire.h"

#include "base/log.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

static void keyed_hash(const unsigned char *secret, const char *label, const unsigned char *first,
                       const unsigned char *second, unsigned char out[32])
{
    crypto_generichash_state state;
    crypto_generichash_init(&state, secret, TT_SECRET_BYTES, 32);
    crypto_generichash_update(&state, (const unsigned char *)label, strlen(label) + 1);
    if (first != NULL) {
        crypto_generichash_update(&state, first, TT_NONCE_BYTES);
        crypto_generichash_update(&state, second, TT_NONCE_BYTES);
    }
    crypto_generichash_final(&state, out, 32);
}

void tt_wire_prove(const unsigned char *secret, enum tt_role role, const unsigned char *root_nonce,
                   const unsigned char *rank_nonce, unsigned char *proof_out)
{
    keyed_hash(secret, role == TT_ROLE_ROOT ? "proof of root" : "proof of rank", root_nonce,
               rank_nonce, proof_out);
}

bool tt_wire_check(const unsigned char *secret, enum tt_role role, const unsigned char *root_nonce,
                   const unsigned char *rank_nonce, const unsigned char *proof)
{
    unsigned char right[TT_PROOF_BYTES];
    tt_wire_prove(secret, role, root_nonce, rank_nonce, right);
    return sodium_memcmp(right, proof, sizeof right) == 0;
}

void tt_wire_refuse(enum tt_refusal refusal, unsigned char *out)
{
    memset(out, 0, TT_PROOF_BYTES);
    out[TT_PROOF_BYTES - 1] = (unsigned char)refusal;
}

enum tt_refusal tt_wire_refusal(const unsigned char *proof)
{
    unsigned char last = proof[TT_PROOF_BYTES - 1];
    bool is_one = sodium_is_zero(proof, TT_PROOF_BYTES - 1) != 0 &&
                  (last == TT_REFUSED_SECRET || last == TT_REFUSED_NUMBER);
    return is_one ? (enum tt_refusal)last : TT_NOT_REFUSED;
}

void tt_wire_open_session(const unsigned char *secret, enum tt_role own_role,
                          const unsigned char *root_nonce, const unsigned char *rank_nonce,
                          struct tt_session *session)
{
    memset(session, 0, sizeof *session);
    bool root = own_role == TT_ROLE_ROOT;
    keyed_hash(secret, "root to rank", root_nonce, rank_nonce,
               root ? session->send_key : session->receive_key);
    keyed_hash(secret, "rank to root", root_nonce, rank_nonce,
               root ? session->receive_key : session->send_key);
}

void tt_wire_derive(const unsigned char *secret, const char *label, unsigned char key_out[32])
{
    keyed_hash(secret, label, NULL, NULL, key_out);
}

size_t tt_wire_frame_bytes(size_t body_bytes)
{
    return TT_HEADER_BYTES + 1 + body_bytes + TT_SEAL_BYTES;
}

static void frame_nonce(uint64_t number,
                        unsigned char nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES])
{
    memset(nonce, 0, crypto_aead_chacha20poly1305_ietf_NPUBBYTES);
    memcpy(nonce, &number, sizeof number);
}

void tt_wire_seal(struct tt_session *session, enum tt_frame_kind kind, const void *first,
                  size_t first_bytes, const void *second, size_t second_bytes, unsigned char *frame)
{
    uint32_t plain_bytes = (uint32_t)(1 + first_bytes + second_bytes);
    unsigned char nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];
    unsigned char *plain = frame + TT_HEADER_BYTES;
    memcpy(frame, &plain_bytes, sizeof plain_bytes);
    plain[0] = (unsigned char)kind;
    if (first_bytes > 0) {
        memcpy(plain + 1, first, first_bytes);
    }
    if (second_bytes > 0) {
        memcpy(plain + 1 + first_bytes, second, second_bytes);
    }
    frame_nonce(session->sent++, nonce);
    crypto_aead_chacha20poly1305_ietf_encrypt(plain, NULL, plain, plain_bytes, frame,
                                              TT_HEADER_BYTES, NULL, nonce, session->send_key);
}

size_t tt_wire_rest_bytes(const unsigned char *header)
{
    uint32_t plain_bytes;
    memcpy(&plain_bytes, header, sizeof plain_bytes);
    if (plain_bytes < 1 || plain_bytes > (uint32_t)TT_FRAME_LIMIT + 1) {
        return 0;
    }
    return (size_t)plain_bytes + TT_SEAL_BYTES;
}

bool tt_wire_unseal(struct tt_session *session, unsigned char *frame, size_t frame_bytes,
                    enum tt_frame_kind *kind_out, unsigned char **body_out, size_t *body_bytes_out)
{
    if (frame_bytes < TT_HEADER_BYTES + 1 + TT_SEAL_BYTES ||
        tt_wire_rest_bytes(frame) != frame_bytes - TT_HEADER_BYTES) {
        return false;
    }
    unsigned char nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];
    unsigned char *sealed = frame + TT_HEADER_BYTES;
    unsigned long long plain_bytes;
    frame_nonce(session->received, nonce);
    if (crypto_aead_chacha20poly1305_ietf_decrypt(
            sealed, &plain_bytes, NULL, sealed, frame_bytes - TT_HEADER_BYTES, frame,
            TT_HEADER_BYTES, nonce, session->receive_key) != 0) {
        return false;
    }
    session->received++;
    *kind_out = (enum tt_frame_kind)sealed[0];
    *body_out = sealed + 1;
    *body_bytes_out = (size_t)plain_bytes - 1;
    return true;
}

// ---- Addresses and ids --------------------------------------------------------------------------

socklen_t tt_address_to_socket(const struct tt_address *address, struct sockaddr_storage *out)
{
    memset(out, 0, sizeof *out);
    if (address->family == AF_INET6) {
        struct sockaddr_in6 *six = (struct sockaddr_in6 *)out;
        six->sin6_family = AF_INET6;
        six->sin6_port = htons(address->port);
        six->sin6_scope_id = address->scope;
        memcpy(&six->sin6_addr, address->bytes, 16);
        return sizeof *six;
    }
    struct sockaddr_in *four = (struct sockaddr_in *)out;
    four->sin_family = AF_INET;
    four->sin_port = htons(address->port);
    memcpy(&four->sin_addr, address->bytes, 4);
    return sizeof *four;
}

void tt_address_from_socket(const struct sockaddr_storage *socket_address, struct tt_address *out)
{
    memset(out, 0, sizeof *out);
    out->family = socket_address->ss_family;
    if (socket_address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)socket_address;
        out->port = ntohs(six->sin6_port);
        out->scope = six->sin6_scope_id;
        memcpy(out->bytes, &six->sin6_addr, 16);
    } else {
        const struct sockaddr_in *four = (const struct sockaddr_in *)socket_address;
        out->port = ntohs(four->sin_port);
        memcpy(out->bytes, &four->sin_addr, 4);
    }
}

void tt_address_print(const struct tt_address *address, char *text, size_t bytes)
{
    char number[INET6_ADDRSTRLEN] = "?";
    inet_ntop(address->family, address->bytes, number, sizeof number);
    (void)snprintf(text, bytes, address->family == AF_INET6 ? "[%s]:%u" : "%s:%u", number,
                   address->port);
}

bool tt_address_is_loopback(const struct tt_address *address)
{
    if (address->family == AF_INET6) {
        static const unsigned char loopback[16] = {[15] = 1};
        return memcmp(address->bytes, loopback, sizeof loopback) == 0;
    }
    return address->bytes[0] == 127;
}

ncclResult_t tt_id_read(const ncclUniqueId *id, struct tt_id *out)
{
    _Static_assert(sizeof *out <= sizeof *id, "an id holds it all");
    memcpy(out, id, sizeof *out);
    if (out->magic != TT_ID_MAGIC || out->revision != TT_ID_REVISION ||
        (out->address.family != AF_INET && out->address.family != AF_INET6)) {
        return tt_fail(
            ncclInvalidArgument,
            "the unique id was not made by ncclGetUniqueId of this library (first word %#llx)",
            (unsigned long long)out->magic);
    }
    return ncclSuccess;
}
