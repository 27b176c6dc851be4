// The global norm of gradients, and clipping by it.
// SPDX-License-Identifier: Apache-2.0
#include "flat_for_tests.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

enum { MANY = 200001, MOST_PARTS = 64 };

struct values {
    ncclDataType_t type;
    size_t bytes;
    void *host, *device; // [MANY]
};

static double value_of(const struct values *v, size_t i)
{
    return v->type == ncclFloat32 ? (double)((const float *)v->host)[i]
                                  : ((const double *)v->host)[i];
}

static void set_value(struct values *v, size_t i, double value)
{
    if (v->type == ncclFloat32) {
        ((float *)v->host)[i] = (float)value;
    } else {
        ((double *)v->host)[i] = value;
    }
}

static void upload(const struct values *v)
{
    EXPECT_CUDA(cudaMemcpy(v->device, v->host, MANY * v->bytes, cudaMemcpyHostToDevice));
}

static void begin(struct values *v, ncclDataType_t type, double scale)
{
    v->type = type;
    v->bytes = type == ncclFloat32 ? sizeof(float) : sizeof(double);
    v->host = malloc(MANY * v->bytes);
    EXPECT_CUDA(cudaMalloc(&v->device, MANY * v->bytes));
    for (size_t i = 0; i < MANY; i++) {
        set_value(v, i, flat_ragged(3, i) * scale);
    }
    upload(v);
}

static void end(struct values *v)
{
    EXPECT_CUDA(cudaFree(v->device));
    free(v->host);
}

// One by one, in more precision.
static double squares_by_hand(const struct values *v, const struct tuttiPart *parts, int count,
                              const int *replicas)
{
    long double sum = 0;
    for (int p = 0; p < count; p++) {
        long double part = 0;
        for (size_t i = parts[p].offset; i < parts[p].offset + parts[p].count; i++) {
            part += (long double)value_of(v, i) * value_of(v, i);
        }
        sum += part / (replicas == NULL ? 1 : replicas[p]);
    }
    return (double)sum;
}

// Parts that touch, with gaps, of nothing, of many pieces, in any order.
static const struct tuttiPart parts[] = {{0, 1, 0},          {1, 15, 1},      {16, 0, 2},
                                         {16, 150001, 3},    {150017, 3, 4},  {150100, 17, 5},
                                         {160000, 40001, 6}, {155000, 33, 7}, {200001, 0, 8}};
enum { PARTS = sizeof parts / sizeof parts[0] };
static const int replicas[PARTS] = {1, 2, 3, 4, 1, 3, 2, 5, 1};

static void check_squares(const struct values *v, const struct tuttiPart *some, int count,
                          const int *held, cudaStream_t stream)
{
    double first = 10, second = 10, right = squares_by_hand(v, some, count, held);
    EXPECT_OK(tuttiSumSquares(v->device, v->type, some, count, held, stream, &first));
    EXPECT_OK(tuttiSumSquares(v->device, v->type, some, count, held, stream, &second));
    EXPECT_NEAR(first - 10, right, 1e-12 * right + 1e-14);
    EXPECT(memcmp(&first, &second, sizeof first) == 0);
}

static void squares_of(cudaStream_t stream, ncclDataType_t type)
{
    struct values v;
    begin(&v, type, 1);
    check_squares(&v, parts, PARTS, NULL, stream);
    check_squares(&v, parts, PARTS, replicas, stream);
    check_squares(&v, parts, 0, NULL, stream);
    check_squares(&v, NULL, 0, NULL, stream);
    for (int i = 0; i < PARTS; i++) {
        check_squares(&v, &parts[i], 1, &replicas[i], stream);
    }
    end(&v);
    begin(&v, type, 1e-30); // squares far below what float has
    check_squares(&v, parts, PARTS, NULL, stream);
    end(&v);
    begin(&v, type, 1e30); // and above
    check_squares(&v, parts, PARTS, NULL, stream);
    end(&v);
}

static void squares(void)
{
    cudaStream_t stream = NULL;
    EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    squares_of(stream, ncclFloat32);
    squares_of(stream, ncclFloat64);
    EXPECT_CUDA(cudaStreamDestroy(stream));
}

