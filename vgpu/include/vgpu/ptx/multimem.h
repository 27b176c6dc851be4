// multimem.st and multimem.red of inline PTX; multimem.ld_reduce is vgpu::multimem::load_reduce.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_PTX_MULTIMEM_H
#define VGPU_PTX_MULTIMEM_H

#include "memory.h"

extern "C++" {
namespace vgpu
{
namespace ptx
{

// Several registers as what a multicast store moves.
template <class Value, int n> struct packed {
    Value element[n];
};

template <order o, class Kind, multimem::operation op, int n>
inline __attribute__((always_inline)) void multimem_ld_reduce(typename Kind::storage (&out)[n],
                                                              const char *from)
{
    multimem::load_reduce<Kind, n, op>(out, from);
    // Bulk data is read with weak and relaxed loads; who polls for a flag asks for acquire.
    if (o == order::acquire) {
        vgpu_fence(__ATOMIC_ACQUIRE);
        vgpu_yield();
    }
}

template <order o, class Value, int n> struct multimem_storing {
    static inline __attribute__((always_inline)) void run(char *to, const Value (&value)[n])
    {
        packed<Value, n> all;
        memcpy(&all, value, sizeof(all));
        if (o == order::release)
            vgpu_fence(__ATOMIC_RELEASE);
        multimem::store(to, all);
    }
};
// A single register is stored atomically where an order is asked for.
template <order o, class Value> struct multimem_storing<o, Value, 1> {
    static void run(char *to, const Value (&value)[1])
    {
        if (o == order::weak)
            multimem::store(to, value[0]);
        else
            multimem::store_atomic(to, value[0], atomic_order(o));
    }
};
template <order o, class Value, int n>
inline __attribute__((always_inline)) void multimem_st(char *to, const Value (&value)[n])
{
    multimem_storing<o, Value, n>::run(to, value);
}

template <order o, multimem::operation op, class Value, int n,
          bool whole = std::is_integral<Value>::value>
struct multimem_reducing {
    static void run(char *to, const Value (&value)[n])
    {
        if (o == order::release)
            vgpu_fence(__ATOMIC_RELEASE);
        multimem::reduce_with(to, n, value,
                              [](Value a, Value b) { return combining<Value, op>::of(a, b); });
    }
};
template <order o, multimem::operation op, class Value>
struct multimem_reducing<o, op, Value, 1, true> {
    static void run(char *to, const Value (&value)[1])
    {
        multimem::reduce<op>(to, value[0], atomic_order(o));
    }
};
template <order o, multimem::operation op, class Value, int n>
inline void multimem_red(char *to, const Value (&value)[n])
{
    multimem_reducing<o, op, Value, n>::run(to, value);
}

} // namespace ptx
} // namespace vgpu
} // extern "C++"
#endif
