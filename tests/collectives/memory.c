// Buffers of every kind of memory, other kinds on other ranks and in one call; and more elements
// than 2^31, in memory most of which is one page range seen again and again (TUTTI_TEST_FULL=1).
// SPDX-License-Identifier: Apache-2.0
#include "collectives.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <tutti.h>
#include <unistd.h>

enum { AREA_BYTES = 1 << 18, RANKS = 3 };

enum kind { DEVICE, SYMMETRIC, HEAP, STATIC, SHARED_FILE, PRIVATE_FILE, PINNED, STACK, KINDS };

static char static_memory[RANKS][2][AREA_BYTES];

static char *map_file(int flags)
{
    char name[] = "/tmp/tutti-memory-test-XXXXXX";
    int file = mkstemp(name);
    EXPECT(file >= 0 && unlink(name) == 0 && ftruncate(file, AREA_BYTES) == 0);
    void *memory = mmap(NULL, AREA_BYTES, PROT_READ | PROT_WRITE, flags, file, 0);
    close(file);
    return EXPECT(memory != MAP_FAILED) ? memory : NULL;
}

// which: 0 or 1.
static struct area make_kind(enum kind kind, int rank, int which)
{
    struct area area = {NULL, AREA_BYTES};
    void *memory = NULL;
    switch (kind) {
    case DEVICE:
        EXPECT_CUDA(cudaMalloc(&memory, AREA_BYTES));
        break;
    case SYMMETRIC:
        EXPECT_OK(ncclMemAlloc(&memory, AREA_BYTES));
        break;
    case STATIC:
        memory = static_memory[rank][which];
        break;
    case SHARED_FILE:
        memory = map_file(MAP_SHARED);
        break;
    case PRIVATE_FILE:
        memory = map_file(MAP_PRIVATE);
        break;
    case PINNED:
        EXPECT_CUDA(cudaMallocHost(&memory, AREA_BYTES));
        break;
    default:
        memory = malloc(AREA_BYTES);
        break;
    }
    area.memory = memory;
    return area;
}

static void free_kind(enum kind kind, struct area *area)
{
    switch (kind) {
    case DEVICE:
        EXPECT_CUDA(cudaFree(area->memory));
        break;
    case SYMMETRIC:
        EXPECT_OK(ncclMemFree(area->memory));
        break;
    case STATIC:
        break;
    case SHARED_FILE:
    case PRIVATE_FILE:
        munmap(area->memory, AREA_BYTES);
        break;
    case PINNED:
        EXPECT_CUDA(cudaFreeHost(area->memory));
        break;
    default:
        free(area->memory);
        break;
    }
}

static bool check_kinds(struct member *m, enum kind send, enum kind recv)
{
    static const size_t counts[] = {3, 1000, 5001};
    unsigned seed = send * KINDS + recv;
    // On each rank another kind.
    send = (enum kind)(((int)send + m->rank) % STACK);
    recv = (enum kind)(((int)recv + 2 * m->rank) % STACK);
    struct area from = make_kind(send, m->rank, 0), to = make_kind(recv, m->rank, 1);
    bool good = from.memory != NULL && to.memory != NULL;
    for (int f = 0; f < FUNCTIONS && good; f++) {
        for (int i = 0; i < 3 && good; i++) {
            struct form form = {.function = (enum function)f,
                                .type = ncclInt32,
                                .count = counts[i],
                                .root = f % m->size,
                                .seed = seed};
            good = check_form_between(m, &from, &to, &form);
        }
    }
    if (!good) {
        fprintf(stderr, "  (rank %d: sent from kind %d, received in kind %d)\n", m->rank, (int)send,
                (int)recv);
    }
    ranks_barrier(); // freeing pinned memory waits for all devices: nobody may be in an operation
    free_kind(send, &from);
    free_kind(recv, &to);
    ranks_barrier();
    return good;
}

static void mixed(int rank, int size)
{
    struct member m;
    bool good = member_join(&m, rank, size);
    for (int send = 0; send < STACK && good; send++) {
        for (int recv = 0; recv < STACK && good; recv++) {
            good = check_kinds(&m, (enum kind)send, (enum kind)recv);
        }
    }
    member_leave(&m);
}

static void kinds(void)
{
    run_thread_ranks(RANKS, mixed, 60);
    run_processes(RANKS, mixed, 60);
}

