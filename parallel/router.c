// The router of a mixture of experts: softmax, the most probable experts, their weights, and the
// load-balancing loss of each sequence; all arithmetic in double. Sources: Shazeer et al., 2017;
// Fedus, Zoph and Shazeer, Switch Transformers, 2021; DeepSeek-V3 Technical Report, 2024.
// SPDX-License-Identifier: Apache-2.0
#include "elements.h"
#include "fail.h"
#include "tutti_parallel/expert.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static double load(const void *array, ncclDataType_t type, size_t i)
{
    return type == ncclFloat64 ? ((const double *)array)[i] : (double)((const float *)array)[i];
}

static void store(void *array, ncclDataType_t type, size_t i, double value)
{
    if (type == ncclFloat64) {
        ((double *)array)[i] = value;
    } else {
        ((float *)array)[i] = (float)value;
    }
}

// ---- Arguments ----------------------------------------------------------------------------------

static ncclResult_t check_router(const char *call, const struct tuttiRouter *router)
{
    if (router == NULL) {
        return tuttiFail(ncclInvalidArgument, "%s: router is NULL", call);
    }
    if (router->size != sizeof *router) {
        return tuttiFail(
            ncclInvalidArgument,
            "%s: router->size is %zu, must be %zu: begin with TUTTI_ROUTER_INITIALIZER", call,
            router->size, sizeof *router);
    }
    if (router->experts < 1) {
        return tuttiFail(ncclInvalidArgument, "%s: experts is %d, must be at least 1", call,
                         router->experts);
    }
    if (router->choices < 1 || router->choices > router->experts) {
        return tuttiFail(ncclInvalidArgument, "%s: choices is %d, must be 1 to experts (%d)", call,
                         router->choices, router->experts);
    }
    if (router->normalise != 0 && router->normalise != 1) {
        return tuttiFail(ncclInvalidArgument, "%s: normalise is %d, must be 0 or 1", call,
                         router->normalise);
    }
    if (router->datatype != ncclFloat32 && router->datatype != ncclFloat64) {
        return tuttiFail(ncclInvalidArgument,
                         "%s: datatype is %d, must be ncclFloat32 (%d) or ncclFloat64 (%d)", call,
                         (int)router->datatype, (int)ncclFloat32, (int)ncclFloat64);
    }
    if (!isfinite(router->balance)) {
        return tuttiFail(ncclInvalidArgument, "%s: balance is %g, must be finite", call,
                         router->balance);
    }
    return ncclSuccess;
}

static ncclResult_t check_sequences(const char *call, const struct tuttiRouting *routing)
{
    if (routing->lengths == NULL) {
        bool divides = routing->sequences > 0 ? routing->tokens % routing->sequences == 0
                                              : routing->tokens == 0;
        return divides ? ncclSuccess
                       : tuttiFail(ncclInvalidArgument,
                                   "%s: sequences is %zu, must divide the %zu tokens where lengths "
                                   "is NULL",
                                   call, routing->sequences, routing->tokens);
    }
    size_t sum = 0;
    for (size_t s = 0; s < routing->sequences; s++) {
        if (routing->lengths[s] > routing->tokens - sum) {
            return tuttiFail(ncclInvalidArgument,
                             "%s: lengths[%zu] is %zu, but only %zu of %zu tokens are left", call,
                             s, routing->lengths[s], routing->tokens - sum, routing->tokens);
        }
        sum += routing->lengths[s];
    }
    return sum == routing->tokens ? ncclSuccess
                                  : tuttiFail(ncclInvalidArgument,
                                              "%s: the sum of lengths is %zu, must be tokens, %zu",
                                              call, sum, routing->tokens);
}

static ncclResult_t check_routing(const char *call, int experts, const struct tuttiRouting *routing)
{
    if (routing == NULL) {
        return tuttiFail(ncclInvalidArgument, "%s: routing is NULL", call);
    }
    TRY(check_sequences(call, routing));
    TRY(parallel_check_elements(call, "tokens x experts", routing->tokens, (size_t)experts));
    const struct {
        const char *name;
        const void *pointer;
    } arrays[] = {{"logits", routing->logits},
                  {"probabilities", routing->probabilities},
                  {"indices", routing->indices},
                  {"weights", routing->weights}};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0] && routing->tokens > 0; i++) {
        if (arrays[i].pointer == NULL) {
            return tuttiFail(ncclInvalidArgument, "%s: %s is NULL, but there are %zu tokens", call,
                             arrays[i].name, routing->tokens);
        }
    }
    return ncclSuccess;
}

