// Devices: numbers, properties, attributes, peers, limits; each machine in a process of its own.
// SPDX-License-Identifier: Apache-2.0
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "expect.h"
#include "vgpu/limit.h"
#include "vgpu/native.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char *self;

// Runs case `name` of this program with the machine and the visible devices that are given.
static int run_with(const char *name, const char *machine, const char *visible)
{
    pid_t pid = fork();
    if (pid == 0) {
        setenv("VGPU_MACHINE", machine, 1);
        if (visible) {
            setenv("CUDA_VISIBLE_DEVICES", visible, 1);
        }
        execl(self, self, "child", name, (char *)NULL);
        _exit(127);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int attribute(enum cudaDeviceAttr which, int device)
{
    int value = -7;
    EXPECT_CUDA(cudaDeviceGetAttribute(&value, which, device));
    return value;
}

static void default_machine(void)
{
    int count = 0;
    EXPECT_CUDA(cudaGetDeviceCount(&count));
    EXPECT_EQ(count, 8);
    struct cudaDeviceProp p;
    for (int i = 0; i < count; i++) {
        EXPECT_CUDA(cudaGetDeviceProperties(&p, i));
        EXPECT_CONTAINS(p.name, "tutti virtual H100");
        EXPECT(p.major == 9 && p.minor == 0 && p.multiProcessorCount == 132 && p.warpSize == 32);
        EXPECT(p.totalGlobalMem > 80ull << 30 >> 1 && p.sharedMemPerBlock == 49152);
        EXPECT_EQ(p.maxThreadsPerBlock, 1024);
        EXPECT_EQ(p.maxThreadsDim[2], 64);
        EXPECT_EQ(p.maxGridSize[0], 0x7fffffff);
        EXPECT_EQ(attribute(cudaDevAttrComputeCapabilityMajor, i), p.major);
        EXPECT_EQ(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, i), 227 * 1024);
        EXPECT_EQ(attribute(cudaDevAttrPciBusId, i), p.pciBusID);
        EXPECT_EQ(attribute(cudaDevAttrUnifiedAddressing, i), 1);
        char bus[16];
        int found = -1;
        EXPECT_CUDA(cudaDeviceGetPCIBusId(bus, sizeof(bus), i));
        EXPECT_EQ(strlen(bus), 12);
        EXPECT_CUDA(cudaDeviceGetByPCIBusId(&found, bus));
        EXPECT_EQ(found, i);
        EXPECT_CUDA(cudaDeviceGetByPCIBusId(&found, bus + 5)); // without the domain
        EXPECT_EQ(found, i);
    }
    int version = 0;
    EXPECT_CUDA(cudaDriverGetVersion(&version));
    EXPECT_EQ(version, 13000);
    EXPECT_CUDA(cudaRuntimeGetVersion(&version));
    EXPECT_EQ(version, 13000);
}

static void every_attribute_answers(void)
{
    int value;
    for (int a = 1; a < cudaDevAttrMax; a++) {
        EXPECT_CUDA(cudaDeviceGetAttribute(&value, (enum cudaDeviceAttr)a, 0));
    }
    EXPECT_EQ(cudaDeviceGetAttribute(&value, (enum cudaDeviceAttr)0, 0), cudaErrorInvalidValue);
    EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrMax, 0), cudaErrorInvalidValue);
    EXPECT_EQ(cudaDeviceGetAttribute(&value, (enum cudaDeviceAttr) - 1, 0), cudaErrorInvalidValue);
    EXPECT_EQ(cudaDeviceGetAttribute(NULL, cudaDevAttrWarpSize, 0), cudaErrorInvalidValue);
    EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 8), cudaErrorInvalidDevice);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

static void *other_thread(void *argument)
{
    int *device = argument;
    if (cudaGetDevice(device) != cudaSuccess || *device != 0 || cudaSetDevice(5) != cudaSuccess) {
        *device = -1;
    }
    return NULL;
}