// Each element once where it would be missed most easily.
static void not_finite(void)
{
    static const size_t places[] = {0, 15, 65535 + 16, 65536 + 16, 150019, 200000};
    struct values v;
    for (int type = 0; type < 2; type++) {
        begin(&v, type == 0 ? ncclFloat32 : ncclFloat64, 1);
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
            double before = value_of(&v, places[i]), sum = 0;
            set_value(&v, places[i], NAN);
            upload(&v);
            EXPECT_OK(tuttiSumSquares(v.device, v.type, parts, PARTS, replicas, NULL, &sum));
            EXPECT(isnan(sum));
            sum = 0;
            set_value(&v, places[i], -INFINITY);
            upload(&v);
            EXPECT_OK(tuttiSumSquares(v.device, v.type, parts, PARTS, replicas, NULL, &sum));
            EXPECT(isinf(sum));
            set_value(&v, places[i], before);
        }
        end(&v);
    }
}

static void check_scaled(struct values *v, double factor, cudaStream_t stream)
{
    int wrong = 0;
    unsigned char *in = calloc(1, MANY);
    struct values scaled = *v;
    for (int p = 0; p < PARTS; p++) {
        memset(in + parts[p].offset, 1, parts[p].count);
    }
    scaled.host = malloc(MANY * v->bytes);
    upload(v);
    EXPECT_OK(tuttiScale(v->device, v->type, parts, PARTS, factor, stream));
    EXPECT_CUDA(cudaMemcpy(scaled.host, v->device, MANY * v->bytes, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < MANY; i++) {
        double right = value_of(v, i) * (in[i] ? factor : 1);
        wrong += value_of(&scaled, i) != (v->type == ncclFloat32 ? (double)(float)right : right);
    }
    EXPECT_EQ(wrong, 0);
    free(scaled.host);
    free(in);
}

// The sum is as it was where not all parts could be read.
static void not_there(void)
{
    const struct tuttiPart far[] = {{0, 3, 0}, {(size_t)1 << 50, 3, 1}};
    struct values v;
    double sum = 7;
    begin(&v, ncclFloat32, 1);
    EXPECT_EQ(tuttiSumSquares(v.device, v.type, far, 2, NULL, NULL, &sum), ncclUnhandledCudaError);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "tuttiSumSquares: buffer is ");
    EXPECT_SAME(sum, 7);
    (void)cudaGetLastError();
    end(&v);
}

static void scale(void)
{
    cudaStream_t stream = NULL;
    struct values v;
    EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int type = 0; type < 2; type++) {
        begin(&v, type == 0 ? ncclFloat32 : ncclFloat64, 1);
        check_scaled(&v, 1.0 / 3, stream);
        check_scaled(&v, 1, stream);
        check_scaled(&v, 0, stream);
        end(&v);
    }
    EXPECT_CUDA(cudaStreamDestroy(stream));
}

// What a stream still has to write counts.
static void behind_of(int rank, int size)
{
    struct flat_test t;
    double sum = 0, right = 0;
    const struct tuttiPart all = {0, FLAT_COUNT, 0};
    if (!flat_begin(&t, rank, size, ncclFloat32)) {
        return;
    }
    struct tuttiBuckets *buckets = NULL;
    EXPECT_OK(tuttiBucketsCreate(&t.flat, t.m.comm, NULL, &buckets));
    flat_fill(&t, 1);
    for (int index = 0; index < FLAT_GRADIENTS; index++) {
        EXPECT_OK(tuttiBucketsReady(buckets, index, t.m.stream));
    }
    EXPECT_OK(tuttiBucketsWait(buckets, t.m.stream));
    EXPECT_OK(tuttiSumSquares(t.flat.buffer, t.flat.type, &all, 1, NULL, t.m.stream, &sum));
    for (size_t i = 0; i < 5990; i++) {
        right += flat_sum(size, i, 1) * flat_sum(size, i, 1);
    }
    for (size_t i = 5990; i < FLAT_COUNT; i++) {
        right += flat_whole(rank, i, 1) * flat_whole(rank, i, 1);
    }
    EXPECT_SAME(sum, right); // whole numbers below 2^53
    EXPECT_OK(tuttiBucketsDestroy(buckets));
    flat_end(&t);
}

static void behind(void)
{
    run_ranks(2, behind_of, 60);
}

// ---- Over ranks ---------------------------------------------------------------------------------

