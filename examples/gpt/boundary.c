// See boundary.h. SPDX-License-Identifier: Apache-2.0
#include "boundary.h"

#include "dropout.h"
#include "try.h"

ncclResult_t gpt_boundary_norm(struct gpt_model *model, struct gpt_norm_parameters norm,
                               const stored *x)
{
    const void *gamma = gpt_weight(model, norm.gamma), *beta = gpt_weight(model, norm.beta);
    TRY(gpt_wait(model));
    if (model->shape.sequence_parallel) {
        return tuttiBoundaryGather(model->boundary, model->extent.tokens, x, gamma, beta);
    }
    return tuttiNormForward(&model->norm_kind, model->extent.tokens, x, gamma, beta,
                            model->scratch.rows);
}

static struct gpt_dropout dropout_at(const struct gpt_model *model, struct gpt_site site)
{
    return (struct gpt_dropout){
        .probability = model->training ? model->config.dropout : 0,
        .seed = model->config.seed,
        .step = model->step,
        .site = site.number,
        .token = site.slot->batch.first_sequence * model->sizes.context + model->extent.first_own,
        .width = model->sizes.width,
    };
}

ncclResult_t gpt_boundary_add(struct gpt_model *model, struct gpt_site site, const stored *residual,
                              stored *x)
{
    struct gpt_dropout dropout = dropout_at(model, site);
    const stored *sum = model->scratch.rows;
    if (model->shape.sequence_parallel) {
        TRY(tuttiBoundaryReduce(model->boundary, model->extent.tokens, x));
        sum = x;
    }
    TRY(gpt_wait(model));
    gpt_dropout_add(&dropout, model->extent.own, sum, residual, x);
    return ncclSuccess;
}

ncclResult_t gpt_boundary_forward(struct gpt_model *model, struct gpt_site site,
                                  struct gpt_norm_parameters norm, const stored *residual,
                                  stored *x)
{
    if (model->shape.sequence_parallel && dropout_at(model, site).probability == 0) {
        const struct tuttiBoundaryInput forward = {.gamma = gpt_weight(model, norm.gamma),
                                                   .beta = gpt_weight(model, norm.beta),
                                                   .residual = residual,
                                                   .x = x};
        return tuttiBoundaryForward(model->boundary, model->extent.tokens, &forward);
    }
    TRY(gpt_boundary_add(model, site, residual, x));
    return gpt_boundary_norm(model, norm, x);
}

// The gradients of a gain or a shift are sums over this rank's tokens: in the step's last backward
// pass they become sums over all tensor ranks'.
static ncclResult_t complete_norm(struct gpt_model *model, int parameter)
{
    if (parameter >= 0 && model->shape.sequence_parallel && model->is_last) {
        void *gradient = gpt_gradient(model, parameter);
        TRY(ncclAllReduce(gradient, gradient, model->sizes.width, (ncclDataType_t)GPT_REAL_NCCL,
                          ncclSum, model->mesh->tpComm, model->stream));
    }
    return gpt_is_ready(model, parameter);
}

ncclResult_t gpt_boundary_norm_backward(struct gpt_model *model, struct gpt_norm_parameters norm,
                                        const stored *x, bool has_residual)
{
    struct gpt_scratch *scratch = &model->scratch;
    const void *gamma = gpt_weight(model, norm.gamma);
    void *dgamma = gpt_gradient(model, norm.gamma), *dbeta = gpt_gradient(model, norm.beta);
    TRY(gpt_wait(model));
    if (model->shape.sequence_parallel) {
        const struct tuttiBoundaryGradients backward = {.x = x,
                                                        .gamma = gamma,
                                                        .partial = scratch->drows,
                                                        .dx = scratch->dx,
                                                        .dgamma = dgamma,
                                                        .dbeta = dbeta,
                                                        .dy = NULL,
                                                        .hasResidual = has_residual};
        TRY(tuttiBoundaryBackward(model->boundary, model->extent.tokens, &backward));
    } else {
        const struct tuttiNormGradients backward = {.x = x,
                                                    .gamma = gamma,
                                                    .dy = scratch->drows,
                                                    .added = has_residual ? scratch->dx : NULL,
                                                    .dx = scratch->dx,
                                                    .dgamma = dgamma,
                                                    .dbeta = dbeta};
        TRY(tuttiNormBackward(&model->norm_kind, model->extent.tokens, &backward));
    }
    TRY(complete_norm(model, norm.beta));
    return complete_norm(model, norm.gamma);
}

ncclResult_t gpt_boundary_add_backward(struct gpt_model *model, struct gpt_site site,
                                       const real **dy)
{
    struct gpt_dropout dropout = dropout_at(model, site);
    const struct gpt_extent *extent = &model->extent;
    const real *own = model->scratch.dx;
    TRY(gpt_wait(model));
    if (dropout.probability > 0) {
        real *dropped = (real *)model->scratch.dy + extent->first_own * dropout.width;
        gpt_dropout_backward(&dropout, extent->own, own, dropped);
        own = dropped;
    }
    *dy = own;
    if (model->shape.sequence_parallel) {
        const struct tuttiSequence sequence = {.tokens = extent->tokens,
                                               .width = dropout.width,
                                               .type = (ncclDataType_t)GPT_REAL_NCCL,
                                               .comm = model->mesh->tpComm,
                                               .stream = model->stream};
        *dy = model->scratch.dy;
        TRY(tuttiSequenceAllGather(&sequence, own, model->scratch.dy));
    }
    return ncclSuccess;
}
