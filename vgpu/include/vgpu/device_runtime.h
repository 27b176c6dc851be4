// What compiled kernels call: the interface between code that tutticc generates (and the device
// headers) and the runtime.
//
// Programs do not include this file: cuda_runtime.h and tutticc do. Every function here is exported
// by libcudart.so. Inside a kernel the calling thread is a fiber of a block; a block never changes
// its operating-system thread, so thread-local variables are stable across every call below.
// Outside a kernel each function says what it does.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_DEVICE_RUNTIME_H
#define VGPU_DEVICE_RUNTIME_H

#include "../driver_types.h"
#include "../vector_types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- The built-in variables
// ------------------------------------------------------------------------------------------- Set
// by the scheduler whenever it switches to a fiber. Plain variables, so that a debugger shows them
// by name.
#if defined(__CUDACC__) || defined(VGPU_RUNTIME)
extern __thread uint3 threadIdx __attribute__((tls_model("initial-exec")));
extern __thread uint3 blockIdx __attribute__((tls_model("initial-exec")));
extern __thread dim3 blockDim __attribute__((tls_model("initial-exec")));
extern __thread dim3 gridDim __attribute__((tls_model("initial-exec")));
// The rank for which the kernel runs: the one whose window is among its parameters, else the only
// one that has windows on the device; -1: not known. For debuggers; programs ask their library.
extern __thread int vgpu_rank __attribute__((tls_model("initial-exec")));
#endif

// ---- Kernels and images
// -----------------------------------------------------------------------------------------------
// One translation unit compiled by tutticc: the targets it was asked for and the one it was
// compiled for. A target is a compute capability times ten (90 for sm_90); `ptx` ones serve every
// later device as well.
struct vgpu_target {
    int arch;
    bool ptx;
};
struct vgpu_image {
    const char *source; // the user's file, for messages
    int compiled_arch;  // __CUDA_ARCH__ / 10; 0: no target fits the virtual machine it was compiled
                        // for
    int target_count;   // all targets asked for, for messages
    const struct vgpu_target *targets;
};

struct vgpu_kernel {
    const void *function; // the host stub's address: what cudaLaunchKernel is given
    const char *name;     // as the user wrote it, template arguments included where known
    void (*invoke)(void **arguments); // calls the stub with the arguments, which then runs the body
    const struct vgpu_image *image;   // NULL: fits every device
    int parameter_count;
    const uint32_t *parameter_bytes; // [parameter_count]
    const uint32_t *parameter_align; // [parameter_count]
    int max_threads;                 // from __launch_bounds__; 0: none given
    const char *file;
    int line;
};

// Makes a kernel known. Called by static initialisers; the structure is kept, not copied.
// Idempotent per function.
void vgpu_register_kernel(const struct vgpu_kernel *kernel);

// `<<<grid, block, shared, stream>>>`: remembers a launch for the calling thread. The stub that is
// called next takes it.
void vgpu_push_launch(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream);
// Takes the pushed launch and enqueues it; arguments[i] points to parameter i and is copied before
// return. Errors go to cudaGetLastError, as with `<<<>>>`; without a pushed launch:
// cudaErrorMissingConfiguration.
void vgpu_launch_pushed(const void *function, void **arguments);

// ---- Variables of a device
// ---------------------------------------------------------------------------------------------- A
// __device__ or __constant__ variable: `host_image` is the object that host code names; each device
// has its own copy, made from the image when the device first needs it.
struct vgpu_symbol {
    void *host_image;
    const char *name;
    size_t bytes;
    size_t align;
    bool constant;
};
void vgpu_register_symbol(const struct vgpu_symbol *symbol);
// Inside a kernel: the running device's copy. Outside: host_image itself (so that &symbol names
// it).
void *vgpu_symbol_address(void *host_image);

// ---- Shared memory
// ----------------------------------------------------------------------------------------------------
// The running block's object for one __shared__ declaration; `site` identifies the declaration.
// Uninitialised memory. Outside a kernel: aborts with a message.
void *vgpu_shared(const void *site, size_t bytes, size_t align);
// The block's dynamic shared memory (third launch parameter), 1024-byte aligned.
void *vgpu_dynamic_shared(void);
// Bytes of the block's dynamic shared memory; with_static: and of the variables that it has used.
size_t vgpu_shared_bytes(bool with_static);

// What kind of memory an address is: of the running block, of the running thread's stack, of a
// __constant__ variable of the running device, or any other. Outside a kernel: VGPU_SPACE_GLOBAL.
enum vgpu_space { VGPU_SPACE_GLOBAL, VGPU_SPACE_SHARED, VGPU_SPACE_LOCAL, VGPU_SPACE_CONSTANT };
enum vgpu_space vgpu_memory_space(const void *address);

