// Barrier objects, asynchronous copies, branches and the wider types of inline PTX; libcu++'s
// barrier and ptx functions.
// SPDX-License-Identifier: Apache-2.0
#include "../programs/check.cuh"

#include <cooperative_groups.h>
#include <cstdint>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda/ptx>
#include <cuda_pipeline.h>

#define WANT(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("%s:%d: thread %u: %s does not hold\n", __FILE__, __LINE__, threadIdx.x,        \
                   #condition);                                                                    \
            atomicAdd(bad, 1);                                                                     \
        }                                                                                          \
    } while (0)

static __device__ uint32_t shared_address(const void *pointer)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

static __device__ void wait_parity(uint32_t barrier, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra.uni over;\n"
                 "bra.uni again;\n"
                 "over:\n"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

// One thread fills a ring of two buffers, the others use it: phases follow each other for long.
__global__ void ring(int *bad, const int *numbers, int rounds, int *sum)
{
    __shared__ alignas(16) int buffer[2][64];
    __shared__ alignas(8) uint64_t full[2], empty[2];
    uint32_t full_at[2] = {shared_address(&full[0]), shared_address(&full[1])};
    uint32_t empty_at[2] = {shared_address(&empty[0]), shared_address(&empty[1])};
    if (threadIdx.x == 0)
        for (int i = 0; i < 2; i++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full_at[i]));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(empty_at[i]),
                         "r"(blockDim.x - 1));
            asm volatile("fence.mbarrier_init.release.cluster;");
        }
    __syncthreads();
    int mine = 0;
    for (int round = 0; round < rounds; round++) {
        int slot = round % 2, parity = round / 2 % 2;
        if (threadIdx.x == 0) {
            wait_parity(empty_at[slot], parity ^ 1);
            asm volatile(
                "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full_at[slot]),
                "r"(256));
            for (int part = 0; part < 2; part++)
                asm volatile(
                    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                    " [%0], [%1], %2, [%3];" ::"r"(shared_address(&buffer[slot][32 * part])),
                    "l"(numbers + 64 * round + 32 * part), "r"(128), "r"(full_at[slot])
                    : "memory");
        } else {
            wait_parity(full_at[slot], parity);
            for (int i = threadIdx.x - 1; i < 64; i += blockDim.x - 1)
                mine += buffer[slot][i];
            uint64_t state;
            asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 %0, [%1];"
                         : "=l"(state)
                         : "r"(empty_at[slot]));
            unsigned left;
            asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(left) : "l"(state));
            WANT(left >= 1 && left < blockDim.x);
        }
    }
    atomicAdd(sum, mine);
}

__global__ void library(int *bad, const int *numbers, int *out)
{
    namespace ptx = cuda::ptx;
    typedef cuda::barrier<cuda::thread_scope_block> barrier;
    __shared__ barrier phase, bytes;
    __shared__ alignas(16) int buffer[32];
    __shared__ int steps;
    if (threadIdx.x == 0) {
        init(&phase, blockDim.x);
        init(&bytes, blockDim.x);
        steps = 0;
    }
    __syncthreads();
    for (int step = 0; step < 5; step++) {
        WANT(steps == step);
        barrier::arrival_token token = phase.arrive();
        phase.wait(std::move(token));
        if (threadIdx.x == 0)
            steps++;
        phase.arrive_and_wait();
    }
    barrier::arrival_token token;
    if (threadIdx.x == 0) {
        cuda::device::memcpy_async_tx(buffer, numbers, cuda::aligned_size_t<16>(128), bytes);
        token = cuda::device::barrier_arrive_tx(bytes, 1, 128);
    } else {
        token = bytes.arrive();
    }
    bytes.wait(std::move(token));
    WANT(buffer[threadIdx.x] == numbers[threadIdx.x]);
    // A quarter leaves for good: later phases expect fewer.
    if (threadIdx.x < 8) {
        phase.arrive_and_drop();
        return;
    }
    phase.arrive_and_wait();
    phase.arrive_and_wait();
    uint64_t *native = cuda::device::barrier_native_handle(phase);
    uint64_t state =
        ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, ptx::space_shared, native);
    while (!ptx::mbarrier_try_wait(native, state)) {
    }
    if (ptx::elect_sync(0xffffff00u)) {
        WANT(threadIdx.x == 8);
        buffer[0] = 77;
        ptx::fence_proxy_async(ptx::space_shared);
        ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out, buffer, 64u);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
        ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
    }
}

