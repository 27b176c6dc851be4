// The backward passes against finite differences of the forward ones, in double, over all ranks;
// and every gradient of float and bf16 rows, bit by bit.
// SPDX-License-Identifier: Apache-2.0
#include "moe_for_tests.h"

// ---- Finite differences -------------------------------------------------------------------------
// Experts: y_i = a x_i^2 + b x_i with a, b of the expert. Objective: the sum over all ranks of
// out * factor.

static double curve(int expert, double x)
{
    return (0.3 + 0.1 * expert) * x * x + (1 - 0.2 * expert) * x;
}
static double slope(int expert, double x)
{
    return 2 * (0.3 + 0.1 * expert) * x + (1 - 0.2 * expert);
}
static double factor_value(int rank, size_t t, size_t i)
{
    return any_value(rank + 50, t, i);
}

struct layer {
    const struct moe_case *c;
    struct member *m;
    tuttiMoe_t moe;
    struct moe_arrays a;
    double *inputs, *results; // the experts', as they came and went
    tuttiMoeRoute_t route;
};

static double total(const struct member *m, double mine)
{
    double all[RANKS_MAX], sum = 0;
    ranks_gather(&mine, all, sizeof mine);
    for (int r = 0; r < m->size; r++) {
        sum += all[r];
    }
    return sum;
}

// The objective. The route stays until the next.
static double forward(struct layer *l)
{
    struct tuttiMoeReceived received;
    size_t hidden = l->c->options.hidden;
    EXPECT_OK(tuttiMoeRouteDestroy(l->route));
    l->route = NULL;
    if (!EXPECT_OK(tuttiMoeDispatch(l->moe, l->a.tokens, l->a.count, l->a.indices, l->a.weights,
                                    &l->route, l->m->stream))) {
        return NAN;
    }
    EXPECT_OK(tuttiMoeGetReceived(l->route, &received));
    EXPECT_CUDA(cudaStreamSynchronize(l->m->stream));
    free(l->inputs);
    free(l->results);
    l->inputs = calloc(received.rowCount * hidden + 1, sizeof(double));
    l->results = calloc(received.rowCount * hidden + 1, sizeof(double));
    for (int e = 0; e < received.experts; e++) {
        for (size_t i = 0; i < received.counts[e] * hidden; i++) {
            size_t at = received.offsets[e] * hidden + i;
            l->inputs[at] = ((double *)received.rows)[at];
            l->results[at] = curve(received.firstExpert + e, l->inputs[at]);
        }
    }
    EXPECT_OK(tuttiMoeCombine(l->route, l->results, l->a.out, l->m->stream));
    EXPECT_CUDA(cudaStreamSynchronize(l->m->stream));
    double sum = 0;
    for (size_t i = 0; i < l->a.count * hidden; i++) {
        sum += ((double *)l->a.out)[i] * factor_value(l->m->rank, i / hidden, i % hidden);
    }
    return total(l->m, sum);
}

// Gradients of the objective: token_grads [count x hidden], weight_grads [count x choices].
static void backward(struct layer *l, double *out_grads, double *token_grads, double *weight_grads)
{
    struct tuttiMoeReceived received;
    size_t hidden = l->c->options.hidden;
    void *grads = NULL;
    for (size_t i = 0; i < l->a.count * hidden; i++) {
        out_grads[i] = factor_value(l->m->rank, i / hidden, i % hidden);
    }
    EXPECT_OK(tuttiMoeCombineBackward(l->route, out_grads, l->results, &grads, weight_grads,
                                      l->m->stream));
    EXPECT_CUDA(cudaStreamSynchronize(l->m->stream));
    EXPECT_OK(tuttiMoeGetReceived(l->route, &received));
    for (int e = 0; e < received.experts; e++) {
        for (size_t i = 0; i < received.counts[e] * hidden; i++) {
            size_t at = received.offsets[e] * hidden + i;
            ((double *)grads)[at] *= slope(received.firstExpert + e, l->inputs[at]);
        }
    }
    EXPECT_OK(tuttiMoeDispatchBackward(l->route, grads, token_grads, l->m->stream));
    EXPECT_CUDA(cudaStreamSynchronize(l->m->stream));
}

