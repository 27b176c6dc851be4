// Virtual memory: reserve, create, map, access, share; life times; everything that is refused.
// SPDX-License-Identifier: Apache-2.0
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "expect.h"
#include "vgpu/device_runtime.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPECT_CU(result) EXPECT_EQ(result, CUDA_SUCCESS)

static const size_t PIECE = 2 << 20;

static CUmemAllocationProp on_device(int device)
{
    CUmemAllocationProp p = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                             .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                             .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    return p;
}

static CUmemAccessDesc access_by(int device, CUmemAccess_flags flags)
{
    CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, device}, .flags = flags};
    return access;
}

static CUmemGenericAllocationHandle create(int device, size_t bytes)
{
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp p = on_device(device);
    EXPECT_CU(cuMemCreate(&handle, bytes, &p, 0));
    return handle;
}

static int open_descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder)) {
        count++;
    }
    if (folder) {
        closedir(folder);
    }
    return count;
}

static sigjmp_buf after_fault;

static void on_fault(int number)
{
    (void)number;
    siglongjmp(after_fault, 1);
}

// Whether a write to `address` faults.
static bool write_faults(volatile char *address)
{
    struct sigaction action = {.sa_handler = on_fault};
    struct sigaction before;
    sigaction(SIGSEGV, &action, &before);
    bool faulted = sigsetjmp(after_fault, 1) != 0;
    if (!faulted) {
        *address = 1;
    }
    sigaction(SIGSEGV, &before, NULL);
    return faulted;
}

