// One step on meshes of ranks against the same step on one rank: the loss, and every gradient of
// every rank's slices. Each rank computes what it compares with by itself.
// SPDX-License-Identifier: Apache-2.0
#include "model_run.h"

#include <math.h>
#include <stdio.h>

enum features {
    EXPERTS = 1,  // every second layer has some
    LAYERED = 2,  // LayerNorm and GELU
    DROPOUT = 4,  // some
    SEQUENCE = 8, // sequence parallelism
    GPIPE = 16,   // else 1F1B
    TWO_KV = 32,  // two key heads; else four
};

struct mesh_case {
    const char *name;
    int dp, pp, ep, tp;
    int features;
    enum gpt_type type;
};

static const struct mesh_case cases[] = {
    {"one", 1, 1, 1, 1, DROPOUT, GPT_DOUBLE},
    {"one sp", 1, 1, 1, 1, SEQUENCE, GPT_FLOAT},
    {"dp2", 2, 1, 1, 1, DROPOUT, GPT_DOUBLE},
    {"tp2", 1, 1, 1, 2, 0, GPT_DOUBLE},
    {"tp2 float", 1, 1, 1, 2, LAYERED, GPT_FLOAT},
    {"tp4", 1, 1, 1, 4, DROPOUT, GPT_DOUBLE},
    {"tp2 sp", 1, 1, 1, 2, SEQUENCE | TWO_KV, GPT_DOUBLE},
    {"tp2 sp float", 1, 1, 1, 2, SEQUENCE, GPT_FLOAT},
    {"tp2 sp dropout", 1, 1, 1, 2, SEQUENCE | DROPOUT, GPT_FLOAT},
    {"tp4 sp layered", 1, 1, 1, 4, SEQUENCE | LAYERED | DROPOUT, GPT_DOUBLE},
    {"pp2", 1, 2, 1, 1, DROPOUT, GPT_DOUBLE},
    {"pp2 gpipe", 1, 2, 1, 1, GPIPE | EXPERTS, GPT_DOUBLE},
    {"pp4", 1, 4, 1, 1, 0, GPT_FLOAT},
    {"ep1", 1, 1, 1, 1, EXPERTS, GPT_DOUBLE},
    {"ep2", 1, 1, 2, 1, EXPERTS | DROPOUT, GPT_DOUBLE},
    {"ep4", 1, 1, 4, 1, EXPERTS | LAYERED, GPT_FLOAT},
    {"ep2 tp2", 1, 1, 2, 2, EXPERTS, GPT_DOUBLE},
    {"ep2 tp2 sp", 1, 1, 2, 2, EXPERTS | SEQUENCE, GPT_DOUBLE},
    {"dp2 tp2", 2, 1, 1, 2, 0, GPT_FLOAT},
    {"dp2 pp2", 2, 2, 1, 1, 0, GPT_FLOAT},
    {"tp2 pp2 sp", 1, 2, 1, 2, SEQUENCE | DROPOUT, GPT_DOUBLE},
    {"dp2 ep2", 2, 1, 2, 1, EXPERTS, GPT_FLOAT},
    {"dp2 pp2 tp2", 2, 2, 1, 2, DROPOUT, GPT_DOUBLE},
    {"bf16 one", 1, 1, 1, 1, 0, GPT_BF16},
    {"bf16 tp2 sp", 1, 1, 1, 2, SEQUENCE, GPT_BF16},
    {"bf16 ep2 pp2", 1, 2, 2, 1, EXPERTS, GPT_BF16},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static struct run_plan plan_of(const struct mesh_case *c, bool whole)
{
    struct gpt_config config = gpt_config_default();
    config.layers = 4;
    config.width = 24;
    config.heads = 4;
    config.kv_heads = (c->features & TWO_KV) != 0 ? 2 : 4;
    config.context = 7;
    config.vocabulary = 13;
    config.mlp_width = 20;
    // A model in bf16 on one rank is compared with float.
    bool is_one = c->dp * c->pp * c->ep * c->tp == 1;
    config.type = whole && is_one && c->type == GPT_BF16 ? GPT_FLOAT : c->type;
    config.experts = (c->features & EXPERTS) != 0 ? 4 : 0;
    // Where sums are rounded to bf16, a mesh may choose another second expert: so all are chosen.
    config.top_k = c->type == GPT_BF16 ? 4 : 2;
    config.dropout = (c->features & DROPOUT) != 0 ? 0.2 : 0;
    config.balance_alpha = 0.5;
    if ((c->features & LAYERED) != 0) {
        config.norm = GPT_NORM_LAYER;
        config.activation = GPT_GELU;
    }
    struct run_plan plan = {.config = config,
                            .sequences = 12,
                            .micro_batches = whole ? 1 : 3,
                            .dp = whole ? 1 : c->dp,
                            .pp = whole ? 1 : c->pp,
                            .ep = whole ? 1 : c->ep,
                            .tp = whole ? 1 : c->tp,
                            .bf16_weights = c->type == GPT_BF16,
                            .sequence_parallel = !whole && (c->features & SEQUENCE) != 0};
    plan.schedule = (c->features & GPIPE) != 0 ? tuttiPipelineGPipe : tuttiPipeline1F1B;
    return plan;
}

static double gradient(const struct run *run, size_t element)
{
    return run_value(run, gpt_model_gradients(run->model), false, element);
}

// The length of the difference of the slice's gradients from those of the whole, relative to the
// length of these.
static double compare(const struct run *run, const struct gpt_parameter *part,
                      const struct run *whole)
{
    const struct gpt_parameters *table = gpt_model_parameters(whole->model);
    const struct gpt_parameter *all = gpt_parameter_find(table, part->name);
    double difference = 0, length = 0;
    if (all == NULL) {
        EXPECT(all != NULL);
        return INFINITY;
    }
    for (size_t i = 0; i < gpt_slice_elements(part); i++) {
        size_t row = part->first_row + i / part->slice_columns;
        size_t column = part->first_column + i % part->slice_columns;
        double its = gradient(whole, all->offset + row * part->columns + column);
        double off = gradient(run, part->offset + i) - its;
        difference += off * off;
        length += its * its;
    }
    EXPECT(length > 1e-12);
    return sqrt(difference / length);
}

static double tolerance(enum gpt_type type)
{
    return type == GPT_DOUBLE ? 1e-12 : type == GPT_FLOAT ? 1e-5 : 0.08;
}

static void compare_all(const struct mesh_case *c, int rank, const struct run *run,
                        const struct run *whole)
{
    const struct gpt_parameters *table = gpt_model_parameters(run->model);
    double worst = 0;
    for (int i = 0; i < table->count; i++) {
        double error = compare(run, &table->all[i], whole);
        worst = fmax(worst, error);
        if (!EXPECT(error <= tolerance(c->type))) {
            printf("%s: rank %d: %s: %g\n", c->name, rank, table->all[i].name, error);
        }
    }
    if (rank == 0) {
        printf("%-16s gradients within %.1e\n", c->name, worst);
    }
}

// What is allocated is what the rows that came predict, and no more than the most that can come.
static void compare_bytes(const struct run *run, const struct run_plan *plan)
{
    const struct tuttiMesh *m = &run->mesh;
    struct gpt_place place = {m->pp, m->ppRank, m->ep, m->epRank, m->tp, m->tpRank};
    struct gpt_shape shape = {.sequences =
                                  plan->sequences / plan->dp / plan->ep / plan->micro_batches,
                              .sequence_parallel = plan->sequence_parallel};
    struct gpt_bytes predicted, most, measured = gpt_model_bytes(run->model);
    EXPECT_OK(tuttiPipelineInFlight(plan->schedule, plan->pp, plan->micro_batches, m->ppRank,
                                    &shape.slots));
    struct gpt_rows came = gpt_model_rows(run->model);
    struct gpt_rows at_most = gpt_most_rows(&plan->config, &shape, &place);
    EXPECT_OK(gpt_predict_bytes(&plan->config, &shape, &place, &came, &predicted));
    EXPECT_OK(gpt_predict_bytes(&plan->config, &shape, &place, &at_most, &most));
    EXPECT_EQ(predicted.weights, measured.weights);
    EXPECT_EQ(predicted.gradients, measured.gradients);
    EXPECT_EQ(predicted.activations, measured.activations);
    EXPECT_EQ(predicted.scratch, measured.scratch);
    EXPECT(most.activations >= measured.activations && most.scratch >= measured.scratch);
}

static int number; // of the case that runs; ranks are threads

static void body(int rank, int size)
{
    struct member member;
    struct run run = {0}, whole = {0};
    struct gpt_losses losses, expected;
    ncclComm_t alone;
    const struct mesh_case *c = &cases[number];
    struct run_plan plan = plan_of(c, false), whole_plan = plan_of(c, true);
    if (!member_join(&member, rank, size)) {
        return;
    }
    EXPECT_OK(ncclCommSplit(member.comm, rank, 0, &alone, NULL));
    bool fine = run_open(&run, &plan, member.comm, member.stream) &&
                run_open(&whole, &whole_plan, alone, member.stream);
    for (uint64_t step = 3; step < 5 && fine; step++) { // twice: nothing is left of the first
        fine = run_step(&run, step, &losses) && run_step(&whole, step, &expected);
    }
    if (fine) {
        double off = c->type == GPT_BF16 ? 0.03 : tolerance(c->type);
        EXPECT_NEAR(losses.cross_entropy, expected.cross_entropy, off * expected.cross_entropy);
        EXPECT_NEAR(losses.balance, expected.balance, off * expected.balance);
        EXPECT((plan.config.experts > 0) == (losses.balance > 0));
        compare_all(c, rank, &run, &whole);
        compare_bytes(&run, &plan);
    }
    run_close(&whole);
    run_close(&run);
    EXPECT_OK(ncclCommDestroy(alone));
    member_leave(&member);
}

static void meshes(void)
{
    for (number = 0; number < CASES; number++) {
        const struct mesh_case *c = &cases[number];
        run_thread_ranks(c->dp * c->pp * c->ep * c->tp, body, 60);
    }
}

int main(void)
{
    RUN(meshes);
    return expect_result();
}
