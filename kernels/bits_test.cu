// The same inputs give the same bits on virtual GPUs and on real ones: hashes of what the fused
// RMSNorm and the all-reduces compute, against those in bits_table.h. One source for both; ranks
// share GPUs where there are fewer. `bits_test write` prints the table anew.
// SPDX-License-Identifier: Apache-2.0
#include "instances.cuh"

#include "bits_table.h"
#include "ranks_for_tests.cuh"

#include <tutti.h>

#include <stdio.h>
#include <string.h>
#include <vector>

// All ranks' windows: input, output.
enum { HALF_BYTES = 256 * 1024, EPS_INVERSE = 1 << 20 };

template <typename T> struct facts;
template <> struct facts<float> {
    static constexpr ncclDataType_t type = ncclFloat32;
    static constexpr const char *name = "float";
};
template <> struct facts<__half> {
    static constexpr ncclDataType_t type = ncclFloat16;
    static constexpr const char *name = "half";
};
template <> struct facts<__nv_bfloat16> {
    static constexpr ncclDataType_t type = ncclBfloat16;
    static constexpr const char *name = "bf16";
};

static bool writing;
static size_t next_entry;

// Compares the next hash with the table, or writes it there. The ways of one case give one hash.
static bool check_hash(const char *operation, const char *type, int ranks, size_t a, size_t b,
                       uint64_t hash)
{
    if (writing) {
        printf("    {\"%s\", \"%s\", %d, %zu, %zu, 0x%016llx},\n", operation, type, ranks, a, b,
               (unsigned long long)hash);
        return true;
    }
    size_t count = sizeof bits_table / sizeof bits_table[0];
    for (size_t i = 0; i < count; i++) {
        const struct bits_entry *entry = &bits_table[(next_entry + i) % count];
        if (strcmp(entry->operation, operation) == 0 && strcmp(entry->type, type) == 0 &&
            entry->ranks == ranks && entry->a == a && entry->b == b) {
            next_entry = (next_entry + i) % count;
            return EXPECT(entry->hash == hash);
        }
    }
    return EXPECT(!"the case is in the table");
}

static uint64_t add_to_hash(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *byte = (const unsigned char *)data;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}
static const uint64_t empty_hash = UINT64_C(0xcbf29ce484222325);

template <typename T> static std::vector<T> random_elements(size_t count)
{
    std::vector<T> elements(count);
    for (size_t i = 0; i < count; i++) {
        tutti::from_float(&elements[i], random_float());
    }
    return elements;
}

// The ranks' memory besides the windows: gamma, residual, residual_out.
struct extra_memory {
    char *of[MAX_RANKS];
};

template <typename T> struct norm_case {
    size_t tokens, hidden;
    bool with_extras;
    std::vector<T> input[MAX_RANKS], gamma, residual;
};

template <typename T>
static void put_inputs(const ranks *all, const extra_memory *extra, const norm_case<T> *c)
{
    size_t bytes = c->tokens * c->hidden * sizeof(T);
    for (int r = 0; r < all->count; r++) {
        EXPECT_CUDA(cudaSetDevice(all->device[r]));
        EXPECT_CUDA(cudaMemcpy(all->memory[r], c->input[r].data(), bytes, cudaMemcpyHostToDevice));
        EXPECT_CUDA(cudaMemset(all->memory[r] + HALF_BYTES, 0xff, HALF_BYTES));
        EXPECT_CUDA(cudaMemcpy(extra->of[r], c->gamma.data(), c->hidden * sizeof(T),
                               cudaMemcpyHostToDevice));
        EXPECT_CUDA(cudaMemcpy(extra->of[r] + HALF_BYTES, c->residual.data(), bytes,
                               cudaMemcpyHostToDevice));
        EXPECT_CUDA(cudaDeviceSynchronize());
    }
}

