// Kernels that fail: what is printed, what sticks to the device, and how a fiber is left for good.
//
// A fault ends the fiber that met it: its record goes to the worker, which says it and drops the
// launch. A signal's handler only redirects the machine thread to the worker's context, so nothing
// but that runs inside the handler. Native code that runs in the thread which calls (vgpuRunNative)
// is left in the same way. Under the address and thread sanitizers signals are theirs.
// SPDX-License-Identifier: Apache-2.0
#include "block.h"
#include "division.h"
#include "error.h"
#include "memory.h"
#include "segment.h"
#include "stream.h"

#include "cuda_runtime_api.h"
#include "vgpu/native.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

// ---- Saying it ----------------------------------------------------------------------------------

enum { PLACE_BYTES = 288 };

// "device 3 (physical 3): kernel f (a.cu:12): block (0,0,0): thread (31,0,0)"; without thread
// where NULL.
static void describe_place(char *out, size_t bytes, const struct vgpu_launch *launch,
                           const struct vgpu_block *block, const struct vgpu_thread *thread)
{
    int rank = vgpu_check_rank_of(launch);
    int used = rank >= 0 ? snprintf(out, bytes, "rank %d, ", rank) : 0;
    used += snprintf(out + used, bytes - (size_t)used, "%s: %s%s",
                     vgpu_device_name(launch->operation.device->ordinal).text,
                     launch->task ? "" : "kernel ", launch->name);
    const struct vgpu_kernel *kernel = launch->kernel;
    if (kernel && kernel->file && (size_t)used < bytes) {
        used += snprintf(out + used, bytes - (size_t)used, " (%s:%d)", kernel->file, kernel->line);
    }
    if (block && (size_t)used < bytes) {
        used += snprintf(out + used, bytes - (size_t)used, ": block (%u,%u,%u)", block->index.x,
                         block->index.y, block->index.z);
    }
    if (thread && (size_t)used < bytes) {
        (void)snprintf(out + used, bytes - (size_t)used, ": thread (%u,%u,%u)", thread->index.x,
                       thread->index.y, thread->index.z);
    }
}

// more: lines that follow, each after a line's end; may be NULL.
static void fail_device(struct vgpu_device *device, const char *place, cudaError_t error,
                        const char *text, const char *more)
{
    char *report = NULL;
    if (more && *more &&
        asprintf(&report, "%s: %s (%s)%s", place, text, cudaGetErrorName(error), more) >= 0) {
        vgpu_check_say(report);
        free(report);
    } else {
        vgpu_say("%s: %s (%s)", place, text, cudaGetErrorName(error));
    }
    vgpu_device_fail(device, error);
}

// Only a launch's first fault is said: the others follow from it. more: as above.
static void fail(struct vgpu_launch *launch, const struct vgpu_block *block,
                 const struct vgpu_thread *thread, cudaError_t error, const char *text,
                 const char *more)
{
    if (atomic_exchange(&launch->failed, true)) {
        return;
    }
    char place[PLACE_BYTES];
    describe_place(place, sizeof(place), launch, block, thread);
    fail_device(launch->operation.device, place, error, text, more);
}

// The lines of users' code that led to a fault, to be freed; NULL where they are not to be told.
static char *describe_trace(const struct vgpu_trace *trace)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = vgpu_checking && trace->count > 0 ? open_memstream(&text, &bytes) : NULL;
    if (out) {
        vgpu_trace_print(trace, out);
        (void)fclose(out);
    }
    return text;
}

void vgpu_fault_launch(struct vgpu_launch *launch, cudaError_t error, const char *format, ...)
{
    char text[sizeof(((struct vgpu_fault_record *)0)->text)];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    fail(launch, NULL, NULL, error, text, NULL);
}

