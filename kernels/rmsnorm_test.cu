// The RMSNorm kernels against the native operation, bit for bit, and against double precision: odd
// shapes, all types, every option, several blockDims, in and out of place, offsets over 4 GiB.
// SPDX-License-Identifier: Apache-2.0
#include "instances.cuh"

#include "ranks_for_tests.cuh"

#include <tutti.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

// Under the thread sanitizer every thread of a kernel is one that it tracks: slow, and 4096 at
// most.
#ifdef __SANITIZE_THREAD__
enum { FEW = 1, MOST_THREADS = 64, WIDEST = 4099, BACK_TO_BACK = 30 };
#else
enum { FEW = 0, MOST_THREADS = 256, WIDEST = 70000, BACK_TO_BACK = 300 };
#endif

template <typename T> constexpr ncclDataType_t type_of();
template <> constexpr ncclDataType_t type_of<float>()
{
    return ncclFloat32;
}
template <> constexpr ncclDataType_t type_of<__half>()
{
    return ncclFloat16;
}
template <> constexpr ncclDataType_t type_of<__nv_bfloat16>()
{
    return ncclBfloat16;
}

template <typename T> static void put(T *to, float value)
{
    tutti::from_float(to, value);
}

// One problem: inputs of all ranks on the host, and what they should give.
template <typename T> struct problem {
    size_t tokens, hidden;
    int count;
    bool with_gamma, with_residual;
    std::vector<T> input[MAX_RANKS], residual[MAX_RANKS], gamma;
    std::vector<double> wanted, wanted_sum;

    problem(size_t tokens_, size_t hidden_, int count_, bool with_gamma_, bool with_residual_)
        : tokens(tokens_), hidden(hidden_), count(count_), with_gamma(with_gamma_),
          with_residual(with_residual_)
    {
        size_t elements = tokens * hidden;
        gamma.resize(hidden);
        for (size_t i = 0; i < hidden; i++) {
            put(&gamma[i], random_float());
        }
        for (int r = 0; r < count; r++) {
            input[r].resize(elements);
            residual[r].resize(elements);
            for (size_t i = 0; i < elements; i++) {
                put(&input[r][i], random_float());
                put(&residual[r][i], random_float());
            }
        }
        solve();
    }

    int owner(size_t token) const
    {
        size_t counts[MAX_RANKS], first[MAX_RANKS];
        tuttiSplitCounts(tokens, count, counts, first);
        int rank = 0;
        while (token >= first[rank] + counts[rank]) {
            rank++;
        }
        return rank;
    }

    void solve()
    {
        wanted.resize(tokens * hidden);
        wanted_sum.resize(tokens * hidden);
        for (size_t token = 0; token < tokens; token++) {
            int own = owner(token);
            double squares = 0;
            for (size_t i = token * hidden; i < (token + 1) * hidden; i++) {
                double x = with_residual ? (double)tutti::to_float(residual[own][i]) : 0;
                for (int r = 0; r < count; r++) {
                    x += (double)tutti::to_float(input[r][i]);
                }
                wanted_sum[i] = x;
                squares += x * x;
            }
            double scale = 1 / sqrt(squares / (double)hidden + 1e-6);
            for (size_t i = 0; i < hidden; i++) {
                double weight = with_gamma ? (double)tutti::to_float(gamma[i]) : 1;
                wanted[token * hidden + i] = wanted_sum[token * hidden + i] * scale * weight;
            }
        }
    }
};

enum way { NATIVE, LSA, MULTIMEM };

struct run_options {
    enum way way;
    unsigned blocks, threads;
    unsigned segment; // 0: chosen
    bool in_place;
    size_t offset; // bytes into the window
};

template <typename T> struct outcome {
    std::vector<T> output[MAX_RANKS], residual_out[MAX_RANKS];
};

template <typename T>
static void launch_rank(const ranks *all, int r, const problem<T> *p, const run_options *run,
                        T *device_extra)
{
    size_t bytes = p->tokens * p->hidden * sizeof(T);
    size_t output_offset = run->in_place ? run->offset : run->offset + (bytes + 4095) / 4096 * 4096;
    T *gamma = p->with_gamma ? device_extra : nullptr;
    T *residual = p->with_residual ? device_extra + p->hidden : nullptr;
    if (run->way == NATIVE) {
        tuttiRMSNormOptions options = TUTTI_RMSNORM_OPTIONS_INITIALIZER;
        options.gamma = gamma;
        options.residual = residual;
        options.residualOut = residual;
        EXPECT_OK(tuttiAllReduceRMSNorm(all->memory[r] + run->offset,
                                        all->memory[r] + output_offset, p->tokens, p->hidden,
                                        &options, type_of<T>(), all->comm[r], all->stream[r]));
        return;
    }
    tutti::rmsnorm_arguments args = {};
    args.input = args.output = all->window[r];
    args.input_offset = run->offset;
    args.output_offset = output_offset;
    args.tokens = p->tokens;
    args.hidden = p->hidden;
    args.gamma = gamma;
    args.residual = residual;
    args.residual_out = residual;
    args.eps = 1e-6f;
    args.segment = run->segment;
    EXPECT_CUDA(tutti::launch_rmsnorm<T>(run->way == MULTIMEM, args, all->device_comm[r], BARRIERS,
                                         run->blocks, run->threads, all->stream[r]));
}

