// One-sided: puts of all types, sizes and places, byte for byte, with nothing else touched; signals
// counted for each pair; groups, several ranks of a thread, graphs; arguments that are refused.
// SPDX-License-Identifier: Apache-2.0
#include "collectives.h"

#include <nccl_device.h>
#include <stdio.h>
#include <vgpu/stats.h>

enum { SLOT = 4096, MOST_RANKS = 8 };
static const int sizes[] = {1, 2, 3, 5, 8};

static int element(int from, int to, int number, int i)
{
    return (int)(mix_bits((uint64_t)(from * 1000 + to) << 32 ^ (uint64_t)(number * 65536 + i)) >>
                 33);
}

static void run_all(rank_function function)
{
    for (int i = 0; i < few_or(5, 4); i++) {
        run_thread_ranks(sizes[i], function, 60);
        if (i < few_or(5, 2)) {
            run_processes(sizes[i], function, 60);
        }
    }
}

static void wait_for(struct member *m, int peer, int times)
{
    ncclWaitSignalDesc_t wait = {.opCnt = times, .peer = peer};
    EXPECT_OK(ncclWaitSignal(1, &wait, m->comm, m->stream));
}

// ---- What arrives -------------------------------------------------------------------------------

// Around the ring: a message into the next rank's window, its signal waited for; a signal back when
// it has been read, so that it may be written again.
static void put_around(struct member *m, int rounds)
{
    int next = (m->rank + 1) % m->size, before = (m->rank + m->size - 1) % m->size;
    char *in = m->memory, *out = m->memory + SLOT;
    int host[SLOT / 4];
    for (int round = 0; round < rounds; round++) {
        int count = 1 + round * 97 % (SLOT / 4), wrong = 0;
        for (int i = 0; i < count; i++) {
            host[i] = element(m->rank, next, round, i);
        }
        EXPECT_CUDA(cudaMemcpyAsync(out, host, (size_t)count * 4, cudaMemcpyDefault, m->stream));
        if (round > 0) {
            wait_for(m, next, 1);
        }
        EXPECT_OK(ncclPutSignal(out, (size_t)count, ncclInt, next, m->window, 0, 0, 0, 0, m->comm,
                                m->stream));
        wait_for(m, before, 1);
        EXPECT_CUDA(cudaMemcpyAsync(host, in, (size_t)count * 4, cudaMemcpyDefault, m->stream));
        EXPECT_OK(ncclSignal(before, 0, 0, 0, m->comm, m->stream));
        EXPECT_CUDA(cudaStreamSynchronize(m->stream));
        for (int i = 0; i < count; i++) {
            wrong += host[i] != element(before, m->rank, round, i);
        }
        EXPECT_EQ(wrong, 0);
    }
    wait_for(m, next, 1);
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
}

// Everybody signals rank 0, which waits for all of them at once, twice for each; counts of zero are
// signals alone.
static void signal_zero(struct member *m)
{
    ncclWaitSignalDesc_t waits[2 * MOST_RANKS] = {{0}};
    for (int i = 0; i < 3; i++) {
        EXPECT_OK(
            ncclPutSignal(m->memory, 0, ncclInt, 0, m->window, 0, 0, 0, 0, m->comm, m->stream));
    }
    for (int r = 0; r < m->size; r++) {
        waits[r] = (ncclWaitSignalDesc_t){.opCnt = 2, .peer = r};
        waits[m->size + r] = (ncclWaitSignalDesc_t){.opCnt = 1, .peer = r};
    }
    if (m->rank == 0) {
        EXPECT_OK(ncclWaitSignal(2 * m->size, waits, m->comm, m->stream));
    }
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
}

static void ring(int rank, int size)
{
    struct member m;
    ncclCommProperties_t properties = NCCL_COMM_PROPERTIES_INITIALIZER;
    if (!member_join(&m, rank, size) || !member_open_window(&m, (size_t)2 * SLOT)) {
        return;
    }
    EXPECT_OK(ncclCommQueryProperties(m.comm, &properties));
    EXPECT(properties.hostRmaSupport);
    put_around(&m, 20);
    signal_zero(&m);
    ranks_barrier();
    member_leave(&m);
}

static void rings(void)
{
    run_all(ring);
}