// The output, the same on all ranks, and each rank's own rows of residual_out.
template <typename T>
static uint64_t hash_outputs(const ranks *all, const extra_memory *extra, const norm_case<T> *c)
{
    size_t bytes = c->tokens * c->hidden * sizeof(T);
    size_t counts[MAX_RANKS], first[MAX_RANKS];
    std::vector<char> output(bytes), other(bytes);
    uint64_t hash = empty_hash;
    EXPECT_OK(tuttiSplitCounts(c->tokens, all->count, counts, first));
    for (int r = 0; r < all->count; r++) {
        EXPECT_CUDA(cudaSetDevice(all->device[r]));
        EXPECT_CUDA(
            cudaMemcpy(other.data(), all->memory[r] + HALF_BYTES, bytes, cudaMemcpyDeviceToHost));
        if (r == 0) {
            output = other;
            hash = add_to_hash(hash, output.data(), bytes);
        }
        EXPECT(output == other);
        if (c->with_extras) {
            size_t row = c->hidden * sizeof(T);
            EXPECT_CUDA(cudaMemcpy(other.data(), extra->of[r] + 2 * HALF_BYTES, bytes,
                                   cudaMemcpyDeviceToHost));
            hash = add_to_hash(hash, other.data() + first[r] * row, counts[r] * row);
            EXPECT_CUDA(cudaMemset(extra->of[r] + 2 * HALF_BYTES, 0, bytes));
        }
    }
    return hash;
}

// threads: of the kernel; 0: the library's own operation.
template <typename T>
static void launch_norm(const ranks *all, const extra_memory *extra, const norm_case<T> *c, int r,
                        unsigned threads)
{
    float eps = 1.0f / EPS_INVERSE;
    EXPECT_CUDA(cudaSetDevice(all->device[r]));
    if (threads == 0) {
        tuttiRMSNormOptions options = TUTTI_RMSNORM_OPTIONS_INITIALIZER;
        options.eps = eps;
        if (c->with_extras) {
            options.gamma = extra->of[r];
            options.residual = extra->of[r] + HALF_BYTES;
            options.residualOut = extra->of[r] + 2 * HALF_BYTES;
        }
        EXPECT_OK(tuttiAllReduceRMSNorm(all->memory[r], all->memory[r] + HALF_BYTES, c->tokens,
                                        c->hidden, &options, facts<T>::type, all->comm[r],
                                        all->stream[r]));
        return;
    }
    tutti::rmsnorm_arguments args = {};
    args.input = args.output = all->window[r];
    args.output_offset = HALF_BYTES;
    args.tokens = c->tokens;
    args.hidden = c->hidden;
    args.eps = eps;
    if (c->with_extras) {
        args.gamma = extra->of[r];
        args.residual = extra->of[r] + HALF_BYTES;
        args.residual_out = extra->of[r] + 2 * HALF_BYTES;
    }
    EXPECT_CUDA(tutti::launch_rmsnorm<T>(false, args, all->device_comm[r], BARRIERS, 2, threads,
                                         all->stream[r]));
}

template <typename T>
static void check_norm(const ranks *all, const extra_memory *extra, size_t tokens, size_t hidden)
{
    const unsigned ways[] = {0, tutti::register_threads<T>, 32};
    uint64_t wanted = 0;
    for (unsigned threads : ways) {
        uint64_t hash = empty_hash;
        for (int with_extras = 0; with_extras < 2; with_extras++) {
            random_state = (uint32_t)(tokens * 31 + hidden);
            norm_case<T> c = {tokens, hidden, with_extras != 0, {}, {}, {}};
            for (int r = 0; r < all->count; r++) {
                c.input[r] = random_elements<T>(tokens * hidden);
            }
            c.gamma = random_elements<T>(hidden);
            c.residual = random_elements<T>(tokens * hidden);
            put_inputs(all, extra, &c);
            for (int r = 0; r < all->count; r++) {
                launch_norm(all, extra, &c, r, threads);
            }
            wait_all(all);
            uint64_t part = hash_outputs(all, extra, &c);
            hash = add_to_hash(hash, &part, sizeof part);
        }
        wanted = threads == 0 ? hash : wanted;
        EXPECT(hash == wanted);
    }
    if (!check_hash("rmsnorm", facts<T>::name, all->count, tokens, hidden, wanted)) {
        printf("  RMSNorm of %zu x %zu %s, %d ranks\n", tokens, hidden, facts<T>::name, all->count);
    }
}

