// Dispatch and combine: every received row and every sum, bit by bit, for odd sizes and few and
// many ranks; who has no tokens; one expert for all; capacity; refusals.
// SPDX-License-Identifier: Apache-2.0
#include "moe_for_tests.h"

// ---- Counts of tokens ---------------------------------------------------------------------------

static size_t none_on_1(int rank) // C88
{
    return rank == 1 ? 0 : 9 + (size_t)rank;
}
static size_t nobody(int rank)
{
    (void)rank;
    return 0;
}
static size_t as_c89(int rank)
{
    static const size_t tokens[] = {1, 7, 64, 128};
    return tokens[rank % 4];
}
static size_t two(int rank)
{
    (void)rank;
    return 2;
}

static void odd_rank(int rank, int size)
{
    static const ncclDataType_t types[] = {ncclFloat32, ncclBfloat16, ncclFloat64};
    struct moe_case c = case_of(size, 2 * size + 1, 3, 37);
    c.tokens = odd_tokens;
    struct member m;
    if (!member_join(&m, rank, size)) {
        return;
    }
    for (int type = 0; type < 3; type++) {
        c.options.datatype = types[type];
        c.options.align = type == 1 ? 8 : 1;
        round_trip(&c, &m);
    }
    member_leave(&m);
}
static void odd_sizes(void)
{
    for (int size = 1; size <= 8; size++) {
        run_thread_ranks(size, odd_rank, 60);
    }
}
static void processes(void)
{
    run_ranks(3, odd_rank, 60);
}

// C88: 4 ranks, 16 experts, hidden 64, top-2: one without tokens, then nobody, then one expert.
static void c88_rank(int rank, int size)
{
    struct moe_case c = case_of(size, 16, 2, 64);
    struct member m;
    if (!member_join(&m, rank, size)) {
        return;
    }
    c.tokens = none_on_1;
    round_trip(&c, &m);
    c.tokens = nobody;
    round_trip(&c, &m);
    c.tokens = none_on_1;
    c.options.choices = 1;
    c.only = 11;
    round_trip(&c, &m);
    member_leave(&m);
}
static void c88(void)
{
    run_thread_ranks(4, c88_rank, 60);
}

static void c89_rank(int rank, int size)
{
    struct moe_case c = case_of(size, 16, 2, 64);
    c.tokens = as_c89;
    c.options.maxTokens = 128;
    run_case(rank, size, c);
}
static void c89(void)
{
    run_thread_ranks(4, c89_rank, 60);
}

// C92: ranks and experts that do not divide; hidden 1, 100, 7168.
static void c92_rank(int rank, int size)
{
    static const size_t hidden[] = {1, 100, 7168};
    struct member m;
    if (!member_join(&m, rank, size)) {
        return;
    }
    for (int i = 0; i < 3; i++) {
        struct moe_case c = case_of(size, size == 6 ? 4 : size + 2, 2, hidden[i]);
        c.tokens = size > 8 ? two : odd_tokens;
        c.options.datatype = i == 2 ? ncclBfloat16 : ncclFloat32;
        round_trip(&c, &m);
    }
    member_leave(&m);
}
static void c92(void)
{
    run_thread_ranks(3, c92_rank, 60);
    run_thread_ranks(5, c92_rank, 60);
    run_thread_ranks(6, c92_rank, 60); // two ranks without experts
}
static void c92_24_ranks(void)
{
    run_thread_ranks(24, c92_rank, 120);
}

// ---- Many in a row ------------------------------------------------------------------------------

enum { MANY = 400 };

// Combines one behind the other, nothing waited for: each adds what was given to it, not what a
// quicker rank has stored for the next. outs: [MANY x count x hidden].
static void combine_many(const struct moe_case *c, struct member *m, tuttiMoeRoute_t route,
                         const struct moe_arrays *a)
{
    struct tuttiMoeReceived received;
    EXPECT_OK(tuttiMoeGetReceived(route, &received));
    size_t in = received.rowCount * c->options.hidden, out = a->count * c->options.hidden;
    float *rows = device_array(m, 2 * in * sizeof *rows);
    float *outs = device_array(m, MANY * out * sizeof *outs);
    for (size_t i = 0; i < 2 * in; i++) {
        rows[i] = i < in ? 1 : 3;
    }
    for (size_t i = 0; i < MANY; i++) {
        EXPECT_OK(tuttiMoeCombine(route, rows + i % 2 * in, outs + i * out, m->stream));
    }
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
    size_t wrong = 0;
    for (size_t i = 0; i < MANY * out; i++) {
        double once = (double)outs[i % out] * (i / out % 2 == 0 ? 1 : 3);
        wrong += fabs((double)outs[i] - once) > 1e-4 * (1 + fabs(once));
    }
    EXPECT_EQ(wrong, 0);
    free_array(m, rows);
    free_array(m, outs);
}

