// See gpu.h. SPDX-License-Identifier: Apache-2.0
#include "base/gpu.h"

#include <cuda_runtime.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <vgpu/limit.h>

#pragma weak vgpuPhysicalDevice // exists on virtual GPUs

enum { MOST_DEVICES = 64 };

enum known { UNKNOWN, IN_MAKING, KNOWN };
static struct tt_gpu gpus[MOST_DEVICES]; // constant once known
static _Atomic(enum known) known[MOST_DEVICES];

static void write_uuid(const unsigned char *uuid, char *text, size_t bytes)
{
    int used = snprintf(text, bytes, "GPU-");
    for (int i = 0; i < 16; i++) {
        used += snprintf(text + used, bytes - (size_t)used, "%s%02x",
                         i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
    }
}

struct tt_gpu_name tt_gpu_name(int device, int physical, const unsigned char uuid[16])
{
    struct tt_gpu_name name;
    if (physical >= 0) {
        (void)snprintf(name.text, sizeof name.text, "GPU %d (physical %d)", device, physical);
    } else {
        (void)snprintf(name.text, sizeof name.text, "GPU %d (GPU-%02x%02x%02x%02x)", device,
                       uuid[0], uuid[1], uuid[2], uuid[3]);
    }
    return name;
}

// False where CUDA says that it is no device, or cannot be asked now; its last error is what it
// was, or none.
static bool ask(int device, struct tt_gpu *gpu)
{
    struct cudaDeviceProp properties;
    memset(gpu, 0, sizeof *gpu);
    gpu->physical = -1;
    (void)snprintf(gpu->name, sizeof gpu->name, "GPU %d", device);
    if (cudaGetDeviceProperties(&properties, device) != cudaSuccess ||
        cudaDeviceGetPCIBusId(gpu->pci, sizeof gpu->pci, device) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    memcpy(gpu->uuid_bytes, &properties.uuid, sizeof gpu->uuid_bytes);
    write_uuid(gpu->uuid_bytes, gpu->uuid, sizeof gpu->uuid);
    if (vgpuPhysicalDevice != NULL) {
        gpu->physical = vgpuPhysicalDevice(device);
    }
    struct tt_gpu_name name = tt_gpu_name(device, gpu->physical, gpu->uuid_bytes);
    memcpy(gpu->name, name.text, sizeof gpu->name);
    return true;
}

const struct tt_gpu *tt_gpu(int device)
{
    static _Thread_local struct tt_gpu unknown;
    if (device < 0 || device >= MOST_DEVICES) {
        (void)ask(device, &unknown);
        return &unknown;
    }
    if (atomic_load(&known[device]) != KNOWN) {
        enum known expected = UNKNOWN;
        if (!ask(device, &unknown) ||
            !atomic_compare_exchange_strong(&known[device], &expected, IN_MAKING)) {
            return &unknown;
        }
        gpus[device] = unknown;
        atomic_store(&known[device], KNOWN);
    }
    return &gpus[device];
}

int tt_gpu_find(const unsigned char uuid[16])
{
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) {
        (void)cudaGetLastError();
        return -1;
    }
    for (int device = 0; device < count; device++) {
        const struct tt_gpu *gpu = tt_gpu(device);
        if (gpu->uuid[0] != 0 && memcmp(gpu->uuid_bytes, uuid, sizeof gpu->uuid_bytes) == 0) {
            return device;
        }
    }
    return -1;
}
