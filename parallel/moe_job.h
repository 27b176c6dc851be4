// What a stage of a dispatch or combine works on, as the processor's code and the kernels see it.
// C and C++. SPDX-License-Identifier: Apache-2.0
#ifndef PARALLEL_MOE_JOB_H
#define PARALLEL_MOE_JOB_H

#include "nccl.h"

#include <stddef.h>
#include <stdint.h>

// One token in one host: [0] the token (of the forwarder, where it is the source), [1] the first of
// its slots in the forwarder's window, [2] how many ranks have it; then for each of them,
// ascending, its lane and the row there.
enum { MOE_ITEM_TOKEN, MOE_ITEM_SLOT, MOE_ITEM_RANKS, MOE_ITEM_HEAD };

// One of the experts of a token on a rank.
struct moe_choice {
    int32_t row;    // on this rank
    int32_t column; // of the token's choices
    double weight;
};

// One token on one rank; behind it its choices, by ascending expert.
struct moe_record {
    int32_t lane, slot; // where the sum of its results goes
    int32_t count;      // choices, at least 1
    int32_t item;       // the forwarder's number of it
    int32_t token;      // of the source
    int32_t spare;
};

struct moe_job {
    ncclDataType_t type;     // of the rows that move
    ncclDataType_t row_type; // of the experts' results, in the backward pass
    size_t hidden;
    size_t row_bytes;   // of rows that move
    char *const *peers; // [lanes] windows
    char *window;       // this rank's
    size_t slots;       // bytes from a window's start to its slots
    const int32_t *item;
    size_t item_words;
    size_t item_first, item_count; // of them, this stage's
    const char *record;
    size_t record_bytes, record_count, record_choices;
    const int32_t *padding; // [padding_count x 2]
    size_t padding_count;
    const int32_t *list; // which rows
    size_t list_count;   // of it
    size_t list_width;   // numbers for each row of the result
    const char *from;    // rows that are read
    char *to;            // rows that are written
    const char *results; // the experts', in the backward pass
    void *weight_grads;  // of records or pairs
    int weighted;        // whether sums are weighted
    int past_caches;     // more bytes than the caches keep
};

#endif
