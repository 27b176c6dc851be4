// One call of each of the 39 functions of reduce_copy.h, with what it reads and writes. Uses names
// of NCCL only.
// SPDX-License-Identifier: Apache-2.0
#ifndef TESTS_DEVICE_REDUCE_COPY_CALLS_CUH
#define TESTS_DEVICE_REDUCE_COPY_CALLS_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <nccl.h>
#include <nccl_device.h>

// What a call reads: the same place on all members; this rank's array; arrays of this rank at a
// distance. What it writes: the same.
enum place_kind { MEMBERS, OWN, LOCAL };
struct call_kind {
    place_kind from, to;
    bool multimem_from, multimem_to, custom;
};
enum { CALLS = 39 };
static const call_kind call_kinds[CALLS] = {
    // Lambdas.
    {MEMBERS, MEMBERS, false, false, true},  // 0 ncclLsaReduceLsaCopy
    {MEMBERS, MEMBERS, false, true, true},   // 1 ncclLsaReduceMultimemCopy
    {MEMBERS, MEMBERS, false, false, false}, // 2 ncclLsaReduceSumLsaCopy
    {MEMBERS, MEMBERS, false, true, false},  // 3 ncclLsaReduceSumMultimemCopy
    {MEMBERS, MEMBERS, true, false, false},  // 4 ncclMultimemReduceSumLsaCopy
    {MEMBERS, MEMBERS, true, true, false},   // 5 ncclMultimemReduceSumMultimemCopy
    // ncclLsaReduceSum: lambda; symmetric pointer or window, with team or communicator.
    {MEMBERS, OWN, false, false, false},
    {MEMBERS, OWN, false, false, false},
    {MEMBERS, OWN, false, false, false},
    {MEMBERS, OWN, false, false, false},
    {MEMBERS, OWN, false, false, false},
    // 11 ncclMultimemReduceSum
    {MEMBERS, OWN, true, false, false},
    {MEMBERS, OWN, true, false, false},
    {MEMBERS, OWN, true, false, false},
    // 14 ncclLocalReduceSum
    {LOCAL, OWN, false, false, false},
    {LOCAL, OWN, false, false, false},
    // 16 ncclLsaCopy
    {OWN, MEMBERS, false, false, false},
    {OWN, MEMBERS, false, false, false},
    {OWN, MEMBERS, false, false, false},
    {OWN, MEMBERS, false, false, false},
    {OWN, MEMBERS, false, false, false},
    // 21 ncclMultimemCopy
    {OWN, MEMBERS, false, true, false},
    {OWN, MEMBERS, false, true, false},
    {OWN, MEMBERS, false, true, false},
    // 24 ncclLocalCopy
    {OWN, LOCAL, false, false, false},
    {OWN, LOCAL, false, false, false},
    // 26 ncclLsaReduceSumCopy
    {MEMBERS, MEMBERS, false, false, false},
    {MEMBERS, MEMBERS, false, false, false},
    {MEMBERS, MEMBERS, false, false, false},
    {MEMBERS, MEMBERS, false, false, false},
    {MEMBERS, MEMBERS, false, false, false},
    // 31 ncclMultimemReduceSumCopy
    {MEMBERS, MEMBERS, true, true, false},
    {MEMBERS, MEMBERS, true, true, false},
    {MEMBERS, MEMBERS, true, true, false},
    // 34 ncclLsaReduceSumMultimemCopy
    {MEMBERS, MEMBERS, false, true, false},
    {MEMBERS, MEMBERS, false, true, false},
    // 36 ncclMultimemReduceSumLsaCopy
    {MEMBERS, MEMBERS, true, false, false},
    {MEMBERS, MEMBERS, true, false, false},
    // 38 ncclLocalReduceSumCopy
    {LOCAL, LOCAL, false, false, false},
};

// Types that multimem cannot add.
template <typename T> struct no_multimem_sum {
    static constexpr bool value = sizeof(T) < 4;
};
template <> struct no_multimem_sum<__half> {
    static constexpr bool value = false;
};
template <> struct no_multimem_sum<__nv_bfloat16> {
    static constexpr bool value = false;
};
#ifdef FP8_MULTIMEM // compiled for a target that can
template <> struct no_multimem_sum<__nv_fp8_e4m3> {
    static constexpr bool value = false;
};
template <> struct no_multimem_sum<__nv_fp8_e5m2> {
    static constexpr bool value = false;
};
#endif
template <typename T> constexpr bool can_call(int call)
{
    bool multimem_from = call == 4 || call == 5 || (call >= 11 && call <= 13) ||
                         (call >= 31 && call <= 33) || call == 36 || call == 37;
    return !multimem_from || !no_multimem_sum<T>::value;
}

