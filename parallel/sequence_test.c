// Rows shared out along tokens, and the boundary between two layers, on 1 to 4 ranks: against sums
// and norms in double, finite differences, and the two ways against each other.
// SPDX-License-Identifier: Apache-2.0
#include "layers_for_tests.h"
#include "member.h"
#include "tutti_parallel/sequence.h"

#include <tutti.h>

static const struct tuttiTypes doubles = {ncclFloat64, ncclFloat64, ncclFloat64};
static const struct tuttiTypes floats = {ncclFloat32, ncclFloat32, ncclFloat32};
static const struct tuttiTypes mixed = {ncclBfloat16, ncclFloat32, ncclFloat32};
static const struct tuttiTypes halves = {ncclBfloat16, ncclBfloat16, ncclBfloat16};

// ---- The two collectives ------------------------------------------------------------------------

// Whole numbers, so that sums are exact.
static double whole_number(int rank, size_t i)
{
    return (double)((rank + 1) * (int)(i % 89) - 40);
}

static void share_out(struct member *m, size_t tokens, size_t width, bool in_place)
{
    size_t first, own, got_first = 99, got_own = 99;
    part_by_counting(tokens, m->size, m->rank, &first, &own);
    EXPECT_OK(tuttiSequenceOwn(tokens, m->comm, &got_first, &got_own));
    EXPECT_EQ(got_own, own);
    EXPECT_EQ(got_first, first);
    struct tuttiSequence s = {tokens, width, ncclFloat32, m->comm, m->stream};
    struct array partial = array_make(ncclFloat32, tokens * width);
    struct array apart = array_make(ncclFloat32, own * width);
    struct array rows = array_make(ncclFloat32, tokens * width);
    for (size_t i = 0; i < partial.count; i++) {
        array_set(&partial, i, whole_number(m->rank, i));
    }
    float *mine = in_place ? (float *)partial.data + first * width : apart.data;
    EXPECT_OK(tuttiSequenceReduceScatter(&s, partial.data, mine));
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
    for (size_t i = 0; i < own * width; i++) {
        double sum = 0;
        for (int r = 0; r < m->size; r++) {
            sum += whole_number(r, first * width + i);
        }
        EXPECT(mine[i] == (float)sum);
    }
    void *all = in_place ? partial.data : rows.data;
    EXPECT_OK(tuttiSequenceAllGather(&s, mine, all));
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
    for (size_t i = 0; i < tokens * width; i++) {
        double sum = 0;
        for (int r = 0; r < m->size; r++) {
            sum += whole_number(r, i);
        }
        EXPECT(((const float *)all)[i] == (float)sum);
    }
    array_free(&partial);
    array_free(&apart);
    array_free(&rows);
}

static void shared_out(int rank, int size)
{
    static const size_t tokens[] = {0, 1, 3, 4, 10, 12, 37};
    struct member m;
    if (member_join(&m, rank, size)) {
        for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
            share_out(&m, tokens[i], 1 + i, false);
            share_out(&m, tokens[i], 7 - i, true);
        }
        member_leave(&m);
    }
}

static void shared_out_on_1_to_5(void)
{
    run_ranks(1, shared_out, 30);
    run_ranks(3, shared_out, 30);
    for (int size = 2; size <= 5; size++) {
        run_thread_ranks(size, shared_out, 30);
    }
}

// ---- The boundary -------------------------------------------------------------------------------

// One setting, and all that goes in and is right, in double, on every rank.
struct setting {
    struct member *m;
    struct tuttiNorm norm;
    size_t tokens, first, own;
    bool has_residual;
    double *sum, *residual, *gamma, *beta; // [tokens x width], [width]; sum: over the ranks
    double *of_rows, *of_x; // [tokens x width] derivatives of the loss by the result and by x
};

static double number(ncclDataType_t type, int seed, size_t i)
{
    struct array one = {type, 1, &(uint64_t){0}};
    array_set(&one, 0, ragged(seed, i));
    return array_get(&one, 0);
}

static double *numbers(ncclDataType_t type, int seed, size_t count)
{
    double *values = malloc((count + 1) * sizeof *values);
    for (size_t i = 0; i < count; i++) {
        values[i] = number(type, seed, i);
    }
    return values;
}

