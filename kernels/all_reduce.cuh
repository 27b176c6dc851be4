// All-reduce (sum) inside an LSA team, in one kernel. Any count, any offset that is a multiple of
// the element's size, in place or not; float, __half, __nv_bfloat16; any number of ranks; one
// source for nvcc and tutticc.
//
//   one-shot  each rank adds up everything from all ranks, for itself. Reads (N - 1) S bytes from
//             peers, stores nothing to them: fewest steps, for small messages.
//   two-shot  each rank adds up its Nth part and stores the sum into every rank's output: reads and
//             stores S (N - 1) / N.
//   multimem  both with the switch adding (and, two-shot, copying).
//
// Loads and stores keep the contract on bits: rank order, in float, one rounding, whatever the
// shape. So does multimem on virtual GPUs; the switch's own order is not defined.
//
// Order between ranks: the entry barrier makes every rank's input visible to all, the exit barrier
// every output, and it keeps inputs from being overwritten while a peer still reads them. Blocks
// with one index work on the same elements on all ranks, so block b waits for blocks b alone.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_KERNELS_ALL_REDUCE_CUH
#define TUTTI_KERNELS_ALL_REDUCE_CUH

#include "all_reduce_parts.cuh"

namespace tutti
{

constexpr unsigned all_reduce_threads = 512; // most threads of a block
constexpr size_t all_reduce_held = 1024;     // packs that a block holds, one-shot in place

// What a launch works on; equal on all ranks.
struct all_reduce_arguments {
    all_reduce_buffer input, output; // the same window and offset (in place), or disjoint
    size_t count;                    // elements
    // Of the entry barrier. acq_rel orders what a rank wrote in its stream before the launch; with
    // relaxed the caller has ordered the inputs of all ranks itself, with fences on both sides.
    cuda::memory_order entry;
};

typedef ncclLsaBarrierSession<ncclCoopCta> all_reduce_barrier;

// Where elements lie: single ones up to the first multiple of 16 bytes, packs, single ones. Buffers
// that lie differently against multiples of 16 have single elements only. Windows start at
// multiples of 4096.
template <typename T> struct all_reduce_layout {
    size_t head, packs, singles;

    __device__ __forceinline__ explicit all_reduce_layout(const all_reduce_arguments &args)
        : head(0), packs(0)
    {
        size_t in = args.input.offset, out = args.output.offset;
        if (is_pack_aligned(in - out)) {
            head = (16 - in % 16) % 16 / sizeof(T);
            head = head < args.count ? head : args.count;
            packs = (args.count - head) / pack_size<T>;
        }
        singles = args.count - packs * pack_size<T>;
    }
    // The position of single element s, and of pack p.
    __device__ __forceinline__ size_t single(size_t s) const
    {
        return s < head ? s : s + packs * pack_size<T>;
    }
    __device__ __forceinline__ size_t pack(size_t p) const
    {
        return head + p * pack_size<T>;
    }
};

// The things begin .. end, packs or single elements.
struct all_reduce_range {
    size_t begin, end;
};

// This block's share of the share that rank `rank` has of `total` things.
__device__ __forceinline__ all_reduce_range share_range(size_t total, int ranks, int rank)
{
    size_t first = split_first(total, (size_t)ranks, (size_t)rank);
    size_t own = split_first(total, (size_t)ranks, (size_t)rank + 1) - first;
    all_reduce_range range;
    range.begin = first + split_first(own, gridDim.x, blockIdx.x);
    range.end = first + split_first(own, gridDim.x, blockIdx.x + (size_t)1);
    return range;
}

// sink = the sums of a range of packs, and of one of single elements. Thread t takes those at
// begin + t, begin + t + blockDim.x, ... and no others.
template <typename T, typename Source, typename Sink>
__device__ __forceinline__ void reduce_packs(const all_reduce_layout<T> &layout,
                                             const Source &source, const Sink &sink,
                                             const all_reduce_range &range)
{
    constexpr int several = Source::several;
    size_t p = range.begin + threadIdx.x, step = blockDim.x;
    for (; p + (several - 1) * step < range.end; p += several * step) {
        pack<T> value[several];
        source.sums(value, layout.pack(p), step * pack_size<T>);
        TUTTI_UNROLL
        for (int j = 0; j < several; j++) {
            sink.store(layout.pack(p + j * step), value[j]);
        }
    }
    for (; p < range.end; p += step) {
        pack<T> value[1];
        source.sums(value, layout.pack(p), 0);
        sink.store(layout.pack(p), value[0]);
    }
}

// sink = the sums of this block's part of the packs that rank `rank` has. On GPUs the blocks take
// turns, so that all of them together go through memory once; a core of a virtual one goes through
// it best in one stretch.
template <typename T, typename Source, typename Sink>
__device__ __forceinline__ void reduce_share(const all_reduce_layout<T> &layout,
                                             const Source &source, const Sink &sink, int ranks,
                                             int rank)
{
#ifdef VGPU_DEVICE_RUNTIME_H
    reduce_packs<T>(layout, source, sink, share_range(layout.packs, ranks, rank));
#else
    size_t begin = split_first(layout.packs, (size_t)ranks, (size_t)rank);
    size_t end = split_first(layout.packs, (size_t)ranks, (size_t)rank + 1);
    size_t turn = (size_t)Source::several * blockDim.x;
    for (begin += blockIdx.x * turn; begin < end; begin += gridDim.x * turn) {
        all_reduce_range range = {begin, begin + turn < end ? begin + turn : end};
        reduce_packs<T>(layout, source, sink, range);
    }
#endif
}

template <typename T, typename Source, typename Sink>
__device__ __forceinline__ void reduce_singles(const all_reduce_layout<T> &layout,
                                               const Source &source, const Sink &sink,
                                               const all_reduce_range &range)
{
    for (size_t s = range.begin + threadIdx.x; s < range.end; s += blockDim.x) {
        size_t i = layout.single(s);
        sink.store_one(i, source.one(i));
    }
}

// What a block holds, in shared memory. `packs`: all_reduce_held of them.
template <typename T> struct held_elements {
    pack<T> *packs;
    T *singles; // two packs' worth
};

// Keeps packs in shared memory until nobody reads the input any more.
template <typename T> struct held_sink {
    pack<T> *held;
    size_t first; // position of held[0]

    __device__ __forceinline__ void store(size_t i, const pack<T> &value) const
    {
        held[(i - first) / pack_size<T>] = value;
    }
};

// One-shot in place: peers read what this rank overwrites, so a block adds up as much as it can
// hold, meets its peers, and stores. The last meeting is the exit barrier.
template <typename T, typename Source>
__device__ __forceinline__ void
reduce_in_place(const all_reduce_layout<T> &layout, const Source &source, const own_sink<T> &sink,
                const held_elements<T> &held, all_reduce_barrier &barrier)
{
    ncclCoopCta cta;
    all_reduce_range packs = share_range(layout.packs, 1, 0);
    all_reduce_range singles = share_range(layout.singles, 1, 0);
    // Not more than two packs' worth: in place, both buffers lie alike.
    for (size_t s = singles.begin + threadIdx.x; s < singles.end; s += blockDim.x) {
        held.singles[s - singles.begin] = source.one(layout.single(s));
    }
    for (size_t begin = packs.begin;; begin += all_reduce_held) {
        all_reduce_range part = {begin, packs.end};
        if (part.end - part.begin > all_reduce_held) {
            part.end = part.begin + all_reduce_held;
        }
        held_sink<T> keep = {held.packs, layout.pack(begin)};
        reduce_packs<T>(layout, source, keep, part);
        barrier.sync(cta, cuda::memory_order_acq_rel);
        // Each thread finds what it kept itself.
        for (size_t p = part.begin + threadIdx.x; p < part.end; p += blockDim.x) {
            sink.store(layout.pack(p), held.packs[p - begin]);
        }
        if (part.end == packs.end) {
            break;
        }
    }
    for (size_t s = singles.begin + threadIdx.x; s < singles.end; s += blockDim.x) {
        sink.store_one(layout.single(s), held.singles[s - singles.begin]);
    }
    __syncthreads(); // as after a barrier, all of the block's threads see the output
}

// Everything between the barriers and the exit barrier.
template <typename T, typename Source>
__device__ __forceinline__ void one_shot(const all_reduce_arguments &args, const ncclDevComm &comm,
                                         const held_elements<T> &held, all_reduce_barrier &barrier)
{
    all_reduce_layout<T> layout(args);
    Source source(args.input, comm);
    own_sink<T> sink(args.output, comm);
    if (args.input.window == args.output.window && args.input.offset == args.output.offset) {
        reduce_in_place<T>(layout, source, sink, held, barrier);
        return;
    }
    reduce_share<T>(layout, source, sink, 1, 0);
    reduce_singles<T>(layout, source, sink, share_range(layout.singles, 1, 0));
    barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
}

template <typename T, typename Source, typename Sink>
__device__ __forceinline__ void two_shot(const all_reduce_arguments &args, const ncclDevComm &comm,
                                         all_reduce_barrier &barrier)
{
    all_reduce_layout<T> layout(args);
    Source source(args.input, comm);
    Sink sink(args.output, comm);
    reduce_share<T>(layout, source, sink, comm.lsaSize, comm.lsaRank);
    reduce_singles<T>(layout, source, sink,
                      share_range(layout.singles, comm.lsaSize, comm.lsaRank));
    barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
}

// One all-reduce: first the entry barrier, then the rest, with the exit barrier; may be repeated
// with the same barrier. All threads of all blocks of all ranks call both.
__device__ __forceinline__ void all_reduce_meet(const all_reduce_arguments &args,
                                                all_reduce_barrier &barrier)
{
    TUTTI_MARK("wait for inputs");
    barrier.sync(ncclCoopCta(), args.entry);
}

template <typename T, bool is_one_shot, bool multimem>
__device__ __forceinline__ void all_reduce_rest(const all_reduce_arguments &args,
                                                const ncclDevComm &comm,
                                                all_reduce_barrier &barrier)
{
    __shared__ float4 packs_memory[is_one_shot ? all_reduce_held : 1];
    __shared__ float4 singles_memory[2];
    held_elements<T> held = {reinterpret_cast<pack<T> *>(packs_memory),
                             reinterpret_cast<T *>(singles_memory)};
    TUTTI_MARK(is_one_shot ? "one-shot" : "two-shot");
#define TUTTI_RUN(source, sink)                                                                    \
    do {                                                                                           \
        if (is_one_shot) {                                                                         \
            one_shot<T, source>(args, comm, held, barrier);                                        \
        } else {                                                                                   \
            two_shot<T, source, sink>(args, comm, barrier);                                        \
        }                                                                                          \
    } while (0)
#define TUTTI_COMMA ,
    if (multimem) {
        TUTTI_RUN(multimem_source<T>, multimem_sink<T>);
    } else if (comm.lsaSize == 2) {
        TUTTI_RUN(lsa_source<T TUTTI_COMMA 2>, lsa_sink<T TUTTI_COMMA 2>);
    } else if (comm.lsaSize == 4) {
        TUTTI_RUN(lsa_source<T TUTTI_COMMA 4>, lsa_sink<T TUTTI_COMMA 4>);
    } else if (comm.lsaSize == 8) {
        TUTTI_RUN(lsa_source<T TUTTI_COMMA 8>, lsa_sink<T TUTTI_COMMA 8>);
    } else {
        TUTTI_RUN(lsa_source<T TUTTI_COMMA 0>, lsa_sink<T TUTTI_COMMA 0>);
    }
#undef TUTTI_COMMA
#undef TUTTI_RUN
    TUTTI_MARK(nullptr);
}

// Launch with the same grid and block on all ranks of the LSA team; no more blocks than the device
// communicator has LSA barriers, and no more than fit on the device at once over all ranks that
// share it; blockDim.x at most 512. multimem: the device communicator was made with lsaMultimem.
template <typename T, bool is_one_shot, bool multimem>
__global__ void __launch_bounds__(all_reduce_threads)
    all_reduce_kernel(all_reduce_arguments args, ncclDevComm comm)
{
    ncclCoopCta cta;
    all_reduce_barrier barrier{cta, comm, ncclTeamTagLsa(), blockIdx.x, multimem};
    all_reduce_meet(args, barrier);
    all_reduce_rest<T, is_one_shot, multimem>(args, comm, barrier);
}

} // namespace tutti
#endif