// Those that may have tokens: without any there can be 2^64 - 1 empty ones.
static size_t sequences_of(const struct tuttiRouting *routing)
{
    return routing->tokens > 0 ? routing->sequences : 0;
}

static size_t length_of(const struct tuttiRouting *routing, size_t sequence)
{
    return routing->lengths != NULL ? routing->lengths[sequence]
                                    : routing->tokens / routing->sequences;
}

// ---- Forward ------------------------------------------------------------------------------------

// probabilities: [experts] of one token.
static ncclResult_t softmax(const struct tuttiRouter *router, const void *logits, size_t token,
                            double *probabilities)
{
    size_t experts = (size_t)router->experts;
    double most = -INFINITY, sum = 0;
    for (size_t e = 0; e < experts; e++) {
        double logit = load(logits, router->datatype, token * experts + e);
        if (!isfinite(logit)) {
            return tuttiFail(
                ncclInvalidArgument,
                "tuttiRouterForward: logits: token %zu, expert %zu: %g, must be finite", token, e,
                logit);
        }
        probabilities[e] = logit;
        most = logit > most ? logit : most;
    }
    for (size_t e = 0; e < experts; e++) {
        probabilities[e] = exp(probabilities[e] - most);
        sum += probabilities[e];
    }
    for (size_t e = 0; e < experts; e++) {
        probabilities[e] /= sum;
    }
    return ncclSuccess;
}

// The `choices` largest logits, largest first, ties by lower index. By logits and not by
// probabilities, which may round to the same value.
static void choose(const struct tuttiRouter *router, const void *logits, size_t token,
                   int32_t *indices)
{
    size_t base = token * (size_t)router->experts;
    int found = 0;
    for (int e = 0; e < router->experts; e++) {
        double logit = load(logits, router->datatype, base + (size_t)e);
        int place = found;
        while (place > 0 &&
               logit > load(logits, router->datatype, base + (size_t)indices[place - 1])) {
            place--;
        }
        if (place == router->choices) {
            continue;
        }
        found = found < router->choices ? found + 1 : found;
        for (int i = found - 1; i > place; i--) {
            indices[i] = indices[i - 1];
        }
        indices[place] = e;
    }
}

static ncclResult_t route_token(const struct tuttiRouter *router,
                                const struct tuttiRouting *routing, size_t token,
                                double *probabilities)
{
    size_t choices = (size_t)router->choices, experts = (size_t)router->experts;
    int32_t *indices = routing->indices + token * choices;
    TRY(softmax(router, routing->logits, token, probabilities));
    choose(router, routing->logits, token, indices);
    double sum = 0;
    for (size_t j = 0; j < choices; j++) {
        sum += probabilities[indices[j]];
    }
    for (size_t j = 0; j < choices; j++) {
        double weight = probabilities[indices[j]] / (router->normalise ? sum : 1);
        store(routing->weights, router->datatype, token * choices + j, weight);
    }
    for (size_t e = 0; e < experts; e++) {
        store(routing->probabilities, router->datatype, token * experts + e, probabilities[e]);
    }
    return ncclSuccess;
}

// counts: [experts], receives how often each is chosen by the tokens first to first + length - 1.
static void count_choices(const struct tuttiRouter *router, const struct tuttiRouting *routing,
                          size_t first, size_t length, double *counts)
{
    size_t choices = (size_t)router->choices;
    memset(counts, 0, (size_t)router->experts * sizeof *counts);
    for (size_t i = first * choices; i < (first + length) * choices; i++) {
        counts[routing->indices[i]] += 1;
    }
}

// The sum over experts of f_i * P_i of one sequence. counts: as above.
static double balance_of(const struct tuttiRouter *router, const struct tuttiRouting *routing,
                         size_t first, size_t length, const double *counts)
{
    size_t experts = (size_t)router->experts;
    double sum = 0, tokens = (double)length;
    for (size_t e = 0; e < experts; e++) {
        double probability = 0;
        for (size_t t = first; t < first + length; t++) {
            probability += load(routing->probabilities, router->datatype, t * experts + e);
        }
        double f = router->experts / (router->choices * tokens) * counts[e];
        sum += f * probability / tokens;
    }
    return sum;
}

