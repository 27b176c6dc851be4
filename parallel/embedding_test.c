// The vocabulary-parallel embedding and cross-entropy on 1 to 4 ranks against one rank's results in
// double and finite differences. SPDX-License-Identifier: Apache-2.0
#include "layers_for_tests.h"
#include "member.h"
#include "tutti_parallel/tensor.h"

static const struct tuttiTypes type_sets[] = {{ncclFloat64, ncclFloat64, ncclFloat64},
                                              {ncclFloat32, ncclFloat32, ncclFloat32},
                                              {ncclBfloat16, ncclFloat32, ncclFloat32},
                                              {ncclBfloat16, ncclBfloat16, ncclBfloat16}};

// ---- Embedding ----------------------------------------------------------------------------------

struct lookup {
    struct member *m;
    struct tuttiEmbedding e;
    size_t tokens, first, own;
    int32_t words[64];
    struct array table, dy, y, dtable; // the own part of the table and its gradient
};

// What the table has, on any rank.
static double in_table(const struct lookup *l, size_t word, size_t i)
{
    struct array one = {l->e.types.weights, 1, &(uint64_t){0}};
    array_set(&one, 0, ragged(1, word * l->e.width + i));
    return array_get(&one, 0);
}

static struct lookup lookup_make(struct member *m, const struct tuttiTypes *types, size_t tokens,
                                 size_t vocabulary, size_t width)
{
    struct lookup l = {
        m, {vocabulary, width, *types, m->comm, m->stream}, tokens, 0, 0, {0}, {0}, {0}, {0}, {0}};
    part_by_counting(vocabulary, m->size, m->rank, &l.first, &l.own);
    for (size_t t = 0; t < tokens; t++) { // some words often, some never; the first and the last
        l.words[t] = (int32_t)(t == 0 ? vocabulary - 1 : t * t * 3 % vocabulary);
    }
    l.table = array_make(types->weights, l.own * width);
    for (size_t i = 0; i < l.table.count; i++) {
        array_set(&l.table, i, ragged(1, l.first * width + i));
    }
    l.dy = array_ragged(types->gradients, tokens * width, 2);
    l.y = array_make(types->activations, tokens * width);
    l.dtable = array_make(types->weights == ncclFloat64 ? ncclFloat64 : ncclFloat32, l.own * width);
    for (size_t i = 0; i < l.dtable.count; i++) {
        array_set(&l.dtable, i, 0.25);
    }
    return l;
}

static void lookup_free(struct lookup *l)
{
    array_free(&l->table);
    array_free(&l->dy);
    array_free(&l->y);
    array_free(&l->dtable);
}

// is_partial: only the own words' rows, zeros elsewhere.
static void check_rows(struct lookup *l, bool is_partial)
{
    EXPECT_CUDA(cudaStreamSynchronize(l->m->stream));
    struct array one = {l->e.types.activations, 1, &(uint64_t){0}};
    for (size_t i = 0; i < l->y.count; i++) {
        size_t word = (size_t)l->words[i / l->e.width];
        bool is_there = !is_partial || (word >= l->first && word < l->first + l->own);
        array_set(&one, 0, is_there ? in_table(l, word, i % l->e.width) : 0);
        if (!EXPECT(array_get(&l->y, i) == array_get(&one, 0))) { // exactly
            return;
        }
    }
}

// Sums in the order of tokens, in the gradient's type: every bit.
static void check_table_gradient(struct lookup *l)
{
    const size_t width = l->e.width;
    for (size_t i = 0; i < l->dtable.count; i++) {
        float sum = 0.25f;
        double wide = 0.25;
        for (size_t t = 0; t < l->tokens; t++) {
            if ((size_t)l->words[t] == l->first + i / width) {
                sum += (float)array_get(&l->dy, t * width + i % width);
                wide += array_get(&l->dy, t * width + i % width);
            }
        }
        double right = l->dtable.type == ncclFloat64 ? wide : (double)sum;
        if (!EXPECT(array_get(&l->dtable, i) == right)) {
            return;
        }
    }
}

