// SPDX-License-Identifier: Apache-2.0
// Lesson 12: data parallelism. Every rank has all weights and some of the tokens; what the ranks
// must agree on is the sum of their gradients. Done four times:
//   all-reduce     by hand: backward, then ncclAllReduce of all gradients, then Adam on all weights
//   buckets        tuttiBuckets: each layer's gradients travel while the layer before is computed
//   ZeRO           by hand: ncclReduceScatter, Adam on a quarter of the weights, ncclAllGather
//   ZeRO buckets   tuttiBuckets with zero = 1
// The network and its kernels are in ../common/network.cuh.
#include "network.cuh"

#include <tutti_parallel/data.h>

enum { RANKS = 4, SHARE = WEIGHTS / RANKS, PARTS = 8 };
static_assert(WEIGHTS % RANKS == 0, "ncclReduceScatter gives equal shares; tuttiBuckets any");

enum way { ALL_REDUCE, BUCKETS, ZERO, ZERO_BUCKETS, WAYS };
static const char *const names[WAYS] = {"all-reduce", "buckets", "ZeRO", "ZeRO buckets"};

// One rank's copy of the network, in device memory.
struct replica {
    float *weights, *gradients;     // [WEIGHTS]
    float *mean, *square;           // Adam's state, as much as the way needs
    float *x, *hidden, *y, *target; // the own tokens
    float *hidden_gradient, *y_gradient;
    double *losses; // [STEPS]
    size_t tokens;
    struct team team;
};

static struct replica make_replica(const struct lesson_rank *self, struct team team)
{
    struct replica r;
    size_t first = lesson_first_token(TOKENS, self->ranks, self->rank);
    r.tokens = lesson_first_token(TOKENS, self->ranks, self->rank + 1) - first;
    r.weights = device_zeros(WEIGHTS);
    r.gradients = device_zeros(WEIGHTS);
    r.mean = device_zeros(WEIGHTS);
    r.square = device_zeros(WEIGHTS);
    r.x = device_matrix(input_element, first, r.tokens, INPUTS);
    r.target = device_matrix(target_element, first, r.tokens, OUTPUTS);
    r.hidden = device_zeros(r.tokens * HIDDEN);
    r.hidden_gradient = device_zeros(r.tokens * HIDDEN);
    r.y = device_zeros(r.tokens * OUTPUTS);
    r.y_gradient = device_zeros(r.tokens * OUTPUTS);
    r.losses = (double *)device_zeros(2 * STEPS);
    r.team = team;
    return r;
}

static void free_replica(const struct replica *r)
{
    void *const all[] = {r->weights, r->gradients,  r->mean,   r->square,
                         r->x,       r->target,     r->hidden, r->hidden_gradient,
                         r->y,       r->y_gradient, r->losses};
    device_free(all, sizeof all / sizeof all[0], r->team.stream);
}

// Step 1: rank 0's weights go to all ranks. The others' are zeros before.
static void start(const struct lesson_rank *self, const struct replica *r, enum way way)
{
    CHECK_CUDA(cudaMemsetAsync(r->weights, 0, WEIGHTS * sizeof(float), r->team.stream));
    CHECK_CUDA(cudaMemsetAsync(r->mean, 0, WEIGHTS * sizeof(float), r->team.stream));
    CHECK_CUDA(cudaMemsetAsync(r->square, 0, WEIGHTS * sizeof(float), r->team.stream));
    CHECK_CUDA(cudaMemsetAsync(r->losses, 0, STEPS * sizeof(double), r->team.stream));
    if (self->rank == 0) {
        float host[WEIGHTS];
        for (size_t i = 0; i < WEIGHTS; i++) {
            host[i] = initial_weight(i);
        }
        copy_to_device(r->weights, host, sizeof host, r->team.stream);
    }
    if (way == BUCKETS || way == ZERO_BUCKETS) {
        struct tuttiBuffer buffers[] = {{r->weights, UP, ncclFloat},
                                        {r->weights + UP, DOWN, ncclFloat}};
        CHECK_NCCL(tuttiBroadcastBuffers(buffers, 2, 0, r->team.comm, r->team.stream));
    } else {
        CHECK_NCCL(ncclBroadcast(r->weights, r->weights, WEIGHTS, ncclFloat, 0, r->team.comm,
                                 r->team.stream));
    }
}

