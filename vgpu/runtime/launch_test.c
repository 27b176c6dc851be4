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

static void attributes_one_by_one(void)
{
    atomic_int count = 0;
    atomic_int *pointer = &count;
    void *arguments[] = {&pointer};
    cudaLaunchAttribute attribute;
    cudaEvent_t event;
    EXPECT_CUDA(cudaEventCreate(&event));
    memset(&attribute, 0, sizeof(attribute));
    cudaLaunchConfig_t config = {
        .gridDim = {1, 1, 1}, .blockDim = {8, 1, 1}, .attrs = &attribute, .numAttrs = 1};
    attribute.id = cudaLaunchAttributePriority; // hints
    attribute.val.priority = -100;
    EXPECT_CUDA(cudaLaunchKernelExC(&config, &adds_one, arguments));
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    EXPECT_CUDA(cudaLaunchKernelExC(&config, &adds_one, arguments));
    attribute.id = cudaLaunchAttributeClusterDimension; // of one block
    attribute.val.clusterDim.x = attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    EXPECT_CUDA(cudaLaunchKernelExC(&config, &adds_one, arguments));
    memset(&attribute, 0, sizeof(attribute));
    attribute.id = cudaLaunchAttributeLaunchCompletionEvent;
    attribute.val.launchCompletionEvent.event = event;
    EXPECT_CUDA(cudaLaunchKernelExC(&config, &adds_one, arguments));
    EXPECT_CUDA(cudaEventSynchronize(event));
    EXPECT_EQ(count, 32);
    memset(&attribute, 0, sizeof(attribute));
    attribute.id = (cudaLaunchAttributeID)99;
    EXPECT_EQ(cudaLaunchKernelExC(&config, &adds_one, arguments), cudaErrorInvalidValue);
    attribute.id = cudaLaunchAttributeDeviceUpdatableKernelNode;
    attribute.val.deviceUpdatableKernelNode.deviceUpdatable = 1;
    EXPECT_EQ(cudaLaunchKernelExC(&config, &adds_one, arguments), cudaErrorNotSupported);
    EXPECT_EQ(cudaLaunchCooperativeKernel(&adds_one, (dim3){100000, 1, 1}, (dim3){128, 1, 1},
                                          arguments, 0, 0),
              cudaErrorCooperativeLaunchTooLarge);
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(count, 32);
    EXPECT_CUDA(cudaEventDestroy(event));
    (void)cudaGetLastError();
}

static void what_kernels_and_streams_say(void)
{
    size_t bytes = 0;
    size_t offset = 0;
    int number = 0;
    const char *name = NULL;
    cudaFunction_t function = NULL;
    cudaLaunchConfig_t config = {.gridDim = {1, 1, 1}, .blockDim = {256, 1, 1}};
    EXPECT_CUDA(cudaSetDevice(4)); // where no attribute was set
    EXPECT_CUDA(cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, &fills_shared, 1, 256));
    EXPECT_EQ(bytes, 48 << 10);
    EXPECT_CUDA(cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, &fills_shared, 8, 256));
    EXPECT_EQ(bytes, 29184); // as an H200 says
    EXPECT_EQ(cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, &fills_shared, 32, 256),
              cudaErrorInvalidValue);
    EXPECT_CUDA(cudaOccupancyMaxActiveClusters(&number, &fills_shared, &config));
    EXPECT_EQ(number % 8, 0);
    EXPECT(number > 0);
    EXPECT_CUDA(cudaOccupancyMaxPotentialClusterSize(&number, &fills_shared, &config));
    EXPECT_EQ(number, 1);
    EXPECT_CUDA(cudaFuncGetName(&name, &receives));
    EXPECT_STR(name, "receives");
    EXPECT_CUDA(cudaFuncGetParamInfo(&receives, 3, &offset, &bytes));
    EXPECT(offset == 24 && bytes == 8); // behind 2, 8 at 8, 5 at 16
    EXPECT_EQ(cudaFuncGetParamInfo(&receives, 4, &offset, &bytes), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaGetFuncBySymbol(&function, &receives));
    EXPECT((const void *)function == (const void *)&receives);

    cudaStream_t stream, other;
    cudaLaunchAttributeValue value = {.priority = -2};
    EXPECT_CUDA(cudaStreamCreate(&stream));
    EXPECT_CUDA(cudaStreamCreate(&other));
    EXPECT_CUDA(cudaStreamSetAttribute(stream, cudaLaunchAttributePriority, &value));
    EXPECT_CUDA(cudaStreamCopyAttributes(other, stream));
    value.priority = 7;
    EXPECT_CUDA(cudaStreamGetAttribute(other, cudaLaunchAttributePriority, &value));
    EXPECT_EQ(value.priority, -2);
    EXPECT_EQ(cudaStreamGetAttribute(other, cudaLaunchAttributeCooperative, &value),
              cudaErrorInvalidValue);
    EXPECT_CUDA(cudaStreamDestroy(stream));
    EXPECT_CUDA(cudaStreamDestroy(other));
    EXPECT_CUDA(cudaSetDevice(0));
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
    RUN(attributes_one_by_one);
    RUN(what_kernels_and_streams_say);
    RUN(images_must_fit_the_device);
    return expect_result();
}
