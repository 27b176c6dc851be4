// All-reduce and RMSNorm of distributed rows in one kernel: each rank's blocks sum the rows of the
// rank's own tokens over all ranks' memory, normalise them and store them into every rank's output.
// By loads and stores (rmsnorm_lsa) or by multicast (rmsnorm_multimem). Any number of tokens,
// elements and ranks; float, __half, __nv_bfloat16; one source for nvcc and tutticc.
//
// A row stays on the chip as float between the steps; what does not fit is read again from the
// peers. rmsnorm_lsa keeps the contract on bits: the result is that of tuttiAllReduceRMSNorm, for
// any blockDim that divides 256. rmsnorm_multimem has it for float on virtual GPUs.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_KERNELS_RMSNORM_CUH
#define TUTTI_KERNELS_RMSNORM_CUH

#include "rmsnorm_registers.cuh"
#include "rmsnorm_shared.cuh"

namespace tutti
{

// What a launch works on; equal on all ranks but for the pointers.
struct rmsnorm_arguments {
    ncclWindow_t input, output;         // may be one window
    size_t input_offset, output_offset; // of row 0, bytes; equal (in place) or disjoint ranges
    size_t tokens, hidden;              // rows and elements of a row, row-major
    const void *gamma;                  // [hidden] or NULL
    const void *residual;               // [tokens x hidden] or NULL; own tokens are read
    void *residual_out;                 // [tokens x hidden] or NULL; own tokens are written
    float eps;
    unsigned segment; // floats of a row in dynamic shared memory: all of them, rounded up to a
                      // multiple of 4, or a multiple of 1024
};

// The work of this rank, by windows.
template <typename Memory>
__device__ __forceinline__ rmsnorm_work<Memory>
work_of_rank(const rmsnorm_arguments &args, const ncclDevComm &comm, Memory input, Memory output)
{
    rmsnorm_work<Memory> work = {input,        output,        args.tokens,       args.hidden,
                                 args.gamma,   args.residual, args.residual_out, args.eps,
                                 args.segment, comm.lsaSize,  comm.lsaRank};
    return work;
}

// Blocks with one index belong together on all ranks; a block without rows meets the others too.
// packs: 0: through shared memory.
template <typename T, int packs, typename Memory>
__device__ __forceinline__ void norm_rows(const rmsnorm_work<Memory> &work, const ncclDevComm &comm,
                                          bool multimem)
{
    ncclCoopCta cta;
    ncclLsaBarrierSession<ncclCoopCta> barrier{cta, comm, ncclTeamTagLsa(), blockIdx.x, multimem};
    TUTTI_MARK("wait for inputs");
    barrier.sync(cta, cuda::memory_order_acq_rel);
    row_range rows = rows_of_block(work, blockIdx.x, gridDim.x, packs > 0);
    if constexpr (packs > 0) {
        norm_rows_registers<T, packs, 0>(work, rows);
    } else {
        norm_rows_shared<T>(work, rows);
    }
    TUTTI_MARK("wait for peers");
    barrier.sync(cta, cuda::memory_order_acq_rel);
    TUTTI_MARK(nullptr);
}

// Launch with the same grid and block on all ranks of the LSA team (which must be all ranks that
// share the rows); no more blocks than the device communicator has LSA barriers; blockDim.x a
// divisor of 256; args.segment * 4 bytes of dynamic shared memory. All blocks of all ranks that
// share a device must fit on it at once.
template <typename T>
__global__ void __launch_bounds__(norm_lanes) rmsnorm_lsa(rmsnorm_arguments args, ncclDevComm comm)
{
    window_memory input = {args.input, args.input_offset};
    window_memory output = {args.output, args.output_offset};
    norm_rows<T, 0>(work_of_rank(args, comm, input, output), comm, false);
}

// The same for rows that fit registers (rmsnorm_registers.cuh): blockDim.x = register_threads<T>,
// no dynamic shared memory.
template <typename T, int packs>
__global__ void __launch_bounds__(register_threads<T>)
    rmsnorm_lsa_registers(rmsnorm_arguments args, ncclDevComm comm)
{
    window_memory input = {args.input, args.input_offset};
    window_memory output = {args.output, args.output_offset};
    norm_rows<T, packs>(work_of_rank(args, comm, input, output), comm, false);
}

// The same by multicast, with a device communicator made with lsaMultimem. Tails of rows and rows
// that are not aligned to 16 bytes go by plain loads and stores.
template <typename T>
__global__ void __launch_bounds__(norm_lanes)
    rmsnorm_multimem(rmsnorm_arguments args, ncclDevComm comm)
{
    multimem_memory input = {{args.input, args.input_offset}, &comm};
    multimem_memory output = {{args.output, args.output_offset}, &comm};
    norm_rows<T, 0>(work_of_rank(args, comm, input, output), comm, true);
}

} // namespace tutti
#endif
