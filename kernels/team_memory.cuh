// An array that lies at the same place in every rank's memory, and what a kernel works on: by
// addresses (flat_memory), by windows (window_memory), or by multicast (multimem_memory).
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_KERNELS_TEAM_MEMORY_CUH
#define TUTTI_KERNELS_TEAM_MEMORY_CUH

#include <nccl.h>
#include <nccl_device.h>
#include <stddef.h>

namespace tutti
{

// Offsets are bytes from the array's start.
struct flat_memory {
    char *base;
    size_t stride; // from rank to rank

    template <typename T> __device__ __forceinline__ T *at(size_t offset, int rank) const
    {
        return reinterpret_cast<T *>(base + (size_t)(unsigned)rank * stride + offset);
    }
    // A number whose lowest bits are zero where all ranks' addresses are so aligned.
    __device__ __forceinline__ size_t alignment(size_t offset) const
    {
        return (reinterpret_cast<size_t>(base) + offset) | stride;
    }
};

// The same, but what the other ranks contribute lies in `pushed`, where they have stored it.
struct pushed_memory : flat_memory {
    char *pushed; // NULL: it is in their own memory, as above
    int rank;     // this one

    template <typename T> __device__ __forceinline__ T *at(size_t offset, int from) const
    {
        return pushed != nullptr && from != rank ? reinterpret_cast<T *>(pushed + offset)
                                                 : flat_memory::at<T>(offset, from);
    }
};

struct window_memory {
    ncclWindow_t window;
    size_t start; // bytes in the window

    template <typename T> __device__ __forceinline__ T *at(size_t offset, int rank) const
    {
        return reinterpret_cast<T *>(ncclGetLsaPointer(window, start + offset, rank));
    }
    // Windows start at multiples of 4096.
    __device__ __forceinline__ size_t alignment(size_t offset) const
    {
        return start + offset;
    }
};

// Besides, the switch adds and copies.
struct multimem_memory : window_memory {
    const ncclDevComm *comm;

    template <typename T> __device__ __forceinline__ T *all(size_t offset) const
    {
        return reinterpret_cast<T *>(ncclGetLsaMultimemPointer(window, start + offset, *comm));
    }
};

} // namespace tutti
#endif
