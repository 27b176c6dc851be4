// Modules: loading from a file and from memory, functions and variables in them, what is refused.
// SPDX-License-Identifier: Apache-2.0
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "expect.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *image_path;

// Launches the module's kernel with one pointer, both ways to give arguments.
static void launch(CUmodule module)
{
    CUfunction function = NULL;
    atomic_int count = 0;
    void *pointer = &count;
    void *arguments[] = {&pointer};
    size_t bytes = sizeof(pointer);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &pointer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    EXPECT_EQ(cuModuleGetFunction(&function, module, "module_kernel"), CUDA_SUCCESS);
    EXPECT_EQ(cuLaunchKernel(function, 2, 1, 1, 32, 1, 1, 0, NULL, arguments, NULL), CUDA_SUCCESS);
    EXPECT_EQ(cuLaunchKernel(function, 1, 1, 1, 8, 1, 1, 0, NULL, NULL, extra), CUDA_SUCCESS);
    EXPECT_EQ(cuLaunchKernel(function, 1, 1, 1, 8, 1, 1, 0, NULL, arguments, extra),
              CUDA_ERROR_INVALID_VALUE);
    bytes = 4;
    EXPECT_EQ(cuLaunchKernel(function, 1, 1, 1, 8, 1, 1, 0, NULL, NULL, extra),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuLaunchCooperativeKernel(function, 1, 1, 1, 8, 1, 1, 0, NULL, arguments),
              CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(count, 80);
    const char *name = NULL;
    size_t offset = 9;
    EXPECT_EQ(cuFuncGetName(&name, function), CUDA_SUCCESS);
    EXPECT_STR(name, "module_kernel");
    EXPECT_EQ(cuFuncGetParamInfo(function, 0, &offset, &bytes), CUDA_SUCCESS);
    EXPECT(offset == 0 && bytes == sizeof(void *));
    EXPECT_EQ(cuFuncGetParamInfo(function, 1, &offset, &bytes), CUDA_ERROR_INVALID_VALUE);
    int blocks = 0;
    EXPECT_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 1024, 0),
              CUDA_SUCCESS);
    EXPECT_EQ(blocks, 2);
    CUdeviceptr variable = 0;
    EXPECT_EQ(cuModuleGetGlobal(&variable, &bytes, module, "module_variable"), CUDA_SUCCESS);
    EXPECT_EQ(bytes, sizeof(int));
    int value = 0;
    EXPECT_EQ(cuMemcpyDtoH(&value, variable, sizeof(value)), CUDA_SUCCESS);
    EXPECT_EQ(value, 42);
    EXPECT_EQ(cuModuleGetFunction(&function, module, "no_kernel"), CUDA_ERROR_NOT_FOUND);
    EXPECT_EQ(cuModuleGetFunction(&function, module, "module_variable"), CUDA_ERROR_NOT_FOUND);
    EXPECT_EQ(cuModuleGetGlobal(&variable, NULL, module, "module_kernel"), CUDA_ERROR_NOT_FOUND);
}

static void from_a_file(void)
{
    CUmodule module;
    EXPECT_EQ(cuModuleLoad(&module, image_path), CUDA_SUCCESS);
    launch(module);
    EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
    EXPECT_EQ(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuModuleLoad(&module, "/no/such/module"), CUDA_ERROR_FILE_NOT_FOUND);
    EXPECT_EQ(cuModuleLoad(&module, "/proc/self/maps"), CUDA_ERROR_INVALID_IMAGE);
}

static void from_memory(void)
{
    CUmodule module;
    FILE *file = fopen(image_path, "re");
    if (!EXPECT(file != NULL)) {
        return;
    }
    enum { MOST = 8 << 20 };
    char *image = malloc(MOST);
    size_t bytes = image ? fread(image, 1, MOST, file) : 0;
    (void)fclose(file);
    if (EXPECT(bytes > 0 && bytes < MOST)) {
        EXPECT_EQ(cuModuleLoadData(&module, image), CUDA_SUCCESS);
        launch(module);
        EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
        image[18] = (char)190; // the machine: a cubin's
        image[19] = 0;
        EXPECT_EQ(cuModuleLoadData(&module, image), CUDA_ERROR_NO_BINARY_FOR_GPU);
    }
    free(image);
    static const char ptx[64] = ".version 9.0\n.target sm_90\n";
    EXPECT_EQ(cuModuleLoadDataEx(&module, ptx, 0, NULL, NULL), CUDA_ERROR_NO_BINARY_FOR_GPU);
    EXPECT_EQ(cuModuleLoadData(NULL, ptx), CUDA_ERROR_INVALID_VALUE);
}

// Any other library is refused before its constructors run.
static void other_libraries_are_refused(void)
{
    CUmodule module;
    Dl_info here;
    char path[4096];
    char other[4096];
    (void)snprintf(other, sizeof(other), "%.*sstranger_image.so",
                   (int)(strrchr(image_path, '/') + 1 - image_path), image_path);
    unsetenv("STRANGER_IMAGE");
    EXPECT_EQ(cuModuleLoad(&module, other), CUDA_ERROR_NO_BINARY_FOR_GPU);
    EXPECT(getenv("STRANGER_IMAGE") == NULL); // its constructor sets it
    if (EXPECT(dladdr((void *)(uintptr_t)cuModuleLoad, &here) != 0)) {
        (void)snprintf(path, sizeof(path), "%s", here.dli_fname); // the runtime itself
        EXPECT_EQ(cuModuleLoad(&module, path), CUDA_ERROR_NO_BINARY_FOR_GPU);
    }
    char cut[4096] = ""; // a module that breaks off
    FILE *file = fopen(image_path, "re");
    int broken = memfd_create("broken", MFD_CLOEXEC);
    if (EXPECT(file != NULL) && EXPECT(fread(cut, 1, sizeof(cut), file) == sizeof(cut)) &&
        EXPECT(write(broken, cut, sizeof(cut)) == sizeof(cut))) {
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", broken);
        EXPECT_EQ(cuModuleLoad(&module, path), CUDA_ERROR_NO_BINARY_FOR_GPU);
        EXPECT_EQ(ftruncate(broken, 20), 0);
        EXPECT_EQ(cuModuleLoad(&module, path), CUDA_ERROR_INVALID_IMAGE);
    }
    if (file) {
        (void)fclose(file);
    }
    (void)close(broken);
}

static void contexts_say_what_they_are(void)
{
    CUcontext context;
    unsigned flags = 0;
    unsigned version = 0;
    unsigned long long id = 0;
    size_t limit = 0;
    EXPECT_EQ(cuCtxGetCurrent(&context), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxGetFlags(&flags), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxGetApiVersion(context, &version), CUDA_SUCCESS);
    EXPECT(version >= 3010);
    EXPECT_EQ(cuCtxGetId(context, &id), CUDA_SUCCESS);
    EXPECT(id != 0);
    EXPECT_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE), CUDA_SUCCESS);
    EXPECT_EQ(limit, 4096);
}

int main(int count, char **arguments)
{
    (void)count;
    static char path[4096];
    const char *slash = strrchr(arguments[0], '/');
    (void)snprintf(path, sizeof(path), "%.*smodule_image.so",
                   slash ? (int)(slash + 1 - arguments[0]) : 0, arguments[0]);
    image_path = path;
    EXPECT_CUDA(cudaFree(NULL));
    RUN(from_a_file);
    RUN(from_memory);
    RUN(other_libraries_are_refused);
    RUN(contexts_say_what_they_are);
    return expect_result();
}