// The norm of gradients that are split over the ranks, by ZeRO, and replicated on all, is that of
// the whole on one rank.
static void norms_of(int rank, int size)
{
    struct flat_test t;
    struct tuttiPart owned[MOST_PARTS];
    struct tuttiBuckets *buckets = NULL;
    struct tuttiBucketsOptions options = TUTTI_BUCKETS_OPTIONS_INITIALIZER;
    long double right = 0;
    double by_all = 0, by_owned = 0, norm = -1, all_norms[8];
    int held[MOST_PARTS], count = 0;
    options.bucketBytes = 4000;
    options.zero = 1;
    if (!flat_begin(&t, rank, size, ncclFloat32)) {
        return;
    }
    for (size_t i = 0; i < FLAT_COUNT; i++) {
        flat_set(&t, i, flat_ragged(0, i)); // the same on all ranks
    }
    flat_upload(&t);
    EXPECT_OK(tuttiBucketsCreate(&t.flat, t.m.comm, &options, &buckets));
    EXPECT_OK(tuttiBucketsOwned(buckets, -1, owned, MOST_PARTS, &count));
    EXPECT_OK(
        tuttiSumSquares(t.flat.buffer, t.flat.type, owned, count, NULL, t.m.stream, &by_owned));
    for (int g = 0; g < FLAT_GRADIENTS; g++) {
        owned[g] = (struct tuttiPart){flat_gradients[g].offset, flat_gradients[g].count, g};
        held[g] = size;
        for (size_t i = owned[g].offset; i < owned[g].offset + owned[g].count; i++) {
            right += (long double)flat_get(&t, i) * flat_get(&t, i);
        }
    }
    EXPECT_OK(tuttiSumSquares(t.flat.buffer, t.flat.type, owned, FLAT_GRADIENTS, held, t.m.stream,
                              &by_all));
    EXPECT_OK(tuttiGlobalNorm(by_owned, t.m.comm, t.m.stream, &norm));
    EXPECT_NEAR(norm, (double)sqrtl(right), 1e-12 * (double)right);
    ranks_gather(&norm, all_norms, sizeof norm);
    for (int r = 0; r < size; r++) {
        EXPECT(memcmp(&all_norms[r], &norm, sizeof norm) == 0);
    }
    EXPECT_OK(tuttiGlobalNorm(by_all, t.m.comm, t.m.stream, &norm));
    EXPECT_NEAR(norm, (double)sqrtl(right), 1e-12 * (double)right);
    EXPECT_OK(tuttiGlobalNorm(0, t.m.comm, t.m.stream, &norm));
    EXPECT_SAME(norm, 0);
    EXPECT_OK(tuttiBucketsDestroy(buckets));
    flat_end(&t);
}

static void norms(void)
{
    for (int size = 1; size <= 5; size++) {
        run_thread_ranks(size, norms_of, 60);
    }
    run_ranks(3, norms_of, 60);
}

// One rank's sum is no number: all ranks say so with one text, and can go on.
static void refuse(const struct member *m, double mine, const char *text)
{
    char message[256] = "", all[8 * sizeof message];
    double norm = -1;
    EXPECT_EQ(tuttiGlobalNorm(mine, m->comm, m->stream, &norm), ncclInvalidUsage);
    EXPECT(norm != -1); // it was written
    (void)snprintf(message, sizeof message, "%s", ncclGetLastError(NULL));
    EXPECT_CONTAINS(message, text);
    ranks_gather(message, all, sizeof message);
    for (int r = 0; r < m->size; r++) {
        EXPECT_STR(all + (size_t)r * sizeof message, message);
    }
}

static void no_numbers_of(int rank, int size)
{
    struct member m;
    double norm = -1;
    if (!member_join(&m, rank, size)) {
        return;
    }
    refuse(&m, rank == 1 ? (double)NAN : 1, "the squares of rank 1 sum to nan, must be finite");
    refuse(&m, rank == 2 ? (double)INFINITY : 1, "the squares of rank 2 sum to inf, must be");
    refuse(&m, rank > 0 ? (double)NAN : 1, "the squares of rank 1 sum to nan, must be");
    refuse(&m, DBL_MAX, "the squares of all 3 ranks sum to inf, must be finite");
    refuse(&m, rank == 0 ? -1 : 1,
           "the squares of rank 0 sum to -1, must be finite and at least 0");
    EXPECT_EQ(tuttiGlobalNorm(3, m.comm, m.stream, rank == 1 ? NULL : &norm),
              rank == 1 ? ncclInvalidArgument : ncclSuccess);
    EXPECT_OK(tuttiGlobalNorm(3, m.comm, m.stream, &norm));
    EXPECT_SAME(norm, 3);
    EXPECT_EQ(tuttiGlobalNorm(3, NULL, m.stream, &norm), ncclInvalidArgument);
    member_leave(&m);
}