// Small ones on the stack, gone right after the synchronise.
static void on_stack(int rank, int size)
{
    struct member m;
    if (!member_join(&m, rank, size)) {
        return;
    }
    for (int i = 0; i < 50; i++) {
        char memory[4096];
        struct area area = {memory, sizeof memory};
        struct form form = {.type = ncclInt64, .count = 1 + (size_t)i, .seed = (unsigned)i};
        check_form(&m, &area, &form);
    }
    member_leave(&m);
}

static void stack(void)
{
    run_thread_ranks(RANKS, on_stack, 60);
    run_processes(RANKS, on_stack, 60);
}

// ---- More than 2^31 elements (C04: tests#37, nccl#184; C05: pt PR#11466, mpich#2317)
// -------------

enum { WINDOW = 1 << 26, EDGE = 1 << 21 };

static const size_t borders[] = {0, (size_t)1 << 31, (size_t)1 << 32};

// `bytes` of addresses. Around the borders and at the end lies memory of its own, EDGE before and
// after; all else is one range of WINDOW bytes, over and over, and holds rubbish.
static char *make_sparse(size_t bytes)
{
    size_t whole = (bytes + 2 * WINDOW - 1) / WINDOW * WINDOW;
    int file = memfd_create("tutti-memory-test", MFD_CLOEXEC);
    char *memory = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!EXPECT(memory != MAP_FAILED && ftruncate(file, WINDOW) == 0)) {
        return NULL;
    }
    for (size_t at = 0; at < whole; at += WINDOW) {
        EXPECT(mmap(memory + at, WINDOW, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) !=
               MAP_FAILED);
    }
    close(file);
    for (size_t i = 0; i < 4; i++) {
        size_t border = i < 3 ? borders[i] : bytes / 4096 * 4096;
        size_t first = border < EDGE ? 0 : border - EDGE;
        size_t last = border + EDGE < whole ? border + EDGE : whole;
        if (first < bytes) {
            EXPECT(mmap(memory + first, last - first, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
        }
    }
    return memory;
}

static void free_sparse(char *memory, size_t bytes)
{
    munmap(memory, (bytes + 2 * WINDOW - 1) / WINDOW * WINDOW);
}

static unsigned char byte_at(int rank, size_t i)
{
    return (unsigned char)mix_bits(i * 8 + (uint64_t)rank);
}

// Calls on every byte near a border that is below `bytes`.
static void near_borders(size_t bytes, void (*call)(void *context, size_t i), void *context)
{
    enum { NEAR = 4096 };
    for (size_t b = 0; b < 4; b++) {
        size_t border = b < 3 ? borders[b] : bytes;
        for (size_t i = border < NEAR ? 0 : border - NEAR; i < border + NEAR && i < bytes; i++) {
            call(context, i);
        }
    }
}

struct large {
    int rank, size;
    size_t count;
    char *send, *recv;
    const struct form *form;
    size_t wrong;
};

static void put_byte(void *context, size_t i)
{
    struct large *l = context;
    l->send[i] = (char)byte_at(l->rank, i);
}

static void check_byte(void *context, size_t i)
{
    struct large *l = context;
    unsigned char right = 0;
    switch (l->form->function) {
    case REDUCE:
    case ALL_REDUCE:
        for (int r = 0; r < l->size; r++) {
            right = (unsigned char)(right + byte_at(r, i));
        }
        break;
    case ALL_GATHER:
    case GATHER:
        right = byte_at((int)(i / l->count), i % l->count);
        // Not near a border of what was sent: rubbish.
        if (i % l->count > 4096 && i % l->count + 4096 < l->count &&
            !(i % l->count + 4096 > borders[1] && i % l->count < borders[1] + 4096)) {
            return;
        }
        break;
    default:
        right = byte_at(l->form->root, i);
        break;
    }
    l->wrong += (unsigned char)l->recv[i] != right;
}

static void large(int rank, int size)
{
    static const struct form forms[] = {
        {.function = ALL_GATHER, .type = ncclInt8, .count = ((size_t)1 << 31) + 64},
        {.function = BROADCAST, .type = ncclInt8, .count = ((size_t)1 << 31) + 7, .root = 1},
        {.function = REDUCE, .type = ncclInt8, .count = ((size_t)1 << 31) + 7},
        {.function = ALL_REDUCE, .type = ncclInt8, .count = ((size_t)1 << 31) + 7},
        {.function = GATHER, .type = ncclInt8, .count = ((size_t)3 << 29) + 5, .root = 0},
    };
    struct member m;
    if (!member_join(&m, rank, size)) {
        return;
    }
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        struct large l = {rank, size, forms[i].count, NULL, NULL, &forms[i], 0};
        size_t received = recv_elements(&forms[i], &m);
        l.send = make_sparse(l.count);
        l.recv = make_sparse(2 * l.count);
        near_borders(l.count, put_byte, &l);
        EXPECT_OK(call_form(&forms[i], l.send, l.recv, &m));
        EXPECT_CUDA(cudaStreamSynchronize(m.stream));
        EXPECT_EQ(member_state(&m), ncclSuccess);
        near_borders(received, check_byte, &l);
        EXPECT_EQ(l.wrong, 0);
        free_sparse(l.send, l.count);
        free_sparse(l.recv, 2 * l.count);
    }
    member_leave(&m);
}

