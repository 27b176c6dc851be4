// On a machine without a GPU the library for real GPUs loads, answers what needs no device, and
// says what is missing where one is needed. usage: no_driver_test LIBRARY
// SPDX-License-Identifier: Apache-2.0
#include "expect.h"

#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>

static const char *path;

static void *find(void *library, const char *name)
{
    void *found = dlsym(library, name);
    EXPECT(found != NULL);
    return found;
}

static void without_a_device(void)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!EXPECT(library != NULL)) {
        (void)fprintf(stderr, "%s\n", dlerror());
        return;
    }
    ncclResult_t (*version_of)(int *), (*make_id)(ncclUniqueId *), (*allocate)(void **, size_t);
    ncclResult_t (*init)(ncclComm_t *, int, ncclUniqueId, int);
    const char *(*last_error)(ncclComm_t);
    *(void **)&version_of = find(library, "ncclGetVersion");
    *(void **)&make_id = find(library, "ncclGetUniqueId");
    *(void **)&allocate = find(library, "ncclMemAlloc");
    *(void **)&init = find(library, "ncclCommInitRank");
    *(void **)&last_error = find(library, "ncclGetLastError");

    int version = 0;
    ncclUniqueId id;
    EXPECT_OK(version_of(&version));
    EXPECT_EQ(version, NCCL_VERSION_CODE);
    EXPECT_OK(make_id(&id));

    ncclComm_t comm = NULL;
    EXPECT_EQ(init(&comm, 1, id, 0), ncclUnhandledCudaError);
    EXPECT(comm == NULL);
    EXPECT_CONTAINS(last_error(NULL), "no device");
    EXPECT_CONTAINS(last_error(NULL), "libcuda.so.1");

    void *memory = NULL;
    EXPECT_EQ(allocate(&memory, 4096), ncclUnhandledCudaError);
    EXPECT_CONTAINS(last_error(NULL), "cudaGetDevice");
}

int main(int count, char **arguments)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver != NULL) {
        printf("skipped: there is a driver here\n");
        return 77;
    }
    if (count != 2) {
        (void)fprintf(stderr, "usage: %s LIBRARY\n", arguments[0]);
        return 1;
    }
    path = arguments[1];
    RUN(without_a_device);
    return expect_result();
}
