// Kernels that fail: the one line that is printed, errors that stick, work that is dropped; the
// watchdog; the end of a process while kernels run. SPDX-License-Identifier: Apache-2.0
#include "captured_output.h"
#include "expect.h"
#include "kernel_by_hand.h"
#include "stopwatch.h"

#include "vgpu/native.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 }; // signals are the sanitizer's
#else
enum { SANITIZED = 0 };
#endif

extern char **environ;

static volatile uintptr_t nowhere = 0x10; // an address that nothing lies at

// ---- What is printed ----------------------------------------------------------------------------

static int count_lines(const char *text)
{
    int lines = 0;
    for (; *text; text++) {
        lines += *text == '\n';
    }
    return lines;
}

// Runs a kernel that fails, checks the error, that it sticks, the text (one line with all the
// parts) and that a reset clears it.
static void fails(const struct vgpu_kernel *kernel, unsigned blocks, unsigned threads, void *data,
                  cudaError_t error, const char *const parts[])
{
    void *memory = NULL;
    begin_capture(stderr);
    cudaError_t launched = LAUNCH(*kernel, blocks, threads, 0, data);
    cudaError_t waited = cudaDeviceSynchronize();
    const char *text = end_capture();
    EXPECT_EQ(launched, cudaSuccess);
    EXPECT_EQ(waited, error);
    EXPECT_EQ(count_lines(text), 1);
    EXPECT_CONTAINS(text, kernel->name);
    EXPECT_CONTAINS(text, cudaGetErrorName(error));
    for (int i = 0; parts[i]; i++) {
        EXPECT_CONTAINS(text, parts[i]);
    }
    EXPECT_EQ(cudaGetLastError(), error);
    EXPECT_EQ(cudaGetLastError(), error); // it sticks
    EXPECT_EQ(LAUNCH(*kernel, 1, 1, 0, data), error);
    EXPECT_EQ(cudaStreamSynchronize(0), error);
    EXPECT_EQ(cudaMalloc(&memory, 16), error);
    EXPECT_CUDA(cudaSetDevice(1)); // other devices go on
    (void)cudaGetLastError();
    EXPECT_CUDA(cudaDeviceSynchronize());
    (void)cudaSetDevice(0);
    EXPECT_CUDA(cudaDeviceReset());
    EXPECT_CUDA(cudaGetLastError());
    EXPECT_CUDA(cudaMalloc(&memory, 16));
    EXPECT_CUDA(cudaFree(memory));
}

// ---- Faults -------------------------------------------------------------------------------------

KERNEL(writes_nowhere, int *, 0)
{
    (void)data;
    vgpu_syncthreads();
    if (blockIdx.x == 1 && threadIdx.x == 3) {
        *(volatile int *)nowhere = 1;
    }
    vgpu_syncthreads();
}

static void a_bad_address_fails_the_kernel(void)
{
    if (SANITIZED) {
        SKIP("the sanitizer handles signals");
        return;
    }
    fails(&writes_nowhere, 3, 64, NULL, cudaErrorIllegalAddress,
          (const char *const[]){"device 0 (physical 0): kernel ", "block (1,0,0)", "thread (3,0,0)",
                                "0x10", "fault_test.c", NULL});
}

KERNEL(stores_misaligned, char, 0)
{
    __asm__ volatile("movaps %%xmm0, (%0)" ::"r"(data + 4) : "memory");
}

static void a_misaligned_vector_fails_the_kernel(void)
{
    static char memory[64] __attribute__((aligned(16)));
    if (SANITIZED) {
        SKIP("the sanitizer handles signals");
        return;
    }
    fails(&stores_misaligned, 1, 1, memory, cudaErrorMisalignedAddress,
          (const char *const[]){"not aligned", NULL});
}

// The undefined-behaviour sanitizer would end the program before the processor says anything.
__attribute__((noinline, no_sanitize("undefined"))) static int divide(int a, int b)
{
    return a / b;
}

__attribute__((noinline, no_sanitize("undefined"))) static unsigned char
divide_bytes(unsigned char a, unsigned char b)
{
    unsigned char quotient = a;
    unsigned short dividend = a; // compilers divide bytes as words
    __asm__("divb %2" : "=a"(dividend) : "0"(dividend), "m"(b));
    quotient = (unsigned char)dividend;
    return quotient;
}

__attribute__((noinline, no_sanitize("undefined"))) static unsigned long long
divide_long(const unsigned long long *a, const unsigned long long *b)
{
    return *a / *b;
}

KERNEL(divides_by_zero, int, 0)
{
    *data = divide(5, *data);
}

struct quotients {
    int number, least, remainder;
    unsigned char byte;
    unsigned long long operands[3], wide;
};

