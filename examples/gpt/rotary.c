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
                 int half, real direction)
{
    stored *second = head + half;
    for (int i = 0; i < half; i++) {
        real a = load(head[i]), b = load(second[i]);
        real sine = direction * sines[i];
        head[i] = keep(a * cosines[i] - b * sine);
        second[i] = keep(a * sine + b * cosines[i]);
    }
}

void gpt_rotary(const struct gpt_rotary *rotary, stored *heads, size_t tokens, int direction)
{
    int half = rotary->size / 2;
    for (size_t token = 0; token < tokens; token++) {
        size_t position = token % (size_t)rotary->context;
        const real *row = rotary->table + position * (size_t)rotary->size;
        stored *head = heads + token * rotary->stride;
        for (int h = 0; h < rotary->heads; h++, head += rotary->size) {
            turn(head, row, row + half, half, (real)direction);
        }
    }
}
