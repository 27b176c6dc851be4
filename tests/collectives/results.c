// Every collective gives the right bits: all types, operators, counts, alignments, roots, in and
// out of place, with 1 to 65 ranks as threads and as processes; and touches nothing else.
// TUTTI_TEST_FULL=1: all of the sizes of the reports.
// SPDX-License-Identifier: Apache-2.0
#include "collectives.h"

#include <stdio.h>
#include <stdlib.h>

// Sanitizers judge how ranks meet and what memory they use, which other types, operators and counts
// of a few elements do not change. All types are taken with 3 ranks at most; with more, some.
#ifdef __SANITIZE_THREAD__
enum { NEXT_COUNT = 5, NEXT_TYPE = 4, NEXT_TYPE_OF_MANY = 8, NEXT_OP = 4 };
#elif defined(__SANITIZE_ADDRESS__)
enum { NEXT_COUNT = 1, NEXT_TYPE = 3, NEXT_TYPE_OF_MANY = 5, NEXT_OP = 4 };
#else
enum { NEXT_COUNT = 1, NEXT_TYPE = 1, NEXT_TYPE_OF_MANY = 3, NEXT_OP = 1 };
#endif

// The functions of a run: bits by number. In the environment, for rank processes.
static void choose(unsigned functions)
{
    char text[16];
    (void)snprintf(text, sizeof text, "%u", functions);
    (void)setenv("TUTTI_TEST_FUNCTIONS", text, 1);
}

static bool chosen(enum function function)
{
    const char *text = getenv("TUTTI_TEST_FUNCTIONS");
    return text == NULL || (strtoul(text, NULL, 10) >> function & 1) != 0;
}

// Both places, with the root and the inputs of this try.
static bool both_places(struct member *m, const struct area *area, struct form form)
{
    for (int in_place = 0; in_place < 2; in_place++) {
        form.in_place = in_place == 1;
        form.seed++;
        form.root = (int)form.seed % m->size;
        if (form.function == ALL_TO_ALL && form.in_place) {
            continue; // NCCL has no such form
        }
        if (!check_form(m, area, &form)) {
            return false;
        }
    }
    return true;
}

static bool every_type(struct member *m, const struct area *area, enum function function,
                       size_t count)
{
    int ops = reduces(function) ? ncclNumOps : 1, next_op = is_full() ? 1 : NEXT_OP;
    int next = m->size > 3 ? NEXT_TYPE_OF_MANY : NEXT_TYPE;
    if (is_full() && !(IS_SANITIZED && m->size > 65)) {
        next = 1;
    }
    for (int type = 0; type < ncclNumTypes; type += next) {
        for (int op = 0; op < ops; op += next_op) {
            struct form form = {.function = function,
                                .type = (ncclDataType_t)type,
                                .op = (ncclRedOp_t)op,
                                .count = count,
                                .seed = (unsigned)(type * 16 + op * 2)};
            if (!both_places(m, area, form)) {
                return false;
            }
        }
    }
    return true;
}

// All types and operators at some counts, one of them not a multiple of anything. (Report C12 is
// the AlltoAll of 3 ranks with count 5 here; the in-place forms are C29's.)
static void types(int rank, int size)
{
    static const size_t usual[] = {5, 1029, 1, 131}, small[] = {1, 37};
    struct member m;
    struct area area;
    if (!join_with_area(&m, &area, rank, size, 4 << 20)) {
        return;
    }
    bool many = size > 8, good = true;
    int counts = is_full() && !many && getenv("TUTTI_TEST_FEW") == NULL ? 4 : 2;
    for (int f = 0; f < FUNCTIONS && good; f++) {
        for (int i = 0; chosen((enum function)f) && good && i < counts; i++) {
            good = every_type(&m, &area, (enum function)f, many ? small[i] : usual[i]);
        }
    }
    leave_with_area(&m, &area);
}

static void in_threads(enum function function)
{
    choose(1u << function);
    (void)unsetenv("TUTTI_TEST_FEW");
    for (int i = 0; i < thread_size_count(); i++) {
        if (!run_thread_ranks(test_sizes[i], types, 120)) {
            return;
        }
    }
}

static void all_reduce(void)
{
    in_threads(ALL_REDUCE);
}
static void reduce(void)
{
    in_threads(REDUCE);
}
static void broadcast(void)
{
    in_threads(BROADCAST);
}
static void bcast(void)
{
    in_threads(BCAST);
}
static void reduce_scatter(void)
{
    in_threads(REDUCE_SCATTER);
}
static void all_gather(void)
{
    in_threads(ALL_GATHER);
}
static void all_to_all(void)
{
    in_threads(ALL_TO_ALL);
}
static void gather(void)
{
    in_threads(GATHER);
}
static void scatter(void)
{
    in_threads(SCATTER);
}

