// One mistake per CASE, each of which the compiler refuses with a text; CASE 0 is right. Compiled
// by refusals.sh.
// SPDX-License-Identifier: Apache-2.0
#include <nccl.h>
#include <nccl_device.h>

__global__ void kernel(ncclWindow_t window, ncclDevComm comm)
{
    void *all = ncclGetLsaMultimemPointer(window, 0, comm);
    (void)all;
#if CASE == 0
    float4 sum = tuttiMultimemLoadSum(static_cast<float4 *>(all));
    tuttiMultimemStore(static_cast<float4 *>(all), sum);
#elif CASE == 1
    tuttiMultimemLoadSum(static_cast<int8_t *>(all));
#elif CASE == 2
    tuttiMultimemLoadSum(static_cast<tuttiVector<uint8_t, 4> *>(all));
#elif CASE == 3
    tuttiMultimemLoadSum(static_cast<__half *>(all));
#elif CASE == 4
    tuttiMultimemLoadSum(static_cast<tuttiVector<__nv_fp8_e4m3, 4> *>(all));
#elif CASE == 5
    tuttiMultimemStore(static_cast<__half *>(all), __float2half(1.0f));
#elif CASE == 6
    tuttiMultimemLoadSum(static_cast<tuttiVector<float, 8> *>(all));
#elif CASE == 7
    struct pair {
        int a, b;
    };
    tuttiMultimemLoadSum(static_cast<pair *>(all));
#elif CASE == 8
    ncclGin gin(comm, 0);
#elif CASE == 9
    ncclBarrierSession<ncclCoopCta> barrier(ncclCoopCta(), ncclTeamTagLsa(), comm, 0);
#elif CASE == 10
    ncclLLA2AHandle handle = {};
    ncclLLA2ASession<ncclCoopCta> session(ncclCoopCta(), comm, ncclTeamLsa(comm), handle, 0, 1);
#elif CASE == 11
    ncclLsaReduceSum(ncclCoopCta(), ncclSymPtr<float>(window, 0), static_cast<float *>(nullptr), 16,
                     ncclTeamLsa(comm));
#elif CASE == 12
    ncclGinBarrier(ncclCoopCta(), ncclGinAllContexts(comm), ncclTeamTagWorld(), 0);
#elif CASE == 13
    ncclGinFlush(static_cast<ncclGin_C *>(nullptr), ncclCoopAny(ncclCoopCta()),
                 cuda::memory_order_acquire);
#endif
}

int main()
{
    return 0;
}
