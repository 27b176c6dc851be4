// Allocation: alignment, reuse, sparse sizes, every way to run out, wrong pointers, pinned memory.
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include "expect.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static void alignment_and_contents(void)
{
    static const size_t sizes[] = {1,    255,  256,   257,     4095,
                                   4096, 4097, 65536, 1 << 20, (8 << 20) + 1};
    enum { COUNT = sizeof(sizes) / sizeof(sizes[0]) };
    char *p[COUNT];
    for (int i = 0; i < COUNT; i++) {
        EXPECT_CUDA(cudaMalloc((void **)&p[i], sizes[i]));
        EXPECT_EQ((uintptr_t)p[i] % (sizes[i] >= 4096 ? 4096 : 256), 0);
        memset(p[i], i + 1, sizes[i]); // shares the address space
    }
    for (int i = 0; i < COUNT; i++) {
        for (size_t at = 0; at<sizes[i]; at += sizes[i]> 8 ? sizes[i] / 8 : 1) {
            EXPECT_EQ(p[i][at], i + 1);
        }
        EXPECT_CUDA(cudaFree(p[i]));
    }
    void *nothing = &nothing;
    EXPECT_CUDA(cudaMalloc(&nothing, 0));
    EXPECT(nothing == NULL);
    EXPECT_CUDA(cudaFree(NULL));
    EXPECT_EQ(cudaMalloc(NULL, 16), cudaErrorInvalidValue);
    (void)cudaGetLastError();
}

// Random allocations and frees: blocks never overlap, and everything can be freed.
static void blocks_do_not_overlap(void)
{
    enum { COUNT = 200, STEPS = 4000 };
    static struct {
        unsigned char *p;
        size_t bytes;
        unsigned char mark;
    } live[COUNT];
    srand(11);
    int wrong = 0;
    for (int step = 0; step < STEPS; step++) {
        int i = rand() % COUNT;
        if (live[i].p) {
            wrong += live[i].p[0] != live[i].mark || live[i].p[live[i].bytes - 1] != live[i].mark;
            EXPECT_CUDA(cudaFree(live[i].p));
            live[i].p = NULL;
        } else {
            live[i].bytes = (size_t)(rand() % (1 << (1 + rand() % 20))) + 1;
            live[i].mark = (unsigned char)step;
            EXPECT_CUDA(cudaMalloc((void **)&live[i].p, live[i].bytes));
            live[i].p[0] = live[i].p[live[i].bytes - 1] = live[i].mark;
        }
    }
    EXPECT_EQ(wrong, 0);
    for (int i = 0; i < COUNT; i++) {
        EXPECT_CUDA(cudaFree(live[i].p));
    }
    size_t free_bytes;
    size_t total;
    EXPECT_CUDA(cudaMemGetInfo(&free_bytes, &total));
    EXPECT(free_bytes <= total);
}

