// nccl.h: every number, size and place that programs compiled elsewhere rely on, checked by the
// compiler; the initialisers; and every declared function under both names. Compiled as C and,
// through header_cpp_test.cpp, as C++.
// SPDX-License-Identifier: Apache-2.0
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // dladdr
#endif
#include <nccl.h>

#include "expect.h"

#include <dlfcn.h>
#include <string.h>

#ifdef __cplusplus
#define CHECK(condition) static_assert(condition, #condition)
#else
#define CHECK(condition) _Static_assert(condition, #condition)
#endif
#define PLACE(type, field, at, bytes)                                                              \
    CHECK(offsetof(type, field) == (at) && sizeof(((type *)0)->field) == (bytes))

CHECK(NCCL_MAJOR == 2 && NCCL_MINOR == 30 && NCCL_PATCH == 7 && NCCL_VERSION_CODE == 23007);
CHECK(NCCL_VERSION(2, 30, 7) == 23007 && NCCL_VERSION(2, 8, 4) == 2804 &&
      NCCL_VERSION(2, 9, 1) == 20901 && NCCL_VERSION(3, 1, 2) == 30102);

CHECK(ncclSuccess == 0 && ncclUnhandledCudaError == 1 && ncclSystemError == 2 &&
      ncclInternalError == 3 && ncclInvalidArgument == 4 && ncclInvalidUsage == 5 &&
      ncclRemoteError == 6 && ncclInProgress == 7 && ncclTimeout == 8 && ncclNumResults == 9);
CHECK(ncclInt8 == 0 && ncclChar == 0 && ncclUint8 == 1 && ncclInt32 == 2 && ncclInt == 2 &&
      ncclUint32 == 3 && ncclInt64 == 4 && ncclUint64 == 5 && ncclFloat16 == 6 && ncclHalf == 6 &&
      ncclFloat32 == 7 && ncclFloat == 7 && ncclFloat64 == 8 && ncclDouble == 8 &&
      ncclBfloat16 == 9 && ncclFloat8e4m3 == 10 && ncclFloat8e5m2 == 11 && ncclNumTypes == 12);
CHECK(ncclSum == 0 && ncclProd == 1 && ncclMax == 2 && ncclMin == 3 && ncclAvg == 4 &&
      ncclNumOps == 5 && (int)ncclMaxRedOp == 0x7fffffff && sizeof(ncclRedOp_t) == 4);
CHECK(ncclScalarDevice == 0 && ncclScalarHostImmediate == 1);
CHECK(ncclStatGpuMemSuspend == 0 && ncclStatGpuMemSuspended == 1 && ncclStatGpuMemPersist == 2 &&
      ncclStatGpuMemTotal == 3);

CHECK(NCCL_UNIQUE_ID_BYTES == 128 && sizeof(ncclUniqueId) == 128);
CHECK(NCCL_SPLIT_NOCOLOR == -1 && NCCL_API_MAGIC == 0xcafebeef && NCCL_CONFIG_UNDEF_INT == INT_MIN);
CHECK(NCCL_WIN_DEFAULT == 0 && NCCL_WIN_COLL_SYMMETRIC == 1 && NCCL_WIN_STRICT_ORDERING == 2 &&
      NCCL_WIN_REQUIRED_ALIGNMENT == 4096);
CHECK(NCCL_CTA_POLICY_DEFAULT == 0 && NCCL_CTA_POLICY_EFFICIENCY == 1 && NCCL_CTA_POLICY_ZERO == 2);
CHECK(NCCL_SHRINK_DEFAULT == 0 && NCCL_SHRINK_ABORT == 1 && NCCL_REVOKE_DEFAULT == 0 &&
      NCCL_SUSPEND_MEM == 1);

CHECK(sizeof(ncclConfig_t) == 96);
PLACE(ncclConfig_t, size, 0, 8);
PLACE(ncclConfig_t, magic, 8, 4);
PLACE(ncclConfig_t, version, 12, 4);
PLACE(ncclConfig_t, blocking, 16, 4);
PLACE(ncclConfig_t, cgaClusterSize, 20, 4);
PLACE(ncclConfig_t, minCTAs, 24, 4);
PLACE(ncclConfig_t, maxCTAs, 28, 4);
PLACE(ncclConfig_t, netName, 32, 8);
PLACE(ncclConfig_t, splitShare, 40, 4);
PLACE(ncclConfig_t, trafficClass, 44, 4);
PLACE(ncclConfig_t, commName, 48, 8);
PLACE(ncclConfig_t, collnetEnable, 56, 4);
PLACE(ncclConfig_t, CTAPolicy, 60, 4);
PLACE(ncclConfig_t, shrinkShare, 64, 4);
PLACE(ncclConfig_t, nvlsCTAs, 68, 4);
PLACE(ncclConfig_t, nChannelsPerNetPeer, 72, 4);
PLACE(ncclConfig_t, nvlinkCentricSched, 76, 4);
PLACE(ncclConfig_t, graphUsageMode, 80, 4);
PLACE(ncclConfig_t, numRmaCtx, 84, 4);
PLACE(ncclConfig_t, maxP2pPeers, 88, 4);
PLACE(ncclConfig_t, graphStreamOrdering, 92, 4);
CHECK(sizeof(ncclSimInfo_t) == 24);
PLACE(ncclSimInfo_t, size, 0, 8);
PLACE(ncclSimInfo_t, magic, 8, 4);
PLACE(ncclSimInfo_t, version, 12, 4);
PLACE(ncclSimInfo_t, estimatedTime, 16, 4);
CHECK(sizeof(ncclWaitSignalDesc_t) == 16);
PLACE(ncclWaitSignalDesc_t, opCnt, 0, 4);
PLACE(ncclWaitSignalDesc_t, peer, 4, 4);
PLACE(ncclWaitSignalDesc_t, sigIdx, 8, 4);
PLACE(ncclWaitSignalDesc_t, ctx, 12, 4);