// Arguments of a call. Offsets are in bytes, displacements in elements.
struct call_places {
    ncclWindow_t from, to;
    size_t from_offset, to_offset;
    size_t from_displacement, to_displacement;
    int from_arrays, to_arrays;
};

// Two values of T, in this order; not commutative, so that the order of the sources shows.
template <typename T> struct halve_and_add {
    using EltType = T;
    __host__ __device__ T operator()(T const &a, T const &b) const
    {
        return (T)((unsigned long long)a * 3 + (unsigned long long)b);
    }
};
template <> struct halve_and_add<float> {
    using EltType = float;
    __host__ __device__ float operator()(float const &a, float const &b) const
    {
        return a * 0.5f + b;
    }
};
template <> struct halve_and_add<double> {
    using EltType = double;
    __host__ __device__ double operator()(double const &a, double const &b) const
    {
        return a * 0.5 + b;
    }
};
#define HALVE_AND_ADD_IN_FLOAT(type)                                                               \
    template <> struct halve_and_add<type> {                                                       \
        using EltType = type;                                                                      \
        __host__ __device__ type operator()(type const &a, type const &b) const                    \
        {                                                                                          \
            return type((float)a * 0.5f + (float)b);                                               \
        }                                                                                          \
    };
HALVE_AND_ADD_IN_FLOAT(__half)
HALVE_AND_ADD_IN_FLOAT(__nv_bfloat16)
HALVE_AND_ADD_IN_FLOAT(__nv_fp8_e4m3)
HALVE_AND_ADD_IN_FLOAT(__nv_fp8_e5m2)

// Functions 0 to 15.
template <int number, typename T, typename Coop, typename Count>
__device__ __forceinline__ void call_reduction(Coop coop, call_places const &at,
                                               ncclDevComm const &comm, Count count)
{
    ncclTeam team = ncclTeamLsa(comm);
    ncclMultimemHandle mm = comm.lsaMultimem;
    ncclSymPtr<T> from(at.from, at.from_offset);
    ncclSymPtr<T> to(at.to, at.to_offset);
    size_t distance = at.from_displacement;
    auto from_member = [=] __device__(int i) -> T * { return from.peerPtr(team, i); };
    auto from_all = [=] __device__(int) -> T * { return from.multimemPtr(mm); };
    auto from_local = [=] __device__(int i) -> T * { return from.localPtr() + i * distance; };
    auto to_member = [=] __device__(int i) -> T * { return to.peerPtr(team, i); };
    auto to_all = [=] __device__(int) -> T * { return to.multimemPtr(mm); };
    int n = team.nRanks;
    if constexpr (number == 0) {
        ncclLsaReduceLsaCopy<T>(coop, from_member, n, to_member, n, halve_and_add<T>(), count);
    } else if constexpr (number == 1) {
        ncclLsaReduceMultimemCopy<T>(coop, from_member, n, to_all, 1, halve_and_add<T>(), count);
    } else if constexpr (number == 2) {
        ncclLsaReduceSumLsaCopy<T>(coop, from_member, n, to_member, n, count);
    } else if constexpr (number == 3) {
        ncclLsaReduceSumMultimemCopy<T>(coop, from_member, n, to_all, 1, count);
    } else if constexpr (number == 4) {
        ncclMultimemReduceSumLsaCopy<T>(coop, from_all, 1, to_member, n, count);
    } else if constexpr (number == 5) {
        ncclMultimemReduceSumMultimemCopy<T>(coop, from_all, 1, to_all, 1, count);
    } else if constexpr (number == 6) {
        ncclLsaReduceSum(coop, from_member, n, to.localPtr(), count);
    } else if constexpr (number == 7) {
        ncclLsaReduceSum(coop, from, to.localPtr(), count, team);
    } else if constexpr (number == 8) {
        ncclLsaReduceSum(coop, from, to.localPtr(), count, comm);
    } else if constexpr (number == 9) {
        ncclLsaReduceSum(coop, at.from, at.from_offset, to.localPtr(), count, team);
    } else if constexpr (number == 10) {
        ncclLsaReduceSum(coop, at.from, at.from_offset, to.localPtr(), count, comm);
    } else if constexpr (number == 11) {
        ncclMultimemReduceSum(coop, from, to.localPtr(), count, mm);
    } else if constexpr (number == 12) {
        ncclMultimemReduceSum(coop, from.multimemPtr(mm), to.localPtr(), count);
    } else if constexpr (number == 13) {
        ncclMultimemReduceSum(coop, at.from, at.from_offset, to.localPtr(), count, mm);
    } else if constexpr (number == 14) {
        ncclLocalReduceSum(coop, from_local, at.from_arrays, to.localPtr(), count);
    } else {
        ncclLocalReduceSum(coop, at.from_arrays, from.localPtr(), at.from_displacement,
                           to.localPtr(), count);
    }
}

