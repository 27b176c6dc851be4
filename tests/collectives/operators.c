// What the operators mean, by numbers from public reports: averages, factors, NaN, wrapping,
// accumulators, and the numbers of the operators themselves.
// SPDX-License-Identifier: Apache-2.0
#include "collectives.h"

#include <math.h>
#include <stdio.h>

// C20: a framework numbers them otherwise (Azure/MS-AMP PR#38).
_Static_assert(ncclSum == 0 && ncclProd == 1 && ncclMax == 2 && ncclMin == 3 && ncclAvg == 4,
               "NCCL's numbers");

enum { MOST_RANKS = 8 };

// One element, `mine` here, combined over all: what AllReduce, Reduce and ReduceScatter give, which
// must be one thing.
static double combine(struct member *m, struct area *area, ncclDataType_t type, ncclRedOp_t op,
                      double mine)
{
    size_t element = bytes_of_type(type);
    char host[3 * MOST_RANKS * 8];
    char *send = area->memory, *recv = send + (size_t)m->size * element;
    for (int i = 0; i < m->size; i++) {
        put_number(host + (size_t)i * element, type, mine);
    }
    EXPECT_CUDA(
        cudaMemcpyAsync(send, host, (size_t)m->size * element, cudaMemcpyDefault, m->stream));
    EXPECT_OK(ncclAllReduce(send, recv, 1, type, op, m->comm, m->stream));
    EXPECT_OK(ncclReduceScatter(send, recv + element, 1, type, op, m->comm, m->stream));
    EXPECT_OK(ncclReduce(send, recv + 2 * element, 1, type, op, 1, m->comm, m->stream));
    EXPECT_CUDA(cudaMemcpyAsync(host, recv, 3 * element, cudaMemcpyDefault, m->stream));
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
    double result = get_number(host, type);
    EXPECT(same_element(host, host + element, type));
    EXPECT(m->rank != 1 || same_element(host, host + 2 * element, type));
    return result;
}

// `values[rank]` combined must be `right`.
static void gives(struct member *m, struct area *area, ncclDataType_t type, ncclRedOp_t op,
                  const double *values, double right)
{
    double got = combine(m, area, type, op, values[m->rank]);
    if (!EXPECT(got == right || (isnan(got) && isnan(right)))) {
        fprintf(stderr, "%s, op %d: %g, must be %g\n", name_of_type(type), (int)op, got, right);
    }
}

// ---- C13: sums of inputs times a factor (pt#190745)
// ----------------------------------------------

static double scaled(struct member *m, struct area *area, ncclDataType_t type, const void *factor,
                     ncclScalarResidence_t where)
{
    ncclRedOp_t op = ncclSum;
    EXPECT_OK(ncclRedOpCreatePreMulSum(&op, (void *)(uintptr_t)factor, type, where, m->comm));
    EXPECT(op >= ncclNumOps);
    double result = combine(m, area, type, op, m->rank + 1);
    EXPECT_OK(ncclRedOpDestroy(op, m->comm));
    EXPECT_EQ(ncclRedOpDestroy(op, m->comm), ncclInvalidArgument);
    return result;
}

static void factors(int rank, int size)
{
    static const ncclDataType_t types[] = {ncclBfloat16, ncclFloat16, ncclFloat32, ncclFloat64};
    static const double numbers[] = {0.5, 2, 0.25, 1.0 / 3};
    struct member m;
    struct area area;
    if (!join_with_area(&m, &area, rank, size, 4096)) {
        return;
    }
    for (int t = 0; t < 4; t++) {
        for (int i = 0; i < 4; i++) {
            char factor[8] = {0};
            put_number(factor, types[t], numbers[i]);
            char *on_device = area.memory + 2048;
            EXPECT_CUDA(cudaMemcpyAsync(on_device, factor, 8, cudaMemcpyDefault, m.stream));
            double host = scaled(&m, &area, types[t], factor, ncclScalarHostImmediate);
            double device = scaled(&m, &area, types[t], on_device, ncclScalarDevice);
            // 1 f + 2 f with the factor as the type holds it, rounded once more at most.
            EXPECT_NEAR(host, 3 * get_number(factor, types[t]), 3 * numbers[i] * 0x1p-8);
            EXPECT(i == 3 || host == 3 * numbers[i]);
            EXPECT(host == device);
        }
    }
    leave_with_area(&m, &area);
}