static struct setting setting_make(struct member *m, enum tuttiNormKind kind,
                                   const struct tuttiTypes *types, const size_t sizes[2])
{
    size_t count = sizes[0] * sizes[1];
    struct setting s = {.m = m,
                        .norm = {kind, sizes[1], 1e-3, *types},
                        .tokens = sizes[0],
                        .has_residual = true,
                        .sum = calloc(count + 1, sizeof(double)),
                        .residual = numbers(types->activations, 20, count),
                        .gamma = numbers(types->weights, 21, sizes[1]),
                        .beta = numbers(types->weights, 22, sizes[1]),
                        .of_rows = calloc(count + 1, sizeof(double)),
                        .of_x = numbers(types->gradients, 23, count)};
    part_by_counting(s.tokens, m->size, m->rank, &s.first, &s.own);
    for (int r = 0; r < m->size; r++) {
        for (size_t i = 0; i < count; i++) {
            s.sum[i] += number(types->activations, r, i);
            s.of_rows[i] += number(types->gradients, 10 + r, i);
        }
    }
    return s;
}

static void setting_free(struct setting *s)
{
    double *all[] = {s->sum, s->residual, s->gamma, s->beta, s->of_rows, s->of_x};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
}

// x and the result for one row.
static void right_row(const struct setting *s, size_t token, double *x, double *result)
{
    const size_t width = s->norm.width;
    double mean = 0, square = 0;
    for (size_t i = 0; i < width; i++) {
        x[i] = s->sum[token * width + i] + (s->has_residual ? s->residual[token * width + i] : 0);
        mean += s->norm.kind == TUTTI_LAYER_NORM ? x[i] / (double)width : 0;
    }
    for (size_t i = 0; i < width; i++) {
        square += (x[i] - mean) * (x[i] - mean) / (double)width;
    }
    for (size_t i = 0; i < width; i++) {
        result[i] = (x[i] - mean) / sqrt(square + s->norm.eps) * s->gamma[i] +
                    (s->norm.kind == TUTTI_LAYER_NORM ? s->beta[i] : 0);
    }
}

static double right_loss(const struct setting *s)
{
    const size_t width = s->norm.width;
    double loss = 0, *x = malloc(2 * width * sizeof *x);
    for (size_t t = 0; t < s->tokens; t++) {
        right_row(s, t, x, x + width);
        for (size_t i = 0; i < width; i++) {
            loss += s->of_rows[t * width + i] * x[width + i] + s->of_x[t * width + i] * x[i];
        }
    }
    free(x);
    return loss;
}

static double difference(const struct setting *s, double *value)
{
    const double step = 1e-5, before = *value;
    *value = before + step;
    double more = right_loss(s);
    *value = before - step;
    double less = right_loss(s);
    *value = before;
    return (more - less) / (2 * step);
}

static struct array own_rows(const struct setting *s, ncclDataType_t type, const double *all)
{
    struct array a = array_make(type, s->own * s->norm.width);
    for (size_t i = 0; i < a.count; i++) {
        array_set(&a, i, all[s->first * s->norm.width + i]);
    }
    return a;
}

static struct array on_device(ncclDataType_t type, const double *values, size_t count)
{
    struct array a = array_make(type, count);
    for (size_t i = 0; i < count; i++) {
        array_set(&a, i, values[i]);
    }
    return a;
}

static double tolerance_for(const struct setting *s)
{
    ncclDataType_t type = s->norm.types.activations;
    return type == ncclFloat64 ? 1e-12 : type == ncclFloat32 ? 5e-6 : 0.08;
}

