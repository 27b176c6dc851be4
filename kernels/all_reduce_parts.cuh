// The parts that all-reduce kernels are made of: sources give the sum over all ranks, sinks take
// it. By loads and stores (lsa_*) or by multicast (multimem_*); in packs of 16 bytes, several on
// their way at once, and in single elements for the ends. One source for nvcc and tutticc.
//
// Positions count from the first element of the buffers. Sums are in rank order, in float, rounded
// once to the type.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_KERNELS_ALL_REDUCE_PARTS_CUH
#define TUTTI_KERNELS_ALL_REDUCE_PARTS_CUH

#include "elements.cuh"
#include "multimem.cuh"
#include "share.cuh"
#include "wide.cuh"

#include <nccl.h>
#include <nccl_device.h>

namespace tutti
{

// A buffer in a window, as a kernel sees it.
struct all_reduce_buffer {
    ncclWindow_t window;
    size_t offset; // of element 0, bytes
};

template <typename T>
__device__ __forceinline__ T *rank_pointer(const all_reduce_buffer &buffer, int rank)
{
    return reinterpret_cast<T *>(ncclGetLsaPointer(buffer.window, buffer.offset, rank));
}

// The sum over `ranks` ranks, by loads.
template <typename T, int ranks> struct lsa_source {
    // Packs that a thread asks for before it adds the first: about eight loads on their way.
    static constexpr int several = ranks >= 8 ? 1 : ranks >= 4 ? 2 : 4;
    const T *from[ranks];

    __device__ __forceinline__ lsa_source(const all_reduce_buffer &buffer, const ncclDevComm &)
    {
        TUTTI_UNROLL
        for (int r = 0; r < ranks; r++) {
            from[r] = rank_pointer<const T>(buffer, r);
        }
    }

    // value[j] = the sum of the pack at first + j * step.
    template <int n>
    __device__ __forceinline__ void sums(pack<T> (&value)[n], size_t first, size_t step) const
    {
        pack<T> loaded[n][ranks];
        TUTTI_UNROLL
        for (int j = 0; j < n; j++) {
            TUTTI_UNROLL
            for (int r = 0; r < ranks; r++) {
                loaded[j][r] = load_pack(from[r] + first + j * step);
            }
        }
        TUTTI_UNROLL
        for (int j = 0; j < n; j++) {
            wide<pack_size<T>> sum = widen(loaded[j][0]);
            TUTTI_UNROLL
            for (int r = 1; r < ranks; r++) {
                sum = add(sum, widen(loaded[j][r]));
            }
            narrow(&value[j], sum);
        }
    }

    __device__ __forceinline__ T one(size_t i) const
    {
        float sum = to_float(from[0][i]);
        TUTTI_UNROLL
        for (int r = 1; r < ranks; r++) {
            sum = __fadd_rn(sum, to_float(from[r][i]));
        }
        T value;
        from_float(&value, sum);
        return value;
    }
};

// The same for any number of ranks: four at a time.
template <typename T> struct lsa_source<T, 0> {
    static constexpr int several = 1;
    all_reduce_buffer buffer;
    int ranks;

    __device__ __forceinline__ lsa_source(const all_reduce_buffer &buffer_, const ncclDevComm &comm)
        : buffer(buffer_), ranks(comm.lsaSize)
    {
    }

    template <int n>
    __device__ __forceinline__ void sums(pack<T> (&value)[n], size_t first, size_t step) const
    {
        TUTTI_UNROLL
        for (int j = 0; j < n; j++) {
            size_t i = first + j * step;
            wide<pack_size<T>> sum = widen(load_pack(rank_pointer<const T>(buffer, 0) + i));
            int r = 1;
            for (; r + 4 <= ranks; r += 4) {
                pack<T> loaded[4];
                TUTTI_UNROLL
                for (int k = 0; k < 4; k++) {
                    loaded[k] = load_pack(rank_pointer<const T>(buffer, r + k) + i);
                }
                TUTTI_UNROLL
                for (int k = 0; k < 4; k++) {
                    sum = add(sum, widen(loaded[k]));
                }
            }
            for (; r < ranks; r++) {
                sum = add(sum, widen(load_pack(rank_pointer<const T>(buffer, r) + i)));
            }
            narrow(&value[j], sum);
        }
    }

    __device__ __forceinline__ T one(size_t i) const
    {
        float sum = to_float(rank_pointer<const T>(buffer, 0)[i]);
        for (int r = 1; r < ranks; r++) {
            sum = __fadd_rn(sum, to_float(rank_pointer<const T>(buffer, r)[i]));
        }
        T value;
        from_float(&value, sum);
        return value;
    }
};

// The sum by multicast; single elements by loads.
template <typename T> struct multimem_source {
    static constexpr int several = 4;
    const T *from;
    lsa_source<T, 0> singles;

    __device__ __forceinline__ multimem_source(const all_reduce_buffer &buffer,
                                               const ncclDevComm &comm)
        : from(reinterpret_cast<const T *>(
              ncclGetLsaMultimemPointer(buffer.window, buffer.offset, comm))),
          singles(buffer, comm)
    {
    }
    template <int n>
    __device__ __forceinline__ void sums(pack<T> (&value)[n], size_t first, size_t step) const
    {
        TUTTI_UNROLL
        for (int j = 0; j < n; j++) {
            value[j] = multimem_sum(from + first + j * step);
        }
    }
    __device__ __forceinline__ T one(size_t i) const
    {
        return singles.one(i);
    }
};

// Into this rank's own memory.
template <typename T> struct own_sink {
    T *to;

    __device__ __forceinline__ own_sink(const all_reduce_buffer &buffer, const ncclDevComm &comm)
        : to(rank_pointer<T>(buffer, comm.lsaRank))
    {
    }
    __device__ __forceinline__ void store(size_t i, const pack<T> &value) const
    {
        store_pack(to + i, value);
    }
    __device__ __forceinline__ void store_one(size_t i, T value) const
    {
        to[i] = value;
    }
};

// Into all ranks' memory, by stores.
template <typename T, int ranks> struct lsa_sink {
    T *to[ranks];

    __device__ __forceinline__ lsa_sink(const all_reduce_buffer &buffer, const ncclDevComm &)
    {
        TUTTI_UNROLL
        for (int r = 0; r < ranks; r++) {
            to[r] = rank_pointer<T>(buffer, r);
        }
    }
    __device__ __forceinline__ void store(size_t i, const pack<T> &value) const
    {
        TUTTI_UNROLL
        for (int r = 0; r < ranks; r++) {
            store_pack(to[r] + i, value);
        }
    }
    __device__ __forceinline__ void store_one(size_t i, T value) const
    {
        TUTTI_UNROLL
        for (int r = 0; r < ranks; r++) {
            to[r][i] = value;
        }
    }
};

template <typename T> struct lsa_sink<T, 0> {
    all_reduce_buffer buffer;
    int ranks;

    __device__ __forceinline__ lsa_sink(const all_reduce_buffer &buffer_, const ncclDevComm &comm)
        : buffer(buffer_), ranks(comm.lsaSize)
    {
    }
    __device__ __forceinline__ void store(size_t i, const pack<T> &value) const
    {
        for (int r = 0; r < ranks; r++) {
            store_pack(rank_pointer<T>(buffer, r) + i, value);
        }
    }
    __device__ __forceinline__ void store_one(size_t i, T value) const
    {
        for (int r = 0; r < ranks; r++) {
            rank_pointer<T>(buffer, r)[i] = value;
        }
    }
};

// Into all ranks' memory by multicast; single elements by stores.
template <typename T> struct multimem_sink {
    T *to;
    lsa_sink<T, 0> singles;

    __device__ __forceinline__ multimem_sink(const all_reduce_buffer &buffer,
                                             const ncclDevComm &comm)
        : to(reinterpret_cast<T *>(ncclGetLsaMultimemPointer(buffer.window, buffer.offset, comm))),
          singles(buffer, comm)
    {
    }
    __device__ __forceinline__ void store(size_t i, const pack<T> &value) const
    {
        multimem_store(to + i, value);
    }
    __device__ __forceinline__ void store_one(size_t i, T value) const
    {
        singles.store_one(i, value);
    }
};

} // namespace tutti
#endif
