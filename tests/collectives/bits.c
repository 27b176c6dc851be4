// The contract on bits: the same whatever the algorithm, the number of lanes, the offset, the
// message around it, the rank and the run. The right bits are those of values.h, so two ways that
// are right agree.
// SPDX-License-Identifier: Apache-2.0
#include "collectives.h"

#include <stdio.h>
#include <tutti.h>

// Hashes of whole results are compared between ranks, and with those of the same calls under other
// settings, which the parent carries in the environment.
// in_window: as the switch needs them, buffers begin at the same place on all ranks.
static uint64_t run_all(struct member *m, struct area *area, bool in_window)
{
    static const size_t counts[] = {1, 2, 9, 255, 4099, 20011};
    static const ncclDataType_t types[] = {ncclFloat32, ncclFloat16, ncclBfloat16, ncclFloat8e5m2,
                                           ncclFloat64};
    uint64_t hash = 0;
    char *host = malloc(area->bytes);
    for (int t = 0; t < 5; t++) {
        for (int i = 0; i < few_or(6, 5); i++) {
            struct form form = {.type = types[t],
                                .op = i % 2 == 0 ? ncclSum : ncclAvg,
                                .count = counts[i],
                                .send_shift = (size_t)(t + (in_window ? 0 : m->rank)) % 4,
                                .recv_shift = (size_t)i,
                                .seed = (unsigned)(t * 8 + i)};
            size_t bytes = form.count * bytes_of_type(form.type);
            for (int f = 0; f < FUNCTIONS; f++) {
                form.function = (enum function)f;
                form.root = f % m->size;
                if (!check_form(m, area, &form)) {
                    break;
                }
            }
            form.function = ALL_REDUCE;
            form.in_place = true;
            form.recv_shift = 0;
            check_form(m, area, &form);
            EXPECT_CUDA(cudaMemcpy(host, area->memory + 256, bytes, cudaMemcpyDefault));
            hash = mix_bits(hash ^ hash_of(host, bytes));
        }
    }
    free(host);
    return hash;
}

static void agree_in(struct member *m, struct area *area, bool in_window)
{
    uint64_t hash = run_all(m, area, in_window), hashes[64];
    ranks_gather(&hash, hashes, sizeof hash);
    for (int r = 0; r < m->size; r++) {
        EXPECT(hashes[r] == hash);
    }
    const char *earlier = getenv("TUTTI_TEST_HASH");
    EXPECT(earlier == NULL || strtoull(earlier, NULL, 16) == hash);
    if (m->rank == 0) {
        char text[32];
        (void)snprintf(text, sizeof text, "%llx", (unsigned long long)hash);
        (void)setenv("TUTTI_TEST_HASH", text, 1);
    }
}

static void agree(int rank, int size)
{
    struct member m;
    struct area area;
    if (join_with_area(&m, &area, rank, size, 4 << 20)) {
        agree_in(&m, &area, false);
        leave_with_area(&m, &area);
    }
}

static void agree_in_window(int rank, int size)
{
    struct member m;
    if (member_join(&m, rank, size) && member_open_window(&m, 4 << 20)) {
        struct area area = {m.memory, 4 << 20};
        agree_in(&m, &area, true);
        ranks_barrier();
        member_leave(&m);
    }
}

// With one more setting, as threads (whose hash all others must have) and as processes.
static void agree_with(rank_function how, const char *name, const char *value)
{
    int before = expect_failures();
    if (name != NULL) {
        (void)setenv(name, value, 1);
    }
    run_processes(4, how, 60);
    if (name != NULL) {
        (void)unsetenv(name);
    }
    if (expect_failures() > before && name != NULL) {
        fprintf(stderr, "  (with %s=%s)\n", name, value);
    }
}

static void settings(void)
{
    (void)unsetenv("TUTTI_TEST_HASH");
    run_thread_ranks(4, agree, 60);
    EXPECT(getenv("TUTTI_TEST_HASH") != NULL);
    agree_with(agree, NULL, NULL);
    agree_with(agree, "VGPU_WORKERS", "1");
    agree_with(agree, "VGPU_WORKERS", "5");
    agree_with(agree, "NCCL_NVLS_ENABLE", "0");
    agree_with(agree, "NCCL_ALGO", "Ring");
    agree_with(agree, "VGPU_MACHINE", "pcie-4");
    agree_with(agree, "TUTTI_FAKE_HOSTS", "1,3");
}

// Trees, which are for broadcasts alone.
static void broadcast_by_tree(int rank, int size)
{
    struct member m;
    struct area area;
    if (!join_with_area(&m, &area, rank, size, 1 << 20)) {
        return;
    }
    for (int root = 0; root < size; root++) {
        struct form form = {.function = root % 2 == 0 ? BROADCAST : BCAST,
                            .type = ncclInt32,
                            .count = 1 + 40001 / (size_t)(root + 1),
                            .root = root};
        check_form(&m, &area, &form);
    }
    leave_with_area(&m, &area);
}

static void trees(void)
{
    (void)setenv("NCCL_ALGO", "Tree", 1);
    run_processes(7, broadcast_by_tree, 60);
    (void)unsetenv("NCCL_ALGO");
}

// The emulated switch adds in rank order.
static void in_the_switch(void)
{
    (void)unsetenv("TUTTI_TEST_HASH");
    run_thread_ranks(4, agree, 60);
    agree_with(agree_in_window, "NCCL_NVLS_ENABLE", "0");
    agree_with(agree_in_window, "NCCL_NVLS_ENABLE", "1");
    agree_with(agree_in_window, "NCCL_ALGO", "NVLS");
}