static void many_rank(int rank, int size)
{
    struct moe_case c = case_of(size, 8, 3, 16);
    struct member m;
    tuttiMoe_t moe = NULL;
    tuttiMoeRoute_t route = NULL;
    c.tokens = none_on_1;
    if (!member_join(&m, rank, size)) {
        return;
    }
    struct moe_arrays a = make_arrays(&c, &m);
    EXPECT_OK(tuttiMoeCreate(m.comm, &c.options, &moe));
    if (EXPECT_OK(
            tuttiMoeDispatch(moe, a.tokens, a.count, a.indices, a.weights, &route, m.stream))) {
        combine_many(&c, &m, route, &a);
        EXPECT_OK(tuttiMoeRouteDestroy(route));
    }
    EXPECT_OK(tuttiMoeDestroy(moe));
    free_arrays(&m, &a);
    member_leave(&m);
}
static void many_in_a_row(void)
{
    run_thread_ranks(4, many_rank, 60);
}

// ---- Kernels ------------------------------------------------------------------------------------

// The same rows and the same bits by kernels over the windows.
static void kernels_rank(int rank, int size)
{
    static const ncclDataType_t types[] = {ncclFloat32, ncclBfloat16, ncclFloat64};
    struct moe_case c = case_of(size, 2 * size + 1, 3, 24);
    struct member m;
    c.tokens = odd_tokens;
    c.options.path = tuttiMoePathKernel;
    if (!member_join(&m, rank, size)) {
        return;
    }
    for (int type = 0; type < 3; type++) {
        c.options.datatype = types[type];
        c.options.hidden = type == 2 ? 9 : 24; // not in packs of 16 bytes, and in packs
        c.options.align = type == 1 ? 8 : 1;
        c.options.rule = type == 1 ? tuttiMoeDrop : tuttiMoeGrow;
        c.options.capacity = 4;
        round_trip(&c, &m);
    }
    c.tokens = nobody;
    round_trip(&c, &m);
    member_leave(&m);
}
static void kernels(void)
{
    run_thread_ranks(1, kernels_rank, 60);
    run_thread_ranks(2, kernels_rank, 60);
    run_thread_ranks(5, kernels_rank, 60);
}
static void kernels_of_processes(void)
{
    run_ranks(3, kernels_rank, 60);
}

// ---- Capacity -----------------------------------------------------------------------------------

static void drop_rank(int rank, int size)
{
    struct moe_case c = case_of(size, 5, 2, 33);
    struct member m;
    c.tokens = as_c89;
    c.options.rule = tuttiMoeDrop;
    c.options.align = 16;
    if (!member_join(&m, rank, size)) {
        return;
    }
    c.options.capacity = 20;
    round_trip(&c, &m);
    c.options.capacity = 1000; // nothing to drop
    round_trip(&c, &m);
    member_leave(&m);
}
static void drops(void)
{
    run_thread_ranks(3, drop_rank, 60);
}

// Everything to expert 1, 72 rows: with a capacity of 70 the last two, both of the last rank.
static void report_rank(int rank, int size)
{
    struct moe_case c = case_of(size, 3, 1, 4);
    struct member m;
    tuttiMoe_t moe = NULL;
    tuttiMoeRoute_t route = NULL;
    struct tuttiMoeReport report;
    c.tokens = as_c89; // 1, 7, 64
    c.only = 1;
    c.options.rule = tuttiMoeDrop;
    c.options.capacity = 70;
    c.options.align = 64;
    if (!member_join(&m, rank, size)) {
        return;
    }
    struct moe_arrays a = make_arrays(&c, &m);
    EXPECT_OK(tuttiMoeCreate(m.comm, &c.options, &moe));
    if (EXPECT_OK(
            tuttiMoeDispatch(moe, a.tokens, a.count, a.indices, a.weights, &route, m.stream)) &&
        EXPECT_OK(tuttiMoeGetReport(route, &report))) {
        EXPECT_EQ(report.capacity, 70);
        EXPECT_EQ(report.demand[1], 72);
        EXPECT_EQ(report.dropped[1], 2);
        EXPECT_EQ(report.dropped[0], 0);
        EXPECT_EQ(report.ownDropped, rank == 2 ? 2 : 0);
        EXPECT_EQ(report.choices, a.count - (rank == 2 ? 2 : 0));
        EXPECT_EQ(report.toRanks, report.choices);
        EXPECT_EQ(report.toHosts, 0);
        EXPECT_EQ(report.rows, rank == 1 ? 70 : 0);
        EXPECT_EQ(report.received, rank == 1 ? 70 : 0);
        EXPECT_EQ(report.padded, rank == 1 ? 58 : 0);
        EXPECT_OK(tuttiMoeRouteDestroy(route));
    }
    EXPECT_OK(tuttiMoeDestroy(moe));
    // The same as an error, by a factor: ceil(2.9 * 72 / 3) = 70.
    c.options.rule = tuttiMoeError;
    c.options.capacity = 0;
    c.options.capacityFactor = 2.9;
    EXPECT_OK(tuttiMoeCreate(m.comm, &c.options, &moe));
    EXPECT_EQ(tuttiMoeDispatch(moe, a.tokens, a.count, a.indices, a.weights, &route, m.stream),
              ncclInvalidUsage);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "expert 1 (rank 1): 72 rows are for it, its capacity "
                                            "is 70");
    EXPECT_OK(tuttiMoeDestroy(moe));
    free_arrays(&m, &a);
    member_leave(&m);
}
static void reports(void)
{
    run_thread_ranks(3, report_rank, 60);
}

