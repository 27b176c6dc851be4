// See blas.h. SPDX-License-Identifier: Apache-2.0
#include "blas.h"

#include "fail.h"
#include "settings.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct parallel_blas found = {"none", NULL, NULL};
static char name[512], problem[512]; // of TUTTI_BLAS; "": none

// The library stays loaded: other threads may be in it until the process ends.
static bool load(const char *library)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        const char *text = dlerror(); // NOLINT(concurrency-mt-unsafe): glibc keeps it per thread
        (void)snprintf(problem, sizeof problem, "%s", text == NULL ? "it cannot be loaded" : text);
        return false;
    }
    found.sgemm = (blas_sgemm)dlsym(handle, "cblas_sgemm");
    found.dgemm = (blas_dgemm)dlsym(handle, "cblas_dgemm");
    if (found.sgemm == NULL || found.dgemm == NULL) {
        found.sgemm = NULL;
        found.dgemm = NULL;
        (void)snprintf(problem, sizeof problem, "it has no cblas_sgemm and cblas_dgemm");
        (void)dlclose(handle);
        return false;
    }
    // Each rank is one thread: more of them would take the cores from each other.
    void (*set_threads)(int) = (void (*)(int))dlsym(handle, "openblas_set_num_threads");
    if (set_threads != NULL) {
        set_threads(1);
    }
    (void)snprintf(name, sizeof name, "%s", library);
    found.name = name;
    problem[0] = 0;
    return true;
}

static void find(void)
{
    static const char *const libraries[] = {"libopenblas.so.0", "libcblas.so.3", "libblas.so.3"};
    const char *named = parallel_setting(PARALLEL_SETTING_BLAS);
    if (named != NULL && named[0] != 0) {
        if (strcmp(named, "none") != 0 && !load(named)) {
            (void)snprintf(name, sizeof name, "%s", named);
        }
        return;
    }
    for (size_t i = 0; i < sizeof libraries / sizeof libraries[0]; i++) {
        if (load(libraries[i])) {
            return;
        }
    }
    problem[0] = 0; // our own loop is no failure
}

ncclResult_t parallel_blas(const char *call, const struct parallel_blas **blas_out)
{
    (void)pthread_once(&once, find);
    if (problem[0] != 0) {
        return tuttiFail(ncclInvalidUsage,
                         "%s: TUTTI_BLAS is \"%s\": %s; it must be a library with the C interface "
                         "to BLAS, or none",
                         call, name, problem);
    }
    *blas_out = &found;
    return ncclSuccess;
}
