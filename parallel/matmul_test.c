// Products of matrices against sums in double, by the machine's BLAS and by our own loop.
// SPDX-License-Identifier: Apache-2.0
#include "layers_for_tests.h"
#include "matmul_tiles.h"
#include "ranks.h"
#include "tutti_parallel/matmul.h"

#include <limits.h>
#include <stdio.h>

// Where element (row, column) of op(X) lies.
static size_t at(int transposed, size_t stride, size_t row, size_t column)
{
    return transposed ? column * stride + row : row * stride + column;
}

struct operands {
    struct array a, b, c, before; // before: c as it was
};

static struct operands make(const struct tuttiProduct *p)
{
    size_t rows_a = p->transposeA ? p->inner : p->rows;
    size_t rows_b = p->transposeB ? p->columns : p->inner;
    struct operands o = {array_ragged(p->typeA, rows_a * p->strideA, 1),
                         array_ragged(p->typeB, rows_b * p->strideB, 2),
                         array_ragged(p->typeC, p->rows * p->strideC, 3),
                         array_ragged(p->typeC, p->rows * p->strideC, 3)};
    return o;
}

static void release(struct operands *o)
{
    array_free(&o->a);
    array_free(&o->b);
    array_free(&o->c);
    array_free(&o->before);
}

// The number of elements that are wrong, and says where the first is.
static int wrong(const struct tuttiProduct *p, const struct operands *o)
{
    int count = 0;
    for (size_t i = 0; i < p->rows * p->strideC; i++) {
        size_t row = i / p->strideC, column = i % p->strideC;
        double right = array_get(&o->before, i), tolerance = 0; // between rows nothing changes
        if (column < p->columns) {
            double sum = 0;
            for (size_t k = 0; k < p->inner; k++) {
                sum += array_get(&o->a, at(p->transposeA, p->strideA, row, k)) *
                       array_get(&o->b, at(p->transposeB, p->strideB, k, column));
            }
            right = p->alpha * sum + (p->beta == 0 ? 0 : p->beta * right);
            tolerance = p->typeC == ncclBfloat16 ? fabs(right) / 256 + 3e-7 * (double)(p->inner + 1)
                                                 : tolerance_of(p->typeC, p->inner);
        }
        if (!(fabs(array_get(&o->c, i) - right) <= tolerance)) {
            if (count++ == 0) {
                fprintf(stderr, "[%zu][%zu] is %.9g, should be %.9g\n", row, column,
                        array_get(&o->c, i), right);
            }
        }
    }
    return count;
}

static void check(const struct tuttiProduct *p)
{
    struct operands o = make(p);
    EXPECT_OK(tuttiMatmul(p, o.a.data, o.b.data, o.c.data));
    int bad = wrong(p, &o);
    if (bad > 0) {
        fprintf(stderr, "%zu x %zu x %zu, transposed %d %d, types %d %d %d, strides %zu %zu %zu\n",
                p->rows, p->columns, p->inner, p->transposeA, p->transposeB, (int)p->typeA,
                (int)p->typeB, (int)p->typeC, p->strideA, p->strideB, p->strideC);
    }
    EXPECT_EQ(bad, 0);
    release(&o);
}

static struct tuttiProduct product_of(size_t rows, size_t columns, size_t inner, int transposes,
                                      size_t gap)
{
    struct tuttiProduct p = TUTTI_PRODUCT_INITIALIZER;
    p.rows = rows;
    p.columns = columns;
    p.inner = inner;
    p.transposeA = transposes & 1;
    p.transposeB = transposes >> 1;
    p.strideA = (p.transposeA ? rows : inner) + gap;
    p.strideB = (p.transposeB ? inner : columns) + gap;
    p.strideC = columns + gap;
    return p;
}

static const ncclDataType_t types[][3] = {
    {ncclFloat32, ncclFloat32, ncclFloat32},    {ncclFloat64, ncclFloat64, ncclFloat64},
    {ncclBfloat16, ncclBfloat16, ncclBfloat16}, {ncclBfloat16, ncclBfloat16, ncclFloat32},
    {ncclFloat32, ncclBfloat16, ncclFloat32},   {ncclBfloat16, ncclFloat32, ncclBfloat16}};

static void check_types(struct tuttiProduct p)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        p.typeA = types[i][0];
        p.typeB = types[i][1];
        p.typeC = types[i][2];
        check(&p);
    }
}