static bool out_of_stack(const struct vgpu_fault_record *fault)
{
    const struct vgpu_thread *thread = fault->thread;
    if (fault->kind == VGPU_FAULT_OVERFLOW) {
        return true;
    }
    if (fault->kind != VGPU_FAULT_SIGNAL || !thread || !thread->stack) {
        return false;
    }
    uintptr_t low = (uintptr_t)thread->stack->low;
    return fault->stack_pointer < low || fault->stack_pointer - low > thread->stack->bytes ||
           low - fault->address < thread->stack->bytes;
}

static cudaError_t describe_signal(const struct vgpu_fault_record *fault, char *text, size_t bytes)
{
    switch (fault->signal) {
    case SIGFPE:
        (void)snprintf(text, bytes, "integer division by zero, or its result does not fit");
        return cudaErrorLaunchFailure;
    case SIGILL:
    case SIGTRAP:
        (void)snprintf(text, bytes, "a trap instruction");
        return cudaErrorLaunchFailure;
    default:
        break;
    }
    if (fault->signal == SIGSEGV && fault->signal_code == SI_KERNEL) {
        (void)snprintf(text, bytes,
                       "a vector access that is not aligned to its size, or an address "
                       "that cannot exist");
        return cudaErrorMisalignedAddress;
    }
    char window[256];
    vgpu_check_describe_address(fault->address, window, sizeof(window));
    const char *kind = !fault->knows_kind ? "" : fault->is_store ? " (a store)" : " (a load)";
    struct vgpu_memory_range range = vgpu_memory_find((const void *)fault->address);
    if (range.kind == VGPU_MEMORY_MULTICAST) {
        (void)snprintf(text, bytes,
                       "an ordinary access%s to address 0x%lx, which is a multicast address: only "
                       "multimem instructions may use it%s",
                       kind, (unsigned long)fault->address, window);
    } else {
        bool freed = range.kind == VGPU_MEMORY_NONE && vgpu_segment_holds(fault->address);
        (void)snprintf(text, bytes, "an illegal memory access%s to address 0x%lx%s%s", kind,
                       (unsigned long)fault->address,
                       fault->signal == SIGBUS ? " (beyond the end of what is mapped there)"
                       : freed                 ? ", device memory that has been freed"
                                               : "",
                       window);
    }
    return cudaErrorIllegalAddress;
}

// A thread of the worker's blocks that ran over the end of its stack; NULL: none. It may be another
// one than the thread that stumbled over what it left.
static struct vgpu_thread *find_overflow(const struct vgpu_worker *worker)
{
    struct vgpu_block *block = worker->resident;
    for (unsigned left = worker->resident_count; left > 0; left--) {
        for (unsigned i = 0; i < block->started; i++) {
            struct vgpu_stack *stack = block->thread[i].stack;
            if (stack && vgpu_stack_overflowed(stack)) {
                return &block->thread[i];
            }
        }
        block = block->next;
    }
    return NULL;
}

static void report_overflow(struct vgpu_worker *worker, struct vgpu_block *block,
                            const struct vgpu_thread *thread)
{
    char text[sizeof(worker->fault.text)];
    (void)snprintf(text, sizeof(text),
                   "the thread's stack of %zu bytes overflowed; "
                   "cudaDeviceSetLimit(cudaLimitStackSize, bytes) raises it",
                   thread->stack ? thread->stack->bytes : 0);
    fail(thread->block->launch, thread->block, thread, cudaErrorLaunchFailure, text, NULL);
    if (thread->block->launch != block->launch) {
        fail(block->launch, block, worker->fault.thread, cudaErrorLaunchFailure,
             "the stack was overwritten by that thread", NULL);
    }
    vgpu_stack_mend(&worker->stacks);
}