// ---- Refusals -----------------------------------------------------------------------------------

// Rank 1 alone refuses its arguments; the others wait until it calls as it should.
static void call_again(const struct member *m, tuttiMoeRoute_t route, const struct moe_arrays *a)
{
    struct tuttiMoeReceived received;
    EXPECT_OK(tuttiMoeGetReceived(route, &received));
    if (m->rank == 1) {
        EXPECT_EQ(tuttiMoeDispatchAgain(route, NULL, m->stream), ncclInvalidArgument);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "rank 1: tokens is NULL, but there are 7 rows");
    }
    EXPECT_OK(tuttiMoeDispatchAgain(route, a->tokens, m->stream));
    if (m->rank == 1) {
        EXPECT_EQ(tuttiMoeCombine(route, received.rows, NULL, m->stream), ncclInvalidArgument);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "rank 1: out is NULL, but there are 7 rows");
        EXPECT_EQ(tuttiMoeCombine(route, received.rows, (char *)a->out + 1, m->stream),
                  ncclInvalidArgument);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "must be a multiple of its elements' 4 bytes");
    }
    EXPECT_OK(tuttiMoeCombine(route, received.rows, a->out, m->stream));
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
}

// Every rank is told what rank 1 has wrong, and the next call works.
static void bad_choices_rank(int rank, int size)
{
    struct moe_case c = case_of(size, 6, 3, 5);
    struct member m;
    tuttiMoe_t moe = NULL;
    tuttiMoeRoute_t route = NULL;
    c.tokens = as_c89; // 1, 7
    if (!member_join(&m, rank, size)) {
        return;
    }
    struct moe_arrays a = make_arrays(&c, &m);
    EXPECT_OK(tuttiMoeCreate(m.comm, &c.options, &moe));
    int32_t *last = rank == 1 ? &a.indices[6 * 3 + 2] : NULL, right = rank == 1 ? *last : 0;
#define DISPATCH(count)                                                                            \
    tuttiMoeDispatch(moe, a.tokens, (count), a.indices, a.weights, &route, m.stream)
    if (rank == 1) {
        *last = 6;
    }
    char place = 0;
    route = (void *)&place; // becomes NULL
    EXPECT_EQ(DISPATCH(a.count), ncclInvalidArgument);
    EXPECT(route == NULL);
    EXPECT_CONTAINS(ncclGetLastError(NULL),
                    "rank 1: indices: token 6, choice 2: 6, must be 0 to 5");
    if (rank == 1) {
        *last = a.indices[6 * 3];
    }
    EXPECT_EQ(DISPATCH(a.count), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "rank 1: indices: token 6 chooses expert");
    if (rank == 1) {
        *last = right;
    }
    EXPECT_EQ(DISPATCH(rank == 1 ? 201 : a.count), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), rank == 1 ? "count is 201, must be at most maxTokens"
                                                      : "rank 1's arguments are refused there");
    int32_t on_host[7 * 3] = {0}, *indices = a.indices;
    a.indices = rank == 1 ? on_host : indices;
    EXPECT_EQ(DISPATCH(a.count), rank == 1 ? ncclUnhandledCudaError : ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL),
                    rank == 1 ? "rank 1: indices is " : "rank 1's arguments are refused there");
    a.indices = rank == 1 ? (int32_t *)((char *)indices + 1) : indices;
    EXPECT_EQ(DISPATCH(a.count), ncclInvalidArgument);
    a.indices = indices;
    if (EXPECT_OK(DISPATCH(a.count))) {
        call_again(&m, route, &a);
        EXPECT_OK(tuttiMoeRouteDestroy(route));
    }
    EXPECT_OK(tuttiMoeDestroy(moe));
    free_arrays(&m, &a);
    member_leave(&m);
}