static void the_device_belongs_to_the_thread(void)
{
    int device = -1;
    pthread_t thread;
    EXPECT_CUDA(cudaSetDevice(3));
    pthread_create(&thread, NULL, other_thread, &device);
    pthread_join(thread, NULL);
    EXPECT_EQ(device, 0);
    EXPECT_CUDA(cudaGetDevice(&device));
    EXPECT_EQ(device, 3);
    EXPECT_EQ(cudaSetDevice(8), cudaErrorInvalidDevice);
    EXPECT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
    EXPECT_CUDA(cudaGetDevice(&device));
    EXPECT_EQ(device, 3);
    EXPECT_EQ(cudaGetDevice(NULL), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaSetDevice(0));
    (void)cudaGetLastError();
}

static void peers(void)
{
    int can = -1;
    EXPECT_CUDA(cudaDeviceCanAccessPeer(&can, 0, 7));
    EXPECT_EQ(can, 1);
    EXPECT_CUDA(cudaDeviceCanAccessPeer(&can, 2, 2));
    EXPECT_EQ(can, 0);
    EXPECT_EQ(cudaDeviceCanAccessPeer(&can, 0, 8), cudaErrorInvalidDevice);
    EXPECT_CUDA(cudaDeviceEnablePeerAccess(1, 0));
    EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
    EXPECT_CUDA(cudaDeviceDisablePeerAccess(1));
    EXPECT_EQ(cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
    EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaErrorInvalidDevice);
    EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 1), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaDeviceGetP2PAttribute(&can, cudaDevP2PAttrNativeAtomicSupported, 0, 1));
    EXPECT_EQ(can, 1);
    (void)cudaGetLastError();
}

static void limits(void)
{
    size_t value = 0;
    EXPECT_CUDA(cudaDeviceGetLimit(&value, cudaLimitStackSize));
    EXPECT_EQ(value, 1024);
    EXPECT_CUDA(cudaDeviceSetLimit(cudaLimitStackSize, 8192));
    EXPECT_CUDA(cudaDeviceGetLimit(&value, cudaLimitStackSize));
    EXPECT_EQ(value, 8192);
    EXPECT_EQ(cudaDeviceSetLimit(cudaLimitStackSize, 1 << 30), cudaErrorInvalidValue);
    EXPECT_EQ(cudaDeviceSetLimit((enum cudaLimit)77, 1), cudaErrorUnsupportedLimit);
    EXPECT_CUDA(cudaDeviceReset());
    EXPECT_CUDA(cudaDeviceGetLimit(&value, cudaLimitStackSize));
    EXPECT_EQ(value, 1024);
    int least = 7;
    int greatest = 7;
    EXPECT_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    EXPECT(least == 0 && greatest < 0);
    (void)cudaGetLastError();
}

// ---- In processes of their own -----------------------------------------------------------------

static int child_none(void)
{
    int count = 9;
    void *p;
    return cudaGetDeviceCount(&count) != cudaErrorNoDevice || count != 0 ||
           cudaSetDevice(0) != cudaErrorNoDevice || cudaMalloc(&p, 16) != cudaErrorNoDevice ||
           cudaGetDevice(&count) != cudaErrorNoDevice || cuInit(0) != CUDA_ERROR_NO_DEVICE;
}

static int child_unknown(void)
{
    int count;
    void *p;
    return cudaGetDeviceCount(&count) != cudaErrorInitializationError ||
           cudaMalloc(&p, 16) != cudaErrorInitializationError ||
           cuInit(0) != CUDA_ERROR_NOT_INITIALIZED;
}

static int child_visible(void)
{
    int count = 0;
    struct cudaDeviceProp first;
    struct cudaDeviceProp second;
    return cudaGetDeviceCount(&count) != cudaSuccess || count != 2 ||
           cudaGetDeviceProperties(&first, 0) != cudaSuccess ||
           cudaGetDeviceProperties(&second, 1) != cudaSuccess || first.pciBusID != 0xd1 ||
           second.pciBusID != 0x43 || cudaSetDevice(2) != cudaErrorInvalidDevice;
}

