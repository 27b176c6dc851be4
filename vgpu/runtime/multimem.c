// vgpu_multimem_find: what a kernel asks for every multimem address that its thread's one-entry
// cache does not hold.
//
// Behind that entry each thread has a few more, valid for one epoch; only beyond them the memory
// lock is taken. When a mapping goes, the epoch moves and all threads' first entries are emptied:
// their accesses to other ranges merely look again. SPDX-License-Identifier: Apache-2.0
#include "multimem.h"

#include "check.h"
#include "error.h"
#include "multicast.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { REMEMBERED = 8 };

__thread struct vgpu_multimem_range vgpu_multimem_cache __attribute__((tls_model("initial-exec")));

// What a thread remembers. In the list of all threads from its first multimem access to its end.
struct memory_of_thread {
    struct memory_of_thread *next, **link;
    struct vgpu_multimem_range *first; // the thread's vgpu_multimem_cache
    unsigned epoch;
    unsigned oldest;
    struct vgpu_multimem_range range[REMEMBERED];
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;                    // frees a thread's memory at its end
static struct memory_of_thread *all_threads; // under the memory lock
static atomic_uint epoch;
static __thread struct memory_of_thread *mine;

static void end_thread(void *value)
{
    struct memory_of_thread *memory = value;
    vgpu_memory_lock();
    *memory->link = memory->next;
    if (memory->next) {
        memory->next->link = memory->link;
    }
    vgpu_memory_unlock();
    free(memory);
}

static void make_key(void)
{
    if (pthread_key_create(&key, end_thread) != 0) {
        abort(); // a process has 1024 keys; this is the only one here
    }
}

static struct memory_of_thread *begin_thread(void)
{
    pthread_once(&once, make_key);
    struct memory_of_thread *memory = calloc(1, sizeof(*memory));
    if (!memory) {
        return NULL;
    }
    memory->first = &vgpu_multimem_cache;
    vgpu_memory_lock();
    memory->next = all_threads;
    memory->link = &all_threads;
    if (all_threads) {
        all_threads->link = &memory->next;
    }
    all_threads = memory;
    vgpu_memory_unlock();
    pthread_setspecific(key, memory);
    mine = memory;
    return memory;
}

// Not instrumented: a thread may be reading its entry for another range, which stays valid.
__attribute__((no_sanitize("thread"))) static void empty(struct vgpu_multimem_range *range)
{
    *(volatile size_t *)&range->bytes = 0;
}

void vgpu_multimem_forget(void)
{
    atomic_fetch_add_explicit(&epoch, 1, memory_order_acq_rel);
    for (struct memory_of_thread *t = all_threads; t; t = t->next) {
        empty(t->first);
    }
}

unsigned vgpu_multimem_epoch(void)
{
    return atomic_load_explicit(&epoch, memory_order_acquire);
}

static bool holds(const struct vgpu_multimem_range *range, uintptr_t address, size_t bytes)
{
    uintptr_t offset = address - range->base;
    return offset < range->bytes && bytes <= range->bytes - offset;
}

// Looks at what the thread remembers; leaves a find in the first entry.
static bool recall(struct memory_of_thread *memory, uintptr_t address, size_t bytes)
{
    if (memory->epoch != vgpu_multimem_epoch()) {
        return false;
    }
    for (int i = 0; i < REMEMBERED; i++) {
        if (holds(&memory->range[i], address, bytes)) {
            vgpu_multimem_cache = memory->range[i];
            if (memory->epoch == vgpu_multimem_epoch()) {
                return true;
            }
            empty(&vgpu_multimem_cache); // forgotten while it was being recalled
            return false;
        }
    }
    return false;
}

static void remember(struct memory_of_thread *memory, const struct vgpu_multimem_range *range)
{
    unsigned now = vgpu_multimem_epoch();
    if (memory->epoch != now) {
        memset(memory->range, 0, sizeof(memory->range));
        memory->epoch = now;
    }
    memory->range[memory->oldest] = *range;
    memory->oldest = (memory->oldest + 1) % REMEMBERED;
}

static cudaError_t find_locked(struct memory_of_thread *memory, uintptr_t address, size_t bytes)
{
    struct vgpu_mapping *mapping = vgpu_mapping_find(address);
    if (!mapping || mapping->kind != VGPU_MEMORY_MULTICAST) {
        return vgpu_fail(cudaErrorIllegalAddress,
                         "multimem access to %p, which is no multicast address", (void *)address);
    }
    const struct vgpu_resolved *resolved;
    cudaError_t error = vgpu_multicast_resolve(mapping, address, &resolved);
    if (error != cudaSuccess) {
        return error;
    }
    if (!holds(&resolved->range, address, bytes)) {
        return vgpu_fail(
            cudaErrorIllegalAddress,
            "multimem access to %zu bytes at %p goes beyond what is bound there, which "
            "ends at %p",
            bytes, (void *)address, (void *)(resolved->range.base + resolved->range.bytes));
    }
    remember(memory, &resolved->range);
    vgpu_multimem_cache = resolved->range;
    return cudaSuccess;
}

const struct vgpu_multimem_range *vgpu_multimem_find(uintptr_t address, size_t bytes)
{
    struct memory_of_thread *memory = mine ? mine : begin_thread();
    if (!memory) {
        vgpu_fault(cudaErrorMemoryAllocation, "multimem access: no memory for bookkeeping");
    }
    if (recall(memory, address, bytes)) {
        return &vgpu_multimem_cache;
    }
    vgpu_memory_lock();
    cudaError_t error = find_locked(memory, address, bytes);
    vgpu_memory_unlock();
    if (error != cudaSuccess) {
        // An illegal address whatever the reason: the text says which.
        char window[256];
        vgpu_check_describe_address(address, window, sizeof(window));
        vgpu_fault(cudaErrorIllegalAddress, "%s%s", vgpu_last_error_text(), window);
    }
    return &vgpu_multimem_cache;
}