// The numbers that a framework uses with another order of its own (0..4: sum, prod, max, min, avg).
static void initialisers(void)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    EXPECT_EQ(config.size, sizeof config);
    EXPECT_EQ(config.magic, 0xcafebeef);
    EXPECT_EQ(config.version, 23007);
    const int *fields = &config.blocking;
    for (size_t at = 16; at < sizeof config; at += 4) {
        if ((at >= 32 && at < 40) || (at >= 48 && at < 56)) {
            continue; // pointers
        }
        EXPECT_EQ(fields[(at - 16) / 4], INT_MIN);
    }
    EXPECT(config.netName == NULL && config.commName == NULL);
    EXPECT_EQ(info.size, sizeof info);
    EXPECT_EQ(info.magic, 0x74685283);
    EXPECT(info.estimatedTime < -0.5f && info.estimatedTime > -1.5f);
}

// Every function, by its address: that it links is half the test.
#define BOTH(name)                                                                                 \
    {                                                                                              \
        "nccl" #name, (void (*)(void))nccl##name, (void (*)(void))pnccl##name                      \
    }
static void functions(void)
{
    static const struct {
        const char *name;
        void (*plain)(void), (*profiled)(void);
    } all[] = {
        BOTH(GetVersion),
        BOTH(GetErrorString),
        BOTH(GetLastError),
        BOTH(MemAlloc),
        BOTH(MemFree),
        BOTH(GetUniqueId),
        BOTH(CommInitRank),
        BOTH(CommInitRankConfig),
        BOTH(CommInitRankScalable),
        BOTH(CommInitAll),
        BOTH(CommFinalize),
        BOTH(CommDestroy),
        BOTH(CommAbort),
        BOTH(CommRevoke),
        BOTH(CommSplit),
        BOTH(CommShrink),
        BOTH(CommGetUniqueId),
        BOTH(CommGrow),
        BOTH(CommSuspend),
        BOTH(CommResume),
        BOTH(CommGetAsyncError),
        BOTH(CommCount),
        BOTH(CommCuDevice),
        BOTH(CommUserRank),
        BOTH(CommMemStats),
        BOTH(CommRegister),
        BOTH(CommDeregister),
        BOTH(CommWindowRegister),
        BOTH(CommWindowDeregister),
        BOTH(WinGetUserPtr),
        BOTH(RedOpCreatePreMulSum),
        BOTH(RedOpDestroy),
        BOTH(Reduce),
        BOTH(Bcast),
        BOTH(Broadcast),
        BOTH(AllReduce),
        BOTH(ReduceScatter),
        BOTH(AllGather),
        BOTH(AlltoAll),
        BOTH(Gather),
        BOTH(Scatter),
        BOTH(Send),
        BOTH(Recv),
        BOTH(PutSignal),
        BOTH(Signal),
        BOTH(WaitSignal),
        BOTH(GroupStart),
        BOTH(GroupEnd),
        BOTH(GroupSimulateEnd),
        BOTH(ParamBind),
        BOTH(ParamGetI8),
        BOTH(ParamGetI16),
        BOTH(ParamGetI32),
        BOTH(ParamGetI64),
        BOTH(ParamGetU8),
        BOTH(ParamGetU16),
        BOTH(ParamGetU32),
        BOTH(ParamGetU64),
        BOTH(ParamGetStr),
        BOTH(ParamGet),
        BOTH(ParamGetParameter),
        BOTH(ParamGetAllParameterKeys),
        BOTH(ParamDumpAll),
        BOTH(ResetDebugInit),
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        Dl_info info;
        EXPECT(dladdr((void *)all[i].plain, &info) != 0);
        EXPECT_CONTAINS(info.dli_fname, "libnccl.so");
        EXPECT(all[i].plain == all[i].profiled); // one function, two names
    }
}

int main(void)
{
    RUN(initialisers);
    RUN(functions);
    return expect_result();
}