static unsigned char byte_of(int from, size_t at)
{
    return (unsigned char)(mix_bits((uint64_t)from << 40 ^ at) >> 20);
}

// Puts of every type at odd places of window and buffer, of sizes around the pieces that are copied
// at once; the window holds what was put, and what it had before around that.
static void shapes_of(struct member *m, size_t bytes, unsigned char *host)
{
    static const size_t type_bytes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    static const size_t large[] = {65536, 65535, (1 << 20) - 1, (1 << 20) + 3, 3 << 20};
    int next = (m->rank + 1) % m->size, before = (m->rank + m->size - 1) % m->size;
    for (int i = 0; i < ncclNumTypes + 5; i++) {
        int type = i < ncclNumTypes ? i : ncclInt8;
        size_t count = i < ncclNumTypes ? 1 + (size_t)(i * 131 % 500) : large[i - ncclNumTypes];
        size_t moved = count * type_bytes[type], to = 3 + (size_t)(i * 37 % 100);
        char *in = m->memory, *out = m->memory + bytes / 2 + 7 * (size_t)i;
        for (size_t k = 0; k < moved; k++) {
            host[k] = byte_of(m->rank, k + (size_t)i);
        }
        EXPECT_CUDA(cudaMemsetAsync(in, 0xa5, bytes / 2, m->stream));
        EXPECT_CUDA(cudaMemcpyAsync(out, host, moved, cudaMemcpyDefault, m->stream));
        EXPECT_OK(ncclSignal(before, 0, 0, 0, m->comm, m->stream)); // `in` is ready
        wait_for(m, next, 1);
        EXPECT_OK(ncclPutSignal(out, count, (ncclDataType_t)type, next, m->window, to, 0, 0, 0,
                                m->comm, m->stream));
        wait_for(m, before, 1);
        EXPECT_CUDA(cudaMemcpyAsync(host, in, bytes / 2, cudaMemcpyDefault, m->stream));
        EXPECT_CUDA(cudaStreamSynchronize(m->stream));
        int wrong = 0;
        for (size_t k = 0; k < bytes / 2; k++) {
            bool inside = k >= to && k < to + moved;
            wrong += host[k] != (inside ? byte_of(before, k - to + (size_t)i) : 0xa5);
        }
        EXPECT_EQ(wrong, 0);
    }
}

static void shape(int rank, int size)
{
    enum { BYTES = 8 << 20 };
    struct member m;
    unsigned char *host = malloc(BYTES);
    if (!member_join(&m, rank, size) || !member_open_window(&m, BYTES)) {
        return;
    }
    shapes_of(&m, BYTES, host);
    ranks_barrier();
    member_leave(&m);
    free(host);
}

static void shapes(void)
{
    run_thread_ranks(1, shape, 60);
    run_thread_ranks(3, shape, 60);
    run_processes(2, shape, 60);
}

// ---- Groups -------------------------------------------------------------------------------------

// Everybody puts to everybody, itself too, in a group; a barrier of signals before, so that what is
// there may be overwritten. Messages from one rank arrive in order: the last one stays.
static void exchange_in(struct member *m, int round)
{
    enum { PART = 64 };
    ncclWaitSignalDesc_t waits[MOST_RANKS] = {{0}};
    int *in = (int *)(void *)m->memory, *out = in + MOST_RANKS * PART;
    int host[MOST_RANKS * PART], wrong = 0;
    for (int i = 0; i < m->size * PART; i++) {
        host[i] = element(m->rank, i / PART, round, i % PART);
    }
    EXPECT_CUDA(cudaMemcpyAsync(out, host, sizeof host, cudaMemcpyDefault, m->stream));
    EXPECT_OK(ncclGroupStart());
    for (int r = 0; r < m->size; r++) {
        waits[r] = (ncclWaitSignalDesc_t){.opCnt = 1, .peer = r};
        EXPECT_OK(ncclSignal(r, 0, 0, 0, m->comm, m->stream));
    }
    EXPECT_OK(ncclGroupEnd());
    EXPECT_OK(ncclWaitSignal(m->size, waits, m->comm, m->stream));
    EXPECT_OK(ncclGroupStart());
    for (int times = 0; times < 2; times++) { // the first time what is for another
        for (int r = 0; r < m->size; r++) {
            const int *from = out + (r + 1 - times) % m->size * PART;
            EXPECT_OK(ncclPutSignal(from, PART, ncclInt, r, m->window,
                                    (size_t)m->rank * PART * sizeof(int), 0, 0, 0, m->comm,
                                    m->stream));
        }
    }
    for (int r = 0; r < m->size; r++) {
        waits[r].opCnt = 2;
    }
    EXPECT_OK(ncclWaitSignal(m->size, waits, m->comm, m->stream));
    EXPECT_OK(ncclGroupEnd());
    EXPECT_CUDA(cudaMemcpyAsync(host, in, sizeof host, cudaMemcpyDefault, m->stream));
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
    for (int i = 0; i < m->size * PART; i++) {
        wrong += host[i] != element(i / PART, m->rank, round, i % PART);
    }
    EXPECT_EQ(wrong, 0);
}