// ---- Meeting points
// ---------------------------------------------------------------------------------------------------
bool vgpu_in_kernel(void);
// __syncthreads and its reducing forms (count of, and, or of `predicate` over the block's live
// threads).
void vgpu_syncthreads(void);
int vgpu_syncthreads_count(int predicate);
int vgpu_syncthreads_and(int predicate);
int vgpu_syncthreads_or(int predicate);
// Named barrier `id` (0..15) of `threads` threads (0: the whole block).
void vgpu_barrier_sync(int id, unsigned threads);
// The same without waiting; threads: not 0.
void vgpu_barrier_arrive(int id, unsigned threads);
// As vgpu_barrier_sync; returns how many threads' predicates were not 0, *arrived_out: of how many.
int vgpu_barrier_count(int id, unsigned threads, int predicate, unsigned *arrived_out);
// this_grid().sync(): all threads of all blocks of a cooperative launch
// (cudaLaunchCooperativeKernel, or the cooperative launch attribute). In another launch, or outside
// a kernel: faults.
void vgpu_grid_sync(void);
bool vgpu_grid_is_cooperative(void);
// __syncwarp: waits for every live lane in `mask`.
void vgpu_syncwarp(unsigned mask);
// One warp exchange, the base of shuffles, ballots and reductions: each lane in `mask` gives
// `bytes` (1..16) and receives all lanes' values in `lanes_out`, 32 slots of 16 bytes, absent lanes
// zero. Returns the mask of lanes that took part.
unsigned vgpu_warp_exchange(unsigned mask, const void *value, size_t bytes, void *lanes_out);
// Lanes of the calling warp that are at the same call: it waits until no thread of the block can
// run without it, and until no lane is at a call that lies before it in the code. So lanes which
// take the same way come together, also after a branch; lanes that wait elsewhere, have yielded or
// have exited are left out. line: of the call, in the source (modulo 65536); calls of one line are
// told apart by where they return to.
unsigned vgpu_active_mask(unsigned line);
// Where other fibers may run: atomics, volatile polling, __nanosleep, clock64 and every wait of
// ours call it. Outside a kernel: returns at once.
void vgpu_yield(void);
// Device clock in cycles (clock64), 1.98 GHz by definition, and %globaltimer in nanoseconds. Both
// yield.
long long vgpu_clock(void);
unsigned long long vgpu_global_timer(void);

// ---- Faults
// -----------------------------------------------------------------------------------------------------------
// Ends the running kernel with a CUDA error that sticks to its device, after printing one line that
// names device, kernel, block, thread and the text. Outside a kernel: prints the text and aborts.
void vgpu_fault(cudaError_t error, const char *format, ...)
    __attribute__((noreturn, format(printf, 2, 3)));
// assert() inside a kernel (cudaErrorAssert); the ordinary __assert_fail on the host.
void vgpu_assert_fail(const char *expression, const char *file, unsigned line, const char *function)
    __attribute__((noreturn));

// printf() inside a kernel: written at once to the host's standard output. Returns CUDA's result:
// the number of arguments that the format takes, -1 for no format. On the host: the C library's.
int vgpu_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));

// ---- Multicast addresses
// ------------------------------------------------------------------------------------------------
// One mapped multicast range and where its members' memory lies in this process. Filled by
// vgpu_multimem_find.
struct vgpu_multimem_range {
    uintptr_t base; // first address of the alias range
    size_t bytes;   // 0: empty
    int member_count;
    char *const *member; // member[i] + (address - base) is member i's copy
};
extern __thread struct vgpu_multimem_range vgpu_multimem_cache
    __attribute__((tls_model("initial-exec")));
// Finds the range that holds [address, address + bytes), leaves it in vgpu_multimem_cache and
// returns it. Faults the kernel (cudaErrorIllegalAddress) where there is none. The inline helpers
// in multimem.h test the cache first.
const struct vgpu_multimem_range *vgpu_multimem_find(uintptr_t address, size_t bytes);
// Counts multimem traffic; called by the helpers where vgpu_counting is set.
void vgpu_count_multimem(const struct vgpu_multimem_range *range, size_t bytes, bool is_load);
// Between true and false, plain accesses of the calling thread are not counted: the members' copies
// of a multimem access have been counted as such.
void vgpu_count_pause(bool paused);
extern bool vgpu_counting;

// ---- The checking mode
// -----------------------------------------------------------------------------------------------
// True from the start of a process with VGPU_CHECK=1; constant.
extern bool vgpu_checking;
// A barrier between ranks as one thread of a member uses it, for reports of misuse and of waits
// that nothing can end. World rank of member m: rank + (m - member) * rank_step.
struct vgpu_barrier_use {
    const char *kind;   // "LSA barrier"; a literal
    const void *record; // where member 0 keeps the barrier: the same for all members of a process
    int index;          // of the barrier among its kind
    int rank;           // the calling rank
    int member, members;
    int rank_step;
    uint64_t round; // rounds done so far
    // How members announce themselves to this one. counts: *inbox grows by one for each, up to
    // `target` modulo 2^32; else inbox[m] becomes `target` or more when member m arrives.
    const uint32_t *inbox;
    uint32_t target;
    bool counts;
    bool timed; // the wait has a time limit
};
enum vgpu_barrier_step {
    VGPU_BARRIER_OPENED,  // by a group of threads, for its own use
    VGPU_BARRIER_ARRIVED, // the group has announced round + 1
    VGPU_BARRIER_CLOSED,
};
// To be called where vgpu_checking is set, by one thread of the group. Opening what another group
// has open faults.
void vgpu_check_barrier(enum vgpu_barrier_step step, const struct vgpu_barrier_use *use);
// The calling thread now waits as described, until the next call with NULL; *use stays valid so
// long.
void vgpu_check_wait(const struct vgpu_barrier_use *use);

// ---- Marks for a picture of a run
// ----------------------------------------------------------------------------------------- Notes
// that the running block enters the phase named `phase` (a string literal); NULL ends the last one.
// Does nothing unless vgpuTraceStart (vgpu/trace.h) was called. Compiles to nothing under nvcc.
void vgpu_mark(const char *phase);

#ifdef __cplusplus
}
#endif
#endif
