// See sizes.h. SPDX-License-Identifier: Apache-2.0
#include "sizes.h"

#include "attention.h"
#include "try.h"

enum { ALIGNMENT = 64 };

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

// The part of rank `rank`, as tuttiSplitCounts shares out.
static size_t part(size_t total, int ranks, int rank)
{
    return total / (size_t)ranks + ((size_t)rank < total % (size_t)ranks ? 1 : 0);
}

struct gpt_sizes gpt_sizes_of(const struct gpt_config *config, const struct gpt_shape *shape,
                              const struct gpt_place *place)
{
    struct gpt_sizes s = {.width = (size_t)config->width, .context = (size_t)config->context};
    s.stored_bytes = gpt_type_bytes(config->type);
    s.real_bytes = gpt_gradient_bytes(config->type);
    s.head_size = (size_t)(config->width / config->heads);
    s.heads = (size_t)(config->heads / place->tp);
    s.kv_heads = (size_t)(config->kv_heads / place->tp);
    s.attended = s.heads * s.head_size;
    s.qkv = (s.heads + 2 * s.kv_heads) * s.head_size;
    s.mlp = (size_t)(config->mlp_width / place->tp);
    s.hidden = config->activation == GPT_SWIGLU ? 2 * s.mlp : s.mlp;
    s.vocabulary = part((size_t)config->vocabulary, place->tp, place->tp_rank);
    s.whole_vocabulary = (size_t)config->vocabulary;
    s.experts = (size_t)config->experts;
    s.top_k = config->experts > 0 ? (size_t)config->top_k : 0;
    s.tokens = (size_t)shape->sequences * s.context;
    s.own_tokens = shape->sequence_parallel ? part(s.tokens, place->tp, place->tp_rank) : s.tokens;
    s.own_experts = (size_t)(config->experts / place->ep);
    gpt_stage_layers(config, place, &s.first_layer, &s.layers);
    for (int i = 0; i < s.layers; i++) {
        s.moe_layers += gpt_is_moe(config, s.first_layer + i);
    }
    s.first_stage = place->pp_rank == 0;
    s.last_stage = place->pp_rank == place->pp - 1;
    return s;
}

ncclResult_t gpt_grow(struct gpt_growing *memory, size_t bytes, cudaStream_t stream)
{
    if (bytes <= memory->bytes) {
        return ncclSuccess;
    }
    if (memory->data != NULL) {
        TRY_CUDA(cudaFreeAsync(memory->data, stream));
    }
    memory->data = NULL;
    memory->bytes = 0;
    TRY_CUDA(cudaMallocAsync(&memory->data, bytes, stream));
    TRY_CUDA(cudaStreamSynchronize(stream));
    memory->bytes = bytes;
    return ncclSuccess;
}

// The next `bytes` of the memory, of which *used are taken.
static void *take(char *memory, size_t *used, size_t bytes)
{
    void *piece = memory == NULL ? NULL : memory + *used;
    *used += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return piece;
}

static void lay_out_layer(const struct gpt_sizes *s, bool is_moe, char *memory, size_t *used,
                          struct gpt_layer_activations *layer)
{
    size_t heads = s->tokens / s->context * s->heads; // of all sequences
    *layer = (struct gpt_layer_activations){0};
    layer->qkv = take(memory, used, s->tokens * s->qkv * s->stored_bytes);
    layer->probabilities = take(memory, used, heads * s->context * s->context * s->stored_bytes);
    layer->attended = take(memory, used, s->tokens * s->attended * s->stored_bytes);
    layer->mlp_in = take(memory, used, s->own_tokens * s->width * s->stored_bytes);
    if (!is_moe) {
        layer->hidden = take(memory, used, s->tokens * s->hidden * s->stored_bytes);
        return;
    }
    layer->router_logits = take(memory, used, s->tokens * s->experts * s->real_bytes);
    layer->router_probabilities = take(memory, used, s->tokens * s->experts * s->real_bytes);
    layer->router_weights = take(memory, used, s->tokens * s->top_k * s->real_bytes);
    layer->router_indices = take(memory, used, s->tokens * s->top_k * sizeof(int32_t));
}

size_t gpt_lay_out_slot(const struct gpt_sizes *s, const struct gpt_config *config, char *memory,
                        struct gpt_slot *slot)
{
    size_t used = 0;
    for (int i = 0; i < s->layers; i++) {
        struct gpt_layer_activations *layer = &slot->layers[i];
        lay_out_layer(s, gpt_is_moe(config, s->first_layer + i), memory, &used, layer);
        if (i > 0 || s->first_stage) {
            layer->attention_in = take(memory, &used, s->own_tokens * s->width * s->stored_bytes);
        }
    }
    if (s->last_stage) {
        slot->head_in = take(memory, &used, s->own_tokens * s->width * s->stored_bytes);
        slot->logits = take(memory, &used, s->tokens * s->vocabulary * s->real_bytes);
        slot->sums = take(memory, &used, 3 * s->tokens * sizeof(double));
    }
    return used;
}

size_t gpt_lay_out_scratch(const struct gpt_sizes *s, const struct gpt_shape *shape, char *memory,
                           struct gpt_scratch *scratch)
{
    size_t used = 0;
    *scratch = (struct gpt_scratch){0};
    if (!shape->sequence_parallel) {
        scratch->rows = take(memory, &used, s->tokens * s->width * s->stored_bytes);
    }
    if (s->experts > 0) {
        scratch->drouter = take(memory, &used, s->tokens * (s->experts + s->top_k) * s->real_bytes);
    }
    scratch->act = take(memory, &used, s->tokens * s->mlp * s->stored_bytes);
    scratch->scores = take(memory, &used, (size_t)GPT_ATTENTION_BLOCK * s->context * s->real_bytes);
    scratch->rotary = take(memory, &used, s->context * s->head_size * s->real_bytes);
    scratch->dx = take(memory, &used, s->own_tokens * s->width * s->real_bytes);
    scratch->dy = take(memory, &used, s->tokens * s->width * s->real_bytes);
    scratch->drows = take(memory, &used, s->tokens * s->width * s->real_bytes);
    scratch->dmiddle = take(memory, &used, s->tokens * larger(s->attended, s->mlp) * s->real_bytes);
    scratch->dhidden = take(memory, &used, s->tokens * larger(s->qkv, s->hidden) * s->real_bytes);
    scratch->losses = take(memory, &used, s->tokens * sizeof(double));
    scratch->next_logits = take(memory, &used, s->whole_vocabulary * s->real_bytes);
    return used;
}

size_t gpt_expert_bytes(const struct gpt_sizes *s, size_t rows)
{
    return rows * (2 * s->width + s->hidden) * s->stored_bytes;
}

size_t gpt_expert_middle_bytes(const struct gpt_sizes *s, size_t rows)
{
    return rows * (s->mlp + s->hidden) * s->real_bytes + rows * s->mlp * s->stored_bytes;
}
