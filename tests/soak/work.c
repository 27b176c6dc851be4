// Pieces of work that all members of a communicator do, with what comes out of them checked:
// collectives of every form, messages, queues of operations, graphs. See soak.h; windows.c has
// those
// that need windows. SPDX-License-Identifier: Apache-2.0
#include "work.h"

#include <stdio.h>
#include <stdlib.h>
#include <tutti.h>

uint32_t word_of(unsigned seed, int from, int to, size_t i)
{
    return (uint32_t)mix_bits((uint64_t)seed << 32 ^ (uint64_t)from << 24 ^ (uint64_t)to << 16 ^
                              (uint64_t)i << 40);
}

// ---- Memory -------------------------------------------------------------------------------------

enum kind { DEVICE, SHAREABLE, PINNED, PAGEABLE, REGISTERED, KINDS };

struct buffer {
    enum kind kind;
    struct area area;
    void *handle;
};

// Kept until nothing runs: to free it waits for all devices, and so for ranks that wait for this
// one.
static _Thread_local char *pinned;
enum { PINNED_BYTES = 2 << 20 };

void end_work(void)
{
    free_left_windows();
    EXPECT_CUDA(cudaFreeHost(pinned));
    pinned = NULL;
}

static bool open_buffer(struct buffer *b, const struct member *m, enum kind kind, size_t bytes)
{
    *b = (struct buffer){.kind = kind, .area = {.bytes = bytes}};
    void **memory = (void **)&b->area.memory;
    switch (kind) {
    case SHAREABLE:
        return EXPECT_OK(ncclMemAlloc(memory, bytes));
    case PINNED:
        if (pinned == NULL && !EXPECT_CUDA(cudaMallocHost((void **)&pinned, PINNED_BYTES))) {
            return false;
        }
        *memory = pinned;
        return EXPECT(bytes <= PINNED_BYTES);
    case PAGEABLE:
        *memory = malloc(bytes);
        return EXPECT(*memory != NULL);
    case REGISTERED:
        return EXPECT_CUDA(cudaMalloc(memory, bytes)) &&
               EXPECT_OK(ncclCommRegister(m->comm, *memory, bytes, &b->handle));
    default:
        return EXPECT_CUDA(cudaMalloc(memory, bytes));
    }
}

static void close_buffer(struct buffer *b, const struct member *m)
{
    switch (b->kind) {
    case SHAREABLE:
        EXPECT_OK(ncclMemFree(b->area.memory));
        break;
    case PINNED:
        break; // all of the thread is one, which goes with it
    case PAGEABLE:
        free(b->area.memory);
        break;
    case REGISTERED:
        EXPECT_OK(ncclCommDeregister(m->comm, b->handle));
        EXPECT_CUDA(cudaFree(b->area.memory));
        break;
    default:
        EXPECT_CUDA(cudaFree(b->area.memory));
        break;
    }
}

// ---- Collectives --------------------------------------------------------------------------------

static struct form draw_form(struct draws *d, int size)
{
    struct form form = {.function = (enum function)draw(d, FUNCTIONS),
                        .type = (ncclDataType_t)draw(d, ncclNumTypes),
                        .op = (ncclRedOp_t)draw(d, ncclNumOps),
                        .count = draw_size(d, 8192),
                        .root = (int)draw(d, (unsigned)size),
                        .seed = draw(d, 1u << 16)};
    form.in_place = draw(d, 2) != 0 && form.function != ALL_TO_ALL;
    form.send_shift = draw(d, 2) != 0 ? draw(d, 20) : 0;
    form.recv_shift = draw(d, 2) != 0 ? draw(d, 20) : 0;
    return form;
}

// Each rank in memory of its kind.
static void any_form(struct member *m, struct draws *d)
{
    struct form form = draw_form(d, m->size);
    enum kind kind = (enum kind)((draw(d, KINDS) + draw(d, 2) * (unsigned)m->rank) % KINDS);
    struct buffer buffer;
    if (open_buffer(&buffer, m, kind, area_bytes(&form, m->size))) {
        check_form(m, &buffer.area, &form);
        close_buffer(&buffer, m);
    }
}

// The same with an operator that the ranks make, each with its own factor.
static void own_operator(struct member *m, struct draws *d)
{
    struct form form = draw_form(d, m->size);
    size_t element = bytes_of_type(form.type = ncclFloat32);
    char factors[MOST_RANKS * 8];
    struct buffer buffer;
    form.function = (enum function)(draw(d, 3) * (REDUCE_SCATTER - ALL_REDUCE) / 2);
    if (!reduces(form.function)) {
        form.function = REDUCE;
    }
    for (int r = 0; r < m->size; r++) {
        put_number(factors + (size_t)r * element, form.type, 0.5 + r);
    }
    form.factors = factors;
    if (EXPECT_OK(ncclRedOpCreatePreMulSum(&form.op, factors + (size_t)m->rank * element, form.type,
                                           ncclScalarHostImmediate, m->comm)) &&
        open_buffer(&buffer, m, DEVICE, area_bytes(&form, m->size))) {
        check_form(m, &buffer.area, &form);
        close_buffer(&buffer, m);
        EXPECT_OK(ncclRedOpDestroy(form.op, m->comm));
    }
}

