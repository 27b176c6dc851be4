// SPDX-License-Identifier: Apache-2.0
#include "piece.h"

#include <string.h>

const char *gpt_kind_name(enum gpt_kind kind)
{
    static const char *const names[GPT_KINDS] = {"weight", "master", "moment1", "moment2"};
    return names[kind];
}

const char *gpt_data_type_name(ncclDataType_t type)
{
    switch (type) {
    case ncclFloat32:
        return "float32";
    case ncclFloat64:
        return "float64";
    case ncclBfloat16:
        return "bfloat16";
    default:
        return NULL;
    }
}

size_t gpt_data_type_bytes(ncclDataType_t type)
{
    switch (type) {
    case ncclFloat32:
        return 4;
    case ncclFloat64:
        return 8;
    case ncclBfloat16:
        return 2;
    default:
        return 0;
    }
}

// Whether `count` things from number `first` on are among `total`.
static bool is_within(size_t first, size_t count, size_t total)
{
    return count <= total && first <= total - count;
}

bool gpt_piece_is_valid(const struct gpt_piece *piece)
{
    size_t elements, bytes;
    return !__builtin_mul_overflow(piece->rows, piece->columns, &elements) &&
           gpt_data_type_bytes(piece->type) > 0 &&
           !__builtin_mul_overflow(elements, gpt_data_type_bytes(piece->type), &bytes) &&
           is_within(piece->first_row, piece->row_count, piece->rows) &&
           is_within(piece->first_column, piece->column_count, piece->columns) &&
           is_within(piece->first, piece->count, piece->row_count * piece->column_count);
}

bool gpt_piece_same_matrix(const struct gpt_piece *a, const struct gpt_piece *b)
{
    return a->kind == b->kind && strcmp(a->name, b->name) == 0;
}

// A half-open interval of columns.
struct interval {
    size_t begin, end;
};

// The columns of a matrix's row that a piece has. row: in the piece's rectangle.
static struct interval columns_of(const struct gpt_piece *piece, size_t row)
{
    size_t before = (row - piece->first_row) * piece->column_count; // elements of the rows above
    size_t last = piece->first + piece->count;
    size_t begin = piece->first > before ? piece->first - before : 0;
    size_t end = last > before ? last - before : 0;
    if (end > piece->column_count) {
        end = piece->column_count;
    }
    if (begin > end) {
        begin = end;
    }
    return (struct interval){piece->first_column + begin, piece->first_column + end};
}

// Where in a piece's data an element of the matrix is, in elements.
static size_t place_of(const struct gpt_piece *piece, size_t row, size_t column)
{
    return (row - piece->first_row) * piece->column_count + (column - piece->first_column) -
           piece->first;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t gpt_piece_copy(const struct gpt_piece *from, const struct gpt_piece *to)
{
    size_t bytes = gpt_data_type_bytes(to->type), common = 0;
    size_t end = smaller(from->first_row + from->row_count, to->first_row + to->row_count);
    for (size_t row = larger(from->first_row, to->first_row); row < end; row++) {
        struct interval a = columns_of(from, row), b = columns_of(to, row);
        size_t first = larger(a.begin, b.begin), last = smaller(a.end, b.end);
        if (first >= last) {
            continue;
        }
        common += last - first;
        if (from->data != NULL && to->data != NULL) {
            memcpy((char *)to->data + place_of(to, row, first) * bytes,
                   (const char *)from->data + place_of(from, row, first) * bytes,
                   (last - first) * bytes);
        }
    }
    return common;
}
