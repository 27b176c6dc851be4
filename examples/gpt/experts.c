// See experts.h. SPDX-License-Identifier: Apache-2.0
#include "experts.h"

#include "activation.h"
#include "mlp.h"
#include "try.h"

// y[rows x out] = x[rows x in] w[out x in]^T
static ncclResult_t linear(size_t rows, size_t in, size_t out, const stored *x, const stored *w,
                           stored *y)
{
    struct tuttiProduct p = TUTTI_PRODUCT_INITIALIZER;
    p.rows = rows;
    p.columns = out;
    p.inner = in;
    p.transposeB = 1;
    p.typeA = p.typeB = p.typeC = (ncclDataType_t)GPT_STORED_NCCL;
    return tuttiMatmul(&p, x, w, y);
}

// dx[rows x in] = dy[rows x out] w[out x in]
static ncclResult_t linear_dx(size_t rows, size_t in, size_t out, const real *dy, const stored *w,
                              real *dx)
{
    struct tuttiProduct p = TUTTI_PRODUCT_INITIALIZER;
    p.rows = rows;
    p.columns = in;
    p.inner = out;
    p.typeA = p.typeC = (ncclDataType_t)GPT_REAL_NCCL;
    p.typeB = (ncclDataType_t)GPT_STORED_NCCL;
    return tuttiMatmul(&p, dy, w, dx);
}

// dw[out x in] += dy[rows x out]^T x[rows x in]
static ncclResult_t linear_dw(size_t rows, size_t in, size_t out, const real *dy, const stored *x,
                              real *dw)
{
    struct tuttiProduct p = TUTTI_PRODUCT_INITIALIZER;
    p.rows = out;
    p.columns = in;
    p.inner = rows;
    p.transposeA = 1;
    p.beta = 1;
    p.typeA = p.typeC = (ncclDataType_t)GPT_REAL_NCCL;
    p.typeB = (ncclDataType_t)GPT_STORED_NCCL;
    return tuttiMatmul(&p, dy, x, dw);
}

// Rows of the expert that has most.
static size_t most_rows(const struct tuttiMoeReceived *received)
{
    size_t most = 0;
    for (int e = 0; e < received->experts; e++) {
        most = received->counts[e] > most ? received->counts[e] : most;
    }
    return most;
}

// Memory for the middle of one expert: out of the activation; its derivatives; those of hidden.
struct middle {
    real *dout, *dhidden;
    stored *out;
};

static ncclResult_t middle_of(struct gpt_model *model, const struct tuttiMoeReceived *received,
                              struct middle *middle)
{
    const struct gpt_sizes *s = &model->sizes;
    size_t rows = most_rows(received), *most = &model->scratch.most_expert_rows;
    *most = rows > *most ? rows : *most;
    TRY(gpt_grow(&model->scratch.expert_middle, gpt_expert_middle_bytes(s, rows), model->stream));
    middle->dout = model->scratch.expert_middle.data;
    middle->dhidden = middle->dout == NULL ? NULL : middle->dout + rows * s->mlp;
    middle->out =
        middle->dout == NULL ? NULL : (stored *)(void *)(middle->dhidden + rows * s->hidden);
    return ncclSuccess;
}

