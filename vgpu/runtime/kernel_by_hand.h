// Kernels written by hand, for tests in C: what tutticc makes of a __global__ function of one
// pointer.
//   KERNEL(adds, struct numbers, 0) { data->sum += 1; }       // data: the pointer
//   EXPECT_CUDA(LAUNCH(adds, 4, 256, stream, &numbers));
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_KERNEL_BY_HAND_H
#define VGPU_RUNTIME_KERNEL_BY_HAND_H

#include "cuda_runtime_api.h"
#include "vgpu/device_runtime.h"

static const uint32_t KERNEL_POINTER_BYTES[] = {sizeof(void *)};

#define KERNEL(name_, type, max_threads_)                                                          \
    static void name_##_body(type *data);                                                          \
    static void name_##_invoke(void **arguments)                                                   \
    {                                                                                              \
        name_##_body(*(type **)arguments[0]);                                                      \
    }                                                                                              \
    static const struct vgpu_kernel name_ = {                                                      \
        .function = &name_,                                                                        \
        .name = #name_,                                                                            \
        .invoke = name_##_invoke,                                                                  \
        .parameter_count = 1,                                                                      \
        .parameter_bytes = KERNEL_POINTER_BYTES,                                                   \
        .parameter_align = KERNEL_POINTER_BYTES,                                                   \
        .max_threads = max_threads_,                                                               \
        .file = __FILE__,                                                                          \
        .line = __LINE__,                                                                          \
    };                                                                                             \
    __attribute__((constructor)) static void name_##_register(void)                                \
    {                                                                                              \
        vgpu_register_kernel(&name_);                                                              \
    }                                                                                              \
    static void name_##_body(type *data)

// One-dimensional launch with `shared` bytes of dynamic shared memory.
static inline cudaError_t launch_by_hand(const struct vgpu_kernel *kernel, dim3 grid, dim3 block,
                                         size_t shared, cudaStream_t stream, void *data)
{
    void *arguments[] = {&data};
    return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}
#define LAUNCH(kernel, blocks, threads, stream, data)                                              \
    launch_by_hand(&(kernel), (dim3){(unsigned)(blocks), 1, 1}, (dim3){(unsigned)(threads), 1, 1}, \
                   0, stream, data)

#endif
