// SPDX-License-Identifier: Apache-2.0
// Lesson 16: expert parallelism. A layer of six experts, small networks of two layers each; a
// router chooses two of them for each token. Every rank has some of the experts and some of the
// tokens, so tokens travel to their experts, and the results back:
//     x -> router: two experts, two weights -> dispatch -> experts -> combine -> y
// y is the sum of each expert's result times its weight.
// Nobody knows beforehand how many tokens an expert gets. Done twice:
//   by hand   counts by ncclAllGather, rows by ncclSend and ncclRecv
//   library   tuttiMoeDispatch and tuttiMoeCombine, and their backward passes
// and compared with the same by one rank alone. The router's choice is tuttiRouter in all of them.
#include "network.cuh"

#include <nccl_device.h>
#include <tutti.h>
#include <tutti_parallel/expert.h>

enum { RANKS = 4, EXPERTS = 6, CHOICES = 2, WIDE = 32, MOST = TOKENS * CHOICES };
enum { ROUTER = EXPERTS * INPUTS, EXPERT_UP = WIDE * INPUTS, EXPERT = 2 * EXPERT_UP };
enum { ALL = ROUTER + EXPERTS * EXPERT }; // weights of the whole layer

enum way { BY_HAND, LIBRARY, WAYS };
static const char *const names[WAYS] = {"by hand", "library"};

// ---- Rows and tokens ----------------------------------------------------------------------------
// Choice j of token t is row slots[t][j]. One thread for each element of a token.

// rows[slots[t][j]] = weights[t][j] * x[t]; weights NULL: 1.
static __global__ void spread_kernel(float *rows, const float *x, const int *slots,
                                     const float *weights, size_t tokens)
{
    size_t i = element_index(), token = i / INPUTS;
    for (int j = 0; token < tokens && j < CHOICES; j++) {
        float weight = weights == NULL ? 1 : weights[token * CHOICES + j];
        rows[(size_t)slots[token * CHOICES + j] * INPUTS + i % INPUTS] = weight * x[i];
    }
}

// y[t] = sum over j of weights[t][j] * rows[slots[t][j]]: each is the other's backward pass.
static __global__ void sum_kernel(float *y, const float *rows, const int *slots,
                                  const float *weights, size_t tokens)
{
    size_t i = element_index(), token = i / INPUTS;
    if (token < tokens) {
        y[i] = 0;
        for (int j = 0; j < CHOICES; j++) {
            float weight = weights == NULL ? 1 : weights[token * CHOICES + j];
            y[i] += weight * rows[(size_t)slots[token * CHOICES + j] * INPUTS + i % INPUTS];
        }
    }
}

// The gradient of a choice's weight: its row times the gradient of y. One thread for each choice.
static __global__ void weight_gradient_kernel(float *gradient, const float *rows,
                                              const float *y_gradient, const int *slots,
                                              size_t choices)
{
    size_t choice = element_index();
    if (choice < choices) {
        float sum = 0;
        for (int i = 0; i < INPUTS; i++) {
            sum += rows[slots[choice] * INPUTS + i] * y_gradient[choice / CHOICES * INPUTS + i];
        }
        gradient[choice] = sum;
    }
}

// ---- One rank -----------------------------------------------------------------------------------

struct layer {
    int ranks, rank;
    size_t tokens, first_token;
    size_t experts[RANKS], first_expert[RANKS]; // of each rank
    size_t elements;
    float *weights, *gradients, *mean,
        *square; // [elements]: router, which all ranks have; of each
                 // own expert up [WIDE x INPUTS], down [INPUTS x WIDE]
    float *x, *x_gradient, *y, *y_gradient, *target; // [tokens x INPUTS]
    float *logits, *logit_gradients, *probabilities; // [tokens x EXPERTS]
    float *choice_weights, *choice_gradients;        // [tokens x CHOICES]
    int32_t *choices;                                // [tokens x CHOICES]
    int *slots;                                      // [tokens x CHOICES], by hand
    // Rows, as many as could come at most: of the own tokens, and at the own experts.
    float *sent, *returned; // [MOST x INPUTS], by expert, then token
    float *rows, *results, *row_gradients, *result_gradients; // [MOST x INPUTS], by own expert
    float *hidden, *hidden_gradients;                         // [MOST x WIDE]
    double *losses;                                           // [STEPS], of the own tokens
    struct team team;
};