ncclResult_t gpt_experts_forward(struct gpt_model *model, int layer, struct gpt_slot *slot,
                                 const struct tuttiMoeReceived *received)
{
    const struct gpt_sizes *s = &model->sizes;
    struct gpt_layer_activations *kept = &slot->layers[layer];
    struct middle middle;
    kept->most_rows = received->rowCount > kept->most_rows ? received->rowCount : kept->most_rows;
    TRY(gpt_grow(&kept->rows, gpt_expert_bytes(s, received->rowCount), model->stream));
    TRY(middle_of(model, received, &middle));
    struct gpt_expert_rows rows = gpt_expert_rows(model, kept, received->rowCount);
    if (rows.in != NULL && received->rowCount > 0) {
        memcpy(rows.in, received->rows, received->rowCount * s->width * sizeof(stored));
    }
    for (int e = 0; e < received->experts; e++) {
        const struct gpt_mlp_parameters *mlp = &model->layers[layer].experts[e];
        size_t count = received->counts[e], first = received->offsets[e];
        if (count == 0) {
            continue;
        }
        stored *hidden = rows.hidden + first * s->hidden;
        TRY(linear(count, s->width, s->hidden, rows.in + first * s->width,
                   gpt_weight(model, gpt_mlp_first(mlp)), hidden));
        gpt_activation_forward(model->config.activation, count, s->mlp, hidden, middle.out);
        TRY(linear(count, s->mlp, s->width, middle.out, gpt_weight(model, mlp->down),
                   rows.out + first * s->width));
    }
    return ncclSuccess;
}

// One expert: rows `first` and `count` rows on.
static ncclResult_t backward_one(struct gpt_model *model, const struct gpt_mlp_parameters *mlp,
                                 size_t count, const struct gpt_expert_rows *rows,
                                 const struct middle *middle, const real *dout, real *dx)
{
    const struct gpt_sizes *s = &model->sizes;
    const stored *first = gpt_weight(model, gpt_mlp_first(mlp));
    TRY(linear_dx(count, s->mlp, s->width, dout, gpt_weight(model, mlp->down), middle->dout));
    const struct gpt_activation_gradients activation = {.hidden = rows->hidden,
                                                        .dout = middle->dout,
                                                        .dhidden = middle->dhidden,
                                                        .out = middle->out};
    gpt_activation_backward(model->config.activation, count, s->mlp, &activation);
    TRY(linear_dw(count, s->mlp, s->width, dout, middle->out, gpt_gradient(model, mlp->down)));
    TRY(linear_dx(count, s->width, s->hidden, middle->dhidden, first, dx));
    return linear_dw(count, s->width, s->hidden, middle->dhidden, rows->in,
                     gpt_gradient(model, gpt_mlp_first(mlp)));
}

// Expert `e`; its gradients are complete then.
static ncclResult_t backward_expert(struct gpt_model *model, int layer, int e,
                                    const struct tuttiMoeReceived *received,
                                    const struct gpt_expert_rows *all, const struct middle *middle,
                                    const real *dout)
{
    const struct gpt_sizes *s = &model->sizes;
    const struct gpt_mlp_parameters *mlp = &model->layers[layer].experts[e];
    size_t count = received->counts[e], first = received->offsets[e];
    if (count > 0) {
        const struct gpt_expert_rows rows = {all->in + first * s->width,
                                             all->hidden + first * s->hidden,
                                             all->out + first * s->width};
        TRY(backward_one(model, mlp, count, &rows, middle, dout + first * s->width,
                         (real *)model->scratch.expert_dx.data + first * s->width));
    }
    TRY(gpt_is_ready(model, mlp->down));
    TRY(gpt_is_ready(model, mlp->up));
    return gpt_is_ready(model, mlp->gate);
}

ncclResult_t gpt_experts_backward(struct gpt_model *model, int layer, struct gpt_slot *slot,
                                  const struct tuttiMoeReceived *received, const real *dout)
{
    const struct gpt_sizes *s = &model->sizes;
    struct middle middle;
    size_t *most = &model->scratch.most_backward_rows;
    *most = received->rowCount > *most ? received->rowCount : *most;
    TRY(middle_of(model, received, &middle));
    TRY(gpt_grow(&model->scratch.expert_dx, received->rowCount * s->width * sizeof(real),
                 model->stream));
    struct gpt_expert_rows all = gpt_expert_rows(model, &slot->layers[layer], received->rowCount);
    for (int e = received->experts - 1; e >= 0; e--) {
        TRY(backward_expert(model, layer, e, received, &all, &middle, dout));
    }
    return ncclSuccess;
}