KERNEL(divides, struct quotients, 0)
{
    volatile int none = 0;
    volatile int minus = -1;
    volatile int least = -2147483647 - 1;
    data->number = divide(5, none);
    data->least = divide(least, minus);
    data->byte = divide_bytes(7, 0);
    data->wide = divide_long(&data->operands[0], &data->operands[threadIdx.x + 2]);
    data->remainder = divide(100, 7);
}

// As on a GPU, a kernel goes on with some result. In checking mode it is a fault.
static void division_by_zero(void)
{
    int zero = 0;
    if (SANITIZED) {
        SKIP("the sanitizer handles signals");
        return;
    }
    struct quotients q = {.operands = {3, 1, 0}};
    EXPECT_CUDA(LAUNCH(divides, 1, 1, 0, &q));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(q.number, -1);
    EXPECT_EQ(q.least, -2147483647 - 1);
    EXPECT_EQ(q.byte, 255);
    EXPECT_EQ(q.wide, ~0ull);
    EXPECT_EQ(q.remainder, 14);
    vgpu_checking = true;
    EXPECT_CUDA(LAUNCH(divides_by_zero, 1, 1, 0, &zero));
    EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    EXPECT_CUDA(cudaDeviceReset());
    (void)cudaGetLastError();
    vgpu_checking = false;
}

KERNEL(traps, int, 0)
{
    (void)data;
    __builtin_trap();
}

static void a_trap_fails_the_kernel(void)
{
    if (SANITIZED) {
        SKIP("the sanitizer handles signals");
        return;
    }
    fails(&traps, 1, 32, NULL, cudaErrorLaunchFailure, (const char *const[]){"trap", NULL});
}

KERNEL(asserts, int, 0)
{
    vgpu_syncthreads();
    if (threadIdx.x == 77) {
        vgpu_assert_fail("count > *data", "user.cu", 12, "asserts");
    }
    vgpu_syncthreads();
    (void)data;
}

static void an_assertion_fails_the_kernel(void)
{
    for (int i = 0; i < (SANITIZED ? 3 : 40); i++) {
        fails(&asserts, 4, 256, NULL, cudaErrorAssert,
              (const char *const[]){"user.cu:12", "count > *data", "thread (77,0,0)", NULL});
    }
}

KERNEL(reports_fault, int, 0)
{
    vgpu_fault(cudaErrorMisalignedAddress, "address %d of %s", *data, "nobody");
}

static void a_fault_carries_its_text(void)
{
    int number = 17;
    fails(&reports_fault, 2, 33, &number, cudaErrorMisalignedAddress,
          (const char *const[]){"address 17 of nobody", NULL});
}

// ---- Stacks -------------------------------------------------------------------------------------

__attribute__((noinline)) static int descend(int depth)
{
    volatile char frame[1024];
    memset((char *)frame, depth | 1, sizeof(frame));
    return depth > 0 ? descend(depth - 1) + frame[depth % 1024] : frame[0];
}

KERNEL(uses_stack, int, 0)
{
    vgpu_syncthreads();
    int result = descend(*data);
    vgpu_syncthreads();
    if (result == 0) {
        *data = 0;
    }
}

static void a_deep_stack_is_named_and_may_be_raised(void)
{
    int depth = 75; // KiB and some
    if (SANITIZED) {
        SKIP("stacks are larger under a sanitizer, which looks after them");
        return;
    }
    const char *const parts[] = {"stack of 65536 bytes overflowed", "cudaLimitStackSize", NULL};
    fails(&uses_stack, 1, 40, &depth, cudaErrorLaunchFailure, parts);
    fails(&uses_stack, 1, 1, &depth, cudaErrorLaunchFailure, parts);
    EXPECT_CUDA(cudaDeviceSetLimit(cudaLimitStackSize, 100 << 10));
    EXPECT_CUDA(LAUNCH(uses_stack, 4, 40, 0, &depth));
    EXPECT_CUDA(cudaDeviceSynchronize());
    depth = 3000; // through the slab of stacks, into the page that guards it
    EXPECT_CUDA(cudaDeviceReset());
    fails(&uses_stack, 1, 1, &depth, cudaErrorLaunchFailure, parts);
    depth = 10;
    EXPECT_CUDA(LAUNCH(uses_stack, 4, 1000, 0, &depth)); // no stack was left marked
    EXPECT_CUDA(cudaDeviceSynchronize());
}

// ---- Threads that can never go on ---------------------------------------------------------------

KERNEL(diverges_at_barriers, int, 0)
{
    (void)data;
    if (threadIdx.x < 40) {
        vgpu_syncthreads();
    } else if (threadIdx.x < 60) {
        vgpu_barrier_sync(3, 0);
    }
}

