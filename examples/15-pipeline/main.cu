// SPDX-License-Identifier: Apache-2.0
// Lesson 15: pipeline parallelism. Every rank has some of the layers, a stage: rank 0 the first,
// rank 1 the second. Activations go from stage to stage, their gradients come back. So that both
// work at once, the batch goes through in four micro-batches. Done three times:
//   by hand   GPipe's order with ncclSend and ncclRecv: all forward, then all backward
//   GPipe     the same by tuttiPipelineRun
//   1F1B      tuttiPipelineRun: backward as early as can be, so fewer activations are kept
// The network and its kernels are in ../common/network.cuh.
#include "network.cuh"

#include <tutti_parallel/pipeline.h>

enum { STAGES = 2, MICRO = 4, ROWS = TOKENS / MICRO, MESSAGE = ROWS * HIDDEN };

enum way { BY_HAND, GPIPE, ONE_F_ONE_B, WAYS };
static const char *const names[WAYS] = {"by hand", "GPipe", "1F1B"};

// One rank's stage, in device memory. `own` weights: up, or down.
struct stage {
    float *weights, *gradients, *mean, *square; // [own]
    size_t own, first;                          // and where they lie in the network's weights
    float *x, *target;                          // the whole batch; a stage uses one of them
    // Of the micro-batches that wait for their backward pass, number `micro` at micro % slots:
    int slots;
    float *hidden[MICRO];      // stage 0: forward's results
    const float *input[MICRO]; // stage 1: forward's inputs
    float *y_gradient[MICRO];  // stage 1
    float *y, *hidden_gradient;
    double *losses; // [STEPS]; stage 1
    int number, step;
    struct team team;
};

// ---- What a stage computes ----------------------------------------------------------------------
// Both functions are used by hand, and called by the library. Backward adds to the gradients.

static ncclResult_t forward(void *context, int micro, const void *input, void *output)
{
    struct stage *g = (struct stage *)context;
    cudaStream_t s = g->team.stream;
    int slot = micro % g->slots;
    if (g->number == 0) {
        layer_forward(g->hidden[slot], g->x + micro * ROWS * INPUTS, g->weights, ROWS, HIDDEN,
                      INPUTS, s);
        relu_forward(g->hidden[slot], MESSAGE, s);
        CHECK_CUDA(cudaMemcpyAsync(output, g->hidden[slot], MESSAGE * sizeof(float),
                                   cudaMemcpyDeviceToDevice, s));
    } else {
        g->input[slot] = (const float *)input;
        layer_forward(g->y, g->input[slot], g->weights, ROWS, OUTPUTS, HIDDEN, s);
        loss_backward(g->y_gradient[slot], g->losses + g->step, g->y,
                      g->target + micro * ROWS * OUTPUTS, ROWS * OUTPUTS, s);
    }
    return ncclSuccess;
}

static ncclResult_t backward(void *context, int micro, const void *output_gradient,
                             void *input_gradient)
{
    struct stage *g = (struct stage *)context;
    cudaStream_t s = g->team.stream;
    int slot = micro % g->slots;
    if (g->number == 0) {
        CHECK_CUDA(cudaMemcpyAsync(g->hidden_gradient, output_gradient, MESSAGE * sizeof(float),
                                   cudaMemcpyDeviceToDevice, s));
        relu_backward(g->hidden_gradient, g->hidden[slot], MESSAGE, s);
        layer_weight_gradient(g->gradients, g->hidden_gradient, g->x + micro * ROWS * INPUTS, ROWS,
                              HIDDEN, INPUTS, s);
    } else {
        layer_weight_gradient(g->gradients, g->y_gradient[slot], g->input[slot], ROWS, OUTPUTS,
                              HIDDEN, s);
        layer_input_gradient((float *)input_gradient, g->y_gradient[slot], g->weights, ROWS,
                             OUTPUTS, HIDDEN, s);
    }
    return ncclSuccess;
}

// ---- By hand ------------------------------------------------------------------------------------

// messages: [MICRO x MESSAGE], this stage's end of all that goes over. Nobody waits in a circle:
// the first stage sends all, then receives all; the second receives all, then sends all.
static void run_by_hand(struct stage *g, float *messages)
{
    ncclComm_t comm = g->team.comm;
    cudaStream_t s = g->team.stream;
    for (int micro = 0; micro < MICRO; micro++) {
        float *activations = messages + micro * MESSAGE;
        if (g->number == 0) {
            CHECK_NCCL(forward(g, micro, NULL, activations));
            CHECK_NCCL(ncclSend(activations, MESSAGE, ncclFloat, 1, comm, s));
        } else {
            CHECK_NCCL(ncclRecv(activations, MESSAGE, ncclFloat, 0, comm, s));
            CHECK_NCCL(forward(g, micro, activations, NULL));
        }
    }
    for (int micro = 0; micro < MICRO; micro++) {
        float *gradients = g->hidden_gradient; // one at a time
        if (g->number == 0) {
            CHECK_NCCL(ncclRecv(gradients, MESSAGE, ncclFloat, 1, comm, s));
            CHECK_NCCL(backward(g, micro, gradients, NULL));
        } else {
            CHECK_NCCL(backward(g, micro, NULL, gradients));
            CHECK_NCCL(ncclSend(gradients, MESSAGE, ncclFloat, 0, comm, s));
        }
    }
}