// Runs one way and brings everything back. Device memory per rank: [gamma][residual, replaced].
template <typename T>
static outcome<T> run_problem(const ranks *all, const problem<T> *p, const run_options *run)
{
    size_t elements = p->tokens * p->hidden, bytes = elements * sizeof(T);
    size_t output_offset = run->in_place ? run->offset : run->offset + (bytes + 4095) / 4096 * 4096;
    T *extra[MAX_RANKS];
    outcome<T> result;
    for (int r = 0; r < all->count; r++) {
        EXPECT_CUDA(cudaSetDevice(all->device[r]));
        EXPECT_CUDA(cudaMalloc((void **)&extra[r], (elements + p->hidden) * sizeof(T)));
        EXPECT_CUDA(
            cudaMemcpy(extra[r], p->gamma.data(), p->hidden * sizeof(T), cudaMemcpyHostToDevice));
        EXPECT_CUDA(
            cudaMemcpy(extra[r] + p->hidden, p->residual[r].data(), bytes, cudaMemcpyHostToDevice));
        EXPECT_CUDA(cudaMemcpy(all->memory[r] + run->offset, p->input[r].data(), bytes,
                               cudaMemcpyHostToDevice));
    }
    for (int r = 0; r < all->count; r++) {
        EXPECT_CUDA(cudaSetDevice(all->device[r]));
        launch_rank(all, r, p, run, extra[r]);
    }
    wait_all(all);
    for (int r = 0; r < all->count; r++) {
        EXPECT_CUDA(cudaSetDevice(all->device[r]));
        result.output[r].resize(elements);
        result.residual_out[r].resize(elements);
        EXPECT_CUDA(cudaMemcpy(result.output[r].data(), all->memory[r] + output_offset, bytes,
                               cudaMemcpyDeviceToHost));
        EXPECT_CUDA(cudaMemcpy(result.residual_out[r].data(), extra[r] + p->hidden, bytes,
                               cudaMemcpyDeviceToHost));
        EXPECT_CUDA(cudaFree(extra[r]));
    }
    return result;
}

// Largest error beyond the rounding of the type; residual rows are looked at on their owner.
template <typename T> static double worst_error(const problem<T> *p, const outcome<T> *got)
{
    double unit = sizeof(T) == 4 ? 1e-6 : type_of<T>() == ncclFloat16 ? 0x1p-10 : 0x1p-7;
    double worst = 0;
    for (size_t i = 0; i < p->tokens * p->hidden; i++) {
        double allowed = unit * fmax(1.0, fabs(p->wanted[i]));
        for (int r = 0; r < p->count; r++) {
            double error = fabs((double)tutti::to_float(got->output[r][i]) - p->wanted[i]);
            worst = fmax(worst, error / allowed);
        }
        if (p->with_residual) {
            int own = p->owner(i / p->hidden);
            double error =
                fabs((double)tutti::to_float(got->residual_out[own][i]) - p->wanted_sum[i]);
            worst = fmax(worst, error / (unit * fmax(1.0, fabs(p->wanted_sum[i]))));
        }
    }
    return worst;
}

template <typename T>
static bool same_bits(const problem<T> *p, const outcome<T> *a, const outcome<T> *b)
{
    size_t bytes = p->tokens * p->hidden * sizeof(T);
    bool same = true;
    for (int r = 0; r < p->count; r++) {
        same = same && memcmp(a->output[r].data(), b->output[r].data(), bytes) == 0;
        same = same && memcmp(a->output[0].data(), a->output[r].data(), bytes) == 0;
        same = same && memcmp(a->residual_out[r].data(), b->residual_out[r].data(), bytes) == 0;
    }
    return same;
}

