// SPDX-License-Identifier: Apache-2.0
// The network that lessons 12 to 16 split over ranks: two layers, trained by Adam on made-up data.
//
//     hidden = relu(x up^T)       x [tokens x INPUTS], up [HIDDEN x INPUTS],
//                                 hidden [tokens x HIDDEN]
//     y = hidden down^T           down [OUTPUTS x HIDDEN], y [tokens x OUTPUTS]
//     loss = 1 / TOKENS * sum over all tokens of the sum of (y - target)^2 / 2
//
// One thread computes one element and adds up in a fixed order, so a run gives the same bits
// always. Adam: D. Kingma, J. Ba, "Adam: A Method for Stochastic Optimization", 2015.
//
// All work of a rank is in its stream, which waits for no other. What CUDA does without a stream,
// and cudaFree, wait for all of a GPU: where ranks share one, also for ranks that wait for this
// one.
#ifndef EXAMPLES_COMMON_NETWORK_CUH
#define EXAMPLES_COMMON_NETWORK_CUH

#include "lesson.h"

#include <cuda_runtime.h>
#include <math.h>
#include <nccl.h>
#include <string.h>

enum { INPUTS = 16, HIDDEN = 64, OUTPUTS = 8, TOKENS = 24, STEPS = 5 };
// Elements. All weights lie in one flat buffer: up, then down.
enum { UP = HIDDEN * INPUTS, DOWN = OUTPUTS * HIDDEN, WEIGHTS = UP + DOWN };

// ---- Numbers ------------------------------------------------------------------------------------

// A number in [-1, 1) that looks random, and is the same everywhere.
static inline float made_up(unsigned stream, size_t index)
{
    unsigned x = (unsigned)index * 2654435761u + stream * 40503u + 12345u;
    x = (x ^ (x >> 15)) * 2246822519u;
    x = (x ^ (x >> 13)) * 3266489917u;
    return (float)((x ^ (x >> 16)) >> 8) / 8388608.0f - 1.0f;
}

static inline float input_element(size_t token, size_t i)
{
    return made_up(1, token * INPUTS + i);
}

static inline float target_element(size_t token, size_t i)
{
    return made_up(2, token * OUTPUTS + i);
}

// Of the flat buffer.
static inline float initial_weight(size_t i)
{
    return made_up(3, i) / (i < UP ? 4.0f : 8.0f);
}

// ---- Kernels: one thread for each element of the result -----------------------------------------

// A matrix product of rows and columns results, each a sum of `inner` products.
struct product {
    size_t rows, columns, inner;
};

static __device__ inline size_t element_index()
{
    return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}

// y[rows x columns] = x[rows x inner] * w[columns x inner]^T: a layer forward.
static __global__ void forward_kernel(float *y, const float *x, const float *w, struct product p)
{
    size_t i = element_index();
    if (i < p.rows * p.columns) {
        float sum = 0;
        for (size_t k = 0; k < p.inner; k++) {
            sum += x[i / p.columns * p.inner + k] * w[i % p.columns * p.inner + k];
        }
        y[i] = sum;
    }
}

// dx[rows x columns] = dy[rows x inner] * w[inner x columns]: its gradient by the input.
static __global__ void input_kernel(float *dx, const float *dy, const float *w, struct product p)
{
    size_t i = element_index();
    if (i < p.rows * p.columns) {
        float sum = 0;
        for (size_t k = 0; k < p.inner; k++) {
            sum += dy[i / p.columns * p.inner + k] * w[k * p.columns + i % p.columns];
        }
        dx[i] = sum;
    }
}

// dw[rows x columns] += dy[inner x rows]^T * x[inner x columns]: and by the weights.
static __global__ void weight_kernel(float *dw, const float *dy, const float *x, struct product p)
{
    size_t i = element_index();
    if (i < p.rows * p.columns) {
        float sum = 0;
        for (size_t k = 0; k < p.inner; k++) {
            sum += dy[k * p.rows + i / p.columns] * x[k * p.columns + i % p.columns];
        }
        dw[i] += sum;
    }
}

