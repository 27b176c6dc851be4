// The driver API: start, devices, contexts, errors, pointers, functions by name, libcuda.so.1.
// SPDX-License-Identifier: Apache-2.0
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "expect.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define EXPECT_CU(result) EXPECT_EQ(result, CUDA_SUCCESS)

static void not_before_init(void)
{
    int value = 0;
    EXPECT_EQ(cuDeviceGetCount(&value), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_EQ(cuInit(1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuInit(0));
    EXPECT_CU(cuDeviceGetCount(&value));
    EXPECT_EQ(value, 8);
    EXPECT_CU(cuDriverGetVersion(&value));
    EXPECT_EQ(value, 13000);
}

static void devices(void)
{
    CUdevice device = -1;
    char name[64];
    char tiny[4];
    CUuuid uuid;
    size_t bytes = 0;
    int value = 0;
    struct cudaDeviceProp p;
    EXPECT_CU(cuDeviceGet(&device, 5));
    EXPECT_EQ(device, 5);
    EXPECT_CUDA(cudaGetDeviceProperties(&p, 5));
    EXPECT_CU(cuDeviceGetName(name, sizeof(name), device));
    EXPECT_STR(name, p.name);
    EXPECT_CU(cuDeviceGetName(tiny, sizeof(tiny), device));
    EXPECT_EQ(strlen(tiny), 3);
    EXPECT_CU(cuDeviceGetUuid(&uuid, device));
    EXPECT(memcmp(&uuid, &p.uuid, sizeof(uuid)) == 0);
    EXPECT_CU(cuDeviceTotalMem(&bytes, device));
    EXPECT_EQ(bytes, p.totalGlobalMem);
    EXPECT_CU(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, device));
    EXPECT_EQ(value, 1);
    EXPECT_CU(cuDeviceGetAttribute(
        &value, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device));
    EXPECT_EQ(value, 1);
    EXPECT_CU(
        cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, device));
    EXPECT_EQ(value, 0);
    EXPECT_EQ(cuDeviceGet(&device, 8), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_EQ(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess); // the driver's errors are not the runtime's
    EXPECT_EQ(cudaSetDevice(77), cudaErrorInvalidDevice);
    EXPECT_EQ(cuDeviceGet(&device, 8), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice); // still there
}

static void *contexts_of_a_thread(void *argument)
{
    (void)argument;
    CUcontext context = (CUcontext)8;
    CUcontext two;
    CUcontext popped;
    CUdevice device = -1;
    EXPECT_CU(cuCtxGetCurrent(&context));
    EXPECT(context == NULL);
    EXPECT_EQ(cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuCtxPopCurrent(&popped), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_CU(cuDevicePrimaryCtxRetain(&two, 2));
    EXPECT_CU(cuCtxSetCurrent(two));
    int ordinal = -1;
    EXPECT_CUDA(cudaGetDevice(&ordinal));
    EXPECT_EQ(ordinal, 2);
    EXPECT_CUDA(cudaSetDevice(3));
    EXPECT_CU(cuCtxGetDevice(&device));
    EXPECT_EQ(device, 3);
    EXPECT_CU(cuCtxPushCurrent(two));
    EXPECT_CU(cuCtxGetDevice(&device));
    EXPECT_EQ(device, 2);
    EXPECT_CU(cuCtxPopCurrent(&popped));
    EXPECT(popped == two);
    EXPECT_CU(cuCtxGetDevice(&device));
    EXPECT_EQ(device, 3);
    EXPECT_EQ(cuCtxSetCurrent((CUcontext)123), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_CU(cuCtxSynchronize());
    EXPECT_CU(cuDevicePrimaryCtxRelease(2));
    EXPECT_EQ(cuDevicePrimaryCtxRelease(2), CUDA_ERROR_INVALID_CONTEXT);
    return NULL;
}

static void contexts(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, contexts_of_a_thread, NULL);
    pthread_join(thread, NULL);
}

static void errors(void)
{
    const char *text = NULL;
    EXPECT_CU(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
    EXPECT_STR(text, "CUDA_ERROR_OUT_OF_MEMORY");
    EXPECT_CU(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
    EXPECT_STR(text, "out of memory");
    EXPECT_EQ(cuGetErrorName((CUresult)12345, &text), CUDA_ERROR_INVALID_VALUE);
    EXPECT(text == NULL);
    for (int e = 0; e < 1000; e++) { // every named error has a text
        if (cuGetErrorName((CUresult)e, &text) == CUDA_SUCCESS) {
            EXPECT_CU(cuGetErrorString((CUresult)e, &text));
            EXPECT(text && *text && strcmp(text, "unrecognized error code") != 0);
        }
    }
}

static void memory(void)
{
    CUdeviceptr p = 0;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    unsigned int word[4] = {0};
    EXPECT_CUDA(cudaSetDevice(6));
    EXPECT_CU(cuMemAlloc(&p, 1024));
    EXPECT_EQ(cuMemAlloc(&base, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuMemsetD32(p, 0x12345678, 256));
    EXPECT_CU(cuMemsetD16(p + 8, 0xabcd, 1));
    EXPECT_CU(cuMemcpyDtoH(word, p, sizeof(word)));
    EXPECT_EQ(word[0], 0x12345678);
    EXPECT_EQ(word[2], 0x1234abcd);
    EXPECT_EQ(cuMemsetD32(p + 2, 0, 1), CUDA_ERROR_INVALID_VALUE); // not aligned
    EXPECT_CU(cuMemGetAddressRange(&base, &bytes, p + 100));
    EXPECT(base == p && bytes == 1024);
    EXPECT_EQ(cuMemGetAddressRange(&base, &bytes, (CUdeviceptr)(uintptr_t)word),
              CUDA_ERROR_NOT_FOUND);
    int ordinal = -1;
    bool capable = false;
    CUmemorytype type = 0;
    CUcontext context = NULL;
    EXPECT_CU(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p + 5));
    EXPECT_EQ(ordinal, 6);
    EXPECT_CU(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    EXPECT_EQ(type, CU_MEMORYTYPE_DEVICE);
    EXPECT_CU(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p));
    EXPECT(capable);
    EXPECT_CU(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, p));
    CUcontext current = NULL;
    EXPECT_CU(cuCtxGetCurrent(&current));
    EXPECT(context == current);
    EXPECT_EQ(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                    (CUdeviceptr)(uintptr_t)word),
              CUDA_ERROR_INVALID_VALUE);
    CUpointer_attribute list[2] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *values[2] = {&type, &ordinal};
    EXPECT_CU(cuPointerGetAttributes(2, list, values, (CUdeviceptr)(uintptr_t)word));
    EXPECT(type == 0 && ordinal == -2);
    EXPECT_CU(cuMemFree(p));
    EXPECT_EQ(cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CUDA(cudaSetDevice(0));
}

static void functions_by_name(void)
{
    void *function = NULL;
    CUdriverProcAddressQueryResult found;
    EXPECT_CU(cuGetProcAddress("cuMemAlloc", &function, 13000, 0, &found));
    EXPECT(function == (void *)cuMemAlloc && found == CU_GET_PROC_ADDRESS_SUCCESS);
    EXPECT_CU(cuGetProcAddress("cuMulticastCreate", &function, 11000, 0, &found));
    EXPECT(function == NULL && found == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    EXPECT_CU(cuGetProcAddress("cuNoSuchThing", &function, 13000, 0, &found));
    EXPECT(function == NULL && found == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    EXPECT_EQ(cuGetProcAddress("cuNoSuchThing", &function, 13000, 0, NULL), CUDA_ERROR_NOT_FOUND);
    EXPECT_EQ(cuGetProcAddress(NULL, &function, 13000, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    enum cudaDriverEntryPointQueryResult status;
    EXPECT_CUDA(cudaGetDriverEntryPoint("cuMemCreate", &function, cudaEnableDefault, &status));
    EXPECT(function == (void *)cuMemCreate && status == cudaDriverEntryPointSuccess);
    EXPECT_CUDA(cudaGetDriverEntryPointByVersion("cuGetErrorString", &function, 12000, 0, &status));
    EXPECT(function == (void *)cuGetErrorString);
    // The table is sorted: a name from each end and every neighbour must be found.
    static const char *const names[] = {"cuCtxCreate", "cuCtxDestroy",      "cuInit",
                                        "cuMemMap",    "cuMemcpy",          "cuMemcpyAsync",
                                        "cuMemsetD8",  "cuMulticastUnbind", "cuStreamWriteValue64"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        EXPECT_CU(cuGetProcAddress(names[i], &function, 13000, 0, &found));
        EXPECT_EQ(found, CU_GET_PROC_ADDRESS_SUCCESS);
    }
}

static void the_driver_library(void)
{
    // By its path: with a sanitizer, which calls dlopen in the program's place, the program's own
    // search path does not count.
    Dl_info runtime;
    char path[4096];
    EXPECT(dladdr((void *)cuInit, &runtime) != 0);
    snprintf(path, sizeof(path), "%s", runtime.dli_fname);
    char *slash = strrchr(path, '/');
    snprintf(slash ? slash + 1 : path, 32, "libcuda.so.1");
    void *library = dlopen(path, RTLD_NOW);
    if (!EXPECT(library != NULL)) {
        return;
    }
    EXPECT(dlsym(library, "cuInit") == (void *)cuInit);
    EXPECT(dlsym(library, "cuGetProcAddress_v2") == (void *)cuGetProcAddress);
    EXPECT(dlsym(library, "vgpu_fail") == NULL); // internals stay inside
    dlclose(library);
}

int main(void)
{
    RUN(not_before_init);
    RUN(devices);
    RUN(contexts);
    RUN(errors);
    RUN(memory);
    RUN(functions_by_name);
    RUN(the_driver_library);
    return expect_result();
}