static void sizes(void)
{
    static const size_t shapes[][3] = {{1, 1, 1},  {4, 16, 7},  {5, 17, 3},    {3, 1, 40},
                                       {1, 33, 2}, {64, 8, 64}, {130, 31, 65}, {0, 3, 4},
                                       {3, 0, 4},  {3, 4, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (int transposes = 0; transposes < 4; transposes++) {
            struct tuttiProduct p = product_of(shapes[i][0], shapes[i][1], shapes[i][2], transposes,
                                               (i + (size_t)transposes) % 3);
            p.alpha = i % 2 == 0 ? 1 : -0.5;
            p.beta = transposes == 0 ? 0 : transposes == 1 ? 1 : 0.25;
            check_types(p);
        }
    }
}

// More than one block in each direction.
static void several_blocks(void)
{
    struct tuttiProduct p = product_of(259, 261, 258, 2, 1);
    p.beta = 1;
    check(&p);
    p.typeA = ncclBfloat16;
    check(&p);
    p = product_of(258, 3, 515, 3, 0);
    p.typeC = ncclBfloat16;
    check(&p);
    p.typeA = p.typeB = p.typeC = ncclFloat64;
    check(&p);
}

// beta 0 does not read C; strides 0 are those without gaps; a stride beyond int.
static void not_read(void)
{
    struct tuttiProduct p = product_of(6, 5, 4, 0, 0);
    struct operands o = make(&p);
    for (size_t i = 0; i < o.c.count; i++) {
        array_set(&o.c, i, NAN);
    }
    p.strideA = p.strideB = p.strideC = 0;
    EXPECT_OK(tuttiMatmul(&p, o.a.data, o.b.data, o.c.data));
    p = product_of(6, 5, 4, 0, 0);
    EXPECT_EQ(wrong(&p, &o), 0);
    release(&o);

    p = product_of(1, 5, 4, 0, 0);
    o = make(&p);
    p.strideA = p.strideC = (size_t)INT_MAX + 3; // of the one row there is
    EXPECT_OK(tuttiMatmul(&p, o.a.data, o.b.data, o.c.data));
    p = product_of(1, 5, 4, 0, 0);
    EXPECT_EQ(wrong(&p, &o), 0);
    release(&o);
}

static void nans_spread(void)
{
    struct tuttiProduct p = product_of(2, 2, 2, 0, 0);
    struct operands o = make(&p);
    array_set(&o.a, 0, NAN);
    EXPECT_OK(tuttiMatmul(&p, o.a.data, o.b.data, o.c.data));
    EXPECT(isnan(array_get(&o.c, 0)) && isnan(array_get(&o.c, 1)));
    EXPECT(!isnan(array_get(&o.c, 2)));
    p.typeC = ncclBfloat16;
    EXPECT_OK(tuttiMatmul(&p, o.a.data, o.b.data, o.c.data));
    o.c.type = ncclBfloat16;
    EXPECT(isnan(array_get(&o.c, 0)) && !isnan(array_get(&o.c, 3)));
    release(&o);
}

// To the nearest bf16, of two the even one; what is beyond the largest is infinite.
static void bf16_results(void)
{
    enum { NUMBERS = 500 };
    const double special[] = {1 + 1.0 / 256, 1 + 3.0 / 256, -1 - 1.0 / 256, 0, 3e-39, 3.38e38};
    struct tuttiProduct p = product_of(NUMBERS, 1, 1, 0, 0);
    p.typeC = ncclBfloat16;
    struct operands o = make(&p);
    for (size_t i = 0; i < sizeof special / sizeof special[0]; i++) {
        array_set(&o.a, i, special[i]);
    }
    array_set(&o.a, NUMBERS - 1, 3.4e38);
    array_set(&o.b, 0, 1);
    EXPECT_OK(tuttiMatmul(&p, o.a.data, o.b.data, o.c.data));
    const uint16_t *c = o.c.data;
    for (size_t i = 0; i < NUMBERS - 1; i++) {
        EXPECT_EQ(c[i], nearest_bf16(array_get(&o.a, i)));
    }
    EXPECT_EQ(c[NUMBERS - 1], 0x7f80);
    release(&o);
}

static void bad_arguments(void)
{
    float a[16] = {0}, b[16] = {0}, c[16] = {0};
    struct tuttiProduct good = product_of(2, 3, 4, 0, 0), p = good;
    EXPECT_OK(tuttiMatmul(&good, a, b, c));
    refused(tuttiMatmul(NULL, a, b, c), "product is NULL");
    refused(tuttiMatmul(&good, NULL, b, c), "A is NULL, must point to 8 elements");
    refused(tuttiMatmul(&good, a, NULL, c), "B is NULL");
    refused(tuttiMatmul(&good, a, b, NULL), "C is NULL");
    p.typeA = ncclInt32;
    refused(tuttiMatmul(&p, a, b, c), "typeA is 2");
    p = good;
    p.typeC = ncclFloat64;
    refused(tuttiMatmul(&p, a, b, c), "must be all three or none");
    p = good;
    p.strideB = 2;
    refused(tuttiMatmul(&p, a, b, c), "strideB is 2, must be 0 or at least 3");
    p = good;
    p.rows = (size_t)1 << 62;
    refused(tuttiMatmul(&p, a, b, c), "more than an address space holds");
    EXPECT_EQ(tuttiMatmulLibrary(NULL), ncclInvalidArgument);
}

// Threads that compute at once get the same bits.
static void same_in_every_thread(int rank, int size)
{
    struct tuttiProduct p = product_of(37, 64, 65, 2, 0);
    struct operands o = make(&p);
    unsigned long long hash = 0, all[8];
    for (int i = 0; i < 20; i++) {
        EXPECT_OK(tuttiMatmul(&p, o.a.data, o.b.data, o.c.data));
    }
    for (size_t i = 0; i < o.c.count; i++) {
        uint32_t bits;
        memcpy(&bits, (float *)o.c.data + i, sizeof bits);
        hash = hash * 31 + bits;
    }
    EXPECT_EQ(wrong(&p, &o), 0);
    ranks_gather(&hash, all, sizeof hash);
    for (int r = 0; r < size; r++) {
        EXPECT_EQ(all[r] == hash, 1);
    }
    (void)rank;
    release(&o);
}

static void everything(int rank, int size)
{
    const char *name = NULL, *wanted = getenv("TUTTI_TEST_LIBRARY");
    (void)rank;
    (void)size;
    EXPECT_OK(tuttiMatmulLibrary(&name));
    if (wanted != NULL) {
        EXPECT_STR(name, wanted);
    }
    fprintf(stderr, "products by %s\n", name);
    sizes();
    several_blocks();
    not_read();
    nans_spread();
    bf16_results();
    bad_arguments();
}

// In processes of their own: the library is chosen once.
static void by_the_library_there_is(void)
{
    run_ranks(1, everything, 60);
}

static void by_our_own_loop(void)
{
    setenv("TUTTI_BLAS", "none", 1);
    setenv("TUTTI_TEST_LIBRARY", "none", 1);
    run_ranks(1, everything, 60);
    unsetenv("TUTTI_BLAS");
    unsetenv("TUTTI_TEST_LIBRARY");
}

static void refuses_the_library(int rank, int size)
{
    float number = 1;
    struct tuttiProduct p = product_of(1, 1, 1, 0, 0);
    const char *name = NULL;
    (void)rank;
    (void)size;
    EXPECT_EQ(tuttiMatmul(&p, &number, &number, &number), ncclInvalidUsage);
    EXPECT_CONTAINS(ncclGetLastError(NULL), getenv("TUTTI_BLAS"));
    EXPECT_CONTAINS(ncclGetLastError(NULL), "tuttiMatmul: TUTTI_BLAS is");
    EXPECT_EQ(tuttiMatmulLibrary(&name), ncclInvalidUsage);
}

static void a_library_that_is_none(void)
{
    setenv("TUTTI_BLAS", "libno-such-library.so", 1);
    run_ranks(1, refuses_the_library, 30);
    setenv("TUTTI_BLAS", "libm.so.6", 1); // is there, and has no products
    run_ranks(1, refuses_the_library, 30);
    unsetenv("TUTTI_BLAS");
}

// The innermost loop for every processor, which those with wider vectors do not take.
static void check_tiles(const struct parallel_tiles *tiles, size_t inner)
{
    enum { MOST_INNER = 9 };
    const size_t columns[2] = {tiles->columns_float, tiles->columns_double};
    float a[MOST_INNER * TILE_ROWS], b[MOST_INNER * TILE_COLUMNS_MOST];
    double a_wide[MOST_INNER * TILE_ROWS], b_wide[MOST_INNER * TILE_COLUMNS_MOST];
    float got[TILE_ROWS * TILE_COLUMNS_MOST];
    double got_wide[TILE_ROWS * TILE_COLUMNS_MOST];
    for (size_t i = 0; i < inner * TILE_ROWS; i++) {
        a_wide[i] = (double)(i % 11) - 5;
        a[i] = (float)a_wide[i];
    }
    for (size_t i = 0; i < inner * TILE_COLUMNS_MOST; i++) {
        b_wide[i] = (double)(i % 13) - 6;
        b[i] = (float)b_wide[i];
    }
    tiles->of_float(inner, a, b, got);
    tiles->of_double(inner, a_wide, b_wide, got_wide);
    for (size_t k = 0; k < 2; k++) {
        EXPECT(columns[k] > 0 && columns[k] <= TILE_COLUMNS_MOST);
        for (size_t i = 0; i < TILE_ROWS * columns[k]; i++) {
            double sum = 0; // of whole numbers: exact
            for (size_t p = 0; p < inner; p++) {
                sum += a_wide[p * TILE_ROWS + i / columns[k]] *
                       b_wide[p * columns[k] + i % columns[k]];
            }
            EXPECT_NEAR(k == 0 ? (double)got[i] : got_wide[i], sum, 0);
        }
    }
}

static void tiles(void)
{
    for (size_t inner = 0; inner <= 9; inner++) {
        check_tiles(parallel_tiles(), inner);
        check_tiles(&parallel_plain_tiles, inner);
    }
}

static void threads_at_once(void)
{
    run_thread_ranks(4, same_in_every_thread, 60);
}

int main(void)
{
    RUN(by_the_library_there_is);
    RUN(by_our_own_loop);
    RUN(a_library_that_is_none);
    RUN(threads_at_once);
    RUN(tiles);
    return expect_result();
}