static void scaled_sums(void)
{
    run_thread_ranks(2, factors, 60);
    run_processes(2, factors, 60);
}

// Factors of each rank's own, and all sizes, in the order of the contract.
static void own_factors(int rank, int size)
{
    static const ncclDataType_t types[] = {ncclFloat16, ncclFloat32, ncclInt32, ncclFloat8e5m2};
    struct member m;
    struct area area;
    if (!join_with_area(&m, &area, rank, size, 1 << 18)) {
        return;
    }
    for (int t = 0; t < 4; t++) {
        size_t element = bytes_of_type(types[t]);
        char all[MOST_RANKS * 8];
        for (int r = 0; r < size; r++) {
            put_number(all + (size_t)r * element, types[t], r % 2 == 0 ? 1 + r : 2);
        }
        ncclRedOp_t op;
        EXPECT_OK(ncclRedOpCreatePreMulSum(&op, all + (size_t)rank * element, types[t],
                                           ncclScalarHostImmediate, m.comm));
        for (int f = 0; f < FUNCTIONS; f++) {
            struct form form = {.function = (enum function)f,
                                .type = types[t],
                                .op = op,
                                .count = 1001,
                                .factors = all};
            if (reduces(form.function)) {
                check_form(&m, &area, &form);
            }
        }
        // Of another type: refused on all ranks alike.
        EXPECT_EQ(ncclAllReduce(area.memory, area.memory, 1, ncclFloat64, op, m.comm, m.stream),
                  ncclInvalidArgument);
        EXPECT_OK(ncclRedOpDestroy(op, m.comm));
        EXPECT_EQ(ncclAllReduce(area.memory, area.memory, 1, types[t], op, m.comm, m.stream),
                  ncclInvalidArgument);
    }
    leave_with_area(&m, &area);
}

static void factors_of_ranks(void)
{
    static const int sizes[] = {1, 3, 8};
    for (int i = 0; i < 3; i++) {
        run_thread_ranks(sizes[i], own_factors, 60);
    }
}

// ---- C14, C16, C18, C26
// --------------------------------------------------------------------------

static void numbers_of_four(int rank, int size)
{
    static const double up[] = {1, 2, 3, 4}, down[] = {-1, -2, -3, -4};
    struct member m;
    struct area area;
    if (!join_with_area(&m, &area, rank, size, 4096)) {
        return;
    }
    // C14: averages of 8-bit floats (rocm PR#10374).
    gives(&m, &area, ncclFloat8e4m3, ncclAvg, up, 2.5);
    gives(&m, &area, ncclFloat8e5m2, ncclAvg, up, 2.5);
    // C16: averages of integers, towards zero (InfiniTensor/InfiniCCL PR#37).
    gives(&m, &area, ncclInt32, ncclAvg, up, 2);
    gives(&m, &area, ncclInt32, ncclAvg, down, -2);
    gives(&m, &area, ncclInt8, ncclAvg, down, -2);
    gives(&m, &area, ncclUint64, ncclAvg, up, 2);
    // C18: min and max give the number where one is NaN, wherever it stands (mlx#4072).
    static const ncclDataType_t types[] = {ncclFloat32, ncclBfloat16, ncclFloat16, ncclFloat64};
    for (int t = 0; t < 4; t++) {
        for (int bad = 0; bad < 4; bad++) {
            double with_nan[] = {1, 2, 3, 4};
            with_nan[bad] = NAN;
            gives(&m, &area, types[t], ncclMin, with_nan, bad == 0 ? 2 : 1);
            gives(&m, &area, types[t], ncclMax, with_nan, bad == 3 ? 3 : 4);
            gives(&m, &area, types[t], ncclSum, with_nan, NAN);
        }
    }
    // C20: every operator by its number; one out of range is refused.
    static const double by_number[] = {10, 24, 4, 1, 2.5};
    for (int op = 0; op < ncclNumOps; op++) {
        gives(&m, &area, ncclFloat32, (ncclRedOp_t)op, up, by_number[op]);
    }
    EXPECT_EQ(ncclAllReduce(area.memory, area.memory, 1, ncclFloat32, (ncclRedOp_t)ncclNumOps,
                            m.comm, m.stream),
              ncclInvalidArgument);
    leave_with_area(&m, &area);
}

