// SPDX-License-Identifier: Apache-2.0
// Lesson 13: tensor parallelism. Every rank has all tokens, and a slice of every weight matrix:
// some of the hidden features. The first layer is split by rows of its matrix (column-parallel:
// each rank computes some columns of the result), the second by columns (row-parallel: each rank
// computes a part of every sum), so that between the two nothing travels. Done twice:
//   by hand   kernels, one ncclAllReduce forward and one backward
//   layers    tuttiColumnLinear and tuttiRowLinear
// The network and its kernels are in ../common/network.cuh.
#include "network.cuh"

#include <tutti.h>
#include <tutti_parallel/tensor.h>

enum { RANKS = 3 };

enum way { BY_HAND, LAYERS, WAYS };
static const char *const names[WAYS] = {"by hand", "layers"};

// One rank's slice of the network, in device memory. `own` hidden features, from `first` on.
struct slice {
    size_t own, first, elements;
    float *weights, *gradients, *mean, *square; // [elements]: up [own x INPUTS],
                                                // then down [OUTPUTS x own]
    float *x, *target, *y, *y_gradient;         // all tokens, on all ranks the same
    float *hidden, *hidden_gradient;            // [TOKENS x own]
    float *x_gradient;                          // [TOKENS x INPUTS], for a layer below
    double *losses;                             // [STEPS]
    struct team team;
};

// The slice's part of all weights: its rows of up, its columns of down.
static void cut(const struct slice *g, const float *all, float *part)
{
    for (size_t i = 0; i < g->own * INPUTS; i++) {
        *part++ = all[g->first * INPUTS + i];
    }
    for (size_t out = 0; out < OUTPUTS; out++) {
        for (size_t i = 0; i < g->own; i++) {
            *part++ = all[UP + out * HIDDEN + g->first + i];
        }
    }
}

// ---- By hand ------------------------------------------------------------------------------------

static void step_by_hand(const struct slice *g, int step)
{
    float *up = g->weights, *down = up + g->own * INPUTS;
    float *up_gradient = g->gradients, *down_gradient = up_gradient + g->own * INPUTS;
    ncclComm_t comm = g->team.comm;
    cudaStream_t s = g->team.stream;

    // Forward. Each rank computes its hidden features from all inputs; relu needs nobody. Of y it
    // computes what its features add to each element: the sum over the ranks is y.
    layer_forward(g->hidden, g->x, up, TOKENS, g->own, INPUTS, s);
    relu_forward(g->hidden, TOKENS * g->own, s);
    layer_forward(g->y, g->hidden, down, TOKENS, OUTPUTS, g->own, s);
    CHECK_NCCL(ncclAllReduce(g->y, g->y, TOKENS * OUTPUTS, ncclFloat, ncclSum, comm, s));

    // All ranks have y, so all compute the same loss and gradient.
    loss_backward(g->y_gradient, g->losses + step, g->y, g->target, TOKENS * OUTPUTS, s);

    // Backward. The gradients of the own weights and features need nobody. Those of x are sums over
    // all hidden features: of the parts that the ranks have.
    layer_weight_gradient(down_gradient, g->y_gradient, g->hidden, TOKENS, OUTPUTS, g->own, s);
    layer_input_gradient(g->hidden_gradient, g->y_gradient, down, TOKENS, OUTPUTS, g->own, s);
    relu_backward(g->hidden_gradient, g->hidden, TOKENS * g->own, s);
    layer_input_gradient(g->x_gradient, g->hidden_gradient, up, TOKENS, g->own, INPUTS, s);
    CHECK_NCCL(
        ncclAllReduce(g->x_gradient, g->x_gradient, TOKENS * INPUTS, ncclFloat, ncclSum, comm, s));
    layer_weight_gradient(up_gradient, g->hidden_gradient, g->x, TOKENS, g->own, INPUTS, s);
}

// ---- By the library's layers --------------------------------------------------------------------

