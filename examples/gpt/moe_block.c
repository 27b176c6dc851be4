// See moe_block.h. SPDX-License-Identifier: Apache-2.0
#include "moe_block.h"

#include "experts.h"
#include "try.h"

// The loss is a mean over the sequences of the global batch. With one choice its weight is the
// probability itself: normalised it would always be 1, and teach the router nothing.
static struct tuttiRouter router_of(const struct gpt_model *model)
{
    struct tuttiRouter router = TUTTI_ROUTER_INITIALIZER;
    router.experts = model->config.experts;
    router.choices = model->config.top_k;
    router.normalise = model->config.top_k > 1;
    router.datatype = (ncclDataType_t)GPT_REAL_NCCL;
    router.balance =
        model->config.balance_alpha * (double)model->sizes.context / (double)model->step_tokens;
    return router;
}

static struct tuttiRouting routing_of(const struct gpt_model *model,
                                      const struct gpt_layer_activations *kept)
{
    return (struct tuttiRouting){.tokens = model->extent.tokens,
                                 .sequences = model->extent.sequences,
                                 .lengths = NULL,
                                 .logits = kept->router_logits,
                                 .probabilities = kept->router_probabilities,
                                 .indices = kept->router_indices,
                                 .weights = kept->router_weights};
}

// Chooses the experts of the tokens in rows.
static ncclResult_t route(struct gpt_model *model, int layer,
                          const struct gpt_layer_activations *kept)
{
    const struct gpt_sizes *s = &model->sizes;
    struct tuttiRouter router = router_of(model);
    struct tuttiRouting routing = routing_of(model, kept);
    struct tuttiProduct p = TUTTI_PRODUCT_INITIALIZER;
    p.rows = model->extent.tokens;
    p.columns = s->experts;
    p.inner = s->width;
    p.transposeB = 1;
    p.typeA = p.typeB = (ncclDataType_t)GPT_STORED_NCCL;
    p.typeC = (ncclDataType_t)GPT_REAL_NCCL;
    TRY(tuttiMatmul(&p, model->scratch.rows, gpt_weight(model, model->layers[layer].router),
                    kept->router_logits));
    double loss = 0;
    TRY(tuttiRouterForward(&router, &routing, &loss));
    model->losses.balance += model->place.tp_rank == 0 ? loss : 0;
    return ncclSuccess;
}

static ncclResult_t forget_route(struct gpt_layer_activations *kept)
{
    tuttiMoeRoute_t old = kept->route;
    kept->route = NULL;
    return tuttiMoeRouteDestroy(old);
}

// Tokens go to their experts' ranks; what has come here is in `received`.
static ncclResult_t dispatch(struct gpt_model *model, int layer, struct gpt_layer_activations *kept,
                             struct tuttiMoeReceived *received)
{
    TRY(gpt_wait(model));
    TRY(route(model, layer, kept));
    TRY(tuttiMoeDispatch(model->moe, model->scratch.rows, model->extent.tokens,
                         kept->router_indices, kept->router_weights, &kept->route, model->stream));
    return tuttiMoeGetReceived(kept->route, received);
}

// Of all tensor ranks' parts of rows the sum, unless that is taken where sequences are split.
static ncclResult_t sum_parts(struct gpt_model *model, void *rows, ncclDataType_t type)
{
    if (model->shape.sequence_parallel) {
        return ncclSuccess;
    }
    return ncclAllReduce(rows, rows, model->extent.tokens * model->sizes.width, type, ncclSum,
                         model->mesh->tpComm, model->stream);
}

ncclResult_t gpt_moe_forward(struct gpt_model *model, int layer, struct gpt_slot *slot)
{
    struct gpt_layer_activations *kept = &slot->layers[layer];
    struct gpt_scratch *scratch = &model->scratch;
    struct tuttiMoeReceived received;
    TRY(forget_route(kept));
    TRY(dispatch(model, layer, kept, &received));
    TRY(gpt_wait(model));
    TRY(gpt_experts_forward(model, layer, slot, &received));
    TRY(tuttiMoeCombine(kept->route, gpt_expert_rows(model, kept, received.rowCount).out,
                        scratch->rows, model->stream));
    TRY(sum_parts(model, scratch->rows, (ncclDataType_t)GPT_STORED_NCCL));
    return model->training ? ncclSuccess : forget_route(kept);
}

// The router's gradients from those of the weights. drows (of which this is one part on tensor rank
// 0, as all have the same) and the router's gradient are added to.
static ncclResult_t router_backward(struct gpt_model *model, int layer,
                                    const struct gpt_layer_activations *kept, const real *dweights,
                                    real *dlogits)
{
    const struct gpt_sizes *s = &model->sizes;
    struct tuttiRouter router = router_of(model);
    struct tuttiRouting routing = routing_of(model, kept);
    int parameter = model->layers[layer].router;
    TRY(tuttiRouterBackward(&router, &routing, dweights, dlogits));
    struct tuttiProduct p = TUTTI_PRODUCT_INITIALIZER;
    p.rows = s->experts; // drouter += dlogits^T rows
    p.columns = s->width;
    p.inner = model->extent.tokens;
    p.transposeA = 1;
    p.beta = 1;
    p.typeA = p.typeC = (ncclDataType_t)GPT_REAL_NCCL;
    p.typeB = (ncclDataType_t)GPT_STORED_NCCL;
    TRY(tuttiMatmul(&p, dlogits, model->scratch.rows, gpt_gradient(model, parameter)));
    if (model->place.tp_rank == 0) {
        p.rows = model->extent.tokens; // drows += dlogits router
        p.inner = s->experts;
        p.transposeA = 0;
        TRY(tuttiMatmul(&p, dlogits, gpt_weight(model, parameter), model->scratch.drows));
    }
    return gpt_is_ready(model, parameter);
}

// The gradients of the experts' rows, of which `rows` have come here, and of the weights. Each
// tensor rank's rows are parts of sums, and so are products with them.
static ncclResult_t combine_backward(struct gpt_model *model,
                                     const struct gpt_layer_activations *kept, const real *dy,
                                     size_t rows, void **dout, real *dweights)
{
    TRY(tuttiMoeCombineBackward(kept->route, dy, gpt_expert_rows(model, kept, rows).out, dout,
                                dweights, model->stream));
    return ncclAllReduce(dweights, dweights, model->extent.tokens * model->sizes.top_k,
                         (ncclDataType_t)GPT_REAL_NCCL, ncclSum, model->mesh->tpComm,
                         model->stream);
}

ncclResult_t gpt_moe_backward(struct gpt_model *model, int layer, struct gpt_slot *slot,
                              const real *dy)
{
    struct gpt_layer_activations *kept = &slot->layers[layer];
    struct gpt_scratch *scratch = &model->scratch;
    struct tuttiMoeReceived received;
    real *dlogits = scratch->drouter;
    real *dweights = dlogits + model->extent.tokens * model->sizes.experts;
    void *dout = NULL;
    TRY(tuttiMoeGetReceived(kept->route, &received));
    TRY(combine_backward(model, kept, dy, received.rowCount, &dout, dweights));
    TRY(gpt_wait(model));
    TRY(gpt_experts_backward(model, layer, slot, &received, dout));
    TRY(tuttiMoeDispatchBackward(kept->route, scratch->expert_dx.data, scratch->drows,
                                 model->stream));
    TRY(gpt_wait(model));
    TRY(router_backward(model, layer, kept, dweights, dlogits));
    TRY(sum_parts(model, scratch->drows, (ncclDataType_t)GPT_REAL_NCCL));
    return forget_route(kept);
}