static void no_numbers(void)
{
    run_thread_ranks(3, no_numbers_of, 60);
    run_ranks(3, no_numbers_of, 60);
}

static void factors(void)
{
    double factor = 0;
    EXPECT_OK(tuttiClipFactor(4, 1, &factor));
    EXPECT_SAME(factor * 100, 25);
    EXPECT_OK(tuttiClipFactor(1, 1, &factor));
    EXPECT_SAME(factor, 1);
    EXPECT_OK(tuttiClipFactor(0, 1e-9, &factor));
    EXPECT_SAME(factor, 1);
    EXPECT_OK(tuttiClipFactor(1e300, INFINITY, &factor));
    EXPECT_SAME(factor, 1);
    EXPECT_EQ(tuttiClipFactor(NAN, 1, &factor), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "norm is nan, must be finite");
    EXPECT_EQ(tuttiClipFactor(-1, 1, &factor), ncclInvalidArgument);
    EXPECT_EQ(tuttiClipFactor(INFINITY, 1, &factor), ncclInvalidArgument);
    EXPECT_EQ(tuttiClipFactor(1, 0, &factor), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "most is 0, must be more than 0");
    EXPECT_EQ(tuttiClipFactor(1, NAN, &factor), ncclInvalidArgument);
    EXPECT_EQ(tuttiClipFactor(1, 1, NULL), ncclInvalidArgument);
}

static void arguments(void)
{
    static const struct tuttiPart beyond = {SIZE_MAX - 3, 10, 0}, some = {0, 3, 0};
    static const struct tuttiPart endless = {0, SIZE_MAX, 0}, far[] = {{0, 3, 0}, {9, SIZE_MAX, 1}};
    static const int none = 0;
    float data[4] = {0};
    double sum = 0;
    EXPECT_EQ(tuttiSumSquares(data, ncclBfloat16, &some, 1, NULL, NULL, &sum), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "type is 9, must be ncclFloat32 (7)");
    EXPECT_EQ(tuttiSumSquares(data, ncclFloat32, NULL, 1, NULL, NULL, &sum), ncclInvalidArgument);
    EXPECT_EQ(tuttiSumSquares(data, ncclFloat32, &some, -1, NULL, NULL, &sum), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "partCount is -1");
    EXPECT_EQ(tuttiSumSquares(data, ncclFloat32, &beyond, 1, NULL, NULL, &sum),
              ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "parts[0] is 10 elements at");
    EXPECT_EQ(tuttiSumSquares(data, ncclFloat32, &endless, 1, NULL, NULL, &sum),
              ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "parts[0] is 18446744073709551615 elements at 0");
    EXPECT_EQ(tuttiScale(data, ncclFloat64, far, 2, 0.5, NULL), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "parts[1] is 18446744073709551615 elements at 9");
    EXPECT_EQ(tuttiSumSquares(NULL, ncclFloat32, &some, 1, NULL, NULL, &sum), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "buffer is NULL, and parts[0] has 3");
    EXPECT_EQ(tuttiSumSquares(data, ncclFloat32, &some, 1, &none, NULL, &sum), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "replicas[0] is 0, must be at least 1");
    EXPECT_EQ(tuttiSumSquares(data, ncclFloat32, &some, 1, NULL, NULL, NULL), ncclInvalidArgument);
    EXPECT_EQ(tuttiScale(data, ncclInt32, &some, 1, 0.5, NULL), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "tuttiScale: type is");
    EXPECT_EQ(tuttiScale(data, ncclFloat32, &some, 1, NAN, NULL), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "factor is nan, must be finite");
    EXPECT_EQ(tuttiScale(NULL, ncclFloat32, &some, 1, 0.5, NULL), ncclInvalidArgument);
}

int main(void)
{
    RUN(squares);
    RUN(not_finite);
    RUN(not_there);
    RUN(scale);
    RUN(behind);
    RUN(norms);
    RUN(no_numbers);
    RUN(factors);
    RUN(arguments);
    return expect_result();
}