// Functions 16 to 25.
template <int number, typename T, typename Coop, typename Count>
__device__ __forceinline__ void call_copy(Coop coop, call_places const &at, ncclDevComm const &comm,
                                          Count count)
{
    ncclTeam team = ncclTeamLsa(comm);
    ncclMultimemHandle mm = comm.lsaMultimem;
    T *from = ncclSymPtr<T>(at.from, at.from_offset).localPtr();
    ncclSymPtr<T> to(at.to, at.to_offset);
    size_t distance = at.to_displacement;
    auto to_member = [=] __device__(int i) -> T * { return to.peerPtr(team, i); };
    auto to_local = [=] __device__(int i) -> T * { return to.localPtr() + i * distance; };
    if constexpr (number == 16) {
        ncclLsaCopy(coop, from, to_member, team.nRanks, count);
    } else if constexpr (number == 17) {
        ncclLsaCopy(coop, from, to, count, team);
    } else if constexpr (number == 18) {
        ncclLsaCopy(coop, from, to, count, comm);
    } else if constexpr (number == 19) {
        ncclLsaCopy(coop, from, at.to, at.to_offset, count, team);
    } else if constexpr (number == 20) {
        ncclLsaCopy(coop, from, at.to, at.to_offset, count, comm);
    } else if constexpr (number == 21) {
        ncclMultimemCopy(coop, from, to, count, mm);
    } else if constexpr (number == 22) {
        ncclMultimemCopy(coop, from, to.multimemPtr(mm), count);
    } else if constexpr (number == 23) {
        ncclMultimemCopy(coop, from, at.to, at.to_offset, count, mm);
    } else if constexpr (number == 24) {
        ncclLocalCopy(coop, from, to_local, at.to_arrays, count);
    } else {
        ncclLocalCopy(coop, from, at.to_arrays, to.localPtr(), at.to_displacement, count);
    }
}

// Functions 26 to 38.
template <int number, typename T, typename Coop, typename Count>
__device__ __forceinline__ void call_reduction_and_copy(Coop coop, call_places const &at,
                                                        ncclDevComm const &comm, Count count)
{
    ncclTeam team = ncclTeamLsa(comm);
    ncclMultimemHandle mm = comm.lsaMultimem;
    ncclSymPtr<T> from(at.from, at.from_offset);
    ncclSymPtr<T> to(at.to, at.to_offset);
    if constexpr (number == 26) {
        ncclLsaReduceSumCopy(coop, from, to, count, team);
    } else if constexpr (number == 27) {
        ncclLsaReduceSumCopy(coop, from, to, count, comm);
    } else if constexpr (number == 28) {
        ncclLsaReduceSumCopy<T>(coop, at.from, at.from_offset, at.to, at.to_offset, count, team);
    } else if constexpr (number == 29) {
        ncclLsaReduceSumCopy<T>(coop, at.from, at.from_offset, at.to, at.to_offset, count, comm);
    } else if constexpr (number == 30) {
        ncclLsaReduceSumCopy(coop, from, team, to, team, count);
    } else if constexpr (number == 31) {
        ncclMultimemReduceSumCopy(coop, from, mm, to, mm, count);
    } else if constexpr (number == 32) {
        ncclMultimemReduceSumCopy(coop, from.multimemPtr(mm), to.multimemPtr(mm), count);
    } else if constexpr (number == 33) {
        ncclMultimemReduceSumCopy<T>(coop, at.from, at.from_offset, mm, at.to, at.to_offset, mm,
                                     count);
    } else if constexpr (number == 34) {
        ncclLsaReduceSumMultimemCopy(coop, from, team, to, mm, count);
    } else if constexpr (number == 35) {
        ncclLsaReduceSumMultimemCopy(coop, from, team, to.multimemPtr(mm), count);
    } else if constexpr (number == 36) {
        ncclMultimemReduceSumLsaCopy(coop, from, mm, to, team, count);
    } else if constexpr (number == 37) {
        ncclMultimemReduceSumLsaCopy(coop, from.multimemPtr(mm), to, team, count);
    } else {
        ncclLocalReduceSumCopy(coop, at.from_arrays, from.localPtr(), at.from_displacement,
                               at.to_arrays, to.localPtr(), at.to_displacement, count);
    }
}

template <int number, typename T, typename Coop, typename Count>
__device__ __forceinline__ void call_function(Coop coop, call_places const &at,
                                              ncclDevComm const &comm, Count count)
{
    if constexpr (number < 16) {
        call_reduction<number, T>(coop, at, comm, count);
    } else if constexpr (number < 26) {
        call_copy<number, T>(coop, at, comm, count);
    } else {
        call_reduction_and_copy<number, T>(coop, at, comm, count);
    }
}

#endif