static void step_by_layers(const struct slice *g, int step)
{
    const struct tuttiTypes types = {ncclFloat, ncclFloat, ncclFloat};
    const struct tuttiLinear up = {INPUTS, HIDDEN, types, g->team.comm, g->team.stream};
    const struct tuttiLinear down = {HIDDEN, OUTPUTS, types, g->team.comm, g->team.stream};
    float *down_weights = g->weights + g->own * INPUTS;
    const struct tuttiLinearGradients of_up = {g->x, g->weights, g->hidden_gradient, g->x_gradient,
                                               g->gradients};
    const struct tuttiLinearGradients of_down = {
        g->hidden, down_weights, g->y_gradient, g->hidden_gradient, g->gradients + g->own * INPUTS};
    cudaStream_t s = g->team.stream;

    CHECK_NCCL(tuttiColumnLinearForward(&up, 0, TOKENS, g->x, g->weights, g->hidden));
    relu_forward(g->hidden, TOKENS * g->own, s);
    CHECK_NCCL(tuttiRowLinearForward(&down, 0, TOKENS, g->hidden, down_weights, g->y));
    loss_backward(g->y_gradient, g->losses + step, g->y, g->target, TOKENS * OUTPUTS, s);
    CHECK_NCCL(tuttiRowLinearBackward(&down, 0, TOKENS, &of_down));
    relu_backward(g->hidden_gradient, g->hidden, TOKENS * g->own, s);
    CHECK_NCCL(tuttiColumnLinearBackward(&up, 0, TOKENS, &of_up));
}

// ---- The lesson ---------------------------------------------------------------------------------

static struct slice make_slice(const struct lesson_rank *self, struct team team)
{
    size_t counts[RANKS], firsts[RANKS];
    struct slice g;
    CHECK_NCCL(tuttiSplitCounts(HIDDEN, RANKS, counts, firsts)); // 64 over 3: 22, 21, 21
    g.own = counts[self->rank];
    g.first = firsts[self->rank];
    g.elements = g.own * (INPUTS + OUTPUTS);
    g.weights = device_zeros(g.elements);
    g.gradients = device_zeros(g.elements);
    g.mean = device_zeros(g.elements);
    g.square = device_zeros(g.elements);
    g.x = device_matrix(input_element, 0, TOKENS, INPUTS);
    g.target = device_matrix(target_element, 0, TOKENS, OUTPUTS);
    g.y = device_zeros(TOKENS * OUTPUTS);
    g.y_gradient = device_zeros(TOKENS * OUTPUTS);
    g.hidden = device_zeros(TOKENS * g.own);
    g.hidden_gradient = device_zeros(TOKENS * g.own);
    g.x_gradient = device_zeros(TOKENS * INPUTS);
    g.losses = (double *)device_zeros(2 * STEPS);
    g.team = team;
    return g;
}

static void free_slice(const struct slice *g)
{
    void *const all[] = {g->weights,    g->gradients, g->mean,   g->square,          g->x,
                         g->target,     g->y,         g->hidden, g->hidden_gradient, g->x_gradient,
                         g->y_gradient, g->losses};
    device_free(all, sizeof all / sizeof all[0], g->team.stream);
}

static void train(const struct slice *g, enum way way)
{
    float all[WEIGHTS], part[WEIGHTS];
    for (size_t i = 0; i < WEIGHTS; i++) {
        all[i] = initial_weight(i);
    }
    cut(g, all, part);
    copy_to_device(g->weights, part, g->elements * sizeof(float), g->team.stream);
    CHECK_CUDA(cudaMemsetAsync(g->mean, 0, g->elements * sizeof(float), g->team.stream));
    CHECK_CUDA(cudaMemsetAsync(g->square, 0, g->elements * sizeof(float), g->team.stream));
    CHECK_CUDA(cudaMemsetAsync(g->losses, 0, STEPS * sizeof(double), g->team.stream));
    for (int step = 0; step < STEPS; step++) {
        CHECK_CUDA(cudaMemsetAsync(g->gradients, 0, g->elements * sizeof(float), g->team.stream));
        if (way == BY_HAND) {
            step_by_hand(g, step);
        } else {
            step_by_layers(g, step);
        }
        // Every weight is on one rank, and so is its Adam: nothing to agree on.
        struct adam adam = {g->weights, g->mean, g->square, g->gradients, step + 1};
        adam_step(adam, g->elements, g->team.stream);
    }
}