static void embeddings(int rank, int size)
{
    static const size_t sizes[][3] = {{9, 7, 5}, {1, 3, 1}, {0, 5, 4}, {33, 11, 3}, {4, 1, 2}};
    struct member m;
    if (!member_join(&m, rank, size)) {
        return;
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (size_t k = 0; k < sizeof type_sets / sizeof type_sets[0]; k++) {
            struct lookup l = lookup_make(&m, &type_sets[k], sizes[i][0], sizes[i][1], sizes[i][2]);
            EXPECT_OK(tuttiEmbeddingForward(&l.e, 0, l.tokens, l.words, l.table.data, l.y.data));
            check_rows(&l, false);
            EXPECT_OK(tuttiEmbeddingForward(&l.e, TUTTI_LEAVE_PARTIAL, l.tokens, l.words,
                                            l.table.data, l.y.data));
            check_rows(&l, true);
            EXPECT_OK(tuttiEmbeddingBackward(&l.e, l.tokens, l.words, l.dy.data, l.dtable.data));
            check_table_gradient(&l);
            lookup_free(&l);
        }
    }
    member_leave(&m);
}

// ---- Cross-entropy ------------------------------------------------------------------------------

struct loss {
    struct member *m;
    struct tuttiCrossEntropy c;
    size_t tokens, first, own;
    struct array whole, logits, sums; // [tokens x vocabulary], [tokens x own], [3 x tokens]
    int32_t targets[64];
    double losses[64];
};

static void take_logits(struct loss *l)
{
    for (size_t i = 0; i < l->logits.count; i++) {
        array_set(&l->logits, i,
                  array_get(&l->whole, i / l->own * l->c.vocabulary + l->first + i % l->own));
    }
}

static struct loss loss_make(struct member *m, ncclDataType_t type, size_t tokens,
                             size_t vocabulary, double offset)
{
    struct loss l = {m,  {vocabulary, type, m->comm, m->stream}, tokens, 0, 0, {0}, {0}, {0}, {0},
                     {0}};
    part_by_counting(vocabulary, m->size, m->rank, &l.first, &l.own);
    l.whole = array_make(type, tokens * vocabulary);
    l.logits = array_make(type, tokens * l.own);
    l.sums = array_make(ncclFloat64, 3 * tokens);
    for (size_t i = 0; i < l.whole.count; i++) {
        array_set(&l.whole, i, 8 * ragged(5, i) + offset);
    }
    for (size_t t = 0; t < tokens; t++) {
        l.targets[t] = t % 5 == 3 ? -1 : (int32_t)((t * 7 + vocabulary - 1) % vocabulary);
    }
    take_logits(&l);
    return l;
}

static void loss_free(struct loss *l)
{
    array_free(&l->whole);
    array_free(&l->logits);
    array_free(&l->sums);
}

static double right_probability(const struct loss *l, size_t token, size_t word)
{
    double sum = 0, at = array_get(&l->whole, token * l->c.vocabulary + word);
    for (size_t w = 0; w < l->c.vocabulary; w++) {
        sum += exp(array_get(&l->whole, token * l->c.vocabulary + w) - at);
    }
    return 1 / sum;
}

static void check_loss(struct loss *l)
{
    double tolerance = l->c.logits == ncclFloat64 ? 1e-13 : 2e-6;
    for (size_t t = 0; t < l->tokens; t++) {
        double right = l->targets[t] < 0 ? 0 : -log(right_probability(l, t, (size_t)l->targets[t]));
        EXPECT_NEAR(l->losses[t], right, tolerance * (1 + right));
    }
}

static void check_loss_gradient(struct loss *l, double scale)
{
    double tolerance = l->c.logits == ncclFloat64   ? 1e-14
                       : l->c.logits == ncclFloat32 ? 1e-6
                                                    : 0.01;
    for (size_t i = 0; i < l->logits.count; i++) {
        size_t t = i / l->own, word = l->first + i % l->own;
        double right = right_probability(l, t, word) - (l->targets[t] == (int32_t)word ? 1 : 0);
        right = l->targets[t] < 0 ? 0 : scale * right;
        if (!EXPECT_NEAR(array_get(&l->logits, i), right, tolerance * fabs(scale))) {
            return;
        }
    }
}

static double total_loss(struct loss *l)
{
    double total = 0;
    take_logits(l);
    EXPECT_OK(tuttiCrossEntropyForward(&l->c, l->tokens, l->logits.data, l->targets, l->losses,
                                       l->sums.data));
    for (size_t t = 0; t < l->tokens; t++) {
        total += l->losses[t];
    }
    return total;
}

