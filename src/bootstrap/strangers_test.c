// Strangers at the root's port: noise, other protocols, silence, dripping bytes, a thousand
// connections, wrong keys. The ranks must not notice, the strangers must be named, and nobody
// without the secret may count as a rank.
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/bootstrap.h"

#include "base/log.h"
#include "bootstrap/wire.h"

#include "expect.h"
#include "ranks.h"
#include "stopwatch.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { RANKS = 4, CROWD = 1000 };

static void sleep_ms(int ms)
{
    poll(NULL, 0, ms);
}

static int reach(const ncclUniqueId *id)
{
    struct tt_id inside;
    struct sockaddr_storage where;
    memcpy(&inside, id, sizeof inside);
    socklen_t length = tt_address_to_socket(&inside.address, &where);
    int fd = socket(where.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (!EXPECT(fd >= 0) || !EXPECT_EQ(connect(fd, (struct sockaddr *)&where, length), 0)) {
        return -1;
    }
    return fd;
}

static void say(int fd, const void *data, size_t bytes)
{
    ssize_t sent = send(fd, data, bytes, MSG_NOSIGNAL);
    (void)sent; // it may have hung up
}

// Reads until the other side hangs up, at most `most_s` seconds; true when it did.
static bool is_hung_up(int fd, double most_s)
{
    char text[256];
    struct stopwatch watch = stopwatch_start();
    while (stopwatch_is_within(&watch, most_s)) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, 50) > 0 && recv(fd, text, sizeof text, MSG_DONTWAIT) <= 0) {
            return true;
        }
    }
    return false;
}

// A whole handshake with a given secret, then the claim of `rank` of `nranks`.
static int impersonate(const ncclUniqueId *id, const unsigned char *secret, int rank, int nranks,
                       uint32_t version)
{
    struct tt_hello hello;
    struct tt_id inside;
    memcpy(&inside, id, sizeof inside);
    struct tt_answer answer = {.magic = TT_WIRE_MAGIC, .number = inside.number};
    struct tt_session session;
    unsigned char proof[TT_PROOF_BYTES], frame[512];
    int fd = reach(id);
    if (fd < 0 || !EXPECT_EQ(recv(fd, &hello, sizeof hello, MSG_WAITALL), (ssize_t)sizeof hello)) {
        return fd;
    }
    EXPECT(hello.magic == TT_WIRE_MAGIC);
    randombytes_buf(answer.nonce, sizeof answer.nonce);
    tt_wire_prove(secret, TT_ROLE_RANK, hello.nonce, answer.nonce, answer.proof);
    say(fd, &answer, sizeof answer);
    if (!EXPECT_EQ(recv(fd, proof, sizeof proof, MSG_WAITALL), (ssize_t)sizeof proof) ||
        tt_wire_refusal(proof) != TT_NOT_REFUSED) {
        EXPECT(memcmp(secret, inside.secret, sizeof inside.secret) != 0);
        return fd; // not believed
    }
    EXPECT(memcmp(secret, inside.secret, sizeof inside.secret) == 0);
    struct tt_join claim = {
        .version = version, .rank = rank, .nranks = nranks, .pid = 1, .host = "elsewhere"};
    tt_wire_open_session(secret, TT_ROLE_RANK, hello.nonce, answer.nonce, &session);
    tt_wire_seal(&session, TT_FRAME_JOIN, &claim, sizeof claim, NULL, 0, frame);
    say(fd, frame, tt_wire_frame_bytes(sizeof claim));
    return fd;
}

// ---- The crowd ----------------------------------------------------------------------------------

struct crowd {
    const ncclUniqueId *id;
    atomic_bool stop;
    int silent[CROWD];
    int silent_count;
    int dripping;
};