// Step 2: forward and backward with the own tokens. The gradients of the loss over ALL tokens: each
// rank has its tokens' part of the sum.
static void forward(const struct replica *r)
{
    cudaStream_t s = r->team.stream;
    CHECK_CUDA(cudaMemsetAsync(r->gradients, 0, WEIGHTS * sizeof(float), s));
    layer_forward(r->hidden, r->x, r->weights, r->tokens, HIDDEN, INPUTS, s);
    relu_forward(r->hidden, r->tokens * HIDDEN, s);
    layer_forward(r->y, r->hidden, r->weights + UP, r->tokens, OUTPUTS, HIDDEN, s);
}

static void backward_down(const struct replica *r, int step)
{
    cudaStream_t s = r->team.stream;
    loss_backward(r->y_gradient, r->losses + step, r->y, r->target, r->tokens * OUTPUTS, s);
    layer_weight_gradient(r->gradients + UP, r->y_gradient, r->hidden, r->tokens, OUTPUTS, HIDDEN,
                          s);
}

static void backward_up(const struct replica *r)
{
    cudaStream_t s = r->team.stream;
    layer_input_gradient(r->hidden_gradient, r->y_gradient, r->weights + UP, r->tokens, OUTPUTS,
                         HIDDEN, s);
    relu_backward(r->hidden_gradient, r->hidden, r->tokens * HIDDEN, s);
    layer_weight_gradient(r->gradients, r->hidden_gradient, r->x, r->tokens, HIDDEN, INPUTS, s);
}

// Step 3: Adam on `count` weights from `offset` on, whose state begins at `state`.
static void update(const struct replica *r, size_t offset, size_t count, size_t state, int step)
{
    struct adam adam = {r->weights + offset, r->mean + state, r->square + state,
                        r->gradients + offset, step + 1};
    adam_step(adam, count, r->team.stream);
}

// ---- By hand ------------------------------------------------------------------------------------

static void step_all_reduce(const struct replica *r, int step)
{
    forward(r);
    backward_down(r, step);
    backward_up(r);
    CHECK_NCCL(ncclAllReduce(r->gradients, r->gradients, WEIGHTS, ncclFloat, ncclSum, r->team.comm,
                             r->team.stream));
    update(r, 0, WEIGHTS, 0, step);
}

// The sums of a share of the gradients only, Adam's state for this share only; then everybody gets
// the new weights. Both collectives in place: the own share lies where it belongs.
static void step_zero(const struct lesson_rank *self, const struct replica *r, int step)
{
    size_t own = (size_t)self->rank * SHARE;
    forward(r);
    backward_down(r, step);
    backward_up(r);
    CHECK_NCCL(ncclReduceScatter(r->gradients, r->gradients + own, SHARE, ncclFloat, ncclSum,
                                 r->team.comm, r->team.stream));
    update(r, own, SHARE, 0, step);
    CHECK_NCCL(ncclAllGather(r->weights + own, r->weights, SHARE, ncclFloat, r->team.comm,
                             r->team.stream));
}

// ---- With buckets -------------------------------------------------------------------------------

// The same two steps; the two differ in an option. Whole steps, because buckets say what is owned.
static void train_with_buckets(const struct replica *r, bool zero)
{
    // A bucket has at most so many bytes; here each layer becomes one.
    const struct tuttiGradient layers[] = {{0, UP, "up"}, {UP, DOWN, "down"}};
    const struct tuttiGradients gradients = {r->gradients, WEIGHTS, ncclFloat, layers, 2};
    struct tuttiBucketsOptions options = TUTTI_BUCKETS_OPTIONS_INITIALIZER;
    struct tuttiBuckets *buckets;
    struct tuttiPart parts[PARTS];
    int part_count;
    options.bucketBytes = UP * sizeof(float);
    options.zero = zero;
    CHECK_NCCL(tuttiBucketsCreate(&gradients, r->team.comm, &options, &buckets));
    CHECK_NCCL(tuttiBucketsOwned(buckets, -1, parts, PARTS, &part_count));
    for (int step = 0; step < STEPS; step++) {
        CHECK_NCCL(tuttiBucketsGatherWait(buckets, -1, r->team.stream));
        forward(r);
        backward_down(r, step);
        CHECK_NCCL(tuttiBucketsReady(buckets, 1, r->team.stream)); // travels from here on
        backward_up(r);
        CHECK_NCCL(tuttiBucketsReady(buckets, 0, r->team.stream));
        CHECK_NCCL(tuttiBucketsWait(buckets, r->team.stream));
        size_t state = 0;
        for (int i = 0; i < part_count; i++) {
            update(r, parts[i].offset, parts[i].count, state, step);
            state += parts[i].count;
        }
        CHECK_NCCL(tuttiBucketsGather(buckets, r->weights, ncclFloat, r->team.stream));
    }
    CHECK_NCCL(tuttiBucketsGatherWait(buckets, -1, r->team.stream));
    CHECK_CUDA(cudaStreamSynchronize(r->team.stream));
    CHECK_NCCL(tuttiBucketsDestroy(buckets));
}

