// Pieces of matrices: what a rank has of them, in checkpoints as in memory. The copy from one into
// another is how a checkpoint of one mesh is read by another.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_PIECE_H
#define GPT_PIECE_H

#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>

enum gpt_kind {
    GPT_WEIGHT,  // in the type that the model computes in
    GPT_MASTER,  // the weight in float, where it is bf16 in the model
    GPT_MOMENT1, // AdamW's mean of gradients
    GPT_MOMENT2, // AdamW's mean of squared gradients
    GPT_KINDS
};

// Of the matrix `name`, [rows x columns], the rectangle of row_count rows from first_row on and
// column_count columns from first_column on; of that, row by row, the `count` elements from number
// `first` on.
struct gpt_piece {
    const char *name; // no spaces
    enum gpt_kind kind;
    ncclDataType_t type;
    size_t rows, columns;
    size_t first_row, row_count, first_column, column_count;
    size_t first, count;
    void *data; // [count] elements; host memory, or a virtual GPU's
};

// "weight", "master", "moment1", "moment2".
const char *gpt_kind_name(enum gpt_kind kind);

// "float32", "float64", "bfloat16"; NULL for other types.
const char *gpt_data_type_name(ncclDataType_t type);

// Bytes of an element; 0 for types that have no name here.
size_t gpt_data_type_bytes(ncclDataType_t type);

// Whether the rectangle lies in the matrix, the elements in the rectangle, and the bytes in size_t.
bool gpt_piece_is_valid(const struct gpt_piece *piece);

// Whether the two are of the same matrix and kind.
bool gpt_piece_same_matrix(const struct gpt_piece *a, const struct gpt_piece *b);

// The elements that two pieces of one matrix have in common, copied from `from` to `to` unless one
// of their data is NULL. Returns how many there are.
size_t gpt_piece_copy(const struct gpt_piece *from, const struct gpt_piece *to);

#endif