// Central differences of the loss by every logit.
static void check_by_differences(struct member *m)
{
    const double step = 1e-5, scale = 0.5;
    struct loss l = loss_make(m, ncclFloat64, 4, 7, 0);
    (void)total_loss(&l);
    EXPECT_OK(
        tuttiCrossEntropyBackward(&l.c, l.tokens, l.logits.data, l.targets, l.sums.data, scale));
    struct array gradient = array_make(ncclFloat64, l.logits.count);
    memcpy(gradient.data, l.logits.data, l.logits.count * sizeof(double));
    for (size_t i = 0; i < l.whole.count; i++) {
        double before = array_get(&l.whole, i);
        array_set(&l.whole, i, before + step);
        double more = total_loss(&l);
        array_set(&l.whole, i, before - step);
        double less = total_loss(&l);
        array_set(&l.whole, i, before);
        size_t word = i % l.c.vocabulary;
        if (word >= l.first && word < l.first + l.own) {
            EXPECT_NEAR(array_get(&gradient, i / l.c.vocabulary * l.own + word - l.first),
                        scale * (more - less) / (2 * step), 1e-9);
        }
    }
    array_free(&gradient);
    loss_free(&l);
}

// A NaN on one rank is a NaN in the loss of all, of that token.
static void check_nan(struct member *m)
{
    struct loss l = loss_make(m, ncclFloat32, 2, 5, 0);
    array_set(&l.whole, 4, NAN); // token 0, the last word
    (void)total_loss(&l);
    EXPECT(isnan(l.losses[0]));
    EXPECT(!isnan(l.losses[1]));
    loss_free(&l);
}

static void losses(int rank, int size)
{
    static const size_t sizes[][2] = {{9, 7}, {1, 2}, {0, 5}, {33, 65}, {3, 1}};
    static const ncclDataType_t types[] = {ncclFloat64, ncclFloat32, ncclBfloat16};
    struct member m;
    if (!member_join(&m, rank, size)) {
        return;
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int k = 0; k < 3; k++) {
            double scale = i == 0 ? 1 : 1 / 64.0;
            struct loss l = loss_make(&m, types[k], sizes[i][0], sizes[i][1],
                                      i == 3 && types[k] != ncclBfloat16 ? 1000 : 0);
            (void)total_loss(&l);
            check_loss(&l);
            EXPECT_OK(tuttiCrossEntropyBackward(&l.c, l.tokens, l.logits.data, l.targets,
                                                l.sums.data, scale));
            check_loss_gradient(&l, scale);
            loss_free(&l);
        }
    }
    check_by_differences(&m);
    check_nan(&m);
    member_leave(&m);
}

// ---- What is refused ----------------------------------------------------------------------------

