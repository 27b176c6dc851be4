// NCCL's host API, version 2.30.7, as tutti offers it: types, structures and functions, source
// compatible and of the same binary layout. docs/ tells which functions work in this version; the
// others answer ncclInvalidUsage.
//
// Rules for all functions: the result is ncclSuccess or a code whose text ncclGetErrorString gives;
// ncclGetLastError has the whole story. A communicator is used by one thread at a time. Every nccl
// function also exists as pnccl, the name that profilers call after they have taken the nccl one.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_H_
#define NCCL_H_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#ifdef __cplusplus
#include <cuda_fp8.h>
#endif
#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#define NCCL_MAJOR  2
#define NCCL_MINOR  30
#define NCCL_PATCH  7
#define NCCL_SUFFIX ""
// Up to 2.8 the minor version had one digit.
#define NCCL_VERSION(x, y, z)                                                                      \
    (((x) <= 2 && (y) <= 8) ? (x)*1000 + (y)*100 + (z) : (x)*10000 + (y)*100 + (z))
#define NCCL_VERSION_CODE 23007

#ifdef __cplusplus
extern "C" {
#endif

// ---- Handles, results ---------------------------------------------------------------------------

typedef struct ncclComm *ncclComm_t; // a rank's place in a group of ranks
typedef struct ncclWindow_vidmem
    *ncclWindow_t; // memory that all ranks of a communicator registered together
#define NCCL_COMM_NULL NULL

#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
    ncclTimeout = 8,
    ncclNumResults = 9
} ncclResult_t;

// ---- Constants ----------------------------------------------------------------------------------

#define NCCL_API_MAGIC        0xcafebeef
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_UNDEF_FLOAT      -1.0f
#define NCCL_SPLIT_NOCOLOR    -1

#define NCCL_WIN_DEFAULT            0x00
#define NCCL_WIN_COLL_SYMMETRIC     0x01
#define NCCL_WIN_STRICT_ORDERING    0x02
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096

#define NCCL_CTA_POLICY_DEFAULT    0x00
#define NCCL_CTA_POLICY_EFFICIENCY 0x01
#define NCCL_CTA_POLICY_ZERO       0x02

#define NCCL_SHRINK_DEFAULT 0x00
#define NCCL_SHRINK_ABORT   0x01
#define NCCL_REVOKE_DEFAULT 0x00
#define NCCL_SUSPEND_MEM    0x01

// ---- Data types and operators -------------------------------------------------------------------

typedef enum {
    ncclInt8 = 0,
    ncclChar = ncclInt8,
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclInt = ncclInt32,
    ncclUint32 = 3,
    ncclInt64 = 4,
    ncclUint64 = 5,
    ncclFloat16 = 6,
    ncclHalf = ncclFloat16,
    ncclFloat32 = 7,
    ncclFloat = ncclFloat32,
    ncclFloat64 = 8,
    ncclDouble = ncclFloat64,
    ncclBfloat16 = 9,
    ncclFloat8e4m3 = 10,
    ncclFloat8e5m2 = 11,
    ncclNumTypes = 12
} ncclDataType_t;

// Values from ncclNumOps to ncclMaxRedOp are operators made by ncclRedOpCreatePreMulSum.
typedef enum { ncclNumOps_dummy = 5 } ncclRedOp_dummy_t;
typedef enum {
    ncclSum = 0,
    ncclProd = 1,
    ncclMax = 2,
    ncclMin = 3,
    ncclAvg = 4,
    ncclNumOps = 5,
    ncclMaxRedOp = 0x7fffffff >> (32 - 8 * sizeof(ncclRedOp_dummy_t))
} ncclRedOp_t;

typedef enum { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 } ncclScalarResidence_t;

typedef enum {
    ncclStatGpuMemSuspend = 0,
    ncclStatGpuMemSuspended = 1,
    ncclStatGpuMemPersist = 2,
    ncclStatGpuMemTotal = 3
} ncclCommMemStat_t;

// ---- Structures that callers fill ---------------------------------------------------------------
// Each begins
// with its size, a magic number and the version it was compiled against: start from the
// initialiser.