static bool says(const char *part)
{
    bool is_there = strstr(vgpuLastErrorText(), part) != NULL;
    if (!is_there) {
        printf("\"%s\" is not in: %s\n", part, vgpuLastErrorText());
    }
    return is_there;
}

// CUDA_VISIBLE_DEVICES=6,1: messages name the machine's numbers beside those of this process.
static int child_named(void)
{
    int device = -7;
    char bus[16] = "";
    return vgpuPhysicalDevice(0) != 6 || vgpuPhysicalDevice(1) != 1 ||
           vgpuPhysicalDevice(2) != -1 || vgpuPhysicalDevice(-1) != -1 ||
           cudaDeviceEnablePeerAccess(0, 0) != cudaErrorInvalidDevice ||
           !says("device 0 (physical 6) is its own peer") ||
           cudaDeviceDisablePeerAccess(1) != cudaErrorPeerAccessNotEnabled ||
           !says("device 0 (physical 6) has no access to device 1 (physical 1)") ||
           cudaDeviceGetPCIBusId(bus, sizeof(bus), 0) != cudaSuccess ||
           strcmp(bus, "0000:D1:00.0") != 0 ||
           cudaDeviceGetByPCIBusId(&device, "0000:d1:00.0") != cudaSuccess || device != 0 ||
           cudaDeviceGetByPCIBusId(&device, "0000:43:00.0") != cudaSuccess || device != 1 ||
           // GPU 0 of the machine is there, but not for this process.
           cudaDeviceGetByPCIBusId(&device, "0000:1b:00.0") != cudaErrorInvalidDevice;
}

// CUDA_VISIBLE_DEVICES=1,1: as CUDA 13.0 answers.
static int child_twice(void)
{
    int count = 9;
    return cudaGetDeviceCount(&count) != cudaErrorInvalidDevice ||
           cudaSetDevice(0) != cudaErrorInvalidDevice || cuInit(0) != CUDA_ERROR_INVALID_DEVICE ||
           !says("CUDA_VISIBLE_DEVICES is \"1,1\": it names GPU 1 twice");
}

// CUDA_VISIBLE_DEVICES=8: no such device.
static int child_hidden(void)
{
    int count = 9;
    return cudaGetDeviceCount(&count) != cudaErrorNoDevice ||
           !says("CUDA_VISIBLE_DEVICES is \"8\": its first entry names none of 8 GPUs");
}

// VGPU_DEVICES=5,2 with CUDA_VISIBLE_DEVICES=1,0: counted inside the task's set.
static int child_task(void)
{
    int count = 0;
    return cudaGetDeviceCount(&count) != cudaSuccess || count != 2 || vgpuPhysicalDevice(0) != 5 ||
           vgpuPhysicalDevice(1) != 2;
}

static int child_pcie(void)
{
    int count = 0;
    int can = 1;
    int multicast = 1;
    return cudaGetDeviceCount(&count) != cudaSuccess || count != 4 ||
           cudaDeviceCanAccessPeer(&can, 0, 1) != cudaSuccess || can != 0 ||
           cudaDeviceEnablePeerAccess(1, 0) != cudaErrorPeerAccessUnsupported ||
           cuInit(0) != CUDA_SUCCESS ||
           cuDeviceGetAttribute(&multicast, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0) !=
               CUDA_SUCCESS ||
           multicast != 0;
}

static int child_a100(void)
{
    struct cudaDeviceProp p;
    return cudaGetDeviceProperties(&p, 0) != cudaSuccess || p.major != 8 ||
           p.multiProcessorCount != 108 || p.sharedMemPerBlockOptin != 163 * 1024;
}