void vgpu_fault_report(struct vgpu_worker *worker, struct vgpu_block *block)
{
    struct vgpu_fault_record *fault = &worker->fault;
    vgpu_order_acquire(fault);
    struct vgpu_thread *overflowed = out_of_stack(fault) ? fault->thread : NULL;
    if (fault->kind == VGPU_FAULT_SIGNAL && !overflowed) {
        overflowed = find_overflow(worker);
    }
    char *more = describe_trace(&fault->trace);
    if (overflowed) {
        report_overflow(worker, block, overflowed);
    } else if (fault->kind == VGPU_FAULT_SIGNAL) {
        char text[sizeof(fault->text)];
        cudaError_t error = describe_signal(fault, text, sizeof(text));
        fail(block->launch, block, fault->thread, error, text, more);
    } else {
        fail(block->launch, block, fault->thread, fault->error, fault->text, more);
    }
    free(more);
    fault->trace.count = 0;
    fault->kind = VGPU_FAULT_NONE;
    fault->thread = NULL;
    vgpu_order_release(fault);
}

// ---- Threads that wait for each other forever ---------------------------------------------------

static bool waits_alike(const struct vgpu_thread *a, const struct vgpu_thread *b)
{
    return a->state == b->state &&
           (a->state != VGPU_THREAD_AT_BARRIER || a->barrier == b->barrier) &&
           (a->state != VGPU_THREAD_AT_WARP || a->warp_mask == b->warp_mask);
}

static const char *name_wait(const struct vgpu_thread *thread, char *out, size_t bytes)
{
    if (thread->state == VGPU_THREAD_ENDED) {
        return "have ended";
    }
    if (thread->state == VGPU_THREAD_AT_WARP) {
        (void)snprintf(out, bytes, "wait in their warp for mask 0x%08x", thread->warp_mask);
    } else if (thread->barrier == 0) {
        return "wait at __syncthreads";
    } else {
        (void)snprintf(out, bytes, "wait at barrier %d", thread->barrier);
    }
    return out;
}

// The same with the lines where they wait.
static void report_diverged(struct vgpu_block *block)
{
    char *more = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&more, &bytes);
    if (out) {
        vgpu_check_describe_threads(block->worker, block, out);
        (void)fclose(out);
    }
    fail(block->launch, block, NULL, cudaErrorLaunchFailure,
         "divergent barriers: the block cannot go on, its threads wait for each other", more);
    free(more);
}

void vgpu_fault_diverged(struct vgpu_block *block)
{
    if (vgpu_checking) {
        report_diverged(block);
        return;
    }
    char text[sizeof(((struct vgpu_fault_record *)0)->text)];
    size_t used = (size_t)snprintf(text, sizeof(text), "the block cannot go on: ");
    unsigned first = 0;
    while (first < block->thread_count && used < sizeof(text) - 80) {
        unsigned last = first;
        while (last + 1 < block->thread_count &&
               waits_alike(&block->thread[first], &block->thread[last + 1])) {
            last++;
        }
        char where[64];
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%sthreads %u-%u %s",
                                 first ? ", " : "", first, last,
                                 name_wait(&block->thread[first], where, sizeof(where)));
        first = last + 1;
    }
    if (first < block->thread_count) {
        (void)snprintf(text + used, sizeof(text) - used, ", ...");
    }
    fail(block->launch, block, NULL, cudaErrorLaunchFailure, text, NULL);
}

// ---- Native code in the thread that calls it ----------------------------------------------------

// What a fault leaves.
struct guard {
    struct vgpu_context context;
    struct guard *outer;
    struct vgpu_fault_record fault;
};

static atomic_bool is_prepared; // by vgpu_fault_prepare_process; only saves calls of it
static __thread struct guard *guard __attribute__((tls_model("initial-exec"))); // NULL: none

// The function was left.
static cudaError_t report_left(const char *name, cudaStream_t stream,
                               const struct vgpu_fault_record *fault)
{
    char place[PLACE_BYTES], text[sizeof(fault->text)];
    struct vgpu_device *device = vgpu_stream_device(stream);
    cudaError_t error = fault->error;
    (void)snprintf(text, sizeof(text), "%s", fault->kind == VGPU_FAULT_TEXT ? fault->text : "");
    if (fault->kind == VGPU_FAULT_SIGNAL) {
        error = describe_signal(fault, text, sizeof(text));
    }
    device = device ? device : vgpu_current_device();
    (void)snprintf(place, sizeof(place), "%s: kernel %s, in the thread that called it",
                   vgpu_device_name(device->ordinal).text, name);
    fail_device(device, place, error, text, NULL);
    return vgpu_fail(error, "%s: %s", place, text);
}

