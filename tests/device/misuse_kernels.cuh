// Kernels that do what the checking mode is to find; the lines that reports must name are marked at
// their ends.
// SPDX-License-Identifier: Apache-2.0
#ifndef TESTS_DEVICE_MISUSE_KERNELS_CUH
#define TESTS_DEVICE_MISUSE_KERNELS_CUH

#include <cooperative_groups.h>
#include <nccl.h>
#include <nccl_device.h>

enum { WINDOW_BYTES = 5000, BARRIERS = 4 };

// What a case's kernel is given.
struct kernel_input {
    ncclWindow_t window;
    ncclDevComm comm;
    unsigned *word; // device memory, zero
    char *local;
};

// ---- Windows ------------------------------------------------------------------------------------

__global__ void forms_a_pointer_beyond(kernel_input in)
{
    if (in.comm.rank == 1 && threadIdx.x == 3) {
        *(char *)ncclGetLsaPointer(in.window, 5004, 0) = 1; // forms beyond
    }
}

__device__ __noinline__ void store_far(char *at, size_t offset)
{
    at[offset] = 7; // stores beyond
}

__global__ void stores_beyond(kernel_input in)
{
    if (in.comm.rank == 1 && threadIdx.x == 2) {
        store_far((char *)ncclGetLsaPointer(in.window, 0, 0), 8192); // calls the store
    }
}

__global__ void stores_one_byte_beyond(kernel_input in)
{
    if (in.comm.rank == 1 && threadIdx.x == 2) {
        char *copy = (char *)ncclGetLsaPointer(in.window, 0, 0);
        store_far(copy, WINDOW_BYTES); // one byte
    }
}

__global__ void loads_before(kernel_input in)
{
    if (in.comm.rank == 0) {
        *in.word = *(volatile unsigned char *)ncclGetLsaPointer(in.window, 0, 1) +
                   ((volatile unsigned char *)ncclGetLsaPointer(in.window, 0, 1))[-16]; // before
    }
}

template <class Value> __global__ void is_a_template(kernel_input in)
{
    if (in.comm.rank == 1 && threadIdx.x == 3) {
        *(Value *)ncclGetLsaPointer(in.window, 5004, 0) = 1; // of a template
    }
}

__global__ void uses_a_gone_window(kernel_input in)
{
    *(char *)ncclGetLocalPointer(in.window, 16) = 1; // gone window
}

__global__ void uses_a_gone_pointer(kernel_input in)
{
    in.local[16] = 1; // gone pointer
}

// ---- Multimem -----------------------------------------------------------------------------------

__global__ void stores_plainly(kernel_input in)
{
    *((int *)ncclGetLsaMultimemPointer(in.window, 64, in.comm)) = 1; // plain store
}

__global__ void multimem_beyond(kernel_input in)
{
    float *at = (float *)ncclGetLsaMultimemPointer(in.window, 0, in.comm) + 1250;
    asm volatile("multimem.red.relaxed.sys.global.add.f32 [%0], %1;" ::"l"(at), "f"(1.0f)
                 : "memory"); // red beyond
}

__global__ void no_multimem_pointer(kernel_input in)
{
    *in.word = (unsigned)(uintptr_t)ncclGetLsaMultimemPointer(in.window, 0, in.comm); // no multimem
}

__global__ void no_multimem_barrier(kernel_input in)
{
    ncclLsaBarrierSession<ncclCoopCta> barrier(ncclCoopCta(), in.comm, ncclTeamTagLsa(), 0,
                                               true); // multimem barrier
    barrier.sync(ncclCoopCta(), cuda::memory_order_relaxed);
}

// ---- Barriers between ranks ---------------------------------------------------------------------

__global__ void one_index_for_two(kernel_input in)
{
    ncclCoopCta cta;
    ncclLsaBarrierSession<ncclCoopCta> barrier(cta, in.comm, ncclTeamTagLsa(), 1); // two blocks
    if (threadIdx.x == 0) {
        atomicAdd(in.word, 1u);
        while (cuda::atomic_ref<unsigned, cuda::thread_scope_device>(*in.word).load() < 2) {
        }
    }
    barrier.sync(cta, cuda::memory_order_relaxed);
}

// Each block but the first waits until the one before it is done. By atomics, as on a GPU.
__global__ void one_index_in_turn(kernel_input in)
{
    ncclCoopCta cta;
    cuda::atomic_ref<unsigned, cuda::thread_scope_device> turn(*in.word);
    while (turn.load(cuda::memory_order_acquire) != blockIdx.x) {
    }
    {
        ncclLsaBarrierSession<ncclCoopCta> barrier(cta, in.comm, ncclTeamTagLsa(), 1); // in turn
        barrier.sync(cta, cuda::memory_order_acq_rel);
    }
    if (threadIdx.x == 0) {
        turn.store(blockIdx.x + 1, cuda::memory_order_release);
    }
}