// A group's one-sided calls come before its others, as NCCL's: what waits for the signal may be
// called in the group before the collective, and the signal given behind it.
static void beside_a_collective(struct member *m)
{
    int *value = (int *)(void *)m->memory;
    int next = (m->rank + 1) % m->size, before = (m->rank + m->size - 1) % m->size;
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(ncclAllReduce(value, value, 4, ncclInt, ncclMax, m->comm, m->stream));
    EXPECT_OK(ncclSignal(next, 0, 0, 0, m->comm, m->stream));
    wait_for(m, before, 1);
    EXPECT_OK(ncclGroupEnd());
    EXPECT_EQ(wait_within(m, 10), ncclSuccess);
}

static void group(int rank, int size)
{
    struct member m;
    if (!member_join(&m, rank, size) || !member_open_window(&m, (size_t)4 * SLOT)) {
        return;
    }
    for (int round = 0; round < 5; round++) {
        exchange_in(&m, round);
    }
    beside_a_collective(&m);
    // A bad call drops the group.
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(ncclSignal(rank, 0, 0, 0, m.comm, m.stream));
    EXPECT_EQ(ncclSignal(size, 0, 0, 0, m.comm, m.stream), ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    EXPECT_OK(ncclSignal(rank, 0, 0, 0, m.comm, m.stream));
    wait_for(&m, rank, 1);
    EXPECT_EQ(wait_within(&m, 10), ncclSuccess);
    ranks_barrier();
    member_leave(&m);
}

static void groups(void)
{
    run_all(group);
}

// One thread has all ranks; the first one's wait is called before the last one's put.
static void ranks_of_a_thread(void)
{
    enum { RANKS = 4 };
    ncclComm_t comms[RANKS];
    ncclWindow_t windows[RANKS];
    char *memory[RANKS];
    cudaStream_t streams[RANKS];
    EXPECT_OK(ncclCommInitAll(comms, RANKS, NULL));
    EXPECT_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        EXPECT_CUDA(cudaSetDevice(r));
        EXPECT_CUDA(cudaStreamCreate(&streams[r]));
        EXPECT_OK(ncclMemAlloc((void **)&memory[r], (size_t)2 * SLOT));
        EXPECT_OK(ncclCommWindowRegister(comms[r], memory[r], (size_t)2 * SLOT, &windows[r],
                                         NCCL_WIN_COLL_SYMMETRIC));
    }
    EXPECT_OK(ncclGroupEnd());
    for (int times = 0; times < 20; times++) {
        EXPECT_OK(ncclGroupStart());
        for (int r = 0; r < RANKS; r++) {
            ncclWaitSignalDesc_t wait = {.opCnt = 1, .peer = (r + 1) % RANKS};
            EXPECT_CUDA(cudaSetDevice(r));
            EXPECT_CUDA(cudaMemsetAsync(memory[r] + SLOT, r * 16 + times, SLOT, streams[r]));
            if (r % 2 == 0) { // waits for what a later rank of the group puts
                EXPECT_OK(ncclWaitSignal(1, &wait, comms[r], streams[r]));
            }
            EXPECT_OK(ncclPutSignal(memory[r] + SLOT, SLOT, ncclChar, (r + RANKS - 1) % RANKS,
                                    windows[r], 0, 0, 0, 0, comms[r], streams[r]));
            if (r % 2 == 1) {
                EXPECT_OK(ncclWaitSignal(1, &wait, comms[r], streams[r]));
            }
        }
        EXPECT_OK(ncclGroupEnd());
        for (int r = 0; r < RANKS; r++) {
            EXPECT_CUDA(cudaSetDevice(r));
            EXPECT_CUDA(cudaStreamSynchronize(streams[r]));
            EXPECT_EQ(memory[r][SLOT - 1], (char)((r + 1) % RANKS * 16 + times));
        }
    }
    for (int r = 0; r < RANKS; r++) {
        EXPECT_OK(ncclCommWindowDeregister(comms[r], windows[r]));
        EXPECT_OK(ncclMemFree(memory[r]));
        EXPECT_CUDA(cudaStreamDestroy(streams[r]));
        EXPECT_OK(ncclCommDestroy(comms[r]));
    }
}

