// What the thread sanitizer is told of the order that the scheduler makes: everything before an
// `order_release` of an object comes before what follows a later `order_acquire` of it. Nothing in
// other builds. SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_ANNOTATE_H
#define VGPU_RUNTIME_ANNOTATE_H

#ifdef VGPU_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
static inline void vgpu_order_release(void *object)
{
    __tsan_release(object);
}
static inline void vgpu_order_acquire(void *object)
{
    __tsan_acquire(object);
}
#else
static inline void vgpu_order_release(void *object)
{
    (void)object;
}
static inline void vgpu_order_acquire(void *object)
{
    (void)object;
}
#endif

#endif