static __global__ void relu_kernel(float *x, size_t n)
{
    size_t i = element_index();
    if (i < n && x[i] < 0) {
        x[i] = 0;
    }
}

// dx: the gradient by relu's result, in place that by its input. result: of relu.
static __global__ void relu_gradient_kernel(float *dx, const float *result, size_t n)
{
    size_t i = element_index();
    if (i < n && result[i] <= 0) {
        dx[i] = 0;
    }
}

// dy = (y - target) / TOKENS, the gradient of the loss. One thread adds up the loss.
static __global__ void loss_kernel(float *dy, double *loss, const float *y, const float *target,
                                   size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float error = y[i] - target[i];
        dy[i] = error / TOKENS;
        *loss += 0.5 * (double)error * (double)error / TOKENS;
    }
}

// Adam's step number `step` (1, 2, ...). mean, square: its state, zeros before the first.
struct adam {
    float *weight, *mean, *square;
    const float *gradient;
    int step;
};

static __global__ void adam_kernel(struct adam a, size_t n)
{
    const float rate = 0.01f, keep_mean = 0.9f, keep_square = 0.99f;
    size_t i = element_index();
    if (i < n) {
        float g = a.gradient[i], left_mean = 1, left_square = 1;
        for (int step = 0; step < a.step; step++) {
            left_mean *= keep_mean;
            left_square *= keep_square;
        }
        a.mean[i] = keep_mean * a.mean[i] + (1 - keep_mean) * g;
        a.square[i] = keep_square * a.square[i] + (1 - keep_square) * g * g;
        a.weight[i] -=
            rate * (a.mean[i] / (1 - left_mean)) / (sqrtf(a.square[i] / (1 - left_square)) + 1e-8f);
    }
}

// ---- The same, launched -------------------------------------------------------------------------

static inline unsigned blocks_of(size_t elements)
{
    return (unsigned)((elements + 127) / 128);
}

// y[tokens x out] = x[tokens x in] * w[out x in]^T
static inline void layer_forward(float *y, const float *x, const float *w, size_t tokens,
                                 size_t out, size_t in, cudaStream_t stream)
{
    if (tokens * out > 0) {
        struct product p = {tokens, out, in};
        forward_kernel<<<blocks_of(tokens * out), 128, 0, stream>>>(y, x, w, p);
        CHECK_CUDA(cudaGetLastError());
    }
}

// dx[tokens x in] = dy[tokens x out] * w[out x in]
static inline void layer_input_gradient(float *dx, const float *dy, const float *w, size_t tokens,
                                        size_t out, size_t in, cudaStream_t stream)
{
    if (tokens * in > 0) {
        struct product p = {tokens, in, out};
        input_kernel<<<blocks_of(tokens * in), 128, 0, stream>>>(dx, dy, w, p);
        CHECK_CUDA(cudaGetLastError());
    }
}

// dw[out x in] += dy[tokens x out]^T * x[tokens x in]
static inline void layer_weight_gradient(float *dw, const float *dy, const float *x, size_t tokens,
                                         size_t out, size_t in, cudaStream_t stream)
{
    if (out * in > 0) {
        struct product p = {out, in, tokens};
        weight_kernel<<<blocks_of(out * in), 128, 0, stream>>>(dw, dy, x, p);
        CHECK_CUDA(cudaGetLastError());
    }
}

static inline void relu_forward(float *x, size_t n, cudaStream_t stream)
{
    if (n > 0) {
        relu_kernel<<<blocks_of(n), 128, 0, stream>>>(x, n);
        CHECK_CUDA(cudaGetLastError());
    }
}

static inline void relu_backward(float *dx, const float *result, size_t n, cudaStream_t stream)
{
    if (n > 0) {
        relu_gradient_kernel<<<blocks_of(n), 128, 0, stream>>>(dx, result, n);
        CHECK_CUDA(cudaGetLastError());
    }
}