static void four(void)
{
    run_thread_ranks(4, numbers_of_four, 60);
    run_processes(4, numbers_of_four, 60);
}

// ---- C18: NaN by every algorithm ----------------------------------------------------------------

// Element i of rank r: NaN on one of five ranks, of which the fifth is none.
static double nan_or_number(int rank, size_t i)
{
    return (int)(i % 5) == rank ? NAN : rank + 1 + (double)(i % 3);
}

// The least or the largest of those that are numbers.
static double best_number(int size, size_t i, bool least)
{
    double best = NAN;
    for (int r = 0; r < size; r++) {
        double number = nan_or_number(r, i);
        if (isnan(best) || (least ? number < best : number > best)) {
            best = number;
        }
    }
    return best;
}

static void check_nans(struct member *m, ncclDataType_t type, bool least, size_t count)
{
    size_t element = bytes_of_type(type), all = (size_t)m->size * count;
    char *recv = m->memory + (1 << 17), *host = malloc(all * element);
    ncclRedOp_t op = least ? ncclMin : ncclMax;
    int wrong = 0;
    for (size_t i = 0; i < all; i++) {
        put_number(host + i * element, type, nan_or_number(m->rank, i));
    }
    EXPECT_CUDA(cudaMemcpy(m->memory, host, all * element, cudaMemcpyDefault));
    for (int in_parts = 0; in_parts < 2; in_parts++) {
        EXPECT_OK(in_parts ? ncclReduceScatter(m->memory, recv, count, type, op, m->comm, m->stream)
                           : ncclAllReduce(m->memory, recv, all, type, op, m->comm, m->stream));
        EXPECT_CUDA(cudaStreamSynchronize(m->stream));
        size_t first = in_parts ? (size_t)m->rank * count : 0, results = in_parts ? count : all;
        EXPECT_CUDA(cudaMemcpy(host, recv, results * element, cudaMemcpyDefault));
        for (size_t i = 0; i < results; i++) {
            wrong += get_number(host + i * element, type) != best_number(m->size, first + i, least);
        }
    }
    EXPECT_EQ(wrong, 0);
    free(host);
}

static void nans(int rank, int size)
{
    static const ncclDataType_t types[] = {ncclFloat32, ncclBfloat16, ncclFloat16, ncclFloat64};
    struct member m;
    if (!member_join(&m, rank, size) || !member_open_window(&m, 1 << 18)) {
        return;
    }
    for (int t = 0; t < 4; t++) {
        for (int least = 0; least < 2; least++) {
            check_nans(&m, types[t], least == 1, 1);
            check_nans(&m, types[t], least == 1, 3001);
        }
    }
    ranks_barrier();
    member_leave(&m);
}

static void nans_by_every_algorithm(void)
{
    static const char *const algorithms[] = {"NVLS", "direct", "Ring", "Ring;AllReduce:Tree",
                                             "staged"};
    run_thread_ranks(4, nans, 30);
    for (int i = 0; i < 5; i++) {
        (void)setenv("NCCL_ALGO", algorithms[i], 1);
        run_processes(4, nans, 30);
    }
    (void)unsetenv("NCCL_ALGO");
}