PARALLEL_EXPORT ncclResult_t tuttiRouterForward(const struct tuttiRouter *router,
                                                const struct tuttiRouting *routing, double *loss)
{
    TRY(check_router("tuttiRouterForward", router));
    TRY(check_routing("tuttiRouterForward", router->experts, routing));
    double *of_experts = calloc((size_t)router->experts, sizeof *of_experts);
    if (of_experts == NULL) {
        return tuttiFail(ncclSystemError, "tuttiRouterForward: no memory for %d experts",
                         router->experts);
    }
    ncclResult_t result = ncclSuccess;
    for (size_t t = 0; t < routing->tokens && result == ncclSuccess; t++) {
        result = route_token(router, routing, t, of_experts);
    }
    double sum = 0;
    size_t first = 0;
    for (size_t s = 0; s < sequences_of(routing) && result == ncclSuccess && loss != NULL; s++) {
        size_t length = length_of(routing, s);
        if (length > 0 && router->balance != 0) {
            count_choices(router, routing, first, length, of_experts);
            sum += balance_of(router, routing, first, length, of_experts);
        }
        first += length;
    }
    if (result == ncclSuccess && loss != NULL) {
        *loss = router->balance * sum;
    }
    free(of_experts);
    return result;
}

// ---- Backward -----------------------------------------------------------------------------------

// What the weights' gradients add to the probabilities' (grads: [experts]).
// w_j = p_j / S: dp_j += (dw_j - sum of w * dw) / S; not normalised: dp_j += dw_j.
static void weights_backward(const struct tuttiRouter *router, const struct tuttiRouting *routing,
                             size_t token, const void *weight_grads, double *grads)
{
    size_t choices = (size_t)router->choices, first = token * choices;
    const int32_t *indices = routing->indices + first;
    double sum = 1, shared = 0;
    if (router->normalise) {
        sum = 0;
        for (size_t j = 0; j < choices; j++) {
            sum += load(routing->probabilities, router->datatype,
                        token * (size_t)router->experts + (size_t)indices[j]);
            shared += load(routing->weights, router->datatype, first + j) *
                      load(weight_grads, router->datatype, first + j);
        }
    }
    for (size_t j = 0; j < choices; j++) {
        grads[indices[j]] += (load(weight_grads, router->datatype, first + j) - shared) / sum;
    }
}

// dz_i = p_i * (dp_i - sum of p * dp).
static void softmax_backward(const struct tuttiRouter *router, const struct tuttiRouting *routing,
                             size_t token, const double *grads, void *logit_grads)
{
    size_t experts = (size_t)router->experts, first = token * experts;
    double shared = 0;
    for (size_t e = 0; e < experts; e++) {
        shared += load(routing->probabilities, router->datatype, first + e) * grads[e];
    }
    for (size_t e = 0; e < experts; e++) {
        double p = load(routing->probabilities, router->datatype, first + e);
        store(logit_grads, router->datatype, first + e, p * (grads[e] - shared));
    }
}

static ncclResult_t check_backward(const struct tuttiRouter *router,
                                   const struct tuttiRouting *routing, const void *logit_grads)
{
    TRY(check_router("tuttiRouterBackward", router));
    TRY(check_routing("tuttiRouterBackward", router->experts, routing));
    if (logit_grads == NULL && routing->tokens > 0) {
        return tuttiFail(ncclInvalidArgument,
                         "tuttiRouterBackward: logitGrads is NULL, but there are %zu tokens",
                         routing->tokens);
    }
    for (size_t i = 0; i < routing->tokens * (size_t)router->choices; i++) {
        if (routing->indices[i] < 0 || routing->indices[i] >= router->experts) {
            return tuttiFail(ncclInvalidArgument,
                             "tuttiRouterBackward: indices: token %zu: %d, must be 0 to %d",
                             i / (size_t)router->choices, routing->indices[i], router->experts - 1);
        }
    }
    return ncclSuccess;
}

PARALLEL_EXPORT ncclResult_t tuttiRouterBackward(const struct tuttiRouter *router,
                                                 const struct tuttiRouting *routing,
                                                 const void *weightGrads, void *logitGrads)
{
    TRY(check_backward(router, routing, logitGrads));
    size_t experts = (size_t)router->experts, first = 0;
    double *counts = calloc(2 * experts, sizeof *counts);
    if (counts == NULL) {
        return tuttiFail(ncclSystemError, "tuttiRouterBackward: no memory for %zu experts",
                         experts);
    }
    double *grads = counts + experts;
    for (size_t s = 0; s < sequences_of(routing); s++) {
        size_t length = length_of(routing, s);
        count_choices(router, routing, first, length, counts);
        double tokens = (double)length;
        for (size_t t = first; t < first + length; t++) {
            for (size_t e = 0; e < experts; e++) { // d loss / d p = balance * f / T
                grads[e] = router->balance * router->experts / (router->choices * tokens) *
                           counts[e] / tokens;
            }
            if (weightGrads != NULL) {
                weights_backward(router, routing, t, weightGrads, grads);
            }
            softmax_backward(router, routing, t, grads, logitGrads);
        }
        first += length;
    }
    free(counts);
    return ncclSuccess;
}
