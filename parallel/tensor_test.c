// Column- and row-parallel layers on 1 to 4 ranks against one rank's sums in double.
// SPDX-License-Identifier: Apache-2.0
#include "layers_for_tests.h"
#include "member.h"
#include "tutti_parallel/tensor.h"

#include <stdio.h>
#include <tutti.h>
#include <unistd.h>

static const struct tuttiTypes doubles = {ncclFloat64, ncclFloat64, ncclFloat64};
static const struct tuttiTypes floats = {ncclFloat32, ncclFloat32, ncclFloat32};
static const struct tuttiTypes mixed = {ncclBfloat16, ncclBfloat16, ncclFloat32};
static const struct tuttiTypes halves = {ncclBfloat16, ncclFloat32, ncclBfloat16};

static ncclDataType_t dw_type(const struct tuttiTypes *types)
{
    return types->activations == ncclFloat64 ? ncclFloat64 : ncclFloat32;
}

// A layer, all of it on every rank, and the rank's part.
struct whole {
    struct member *m;
    struct tuttiLinear layer;
    size_t tokens, first, own;
    struct array x, weight, dy;   // [tokens x in], [out x in], [tokens x out]
    struct array part, dw;        // the own part of weight, and its gradient
    struct array part_x, part_dy; // the own columns of x (row-parallel) and dy (column-parallel)
    bool is_column;
};

// The own rows or columns of [rows x columns].
static void take_part(const struct array *from, size_t columns, bool of_rows, size_t first,
                      size_t count, struct array *to)
{
    size_t rows = from->count / columns;
    for (size_t i = 0; i < to->count; i++) {
        size_t row = of_rows ? first + i / columns : i / (count == 0 ? 1 : count);
        size_t column = of_rows ? i % columns : first + i % (count == 0 ? 1 : count);
        if (row < rows) {
            array_set(to, i, array_get(from, row * columns + column));
        }
    }
}

static struct whole whole_make(struct member *m, bool is_column, const struct tuttiTypes *types,
                               const size_t sizes[3])
{
    size_t tokens = sizes[0], in = sizes[1], out = sizes[2];
    struct whole w = {m,        {in, out, *types, m->comm, m->stream},
                      tokens,   0,
                      0,        {0},
                      {0},      {0},
                      {0},      {0},
                      {0},      {0},
                      is_column};
    part_by_counting(is_column ? out : in, m->size, m->rank, &w.first, &w.own);
    w.x = array_ragged(types->activations, tokens * in, 1);
    w.weight = array_ragged(types->weights, out * in, 2);
    w.dy = array_ragged(types->gradients, tokens * out, 3);
    w.part = array_make(types->weights, w.own * (is_column ? in : out));
    w.dw = array_make(dw_type(types), w.part.count);
    w.part_x = array_make(types->activations, tokens * w.own);
    w.part_dy = array_make(types->gradients, tokens * w.own);
    take_part(&w.weight, in, is_column, w.first, w.own, &w.part);
    take_part(is_column ? &w.dy : &w.x, is_column ? out : in, false, w.first, w.own,
              is_column ? &w.part_dy : &w.part_x);
    for (size_t i = 0; i < w.dw.count; i++) {
        array_set(&w.dw, i, 0.5); // that the gradient is added to
    }
    return w;
}

static void whole_free(struct whole *w)
{
    struct array *all[] = {&w->x, &w->weight, &w->dy, &w->part, &w->dw, &w->part_x, &w->part_dy};
    EXPECT_CUDA(cudaStreamSynchronize(w->m->stream));
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        array_free(all[i]);
    }
}

static double right_y(const struct whole *w, size_t token, size_t o)
{
    double sum = 0;
    for (size_t i = 0; i < w->layer.in; i++) {
        sum +=
            array_get(&w->x, token * w->layer.in + i) * array_get(&w->weight, o * w->layer.in + i);
    }
    return sum;
}

static double right_dx(const struct whole *w, size_t token, size_t i)
{
    double sum = 0;
    for (size_t o = 0; o < w->layer.out; o++) {
        sum += array_get(&w->dy, token * w->layer.out + o) *
               array_get(&w->weight, o * w->layer.in + i);
    }
    return sum;
}

static double right_dw(const struct whole *w, size_t o, size_t i)
{
    double sum = 0.5;
    for (size_t t = 0; t < w->tokens; t++) {
        sum += array_get(&w->dy, t * w->layer.out + o) * array_get(&w->x, t * w->layer.in + i);
    }
    return sum;
}