static void processes(void)
{
    choose(~0u);
    (void)setenv("TUTTI_TEST_FEW", "1", 1);
    for (int i = 0; has_processes() && i < process_size_count(); i++) {
        if (!run_ranks(test_sizes[i], types, 120)) {
            return;
        }
    }
}

// ---- C09: every count to 129, and one large odd one (microsoft/mscclpp#682, ucc PR#1312)
// ---------

static void counts(int rank, int size)
{
    static const ncclDataType_t types_of_c09[] = {ncclFloat32,    ncclBfloat16, ncclFloat16,
                                                  ncclFloat8e4m3, ncclFloat64,  ncclInt64};
    struct member m;
    struct area area;
    if (!join_with_area(&m, &area, rank, size, 1 << 20)) {
        return;
    }
    for (size_t count = 1; count < 130; count += is_full() ? 1 : NEXT_COUNT) {
        for (int f = 0; f < FUNCTIONS; f++) {
            for (size_t t = is_full() ? 0 : (count + (size_t)f) % 6; t < 6;
                 t += is_full() ? 1 : 6) {
                struct form form = {.function = (enum function)f,
                                    .type = types_of_c09[t],
                                    .count = count,
                                    .seed = (unsigned)count};
                if (chosen((enum function)f) && !both_places(&m, &area, form)) {
                    return;
                }
            }
        }
    }
    leave_with_area(&m, &area);
}

static void large_odd(int rank, int size)
{
    struct member m;
    struct area area;
    struct form form = {.type = ncclFloat32, .count = 10556587};
    if (!is_full()) {
        form.count = 105565;
    }
    if (join_with_area(&m, &area, rank, size, 2 * form.count * 4 + 4096)) {
        both_places(&m, &area, form);
        leave_with_area(&m, &area);
    }
}

static void every_count(void)
{
    choose(~0u);
    run_thread_ranks(8, counts, 300);
    run_thread_ranks(8, large_odd, 900);
    run_processes(8, large_odd, 900);
}

// ---- C08: buffers that begin anywhere, elsewhere on each rank (pt#119345, fastllm#724)
// -----------

// The same buffers to the next rank.
static void pass_shifted(struct member *m, const struct area *area, size_t count)
{
    size_t shift = 1 + 3 * (size_t)m->rank, room = count * 8;
    uint16_t *send = (uint16_t *)(void *)area->memory + shift;
    uint16_t *recv = (uint16_t *)(void *)(area->memory + room) + (9 - (size_t)m->rank);
    int next = (m->rank + 1) % m->size, before = (m->rank + m->size - 1) % m->size;
    uint16_t *host = malloc((count + 2) * sizeof *host), right;
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++) {
        put_input(&host[i], ncclBfloat16, m->rank, i, 8);
    }
    EXPECT_CUDA(cudaMemcpy(send, host, count * 2, cudaMemcpyDefault));
    EXPECT_CUDA(cudaMemset(recv - 1, 0xa5, (count + 2) * 2));
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(ncclSend(send, count, ncclBfloat16, next, m->comm, m->stream));
    EXPECT_OK(ncclRecv(recv, count, ncclBfloat16, before, m->comm, m->stream));
    EXPECT_OK(ncclGroupEnd());
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
    EXPECT_CUDA(cudaMemcpy(host, recv - 1, (count + 2) * 2, cudaMemcpyDefault));
    EXPECT(host[0] == 0xa5a5 && host[count + 1] == 0xa5a5);
    for (size_t i = 0; i < count; i++) {
        put_input(&right, ncclBfloat16, before, i, 8);
        wrong += host[i + 1] != right;
    }
    EXPECT_EQ(wrong, 0);
    free(host);
}

static void shifted(int rank, int size)
{
    struct member m;
    struct area area;
    size_t count = is_full() ? 1000001 : 40001;
    if (!join_with_area(&m, &area, rank, size, count * 16 + 4096)) {
        return;
    }
    for (int f = 0; f < FUNCTIONS; f++) {
        struct form form = {.function = (enum function)f,
                            .type = ncclBfloat16,
                            .count = count,
                            .send_shift = 1 + 3 * (size_t)rank,
                            .recv_shift = 8 - (size_t)rank};
        if (chosen((enum function)f) && !both_places(&m, &area, form)) {
            return;
        }
    }
    pass_shifted(&m, &area, count);
    leave_with_area(&m, &area);
}

