// Hooks of code compiled with `tutticc --count`: every load and store of a kernel is counted.
//
// The compiler places these calls when it is asked to look for data races (-fsanitize=thread); this
// library, linked in place of that tool's runtime, makes them count instead. Nothing else of the
// tool
// is used. SPDX-License-Identifier: Apache-2.0
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Exported by libcudart.so: counts device memory, inside kernels, while counting is on.
extern bool vgpu_counting;
void vgpu_count_access(const void *address, size_t bytes, int is_store);
void vgpu_count_compiled(void); // says that there is counted code

#define EXPORT __attribute__((visibility("default")))

static inline void count(const volatile void *address, size_t bytes, int is_store)
{
    if (__builtin_expect(vgpu_counting, 0)) {
        vgpu_count_access((const void *)address, bytes, is_store);
    }
}

// ---- Beginning, functions, tables of virtual functions: nothing to count
// -------------------------

EXPORT void __tsan_init(void)
{
    vgpu_count_compiled();
}
EXPORT void __tsan_func_entry(void *caller)
{
    (void)caller;
}
EXPORT void __tsan_func_exit(void) {}
EXPORT void __tsan_vptr_update(void **address, void *value)
{
    (void)address;
    (void)value;
}
EXPORT void __tsan_vptr_read(void **address)
{
    (void)address;
}

// ---- Plain accesses ----------------------------------------------------------------------------

#define ACCESS(name, bytes, is_store)                                                              \
    EXPORT void name(void *address)                                                                \
    {                                                                                              \
        count(address, bytes, is_store);                                                           \
    }

#define ACCESSES(bytes)                                                                            \
    ACCESS(__tsan_read##bytes, bytes, 0)                                                           \
    ACCESS(__tsan_write##bytes, bytes, 1)                                                          \
    ACCESS(__tsan_unaligned_read##bytes, bytes, 0)                                                 \
    ACCESS(__tsan_unaligned_write##bytes, bytes, 1)                                                \
    ACCESS(__tsan_volatile_read##bytes, bytes, 0)                                                  \
    ACCESS(__tsan_volatile_write##bytes, bytes, 1)                                                 \
    ACCESS(__tsan_unaligned_volatile_read##bytes, bytes, 0)                                        \
    ACCESS(__tsan_unaligned_volatile_write##bytes, bytes, 1)

ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

EXPORT void __tsan_read_range(void *address, long bytes)
{
    count(address, (size_t)bytes, 0);
}
EXPORT void __tsan_write_range(void *address, long bytes)
{
    count(address, (size_t)bytes, 1);
}

// ---- Atomics -----------------------------------------------------------------------------------
// The compiler has replaced atomic operations by these calls: they must be carried out, with the
// strongest order, and count as the traffic they are (a read-modify-write as both).

#define RMW(bits, type, name, builtin)                                                             \
    EXPORT type __tsan_atomic##bits##_##name(volatile void *address, type value, int order)        \
    {                                                                                              \
        (void)order;                                                                               \
        count(address, sizeof(type), 0);                                                           \
        count(address, sizeof(type), 1);                                                           \
        return builtin((volatile type *)address, value, __ATOMIC_SEQ_CST);                         \
    }

#define EXCHANGES(bits, type, name)                                                                \
    EXPORT bool __tsan_atomic##bits##_compare_exchange_##name(                                     \
        volatile void *address, void *expected, type desired, int success, int failure)            \
    {                                                                                              \
        (void)success;                                                                             \
        (void)failure;                                                                             \
        count(address, sizeof(type), 0);                                                           \
        bool done =                                                                                \
            __atomic_compare_exchange_n((volatile type *)address, (type *)expected, desired,       \
                                        false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                \
        if (done) {                                                                                \
            count(address, sizeof(type), 1);                                                       \
        }                                                                                          \
        return done;                                                                               \
    }

#define ATOMICS(bits, type)                                                                        \
    EXPORT type __tsan_atomic##bits##_load(const volatile void *address, int order)                \
    {                                                                                              \
        (void)order;                                                                               \
        count(address, sizeof(type), 0);                                                           \
        return __atomic_load_n((const volatile type *)address, __ATOMIC_SEQ_CST);                  \
    }                                                                                              \
    EXPORT void __tsan_atomic##bits##_store(volatile void *address, type value, int order)         \
    {                                                                                              \
        (void)order;                                                                               \
        count(address, sizeof(type), 1);                                                           \
        __atomic_store_n((volatile type *)address, value, __ATOMIC_SEQ_CST);                       \
    }                                                                                              \
    RMW(bits, type, exchange, __atomic_exchange_n)                                                 \
    RMW(bits, type, fetch_add, __atomic_fetch_add)                                                 \
    RMW(bits, type, fetch_sub, __atomic_fetch_sub)                                                 \
    RMW(bits, type, fetch_and, __atomic_fetch_and)                                                 \
    RMW(bits, type, fetch_or, __atomic_fetch_or)                                                   \
    RMW(bits, type, fetch_xor, __atomic_fetch_xor)                                                 \
    RMW(bits, type, fetch_nand, __atomic_fetch_nand)                                               \
    EXCHANGES(bits, type, strong)                                                                  \
    EXCHANGES(bits, type, weak)                                                                    \
    EXPORT type __tsan_atomic##bits##_compare_exchange_val(volatile void *address, type expected,  \
                                                           type desired, int success, int failure) \
    {                                                                                              \
        __tsan_atomic##bits##_compare_exchange_strong(address, &expected, desired, success,        \
                                                      failure);                                    \
        return expected;                                                                           \
    }

ATOMICS(8, unsigned char)
ATOMICS(16, unsigned short)
ATOMICS(32, unsigned int)
ATOMICS(64, unsigned long)

EXPORT void __tsan_atomic_thread_fence(int order)
{
    (void)order;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
EXPORT void __tsan_atomic_signal_fence(int order)
{
    (void)order;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}