static void other_machines(void)
{
    EXPECT_EQ(run_with("none", "none", NULL), 0);
    EXPECT_EQ(run_with("none", "dgx-h100", ""), 0);
    EXPECT_EQ(run_with("twice", "dgx-h100", "1,1"), 0);
    EXPECT_EQ(run_with("hidden", "dgx-h100", "8"), 0);
    EXPECT_EQ(run_with("unknown", "dgx-x1", NULL), 0);
    EXPECT_EQ(run_with("unknown", "/nowhere/box.xml", NULL), 0);
    EXPECT_EQ(run_with("visible", "dgx-h100", "6,1"), 0);
    EXPECT_EQ(run_with("named", "dgx-h100", "6,1"), 0);
    EXPECT_EQ(setenv("VGPU_DEVICES", "5,2", 1), 0);
    EXPECT_EQ(run_with("task", "dgx-h100", "1,0"), 0);
    EXPECT_EQ(setenv("VGPU_DEVICES", "5,9", 1), 0);
    EXPECT_EQ(run_with("unknown", "dgx-h100", NULL), 0);
    EXPECT_EQ(unsetenv("VGPU_DEVICES"), 0);
    EXPECT_EQ(run_with("pcie", "pcie-4", NULL), 0);
    EXPECT_EQ(run_with("a100", "hgx-a100", NULL), 0);
}

// As with CUDA: in a forked child of a process that has used it nothing works, and nothing hangs.
static void children_of_fork_cannot_go_on(void)
{
    void *memory = NULL;
    EXPECT_CUDA(cudaMalloc(&memory, 4096));
    EXPECT_CUDA(cudaDeviceSynchronize());
    pid_t child = fork();
    if (child == 0) {
        void *more = NULL;
        bool right = cudaMalloc(&more, 4096) == cudaErrorInitializationError &&
                     cudaMemset(memory, 0, 4096) == cudaErrorInitializationError &&
                     cudaDeviceSynchronize() == cudaErrorInitializationError &&
                     cudaDeviceReset() == cudaErrorInitializationError &&
                     cudaSetDevice(1) == cudaErrorInitializationError;
        _exit(right ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_CUDA(cudaMemset(memory, 0, 4096));
    EXPECT_CUDA(cudaFree(memory));
}

// A sparse allocation that no host here could fill; the address sanitizer marks all of it, so a
// smaller one there.
static int child_sparse(void)
{
    char *memory = NULL;
#ifdef __SANITIZE_ADDRESS__
    const size_t bytes = (size_t)6 << 30;
#else
    const size_t bytes = (size_t)72 << 30;
#endif
    EXPECT_CUDA(cudaMalloc((void **)&memory, bytes));
    EXPECT_CUDA(cudaMemset(memory, 1, 8));
    EXPECT_CUDA(cudaMemset(memory + bytes - 8, 2, 8));
    char last = 0;
    EXPECT_CUDA(cudaMemcpy(&last, memory + bytes - 1, 1, cudaMemcpyDeviceToHost));
    EXPECT_EQ(last, 2);
    EXPECT_CUDA(cudaFree(memory));
    return expect_result();
}

static void memory_may_be_sparse(void)
{
    EXPECT_EQ(setenv("VGPU_OVERCOMMIT", "1", 1), 0);
    EXPECT_EQ(run_with("sparse", "dgx-h100", NULL), 0);
    EXPECT_EQ(unsetenv("VGPU_OVERCOMMIT"), 0);
}

static int run_child(const char *name)
{
    static const struct {
        const char *name;
        int (*function)(void);
    } children[] = {{"none", child_none},    {"unknown", child_unknown}, {"visible", child_visible},
                    {"named", child_named},  {"twice", child_twice},     {"hidden", child_hidden},
                    {"task", child_task},    {"pcie", child_pcie},       {"a100", child_a100},
                    {"sparse", child_sparse}};
    for (size_t i = 0; i < sizeof(children) / sizeof(children[0]); i++) {
        if (strcmp(children[i].name, name) == 0) {
            return children[i].function();
        }
    }
    return 126;
}

int main(int argc, char **argv)
{
    self = argv[0];
    if (argc == 3 && strcmp(argv[1], "child") == 0) {
        return run_child(argv[2]);
    }
    RUN(default_machine);
    RUN(every_attribute_answers);
    RUN(the_device_belongs_to_the_thread);
    RUN(peers);
    RUN(limits);
    RUN(other_machines);
    RUN(memory_may_be_sparse);
    RUN(children_of_fork_cannot_go_on);
    return expect_result();
}
