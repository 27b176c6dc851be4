// RMSNorm and LayerNorm against their formulas and finite differences, in double.
// SPDX-License-Identifier: Apache-2.0
#include "layers_for_tests.h"
#include "tutti_parallel/norm.h"

#include <tutti.h>

static const struct tuttiTypes doubles = {ncclFloat64, ncclFloat64, ncclFloat64};
static const struct tuttiTypes floats = {ncclFloat32, ncclFloat32, ncclFloat32};
static const struct tuttiTypes mixed = {ncclBfloat16, ncclFloat32, ncclFloat32};
static const struct tuttiTypes halves = {ncclBfloat16, ncclBfloat16, ncclBfloat16};

// One row by the formula. gamma, beta: NULL or [width].
static void right_row(const struct tuttiNorm *norm, const double *x, const double *gamma,
                      const double *beta, double *y)
{
    double n = (double)norm->width, mean = 0, square = 0;
    for (size_t i = 0; i < norm->width && norm->kind == TUTTI_LAYER_NORM; i++) {
        mean += x[i] / n;
    }
    for (size_t i = 0; i < norm->width; i++) {
        square += (x[i] - mean) * (x[i] - mean) / n;
    }
    for (size_t i = 0; i < norm->width; i++) {
        y[i] = (x[i] - mean) / sqrt(square + norm->eps) * (gamma == NULL ? 1 : gamma[i]) +
               (beta == NULL ? 0 : beta[i]);
    }
}

struct norm_case {
    struct tuttiNorm norm;
    size_t tokens;
    bool has_gamma, has_beta;
    struct array x, gamma, beta, dy, added; // [tokens x width], [width]
};

static struct norm_case case_make(enum tuttiNormKind kind, const struct tuttiTypes *types,
                                  size_t tokens, size_t width)
{
    struct norm_case c = {{kind, width, 1e-3, *types},
                          tokens,
                          true,
                          kind == TUTTI_LAYER_NORM,
                          array_ragged(types->activations, tokens * width, 1),
                          array_ragged(types->weights, width, 2),
                          array_ragged(types->weights, width, 3),
                          array_ragged(types->gradients, tokens * width, 4),
                          array_ragged(types->gradients, tokens * width, 5)};
    return c;
}

static void case_free(struct norm_case *c)
{
    struct array *all[] = {&c->x, &c->gamma, &c->beta, &c->dy, &c->added};
    for (size_t i = 0; i < 5; i++) {
        array_free(all[i]);
    }
}

static double *as_doubles(const struct array *a)
{
    double *values = malloc((a->count + 1) * sizeof *values);
    for (size_t i = 0; i < a->count; i++) {
        values[i] = array_get(a, i);
    }
    return values;
}

// The sum of dy * y over all rows, in double, by the formula.
static double right_loss(const struct norm_case *c, const double *x, const double *gamma,
                         const double *beta)
{
    double loss = 0, *y = malloc(c->norm.width * sizeof *y);
    for (size_t t = 0; t < c->tokens; t++) {
        right_row(&c->norm, x + t * c->norm.width, gamma, beta, y);
        for (size_t i = 0; i < c->norm.width; i++) {
            loss += array_get(&c->dy, t * c->norm.width + i) * y[i];
        }
    }
    free(y);
    return loss;
}

static void check_forward(const struct norm_case *c)
{
    const size_t width = c->norm.width;
    double *x = as_doubles(&c->x), *gamma = as_doubles(&c->gamma), *beta = as_doubles(&c->beta);
    double *right = malloc(width * sizeof *right);
    struct array y = array_make(c->x.type, c->x.count);
    EXPECT_OK(tuttiNormForward(&c->norm, c->tokens, c->x.data, c->has_gamma ? c->gamma.data : NULL,
                               c->has_beta ? c->beta.data : NULL, y.data));
    double tolerance = c->x.type == ncclFloat64 ? 1e-13 : c->x.type == ncclFloat32 ? 1e-6 : 0.02;
    for (size_t t = 0; t < c->tokens; t++) {
        right_row(&c->norm, x + t * width, c->has_gamma ? gamma : NULL, c->has_beta ? beta : NULL,
                  right);
        for (size_t i = 0; i < width; i++) {
            EXPECT_NEAR(array_get(&y, t * width + i), right[i], tolerance);
        }
    }
    array_free(&y);
    free(x);
    free(gamma);
    free(beta);
    free(right);
}