__global__ void index_too_high(kernel_input in)
{
    ncclLsaBarrierSession<ncclCoopCta> barrier(ncclCoopCta(), in.comm, ncclTeamTagLsa(), 4); // high
    barrier.sync(ncclCoopCta(), cuda::memory_order_relaxed);
}

__global__ void different_indices(kernel_input in)
{
    ncclCoopCta cta;
    ncclLsaBarrierSession<ncclCoopCta> barrier(cta, in.comm, ncclTeamTagLsa(), in.comm.rank);
    barrier.sync(cta, cuda::memory_order_relaxed); // different
}

__global__ void rank_1_only_opens(kernel_input in)
{
    ncclCoopCta cta;
    ncclLsaBarrierSession<ncclCoopCta> barrier(cta, in.comm, ncclTeamTagLsa(), 3);
    barrier.sync(cta, cuda::memory_order_relaxed); // comes once
    if (in.comm.rank == 0) {
        barrier.sync(cta, cuda::memory_order_relaxed); // waits alone
    } else {
        ncclLsaBarrierSession<ncclCoopCta> other(cta, in.comm, ncclTeamTagLsa(), 2); // only opens
        while (*(volatile unsigned *)in.word == 0) {
        }
    }
}

__global__ void rank_1_never_comes(kernel_input in)
{
    ncclCoopCta cta;
    ncclLsaBarrierSession<ncclCoopCta> barrier(cta, in.comm, ncclTeamTagLsa(), 2); // opens only
    if (in.comm.rank == 0) {
        barrier.sync(cta, cuda::memory_order_relaxed); // alone
    } else {
        while (*(volatile unsigned *)in.word == 0) {
        }
    }
}

__global__ void rank_1_once_less(kernel_input in)
{
    ncclCoopCta cta;
    ncclLsaBarrierSession<ncclCoopCta> barrier(cta, in.comm, ncclTeamTagLsa(), 2);
    for (int round = 0; round < 3 - in.comm.rank; round++) {
        barrier.sync(cta, cuda::memory_order_relaxed); // once less
    }
}

// ---- Barriers of a block ------------------------------------------------------------------------

__global__ void two_lines(kernel_input in)
{
    if (threadIdx.x < 8) {
        __syncthreads(); // first line
        in.word[1] = 1;
    } else {
        atomicAdd(in.word, 1u);
        __syncthreads(); // second line
    }
}

__global__ void two_lines_of_a_group(kernel_input in)
{
    ncclCoopCta cta;
    if (threadIdx.x == 31) {
        cta.sync(); // group, first
    }
    atomicAdd(in.word, 1u);
    cta.sync(); // group, second
}

__global__ void the_end_of_a_session(kernel_input in)
{
    ncclCoopCta cta;
    {
        ncclLsaBarrierSession<ncclCoopCta> barrier(cta, in.comm, ncclTeamTagLsa(), 0);
        if (threadIdx.x == 31) {
            cta.sync(); // not the end
        }
        atomicAdd(in.word, 1u);
    } // the end
}

__global__ void two_lines_of_a_thread_block(kernel_input in)
{
    cooperative_groups::thread_block block = cooperative_groups::this_thread_block();
    if (threadIdx.x >= 5) {
        block.sync(); // block, first
    }
    atomicAdd(in.word, 1u);
    cooperative_groups::sync(block); // block, second
}

__global__ void two_lines_of_ptx(kernel_input in)
{
    if (threadIdx.x >= 6) {
        asm volatile("bar.sync 0;"); // instruction, first
    }
    atomicAdd(in.word, 1u);
    asm volatile("bar.sync 0;"); // instruction, second
}

__global__ void waits_elsewhere(kernel_input in)
{
    if (threadIdx.x < 4) {
        __syncwarp(0x1f); // in the warp
    }
    atomicAdd(in.word, 1u);
    __syncthreads(); // others
}

// ---- Waits that nothing can end -----------------------------------------------------------------

__global__ void flag_of_nobody(kernel_input in)
{
    cuda::atomic_ref<unsigned, cuda::thread_scope_system> flag(*in.word);
    while (flag.load(cuda::memory_order_acquire) == 0) { // flag of nobody
    }
}

__global__ void counts_while_it_waits(kernel_input in)
{
    cuda::atomic_ref<unsigned, cuda::thread_scope_system> flag(*in.word);
    for (unsigned long long i = 0; flag.load(cuda::memory_order_acquire) == 0; i++) { // counts
        in.word[2] = (unsigned)i;
    }
}

#endif
