// SPDX-License-Identifier: Apache-2.0
// Lesson 14: sequence parallelism. Tensor parallelism (lesson 13) leaves x and y on all ranks, and
// each rank computes the norm of all tokens, the same as all others. Here a rank has only its
// tokens of x and y; the two all-reduces become an all-gather and a reduce-scatter each:
//     x, own tokens -> norm -> all-gather -> up, relu, down (slices) -> reduce-scatter -> y, own
// Done twice:
//   by hand    kernels, ncclAllGather and ncclReduceScatter
//   boundary   tuttiBoundary, tuttiSequence and the layers of lesson 13
// and compared with the same by one rank alone. The kernels of the layers are in
// ../common/network.cuh; those of the norm are here.
#include "network.cuh"

#include <tutti.h>
#include <tutti_parallel/sequence.h>
#include <tutti_parallel/tensor.h>

enum { RANKS = 3, GAMMA = INPUTS };
static_assert(TOKENS % RANKS == 0,
              "by hand every rank has as many tokens; tuttiSequence takes any");
static const float eps = 1e-5f;

enum way { BY_HAND, BOUNDARY, WAYS };
static const char *const names[WAYS] = {"by hand", "boundary"};

// ---- RMSNorm: y = x / sqrt(mean of x^2 + eps) * gamma -------------------------------------------
// B. Zhang, R. Sennrich, "Root Mean Square Layer Normalization", 2019. One thread for each token.

static __device__ float inverse_root(const float *x)
{
    float squares = 0;
    for (int i = 0; i < INPUTS; i++) {
        squares += x[i] * x[i];
    }
    return 1 / sqrtf(squares / INPUTS + eps);
}

static __global__ void norm_kernel(float *y, const float *x, const float *gamma)
{
    const float *row = x + threadIdx.x * INPUTS;
    float scale = inverse_root(row);
    for (int i = 0; i < INPUTS; i++) {
        y[threadIdx.x * INPUTS + i] = row[i] * scale * gamma[i];
    }
}

// dx = scale * (dy * gamma - x * scale^2 * mean of (dy * gamma * x))
static __global__ void norm_input_kernel(float *dx, const float *dy, const float *x,
                                         const float *gamma)
{
    const float *row = x + threadIdx.x * INPUTS, *dy_row = dy + threadIdx.x * INPUTS;
    float scale = inverse_root(row), mean = 0;
    for (int i = 0; i < INPUTS; i++) {
        mean += dy_row[i] * gamma[i] * row[i] / INPUTS;
    }
    for (int i = 0; i < INPUTS; i++) {
        dx[threadIdx.x * INPUTS + i] =
            scale * (dy_row[i] * gamma[i] - row[i] * scale * scale * mean);
    }
}

// dgamma += sum over the tokens of dy * x * scale. One thread for each element of gamma.
static __global__ void norm_gamma_kernel(float *dgamma, const float *dy, const float *x, int tokens)
{
    int i = (int)threadIdx.x;
    for (int token = 0; token < tokens; token++) {
        dgamma[i] +=
            dy[token * INPUTS + i] * x[token * INPUTS + i] * inverse_root(x + token * INPUTS);
    }
}

// ---- One rank -----------------------------------------------------------------------------------

// Its slice of the weights and its tokens, in device memory. `own` features, `tokens` tokens.
struct slice {
    size_t own, first, tokens, first_token, elements;
    float *weights, *gradients, *mean, *square; // [elements]: up [own x INPUTS], down [OUTPUTS x
                                                // own], gamma [INPUTS], which all ranks have
    float *x, *x_gradient, *target;             // own tokens
    float *rows, *rows_gradient;                // [TOKENS x INPUTS], between norm and up
    float *hidden, *hidden_gradient;            // [TOKENS x own]
    float *y, *y_gradient;                      // [TOKENS x OUTPUTS]
    double *losses;                             // [STEPS], of the own tokens
    struct team team;
};

static float *down_of(const struct slice *g, float *flat)
{
    return flat + g->own * INPUTS;
}

static float *gamma_of(const struct slice *g, float *flat)
{
    return flat + g->own * (INPUTS + OUTPUTS);
}

// ---- By hand ------------------------------------------------------------------------------------

// An all-gather in place: the own part lies where it belongs. So does a reduce-scatter's result.
static void forward_by_hand(const struct slice *g)
{
    ncclComm_t comm = g->team.comm;
    cudaStream_t s = g->team.stream;
    float *own_rows = g->rows + g->first_token * INPUTS;
    float *own_y = g->y + g->first_token * OUTPUTS;
    norm_kernel<<<1, (unsigned)g->tokens, 0, s>>>(own_rows, g->x, gamma_of(g, g->weights));
    CHECK_CUDA(cudaGetLastError());
    CHECK_NCCL(ncclAllGather(own_rows, g->rows, g->tokens * INPUTS, ncclFloat, comm, s));
    layer_forward(g->hidden, g->rows, g->weights, TOKENS, g->own, INPUTS, s);
    relu_forward(g->hidden, TOKENS * g->own, s);
    layer_forward(g->y, g->hidden, down_of(g, g->weights), TOKENS, OUTPUTS, g->own, s);
    CHECK_NCCL(ncclReduceScatter(g->y, own_y, g->tokens * OUTPUTS, ncclFloat, ncclSum, comm, s));
}

