// Barrier objects in memory (PTX's mbarrier, cuda::barrier): one 64-bit word counts the arrivals
// and bytes that the running phase still lacks.
//
// Bits 0-19: arrivals lacking; 20-39: arrivals of a whole phase; 40-61: bytes lacking, signed; 63:
// the phase's parity. A phase ends when neither lacks; the next then begins at once. Every change
// is one atomic step, so that such a barrier serves threads of any blocks.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_MBARRIER_H
#define VGPU_MBARRIER_H

#include "device_runtime.h"

#ifdef __cplusplus
extern "C++" {
namespace vgpu
{

struct mbarrier {
    typedef unsigned long long word;
    static const unsigned MAX_COUNT = (1u << 20) - 1;

    static unsigned pending(word w)
    {
        return static_cast<unsigned>(w) & MAX_COUNT;
    }
    static unsigned expected(word w)
    {
        return static_cast<unsigned>(w >> 20) & MAX_COUNT;
    }
    static int bytes(word w)
    {
        return static_cast<int>(static_cast<long long>(w << 2) >> 42);
    }
    static unsigned parity(word w)
    {
        return static_cast<unsigned>(w >> 63);
    }
    static word make(unsigned pending, unsigned expected, int bytes, unsigned parity)
    {
        return static_cast<word>(pending) | static_cast<word>(expected) << 20 |
               (static_cast<word>(bytes) & 0x3fffffu) << 40 | static_cast<word>(parity) << 63;
    }

    static void init(word *at, unsigned count)
    {
        if (count < 1 || count > MAX_COUNT)
            vgpu_fault(cudaErrorLaunchFailure, "a barrier object for %u arrivals: must be 1 to %u",
                       count, MAX_COUNT);
        __atomic_store_n(at, make(count, count, 0, 0), __ATOMIC_RELEASE);
    }

    // `arrivals` arrive, of which `drop` never will again; the phase lacks `more_bytes` more. The
    // state before, by which the phase is known (see is_over). held: where it is given and the
    // phase would end, it is set and the phase lacks one byte yet, which the caller takes away.
    static word change(word *at, unsigned arrivals, unsigned drop, int more_bytes,
                       bool *held = nullptr)
    {
        word old = __atomic_load_n(at, __ATOMIC_RELAXED);
        for (;;) {
            if (arrivals > pending(old) || drop > expected(old))
                vgpu_fault(cudaErrorLaunchFailure,
                           "%u arrivals at a barrier object that expects %u more in this phase",
                           arrivals, pending(old));
            long total = static_cast<long>(bytes(old)) + more_bytes;
            if (total > static_cast<long>(MAX_COUNT) || total < -static_cast<long>(MAX_COUNT))
                vgpu_fault(cudaErrorLaunchFailure,
                           "a barrier object that waits for %ld bytes: at most %u", total,
                           MAX_COUNT);
            unsigned left = pending(old) - arrivals, all = expected(old) - drop;
            bool ends = left == 0 && total == 0, holds = ends && held;
            total += holds;
            ends = ends && !holds;
            word wanted = ends ? make(all, all, 0, parity(old) ^ 1u)
                               : make(left, all, static_cast<int>(total), parity(old));
            if (__atomic_compare_exchange_n(at, &old, wanted, false, __ATOMIC_ACQ_REL,
                                            __ATOMIC_RELAXED)) {
                if (held)
                    *held = holds;
                return old;
            }
        }
    }

    // Whether the phase of this parity has ended. Others run before the answer.
    static bool is_over(const word *at, unsigned phase_parity)
    {
        vgpu_yield();
        return parity(__atomic_load_n(at, __ATOMIC_ACQUIRE)) != (phase_parity & 1u);
    }
    static void wait(const word *at, unsigned phase_parity)
    {
        while (!is_over(at, phase_parity)) {
        }
    }
};

} // namespace vgpu
} // extern "C++"
#endif
#endif
