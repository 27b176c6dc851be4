// Calls that wait for what they enqueue cannot be between ncclGroupStart and ncclGroupEnd, which
// enqueues it: each is refused, the group does nothing, and all goes on as if it had not been.
// SPDX-License-Identifier: Apache-2.0
#include "expect.h"
#include "member.h"
#include "tutti_parallel.h"

enum { LIMIT_S = 60, FLOATS = 64 };

// What calls need, made outside of groups.
struct things {
    struct member m;
    float *memory; // [FLOATS]
    int32_t *indices;
    double *doubles; // [FLOATS]
    struct tuttiBuckets *buckets;
    struct tuttiPipeline *pipeline;
    struct tuttiBoundary *boundary;
    tuttiMoe_t moe;
    tuttiMoeRoute_t route;
};

static ncclResult_t stage(void *context, int micro, const void *from, void *to)
{
    (void)context;
    (void)micro;
    (void)from;
    (void)to;
    return ncclSuccess;
}

static ncclResult_t back(void *context, int micro, const void *from, void *to)
{
    return stage(context, micro, from, to);
}

static ncclResult_t add_nothing(void *context, const void *rows, void *sums, const size_t *counts,
                                cudaStream_t stream)
{
    (void)counts;
    (void)stream;
    return stage(context, 0, rows, sums);
}

// ---- The calls ----------------------------------------------------------------------------------

static ncclResult_t mesh(struct things *t)
{
    struct tuttiMesh made;
    ncclResult_t result = tuttiMeshCreate(t->m.comm, t->m.size, 1, 1, 1, &made);
    return result != ncclSuccess ? result : tuttiMeshDestroy(&made);
}

static ncclResult_t norm(struct things *t)
{
    double all = 0;
    ncclResult_t result = tuttiGlobalNorm(8, t->m.comm, t->m.stream, &all);
    EXPECT(result != ncclSuccess || all == 4); // of 2 ranks
    return result;
}

static ncclResult_t ready(struct things *t)
{
    return tuttiBucketsReady(t->buckets, 0, t->m.stream);
}

static ncclResult_t wait(struct things *t)
{
    return tuttiBucketsWait(t->buckets, t->m.stream);
}

static ncclResult_t gather(struct things *t)
{
    return tuttiBucketsGather(t->buckets, t->memory, ncclFloat32, t->m.stream);
}

static ncclResult_t make_pipeline(struct things *t)
{
    struct tuttiPipelineOptions options = TUTTI_PIPELINE_OPTIONS_INITIALIZER;
    options.forward = stage;
    options.backward = back;
    options.stream = t->m.stream;
    return tuttiPipelineCreate(t->m.comm, &options, &t->pipeline);
}

static ncclResult_t run(struct things *t)
{
    return tuttiPipelineRun(t->pipeline);
}

static ncclResult_t times(struct things *t)
{
    struct tuttiPipelineTime time[8];
    return tuttiPipelineTimes(t->pipeline, time);
}

static ncclResult_t evaluate(struct things *t)
{
    return tuttiPipelineEvaluate(t->pipeline);
}

static ncclResult_t make_boundary(struct things *t)
{
    const struct tuttiNorm rms = {.kind = TUTTI_RMS_NORM,
                                  .width = 2,
                                  .eps = 1,
                                  .types = {ncclFloat32, ncclFloat32, ncclFloat32}};
    return tuttiBoundaryCreate(&rms, 4, TUTTI_BOUNDARY_AUTO, t->m.comm, t->m.stream, &t->boundary);
}

static ncclResult_t cross(struct things *t)
{
    const struct tuttiBoundaryInput input = {.x = t->memory};
    return tuttiBoundaryForward(t->boundary, 4, &input);
}

static ncclResult_t end_boundary(struct things *t)
{
    ncclResult_t result = tuttiBoundaryDestroy(t->boundary);
    t->boundary = result == ncclSuccess ? NULL : t->boundary;
    return result;
}

static ncclResult_t make_moe(struct things *t)
{
    struct tuttiMoeOptions options = TUTTI_MOE_OPTIONS_INITIALIZER;
    options.experts = 4;
    options.hidden = 2;
    options.maxTokens = 2;
    return tuttiMoeCreate(t->m.comm, &options, &t->moe);
}

static ncclResult_t dispatch(struct things *t)
{
    return tuttiMoeDispatch(t->moe, t->memory, 2, t->indices, t->memory, &t->route, t->m.stream);
}

static ncclResult_t dispatch_again(struct things *t)
{
    return tuttiMoeDispatchAgain(t->route, t->memory, t->m.stream);
}

static ncclResult_t combine(struct things *t)
{
    return tuttiMoeCombine(t->route, t->memory, t->memory, t->m.stream);
}

static ncclResult_t combine_backward(struct things *t)
{
    void *grads = NULL;
    return tuttiMoeCombineBackward(t->route, t->memory, t->memory, &grads, NULL, t->m.stream);
}

static ncclResult_t dispatch_backward(struct things *t)
{
    return tuttiMoeDispatchBackward(t->route, t->memory, t->memory, t->m.stream);
}