// dy[n] receives the gradient; *loss (device memory) is added to.
static inline void loss_backward(float *dy, double *loss, const float *y, const float *target,
                                 size_t n, cudaStream_t stream)
{
    loss_kernel<<<1, 1, 0, stream>>>(dy, loss, y, target, n);
    CHECK_CUDA(cudaGetLastError());
}

static inline void adam_step(struct adam a, size_t n, cudaStream_t stream)
{
    if (n > 0) {
        adam_kernel<<<blocks_of(n), 128, 0, stream>>>(a, n);
        CHECK_CUDA(cudaGetLastError());
    }
}

// ---- Memory -------------------------------------------------------------------------------------

// Device memory for n floats (at least one), all 0. Waits.
static inline float *device_zeros(size_t n)
{
    float *memory = NULL;
    CHECK_CUDA(cudaMalloc((void **)&memory, (n > 0 ? n : 1) * sizeof(float)));
    CHECK_CUDA(cudaMemset(memory, 0, (n > 0 ? n : 1) * sizeof(float)));
    CHECK_CUDA(cudaStreamSynchronize(NULL)); // of ranks without a stream: nobody waits in it
    return memory;
}

// Frees device memory when the stream has come so far.
static inline void device_free(void *const *memory, size_t count, cudaStream_t stream)
{
    for (size_t i = 0; i < count; i++) {
        CHECK_CUDA(cudaFreeAsync(memory[i], stream));
    }
}