__global__ void across_blocks(int *bad, cuda::barrier<cuda::thread_scope_device> *barrier,
                              int *counters)
{
    for (int round = 0; round < 20; round++) {
        atomicAdd(&counters[round], 1);
        barrier->arrive_and_wait();
        WANT(counters[round] == int(gridDim.x * blockDim.x));
    }
}

__global__ void wide(int *bad, int *memory)
{
    __extension__ typedef unsigned __int128 u128;
    u128 *at = reinterpret_cast<u128 *>(memory), old;
    u128 one = static_cast<u128>(1) << 64 | 1, two = one * 2;
    asm volatile("atom.exch.relaxed.gpu.global.b128 %0, [%1], %2;"
                 : "=q"(old)
                 : "l"(at), "q"(one)
                 : "memory");
    WANT(old == 0);
    asm volatile("atom.cas.acq_rel.sys.global.b128 %0, [%1], %2, %3;"
                 : "=q"(old)
                 : "l"(at), "q"(one), "q"(two)
                 : "memory");
    WANT(old == one && *at == two);
    unsigned d;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(0x3c003c00u), "r"(0x40003c00u));
    WANT(d == 0x42004000u); // 3, 2
    asm("fma.rn.bf16x2 %0, %1, %2, %3;"
        : "=r"(d)
        : "r"(0x40003f80u), "r"(0x40404040u), "r"(0x3f803f80u));
    WANT(d == 0x40e04080u); // 7, 4
    unsigned short h;
    asm("mul.f16 %0, %1, %2;" : "=h"(h) : "h"((short)0x4000), "h"((short)0x4200));
    WANT(h == 0x4600);
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(h) : "f"(1000.f), "f"(-1.f));
    WANT(h == 0x7eb8);
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(d) : "h"(h));
    WANT(d == 0x5f00bc00u);
    __shared__ int here;
    int local = 0, loops = 0, is_shared = 0, is_global = 1;
    asm volatile("{ .reg .pred p; isspacep.shared p, %2; selp.s32 %0, 1, 0, p;"
                 " isspacep.global p, %3; selp.s32 %1, 1, 0, p; }"
                 : "=r"(is_shared), "=r"(is_global)
                 : "l"(&here), "l"(&local));
    WANT(is_shared == 1 && is_global == 0);
    asm volatile("{ .reg .pred p; .reg .b32 n; mov.b32 n, 5;\n"
                 "  step_%=: add.s32 %0, %0, 2; sub.s32 n, n, 1; setp.gt.s32 p, n, 0;\n"
                 "  @p bra step_%=; }"
                 : "+r"(loops));
    WANT(loops == 10);
    unsigned rank = 9, blocks = 9;
    asm("mov.u32 %0, %%cluster_ctarank; mov.u32 %1, %%cluster_nctarank;"
        : "=r"(rank), "=r"(blocks));
    WANT(rank == 0 && blocks == 1);
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;");
    __shared__ alignas(16) float terms[4];
    for (float &term : terms)
        term = 1.5f;
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], 16;" ::"l"(
                     memory + 8),
                 "r"(shared_address(terms))
                 : "memory");
    WANT(__int_as_float(memory[11]) == 1.5f);
}