// Where an expert's rows are among those that a rank has received.
struct received {
    size_t counts[EXPERTS], offsets[EXPERTS]; // [own experts]
};

static size_t own_experts(const struct layer *l)
{
    return l->experts[l->rank];
}

static struct tuttiRouter router_of(void)
{
    struct tuttiRouter router = TUTTI_ROUTER_INITIALIZER; // weights of a token are normalised
    router.experts = EXPERTS;
    router.choices = CHOICES;
    return router; // balance 0: no loss that makes experts equally busy
}

static struct tuttiRouting routing_of(const struct layer *l)
{
    struct tuttiRouting routing = {
        l->tokens, 1, NULL, l->logits, l->probabilities, l->choices, l->choice_weights};
    return routing;
}

// Which experts: the two largest of softmax(x router^T).
static void choose(const struct layer *l)
{
    const struct tuttiRouter router = router_of();
    const struct tuttiRouting routing = routing_of(l);
    layer_forward(l->logits, l->x, l->weights, l->tokens, EXPERTS, INPUTS, l->team.stream);
    CHECK_CUDA(cudaStreamSynchronize(l->team.stream));
    CHECK_NCCL(tuttiRouterForward(&router, &routing, NULL));
}

// From choice_gradients to the router's gradient. The router is on all ranks, each has the gradient
// of its tokens: a sum over the ranks. That of an expert is on its rank alone, of all ranks'
// tokens: nothing to sum. (x's gradient through the router, logit_gradients times router, is left
// out.)
static void choose_backward(const struct layer *l)
{
    const struct tuttiRouter router = router_of();
    const struct tuttiRouting routing = routing_of(l);
    cudaStream_t s = l->team.stream;
    CHECK_CUDA(cudaStreamSynchronize(s));
    CHECK_NCCL(tuttiRouterBackward(&router, &routing, l->choice_gradients, l->logit_gradients));
    layer_weight_gradient(l->gradients, l->logit_gradients, l->x, l->tokens, EXPERTS, INPUTS, s);
    CHECK_NCCL(
        ncclAllReduce(l->gradients, l->gradients, ROUTER, ncclFloat, ncclSum, l->team.comm, s));
}

// results = down(relu(up(rows))) for each own expert.
static void experts_forward(const struct layer *l, const struct received *in)
{
    cudaStream_t s = l->team.stream;
    for (size_t e = 0; e < own_experts(l); e++) {
        const float *up = l->weights + ROUTER + e * EXPERT, *down = up + EXPERT_UP;
        size_t n = in->counts[e], at = in->offsets[e];
        layer_forward(l->hidden + at * WIDE, l->rows + at * INPUTS, up, n, WIDE, INPUTS, s);
        relu_forward(l->hidden + at * WIDE, n * WIDE, s);
        layer_forward(l->results + at * INPUTS, l->hidden + at * WIDE, down, n, INPUTS, WIDE, s);
    }
}

// From the gradients of results to row_gradients.
static void experts_backward(const struct layer *l, const struct received *in,
                             const float *result_gradients)
{
    cudaStream_t s = l->team.stream;
    for (size_t e = 0; e < own_experts(l); e++) {
        const float *up = l->weights + ROUTER + e * EXPERT, *down = up + EXPERT_UP;
        float *up_gradient = l->gradients + ROUTER + e * EXPERT;
        size_t n = in->counts[e], at = in->offsets[e];
        const float *of_result = result_gradients + at * INPUTS;
        float *hidden = l->hidden + at * WIDE, *of_hidden = l->hidden_gradients + at * WIDE;
        layer_weight_gradient(up_gradient + EXPERT_UP, of_result, hidden, n, INPUTS, WIDE, s);
        layer_input_gradient(of_hidden, of_result, down, n, INPUTS, WIDE, s);
        relu_backward(of_hidden, hidden, n * WIDE, s);
        layer_weight_gradient(up_gradient, of_hidden, l->rows + at * INPUTS, n, WIDE, INPUTS, s);
        layer_input_gradient(l->row_gradients + at * INPUTS, of_hidden, up, n, WIDE, INPUTS, s);
    }
}

// ---- By hand ------------------------------------------------------------------------------------

// counts[rank][expert]: rows that a rank has for an expert, of all ranks, on all ranks.
struct counts {
    int of[RANKS][EXPERTS];
};

