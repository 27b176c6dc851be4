// Pipelines of real ranks, as processes and as threads: every byte of every message, a model whose
// gradients are those of one stage, times and pictures. SPDX-License-Identifier: Apache-2.0
#include "pipeline_parcel.h"

#include <stdio.h>
#include <stdlib.h>

// ---- Every byte ---------------------------------------------------------------------------------

static void every_byte(int rank, int size)
{
    static const int micros[] = {1, 2, 3, 7};
    static const ncclDataType_t types[] = {ncclFloat32, ncclFloat64, ncclBfloat16};
    struct member m;
    if (!member_join(&m, rank, size)) {
        return;
    }
    for (int i = 0; i < 2 * 4; i++) {
        enum tuttiPipelineSchedule schedule = i % 2 == 0 ? tuttiPipelineGPipe : tuttiPipeline1F1B;
        struct parcel p = make_parcel(&m, schedule, micros[i / 2], (size_t)i * (size_t)i * 13 + 1);
        p.types[0] = types[i % 3];
        p.types[1] = types[(i + i / 3) % 3];
        run_parcel(&m, p);
        if (micros[i / 2] == 3) {
            run_parcel(&m, make_parcel(&m, schedule, 3, 0));
        }
    }
    run_parcel(&m, make_parcel(&m, tuttiPipeline1F1B, 5, 300001));
    for (int slow = 0; slow < size; slow++) { // the others run ahead of one that sleeps
        struct parcel p = make_parcel(&m, tuttiPipelineGPipe, 4, 3000);
        p.sleep_ms = rank == slow ? 2 : 0;
        run_parcel(&m, p);
    }
    member_leave(&m);
}

static void processes(void)
{
    for (int p = 1; p <= MOST_STAGES; p++) {
        run_ranks(p, every_byte, LIMIT_S);
    }
}

static void threads(void)
{
    for (int p = 1; p <= MOST_STAGES; p++) {
        run_thread_ranks(p, every_byte, LIMIT_S);
    }
}

// The caller's current device is another one than the communicator's, on some ranks.
static void other_device(int rank, int size)
{
    struct member m;
    int devices = 0, current = -1;
    if (!member_join(&m, rank, size)) {
        return;
    }
    EXPECT_CUDA(cudaGetDeviceCount(&devices));
    int other = (m.device + rank % 2) % devices;
    EXPECT_CUDA(cudaSetDevice(other));
    run_parcel(&m, make_parcel(&m, tuttiPipeline1F1B, 3, 100));
    EXPECT_CUDA(cudaGetDevice(&current));
    EXPECT_EQ(current, other);
    EXPECT_CUDA(cudaSetDevice(m.device));
    member_leave(&m);
}

static void devices(void)
{
    run_ranks(3, other_device, LIMIT_S);
    run_thread_ranks(3, other_device, LIMIT_S);
}

// ---- A model ------------------------------------------------------------------------------------

// LAYERS matrices one after the other, y = W x, and half the square of what comes out as the loss.
enum { LAYERS = 12, WIDTH = 5, MODEL_MICRO = 6 };

struct model {
    int first, layers; // of this stage
    float weight[LAYERS][WIDTH][WIDTH], gradient[LAYERS][WIDTH][WIDTH];
    float x[MODEL_MICRO][LAYERS + 1][WIDTH]; // x[l]: what layer l gets
    float loss;
};

static void start_model(struct model *model, int first, int layers)
{
    unsigned state = 1;
    memset(model, 0, sizeof *model);
    model->first = first;
    model->layers = layers;
    for (size_t i = 0; i < sizeof model->weight / sizeof(float); i++) {
        state = state * 1664525u + 1013904223u;
        (&model->weight[0][0][0])[i] = (float)(state >> 8) / (1 << 23) - 1;
    }
}

static void layer_forward(struct model *model, int micro, int layer)
{
    const float *x = model->x[micro][layer];
    for (int i = 0; i < WIDTH; i++) {
        float sum = 0;
        for (int k = 0; k < WIDTH; k++) {
            sum += model->weight[layer][i][k] * x[k];
        }
        model->x[micro][layer + 1][i] = sum;
    }
}

// dy becomes dx.
static void layer_backward(struct model *model, int micro, int layer, float *dy)
{
    float dx[WIDTH] = {0};
    for (int i = 0; i < WIDTH; i++) {
        for (int k = 0; k < WIDTH; k++) {
            model->gradient[layer][i][k] += dy[i] * model->x[micro][layer][k];
            dx[k] += model->weight[layer][i][k] * dy[i];
        }
    }
    memcpy(dy, dx, sizeof dx);
}

static ncclResult_t model_forward(void *context, int micro, const void *input, void *output)
{
    struct model *model = context;
    float *x = model->x[micro][model->first];
    for (int k = 0; k < WIDTH && input == NULL; k++) {
        x[k] = 0.25f * (float)(micro + 1) - 0.1f * (float)k;
    }
    if (input != NULL) {
        memcpy(x, input, sizeof(float) * WIDTH);
    }
    for (int l = model->first; l < model->first + model->layers; l++) {
        layer_forward(model, micro, l);
    }
    const float *y = model->x[micro][model->first + model->layers];
    for (int k = 0; k < WIDTH && output == NULL; k++) {
        model->loss += y[k] * y[k] / 2;
    }
    if (output != NULL) {
        memcpy(output, y, sizeof(float) * WIDTH);
    }
    return ncclSuccess;
}

