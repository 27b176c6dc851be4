// Atomic access to 16 bytes, aligned to 16. Loads and stores are one vector instruction; everything
// else is a loop around the processor's compare-and-exchange of that width.
//
// The compiler's own functions of this size may take a lock, which another process would not see.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_ATOMIC16_H
#define VGPU_ATOMIC16_H

#include "fence.h"

#ifdef __cplusplus
#include <cstring>
#ifdef VGPU_THREAD_SANITIZER
extern "C" {
void __tsan_acquire(void *);
void __tsan_release(void *);
}
#endif

extern "C++" {
namespace vgpu
{

typedef long long vector16 __attribute__((vector_size(16), may_alias));

// Under the thread sanitizer, which sees neither instruction: every access acquires and releases.
inline void note_atomic16(void *at)
{
#ifdef VGPU_THREAD_SANITIZER
    __tsan_acquire(at);
    __tsan_release(at);
#else
    (void)at;
#endif
}

// order: of the load or store, __ATOMIC_*.
__attribute__((no_sanitize_thread)) inline void load16(const void *at, void *out, int order)
{
    vector16 value = *static_cast<const volatile vector16 *>(at);
    if (order != __ATOMIC_RELAXED)
        vgpu_fence(__ATOMIC_ACQUIRE);
    note_atomic16(const_cast<void *>(at));
    memcpy(out, &value, 16);
}
__attribute__((no_sanitize_thread)) inline void store16(void *at, const void *from, int order)
{
    vector16 value;
    memcpy(&value, from, 16);
    note_atomic16(at);
    if (order != __ATOMIC_RELAXED)
        vgpu_fence(__ATOMIC_RELEASE);
    *static_cast<volatile vector16 *>(at) = value;
    if (order == __ATOMIC_SEQ_CST)
        vgpu_fence(__ATOMIC_SEQ_CST);
}

// Stores `wanted` where `at` holds `expected`, else fills `expected` with what it holds; whether it
// stored. Sequentially consistent.
inline bool compare_exchange16(void *at, void *expected, const void *wanted)
{
    unsigned long long old[2], value[2];
    memcpy(old, expected, 16);
    memcpy(value, wanted, 16);
    bool stored;
    note_atomic16(at);
#if defined(__x86_64__)
    asm volatile("lock cmpxchg16b %1"
                 : "=@ccz"(stored), "+m"(*static_cast<vector16 *>(at)), "+a"(old[0]), "+d"(old[1])
                 : "b"(value[0]), "c"(value[1])
                 : "memory");
#else
    unsigned __int128 before, after;
    memcpy(&before, old, 16);
    memcpy(&after, value, 16);
    stored = __atomic_compare_exchange_n(static_cast<unsigned __int128 *>(at), &before, after,
                                         false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    memcpy(old, &before, 16);
#endif
    note_atomic16(at);
    memcpy(expected, old, 16);
    return stored;
}

} // namespace vgpu
} // extern "C++"
#endif
#endif