static void make_noise(struct crowd *crowd)
{
    static const char http[] =
        "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a very curious program of "
        "considerable length\r\nAccept: */*\r\n\r\n";
    static const unsigned char tls[] = {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3};
    unsigned char noise[1024], wrong[TT_SECRET_BYTES];
    ncclUniqueId other;
    struct tt_id other_inside;
    randombytes_buf(noise, sizeof noise);
    randombytes_buf(wrong, sizeof wrong);
    int fd = reach(crowd->id);
    say(fd, noise, sizeof noise);
    EXPECT(is_hung_up(fd, 3));
    close(fd);
    fd = reach(crowd->id);
    say(fd, http, sizeof http - 1);
    EXPECT(is_hung_up(fd, 3));
    close(fd);
    fd = reach(crowd->id);
    say(fd, tls, sizeof tls);
    EXPECT(is_hung_up(fd, 3));
    close(fd);
    fd = impersonate(crowd->id, wrong, 0, RANKS, 0);
    EXPECT(is_hung_up(fd, 3));
    close(fd);
    // Another job's rank at the wrong port.
    EXPECT_OK(tt_bootstrap_make_id(TT_REACH_HOST, &other));
    memcpy(&other_inside, &other, sizeof other_inside);
    fd = impersonate(crowd->id, other_inside.secret, 3, RANKS, 0);
    EXPECT(is_hung_up(fd, 3));
    close(fd);
}

static void *drip(void *argument)
{
    struct crowd *crowd = argument;
    const uint64_t magic = TT_WIRE_MAGIC; // knows the protocol
    for (int i = 0; !atomic_load(&crowd->stop); i++) {
        say(crowd->dripping, i < 8 ? (const char *)&magic + i : "x", 1);
        sleep_ms(100);
    }
    return NULL;
}

static void gather_crowd(struct crowd *crowd)
{
    for (int i = 0; i < CROWD; i++) {
        int fd = reach(crowd->id);
        if (fd < 0) {
            return;
        }
        crowd->silent[crowd->silent_count++] = fd;
    }
}

static void disperse_crowd(struct crowd *crowd)
{
    for (int i = 0; i < crowd->silent_count; i++) {
        close(crowd->silent[i]);
    }
    crowd->silent_count = 0;
}

static bool raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    return limit.rlim_cur >= 3 * CROWD;
}

static void exchange(struct tt_bootstrap *b, int rank, int size)
{
    for (int round = 0; round < 20; round++) {
        int all[RANKS] = {0};
        all[rank] = rank * 100 + round;
        if (!EXPECT_OK(tt_bootstrap_allgather(b, all, sizeof all[0]))) {
            return;
        }
        for (int r = 0; r < size; r++) {
            EXPECT_EQ(all[r], r * 100 + round);
        }
    }
}

static void work_among_strangers(int rank, int size)
{
    static struct crowd crowd; // rank 0's
    static ncclUniqueId id;
    pthread_t dripper;
    ncclUniqueId mine;
    if (rank == 0) {
        EXPECT_OK(tt_bootstrap_make_id(TT_REACH_HOST, &id));
        mine = id;
        memset(&crowd, 0, sizeof crowd);
        crowd.id = &id;
        make_noise(&crowd);
        crowd.dripping = reach(&id);
        pthread_create(&dripper, NULL, drip, &crowd);
        gather_crowd(&crowd);
    }
    ranks_broadcast(&mine, sizeof mine);
    struct tt_bootstrap *b = NULL;
    struct stopwatch watch = stopwatch_start();
    if (!EXPECT_OK(tt_bootstrap_join(&mine, rank, size, NULL, &b))) {
        return;
    }
    EXPECT_WITHIN(watch, 20);
    exchange(b, rank, size);
    ranks_barrier();
    if (rank == 0) { // and again while the communicator runs
        disperse_crowd(&crowd);
        make_noise(&crowd);
        gather_crowd(&crowd);
    }
    exchange(b, rank, size);
    ranks_barrier();
    if (rank == 0) {
        atomic_store(&crowd.stop, true);
        pthread_join(dripper, NULL);
        // The dripping one was sent away, although it never stopped to send.
        EXPECT(is_hung_up(crowd.dripping, 12));
        close(crowd.dripping);
        disperse_crowd(&crowd);
    }
    exchange(b, rank, size);
    tt_bootstrap_leave(b);
}

