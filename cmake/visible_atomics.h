// Atomic operations that a program's thread sanitizer sees.
//
// Both libraries are compiled with `-include` of this file. They are mostly not compiled for the
// thread sanitizer, though the program that loads them may be: it then sees their locks, threads
// and sockets, whose functions it replaces, but not their atomic operations, and would take what
// they put in order for races. So each operation that acquires or releases says so. Where there is
// no sanitizer its functions are null: a test that is never true. SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_VISIBLE_ATOMICS_H
#define TUTTI_VISIBLE_ATOMICS_H

// Code compiled for the sanitizer needs nothing; only gcc's atomic types are plain enough.
#if defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) &&                   \
    !defined(__cplusplus) && !defined(__ASSEMBLER__)
#pragma GCC system_header // nested uses shadow each other's names, without harm

#include <stdatomic.h>

extern void __tsan_acquire(void *object) __attribute__((weak));
extern void __tsan_release(void *object) __attribute__((weak));

static inline void tutti_release(const volatile void *object, int order)
{
    if (__builtin_expect(__tsan_release != 0, 0) && order != __ATOMIC_RELAXED &&
        order != __ATOMIC_ACQUIRE && order != __ATOMIC_CONSUME) {
        __tsan_release((void *)object);
    }
}

static inline void tutti_acquire(const volatile void *object, int order)
{
    if (__builtin_expect(__tsan_acquire != 0, 0) && order != __ATOMIC_RELAXED &&
        order != __ATOMIC_RELEASE) {
        __tsan_acquire((void *)object);
    }
}

#undef atomic_load_explicit
#define atomic_load_explicit(object, order)                                                        \
    __extension__({                                                                                \
        __auto_type tutti_object = (object);                                                       \
        __typeof__((void)0, *tutti_object) tutti_value;                                            \
        __atomic_load(tutti_object, &tutti_value, (order));                                        \
        tutti_acquire(tutti_object, (order));                                                      \
        tutti_value;                                                                               \
    })

#undef atomic_store_explicit
#define atomic_store_explicit(object, value, order)                                                \
    __extension__({                                                                                \
        __auto_type tutti_object = (object);                                                       \
        __typeof__((void)0, *tutti_object) tutti_value = (value);                                  \
        tutti_release(tutti_object, (order));                                                      \
        __atomic_store(tutti_object, &tutti_value, (order));                                       \
    })

#undef atomic_exchange_explicit
#define atomic_exchange_explicit(object, value, order)                                             \
    __extension__({                                                                                \
        __auto_type tutti_object = (object);                                                       \
        __typeof__((void)0, *tutti_object) tutti_value = (value);                                  \
        __typeof__((void)0, *tutti_object) tutti_old;                                              \
        tutti_release(tutti_object, (order));                                                      \
        __atomic_exchange(tutti_object, &tutti_value, &tutti_old, (order));                        \
        tutti_acquire(tutti_object, (order));                                                      \
        tutti_old;                                                                                 \
    })

#define TUTTI_COMPARE(object, expected, desired, weak, success, failure)                           \
    __extension__({                                                                                \
        __auto_type tutti_object = (object);                                                       \
        __typeof__((void)0, *tutti_object) tutti_desired = (desired);                              \
        tutti_release(tutti_object, (success));                                                    \
        _Bool tutti_done = __atomic_compare_exchange(tutti_object, (expected), &tutti_desired,     \
                                                     (weak), (success), (failure));                \
        tutti_acquire(tutti_object, (success));                                                    \
        tutti_done;                                                                                \
    })
#undef atomic_compare_exchange_strong_explicit
#define atomic_compare_exchange_strong_explicit(object, expected, desired, success, failure)       \
    TUTTI_COMPARE(object, expected, desired, 0, success, failure)
#undef atomic_compare_exchange_weak_explicit
#define atomic_compare_exchange_weak_explicit(object, expected, desired, success, failure)         \
    TUTTI_COMPARE(object, expected, desired, 1, success, failure)

#define TUTTI_FETCH(name, object, operand, order)                                                  \
    __extension__({                                                                                \
        __auto_type tutti_object = (object);                                                       \
        tutti_release(tutti_object, (order));                                                      \
        __auto_type tutti_old = __atomic_fetch_##name(tutti_object, (operand), (order));           \
        tutti_acquire(tutti_object, (order));                                                      \
        tutti_old;                                                                                 \
    })
#undef atomic_fetch_add_explicit
#define atomic_fetch_add_explicit(object, operand, order) TUTTI_FETCH(add, object, operand, order)
#undef atomic_fetch_or_explicit
#define atomic_fetch_or_explicit(object, operand, order) TUTTI_FETCH(or, object, operand, order)
#undef atomic_fetch_xor_explicit
#define atomic_fetch_xor_explicit(object, operand, order) TUTTI_FETCH(xor, object, operand, order)
#undef atomic_fetch_and_explicit
#define atomic_fetch_and_explicit(object, operand, order) TUTTI_FETCH(and, object, operand, order)

// Only the last of several references acquires: where another is left, its owner may have freed the
// object by now.
#undef atomic_fetch_sub_explicit
#define atomic_fetch_sub_explicit(object, operand, order)                                          \
    __extension__({                                                                                \
        __auto_type tutti_object = (object);                                                       \
        __typeof__((void)0, *tutti_object) tutti_operand = (operand);                              \
        tutti_release(tutti_object, (order));                                                      \
        __auto_type tutti_old = __atomic_fetch_sub(tutti_object, tutti_operand, (order));          \
        if (tutti_old == tutti_operand) {                                                          \
            tutti_acquire(tutti_object, (order));                                                  \
        }                                                                                          \
        tutti_old;                                                                                 \
    })

#undef atomic_load
#define atomic_load(object) atomic_load_explicit(object, __ATOMIC_SEQ_CST)
#undef atomic_store
#define atomic_store(object, value) atomic_store_explicit(object, value, __ATOMIC_SEQ_CST)
#undef atomic_exchange
#define atomic_exchange(object, value) atomic_exchange_explicit(object, value, __ATOMIC_SEQ_CST)
#undef atomic_compare_exchange_strong
#define atomic_compare_exchange_strong(object, expected, desired)                                  \
    TUTTI_COMPARE(object, expected, desired, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)
#undef atomic_compare_exchange_weak
#define atomic_compare_exchange_weak(object, expected, desired)                                    \
    TUTTI_COMPARE(object, expected, desired, 1, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)
#undef atomic_fetch_add
#define atomic_fetch_add(object, operand) TUTTI_FETCH(add, object, operand, __ATOMIC_SEQ_CST)
#undef atomic_fetch_sub
#define atomic_fetch_sub(object, operand)                                                          \
    atomic_fetch_sub_explicit(object, operand, __ATOMIC_SEQ_CST)
#undef atomic_fetch_or
#define atomic_fetch_or(object, operand) TUTTI_FETCH(or, object, operand, __ATOMIC_SEQ_CST)
#undef atomic_fetch_xor
#define atomic_fetch_xor(object, operand) TUTTI_FETCH(xor, object, operand, __ATOMIC_SEQ_CST)
#undef atomic_fetch_and
#define atomic_fetch_and(object, operand) TUTTI_FETCH(and, object, operand, __ATOMIC_SEQ_CST)

#endif
#endif