// Backward an all-gather is a reduce-scatter, and a reduce-scatter an all-gather.
static void backward_by_hand(const struct slice *g)
{
    ncclComm_t comm = g->team.comm;
    cudaStream_t s = g->team.stream;
    float *own_rows_gradient = g->rows_gradient + g->first_token * INPUTS;
    float *own_y_gradient = g->y_gradient + g->first_token * OUTPUTS;
    float *gamma = gamma_of(g, g->weights), *gamma_gradient = gamma_of(g, g->gradients);
    CHECK_NCCL(
        ncclAllGather(own_y_gradient, g->y_gradient, g->tokens * OUTPUTS, ncclFloat, comm, s));
    layer_weight_gradient(down_of(g, g->gradients), g->y_gradient, g->hidden, TOKENS, OUTPUTS,
                          g->own, s);
    layer_input_gradient(g->hidden_gradient, g->y_gradient, down_of(g, g->weights), TOKENS, OUTPUTS,
                         g->own, s);
    relu_backward(g->hidden_gradient, g->hidden, TOKENS * g->own, s);
    layer_weight_gradient(g->gradients, g->hidden_gradient, g->rows, TOKENS, g->own, INPUTS, s);
    layer_input_gradient(g->rows_gradient, g->hidden_gradient, g->weights, TOKENS, g->own, INPUTS,
                         s);
    CHECK_NCCL(ncclReduceScatter(g->rows_gradient, own_rows_gradient, g->tokens * INPUTS, ncclFloat,
                                 ncclSum, comm, s));
    norm_input_kernel<<<1, (unsigned)g->tokens, 0, s>>>(g->x_gradient, own_rows_gradient, g->x,
                                                        gamma);
    norm_gamma_kernel<<<1, INPUTS, 0, s>>>(gamma_gradient, own_rows_gradient, g->x, (int)g->tokens);
    CHECK_CUDA(cudaGetLastError());
}

// ---- By the library -----------------------------------------------------------------------------

// The object owns rows: a window, so that RMSNorm between two blocks can be one fused operation.
static struct tuttiBoundary *make_boundary(struct team team)
{
    const struct tuttiNorm norm = {
        TUTTI_RMS_NORM, INPUTS, (double)eps, {ncclFloat, ncclFloat, ncclFloat}};
    struct tuttiBoundary *boundary;
    CHECK_NCCL(
        tuttiBoundaryCreate(&norm, TOKENS, TUTTI_BOUNDARY_AUTO, team.comm, team.stream, &boundary));
    return boundary;
}

static void step_by_boundary(const struct slice *g, struct tuttiBoundary *boundary, int step)
{
    const struct team t = g->team;
    const struct tuttiTypes types = {ncclFloat, ncclFloat, ncclFloat};
    const struct tuttiLinear up = {INPUTS, HIDDEN, types, t.comm, t.stream};
    const struct tuttiLinear down = {HIDDEN, OUTPUTS, types, t.comm, t.stream};
    const struct tuttiSequence y = {TOKENS, OUTPUTS, ncclFloat, t.comm, t.stream};
    float *gamma = gamma_of(g, g->weights),
          *own_y_gradient = g->y_gradient + g->first_token * OUTPUTS;
    float *own_y = g->y + g->first_token * OUTPUTS;
    void *rows;
    CHECK_NCCL(tuttiBoundaryRows(boundary, &rows));

    CHECK_NCCL(tuttiBoundaryGather(boundary, TOKENS, g->x, gamma, NULL));
    CHECK_NCCL(tuttiColumnLinearForward(&up, 0, TOKENS, rows, g->weights, g->hidden));
    relu_forward(g->hidden, TOKENS * g->own, t.stream);
    CHECK_NCCL(tuttiRowLinearForward(&down, TUTTI_LEAVE_PARTIAL, TOKENS, g->hidden,
                                     down_of(g, g->weights), g->y));
    CHECK_NCCL(tuttiSequenceReduceScatter(&y, g->y, own_y));
    loss_backward(own_y_gradient, g->losses + step, own_y, g->target, g->tokens * OUTPUTS,
                  t.stream);

    const struct tuttiLinearGradients of_down = {g->hidden, down_of(g, g->weights), g->y_gradient,
                                                 g->hidden_gradient, down_of(g, g->gradients)};
    const struct tuttiLinearGradients of_up = {rows, g->weights, g->hidden_gradient,
                                               g->rows_gradient, g->gradients};
    struct tuttiBoundaryGradients of_norm = {
        g->x, gamma, g->rows_gradient, g->x_gradient, gamma_of(g, g->gradients), NULL, NULL, 0};
    CHECK_NCCL(tuttiSequenceAllGather(&y, own_y_gradient, g->y_gradient));
    CHECK_NCCL(tuttiRowLinearBackward(&down, 0, TOKENS, &of_down));
    relu_backward(g->hidden_gradient, g->hidden, TOKENS * g->own, t.stream);
    CHECK_NCCL(tuttiColumnLinearBackward(&up, TUTTI_LEAVE_PARTIAL, TOKENS, &of_up));
    CHECK_NCCL(tuttiBoundaryBackward(boundary, TOKENS, &of_norm));
}