static void different_barriers_are_named(void)
{
    fails(&diverges_at_barriers, 1, 64, NULL, cudaErrorLaunchFailure,
          (const char *const[]){"threads 0-39 wait at __syncthreads",
                                "threads 40-59 wait at barrier 3", "threads 60-63 have ended",
                                NULL});
}

KERNEL(diverges_in_a_warp, int, 0)
{
    (void)data;
    if (threadIdx.x % 32 == 5) {
        vgpu_syncthreads();
    } else {
        vgpu_syncwarp(~0u);
        vgpu_syncthreads();
    }
}

static void a_warp_and_a_barrier_are_named(void)
{
    fails(&diverges_in_a_warp, 1, 32, NULL, cudaErrorLaunchFailure,
          (const char *const[]){"threads 0-4 wait in their warp for mask 0xffffffff",
                                "threads 5-5 wait at __syncthreads", NULL});
}

KERNEL(expects_different_counts, int, 0)
{
    (void)data;
    vgpu_barrier_sync(2, threadIdx.x < 32 ? 64 : 32);
}

static void counts_of_a_barrier_must_agree(void)
{
    fails(&expects_different_counts, 1, 64, NULL, cudaErrorLaunchFailure,
          (const char *const[]){"barrier 2", NULL});
}

KERNEL(names_others_only, int, 0)
{
    (void)data;
    vgpu_syncwarp(threadIdx.x == 9 ? 1u : ~0u);
}

static void a_mask_must_hold_the_caller(void)
{
    fails(&names_others_only, 1, 32, NULL, cudaErrorLaunchFailure,
          (const char *const[]){"lacks the calling lane, 9", NULL});
}

// ---- Other work ---------------------------------------------------------------------------------

KERNEL(waits_for_ever, atomic_int, 0)
{
    while (atomic_load(data) == 0) {
        vgpu_yield();
    }
}

KERNEL(counts, atomic_int, 0)
{
    atomic_fetch_add(data, 1);
}

static void count_call(void *argument)
{
    atomic_fetch_add((atomic_int *)argument, 1);
}

static void note_status(cudaStream_t stream, cudaError_t status, void *argument)
{
    (void)stream;
    *(cudaError_t *)argument = status;
}

static void a_fault_ends_the_devices_other_work(void)
{
    atomic_int never = 0;
    atomic_int later = 0;
    cudaError_t status = cudaSuccess;
    cudaStream_t waiting = NULL;
    cudaStream_t failing = NULL;
    cudaEvent_t event = NULL;
    EXPECT_CUDA(cudaStreamCreateWithFlags(&waiting, cudaStreamNonBlocking));
    EXPECT_CUDA(cudaStreamCreateWithFlags(&failing, cudaStreamNonBlocking));
    EXPECT_CUDA(cudaEventCreate(&event));
    EXPECT_CUDA(LAUNCH(waits_for_ever, 20, 64, waiting, &never));
    EXPECT_CUDA(LAUNCH(counts, 20, 64, waiting, &later));
    EXPECT_CUDA(cudaLaunchHostFunc(waiting, count_call, &later));
    EXPECT_CUDA(cudaStreamAddCallback(waiting, note_status, &status, 0));
    EXPECT_CUDA(cudaEventRecord(event, waiting));
    begin_capture(stderr);
    (void)LAUNCH(asserts, 1, 128, failing, NULL);
    EXPECT_EQ(cudaStreamSynchronize(waiting), cudaErrorAssert);
    EXPECT_EQ(count_lines(end_capture()), 1);
    EXPECT_EQ(cudaEventSynchronize(event), cudaErrorAssert);
    EXPECT_EQ(cudaStreamSynchronize(failing), cudaErrorAssert);
    EXPECT_EQ(later, 0);
    EXPECT_EQ(status, cudaErrorAssert);
    EXPECT_CUDA(cudaEventDestroy(event));
    EXPECT_CUDA(cudaStreamDestroy(waiting));
    EXPECT_CUDA(cudaStreamDestroy(failing));
    EXPECT_CUDA(cudaDeviceReset());
}

static void a_bad_copy_fails_the_device(void)
{
    void *memory = NULL;
    if (SANITIZED) {
        SKIP("the sanitizer handles signals");
        return;
    }
    EXPECT_CUDA(cudaMalloc(&memory, 1 << 20));
    begin_capture(stderr);
    (void)cudaMemcpyAsync(memory, (const void *)(uintptr_t)0x1000, 1 << 20, cudaMemcpyHostToDevice,
                          cudaStreamPerThread);
    cudaError_t error = cudaStreamSynchronize(cudaStreamPerThread);
    const char *text = end_capture();
    EXPECT_EQ(error, cudaErrorIllegalAddress);
    EXPECT_CONTAINS(text, "cudaMemcpyAsync");
    EXPECT_CUDA(cudaDeviceReset());
}