// Copies when the stream has come so far, and waits.
static inline void copy_to_host(void *host, const void *device, size_t bytes, cudaStream_t stream)
{
    CHECK_CUDA(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
}

static inline void copy_to_device(void *device, const void *host, size_t bytes, cudaStream_t stream)
{
    CHECK_CUDA(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
}

// Device memory with element(first), element(first + 1), ...
typedef float (*element_function)(size_t first, size_t i);
static inline float *device_matrix(element_function element, size_t first_row, size_t rows,
                                   size_t columns)
{
    float *memory = device_zeros(rows * columns);
    float *host = (float *)malloc((rows * columns + 1) * sizeof(float));
    for (size_t i = 0; i < rows * columns; i++) {
        host[i] = element(first_row + i / columns, i % columns);
    }
    CHECK_CUDA(cudaMemcpy(memory, host, rows * columns * sizeof(float), cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaStreamSynchronize(NULL));
    free(host);
    return memory;
}

// The largest difference between device memory and n right values, NaN where one is NaN. Waits.
static inline double largest_difference(const float *device, const float *right, size_t n,
                                        cudaStream_t stream)
{
    float *host = (float *)malloc((n + 1) * sizeof(float));
    double largest = 0;
    copy_to_host(host, device, n * sizeof(float), stream);
    for (size_t i = 0; i < n; i++) {
        double difference = fabs((double)host[i] - (double)right[i]);
        largest = difference > largest || isnan(difference) ? difference : largest;
    }
    free(host);
    return largest;
}

// ---- Losses -------------------------------------------------------------------------------------

// Prints on rank 0: a name, the losses of all steps.
static inline void print_losses(const struct lesson_rank *self, const char *name,
                                const double *losses)
{
    lesson_say(self, "%-12s", name);
    for (int step = 0; step < STEPS; step++) {
        lesson_say(self, "  %8.5f", losses[step]);
    }
    lesson_say(self, "\n");
}

// Within what the order of additions can change; false for a NaN.
static inline bool same_losses(const double *a, const double *b)
{
    bool same = true;
    for (int step = 0; step < STEPS; step++) {
        same = same && fabs(a[step] - b[step]) <= 1e-5;
    }
    return same;
}

// ---- The ranks' communicator --------------------------------------------------------------------

struct team {
    ncclComm_t comm;
    cudaStream_t stream;
};

static inline struct team team_begin(const struct lesson_rank *self)
{
    struct team team;
    ncclUniqueId id;
    CHECK_CUDA(cudaSetDevice(self->device));
    if (self->rank == 0) {
        CHECK_NCCL(ncclGetUniqueId(&id));
    }
    lesson_broadcast(self, &id, sizeof id);
    CHECK_NCCL(ncclCommInitRank(&team.comm, self->ranks, id, self->rank));
    CHECK_CUDA(cudaStreamCreateWithFlags(&team.stream, cudaStreamNonBlocking));
    return team;
}

static inline void team_end(struct team team)
{
    CHECK_CUDA(cudaStreamDestroy(team.stream));
    CHECK_NCCL(ncclCommDestroy(team.comm));
}

// ---- One rank alone -----------------------------------------------------------------------------

// What all ways of splitting must arrive at.
struct outcome {
    float weights[WEIGHTS];
    double losses[STEPS];              // of each step, before its update
    float x_gradient[TOKENS * INPUTS]; // of the last step: what a layer below would need
};

// Trains with the whole batch on one GPU, without a word to anybody.
static inline void train_alone(struct outcome *outcome, cudaStream_t s)
{
    float *weights = device_zeros(WEIGHTS), *gradients = device_zeros(WEIGHTS);
    float *mean = device_zeros(WEIGHTS), *square = device_zeros(WEIGHTS);
    float *x = device_matrix(input_element, 0, TOKENS, INPUTS);
    float *target = device_matrix(target_element, 0, TOKENS, OUTPUTS);
    float *hidden = device_zeros(TOKENS * HIDDEN), *hidden_gradient = device_zeros(TOKENS * HIDDEN);
    float *y = device_zeros(TOKENS * OUTPUTS), *y_gradient = device_zeros(TOKENS * OUTPUTS);
    float *x_gradient = device_zeros(TOKENS * INPUTS);
    double *loss = (double *)device_zeros(2 * STEPS);
    for (size_t i = 0; i < WEIGHTS; i++) {
        outcome->weights[i] = initial_weight(i);
    }
    copy_to_device(weights, outcome->weights, sizeof outcome->weights, s);
    for (int step = 0; step < STEPS; step++) {
        CHECK_CUDA(cudaMemsetAsync(gradients, 0, WEIGHTS * sizeof(float), s));
        layer_forward(hidden, x, weights, TOKENS, HIDDEN, INPUTS, s);
        relu_forward(hidden, TOKENS * HIDDEN, s);
        layer_forward(y, hidden, weights + UP, TOKENS, OUTPUTS, HIDDEN, s);
        loss_backward(y_gradient, loss + step, y, target, TOKENS * OUTPUTS, s);
        layer_weight_gradient(gradients + UP, y_gradient, hidden, TOKENS, OUTPUTS, HIDDEN, s);
        layer_input_gradient(hidden_gradient, y_gradient, weights + UP, TOKENS, OUTPUTS, HIDDEN, s);
        relu_backward(hidden_gradient, hidden, TOKENS * HIDDEN, s);
        layer_weight_gradient(gradients, hidden_gradient, x, TOKENS, HIDDEN, INPUTS, s);
        layer_input_gradient(x_gradient, hidden_gradient, weights, TOKENS, HIDDEN, INPUTS, s);
        struct adam adam = {weights, mean, square, gradients, step + 1};
        adam_step(adam, WEIGHTS, s);
    }
    copy_to_host(outcome->x_gradient, x_gradient, sizeof outcome->x_gradient, s);
    copy_to_host(outcome->weights, weights, sizeof outcome->weights, s);
    copy_to_host(outcome->losses, loss, sizeof outcome->losses, s);
    void *const all[] = {weights, gradients, mean,       square,     x,    target,
                         hidden,  y,         y_gradient, x_gradient, loss, hidden_gradient};
    device_free(all, sizeof all / sizeof all[0], s);
}

#endif
