// Symmetric pointers: a window and a byte offset, typed, valid on every rank.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_PTR_H_
#define NCCL_DEVICE_PTR_H_

#include "core.h"

#ifdef __cplusplus
// Arithmetic is in elements, as with T *. A null window: `offset` is this rank's own address.
template <typename T> struct ncclSymPtr {
    using ElementType = T;
    ncclWindow_t window;
    size_t offset;

    NCCL_HOST_DEVICE_INLINE constexpr ncclSymPtr(ncclWindow_t window = nullptr, size_t offset = 0)
        : window(window), offset(offset)
    {
    }
    template <typename U> NCCL_HOST_DEVICE_INLINE operator ncclSymPtr<U>() const
    {
        return ncclSymPtr<U>(window, offset);
    }

    NCCL_HOST_DEVICE_INLINE ncclSymPtr<T> &operator+=(int d)
    {
        return advance(d);
    }
    NCCL_HOST_DEVICE_INLINE ncclSymPtr<T> &operator+=(unsigned int d)
    {
        return advance(d);
    }
    NCCL_HOST_DEVICE_INLINE ncclSymPtr<T> &operator+=(long d)
    {
        return advance(d);
    }
    NCCL_HOST_DEVICE_INLINE ncclSymPtr<T> &operator+=(unsigned long d)
    {
        return advance((long long)d);
    }
    NCCL_HOST_DEVICE_INLINE ncclSymPtr<T> &operator+=(long long d)
    {
        return advance(d);
    }
    NCCL_HOST_DEVICE_INLINE ncclSymPtr<T> &operator+=(unsigned long long d)
    {
        return advance((long long)d);
    }
    NCCL_HOST_DEVICE_INLINE ncclSymPtr<T> &operator-=(int d)
    {
        return advance(-(long long)d);
    }
    NCCL_HOST_DEVICE_INLINE ncclSymPtr<T> &operator-=(unsigned int d)
    {
        return advance(-(long long)d);
    }
    NCCL_HOST_DEVICE_INLINE ncclSymPtr<T> &operator-=(long d)
    {
        return advance(-(long long)d);
    }
    NCCL_HOST_DEVICE_INLINE ncclSymPtr<T> &operator-=(unsigned long d)
    {
        return advance(-(long long)d);
    }
    NCCL_HOST_DEVICE_INLINE ncclSymPtr<T> &operator-=(long long d)
    {
        return advance(-d);
    }
    NCCL_HOST_DEVICE_INLINE ncclSymPtr<T> &operator-=(unsigned long long d)
    {
        return advance(-(long long)d);
    }

#if NCCL_CHECK_CUDACC
    NCCL_DEVICE_INLINE T *localPtr() const;
    NCCL_DEVICE_INLINE T *lsaPtr(int peer) const;
    NCCL_DEVICE_INLINE T *peerPtr(int peer) const;
    NCCL_DEVICE_INLINE T *peerPtr(ncclTeam team, int peer) const;
    NCCL_DEVICE_INLINE T *multimemPtr(ncclMultimemHandle mmHandle) const;
    NCCL_DEVICE_INLINE T *lsaMultimemPtr(ncclDevComm const &comm) const;
#endif

  private:
    NCCL_HOST_DEVICE_INLINE ncclSymPtr<T> &advance(long long elements)
    {
        offset += (size_t)elements * sizeof(T);
        return *this;
    }
};

template <typename T, typename Int>
NCCL_HOST_DEVICE_INLINE ncclSymPtr<T> operator+(ncclSymPtr<T> p, Int d)
{
    return p += d;
}
template <typename T, typename Int>
NCCL_HOST_DEVICE_INLINE ncclSymPtr<T> operator-(ncclSymPtr<T> p, Int d)
{
    return p -= d;
}
// Elements between two pointers of one window.
template <typename T> NCCL_HOST_DEVICE_INLINE ptrdiff_t operator-(ncclSymPtr<T> a, ncclSymPtr<T> b)
{
    return (ptrdiff_t)(a.offset - b.offset) / (ptrdiff_t)sizeof(T);
}
template <typename T> NCCL_HOST_DEVICE_INLINE bool operator==(ncclSymPtr<T> a, ncclSymPtr<T> b)
{
    return a.window == b.window && a.offset == b.offset;
}
template <typename T> NCCL_HOST_DEVICE_INLINE bool operator!=(ncclSymPtr<T> a, ncclSymPtr<T> b)
{
    return !(a == b);
}
#endif

#endif
