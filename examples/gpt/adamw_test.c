// AdamW against its definition in long double, the rounding to bf16 against all neighbours, and the
// schedule's values. SPDX-License-Identifier: Apache-2.0
#include "adamw.h"

#include "expect.h"
#include "schedule.h"

#include <math.h>
#include <string.h>

enum { ELEMENTS = 37, STEPS = 60 };

struct reference {
    long double w, m, v;
};

// As in the paper's algorithm 2.
static void reference_step(struct reference *r, const struct gpt_adamw *a, long double g)
{
    r->m = a->beta1 * r->m + (1 - (long double)a->beta1) * g;
    r->v = a->beta2 * r->v + (1 - (long double)a->beta2) * g * g;
    long double m = r->m / (1 - powl(a->beta1, a->step));
    long double v = r->v / (1 - powl(a->beta2, a->step));
    r->w = r->w - a->rate * (m / (sqrtl(v) + a->eps) + a->decay * r->w);
}

static double gradient(int step, int i)
{
    return sin(0.7 * step + i) * pow(10, i % 7 - 4);
}

static void steps(void)
{
    struct reference reference[ELEMENTS];
    double w[ELEMENTS], g[ELEMENTS], m[ELEMENTS] = {0}, v[ELEMENTS] = {0};
    float wf[ELEMENTS], gf[ELEMENTS], mf[ELEMENTS] = {0}, vf[ELEMENTS] = {0};
    for (int i = 0; i < ELEMENTS; i++) {
        w[i] = i == 0 ? 0 : 0.5 * cos(i);
        wf[i] = (float)w[i];
        reference[i] = (struct reference){w[i], 0, 0};
    }
    for (int step = 1; step <= STEPS; step++) {
        const struct gpt_adamw adamw = {0.01 / step, 0.9, 0.95, 1e-8, 0.1, step};
        for (int i = 0; i < ELEMENTS; i++) {
            g[i] = gradient(step, i);
            gf[i] = (float)g[i];
            reference_step(&reference[i], &adamw, g[i]);
        }
        gpt_adamw_double(&adamw, w, g, m, v, ELEMENTS);
        gpt_adamw_float(&adamw, wf, gf, mf, vf, ELEMENTS);
        for (int i = 0; i < ELEMENTS; i++) {
            EXPECT_NEAR(w[i], reference[i].w, 1e-14);
            EXPECT_NEAR(wf[i], reference[i].w, 2e-6);
            EXPECT_NEAR(m[i], reference[i].m, 1e-12);
            EXPECT_NEAR(v[i], reference[i].v, 1e-12 * (1 + reference[i].v));
        }
    }
    EXPECT(fabs(w[1] - 0.5 * cos(1)) > 0.01); // it has gone somewhere
}

// Without a gradient a weight only decays; without decay it stays.
static void decay(void)
{
    float w[2] = {2, 2}, g[2] = {0, 0}, m[2] = {0, 0}, v[2] = {0, 0};
    struct gpt_adamw adamw = {0.1, 0.9, 0.95, 1e-8, 0.5, 1};
    gpt_adamw_float(&adamw, w, g, m, v, 1);
    adamw.decay = 0;
    gpt_adamw_float(&adamw, w + 1, g + 1, m + 1, v + 1, 1);
    EXPECT_NEAR(w[0], 1.9, 1e-6);
    EXPECT(w[1] == 2);
}

// Of the two bf16 numbers around a float the nearer, of equally near ones the even one.
static void rounding(void)
{
    for (uint32_t high = 0; high < 0x7f80; high += 1) {
        static const uint32_t lows[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
        for (size_t i = 0; i < sizeof lows / sizeof lows[0]; i++) {
            uint32_t bits = high << 16 | lows[i];
            float x, back;
            uint16_t got;
            memcpy(&x, &bits, sizeof x);
            gpt_round_bfloat16(&x, &got, 1);
            bool up = lows[i] > 0x8000 || (lows[i] == 0x8000 && high % 2 == 1);
            EXPECT_EQ(got, high + (up ? 1 : 0));
            x = -x;
            gpt_round_bfloat16(&x, &got, 1);
            EXPECT_EQ(got, 0x8000 + high + (up ? 1 : 0));
            gpt_widen_bfloat16(&got, &back, 1);
            EXPECT(isinf(back) || fabsf(back - x) <= fabsf(x) / 256 + 1e-39f);
        }
    }
    const float special[] = {NAN, -NAN, INFINITY, -INFINITY};
    uint16_t got[4];
    uint32_t bits = 0x7f800001; // a NaN whose upper half is infinity's
    float quiet, narrow;
    memcpy(&narrow, &bits, sizeof narrow);
    gpt_round_bfloat16(special, got, 4);
    EXPECT((got[0] & 0x7fff) > 0x7f80 && (got[1] & 0x7fff) > 0x7f80);
    EXPECT_EQ(got[2], 0x7f80);
    EXPECT_EQ(got[3], 0xff80);
    gpt_round_bfloat16(&narrow, got, 1);
    gpt_widen_bfloat16(got, &quiet, 1);
    EXPECT(isnan(quiet));
}

static void rates(void)
{
    const struct gpt_rates rates = {1, 0.1, 10, 110};
    EXPECT_NEAR(gpt_learning_rate(&rates, 1), 0.1, 1e-15);
    EXPECT_NEAR(gpt_learning_rate(&rates, 10), 1, 1e-15);
    EXPECT_NEAR(gpt_learning_rate(&rates, 11), 1, 1e-15);
    EXPECT_NEAR(gpt_learning_rate(&rates, 36), 0.1 + 0.9 * (1 + sqrt(0.5)) / 2, 1e-12);
    EXPECT_NEAR(gpt_learning_rate(&rates, 61), 0.55, 1e-12);
    EXPECT_NEAR(gpt_learning_rate(&rates, 86), 0.1 + 0.9 * (1 - sqrt(0.5)) / 2, 1e-12);
    EXPECT(gpt_learning_rate(&rates, 110) > 0.1 && gpt_learning_rate(&rates, 110) < 0.101);
    EXPECT_NEAR(gpt_learning_rate(&rates, 111), 0.1, 1e-15);
    const struct gpt_rates all_warmup = {1, 0.1, 10, 10}, none = {1, 0, 0, 1};
    EXPECT_NEAR(gpt_learning_rate(&all_warmup, 10), 1, 1e-15);
    EXPECT_NEAR(gpt_learning_rate(&none, 1), 1, 1e-15);
}

int main(void)
{
    RUN(steps);
    RUN(decay);
    RUN(rounding);
    RUN(rates);
    return expect_result();
}
