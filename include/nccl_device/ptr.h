// Symmetric pointers: a window and a byte offset, typed, valid on every rank.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_PTR_H_
#define NCCL_DEVICE_PTR_H_

#include "core.h"

#ifdef __cplusplus
// Arithmetic is in elements, as with Value *. A null window: `offset` is this rank's own address.
template <typename Value> struct ncclSymPtr {
    using ElementType = Value;
    ncclWindow_t window;
    size_t offset;

    NCCL_HOST_DEVICE_INLINE constexpr ncclSymPtr(ncclWindow_t window = nullptr, size_t offset = 0)
        : window(window), offset(offset)
    {
    }
    template <typename Other> NCCL_HOST_DEVICE_INLINE operator ncclSymPtr<Other>() const
    {
        return ncclSymPtr<Other>(window, offset);
    }

    NCCL_HOST_DEVICE_INLINE ncclSymPtr<Value> &operator+=(int d)
    {
        return advance(d);
    }
    NCCL_HOST_DEVICE_INLINE ncclSymPtr<Value> &operator+=(unsigned int d)
    {
        return advance(d);
    }
    NCCL_HOST_DEVICE_INLINE ncclSymPtr<Value> &operator+=(long d)
    {
        return advance(d);
    }
    NCCL_HOST_DEVICE_INLINE ncclSymPtr<Value> &operator+=(unsigned long d)
    {
        return advance((long long)d);
    }
    NCCL_HOST_DEVICE_INLINE ncclSymPtr<Value> &operator+=(long long d)
    {
        return advance(d);
    }
    NCCL_HOST_DEVICE_INLINE ncclSymPtr<Value> &operator+=(unsigned long long d)
    {
        return advance((long long)d);
    }
    NCCL_HOST_DEVICE_INLINE ncclSymPtr<Value> &operator-=(int d)
    {
        return advance(-(long long)d);
    }
    NCCL_HOST_DEVICE_INLINE ncclSymPtr<Value> &operator-=(unsigned int d)
    {
        return advance(-(long long)d);
    }
    NCCL_HOST_DEVICE_INLINE ncclSymPtr<Value> &operator-=(long d)
    {
        return advance(-(long long)d);
    }
    NCCL_HOST_DEVICE_INLINE ncclSymPtr<Value> &operator-=(unsigned long d)
    {
        return advance(-(long long)d);
    }
    NCCL_HOST_DEVICE_INLINE ncclSymPtr<Value> &operator-=(long long d)
    {
        return advance(-d);
    }
    NCCL_HOST_DEVICE_INLINE ncclSymPtr<Value> &operator-=(unsigned long long d)
    {
        return advance(-(long long)d);
    }

#if NCCL_CHECK_CUDACC
    NCCL_DEVICE_INLINE Value *localPtr() const;
    NCCL_DEVICE_INLINE Value *lsaPtr(int peer) const;
    NCCL_DEVICE_INLINE Value *peerPtr(int peer) const;
    NCCL_DEVICE_INLINE Value *peerPtr(ncclTeam team, int peer) const;
    NCCL_DEVICE_INLINE Value *multimemPtr(ncclMultimemHandle mmHandle) const;
    NCCL_DEVICE_INLINE Value *lsaMultimemPtr(ncclDevComm const &comm) const;
#endif

  private:
    NCCL_HOST_DEVICE_INLINE ncclSymPtr<Value> &advance(long long elements)
    {
        offset += (size_t)elements * sizeof(Value);
        return *this;
    }
};

template <typename Value, typename Int>
NCCL_HOST_DEVICE_INLINE ncclSymPtr<Value> operator+(ncclSymPtr<Value> p, Int d)
{
    return p += d;
}
template <typename Value, typename Int>
NCCL_HOST_DEVICE_INLINE ncclSymPtr<Value> operator-(ncclSymPtr<Value> p, Int d)
{
    return p -= d;
}
// Elements between two pointers of one window.
template <typename Value>
NCCL_HOST_DEVICE_INLINE ptrdiff_t operator-(ncclSymPtr<Value> a, ncclSymPtr<Value> b)
{
    return (ptrdiff_t)(a.offset - b.offset) / (ptrdiff_t)sizeof(Value);
}
template <typename Value>
NCCL_HOST_DEVICE_INLINE bool operator==(ncclSymPtr<Value> a, ncclSymPtr<Value> b)
{
    return a.window == b.window && a.offset == b.offset;
}
template <typename Value>
NCCL_HOST_DEVICE_INLINE bool operator!=(ncclSymPtr<Value> a, ncclSymPtr<Value> b)
{
    return !(a == b);
}
#endif

#endif