// ---- By schedules -------------------------------------------------------------------------------

static struct tuttiPipeline *make_pipeline(struct stage *g, enum way way)
{
    struct tuttiPipelineOptions options = TUTTI_PIPELINE_OPTIONS_INITIALIZER;
    struct tuttiPipeline *pipeline;
    options.schedule = way == GPIPE ? tuttiPipelineGPipe : tuttiPipeline1F1B;
    options.microBatches = MICRO;
    options.inputElements = MESSAGE;
    options.outputElements = MESSAGE;
    options.forward = forward;
    options.backward = backward;
    options.context = g;
    options.stream = g->team.stream;
    CHECK_NCCL(tuttiPipelineCreate(g->team.comm, &options, &pipeline));
    return pipeline;
}

// ---- The lesson ---------------------------------------------------------------------------------

static struct stage make_stage(const struct lesson_rank *self, struct team team)
{
    struct stage g = {};
    g.number = self->rank;
    g.own = self->rank == 0 ? UP : DOWN;
    g.first = self->rank == 0 ? 0 : UP;
    g.weights = device_zeros(g.own);
    g.gradients = device_zeros(g.own);
    g.mean = device_zeros(g.own);
    g.square = device_zeros(g.own);
    g.x = device_matrix(input_element, 0, TOKENS, INPUTS);
    g.target = device_matrix(target_element, 0, TOKENS, OUTPUTS);
    g.y = device_zeros(ROWS * OUTPUTS);
    g.hidden_gradient = device_zeros(MESSAGE);
    g.losses = (double *)device_zeros(2 * STEPS);
    g.step = 0;
    g.team = team;
    return g;
}

static void free_stage(const struct stage *g)
{
    void *const all[] = {g->weights,         g->gradients, g->mean,   g->square, g->x,
                         g->hidden_gradient, g->y,         g->losses, g->target};
    device_free(all, sizeof all / sizeof all[0], g->team.stream);
}

// Memory for as many micro-batches as the way keeps at once.
static void make_slots(struct stage *g, enum way way)
{
    g->slots = MICRO;
    if (way != BY_HAND) {
        CHECK_NCCL(tuttiPipelineInFlight(way == GPIPE ? tuttiPipelineGPipe : tuttiPipeline1F1B,
                                         STAGES, MICRO, g->number, &g->slots));
    }
    for (int slot = 0; slot < g->slots; slot++) {
        g->hidden[slot] = device_zeros(g->number == 0 ? MESSAGE : 0);
        g->y_gradient[slot] = device_zeros(g->number == 0 ? 0 : ROWS * OUTPUTS);
    }
}

static void free_slots(const struct stage *g)
{
    for (int slot = 0; slot < g->slots; slot++) {
        CHECK_CUDA(cudaFreeAsync(g->hidden[slot], g->team.stream));
        CHECK_CUDA(cudaFreeAsync(g->y_gradient[slot], g->team.stream));
    }
}

// All steps, from the initial weights on. Each stage's Adam needs nobody.
static void train(struct stage *g, enum way way)
{
    float host[WEIGHTS];
    float *messages = device_zeros(MICRO * MESSAGE);
    struct tuttiPipeline *pipeline = way == BY_HAND ? NULL : make_pipeline(g, way);
    make_slots(g, way);
    for (size_t i = 0; i < WEIGHTS; i++) {
        host[i] = initial_weight(i);
    }
    copy_to_device(g->weights, host + g->first, g->own * sizeof(float), g->team.stream);
    CHECK_CUDA(cudaMemsetAsync(g->mean, 0, g->own * sizeof(float), g->team.stream));
    CHECK_CUDA(cudaMemsetAsync(g->square, 0, g->own * sizeof(float), g->team.stream));
    CHECK_CUDA(cudaMemsetAsync(g->losses, 0, STEPS * sizeof(double), g->team.stream));
    for (g->step = 0; g->step < STEPS; g->step++) {
        CHECK_CUDA(cudaMemsetAsync(g->gradients, 0, g->own * sizeof(float), g->team.stream));
        if (way == BY_HAND) {
            run_by_hand(g, messages);
        } else {
            CHECK_NCCL(tuttiPipelineRun(pipeline));
        }
        struct adam adam = {g->weights, g->mean, g->square, g->gradients, g->step + 1};
        adam_step(adam, g->own, g->team.stream);
    }
    CHECK_CUDA(cudaStreamSynchronize(g->team.stream));
    CHECK_NCCL(tuttiPipelineDestroy(pipeline));
    CHECK_CUDA(cudaFreeAsync(messages, g->team.stream));
    free_slots(g);
}

