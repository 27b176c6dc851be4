// Rows shared out along tokens, and the boundary between two layers: what is refused, and that
// nobody waits where ranks call with other arguments. SPDX-License-Identifier: Apache-2.0
#include "layers_for_tests.h"
#include "member.h"
#include "tutti_parallel/sequence.h"

static const struct tuttiTypes floats = {ncclFloat32, ncclFloat32, ncclFloat32};

static void wrong_boundaries(struct member *m)
{
    float f[16] = {0};
    void *p = NULL;
    int fused;
    struct tuttiNorm norm = {TUTTI_RMS_NORM, 4, 1e-3, floats};
    struct tuttiBoundary *b = NULL;
    refused(tuttiBoundaryCreate(&norm, 4, TUTTI_BOUNDARY_AUTO, m->comm, m->stream, NULL),
            "boundary is NULL");
    refused(tuttiBoundaryCreate(NULL, 4, TUTTI_BOUNDARY_AUTO, m->comm, m->stream, &b),
            "norm is NULL");
    refused(tuttiBoundaryCreate(&norm, 0, TUTTI_BOUNDARY_AUTO, m->comm, m->stream, &b),
            "most is 0");
    refused(tuttiBoundaryCreate(&norm, 4, (enum tuttiBoundaryWay)3, m->comm, m->stream, &b),
            "way is 3, must be 0 to 2");
    EXPECT_EQ(tuttiBoundaryCreate(&norm, 4, TUTTI_BOUNDARY_AUTO, NULL, m->stream, &b),
              ncclInvalidArgument);
    EXPECT(b == NULL);
    EXPECT_OK(tuttiBoundaryDestroy(NULL));
    if (!EXPECT_OK(tuttiBoundaryCreate(&norm, 4, TUTTI_BOUNDARY_AUTO, m->comm, m->stream, &b))) {
        return;
    }
    struct tuttiBoundaryInput in = {NULL, f, NULL, NULL};
    struct tuttiBoundaryGradients g = {f, f, NULL, f, NULL, NULL, NULL, 0};
    refused(tuttiBoundaryForward(NULL, 1, &in), "boundary is NULL");
    refused(tuttiBoundaryForward(b, 5, &in), "tokens is 5, must be at most 4");
    refused(tuttiBoundaryForward(b, 1, NULL), "input is NULL");
    refused(tuttiBoundaryForward(b, 1, &in), "tuttiBoundaryForward: rank 0: beta is");
    refused(tuttiBoundaryReduce(b, 1, NULL), "x is NULL");
    refused(tuttiBoundaryGather(b, 1, NULL, NULL, NULL), "x is NULL");
    refused(tuttiBoundaryGather(b, 1, f, NULL, f), "tuttiBoundaryGather: rank 0: beta is");
    refused(tuttiBoundaryBackward(b, 1, NULL), "gradients is NULL");
    refused(tuttiBoundaryBackward(b, 1, &g), "partial is NULL");
    g.dbeta = f;
    refused(tuttiBoundaryBackward(b, 1, &g), "tuttiBoundaryBackward: rank 0: dbeta is");
    refused(tuttiBoundaryRows(b, NULL), "rows is NULL");
    refused(tuttiBoundaryRows(NULL, &p), "boundary is NULL");
    refused(tuttiBoundaryIsFused(b, NULL), "fused is NULL");
    refused(tuttiBoundaryIsFused(NULL, &fused), "boundary is NULL");
    EXPECT_OK(tuttiBoundaryDestroy(b));
}

static void wrong_calls(int rank, int size)
{
    float f[16] = {0};
    struct member m;
    if (!member_join(&m, rank, size)) {
        return;
    }
    struct tuttiSequence good = {2, 2, ncclFloat32, m.comm, m.stream}, bad = good;
    refused(tuttiSequenceReduceScatter(NULL, f, f), "sequence is NULL");
    refused(tuttiSequenceReduceScatter(&good, NULL, f),
            "tuttiSequenceReduceScatter: rank 0: partial is NULL");
    refused(tuttiSequenceReduceScatter(&good, f, NULL), "own is NULL");
    refused(tuttiSequenceAllGather(&good, NULL, f), "own is NULL");
    refused(tuttiSequenceAllGather(&good, f, NULL), "rows is NULL");
    bad.width = 0;
    refused(tuttiSequenceAllGather(&bad, f, f), "tuttiSequenceAllGather: rank 0: width is 0");
    bad = good;
    bad.tokens = (size_t)1 << 60;
    refused(tuttiSequenceAllGather(&bad, f, f), "address space");
    EXPECT_EQ(tuttiSequenceOwn(1, NULL, NULL, NULL), ncclInvalidArgument);
    wrong_boundaries(&m);
    EXPECT_EQ(member_state(&m), ncclSuccess);
    member_leave(&m);
}

static void bad_arguments(void)
{
    run_ranks(1, wrong_calls, 30);
}