static void unaligned(void)
{
    choose(~0u);
    run_thread_ranks(3, shifted, 120);
    run_processes(3, shifted, 120);
}

// ---- C11: sizes near where algorithms change, and again and again (tests#167, nccl#2001)
// ---------

// Fresh data each time, a sum that floats hold exactly; every rank judges.
static bool repeat(struct member *m, const struct area *area, size_t elements, int rounds)
{
    float *host = malloc(elements * sizeof *host);
    size_t wrong = 0;
    for (int round = 0; round < rounds && wrong == 0; round++) {
        for (size_t i = 0; i < elements; i++) {
            host[i] = (float)((m->rank + 1) * (int)((i + (size_t)round * 7) % 1013));
        }
        float *device = (float *)(void *)area->memory;
        EXPECT_CUDA(
            cudaMemcpyAsync(device, host, elements * sizeof *host, cudaMemcpyDefault, m->stream));
        EXPECT_OK(ncclAllReduce(device, device, elements, ncclFloat, ncclSum, m->comm, m->stream));
        EXPECT_CUDA(
            cudaMemcpyAsync(host, device, elements * sizeof *host, cudaMemcpyDefault, m->stream));
        EXPECT_CUDA(cudaStreamSynchronize(m->stream));
        int all = m->size * (m->size + 1) / 2;
        for (size_t i = 0; i < elements; i++) {
            wrong += host[i] != (float)(all * (int)((i + (size_t)round * 7) % 1013));
        }
    }
    free(host);
    return EXPECT_EQ(wrong, 0);
}

static void borders(int rank, int size)
{
    struct member m;
    struct area area;
    if (!join_with_area(&m, &area, rank, size, 1 << 20)) {
        return;
    }
    for (size_t count = 49152; count <= 51200; count += is_full() ? 256 : 2048) {
        for (int op = 0; op < ncclAvg; op++) {
            struct form form = {.type = ncclFloat32, .op = (ncclRedOp_t)op, .count = count};
            if (!check_form(&m, &area, &form)) {
                return;
            }
        }
    }
    repeat(&m, &area, 1 << 18, is_full() ? 2000 : few_or(30, 2));
    leave_with_area(&m, &area);
}

static void near_borders(void)
{
    run_thread_ranks(8, borders, 300);
    (void)setenv("TUTTI_FAKE_HOSTS", "4,4", 1);
    run_processes(8, borders, 300);
    (void)unsetenv("TUTTI_FAKE_HOSTS");
}

// ---- C01: nothing to do (gloo#179, gloo PR#356, pt#85234)
// ----------------------------------------

static void zero(int rank, int size)
{
    struct member m;
    struct area area;
    if (!join_with_area(&m, &area, rank, size, 1 << 16)) {
        return;
    }
    for (int f = 0; f < FUNCTIONS; f++) {
        struct form form = {.function = (enum function)f, .type = ncclFloat32};
        if (chosen((enum function)f)) {
            both_places(&m, &area, form);
            EXPECT_OK(call_form(&form, NULL, NULL, &m));
        }
    }
    struct form form = {.type = ncclFloat32, .count = 100};
    check_form(&m, &area, &form);
    leave_with_area(&m, &area);
}

static void nothing(void)
{
    choose(~0u);
    run_thread_ranks(4, zero, 60);
    run_processes(4, zero, 60);
}

// ---- C80: the other numbers of ranks (uccl#671, nccl#2186, mscclpp#387)
// ------------------------------

static void rank_counts(void)
{
    static const int sizes[] = {6, 7, 12, 24, 44, 100, 257}; // beside test_sizes
    choose(~0u);
    (void)setenv("TUTTI_TEST_FEW", "1", 1);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        run_thread_ranks(sizes[i], types, 900);
        if (!IS_SANITIZED || sizes[i] <= 100) { // some 100 MB each under the address sanitizer
            run_processes(sizes[i], types, 900);
        }
    }
}

int main(void)
{
    RUN(all_reduce);
    RUN(reduce);
    RUN(broadcast);
    RUN(bcast);
    RUN(reduce_scatter);
    RUN(all_gather);
    RUN(all_to_all);
    RUN(gather);
    RUN(scatter);
    RUN(processes);
    RUN(every_count);
    RUN(unaligned);
    RUN(near_borders);
    RUN(nothing);
    if (is_full()) {
        RUN(rank_counts);
    }
    return expect_result();
}