// Rows of the own tokens lie by expert, then by token: slots. Then all tell all how many they have.
static void count_rows(const struct layer *l, struct counts *counts)
{
    int slots[MOST], next = 0, *device;
    int *own = counts->of[l->rank];
    for (int e = 0; e < EXPERTS; e++) {
        own[e] = -next;
        for (size_t choice = 0; choice < l->tokens * CHOICES; choice++) {
            if (l->choices[choice] == e) { // virtual GPUs: the host reads device memory
                slots[choice] = next++;
            }
        }
        own[e] += next;
    }
    copy_to_device(l->slots, slots, l->tokens * CHOICES * sizeof(int), l->team.stream);
    device = (int *)l->sent; // not used yet
    copy_to_device(device + l->rank * EXPERTS, own, sizeof counts->of[0], l->team.stream);
    CHECK_NCCL(ncclAllGather(device + l->rank * EXPERTS, device, EXPERTS, ncclInt, l->team.comm,
                             l->team.stream));
    CHECK_CUDA(cudaMemcpyAsync(counts, device, (size_t)l->ranks * sizeof counts->of[0],
                               cudaMemcpyDeviceToHost, l->team.stream));
    CHECK_CUDA(cudaStreamSynchronize(l->team.stream));
}

static struct received find_received(const struct layer *l, const struct counts *counts)
{
    struct received in;
    size_t at = 0;
    for (size_t e = 0; e < own_experts(l); e++) {
        in.offsets[e] = at;
        for (int rank = 0; rank < l->ranks; rank++) {
            at += (size_t)counts->of[rank][l->first_expert[l->rank] + e];
        }
        in.counts[e] = at - in.offsets[e];
    }
    return in;
}

static void message(const struct layer *l, bool send, float *rows, int count, int peer)
{
    size_t elements = (size_t)count * INPUTS;
    if (count > 0 && send) {
        CHECK_NCCL(ncclSend(rows, elements, ncclFloat, peer, l->team.comm, l->team.stream));
    } else if (count > 0) {
        CHECK_NCCL(ncclRecv(rows, elements, ncclFloat, peer, l->team.comm, l->team.stream));
    }
}

// From the tokens' ranks to the experts', or back. token_rows: by expert; expert_rows: by own
// expert, then by source rank. All messages in one group, those of a rank to itself too.
static void exchange(const struct layer *l, const struct counts *counts, bool to_experts,
                     float *token_rows, float *expert_rows)
{
    CHECK_NCCL(ncclGroupStart());
    for (int peer = 0; peer < l->ranks; peer++) {
        for (size_t i = 0; i < l->experts[peer]; i++) {
            int count = counts->of[l->rank][l->first_expert[peer] + i];
            message(l, to_experts, token_rows, count, peer);
            token_rows += count * INPUTS;
        }
    }
    for (size_t i = 0; i < own_experts(l); i++) {
        for (int peer = 0; peer < l->ranks; peer++) {
            int count = counts->of[peer][l->first_expert[l->rank] + i];
            message(l, !to_experts, expert_rows, count, peer);
            expert_rows += count * INPUTS;
        }
    }
    CHECK_NCCL(ncclGroupEnd());
}

static void loss_of(const struct layer *l, int step)
{
    loss_backward(l->y_gradient, l->losses + step, l->y, l->target, l->tokens * INPUTS,
                  l->team.stream);
}

static void step_by_hand(const struct layer *l, int step, struct counts *counts)
{
    cudaStream_t s = l->team.stream;
    unsigned blocks = blocks_of(l->tokens * INPUTS);
    choose(l);
    count_rows(l, counts);
    const struct received in = find_received(l, counts);

    spread_kernel<<<blocks, 128, 0, s>>>(l->sent, l->x, l->slots, NULL, l->tokens);
    exchange(l, counts, true, l->sent, l->rows);
    experts_forward(l, &in);
    exchange(l, counts, false, l->returned, l->results);
    sum_kernel<<<blocks, 128, 0, s>>>(l->y, l->returned, l->slots, l->choice_weights, l->tokens);
    loss_of(l, step);

    weight_gradient_kernel<<<1, MOST, 0, s>>>(l->choice_gradients, l->returned, l->y_gradient,
                                              l->slots, l->tokens * CHOICES);
    spread_kernel<<<blocks, 128, 0, s>>>(l->sent, l->y_gradient, l->slots, l->choice_weights,
                                         l->tokens);
    exchange(l, counts, true, l->sent, l->result_gradients);
    experts_backward(l, &in, l->result_gradients);
    exchange(l, counts, false, l->returned, l->row_gradients);
    sum_kernel<<<blocks, 128, 0, s>>>(l->x_gradient, l->returned, l->slots, NULL, l->tokens);
    CHECK_CUDA(cudaGetLastError());
    choose_backward(l);
}