// got: [tokens x count], the columns from `first` on of what `right` says.
static void check_columns(const struct whole *w, const struct array *got, size_t first,
                          size_t count, double (*right)(const struct whole *, size_t, size_t),
                          double factor)
{
    EXPECT_CUDA(cudaStreamSynchronize(w->m->stream));
    double tolerance = tolerance_of(got->type, w->layer.in + w->layer.out);
    for (size_t i = 0; i < w->tokens * count; i++) {
        if (!EXPECT_NEAR(array_get(got, i), factor * right(w, i / count, first + i % count),
                         tolerance)) {
            return;
        }
    }
}

static void check_dw(const struct whole *w)
{
    const size_t in = w->layer.in, own = w->own;
    double tolerance =
        w->layer.types.gradients == ncclBfloat16 ? 1e-5 : tolerance_of(w->dw.type, w->tokens + 8);
    for (size_t i = 0; i < w->dw.count; i++) {
        size_t o = w->is_column ? w->first + i / in : i / own;
        size_t column = w->is_column ? i % in : w->first + i % own;
        if (!EXPECT_NEAR(array_get(&w->dw, i), right_dw(w, o, column), tolerance)) {
            return;
        }
    }
}

// ---- Column-parallel ----------------------------------------------------------------------------

static void column_plain(struct whole *w)
{
    struct array y = array_make(w->layer.types.activations, w->tokens * w->own);
    struct array dx = array_make(w->layer.types.gradients, w->tokens * w->layer.in);
    EXPECT_OK(tuttiColumnLinearForward(&w->layer, 0, w->tokens, w->x.data, w->part.data, y.data));
    check_columns(w, &y, w->first, w->own, right_y, 1);
    struct tuttiLinearGradients g = {w->x.data, w->part.data, w->part_dy.data, dx.data, w->dw.data};
    EXPECT_OK(tuttiColumnLinearBackward(&w->layer, 0, w->tokens, &g));
    check_columns(w, &dx, 0, w->layer.in, right_dx, 1);
    check_dw(w);
    // Twice into the same dx, as of two layers with one input, reduced once.
    g.dw = NULL;
    EXPECT_OK(tuttiColumnLinearBackward(&w->layer, TUTTI_LEAVE_PARTIAL, w->tokens, &g));
    EXPECT_OK(tuttiColumnLinearBackward(&w->layer, TUTTI_ADD_TO_DX, w->tokens, &g));
    check_columns(w, &dx, 0, w->layer.in, right_dx, 2);
    // Nothing wanted, and dw alone without weights.
    g = (struct tuttiLinearGradients){NULL, NULL, w->part_dy.data, NULL, NULL};
    EXPECT_OK(tuttiColumnLinearBackward(&w->layer, 0, w->tokens, &g));
    array_free(&y);
    array_free(&dx);
}

static void column_gathered(struct whole *w)
{
    struct array y = array_make(w->layer.types.activations, w->tokens * w->layer.out);
    struct array dx = array_make(w->layer.types.gradients, w->tokens * w->layer.in);
    struct array x = array_make(w->x.type, w->x.count);
    array_fill(&x, w->m->rank == 0 ? 1 : 77); // rank 0's counts
    EXPECT_OK(tuttiColumnLinearForward(&w->layer, TUTTI_BROADCAST_INPUT | TUTTI_GATHER_OUTPUT,
                                       w->tokens, x.data, w->part.data, y.data));
    check_columns(w, &y, 0, w->layer.out, right_y, 1);
    EXPECT_EQ(memcmp(x.data, w->x.data, x.count * array_bytes(x.type)), 0);
    struct tuttiLinearGradients g = {x.data, w->part.data, w->dy.data, dx.data, w->dw.data};
    EXPECT_OK(tuttiColumnLinearBackward(&w->layer, TUTTI_GATHER_OUTPUT, w->tokens, &g));
    check_columns(w, &dx, 0, w->layer.in, right_dx, 1);
    check_dw(w);
    array_free(&y);
    array_free(&dx);
    array_free(&x);
}

// ---- Row-parallel -------------------------------------------------------------------------------