// ---- Graphs -------------------------------------------------------------------------------------

// The same graph again and again, its puts waited for by the next rank's graph; in between a put
// and a wait that are called.
static void replay(int rank, int size)
{
    enum { TIMES = 20 };
    struct member m;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    if (!member_join(&m, rank, size) || !member_open_window(&m, (size_t)2 * SLOT)) {
        return;
    }
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    char *in = m.memory, *out = m.memory + SLOT, host[SLOT];
    EXPECT_CUDA(cudaStreamBeginCapture(m.stream, cudaStreamCaptureModeThreadLocal));
    EXPECT_OK(ncclSignal(before, 0, 0, 0, m.comm, m.stream));
    wait_for(&m, next, 1);
    EXPECT_OK(ncclPutSignal(out, SLOT, ncclChar, next, m.window, 0, 0, 0, 0, m.comm, m.stream));
    wait_for(&m, before, 1);
    EXPECT_CUDA(cudaMemcpyAsync(host, in, SLOT, cudaMemcpyDefault, m.stream));
    EXPECT_CUDA(cudaStreamEndCapture(m.stream, &graph));
    EXPECT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < TIMES; i++) {
        EXPECT_CUDA(cudaMemsetAsync(out, rank * 20 + i, SLOT, m.stream));
        EXPECT_CUDA(cudaGraphLaunch(exec, m.stream));
        EXPECT_CUDA(cudaStreamSynchronize(m.stream));
        EXPECT_EQ(host[SLOT - 1], (char)(before * 20 + i));
        if (i % 3 == 0) {
            EXPECT_OK(ncclSignal(next, 0, 0, 0, m.comm, m.stream));
            wait_for(&m, before, 1);
        }
    }
    EXPECT_EQ(wait_within(&m, 10), ncclSuccess);
    EXPECT_CUDA(cudaGraphExecDestroy(exec));
    EXPECT_CUDA(cudaGraphDestroy(graph));
    ranks_barrier();
    member_leave(&m);
}

static void graphs(void)
{
    run_thread_ranks(1, replay, 60);
    run_thread_ranks(3, replay, 60);
    run_processes(2, replay, 60);
}

// ---- Counts -------------------------------------------------------------------------------------

// What a put moves, exactly, and that signals move nothing.
static void count(int rank, int size)
{
    enum { BYTES = 6 << 20, MOVED = 3000001 };
    struct member m;
    if (!member_join(&m, rank, size) || !member_open_window(&m, BYTES)) {
        return;
    }
    ranks_barrier();
    if (rank == 0) {
        vgpuStatsStart();
        EXPECT_OK(ncclPutSignal(m.memory, MOVED, ncclChar, 1, m.window, MOVED, 0, 0, 0, m.comm,
                                m.stream));
        EXPECT_OK(ncclPutSignal(m.memory, 7, ncclInt, 1, m.window, 0, 0, 0, 0, m.comm, m.stream));
        EXPECT_OK(ncclSignal(1, 0, 0, 0, m.comm, m.stream));
        wait_for(&m, 1, 1);
    } else {
        wait_for(&m, 0, 3);
        EXPECT_OK(ncclSignal(0, 0, 0, 0, m.comm, m.stream));
    }
    EXPECT_EQ(wait_within(&m, 20), ncclSuccess);
    ranks_barrier();
    if (rank == 0) {
        EXPECT_EQ(vgpuStatsLink(0, 1), MOVED + 28);
        EXPECT_EQ(vgpuStatsLinkMessages(0, 1), 2);
        EXPECT_EQ(vgpuStatsLink(1, 0), 0);
        vgpuStatsStop();
    }
    member_leave(&m);
}

