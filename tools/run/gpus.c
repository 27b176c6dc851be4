// GPUs of a task alone: the r-th task gets the r-th K of those that tutti-run sees. See run.h.
// SPDX-License-Identifier: Apache-2.0
#include "run.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vgpu/limit.h>

#pragma weak vgpuPhysicalDevice // exists on virtual GPUs

enum { UUID_BYTES = 48 };

static struct {
    int count;                    // of a task; 0: everybody sees all
    uint64_t sets[RUN_TASKS_MAX]; // virtual ones: numbers of the machine
    char (*uuids)[UUID_BYTES];    // real ones: [tasks * count]
} gpus;

static bool read_uuid(int device, char text[UUID_BYTES])
{
    struct cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
        return false;
    }
    const unsigned char *u = (const unsigned char *)&properties.uuid;
    (void)snprintf(text, UUID_BYTES,
                   "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0],
                   u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13],
                   u[14], u[15]);
    return true;
}

static bool assign(int device)
{
    int task = device / gpus.count;
    if (vgpuPhysicalDevice == NULL) {
        return read_uuid(device, gpus.uuids[device]);
    }
    int physical = vgpuPhysicalDevice(device);
    if (physical < 0 || physical >= VGPU_LIMIT_DEVICES) {
        return false;
    }
    gpus.sets[task] |= UINT64_C(1) << physical;
    return true;
}

bool run_gpus_share(const struct run_options *options)
{
    int there = 0;
    gpus.count = options->gpus_per_task;
    if (gpus.count == 0) {
        return true;
    }
    cudaError_t error = cudaGetDeviceCount(&there);
    int wanted = gpus.count * options->tasks;
    if (error != cudaSuccess || wanted > there) {
        run_tell("%d processes with %d GPU%s each need %d; there are %d here%s%s", options->tasks,
                 gpus.count, gpus.count == 1 ? "" : "s", wanted, there,
                 error != cudaSuccess ? ": " : "",
                 error != cudaSuccess ? cudaGetErrorString(error) : "");
        return false;
    }
    gpus.uuids = calloc((size_t)wanted, sizeof *gpus.uuids);
    for (int device = 0; device < wanted; device++) {
        if (gpus.uuids == NULL || !assign(device)) {
            run_tell("GPU %d cannot be given to a process", device);
            return false;
        }
    }
    return true;
}

bool run_gpus_limit(int task)
{
    if (gpus.count == 0 || vgpuPhysicalDevice == NULL) {
        return true;
    }
    int error = vgpuLimitDevices(gpus.sets[task]);
    if (error != 0) {
        (void)dprintf(2, "tutti-run: the GPUs of rank %d cannot be made its only ones: %s\n", task,
                      strerror(error));
    }
    return error == 0;
}

const char *run_gpus_word(int task, char *text, size_t bytes)
{
    if (gpus.count == 0) {
        return NULL;
    }
    if (vgpuPhysicalDevice != NULL) {
        return ""; // what it sees is what it may use
    }
    size_t used = (size_t)snprintf(text, bytes, "CUDA_VISIBLE_DEVICES=");
    for (int i = 0; i < gpus.count && used < bytes; i++) {
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", i > 0 ? "," : "",
                                 gpus.uuids[task * gpus.count + i]);
    }
    return text;
}