template <typename T>
static void check_problem(const ranks *all, const problem<T> *p, bool in_place, size_t offset,
                          unsigned segment)
{
    run_options run = {NATIVE, 1, 1, segment, in_place, offset};
    outcome<T> native = run_problem(all, p, &run);
    bool good = EXPECT(worst_error(p, &native) < 2);
    for (int way = LSA; way <= (all->multimem ? MULTIMEM : LSA); way++) {
        for (unsigned threads = 1; threads <= MOST_THREADS;
             threads = threads == 1 ? 32 : threads * 8) {
            run.way = (enum way)way;
            run.threads = threads;
            run.blocks = threads == 32 ? 5 : 2;
            outcome<T> kernel = run_problem(all, p, &run);
            // The switch rounds half and bfloat16 sums once more.
            if (way == LSA || sizeof(T) == 4) {
                good = EXPECT(same_bits(p, &kernel, &native)) && good;
            } else {
                good = EXPECT(worst_error(p, &kernel) < 4) && good;
            }
        }
    }
    if (!good) {
        printf("  tokens %zu hidden %zu ranks %d bytes %zu gamma %d residual %d in place %d offset "
               "%zu "
               "segment %u\n",
               p->tokens, p->hidden, p->count, sizeof(T), p->with_gamma, p->with_residual, in_place,
               offset, segment);
    }
}

template <typename T> static void check_shapes()
{
    static const size_t hiddens[] = {1, 2, 3, 4, 5, 127, 1000, 1024, 4099, 70000};
    static const size_t tokens[] = {1, 3, 20};
    static const int counts[] = {1, 2, 3, 5, 8};
    unsigned variant = 0; // walks through the options, so that all meet all shapes over the test
    for (int count : counts) {
        ranks all;
        if (FEW && count != 3) {
            continue;
        }
        if (!open_ranks(&all, count, (size_t)4 << 20)) {
            return;
        }
        for (size_t hidden : hiddens) {
            for (size_t token_count : tokens) {
                if (hidden > WIDEST || (FEW && token_count == 20) ||
                    (hidden > 5000 && (token_count != 3 || count == 5))) {
                    continue;
                }
                problem<T> p(token_count, hidden, count, variant & 1, variant & 2);
                size_t offset = variant % 5 == 0 ? sizeof(T) : variant % 5 == 1 ? 4096 : 0;
                check_problem(&all, &p, (variant & 4) != 0, offset, 0);
                variant++;
            }
        }
        close_ranks(&all);
    }
}

static void float_shapes()
{
    check_shapes<float>();
}
static void half_shapes()
{
    check_shapes<__half>();
}
static void bfloat16_shapes()
{
    check_shapes<__nv_bfloat16>();
}

// Rows that do not fit in shared memory are read again; so is one that must not be allowed to fit.
static void segments()
{
    ranks all;
    if (open_ranks(&all, 3, (size_t)1 << 20)) {
        for (unsigned options = 0; options < 8; options++) {
            problem<float> p(5, 4099, 3, options & 1, options & 2);
            check_problem(&all, &p, (options & 4) != 0, 0, 1024);
            problem<__half> q(5, 4099, 3, options & 1, options & 2);
            check_problem(&all, &q, (options & 4) != 0, 0, 2048);
        }
        close_ranks(&all);
    }
}

// The same row gives the same bits wherever it stands and whatever stands beside it.
static void row_is_alone()
{
    ranks all;
    if (!open_ranks(&all, 4, (size_t)4 << 20)) {
        return;
    }
    problem<__nv_bfloat16> alone(1, 1000, 4, true, false);
    run_options run = {NATIVE, 1, 1, 0, false, 0};
    outcome<__nv_bfloat16> wanted = run_problem(&all, &alone, &run);
    for (size_t tokens : {7, 64, 200}) {
        problem<__nv_bfloat16> many(tokens, 1000, 4, true, false);
        many.gamma = alone.gamma;
        for (size_t place : {(size_t)0, tokens / 2, tokens - 1}) {
            for (int r = 0; r < 4; r++) {
                memcpy(&many.input[r][place * 1000], alone.input[r].data(), 2000);
            }
        }
        for (int way = NATIVE; way <= LSA; way++) {
            run = {(enum way)way, 3, 64, 0, false, 2};
            outcome<__nv_bfloat16> got = run_problem(&all, &many, &run);
            for (size_t place : {(size_t)0, tokens / 2, tokens - 1}) {
                EXPECT(memcmp(&got.output[3][place * 1000], wanted.output[0].data(), 2000) == 0);
            }
        }
    }
    close_ranks(&all);
}