// ---- Training -----------------------------------------------------------------------------------

// ranks: 1 for the whole network alone.
static struct slice make_slice(struct team team, int ranks, int rank)
{
    size_t features[RANKS], first_features[RANKS], tokens[RANKS], first_tokens[RANKS];
    struct slice g;
    CHECK_NCCL(tuttiSplitCounts(HIDDEN, ranks, features, first_features));
    CHECK_NCCL(tuttiSplitCounts(TOKENS, ranks, tokens, first_tokens));
    g.own = features[rank];
    g.first = first_features[rank];
    g.tokens = tokens[rank];
    g.first_token = first_tokens[rank];
    g.elements = g.own * (INPUTS + OUTPUTS) + GAMMA;
    g.weights = device_zeros(g.elements);
    g.gradients = device_zeros(g.elements);
    g.mean = device_zeros(g.elements);
    g.square = device_zeros(g.elements);
    g.x = device_matrix(input_element, g.first_token, g.tokens, INPUTS);
    g.x_gradient = device_zeros(g.tokens * INPUTS);
    g.target = device_matrix(target_element, g.first_token, g.tokens, OUTPUTS);
    g.rows = device_zeros(TOKENS * INPUTS);
    g.rows_gradient = device_zeros(TOKENS * INPUTS);
    g.hidden = device_zeros(TOKENS * g.own);
    g.hidden_gradient = device_zeros(TOKENS * g.own);
    g.y = device_zeros(TOKENS * OUTPUTS);
    g.y_gradient = device_zeros(TOKENS * OUTPUTS);
    g.losses = (double *)device_zeros(2 * STEPS);
    g.team = team;
    return g;
}

static void free_slice(const struct slice *g)
{
    void *const all[] = {g->weights, g->gradients,     g->mean,   g->square,         g->x,
                         g->rows,    g->rows_gradient, g->hidden, g->x_gradient,     g->target,
                         g->y,       g->y_gradient,    g->losses, g->hidden_gradient};
    device_free(all, sizeof all / sizeof all[0], g->team.stream);
}

// The slice's part of weights [up | down | gamma]: its rows of up, its columns of down, gamma.
static void cut(const struct slice *g, const float *all, float *part)
{
    memcpy(part, all + g->first * INPUTS, g->own * INPUTS * sizeof(float));
    for (size_t out = 0; out < OUTPUTS; out++) {
        memcpy(part + g->own * (INPUTS + out), all + UP + out * HIDDEN + g->first,
               g->own * sizeof(float));
    }
    memcpy(part + g->own * (INPUTS + OUTPUTS), all + WEIGHTS, GAMMA * sizeof(float));
}

static void start(const struct slice *g)
{
    float all[WEIGHTS + GAMMA], part[WEIGHTS + GAMMA];
    for (size_t i = 0; i < WEIGHTS + GAMMA; i++) {
        all[i] = i < WEIGHTS ? initial_weight(i) : 1;
    }
    cut(g, all, part);
    copy_to_device(g->weights, part, g->elements * sizeof(float), g->team.stream);
    CHECK_CUDA(cudaMemsetAsync(g->mean, 0, g->elements * sizeof(float), g->team.stream));
    CHECK_CUDA(cudaMemsetAsync(g->square, 0, g->elements * sizeof(float), g->team.stream));
    CHECK_CUDA(cudaMemsetAsync(g->losses, 0, STEPS * sizeof(double), g->team.stream));
}