// ---- By the library -----------------------------------------------------------------------------

static tuttiMoe_t make_moe(const struct layer *l)
{
    struct tuttiMoeOptions options = TUTTI_MOE_OPTIONS_INITIALIZER;
    tuttiMoe_t moe;
    options.experts = EXPERTS;
    options.choices = CHOICES;
    options.hidden = INPUTS;
    options.maxTokens = l->tokens;
    CHECK_NCCL(tuttiMoeCreate(l->team.comm, &options, &moe));
    return moe;
}

// The rows in order of expert, then of source rank and token: as by hand.
static void step_by_library(const struct layer *l, int step, tuttiMoe_t moe,
                            struct tuttiMoeReport *report)
{
    cudaStream_t s = l->team.stream;
    tuttiMoeRoute_t route;
    struct tuttiMoeReceived got;
    struct received in;
    void *result_gradients;
    choose(l);
    CHECK_NCCL(tuttiMoeDispatch(moe, l->x, l->tokens, l->choices, l->choice_weights, &route, s));
    CHECK_NCCL(tuttiMoeGetReceived(route, &got));
    CHECK_NCCL(tuttiMoeGetReport(route, report));
    memcpy(in.counts, got.counts, (size_t)got.experts * sizeof(size_t));
    memcpy(in.offsets, got.offsets, (size_t)got.experts * sizeof(size_t));
    if (got.rowCount > 0) { // a later call uses their memory, and the backward pass needs them
        CHECK_CUDA(cudaMemcpyAsync(l->rows, got.rows, got.rowCount * INPUTS * sizeof(float),
                                   cudaMemcpyDeviceToDevice, s));
    }
    experts_forward(l, &in);
    CHECK_NCCL(tuttiMoeCombine(route, l->results, l->y, s));
    loss_of(l, step);

    CHECK_NCCL(tuttiMoeCombineBackward(route, l->y_gradient, l->results, &result_gradients,
                                       l->choice_gradients, s));
    experts_backward(l, &in, (const float *)result_gradients);
    CHECK_NCCL(tuttiMoeDispatchBackward(route, l->row_gradients, l->x_gradient, s));
    choose_backward(l);
    CHECK_NCCL(tuttiMoeRouteDestroy(route));
}

// ---- Training -----------------------------------------------------------------------------------

static float wide_target(size_t token, size_t i)
{
    return made_up(2, token * INPUTS + i);
}

// ranks: 1 for the whole layer alone.
static struct layer make_layer(struct team team, int ranks, int rank)
{
    struct layer l = {};
    size_t tokens[RANKS], first_tokens[RANKS];
    CHECK_NCCL(tuttiSplitCounts(EXPERTS, ranks, l.experts, l.first_expert)); // 2, 2, 1, 1
    CHECK_NCCL(tuttiSplitCounts(TOKENS, ranks, tokens, first_tokens));
    l.ranks = ranks;
    l.rank = rank;
    l.tokens = tokens[rank];
    l.first_token = first_tokens[rank];
    l.elements = ROUTER + l.experts[rank] * EXPERT;
    l.x = device_matrix(input_element, l.first_token, l.tokens, INPUTS);
    l.target = device_matrix(wide_target, l.first_token, l.tokens, INPUTS);
    float **const flat[] = {&l.weights, &l.gradients, &l.mean, &l.square};
    for (int i = 0; i < 4; i++) {
        *flat[i] = device_zeros(l.elements);
    }
    float **const of_tokens[] = {&l.x_gradient, &l.y, &l.y_gradient};
    for (int i = 0; i < 3; i++) {
        *of_tokens[i] = device_zeros(l.tokens * INPUTS);
    }
    float **const of_router[] = {&l.logits, &l.logit_gradients, &l.probabilities, &l.choice_weights,
                                 &l.choice_gradients};
    for (int i = 0; i < 5; i++) {
        *of_router[i] = device_zeros(l.tokens * EXPERTS);
    }
    l.choices = (int32_t *)device_zeros(l.tokens * CHOICES);
    l.slots = (int *)device_zeros(l.tokens * CHOICES);
    float **const of_rows[] = {&l.sent,    &l.returned,        &l.rows,
                               &l.results, &l.row_gradients,   &l.result_gradients,
                               &l.hidden,  &l.hidden_gradients};
    for (int i = 0; i < 8; i++) {
        *of_rows[i] = device_zeros(MOST * WIDE);
    }
    l.losses = (double *)device_zeros(2 * STEPS);
    l.team = team;
    return l;
}