static ncclResult_t end_moe(struct things *t)
{
    EXPECT_OK(tuttiMoeRouteDestroy(t->route));
    t->route = NULL;
    ncclResult_t result = tuttiMoeDestroy(t->moe);
    t->moe = result == ncclSuccess ? NULL : t->moe;
    return result;
}

static ncclResult_t lockstep(struct things *t)
{
    const size_t tokens[] = {1, 1};
    const struct tuttiMoeLockstep what = {sizeof what, tokens,      2,   1,
                                          ncclFloat32, add_nothing, NULL};
    return tuttiMoeRunLockstep(t->m.comm, &what, t->memory, t->memory, t->m.stream);
}

static ncclResult_t entropy(struct things *t)
{
    const struct tuttiCrossEntropy what = {9, ncclFloat32, t->m.comm, t->m.stream};
    return tuttiCrossEntropyForward(&what, 2, t->memory, t->indices, t->doubles, t->doubles + 2);
}

static ncclResult_t linear(struct things *t)
{
    const struct tuttiLinear what = {
        3, 5, {ncclFloat32, ncclFloat32, ncclFloat32}, t->m.comm, t->m.stream};
    return tuttiColumnLinearForward(&what, TUTTI_BROADCAST_INPUT | TUTTI_GATHER_OUTPUT, 2,
                                    t->memory, t->memory + 8, t->memory + 32);
}

// ---- All of them --------------------------------------------------------------------------------

static const struct {
    const char *name; // in the text
    ncclResult_t (*call)(struct things *t);
} calls[] = {
    {"tuttiMeshCreate", mesh},
    {"tuttiGlobalNorm", norm},
    {"tuttiBucketsReady", ready},
    {"tuttiBucketsWait", wait},
    {"tuttiBucketsGather", gather},
    {"tuttiPipelineCreate", make_pipeline},
    {"tuttiPipelineRun", run},
    {"tuttiPipelineTimes", times},
    {"tuttiPipelineEvaluate", evaluate},
    {"tuttiBoundaryCreate", make_boundary},
    {"tuttiBoundaryForward", cross},
    {"tuttiBoundaryDestroy", end_boundary},
    {"tuttiMoeCreate", make_moe},
    {"tuttiMoeDispatch", dispatch},
    {"tuttiMoeDispatchAgain", dispatch_again},
    {"tuttiMoeCombine", combine},
    {"tuttiMoeCombineBackward", combine_backward},
    {"tuttiMoeDispatchBackward", dispatch_backward},
    {"tuttiMoeDestroy", end_moe},
    {"tuttiMoeRunLockstep", lockstep},
    {"tuttiCrossEntropyForward", entropy},
    {"tuttiColumnLinearForward", linear},
};

static bool make_things(struct things *t)
{
    struct tuttiBucketsOptions options = TUTTI_BUCKETS_OPTIONS_INITIALIZER;
    options.zero = 1;
    if (!EXPECT_CUDA(cudaMalloc((void **)&t->memory, FLOATS * sizeof *t->memory)) ||
        !EXPECT_CUDA(cudaMalloc((void **)&t->indices, FLOATS * sizeof *t->indices)) ||
        !EXPECT_CUDA(cudaMalloc((void **)&t->doubles, FLOATS * sizeof *t->doubles))) {
        return false;
    }
    for (int i = 0; i < FLOATS; i++) {
        t->memory[i] = 0;
        t->indices[i] = i % 2;
    }
    const struct tuttiGradient gradient = {0, 8, NULL};
    const struct tuttiGradients gradients = {t->memory, 8, ncclFloat32, &gradient, 1};
    return EXPECT_OK(tuttiBucketsCreate(&gradients, t->m.comm, &options, &t->buckets));
}

static void one_rank(int rank, int size)
{
    struct things t = {.memory = NULL};
    if (!member_join(&t.m, rank, size) || !make_things(&t)) {
        return;
    }
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        EXPECT_OK(ncclGroupStart());
        EXPECT_EQ(calls[i].call(&t), ncclInvalidUsage);
        EXPECT_CONTAINS(ncclGetLastError(NULL), calls[i].name);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "not between ncclGroupStart and ncclGroupEnd");
        EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
        EXPECT_OK(calls[i].call(&t));
        EXPECT_CUDA(cudaStreamSynchronize(t.m.stream));
        EXPECT_EQ(member_state(&t.m), ncclSuccess);
    }
    EXPECT_OK(tuttiBucketsDestroy(t.buckets));
    EXPECT_OK(tuttiPipelineDestroy(t.pipeline));
    EXPECT_CUDA(cudaFreeAsync(t.memory, t.m.stream));
    EXPECT_CUDA(cudaFreeAsync(t.indices, t.m.stream));
    EXPECT_CUDA(cudaFreeAsync(t.doubles, t.m.stream));
    member_leave(&t.m);
}

static void refused_in_a_group(void)
{
    run_ranks(2, one_rank, LIMIT_S);
}

int main(void)
{
    RUN(refused_in_a_group);
    return expect_result();
}