static void train(const struct lesson_rank *self, const struct replica *r, enum way way)
{
    if (way == BUCKETS || way == ZERO_BUCKETS) {
        train_with_buckets(r, way == ZERO_BUCKETS);
        return;
    }
    for (int step = 0; step < STEPS; step++) {
        if (way == ALL_REDUCE) {
            step_all_reduce(r, step);
        } else {
            step_zero(self, r, step);
        }
    }
}

// ---- The lesson ---------------------------------------------------------------------------------

// Compares weights and losses with those of one rank alone. The order in which tokens are added up
// differs, so they differ in rounding.
static bool check(const struct lesson_rank *self, const struct replica *r,
                  const struct outcome *alone, enum way way)
{
    double losses[STEPS];
    CHECK_NCCL(ncclAllReduce(r->losses, r->losses, STEPS, ncclDouble, ncclSum, r->team.comm,
                             r->team.stream));
    double apart = largest_difference(r->weights, alone->weights, WEIGHTS, r->team.stream);
    copy_to_host(losses, r->losses, sizeof losses, r->team.stream);
    bool right = apart <= 1e-5 && same_losses(losses, alone->losses);
    print_losses(self, names[way], losses);
    if (!right) {
        printf("rank %d: %s: weights %g apart from one rank\n", self->rank, names[way], apart);
    }
    return lesson_all(self, right);
}

// A reduce-scatter or an all-gather brings every rank what the others have of, or for, its share;
// an all-reduce is both.
static void print_costs(const struct lesson_rank *self)
{
    const size_t all = WEIGHTS * sizeof(float), half = all - SHARE * sizeof(float);
    const struct {
        const char *calls;
        size_t arrives, state;
    } costs[WAYS] = {{"1 all-reduce", 2 * half, 2 * all},
                     {"2 all-reduces, overlapped", 2 * half, 2 * all},
                     {"reduce-scatter, all-gather", 2 * half, 2 * SHARE * sizeof(float)},
                     {"2 of each, overlapped", 2 * half, 2 * SHARE * sizeof(float)}};
    lesson_say(self, "A step\n%-12s  %-26s  bytes that arrive  Adam's state\n", "", "calls");
    for (int way = 0; way < WAYS; way++) {
        lesson_say(self, "%-12s  %-26s  %17zu  %12zu\n", names[way], costs[way].calls,
                   costs[way].arrives, costs[way].state);
    }
    lesson_say(self, "%-12s  %-26s  %17d  %12zu\n", "one rank", "none", 0, 2 * all);
}

static bool run_rank(const struct lesson_rank *self)
{
    if (!lesson_kernel_fits(self, (const void *)adam_kernel)) {
        return false;
    }
    struct outcome alone;
    struct team team = team_begin(self);
    struct replica replica = make_replica(self, team);
    train_alone(&alone, team.stream);
    lesson_say(self, "Losses, %d ranks with %zu of %d tokens each\n", self->ranks, replica.tokens,
               TOKENS);
    print_losses(self, "one rank", alone.losses);
    bool right = true;
    for (int way = 0; way < WAYS && right; way++) {
        start(self, &replica, (enum way)way);
        train(self, &replica, (enum way)way);
        right = check(self, &replica, &alone, (enum way)way);
    }
    print_costs(self);
    free_replica(&replica);
    team_end(team);
    return lesson_report(self, right);
}

int main(int argc, char **argv)
{
    struct lesson_options defaults = {TOKENS, HIDDEN, 128, 0, LESSON_FLOAT, 1, RANKS, 0};
    return lesson_run(argc, argv, "Lesson 12: data parallelism", &defaults, run_rank);
}