static void row_plain(struct whole *w)
{
    struct array y = array_make(w->layer.types.activations, w->tokens * w->layer.out);
    struct array dx = array_make(w->layer.types.gradients, w->tokens * w->own);
    EXPECT_OK(tuttiRowLinearForward(&w->layer, 0, w->tokens, w->part_x.data, w->part.data, y.data));
    check_columns(w, &y, 0, w->layer.out, right_y, 1);
    EXPECT_OK(tuttiRowLinearForward(&w->layer, TUTTI_LEAVE_PARTIAL, w->tokens, w->part_x.data,
                                    w->part.data, y.data));
    EXPECT_OK(ncclAllReduce(y.data, y.data, y.count, y.type, ncclSum, w->m->comm, w->m->stream));
    check_columns(w, &y, 0, w->layer.out, right_y, 1);
    struct tuttiLinearGradients g = {w->part_x.data, w->part.data, w->dy.data, dx.data, w->dw.data};
    EXPECT_OK(tuttiRowLinearBackward(&w->layer, 0, w->tokens, &g));
    check_columns(w, &dx, w->first, w->own, right_dx, 1);
    check_dw(w);
    g.dw = NULL;
    EXPECT_OK(tuttiRowLinearBackward(&w->layer, TUTTI_ADD_TO_DX, w->tokens, &g));
    check_columns(w, &dx, w->first, w->own, right_dx, 2);
    array_free(&y);
    array_free(&dx);
}

static void row_split(struct whole *w)
{
    struct array y = array_make(w->layer.types.activations, w->tokens * w->layer.out);
    struct array dx = array_make(w->layer.types.gradients, w->tokens * w->layer.in);
    EXPECT_OK(tuttiRowLinearForward(&w->layer, TUTTI_SPLIT_INPUT, w->tokens, w->x.data,
                                    w->part.data, y.data));
    check_columns(w, &y, 0, w->layer.out, right_y, 1);
    struct tuttiLinearGradients g = {w->x.data, w->part.data, w->dy.data, dx.data, w->dw.data};
    EXPECT_OK(tuttiRowLinearBackward(&w->layer, TUTTI_SPLIT_INPUT, w->tokens, &g));
    check_columns(w, &dx, 0, w->layer.in, right_dx, 1);
    check_dw(w);
    array_free(&y);
    array_free(&dx);
}

static void layers(int rank, int size)
{
    static const size_t sizes[][3] = {{5, 10, 7}, {1, 3, 3}, {0, 4, 5}, {33, 1, 2}, {6, 65, 40}};
    const struct tuttiTypes *types[] = {&doubles, &floats, &mixed, &halves};
    struct member m;
    if (member_join(&m, rank, size)) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            for (int kind = 0; kind < 4; kind++) {
                struct whole w = whole_make(&m, kind < 2, types[(i + (size_t)kind) % 4], sizes[i]);
                void (*const run[])(struct whole *) = {column_plain, column_gathered, row_plain,
                                                       row_split};
                run[kind](&w);
                whole_free(&w);
            }
        }
        struct whole w = whole_make(&m, true, &doubles, sizes[0]); // in double once more, all
        column_plain(&w);
        whole_free(&w);
        w = whole_make(&m, false, &doubles, sizes[0]);
        row_plain(&w);
        whole_free(&w);
        member_leave(&m);
    }
}

static void layers_on_1(void)
{
    run_ranks(1, layers, 60);
}

static void layers_on_2_processes(void)
{
    run_ranks(2, layers, 60);
}

static void layers_on_3(void)
{
    run_thread_ranks(3, layers, 60);
}

static void layers_on_4(void)
{
    run_thread_ranks(4, layers, 60);
}

// ---- Two all-reduces per block ------------------------------------------------------------------

// How many operations of a communicator its record has, and how many are of that name.
static int operations(struct member *m, const char *name, int *all)
{
    char path[64], line[512];
    int count = 0, latest = 0, number;
    (void)snprintf(path, sizeof path, "/tmp/tensor_test.%d", (int)getpid());
    (void)unlink(path);
    EXPECT_OK(tuttiDumpState(m->comm, path));
    FILE *file = fopen(path, "r");
    if (!EXPECT(file != NULL)) {
        return -1;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        const char *mark = strchr(line, '#');
        if (mark != NULL && sscanf(mark, "#%d", &number) == 1) {
            latest = number > latest ? number : latest;
            count += strstr(mark, name) != NULL;
        }
    }
    (void)fclose(file);
    (void)unlink(path);
    *all = latest;
    return count;
}

enum { TOKENS = 6, WIDTH = 12, INNER = 20 };

