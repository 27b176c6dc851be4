// A forward pass uses no weight before it has asked for its layer: all weights are NaN, and a
// layer's become what they are when it is asked for, as if they had just come from other ranks.
// SPDX-License-Identifier: Apache-2.0
#include "model_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct late {
    struct gpt_model *model;
    float *kept; // all weights
    int asked;   // the layer before
};

static void set_layer(const struct late *late, int layer, bool is_there)
{
    const struct gpt_parameters *table = gpt_model_parameters(late->model);
    float *weights = gpt_model_weights(late->model);
    for (int i = 0; i < table->count; i++) {
        const struct gpt_parameter *p = &table->all[i];
        for (size_t e = p->offset; p->layer == layer && e < p->offset + gpt_slice_elements(p);
             e++) {
            weights[e] = is_there ? late->kept[e] : NAN;
        }
    }
}

static ncclResult_t arrive(void *context, int layer)
{
    struct late *late = context;
    EXPECT_EQ(layer, late->asked + 1);
    late->asked = layer;
    set_layer(late, layer, true);
    return ncclSuccess;
}

static void take_away(struct late *late)
{
    for (int layer = -1; layer <= gpt_model_config(late->model)->layers; layer++) {
        set_layer(late, layer, false);
    }
    late->asked = -2;
}

static ncclResult_t refuse(void *context, int layer)
{
    (void)context;
    return layer == 1 ? ncclInvalidUsage : ncclSuccess;
}

// The same loss whether weights are there or come late; an error of the program's ends the pass.
static void check(const struct run_plan *plan, const struct member *member)
{
    struct run run;
    if (!run_open(&run, plan, member->comm, member->stream)) {
        return;
    }
    size_t bytes = gpt_model_bytes(run.model).weights;
    struct late late = {.model = run.model, .kept = malloc(bytes)};
    double loss = run_loss(&run, 3);
    memcpy(late.kept, gpt_model_weights(run.model), bytes);
    take_away(&late);
    EXPECT(plan->config.experts > 0 || isnan(run_loss(&run, 3))); // routers refuse NaN
    gpt_model_on_layer(run.model, arrive, &late);
    EXPECT(isfinite(loss) && run_loss(&run, 3) == loss);
    EXPECT_EQ(late.asked, plan->config.layers);
    gpt_model_on_layer(run.model, refuse, NULL);
    EXPECT_EQ(tuttiPipelineEvaluate(run.pipeline), ncclInvalidUsage);
    free(late.kept);
    run_close(&run);
}

static struct run_plan plan_of(bool experts, bool layered, bool sequence_parallel)
{
    struct gpt_config config = gpt_config_default();
    config.layers = 3;
    config.width = 24;
    config.heads = config.kv_heads = 4;
    config.context = 7;
    config.vocabulary = 13;
    config.mlp_width = 20;
    config.experts = experts ? 4 : 0;
    config.norm = layered ? GPT_NORM_LAYER : GPT_NORM_RMS;
    config.activation = layered ? GPT_GELU : GPT_SWIGLU;
    return (struct run_plan){.config = config,
                             .sequences = 2,
                             .micro_batches = 1,
                             .dp = 1,
                             .pp = 1,
                             .ep = 1,
                             .tp = 1,
                             .sequence_parallel = sequence_parallel,
                             .schedule = tuttiPipeline1F1B};
}

static void body(int rank, int size)
{
    struct member member;
    if (!member_join(&member, rank, size)) {
        return;
    }
    for (int i = 0; i < 8; i++) {
        struct run_plan plan = plan_of((i & 1) != 0, (i & 2) != 0, (i & 4) != 0);
        check(&plan, &member);
    }
    member_leave(&member);
}

static void late_weights(void)
{
    run_thread_ranks(1, body, 60);
}

int main(void)
{
    RUN(late_weights);
    return expect_result();
}