// Stages of a pipeline: all threads do both, or some fill and the others use.
__global__ void pipelines(int *bad, const int *numbers)
{
    namespace cg = cooperative_groups;
    typedef cuda::pipeline_shared_state<cuda::thread_scope_block, 3> state;
    __shared__ state together, apart;
    __shared__ int stage[3][32];
    cg::thread_block block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &together);
    int sum = 0, rounds = 20;
    for (int round = 0, ahead = 0; round < rounds; round++) {
        for (; ahead < rounds && ahead < round + 3; ahead++) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, stage[ahead % 3], numbers + 32 * ahead,
                               cuda::aligned_size_t<4>(128), pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        sum += stage[round % 3][31 - threadIdx.x];
        pipe.consumer_release();
    }
    int wanted = 0;
    for (int round = 0; round < rounds; round++)
        wanted += numbers[32 * round + 31 - threadIdx.x];
    WANT(sum == wanted);
    block.sync();
    auto role =
        threadIdx.x % 4 == 0 ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
    auto half = cuda::make_pipeline(block, &apart, role);
    sum = 0;
    for (int round = 0; round < rounds; round++) {
        if (role == cuda::pipeline_role::producer) {
            half.producer_acquire();
            for (int i = 0; i < 4; i++)
                stage[round % 3][threadIdx.x + i] = round;
            half.producer_commit();
        } else {
            half.consumer_wait();
            sum += stage[round % 3][31 - threadIdx.x];
            half.consumer_release();
        }
    }
    WANT(sum == (role == cuda::pipeline_role::producer ? 0 : rounds * (rounds - 1) / 2));
    int own[4] = {9, 9, 9, 9};
    __pipeline_memcpy_async(own, numbers + 5, 16, 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    WANT(own[0] == numbers[5] && own[2] == numbers[7] && own[3] == 0);
}

// The first warp hands data to the second, by named barriers that one side does not wait at.
__global__ void handed_over(int *bad)
{
    __shared__ volatile int box;
    int warp = threadIdx.x / 32;
    for (int round = 1; round <= 10; round++) {
        if (warp == 0) {
            if (round > 1)
                asm volatile("barrier.cta.sync 2, 64;" ::: "memory");
            box = round;
            asm volatile("bar.arrive 1, %0;" ::"r"(64) : "memory");
        } else {
            asm volatile("bar.sync 1, 64;" ::: "memory");
            WANT(box == round);
            if (round < 10)
                asm volatile("barrier.cta.arrive.aligned 2, 64;" ::: "memory");
        }
    }
    unsigned count, all, any;
    asm volatile("{ .reg .pred p, q, r; setp.lt.u32 p, %3, 40;\n"
                 "  bar.red.popc.u32 %0, 3, p;\n"
                 "  barrier.cta.red.and.aligned.pred q, 3, 64, p; selp.u32 %1, 1, 0, q;\n"
                 "  bar.red.or.pred r, 3, p; selp.u32 %2, 1, 0, r; }"
                 : "=r"(count), "=r"(all), "=r"(any)
                 : "r"(threadIdx.x));
    WANT(count == 40 && all == 0 && any == 1);
}

__global__ void misuse(int which)
{
    __shared__ uint64_t barrier;
    uint32_t at = shared_address(&barrier);
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at));
    if (which == 0)
        asm volatile("mbarrier.arrive.shared.b64 _, [%0], 2;" ::"r"(at));
    if (which == 1)
        asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(at + 4));
    if (which == 2)
        asm volatile("mbarrier.init.shared.b64 [%0], 0;" ::"r"(at));
}

int main()
{
    int *bad = make<int>(1), *numbers = make<int>(64 * 100), *out = make<int>(64);
    long sum = 0;
    for (int i = 0; i < 64 * 100; i++)
        sum += numbers[i] = i % 1000;
    ring<<<1, 5>>>(bad, numbers, 100, out);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK(out[0] == sum);
    library<<<1, 32>>>(bad, numbers, out);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK(out[0] == 77 && out[15] == 15);
    auto *barrier = new (make<long>(8)) cuda::barrier<cuda::thread_scope_device>(4 * 16);
    memset(out, 0, 64 * sizeof(int));
    across_blocks<<<4, 16>>>(bad, barrier, out);
    CHECK_CUDA(cudaDeviceSynchronize());
    wide<<<1, 1>>>(bad, make<int>(16));
    handed_over<<<2, 64>>>(bad);
    pipelines<<<2, 32>>>(bad, numbers);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK(*bad == 0);
    int failed = report();
    const cudaError_t errors[] = {cudaErrorLaunchFailure, cudaErrorMisalignedAddress,
                                  cudaErrorLaunchFailure};
    for (int i = 0; i < 3; i++) {
        CHECK_CUDA(cudaSetDevice(1 + i));
        misuse<<<1, 1>>>(i);
        if (cudaDeviceSynchronize() != errors[i]) {
            printf("misuse %d was not found\n", i);
            failed = 1;
        }
    }
    printf(failed ? "failed\n" : "ok\n");
    return failed;
}
