// Words and small functions that all device headers share: which compiler this is, inline markers,
// small arithmetic. SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_UTILITY_H_
#define NCCL_DEVICE_UTILITY_H_

#include <cuda_runtime.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// 1 where kernels are compiled (nvcc, clang for CUDA, tutticc), 0 in plain C and C++.
#ifndef NCCL_CHECK_CUDACC
#ifdef __CUDACC__
#define NCCL_CHECK_CUDACC 1
#else
#define NCCL_CHECK_CUDACC 0
#endif
#endif

// 1 where kernels run on virtual devices: pointer functions and barriers then check their arguments
// exactly.
#if defined(VGPU_DEVICE_RUNTIME_H) && NCCL_CHECK_CUDACC
#define NCCL_DEVICE_CHECKED 1
#else
#define NCCL_DEVICE_CHECKED 0
#endif

// The parameter of a function that is only a barrier: on virtual devices it gives the line of the
// call code of its own, for breakpoints.
#if NCCL_DEVICE_CHECKED
#define NCCL_LINE_OF_CALL char = VGPU_LINE_OF_CALL
#else
#define NCCL_LINE_OF_CALL
#endif

#ifdef __cplusplus
#define NCCL_EXTERN_C extern "C"
#else
#define NCCL_EXTERN_C
#endif
// For bitcode builds of the device API, which this project does not make.
#define NCCL_IR_EXTERN_C

#if NCCL_CHECK_CUDACC
#define NCCL_DEVICE_INLINE      __device__ __forceinline__
#define NCCL_HOST_DEVICE_INLINE __host__ __device__ __forceinline__
#elif defined(__cplusplus)
#define NCCL_DEVICE_INLINE      inline
#define NCCL_HOST_DEVICE_INLINE inline
#else
#define NCCL_DEVICE_INLINE      static inline
#define NCCL_HOST_DEVICE_INLINE static inline
#endif
#ifndef __host__
#define __host__
#endif

#ifndef NCCL_IF_CONSTEXPR
#ifdef __cpp_if_constexpr
#define NCCL_IF_CONSTEXPR constexpr
#else
#define NCCL_IF_CONSTEXPR
#endif
#endif

#if NCCL_CHECK_CUDACC
#include <cuda/atomic>
#endif

#ifdef __cplusplus
namespace nccl
{
namespace utility
{

// Makes a static_assert fail only where a template is used.
template <typename...> struct always_false {
    static constexpr bool value = false;
};

// Quotient rounded up; the next multiple of y that is not below x.
template <typename Number, typename Unit>
NCCL_HOST_DEVICE_INLINE constexpr auto divUp(Number x, Unit y) -> decltype(x + y)
{
    return (x + y - 1) / y;
}
template <typename Number, typename Unit>
NCCL_HOST_DEVICE_INLINE constexpr auto roundUp(Number x, Unit y) -> decltype(x + y)
{
    return divUp(x, y) * y;
}
template <typename Number, typename Unit>
NCCL_HOST_DEVICE_INLINE constexpr auto roundDown(Number x, Unit y) -> decltype(x + y)
{
    return x - x % y;
}

template <typename Int> NCCL_HOST_DEVICE_INLINE constexpr bool isPow2(Int x)
{
    return x > 0 && (x & (x - 1)) == 0;
}

#if NCCL_CHECK_CUDACC
// Lane of the calling thread in its warp, for blocks of any shape.
NCCL_DEVICE_INLINE int lane()
{
#if NCCL_DEVICE_CHECKED
    return (int)((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32);
#else
    int number;
    asm("mov.u32 %0, %%laneid;" : "=r"(number));
    return number;
#endif
}

// Mask of the lanes below the calling thread's.
NCCL_DEVICE_INLINE unsigned int lanemask_lt()
{
    return (1u << lane()) - 1;
}

// The part of a memory order that a load, or a store, can carry out.
NCCL_DEVICE_INLINE cuda::memory_order acquireOrderOf(cuda::memory_order order)
{
    return order == cuda::memory_order_relaxed || order == cuda::memory_order_release
               ? cuda::memory_order_relaxed
               : cuda::memory_order_acquire;
}
NCCL_DEVICE_INLINE cuda::memory_order releaseOrderOf(cuda::memory_order order)
{
    return order == cuda::memory_order_relaxed || order == cuda::memory_order_acquire
               ? cuda::memory_order_relaxed
               : cuda::memory_order_release;
}

// Now and then looks at a communicator's abort flag; steps is the caller's count of calls. NULL
// flag: never aborted. On real GPUs the flag lies in the host's memory, where the looks of many
// blocks come one after another, at microseconds each: there only once a wait is long, and then the
// seldomer the longer it is, up to some 20 ms.
NCCL_DEVICE_INLINE bool testAbort(uint32_t *abortFlag, uint32_t &steps)
{
    steps++;
#if NCCL_DEVICE_CHECKED
    bool looks = steps % 64 == 0;
#else
    bool looks = steps >= 1024 && ((steps & (steps - 1)) == 0 || steps % 32768 == 0);
#endif
    if (!looks || abortFlag == nullptr) {
        return false;
    }
    return cuda::atomic_ref<uint32_t, cuda::thread_scope_system>(*abortFlag)
               .load(cuda::memory_order_relaxed) != 0;
}

// A field that does not change while a kernel runs, through the read-only cache.
template <typename Value> NCCL_DEVICE_INLINE Value loadConst(Value const *field)
{
    static_assert(sizeof(Value) == 4 || sizeof(Value) == 8,
                  "loadConst reads fields of 4 or 8 bytes");
    if NCCL_IF_CONSTEXPR (sizeof(Value) == 8) {
        unsigned long long bits = __ldg(reinterpret_cast<unsigned long long const *>(field));
        return (Value)bits;
    } else {
        return (Value)__ldg(reinterpret_cast<unsigned int const *>(field));
    }
}
#endif

} // namespace utility
} // namespace nccl
#endif

#endif