static void train(const struct slice *g, enum way way)
{
    cudaStream_t s = g->team.stream;
    struct tuttiBoundary *boundary = way == BY_HAND ? NULL : make_boundary(g->team);
    start(g);
    for (int step = 0; step < STEPS; step++) {
        CHECK_CUDA(cudaMemsetAsync(g->gradients, 0, g->elements * sizeof(float), s));
        if (way == BY_HAND) {
            forward_by_hand(g);
            loss_backward(g->y_gradient + g->first_token * OUTPUTS, g->losses + step,
                          g->y + g->first_token * OUTPUTS, g->target, g->tokens * OUTPUTS, s);
            backward_by_hand(g);
        } else {
            step_by_boundary(g, boundary, step);
        }
        // gamma is on all ranks, and each has the gradient of its tokens alone. Whoever forgets
        // this sum trains ranks apart.
        float *gamma_gradient = gamma_of(g, g->gradients);
        CHECK_NCCL(ncclAllReduce(gamma_gradient, gamma_gradient, GAMMA, ncclFloat, ncclSum,
                                 g->team.comm, s));
        struct adam adam = {g->weights, g->mean, g->square, g->gradients, step + 1};
        adam_step(adam, g->elements, s);
    }
    CHECK_NCCL(ncclAllReduce(g->losses, g->losses, STEPS, ncclDouble, ncclSum, g->team.comm, s));
    CHECK_CUDA(cudaStreamSynchronize(s));
    CHECK_NCCL(tuttiBoundaryDestroy(boundary));
}

// ---- The lesson ---------------------------------------------------------------------------------

// What one rank alone arrives at.
struct alone {
    float weights[WEIGHTS + GAMMA], x_gradient[TOKENS * INPUTS];
    double losses[STEPS];
};

// By the same kernels, with a communicator of its own for each rank: collectives of one rank copy.
static void run_alone(const struct lesson_rank *self, struct team team, struct alone *alone)
{
    struct team own = team;
    CHECK_NCCL(ncclCommSplit(team.comm, self->rank, 0, &own.comm, NULL));
    struct slice whole = make_slice(own, 1, 0);
    train(&whole, BY_HAND);
    copy_to_host(alone->weights, whole.weights, sizeof alone->weights, team.stream);
    copy_to_host(alone->x_gradient, whole.x_gradient, sizeof alone->x_gradient, team.stream);
    copy_to_host(alone->losses, whole.losses, sizeof alone->losses, team.stream);
    free_slice(&whole);
    CHECK_NCCL(ncclCommDestroy(own.comm));
}

static bool check(const struct lesson_rank *self, const struct slice *g, const struct alone *alone,
                  enum way way)
{
    double losses[STEPS];
    float part[WEIGHTS + GAMMA];
    cut(g, alone->weights, part);
    copy_to_host(losses, g->losses, sizeof losses, g->team.stream);
    double apart = largest_difference(g->weights, part, g->elements, g->team.stream);
    double below = largest_difference(g->x_gradient, alone->x_gradient + g->first_token * INPUTS,
                                      g->tokens * INPUTS, g->team.stream);
    bool right = apart <= 1e-5 && below <= 1e-5 && same_losses(losses, alone->losses);
    print_losses(self, names[way], losses);
    if (!right) {
        printf("rank %d: %s: weights %g, gradients of x %g apart from one rank\n", self->rank,
               names[way], apart, below);
    }
    return lesson_all(self, right);
}

// Of an all-gather or a reduce-scatter what is the others' arrives; an all-reduce is both.
static void print_costs(const struct lesson_rank *self)
{
    const size_t x = TOKENS * INPUTS * sizeof(float), y = TOKENS * OUTPUTS * sizeof(float);
    const size_t x_part = x - x / RANKS, y_part = y - y / RANKS;
    lesson_say(self, "Bytes that arrive at a rank, a step\n");
    lesson_say(self, "  tensor parallel    all-reduce of y                               %5zu\n",
               2 * y_part);
    lesson_say(self, "                     all-reduce of x's gradient                    %5zu\n",
               2 * x_part);
    lesson_say(self, "  sequence parallel  all-gather of norm(x), reduce-scatter of y    %5zu\n",
               x_part + y_part);
    lesson_say(self, "                     all-gather, reduce-scatter of their gradients %5zu\n",
               x_part + y_part);
    lesson_say(self, "                     and an all-reduce of gamma's gradient, %zu bytes\n",
               GAMMA * sizeof(float));
    lesson_say(self, "Memory of x, kept for the backward pass: %zu, %zu bytes\n", x, x / RANKS);
}

static bool run_rank(const struct lesson_rank *self)
{
    if (!lesson_kernel_fits(self, (const void *)adam_kernel)) {
        return false;
    }
    struct alone alone;
    struct team team = team_begin(self);
    struct slice slice = make_slice(team, RANKS, self->rank);
    run_alone(self, team, &alone);
    lesson_say(self, "Losses, %d ranks with %zu of %d tokens each outside the layers\n", RANKS,
               slice.tokens, TOKENS);
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
    return lesson_run(argc, argv, "Lesson 14: sequence parallelism", &defaults, run_rank);
}
