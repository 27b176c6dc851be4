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
struct team_comms {
    ncclDevComm comm[team_ranks];
};

__device__ __forceinline__ rmsnorm_work<flat_memory> work_of_slot(const team_arguments &args,
                                                                  unsigned slot)
{
    const team_rank &own = args.rank[slot];
    rmsnorm_work<flat_memory> work;
    work.input = args.input;
    work.output = args.output;
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

// The rows of this block: through registers (`packs` as there), or through shared memory (0). The
// grid is args.count times the blocks of a rank; neighbouring blocks are of different ranks.
template <typename T, int packs, int ranks>
__device__ __forceinline__ void norm_rows_of_slot(const team_arguments &args)
{
    rmsnorm_work<flat_memory> work = work_of_slot(args, blockIdx.x % args.count);
    row_range rows =
        rows_of_block(work, blockIdx.x / args.count, gridDim.x / args.count, packs > 0);
    if constexpr (packs > 0) {
        norm_rows_registers<T, packs, ranks>(work, rows);
    } else {
        norm_rows_shared<T>(work, rows);
    }
}

template <typename T, int packs>
constexpr unsigned team_threads = packs > 0 ? register_threads<T> : norm_lanes;

// ranks: args.ranks, or 0. team_threads in a block.
template <typename T, int packs, int ranks>
__global__ void __launch_bounds__(team_threads<T, packs>)
    rmsnorm_team(const __grid_constant__ team_arguments args)
{
    let_next_begin();
    await_stream();
    norm_rows_of_slot<T, packs, ranks>(args);
}

// The same between barriers, at which block b of every rank meets the blocks b of all others. Once
// it has met them they are resident, and the next launch of this rank's stream takes no place that
// they need.
template <typename T, int packs, int ranks>
__global__ void __launch_bounds__(team_threads<T, packs>)
    rmsnorm_team_meeting(const __grid_constant__ team_arguments args,
                         const __grid_constant__ team_comms comms)
{
    await_stream();
    ncclCoopCta cta;
    ncclLsaBarrierSession<ncclCoopCta> barrier{cta, comms.comm[blockIdx.x % args.count],
                                               ncclTeamTagLsa(), blockIdx.x / args.count};
    barrier.sync(cta, cuda::memory_order_acq_rel);
    let_next_begin();
    norm_rows_of_slot<T, packs, ranks>(args);
    barrier.sync(cta, cuda::memory_order_acq_rel);
}

} // namespace tutti
#endif