static void the_usual_way(void)
{
    int before = open_descriptors();
    size_t granularity = 0;
    CUmemAllocationProp p = on_device(2);
    EXPECT_CU(cuMemGetAllocationGranularity(&granularity, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    EXPECT_EQ(granularity, PIECE);
    CUmemGenericAllocationHandle handle = create(2, 2 * PIECE);
    CUdeviceptr base = 0;
    EXPECT_CU(cuMemAddressReserve(&base, 4 * PIECE, 64 << 20, 0, 0));
    EXPECT_EQ(base % (64 << 20), 0);
    volatile char *memory = (volatile char *)(uintptr_t)base; // other addresses lead here too
    EXPECT(write_faults(memory));
    EXPECT_EQ(cudaMemset((void *)memory, 1, 1), cudaErrorInvalidValue); // reserved only
    EXPECT_CU(cuMemMap(base, 2 * PIECE, 0, handle, 0));
    EXPECT(write_faults(memory));
    EXPECT_EQ(cudaMemset((void *)memory, 1, 1), cudaErrorInvalidValue); // without access
    CUmemAccessDesc access[2] = {access_by(2, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                                 access_by(5, CU_MEM_ACCESS_FLAGS_PROT_READ)};
    EXPECT_CU(cuMemSetAccess(base, 2 * PIECE, access, 2));
    EXPECT(!write_faults(memory));
    EXPECT(!write_faults(memory + 2 * PIECE - 1));
    EXPECT(write_faults(memory + 2 * PIECE)); // reserved, not mapped
    unsigned long long flags = 9;
    EXPECT_CU(cuMemGetAccess(&flags, &access[1].location, base + 100));
    EXPECT_EQ(flags, 1);
    EXPECT_CU(cuMemGetAccess(&flags, &access[0].location, base));
    EXPECT_EQ(flags, 3);
    CUmemLocation third = {CU_MEM_LOCATION_TYPE_DEVICE, 3};
    EXPECT_CU(cuMemGetAccess(&flags, &third, base));
    EXPECT_EQ(flags, 0);
    struct cudaPointerAttributes a;
    EXPECT_CUDA(cudaPointerGetAttributes(&a, (void *)(memory + 5)));
    EXPECT_EQ(a.device, 2);
    EXPECT_CUDA(cudaMemset((void *)memory, 4, 2 * PIECE));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(memory[2 * PIECE - 1], 4);
    EXPECT_EQ(cudaMemset((void *)memory, 4, 2 * PIECE + 1), cudaErrorInvalidValue);
    EXPECT_EQ(cudaFree((void *)memory), cudaErrorInvalidValue);

    EXPECT_EQ(cuMemAddressFree(base, 4 * PIECE), CUDA_ERROR_INVALID_VALUE); // still mapped
    EXPECT_CU(cuMemRelease(handle)); // the mapping keeps the memory
    memory[0] = 7;
    EXPECT_EQ(memory[0], 7);
    EXPECT_EQ(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuMemUnmap(base, 2 * PIECE));
    EXPECT(write_faults(memory));
    EXPECT_CU(cuMemAddressFree(base, 4 * PIECE));
    EXPECT_EQ(open_descriptors(), before);
    (void)cudaGetLastError();
}

static void one_memory_at_two_addresses(void)
{
    CUmemGenericAllocationHandle handle = create(0, PIECE);
    CUdeviceptr base = 0;
    CUmemAccessDesc access = access_by(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT_CU(cuMemAddressReserve(&base, 4 * PIECE, 0, 0, 0));
    EXPECT_CU(cuMemMap(base, PIECE, 0, handle, 0));
    EXPECT_CU(cuMemMap(base + PIECE, PIECE, 0, handle, 0));
    EXPECT_CU(cuMemSetAccess(base, 2 * PIECE, &access, 1));
    volatile char *memory = (volatile char *)(uintptr_t)base; // other addresses lead here too
    memory[17] = 5;
    EXPECT_EQ(memory[PIECE + 17], 5);
    // A copy may go on from one mapping into the next.
    EXPECT_CUDA(cudaMemset((void *)(memory + PIECE - 10), 6, 20));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(memory[PIECE + 9], 6);
    EXPECT_EQ(memory[PIECE - 1], 6);
    CUmemGenericAllocationHandle same = 0;
    EXPECT_CU(cuMemRetainAllocationHandle(&same, (void *)(memory + PIECE + 5)));
    EXPECT_EQ(same, handle);
    EXPECT_CU(cuMemRelease(same));
    // Parts of mappings cannot be unmapped, several whole ones can.
    EXPECT_EQ(cuMemUnmap(base, PIECE / 2), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemUnmap(base, 3 * PIECE), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuMemUnmap(base, 2 * PIECE));
    EXPECT_CU(cuMemRelease(handle));
    EXPECT_CU(cuMemAddressFree(base, 4 * PIECE));
}

static void released_handles_come_back(void)
{
    CUmemGenericAllocationHandle handle = create(1, PIECE);
    CUdeviceptr base = 0;
    EXPECT_CU(cuMemAddressReserve(&base, PIECE, 0, 0, 0));
    EXPECT_CU(cuMemMap(base, PIECE, 0, handle, 0));
    EXPECT_CU(cuMemRelease(handle));
    CUmemAllocationProp p;
    EXPECT_EQ(cuMemGetAllocationPropertiesFromHandle(&p, handle), CUDA_ERROR_INVALID_VALUE);
    CUmemGenericAllocationHandle again = 0;
    EXPECT_CU(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)base));
    EXPECT_CU(cuMemGetAllocationPropertiesFromHandle(&p, again));
    EXPECT_EQ(p.location.id, 1);
    EXPECT_EQ(p.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    EXPECT_CU(cuMemUnmap(base, PIECE));
    EXPECT_CU(cuMemRelease(again));
    EXPECT_CU(cuMemAddressFree(base, PIECE));
}

static void export_and_import(void)
{
    int before = open_descriptors();
    CUmemGenericAllocationHandle handle = create(3, PIECE);
    int fd = -1;
    EXPECT_CU(
        cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    EXPECT(fd >= 0);
    EXPECT(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    CUmemGenericAllocationHandle imported = 0;
    EXPECT_CU(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd,
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    EXPECT_EQ(imported, handle);   // the same memory in the same process
    EXPECT(ftruncate(fd, 0) != 0); // nobody can take it away
    close(fd);
    EXPECT_CU(cuMemRelease(imported));
    EXPECT_CU(cuMemRelease(handle));
    EXPECT_EQ(open_descriptors(), before);

    // What is not ours is not taken.
    int other = memfd_create("other", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(other, 3 << 20), 0);
    EXPECT_EQ(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)other, 1),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)9999, 1),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)other, 8),
              CUDA_ERROR_NOT_SUPPORTED);
    close(other);
    CUmemAllocationProp p = on_device(0);
    p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    EXPECT_CU(cuMemCreate(&handle, PIECE, &p, 0));
    EXPECT_EQ(cuMemExportToShareableHandle(&fd, handle, 1, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuMemRelease(handle));
    EXPECT_EQ(cudaGetLastError(), cudaSuccess); // the driver's errors are not the runtime's
}

static void sparse_beyond_4_gib(void)
{
    size_t bytes = 5ull << 30;
    size_t free_bytes = 0;
    EXPECT_CUDA(cudaMemGetInfo(&free_bytes, NULL));
    if (free_bytes < bytes) {
        SKIP("the host has less than 5 GiB left");
        return;
    }
    CUmemGenericAllocationHandle handle = create(0, bytes);
    CUdeviceptr base = 0;
    CUmemAccessDesc access = access_by(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT_CU(cuMemAddressReserve(&base, bytes, 0, 0, 0));
    EXPECT_CU(cuMemMap(base, bytes, 0, handle, 0));
    EXPECT_CU(cuMemSetAccess(base, bytes, &access, 1));
    volatile char *memory = (volatile char *)(uintptr_t)base; // other addresses lead here too
    memory[bytes - 1] = 3;
    EXPECT_EQ(memory[bytes - 1] + memory[bytes / 2], 3);
    EXPECT_CU(cuMemUnmap(base, bytes));
    EXPECT_CU(cuMemAddressFree(base, bytes));
    EXPECT_CU(cuMemRelease(handle));
}

static void reservations_refused(void)
{
    CUdeviceptr base = 0;
    CUdeviceptr other = 0;
    EXPECT_EQ(cuMemAddressReserve(&base, PIECE + 4096, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemAddressReserve(&base, 0, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemAddressReserve(&base, PIECE, 3 << 20, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemAddressReserve(NULL, PIECE, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemAddressReserve(&base, PIECE, 0, 0, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemAddressReserve(&base, (size_t)1 << 60, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_CU(cuMemAddressReserve(&base, 2 * PIECE, 0, 0, 0));
    // A wish that cannot be met gives other addresses.
    EXPECT_CU(cuMemAddressReserve(&other, PIECE, 0, base, 0));
    EXPECT(other != base);
    EXPECT_CU(cuMemAddressFree(other, PIECE));
    EXPECT_EQ(cuMemAddressFree(base + PIECE, PIECE), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemAddressFree(base, PIECE), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuMemAddressFree(base, 2 * PIECE));
    EXPECT_EQ(cuMemAddressFree(base, 2 * PIECE), CUDA_ERROR_INVALID_VALUE);
}

static void memory_refused(void)
{
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp p = on_device(0);
    EXPECT_EQ(cuMemCreate(&handle, PIECE - 1, &p, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemCreate(&handle, 0, &p, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemCreate(NULL, PIECE, &p, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemCreate(&handle, PIECE, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemCreate(&handle, (size_t)1 << 45, &p, 0), CUDA_ERROR_OUT_OF_MEMORY);
    p.location.id = 8;
    EXPECT_EQ(cuMemCreate(&handle, PIECE, &p, 0), CUDA_ERROR_INVALID_DEVICE);
    p = on_device(0);
    p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    EXPECT_EQ(cuMemCreate(&handle, PIECE, &p, 0), CUDA_ERROR_NOT_SUPPORTED);
    p = on_device(0);
    p.type = CU_MEM_ALLOCATION_TYPE_MANAGED;
    EXPECT_EQ(cuMemCreate(&handle, PIECE, &p, 0), CUDA_ERROR_INVALID_VALUE);

    CUdeviceptr base = 0;
    CUmemAccessDesc access = access_by(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    handle = create(0, PIECE);
    EXPECT_CU(cuMemAddressReserve(&base, 2 * PIECE, 0, 0, 0));
    EXPECT_EQ(cuMemMap(base, 2 * PIECE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE); // too long
    EXPECT_EQ(cuMemMap(base + 4096, PIECE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemMap(base, PIECE, 0, handle + 1, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemMap(base, PIECE, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemMap(base + 2 * PIECE, PIECE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemSetAccess(base, PIECE, &access, 1), CUDA_ERROR_INVALID_VALUE); // not mapped
    EXPECT_CU(cuMemMap(base, PIECE, 0, handle, 0));
    EXPECT_EQ(cuMemMap(base, PIECE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE); // mapped already
    EXPECT_EQ(cuMemSetAccess(base, 2 * PIECE, &access, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemSetAccess(base, PIECE, &access, 0), CUDA_ERROR_INVALID_VALUE);
    access.location.id = 99;
    EXPECT_EQ(cuMemSetAccess(base, PIECE, &access, 1), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_CU(cuMemUnmap(base, PIECE));
    EXPECT_CU(cuMemAddressFree(base, 2 * PIECE));
    EXPECT_CU(cuMemRelease(handle));
    EXPECT_EQ(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemRelease(12345), CUDA_ERROR_INVALID_VALUE);
}

static void host_memory(void)
{
    CUmemAllocationProp p = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                             .location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}};
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr base = 0;
    CUmemAccessDesc access[2] = {access_by(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)};
    access[1].location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    access[1].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    EXPECT_CU(cuMemCreate(&handle, PIECE, &p, 0));
    EXPECT_CU(cuMemAddressReserve(&base, PIECE, 0, 0, 0));
    EXPECT_CU(cuMemMap(base, PIECE, 0, handle, 0));
    EXPECT_CU(cuMemSetAccess(base, PIECE, access, 2));
    struct cudaPointerAttributes a;
    EXPECT_CUDA(cudaPointerGetAttributes(&a, (void *)(uintptr_t)base));
    EXPECT_EQ(a.type, cudaMemoryTypeHost);
    EXPECT_CU(cuMemUnmap(base, PIECE));
    EXPECT_CU(cuMemAddressFree(base, PIECE));
    EXPECT_CU(cuMemRelease(handle));
}

// The limit of mappings of a process: an error, and everything can be undone.
static void out_of_mappings(void)
{
#ifdef __SANITIZE_THREAD__
    SKIP("the thread sanitizer itself needs more mappings");
    return;
#endif
    unsigned long limit = 0;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
    if (!file || fscanf(file, "%lu", &limit) != 1 || limit > 200000) {
        SKIP("this system's limit of mappings is too large to reach");
    } else {
        CUmemGenericAllocationHandle handle = create(0, PIECE);
        CUdeviceptr base = 0;
        size_t bytes = (limit + 1000) * PIECE;
        EXPECT_CU(cuMemAddressReserve(&base, bytes, 0, 0, 0));
        unsigned long made = 0;
        CUresult result = CUDA_SUCCESS;
        while (made < limit + 1000 && result == CUDA_SUCCESS) {
            // the same memory again and again: neighbours cannot be merged
            result = cuMemMap(base + made * PIECE, PIECE, 0, handle, 0);
            made += result == CUDA_SUCCESS;
        }
        EXPECT_EQ(result, CUDA_ERROR_OUT_OF_MEMORY);
        EXPECT(made > limit / 2);
        EXPECT_CU(cuMemUnmap(base, made * PIECE)); // all at once
        EXPECT_CU(cuMemAddressFree(base, bytes));
        EXPECT_CU(cuMemRelease(handle));
    }
    if (file) {
        fclose(file);
    }
}

// Whether nothing is mapped at an address.
static bool is_free_page(uintptr_t address)
{
    void *page = mmap((void *)address, 4096, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (page == MAP_FAILED) {
        return false;
    }
    munmap(page, 4096);
    return page == (void *)address;
}

// In checking mode closed addresses of their own lie before and behind each reservation, so that
// nothing else is ever mapped there; they go with it. Without, neighbours are as the program wants.
static void checking_mode_guards_reservations(void)
{
    static const size_t ALIGNMENTS[] = {0, 64 << 20};
    CUdeviceptr base = 0;
    CUdeviceptr next = 0;
    vgpu_checking = true;
    for (size_t i = 0; i < 2; i++) {
        EXPECT_CU(cuMemAddressReserve(&base, 2 * PIECE, ALIGNMENTS[i], 0, 0));
        EXPECT_EQ(base % (i ? ALIGNMENTS[i] : PIECE), 0);
        EXPECT(!is_free_page((uintptr_t)base - 4096));
        EXPECT(!is_free_page((uintptr_t)base - PIECE));
        EXPECT(!is_free_page((uintptr_t)base + 2 * PIECE));
        EXPECT(!is_free_page((uintptr_t)base + 3 * PIECE - 4096));
        EXPECT(write_faults((volatile char *)(uintptr_t)base - 16));
        EXPECT(write_faults((volatile char *)(uintptr_t)base + 2 * PIECE));
        EXPECT_CU(cuMemAddressReserve(&next, PIECE, 0, base - PIECE, 0)); // as close as it may be
        EXPECT(next + PIECE <= base - PIECE || next >= base + 3 * PIECE);
        EXPECT_CU(cuMemAddressFree(next, PIECE));
        EXPECT_CU(cuMemAddressFree(base, 2 * PIECE));
    }
    vgpu_checking = false;
    EXPECT_CU(cuMemAddressReserve(&base, 3 * PIECE, 0, 0, 0));
    EXPECT_CU(cuMemAddressFree(base, 3 * PIECE));
    EXPECT_CU(cuMemAddressReserve(&next, PIECE, 0, base + PIECE, 0));
    EXPECT_EQ(next, base + PIECE);
    EXPECT_CU(cuMemAddressFree(next, PIECE));
    (void)cudaGetLastError();
}

int main(void)
{
    EXPECT_CU(cuInit(0));
    RUN(checking_mode_guards_reservations); // before a worker runs, which reads vgpu_checking
    RUN(the_usual_way);
    RUN(one_memory_at_two_addresses);
    RUN(released_handles_come_back);
    RUN(export_and_import);
    RUN(sparse_beyond_4_gib);
    RUN(reservations_refused);
    RUN(memory_refused);
    RUN(host_memory);
    RUN(out_of_mappings);
    return expect_result();
}
