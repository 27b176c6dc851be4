// What the sanitizers of the running program are told: which stack runs, which order the scheduler
// makes, which memory nobody may touch.
//
// Programs bring the address or the thread sanitizer, or none; so their functions are found when
// the program is loaded, and are null where there is no such sanitizer. Everything before an
// `order_release` of an object comes before what follows a later `order_acquire` of it.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_SANITIZER_H
#define VGPU_RUNTIME_SANITIZER_H

#include <stdbool.h>
#include <stddef.h>

// NOLINTBEGIN(bugprone-reserved-identifier): the sanitizers' names
#define VGPU_IF_PRESENT __attribute__((weak))
extern void __tsan_acquire(void *object) VGPU_IF_PRESENT;
extern void __tsan_release(void *object) VGPU_IF_PRESENT;
extern void *__tsan_get_current_fiber(void) VGPU_IF_PRESENT;
extern void *__tsan_create_fiber(unsigned flags) VGPU_IF_PRESENT;
extern void __tsan_destroy_fiber(void *fiber) VGPU_IF_PRESENT;
extern void __tsan_switch_to_fiber(void *fiber, unsigned flags) VGPU_IF_PRESENT;
extern void __tsan_set_fiber_name(void *fiber, const char *name) VGPU_IF_PRESENT; // copied
extern void __asan_poison_memory_region(const volatile void *address, size_t bytes) VGPU_IF_PRESENT;
extern void __asan_unpoison_memory_region(const volatile void *address,
                                          size_t bytes) VGPU_IF_PRESENT;
extern void __asan_handle_no_return(void) VGPU_IF_PRESENT;
extern void *__asan_get_report_address(void) VGPU_IF_PRESENT; // of the last error
extern void __asan_set_error_report_callback(void (*callback)(const char *text)) VGPU_IF_PRESENT;
extern void __lsan_register_root_region(const void *address, size_t bytes) VGPU_IF_PRESENT;
extern void __sanitizer_start_switch_fiber(void **fake_stack, const void *bottom,
                                           size_t bytes) VGPU_IF_PRESENT;
extern void __sanitizer_finish_switch_fiber(void *fake_stack, const void **bottom,
                                            size_t *bytes) VGPU_IF_PRESENT;
#undef VGPU_IF_PRESENT
// NOLINTEND(bugprone-reserved-identifier)

enum {
    VGPU_TSAN_WORKERS = 4,   // under the thread sanitizer, so that each can carry any block
    VGPU_TSAN_FIBERS = 4096, // in the whole process; the sanitizer allows 8128 with threads
    VGPU_TSAN_NO_SYNC = 1,   // a switch alone makes no order
};

// Whether the program runs under the thread sanitizer.
static inline bool vgpu_tsan(void)
{
    return __builtin_expect(__tsan_create_fiber != NULL, 0);
}

// Whether it runs under the address sanitizer.
static inline bool vgpu_asan(void)
{
    return __builtin_expect(__asan_poison_memory_region != NULL, 0);
}

// The frames of the running stack are about to be left at once, without returning.
static inline void vgpu_forget_frames(void)
{
    if (__builtin_expect(__asan_handle_no_return != NULL, 0)) {
        __asan_handle_no_return();
    }
}

static inline void vgpu_order_release(void *object)
{
    if (__builtin_expect(__tsan_release != NULL, 0)) {
        __tsan_release(object);
    }
}

static inline void vgpu_order_acquire(void *object)
{
    if (__builtin_expect(__tsan_acquire != NULL, 0)) {
        __tsan_acquire(object);
    }
}

// Nobody may touch the bytes, until vgpu_unpoison.
static inline void vgpu_poison(void *address, size_t bytes)
{
    if (vgpu_asan()) {
        __asan_poison_memory_region(address, bytes);
    }
}

static inline void vgpu_unpoison(void *address, size_t bytes)
{
    if (vgpu_asan()) {
        __asan_unpoison_memory_region(address, bytes);
    }
}

#endif
