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
    tuttiMultimemLoadReduce<tuttiMin>(static_cast<float *>(all));
#elif CASE == 9
    tuttiMultimemLoadReduce<tuttiProd>(static_cast<int *>(all));
#elif CASE == 10
    tuttiMultimemRed<tuttiMax>(static_cast<__half2 *>(all), __half2());
#elif CASE == 11
    ncclMultimemReduceSum(ncclCoopCta(), ncclSymPtr<uint8_t>(window, 0),
                          static_cast<uint8_t *>(nullptr), 16, comm.lsaMultimem);
#elif CASE == 12
    tuttiMultimemLoadReduce<tuttiAnd, float>(window, 0, comm);
#elif CASE == 13
    struct pair {
        int a, b;
    };
    tuttiMultimemRed<tuttiSum>(window, 0, comm, pair());
#elif CASE == 14
    struct wide {
        double a[3];
    };
    tuttiMultimemStore(window, 0, comm, wide());
#elif CASE == 15
    ncclCoopBcast(ncclCoopCta(), dim3(), 0); // 12 bytes
    struct wide {
        double a[3];
    };
    ncclCoopBcast(ncclCoopCta(), wide(), 0);
#elif CASE == 16
    ncclCoopTile<3>().sync();
#elif CASE == 17
    ncclMultimemReduceSum(ncclCoopCta(), static_cast<int16_t *>(all), static_cast<int16_t *>(all),
                          16);
#elif CASE == 18
    ncclMultimemReduceSumCopy(ncclCoopCta(), static_cast<__nv_fp8_e5m2 *>(all),
                              static_cast<__nv_fp8_e5m2 *>(all), 16);
#elif CASE == 19
    float4 *four = static_cast<float4 *>(all);
    ncclMultimemReduceSum(ncclCoopCta(), four, four, 16);
#elif CASE == 20
    float *one = static_cast<float *>(all);
    ncclMultimemCopy(ncclCoopCta(), one, one, 16);
#elif CASE == 21
    float3 *three = static_cast<float3 *>(all);
    ncclLocalCopy(ncclCoopCta(), three, 1, three, 0, 16);
#elif CASE == 22
    ncclLsaReduceSum(ncclCoopCta(), window, 0, static_cast<float *>(all), 16);
#elif CASE == 23
    ncclLsaCopy(ncclCoopCta(), static_cast<float *>(all), window, 0, 16);
#elif CASE == 24
    ncclLsaReduceSumLsaCopy<float>(ncclCoopCta(), ncclSymPtr<float>(window, 0), 0, window, 0, 16);
#endif
}

int main()
{
    return 0;
}
