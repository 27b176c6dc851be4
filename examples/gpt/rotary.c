// See rotary.h. SPDX-License-Identifier: Apache-2.0
#include "rotary.h"

void gpt_rotary_table(int context, int size, double theta, real *table)
{
    int half = size / 2;
    for (int position = 0; position < context; position++) {
        real *row = table + (size_t)position * (size_t)size;
        for (int i = 0; i < half; i++) {
            double angle = position * pow(theta, -2.0 * i / size);
            row[i] = (real)cos(angle);
            row[half + i] = (real)sin(angle);
        }
    }
}

static void turn(stored *restrict head, const real *restrict cosines, const real *restrict sines,
                 int half)
{
    stored *second = head + half;
    for (int i = 0; i < half; i++) {
        real a = load(head[i]), b = load(second[i]);
        head[i] = keep(a * cosines[i] - b * sines[i]);
        second[i] = keep(a * sines[i] + b * cosines[i]);
    }
}

static void turn_back(real *restrict head, const real *restrict cosines, const real *restrict sines,
                      int half)
{
    real *second = head + half;
    for (int i = 0; i < half; i++) {
        real a = head[i], b = second[i];
        head[i] = a * cosines[i] + b * sines[i];
        second[i] = b * cosines[i] - a * sines[i];
    }
}

static const real *row_of(const struct gpt_rotary *rotary, size_t token)
{
    return rotary->table + token % (size_t)rotary->length * (size_t)rotary->size;
}

void gpt_rotary_forward(const struct gpt_rotary *rotary, stored *heads, size_t tokens)
{
    int half = rotary->size / 2;
    for (size_t token = 0; token < tokens; token++) {
        const real *row = row_of(rotary, token);
        stored *head = heads + token * rotary->stride;
        for (int h = 0; h < rotary->heads; h++, head += rotary->size) {
            turn(head, row, row + half, half);
        }
    }
}

void gpt_rotary_backward(const struct gpt_rotary *rotary, real *heads, size_t tokens)
{
    int half = rotary->size / 2;
    for (size_t token = 0; token < tokens; token++) {
        const real *row = row_of(rotary, token);
        real *head = heads + token * rotary->stride;
        for (int h = 0; h < rotary->heads; h++, head += rotary->size) {
            turn_back(head, row, row + half, half);
        }
    }
}
