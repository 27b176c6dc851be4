// Blocks and their threads, as the scheduler sees them.
//
// A block belongs to the worker that admitted it; only that thread of the machine touches it, so
// nothing here is atomic or locked. Each thread of a block is a fiber, made when it is first run: a
// thread that ends without waiting leaves its stack to the next, except under the thread sanitizer.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_BLOCK_H
#define VGPU_RUNTIME_BLOCK_H

#include "check.h"
#include "fiber.h"
#include "launch.h"
#include "sanitizer.h"

enum {
    VGPU_WARP_THREADS = 32,
    VGPU_BLOCK_THREADS = 1024,
    VGPU_BLOCK_WARPS = VGPU_BLOCK_THREADS / VGPU_WARP_THREADS,
    VGPU_BARRIERS = 16,
    VGPU_SHARED_SITES = 128,
};

enum vgpu_thread_state {
    VGPU_THREAD_RUNNABLE, // running, in the ready list or in the yielded list
    VGPU_THREAD_AT_BARRIER,
    VGPU_THREAD_AT_WARP,
    VGPU_THREAD_ENDED,
};

struct vgpu_thread {
    struct vgpu_context context;
    struct vgpu_thread *next; // in the one list it is in
    struct vgpu_block *block;
    struct vgpu_stack *stack; // NULL before the start and after the end
    uint3 index;              // threadIdx
    unsigned char state;      // enum vgpu_thread_state
    unsigned char barrier;    // where state is AT_BARRIER
    unsigned short linear;    // x + y * blockDim.x + z * blockDim.x * blockDim.y
    unsigned warp_mask;       // where state is AT_WARP; what vgpu_active_mask found
    uint64_t call;            // of vgpu_active_mask, while it waits there: line and place
    void *fake_stack;         // the address sanitizer's, while the thread does not run
    // In checking mode: where it last came to wait for others (a return address), and for whom of
    // other ranks it waits (NULL: none).
    uintptr_t place;
    const struct vgpu_barrier_use *waits_for;
};

struct vgpu_thread_list {
    struct vgpu_thread *first;
    struct vgpu_thread *last;
};

struct vgpu_barrier {
    unsigned arrived;
    unsigned expected; // threads; 0: all live ones
    struct vgpu_thread_list waiting;
    // The reduction that is being gathered, and that of the last meeting: nobody arrives at the
    // next meeting's end before everybody has read it.
    int count;
    int last_count;
    unsigned last_arrived;
    uintptr_t place; // in checking mode: where the first of this meeting comes from
};

struct vgpu_meeting;
struct vgpu_warp {
    unsigned live;                     // lanes that have not ended
    unsigned open;                     // meetings with lanes waiting
    struct vgpu_thread_list gathering; // in vgpu_active_mask
    struct vgpu_meeting *meetings;
};

struct vgpu_shared_site {
    const void *site;
    void *address;
};

struct vgpu_block {
    struct vgpu_launch *launch;
    struct vgpu_worker *worker;
    const char *name; // the launch's, its serial number and device, for the watchdog
    uint64_t launch_serial;
    int device;
    int rank;        // see vgpu_rank
    uint64_t number; // linear index in the grid
    uint3 index;     // blockIdx
    unsigned thread_count;
    unsigned live;    // threads that have not ended, unstarted ones included
    unsigned started; // threads begun, in order
    uint3 next_index; // threadIdx of thread `started`
    struct vgpu_thread_list ready;
    struct vgpu_thread_list yielded; // ready from the block's next turn on
    unsigned progress;               // meetings held and threads ended
    unsigned barriers_open;          // bit i: threads wait at barrier i
    unsigned gathering;              // bit i: lanes of warp i are in vgpu_active_mask
    struct vgpu_thread *thread;      // [thread_capacity]
    unsigned thread_capacity;
    struct vgpu_barrier barrier[VGPU_BARRIERS];
    struct vgpu_warp warp[VGPU_BLOCK_WARPS];

    unsigned site_count;
    struct vgpu_shared_site site[VGPU_SHARED_SITES];
    char *arena;       // static shared memory; NULL until needed
    size_t arena_used; // by objects
    size_t arena_end;  // red zones included
    char *dynamic;     // dynamic shared memory
    size_t dynamic_capacity;
    // Shared memory is used again by later blocks: which of the two marks, of this and of the last
    // use, the thread sanitizer is told to order it by.
    unsigned char shared_use;
    bool shared_used; // by the present block
    char shared_mark[2];

    uint64_t check_where; // in checking mode: where its threads were at the last look
    uint64_t check_since_ns;

    const char *phase; // vgpu_mark
    uint64_t phase_begin_ns;

    struct vgpu_block *next; // the worker's residents (a ring), or its spare blocks
    struct vgpu_block *previous;
};

// What ended a kernel early, until the worker reports it.
enum vgpu_fault_kind {
    VGPU_FAULT_NONE,
    VGPU_FAULT_TEXT,     // vgpu_fault: error and text
    VGPU_FAULT_SIGNAL,   // signal, address, stack_pointer
    VGPU_FAULT_OVERFLOW, // of the running thread's stack
};
struct vgpu_fault_record {
    enum vgpu_fault_kind kind;
    cudaError_t error;
    int signal;
    int signal_code;
    uintptr_t address;
    uintptr_t stack_pointer;
    bool knows_kind; // of a bad access: is_store
    bool is_store;
    struct vgpu_thread *thread;
    struct vgpu_trace trace; // in checking mode
    char text[960];
};