static ncclResult_t model_backward(void *context, int micro, const void *outputGradient,
                                   void *inputGradient)
{
    struct model *model = context;
    float dy[WIDTH];
    memcpy(dy, outputGradient != NULL ? outputGradient : model->x[micro][LAYERS], sizeof dy);
    for (int l = model->first + model->layers - 1; l >= model->first; l--) {
        layer_backward(model, micro, l, dy);
    }
    if (inputGradient != NULL) {
        memcpy(inputGradient, dy, sizeof dy);
    }
    return ncclSuccess;
}

// The whole model on this rank, without a pipeline.
static void right_gradients(struct model *model)
{
    start_model(model, 0, LAYERS);
    for (int micro = 0; micro < MODEL_MICRO; micro++) {
        EXPECT_OK(model_forward(model, micro, NULL, NULL));
        EXPECT_OK(model_backward(model, micro, NULL, NULL));
    }
}

static void check_model(const struct member *m, enum tuttiPipelineSchedule schedule,
                        struct model *mine, const struct model *right)
{
    struct tuttiPipelineOptions options = TUTTI_PIPELINE_OPTIONS_INITIALIZER;
    struct tuttiPipeline *pipeline = NULL;
    start_model(mine, m->rank * (LAYERS / m->size), LAYERS / m->size);
    options.schedule = schedule;
    options.microBatches = MODEL_MICRO;
    options.inputElements = options.outputElements = WIDTH;
    options.forward = model_forward;
    options.backward = model_backward;
    options.context = mine;
    EXPECT_OK(tuttiPipelineCreate(m->comm, &options, &pipeline));
    EXPECT_OK(tuttiPipelineRun(pipeline));
    EXPECT_EQ(memcmp(mine->gradient[mine->first], right->gradient[mine->first],
                     sizeof right->gradient[0] * (size_t)mine->layers),
              0);
    EXPECT_NEAR(mine->loss, m->rank == m->size - 1 ? right->loss : 0, 0);
    EXPECT_OK(tuttiPipelineDestroy(pipeline));
}

static void same_gradients(int rank, int size)
{
    struct member m;
    struct model *right = malloc(sizeof *right), *mine = malloc(sizeof *mine);
    EXPECT(right != NULL && mine != NULL);
    if (right != NULL && mine != NULL && member_join(&m, rank, size)) {
        right_gradients(right);
        EXPECT(right->loss > 0);
        check_model(&m, tuttiPipelineGPipe, mine, right);
        check_model(&m, tuttiPipeline1F1B, mine, right);
        member_leave(&m);
    }
    free(right);
    free(mine);
}

static void gradients(void)
{
    for (int p = 1; p <= MOST_STAGES; p++) {
        run_ranks(p, same_gradients, LIMIT_S);
    }
    run_thread_ranks(3, same_gradients, LIMIT_S);
}

// ---- Times and pictures -------------------------------------------------------------------------

static int count_of(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) {
        n++;
    }
    return n;
}

// Tags are closed in the reverse of their order; no stray < or &.
static bool is_well_formed(const char *text)
{
    char open[32][16];
    int depth = 0;
    for (const char *at = strchr(text, '<'); at != NULL; at = strchr(at, '<')) {
        const char *end = strchr(at, '>');
        char name[16] = "";
        if (end == NULL || sscanf(at + 1, "%15[/a-z]", name) != 1) {
            return false;
        }
        if (name[0] == '/') {
            if (depth == 0 || strcmp(open[--depth], name + 1) != 0) {
                return false;
            }
        } else if (end[-1] != '/') {
            if (depth == 32) {
                return false;
            }
            (void)snprintf(open[depth++], sizeof open[0], "%s", name);
        }
        at = end;
    }
    return depth == 0 && strchr(text, '&') == NULL;
}

static void check_picture(enum tuttiPipelineSchedule schedule, int stages, int micro,
                          const struct tuttiPipelineTime *times)
{
    char path[] = "/tmp/tutti_pipeline_XXXXXX";
    int descriptor = mkstemp(path), panels = times != NULL ? 2 : 1;
    static char text[1 << 18];
    if (!EXPECT(descriptor >= 0)) {
        return;
    }
    EXPECT_OK(tuttiPipelineDraw(path, schedule, stages, micro, times));
    ssize_t length = read(descriptor, text, sizeof text - 1);
    EXPECT(length > 0 && length < (ssize_t)sizeof text - 1);
    text[length > 0 ? length : 0] = 0;
    (void)close(descriptor);
    (void)unlink(path);
    EXPECT_EQ(count_of(text, "<rect class=\"forward\""), panels * stages * micro);
    EXPECT_EQ(count_of(text, "<rect class=\"backward\""), panels * stages * micro);
    EXPECT_EQ(count_of(text, ">stage 0<"), panels);
    EXPECT_EQ(count_of(text, ">measured: bubble "), panels - 1);
    EXPECT(is_well_formed(text));
}

