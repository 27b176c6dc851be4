// Cooperative groups: the block, the grid of a cooperative launch, a cluster (of one block here),
// tiles of a warp and threads that are together. For code that tutticc compiles.
//
// A group of lanes is a mask; everything it does is one exchange among those lanes. Threads that
// have ended are no members. Tiles have at most 32 threads.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_COOPERATIVE_GROUPS_H
#define VGPU_COOPERATIVE_GROUPS_H

#include "cuda_runtime.h"

#if defined(__cplusplus) && defined(__CUDACC__)
#include <type_traits>
#include <utility>

extern "C++" {
namespace cooperative_groups
{

// ---- The block
// -----------------------------------------------------------------------------------

class thread_block
{
  public:
    struct arrival_token {
    };

    static void sync() __asm__("vgpu_syncthreads"); // on the line of the call, as __syncthreads is
    // The two halves of sync: every thread does both, so meeting in the second is enough.
    static arrival_token barrier_arrive()
    {
        __threadfence_block();
        return arrival_token();
    }
    static void barrier_wait(arrival_token &&) __asm__("vgpu_syncthreads");
    static unsigned thread_rank()
    {
        return ::vgpu::thread_rank();
    }
    static unsigned num_threads()
    {
        return blockDim.x * blockDim.y * blockDim.z;
    }
    static unsigned size()
    {
        return num_threads();
    }
    static dim3 group_index()
    {
        return dim3(blockIdx);
    }
    static dim3 thread_index()
    {
        return dim3(threadIdx);
    }
    static dim3 group_dim()
    {
        return blockDim;
    }
    static dim3 dim_threads()
    {
        return blockDim;
    }
};

inline thread_block this_thread_block()
{
    return thread_block();
}

// ---- The grid
// ------------------------------------------------------------------------------------

class grid_group
{
  public:
    // Whether the kernel was launched cooperatively, so that sync() works.
    bool is_valid() const
    {
        return vgpu_grid_is_cooperative();
    }
    void sync() const __asm__("vgpu_grid_sync");
    static unsigned long long num_blocks()
    {
        return static_cast<unsigned long long>(gridDim.x) * gridDim.y * gridDim.z;
    }
    static unsigned long long block_rank()
    {
        return (static_cast<unsigned long long>(blockIdx.z) * gridDim.y + blockIdx.y) * gridDim.x +
               blockIdx.x;
    }
    static unsigned long long num_threads()
    {
        return num_blocks() * thread_block::num_threads();
    }
    static unsigned long long size()
    {
        return num_threads();
    }
    static unsigned long long thread_rank()
    {
        return block_rank() * thread_block::num_threads() + thread_block::thread_rank();
    }
    static dim3 group_dim()
    {
        return gridDim;
    }
    static dim3 dim_blocks()
    {
        return gridDim;
    }
    static dim3 block_index()
    {
        return dim3(blockIdx);
    }
    static dim3 dim_threads()
    {
        return dim3(gridDim.x * blockDim.x, gridDim.y * blockDim.y, gridDim.z * blockDim.z);
    }
    static dim3 thread_index()
    {
        return dim3(blockIdx.x * blockDim.x + threadIdx.x, blockIdx.y * blockDim.y + threadIdx.y,
                    blockIdx.z * blockDim.z + threadIdx.z);
    }
};

inline grid_group this_grid()
{
    return grid_group();
}

// ---- The cluster
// ---------------------------------------------------------------------------------

class cluster_group : public thread_block
{
  public:
    static dim3 dim_blocks()
    {
        return dim3(1, 1, 1);
    }
    static unsigned num_blocks()
    {
        return 1;
    }
    static dim3 block_index()
    {
        return dim3(0, 0, 0);
    }
    static unsigned block_rank()
    {
        return 0;
    }
    template <class Value> static Value *map_shared_rank(Value *address, int rank)
    {
        return static_cast<Value *>(__cluster_map_shared_rank(
            const_cast<void *>(static_cast<const volatile void *>(address)),
            static_cast<unsigned>(rank)));
    }
    static unsigned query_shared_rank(const void *)
    {
        return 0;
    }
};

inline cluster_group this_cluster()
{
    return cluster_group();
}

// ---- Lanes of a warp
// -----------------------------------------------------------------------------

namespace vgpu_detail
{

// The bits of `lanes_set` that lie in `mask`, moved together.
inline unsigned by_rank(unsigned mask, unsigned lanes_set)
{
    unsigned result = 0;
    int rank = 0;
    for (int lane = 0; lane < 32; lane++)
        if ((mask >> lane & 1u) != 0)
            result |= (lanes_set >> lane & 1u) << rank++;
    return result;
}

// The lane that has this rank in the mask; that of rank 0 where there is none.
inline unsigned lane_of_rank(unsigned mask, unsigned rank)
{
    unsigned lane = __fns(mask, 0, static_cast<int>(rank) + 1);
    return lane < 32 ? lane : static_cast<unsigned>(__ffs(static_cast<int>(mask)) - 1);
}

// Everybody's values in order of rank; those of members that have ended are missing.
template <class Value> struct gathered {
    static_assert(std::is_trivially_copyable<Value>::value, "groups exchange plain values");
    static_assert(sizeof(Value) <= 32, "groups exchange values of at most 32 bytes");
    struct alignas(Value) storage {
        unsigned char byte[sizeof(Value)];
    };
    storage slot[32];
    unsigned count = 0; // members
    unsigned own = 0;   // the caller's place among them

    gathered(unsigned mask, const Value &value)
    {
        const unsigned bytes = sizeof(Value);
        for (unsigned begin = 0; begin < bytes; begin += 16) {
            unsigned part = bytes - begin < 16 ? bytes - begin : 16;
            alignas(16) unsigned char lanes[32][16];
            unsigned present = vgpu_warp_exchange(
                mask, reinterpret_cast<const unsigned char *>(&value) + begin, part, lanes);
            count = 0;
            for (unsigned lane = 0; lane < 32; lane++) {
                if ((present >> lane & 1u) == 0)
                    continue;
                own = lane == ::vgpu::lane() ? count : own;
                memcpy(slot[count++].byte + begin, lanes[lane], part);
            }
        }
    }
    Value operator[](unsigned i) const
    {
        Value value;
        memcpy(static_cast<void *>(&value), slot[i].byte, sizeof(Value));
        return value;
    }
};

// What a set of lanes can do. Derived gives mask(), its lanes.
template <class Derived> class lanes
{
  public:
    __forceinline__ void sync(char = VGPU_LINE_OF_CALL) const
    {
        __syncwarp(self().mask());
    }
    unsigned thread_rank() const
    {
        return static_cast<unsigned>(__popc(self().mask() & ((1u << ::vgpu::lane()) - 1u)));
    }
    unsigned num_threads() const
    {
        return static_cast<unsigned>(__popc(self().mask()));
    }
    unsigned size() const
    {
        return num_threads();
    }
    int any(int predicate) const
    {
        return __any_sync(self().mask(), predicate);
    }
    int all(int predicate) const
    {
        return __all_sync(self().mask(), predicate);
    }
    // Bit r: the predicate of the group's thread of rank r.
    unsigned ballot(int predicate) const
    {
        return by_rank(self().mask(), __ballot_sync(self().mask(), predicate));
    }
    template <class Value> unsigned match_any(Value value) const
    {
        return by_rank(self().mask(), __match_any_sync(self().mask(), value));
    }
    template <class Value> unsigned match_all(Value value, int &predicate) const
    {
        return by_rank(self().mask(), __match_all_sync(self().mask(), value, &predicate));
    }
    // Value: plain, at most 32 bytes. Without a source the caller's own value.
    template <class Value> Value shfl(const Value &value, int rank) const
    {
        int count = static_cast<int>(num_threads());
        return exchange(value, static_cast<unsigned>((rank % count + count) % count));
    }
    template <class Value> Value shfl_up(const Value &value, unsigned delta) const
    {
        unsigned rank = thread_rank();
        return exchange(value, delta > rank ? rank : rank - delta);
    }
    template <class Value> Value shfl_down(const Value &value, unsigned delta) const
    {
        unsigned rank = thread_rank();
        return exchange(value, delta >= num_threads() - rank ? rank : rank + delta);
    }
    template <class Value> Value shfl_xor(const Value &value, unsigned rank_mask) const
    {
        unsigned rank = thread_rank(), source = rank ^ rank_mask;
        return exchange(value, source >= num_threads() ? rank : source);
    }

  private:
    const Derived &self() const
    {
        return static_cast<const Derived &>(*this);
    }
    template <class Value> Value exchange(const Value &value, unsigned rank) const
    {
        const unsigned lane = lane_of_rank(self().mask(), rank), bytes = sizeof(Value);
        static_assert(std::is_trivially_copyable<Value>::value, "groups exchange plain values");
        static_assert(sizeof(Value) <= 32, "groups exchange values of at most 32 bytes");
        Value result;
        for (unsigned begin = 0; begin < bytes; begin += 16) {
            unsigned part = bytes - begin < 16 ? bytes - begin : 16;
            alignas(16) unsigned char slot[32][16];
            vgpu_warp_exchange(self().mask(),
                               reinterpret_cast<const unsigned char *>(&value) + begin, part, slot);
            memcpy(reinterpret_cast<unsigned char *>(&result) + begin, slot[lane], part);
        }
        return result;
    }
};

template <class Group> struct parent_size {
    static unsigned get()
    {
        return thread_block::num_threads();
    }
    static unsigned rank()
    {
        return ::vgpu::thread_rank();
    }
};

// The lanes of the calling thread's tile of `size` lanes (a power of two up to 32).
inline unsigned tile_mask(unsigned size)
{
    return (size == 32 ? 0xffffffffu : (1u << size) - 1u) << (::vgpu::lane() / size * size);
}

} // namespace vgpu_detail

// Size consecutive threads of a block, all in one warp. Size: 1, 2, 4, 8, 16 or 32.
template <unsigned Size, class Parent = void>
class thread_block_tile : public vgpu_detail::lanes<thread_block_tile<Size, Parent>>
{
    static_assert(Size >= 1 && Size <= 32 && (Size & (Size - 1)) == 0,
                  "a tile has 1, 2, 4, 8, 16 or 32 threads");

  public:
    static constexpr unsigned num_threads()
    {
        return Size;
    }
    static constexpr unsigned size()
    {
        return Size;
    }
    static unsigned thread_rank()
    {
        return ::vgpu::lane() % Size;
    }
    // Which of its parent's tiles this is, and how many there are.
    static unsigned meta_group_rank()
    {
        return vgpu_detail::parent_size<Parent>::rank() / Size;
    }
    static unsigned meta_group_size()
    {
        return (vgpu_detail::parent_size<Parent>::get() + Size - 1) / Size;
    }
    unsigned mask() const
    {
        return vgpu_detail::tile_mask(Size);
    }
    // A tile is one of its block's, whatever it was made from.
    operator thread_block_tile<Size, void>() const
    {
        return thread_block_tile<Size, void>();
    }
};

namespace vgpu_detail
{
template <unsigned Size, class Parent> struct parent_size<thread_block_tile<Size, Parent>> {
    static unsigned get()
    {
        return Size;
    }
    static unsigned rank()
    {
        return ::vgpu::lane() % Size;
    }
};
} // namespace vgpu_detail

// Lanes that are together, or that a partition put together.
class coalesced_group : public vgpu_detail::lanes<coalesced_group>
{
  public:
    coalesced_group() : coalesced_group(1u << ::vgpu::lane()) {}
    explicit coalesced_group(unsigned lane_mask, unsigned meta_rank = 0, unsigned meta_size = 1)
        : held(lane_mask), rank(meta_rank), groups(meta_size)
    {
    }
    template <unsigned Size, class Parent>
    coalesced_group(const thread_block_tile<Size, Parent> &tile)
        : held(tile.mask()), rank(tile.meta_group_rank()), groups(tile.meta_group_size())
    {
    }
    unsigned mask() const
    {
        return held;
    }
    unsigned meta_group_rank() const
    {
        return rank;
    }
    unsigned meta_group_size() const
    {
        return groups;
    }

  private:
    unsigned held, rank, groups;
};

// The lanes of the warp that have come to this call; see vgpu_active_mask.
__attribute__((always_inline)) inline coalesced_group
coalesced_threads(unsigned vgpu_line = __builtin_LINE())
{
    return coalesced_group(vgpu_active_mask(vgpu_line));
}

// ---- Any group
// -----------------------------------------------------------------------------------

// A group whose kind is known at run time: a block, or lanes of a warp.
class thread_group : public vgpu_detail::lanes<thread_group>
{
    typedef vgpu_detail::lanes<thread_group> as_lanes;

  public:
    thread_group(const thread_block &) : block(true), held(0) {}
    thread_group(const coalesced_group &group) : block(false), held(group.mask()) {}
    template <unsigned Size, class Parent>
    thread_group(const thread_block_tile<Size, Parent> &tile) : block(false), held(tile.mask())
    {
    }
    unsigned mask() const
    {
        return held;
    }
    bool is_block() const
    {
        return block;
    }
    __forceinline__ void sync(char = VGPU_LINE_OF_CALL) const
    {
        if (block)
            __syncthreads();
        else
            as_lanes::sync();
    }
    unsigned long long thread_rank() const
    {
        return block ? thread_block::thread_rank() : as_lanes::thread_rank();
    }
    unsigned long long num_threads() const
    {
        return block ? thread_block::num_threads() : as_lanes::num_threads();
    }
    unsigned long long size() const
    {
        return num_threads();
    }

  private:
    bool block;
    unsigned held;
};

template <class Group> __forceinline__ void sync(const Group &group, char = VGPU_LINE_OF_CALL)
{
    group.sync();
}
template <class Group> inline auto thread_rank(const Group &group) -> decltype(group.thread_rank())
{
    return group.thread_rank();
}
template <class Group> inline auto group_size(const Group &group) -> decltype(group.num_threads())
{
    return group.num_threads();
}
inline thread_block_tile<1> this_thread()
{
    return thread_block_tile<1>();
}

// ---- Partitions
// ----------------------------------------------------------------------------------

template <unsigned Size, class Group>
inline thread_block_tile<Size, Group> tiled_partition(const Group &)
{
    return thread_block_tile<Size, Group>();
}

namespace vgpu_detail
{
inline void check_tile(unsigned size)
{
    if (size == 0 || size > 32 || (size & (size - 1)) != 0)
        vgpu_fault(cudaErrorLaunchFailure,
                   "tiled_partition into tiles of %u threads: must be 1, 2, 4, 8, 16 or 32", size);
}
} // namespace vgpu_detail

// Tiles of a size known at run time.
inline thread_group tiled_partition(const thread_block &, unsigned size)
{
    vgpu_detail::check_tile(size);
    unsigned lanes = thread_block::num_threads() - ::vgpu::thread_rank() / 32 * 32;
    unsigned all = lanes >= 32 ? 0xffffffffu : (1u << lanes) - 1u;
    return thread_group(coalesced_group(vgpu_detail::tile_mask(size) & all));
}
// Consecutive ranks of lanes that are together.
inline coalesced_group tiled_partition(const coalesced_group &parent, unsigned size)
{
    vgpu_detail::check_tile(size);
    unsigned rank = parent.thread_rank() / size, mask = 0;
    for (unsigned i = rank * size; i < (rank + 1) * size && i < parent.num_threads(); i++)
        mask |= 1u << vgpu_detail::lane_of_rank(parent.mask(), i);
    return coalesced_group(mask, rank, (parent.num_threads() + size - 1) / size);
}
inline thread_group tiled_partition(const thread_group &parent, unsigned size)
{
    if (parent.is_block())
        return tiled_partition(thread_block(), size);
    return thread_group(tiled_partition(coalesced_group(parent.mask()), size));
}

// The threads of a tile or of lanes that are together which have the caller's label.
template <class Group, class Label>
inline coalesced_group labeled_partition(const Group &group, Label label)
{
    static_assert(std::is_integral<Label>::value, "a label is an integer");
    vgpu_detail::gathered<Label> labels(group.mask(), label);
    unsigned rank = 0, groups = 0;
    for (unsigned i = 0; i < labels.count; i++) {
        bool is_first = true;
        for (unsigned j = 0; j < i; j++)
            is_first &= labels[j] != labels[i];
        rank = is_first && labels[i] == label ? groups : rank;
        groups += is_first;
    }
    return coalesced_group(__match_any_sync(group.mask(), static_cast<long long>(label)), rank,
                           groups);
}
// Those whose predicate is the caller's.
template <class Group> inline coalesced_group binary_partition(const Group &group, bool predicate)
{
    unsigned yes = __ballot_sync(group.mask(), predicate);
    unsigned no = __ballot_sync(group.mask(), !predicate);
    bool both = yes != 0 && no != 0;
    return coalesced_group(predicate ? yes : no, both && predicate ? 1 : 0, both ? 2 : 1);
}

// ---- One thread of a group
// -----------------------------------------------------------------------

// Calls f in the group's first thread.
template <class Group, class Function, class... First>
inline void invoke_one(const Group &group, Function &&f, First &&...arguments)
{
    if (group.thread_rank() == 0)
        std::forward<Function>(f)(std::forward<First>(arguments)...);
}
// The same; everybody gets the result. For groups of lanes.
template <class Group, class Function, class... First>
inline auto invoke_one_broadcast(const Group &group, Function &&f, First &&...arguments)
    -> decltype(f(std::forward<First>(arguments)...))
{
    typedef typename std::decay<decltype(f(std::forward<First>(arguments)...))>::type result;
    result value{};
    if (group.thread_rank() == 0)
        value = std::forward<Function>(f)(std::forward<First>(arguments)...);
    return group.shfl(value, 0);
}

} // namespace cooperative_groups
} // extern "C++"
#endif
#endif
