// The handshake's proofs, sealed frames, addresses and ids: what is right passes, everything else
// is refused.
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/wire.h"

#include "expect.h"

#include <netinet/in.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

static unsigned char secret[TT_SECRET_BYTES], other_secret[TT_SECRET_BYTES];
static unsigned char root_nonce[TT_NONCE_BYTES], rank_nonce[TT_NONCE_BYTES];

static void proofs(void)
{
    unsigned char rank_proof[TT_PROOF_BYTES], root_proof[TT_PROOF_BYTES];
    tt_wire_prove(secret, TT_ROLE_RANK, root_nonce, rank_nonce, rank_proof);
    tt_wire_prove(secret, TT_ROLE_ROOT, root_nonce, rank_nonce, root_proof);
    EXPECT(tt_wire_check(secret, TT_ROLE_RANK, root_nonce, rank_nonce, rank_proof));
    EXPECT(tt_wire_check(secret, TT_ROLE_ROOT, root_nonce, rank_nonce, root_proof));
    // One side's proof sent back is not the other's; another secret or another nonce is refused.
    EXPECT(!tt_wire_check(secret, TT_ROLE_ROOT, root_nonce, rank_nonce, rank_proof));
    EXPECT(!tt_wire_check(other_secret, TT_ROLE_RANK, root_nonce, rank_nonce, rank_proof));
    EXPECT(!tt_wire_check(secret, TT_ROLE_RANK, rank_nonce, root_nonce, rank_proof));
    for (int i = 0; i < TT_PROOF_BYTES * 8; i++) {
        rank_proof[i / 8] ^= (unsigned char)(1 << i % 8);
        EXPECT(!tt_wire_check(secret, TT_ROLE_RANK, root_nonce, rank_nonce, rank_proof));
        rank_proof[i / 8] ^= (unsigned char)(1 << i % 8);
    }
}

static void derived_keys(void)
{
    unsigned char a[32], b[32], c[32];
    tt_wire_derive(secret, "one use", a);
    tt_wire_derive(secret, "another use", b);
    tt_wire_derive(other_secret, "one use", c);
    EXPECT(memcmp(a, b, 32) != 0);
    EXPECT(memcmp(a, c, 32) != 0);
    EXPECT(memcmp(a, secret, 32) != 0);
}

static void open_both(struct tt_session *root, struct tt_session *rank)
{
    tt_wire_open_session(secret, TT_ROLE_ROOT, root_nonce, rank_nonce, root);
    tt_wire_open_session(secret, TT_ROLE_RANK, root_nonce, rank_nonce, rank);
}

static void frames(void)
{
    static const size_t sizes[] = {0, 1, 7, 64, 4096, 100000};
    struct tt_session root, rank;
    open_both(&root, &rank);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t bytes = sizes[i], frame_bytes = tt_wire_frame_bytes(bytes + 3), body_bytes;
        unsigned char *body = malloc(bytes + 1), *frame = malloc(frame_bytes), *got;
        enum tt_frame_kind kind;
        randombytes_buf(body, bytes);
        tt_wire_seal(&rank, TT_FRAME_GATHER, "abc", 3, body, bytes, frame);
        EXPECT_EQ(tt_wire_rest_bytes(frame), frame_bytes - TT_HEADER_BYTES);
        if (EXPECT(tt_wire_unseal(&root, frame, frame_bytes, &kind, &got, &body_bytes))) {
            EXPECT_EQ(kind, TT_FRAME_GATHER);
            EXPECT_EQ(body_bytes, bytes + 3);
            EXPECT(memcmp(got, "abc", 3) == 0 && memcmp(got + 3, body, bytes) == 0);
        }
        free(body);
        free(frame);
    }
}

// Any bit of a frame changed, any other length, a frame sent twice, out of order, back to its
// sender, of another session.
static void forged_frames(void)
{
    enum { BODY = 20 };
    unsigned char frame[64], copy[64], *body;
    size_t frame_bytes = tt_wire_frame_bytes(BODY), body_bytes;
    enum tt_frame_kind kind;
    struct tt_session root, rank, stranger;
    open_both(&root, &rank);
    tt_wire_seal(&rank, TT_FRAME_JOIN, "01234567890123456789", BODY, NULL, 0, frame);
    for (size_t bit = 0; bit < frame_bytes * 8; bit++) {
        struct tt_session fresh = root;
        memcpy(copy, frame, frame_bytes);
        copy[bit / 8] ^= (unsigned char)(1 << bit % 8);
        EXPECT(!tt_wire_unseal(&fresh, copy, frame_bytes, &kind, &body, &body_bytes));
    }
    for (size_t bytes = 0; bytes < frame_bytes; bytes++) {
        struct tt_session fresh = root;
        memcpy(copy, frame, frame_bytes);
        EXPECT(!tt_wire_unseal(&fresh, copy, bytes, &kind, &body, &body_bytes));
    }
    struct tt_session fresh = rank; // back to the sender
    memcpy(copy, frame, frame_bytes);
    EXPECT(!tt_wire_unseal(&fresh, copy, frame_bytes, &kind, &body, &body_bytes));
    tt_wire_open_session(other_secret, TT_ROLE_ROOT, root_nonce, rank_nonce, &stranger);
    memcpy(copy, frame, frame_bytes);
    EXPECT(!tt_wire_unseal(&stranger, copy, frame_bytes, &kind, &body, &body_bytes));
    memcpy(copy, frame, frame_bytes);
    EXPECT(tt_wire_unseal(&root, copy, frame_bytes, &kind, &body, &body_bytes));
    memcpy(copy, frame, frame_bytes); // twice
    EXPECT(!tt_wire_unseal(&root, copy, frame_bytes, &kind, &body, &body_bytes));
    unsigned char second[64];
    tt_wire_seal(&rank, TT_FRAME_LEAVE, NULL, 0, NULL, 0, second);
    tt_wire_seal(&rank, TT_FRAME_LEAVE, NULL, 0, NULL, 0, second); // the one before is lost
    EXPECT(!tt_wire_unseal(&root, second, tt_wire_frame_bytes(0), &kind, &body, &body_bytes));
}