static void wrong_pointers(void)
{
    char *p;
    int local;
    EXPECT_CUDA(cudaMalloc((void **)&p, 8192));
    EXPECT_EQ(cudaFree(p + 1), cudaErrorInvalidValue);
    EXPECT_EQ(cudaFree(&local), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaFree(p));
    EXPECT_EQ(cudaFree(p), cudaErrorInvalidValue);
    EXPECT_EQ(cudaFreeHost(&local), cudaErrorInvalidValue);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

static void sparse_beyond_4_gib(void)
{
    size_t free_bytes;
    size_t bytes = (5ull << 30) + 12345;
    EXPECT_CUDA(cudaMemGetInfo(&free_bytes, NULL));
    if (free_bytes < bytes) {
        SKIP("the host has less than 5 GiB left");
        return;
    }
    unsigned char *p;
    if (EXPECT_CUDA(cudaMalloc((void **)&p, bytes))) {
        EXPECT_EQ(p[0], 0); // fresh pages
        p[0] = 1;
        p[4ull << 30] = 2;
        p[bytes - 1] = 3;
        EXPECT_EQ(p[0] + p[4ull << 30] + p[bytes - 1], 6);
        unsigned char last[2] = {0, 0};
        EXPECT_CUDA(cudaMemcpy(last, p + bytes - 2, 2, cudaMemcpyDeviceToHost));
        EXPECT_EQ(last[1], 3);
        EXPECT_CUDA(cudaFree(p));
    }
}

static void out_of_memory(void)
{
    void *p = NULL;
    size_t total;
    EXPECT_CUDA(cudaMemGetInfo(NULL, &total));
    EXPECT_EQ(cudaMalloc(&p, total + 1), cudaErrorMemoryAllocation);
    EXPECT_EQ(cudaMalloc(&p, SIZE_MAX), cudaErrorMemoryAllocation);
    EXPECT_EQ(cudaMalloc(&p, SIZE_MAX - 4095), cudaErrorMemoryAllocation);
    EXPECT_EQ(cudaMallocHost(&p, (size_t)1 << 46), cudaErrorMemoryAllocation);
    size_t pitch;
    EXPECT_EQ(cudaMallocPitch(&p, &pitch, SIZE_MAX, 2), cudaErrorMemoryAllocation);
    EXPECT_EQ(cudaMallocPitch(&p, &pitch, 1 << 20, SIZE_MAX / 4096), cudaErrorMemoryAllocation);
    // The host's limit, set low: nothing is touched, the rest stays usable.
    setenv("VGPU_HOST_MEMORY", "100M", 1);
    EXPECT_EQ(cudaMalloc(&p, 200 << 20), cudaErrorMemoryAllocation);
    EXPECT_CUDA(cudaMalloc(&p, 50 << 20));
    void *q;
    EXPECT_EQ(cudaMalloc(&q, 60 << 20), cudaErrorMemoryAllocation);
    EXPECT_CUDA(cudaFree(p));
    EXPECT_CUDA(cudaMalloc(&q, 60 << 20));
    EXPECT_CUDA(cudaFree(q));
    unsetenv("VGPU_HOST_MEMORY");
    EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
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

// Segments of 100 MB each: one descriptor a piece, until there are none.
static void out_of_descriptors(void)
{
    enum { COUNT = 64 };
    struct rlimit before;
    void *p[COUNT];
    getrlimit(RLIMIT_NOFILE, &before);
    int open_before = open_descriptors();
    struct rlimit low = {.rlim_cur = (rlim_t)open_before + 8, .rlim_max = before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &low);
    int made = 0;
    cudaError_t error = cudaSuccess;
    while (made < COUNT && error == cudaSuccess) {
        error = cudaMalloc(&p[made], 100 << 20);
        made += error == cudaSuccess;
    }
    EXPECT_EQ(error, cudaErrorMemoryAllocation);
    EXPECT(made > 0 && made < COUNT);
    for (int i = 0; i < made; i++) {
        EXPECT_CUDA(cudaFree(p[i]));
    }
    setrlimit(RLIMIT_NOFILE, &before);
    EXPECT(open_descriptors() <= open_before + 3); // a few segments may be kept
    (void)cudaGetLastError();
}

static void *allocate_a_lot(void *argument)
{
    int *failures = argument;
    void *p[50];
    for (int round = 0; round < 40; round++) {
        cudaSetDevice(round % 8);
        for (int i = 0; i < 50; i++) {
            *failures += cudaMalloc(&p[i], (size_t)(i + 1) * 1000) != cudaSuccess;
            *(int *)p[i] = i;
        }
        for (int i = 0; i < 50; i++) {
            *failures += *(int *)p[i] != i || cudaFree(p[i]) != cudaSuccess;
        }
    }
    return NULL;
}

static void threads_allocate(void)
{
    pthread_t thread[4];
    int failures[4] = {0};
    for (int i = 0; i < 4; i++) {
        pthread_create(&thread[i], NULL, allocate_a_lot, &failures[i]);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        EXPECT_EQ(failures[i], 0);
    }
}

static void pinned_memory(void)
{
    char *p;
    unsigned flags = 0;
    void *device_pointer = NULL;
    struct cudaPointerAttributes a;
    EXPECT_CUDA(cudaHostAlloc((void **)&p, 10000, cudaHostAllocPortable));
    memset(p, 5, 10000);
    EXPECT_CUDA(cudaHostGetFlags(&flags, p));
    EXPECT(flags & cudaHostAllocPortable);
    EXPECT_CUDA(cudaHostGetDevicePointer(&device_pointer, p, 0));
    EXPECT(device_pointer == p);
    EXPECT_CUDA(cudaPointerGetAttributes(&a, p + 99));
    EXPECT_EQ(a.type, cudaMemoryTypeHost);
    EXPECT(a.hostPointer == p + 99);
    EXPECT_CUDA(cudaFreeHost(p));
    EXPECT_EQ(cudaFreeHost(p), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaFreeHost(NULL));
    EXPECT_EQ(cudaHostAlloc((void **)&p, 100, 0x100), cudaErrorInvalidValue);

    static char mine[20000];
    EXPECT_CUDA(cudaHostRegister(mine, sizeof(mine), cudaHostRegisterDefault));
    EXPECT_EQ(cudaHostRegister(mine + 5, 10, 0), cudaErrorHostMemoryAlreadyRegistered);
    EXPECT_CUDA(cudaPointerGetAttributes(&a, mine));
    EXPECT_EQ(a.type, cudaMemoryTypeHost);
    EXPECT_EQ(cudaHostUnregister(mine + 1), cudaErrorHostMemoryNotRegistered);
    EXPECT_CUDA(cudaHostUnregister(mine));
    EXPECT_EQ(cudaHostUnregister(mine), cudaErrorHostMemoryNotRegistered);
    EXPECT_CUDA(cudaPointerGetAttributes(&a, mine));
    EXPECT_EQ(a.type, cudaMemoryTypeUnregistered);
    EXPECT_EQ(cudaHostRegister(NULL, 10, 0), cudaErrorInvalidValue);
    void *gap = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(gap, 4096);
    EXPECT_EQ(cudaHostRegister(gap, 10, 0), cudaErrorInvalidValue);
    (void)cudaGetLastError();
}

static void what_a_pointer_is(void)
{
    char *p;
    struct cudaPointerAttributes a;
    EXPECT_CUDA(cudaSetDevice(4));
    EXPECT_CUDA(cudaMalloc((void **)&p, 1000));
    EXPECT_CUDA(cudaSetDevice(0));
    EXPECT_CUDA(cudaPointerGetAttributes(&a, p + 999));
    EXPECT_EQ(a.type, cudaMemoryTypeDevice);
    EXPECT_EQ(a.device, 4);
    EXPECT(a.devicePointer == p + 999 && a.hostPointer == NULL);
    EXPECT_CUDA(cudaPointerGetAttributes(&a, p + 1000)); // just beyond
    EXPECT_EQ(a.type, cudaMemoryTypeUnregistered);
    EXPECT_CUDA(cudaFree(p));
    EXPECT_CUDA(cudaMallocManaged((void **)&p, 1000, cudaMemAttachGlobal));
    EXPECT_CUDA(cudaPointerGetAttributes(&a, p));
    EXPECT_EQ(a.type, cudaMemoryTypeManaged);
    EXPECT_CUDA(cudaFree(p));
    struct cudaPitchedPtr pitched;
    struct cudaExtent extent = {1000, 20, 3};
    EXPECT_CUDA(cudaMalloc3D(&pitched, extent));
    EXPECT(pitched.pitch >= 1000 && pitched.pitch % 512 == 0 && pitched.ysize == 20);
    EXPECT_CUDA(cudaFree(pitched.ptr));
}

static void in_stream_order(void)
{
    int *p;
    int value = 0;
    EXPECT_CUDA(cudaMallocAsync((void **)&p, sizeof(int), 0));
    EXPECT_CUDA(cudaMemsetAsync(p, 1, sizeof(int), 0));
    EXPECT_CUDA(cudaMemcpyAsync(&value, p, sizeof(int), cudaMemcpyDeviceToHost, 0));
    EXPECT_CUDA(cudaFreeAsync(p, 0));
    EXPECT_CUDA(cudaStreamSynchronize(0));
    EXPECT_EQ(value, 0x01010101);
    EXPECT_EQ(cudaFree(p), cudaErrorInvalidValue); // gone
    EXPECT_EQ(cudaFreeAsync(&value, 0), cudaErrorInvalidValue);
    (void)cudaGetLastError();
}

static void reset_frees(void)
{
    void *p;
    size_t before;
    size_t after;
    EXPECT_CUDA(cudaSetDevice(7));
    EXPECT_CUDA(cudaMalloc(&p, 1 << 20));
    EXPECT_CUDA(cudaMalloc(&p, 100 << 20));
    EXPECT_CUDA(cudaMemGetInfo(&before, NULL));
    EXPECT_CUDA(cudaDeviceReset());
    EXPECT_EQ(cudaFree(p), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaMemGetInfo(&after, NULL));
    EXPECT(after + (10 << 20) > before);
    EXPECT_CUDA(cudaSetDevice(0));
    (void)cudaGetLastError();
}

static void nothing_in_dev_shm(void)
{
    DIR *folder = opendir("/dev/shm");
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        EXPECT(!strstr(entry->d_name, "vgpu"));
    }
    if (folder) {
        closedir(folder);
    }
    EXPECT(true);
}

int main(void)
{
    RUN(alignment_and_contents);
    RUN(blocks_do_not_overlap);
    RUN(wrong_pointers);
    RUN(sparse_beyond_4_gib);
    RUN(out_of_memory);
    RUN(out_of_descriptors);
    RUN(threads_allocate);
    RUN(pinned_memory);
    RUN(what_a_pointer_is);
    RUN(in_stream_order);
    RUN(reset_frees);
    RUN(nothing_in_dev_shm);
    return expect_result();
}