// values += step * direction, a direction for each element.
static void move(double *values, size_t count, int seed, double step)
{
    for (size_t i = 0; i < count; i++) {
        values[i] += step * any_value(seed, i, 3);
    }
}
static double along(const double *grads, size_t count, int seed)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += grads[i] * any_value(seed, i, 3);
    }
    return sum;
}

// Along random directions of all ranks' tokens and weights.
static void compare(struct layer *l)
{
    size_t n = l->a.count * l->c->options.hidden, w = l->a.count * (size_t)l->c->options.choices;
    double *out_grads = device_array(l->m, n * 8), *token_grads = device_array(l->m, n * 8);
    double *weight_grads = device_array(l->m, w * 8), h = 1e-5;
    (void)forward(l);
    backward(l, out_grads, token_grads, weight_grads);
    for (int direction = 0; direction < 3; direction++) {
        int tokens = 300 + 10 * direction + l->m->rank, weights = 400 + tokens;
        double right = total(l->m, (direction != 1 ? along(token_grads, n, tokens) : 0) +
                                       (direction != 2 ? along(weight_grads, w, weights) : 0));
        double value[2];
        for (int side = 0; side < 2; side++) {
            double step = side == 0 ? h : -h;
            move(l->a.tokens, n, tokens, direction != 1 ? step : 0);
            move(l->a.weights, w, weights, direction != 2 ? step : 0);
            value[side] = forward(l);
            move(l->a.tokens, n, tokens, direction != 1 ? -step : 0);
            move(l->a.weights, w, weights, direction != 2 ? -step : 0);
        }
        EXPECT_NEAR((value[0] - value[1]) / (2 * h), right, 1e-7 * (1 + fabs(right)));
        EXPECT(l->m->size > 1 || fabs(right) > 0.1);
    }
    free_array(l->m, out_grads);
    free_array(l->m, token_grads);
    free_array(l->m, weight_grads);
}

static void differences_with(struct moe_case c, struct member *m)
{
    struct layer l = {.c = &c, .m = m};
    l.a = make_arrays(&c, m);
    if (EXPECT_OK(tuttiMoeCreate(m->comm, &c.options, &l.moe))) {
        compare(&l);
        EXPECT_OK(tuttiMoeRouteDestroy(l.route));
        EXPECT_OK(tuttiMoeDestroy(l.moe));
    }
    free_arrays(m, &l.a);
    free(l.inputs);
    free(l.results);
}

static void differences_rank(int rank, int size)
{
    struct member m;
    struct moe_case c = case_of(size, 7, 3, 9);
    c.tokens = odd_tokens;
    c.options.datatype = ncclFloat64;
    if (!member_join(&m, rank, size)) {
        return;
    }
    differences_with(c, &m);
    c.options.rule = tuttiMoeDrop;
    c.options.capacity = 3;
    c.options.align = 4;
    differences_with(c, &m);
    member_leave(&m);
}
static void finite_differences(void)
{
    for (int size = 1; size <= 5; size++) {
        run_thread_ranks(size, differences_rank, 60);
    }
}
static void finite_differences_across_hosts(void)
{
    setenv("TUTTI_FAKE_HOSTS", "2,2", 1);
    run_ranks(4, differences_rank, 60);
    unsetenv("TUTTI_FAKE_HOSTS");
}

// ---- Every gradient -----------------------------------------------------------------------------
// What comes back where the experts' backward pass hands its gradients on: sums of weight * grad.

static double grad_value(int rank, size_t t, size_t i)
{
    return (double)(float)any_value(rank + 20, t, i);
}
static double grad_part(const struct moe_case *c, int rank, size_t t, int j, int expert, size_t i)
{
    (void)expert;
    return (double)((float)grad_value(rank, t, i) * (float)weight_value(c, rank, t, j));
}

// The dot product of the expert's result and the gradient, in double.
static double right_weight_grad(const struct moe_case *c, int rank, size_t t, int expert)
{
    double sum = 0;
    for (size_t i = 0; i < c->options.hidden; i++) {
        sum += expert_value(c, expert, token_value(c, rank, t, i)) * grad_value(rank, t, i);
    }
    return sum;
}

