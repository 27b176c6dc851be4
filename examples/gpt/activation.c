// See activation.h. SPDX-License-Identifier: Apache-2.0
#include "activation.h"

static void swiglu_row(const stored *restrict gate, const stored *restrict up, size_t width,
                       stored *restrict out)
{
    for (size_t i = 0; i < width; i++) {
        real g = load(gate[i]);
        out[i] = keep(g * real_sigmoid(g) * load(up[i]));
    }
}

// gelu(x) = x * sigmoid(2 c (x + 0.044715 x^3)), c = sqrt(2 / pi): the tanh form, rewritten.
static const real gelu_c2 = (real)1.5957691216057308;
static const real gelu_cubic = (real)0.044715;

static void gelu_row(const stored *restrict x, size_t width, stored *restrict out)
{
    for (size_t i = 0; i < width; i++) {
        real v = load(x[i]);
        out[i] = keep(v * real_sigmoid(gelu_c2 * (v + gelu_cubic * v * v * v)));
    }
}

void gpt_activation_forward(enum gpt_activation kind, size_t tokens, size_t width,
                            const stored *hidden, stored *out)
{
    for (size_t token = 0; token < tokens; token++) {
        if (kind == GPT_SWIGLU) {
            const stored *row = hidden + 2 * token * width;
            swiglu_row(row, row + width, width, out + token * width);
        } else {
            gelu_row(hidden + token * width, width, out + token * width);
        }
    }
}

static void swiglu_row_backward(const stored *restrict hidden, const real *restrict dout,
                                size_t width, real *restrict dhidden, stored *restrict out)
{
    const stored *up = hidden + width;
    real *dup = dhidden + width;
    for (size_t i = 0; i < width; i++) {
        real g = load(hidden[i]), u = load(up[i]), s = real_sigmoid(g);
        out[i] = keep(g * s * u);
        dup[i] = dout[i] * g * s;
        dhidden[i] = dout[i] * u * s * (1 + g * (1 - s));
    }
}

static void gelu_row_backward(const stored *restrict x, const real *restrict dout, size_t width,
                              real *restrict dx, stored *restrict out)
{
    for (size_t i = 0; i < width; i++) {
        real v = load(x[i]);
        real s = real_sigmoid(gelu_c2 * (v + gelu_cubic * v * v * v));
        out[i] = keep(v * s);
        dx[i] = dout[i] * (s + v * s * (1 - s) * gelu_c2 * (1 + 3 * gelu_cubic * v * v));
    }
}

void gpt_activation_backward(enum gpt_activation kind, size_t tokens, size_t width,
                             const struct gpt_activation_gradients *gradients)
{
    for (size_t token = 0; token < tokens; token++) {
        const real *dout = gradients->dout + token * width;
        stored *out = gradients->out + token * width;
        if (kind == GPT_SWIGLU) {
            swiglu_row_backward(gradients->hidden + 2 * token * width, dout, width,
                                gradients->dhidden + 2 * token * width, out);
        } else {
            gelu_row_backward(gradients->hidden + token * width, dout, width,
                              gradients->dhidden + token * width, out);
        }
    }
}