static void past_31_bits(void)
{
    if (is_full()) {
        run_thread_ranks(2, large, 300);
    } else {
        SKIP("takes a minute: TUTTI_TEST_FULL=1");
    }
}

static void send_long(int rank, int size)
{
    size_t count = ((size_t)1 << 31) + 7;
    struct form pair = {.function = BROADCAST};
    struct member m;
    if (!member_join(&m, rank, size)) {
        return;
    }
    struct large l = {rank, size, count, make_sparse(count), make_sparse(count), &pair, 0};
    near_borders(count, put_byte, &l);
    EXPECT_OK(rank == 0 ? ncclSend(l.send, count, ncclInt8, 1, m.comm, m.stream)
                        : ncclRecv(l.recv, count, ncclInt8, 0, m.comm, m.stream));
    EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    EXPECT_EQ(member_state(&m), ncclSuccess);
    if (rank == 1) {
        near_borders(count, check_byte, &l);
        EXPECT_EQ(l.wrong, 0);
    }
    free_sparse(l.send, count);
    free_sparse(l.recv, count);
    member_leave(&m);
}

static void long_message(void)
{
    if (is_full()) {
        run_thread_ranks(2, send_long, 300);
    } else {
        SKIP("takes a minute: TUTTI_TEST_FULL=1");
    }
}

// ---- C06: far slots (nccl PR#2161) --------------------------------------------------------------

// Of 40 ranks with 4096 slots of 14336 bytes each, 2.35e9 bytes in all, only the last slot of the
// last rank is written: all that lies before it stays untouched, and so without memory.
enum { SLOTS = 4096, SLOT_BYTES = 14336, SOURCES = 40 };

static void last_slot(int rank, int size)
{
    struct member m;
    size_t sends[SOURCES] = {0}, receives[SOURCES] = {0}, starts[SOURCES], wrong = 0;
    size_t bytes = (size_t)size * SLOTS * SLOT_BYTES, at = bytes - SLOT_BYTES;
    static unsigned char slot[SOURCES][SLOT_BYTES];
    if (!member_join(&m, rank, size)) {
        return;
    }
    unsigned char *all = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (EXPECT(all != MAP_FAILED)) {
        int last = size - 1;
        for (int r = 0; r < size; r++) {
            starts[r] = (size_t)r * SLOTS * SLOT_BYTES;
            sends[r] = rank == last ? SLOT_BYTES : 0;
        }
        receives[last] = SLOT_BYTES;
        starts[last] = at;
        for (size_t i = 0; i < SLOT_BYTES; i++) {
            slot[rank][i] = byte_at(rank, i);
        }
        const size_t same[SOURCES] = {0}; // everybody gets the same slot
        EXPECT_OK(tuttiAllToAllV(slot[rank], sends, same, all, receives, starts, ncclUint8, m.comm,
                                 m.stream));
        EXPECT_CUDA(cudaStreamSynchronize(m.stream));
        EXPECT_EQ(member_state(&m), ncclSuccess);
        for (size_t i = 0; i < SLOT_BYTES; i++) {
            wrong += all[at + i] != byte_at(last, i);
            wrong += all[at - 1 - i] != 0;                   // the slot before it
            wrong += all[(at + i) & (UINT32_MAX >> 1)] != 0; // where 31 bits would put it
        }
        EXPECT_EQ(wrong, 0);
        munmap(all, bytes);
    }
    ranks_barrier();
    member_leave(&m);
}

static void far_slots(void)
{
    run_thread_ranks(SOURCES, last_slot, 60);
}

int main(void)
{
    RUN(kinds);
    RUN(far_slots);
    RUN(stack);
    RUN(past_31_bits);
    RUN(long_message);
    return expect_result();
}
