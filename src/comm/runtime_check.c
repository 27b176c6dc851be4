// Finds a CUDA runtime or driver of another make in this process: memory and streams of one mean
// nothing to the other, so the library
// says so at the start instead of failing strangely later. SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "comm/comm.h"

#ifdef TUTTI_VIRTUAL_DEVICES

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

// Only virtual devices have this function.
static const char mark[] = "vgpuWorkerCount";

struct search {
    char found[256]; // a loaded library that is CUDA's by name
    int skip;        // so many that were looked at before
};

static int find_by_name(struct dl_phdr_info *info, size_t bytes, void *argument)
{
    (void)bytes;
    struct search *search = argument;
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *name = slash != NULL ? slash + 1 : info->dlpi_name;
    if (strncmp(name, "libcudart.so", 12) != 0 && strncmp(name, "libcuda.so", 10) != 0) {
        return 0;
    }
    if (search->skip-- > 0) {
        return 0;
    }
    (void)snprintf(search->found, sizeof search->found, "%s", info->dlpi_name);
    return 1;
}

ncclResult_t tt_check_runtime(const char *call)
{
    for (int i = 0;; i++) {
        struct search search = {.skip = i};
        if (dl_iterate_phdr(find_by_name, &search) == 0) {
            return ncclSuccess;
        }
        void *library = dlopen(search.found, RTLD_LAZY | RTLD_NOLOAD);
        bool is_ours = library == NULL || dlsym(library, mark) != NULL;
        if (library != NULL) {
            dlclose(library);
        }
        if (!is_ours) {
            return tt_fail(ncclInvalidUsage,
                           "%s: %s is loaded in this process, but this libnccl runs on virtual "
                           "devices; build the program with tutticc, or use the libnccl for real "
                           "devices",
                           call, search.found);
        }
    }
}

#else

ncclResult_t tt_check_runtime(const char *call)
{
    (void)call;
    return ncclSuccess;
}

#endif
