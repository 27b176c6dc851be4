// The fused all-reduce + RMSNorm of several ranks on one device in one launch, by addresses; alone,
// ordered by the streams around it, or meeting the launches of other devices.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_KERNELS_RMSNORM_TEAM_CUH
#define TUTTI_KERNELS_RMSNORM_TEAM_CUH

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

// The grid is args.count times the blocks of a rank; neighbouring blocks are of different ranks.
template <typename T>
__global__ void __launch_bounds__(norm_lanes)
    rmsnorm_team(const __grid_constant__ team_arguments args)
{
    rmsnorm_work<flat_memory> work = work_of_slot(args, blockIdx.x % args.count);
    norm_rows_shared<T>(work, rows_of_block(work, blockIdx.x / args.count, gridDim.x / args.count));
}

// The same between barriers, at which block b of every rank meets the blocks b of all others.
template <typename T>
__global__ void __launch_bounds__(norm_lanes)
    rmsnorm_team_meeting(const __grid_constant__ team_arguments args,
                         const __grid_constant__ team_comms comms)
{
    unsigned slot = blockIdx.x % args.count, block = blockIdx.x / args.count;
    rmsnorm_work<flat_memory> work = work_of_slot(args, slot);
    ncclCoopCta cta;
    ncclLsaBarrierSession<ncclCoopCta> barrier{cta, comms.comm[slot], ncclTeamTagLsa(), block};
    barrier.sync(cta, cuda::memory_order_acq_rel);
    norm_rows_shared<T>(work, rows_of_block(work, block, gridDim.x / args.count));
    barrier.sync(cta, cuda::memory_order_acq_rel);
}

} // namespace tutti
#endif