// misaligned: elements that the buffers begin after a multiple of 16 bytes.
template <typename T>
static void check_all_reduce(const ranks *all, size_t count, size_t misaligned)
{
    uint64_t wanted = 0;
    size_t offset = misaligned * sizeof(T), bytes = count * sizeof(T);
    for (int way = 0; way < 3; way++) {
        random_state = (uint32_t)(count * 31 + misaligned);
        for (int r = 0; r < all->count; r++) {
            std::vector<T> input = random_elements<T>(count);
            EXPECT_CUDA(cudaSetDevice(all->device[r]));
            EXPECT_CUDA(
                cudaMemcpy(all->memory[r] + offset, input.data(), bytes, cudaMemcpyHostToDevice));
            EXPECT_CUDA(cudaDeviceSynchronize());
        }
        size_t to =
            way == 2 ? offset : HALF_BYTES + offset; // one-shot, two-shot, two-shot in place
        for (int r = 0; r < all->count; r++) {
            tutti::all_reduce_arguments args = {
                {all->window[r], offset}, {all->window[r], to}, count, cuda::memory_order_acq_rel};
            EXPECT_CUDA(cudaSetDevice(all->device[r]));
            EXPECT_CUDA(tutti::launch_all_reduce<T>({way == 0, false}, args, all->device_comm[r],
                                                    BARRIERS, {2, 64}, all->stream[r]));
        }
        wait_all(all);
        std::vector<char> output(bytes);
        for (int r = 0; r < all->count; r++) {
            EXPECT_CUDA(cudaSetDevice(all->device[r]));
            EXPECT_CUDA(
                cudaMemcpy(output.data(), all->memory[r] + to, bytes, cudaMemcpyDeviceToHost));
            uint64_t hash = add_to_hash(empty_hash, output.data(), bytes);
            wanted = way == 0 && r == 0 ? hash : wanted;
            EXPECT(hash == wanted);
        }
    }
    if (!check_hash("all-reduce", facts<T>::name, all->count, count, misaligned, wanted)) {
        printf("  all-reduce of %zu %s at %zu, %d ranks\n", count, facts<T>::name, misaligned,
               all->count);
    }
}

template <typename T> static void check_type(const ranks *all, const extra_memory *extra)
{
    const size_t shapes[][2] = {{5, 33}, {9, 1024}, {3, 4104}, {2, 16384}, {2, 20000}, {1, 1}};
    for (const size_t *shape : shapes) {
        check_norm<T>(all, extra, shape[0], shape[1]);
    }
    const size_t counts[][2] = {{1, 0}, {1000, 0}, {4099, 1}, {20000, 3}};
    for (const size_t *count : counts) {
        check_all_reduce<T>(all, count[0], count[1]);
    }
}

static void check_ranks(int count)
{
    ranks all;
    extra_memory extra;
    if (!open_ranks(&all, count, 2 * HALF_BYTES)) {
        return;
    }
    for (int r = 0; r < count; r++) {
        EXPECT_CUDA(cudaSetDevice(all.device[r]));
        EXPECT_CUDA(cudaMalloc((void **)&extra.of[r], 3 * HALF_BYTES));
        EXPECT_CUDA(cudaMemset(extra.of[r], 0, 3 * HALF_BYTES));
    }
    check_type<float>(&all, &extra);
    check_type<__half>(&all, &extra);
    check_type<__nv_bfloat16>(&all, &extra);
    for (int r = 0; r < count; r++) {
        EXPECT_CUDA(cudaSetDevice(all.device[r]));
        EXPECT_CUDA(cudaFree(extra.of[r]));
    }
    close_ranks(&all);
}

static void bits()
{
    for (int count : {1, 2, 3, 4, 8}) {
        check_ranks(count);
    }
}

int main(int argc, char **argv)
{
    writing = argc > 1 && strcmp(argv[1], "write") == 0;
    RUN(bits);
    return writing ? expect_failures() > 0 : expect_result();
}