static void counts(void)
{
    run_thread_ranks(2, count, 60);
}

// ---- What is refused ----------------------------------------------------------------------------

struct refused {
    const void *from;
    size_t count;
    int type, peer;
    ncclWindow_t window;
    size_t offset;
    int signal, context;
    unsigned flags;
    const char *text;
};

static void refuse_puts(struct member *m, ncclWindow_t plain, char *plain_memory)
{
    char *b = m->memory, outside[8] = "";
    ncclWindow_t w = m->window;
    const struct refused cases[] = {
        {b, 1, 2, 0, NULL, 0, 0, 0, 0, "peerWin is NULL"},
        {b, 1, 2, 0, (ncclWindow_t)(void *)outside, 0, 0, 0, 0, "is not a window of this"},
        {NULL, 1, 2, 0, w, 0, 0, 0, 0, "localbuff is NULL"},
        {NULL, 0, 2, 0, w, 0, 0, 0, 0, "localbuff is NULL"},
        {outside, 1, 2, 0, w, 0, 0, 0, 0, "lies in no window of this communicator"},
        {b + 2 * SLOT - 3, 1, 2, 0, w, 0, 0, 0, 0, "lies in no window of this communicator"},
        {plain_memory, 1, 2, 0, w, 0, 0, 0, 0, "lies in a window that is not symmetric"},
        {b, 1, 2, 0, plain, 0, 0, 0, 0, "was not registered with NCCL_WIN_COLL_SYMMETRIC"},
        {b, 1, 2, m->size, w, 0, 0, 0, 0, "peer is"},
        {b, 1, 2, -1, w, 0, 0, 0, 0, "peer is -1"},
        {b, 1, 12, 0, w, 0, 0, 0, 0, "datatype is 12, must be 0 to 11"},
        {b, SIZE_MAX / 2, 2, 0, w, 0, 0, 0, 0, "more than an address space holds"},
        {b, 1, 2, 0, w, 2 * SLOT - 3, 0, 0, 0, "peerWinOffset 8189 and 4 bytes"},
        {b, 1, 2, 0, w, SIZE_MAX, 0, 0, 0, "end beyond window 1 of 8192 bytes"},
        {b, 2, 2, 0, w, SIZE_MAX - 3, 0, 0, 0, "end beyond window 1 of 8192 bytes"},
        {b, 1, 2, 0, w, 0, 1, 0, 0, "sigIdx is 1, must be 0"},
        {b, 1, 2, 0, w, 0, 0, -1, 0, "ctx is -1, must be 0"},
        {b, 1, 2, 0, w, 0, 0, 0, 1u << 31, "flags is 2147483648, must be 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct refused *c = &cases[i];
        char head[32];
        EXPECT_EQ(ncclPutSignal(c->from, c->count, (ncclDataType_t)c->type, c->peer, c->window,
                                c->offset, c->signal, c->context, c->flags, m->comm, m->stream),
                  ncclInvalidArgument);
        (void)snprintf(head, sizeof head, "ncclPutSignal: rank %d: ", m->rank);
        EXPECT_CONTAINS(ncclGetLastError(m->comm), head);
        EXPECT_CONTAINS(ncclGetLastError(m->comm), c->text);
    }
}

static void expect_wait(struct member *m, int count, ncclWaitSignalDesc_t *descs, const char *text)
{
    EXPECT_EQ(ncclWaitSignal(count, descs, m->comm, m->stream), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(m->comm), text);
}

static void refuse_signals(struct member *m)
{
    ncclWaitSignalDesc_t good = {.opCnt = 1, .peer = 0};
    ncclWaitSignalDesc_t descs[][2] = {{good, {.opCnt = 0}},
                                       {good, {.opCnt = -5}},
                                       {good, {.opCnt = 1, .peer = m->size}},
                                       {good, {.opCnt = 1, .sigIdx = 1}},
                                       {good, {.opCnt = 1, .ctx = 7}}};
    static const char *const texts[] = {"signalDescs[1].opCnt is 0, must be at least 1",
                                        "signalDescs[1].opCnt is -5", "signalDescs[1].peer is",
                                        "signalDescs[1].sigIdx is 1, must be 0",
                                        "signalDescs[1].ctx is 7, must be 0"};
    for (int i = 0; i < 5; i++) {
        expect_wait(m, 2, descs[i], texts[i]);
    }
    expect_wait(m, 1, NULL, "signalDescs is NULL");
    expect_wait(m, 0, &good, "nDesc is 0, must be at least 1");
    expect_wait(m, -1, &good, "nDesc is -1");
    EXPECT_EQ(ncclSignal(0, 1, 0, 0, m->comm, m->stream), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(m->comm), "ncclSignal");
    EXPECT_EQ(ncclSignal(0, 0, 1, 0, m->comm, m->stream), ncclInvalidArgument);
    EXPECT_EQ(ncclSignal(0, 0, 0, 1, m->comm, m->stream), ncclInvalidArgument);
    EXPECT_EQ(ncclSignal(m->size, 0, 0, 0, m->comm, m->stream), ncclInvalidArgument);
    EXPECT_EQ(ncclSignal(0, 0, 0, 0, NULL, m->stream), ncclInvalidArgument);
    EXPECT_EQ(ncclWaitSignal(1, &good, NULL, m->stream), ncclInvalidArgument);
}

static void refuse(int rank, int size)
{
    struct member m;
    ncclWindow_t plain = NULL;
    char *memory = NULL;
    if (!member_join(&m, rank, size) || !member_open_window(&m, (size_t)2 * SLOT)) {
        return;
    }
    EXPECT_OK(ncclMemAlloc((void **)&memory, SLOT));
    EXPECT_OK(ncclCommWindowRegister(m.comm, memory, SLOT, &plain, 0));
    refuse_puts(&m, plain, memory);
    refuse_signals(&m);
    // Nothing of it was done.
    EXPECT_OK(ncclSignal(rank, 0, 0, 0, m.comm, m.stream));
    wait_for(&m, rank, 1);
    EXPECT_EQ(wait_within(&m, 10), ncclSuccess);
    EXPECT_OK(ncclCommWindowDeregister(m.comm, plain));
    EXPECT_EQ(ncclPutSignal(m.memory, 1, ncclInt, 0, plain, 0, 0, 0, 0, m.comm, m.stream),
              ncclInvalidArgument);
    EXPECT_OK(ncclMemFree(memory));
    ranks_barrier();
    member_leave(&m);
}

static void refusals(void)
{
    run_thread_ranks(2, refuse, 60);
    run_processes(2, refuse, 60);
}

// Without one-sided communication the property says so, and calls say why.
static void lacks(int rank, int size)
{
    struct member m;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclCommProperties_t properties = NCCL_COMM_PROPERTIES_INITIALIZER;
    bool has_hosts = getenv("TUTTI_FAKE_HOSTS") != NULL;
    memset(&m, 0, sizeof m);
    expect_set_rank(rank);
    ncclUniqueId id = share_id(rank);
    config.numRmaCtx = has_hosts ? 1 : 0;
    EXPECT_CUDA(cudaSetDevice(rank));
    EXPECT_OK(ncclCommInitRankConfig(&m.comm, size, id, rank, &config));
    EXPECT_OK(ncclCommQueryProperties(m.comm, &properties));
    EXPECT(!properties.hostRmaSupport);
    EXPECT_EQ(ncclSignal(0, 0, 0, 0, m.comm, NULL), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(m.comm), "hostRmaSupport");
    EXPECT_CONTAINS(ncclGetLastError(m.comm), has_hosts ? "not one LSA team" : "numRmaCtx");
    ranks_barrier();
    EXPECT_OK(ncclCommDestroy(m.comm));
}

static void without(void)
{
    run_thread_ranks(2, lacks, 60);
    (void)setenv("TUTTI_FAKE_HOSTS", "1,1", 1);
    run_processes(2, lacks, 60);
    (void)unsetenv("TUTTI_FAKE_HOSTS");
}

int main(void)
{
    RUN(rings);
    RUN(shapes);
    RUN(groups);
    RUN(ranks_of_a_thread);
    RUN(graphs);
    RUN(counts);
    RUN(refusals);
    RUN(without);
    return expect_result();
}