typedef struct ncclConfig_v23000 {
    size_t size;
    unsigned int magic;
    unsigned int version;
    int blocking;
    int cgaClusterSize;
    int minCTAs;
    int maxCTAs;
    const char *netName;
    int splitShare;
    int trafficClass;
    const char *commName;
    int collnetEnable;
    int CTAPolicy;
    int shrinkShare;
    int nvlsCTAs;
    int nChannelsPerNetPeer;
    int nvlinkCentricSched;
    int graphUsageMode;
    int numRmaCtx;
    int maxP2pPeers;
    int graphStreamOrdering;
} ncclConfig_t;

#define NCCL_CONFIG_INITIALIZER                                                                    \
    {                                                                                              \
        sizeof(ncclConfig_t), NCCL_API_MAGIC, NCCL_VERSION_CODE,                                   \
            NCCL_CONFIG_UNDEF_INT, /* ... blocking */                                              \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,                                          \
            NCCL_CONFIG_UNDEF_INT, /* cluster, min and max CTAs */                                 \
            NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT,                                          \
            NCCL_CONFIG_UNDEF_INT, /* net, split, traffic */                                       \
            NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT,                                          \
            NCCL_CONFIG_UNDEF_INT, /* name, collnet, policy */                                     \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,                                          \
            NCCL_CONFIG_UNDEF_INT, /* shrink, nvls, channels */                                    \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,                                          \
            NCCL_CONFIG_UNDEF_INT,                       /* nvlink, graphs, rma */                 \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT /* peers, stream order */                 \
    }

typedef struct ncclSimInfo_v22200 {
    size_t size;
    unsigned int magic;
    unsigned int version;
    float estimatedTime; // microseconds
} ncclSimInfo_t;

#define NCCL_SIM_INFO_INITIALIZER                                                                  \
    {                                                                                              \
        sizeof(ncclSimInfo_t), 0x74685283, NCCL_VERSION_CODE, NCCL_UNDEF_FLOAT                     \
    }

typedef struct {
    int opCnt;
    int peer;
    int sigIdx;
    int ctx;
} ncclWaitSignalDesc_t;

typedef struct ncclParamHandle *ncclParamHandle_t;

// Declares ncclNAME and pncclNAME.
#define TUTTI_DECLARE(result, name, parameters)                                                    \
    result nccl##name parameters;                                                                  \
    result pnccl##name parameters

// ---- The library --------------------------------------------------------------------------------

// *version = NCCL_VERSION_CODE of the library. NULL: ncclInvalidArgument.
TUTTI_DECLARE(ncclResult_t, GetVersion, (int *version));
// A fixed text for a code, also for unknown ones.
TUTTI_DECLARE(const char *, GetErrorString, (ncclResult_t result));
// The text of this thread's last failure; where it met none, of the last one in this process, ""
// before the first. comm is not looked at. ncclCommGetAsyncError sets it for what failed later.
TUTTI_DECLARE(const char *, GetLastError, (ncclComm_t comm));

// ---- Memory -------------------------------------------------------------------------------------

// Device memory that windows can be made of, on the current device; `size` bytes, rounded up.
TUTTI_DECLARE(ncclResult_t, MemAlloc, (void **ptr, size_t size));
// Frees what ncclMemAlloc gave; NULL is allowed.
TUTTI_DECLARE(ncclResult_t, MemFree, (void *ptr));

// ---- Life of a communicator ---------------------------------------------------------------------

// Makes an id for one communicator and starts listening for its ranks in this process. Only the
// ranks should see the id: it carries the secret that lets them in.
TUTTI_DECLARE(ncclResult_t, GetUniqueId, (ncclUniqueId * uniqueId));
// Joins as `rank` of `nranks` on the current device; blocks until all have joined. Any mix of
// threads and processes.
TUTTI_DECLARE(ncclResult_t, CommInitRank,
              (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank));
// The same with a configuration; NULL means defaults. With config->blocking 0 it returns
// ncclInProgress at once.
TUTTI_DECLARE(ncclResult_t, CommInitRankConfig,
              (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config));