// Compares slices, losses and the last step's gradients of x with those of one rank alone, within
// rounding: the hidden features are added up in another order.
static bool check(const struct lesson_rank *self, const struct slice *g,
                  const struct outcome *alone, enum way way)
{
    double losses[STEPS];
    float part[WEIGHTS];
    cut(g, alone->weights, part);
    double apart = largest_difference(g->weights, part, g->elements, g->team.stream);
    double below =
        largest_difference(g->x_gradient, alone->x_gradient, TOKENS * INPUTS, g->team.stream);
    copy_to_host(losses, g->losses, sizeof losses, g->team.stream);
    bool right = apart <= 1e-5 && below <= 1e-5 && same_losses(losses, alone->losses);
    print_losses(self, names[way], losses);
    if (!right) {
        printf("rank %d: %s: weights %g, gradients of x %g apart from one rank\n", self->rank,
               names[way], apart, below);
    }
    return lesson_all(self, right);
}

static void print_costs(const struct lesson_rank *self)
{
    size_t counts[RANKS];
    const size_t state = 4 * sizeof(float); // weight, gradient and Adam's two
    CHECK_NCCL(tuttiSplitCounts(HIDDEN, RANKS, counts, NULL));
    lesson_say(self, "Bytes                       rank 0   rank 1   rank 2  one rank\n");
    lesson_say(self, "weights, gradients, Adam");
    for (int rank = 0; rank < RANKS; rank++) {
        lesson_say(self, "  %7zu", counts[rank] * (INPUTS + OUTPUTS) * state);
    }
    lesson_say(self, "   %7zu\nhidden activations      ", WEIGHTS * state);
    for (int rank = 0; rank < RANKS; rank++) {
        lesson_say(self, "  %7zu", TOKENS * counts[rank] * sizeof(float));
    }
    lesson_say(self, "   %7zu\nx, y                    ", TOKENS * HIDDEN * sizeof(float));
    for (int rank = 0; rank < RANKS; rank++) {
        lesson_say(self, "  %7zu", TOKENS * (INPUTS + OUTPUTS) * sizeof(float));
    }
    lesson_say(self, "   %7zu\n", TOKENS * (INPUTS + OUTPUTS) * sizeof(float));
    lesson_say(self, "A step, each rank: an all-reduce of y forward, %zu bytes;\n",
               TOKENS * OUTPUTS * sizeof(float));
    lesson_say(self, "  one of the gradient of x backward, %zu bytes\n",
               TOKENS * INPUTS * sizeof(float));
}

static bool run_rank(const struct lesson_rank *self)
{
    if (!lesson_kernel_fits(self, (const void *)adam_kernel)) {
        return false;
    }
    struct outcome alone;
    struct team team = team_begin(self);
    struct slice slice = make_slice(self, team);
    train_alone(&alone, team.stream);
    lesson_say(self, "Losses, %d ranks with 22, 21 and 21 of %d hidden features\n", RANKS, HIDDEN);
    print_losses(self, "one rank", alone.losses);
    bool right = true;
    for (int way = 0; way < WAYS && right; way++) {
        train(&slice, (enum way)way);
        right = check(self, &slice, &alone, (enum way)way);
    }
    print_costs(self);
    free_slice(&slice);
    team_end(team);
    return lesson_report(self, right);
}

int main(int argc, char **argv)
{
    struct lesson_options defaults = {TOKENS, HIDDEN, 128, 0, LESSON_FLOAT, 1, RANKS, 0};
    return lesson_run(argc, argv, "Lesson 13: tensor parallelism", &defaults, run_rank);
}
