// What devices answer to questions: cudaDeviceProp and all attributes of CUDA 13.
//
// One table of attribute values, a column per generation (9.0 and later, before), and a few that
// come from the device; the property structure is filled from the same source, so both agree.
// SPDX-License-Identifier: Apache-2.0
#include "properties.h"

#include "cuda_runtime_api.h"
#include "error.h"

#include <string.h>

struct fact {
    int attribute; // CUdevice_attribute; the runtime's numbers are the same
    int hopper;    // compute capability 9.0 and later
    int ampere;    // before
};

static const struct fact FACTS[] = {
    // threads and grids
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 0x7fffffff, 0x7fffffff},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535, 65535},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048, 2048},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536, 65536},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536, 65536},
    // shared memory and caches
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152, 49152},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448, 166912},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472, 167936},
    {111 /* reserved shared memory a block */, 1024, 1024},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536, 65536},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 50 << 20, 40 << 20},
    {CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE, 31 << 20, 30 << 20},
    {CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE, 128 << 20, 128 << 20},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1, 1},
    {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1, 1},
    // clocks and buses
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000, 1410000},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 2619000, 1593000},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 5120, 5120},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3, 3},
    {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1, 1},
    {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 1, 1},
    {CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2, 2},
    // memory
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 0x7fffffff, 0x7fffffff},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1, 1},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1, 1},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1, 1},
    {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 1, 1},
    {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, 1, 1},
    {CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST, 1, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, 1, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1, 1},
    {CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1, 1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, 1, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1, 1},
    {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 1, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1, 1},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 1, 1},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 1, 1},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING,
     CU_GPU_DIRECT_RDMA_WRITES_ORDERING_ALL_DEVICES,
     CU_GPU_DIRECT_RDMA_WRITES_ORDERING_ALL_DEVICES},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS,
     CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST},
    {CU_DEVICE_ATTRIBUTE_NUMA_ID, -1, -1},
    // execution
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1, 1},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1, 1},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1, 1},
    {CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, 4, 1},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS, 1, 1},
    // textures and surfaces: what the generation says; there are no texture functions
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512, 512},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32, 32},
    {CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512, 512},
};
enum { FACT_COUNT = sizeof(FACTS) / sizeof(FACTS[0]) };

static int pci_device_id(const struct vgpu_device_info *info)
{
    return info->major >= 9 ? 0x233010de : 0x20b210de;
}

bool vgpu_attribute(const struct vgpu_device *device, int attribute, int *value)
{
    const struct vgpu_device_info *info = &device->info;
    if (attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) {
        return false;
    }
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = info->major;
        return true;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = info->minor;
        return true;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = info->multiprocessors;
        return true;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        *value = info->pci_bus;
        return true;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
        *value = info->pci_device;
        return true;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
        *value = info->pci_domain;
        return true;
    case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
        *value = info->multicast;
        return true;
    case CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID:
        *value = info->physical;
        return true;
    case CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID:
        *value = pci_device_id(info);
        return true;
    default:
        break;
    }
    *value = 0; // whatever is in no table is not there
    for (int i = 0; i < FACT_COUNT; i++) {
        if (FACTS[i].attribute == attribute) {
            *value = info->major >= 9 ? FACTS[i].hopper : FACTS[i].ampere;
        }
    }
    return true;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    struct vgpu_device *found = NULL;
    if (!value) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaDeviceGetAttribute: value is NULL");
    }
    cudaError_t error = vgpu_device_get("cudaDeviceGetAttribute", device, &found);
    if (error == cudaSuccess && !vgpu_attribute(found, (int)attribute, value)) {
        error = vgpu_fail(cudaErrorInvalidValue, "cudaDeviceGetAttribute: no attribute %d",
                          (int)attribute);
    }
    return error;
}

static int attribute_of(const struct vgpu_device *device, int attribute)
{
    int value = 0;
    (void)vgpu_attribute(device, attribute, &value);
    return value;
}

