// The router against values worked out by hand, against finite differences, and refusals.
// SPDX-License-Identifier: Apache-2.0
#include "expect.h"
#include "tutti_parallel/expert.h"

#include <math.h>
#include <nccl.h>
#include <stdlib.h>
#include <string.h>

static double next_value(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (double)(*state >> 8) / (1 << 24) * 4 - 2;
}

// Logits are logarithms: probabilities are 1/10, 2/10, 3/10, 4/10 in some order.
static void by_hand(void)
{
    struct tuttiRouter router = TUTTI_ROUTER_INITIALIZER;
    router.experts = 4;
    router.balance = 0.5;
    router.datatype = ncclFloat64;
    double logits[] = {log(1), log(2), log(3), log(4), log(4), log(3),
                       log(2), log(1), 5,      5,      5,      5}; // ties: the lower indices
    double probabilities[12], weights[6], loss = -1;
    int32_t indices[6];
    size_t lengths[] = {2, 0, 1};
    struct tuttiRouting routing = {3, 3, lengths, logits, probabilities, indices, weights};
    if (!EXPECT_OK(tuttiRouterForward(&router, &routing, &loss))) {
        return;
    }
    const int32_t right[] = {3, 2, 0, 1, 0, 1};
    for (int i = 0; i < 6; i++) {
        EXPECT_EQ(indices[i], right[i]);
    }
    EXPECT_NEAR(weights[0], 4.0 / 7, 1e-15);
    EXPECT_NEAR(weights[1], 3.0 / 7, 1e-15);
    EXPECT_NEAR(weights[4], 0.5, 1e-15);
    EXPECT_NEAR(probabilities[1], 0.2, 1e-15);
    // First sequence: each expert once, f = 4 / (2 * 2) = 1: the sum of P is 1. Third: f = 2 for
    // two experts, P = 1/4 each: 1.
    EXPECT_NEAR(loss, 0.5 * (1 + 1), 1e-14);
    router.normalise = 0;
    EXPECT_OK(tuttiRouterForward(&router, &routing, NULL));
    EXPECT_NEAR(weights[0], 0.4, 1e-15);
}

// All tokens to the same experts: more than where they are used evenly.
static void uneven_costs_more(void)
{
    struct tuttiRouter router = TUTTI_ROUTER_INITIALIZER;
    router.experts = 5;
    router.choices = 1;
    router.balance = 1;
    float logits[35] = {0}, probabilities[35], weights[7];
    int32_t indices[7];
    for (int t = 0; t < 7; t++) {
        logits[5 * t + 3] = 50;
    }
    struct tuttiRouting routing = {7, 1, NULL, logits, probabilities, indices, weights};
    double loss = 0;
    EXPECT_OK(tuttiRouterForward(&router, &routing, &loss));
    EXPECT_NEAR(loss, 5, 1e-6);
    EXPECT_EQ(indices[6], 3);
    EXPECT_NEAR(weights[6], 1, 1e-6);
}

enum { TOKENS = 7, EXPERTS = 6, CHOICES = 3 };
static const size_t odd_lengths[] = {4, 1, 2};

struct state {
    struct tuttiRouter router;
    double logits[TOKENS * EXPERTS], probabilities[TOKENS * EXPERTS], weights[TOKENS * CHOICES];
    int32_t indices[TOKENS * CHOICES];
    double factor[TOKENS * CHOICES]; // the objective is factor . weights + loss
};

static struct tuttiRouting routing_of(struct state *s)
{
    return (struct tuttiRouting){TOKENS,           3,          odd_lengths, s->logits,
                                 s->probabilities, s->indices, s->weights};
}

static double objective(struct state *s)
{
    struct tuttiRouting routing = routing_of(s);
    double loss = 0;
    EXPECT_OK(tuttiRouterForward(&s->router, &routing, &loss));
    for (int i = 0; i < TOKENS * CHOICES; i++) {
        loss += s->factor[i] * s->weights[i];
    }
    return loss;
}

static void check_gradients(int normalise, double balance)
{
    static struct state s;
    unsigned seed = 11;
    s.router = (struct tuttiRouter)TUTTI_ROUTER_INITIALIZER;
    s.router.experts = EXPERTS;
    s.router.choices = CHOICES;
    s.router.normalise = normalise;
    s.router.balance = balance;
    s.router.datatype = ncclFloat64;
    for (int i = 0; i < TOKENS * EXPERTS; i++) {
        s.logits[i] = next_value(&seed);
    }
    for (int i = 0; i < TOKENS * CHOICES; i++) {
        s.factor[i] = next_value(&seed);
    }
    double grads[TOKENS * EXPERTS];
    objective(&s);
    struct tuttiRouting routing = routing_of(&s);
    EXPECT_OK(tuttiRouterBackward(&s.router, &routing, s.factor, grads));
    for (int i = 0; i < TOKENS * EXPERTS; i++) {
        double h = 1e-5, at = s.logits[i];
        s.logits[i] = at + h;
        double up = objective(&s);
        s.logits[i] = at - h;
        double down = objective(&s);
        s.logits[i] = at;
        EXPECT_NEAR(grads[i], (up - down) / (2 * h), 1e-8);
    }
}

