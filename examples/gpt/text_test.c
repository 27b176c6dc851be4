// Scores of the next token against the loss of the same text; what is refused.
// SPDX-License-Identifier: Apache-2.0
#include "model_run.h"

#include <math.h>
#include <stdlib.h>

static struct run_plan text_plan(int tp, bool sequence_parallel, int experts)
{
    struct gpt_config config = gpt_config_default();
    config.layers = 2;
    config.width = 24;
    config.heads = 4;
    config.context = 9;
    config.vocabulary = 13; // not divisible by the tensor ranks
    config.mlp_width = 12;
    config.experts = experts;
    config.balance_alpha = 0;
    config.type = GPT_DOUBLE;
    return (struct run_plan){.config = config,
                             .sequences = 1,
                             .micro_batches = 1,
                             .dp = 1,
                             .pp = 1,
                             .ep = 1,
                             .tp = tp,
                             .sequence_parallel = sequence_parallel,
                             .schedule = tuttiPipeline1F1B};
}

// -log softmax(logits)[target]
static double entropy(const float *logits, int count, int target)
{
    double sum = 0;
    for (int i = 0; i < count; i++) {
        sum += exp((double)logits[i]);
    }
    return log(sum) - (double)logits[target];
}

static void check_text(const struct run_plan *plan, const struct member *member)
{
    struct run run;
    struct gpt_losses losses;
    if (run_open(&run, plan, member->comm, member->stream) && run_step(&run, 1, &losses)) {
        int context = plan->config.context;
        double sum = 0;
        for (int count = 1; count <= context; count++) {
            float logits[13];
            EXPECT_OK(gpt_model_next(run.model, run.tokens, count, logits));
            sum += entropy(logits, plan->config.vocabulary, run.targets[count - 1]);
        }
        EXPECT_NEAR(sum / context, losses.cross_entropy, 1e-6);
        float none[13];
        EXPECT_EQ(gpt_model_next(run.model, run.tokens, 0, none), ncclInvalidArgument);
        EXPECT_EQ(gpt_model_next(run.model, run.tokens, context + 1, none), ncclInvalidArgument);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "count is 10, must be 1 to 9");
        EXPECT(run_step(&run, 1, &losses)); // and training goes on
    }
    run_close(&run);
}

static void body(int rank, int size)
{
    struct member member;
    if (member_join(&member, rank, size)) {
        struct run_plan dense = text_plan(size, false, 0), sequence = text_plan(size, true, 0);
        struct run_plan experts = text_plan(size, size > 1, 3);
        check_text(&dense, &member);
        check_text(&sequence, &member);
        check_text(&experts, &member);
        member_leave(&member);
    }
}

static void text_of_one_rank(void)
{
    run_thread_ranks(1, body, 60);
}

static void text_of_tensor_ranks(void)
{
    run_thread_ranks(2, body, 60);
    run_thread_ranks(4, body, 60);
}

static void refused(struct gpt_model *model, ncclResult_t result, const char *text)
{
    EXPECT_EQ(result, ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), text);
    EXPECT(model == NULL);
}

static void body_bad(int rank, int size)
{
    struct member member;
    struct tuttiMesh mesh;
    struct gpt_model *model = NULL;
    struct gpt_shape shape = {.sequences = 1, .slots = 1};
    struct gpt_config good = text_plan(1, false, 0).config, bad = good;
    int32_t tokens[9] = {0};
    (void)rank;
    (void)size;
    if (!member_join(&member, 0, 1)) {
        return;
    }
    EXPECT_OK(tuttiMeshCreate(member.comm, 1, 1, 1, 1, &mesh));
    bad.heads = 7;
    refused(model, gpt_model_create(&bad, &shape, &mesh, member.stream, &model), "width is 24");
    shape.slots = 0;
    refused(model, gpt_model_create(&good, &shape, &mesh, member.stream, &model), "slots is 0");
    shape.slots = 1 << 30;
    refused(model, gpt_model_create(&good, &shape, &mesh, member.stream, &model),
            "1073741824 micro-batches are kept at once");
    shape = (struct gpt_shape){.sequences = 1 << 28, .slots = 1};
    refused(model, gpt_model_create(&good, &shape, &mesh, member.stream, &model),
            "context is 9, batch / (dp x ep x micro-batches) 268435456");
    shape.sequences = 1;
    if (EXPECT_OK(gpt_model_create(&good, &shape, &mesh, member.stream, &model))) {
        EXPECT_EQ(gpt_model_begin_step(model, 0, 0, 9, true), ncclInvalidArgument);
        EXPECT_OK(gpt_model_begin_step(model, 0, 1, 9, true));
        EXPECT_EQ(gpt_stage_forward(model, 0, NULL, NULL), ncclInvalidArgument);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "micro-batch 0 has no data");
        EXPECT_EQ(gpt_model_set_batch(model, 1, tokens, tokens, 0), ncclInvalidArgument);
        tokens[4] = 13; // beyond the vocabulary
        EXPECT_OK(gpt_model_set_batch(model, 0, tokens, tokens, 0));
        EXPECT_EQ(gpt_stage_forward(model, 0, NULL, NULL), ncclInvalidArgument);
    }
    EXPECT_OK(gpt_model_destroy(model));
    EXPECT_OK(tuttiMeshDestroy(&mesh));
    member_leave(&member);
}

static void bad_arguments(void)
{
    run_thread_ranks(1, body_bad, 60);
}

int main(void)
{
    RUN(text_of_one_rank);
    RUN(text_of_tensor_ranks);
    RUN(bad_arguments);
    return expect_result();
}