// Rank 1 is in another call than the others: no call gives a wrong result.
static void other_call_rank(int rank, int size)
{
    struct moe_case c = case_of(size, 6, 3, 5);
    struct member m;
    tuttiMoe_t moe = NULL;
    tuttiMoeRoute_t route = NULL;
    struct tuttiMoeReceived received;
    c.tokens = as_c89;
    if (!member_join(&m, rank, size)) {
        return;
    }
    struct moe_arrays a = make_arrays(&c, &m);
    EXPECT_OK(tuttiMoeCreate(m.comm, &c.options, &moe));
    EXPECT_OK(tuttiMoeDispatch(moe, a.tokens, a.count, a.indices, a.weights, &route, m.stream));
    EXPECT_OK(tuttiMoeGetReceived(route, &received));
    ncclResult_t result = rank == 1 ? tuttiMoeCombine(route, received.rows, a.out, m.stream)
                                    : tuttiMoeDispatchAgain(route, a.tokens, m.stream);
    EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    EXPECT(result == ncclSuccess || result == ncclInvalidUsage);
    EXPECT_EQ(member_state(&m), ncclInvalidUsage);
    EXPECT_OK(ncclCommAbort(m.comm));
    m.comm = NULL;
    EXPECT_OK(tuttiMoeRouteDestroy(route));
    EXPECT_EQ(tuttiMoeDestroy(moe), ncclInvalidArgument);
    free_arrays(&m, &a);
    member_leave(&m);
}

static void other_call(void)
{
    run_ranks(3, other_call_rank, 60);
}

static void bad_choices(void)
{
    run_thread_ranks(2, bad_choices_rank, 60);
}

static void refuse(const struct member *m, struct tuttiMoeOptions options, const char *part)
{
    char place = 0;
    tuttiMoe_t moe = (void *)&place; // becomes NULL
    EXPECT_EQ(tuttiMoeCreate(m->comm, &options, &moe), ncclInvalidArgument);
    EXPECT(moe == NULL);
    EXPECT_CONTAINS(ncclGetLastError(NULL), part);
}

static void differ(const struct member *m, struct tuttiMoeOptions options, const char *part)
{
    tuttiMoe_t moe = NULL;
    EXPECT_EQ(tuttiMoeCreate(m->comm, &options, &moe), ncclInvalidUsage);
    EXPECT_CONTAINS(ncclGetLastError(NULL), part);
}

static void bad_options_rank(int rank, int size)
{
    struct tuttiMoeOptions good = case_of(size, 4, 2, 8).options, bad;
    struct member m;
    tuttiMoe_t moe = NULL;
    if (!member_join(&m, rank, size)) {
        return;
    }
#define REFUSE(change, part) (bad = good, bad.change, refuse(&m, bad, part))
    REFUSE(size = 1, "options->size is 1");
    REFUSE(experts = 0, rank == 0 ? "rank 0: experts is 0" : "rank 1: experts is 0");
    REFUSE(experts = INT32_MAX, "experts is 2147483647, must be 1 to 1048576");
    REFUSE(choices = 5, "choices is 5, must be 1 to 4");
    REFUSE(hidden = 0, "hidden is 0");
    REFUSE(maxTokens = SIZE_MAX, "maxTokens is");
    REFUSE(maxTokens = INT32_MAX / 2, "would be more than 2147483647 rows");
    REFUSE(align = 0, "align is 0");
    REFUSE(datatype = ncclInt8, "datatype is 0");
    REFUSE(rule = (tuttiMoeCapacityRule_t)9, "rule is 9");
    REFUSE(path = (tuttiMoePath_t)9, "path is 9");
    REFUSE(capacityFactor = -1, "capacityFactor is -1");
    EXPECT_EQ(tuttiMoeCreate(m.comm, NULL, &moe), ncclInvalidArgument);
    EXPECT_EQ(tuttiMoeCreate(NULL, &good, &moe), ncclInvalidArgument);
    bad = good; // rows are counted in 32 bits, with those between
    bad.experts = 1 << 13;
    bad.align = 1 << 20;
    refuse(&m, bad, "align is 1048576: with 4096 experts on a rank");
    bad = good;
    bad.hidden = INT32_MAX;
    bad.maxTokens = 1 << 28;
    refuse(&m, bad, "hidden is 2147483647: the bytes of");
    bad = good;
    bad.experts = rank == 1 ? 3 : 4;
    differ(&m, bad, "experts differs between ranks");
    bad = good;
    bad.capacityFactor = rank == 1 ? 1.5 : 2;
    differ(&m, bad, rank == 1 ? "1.5 here, 2 there" : "2 here, 1.5 there");
    bad.experts = rank == 1 ? 0 : 4;
    EXPECT_EQ(tuttiMoeCreate(m.comm, &bad, &moe),
              rank == 1 ? ncclInvalidArgument : ncclInvalidUsage);
    EXPECT_EQ(tuttiMoeDispatch(NULL, NULL, 0, NULL, NULL, NULL, m.stream), ncclInvalidArgument);
    EXPECT_EQ(tuttiMoeDispatchAgain(NULL, NULL, m.stream), ncclInvalidArgument);
    EXPECT_EQ(tuttiMoeCombine(NULL, NULL, NULL, m.stream), ncclInvalidArgument);
    EXPECT_EQ(tuttiMoeGetReport(NULL, NULL), ncclInvalidArgument);
    EXPECT_OK(tuttiMoeRouteDestroy(NULL));
    EXPECT_OK(tuttiMoeDestroy(NULL));
    member_leave(&m);
}
static void bad_options(void)
{
    run_thread_ranks(2, bad_options_rank, 60);
}