// The derivative of the loss by *value, by central differences.
static double difference(const struct norm_case *c, const double *x, const double *gamma,
                         const double *beta, double *value)
{
    const double step = 1e-5, before = *value;
    *value = before + step;
    double more = right_loss(c, x, gamma, beta);
    *value = before - step;
    double less = right_loss(c, x, gamma, beta);
    *value = before;
    return (more - less) / (2 * step);
}

// in_place: dx is `added`, too; else nothing is added.
static void check_backward(const struct norm_case *c, bool in_place)
{
    const size_t width = c->norm.width;
    double *x = as_doubles(&c->x), *gamma = as_doubles(&c->gamma), *beta = as_doubles(&c->beta);
    double *use_gamma = c->has_gamma ? gamma : NULL, *use_beta = c->has_beta ? beta : NULL;
    ncclDataType_t type = c->x.type == ncclFloat64 ? ncclFloat64 : ncclFloat32;
    struct array dx = array_make(c->dy.type, c->dy.count);
    struct array dgamma = array_make(type, width), dbeta = array_make(type, width);
    const void *added = in_place ? dx.data : NULL;
    if (in_place) {
        memcpy(dx.data, c->added.data, c->added.count * array_bytes(c->added.type));
    }
    for (size_t i = 0; i < width; i++) {
        array_set(&dgamma, i, 2);
        array_set(&dbeta, i, 3);
    }
    struct tuttiNormGradients g = {
        c->x.data,   c->has_gamma ? c->gamma.data : NULL, c->dy.data, added, dx.data,
        dgamma.data, c->has_beta ? dbeta.data : NULL};
    EXPECT_OK(tuttiNormBackward(&c->norm, c->tokens, &g));
    double tolerance = c->dy.type == ncclFloat64 ? 1e-8 : c->dy.type == ncclFloat32 ? 1e-5 : 0.05;
    for (size_t i = 0; i < dx.count; i++) {
        double right = difference(c, x, use_gamma, use_beta, &x[i]);
        right += in_place ? array_get(&c->added, i) : 0;
        EXPECT_NEAR(array_get(&dx, i), right, tolerance * (1 + fabs(right)));
    }
    for (size_t i = 0; i < width; i++) {
        double right = c->has_gamma ? 2 + difference(c, x, use_gamma, use_beta, &gamma[i]) : 0;
        EXPECT(!c->has_gamma || fabs(array_get(&dgamma, i) - right) < 1e-5);
        right = 3 + (c->has_beta ? difference(c, x, use_gamma, use_beta, &beta[i]) : 0);
        EXPECT_NEAR(array_get(&dbeta, i), right, 1e-5);
    }
    array_free(&dx);
    array_free(&dgamma);
    array_free(&dbeta);
    free(x);
    free(gamma);
    free(beta);
}

static void formulas_and_differences(void)
{
    static const size_t sizes[][2] = {{3, 7}, {1, 1}, {0, 4}, {2, 16}, {4, 13}};
    const struct tuttiTypes *types[] = {&doubles, &floats, &mixed, &halves};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int k = 0; k < 4; k++) {
            for (int kind = TUTTI_RMS_NORM; kind <= TUTTI_LAYER_NORM; kind++) {
                struct norm_case c =
                    case_make((enum tuttiNormKind)kind, types[k], sizes[i][0], sizes[i][1]);
                check_forward(&c);
                check_backward(&c, false);
                check_backward(&c, true);
                c.has_gamma = c.has_beta = false;
                check_forward(&c);
                check_backward(&c, true);
                case_free(&c);
            }
        }
    }
}