static void headers(void)
{
    static const uint32_t bad[] = {0, TT_FRAME_LIMIT + 2, 0x7fffffff, 0xffffffff, 0xfffffff0};
    uint32_t longest = TT_FRAME_LIMIT + 1;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        EXPECT_EQ(tt_wire_rest_bytes((const unsigned char *)&bad[i]), 0);
    }
    EXPECT_EQ(tt_wire_rest_bytes((const unsigned char *)&longest),
              (size_t)TT_FRAME_LIMIT + 1 + TT_SEAL_BYTES);
}

static void addresses(void)
{
    struct tt_address four = {.family = AF_INET, .port = 4711, .bytes = {127, 0, 0, 1}};
    struct tt_address six = {.family = AF_INET6, .port = 65535, .scope = 3, .bytes = {[15] = 1}};
    struct tt_address back;
    struct sockaddr_storage socket_address;
    char text[64];
    EXPECT_EQ(tt_address_to_socket(&four, &socket_address), sizeof(struct sockaddr_in));
    tt_address_from_socket(&socket_address, &back);
    EXPECT(memcmp(&back, &four, sizeof back) == 0);
    EXPECT_EQ(tt_address_to_socket(&six, &socket_address), sizeof(struct sockaddr_in6));
    tt_address_from_socket(&socket_address, &back);
    EXPECT(memcmp(&back, &six, sizeof back) == 0);
    tt_address_print(&four, text, sizeof text);
    EXPECT_STR(text, "127.0.0.1:4711");
    tt_address_print(&six, text, sizeof text);
    EXPECT_STR(text, "[::1]:65535");
    EXPECT(tt_address_is_loopback(&four));
    EXPECT(tt_address_is_loopback(&six));
    four.bytes[0] = 10;
    six.bytes[15] = 2;
    EXPECT(!tt_address_is_loopback(&four));
    EXPECT(!tt_address_is_loopback(&six));
}

// What a root says instead of its proof cannot be mistaken for one, nor one for it.
static void refusals(void)
{
    unsigned char bytes[TT_PROOF_BYTES];
    for (int refusal = TT_REFUSED_SECRET; refusal <= TT_REFUSED_NUMBER; refusal++) {
        tt_wire_refuse((enum tt_refusal)refusal, bytes);
        EXPECT_EQ(tt_wire_refusal(bytes), refusal);
        bytes[0] = 1;
        EXPECT_EQ(tt_wire_refusal(bytes), TT_NOT_REFUSED);
    }
    memset(bytes, 0, sizeof bytes);
    EXPECT_EQ(tt_wire_refusal(bytes), TT_NOT_REFUSED);
    bytes[TT_PROOF_BYTES - 1] = 77;
    EXPECT_EQ(tt_wire_refusal(bytes), TT_NOT_REFUSED);
}

static void ids(void)
{
    ncclUniqueId id;
    struct tt_id read;
    memset(&id, 0, sizeof id);
    EXPECT_EQ(tt_id_read(&id, &read), ncclInvalidArgument);
    for (int i = 0; i < 1000; i++) {
        randombytes_buf(&id, sizeof id);
        EXPECT_EQ(tt_id_read(&id, &read), ncclInvalidArgument);
    }
    struct tt_id good = {.magic = TT_ID_MAGIC,
                         .revision = TT_ID_REVISION,
                         .address = {.family = AF_INET, .port = 1}};
    memcpy(&id, &good, sizeof good);
    EXPECT_OK(tt_id_read(&id, &read));
    good.revision = TT_ID_REVISION + 1;
    memcpy(&id, &good, sizeof good);
    EXPECT_EQ(tt_id_read(&id, &read), ncclInvalidArgument);
    good.revision = TT_ID_REVISION;
    good.address.family = AF_UNIX;
    memcpy(&id, &good, sizeof good);
    EXPECT_EQ(tt_id_read(&id, &read), ncclInvalidArgument);
}

int main(void)
{
    if (!EXPECT(sodium_init() >= 0)) {
        return expect_result();
    }
    randombytes_buf(secret, sizeof secret);
    randombytes_buf(other_secret, sizeof other_secret);
    randombytes_buf(root_nonce, sizeof root_nonce);
    randombytes_buf(rank_nonce, sizeof rank_nonce);
    RUN(proofs);
    RUN(derived_keys);
    RUN(frames);
    RUN(forged_frames);
    RUN(headers);
    RUN(addresses);
    RUN(refusals);
    RUN(ids);
    return expect_result();
}