cudaError_t vgpuRunNative(const char *name, void (*function)(void *argument), void *argument,
                          cudaStream_t stream)
{
    struct guard mine;
    if (__builtin_expect(!atomic_load_explicit(&is_prepared, memory_order_relaxed), 0)) {
        vgpu_fault_prepare_process();
    }
    mine.fault.kind = VGPU_FAULT_NONE;
    mine.outer = guard;
    guard = &mine;
    vgpu_context_call(&mine.context, function, argument);
    guard = mine.outer;
    return mine.fault.kind == VGPU_FAULT_NONE ? cudaSuccess
                                              : report_left(name, stream, &mine.fault);
}

// ---- What kernels call --------------------------------------------------------------------------

void vgpu_fault(cudaError_t error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (!vgpu_current_thread && !guard) {
        (void)fputs("vgpu: outside a kernel: ", stderr);
        (void)vfprintf(stderr, format, arguments);
        (void)fputc('\n', stderr);
        abort();
    }
    struct vgpu_worker *worker = vgpu_current_thread ? vgpu_current_thread->block->worker : NULL;
    struct vgpu_fault_record *fault = worker ? &worker->fault : &guard->fault;
    vgpu_order_acquire(fault);
    fault->kind = VGPU_FAULT_TEXT;
    fault->error = error;
    (void)vsnprintf(fault->text, sizeof(fault->text), format, arguments);
    va_end(arguments);
    if (!worker) {
        vgpu_forget_frames();
        vgpu_context_jump(&guard->context);
    }
    if (vgpu_checking) {
        vgpu_trace_here(&worker->fault.trace, 0);
    }
    vgpu_fault_leave(worker);
}

void vgpu_assert_fail(const char *expression, const char *file, unsigned line, const char *function)
{
    if (!vgpu_current_thread) {
        (void)fprintf(stderr, "%s: %s:%u: %s: Assertion `%s' failed.\n",
                      program_invocation_short_name, file, line, function, expression);
        abort();
    }
    vgpu_fault(cudaErrorAssert, "%s:%u: %s: Assertion `%s' failed", file, line, function,
               expression);
}

// ---- Signals ------------------------------------------------------------------------------------