static void gradients(void)
{
    check_gradients(1, 0);
    check_gradients(0, 0);
    check_gradients(1, 0.7);
    check_gradients(0, 0.7);
}

// Two sequences in one call or each in its own: the same loss.
static void by_sequence(void)
{
    static struct state s;
    unsigned seed = 5;
    s.router = (struct tuttiRouter)TUTTI_ROUTER_INITIALIZER;
    s.router.experts = EXPERTS;
    s.router.choices = CHOICES;
    s.router.balance = 2;
    s.router.datatype = ncclFloat64;
    for (int i = 0; i < TOKENS * EXPERTS; i++) {
        s.logits[i] = next_value(&seed);
    }
    double all = objective(&s), sum = 0;
    size_t first = 0;
    for (int q = 0; q < 3; q++) {
        struct tuttiRouting part = routing_of(&s);
        double loss = 0;
        part.tokens = odd_lengths[q];
        part.sequences = 1;
        part.lengths = NULL;
        part.logits = s.logits + first * EXPERTS;
        EXPECT_OK(tuttiRouterForward(&s.router, &part, &loss));
        sum += loss;
        first += odd_lengths[q];
    }
    EXPECT_NEAR(all, sum, 1e-14);
}

static void refuse(struct tuttiRouter router, struct tuttiRouting routing, const char *part)
{
    EXPECT_EQ(tuttiRouterForward(&router, &routing, NULL), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), part);
}

static void refusals(void)
{
    struct tuttiRouter good = TUTTI_ROUTER_INITIALIZER, router;
    float logits[8] = {0}, probabilities[8], weights[4], grads[8];
    int32_t indices[4];
    size_t lengths[] = {1, 2};
    struct tuttiRouting fine = {2, 1, NULL, logits, probabilities, indices, weights}, routing;
    good.experts = 4;
#define REFUSE_ROUTER(change, part) (router = good, router.change, refuse(router, fine, part))
    REFUSE_ROUTER(size = 3, "router->size is 3");
    REFUSE_ROUTER(experts = 0, "experts is 0");
    REFUSE_ROUTER(choices = 5, "choices is 5, must be 1 to experts (4)");
    REFUSE_ROUTER(choices = 0, "choices is 0");
    REFUSE_ROUTER(normalise = 2, "normalise is 2");
    REFUSE_ROUTER(datatype = ncclInt8, "datatype is 0");
    REFUSE_ROUTER(balance = NAN, "balance is");
#define REFUSE_ROUTING(change, part) (routing = fine, routing.change, refuse(good, routing, part))
    REFUSE_ROUTING(logits = NULL, "logits is NULL");
    REFUSE_ROUTING(indices = NULL, "indices is NULL");
    REFUSE_ROUTING(sequences = 3, "sequences is 3, must divide the 2 tokens");
    REFUSE_ROUTING(sequences = 0, "sequences is 0");
    REFUSE_ROUTING(tokens = SIZE_MAX, "tokens x experts is 18446744073709551615 x 4 elements");
    routing = fine;
    routing.sequences = 2;
    routing.lengths = lengths;
    refuse(good, routing, "lengths[1] is 2, but only 1 of 2");
    routing.sequences = 1;
    refuse(good, routing, "the sum of lengths is 1, must be tokens, 2");
    logits[6] = INFINITY;
    refuse(good, fine, "token 1, expert 2: inf");
    EXPECT_EQ(tuttiRouterForward(NULL, &fine, NULL), ncclInvalidArgument);
    EXPECT_EQ(tuttiRouterForward(&good, NULL, NULL), ncclInvalidArgument);
    logits[6] = 0;
    EXPECT_OK(tuttiRouterForward(&good, &fine, NULL));
    EXPECT_EQ(tuttiRouterBackward(&good, &fine, weights, NULL), ncclInvalidArgument);
    EXPECT_OK(tuttiRouterBackward(&good, &fine, NULL, grads));
    indices[3] = 9;
    EXPECT_EQ(tuttiRouterBackward(&good, &fine, weights, grads), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "token 1: 9, must be 0 to 3");
    struct tuttiRouting nothing = {0};
    double loss = 1;
    EXPECT_OK(tuttiRouterForward(&good, &nothing, &loss));
    EXPECT_NEAR(loss, 0, 0);
    EXPECT_OK(tuttiRouterBackward(&good, &nothing, NULL, NULL));
}

// No token in any number of sequences: nothing is counted, and it takes no time.
static void many_empty_sequences(void)
{
    struct tuttiRouter router = TUTTI_ROUTER_INITIALIZER;
    const struct tuttiRouting routing = {.tokens = 0, .sequences = SIZE_MAX};
    double loss = 1;
    router.experts = 4;
    router.balance = 1;
    EXPECT_OK(tuttiRouterForward(&router, &routing, &loss));
    EXPECT_EQ(loss, 0);
    EXPECT_OK(tuttiRouterBackward(&router, &routing, NULL, NULL));
}

int main(void)
{
    RUN(by_hand);
    RUN(uneven_costs_more);
    RUN(gradients);
    RUN(by_sequence);
    RUN(refusals);
    RUN(many_empty_sequences);
    return expect_result();
}
