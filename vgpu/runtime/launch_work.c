// Launches as graphs' work: a launch that is never enqueued itself; every run of the graph enqueues
// a clone. Kernels' parameters, there and back. SPDX-License-Identifier: Apache-2.0
#include "counts.h"
#include "error.h"
#include "graph.h"
#include "launch.h"

#include "vgpu/stats.h"

#include <stdio.h>
#include <stdlib.h>

struct launch_work {
    struct vgpu_work work; // first
    struct vgpu_launch *launch;
};

static struct vgpu_operation *prepare(const struct vgpu_work *work)
{
    struct vgpu_launch *clone = vgpu_launch_clone(((const struct launch_work *)work)->launch);
    if (clone && !clone->task && vgpu_counting) {
        vgpu_count_launch(clone);
    }
    if (clone && clone->native_launched) {
        clone->native_launched(clone->arguments[0]);
    }
    return clone ? &clone->operation : NULL;
}

static struct vgpu_work *copy(const struct vgpu_work *work)
{
    struct vgpu_launch *clone = vgpu_launch_clone(((const struct launch_work *)work)->launch);
    return clone ? vgpu_launch_work(clone) : NULL;
}

static void destroy(struct vgpu_work *work)
{
    vgpu_operation_release(&((struct launch_work *)work)->launch->operation);
    free(work);
}

static void describe(const struct vgpu_work *work, char *text, size_t text_bytes)
{
    const struct vgpu_launch *launch = ((const struct launch_work *)work)->launch;
    if (launch->task) {
        (void)snprintf(text, text_bytes, "%s", launch->name);
        return;
    }
    (void)snprintf(text, text_bytes, "%s <<<(%u,%u,%u), (%u,%u,%u), %zu>>>", launch->name,
                   launch->grid.x, launch->grid.y, launch->grid.z, launch->block.x, launch->block.y,
                   launch->block.z, launch->shared_bytes);
}

static const struct vgpu_work_kind launch_kind = {
    .prepare = prepare, .copy = copy, .destroy = destroy, .describe = describe};

struct vgpu_work *vgpu_launch_work(struct vgpu_launch *launch)
{
    struct launch_work *made = malloc(sizeof(*made));
    if (!made) {
        vgpu_operation_release(&launch->operation);
        return NULL;
    }
    made->work.kind = &launch_kind;
    made->work.type = launch->node_type;
    made->work.device = launch->operation.device;
    made->launch = launch;
    return &made->work;
}

struct vgpu_launch *vgpu_work_launch(const struct vgpu_work *work)
{
    return ((const struct launch_work *)work)->launch;
}

// The last error under another number.
static cudaError_t reword(const char *function, cudaError_t error)
{
    char text[400];
    (void)snprintf(text, sizeof(text), "%s", vgpu_last_error_text());
    return vgpu_fail(error, "%s: %s", function, text);
}

cudaError_t vgpu_kernel_work(const char *function, struct vgpu_device *device,
                             const struct cudaKernelNodeParams *parameters,
                             struct vgpu_work **work_out)
{
    cudaError_t error = vgpu_device_ready(device);
    if (error != cudaSuccess) {
        return error;
    }
    if (!parameters) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: the parameters are NULL", function);
    }
    if (parameters->extra && !parameters->kernelParams) {
        return vgpu_fail(cudaErrorNotSupported,
                         "%s: arguments in `extra`; pass them in kernelParams", function);
    }
    struct vgpu_shape shape = {parameters->gridDim, parameters->blockDim,
                               parameters->sharedMemBytes, false};
    struct vgpu_launch *launch = NULL;
    error =
        vgpu_kernel_launch_new(device, parameters->func, &shape, parameters->kernelParams, &launch);
    if (error != cudaSuccess) {
        // A launch has other numbers for these than a node.
        return error == cudaErrorInvalidConfiguration ? reword(function, cudaErrorInvalidValue)
               : error == cudaErrorInvalidDeviceFunction
                   ? reword(function, cudaErrorInvalidResourceHandle)
                   : error;
    }
    *work_out = vgpu_launch_work(launch);
    return *work_out ? cudaSuccess
                     : vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory", function);
}