static void fill_limits(struct cudaDeviceProp *p, const struct vgpu_device *d)
{
    p->sharedMemPerBlock = (size_t)attribute_of(d, cudaDevAttrMaxSharedMemoryPerBlock);
    p->sharedMemPerBlockOptin = (size_t)attribute_of(d, cudaDevAttrMaxSharedMemoryPerBlockOptin);
    p->sharedMemPerMultiprocessor =
        (size_t)attribute_of(d, cudaDevAttrMaxSharedMemoryPerMultiprocessor);
    p->reservedSharedMemPerBlock = (size_t)attribute_of(d, cudaDevAttrReservedSharedMemoryPerBlock);
    p->regsPerBlock = attribute_of(d, cudaDevAttrMaxRegistersPerBlock);
    p->regsPerMultiprocessor = attribute_of(d, cudaDevAttrMaxRegistersPerMultiprocessor);
    p->warpSize = attribute_of(d, cudaDevAttrWarpSize);
    p->memPitch = (size_t)attribute_of(d, cudaDevAttrMaxPitch);
    p->maxThreadsPerBlock = attribute_of(d, cudaDevAttrMaxThreadsPerBlock);
    for (int i = 0; i < 3; i++) {
        p->maxThreadsDim[i] = attribute_of(d, cudaDevAttrMaxBlockDimX + i);
        p->maxGridSize[i] = attribute_of(d, cudaDevAttrMaxGridDimX + i);
    }
    p->totalConstMem = (size_t)attribute_of(d, cudaDevAttrTotalConstantMemory);
    p->textureAlignment = (size_t)attribute_of(d, cudaDevAttrTextureAlignment);
    p->texturePitchAlignment = (size_t)attribute_of(d, cudaDevAttrTexturePitchAlignment);
    p->surfaceAlignment = (size_t)attribute_of(d, cudaDevAttrSurfaceAlignment);
    p->maxThreadsPerMultiProcessor = attribute_of(d, cudaDevAttrMaxThreadsPerMultiProcessor);
    p->maxBlocksPerMultiProcessor = attribute_of(d, cudaDevAttrMaxBlocksPerMultiprocessor);
    p->memoryBusWidth = attribute_of(d, cudaDevAttrGlobalMemoryBusWidth);
    p->l2CacheSize = attribute_of(d, cudaDevAttrL2CacheSize);
    p->persistingL2CacheMaxSize = attribute_of(d, cudaDevAttrMaxPersistingL2CacheSize);
    p->accessPolicyMaxWindowSize = attribute_of(d, cudaDevAttrMaxAccessPolicyWindowSize);
}

