// The all-reduce kernels against a sum in rank order on the host, bit for bit: 1 to 8 ranks, odd
// counts and offsets, in place or not, every bit pattern of half and bfloat16, and nothing written
// beside the output.
// SPDX-License-Identifier: Apache-2.0
#include "instances.cuh"

#include "../src/reduce/half.h"
#include "ranks_for_tests.cuh"

#include <stdio.h>
#include <vector>

#ifdef __SANITIZE_THREAD__
enum { FEW = 1, MOST_THREADS = 40 };
#else
enum { FEW = 0, MOST_THREADS = 512 };
#endif
enum { FENCE = 64 }; // bytes beside the output that must stay

// The host's own conversions.
static float widened(float value)
{
    return value;
}
static float widened(__half value)
{
    return tt_float_from_half(__half_as_ushort(value));
}
static float widened(__nv_bfloat16 value)
{
    return tt_float_from_bfloat16(__bfloat16_as_ushort(value));
}
static void narrow(float *to, float value)
{
    *to = value;
}
static void narrow(__half *to, float value)
{
    *to = __ushort_as_half(tt_half_from_float(value));
}
static void narrow(__nv_bfloat16 *to, float value)
{
    *to = __ushort_as_bfloat16(tt_bfloat16_from_float(value));
}

// Any bits for 16-bit types; numbers of all sizes for float, whose sums of NaNs have no fixed bits.
static void fill(float *to)
{
    *to = random_float() * (random_bits() % 4 == 0 ? 1e-30f : random_bits() % 4 == 0 ? 1e20f : 1);
}
static void fill(__half *to)
{
    *to = __ushort_as_half((unsigned short)random_bits());
}
static void fill(__nv_bfloat16 *to)
{
    *to = __ushort_as_bfloat16((unsigned short)random_bits());
}

// One shape. Positions are in elements of T; in and out are equal (in place) or disjoint.
struct shape {
    size_t count, in, out;
    unsigned blocks, threads;
};

template <typename T> struct problem {
    std::vector<T> input[MAX_RANKS], wanted;

    problem(const ranks *all, size_t count) : wanted(count)
    {
        for (int r = 0; r < all->count; r++) {
            input[r].resize(count);
            for (size_t i = 0; i < count; i++) {
                fill(&input[r][i]);
            }
        }
        for (size_t i = 0; i < count; i++) {
            float sum = widened(input[0][i]);
            for (int r = 1; r < all->count; r++) {
                sum += widened(input[r][i]);
            }
            narrow(&wanted[i], sum);
        }
    }
};

static size_t before(size_t offset)
{
    return offset < FENCE ? offset : (size_t)FENCE;
}

// Puts the input and, around the output, bytes that must stay.
template <typename T>
static void place(const ranks *all, const problem<T> *p, const shape *shape, int rank)
{
    size_t bytes = shape->count * sizeof(T), out = shape->out * sizeof(T);
    char *memory = all->memory[rank];
    EXPECT_CUDA(cudaSetDevice(all->device[rank]));
    EXPECT_CUDA(cudaMemset(memory + out - before(out), 0x5a, before(out) + bytes + FENCE));
    if (bytes > 0) {
        EXPECT_CUDA(cudaMemcpy(memory + shape->in * sizeof(T), p->input[rank].data(), bytes,
                               cudaMemcpyHostToDevice));
    }
}

template <typename T>
static bool is_right(const ranks *all, const problem<T> *p, const shape *shape, int rank)
{
    size_t bytes = shape->count * sizeof(T), out = shape->out * sizeof(T), low = before(out);
    std::vector<unsigned char> seen(low + bytes + FENCE);
    EXPECT_CUDA(cudaSetDevice(all->device[rank]));
    EXPECT_CUDA(cudaMemcpy(seen.data(), all->memory[rank] + out - low, seen.size(),
                           cudaMemcpyDeviceToHost));
    bool right = bytes == 0 || memcmp(seen.data() + low, p->wanted.data(), bytes) == 0;
    for (size_t i = 0; i < low; i++) {
        right = right && seen[i] == 0x5a;
    }
    for (size_t i = 0; i < FENCE; i++) {
        right = right && seen[low + bytes + i] == 0x5a;
    }
    return right;
}

template <typename T>
static void check_way(const ranks *all, const problem<T> *p, const shape *shape,
                      tutti::all_reduce_way way)
{
    for (int r = 0; r < all->count; r++) {
        place(all, p, shape, r);
    }
    tutti::all_reduce_grid grid = {shape->blocks, shape->threads};
    for (int r = 0; r < all->count; r++) {
        tutti::all_reduce_arguments args = {{all->window[r], shape->in * sizeof(T)},
                                            {all->window[r], shape->out * sizeof(T)},
                                            shape->count,
                                            cuda::memory_order_acq_rel};
        EXPECT_CUDA(cudaSetDevice(all->device[r]));
        EXPECT_CUDA(tutti::launch_all_reduce<T>(way, args, all->device_comm[r], BARRIERS, grid,
                                                all->stream[r]));
    }
    wait_all(all);
    for (int r = 0; r < all->count; r++) {
        if (!EXPECT(is_right(all, p, shape, r))) {
            printf("  %s%s, %d ranks, count %zu, input at %zu, output at %zu, %u blocks of %u, "
                   "%zu bytes, rank %d\n",
                   way.one_shot ? "one-shot" : "two-shot", way.multimem ? " multimem" : "",
                   all->count, shape->count, shape->in, shape->out, shape->blocks, shape->threads,
                   sizeof(T), r);
        }
    }
}

