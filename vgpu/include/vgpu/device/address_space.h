// Which kind of memory a pointer names, and conversions between address spaces.
//
// There is one address space here, so conversions keep the address: an address of shared memory
// needs 64 bits. Inline PTX that keeps only 32 of them is helped by the thread's last conversion.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_DEVICE_ADDRESS_SPACE_H
#define VGPU_DEVICE_ADDRESS_SPACE_H

#include "common.h"

#ifdef __cplusplus
extern "C++" {

// Memory of the block, of the running thread (its stack), or of neither.
VGPU_FUNCTION unsigned __isShared(const void *pointer)
{
    return vgpu_memory_space(pointer) == VGPU_SPACE_SHARED;
}
VGPU_FUNCTION unsigned __isLocal(const void *pointer)
{
    return vgpu_memory_space(pointer) == VGPU_SPACE_LOCAL;
}
VGPU_FUNCTION unsigned __isConstant(const void *pointer)
{
    return vgpu_memory_space(pointer) == VGPU_SPACE_CONSTANT;
}
VGPU_FUNCTION unsigned __isGlobal(const void *pointer)
{
    return vgpu_memory_space(pointer) == VGPU_SPACE_GLOBAL;
}

VGPU_FUNCTION size_t __cvta_generic_to_global(const void *pointer)
{
    return reinterpret_cast<size_t>(pointer);
}
namespace vgpu
{
// The last address that the thread of the machine converted; 0: none yet.
inline uintptr_t &last_shared_address()
{
    static thread_local uintptr_t address;
    return address;
}
} // namespace vgpu
VGPU_FUNCTION size_t __cvta_generic_to_shared(const void *pointer)
{
    // Atomic for the thread sanitizer's sake, to which a block's threads are several.
    __atomic_store_n(&vgpu::last_shared_address(), reinterpret_cast<uintptr_t>(pointer),
                     __ATOMIC_RELAXED);
    return reinterpret_cast<size_t>(pointer);
}

#define VGPU_TO_SPACE(name)                                                                        \
    VGPU_FUNCTION size_t name(const void *pointer)                                                 \
    {                                                                                              \
        return reinterpret_cast<size_t>(pointer);                                                  \
    }
#define VGPU_FROM_SPACE(name)                                                                      \
    VGPU_FUNCTION void *name(size_t address)                                                       \
    {                                                                                              \
        return reinterpret_cast<void *>(address);                                                  \
    }
VGPU_TO_SPACE(__cvta_generic_to_constant)
VGPU_TO_SPACE(__cvta_generic_to_local)
VGPU_TO_SPACE(__cvta_generic_to_grid_constant)
VGPU_FROM_SPACE(__cvta_global_to_generic)
VGPU_FROM_SPACE(__cvta_shared_to_generic)
VGPU_FROM_SPACE(__cvta_constant_to_generic)
VGPU_FROM_SPACE(__cvta_local_to_generic)
VGPU_FROM_SPACE(__cvta_grid_constant_to_generic)
#undef VGPU_TO_SPACE
#undef VGPU_FROM_SPACE

} // extern "C++"
#endif
#endif