// rows: everybody's result; x: the own rows, or NULL.
static void check_result(const struct setting *s, const void *rows, const struct array *x)
{
    const size_t width = s->norm.width;
    struct array result = {s->norm.types.activations, s->tokens * width, (void *)(uintptr_t)rows};
    double *right = malloc(2 * width * sizeof *right), tolerance = tolerance_for(s);
    EXPECT_CUDA(cudaStreamSynchronize(s->m->stream));
    for (size_t t = 0; t < s->tokens; t++) {
        right_row(s, t, right, right + width);
        for (size_t i = 0; i < width; i++) {
            EXPECT_NEAR(array_get(&result, t * width + i), right[width + i], tolerance);
            if (x != NULL && t >= s->first && t < s->first + s->own) {
                EXPECT_NEAR(array_get(x, (t - s->first) * width + i), right[i], tolerance);
            }
        }
    }
    free(right);
}

static void fill_partial(const struct setting *s, void *rows)
{
    struct array a = {s->norm.types.activations, s->tokens * s->norm.width, rows};
    array_fill(&a, s->m->rank);
}

// Forward at once, then by its halves, then from x alone.
static void check_forward(const struct setting *s, struct tuttiBoundary *b)
{
    const struct tuttiTypes *types = &s->norm.types;
    bool has_beta = s->norm.kind == TUTTI_LAYER_NORM;
    struct array gamma = on_device(types->weights, s->gamma, s->norm.width);
    struct array beta = on_device(types->weights, s->beta, s->norm.width);
    struct array residual = own_rows(s, types->activations, s->residual);
    struct array x = array_make(types->activations, residual.count);
    void *rows = NULL;
    EXPECT_OK(tuttiBoundaryRows(b, &rows));
    struct tuttiBoundaryInput in = {gamma.data, has_beta ? beta.data : NULL,
                                    s->has_residual ? residual.data : NULL, x.data};
    fill_partial(s, rows);
    EXPECT_OK(tuttiBoundaryForward(b, s->tokens, &in));
    check_result(s, rows, &x);
    fill_partial(s, rows);
    in.x = s->has_residual ? residual.data : NULL; // in place, or not wanted
    EXPECT_OK(tuttiBoundaryForward(b, s->tokens, &in));
    check_result(s, rows, s->has_residual ? &residual : NULL);
    memset(rows, 0xff, s->tokens * s->norm.width * array_bytes(types->activations));
    ranks_barrier(); // nobody gathers into rows that are still being wiped
    EXPECT_OK(tuttiBoundaryGather(b, s->tokens, x.data, gamma.data, in.beta));
    check_result(s, rows, NULL);
    fill_partial(s, rows);
    EXPECT_OK(tuttiBoundaryReduce(b, s->tokens, x.data));
    for (size_t i = 0; i < x.count; i++) {
        EXPECT_NEAR(array_get(&x, i), s->sum[s->first * s->norm.width + i], tolerance_for(s));
    }
    array_free(&gamma);
    array_free(&beta);
    array_free(&residual);
    array_free(&x);
}

// The sum over ranks of a gradient of [width], and whether it was added to `before`.
static void check_sum(const struct setting *s, struct array *gradient, double *values,
                      double before, double tolerance)
{
    EXPECT_OK(ncclAllReduce(gradient->data, gradient->data, gradient->count, gradient->type,
                            ncclSum, s->m->comm, s->m->stream));
    EXPECT_CUDA(cudaStreamSynchronize(s->m->stream));
    for (size_t i = 0; i < gradient->count; i++) {
        double right = before * s->m->size + difference(s, &values[i]);
        EXPECT_NEAR(array_get(gradient, i), right, tolerance * (1 + fabs(right)));
    }
}