static void free_layer(const struct layer *l)
{
    void *const all[] = {l->weights,
                         l->gradients,
                         l->mean,
                         l->square,
                         l->x,
                         l->x_gradient,
                         l->y,
                         l->y_gradient,
                         l->target,
                         l->logits,
                         l->logit_gradients,
                         l->probabilities,
                         l->choice_weights,
                         l->choice_gradients,
                         l->choices,
                         l->slots,
                         l->sent,
                         l->returned,
                         l->rows,
                         l->results,
                         l->row_gradients,
                         l->result_gradients,
                         l->hidden,
                         l->hidden_gradients,
                         l->losses};
    device_free(all, sizeof all / sizeof all[0], l->team.stream);
}

// The rank's part of all weights: the router and its experts.
static void cut(const struct layer *l, const float *all, float *part)
{
    memcpy(part, all, ROUTER * sizeof(float));
    memcpy(part + ROUTER, all + ROUTER + l->first_expert[l->rank] * EXPERT,
           own_experts(l) * EXPERT * sizeof(float));
}

static void start(const struct layer *l)
{
    float *all = (float *)malloc(2 * ALL * sizeof(float)), *part = all + ALL;
    for (size_t i = 0; i < ALL; i++) {
        all[i] = made_up(4, i) / 4;
    }
    cut(l, all, part);
    copy_to_device(l->weights, part, l->elements * sizeof(float), l->team.stream);
    CHECK_CUDA(cudaMemsetAsync(l->mean, 0, l->elements * sizeof(float), l->team.stream));
    CHECK_CUDA(cudaMemsetAsync(l->square, 0, l->elements * sizeof(float), l->team.stream));
    CHECK_CUDA(cudaMemsetAsync(l->losses, 0, STEPS * sizeof(double), l->team.stream));
    free(all);
}

// What a rank sent in the first step, for the table.
struct sent {
    struct counts counts;
    int rows_by_library;
};

static void train(const struct layer *l, enum way way, struct sent *sent)
{
    cudaStream_t s = l->team.stream;
    tuttiMoe_t moe = way == LIBRARY ? make_moe(l) : NULL;
    start(l);
    for (int step = 0; step < STEPS; step++) {
        CHECK_CUDA(cudaMemsetAsync(l->gradients, 0, l->elements * sizeof(float), s));
        if (way == BY_HAND) {
            struct counts counts;
            step_by_hand(l, step, &counts);
            sent->counts = step == 0 ? counts : sent->counts;
        } else {
            struct tuttiMoeReport report;
            step_by_library(l, step, moe, &report);
            sent->rows_by_library = step == 0 ? (int)report.toRanks : sent->rows_by_library;
        }
        struct adam adam = {l->weights, l->mean, l->square, l->gradients, step + 1};
        adam_step(adam, l->elements, s);
    }
    CHECK_NCCL(ncclAllReduce(l->losses, l->losses, STEPS, ncclDouble, ncclSum, l->team.comm, s));
    CHECK_CUDA(cudaStreamSynchronize(s));
    CHECK_NCCL(tuttiMoeDestroy(moe));
}

// ---- The lesson ---------------------------------------------------------------------------------

struct alone {
    float weights[ALL], x_gradient[TOKENS * INPUTS];
    double losses[STEPS];
};

// One rank alone: the functions by hand, with a communicator of one rank, which sends to itself.
static void run_alone(const struct lesson_rank *self, struct team team, struct alone *alone)
{
    struct team own = team;
    struct sent sent;
    CHECK_NCCL(ncclCommSplit(team.comm, self->rank, 0, &own.comm, NULL));
    struct layer whole = make_layer(own, 1, 0);
    train(&whole, BY_HAND, &sent);
    copy_to_host(alone->weights, whole.weights, sizeof alone->weights, team.stream);
    copy_to_host(alone->x_gradient, whole.x_gradient, sizeof alone->x_gradient, team.stream);
    copy_to_host(alone->losses, whole.losses, sizeof alone->losses, team.stream);
    free_layer(&whole);
    CHECK_NCCL(ncclCommDestroy(own.comm));
}

