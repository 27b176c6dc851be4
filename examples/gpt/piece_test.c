// Pieces against a matrix of marks, element by element. SPDX-License-Identifier: Apache-2.0
#include "piece.h"

#include "expect.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 4000, MOST = 9 };

static unsigned state = 1;

// 0 to most.
static size_t draw(size_t most)
{
    state ^= state << 13; // xorshift: G. Marsaglia 2003
    state ^= state >> 17;
    state ^= state << 5;
    return state % (most + 1);
}

static struct gpt_piece random_piece(size_t rows, size_t columns, float *data)
{
    struct gpt_piece p = {"m", GPT_WEIGHT, ncclFloat32, rows, columns, 0, 0, 0, 0, 0, 0, data};
    // Each interval begins early and is long, more often than not: else few pieces meet.
    p.first_row = draw(draw(rows));
    p.row_count = rows - p.first_row - draw(draw(rows - p.first_row));
    p.first_column = draw(draw(columns));
    p.column_count = columns - p.first_column - draw(draw(columns - p.first_column));
    size_t elements = p.row_count * p.column_count;
    p.first = draw(draw(elements));
    p.count = elements - p.first - draw(draw(elements - p.first));
    return p;
}

// The matrix's element that is element i of the piece.
static size_t index_of(const struct gpt_piece *p, size_t i)
{
    size_t row = p->first_row + (p->first + i) / p->column_count;
    return row * p->columns + p->first_column + (p->first + i) % p->column_count;
}

static void random_pieces(void)
{
    size_t all = 0;
    for (int round = 0; round < ROUNDS; round++) {
        float source[MOST * MOST + 1], target[MOST * MOST + 1], matrix[MOST * MOST];
        size_t rows = 1 + draw(MOST - 1), columns = 1 + draw(MOST - 1), common = 0, wrong = 0;
        struct gpt_piece from = random_piece(rows, columns, source);
        struct gpt_piece to = random_piece(rows, columns, target);
        EXPECT(gpt_piece_is_valid(&from) && gpt_piece_is_valid(&to));
        memset(matrix, 0, sizeof matrix);
        for (size_t i = 0; i < from.count; i++) {
            source[i] = (float)(i + 1);
            matrix[index_of(&from, i)] = source[i];
        }
        for (size_t i = 0; i < MOST * MOST + 1; i++) {
            target[i] = -1;
        }
        size_t copied = gpt_piece_copy(&from, &to);
        for (size_t i = 0; i < to.count; i++) {
            float value = matrix[index_of(&to, i)];
            common += value > 0 ? 1 : 0;
            wrong += target[i] == (value > 0 ? value : -1) ? 0 : 1;
        }
        EXPECT_EQ(copied, common);
        EXPECT_EQ(wrong, 0);
        EXPECT(target[to.count] == -1); // nothing is written behind it
        all += copied;
    }
    EXPECT(all > ROUNDS / 2);
}

static void what_cannot_be(void)
{
    struct gpt_piece p = {"m", GPT_WEIGHT, ncclFloat32, 4, 5, 1, 3, 0, 5, 0, 15, NULL};
    EXPECT(gpt_piece_is_valid(&p));
    struct gpt_piece bad[] = {p, p, p, p, p, p};
    bad[0].first_row = 2;
    bad[1].first_column = SIZE_MAX;
    bad[2].first = 1;
    bad[3].count = 16;
    bad[4].rows = SIZE_MAX / 2;
    bad[5].type = ncclInt8;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        EXPECT(!gpt_piece_is_valid(&bad[i]));
    }
}

int main(void)
{
    RUN(random_pieces);
    RUN(what_cannot_be);
    return expect_result();
}
