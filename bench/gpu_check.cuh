// Compares what RMSNorm left on all ranks with the same in double precision on the processor:
// every element of rank 0, and every bit of the others with it.
// SPDX-License-Identifier: Apache-2.0
#ifndef BENCH_GPU_CHECK_CUH
#define BENCH_GPU_CHECK_CUH

#include "gpu_team.cuh"

#include <math.h>
#include <string.h>
#include <thread>

static const float bench_eps = 1e-6f;

// The largest error of rows first .. end - 1, in units of what the type's rounding allows.
template <typename T>
static double worst_error(const gpu_case *problem, const T *got, size_t first, size_t end)
{
    double unit = sizeof(T) == 2 ? 0x1p-8 : 1e-5, worst = 0;
    std::vector<double> x(problem->hidden);
    for (size_t token = first; token < end; token++) {
        double squares = 0;
        for (size_t h = 0; h < problem->hidden; h++) {
            size_t i = token * problem->hidden + h;
            x[h] = 0;
            for (int r = 0; r < problem->ranks; r++) {
                T value;
                tutti::from_float(&value, input_value(r, i));
                x[h] += (double)tutti::to_float(value);
            }
            squares += x[h] * x[h];
        }
        double scale = 1 / sqrt(squares / (double)problem->hidden + (double)bench_eps);
        for (size_t h = 0; h < problem->hidden; h++) {
            double y = x[h] * scale;
            double error = fabs((double)tutti::to_float(got[token * problem->hidden + h]) - y);
            double relative = error / (unit * fmax(1.0, fabs(y)));
            worst = relative <= worst ? worst : isnan(relative) ? INFINITY : relative;
        }
    }
    return worst;
}

template <typename T> static double worst_of_all(const gpu_case *problem, const char *got)
{
    size_t parts = std::max(1u, std::thread::hardware_concurrency());
    std::vector<double> worst(parts);
    std::vector<std::thread> threads;
    for (size_t part = 0; part < parts; part++) {
        threads.emplace_back([=, &worst] {
            worst[part] = worst_error<T>(problem, (const T *)got, problem->tokens * part / parts,
                                         problem->tokens * (part + 1) / parts);
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    return *std::max_element(worst.begin(), worst.end());
}

// Ends the program where a way is wrong.
static inline void check_way(gpu_team *t, const gpu_way *way)
{
    size_t bytes = t->problem.bytes();
    std::vector<char> first(bytes), other(bytes);
    wait_team(t);
    for (int r = 0; r < t->problem.ranks; r++) {
        CUDA(cudaSetDevice(t->device[r]));
        CUDA(cudaMemset(t->output(r, 0), 0xff, bytes)); // NaN
    }
    wait_team(t);
    way->run(t, 0);
    wait_team(t);
    for (int r = 0; r < t->problem.ranks; r++) {
        std::vector<char> &to = r == 0 ? first : other;
        CUDA(cudaSetDevice(t->device[r]));
        CUDA(cudaMemcpy(to.data(), t->output(r, 0), bytes, cudaMemcpyDeviceToHost));
        if (r > 0 && memcmp(first.data(), other.data(), bytes) != 0) {
            fprintf(stderr, "bench: %s: the outputs of ranks 0 and %d differ\n", way->name, r);
            exit(1);
        }
    }
    double worst = t->problem.is_bf16 ? worst_of_all<__nv_bfloat16>(&t->problem, first.data())
                                      : worst_of_all<float>(&t->problem, first.data());
    if (!(worst <= 1)) {
        fprintf(stderr, "bench: %s: an element is wrong by %g times what rounding allows\n",
                way->name, worst);
        exit(1);
    }
}

#endif