TUTTI_DECLARE(ncclResult_t, CommInitRankScalable,
              (ncclComm_t * newcomm, int nranks, int myrank, int nId, ncclUniqueId *commIds,
               ncclConfig_t *config));
// One process, ndev devices: comm[0..ndev-1]. devlist NULL means devices 0 .. ndev-1.
TUTTI_DECLARE(ncclResult_t, CommInitAll, (ncclComm_t * comm, int ndev, const int *devlist));
// Ends the use of comm in good order; only ncclCommDestroy and ncclCommAbort may follow.
TUTTI_DECLARE(ncclResult_t, CommFinalize, (ncclComm_t comm));
// Frees comm, finalizing it first where that was not done. NULL is allowed; a second call is
// ncclInvalidArgument.
TUTTI_DECLARE(ncclResult_t, CommDestroy, (ncclComm_t comm));
// Ends everything that runs on comm and frees it; never waits for other ranks; may be called from
// another thread.
TUTTI_DECLARE(ncclResult_t, CommAbort, (ncclComm_t comm));
TUTTI_DECLARE(ncclResult_t, CommRevoke, (ncclComm_t comm, int revokeFlags));
TUTTI_DECLARE(ncclResult_t, CommSplit,
              (ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config));
TUTTI_DECLARE(ncclResult_t, CommShrink,
              (ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm,
               ncclConfig_t *config, int shrinkFlags));
TUTTI_DECLARE(ncclResult_t, CommGetUniqueId, (ncclComm_t comm, ncclUniqueId *uniqueId));
TUTTI_DECLARE(ncclResult_t, CommGrow,
              (ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank,
               ncclComm_t *newcomm, ncclConfig_t *config));
TUTTI_DECLARE(ncclResult_t, CommSuspend, (ncclComm_t comm, int flags));
TUTTI_DECLARE(ncclResult_t, CommResume, (ncclComm_t comm));

// ---- What a communicator is ---------------------------------------------------------------------

// *asyncError: ncclSuccess, ncclInProgress while a nonblocking call runs, or the first error since
// the start.
TUTTI_DECLARE(ncclResult_t, CommGetAsyncError, (ncclComm_t comm, ncclResult_t *asyncError));
TUTTI_DECLARE(ncclResult_t, CommCount, (const ncclComm_t comm, int *count));
TUTTI_DECLARE(ncclResult_t, CommCuDevice, (const ncclComm_t comm, int *device));
TUTTI_DECLARE(ncclResult_t, CommUserRank, (const ncclComm_t comm, int *rank));
TUTTI_DECLARE(ncclResult_t, CommMemStats,
              (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value));

// ---- Registered memory and windows --------------------------------------------------------------

TUTTI_DECLARE(ncclResult_t, CommRegister,
              (const ncclComm_t comm, void *buff, size_t size, void **handle));
TUTTI_DECLARE(ncclResult_t, CommDeregister, (const ncclComm_t comm, void *handle));
// Registers `size` bytes at buff (from ncclMemAlloc) on every rank of comm as one window.
// Collective. Where windows are not supported: ncclSuccess and *win NULL, as in NCCL.
TUTTI_DECLARE(ncclResult_t, CommWindowRegister,
              (ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags));
TUTTI_DECLARE(ncclResult_t, CommWindowDeregister, (ncclComm_t comm, ncclWindow_t win));
TUTTI_DECLARE(ncclResult_t, WinGetUserPtr, (ncclComm_t comm, ncclWindow_t win, void **outUserPtr));

// ---- Own operators ------------------------------------------------------------------------------

TUTTI_DECLARE(ncclResult_t, RedOpCreatePreMulSum,
              (ncclRedOp_t * op, void *scalar, ncclDataType_t datatype,
               ncclScalarResidence_t residence, ncclComm_t comm));
TUTTI_DECLARE(ncclResult_t, RedOpDestroy, (ncclRedOp_t op, ncclComm_t comm));

// ---- Collectives: counts are elements -----------------------------------------------------------

TUTTI_DECLARE(ncclResult_t, Reduce,
              (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
               ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream));
TUTTI_DECLARE(ncclResult_t, Bcast,
              (void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
               cudaStream_t stream));
