// Launches: what is refused and with which error, arguments, attributes, occupancy, pushed
// launches, images. SPDX-License-Identifier: Apache-2.0
#include "expect.h"
#include "kernel_by_hand.h"

#include <stdatomic.h>
#include <string.h>

KERNEL(adds_one, atomic_int, 128)
{
    atomic_fetch_add(data, 1);
}

KERNEL(fills_shared, atomic_int, 0)
{
    char *memory = vgpu_dynamic_shared();
    memory[threadIdx.x] = 1;
    atomic_fetch_add(data, 1);
}

KERNEL(counts_threads, atomic_int, 0)
{
    atomic_fetch_add(data, 1);
}

static cudaError_t try_shape(dim3 grid, dim3 block)
{
    static atomic_int count;
    cudaError_t error = launch_by_hand(&counts_threads, grid, block, 0, 0, &count);
    EXPECT_EQ(cudaGetLastError(), error);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    return error;
}

static void shapes_are_checked(void)
{
    const cudaError_t wrong = cudaErrorInvalidConfiguration;
    EXPECT_EQ(try_shape((dim3){0, 1, 1}, (dim3){1, 1, 1}), wrong);
    EXPECT_EQ(try_shape((dim3){1, 0, 1}, (dim3){1, 1, 1}), wrong);
    EXPECT_EQ(try_shape((dim3){1, 1, 1}, (dim3){1, 1, 0}), wrong);
    EXPECT_EQ(try_shape((dim3){1, 65536, 1}, (dim3){1, 1, 1}), wrong);
    EXPECT_EQ(try_shape((dim3){1, 1, 65536}, (dim3){1, 1, 1}), wrong);
    EXPECT_EQ(try_shape((dim3){2147483648u, 1, 1}, (dim3){1, 1, 1}), wrong);
    EXPECT_EQ(try_shape((dim3){1, 1, 1}, (dim3){1025, 1, 1}), wrong);
    EXPECT_EQ(try_shape((dim3){1, 1, 1}, (dim3){1, 1, 65}), wrong);
    EXPECT_EQ(try_shape((dim3){1, 1, 1}, (dim3){65536, 65536, 1}), wrong);
    EXPECT_EQ(try_shape((dim3){1, 1, 1}, (dim3){32, 33, 1}), wrong);
    EXPECT_EQ(try_shape((dim3){1, 1, 1}, (dim3){1, 1, 64}), cudaSuccess);
    EXPECT_EQ(try_shape((dim3){2, 2, 2}, (dim3){32, 32, 1}), cudaSuccess);
    EXPECT_CUDA(cudaDeviceSynchronize());
}

static void bounds_and_functions_are_checked(void)
{
    atomic_int count = 0;
    int no_kernel = 0;
    EXPECT_EQ(LAUNCH(adds_one, 1, 129, 0, &count), cudaErrorInvalidConfiguration);
    EXPECT_CUDA(LAUNCH(adds_one, 2, 128, 0, &count));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(count, 256);
    EXPECT_EQ(cudaLaunchKernel(&no_kernel, (dim3){1, 1, 1}, (dim3){1, 1, 1}, NULL, 0, 0),
              cudaErrorInvalidDeviceFunction);
    EXPECT_EQ(cudaLaunchKernel(&adds_one, (dim3){1, 1, 1}, (dim3){1, 1, 1}, NULL, 0, 0),
              cudaErrorInvalidValue);
    cudaStream_t stream = NULL;
    EXPECT_CUDA(cudaSetDevice(1));
    EXPECT_CUDA(cudaStreamCreate(&stream));
    EXPECT_CUDA(cudaSetDevice(0));
    EXPECT_EQ(LAUNCH(adds_one, 1, 1, stream, &count), cudaErrorInvalidResourceHandle);
    EXPECT_CUDA(cudaStreamDestroy(stream));
    (void)cudaGetLastError();
}

static cudaError_t try_shared(size_t bytes)
{
    static atomic_int count;
    return launch_by_hand(&fills_shared, (dim3){1, 1, 1}, (dim3){64, 1, 1}, bytes, 0, &count);
}