static void wrong_calls(int rank, int size)
{
    struct member m;
    if (!member_join(&m, rank, size)) {
        return;
    }
    float f[16] = {0};
    double d[16] = {0};
    int32_t w[4] = {0, 1, 2, 3};
    struct tuttiEmbedding good = {4, 2, type_sets[1], m.comm, m.stream}, bad = good;
    refused(tuttiEmbeddingForward(NULL, 0, 1, w, f, f), "tuttiEmbeddingForward: embedding is NULL");
    refused(tuttiEmbeddingForward(&good, TUTTI_SPLIT_INPUT, 1, w, f, f),
            "tuttiEmbeddingForward: rank 0: options is 4");
    refused(tuttiEmbeddingForward(&good, 0, 1, NULL, f, f),
            "tuttiEmbeddingForward: rank 0: words is NULL");
    refused(tuttiEmbeddingForward(&good, 0, 1, w, NULL, f), "table is NULL");
    refused(tuttiEmbeddingForward(&good, 0, 1, w, f, NULL), "y is NULL");
    refused(tuttiEmbeddingBackward(&good, 1, w, NULL, f), "dy is NULL");
    refused(tuttiEmbeddingBackward(&good, 1, w, f, NULL), "dtable is NULL");
    w[2] = 4;
    refused(tuttiEmbeddingForward(&good, 0, 3, w, f, f), "words[2] is 4, must be 0 to 3");
    w[2] = -1;
    refused(tuttiEmbeddingBackward(&good, 3, w, f, f), "words[2] is -1, must be 0 to 3");
    bad.vocabulary = 0;
    refused(tuttiEmbeddingForward(&bad, 0, 1, w, f, f), "vocabulary is 0");
    bad = good;
    bad.types.gradients = ncclInt8;
    refused(tuttiEmbeddingForward(&bad, 0, 1, w, f, f), "types.gradients is 0");

    struct tuttiCrossEntropy c = {4, ncclFloat32, m.comm, m.stream}, wrong = c;
    refused(tuttiCrossEntropyForward(NULL, 1, f, w, d, d), "entropy is NULL");
    refused(tuttiCrossEntropyForward(&c, 1, NULL, w, d, d), "logits is NULL");
    refused(tuttiCrossEntropyForward(&c, 1, f, NULL, d, d), "targets is NULL");
    refused(tuttiCrossEntropyForward(&c, 1, f, w, NULL, d), "losses is NULL");
    refused(tuttiCrossEntropyForward(&c, 1, f, w, d, NULL), "sums is NULL");
    refused(tuttiCrossEntropyBackward(&c, 1, f, w, NULL, 1), "sums is NULL");
    w[1] = 4;
    refused(tuttiCrossEntropyForward(&c, 2, f, w, d, d), "targets[1] is 4, must be -1 to 3");
    w[1] = -2;
    refused(tuttiCrossEntropyBackward(&c, 2, f, w, d, 1),
            "tuttiCrossEntropyBackward: rank 0: targets[1] is -2");
    wrong.logits = ncclFloat16;
    refused(tuttiCrossEntropyForward(&wrong, 1, f, w, d, d), "is 6");
    wrong = c;
    wrong.vocabulary = 0;
    refused(tuttiCrossEntropyForward(&wrong, 1, f, w, d, d), "vocabulary is 0");
    EXPECT_EQ(member_state(&m), ncclSuccess);
    member_leave(&m);
}

// Ranks that have other numbers of tokens: an error on each that says so, and no losses; the layers
// of a communicator that has failed refuse to go on.
static void other_tokens(int rank, int size)
{
    struct member m;
    if (!member_join(&m, rank, size)) {
        return;
    }
    struct loss l = loss_make(&m, ncclFloat32, rank == 1 ? 3 : 4, 7, 0);
    struct lookup e = lookup_make(&m, &type_sets[1], 4, 7, 2);
    l.losses[0] = 99;
    EXPECT_EQ(
        tuttiCrossEntropyForward(&l.c, l.tokens, l.logits.data, l.targets, l.losses, l.sums.data),
        ncclInvalidUsage);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "tuttiCrossEntropyForward: rank ");
    EXPECT_CONTAINS(ncclGetLastError(NULL), "the communicator has failed: ");
    EXPECT(l.losses[0] == 99);
    EXPECT_EQ(tuttiEmbeddingBackward(&e.e, e.tokens, e.words, e.dy.data, e.dtable.data),
              ncclInvalidUsage);
    ranks_barrier();
    EXPECT_OK(ncclCommAbort(m.comm));
    m.comm = NULL;
    loss_free(&l);
    lookup_free(&e);
    member_leave(&m);
}

static void tokens_that_differ(void)
{
    run_thread_ranks(3, other_tokens, 30);
    run_ranks(2, other_tokens, 30);
}

static void embeddings_on_1_to_4(void)
{
    run_ranks(1, embeddings, 60);
    run_ranks(2, embeddings, 60);
    run_thread_ranks(3, embeddings, 60);
    run_thread_ranks(4, embeddings, 60);
}

static void losses_on_1_to_4(void)
{
    run_ranks(1, losses, 60);
    run_ranks(2, losses, 60);
    run_thread_ranks(3, losses, 60);
    run_thread_ranks(4, losses, 60);
}

static void bad_arguments(void)
{
    run_ranks(1, wrong_calls, 30);
}

int main(void)
{
    RUN(embeddings_on_1_to_4);
    RUN(losses_on_1_to_4);
    RUN(bad_arguments);
    RUN(tokens_that_differ);
    return expect_result();
}