static const int CAUGHT[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
enum { CAUGHT_COUNT = sizeof(CAUGHT) / sizeof(CAUGHT[0]) };

static pthread_once_t prepare_once = PTHREAD_ONCE_INIT;
static struct sigaction previous[CAUGHT_COUNT]; // constant after prepare_once

// Not a kernel's: what was installed before us handles it; the default ends the process when the
// instruction is tried again.
static void pass_on(int signal, siginfo_t *info, void *context)
{
    for (int i = 0; i < CAUGHT_COUNT; i++) {
        if (CAUGHT[i] != signal) {
            continue;
        }
        if (previous[i].sa_flags & SA_SIGINFO) {
            previous[i].sa_sigaction(signal, info, context);
        } else if (previous[i].sa_handler != SIG_DFL && previous[i].sa_handler != SIG_IGN) {
            previous[i].sa_handler(signal);
        } else {
            struct sigaction standard = {.sa_handler = SIG_DFL};
            (void)sigaction(signal, &standard, NULL);
        }
        return;
    }
}

// Where the stack was; where that is not known, a place inside it. thread: NULL outside kernels.
static uintptr_t stack_pointer_of(const void *context, const struct vgpu_thread *thread)
{
#if defined(__x86_64__)
    (void)thread;
    return (uintptr_t)((const ucontext_t *)context)->uc_mcontext.gregs[REG_RSP];
#elif defined(__aarch64__)
    (void)thread;
    return (uintptr_t)((const ucontext_t *)context)->uc_mcontext.sp;
#else
    (void)context;
    return thread ? (uintptr_t)thread->stack->low : 0;
#endif
}

static void note_signal(struct vgpu_fault_record *fault, struct vgpu_thread *thread, int signal,
                        const siginfo_t *info, const void *context)
{
    fault->kind = VGPU_FAULT_SIGNAL;
    fault->signal = signal;
    fault->signal_code = info->si_code;
    fault->address = (uintptr_t)info->si_addr;
    fault->thread = thread;
    fault->stack_pointer = stack_pointer_of(context, thread);
    fault->knows_kind = fault->is_store = false;
    fault->trace.count = 0;
#if defined(__x86_64__)
    const ucontext_t *met = context;
    uintptr_t low = thread && thread->stack ? (uintptr_t)thread->stack->low : 0;
    fault->knows_kind = signal == SIGSEGV && info->si_code != SI_KERNEL;
    fault->is_store = (met->uc_mcontext.gregs[REG_ERR] & 2) != 0;
    if (vgpu_checking && low && fault->stack_pointer - low < thread->stack->bytes) {
        vgpu_trace_here(&fault->trace, (uintptr_t)met->uc_mcontext.gregs[REG_RIP]);
    }
#endif
}

static void handle(int signal, siginfo_t *info, void *context)
{
    struct vgpu_thread *thread = vgpu_current_thread;
    if (!thread && !guard) {
        pass_on(signal, info, context);
        return;
    }
    if (signal == SIGFPE && !vgpu_checking && vgpu_step_over_division(context)) {
        return;
    }
    struct vgpu_worker *worker = thread ? thread->block->worker : NULL;
    struct vgpu_context *back = worker ? &worker->context : &guard->context;
    note_signal(worker ? &worker->fault : &guard->fault, thread, signal, info, context);
#ifdef VGPU_FIBER_UCONTEXT
    vgpu_context_jump(back);
#else
    // Returning from the handler calls vgpu_context_jump(back), on the stack of `back`.
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    registers[REG_RIP] = (greg_t)(uintptr_t)vgpu_context_jump;
    registers[REG_RDI] = (greg_t)(uintptr_t)back;
    registers[REG_RSP] = (greg_t)(((uintptr_t)back->stack_pointer - 256) & ~15ul) - 8;
#endif
}

// The address sanitizer has found something, on this thread: says where that is in CUDA's terms.
static void say_place(const char *report)
{
    const struct vgpu_thread *thread = vgpu_current_thread;
    (void)report;
    if (thread) {
        char place[PLACE_BYTES];
        char window[256] = "";
        describe_place(place, sizeof(place), thread->block->launch, thread->block, thread);
        if (__asan_get_report_address) {
            uintptr_t address = (uintptr_t)__asan_get_report_address();
            vgpu_check_describe_address(address, window, sizeof(window));
        }
        vgpu_say("%s: the error above%s", place, window);
    }
}

static void prepare_process(void)
{
    if (__asan_set_error_report_callback) {
        __asan_set_error_report_callback(say_place);
    }
    if (vgpu_asan() || vgpu_tsan()) {
        return;
    }
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    (void)sigemptyset(&action.sa_mask);
    for (int i = 0; i < CAUGHT_COUNT; i++) {
        (void)sigaction(CAUGHT[i], &action, &previous[i]);
    }
}

void vgpu_fault_prepare_process(void)
{
    pthread_once(&prepare_once, prepare_process);
    atomic_store_explicit(&is_prepared, true, memory_order_relaxed);
}

void vgpu_fault_prepare_worker(void)
{
    enum { SIGNAL_STACK_BYTES = 64 << 10 };
    if (vgpu_asan() || vgpu_tsan()) {
        return;
    }
    void *memory =
        mmap(NULL, SIGNAL_STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return; // an overflow then ends the process; other faults are still caught
    }
    stack_t stack = {.ss_sp = memory, .ss_size = SIGNAL_STACK_BYTES};
    (void)sigaltstack(&stack, NULL);
}