// ---- Aborted ------------------------------------------------------------------------------------

// What is left of a tuttiMoe is freed after its communicator, too.
static void aborted_rank(int rank, int size)
{
    struct moe_case c = case_of(size, 6, 3, 5);
    struct member m;
    tuttiMoe_t moe = NULL;
    tuttiMoeRoute_t route = NULL;
    c.tokens = as_c89;
    if (!member_join(&m, rank, size)) {
        return;
    }
    struct moe_arrays a = make_arrays(&c, &m);
    EXPECT_OK(tuttiMoeCreate(m.comm, &c.options, &moe));
    EXPECT_OK(DISPATCH(a.count));
    EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    ranks_barrier();
    EXPECT_OK(ncclCommAbort(m.comm));
    m.comm = NULL;
    EXPECT_OK(tuttiMoeRouteDestroy(route));
    EXPECT_EQ(tuttiMoeDestroy(moe), ncclInvalidArgument);
    free_arrays(&m, &a);
    member_leave(&m);
}
static void aborted(void)
{
    run_ranks(2, aborted_rank, 60);
    run_thread_ranks(2, aborted_rank, 60);
}

// ---- Too little memory --------------------------------------------------------------------------

// Rank 1's process has none for a window that must grow: both ranks learn, nobody waits.
static void no_room_rank(int rank, int size)
{
    struct member m;
    tuttiMoe_t moe = NULL;
    tuttiMoeRoute_t route = NULL;
    struct moe_case c = case_of(size, 2, 1, 1 << 16);
    c.options.maxTokens = 512;
    if (rank == 1) {
        (void)setenv("VGPU_HOST_MEMORY", "96M", 1); // before CUDA is asked for anything
    }
    if (!member_join(&m, rank, size)) {
        return;
    }
    size_t count = rank == 0 ? 512 : 0;
    float *tokens = device_array(&m, count * c.options.hidden * sizeof *tokens);
    float *weights = device_array(&m, count * sizeof *weights);
    int32_t *indices = device_array(&m, count * sizeof *indices);
    for (size_t t = 0; t < count; t++) {
        indices[t] = 1;
        weights[t] = 1;
    }
    if (EXPECT_OK(tuttiMoeCreate(m.comm, &c.options, &moe))) {
        EXPECT(tuttiMoeDispatch(moe, tokens, count, indices, weights, &route, m.stream) !=
               ncclSuccess);
        EXPECT(rank == 0 || strstr(ncclGetLastError(NULL), "rank 1: no memory for ") != NULL);
        EXPECT_EQ(member_state(&m), ncclSuccess);
        EXPECT_OK(tuttiMoeDestroy(moe));
    }
    free_array(&m, tokens);
    free_array(&m, weights);
    free_array(&m, indices);
    member_leave(&m);
}
static void no_room(void)
{
    run_ranks(2, no_room_rank, 60);
}

int main(void)
{
    RUN(odd_sizes);
    RUN(processes);
    RUN(c88);
    RUN(c89);
    RUN(c92);
    RUN(c92_24_ranks);
    RUN(many_in_a_row);
    RUN(kernels);
    RUN(kernels_of_processes);
    RUN(drops);
    RUN(reports);
    RUN(bad_choices);
    RUN(other_call);
    RUN(bad_options);
    RUN(aborted);
    RUN(no_room);
    return expect_result();
}
