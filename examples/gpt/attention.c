// See attention.h. Scores of a block of queries are computed against all keys up to the last query
// of the block, so that about half of the square is never touched.
// SPDX-License-Identifier: Apache-2.0
#include "attention.h"

#include "try.h"

#include <tutti_parallel/matmul.h>

#include <stdbool.h>

// One block of queries of one head, and where its parts lie.
struct block {
    size_t first, rows;                // queries
    size_t columns;                    // keys: first + rows
    size_t length, size;               // of the sequence, of a head
    size_t row;                        // elements of a row of qkv
    size_t out_row;                    // of out
    const stored *query, *key, *value; // of the head: query of the block's first row
    stored *probabilities;             // [rows x length] of them
    size_t query_at, key_at, value_at; // of the same in qkv
    size_t out_at;                     // in out, of the block's first row
    bool last; // of the sequence, and the first of its key head to be computed backward
};

// Number `index` of the blocks of a head; head: of all sequences.
static struct block block_of(const struct gpt_attention *a, size_t head, size_t index)
{
    size_t sequence = head / a->heads, query_head = head % a->heads;
    size_t key_head = query_head / (a->heads / a->kv_heads);
    struct block b = {.first = index * GPT_ATTENTION_BLOCK, .length = a->length, .size = a->size};
    b.rows = a->length - b.first < GPT_ATTENTION_BLOCK ? a->length - b.first : GPT_ATTENTION_BLOCK;
    b.columns = b.first + b.rows;
    b.row = (a->heads + 2 * a->kv_heads) * a->size;
    b.out_row = a->heads * a->size;
    size_t token = sequence * a->length;
    b.query_at = (token + b.first) * b.row + query_head * a->size;
    b.key_at = token * b.row + (a->heads + key_head) * a->size;
    b.value_at = b.key_at + a->kv_heads * a->size;
    b.query = a->qkv + b.query_at;
    b.key = a->qkv + b.key_at;
    b.value = a->qkv + b.value_at;
    b.out_at = (token + b.first) * b.out_row + query_head * a->size;
    b.probabilities = a->probabilities + (head * a->length + b.first) * a->length;
    b.last = b.columns == a->length && query_head % (a->heads / a->kv_heads) == 0;
    return b;
}

// Softmax of scores[0 .. valid), rounded into p; p[valid .. columns) becomes 0.
static void softmax_row(real *restrict scores, size_t valid, size_t columns, stored *restrict p)
{
    real largest = scores[0];
#pragma omp simd reduction(max : largest)
    for (size_t i = 1; i < valid; i++) {
        largest = scores[i] > largest ? scores[i] : largest;
    }
    real sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < valid; i++) {
        scores[i] = real_exp(scores[i] - largest);
        sum += scores[i];
    }
    real factor = 1 / sum;
    for (size_t i = 0; i < valid; i++) {
        p[i] = keep(scores[i] * factor);
    }
    for (size_t i = valid; i < columns; i++) {
        p[i] = 0;
    }
}

static struct tuttiProduct product(size_t rows, size_t columns, size_t inner)
{
    struct tuttiProduct p = TUTTI_PRODUCT_INITIALIZER;
    p.rows = rows;
    p.columns = columns;
    p.inner = inner;
    p.typeA = p.typeB = p.typeC = (ncclDataType_t)GPT_STORED_NCCL;
    return p;
}

// The factor of scores: 1 / sqrt(size).
static double score_factor(const struct block *b)
{
    return 1 / sqrt((double)b->size);
}

static ncclResult_t forward_block(const struct block *b, real *scores, stored *out)
{
    struct tuttiProduct p = product(b->rows, b->columns, b->size);
    p.transposeB = 1;
    p.strideA = p.strideB = b->row;
    p.typeC = (ncclDataType_t)GPT_REAL_NCCL;
    p.alpha = score_factor(b);
    TRY(tuttiMatmul(&p, b->query, b->key, scores));
    for (size_t row = 0; row < b->rows; row++) {
        softmax_row(scores + row * b->columns, b->first + row + 1, b->columns,
                    b->probabilities + row * b->length);
    }
    p = product(b->rows, b->size, b->columns);
    p.strideA = b->length;
    p.strideB = b->row;
    p.strideC = b->out_row;
    return tuttiMatmul(&p, b->probabilities, b->value, out + b->out_at);
}

ncclResult_t gpt_attention_forward(const struct gpt_attention *attention, stored *out)
{
    size_t blocks = (attention->length + GPT_ATTENTION_BLOCK - 1) / GPT_ATTENTION_BLOCK;
    for (size_t i = 0; i < attention->sequences * attention->heads * blocks; i++) {
        struct block b = block_of(attention, i / blocks, i % blocks);
        TRY(forward_block(&b, attention->scratch, out));
    }
    return ncclSuccess;
}

// ds: the derivatives by the probabilities, which become those by the scores: p * (ds - sum(p ds)).
static void softmax_row_backward(const stored *restrict p, real *restrict ds, size_t columns)
{
    real sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < columns; i++) {
        sum += load(p[i]) * ds[i];
    }
    for (size_t i = 0; i < columns; i++) {
        ds[i] = load(p[i]) * (ds[i] - sum);
    }
}

// Derivatives by value and key are added to what the blocks before have left, but for the first.
static ncclResult_t backward_block(const struct block *b, real *ds, const real *dout, real *dqkv)
{
    const ncclDataType_t real_type = (ncclDataType_t)GPT_REAL_NCCL;
    struct tuttiProduct p = product(b->rows, b->columns, b->size); // ds = dout value^T
    p.transposeB = 1;
    p.strideA = b->out_row;
    p.strideB = b->row;
    p.typeA = p.typeC = real_type;
    TRY(tuttiMatmul(&p, dout + b->out_at, b->value, ds));
    for (size_t row = 0; row < b->rows; row++) {
        softmax_row_backward(b->probabilities + row * b->length, ds + row * b->columns, b->columns);
    }
    p = product(b->columns, b->size, b->rows); // dvalue += probabilities^T dout
    p.transposeA = 1;
    p.strideA = b->length;
    p.strideB = b->out_row;
    p.strideC = b->row;
    p.typeB = p.typeC = real_type;
    p.beta = b->last ? 0 : 1;
    TRY(tuttiMatmul(&p, b->probabilities, dout + b->out_at, dqkv + b->value_at));
    p.strideA = 0; // dkey += ds^T query
    p.strideB = b->row;
    p.typeA = real_type;
    p.typeB = (ncclDataType_t)GPT_STORED_NCCL;
    p.alpha = score_factor(b);
    TRY(tuttiMatmul(&p, ds, b->query, dqkv + b->key_at));
    p = product(b->rows, b->size, b->columns); // dquery = ds key
    p.strideB = p.strideC = b->row;
    p.typeA = p.typeC = real_type;
    p.alpha = score_factor(b);
    return tuttiMatmul(&p, ds, b->key, dqkv + b->query_at);
}

ncclResult_t gpt_attention_backward(const struct gpt_attention *attention, const real *dout,
                                    real *dqkv)
{
    size_t blocks = (attention->length + GPT_ATTENTION_BLOCK - 1) / GPT_ATTENTION_BLOCK;
    for (size_t i = 0; i < attention->sequences * attention->heads * blocks; i++) {
        struct block b = block_of(attention, i / blocks, blocks - 1 - i % blocks);
        TRY(backward_block(&b, attention->scratch, dout, dqkv));
    }
    return ncclSuccess;
}