// One rank holds 256, seven hold 1: bfloat16 sums in any order but float's would lose some.
static void one_rounding()
{
    ranks all;
    if (!open_ranks(&all, 8, (size_t)1 << 20)) {
        return;
    }
    for (int holder = 0; holder < 8; holder++) {
        problem<__nv_bfloat16> p(8, 64, 8, false, true);
        for (int r = 0; r < 8; r++) {
            for (size_t i = 0; i < 8 * 64; i++) {
                put(&p.input[r][i], r == holder ? 256.0f : 1.0f);
                put(&p.residual[r][i], 0.0f);
            }
        }
        for (int way = NATIVE; way <= LSA; way++) {
            run_options run = {(enum way)way, 2, MOST_THREADS, 0, false, 0};
            outcome<__nv_bfloat16> got = run_problem(&all, &p, &run);
            // residual_out is the sum: 263 rounds to 264 in bfloat16's steps of 2 (ties to even).
            for (size_t i = 0; i < 8 * 64; i++) {
                EXPECT(tutti::to_float(got.residual_out[p.owner(i / 64)][i]) == 264.0f);
            }
        }
    }
    close_ranks(&all);
}

static void special_rows()
{
    ranks all;
    if (!open_ranks(&all, 2, (size_t)1 << 20)) {
        return;
    }
    problem<float> p(4, 130, 2, false, false);
    for (int r = 0; r < 2; r++) {
        for (size_t i = 0; i < 130; i++) {
            p.input[r][i] = 0.0f;                            // row 0: zeros
            p.input[r][2 * 130 + i] = r == 0 ? 1.0f : -1.0f; // row 2: zeros by cancellation
        }
    }
    p.input[1][130 + 77] = NAN;
    p.input[0][3 * 130 + 5] = INFINITY;
    for (int way = NATIVE; way <= (all.multimem ? MULTIMEM : LSA); way++) {
        run_options run = {(enum way)way, 1, 32, 0, true, 0};
        outcome<float> got = run_problem(&all, &p, &run);
        for (int r = 0; r < 2; r++) {
            for (size_t i = 0; i < 130; i++) {
                EXPECT(got.output[r][i] == 0.0f);
                EXPECT(isnan(got.output[r][130 + i]));
                EXPECT(got.output[r][260 + i] == 0.0f);
                EXPECT(i == 5 ? isnan(got.output[r][390 + i]) : got.output[r][390 + i] == 0.0f);
            }
        }
    }
    close_ranks(&all);
}

// A few rows beyond 4 GiB of a sparse window: every offset must be 64 bits wide.
static void far_rows()
{
    ranks all;
    size_t far = ((size_t)4 << 30) + 12288;
    if (!open_ranks(&all, 2, far + ((size_t)1 << 20))) {
        return;
    }
    problem<float> p(9, 1000, 2, true, true);
    check_problem(&all, &p, false, far, 0);
    problem<__half> q(9, 1001, 2, true, true);
    check_problem(&all, &q, true, far, 0);
    close_ranks(&all);
}

// Kernel after kernel without a pause, input and output changing roles.
static void back_to_back()
{
    ranks all;
    if (!open_ranks(&all, 3, (size_t)1 << 20)) {
        return;
    }
    size_t tokens = 10, hidden = 96, bytes = tokens * hidden * sizeof(float);
    problem<float> p(tokens, hidden, 3, false, false);
    std::vector<float> last[2];
    for (int way = NATIVE; way <= LSA; way++) {
        for (int r = 0; r < 3; r++) {
            EXPECT_CUDA(cudaSetDevice(all.device[r]));
            EXPECT_CUDA(
                cudaMemcpy(all.memory[r], p.input[r].data(), bytes, cudaMemcpyHostToDevice));
        }
        for (int i = 0; i < BACK_TO_BACK; i++) {
            run_options run = {(enum way)way, 4, 32, 0, true, 0};
            for (int r = 0; r < 3; r++) {
                EXPECT_CUDA(cudaSetDevice(all.device[r]));
                launch_rank<float>(&all, r, &p, &run, nullptr);
            }
        }
        wait_all(&all);
        last[way].resize(tokens * hidden);
        EXPECT_CUDA(cudaMemcpy(last[way].data(), all.memory[2], bytes, cudaMemcpyDeviceToHost));
    }
    EXPECT(memcmp(last[0].data(), last[1].data(), bytes) == 0);
    close_ranks(&all);
}

int main()
{
    RUN(float_shapes);
    RUN(half_shapes);
    RUN(bfloat16_shapes);
    RUN(segments);
    RUN(row_is_alone);
    RUN(one_rounding);
    RUN(special_rows);
    RUN(far_rows);
    RUN(back_to_back);
    return expect_result();
}
