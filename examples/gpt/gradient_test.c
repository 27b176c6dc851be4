// The derivatives of the loss by every kind of parameter, against central finite differences, in
// double. SPDX-License-Identifier: Apache-2.0
#include "model_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ELEMENTS = 3 }; // of each parameter that are checked

static struct gpt_config small_config(void)
{
    struct gpt_config c = gpt_config_default();
    c.layers = 2;
    c.width = 24;
    c.heads = 4;
    c.kv_heads = 2;
    c.context = 7;
    c.vocabulary = 13;
    c.mlp_width = 10;
    c.balance_alpha = 0.5;
    c.type = GPT_DOUBLE;
    return c;
}

// (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h: the error is of order h^4.
static double finite_difference(struct run *run, size_t element)
{
    const double h = 2e-3, steps[4] = {-2, -1, 1, 2};
    double *weight = (double *)gpt_model_weights(run->model) + element;
    double kept = *weight, loss[4];
    for (int i = 0; i < 4; i++) {
        *weight = kept + steps[i] * h;
        loss[i] = run_loss(run, 3);
    }
    *weight = kept;
    return (8 * (loss[2] - loss[1]) - (loss[3] - loss[0])) / (12 * h);
}

static double largest(const double *values, size_t count)
{
    double largest = 0;
    for (size_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs(values[i]));
    }
    return largest;
}

// The worst error of `parameter`, relative to its largest derivative.
static double check_parameter(struct run *run, const struct gpt_parameter *parameter,
                              const double *gradients)
{
    size_t count = gpt_slice_elements(parameter);
    double worst = 0, scale = largest(gradients + parameter->offset, count);
    EXPECT(scale > 1e-6); // else nothing would be shown
    for (size_t i = 0; i < ELEMENTS && i < count; i++) {
        size_t element = parameter->offset + (i * 7919 + 3) % count;
        double expected = finite_difference(run, element);
        double error = fabs(gradients[element] - expected) / scale;
        worst = fmax(worst, error);
        if (!EXPECT(error < 1e-6)) {
            printf("%s element %zu: %.12g, by differences %.12g\n", parameter->name,
                   element - parameter->offset, gradients[element], expected);
        }
    }
    return worst;
}

static void check(const struct gpt_config *config, int micro_batches, bool sequence_parallel)
{
    struct run_plan plan = {.config = *config,
                            .sequences = 4,
                            .micro_batches = micro_batches,
                            .dp = 1,
                            .pp = 1,
                            .ep = 1,
                            .tp = 1,
                            .sequence_parallel = sequence_parallel,
                            .schedule = tuttiPipelineGPipe};
    struct member member;
    struct run run;
    struct gpt_losses losses;
    if (!member_join(&member, 0, 1)) {
        return;
    }
    if (run_open(&run, &plan, member.comm, member.stream) && run_step(&run, 3, &losses)) {
        const struct gpt_parameters *table = gpt_model_parameters(run.model);
        double *gradients = malloc(table->elements * sizeof *gradients), worst = 0;
        memcpy(gradients, gpt_model_gradients(run.model), table->elements * sizeof *gradients);
        EXPECT_NEAR(run_loss(&run, 3), losses.cross_entropy + losses.balance, 1e-12);
        EXPECT(losses.cross_entropy > 1 && losses.cross_entropy < 30);
        for (int i = 0; i < table->count; i++) {
            worst = fmax(worst, check_parameter(&run, &table->all[i], gradients));
        }
        printf("loss %.6f + %.6f; worst relative error %.1e of %d parameters\n",
               losses.cross_entropy, losses.balance, worst, table->count);
        free(gradients);
    }
    run_close(&run);
    member_leave(&member);
}

static void body_rms_swiglu(int rank, int size)
{
    (void)rank;
    (void)size;
    struct gpt_config config = small_config();
    check(&config, 1, false);
    check(&config, 2, true);
}

static void body_layer_gelu(int rank, int size)
{
    (void)rank;
    (void)size;
    struct gpt_config config = small_config();
    config.norm = GPT_NORM_LAYER;
    config.activation = GPT_GELU;
    config.kv_heads = 4;
    check(&config, 2, false);
    check(&config, 1, true);
}

static void body_dropout(int rank, int size)
{
    (void)rank;
    (void)size;
    struct gpt_config config = small_config();
    config.dropout = 0.2;
    config.kv_heads = 1;
    check(&config, 2, false);
    check(&config, 2, true);
}

// More tokens than a block of attention has rows.
static void body_long(int rank, int size)
{
    (void)rank;
    (void)size;
    struct gpt_config config = small_config();
    config.layers = 1;
    config.context = 131;
    check(&config, 4, false);
}

static void rms_swiglu(void)
{
    run_thread_ranks(1, body_rms_swiglu, 60);
}

static void layer_gelu(void)
{
    run_thread_ranks(1, body_layer_gelu, 60);
}

static void dropout(void)
{
    run_thread_ranks(1, body_dropout, 60);
}

static void long_sequences(void)
{
    run_thread_ranks(1, body_long, 60);
}

static void body_experts(int rank, int size)
{
    (void)rank;
    (void)size;
    struct gpt_config config = small_config();
    config.experts = 4;
    check(&config, 2, false);
    config.activation = GPT_GELU;
    config.norm = GPT_NORM_LAYER;
    config.top_k = 1;
    config.experts = 3;
    config.moe_every = 1;
    check(&config, 1, true);
}

static void experts(void)
{
    run_thread_ranks(1, body_experts, 60);
}

int main(void)
{
    RUN(rms_swiglu);
    RUN(layer_gelu);
    RUN(dropout);
    RUN(long_sequences);
    RUN(experts);
    return expect_result();
}
