// Each multimem instruction that our headers and kernels can make, in a kernel of its own that is
// named after it: operator, element, number of elements. multimem_ptx.sh compiles it to PTX and
// compares with multimem_ptx.txt. With FP8 those of targets that add fp8 alone. Never run.
// SPDX-License-Identifier: Apache-2.0
#include "../../kernels/multimem.cuh"

#include <nccl.h>
#include <nccl_device.h>

#define LOAD_SUM(name, Value)                                                                      \
    extern "C" __global__ void load_sum_##name(Value const *from, Value *to)                       \
    {                                                                                              \
        *to = tuttiMultimemLoadSum(from);                                                          \
    }
#define LOAD(op, Op, name, Value)                                                                  \
    extern "C" __global__ void load_##op##_##name(Value const *from, Value *to)                    \
    {                                                                                              \
        *to = tuttiMultimemLoadReduce<Op>(from);                                                   \
    }
#define RED(op, Op, name, Value)                                                                   \
    extern "C" __global__ void red_##op##_##name(Value *to, Value const *from)                     \
    {                                                                                              \
        tuttiMultimemRed<Op>(to, *from);                                                           \
    }
#define STORE(name, Value)                                                                         \
    extern "C" __global__ void store_##name(Value *to, Value const *from)                          \
    {                                                                                              \
        tuttiMultimemStore(to, *from);                                                             \
    }

template <typename Element> using pair = tuttiVector<Element, 2>;
template <typename Element> using four = tuttiVector<Element, 4>;
template <typename Element> using eight = tuttiVector<Element, 8>;
template <typename Element> using sixteen = tuttiVector<Element, 16>;

#ifdef FP8
#define SUMS_OF_FP8(name, Element)                                                                 \
    LOAD_SUM(name##_4, four<Element>)                                                              \
    LOAD_SUM(name##_8, eight<Element>)                                                             \
    LOAD_SUM(name##_16, sixteen<Element>)
SUMS_OF_FP8(e4m3, __nv_fp8_e4m3)
SUMS_OF_FP8(e5m2, __nv_fp8_e5m2)
#else

// A sum, both ways to write it, and an addition to all.
#define SUM(name, Value)                                                                           \
    LOAD_SUM(name, Value) LOAD(Sum, tuttiSum, name, Value) RED(Sum, tuttiSum, name, Value)
SUM(float_1, float)
SUM(float_2, float2)
SUM(float_4, float4)
SUM(double_1, double)
SUM(double_2, pair<double>)

// Pairs of 16 bits: no minimum or maximum is stored to all.
#define HALFWORDS(name, Pair, Element)                                                             \
    SUM(name##_2, Pair)                                                                            \
    SUM(name##_4, four<Element>)                                                                   \
    SUM(name##_8, eight<Element>)                                                                  \
    LOAD(Min, tuttiMin, name##_2, Pair)                                                            \
    LOAD(Min, tuttiMin, name##_4, four<Element>)                                                   \
    LOAD(Min, tuttiMin, name##_8, eight<Element>)                                                  \
    LOAD(Max, tuttiMax, name##_2, Pair)                                                            \
    LOAD(Max, tuttiMax, name##_4, four<Element>)                                                   \
    LOAD(Max, tuttiMax, name##_8, eight<Element>)
HALFWORDS(half, __half2, __half)
HALFWORDS(bf16, __nv_bfloat162, __nv_bfloat16)

// Integers have all operators but the product.
#define BOTH(op, name, Value) LOAD(op, tutti##op, name, Value) RED(op, tutti##op, name, Value)
#define INTEGER(name, Value)                                                                       \
    SUM(name, Value)                                                                               \
    BOTH(Min, name, Value)                                                                         \
    BOTH(Max, name, Value)                                                                         \
    BOTH(And, name, Value)                                                                         \
    BOTH(Or, name, Value)                                                                          \
    BOTH(Xor, name, Value)
INTEGER(int32_1, int)
INTEGER(int32_2, pair<int>)
INTEGER(int32_4, four<int>)
INTEGER(uint32_1, unsigned)
INTEGER(uint32_2, pair<unsigned>)
INTEGER(uint32_4, four<unsigned>)
INTEGER(int64_1, long long)
INTEGER(int64_2, pair<long long>)
INTEGER(uint64_1, unsigned long long)
INTEGER(uint64_2, pair<unsigned long long>)

STORE(4_bytes, float)
STORE(8_bytes, double)
STORE(16_bytes, float4)

// The kernels' own, of kernels/multimem.cuh.
#define KERNEL(name, Element)                                                                      \
    extern "C" __global__ void kernel_sum_##name(Element const *from, tutti::pack<Element> *to)    \
    {                                                                                              \
        *to = tutti::multimem_sum(from);                                                           \
    }                                                                                              \
    extern "C" __global__ void kernel_store_##name(Element *to, tutti::pack<Element> const *from)  \
    {                                                                                              \
        tutti::multimem_store(to, *from);                                                          \
    }
KERNEL(float, float)
KERNEL(half, __half)
KERNEL(bf16, __nv_bfloat16)

// What barriers, small values and copies of single bytes make of it.
extern "C" __global__ void barrier_release(ncclDevComm comm)
{
    ncclLsaBarrierSession<ncclCoopCta> barrier(ncclCoopCta(), comm, ncclTeamTagLsa(), 0, true);
    barrier.arrive(ncclCoopCta(), cuda::memory_order_release);
}
extern "C" __global__ void barrier_relaxed(ncclDevComm comm)
{
    ncclLsaBarrierSession<ncclCoopCta> barrier(ncclCoopCta(), comm, ncclTeamTagLsa(), 0, true);
    barrier.arrive(ncclCoopCta(), cuda::memory_order_relaxed);
}
extern "C" __global__ void low_latency_bcast(ncclDevComm comm, ncclLLA2AHandle handle, int value)
{
    ncclLLA2ASession<ncclCoopCta> session(ncclCoopCta(), comm, ncclTeamLsa(comm), handle, 0, 1,
                                          true, comm.lsaMultimem);
    session.bcast(0, value);
}
extern "C" __global__ void copy_of_a_byte(char *to, char const *from)
{
    nccl::utility::storeSmallMultimem(to, *from);
}
#endif
