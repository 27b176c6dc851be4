// The fused all-reduce + RMSNorm of several ranks on one device in one launch, by addresses; alone,
// ordered by the streams around it, or meeting the launches of other devices.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_KERNELS_RMSNORM_TEAM_CUH
#define TUTTI_KERNELS_RMSNORM_TEAM_CUH

#include "rmsnorm_registers.cuh"
#include "rmsnorm_shared.cuh"

namespace tutti
{

constexpr int team_ranks = 8; // most ranks of a launch

struct team_rank {
    int rank;
    const void *gamma, *residual;
    void *residual_out;
};

struct team_arguments {
    flat_memory input, output;
    size_t tokens, hidden;
    float eps;
    unsigned segment; // as in rmsnorm_work
    int ranks;        // of the team
    unsigned count;   // ranks of this launch
    team_rank rank[team_ranks];
};

// Of the ranks of the launch.
template <int count> struct team_comms {
    ncclDevComm comm[count];
};

typedef ncclLsaBarrierSession<ncclCoopCta> team_barrier;

// The barrier before anything is read. A rank's input is its stream's affair: what made it has
// ended, and with that all devices see it. So on real GPUs the arrival needs no fence, which takes
// as long as the way over a link.
__device__ __forceinline__ void meet_at_entry(team_barrier &barrier)
{
    ncclCoopCta cta;
#ifdef VGPU_DEVICE_RUNTIME_H
    barrier.arrive(cta, cuda::memory_order_release);
#else
    barrier.arrive(cta, cuda::memory_order_relaxed);
#endif
    barrier.wait(cta, cuda::memory_order_acquire);
}

template <typename Memory>
__device__ __forceinline__ rmsnorm_work<Memory>
work_of_slot(const team_arguments &args, unsigned slot, Memory input, Memory output)
{
    const team_rank &own = args.rank[slot];
    rmsnorm_work<Memory> work;
    work.input = input;
    work.output = output;
    work.tokens = args.tokens;
    work.hidden = args.hidden;
    work.gamma = own.gamma;
    work.residual = own.residual;
    work.residual_out = own.residual_out;
    work.eps = args.eps;
    work.segment = args.segment;
    work.ranks = args.ranks;
    work.rank = own.rank;
    return work;
}

// The rows of a block: through registers (`packs` as there), or through shared memory (0).
template <typename T, int packs, int ranks, typename Memory>
__device__ __forceinline__ void norm_rows_any(const rmsnorm_work<Memory> &work,
                                              const row_range &rows)
{
    if constexpr (packs > 0) {
        norm_rows_registers<T, packs, ranks>(work, rows);
    } else {
        norm_rows_shared<T>(work, rows);
    }
}

// Which of its launch's ranks a block is of, and which of its blocks: those of one rank are
// neighbours, so that all blocks together go through memory once.
struct team_place {
    unsigned slot, block, blocks;

    __device__ __forceinline__ explicit team_place(const team_arguments &args)
    {
        blocks = gridDim.x / args.count;
        slot = blockIdx.x / blocks;
        block = blockIdx.x % blocks;
    }
};

template <typename T, int packs, int ranks>
__device__ __forceinline__ void norm_rows_of(const team_arguments &args, const team_place &place)
{
    rmsnorm_work<flat_memory> work = work_of_slot(args, place.slot, args.input, args.output);
    row_range rows = rows_of_block(work, place.block, place.blocks, packs > 0);
    norm_rows_any<T, packs, ranks>(work, rows);
}

template <typename T, int packs>
constexpr unsigned team_threads = packs > 0 ? register_threads<T> : norm_lanes;

// The grid is args.count times the blocks of a rank. ranks: args.ranks, or 0. team_threads in a
// block.
template <typename T, int packs, int ranks>
__global__ void __launch_bounds__(team_threads<T, packs>)
    rmsnorm_team(const __grid_constant__ team_arguments args)
{
    let_next_begin();
    await_stream();
    norm_rows_of<T, packs, ranks>(args, team_place(args));
}

// The same between barriers, at which block b of every rank meets the blocks b of all others. Once
// it has met them they are resident, and the next launch of this rank's stream takes no place that
// they need. ranks: 2 (one of them in the launch), or 0.
template <typename T, int packs, int ranks>
__global__ void __launch_bounds__(team_threads<T, packs>)
    rmsnorm_team_meeting(const __grid_constant__ team_arguments args,
                         const __grid_constant__ team_comms<ranks == 2 ? 1 : team_ranks> comms)
{
    await_stream();
    ncclCoopCta cta;
    team_place place(args);
    team_barrier barrier{cta, comms.comm[ranks == 2 ? 0 : place.slot], ncclTeamTagLsa(),
                         place.block};
    meet_at_entry(barrier);
    let_next_begin();
    norm_rows_of<T, packs, ranks>(args, place);
    barrier.sync(cta, cuda::memory_order_acq_rel);
}

// Stores this rank's part of rows of packs to `to`.
template <typename T>
__device__ __forceinline__ void push_rows(T *to, const T *from, size_t hidden,
                                          const row_range &rows)
{
    constexpr unsigned several = 4; // loads on their way
    unsigned count = (unsigned)(hidden / pack_size<T>), step = blockDim.x;
    for (size_t token = rows.begin; token < rows.end; token += rows.step) {
        const T *row = from + token * hidden;
        for (unsigned p = threadIdx.x; p < count; p += several * step) {
            pack<T> value[several];
            TUTTI_UNROLL
            for (unsigned k = 0; k < several; k++) {
                if (p + k * step < count) {
                    value[k] = load_pack(row + (size_t)(p + k * step) * pack_size<T>);
                }
            }
            TUTTI_UNROLL
            for (unsigned k = 0; k < several; k++) {
                if (p + k * step < count) {
                    store_pack(to + token * hidden + (size_t)(p + k * step) * pack_size<T>,
                               value[k]);
                }
            }
        }
    }
}

// The same for a team of two ranks of different devices, by stores alone, which are faster than
// loads over a link: each first stores what it contributes to the other's tokens into the other's
// output, where the results come to lie. One rank in a launch; output disjoint from input; whole
// packs, aligned to 16 bytes, in both; what is the rank's own may lie as it likes where packs is 0.
template <typename T, int packs>
__global__ void __launch_bounds__(team_threads<T, packs>)
    rmsnorm_team_pushing(const __grid_constant__ team_arguments args,
                         const __grid_constant__ team_comms<1> comms)
{
    await_stream();
    ncclCoopCta cta;
    team_place place(args);
    team_barrier barrier{cta, comms.comm[0], ncclTeamTagLsa(), place.block};
    int own = args.rank[0].rank, other = 1 - own;
    pushed_memory input = {args.input, args.output.at<char>(0, own), own};
    pushed_memory output = {args.output, nullptr, own};
    rmsnorm_work<pushed_memory> work = work_of_slot(args, 0, input, output);
    work.rank = other;
    row_range others = rows_of_block(work, place.block, place.blocks, true);
    work.rank = own;
    row_range rows = rows_of_block(work, place.block, place.blocks, true);
    meet_at_entry(barrier);
    let_next_begin();
    push_rows(args.output.at<T>(0, other), args.input.at<const T>(0, own), args.hidden, others);
    barrier.sync(cta, cuda::memory_order_acq_rel);
    norm_rows_any<T, packs, 2>(work, rows);
    barrier.sync(cta, cuda::memory_order_acq_rel);
}

} // namespace tutti
#endif