static void check_grads(const struct moe_case *c, int rank, const float *token_grads,
                        const float *weight_grads)
{
    int32_t chosen[64];
    bool kept[64];
    size_t wrong = 0, hidden = c->options.hidden;
    for (size_t t = 0; t < c->tokens(rank); t++) {
        choose_experts(c, rank, t, chosen);
        for (int j = 0; j < c->options.choices; j++) {
            size_t at = t * (size_t)c->options.choices + (size_t)j;
            kept[j] = is_kept(c, chosen[j], rank, t);
            double right = kept[j] ? right_weight_grad(c, rank, t, chosen[j]) : 0;
            EXPECT_NEAR(weight_grads[at], right, 1e-5 * (1 + fabs(right)));
        }
        for (size_t i = 0; i < hidden; i++) {
            double right = expected_sum(c, ncclFloat32, rank, t, kept, grad_part, i);
            wrong += (double)token_grads[t * hidden + i] != right;
        }
    }
    EXPECT_EQ(wrong, 0);
}

static void check_all(const struct moe_case *c, struct member *m, tuttiMoe_t moe)
{
    struct moe_arrays a = make_arrays(c, m);
    tuttiMoeRoute_t route = NULL;
    struct tuttiMoeReceived received;
    size_t n = a.count * c->options.hidden;
    float *out_grads = device_array(m, n * 4), *token_grads = device_array(m, n * 4);
    float *weight_grads = device_array(m, a.count * (size_t)c->options.choices * 4);
    EXPECT_OK(tuttiMoeDispatch(moe, a.tokens, a.count, a.indices, a.weights, &route, m->stream));
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
    run_experts(c, route);
    EXPECT_OK(tuttiMoeGetReceived(route, &received));
    size_t bytes = received.rowCount * c->options.hidden * bytes_of(c->options.datatype);
    void *results = device_array(m, bytes), *row_grads = NULL;
    memcpy(results, received.rows, bytes);
    for (size_t i = 0; i < n; i++) {
        out_grads[i] = (float)grad_value(m->rank, i / c->options.hidden, i % c->options.hidden);
    }
    EXPECT_OK(
        tuttiMoeCombineBackward(route, out_grads, results, &row_grads, weight_grads, m->stream));
    EXPECT_OK(tuttiMoeDispatchBackward(route, row_grads, token_grads, m->stream));
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
    check_grads(c, m->rank, token_grads, weight_grads);
    EXPECT_OK(tuttiMoeCombineBackward(route, out_grads, results, &row_grads, NULL, m->stream));
    EXPECT_EQ(tuttiMoeCombineBackward(route, out_grads, results, NULL, NULL, m->stream),
              ncclInvalidArgument);
    EXPECT_OK(tuttiMoeGetReceived(route, &received));
    EXPECT_EQ(tuttiMoeCombineBackward(route, out_grads, received.rows, &row_grads, NULL, m->stream),
              ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "inside the received rows");
    EXPECT_OK(tuttiMoeRouteDestroy(route));
    free_array(m, out_grads);
    free_array(m, token_grads);
    free_array(m, weight_grads);
    free_array(m, results);
    free_arrays(m, &a);
}

static void gradients_rank(int rank, int size)
{
    struct member m;
    if (!member_join(&m, rank, size)) {
        return;
    }
    for (int turn = 0; turn < 6; turn++) { // the last two by kernels
        tuttiMoe_t moe = NULL;
        struct moe_case c = case_of(size, 6, 3, 71);
        c.tokens = odd_tokens;
        c.options.datatype = turn % 2 == 0 ? ncclFloat32 : ncclBfloat16;
        c.options.rule = turn < 2 ? tuttiMoeGrow : tuttiMoeDrop;
        c.options.path = turn < 4 ? tuttiMoePathAuto : tuttiMoePathKernel;
        c.options.capacity = 5;
        if (EXPECT_OK(tuttiMoeCreate(m.comm, &c.options, &moe))) {
            check_all(&c, &m, moe);
            EXPECT_OK(tuttiMoeDestroy(moe));
        }
    }
    member_leave(&m);
}
static void every_gradient(void)
{
    run_thread_ranks(1, gradients_rank, 60);
    run_thread_ranks(4, gradients_rank, 60);
}

int main(void)
{
    RUN(finite_differences);
    RUN(finite_differences_across_hosts);
    RUN(every_gradient);
    return expect_result();
}