// C21: half sums of 32 ranks on two hosts (nccl#434).
static void half_sums(int rank, int size)
{
    struct member m;
    struct area area;
    struct form form = {
        .type = ncclFloat16, .count = is_full() ? 1000000 : 20000, .in_place = true};
    uint64_t hashes[64];
    if (!join_with_area(&m, &area, rank, size, 4 * form.count + 4096)) {
        return;
    }
    char *host = malloc(2 * form.count);
    check_form(&m, &area, &form);
    EXPECT_CUDA(cudaMemcpy(host, area.memory + 256, 2 * form.count, cudaMemcpyDefault));
    uint64_t hash = hash_of(host, 2 * form.count);
    ranks_gather(&hash, hashes, sizeof hash);
    for (int r = 0; r < size; r++) {
        EXPECT(hashes[r] == hash);
    }
    free(host);
    leave_with_area(&m, &area);
}

static void many_half_sums(void)
{
    (void)setenv("TUTTI_FAKE_HOSTS", "16,16", 1);
    run_processes(32, half_sums, 120);
    run_thread_ranks(32, half_sums, 120);
    (void)unsetenv("TUTTI_FAKE_HOSTS");
}

// C22: two vectors apart, and as one (nccl#157).
static void concatenate(int rank, int size)
{
    enum { A = 7001, B = 311 };
    struct member m;
    struct area area;
    if (!join_with_area(&m, &area, rank, size, 2 * (A + B) * sizeof(float))) {
        return;
    }
    float host[A + B], apart[A + B];
    float *in = (float *)(void *)area.memory, *out = in + A + B;
    for (size_t i = 0; i < A + B; i++) {
        put_input(&host[i], ncclFloat32, rank, i, 9);
    }
    EXPECT_CUDA(cudaMemcpyAsync(in, host, sizeof host, cudaMemcpyDefault, m.stream));
    EXPECT_OK(ncclAllReduce(in, out, A, ncclFloat, ncclSum, m.comm, m.stream));
    EXPECT_OK(ncclAllReduce(in + A, out + A, B, ncclFloat, ncclSum, m.comm, m.stream));
    EXPECT_CUDA(cudaMemcpyAsync(apart, out, sizeof host, cudaMemcpyDefault, m.stream));
    EXPECT_OK(ncclAllReduce(in, out, A + B, ncclFloat, ncclSum, m.comm, m.stream));
    EXPECT_CUDA(cudaMemcpyAsync(host, out, sizeof host, cudaMemcpyDefault, m.stream));
    EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    EXPECT(memcmp(host, apart, sizeof host) == 0);
    leave_with_area(&m, &area);
}

static void vectors_apart(void)
{
    run_thread_ranks(8, concatenate, 60);
    run_processes(8, concatenate, 60);
}

// ---- C23: a row of bfloat16 has its bits wherever it stands (sglang PR#34159, vllm#51290)
// --------

enum { HIDDEN = 4096 };

// Rows [0 .. rows) at `memory`: the given row at `at`, others elsewhere.
static void put_rows(struct member *m, char *memory, size_t rows, size_t at, uint16_t *host)
{
    for (size_t row = 0; row < rows; row++) {
        for (size_t i = 0; i < HIDDEN; i++) {
            put_input(&host[row * HIDDEN + i], ncclBfloat16, m->rank, i,
                      row == at ? 1 : 2 + (unsigned)row);
        }
    }
    EXPECT_CUDA(cudaMemcpyAsync(memory, host, rows * HIDDEN * 2, cudaMemcpyDefault, m->stream));
}

static uint64_t hash_of_row(struct member *m, size_t rows, size_t at, bool fused, uint16_t *host)
{
    char *out = m->memory + rows * HIDDEN * 2;
    put_rows(m, m->memory, rows, at, host);
    EXPECT_OK(fused ? tuttiAllReduceRMSNorm(m->memory, out, rows, HIDDEN, NULL, ncclBfloat16,
                                            m->comm, m->stream)
                    : ncclAllReduce(m->memory, out, rows * HIDDEN, ncclBfloat16, ncclSum, m->comm,
                                    m->stream));
    EXPECT_CUDA(cudaMemcpyAsync(host, out, rows * HIDDEN * 2, cudaMemcpyDefault, m->stream));
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
    return hash_of(host + at * HIDDEN, HIDDEN * 2);
}

static void rows_anywhere(int rank, int size)
{
    static const size_t counts[] = {1, 7, 64, 2048};
    int kinds = is_full() ? 4 : 3, repeats = is_full() ? 50 : 2;
    size_t most = counts[kinds - 1];
    struct member m;
    if (!member_join(&m, rank, size) || !member_open_window(&m, 2 * most * HIDDEN * 2)) {
        return;
    }
    uint16_t *host = malloc(most * HIDDEN * 2);
    for (int fused = 0; fused < 2; fused++) {
        uint64_t first = hash_of_row(&m, 1, 0, fused != 0, host);
        for (int i = 0; i < kinds; i++) {
            for (int repeat = 0; repeat < (i < 3 ? repeats : 3); repeat++) {
                size_t at = mix_bits((uint64_t)(i * 64 + repeat)) % counts[i];
                EXPECT(hash_of_row(&m, counts[i], at, fused != 0, host) == first);
            }
        }
    }
    free(host);
    member_leave(&m);
}

static void rows(void)
{
    run_thread_ranks(4, rows_anywhere, 300);
    run_processes(4, rows_anywhere, 300);
}

int main(void)
{
    RUN(settings);
    RUN(trees);
    RUN(in_the_switch);
    RUN(many_half_sums);
    RUN(vectors_apart);
    RUN(rows);
    return expect_result();
}