static void check_backward(const struct setting *s, struct tuttiBoundary *b)
{
    const struct tuttiTypes *types = &s->norm.types;
    const size_t width = s->norm.width, count = s->tokens * width;
    const ncclDataType_t sums = types->weights == ncclFloat64 ? ncclFloat64 : ncclFloat32;
    bool has_beta = s->norm.kind == TUTTI_LAYER_NORM;
    struct array gamma = on_device(types->weights, s->gamma, width);
    struct array dgamma = array_make(sums, width), dbeta = array_make(sums, width);
    struct array dx = own_rows(s, types->gradients, s->of_x);
    struct array partial = array_ragged(types->gradients, count, 10 + s->m->rank);
    double *all_x = malloc((count + width) * sizeof *all_x);
    for (size_t t = 0; t < s->tokens; t++) {
        right_row(s, t, all_x + t * width, all_x + count);
    }
    struct array x = own_rows(s, types->activations, all_x);
    for (size_t i = 0; i < width; i++) {
        array_set(&dgamma, i, 2);
        array_set(&dbeta, i, 3);
    }
    struct tuttiBoundaryGradients g = {
        x.data,       gamma.data, partial.data, dx.data, dgamma.data, has_beta ? dbeta.data : NULL,
        partial.data, 1};
    EXPECT_OK(tuttiBoundaryBackward(b, s->tokens, &g));
    EXPECT_CUDA(cudaStreamSynchronize(s->m->stream));
    double tolerance = types->activations == ncclFloat64   ? 1e-7
                       : types->activations == ncclFloat32 ? 2e-5
                                                           : 0.05;
    for (size_t i = 0; i < count; i++) { // everybody's, by the sum
        double right = difference(s, &s->sum[i]);
        EXPECT_NEAR(array_get(&partial, i), right, tolerance * (1 + fabs(right)));
        if (i / width >= s->first && i / width < s->first + s->own) {
            EXPECT(array_get(&dx, i - s->first * width) == array_get(&partial, i));
        }
    }
    check_sum(s, &dgamma, s->gamma, 2, tolerance);
    if (has_beta) {
        check_sum(s, &dbeta, s->beta, 3, tolerance);
    }
    free(all_x);
    array_free(&gamma);
    array_free(&dgamma);
    array_free(&dbeta);
    array_free(&dx);
    array_free(&partial);
    array_free(&x);
}

static void check_boundary(struct member *m, enum tuttiNormKind kind,
                           const struct tuttiTypes *types, const size_t sizes[2])
{
    struct tuttiNorm norm = {kind, sizes[1], 1e-3, *types};
    bool can_be_fused = kind == TUTTI_RMS_NORM && types->activations != ncclFloat64;
    for (int way = TUTTI_BOUNDARY_AUTO; way <= TUTTI_BOUNDARY_HALVES; way++) {
        struct tuttiBoundary *b = NULL;
        int fused = -1;
        if (way == TUTTI_BOUNDARY_FUSED && !can_be_fused) {
            EXPECT_EQ(
                tuttiBoundaryCreate(&norm, 8, (enum tuttiBoundaryWay)way, m->comm, m->stream, &b),
                ncclInvalidUsage);
            EXPECT(b == NULL);
            continue;
        }
        if (!EXPECT_OK(tuttiBoundaryCreate(&norm, sizes[0] + 3, (enum tuttiBoundaryWay)way, m->comm,
                                           m->stream, &b))) {
            return;
        }
        EXPECT_OK(tuttiBoundaryIsFused(b, &fused));
        EXPECT_EQ(fused, way != TUTTI_BOUNDARY_HALVES && can_be_fused);
        struct setting s = setting_make(m, kind, types, sizes);
        check_forward(&s, b);
        check_backward(&s, b);
        s.has_residual = false;
        check_forward(&s, b);
        setting_free(&s);
        EXPECT_OK(tuttiBoundaryDestroy(b));
    }
}

static void boundaries(int rank, int size)
{
    static const size_t sizes[][2] = {{5, 6}, {1, 3}, {8, 5}, {0, 2}, {7, 16}};
    const struct tuttiTypes *types[] = {&doubles, &floats, &mixed, &halves};
    struct member m;
    if (member_join(&m, rank, size)) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            check_boundary(&m, TUTTI_RMS_NORM, types[i % 4], sizes[i]);
            check_boundary(&m, TUTTI_RMS_NORM, types[(i + 1) % 4], sizes[i]);
            check_boundary(&m, TUTTI_LAYER_NORM, types[(i + 2) % 4], sizes[i]);
        }
        member_leave(&m);
    }
}

static void boundaries_on_1_to_4(void)
{
    run_ranks(1, boundaries, 60);
    run_ranks(2, boundaries, 60);
    run_thread_ranks(3, boundaries, 60);
    run_thread_ranks(4, boundaries, 60);
}