// A thread of the pool.
struct vgpu_worker {
    struct vgpu_context context; // where it goes on when its fibers have nothing to do
    int number;
    struct vgpu_stack_pool stacks;
    struct vgpu_stack *retired; // its fiber has just ended, perhaps still on it
    struct vgpu_block *resident;
    unsigned resident_count; // written by the worker alone, read by the watchdog too
    struct vgpu_block *spare;
    bool out_of_stacks;                  // a thread could not be started
    struct vgpu_launch *deferred_launch; // a block taken but not begun, for lack of memory
    uint64_t deferred_block;
    struct vgpu_fault_record fault;
    struct vgpu_trace *tracing; // where the thread that is entered leaves its trace; else NULL
    struct vgpu_check_worker check;
    // For sanitizers: the worker's own stack, its own fiber, those of its blocks' threads.
    void *fake_stack;
    const void *stack_bottom;
    size_t stack_bytes;
    void *tsan_fiber;
    unsigned resident_threads;
    // For the watchdog; written by the worker, relaxed.
    atomic_uint switches;                  // between fibers
    _Atomic(struct vgpu_block *) in_block; // whose turn it is; blocks are never unmapped
};

// The thread that runs, on this thread of the machine; NULL outside kernels.
extern __thread struct vgpu_thread *vgpu_current_thread
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

// Makes the launch's block `number` ready to run on the worker. NULL: no memory.
struct vgpu_block *vgpu_block_begin(struct vgpu_worker *worker, struct vgpu_launch *launch,
                                    uint64_t number);
// Runs the block's threads until none can run: each has ended, waits, or has yielded. A fault is
// left in worker->fault.
void vgpu_block_turn(struct vgpu_worker *worker, struct vgpu_block *block);
// Where a thread that waits is, in *trace_out; false: it has not begun, or has ended.
bool vgpu_block_trace(struct vgpu_worker *worker, struct vgpu_thread *thread,
                      struct vgpu_trace *trace_out);
// Takes the block back, whether its threads have ended or not.
void vgpu_block_end(struct vgpu_worker *worker, struct vgpu_block *block);
// Whether no thread of the block can ever run again though some live. After a turn.
bool vgpu_block_is_stuck(const struct vgpu_block *block);
// A hash of where the threads of the worker's blocks are that have yielded: equal after some
// rounds, they have only polled (fingerprint.c).
uint64_t vgpu_worker_fingerprint(const struct vgpu_worker *worker);

// ---- For meeting points (barrier.c, warp.c) -----------------------------------------------------

static inline void vgpu_thread_append(struct vgpu_thread_list *list, struct vgpu_thread *thread)
{
    thread->next = NULL;
    if (list->first) {
        list->last->next = thread;
    } else {
        list->first = thread;
    }
    list->last = thread;
}
// Moves all of `from` to the end of `to`.
static inline void vgpu_thread_splice(struct vgpu_thread_list *to, struct vgpu_thread_list *from)
{
    if (!from->first) {
        return;
    }
    if (to->first) {
        to->last->next = from->first;
    } else {
        to->first = from->first;
    }
    to->last = from->last;
    from->first = NULL;
}
// The running thread has put itself on a list: others run until it is ready and its turn comes.
void vgpu_thread_wait(struct vgpu_thread *thread);
// A thread ended: meetings that waited for it may be complete.
void vgpu_barrier_thread_ended(struct vgpu_block *block);
void vgpu_warp_thread_ended(struct vgpu_block *block, const struct vgpu_thread *thread);
void vgpu_warp_begin(struct vgpu_block *block);
void vgpu_warp_free(struct vgpu_block *block);
// No thread can run without those in vgpu_active_mask: makes those of each warp ready that are
// furthest behind, with their lanes.
void vgpu_warp_gathered(struct vgpu_block *block);
// Dynamic shared memory for the launch; false: no memory.
bool vgpu_shared_begin(struct vgpu_block *block);
void vgpu_shared_thread_ended(struct vgpu_block *block);
void vgpu_shared_free(struct vgpu_block *block);

// ---- Faults (fault.c) ---------------------------------------------------------------------------

// Prints what worker->fault says of the block, fails the launch and its device.
void vgpu_fault_report(struct vgpu_worker *worker, struct vgpu_block *block);
// The block is stuck: says who waits where, fails launch and device.
void vgpu_fault_diverged(struct vgpu_block *block);
// Fails the block's launch for a reason of the scheduler's own.
void vgpu_fault_launch(struct vgpu_launch *launch, cudaError_t error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// Ends the running kernel; worker->fault is filled, but for the thread.
void vgpu_fault_leave(struct vgpu_worker *worker) __attribute__((noreturn));
// Installs the signal handlers (once) and the calling worker's signal stack.
void vgpu_fault_prepare_process(void);
void vgpu_fault_prepare_worker(void);

// ---- Marks (trace.c) ----------------------------------------------------------------------------

// The block ends: so does its phase.
void vgpu_trace_block_end(struct vgpu_block *block);

#endif