// Compares with one rank alone, within rounding: micro-batches are added up one after the other.
// first: the weights of the first way, from which the others must not differ in a bit.
static bool check(const struct lesson_rank *self, struct stage *g, const struct outcome *alone,
                  float *first, enum way way)
{
    double losses[STEPS];
    // The losses are on the last stage; for the others' eyes.
    CHECK_NCCL(ncclBroadcast(g->losses, g->losses, STEPS, ncclDouble, STAGES - 1, g->team.comm,
                             g->team.stream));
    double apart =
        largest_difference(g->weights, alone->weights + g->first, g->own, g->team.stream);
    copy_to_host(losses, g->losses, sizeof losses, g->team.stream);
    if (way == BY_HAND) {
        copy_to_host(first, g->weights, g->own * sizeof(float), g->team.stream);
    }
    double changed = largest_difference(g->weights, first, g->own, g->team.stream);
    bool right = apart <= 1e-5 && changed <= 0 && same_losses(losses, alone->losses);
    print_losses(self, names[way], losses);
    if (!right) {
        printf("rank %d: %s: weights %g apart from one rank, %g from by hand\n", self->rank,
               names[way], apart, changed);
    }
    return lesson_all(self, right);
}

// Of the rank, floats as bytes; activations: those that wait for their backward pass.
static void print_costs(const struct lesson_rank *self)
{
    lesson_say(self, "A step                          stage 0  stage 1\n");
    lesson_say(self, "messages sent                   %7d  %7d\n", MICRO, MICRO);
    lesson_say(self, "bytes sent                      %7zu  %7zu\n",
               MICRO * MESSAGE * sizeof(float), MICRO * MESSAGE * sizeof(float));
    lesson_say(self, "weights, gradients, Adam        %7zu  %7zu  (one rank: %zu)\n",
               4 * UP * sizeof(float), 4 * DOWN * sizeof(float), 4 * WEIGHTS * sizeof(float));
    for (int schedule = 0; schedule < 2; schedule++) {
        int kept[STAGES];
        for (int stage = 0; stage < STAGES; stage++) {
            CHECK_NCCL(tuttiPipelineInFlight((enum tuttiPipelineSchedule)schedule, STAGES, MICRO,
                                             stage, &kept[stage]));
        }
        lesson_say(self, "micro-batches kept, %-5s       %7d  %7d\n", names[1 + schedule], kept[0],
                   kept[1]);
    }
}

// What a schedule looks like where it matters: a backward pass takes twice as long as a forward
// pass. Digits: forward of that micro-batch; letters: backward, a is micro-batch 0.
static void print_schedule(const struct lesson_rank *self, enum tuttiPipelineSchedule schedule)
{
    enum { MANY = 4, EACH = 8, COLUMNS = 64 };
    struct tuttiPipelineTime times[MANY * 2 * EACH];
    int kept[MANY];
    double bubble;
    CHECK_NCCL(tuttiPipelineIdealTimes(schedule, MANY, EACH, 1, 2, times));
    CHECK_NCCL(tuttiPipelineBubble(MANY, EACH, times, &bubble));
    lesson_say(self, "%s, %d stages, %d micro-batches: waits %.0f %% of the time\n",
               names[1 + schedule], MANY, EACH, 100 * bubble);
    for (int stage = 0; stage < MANY; stage++) {
        char line[COLUMNS + 1] = {0};
        int end = 0;
        for (int i = 0; i < 2 * EACH; i++) {
            const struct tuttiPipelineTime *t = &times[stage * 2 * EACH + i];
            int first = t->action.kind == tuttiPipelineForward ? '0' : 'a';
            while (end < (int)lround(t->begin)) {
                line[end++] = '.';
            }
            while (end < (int)lround(t->end) && end < COLUMNS) {
                line[end++] = (char)(first + t->action.microBatch);
            }
        }
        CHECK_NCCL(tuttiPipelineInFlight(schedule, MANY, EACH, stage, &kept[stage]));
        lesson_say(self, "  stage %d  %-33s  keeps %d\n", stage, line, kept[stage]);
    }
}

static bool run_rank(const struct lesson_rank *self)
{
    if (!lesson_kernel_fits(self, (const void *)adam_kernel)) {
        return false;
    }
    struct outcome alone;
    float first[WEIGHTS];
    struct team team = team_begin(self);
    struct stage stage = make_stage(self, team);
    train_alone(&alone, team.stream);
    lesson_say(self, "Losses, %d stages, %d micro-batches of %d tokens\n", STAGES, MICRO, ROWS);
    print_losses(self, "one rank", alone.losses);
    bool right = true;
    for (int way = 0; way < WAYS && right; way++) {
        train(&stage, (enum way)way);
        right = check(self, &stage, &alone, first, (enum way)way);
    }
    print_costs(self);
    print_schedule(self, tuttiPipelineGPipe);
    print_schedule(self, tuttiPipeline1F1B);
    free_stage(&stage);
    team_end(team);
    return lesson_report(self, right);
}

int main(int argc, char **argv)
{
    struct lesson_options defaults = {TOKENS, HIDDEN, 128, 0, LESSON_FLOAT, 1, STAGES, 0};
    return lesson_run(argc, argv, "Lesson 15: pipeline parallelism", &defaults, run_rank);
}