static void strangers(void)
{
    if (!raise_descriptor_limit()) {
        SKIP("too few descriptors for a thousand connections at both ends");
        return;
    }
    run_thread_ranks(RANKS, work_among_strangers, 100);
}

// The refusals are named on stderr, with the address, and not once for each.
static void crowd_and_listen(int rank, int size)
{
    (void)rank;
    (void)size;
    ncclUniqueId id;
    int ends[2], saved = dup(2), lines = 0;
    static char text[1 << 16];
    EXPECT_OK(tt_bootstrap_make_id(TT_REACH_HOST, &id));
    EXPECT_EQ(pipe(ends), 0);
    dup2(ends[1], 2);
    for (int i = 0; i < 100; i++) {
        char noise[100];
        uint64_t magic = TT_WIRE_MAGIC;
        memset(noise, i, sizeof noise);
        memcpy(noise, &magic, i % 2 == 0 ? sizeof magic : 0);
        int fd = reach(&id);
        say(fd, noise, sizeof noise);
        EXPECT(is_hung_up(fd, 3));
        close(fd);
    }
    dup2(saved, 2);
    close(ends[1]);
    EXPECT(read(ends[0], text, sizeof text - 1) > 0);
    for (const char *p = text; (p = strchr(p, '\n')) != NULL; p++) {
        lines++;
    }
    EXPECT_CONTAINS(text, "refused a connection from 127.0.0.1:");
    EXPECT(lines >= 1 && lines <= 20);
    EXPECT(strstr(text, "secret of") != NULL || strstr(text, "does not speak") != NULL);
}

static void refusals_are_named(void)
{
    run_ranks(1, crowd_and_listen, 60);
}

// A rank of another library version is an error on all ranks.
static void other_version(void)
{
    ncclUniqueId id;
    struct tt_id inside;
    struct tt_bootstrap *b = NULL;
    EXPECT_OK(tt_bootstrap_make_id(TT_REACH_HOST, &id));
    memcpy(&inside, &id, sizeof inside);
    int fd = impersonate(&id, inside.secret, 1, 2, 2200001);
    sleep_ms(100);
    EXPECT_EQ(tt_bootstrap_join(&id, 0, 2, NULL, &b), ncclInvalidUsage);
    EXPECT_CONTAINS(tt_last_error(), "different library versions");
    EXPECT_CONTAINS(tt_last_error(), "2200001");
    EXPECT_CONTAINS(tt_last_error(), "on elsewhere");
    close(fd);
}

// A member may send nonsense too: then it is gone, and the others learn it.
static void bad_member(void)
{
    ncclUniqueId id;
    struct tt_id inside;
    EXPECT_OK(tt_bootstrap_make_id(TT_REACH_HOST, &id));
    memcpy(&inside, &id, sizeof inside);
    int fd = impersonate(&id, inside.secret, 1, 2, NCCL_VERSION_CODE * 100u + 2);
    sleep_ms(100);
    say(fd, "\xff\xff\xff\xff and more", 13);
    EXPECT(is_hung_up(fd, 3));
    struct tt_bootstrap *b = NULL;
    EXPECT_EQ(tt_bootstrap_join(&id, 0, 2, NULL, &b), ncclRemoteError);
    EXPECT_CONTAINS(tt_last_error(), "rank 1 (process 1 on elsewhere) died");
    close(fd);
}

// What listens at the id's address is not the root.
static void *play_root(void *argument)
{
    int listener = *(int *)argument;
    for (int i = 0; i < 2; i++) {
        int fd = accept(listener, NULL, NULL);
        struct tt_hello hello = {.magic = i == 0 ? 0x50545448 : TT_WIRE_MAGIC};
        struct tt_answer answer;
        unsigned char proof[TT_PROOF_BYTES] = {1};
        say(fd, &hello, sizeof hello);
        ssize_t got = recv(fd, &answer, sizeof answer, MSG_WAITALL);
        (void)got;
        say(fd, proof, sizeof proof);
        sleep_ms(200);
        close(fd);
    }
    return NULL;
}

