// Signatures, texts and sizes of operations. SPDX-License-Identifier: Apache-2.0
#include "plan/op.h"

#include "expect.h"

#include <stdlib.h>
#include <string.h>

static const struct tt_op base = {
    .function = TT_REDUCE, .count = 1024, .type = ncclFloat32, .op = TT_REDUCE_SUM, .root = 2};

static void every_field_counts(void)
{
    uint64_t signature = tt_op_signature(&base);
    struct tt_op op = base;
    op.function = TT_ALL_REDUCE;
    EXPECT(tt_op_signature(&op) != signature);
    op = base;
    op.count = 1025;
    EXPECT(tt_op_signature(&op) != signature);
    op.count = 1024 + ((size_t)1 << 40);
    EXPECT(tt_op_signature(&op) != signature);
    op = base;
    op.type = ncclInt32;
    EXPECT(tt_op_signature(&op) != signature);
    op = base;
    op.op = TT_REDUCE_MAX;
    EXPECT(tt_op_signature(&op) != signature);
    op = base;
    op.root = 3;
    EXPECT(tt_op_signature(&op) != signature);
    op = base;
    op.is_uneven = true;
    EXPECT(tt_op_signature(&op) != signature);
}

static void nothing_else_counts(void)
{
    uint64_t signature = tt_op_signature(&base);
    size_t counts[4] = {1, 2, 3, 4};
    float number = 0;
    struct tt_op op = base;
    op.send = &number;
    op.recv = &op;
    op.scale.float64 = 0.5;
    op.scale_device = &number;
    op.uneven = (struct tt_uneven){counts, counts, counts, counts};
    EXPECT(tt_op_signature(&op) == signature);
    // What is no reduction has no operator; what a rank sends in GatherV is its own affair.
    struct tt_op gather = {.function = TT_GATHER, .is_uneven = true, .count = 5};
    signature = tt_op_signature(&gather);
    gather.op = TT_REDUCE_MAX;
    gather.count = 6;
    EXPECT(tt_op_signature(&gather) == signature);
}

static int compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a;
    uint64_t right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

// All kinds of operations with many counts: no two words are equal, nor are their upper 40 bits.
static void words_differ(void)
{
    enum { COUNTS = 40, MOST = TT_FUNCTIONS * 2 * TT_REDUCE_OPERATORS * 12 * COUNTS };
    uint64_t *words = malloc(MOST * sizeof *words);
    size_t n = 0;
    for (int function = 0; function < TT_FUNCTIONS; function++) {
        bool reduces = tt_op_reduces((enum tt_function)function);
        for (int op = 0; op < (reduces ? TT_REDUCE_OPERATORS : 1); op++) {
            for (int type = 0; type < 12; type++) {
                for (int i = 0; i < COUNTS; i++) {
                    struct tt_op one = {.function = (enum tt_function)function,
                                        .op = (enum tt_reduce_operator)op,
                                        .type = (ncclDataType_t)type,
                                        .count = i < 20 ? (size_t)i : (size_t)1 << i,
                                        .root = i % 3};
                    words[n++] = tt_op_signature(&one) >> 24;
                }
            }
        }
    }
    qsort(words, n, sizeof *words, compare);
    int equal = 0;
    for (size_t i = 1; i < n; i++) {
        equal += words[i] == words[i - 1];
    }
    EXPECT_EQ(equal, 0);
    free(words);
}

// Each bit of the count turns about half of the word's bits.
static void bits_spread(void)
{
    int turned = 0;
    for (int bit = 0; bit < 64; bit++) {
        struct tt_op op = base;
        op.count ^= (size_t)1 << bit;
        int bits = __builtin_popcountll(tt_op_signature(&op) ^ tt_op_signature(&base));
        EXPECT(bits >= 14 && bits <= 50);
        turned += bits;
    }
    EXPECT_NEAR(turned / 64.0, 32, 2);
}

static const char *text_of(struct tt_op op)
{
    static char text[120];
    tt_op_describe(&op, text, sizeof text);
    return text;
}