TUTTI_DECLARE(ncclResult_t, Broadcast,
              (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
               int root, ncclComm_t comm, cudaStream_t stream));
TUTTI_DECLARE(ncclResult_t, AllReduce,
              (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream));
TUTTI_DECLARE(ncclResult_t, ReduceScatter,
              (const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream));
TUTTI_DECLARE(ncclResult_t, AllGather,
              (const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
               ncclComm_t comm, cudaStream_t stream));
TUTTI_DECLARE(ncclResult_t, AlltoAll,
              (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
               ncclComm_t comm, cudaStream_t stream));
TUTTI_DECLARE(ncclResult_t, Gather,
              (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
               int root, ncclComm_t comm, cudaStream_t stream));
TUTTI_DECLARE(ncclResult_t, Scatter,
              (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
               int root, ncclComm_t comm, cudaStream_t stream));

// ---- Point to point, one-sided ------------------------------------------------------------------

TUTTI_DECLARE(ncclResult_t, Send,
              (const void *sendbuff, size_t count, ncclDataType_t datatype, int peer,
               ncclComm_t comm, cudaStream_t stream));
TUTTI_DECLARE(ncclResult_t, Recv,
              (void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
               cudaStream_t stream));
TUTTI_DECLARE(ncclResult_t, PutSignal,
              (const void *localbuff, size_t count, ncclDataType_t datatype, int peer,
               ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags,
               ncclComm_t comm, cudaStream_t stream));
TUTTI_DECLARE(ncclResult_t, Signal,
              (int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
               cudaStream_t stream));
TUTTI_DECLARE(ncclResult_t, WaitSignal,
              (int nDesc, ncclWaitSignalDesc_t *signalDescs, ncclComm_t comm, cudaStream_t stream));

// ---- Groups -------------------------------------------------------------------------------------

// Calls between the two run together at the outermost end, which returns the first error of them.
TUTTI_DECLARE(ncclResult_t, GroupStart, (void));
TUTTI_DECLARE(ncclResult_t, GroupEnd, (void));
TUTTI_DECLARE(ncclResult_t, GroupSimulateEnd, (ncclSimInfo_t * simInfo));

// ---- Parameters ---------------------------------------------------------------------------------

TUTTI_DECLARE(ncclResult_t, ParamBind, (ncclParamHandle_t * out, const char *key));
TUTTI_DECLARE(ncclResult_t, ParamGetI8, (ncclParamHandle_t h, int8_t *out));
TUTTI_DECLARE(ncclResult_t, ParamGetI16, (ncclParamHandle_t h, int16_t *out));
TUTTI_DECLARE(ncclResult_t, ParamGetI32, (ncclParamHandle_t h, int32_t *out));
TUTTI_DECLARE(ncclResult_t, ParamGetI64, (ncclParamHandle_t h, int64_t *out));
TUTTI_DECLARE(ncclResult_t, ParamGetU8, (ncclParamHandle_t h, uint8_t *out));
TUTTI_DECLARE(ncclResult_t, ParamGetU16, (ncclParamHandle_t h, uint16_t *out));
TUTTI_DECLARE(ncclResult_t, ParamGetU32, (ncclParamHandle_t h, uint32_t *out));
TUTTI_DECLARE(ncclResult_t, ParamGetU64, (ncclParamHandle_t h, uint64_t *out));
TUTTI_DECLARE(ncclResult_t, ParamGetStr, (ncclParamHandle_t h, const char **out));
TUTTI_DECLARE(ncclResult_t, ParamGet, (ncclParamHandle_t h, void *out, int maxLen, int *len));
TUTTI_DECLARE(ncclResult_t, ParamGetParameter,
              (const char *key, const char **value, int *valueLen));
TUTTI_DECLARE(ncclResult_t, ParamGetAllParameterKeys, (const char ***table, int *tableLen));
TUTTI_DECLARE(void, ParamDumpAll, (void));

// Reads the debug variables again. Deprecated in NCCL.
TUTTI_DECLARE(void, ResetDebugInit, (void));

#undef TUTTI_DECLARE

#ifdef __cplusplus
}
#endif
#endif
