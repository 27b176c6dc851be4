// Multicast objects: one process and several, order of members, shared devices, everything refused.
// Accesses go through vgpu_multimem_find, as the device headers' do.
// SPDX-License-Identifier: Apache-2.0
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <vgpu/device_runtime.h>
#include <vgpu/stats.h>

#include "expect.h"
#include "ranks.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPECT_CU(result) EXPECT_EQ(result, CUDA_SUCCESS)

static const size_t PIECE = 2 << 20;
static char *self;

struct memory {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base;
    size_t bytes;
};

static void open_access(CUdeviceptr base, size_t bytes, int device)
{
    CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    EXPECT_CU(cuMemSetAccess(base, bytes, &access, 1));
}

static struct memory make_memory(int device, size_t bytes)
{
    struct memory m = {.bytes = bytes};
    CUmemAllocationProp p = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                             .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                             .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    EXPECT_CU(cuMemCreate(&m.handle, bytes, &p, 0));
    EXPECT_CU(cuMemAddressReserve(&m.base, bytes, 0, 0, 0));
    EXPECT_CU(cuMemMap(m.base, bytes, 0, m.handle, 0));
    open_access(m.base, bytes, device);
    return m;
}

static void free_memory(struct memory *m)
{
    EXPECT_CU(cuMemUnmap(m->base, m->bytes));
    EXPECT_CU(cuMemAddressFree(m->base, m->bytes));
    EXPECT_CU(cuMemRelease(m->handle));
}