// Stages that sleep: their times are what they slept, after what they needed, on one clock.
static void check_times(const struct tuttiPipelineTime *times, int stages, int micro, int sleep_ms)
{
    double first = times[0].begin;
    for (int i = 0; i < stages * 2 * micro; i++) {
        const struct tuttiPipelineTime *t = &times[i];
        int from = i / (2 * micro) + (t->action.kind == tuttiPipelineForward ? -1 : 1);
        EXPECT(t->end - t->begin >= sleep_ms * 1e-3 * 0.99);
        EXPECT(i % (2 * micro) == 0 || t->begin >= times[i - 1].end);
        first = t->begin < first ? t->begin : first;
        for (int k = 0; from >= 0 && from < stages && k < 2 * micro; k++) {
            const struct tuttiPipelineTime *needed = &times[from * 2 * micro + k];
            EXPECT(needed->action.kind != t->action.kind ||
                   needed->action.microBatch != t->action.microBatch || t->begin >= needed->end);
        }
    }
    EXPECT_NEAR(first, 0, 1e-12);
}

static void check_measured(struct tuttiPipeline *pipeline, const struct member *m,
                           enum tuttiPipelineSchedule schedule, int micro, int sleep_ms)
{
    static _Thread_local struct tuttiPipelineTime times[MOST_STAGES * 2 * MOST_MICRO];
    double bubble = -1, ideal = -1;
    if (!EXPECT_OK(tuttiPipelineTimes(pipeline, times))) {
        return;
    }
    check_times(times, m->size, micro, sleep_ms);
    EXPECT_OK(tuttiPipelineBubble(m->size, micro, times, &bubble));
    EXPECT_OK(tuttiPipelineIdealBubble(m->size, micro, &ideal));
    EXPECT(bubble >= (sleep_ms > 0 ? ideal - 0.1 : 0) && bubble < 1); // not equally long
    if (m->rank == 0 && micro < 10) {
        check_picture(schedule, m->size, micro, times);
    }
}

static void measured(int rank, int size)
{
    struct member m;
    if (!member_join(&m, rank, size)) {
        return;
    }
    for (int i = 0; i < 3; i++) {
        enum tuttiPipelineSchedule schedule = i == 0 ? tuttiPipelineGPipe : tuttiPipeline1F1B;
        int micro = i == 2 ? MOST_MICRO : 5, sleep_ms = i == 2 ? 0 : 3;
        struct tuttiPipeline *pipeline = NULL;
        struct tuttiPipelineTime none[1];
        struct parcel p = make_parcel(&m, schedule, micro, 100);
        p.sleep_ms = sleep_ms;
        if (!create(&p, &m, &pipeline)) {
            break;
        }
        EXPECT_EQ(tuttiPipelineTimes(pipeline, none), ncclInvalidUsage); // nothing has run
        EXPECT_OK(tuttiPipelineRun(pipeline));
        EXPECT_OK(tuttiPipelineEvaluate(pipeline)); // leaves the run's times as they are
        EXPECT_EQ(tuttiPipelineTimes(pipeline, rank == 0 ? NULL : none),
                  rank == 0 ? ncclInvalidArgument : ncclInvalidUsage);
        check_measured(pipeline, &m, schedule, micro, sleep_ms);
        EXPECT_OK(tuttiPipelineDestroy(pipeline));
    }
    member_leave(&m);
}

static void times_of_runs(void)
{
    run_ranks(1, measured, LIMIT_S);
    run_ranks(4, measured, LIMIT_S);
    run_thread_ranks(3, measured, LIMIT_S);
}

static void pictures(void)
{
    struct tuttiPipelineTime times[2] = {{{tuttiPipelineForward, 0}, 0, 1e-5},
                                         {{tuttiPipelineBackward, 0}, 2e-5, 3e-5}};
    check_picture(tuttiPipelineGPipe, 1, 1, NULL);
    check_picture(tuttiPipelineGPipe, 3, 12, NULL);
    check_picture(tuttiPipeline1F1B, 5, 2, NULL);
    check_picture(tuttiPipeline1F1B, 1, 1, times);
    EXPECT_EQ(tuttiPipelineDraw(NULL, tuttiPipeline1F1B, 1, 1, times), ncclInvalidArgument);
    EXPECT_EQ(tuttiPipelineDraw("/tmp/no/such/folder.svg", tuttiPipeline1F1B, 1, 1, times),
              ncclSystemError);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "/tmp/no/such/folder.svg: No such file");
    times[1].end = 1e-5;
    EXPECT_EQ(tuttiPipelineDraw("/tmp/never.svg", tuttiPipeline1F1B, 1, 1, times),
              ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "action 1 of stage 0");
}

int main(void)
{
    RUN(processes);
    RUN(threads);
    RUN(devices);
    RUN(gradients);
    RUN(times_of_runs);
    RUN(pictures);
    return expect_result();
}
