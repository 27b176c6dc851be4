// SPDX-License-Identifier: Apache-2.0
// Loads NCCL beside our library. RTLD_DEEPBIND: calls inside it stay inside it.
#include "gpu_nccl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static bool find(void *library, const char *name, void *function_out)
{
    void *address = dlsym(library, name);
    if (address == NULL) {
        fprintf(stderr, "bench: %s is not in the NCCL library\n", name);
        return false;
    }
    memcpy(function_out, &address, sizeof address);
    return true;
}

bool bench_nccl_open(const char *file, struct bench_nccl *nccl)
{
    ncclResult_t (*get_version)(int *) = NULL;
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (library == NULL) {
        fprintf(stderr, "bench: cannot load NCCL: %s\n", dlerror());
        return false;
    }
    return find(library, "ncclGetVersion", &get_version) &&
           get_version(&nccl->version) == ncclSuccess &&
           find(library, "ncclCommInitAll", &nccl->init_all) &&
           find(library, "ncclCommDestroy", &nccl->destroy) &&
           find(library, "ncclGroupStart", &nccl->group_start) &&
           find(library, "ncclGroupEnd", &nccl->group_end) &&
           find(library, "ncclReduceScatter", &nccl->reduce_scatter) &&
           find(library, "ncclAllReduce", &nccl->all_reduce) &&
           find(library, "ncclAllGather", &nccl->all_gather);
}