static bool check(const struct lesson_rank *self, const struct layer *l, const struct alone *alone,
                  enum way way)
{
    double losses[STEPS];
    float *part = (float *)malloc(ALL * sizeof(float));
    cut(l, alone->weights, part);
    copy_to_host(losses, l->losses, sizeof losses, l->team.stream);
    double apart = largest_difference(l->weights, part, l->elements, l->team.stream);
    double below = largest_difference(l->x_gradient, alone->x_gradient + l->first_token * INPUTS,
                                      l->tokens * INPUTS, l->team.stream);
    bool right = apart <= 1e-5 && below <= 1e-5 && same_losses(losses, alone->losses);
    print_losses(self, names[way], losses);
    if (!right) {
        printf("rank %d: %s: weights %g, gradients of x %g apart from one rank\n", self->rank,
               names[way], apart, below);
    }
    free(part);
    return lesson_all(self, right);
}

static void print_costs(const struct lesson_rank *self, const struct layer *l,
                        const struct sent *sent)
{
    int by_library[RANKS];
    int *device = l->slots; // not used any more
    copy_to_device(device + self->rank, &sent->rows_by_library, sizeof(int), l->team.stream);
    CHECK_NCCL(
        ncclAllGather(device + self->rank, device, 1, ncclInt, l->team.comm, l->team.stream));
    CHECK_CUDA(cudaStreamSynchronize(l->team.stream));
    copy_to_host(by_library, device, sizeof by_library, l->team.stream);
    lesson_say(self,
               "First step   rows for expert  0   1 | 2   3 | 4 | 5    sent: by hand  library\n");
    for (int rank = 0; rank < RANKS; rank++) {
        const int *of = sent->counts.of[rank];
        lesson_say(self,
                   "  rank %d                     %2d  %2d  %2d  %2d  %2d  %2d    %13d  %7d\n",
                   rank, of[0], of[1], of[2], of[3], of[4], of[5],
                   of[0] + of[1] + of[2] + of[3] + of[4] + of[5], by_library[rank]);
    }
    lesson_say(self,
               "Bytes of a row: %zu. A step: rows to the experts and back, forward and "
               "backward\n",
               INPUTS * sizeof(float));
    lesson_say(self, "Weights, gradients, Adam:");
    for (int rank = 0; rank < RANKS; rank++) {
        lesson_say(self, " %zu,", (ROUTER + l->experts[rank] * EXPERT) * 4 * sizeof(float));
    }
    lesson_say(self, " one rank %zu bytes\n", ALL * 4 * sizeof(float));
}

// The library needs them; the way by hand does not.
static bool has_windows(const struct lesson_rank *self, ncclComm_t comm)
{
    ncclCommProperties_t can = NCCL_COMM_PROPERTIES_INITIALIZER;
    CHECK_NCCL(ncclCommQueryProperties(comm, &can));
    return lesson_require(self, can.deviceApiSupport,
                          "tuttiMoe needs symmetric windows, and this communicator has none: its "
                          "GPUs cannot read each other's memory. Use GPUs joined by NVLink, as "
                          "virtual ones are when VGPU_MACHINE is not set");
}

static bool run_rank(const struct lesson_rank *self)
{
    if (!lesson_kernel_fits(self, (const void *)adam_kernel)) {
        return false;
    }
    struct team team = team_begin(self);
    if (!has_windows(self, team.comm)) {
        team_end(team);
        return false;
    }
    struct alone *alone = (struct alone *)malloc(sizeof *alone);
    struct layer layer = make_layer(team, RANKS, self->rank);
    struct sent sent = {};
    run_alone(self, team, alone);
    lesson_say(self, "Losses, %d ranks with %zu of %d tokens each and 2, 2, 1, 1 of %d experts\n",
               RANKS, layer.tokens, TOKENS, EXPERTS);
    print_losses(self, "one rank", alone->losses);
    bool right = true;
    for (int way = 0; way < WAYS && right; way++) {
        train(&layer, (enum way)way, &sent);
        right = check(self, &layer, alone, (enum way)way);
    }
    print_costs(self, &layer, &sent);
    free_layer(&layer);
    free(alone);
    team_end(team);
    return lesson_report(self, right);
}

int main(int argc, char **argv)
{
    struct lesson_options defaults = {TOKENS, INPUTS, 128, 0, LESSON_FLOAT, 1, RANKS, 0};
    return lesson_run(argc, argv, "Lesson 16: expert parallelism", &defaults, run_rank);
}