// C16: uint8 wraps as it is added, as NCCL's code of native width does: 400 is 144.
static void two_of_200(int rank, int size)
{
    static const double values[] = {200, 200};
    struct member m;
    struct area area;
    if (join_with_area(&m, &area, rank, size, 4096)) {
        gives(&m, &area, ncclUint8, ncclAvg, values, 72);
        leave_with_area(&m, &area);
    }
}

static void wraps(void)
{
    run_thread_ranks(2, two_of_200, 60);
}

// C26: bfloat16 accumulates in float, with one rounding: 256 and seven ones are 264 wherever the
// 256 stands (nccl#1026, TensorRT-LLM PR#16753).
static void rotate(int rank, int size)
{
    static const size_t counts[] = {1, 4096, 1000000};
    struct member m;
    struct area area;
    if (!join_with_area(&m, &area, rank, size, 2 << 20)) {
        return;
    }
    uint16_t *host = malloc(2 << 20);
    for (int i = 0; i < (is_full() ? 3 : 2); i++) {
        for (int where = 0; where < size; where++) {
            size_t wrong = 0;
            for (size_t e = 0; e < counts[i]; e++) {
                put_number(&host[e], ncclBfloat16, rank == where ? 256 : 1);
            }
            EXPECT_CUDA(
                cudaMemcpyAsync(area.memory, host, counts[i] * 2, cudaMemcpyDefault, m.stream));
            EXPECT_OK(ncclAllReduce(area.memory, area.memory, counts[i], ncclBfloat16, ncclSum,
                                    m.comm, m.stream));
            EXPECT_CUDA(
                cudaMemcpyAsync(host, area.memory, counts[i] * 2, cudaMemcpyDefault, m.stream));
            EXPECT_CUDA(cudaStreamSynchronize(m.stream));
            for (size_t e = 0; e < counts[i]; e++) {
                wrong += get_number(&host[e], ncclBfloat16) != 264;
            }
            EXPECT_EQ(wrong, 0);
        }
    }
    free(host);
    leave_with_area(&m, &area);
}

static void one_rounding(void)
{
    run_thread_ranks(8, rotate, 60);
    run_processes(8, rotate, 60);
}

// ---- C27: ReduceScatter of four, beside others (nccl#1200, llnl/Aluminum#110)
// --------------------

static void scatter_sums(int rank, int size)
{
    struct member m;
    struct area area;
    if (!join_with_area(&m, &area, rank, size, 4096)) {
        return;
    }
    float *device = (float *)(void *)area.memory;
    for (int in_place = 0; in_place < 2; in_place++) {
        float host[5] = {(float)rank, (float)(rank + 1), (float)(rank + 2), (float)(rank + 3), -1};
        float right[5];
        int at = in_place != 0 ? rank : 4;
        memcpy(right, host, sizeof host);
        right[at] = (float)(6 + 4 * rank);
        EXPECT_CUDA(cudaMemcpyAsync(device, host, sizeof host, cudaMemcpyDefault, m.stream));
        EXPECT_OK(ncclReduceScatter(device, device + at, 1, ncclFloat, ncclSum, m.comm, m.stream));
        EXPECT_CUDA(cudaMemcpyAsync(host, device, sizeof host, cudaMemcpyDefault, m.stream));
        EXPECT_CUDA(cudaStreamSynchronize(m.stream));
        EXPECT(memcmp(host, right, sizeof host) == 0);
    }
    leave_with_area(&m, &area);
}

static void in_place_scatter(void)
{
    run_thread_ranks(4, scatter_sums, 60);
    run_processes(4, scatter_sums, 60);
}

int main(void)
{
    RUN(four);
    RUN(nans_by_every_algorithm);
    RUN(wraps);
    RUN(one_rounding);
    RUN(in_place_scatter);
    RUN(scaled_sums);
    RUN(factors_of_ranks);
    return expect_result();
}