// ---- Arguments that differ ----------------------------------------------------------------------

// Ranks that have other numbers of tokens: an error on each that says so.
static void other_tokens(int rank, int size)
{
    struct member m;
    struct tuttiNorm norm = {TUTTI_RMS_NORM, 4, 1e-3, floats};
    struct tuttiBoundary *b = NULL;
    void *rows = NULL;
    if (!member_join(&m, rank, size)) {
        return;
    }
    const enum tuttiBoundaryWay way = size == 2 ? TUTTI_BOUNDARY_FUSED : TUTTI_BOUNDARY_HALVES;
    if (EXPECT_OK(tuttiBoundaryCreate(&norm, 8, way, m.comm, m.stream, &b))) {
        const struct tuttiBoundaryInput in = {NULL, NULL, NULL, NULL};
        EXPECT_OK(tuttiBoundaryRows(b, &rows));
        memset(rows, 0, 8 * 4 * sizeof(float));
        EXPECT_EQ(tuttiBoundaryForward(b, rank == 1 ? 6 : 8, &in), ncclInvalidUsage);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "tuttiBoundaryForward: rank ");
        EXPECT_CONTAINS(ncclGetLastError(NULL), "the communicator has failed: ");
        ranks_barrier();
        (void)tuttiBoundaryDestroy(b); // which cannot meet the others any more
    }
    EXPECT_OK(ncclCommAbort(m.comm));
    m.comm = NULL;
    member_leave(&m);
}

static void tokens_that_differ(void)
{
    run_ranks(2, other_tokens, 30);
    run_thread_ranks(3, other_tokens, 30);
}

// Creation with arguments that differ, or that are bad on one rank: an error on all, and the
// communicator is as good as before.
static void other_boundaries(int rank, int size)
{
    struct member m;
    const struct tuttiNorm norm = {TUTTI_RMS_NORM, 4, 1e-3, floats};
    struct tuttiNorm layer_norm = norm, other_eps = norm;
    struct tuttiBoundary *b = NULL;
    bool is_last = rank == size - 1;
    layer_norm.kind = TUTTI_LAYER_NORM;
    other_eps.eps = 1e-5;
    if (!member_join(&m, rank, size)) {
        return;
    }
    const enum tuttiBoundaryWay automatic = TUTTI_BOUNDARY_AUTO;
    refused(tuttiBoundaryCreate(&norm, 8, is_last ? TUTTI_BOUNDARY_FUSED : TUTTI_BOUNDARY_HALVES,
                                m.comm, m.stream, &b),
            is_last ? "way is 1 here and 2 on rank 0, must be equal" : "way is 2 here and 1 on");
    refused(tuttiBoundaryCreate(is_last ? &layer_norm : &norm, 8, automatic, m.comm, m.stream, &b),
            is_last ? "norm's kind is 1 here and 0 on rank 0" : "norm's kind is 0 here and 1 on");
    refused(tuttiBoundaryCreate(is_last ? &other_eps : &norm, 8, automatic, m.comm, m.stream, &b),
            "norm's eps is ");
    refused(tuttiBoundaryCreate(&norm, is_last ? 7 : 8, automatic, m.comm, m.stream, &b),
            "most is ");
    refused(tuttiBoundaryCreate(is_last ? NULL : &norm, 8, automatic, m.comm, m.stream, &b),
            is_last ? "norm is NULL" : "tuttiBoundaryCreate: rank 0: an argument of rank 1 is bad");
    refused(tuttiBoundaryCreate(&norm, 8, automatic, m.comm, m.stream, is_last ? NULL : &b),
            is_last ? "boundary is NULL" : "an argument of rank 1 is bad");
    EXPECT(b == NULL);
    EXPECT_OK(tuttiBoundaryCreate(&norm, 8, automatic, m.comm, m.stream, &b));
    EXPECT_OK(tuttiBoundaryDestroy(b));
    // The fused operation's eps is a float.
    int fused = -1;
    other_eps.eps = 1e300;
    EXPECT_EQ(tuttiBoundaryCreate(&other_eps, 8, TUTTI_BOUNDARY_FUSED, m.comm, m.stream, &b),
              ncclInvalidUsage);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "eps is beyond what float has");
    EXPECT_OK(tuttiBoundaryCreate(&other_eps, 8, automatic, m.comm, m.stream, &b));
    EXPECT_OK(tuttiBoundaryIsFused(b, &fused));
    EXPECT_EQ(fused, 0);
    EXPECT_OK(tuttiBoundaryDestroy(b));
    EXPECT_EQ(member_state(&m), ncclSuccess);
    member_leave(&m);
}

static void boundaries_that_differ(void)
{
    run_ranks(2, other_boundaries, 30);
    run_thread_ranks(2, other_boundaries, 30);
}

int main(void)
{
    RUN(bad_arguments);
    RUN(tokens_that_differ);
    RUN(boundaries_that_differ);
    return expect_result();
}