bool add_up(struct member *m, unsigned count)
{
    uint32_t *host = malloc(count * sizeof *host), *memory = NULL, wrong = 0;
    ncclResult_t result = ncclSuccess, state = ncclInternalError;
    for (unsigned i = 0; i < count; i++) {
        host[i] = word_of(count, m->rank, 0, i);
    }
    EXPECT_CUDA(cudaMalloc((void **)&memory, count * sizeof *memory));
    EXPECT_CUDA(cudaMemcpy(memory, host, count * sizeof *memory, cudaMemcpyHostToDevice));
    result = ncclAllReduce(memory, memory, count, ncclUint32, ncclSum, m->comm, m->stream);
    (void)cudaStreamSynchronize(m->stream);
    state = await_ready(m->comm, 30);
    bool good = (result == ncclSuccess || result == ncclInProgress) && state == ncclSuccess;
    EXPECT_CUDA(cudaMemcpy(host, memory, count * sizeof *memory, cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < count && good; i++) {
        uint32_t sum = 0;
        for (int r = 0; r < m->size; r++) {
            sum += word_of(count, r, 0, i);
        }
        wrong += host[i] != sum;
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_CUDA(cudaFree(memory));
    free(host);
    return good;
}

// Up to some MiB.
static void large_sum(struct member *m, struct draws *d)
{
    EXPECT(add_up(m, 1 + draw_size(d, draw(d, 4) == 0 ? 1u << 20 : 1u << 16)));
}

// Operations behind each other without waits, some of them in groups.
static void queue(struct member *m, struct draws *d)
{
    int times = 1 + (int)draw(d, 20), grouped = (int)draw(d, 2);
    uint64_t host[8], *memory = NULL, right = 1;
    for (int i = 0; i < 8; i++) {
        host[i] = 1;
    }
    EXPECT_CUDA(cudaMalloc((void **)&memory, sizeof host));
    EXPECT_CUDA(cudaMemcpy(memory, host, sizeof host, cudaMemcpyHostToDevice));
    for (int t = 0; t < times; t++) {
        if (grouped) {
            EXPECT_OK(ncclGroupStart());
        }
        EXPECT_OK(ncclAllReduce(memory, memory, 4, ncclUint64, ncclSum, m->comm, m->stream));
        EXPECT_OK(
            ncclAllReduce(memory + 4, memory + 4, 4, ncclUint64, ncclSum, m->comm, m->stream));
        if (grouped) {
            EXPECT_OK(ncclGroupEnd());
        }
        right *= (uint64_t)m->size;
    }
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
    EXPECT_CUDA(cudaMemcpy(host, memory, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 8; i++) {
        EXPECT_EQ(host[i], right);
    }
    EXPECT_CUDA(cudaFree(memory));
}

// ---- Messages -----------------------------------------------------------------------------------

static size_t message_words(unsigned seed, int from, int to)
{
    struct draws d = {word_of(seed, from, to, 0)};
    return draw(&d, 4) == 0 ? 0 : draw_size(&d, 20000);
}

// Everybody sends everybody a message of its own size, itself too, in one group.
static void exchange(struct member *m, struct draws *d)
{
    unsigned seed = draw(d, 1u << 30);
    size_t words[2] = {0, 0}, at[2] = {0, 0}, wrong = 0;
    uint32_t *memory[2] = {NULL, NULL}, *host[2];
    for (int r = 0; r < m->size; r++) {
        words[0] += message_words(seed, m->rank, r);
        words[1] += message_words(seed, r, m->rank);
    }
    for (int i = 0; i < 2; i++) {
        host[i] = malloc((words[i] + 1) * sizeof *host[i]);
        EXPECT_CUDA(cudaMalloc((void **)&memory[i], (words[i] + 1) * sizeof *memory[i]));
    }
    for (int r = 0; r < m->size; r++) {
        for (size_t i = 0; i < message_words(seed, m->rank, r); i++) {
            host[0][at[0]++] = word_of(seed, m->rank, r, i);
        }
    }
    EXPECT_CUDA(cudaMemcpyAsync(memory[0], host[0], words[0] * sizeof *host[0], cudaMemcpyDefault,
                                m->stream));
    EXPECT_OK(ncclGroupStart());
    at[0] = 0;
    for (int r = 0; r < m->size; r++) {
        size_t out = message_words(seed, m->rank, r), in = message_words(seed, r, m->rank);
        EXPECT_OK(ncclSend(memory[0] + at[0], out, ncclUint32, r, m->comm, m->stream));
        EXPECT_OK(ncclRecv(memory[1] + at[1], in, ncclUint32, r, m->comm, m->stream));
        at[0] += out;
        at[1] += in;
    }
    EXPECT_OK(ncclGroupEnd());
    EXPECT_CUDA(cudaMemcpyAsync(host[1], memory[1], words[1] * sizeof *host[1], cudaMemcpyDefault,
                                m->stream));
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
    at[1] = 0;
    for (int r = 0; r < m->size; r++) {
        for (size_t i = 0; i < message_words(seed, r, m->rank); i++) {
            wrong += host[1][at[1]++] != word_of(seed, r, m->rank, i);
        }
    }
    EXPECT_EQ(wrong, 0);
    for (int i = 0; i < 2; i++) {
        free(host[i]);
        EXPECT_CUDA(cudaFree(memory[i]));
    }
}

// tuttiAllGatherV.
static void uneven(struct member *m, struct draws *d)
{
    unsigned seed = draw(d, 1u << 30);
    size_t counts[MOST_RANKS], all = 0, own = 0, at = 0, wrong = 0;
    for (int r = 0; r < m->size; r++) {
        counts[r] = message_words(seed, r, 0);
        own = r == m->rank ? all : own;
        all += counts[r];
    }
    uint32_t *host = malloc((all + 1) * sizeof *host), *memory = NULL;
    EXPECT_CUDA(cudaMalloc((void **)&memory, (all + 1) * sizeof *memory));
    for (size_t i = 0; i < counts[m->rank]; i++) {
        host[own + i] = word_of(seed, m->rank, 0, i);
    }
    EXPECT_CUDA(cudaMemcpyAsync(memory + own, host + own, counts[m->rank] * sizeof *host,
                                cudaMemcpyDefault, m->stream));
    EXPECT_OK(tuttiAllGatherV(memory + own, counts[m->rank], memory, counts, NULL, ncclUint32,
                              m->comm, m->stream));
    EXPECT_CUDA(cudaMemcpyAsync(host, memory, all * sizeof *host, cudaMemcpyDefault, m->stream));
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
    for (int r = 0; r < m->size; r++) {
        for (size_t i = 0; i < counts[r]; i++) {
            wrong += host[at++] != word_of(seed, r, 0, i);
        }
    }
    EXPECT_EQ(wrong, 0);
    free(host);
    EXPECT_CUDA(cudaFree(memory));
}

// ---- Graphs -------------------------------------------------------------------------------------

static void graph(struct member *m, struct draws *d)
{
    unsigned count = 1 + draw_size(d, 5000), rounds = draw(d, 4), wrong = 0;
    uint32_t *host = malloc(count * sizeof *host), *memory = NULL;
    cudaGraph_t captured = NULL;
    cudaGraphExec_t run = NULL;
    EXPECT_CUDA(cudaMalloc((void **)&memory, 2 * count * sizeof *memory));
    EXPECT_CUDA(cudaStreamBeginCapture(m->stream, cudaStreamCaptureModeThreadLocal));
    EXPECT_OK(
        ncclAllReduce(memory, memory + count, count, ncclUint32, ncclSum, m->comm, m->stream));
    EXPECT_CUDA(cudaStreamEndCapture(m->stream, &captured));
    EXPECT_CUDA(cudaGraphInstantiate(&run, captured, 0));
    for (unsigned round = 0; round < rounds; round++) {
        for (unsigned i = 0; i < count; i++) {
            host[i] = i * (unsigned)(m->rank + 1) + round;
        }
        EXPECT_CUDA(
            cudaMemcpyAsync(memory, host, count * sizeof *host, cudaMemcpyDefault, m->stream));
        EXPECT_CUDA(cudaGraphLaunch(run, m->stream));
        EXPECT_CUDA(cudaMemcpyAsync(host, memory + count, count * sizeof *host, cudaMemcpyDefault,
                                    m->stream));
        EXPECT_CUDA(cudaStreamSynchronize(m->stream));
        unsigned n = (unsigned)m->size;
        for (unsigned i = 0; i < count; i++) {
            wrong += host[i] != i * (n * (n + 1) / 2) + n * round;
        }
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_CUDA(cudaGraphExecDestroy(run));
    EXPECT_CUDA(cudaGraphDestroy(captured));
    EXPECT_CUDA(cudaFree(memory));
    free(host);
}

// ---- Questions and refusals ---------------------------------------------------------------------

static void ask(struct member *m, struct draws *d)
{
    uint64_t bytes = 0;
    int memory[2];
    EXPECT_OK(ncclCommMemStats(m->comm, (ncclCommMemStat_t)draw(d, 4), &bytes));
    if (m->rank == 0) {
        EXPECT_OK(tuttiDumpState(draw(d, 2) != 0 ? m->comm : NULL, "/dev/null"));
    }
    EXPECT_EQ(ncclAllReduce(memory, memory, 1, ncclNumTypes, ncclSum, m->comm, m->stream),
              ncclInvalidArgument);
    EXPECT_EQ(ncclSend(memory, 1, ncclInt, m->size, m->comm, m->stream), ncclInvalidArgument);
    EXPECT_EQ(member_state(m), ncclSuccess);
}

void work(struct member *m, struct draws draws)
{
    static void (*const pieces[])(struct member *, struct draws *) = {
        any_form, any_form, any_form, own_operator, large_sum,           queue,    exchange,
        uneven,   graph,    ask,      puts_around,  device_communicator, normalise};
    pieces[draw(&draws, sizeof pieces / sizeof *pieces)](m, &draws);
}