static void texts(void)
{
    struct tt_op op = base;
    EXPECT_STR(text_of(op), "Reduce(count 1024, float32, sum, root 2)");
    op.function = TT_ALL_REDUCE;
    op.op = TT_REDUCE_SCALED_SUM;
    EXPECT_STR(text_of(op), "AllReduce(count 1024, float32, scaled sum)");
    op.function = TT_BROADCAST;
    EXPECT_STR(text_of(op), "Broadcast(count 1024, float32, root 2)");
    op.function = TT_SEND;
    EXPECT_STR(text_of(op), "Send(count 1024, float32, to rank 2)");
    op.function = TT_RECV;
    EXPECT_STR(text_of(op), "Recv(count 1024, float32, from rank 2)");
    op.function = TT_ALL_TO_ALL;
    op.is_uneven = true;
    op.type = ncclFloat8e5m2;
    EXPECT_STR(text_of(op), "AlltoAllV(float8e5m2)");
    op.function = TT_WAIT_SIGNAL;
    op.count = 1;
    op.root = 3;
    EXPECT_STR(text_of(op), "WaitSignal(1 signal, from rank 3)");
    op.count = 7;
    op.root = -1;
    EXPECT_STR(text_of(op), "WaitSignal(7 signals, from several ranks)");
    op.count = 1024;
    op.function = (enum tt_function)99;
    op.type = (ncclDataType_t)77;
    op.is_uneven = false;
    EXPECT_STR(text_of(op), "(no function)(count 1024, no type)");
    char small[8];
    tt_op_describe(&base, small, sizeof small);
    EXPECT_STR(small, "Reduce(");
    for (int function = 0; function < TT_FUNCTIONS; function++) {
        EXPECT(strlen(tt_function_name((enum tt_function)function)) > 3);
    }
}

static void expect_bytes(struct tt_op op, int rank, size_t send, size_t recv)
{
    EXPECT_EQ(tt_op_send_bytes(&op, rank, 4), send);
    EXPECT_EQ(tt_op_recv_bytes(&op, rank, 4), recv);
}

static void even_sizes(void)
{
    struct tt_op op = {.count = 10, .type = ncclBfloat16, .root = 1};
    static const size_t other[][3] = {
        {TT_ALL_REDUCE, 20, 20}, {TT_REDUCE, 20, 0},      {TT_BROADCAST, 0, 20},
        {TT_ALL_GATHER, 20, 80}, {TT_ALL_TO_ALL, 80, 80}, {TT_REDUCE_SCATTER, 80, 20},
        {TT_GATHER, 20, 0},      {TT_SCATTER, 0, 20},     {TT_SEND, 20, 0},
        {TT_RECV, 0, 20},        {TT_PUT_SIGNAL, 20, 0},  {TT_SIGNAL, 0, 0},
        {TT_WAIT_SIGNAL, 0, 0}};
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++) {
        op.function = (enum tt_function)other[i][0];
        expect_bytes(op, 2, other[i][1], other[i][2]);
    }
    op.function = TT_REDUCE;
    expect_bytes(op, 1, 20, 20);
    op.function = TT_BROADCAST;
    expect_bytes(op, 1, 20, 20);
    op.function = TT_GATHER;
    expect_bytes(op, 1, 20, 80);
    op.function = TT_SCATTER;
    expect_bytes(op, 1, 80, 20);
    op.function = TT_ALL_GATHER;
    op.count = SIZE_MAX / 4;
    expect_bytes(op, 0, SIZE_MAX / 4 * 2, SIZE_MAX); // more than there can be
}

static void uneven_sizes(void)
{
    size_t send_count[4] = {3, 0, 5, 2};
    size_t send_first[4] = {0, 1000, 4, 9};
    size_t recv_count[4] = {1, 2, 0, 4};
    size_t recv_first[4] = {20, 0, 500, 4};
    struct tt_op op = {.is_uneven = true, .type = ncclInt32, .count = 7, .root = 1};
    op.uneven = (struct tt_uneven){send_count, send_first, recv_count, recv_first};
    op.function = TT_ALL_TO_ALL;
    expect_bytes(op, 2, 44, 84); // zeros anywhere do not count
    op.function = TT_ALL_GATHER;
    expect_bytes(op, 3, 16, 84);
    op.function = TT_REDUCE_SCATTER;
    expect_bytes(op, 2, 44, 20);
    op.function = TT_GATHER;
    expect_bytes(op, 1, 28, 84);
    expect_bytes(op, 2, 28, 0);
    op.function = TT_SCATTER;
    expect_bytes(op, 1, 44, 28);
    expect_bytes(op, 2, 0, 28);
}

int main(void)
{
    RUN(every_field_counts);
    RUN(nothing_else_counts);
    RUN(words_differ);
    RUN(bits_spread);
    RUN(texts);
    RUN(even_sizes);
    RUN(uneven_sizes);
    return expect_result();
}
