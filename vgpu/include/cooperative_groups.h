// Cooperative groups: the block, tiles of a warp, the grid of a cooperative launch. For code that
// tutticc compiles.
//
// coalesced_threads() gives a group of the calling thread alone: which threads run together is up
// to the machine, and here each runs on its own. Code that aggregates over coalesced threads is
// right with groups of any size.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_COOPERATIVE_GROUPS_H
#define VGPU_COOPERATIVE_GROUPS_H

#include "cuda_runtime.h"

#if defined(__cplusplus) && defined(__CUDACC__)
extern "C++" {
namespace cooperative_groups
{

// ---- The block
// -----------------------------------------------------------------------------------

class thread_block
{
  public:
    static void sync()
    {
        __syncthreads();
    }
    static unsigned long long thread_rank()
    {
        return vgpu::thread_rank();
    }
    static unsigned long long num_threads()
    {
        return static_cast<unsigned long long>(blockDim.x) * blockDim.y * blockDim.z;
    }
    static unsigned long long size()
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
    void sync() const
    {
        vgpu_grid_sync();
    }
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
};

inline grid_group this_grid()
{
    return grid_group();
}

// ---- Lanes of a warp
// -----------------------------------------------------------------------------

namespace vgpu_detail
{

// What a set of lanes can do. Derived gives mask(), the lanes, and lane_of(rank).
template <class Derived> class lanes
{
  public:
    void sync() const
    {
        __syncwarp(self().mask());
    }
    unsigned long long thread_rank() const
    {
        return static_cast<unsigned>(__popc(self().mask() & ((1u << ::vgpu::lane()) - 1u)));
    }
    unsigned long long num_threads() const
    {
        return static_cast<unsigned>(__popc(self().mask()));
    }
    unsigned long long size() const
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
        return by_rank(__ballot_sync(self().mask(), predicate));
    }
    template <class Value> unsigned match_any(Value value) const
    {
        return by_rank(__match_any_sync(self().mask(), value));
    }
    template <class Value> unsigned match_all(Value value, int &predicate) const
    {
        return by_rank(__match_all_sync(self().mask(), value, &predicate));
    }
    template <class Value> Value shfl(Value value, int rank) const
    {
        int count = static_cast<int>(num_threads());
        return __shfl_sync(self().mask(), value, self().lane_of((rank % count + count) % count));
    }
    template <class Value> Value shfl_up(Value value, unsigned delta) const
    {
        int rank = static_cast<int>(thread_rank()), source = rank - static_cast<int>(delta);
        return __shfl_sync(self().mask(), value, self().lane_of(source < 0 ? rank : source));
    }
    template <class Value> Value shfl_down(Value value, unsigned delta) const
    {
        int rank = static_cast<int>(thread_rank()), source = rank + static_cast<int>(delta);
        return __shfl_sync(self().mask(), value,
                           self().lane_of(source >= static_cast<int>(size()) ? rank : source));
    }
    template <class Value> Value shfl_xor(Value value, unsigned rank_mask) const
    {
        unsigned rank = static_cast<unsigned>(thread_rank()), source = rank ^ rank_mask;
        return __shfl_sync(self().mask(), value,
                           self().lane_of(static_cast<int>(source >= size() ? rank : source)));
    }

  private:
    const Derived &self() const
    {
        return static_cast<const Derived &>(*this);
    }
    unsigned by_rank(unsigned lanes_set) const
    {
        unsigned result = 0;
        int rank = 0;
        for (int lane = 0; lane < 32; lane++)
            if ((self().mask() >> lane & 1u) != 0)
                result |= (lanes_set >> lane & 1u) << rank++;
        return result;
    }
};

} // namespace vgpu_detail

// Size consecutive threads of a block, all in one warp. Size: 1, 2, 4, 8, 16 or 32.
template <unsigned Size, class Parent = void>
class thread_block_tile : public vgpu_detail::lanes<thread_block_tile<Size, Parent>>
{
    static_assert(Size >= 1 && Size <= 32 && (Size & (Size - 1)) == 0,
                  "a tile has 1, 2, 4, 8, 16 or 32 threads");

  public:
    static constexpr unsigned long long num_threads()
    {
        return Size;
    }
    static constexpr unsigned long long size()
    {
        return Size;
    }
    static unsigned long long thread_rank()
    {
        return ::vgpu::lane() % Size;
    }
    // Which of the block's tiles this is, and how many there are.
    static unsigned long long meta_group_rank()
    {
        return ::vgpu::thread_rank() / Size;
    }
    static unsigned long long meta_group_size()
    {
        return (thread_block::num_threads() + Size - 1) / Size;
    }
    unsigned mask() const
    {
        return (Size == 32 ? 0xffffffffu : (1u << (Size % 32)) - 1u)
               << (::vgpu::lane() / Size * Size);
    }
    int lane_of(int rank) const
    {
        return static_cast<int>(::vgpu::lane() / Size * Size) + rank;
    }
};

template <unsigned Size, class Group>
inline thread_block_tile<Size, Group> tiled_partition(const Group &)
{
    return thread_block_tile<Size, Group>();
}

class coalesced_group : public vgpu_detail::lanes<coalesced_group>
{
  public:
    explicit coalesced_group(unsigned lane_mask) : held(lane_mask) {}
    unsigned mask() const
    {
        return held;
    }
    int lane_of(int rank) const
    {
        return static_cast<int>(__fns(held, 0, rank + 1));
    }

  private:
    unsigned held;
};

inline coalesced_group coalesced_threads()
{
    return coalesced_group(1u << ::vgpu::lane());
}

template <class Group> inline void sync(const Group &group)
{
    group.sync();
}

} // namespace cooperative_groups
} // extern "C++"
#endif
#endif