static void fill_abilities(struct cudaDeviceProp *p, const struct vgpu_device *d)
{
    p->integrated = attribute_of(d, cudaDevAttrIntegrated);
    p->canMapHostMemory = attribute_of(d, cudaDevAttrCanMapHostMemory);
    p->concurrentKernels = attribute_of(d, cudaDevAttrConcurrentKernels);
    p->ECCEnabled = attribute_of(d, cudaDevAttrEccEnabled);
    p->asyncEngineCount = attribute_of(d, cudaDevAttrAsyncEngineCount);
    p->unifiedAddressing = attribute_of(d, cudaDevAttrUnifiedAddressing);
    p->streamPrioritiesSupported = attribute_of(d, cudaDevAttrStreamPrioritiesSupported);
    p->globalL1CacheSupported = attribute_of(d, cudaDevAttrGlobalL1CacheSupported);
    p->localL1CacheSupported = attribute_of(d, cudaDevAttrLocalL1CacheSupported);
    p->managedMemory = attribute_of(d, cudaDevAttrManagedMemory);
    p->multiGpuBoardGroupID = attribute_of(d, cudaDevAttrMultiGpuBoardGroupID);
    p->hostNativeAtomicSupported = attribute_of(d, cudaDevAttrHostNativeAtomicSupported);
    p->pageableMemoryAccess = attribute_of(d, cudaDevAttrPageableMemoryAccess);
    p->concurrentManagedAccess = attribute_of(d, cudaDevAttrConcurrentManagedAccess);
    p->computePreemptionSupported = attribute_of(d, cudaDevAttrComputePreemptionSupported);
    p->canUseHostPointerForRegisteredMem =
        attribute_of(d, cudaDevAttrCanUseHostPointerForRegisteredMem);
    p->cooperativeLaunch = attribute_of(d, cudaDevAttrCooperativeLaunch);
    p->pageableMemoryAccessUsesHostPageTables =
        attribute_of(d, cudaDevAttrPageableMemoryAccessUsesHostPageTables);
    p->directManagedMemAccessFromHost = attribute_of(d, cudaDevAttrDirectManagedMemAccessFromHost);
    p->hostRegisterSupported = attribute_of(d, cudaDevAttrHostRegisterSupported);
    p->hostRegisterReadOnlySupported = attribute_of(d, cudaDevAttrHostRegisterReadOnlySupported);
    p->memoryPoolsSupported = attribute_of(d, cudaDevAttrMemoryPoolsSupported);
    p->gpuDirectRDMASupported = attribute_of(d, cudaDevAttrGPUDirectRDMASupported);
    p->gpuDirectRDMAFlushWritesOptions =
        (unsigned)attribute_of(d, cudaDevAttrGPUDirectRDMAFlushWritesOptions);
    p->gpuDirectRDMAWritesOrdering = attribute_of(d, cudaDevAttrGPUDirectRDMAWritesOrdering);
    p->ipcEventSupported = attribute_of(d, cudaDevAttrIpcEventSupport);
    p->clusterLaunch = attribute_of(d, cudaDevAttrClusterLaunch);
    p->unifiedFunctionPointers = attribute_of(d, CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS);
    p->deviceNumaId = attribute_of(d, cudaDevAttrNumaId);
    p->hostNumaId = attribute_of(d, cudaDevAttrHostNumaId);
    p->gpuPciDeviceID = (unsigned)attribute_of(d, cudaDevAttrGpuPciDeviceId);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    struct vgpu_device *found = NULL;
    if (!properties) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaGetDeviceProperties: properties is NULL");
    }
    cudaError_t error = vgpu_device_get("cudaGetDeviceProperties", device, &found);
    if (error != cudaSuccess) {
        return error;
    }
    const struct vgpu_device_info *info = &found->info;
    memset(properties, 0, sizeof(*properties));
    memcpy(properties->name, info->name, sizeof(properties->name));
    memcpy(properties->uuid.bytes, info->uuid, 16);
    properties->totalGlobalMem = info->memory_bytes;
    properties->major = info->major;
    properties->minor = info->minor;
    properties->multiProcessorCount = info->multiprocessors;
    properties->pciBusID = info->pci_bus;
    properties->pciDeviceID = info->pci_device;
    properties->pciDomainID = info->pci_domain;
    fill_limits(properties, found);
    fill_abilities(properties, found);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attribute, int source,
                                      int destination)
{
    struct vgpu_device *a = NULL;
    struct vgpu_device *b = NULL;
    if (!value) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaDeviceGetP2PAttribute: value is NULL");
    }
    cudaError_t error = vgpu_device_get("cudaDeviceGetP2PAttribute", source, &a);
    if (error == cudaSuccess) {
        error = vgpu_device_get("cudaDeviceGetP2PAttribute", destination, &b);
    }
    if (error != cudaSuccess) {
        return error;
    }
    if (a == b) {
        return vgpu_fail(cudaErrorInvalidDevice,
                         "cudaDeviceGetP2PAttribute: source and destination are both %s",
                         vgpu_device_name(source).text);
    }
    bool linked = vgpu_peer_access(a, b);
    switch (attribute) {
    case cudaDevP2PAttrPerformanceRank:
        *value = linked ? 0 : 1;
        return cudaSuccess;
    case cudaDevP2PAttrAccessSupported:
    case cudaDevP2PAttrNativeAtomicSupported:
        *value = linked;
        return cudaSuccess;
    case cudaDevP2PAttrCudaArrayAccessSupported:
    case cudaDevP2PAttrOnlyPartialNativeAtomicSupported:
        *value = 0;
        return cudaSuccess;
    default:
        return vgpu_fail(cudaErrorInvalidValue, "cudaDeviceGetP2PAttribute: no attribute %d",
                         (int)attribute);
    }
}
