// Memory fences as device code means them, in a form that the thread sanitizer understands.
//
// The sanitizer ignores fences, so under it a fence is an acquire-release access to one object that
// all fences share: it then sees every order that the program asked for (and some more).
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_FENCE_H
#define VGPU_FENCE_H

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define VGPU_THREAD_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_THREAD__) && !defined(VGPU_THREAD_SANITIZER)
#define VGPU_THREAD_SANITIZER 1
#endif

#ifdef VGPU_THREAD_SANITIZER
__attribute__((weak)) int vgpu_fence_object;
#endif

// order: an __ATOMIC_* constant. Between threads of the machine.
static inline __attribute__((unused)) void vgpu_fence(int order)
{
#ifdef VGPU_THREAD_SANITIZER
    if (order != __ATOMIC_RELAXED)
        __atomic_fetch_add(&vgpu_fence_object, 0, __ATOMIC_ACQ_REL);
#else
    switch (order) {
    case __ATOMIC_RELAXED:
        break;
    case __ATOMIC_CONSUME:
    case __ATOMIC_ACQUIRE:
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        break;
    case __ATOMIC_RELEASE:
        __atomic_thread_fence(__ATOMIC_RELEASE);
        break;
    case __ATOMIC_ACQ_REL:
        __atomic_thread_fence(__ATOMIC_ACQ_REL);
        break;
    default:
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        break;
    }
#endif
}

// Between threads of one block, which share one thread of the machine: only the compiler must not
// reorder.
static inline __attribute__((unused)) void vgpu_fence_block(int order)
{
#ifdef VGPU_THREAD_SANITIZER
    vgpu_fence(order);
#else
    if (order != __ATOMIC_RELAXED)
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
#endif
}

#endif