// Query, key, value, a sum of them in place of attention, output; gate, up, a product, down.
struct block {
    struct tuttiLinear wide, narrow, up, down;
    struct array x, y, part[3], dx, weight, dw;
};

static void block_forward(struct block *b)
{
    for (int i = 0; i < 3; i++) {
        EXPECT_OK(tuttiColumnLinearForward(&b->wide, 0, TOKENS, b->x.data, b->weight.data,
                                           b->part[i].data));
    }
    EXPECT_OK(
        tuttiRowLinearForward(&b->narrow, 0, TOKENS, b->part[0].data, b->weight.data, b->y.data));
    for (int i = 0; i < 2; i++) {
        EXPECT_OK(tuttiColumnLinearForward(&b->up, 0, TOKENS, b->y.data, b->weight.data,
                                           b->part[i].data));
    }
    EXPECT_OK(
        tuttiRowLinearForward(&b->down, 0, TOKENS, b->part[0].data, b->weight.data, b->x.data));
}

static void block_backward(struct block *b)
{
    struct tuttiLinearGradients g = {b->part[0].data, b->weight.data, b->y.data, b->part[1].data,
                                     b->dw.data};
    EXPECT_OK(tuttiRowLinearBackward(&b->down, 0, TOKENS, &g));
    g = (struct tuttiLinearGradients){b->x.data, b->weight.data, b->part[1].data, b->dx.data,
                                      b->dw.data};
    EXPECT_OK(tuttiColumnLinearBackward(&b->up, TUTTI_LEAVE_PARTIAL, TOKENS, &g));
    EXPECT_OK(tuttiColumnLinearBackward(&b->up, TUTTI_ADD_TO_DX, TOKENS, &g));
    g = (struct tuttiLinearGradients){b->part[0].data, b->weight.data, b->dx.data, b->part[1].data,
                                      b->dw.data};
    EXPECT_OK(tuttiRowLinearBackward(&b->narrow, 0, TOKENS, &g));
    g = (struct tuttiLinearGradients){b->x.data, b->weight.data, b->part[1].data, b->dx.data,
                                      b->dw.data};
    EXPECT_OK(tuttiColumnLinearBackward(&b->wide, TUTTI_LEAVE_PARTIAL, TOKENS, &g));
    EXPECT_OK(
        tuttiColumnLinearBackward(&b->wide, TUTTI_LEAVE_PARTIAL | TUTTI_ADD_TO_DX, TOKENS, &g));
    EXPECT_OK(tuttiColumnLinearBackward(&b->wide, TUTTI_ADD_TO_DX, TOKENS, &g));
}

static void counted(int rank, int size)
{
    struct member m;
    if (!member_join(&m, rank, size)) {
        return;
    }
    struct block b = {{WIDTH, WIDTH, floats, m.comm, m.stream},
                      {WIDTH, WIDTH, floats, m.comm, m.stream},
                      {WIDTH, INNER, floats, m.comm, m.stream},
                      {INNER, WIDTH, floats, m.comm, m.stream},
                      array_ragged(ncclFloat32, TOKENS * WIDTH, 1),
                      array_make(ncclFloat32, TOKENS * WIDTH),
                      {array_make(ncclFloat32, TOKENS * INNER),
                       array_make(ncclFloat32, TOKENS * INNER),
                       array_make(ncclFloat32, TOKENS * INNER)},
                      array_make(ncclFloat32, TOKENS * WIDTH),
                      array_ragged(ncclFloat32, WIDTH * INNER, 2),
                      array_ragged(ncclFloat32, WIDTH * INNER, 3)};
    int all = -1;
    EXPECT_EQ(operations(&m, "AllReduce", &all), 0);
    EXPECT_EQ(all, 0);
    block_forward(&b);
    EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    EXPECT_EQ(operations(&m, "AllReduce", &all), 2);
    EXPECT_EQ(all, 2);
    block_backward(&b);
    EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    EXPECT_EQ(operations(&m, "AllReduce", &all), 4);
    EXPECT_EQ(all, 4);
    struct array *arrays[] = {&b.x,       &b.y,  &b.part[0], &b.part[1],
                              &b.part[2], &b.dx, &b.weight,  &b.dw};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        array_free(arrays[i]);
    }
    member_leave(&m);
}

static void two_all_reduces_per_block(void)
{
    run_ranks(2, counted, 30);
}

// ---- What is refused ----------------------------------------------------------------------------