static void shared_memory_is_checked(void)
{
    enum { DEFAULT = 48 << 10, OPTIN = 227 << 10 };
    struct cudaFuncAttributes attributes;
    EXPECT_CUDA(try_shared(DEFAULT));
    EXPECT_EQ(try_shared(DEFAULT + 1), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaFuncGetAttributes(&attributes, &fills_shared));
    EXPECT_EQ(attributes.maxDynamicSharedSizeBytes, DEFAULT);
    EXPECT_EQ(attributes.maxThreadsPerBlock, 1024);
    const enum cudaFuncAttribute most = cudaFuncAttributeMaxDynamicSharedMemorySize;
    EXPECT_EQ(cudaFuncSetAttribute(&fills_shared, most, OPTIN + 1), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaFuncSetAttribute(&fills_shared, most, OPTIN));
    EXPECT_CUDA(try_shared(OPTIN));
    EXPECT_EQ(try_shared(OPTIN + 1), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaFuncGetAttributes(&attributes, &fills_shared));
    EXPECT_EQ(attributes.maxDynamicSharedSizeBytes, OPTIN);
    EXPECT_CUDA(cudaSetDevice(3)); // the attribute is the device's
    EXPECT_EQ(try_shared(OPTIN), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaSetDevice(0));
    EXPECT_EQ(cudaFuncSetAttribute(&most, most, 0), cudaErrorInvalidDeviceFunction);
    EXPECT_CUDA(cudaDeviceSynchronize());
    (void)cudaGetLastError();
}

static int occupancy(const void *kernel, int threads, size_t shared)
{
    int blocks = -1;
    EXPECT_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared));
    return blocks;
}

static void occupancy_follows_the_limits(void)
{
    EXPECT_EQ(occupancy(&fills_shared, 1024, 0), 2);
    EXPECT_EQ(occupancy(&fills_shared, 256, 0), 8);
    EXPECT_EQ(occupancy(&fills_shared, 1, 0), 32);
    EXPECT_EQ(occupancy(&fills_shared, 33, 0), 32);
    EXPECT_EQ(occupancy(&fills_shared, 256, 100 << 10), 2);
    EXPECT_EQ(occupancy(&fills_shared, 1025, 0), 0);
    EXPECT_EQ(occupancy(&adds_one, 129, 0), 0);
    EXPECT_EQ(occupancy(&adds_one, 128, 0), 16);
    int blocks;
    EXPECT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, &adds_one, 0, 0),
              cudaErrorInvalidValue);
    (void)cudaGetLastError();
}

// ---- Arguments ----------------------------------------------------------------------------------

struct odd {
    char text[5];
};
struct received {
    double number;
    short small;
    void *pointer;
    struct odd odd;
};
static struct received received;

static void receive(void **arguments)
{
    received.small = *(short *)arguments[0];
    received.number = *(double *)arguments[1];
    received.odd = *(struct odd *)arguments[2];
    received.pointer = *(void **)arguments[3];
}

static const struct vgpu_kernel receives = {
    .function = &receives,
    .name = "receives",
    .invoke = receive,
    .parameter_count = 4,
    .parameter_bytes = (const uint32_t[]){2, 8, sizeof(struct odd), 8},
    .parameter_align = (const uint32_t[]){2, 8, 1, 8},
};

static void arguments_are_copied(void)
{
    short small = -7;
    double number = 2.5;
    struct odd odd = {"four"};
    void *pointer = &small;
    void *arguments[] = {&small, &number, &odd, &pointer};
    vgpu_register_kernel(&receives);
    vgpu_register_kernel(&receives);
    vgpu_push_launch((dim3){1, 1, 1}, (dim3){1, 1, 1}, 0, 0);
    vgpu_launch_pushed(&receives, arguments);
    small = 0;
    number = 0;
    memset(&odd, 0, sizeof(odd));
    EXPECT_CUDA(cudaGetLastError());
    vgpu_launch_pushed(&receives, arguments); // nothing is pushed any more
    EXPECT_EQ(cudaGetLastError(), cudaErrorMissingConfiguration);
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(received.small, -7);
    EXPECT(received.number == 2.5);
    EXPECT_STR(received.odd.text, "four");
    EXPECT(received.pointer == &small);
}

