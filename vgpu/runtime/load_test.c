// The library can be loaded while a program runs: its thread-local storage is small enough, also
// where other libraries have taken their share. Argument: the library.
// SPDX-License-Identifier: Apache-2.0
#include "expect.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

enum {
    // glibc keeps 512 bytes for libraries like this one, which read thread-local storage at fixed
    // places; a few of them may share that.
    MOST_BYTES = 384
};

static size_t storage_bytes;

static int look(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    (void)data;
    if (strstr(info->dlpi_name, "libcudart.so")) {
        for (int i = 0; i < info->dlpi_phnum; i++) {
            if (info->dlpi_phdr[i].p_type == PT_TLS) {
                storage_bytes = info->dlpi_phdr[i].p_memsz;
            }
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        printf("usage: load_test LIBRARY\n");
        return 2;
    }
    void *library = dlopen(argv[1], RTLD_NOW);
    if (!EXPECT(library != NULL)) {
        printf("%s\n", dlerror());
        return expect_result();
    }
    int (*count)(int *) = (int (*)(int *))dlsym(library, "cudaGetDeviceCount");
    int devices = 0;
    EXPECT(count != NULL && count(&devices) == 0 && devices > 0);
    dl_iterate_phdr(look, NULL);
    printf("thread-local storage: %zu bytes\n", storage_bytes);
    EXPECT(storage_bytes > 0 && storage_bytes <= MOST_BYTES);
    return expect_result();
}