static void wrong_calls(int rank, int size)
{
    struct member m;
    if (!member_join(&m, rank, size)) {
        return;
    }
    float f[16] = {0};
    struct tuttiLinear good = {2, 2, floats, m.comm, m.stream}, bad = good;
    struct tuttiLinearGradients g = {f, f, f, f, f};
    refused(tuttiColumnLinearForward(NULL, 0, 1, f, f, f), "layer is NULL");
    refused(tuttiColumnLinearForward(&good, 0, 1, NULL, f, f),
            "tuttiColumnLinearForward: rank 0: x is NULL, must point to 2");
    refused(tuttiColumnLinearForward(&good, 0, 1, f, NULL, f), "weight is NULL");
    refused(tuttiColumnLinearForward(&good, 0, 1, f, f, NULL), "y is NULL");
    refused(tuttiColumnLinearForward(&good, TUTTI_SPLIT_INPUT, 1, f, f, f), "options is 4");
    refused(tuttiColumnLinearBackward(&good, 0, 1, NULL), "gradients is NULL");
    refused(tuttiColumnLinearBackward(&good, 64, 1, &g), "options is 64");
    refused(tuttiRowLinearForward(&good, TUTTI_ADD_TO_DX, 1, f, f, f), "options is 16");
    refused(tuttiRowLinearBackward(&good, TUTTI_SPLIT_INPUT | TUTTI_ADD_TO_DX, 1, &g), "not both");
    refused(tuttiRowLinearForward(&good, 0, (size_t)1 << 61, f, f, f), "address space");
    g.x = NULL;
    refused(tuttiRowLinearBackward(&good, 0, 1, &g), "x is NULL");
    g = (struct tuttiLinearGradients){f, NULL, f, f, f};
    refused(tuttiRowLinearBackward(&good, 0, 1, &g), "weight is NULL");
    g = (struct tuttiLinearGradients){f, f, NULL, f, f};
    refused(tuttiColumnLinearBackward(&good, 0, 1, &g), "dy is NULL");
    bad.in = 0;
    refused(tuttiRowLinearForward(&bad, 0, 1, f, f, f),
            "tuttiRowLinearForward: rank 0: in is 0 and out 2");
    bad = good;
    bad.types.weights = ncclFloat16;
    refused(tuttiRowLinearForward(&bad, 0, 1, f, f, f), "types.weights is 6");
    bad.types.weights = ncclFloat64;
    refused(tuttiRowLinearForward(&bad, 0, 1, f, f, f), "must be all three or none");
    bad = good;
    bad.comm = NULL;
    EXPECT_EQ(tuttiRowLinearForward(&bad, 0, 1, f, f, f), ncclInvalidArgument);
    EXPECT_EQ(member_state(&m), ncclSuccess); // nothing was begun
    member_leave(&m);
}

// Ranks that have other numbers of tokens: what waits for a collective by itself says so, and so
// does the next layer of the communicator.
static void other_tokens(int rank, int size)
{
    struct member m;
    if (!member_join(&m, rank, size)) {
        return;
    }
    struct whole w = whole_make(&m, true, &floats, (const size_t[]){rank == 1 ? 3 : 4, 5, 6});
    struct array y = array_make(ncclFloat32, w.tokens * 6);
    EXPECT_EQ(tuttiColumnLinearForward(&w.layer, TUTTI_GATHER_OUTPUT, w.tokens, w.x.data,
                                       w.part.data, y.data),
              ncclInvalidUsage);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "tuttiColumnLinearForward: rank ");
    EXPECT_CONTAINS(ncclGetLastError(NULL), "the communicator has failed: ");
    EXPECT_EQ(tuttiColumnLinearForward(&w.layer, 0, w.tokens, w.x.data, w.part.data, y.data),
              ncclInvalidUsage);
    ranks_barrier();
    EXPECT_OK(ncclCommAbort(m.comm));
    m.comm = NULL;
    array_free(&y);
    whole_free(&w);
    member_leave(&m);
}

static void tokens_that_differ(void)
{
    run_thread_ranks(3, other_tokens, 30);
    run_ranks(2, other_tokens, 30);
}

static void bad_arguments(void)
{
    run_ranks(1, wrong_calls, 30);
}

int main(void)
{
    RUN(layers_on_1);
    RUN(layers_on_2_processes);
    RUN(layers_on_3);
    RUN(layers_on_4);
    RUN(two_all_reduces_per_block);
    RUN(bad_arguments);
    RUN(tokens_that_differ);
    return expect_result();
}