static void pushed_launches_nest_and_report(void)
{
    atomic_int count = 0;
    atomic_int *pointer = &count;
    void *arguments[] = {&pointer};
    vgpu_push_launch((dim3){1, 1, 1}, (dim3){2, 1, 1}, 0, 0);
    vgpu_push_launch((dim3){1, 1, 1}, (dim3){40, 1, 1}, 0, 0);
    vgpu_launch_pushed(&adds_one, arguments);
    vgpu_launch_pushed(&adds_one, arguments);
    vgpu_push_launch((dim3){1, 1, 1}, (dim3){4000, 1, 1}, 0, 0);
    vgpu_launch_pushed(&adds_one, arguments);
    EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidConfiguration);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
    EXPECT_CUDA(cudaGetLastError());
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(count, 42);
}

static void configurations_with_attributes(void)
{
    atomic_int count = 0;
    atomic_int *pointer = &count;
    void *arguments[] = {&pointer};
    cudaLaunchAttribute attribute[2];
    memset(attribute, 0, sizeof(attribute));
    attribute[0].id = cudaLaunchAttributeCooperative;
    attribute[0].val.cooperative = 1;
    attribute[1].id = cudaLaunchAttributeClusterDimension;
    attribute[1].val.clusterDim.x = 2;
    attribute[1].val.clusterDim.y = 1;
    attribute[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {
        .gridDim = {4, 1, 1}, .blockDim = {8, 1, 1}, .attrs = attribute, .numAttrs = 1};
    EXPECT_CUDA(cudaLaunchKernelExC(&config, &adds_one, arguments));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(count, 32);
    config.numAttrs = 2;
    EXPECT_EQ(cudaLaunchKernelExC(&config, &adds_one, arguments), cudaErrorNotSupported);
    EXPECT_EQ(cudaLaunchKernelExC(NULL, &adds_one, arguments), cudaErrorInvalidValue);
    (void)cudaGetLastError();
}

// ---- Images -------------------------------------------------------------------------------------

static struct vgpu_target targets[2];
static struct vgpu_image image = {"images.cu", 0, 2, targets};
static void do_nothing(void **arguments)
{
    (void)arguments;
}
static const struct vgpu_kernel with_image = {
    .function = &with_image, .name = "with_image", .invoke = do_nothing, .image = &image};

static cudaError_t try_image(int compiled, struct vgpu_target a, struct vgpu_target b)
{
    targets[0] = a;
    targets[1] = b;
    image.compiled_arch = compiled;
    cudaError_t error = cudaLaunchKernel(&with_image, (dim3){1, 1, 1}, (dim3){1, 1, 1}, NULL, 0, 0);
    EXPECT_EQ(cudaGetLastError(), error);
    return error;
}

static void images_must_fit_the_device(void) // compute capability 9.0
{
    const cudaError_t misfit = cudaErrorNoKernelImageForDevice;
    const struct vgpu_target sm80 = {80, false};
    const struct vgpu_target sm90 = {90, false};
    const struct vgpu_target compute80 = {80, true};
    const struct vgpu_target sm100 = {100, false};
    vgpu_register_kernel(&with_image);
    EXPECT_CUDA(try_image(90, sm80, sm90));
    EXPECT_CUDA(try_image(80, sm100, compute80));
    EXPECT_EQ(try_image(80, sm80, sm100), misfit);
    EXPECT_EQ(try_image(100, sm80, sm100), misfit);
    EXPECT_EQ(try_image(0, sm80, sm100), misfit);
    EXPECT_CUDA(cudaDeviceSynchronize());
}

int main(void)
{
    RUN(shapes_are_checked);
    RUN(bounds_and_functions_are_checked);
    RUN(shared_memory_is_checked);
    RUN(occupancy_follows_the_limits);
    RUN(arguments_are_copied);
    RUN(pushed_launches_nest_and_report);
    RUN(configurations_with_attributes);
    RUN(images_must_fit_the_device);
    return expect_result();
}
