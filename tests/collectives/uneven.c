// The uneven forms of tutti.h: random shapes with zeros, gaps, parts in any order, in place on some
// ranks, memory that others can and cannot map, every byte compared; what they must refuse; ranks
// that disagree.
// SPDX-License-Identifier: Apache-2.0
#include "collectives.h"

#include <stdio.h>
#include <tutti.h>

enum { MOST_RANKS = 65, GUARD = 0xa5, SHAPES = 60 };
enum operation { ALL_GATHER_V, REDUCE_SCATTER_V, ALL_TO_ALL_V, GATHER_V, SCATTER_V, OPERATIONS };
enum layout { LEFT_OUT, PACKED, GAPS, BACKWARDS, LAYOUTS };

static const ncclDataType_t types[] = {ncclInt8, ncclFloat16, ncclInt32, ncclInt64};

struct shape {
    enum operation operation;
    ncclDataType_t type;
    size_t element;
    size_t most; // counts are 0 to most
    int root, size;
    int in_place; // on ranks r with r % 3 < in_place
    uint64_t seed;
};

// A rank's counts and starts of one buffer.
struct list {
    size_t count[MOST_RANKS], first[MOST_RANKS];
    bool is_left_out;
};

static uint64_t hash(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t x = a * 0x9e3779b97f4a7c15u + b * 0xc2b2ae3d27d4eb4fu + c * 0x165667b19e3779f9u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

// Elements that go from one rank to another; where that is nobody's choice, of `from` alone.
static size_t count_of(const struct shape *s, int from, int to)
{
    uint64_t which = s->operation == ALL_TO_ALL_V ? (uint64_t)(from * 1000 + to)
                     : s->operation == ALL_GATHER_V || s->operation == GATHER_V ? (uint64_t)from
                                                                                : (uint64_t)to;
    uint64_t draw = hash(s->seed, which, 1);
    return draw % 3 == 0 ? 0 : (size_t)(draw >> 8) % (s->most + 1);
}

static void lay_out(struct list *list, int size, enum layout layout)
{
    size_t end = layout == GAPS ? 5 : 0;
    list->is_left_out = layout == LEFT_OUT;
    for (int i = 0; i < size; i++) {
        int r = layout == BACKWARDS ? size - 1 - i : i;
        list->first[r] = end;
        end += list->count[r] + (layout == GAPS ? 3 : layout == BACKWARDS ? 1 : 0);
    }
}

// What rank r sends to each, or gets from each; lists of functions that take one.
static void make_list(struct list *list, const struct shape *s, int r, bool sends)
{
    for (int q = 0; q < s->size; q++) {
        list->count[q] = sends ? count_of(s, r, q) : count_of(s, q, r);
    }
    bool may_choose = s->operation != REDUCE_SCATTER_V;
    lay_out(list, s->size,
            may_choose ? (enum layout)(hash(s->seed, (uint64_t)r, 2 + sends) % LAYOUTS) : LEFT_OUT);
}

static size_t end_of(const struct list *list, int size)
{
    size_t end = 0;
    for (int q = 0; q < size; q++) {
        size_t last = list->first[q] + list->count[q];
        end = list->count[q] > 0 && last > end ? last : end;
    }
    return end;
}

// Element i of rank r's send buffer.
static void put_value(char *to, const struct shape *s, int r, size_t i)
{
    uint64_t value = hash(s->seed + 77, (uint64_t)r, i);
    if (s->operation == REDUCE_SCATTER_V && s->type == ncclFloat16) {
        value = 0x3c00; // 1: sums up to 65 are exact
    }
    memcpy(to, &value, s->element);
}

// Element i of the reduction of all ranks: integers wrap.
static void put_sum(char *to, const struct shape *s, size_t i)
{
    uint64_t sum = 0;
    for (int r = 0; r < s->size; r++) {
        uint64_t value = 0;
        put_value((char *)&value, s, r, i);
        sum += value;
    }
    if (s->type == ncclFloat16) {
        static const uint16_t half[] = {0x3c00, 0x4000, 0x4200, 0, 0x4500, 0, 0, 0x4800};
        sum = s->size <= 8 ? half[s->size - 1] : s->size == 16 ? 0x4c00 : 0x5410;
    }
    memcpy(to, &sum, s->element);
}

// A rank's buffers: on the device, and what must be in them afterwards.
struct buffers {
    char *memory, *image;  // send area, then receive area
    size_t bytes, recv_at; // of the image; where the receive area begins
    char *send, *recv;
};

// Memory for them, that other processes can map and that they cannot. Made once: cudaFree waits for
// all of a device's work, and ranks share devices.
struct areas {
    char *device, *heap;
    size_t bytes;
};

static bool sends_list(const struct shape *s, int rank)
{
    return s->operation == REDUCE_SCATTER_V || s->operation == ALL_TO_ALL_V ||
           (s->operation == SCATTER_V && rank == s->root);
}

static bool recvs_list(const struct shape *s, int rank)
{
    return s->operation == ALL_GATHER_V || s->operation == ALL_TO_ALL_V ||
           (s->operation == GATHER_V && rank == s->root);
}

// What the rank sends, where it is one piece; the same of what it gets.
static size_t send_single(const struct shape *s, int rank)
{
    bool any = s->operation == ALL_GATHER_V || s->operation == GATHER_V;
    return any ? count_of(s, rank, rank) : 0;
}

static size_t recv_single(const struct shape *s, int rank)
{
    bool any = s->operation == REDUCE_SCATTER_V || s->operation == SCATTER_V;
    return any ? count_of(s, rank, rank) : 0;
}

// Where the element that `rank` gets as number i from `from` lies in that one's send buffer.
static size_t first_sent(const struct shape *s, int from, int rank)
{
    struct list list;
    if (!sends_list(s, from)) {
        return 0;
    }
    make_list(&list, s, from, true);
    return list.first[rank];
}

// Fills `image` with what the rank gets; recv: its receive buffer there.
static void put_results(const struct shape *s, int rank, const struct list *recv_list, char *recv)
{
    size_t first = 0;
    switch (s->operation) {
    case REDUCE_SCATTER_V:
        for (int q = 0; q < rank; q++) {
            first += count_of(s, q, q);
        }
        for (size_t i = 0; i < recv_single(s, rank); i++) {
            put_sum(recv + i * s->element, s, first + i);
        }
        return;
    case SCATTER_V:
        first = first_sent(s, s->root, rank);
        for (size_t i = 0; i < recv_single(s, rank); i++) {
            put_value(recv + i * s->element, s, s->root, first + i);
        }
        return;
    default:
        for (int from = 0; recvs_list(s, rank) && from < s->size; from++) {
            first = first_sent(s, from, rank);
            for (size_t i = 0; i < recv_list->count[from]; i++) {
                put_value(recv + (recv_list->first[from] + i) * s->element, s, from, first + i);
            }
        }
    }
}

static bool make_buffers(struct buffers *b, const struct areas *areas, const struct shape *s,
                         int rank, const struct list *send_list, const struct list *recv_list)
{
    size_t send_count = sends_list(s, rank) ? end_of(send_list, s->size) : send_single(s, rank);
    size_t recv_count = recvs_list(s, rank) ? end_of(recv_list, s->size) : recv_single(s, rank);
    bool gathers = s->operation == ALL_GATHER_V || (s->operation == GATHER_V && rank == s->root);
    bool scatters =
        s->operation == REDUCE_SCATTER_V || (s->operation == SCATTER_V && rank == s->root);
    bool in_place = rank % 3 < s->in_place && (gathers || scatters);
    b->recv_at = (send_count * s->element + 256 + 255) / 256 * 256;
    b->bytes = b->recv_at + recv_count * s->element + 256;
    b->image = malloc(b->bytes);
    b->memory = hash(s->seed, (uint64_t)rank, 9) % 4 == 0 ? areas->heap : areas->device;
    if (!EXPECT(b->bytes <= areas->bytes && b->image != NULL)) {
        return false;
    }
    size_t send_at = 64, recv_at = b->recv_at + 64;
    if (in_place && gathers) {
        send_at = recv_at + recv_list->first[rank] * s->element;
    } else if (in_place) {
        recv_at = send_at + send_list->first[rank] * s->element;
    }
    b->send = b->memory + send_at;
    b->recv = b->memory + recv_at;
    memset(b->image, GUARD, b->bytes);
    for (size_t i = 0; i < send_count; i++) {
        put_value(b->image + send_at + i * s->element, s, rank, i);
    }
    EXPECT_CUDA(cudaMemcpy(b->memory, b->image, b->bytes, cudaMemcpyDefault));
    put_results(s, rank, recv_list, b->image + recv_at);
    return true;
}

static ncclResult_t call_shape(struct member *m, const struct shape *s, const struct buffers *b,
                               const struct list *send, const struct list *recv)
{
    const size_t *send_first = send->is_left_out ? NULL : send->first,
                 *recv_first = recv->is_left_out ? NULL : recv->first;
    size_t sends = send_single(s, m->rank), gets = recv_single(s, m->rank);
    bool is_root = m->rank == s->root;
    switch (s->operation) {
    case ALL_GATHER_V:
        return tuttiAllGatherV(b->send, sends, b->recv, recv->count, recv_first, s->type, m->comm,
                               m->stream);
    case REDUCE_SCATTER_V:
        return tuttiReduceScatterV(b->send, b->recv, send->count, s->type, ncclSum, m->comm,
                                   m->stream);
    case ALL_TO_ALL_V:
        return tuttiAllToAllV(b->send, send->count, send_first, b->recv, recv->count, recv_first,
                              s->type, m->comm, m->stream);
    case GATHER_V:
        return tuttiGatherV(b->send, sends, is_root ? b->recv : NULL, is_root ? recv->count : NULL,
                            is_root ? recv_first : NULL, s->type, s->root, m->comm, m->stream);
    default:
        return tuttiScatterV(is_root ? b->send : NULL, is_root ? send->count : NULL,
                             is_root ? send_first : NULL, b->recv, gets, s->type, s->root, m->comm,
                             m->stream);
    }
}

// One operation, every byte compared. in_group: the call is in a group.
static bool check_shape(struct member *m, const struct areas *areas, const struct shape *s,
                        bool in_group)
{
    struct list send, recv;
    struct buffers b;
    make_list(&send, s, m->rank, true);
    make_list(&recv, s, m->rank, false);
    if (!make_buffers(&b, areas, s, m->rank, &send, &recv)) {
        return false;
    }
    ncclResult_t result = ncclSuccess;
    if (in_group) {
        EXPECT_OK(ncclGroupStart());
    }
    result = call_shape(m, s, &b, &send, &recv);
    // The arrays are the caller's again.
    memset(&send, 0xff, sizeof send);
    memset(&recv, 0xff, sizeof recv);
    if (in_group) {
        EXPECT_OK(ncclGroupEnd());
    }
    bool right = EXPECT_OK(result) && EXPECT_CUDA(cudaStreamSynchronize(m->stream)) &&
                 EXPECT_EQ(member_state(m), ncclSuccess);
    char *now = malloc(b.bytes);
    EXPECT_CUDA(cudaMemcpy(now, b.memory, b.bytes, cudaMemcpyDefault));
    for (size_t i = 0; right && i < b.bytes; i++) {
        if (now[i] != b.image[i]) {
            fprintf(stderr,
                    "rank %d of %d: operation %d, type %d, most %zu, root %d, in place %d, seed "
                    "%llu: byte %zu (receive buffer from %zu on) is %02x, must be %02x\n",
                    m->rank, s->size, (int)s->operation, (int)s->type, s->most, s->root,
                    s->in_place, (unsigned long long)s->seed, i, (size_t)(b.recv - b.memory),
                    (unsigned char)now[i], (unsigned char)b.image[i]);
            right = EXPECT(now[i] == b.image[i]);
        }
    }
    free(now);
    free(b.image);
    return right;
}

static void random_shapes(int rank, int size)
{
    static const size_t most[] = {0, 1, 7, 300, 9000, 70000};
    struct member m;
    struct areas areas = {.bytes = 2 * ((size_t)size * ((size > 8 ? 300 : 70000) + 3) * 8 + 1024)};
    areas.heap = malloc(areas.bytes);
    if (!member_join(&m, rank, size) ||
        !EXPECT_CUDA(cudaMalloc((void **)&areas.device, areas.bytes))) {
        return;
    }
    int shapes = is_full() ? 20 * SHAPES : size > 16 ? SHAPES / 6 : few_or(SHAPES, SHAPES / 4);
    for (int i = 0; i < shapes; i++) {
        uint64_t draw = hash((uint64_t)i, (uint64_t)size, 5);
        int type = (int)(draw >> 16 & 3);
        size_t limit = most[(draw >> 24) % (size > 8 ? 4 : 6)];
        struct shape s = {.operation = (enum operation)(i % OPERATIONS),
                          .type = types[type],
                          .element = (size_t)1 << type,
                          .most = limit,
                          .root = (int)(draw >> 32 & 0xff) % size,
                          .size = size,
                          .in_place = (int)(draw >> 40 & 0xff) % 4,
                          .seed = draw};
        if (!check_shape(&m, &areas, &s, i % 7 == 3)) {
            break;
        }
    }
    ranks_barrier();
    EXPECT_CUDA(cudaFree(areas.device));
    free(areas.heap);
    member_leave(&m);
}

static void shapes_in_threads(void)
{
    for (int i = 0; i < thread_size_count(); i++) {
        run_thread_ranks(test_sizes[i], random_shapes, 120);
    }
}

static void shapes_in_processes(void)
{
    for (int i = 0; has_processes() && i < process_size_count() - 1; i++) {
        run_ranks(test_sizes[i], random_shapes, 120);
    }
}

// ---- Bits, graphs -------------------------------------------------------------------------------

// A reduction of floats in uneven parts is the even reduction's, bit for bit.
static void same_bits(int rank, int size)
{
    enum { COUNT = 10007 };
    struct member m;
    float *all = NULL, *whole = NULL, *part = NULL, factor = 0.37F;
    ncclRedOp_t ops[] = {ncclSum, ncclProd, ncclAvg, ncclMax, ncclSum};
    size_t counts[MOST_RANKS], first[MOST_RANKS];
    if (!member_join(&m, rank, size) ||
        !EXPECT_CUDA(cudaMalloc((void **)&all, 3 * COUNT * sizeof(float)))) {
        return;
    }
    whole = all + COUNT;
    part = whole + COUNT;
    EXPECT_OK(
        ncclRedOpCreatePreMulSum(&ops[4], &factor, ncclFloat32, ncclScalarHostImmediate, m.comm));
    float *mine = malloc(COUNT * sizeof(float)), *other = malloc(COUNT * sizeof(float));
    for (size_t i = 0; i < COUNT; i++) {
        mine[i] = 1.0F + (float)(hash((uint64_t)rank, i, 3) % 65536) / 65521;
    }
    EXPECT_OK(tuttiSplitCounts(COUNT - 100, size, counts, first));
    counts[0] += 100;
    EXPECT_CUDA(cudaMemcpy(all, mine, COUNT * sizeof(float), cudaMemcpyDefault));
    for (int i = 0; i < 5; i++) {
        EXPECT_OK(ncclAllReduce(all, whole, COUNT, ncclFloat32, ops[i], m.comm, m.stream));
        EXPECT_OK(tuttiReduceScatterV(all, part, counts, ncclFloat32, ops[i], m.comm, m.stream));
        EXPECT_CUDA(cudaStreamSynchronize(m.stream));
        size_t begin = rank == 0 ? 0 : first[rank] + 100, bytes = counts[rank] * sizeof(float);
        EXPECT_CUDA(cudaMemcpy(mine, whole + begin, bytes, cudaMemcpyDefault));
        EXPECT_CUDA(cudaMemcpy(other, part, bytes, cudaMemcpyDefault));
        EXPECT(memcmp(mine, other, bytes) == 0);
    }
    free(mine);
    free(other);
    ranks_barrier();
    EXPECT_OK(ncclRedOpDestroy(ops[4], m.comm));
    EXPECT_CUDA(cudaFree(all));
    member_leave(&m);
}

static void bits_of_the_even_form(void)
{
    run_thread_ranks(3, same_bits, 30);
    run_thread_ranks(5, same_bits, 30);
    run_processes(3, same_bits, 30);
}

// A captured call keeps its counts, which the caller has overwritten since.
static void captured(int rank, int size)
{
    struct member m;
    int *memory = NULL, seen[16];
    size_t counts[] = {2, 0, 3}, first[] = {4, 0, 0};
    cudaGraph_t graph;
    cudaGraphExec_t run;
    if (!member_join(&m, rank, size) ||
        !EXPECT_CUDA(cudaMalloc((void **)&memory, sizeof seen + 64))) {
        return;
    }
    size_t own = counts[rank];
    EXPECT_CUDA(cudaStreamBeginCapture(m.stream, cudaStreamCaptureModeThreadLocal));
    EXPECT_OK(tuttiAllGatherV(memory + 8, own, memory, counts, first, ncclInt32, m.comm, m.stream));
    memset(counts, 0xff, sizeof counts);
    EXPECT_CUDA(cudaStreamEndCapture(m.stream, &graph));
    EXPECT_CUDA(cudaGraphInstantiate(&run, graph, 0));
    for (int round = 1; round < 4; round++) {
        for (int i = 0; i < 16; i++) {
            seen[i] = i < 8 ? -1 : 100 * round + 10 * rank + i - 8;
        }
        EXPECT_CUDA(cudaMemcpy(memory, seen, sizeof seen, cudaMemcpyDefault));
        EXPECT_CUDA(cudaGraphLaunch(run, m.stream));
        EXPECT_CUDA(cudaStreamSynchronize(m.stream));
        EXPECT_CUDA(cudaMemcpy(seen, memory, sizeof seen, cudaMemcpyDefault));
        const int expected[8] = {100 * round + 20,
                                 100 * round + 21,
                                 100 * round + 22,
                                 -1,
                                 100 * round,
                                 100 * round + 1,
                                 -1,
                                 -1};
        for (int i = 0; i < 8; i++) {
            EXPECT_EQ(seen[i], expected[i]);
        }
        ranks_barrier();
    }
    EXPECT_CUDA(cudaGraphExecDestroy(run));
    EXPECT_CUDA(cudaGraphDestroy(graph));
    EXPECT_CUDA(cudaFree(memory));
    member_leave(&m);
}

static void graphs(void)
{
    run_thread_ranks(3, captured, 30);
    run_processes(3, captured, 30);
}

int main(void)
{
    RUN(shapes_in_threads);
    RUN(shapes_in_processes);
    RUN(bits_of_the_even_form);
    RUN(graphs);
    return expect_result();
}