template <typename T> static void check_shape(const ranks *all, const shape *shape)
{
    problem<T> p(all, shape->count);
    for (int way = 0; way < (all->multimem ? 4 : 2); way++) {
        check_way(all, &p, shape, {(way & 1) != 0, (way & 2) != 0});
    }
}

template <typename T> static void check_counts(int ranks_count)
{
    static const size_t counts[] = {0,  1,  2,  3,  5,   7,    8,    9,    15,
                                    16, 17, 31, 64, 127, 1009, 4099, 33333};
    static const unsigned thread_counts[] = {1, 1, 32, 1, 7, MOST_THREADS};
    const size_t outputs = 65536; // where outputs begin, elements
    ranks all;
    if (!open_ranks(&all, ranks_count, (outputs + 65536) * sizeof(float))) {
        return;
    }
    unsigned variant = (unsigned)ranks_count; // walks through the options
    for (size_t count : counts) {
        if (FEW && count > 4099) {
            continue;
        }
        for (int i = 0; i < 3; i++, variant++) {
            shape shape;
            size_t shift = variant * 7 % 11;
            shape.count = count;
            shape.in = shift;
            shape.out = i == 0   ? shift                   // in place
                        : i == 1 ? outputs + shift + 16    // lies as the input does
                                 : outputs + variant % 13; // as it happens
            shape.threads = thread_counts[variant % 6];
            shape.blocks = 1 + variant % 5;
            check_shape<T>(&all, &shape);
        }
    }
    close_ranks(&all);
}

template <typename T> static void check_all()
{
    for (int count = 1; count <= MAX_RANKS; count++) {
        if (!FEW || count == 2 || count == 3) {
            check_counts<T>(count);
        }
    }
}

static void float_counts()
{
    check_all<float>();
}
static void half_counts()
{
    check_all<__half>();
}
static void bfloat16_counts()
{
    check_all<__nv_bfloat16>();
}

// Beyond 4 GiB of a sparse window.
static void far_away()
{
    ranks all;
    size_t far = ((size_t)4 << 30) + 4096;
    if (!open_ranks(&all, 2, far + ((size_t)1 << 20))) {
        return;
    }
    shape in_place = {10007, far / sizeof(float) + 3, far / sizeof(float) + 3, 3, 1};
    check_shape<float>(&all, &in_place);
    shape apart = {10007, far / 2 + 3, 5, 3, 1};
    check_shape<__half>(&all, &apart);
    close_ranks(&all);
}

// 256 once and 1 seven times: bfloat16 sums rounded at each step would stay at 256.
static void one_rounding()
{
    ranks all;
    if (!open_ranks(&all, 8, (size_t)1 << 16)) {
        return;
    }
    for (int holder = 0; holder < 8; holder++) {
        problem<__nv_bfloat16> p(&all, 100);
        for (size_t i = 0; i < 100; i++) {
            for (int r = 0; r < 8; r++) {
                narrow(&p.input[r][i], r == holder ? 256.0f : 1.0f);
            }
            narrow(&p.wanted[i], 264.0f); // 263, in bfloat16's steps of 2, ties to even
        }
        shape shape = {100, 1, 4097, 2, 1};
        for (int way = 0; way < (all.multimem ? 4 : 2); way++) {
            check_way(&all, &p, &shape, {(way & 1) != 0, (way & 2) != 0});
        }
    }
    close_ranks(&all);
}

static void refused_grids()
{
    ranks all;
    if (!open_ranks(&all, 1, (size_t)1 << 16)) {
        return;
    }
    static const tutti::all_reduce_grid bad[] = {
        {0, 1}, {1, 0}, {1, tutti::all_reduce_threads + 1}, {BARRIERS + 1, 1}};
    tutti::all_reduce_arguments args = {
        {all.window[0], 0}, {all.window[0], 4096}, 10, cuda::memory_order_acq_rel};
    for (const tutti::all_reduce_grid &grid : bad) {
        EXPECT_EQ(tutti::launch_all_reduce<float>({true, false}, args, all.device_comm[0], BARRIERS,
                                                  grid, all.stream[0]),
                  cudaErrorInvalidConfiguration);
    }
    unsigned blocks = 0;
    EXPECT_CUDA(tutti::all_reduce_blocks<float>({false, false}, 256, 1, 8, BARRIERS, &blocks));
    EXPECT_EQ(blocks, 1);
    EXPECT_CUDA(
        tutti::all_reduce_blocks<float>({false, false}, 256, 1 << 20, 8, BARRIERS, &blocks));
    EXPECT_EQ(blocks, BARRIERS);
    close_ranks(&all);
}

int main()
{
    RUN(float_counts);
    RUN(half_counts);
    RUN(bfloat16_counts);
    RUN(far_away);
    RUN(one_rounding);
    RUN(refused_grids);
    return expect_result();
}
