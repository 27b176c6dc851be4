// The shared memory of a host team on real GPUs. See arena.h. SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/arena.h"

#include "base/log.h"

#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096, VERSION = 2 };
static const uint64_t MAGIC = UINT64_C(0x6775617474757474);

static size_t to_pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static size_t words_offset(int nranks)
{
    return to_pages(sizeof(struct tt_arena_header) + (size_t)nranks * sizeof(struct tt_line));
}

static size_t words_bytes(int nranks)
{
    return to_pages((size_t)nranks * sizeof(struct tt_words));
}

ncclResult_t tt_arena_create(int nranks, int *descriptor_out)
{
    int descriptor = memfd_create("tutti-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (descriptor < 0) {
        return tt_fail(ncclSystemError, "no memory that ranks can share (memfd_create): %m");
    }
    struct tt_arena_header header = {
        .magic = MAGIC, .version = VERSION, .nranks = (uint32_t)nranks};
    if (ftruncate(descriptor, (off_t)(words_offset(nranks) + words_bytes(nranks))) != 0 ||
        pwrite(descriptor, &header, sizeof header, 0) != sizeof header ||
        fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        (void)tt_fail(ncclSystemError, "the memory that %d ranks share cannot be made: %m", nranks);
        close(descriptor);
        return ncclSystemError;
    }
    *descriptor_out = descriptor;
    return ncclSuccess;
}

// Whether a descriptor of another process is what it should be.
static ncclResult_t check_file(int descriptor, int nranks)
{
    struct stat status;
    struct tt_arena_header header;
    int seals = fcntl(descriptor, F_GET_SEALS);
    if (fstat(descriptor, &status) != 0 || seals < 0 || (seals & F_SEAL_SHRINK) == 0 ||
        (size_t)status.st_size != words_offset(nranks) + words_bytes(nranks) ||
        pread(descriptor, &header, sizeof header, 0) != sizeof header || header.magic != MAGIC ||
        header.version != VERSION || header.nranks != (uint32_t)nranks) {
        return tt_fail(ncclSystemError,
                       "the memory that ranks share is not that of %d ranks of this version: all "
                       "processes must load the same libnccl.so.2",
                       nranks);
    }
    return ncclSuccess;
}

static ncclResult_t pin_words(struct tt_arena *arena)
{
    void *words = arena->base + words_offset(arena->nranks), *device = NULL;
    TRY(tt_cuda((int)cudaHostRegister(words, words_bytes(arena->nranks),
                                      cudaHostRegisterPortable | cudaHostRegisterMapped),
                "cudaHostRegister(memory that ranks share)"));
    ncclResult_t result = tt_cuda((int)cudaHostGetDevicePointer(&device, words, 0),
                                  "cudaHostGetDevicePointer(memory that ranks share)");
    if (result != ncclSuccess) {
        (void)cudaHostUnregister(words);
        return result;
    }
    arena->words_device = (CUdeviceptr)(uintptr_t)device;
    return ncclSuccess;
}

ncclResult_t tt_arena_map(int descriptor, int nranks, struct tt_arena **arena_out)
{
    struct tt_arena *arena = calloc(1, sizeof *arena);
    void *base = MAP_FAILED;
    size_t bytes = words_offset(nranks) + words_bytes(nranks);
    ncclResult_t result = check_file(descriptor, nranks);
    if (result == ncclSuccess && arena == NULL) {
        result = tt_fail(ncclSystemError, "no memory for the host team");
    }
    if (result == ncclSuccess) {
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
        if (base == MAP_FAILED) {
            result = tt_fail(ncclSystemError, "%zu bytes that %d ranks share cannot be mapped: %m",
                             bytes, nranks);
        }
    }
    close(descriptor);
    if (result == ncclSuccess) {
        *arena = (struct tt_arena){.references = 1, .nranks = nranks, .base = base, .bytes = bytes};
        result = pin_words(arena);
    }
    if (result != ncclSuccess) {
        if (base != MAP_FAILED) {
            (void)munmap(base, bytes);
        }
        free(arena);
        return result;
    }
    *arena_out = arena;
    return ncclSuccess;
}

void tt_arena_hold(struct tt_arena *arena)
{
    (void)atomic_fetch_add_explicit(&arena->references, 1, memory_order_relaxed);
}

void tt_arena_release(struct tt_arena *arena)
{
    if (arena == NULL ||
        atomic_fetch_sub_explicit(&arena->references, 1, memory_order_acq_rel) > 1) {
        return;
    }
    // What the device may still write to stays mapped: its address must not become another's.
    if (cudaHostUnregister(arena->base + words_offset(arena->nranks)) == cudaSuccess) {
        (void)munmap(arena->base, arena->bytes);
    } else {
        (void)cudaGetLastError();
    }
    free(arena);
}

struct tt_line *tt_arena_line(const struct tt_arena *arena, int rank)
{
    return (struct tt_line *)(void *)(arena->base + sizeof(struct tt_arena_header)) + rank;
}

struct tt_words *tt_arena_words(const struct tt_arena *arena, int rank)
{
    return (struct tt_words *)(void *)(arena->base + words_offset(arena->nranks)) + rank;
}
