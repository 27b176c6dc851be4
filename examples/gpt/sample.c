// SPDX-License-Identifier: Apache-2.0
#include "sample.h"

#include "checkpoint.h"
#include "model.h"
#include "random.h"
#include "state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sampling {
    const struct gpt_options *options;
    struct gpt_world *world;
    struct tuttiMesh mesh;
    struct gpt_model *model;
    int32_t *tokens; // [room]: prompt and sample
    int count, room;
    float *scores; // [vocabulary]
};

static bool load(struct sampling *s, const char *step, struct gpt_problem *problem)
{
    struct gpt_manifest manifest;
    struct gpt_state state = {NULL, 0};
    if (gpt_manifest_read(step, &manifest, problem)) {
        bool right = gpt_state_weights(s->model, &state, problem);
        if (right) {
            gpt_checkpoint_load(step, &manifest, state.pieces, state.count, problem);
        }
        gpt_state_free(&state);
        gpt_manifest_free(&manifest);
    }
    return gpt_world_agree(s->world, problem);
}

static bool open_sampling(struct sampling *s, struct gpt_problem *problem)
{
    const struct gpt_options *o = s->options;
    const struct gpt_shape shape = {1, 1, o->sp};
    if (!gpt_nccl(problem, gpt_config_check(&o->config, 1, o->ep, o->tp), "model") ||
        !gpt_options_fit(o, s->world->size, problem) ||
        !gpt_nccl(problem, tuttiMeshCreate(s->world->comm, o->dp, 1, o->ep, o->tp, &s->mesh),
                  "mesh")) {
        return gpt_fail_alike(problem);
    }
    int length = (int)strlen(o->prompt);
    s->room = length + o->sample + 1;
    s->tokens = calloc((size_t)s->room, sizeof *s->tokens);
    s->scores = calloc((size_t)o->config.vocabulary, sizeof *s->scores);
    if (s->tokens == NULL || s->scores == NULL) {
        return gpt_fail(problem, GPT_FAILED, "no memory for %d tokens", s->room);
    }
    for (int i = 0; i < length; i++) {
        s->tokens[i] = (unsigned char)o->prompt[i];
    }
    if (length == 0) {
        s->tokens[length++] = '\n';
    }
    s->count = length;
    return gpt_nccl(problem,
                    gpt_model_create(&o->config, &shape, &s->mesh, s->world->stream, &s->model),
                    "model") ||
           gpt_fail_alike(problem);
}

// All ranks have the same scores, and so choose the same token.
static bool add_token(struct sampling *s, int number, struct gpt_problem *problem)
{
    const struct gpt_options *o = s->options;
    const uint32_t counter[4] = {(uint32_t)number, 0, 0, 0};
    uint32_t bits[4];
    int context = o->config.context;
    int used = s->count < context ? s->count : context;
    if (!gpt_nccl(problem, gpt_model_next(s->model, s->tokens + s->count - used, used, s->scores),
                  "the next token")) {
        return false;
    }
    for (int i = 0; i < o->config.vocabulary; i++) {
        if (!isfinite(s->scores[i])) {
            gpt_fail(problem, GPT_FAILED, "sample: the score of token %d is %g", i,
                     (double)s->scores[i]);
            problem->teller = 0;
            return false;
        }
    }
    gpt_philox(counter, o->sample_seed ^ gpt_hash("sample"), bits);
    int token =
        gpt_choose(s->scores, o->config.vocabulary, o->temperature, o->top_k, bits[0] * 0x1p-32);
    s->tokens[s->count++] = token;
    if (s->world->rank == 0) {
        (void)putchar(token);
        (void)fflush(stdout);
    }
    return true;
}

bool gpt_sample(const struct gpt_options *options, struct gpt_world *world, const char *step,
                struct gpt_problem *problem)
{
    struct sampling s;
    memset(&s, 0, sizeof s);
    s.options = options;
    s.world = world;
    bool right = open_sampling(&s, problem) && load(&s, step, problem);
    if (right && world->rank == 0) {
        (void)fputs(options->prompt, stdout);
    }
    for (int i = 0; right && i < options->sample; i++) {
        right = add_token(&s, i, problem);
    }
    if (right && world->rank == 0) {
        (void)putchar('\n');
    }
    if (right || problem->teller >= 0) {
        if (s.model != NULL) {
            (void)gpt_model_destroy(s.model);
        }
        (void)tuttiMeshDestroy(&s.mesh);
    }
    free(s.tokens);
    free(s.scores);
    return right;
}