// A rank with another secret is told so, and does not try again.
static void wrong_secret(void)
{
    ncclUniqueId id;
    struct tt_id inside;
    struct tt_bootstrap *b = NULL;
    struct stopwatch watch = stopwatch_start();
    EXPECT_OK(tt_bootstrap_make_id(TT_REACH_HOST, &id));
    memcpy(&inside, &id, sizeof inside);
    inside.secret[5] ^= 1;
    memcpy(&id, &inside, sizeof inside);
    EXPECT_EQ(tt_bootstrap_join(&id, 0, 2, NULL, &b), ncclInvalidUsage);
    EXPECT_CONTAINS(tt_last_error(), "the secret in the rank's unique id is not the root's");
    inside.secret[5] ^= 1;
    inside.number ^= 1; // of an id that was never made
    memcpy(&id, &inside, sizeof inside);
    EXPECT_EQ(tt_bootstrap_join(&id, 0, 2, NULL, &b), ncclInvalidUsage);
    EXPECT_CONTAINS(tt_last_error(), "has no communicator to make for this unique id");
    EXPECT_WITHIN(watch, 3);
    EXPECT(b == NULL);
}

// A listener, and the id of a root there.
static int listen_as_root(ncclUniqueId *id_out)
{
    struct sockaddr_storage where;
    struct tt_address any = {.family = AF_INET, .bytes = {127, 0, 0, 1}};
    socklen_t length = tt_address_to_socket(&any, &where);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(bind(listener, (struct sockaddr *)&where, length), 0);
    EXPECT_EQ(listen(listener, 4), 0);
    EXPECT_EQ(getsockname(listener, (struct sockaddr *)&where, &length), 0);
    struct tt_id inside = {.magic = TT_ID_MAGIC, .revision = TT_ID_REVISION, .number = 5};
    tt_address_from_socket(&where, &inside.address);
    memset(id_out, 0, sizeof *id_out);
    memcpy(id_out, &inside, sizeof inside);
    return listener;
}

// A listener that never answers costs TUTTI_INIT_TIMEOUT, once.
static void join_silence(int rank, int size)
{
    (void)size;
    ncclUniqueId id;
    int listener = listen_as_root(&id);
    struct tt_bootstrap *b = NULL;
    struct stopwatch watch = stopwatch_start();
    EXPECT_EQ(tt_bootstrap_join(&id, rank, 2, NULL, &b), ncclSystemError);
    EXPECT(stopwatch_s(&watch) > 1.5 && stopwatch_is_within(&watch, 3.5));
    EXPECT_CONTAINS(tt_last_error(), "does not answer in time (at most TUTTI_INIT_TIMEOUT, 2 s)");
    close(listener);
}

static void silent_root(void)
{
    setenv("TUTTI_INIT_TIMEOUT", "2", 1);
    run_ranks(1, join_silence, 30);
    unsetenv("TUTTI_INIT_TIMEOUT");
}

static void false_root(void)
{
    ncclUniqueId id;
    int listener = listen_as_root(&id);
    pthread_t thread;
    struct tt_bootstrap *b = NULL;
    pthread_create(&thread, NULL, play_root, &listener);
    EXPECT_EQ(tt_bootstrap_join(&id, 0, 2, NULL, &b), ncclSystemError);
    EXPECT_CONTAINS(tt_last_error(), "is not tutti");
    EXPECT_EQ(tt_bootstrap_join(&id, 0, 2, NULL, &b), ncclSystemError);
    EXPECT_CONTAINS(tt_last_error(), "does not know its secret");
    pthread_join(thread, NULL);
    close(listener);
}

int main(void)
{
    if (!EXPECT(sodium_init() >= 0)) {
        return expect_result();
    }
    RUN(strangers);
    RUN(refusals_are_named);
    RUN(other_version);
    RUN(bad_member);
    RUN(false_root);
    RUN(wrong_secret);
    RUN(silent_root);
    return expect_result();
}