// One token: the ranks that have none of it give NULL for what has no elements.
static void without_rows(struct member *m, enum tuttiBoundaryWay way)
{
    static const size_t sizes[2] = {1, 4};
    struct setting s = setting_make(m, TUTTI_RMS_NORM, &floats, sizes);
    struct array residual = own_rows(&s, ncclFloat32, s.residual);
    struct array gamma = on_device(ncclFloat32, s.gamma, 4), x = array_make(ncclFloat32, 4);
    struct array partial = array_ragged(ncclFloat32, 4, 10 + m->rank);
    struct array dx = own_rows(&s, ncclFloat32, s.of_x);
    struct tuttiBoundary *b = NULL;
    void *rows = NULL;
    bool is_without = s.own == 0;
    if (EXPECT_OK(tuttiBoundaryCreate(&s.norm, 1, way, m->comm, m->stream, &b))) {
        const struct tuttiBoundaryInput in = {gamma.data, NULL, is_without ? NULL : residual.data,
                                              is_without ? NULL : x.data};
        const struct tuttiBoundaryGradients g = {
            in.x, gamma.data, partial.data, is_without ? NULL : dx.data,
            NULL, NULL,       partial.data, 1};
        EXPECT_OK(tuttiBoundaryRows(b, &rows));
        fill_partial(&s, rows);
        EXPECT_OK(tuttiBoundaryForward(b, 1, &in));
        check_result(&s, rows, is_without ? NULL : &x);
        EXPECT_OK(tuttiBoundaryBackward(b, 1, &g));
        EXPECT_CUDA(cudaStreamSynchronize(m->stream));
        for (size_t i = 0; i < 4; i++) {
            double right = difference(&s, &s.sum[i]);
            EXPECT_NEAR(array_get(&partial, i), right, 2e-5 * (1 + fabs(right)));
        }
        EXPECT_EQ(member_state(m), ncclSuccess);
        EXPECT_OK(tuttiBoundaryDestroy(b));
    }
    struct array *all[] = {&residual, &gamma, &x, &partial, &dx};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        array_free(all[i]);
    }
    setting_free(&s);
}

static void one_token(int rank, int size)
{
    struct member m;
    if (member_join(&m, rank, size)) {
        without_rows(&m, TUTTI_BOUNDARY_HALVES);
        without_rows(&m, TUTTI_BOUNDARY_FUSED);
        member_leave(&m);
    }
}

static void ranks_without_rows(void)
{
    run_ranks(2, one_token, 30);
    run_thread_ranks(3, one_token, 30);
}

// Ranks of several hosts: the halves, and a refusal that says why.
static void on_two_hosts(int rank, int size)
{
    static const size_t sizes[2] = {5, 4};
    struct tuttiNorm norm = {TUTTI_RMS_NORM, 4, 1e-3, floats};
    struct tuttiBoundary *b = NULL;
    struct member m;
    int fused = -1;
    if (!member_join(&m, rank, size)) {
        return;
    }
    EXPECT_EQ(tuttiBoundaryCreate(&norm, 5, TUTTI_BOUNDARY_FUSED, m.comm, m.stream, &b),
              ncclInvalidUsage);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "not all ranks are in one LSA team");
    if (EXPECT_OK(tuttiBoundaryCreate(&norm, 5, TUTTI_BOUNDARY_AUTO, m.comm, m.stream, &b))) {
        EXPECT_OK(tuttiBoundaryIsFused(b, &fused));
        EXPECT_EQ(fused, 0);
        struct setting s = setting_make(&m, TUTTI_RMS_NORM, &floats, sizes);
        check_forward(&s, b);
        check_backward(&s, b);
        setting_free(&s);
        EXPECT_OK(tuttiBoundaryDestroy(b));
    }
    member_leave(&m);
}

static void boundary_between_hosts(void)
{
    setenv("TUTTI_FAKE_HOSTS", "1,2", 1);
    run_ranks(3, on_two_hosts, 30);
    unsetenv("TUTTI_FAKE_HOSTS");
}

int main(void)
{
    RUN(shared_out_on_1_to_5);
    RUN(boundaries_on_1_to_4);
    RUN(ranks_without_rows);
    RUN(boundary_between_hosts);
    return expect_result();
}