// y may be x, dx may be dy; a row of zeros with eps 0 stays one and gives no NaN.
static void in_place_and_zeros(void)
{
    struct norm_case c = case_make(TUTTI_RMS_NORM, &doubles, 2, 5);
    struct array y = array_make(ncclFloat64, 10), dx = array_make(ncclFloat64, 10);
    struct tuttiNormGradients g = {c.x.data, c.gamma.data, c.dy.data, NULL, dx.data, NULL, NULL};
    EXPECT_OK(tuttiNormBackward(&c.norm, 2, &g));
    g.dx = c.dy.data;
    EXPECT_OK(tuttiNormBackward(&c.norm, 2, &g));
    EXPECT_EQ(memcmp(dx.data, c.dy.data, 10 * sizeof(double)), 0);
    EXPECT_OK(tuttiNormForward(&c.norm, 2, c.x.data, c.gamma.data, NULL, y.data));
    EXPECT_OK(tuttiNormForward(&c.norm, 2, c.x.data, c.gamma.data, NULL, c.x.data));
    EXPECT_EQ(memcmp(c.x.data, y.data, 10 * sizeof(double)), 0);

    array_zero(&c.x);
    c.norm.eps = 0;
    g.dx = dx.data;
    for (int kind = TUTTI_RMS_NORM; kind <= TUTTI_LAYER_NORM; kind++) {
        c.norm.kind = (enum tuttiNormKind)kind;
        EXPECT_OK(tuttiNormForward(&c.norm, 2, c.x.data, NULL, NULL, y.data));
        EXPECT_OK(tuttiNormBackward(&c.norm, 2, &g));
        for (size_t i = 0; i < 10; i++) {
            EXPECT(array_get(&y, i) == 0 && array_get(&dx, i) == 0);
        }
    }
    array_free(&y);
    array_free(&dx);
    case_free(&c);
}

static void bad_arguments(void)
{
    double d[16] = {0};
    struct tuttiNorm good = {TUTTI_RMS_NORM, 4, 1e-6, doubles}, bad = good;
    struct tuttiNormGradients g = {d, d, d, NULL, d, NULL, NULL};
    refused(tuttiNormForward(NULL, 1, d, d, NULL, d), "norm is NULL");
    refused(tuttiNormForward(&good, 1, NULL, d, NULL, d), "x is NULL, must point to 4 elements");
    refused(tuttiNormForward(&good, 1, d, d, NULL, NULL), "y is NULL");
    refused(tuttiNormForward(&good, 1, d, d, d, d), "must be NULL for TUTTI_RMS_NORM");
    refused(tuttiNormBackward(&good, 1, NULL), "gradients is NULL");
    g.dbeta = d;
    refused(tuttiNormBackward(&good, 1, &g), "dbeta is");
    g = (struct tuttiNormGradients){d, d, NULL, NULL, d, NULL, NULL};
    refused(tuttiNormBackward(&good, 1, &g), "dy is NULL");
    bad.width = 0;
    refused(tuttiNormForward(&bad, 1, d, d, NULL, d), "width is 0");
    bad = good;
    bad.eps = -1;
    refused(tuttiNormForward(&bad, 1, d, d, NULL, d), "eps is -1");
    bad.eps = NAN;
    refused(tuttiNormForward(&bad, 1, d, d, NULL, d), "eps is");
    bad = good;
    bad.kind = (enum tuttiNormKind)2;
    refused(tuttiNormForward(&bad, 1, d, d, NULL, d), "kind is 2");
    bad = good;
    bad.types.gradients = ncclFloat32;
    refused(tuttiNormForward(&bad, 1, d, d, NULL, d), "all three or none");
}

int main(void)
{
    RUN(formulas_and_differences);
    RUN(in_place_and_zeros);
    RUN(bad_arguments);
    return expect_result();
}