KERNEL(never_yields, int, 0)
{
    (void)data;
    struct timespec begin;
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
    } while (threadIdx.x == 2 &&
             (now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < 2500);
}

static void the_watchdog_names_a_kernel_that_never_yields(void)
{
    begin_capture(stderr);
    cudaError_t launched = LAUNCH(never_yields, 1, 4, 0, NULL);
    cudaError_t waited = cudaDeviceSynchronize();
    const char *text = end_capture();
    EXPECT_CUDA(launched);
    EXPECT_CUDA(waited);
    EXPECT_EQ(count_lines(text), 1);
    EXPECT_CONTAINS(text, "never_yields");
}

// ---- Whole processes ----------------------------------------------------------------------------

KERNEL(spins_for_ever, int, 0)
{
    volatile int *word = data;
    while (*word == 0) {
    }
}

static void handle_as_before(int signal)
{
    (void)signal;
    _exit(9);
}

static void store_nowhere(void *argument)
{
    (void)argument;
    *(volatile int *)nowhere = 1;
}

// What the processes do that the cases below start.
static int be_process(const char *what)
{
    static atomic_int never;
    static int none;
    if (strcmp(what, "exits-yielding") == 0) {
        (void)LAUNCH(waits_for_ever, 40, 64, 0, &never);
        usleep(20000);
        return 3;
    }
    if (strcmp(what, "exits-spinning") == 0) {
        (void)LAUNCH(spins_for_ever, 40, 64, 0, &none);
        usleep(20000);
        return 4;
    }
    if (strcmp(what, "crashes-handled") == 0) {
        (void)signal(SIGSEGV, handle_as_before);
    }
    if (strcmp(what, "crashes-after-native") == 0) {
        (void)vgpuRunNative("stores", store_nowhere, NULL, 0);
    }
    (void)LAUNCH(counts, 1, 1, 0, &never);
    (void)cudaDeviceSynchronize();
    *(volatile int *)nowhere = 1; // on the host: not a kernel's fault
    return 0;
}

// Runs this program as process `what`; the wait status, or -1 where it took longer than `most_s`
// seconds.
static int run_process(const char *what, double most_s)
{
    pid_t pid;
    (void)setenv("FAULT_TEST_PROCESS", what, 1);
    char *words[] = {"fault_test", NULL};
    int error = posix_spawn(&pid, "/proc/self/exe", NULL, NULL, words, environ);
    (void)unsetenv("FAULT_TEST_PROCESS");
    if (error != 0) {
        return -1;
    }
    int status = 0;
    struct stopwatch watch = stopwatch_start();
    while (stopwatch_is_within(&watch, most_s)) {
        if (waitpid(pid, &status, WNOHANG) == pid) {
            return status;
        }
        usleep(10000);
    }
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, &status, 0);
    return -1;
}

static void a_process_ends_while_kernels_run(void)
{
    int status = run_process("exits-yielding", 3);
    EXPECT(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 3);
    status = run_process("exits-spinning", 3);
    EXPECT(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 4);
}

static void host_crashes_stay_what_they_are(void)
{
    if (SANITIZED) {
        SKIP("the sanitizer handles signals");
        return;
    }
    int status = run_process("crashes", 3);
    EXPECT(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), SIGSEGV);
    status = run_process("crashes-after-native", 3);
    EXPECT(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), SIGSEGV);
    status = run_process("crashes-handled", 3);
    EXPECT(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 9);
}

int main(void)
{
    const char *process = getenv("FAULT_TEST_PROCESS");
    if (process) {
        return be_process(process);
    }
    RUN(a_bad_address_fails_the_kernel);
    RUN(a_misaligned_vector_fails_the_kernel);
    RUN(division_by_zero);
    RUN(a_trap_fails_the_kernel);
    RUN(an_assertion_fails_the_kernel);
    RUN(a_fault_carries_its_text);
    RUN(a_deep_stack_is_named_and_may_be_raised);
    RUN(different_barriers_are_named);
    RUN(a_warp_and_a_barrier_are_named);
    RUN(counts_of_a_barrier_must_agree);
    RUN(a_mask_must_hold_the_caller);
    RUN(a_fault_ends_the_devices_other_work);
    RUN(a_bad_copy_fails_the_device);
    RUN(the_watchdog_names_a_kernel_that_never_yields);
    RUN(a_process_ends_while_kernels_run);
    RUN(host_crashes_stay_what_they_are);
    return expect_result();
}