static CUmemGenericAllocationHandle make_object(unsigned devices, size_t bytes)
{
    CUmemGenericAllocationHandle object = 0;
    CUmulticastObjectProp p = {.numDevices = devices,
                               .size = bytes,
                               .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    EXPECT_CU(cuMulticastCreate(&object, &p));
    return object;
}

static CUdeviceptr map_object(CUmemGenericAllocationHandle object, size_t bytes, int device)
{
    CUdeviceptr alias = 0;
    EXPECT_CU(cuMemAddressReserve(&alias, bytes, 0, 0, 0));
    EXPECT_CU(cuMemMap(alias, bytes, 0, object, 0));
    open_access(alias, bytes, device);
    return alias;
}

static void unmap_object(CUdeviceptr alias, size_t bytes)
{
    EXPECT_CU(cuMemUnmap(alias, bytes));
    EXPECT_CU(cuMemAddressFree(alias, bytes));
}

static float load_sum(CUdeviceptr address)
{
    const struct vgpu_multimem_range *range = vgpu_multimem_find((uintptr_t)address, 4);
    float sum = 0;
    for (int i = 0; i < range->member_count; i++) {
        sum += *(float *)(range->member[i] + ((uintptr_t)address - range->base));
    }
    return sum;
}

static void store(CUdeviceptr address, float value)
{
    const struct vgpu_multimem_range *range = vgpu_multimem_find((uintptr_t)address, 4);
    for (int i = 0; i < range->member_count; i++) {
        *(float *)(range->member[i] + ((uintptr_t)address - range->base)) = value;
    }
}

static float *floats(const struct memory *m)
{
    return (float *)(uintptr_t)m->base;
}

static void one_process(void)
{
    enum { N = 4 };
    struct memory m[N];
    CUmemGenericAllocationHandle object = make_object(N, 2 * PIECE);
    for (int i = 0; i < N; i++) {
        EXPECT_CU(cuMulticastAddDevice(object, i));
    }
    EXPECT_EQ(cuMulticastAddDevice(object, 5), CUDA_ERROR_INVALID_VALUE); // all are there
    CUdeviceptr alias = map_object(object, 2 * PIECE, 0);
    for (int i = 0; i < N; i++) {
        m[i] = make_memory(i, 2 * PIECE);
        EXPECT_CU(cuMulticastBindMem(object, 0, m[i].handle, 0, 2 * PIECE, 0));
        floats(&m[i])[3] = (float)(1 << i);
    }
    EXPECT_EQ(load_sum(alias + 12), 15);
    const struct vgpu_multimem_range *range = vgpu_multimem_find((uintptr_t)alias, 16);
    EXPECT_EQ(range->member_count, N);
    for (int i = 0; i < N; i++) {
        EXPECT(range->member[i] == (char *)floats(&m[i])); // the mapping that is there, in order
    }
    store(alias + 2 * PIECE - 4, 2.5f);
    for (int i = 0; i < N; i++) {
        EXPECT_EQ(floats(&m[i])[2 * PIECE / 4 - 1] * 2, 5);
    }
    EXPECT_EQ(cudaMemset((void *)(uintptr_t)alias, 0, 4), cudaErrorInvalidValue);
    (void)cudaGetLastError();
    for (int i = 0; i < N; i++) {
        EXPECT_CU(cuMulticastUnbind(object, i, 0, 2 * PIECE));
        EXPECT_EQ(cuMulticastUnbind(object, i, 0, 2 * PIECE), CUDA_ERROR_INVALID_VALUE);
        free_memory(&m[i]);
    }
    unmap_object(alias, 2 * PIECE);
    EXPECT_CU(cuMemRelease(object));
}

// Members bind in pieces, at different offsets of their memory.
static void pieces(void)
{
    CUmemGenericAllocationHandle object = make_object(2, 4 * PIECE);
    struct memory a = make_memory(0, 4 * PIECE);
    struct memory b = make_memory(1, 2 * PIECE);
    struct memory c = make_memory(1, 2 * PIECE);
    EXPECT_CU(cuMulticastAddDevice(object, 0));
    EXPECT_CU(cuMulticastAddDevice(object, 1));
    EXPECT_CU(cuMulticastBindMem(object, 0, a.handle, 0, 4 * PIECE, 0));
    EXPECT_CU(cuMulticastBindMem(object, 0, b.handle, PIECE, PIECE, 0));
    EXPECT_CU(cuMulticastBindAddr(object, PIECE, c.base, 2 * PIECE, 0));
    EXPECT_EQ(cuMulticastBindMem(object, 0, b.handle, 0, PIECE, 0), CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr alias = map_object(object, 4 * PIECE, 0);
    floats(&a)[0] = 1;
    floats(&b)[PIECE / 4] = 10;
    EXPECT_EQ(load_sum(alias), 11);
    floats(&a)[2 * PIECE / 4] = 3;
    floats(&c)[PIECE / 4] = 30;
    EXPECT_EQ(load_sum(alias + 2 * PIECE), 33);
    EXPECT_EQ(vgpu_multimem_find((uintptr_t)alias, 4)->bytes, PIECE);
    EXPECT_EQ(vgpu_multimem_find((uintptr_t)alias + PIECE, 4)->bytes, 2 * PIECE);
    // A binding that changes is seen: the thread's memory of the old one is gone.
    EXPECT_CU(cuMulticastUnbind(object, 1, 0, PIECE));
    EXPECT_CU(cuMulticastBindMem(object, 0, b.handle, 0, PIECE, 0));
    floats(&b)[0] = 100;
    EXPECT_EQ(load_sum(alias), 101);
    // So is a mapping that goes: another one is made for it.
    EXPECT_CU(cuMemUnmap(b.base, 2 * PIECE));
    EXPECT_EQ(load_sum(alias), 101);
    EXPECT_CU(cuMemMap(b.base, 2 * PIECE, 0, b.handle, 0));
    unmap_object(alias, 4 * PIECE);
    EXPECT_CU(cuMemRelease(object)); // and with it what is still bound
    free_memory(&a);
    free_memory(&b);
    free_memory(&c);
}

// Ranks as threads that share one device: each is a member of its own, in the order of addition.
struct sharer {
    CUmemGenericAllocationHandle object;
    pthread_barrier_t *barrier;
    int rank, size;
    struct memory memory;
};

static void *join_shared(void *argument)
{
    struct sharer *me = argument;
    for (int turn = 0; turn < me->size; turn++) {
        if (turn == me->rank) {
            EXPECT_CU(cuMulticastAddDevice(me->object, 0));
        }
        pthread_barrier_wait(me->barrier);
    }
    me->memory = make_memory(0, PIECE);
    floats(&me->memory)[0] = (float)me->rank;
    // Bound in the opposite order: who added a member gets that member.
    for (int turn = me->size - 1; turn >= 0; turn--) {
        if (turn == me->rank) {
            EXPECT_CU(cuMulticastBindMem(me->object, 0, me->memory.handle, 0, PIECE, 0));
        }
        pthread_barrier_wait(me->barrier);
    }
    return NULL;
}

static void threads_share_a_device(void)
{
    enum { N = 5 };
    struct sharer s[N];
    pthread_t thread[N];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, N);
    CUmemGenericAllocationHandle object = make_object(N, PIECE);
    for (int i = 0; i < N; i++) {
        s[i].object = object;
        s[i].barrier = &barrier;
        s[i].rank = i;
        s[i].size = N;
        pthread_create(&thread[i], NULL, join_shared, &s[i]);
    }
    for (int i = 0; i < N; i++) {
        pthread_join(thread[i], NULL);
    }
    CUdeviceptr alias = map_object(object, PIECE, 0);
    const struct vgpu_multimem_range *range = vgpu_multimem_find((uintptr_t)alias, 4);
    EXPECT_EQ(range->member_count, N);
    for (int i = 0; i < N; i++) {
        EXPECT_EQ(*(float *)range->member[i], i);
    }
    unmap_object(alias, PIECE);
    EXPECT_CU(cuMemRelease(object));
    for (int i = 0; i < N; i++) {
        free_memory(&s[i].memory);
    }
    pthread_barrier_destroy(&barrier);
}

// ---- Processes ---------------------------------------------------------------------------------

// Rank 0 makes the object; the others open its exported descriptor through /proc. Even ranks map
// before all have bound.
static void ranks_meet(int rank, int size)
{
    struct {
        int pid, fd;
    } where = {0, -1};
    CUmemGenericAllocationHandle object = 0;
    EXPECT_CU(cuInit(0));
    EXPECT_CUDA(cudaSetDevice(rank));
    if (rank == 0) {
        object = make_object((unsigned)size, PIECE);
        EXPECT_CU(cuMemExportToShareableHandle(&where.fd, object, 1, 0));
        where.pid = getpid();
    }
    ranks_broadcast(&where, sizeof(where));
    if (rank > 0) {
        char path[64];
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", where.pid, where.fd);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        EXPECT_CU(cuMemImportFromShareableHandle(&object, (void *)(intptr_t)fd, 1));
        close(fd);
    }
    for (int turn = 0; turn < size; turn++) {
        if (turn == rank) {
            EXPECT_CU(cuMulticastAddDevice(object, rank));
        }
        ranks_barrier();
    }
    CUdeviceptr alias = 0;
    if (rank % 2 == 0) {
        alias = map_object(object, PIECE, rank);
    }
    ranks_barrier();
    struct memory m = make_memory(rank, PIECE);
    EXPECT_CU(cuMulticastBindMem(object, 0, m.handle, 0, PIECE, 0));
    floats(&m)[0] = (float)(rank + 1);
    ranks_barrier();
    if (rank % 2 == 1) {
        alias = map_object(object, PIECE, rank);
    }
    EXPECT_EQ(load_sum(alias), size * (size + 1) / 2);
    const struct vgpu_multimem_range *range = vgpu_multimem_find((uintptr_t)alias, 4);
    for (int i = 0; i < range->member_count; i++) {
        EXPECT_EQ(*(float *)range->member[i], i + 1); // rank order in every process
    }
    ranks_barrier();
    store(alias + 64 + 4 * (size_t)rank, (float)rank + 0.5f);
    ranks_barrier();
    for (int i = 0; i < size; i++) {
        EXPECT_EQ(floats(&m)[16 + i] * 2, 2 * i + 1);
    }
    ranks_barrier();
    EXPECT_CU(cuMulticastUnbind(object, rank, 0, PIECE));
    unmap_object(alias, PIECE);
    EXPECT_CU(cuMemRelease(object));
    free_memory(&m);
    if (where.fd >= 0 && rank == 0) {
        close(where.fd);
    }
}

static void two_processes(void)
{
    run_ranks(2, ranks_meet, 30);
}

static void six_processes(void)
{
    run_ranks(6, ranks_meet, 60);
}

// ---- Refusals ----------------------------------------------------------------------------------

static void what_is_refused(void)
{
    CUmemGenericAllocationHandle object = 0;
    CUmulticastObjectProp p = {.numDevices = 2, .size = PIECE};
    size_t granularity = 0;
    EXPECT_CU(cuMulticastGetGranularity(&granularity, &p, CU_MULTICAST_GRANULARITY_MINIMUM));
    EXPECT_EQ(granularity, PIECE);
    p.size = PIECE + 1;
    EXPECT_EQ(cuMulticastCreate(&object, &p), CUDA_ERROR_INVALID_VALUE);
    p.size = PIECE;
    p.numDevices = 0;
    EXPECT_EQ(cuMulticastCreate(&object, &p), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMulticastCreate(&object, NULL), CUDA_ERROR_INVALID_VALUE);
    p.numDevices = 1;
    p.handleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    EXPECT_EQ(cuMulticastCreate(&object, &p), CUDA_ERROR_NOT_SUPPORTED);
    object = make_object(1, PIECE);
    EXPECT_EQ(cuMulticastAddDevice(object, 8), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_EQ(cuMulticastAddDevice(object + 1, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuMulticastAddDevice(object, 3));
    struct memory m = make_memory(2, PIECE);
    EXPECT_EQ(cuMulticastBindMem(object, 0, m.handle, 0, PIECE, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMulticastBindMem(object, 0, object, 0, PIECE, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMulticastBindMem(m.handle, 0, m.handle, 0, PIECE, 0), CUDA_ERROR_INVALID_VALUE);
    free_memory(&m);
    m = make_memory(3, PIECE);
    EXPECT_EQ(cuMulticastBindMem(object, PIECE, m.handle, 0, PIECE, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMulticastBindMem(object, 0, m.handle, 0, 2 * PIECE, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMulticastBindMem(object, 0, m.handle, 4096, PIECE, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMulticastBindMem(object, 0, m.handle, 0, PIECE, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMulticastBindAddr(object, 0, 4096, PIECE, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuMulticastBindAddr(object, 0, m.base, PIECE, 0));
    EXPECT_CU(cuMemRelease(object));
    EXPECT_EQ(cuMemRelease(object), CUDA_ERROR_INVALID_VALUE);
    free_memory(&m);
}

static int run_child(const char *name, const char *machine)
{
    pid_t pid = fork();
    if (pid == 0) {
        setenv("VGPU_MACHINE", machine, 1);
        execl(self, self, "child", name, (char *)NULL);
        _exit(127);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int child_without(void)
{
    CUmemGenericAllocationHandle object;
    CUmulticastObjectProp p = {.numDevices = 2, .size = PIECE};
    return cuInit(0) != CUDA_SUCCESS || cuMulticastCreate(&object, &p) != CUDA_ERROR_NOT_SUPPORTED;
}

static void machines_without_multicast(void)
{
    EXPECT_EQ(run_child("without", "hgx-a100"), 0);
    EXPECT_EQ(run_child("without", "pcie-4"), 0);
}

// Each of these ends the process with a message: outside a kernel a fault aborts.
static int child_fault(const char *name)
{
    CUmemGenericAllocationHandle object = make_object(2, PIECE);
    cuMulticastAddDevice(object, 0);
    cuMulticastAddDevice(object, 1);
    struct memory m = make_memory(0, PIECE);
    CUdeviceptr alias = map_object(object, PIECE, 0);
    cuMulticastBindMem(object, 0, m.handle, 0, PIECE, 0);
    if (strcmp(name, "fault-unbound") == 0) {
        load_sum(alias); // device 1 has bound nothing
    } else if (strcmp(name, "fault-stranger") == 0) {
        load_sum(m.base); // no multicast address
    }
    return 0;
}

static void faults(void)
{
    EXPECT(run_child("fault-unbound", "dgx-h100") != 0);
    EXPECT(run_child("fault-stranger", "dgx-h100") != 0);
    EXPECT_EQ(run_child("fault-none", "dgx-h100"), 0);
}

int main(int argc, char **argv)
{
    self = argv[0];
    if (argc == 3 && strcmp(argv[1], "child") == 0) {
        return strcmp(argv[2], "without") == 0 ? child_without()
               : cuInit(0) == CUDA_SUCCESS     ? child_fault(argv[2])
                                               : 125;
    }
    EXPECT_CU(cuInit(0));
    RUN(one_process);
    RUN(pieces);
    RUN(threads_share_a_device);
    RUN(two_processes);
    RUN(six_processes);
    RUN(what_is_refused);
    RUN(machines_without_multicast);
    RUN(faults);
    return expect_result();
}
