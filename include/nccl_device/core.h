// Teams, requirements of a device communicator, properties of a communicator, and the window
// functions of kernels. SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_CORE_H_
#define NCCL_DEVICE_CORE_H_

#include <nccl.h>

#include "coop.h"
#include "utility.h"

typedef struct ncclDevComm ncclDevComm_t;
typedef struct ncclWindow_vidmem ncclWindow_vidmem_t;

// Names of things inside a device communicator.
typedef uint32_t ncclDevResourceHandle; // offset in the resource window in units of 128 bytes
typedef ncclDevResourceHandle ncclDevResourceHandle_t;
typedef uint32_t ncclGinSignal_t;
typedef uint32_t ncclGinCounter_t;
typedef struct {
    uint64_t opaque[2];
} ncclGinRequest_t;

typedef struct ncclLsaBarrierHandle ncclLsaBarrierHandle_t;
typedef struct ncclGinBarrierHandle ncclGinBarrierHandle_t;
typedef struct ncclLLA2AHandle ncclLLA2AHandle_t;

// ---- Teams
// ------------------------------------------------------------------------------------------------------------

// Ranks at equal distances. Member i has world rank `world.rank + (i - rank) * stride`, where
// world.rank and rank are the calling rank's numbers in the world and in the team.
struct ncclTeam {
    int nRanks;
    int rank;
    int stride;
};
typedef struct ncclTeam ncclTeam_t;

#ifdef __cplusplus
// Name a team where a type must choose: all ranks; the ranks whose memory can be loaded and stored
// (LSA); the ranks that have the same place in their LSA teams.
struct ncclTeamTagWorld {
};
struct ncclTeamTagLsa {
};
struct ncclTeamTagRail {
};

template <typename Value> struct ncclSymPtr;
#endif

// ---- What a device communicator must offer
// ------------------------------------------------------------------------------

typedef enum {
    NCCL_GIN_CONNECTION_NONE = 0,
    NCCL_GIN_CONNECTION_FULL = 1,
    NCCL_GIN_CONNECTION_RAIL = 2,
} ncclGinConnectionType_t;

// The multicast address range of a team; windows have their places in it.
struct ncclMultimemHandle {
    void *mcBasePtr;
};
typedef struct ncclMultimemHandle ncclMultimemHandle_t;

// A buffer of `bufferSize` bytes on each rank, at one place in the resource window. The list's
// nodes may be freed after ncclDevCommCreate has returned; what the out pointers name is written
// when the group ends.
typedef struct ncclDevResourceRequirements ncclDevResourceRequirements_t;
struct ncclDevResourceRequirements {
    ncclDevResourceRequirements_t *next;
    size_t bufferSize;
    size_t bufferAlign; // power of two, or 0
    ncclDevResourceHandle_t *outBufferHandle;
    int ginSignalCount;
    int ginCounterCount;
    ncclGinSignal_t *outGinSignalStart;
    ncclGinCounter_t *outGinCounterStart;
};

typedef struct ncclTeamRequirements ncclTeamRequirements_t;
struct ncclTeamRequirements {
    ncclTeamRequirements_t *next;
    ncclTeam_t team;
    bool multimem;
    ncclMultimemHandle_t *outMultimemHandle;
};

// Always start from NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER: a structure without its size, magic and
// version is refused.
typedef struct ncclDevCommRequirements ncclDevCommRequirements_t;
struct ncclDevCommRequirements {
    size_t size;
    unsigned int magic;
    unsigned int version;

    ncclDevResourceRequirements_t *resourceRequirementsList;
    ncclTeamRequirements_t *teamRequirementsList;
    bool lsaMultimem;    // multimem access inside the LSA team
    int barrierCount;    // barriers across the world (need GIN)
    int lsaBarrierCount; // barriers inside the LSA team
    int railGinBarrierCount;
    int lsaLLA2ABlockCount;
    int lsaLLA2ASlotCount;
    bool ginForceEnable; // older form of ginConnectionType = FULL
    int ginContextCount; // a wish; the device communicator says how many there are
    int ginSignalCount;  // numbered from 0
    int ginCounterCount; // numbered from 0
    ncclGinConnectionType_t ginConnectionType;
    bool ginExclusiveContexts;
    int ginQueueDepth;
    int ginTrafficClass;
    int worldGinBarrierCount;
    bool ginStrongSignalsRequired;
    bool ginVaSignalsRequired;
};

#define NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER                                                     \
    {                                                                                              \
        sizeof(ncclDevCommRequirements_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, NULL, NULL, false,   \
            0, 0, 0, 0, 0, false, 4, 0, 0, NCCL_GIN_CONNECTION_NONE, false, 0,                     \
            NCCL_CONFIG_UNDEF_INT, 0, true, true                                                   \
    }

// ---- What a communicator can do
// -----------------------------------------------------------------------------------------

// Kinds of device-initiated networking; 1 is not used.
typedef enum {
    NCCL_GIN_TYPE_NONE = 0,
    NCCL_GIN_TYPE_PROXY = 2,
    NCCL_GIN_TYPE_GDAKI = 3,
    NCCL_GIN_TYPE_GPI = 4,
} ncclGinType_t;

typedef struct ncclCommProperties ncclCommProperties_t;
struct ncclCommProperties {
    size_t size;
    unsigned int magic;
    unsigned int version;

    int rank;
    int nRanks;
    int cudaDev;
    int nvmlDev;
    bool deviceApiSupport; // windows and device communicators can be made
    bool multimemSupport;  // the LSA team has multicast
    ncclGinType_t ginType;
    int nLsaTeams;
    bool hostRmaSupport;
    ncclGinType_t railedGinType;
};

#define NCCL_COMM_PROPERTIES_INITIALIZER                                                           \
    {                                                                                              \
        sizeof(ncclCommProperties_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, -1, 0, -1, -1, false,     \
            false, NCCL_GIN_TYPE_NONE, 0, false, NCCL_GIN_TYPE_NONE                                \
    }

// ---- Host functions
// -----------------------------------------------------------------------------------------------------

// Fills *props, which must come from NCCL_COMM_PROPERTIES_INITIALIZER. Errors: ncclInvalidUsage for
// a structure that does not.
NCCL_EXTERN_C __host__ ncclResult_t ncclCommQueryProperties(ncclComm_t comm,
                                                            ncclCommProperties_t *props);
// Collective. Makes what kernels of `comm` need and describes it in *outDevComm, which kernels take
// by value.
NCCL_EXTERN_C __host__ ncclResult_t ncclDevCommCreate(ncclComm_t comm,
                                                      ncclDevCommRequirements_t const *reqs,
                                                      ncclDevComm_t *outDevComm);
// Local. No kernel that uses the device communicator may run any more, on any rank.
NCCL_EXTERN_C __host__ ncclResult_t ncclDevCommDestroy(ncclComm_t comm,
                                                       ncclDevComm_t const *devComm);

// Device addresses of a window's byte `offset`, on the host. *outPtr is NULL where it cannot be
// reached (no multicast; a peer outside the LSA team). Errors: ncclInvalidArgument for an offset or
// rank out of range.
NCCL_EXTERN_C __host__ ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t window,
                                                                    size_t offset, void **outPtr);
NCCL_EXTERN_C __host__ ncclResult_t ncclGetMultimemDevicePointer(ncclWindow_t window, size_t offset,
                                                                 ncclMultimemHandle_t multimem,
                                                                 void **outPtr);
NCCL_EXTERN_C __host__ ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, size_t offset,
                                                            int lsaRank, void **outPtr);
NCCL_EXTERN_C __host__ ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, size_t offset,
                                                             int peer, void **outPtr);

// Teams of a communicator, on the host. A bad communicator gives a team of no ranks.
NCCL_EXTERN_C __host__ ncclTeam_t ncclTeamWorld(ncclComm_t comm);
NCCL_EXTERN_C __host__ ncclTeam_t ncclTeamLsa(ncclComm_t comm);
NCCL_EXTERN_C __host__ ncclTeam_t ncclTeamRail(ncclComm_t comm);
NCCL_EXTERN_C __host__ int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank);
NCCL_EXTERN_C __host__ int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank);

// ---- Functions of host and device
// ---------------------------------------------------------------------------------------

// Whether rank bRank of team b belongs to team a, and its number there. Both teams are the calling
// rank's.
NCCL_EXTERN_C NCCL_HOST_DEVICE_INLINE bool ncclTeamRankIsMember(ncclTeam_t a, ncclTeam_t b,
                                                                int bRank);
NCCL_EXTERN_C NCCL_HOST_DEVICE_INLINE int ncclTeamRankToTeam(ncclTeam_t a, ncclTeam_t b, int bRank);
// The calling rank's group of innerSize neighbours, and the team of equal places in those groups.
NCCL_EXTERN_C NCCL_HOST_DEVICE_INLINE ncclTeam_t ncclTeamInnerFactor(ncclTeam_t parent,
                                                                     int innerSize);
NCCL_EXTERN_C NCCL_HOST_DEVICE_INLINE ncclTeam_t ncclTeamOuterFactor(ncclTeam_t parent,
                                                                     int innerSize);
// The parent's rank number of the index-th member that is not in `subset` (a team inside `parent`).
NCCL_EXTERN_C NCCL_HOST_DEVICE_INLINE int ncclTeamRankInDifference(ncclTeam_t parent,
                                                                   ncclTeam_t subset, int index);
// Byte offset of a resource buffer in the device communicator's resource window.
NCCL_EXTERN_C NCCL_HOST_DEVICE_INLINE size_t ncclGetResourceBufferOffset(ncclDevResourceHandle_t h);

#ifdef __cplusplus
NCCL_HOST_DEVICE_INLINE ncclTeam ncclTeamWorld(ncclDevComm const &comm);
NCCL_HOST_DEVICE_INLINE ncclTeam ncclTeamLsa(ncclDevComm const &comm);
NCCL_HOST_DEVICE_INLINE ncclTeam ncclTeamRail(ncclDevComm const &comm);
NCCL_HOST_DEVICE_INLINE int ncclTeamRankToWorld(ncclDevComm const &comm, ncclTeam team, int rank);
NCCL_HOST_DEVICE_INLINE int ncclTeamRankToLsa(ncclDevComm const &comm, ncclTeam team, int rank);
#endif

// ---- Windows in kernels
// -------------------------------------------------------------------------------------------------

#if NCCL_CHECK_CUDACC
// Address of byte `offset` of window w: this rank's copy; LSA team member `peer`'s; world rank
// `peer`'s; team member `peer`'s; all members' at once (for multimem instructions only). Address
// arithmetic, no check, on real GPUs; on virtual ones an offset beyond the window or a rank outside
// the LSA team ends the kernel with cudaErrorIllegalAddress.
NCCL_DEVICE_INLINE void *ncclGetLocalPointer(ncclWindow_t w, size_t offset);
NCCL_DEVICE_INLINE void *ncclGetLsaPointer(ncclWindow_t w, size_t offset, int peer);
NCCL_DEVICE_INLINE void *ncclGetPeerPointer(ncclWindow_t w, size_t offset, int peer);
NCCL_DEVICE_INLINE void *ncclGetPeerPointer(ncclWindow_t w, size_t offset, ncclTeam team, int peer);
NCCL_DEVICE_INLINE void *ncclGetMultimemPointer(ncclWindow_t w, size_t offset,
                                                ncclMultimemHandle mmHandle);
NCCL_DEVICE_INLINE void *ncclGetLsaMultimemPointer(ncclWindow_t w, size_t offset,
                                                   ncclDevComm const &comm);

// The same for the resource buffer that handle h names.
NCCL_DEVICE_INLINE ncclSymPtr<char> ncclGetResourceBuffer(ncclDevComm const &comm,
                                                          ncclDevResourceHandle h);
NCCL_DEVICE_INLINE void *ncclGetResourceBufferLocalPointer(ncclDevComm const &comm,
                                                           ncclDevResourceHandle h);
NCCL_DEVICE_INLINE void *ncclGetResourceBufferLsaPointer(ncclDevComm const &comm,
                                                         ncclDevResourceHandle h, int peer);
NCCL_DEVICE_INLINE void *ncclGetResourceBufferPeerPointer(ncclDevComm const &comm,
                                                          ncclDevResourceHandle h, ncclTeam team,
                                                          int peer);
NCCL_DEVICE_INLINE void *ncclGetResourceBufferMultimemPointer(ncclDevComm const &comm,
                                                              ncclDevResourceHandle h,
                                                              ncclMultimemHandle mmHandle);
NCCL_DEVICE_INLINE void *ncclGetResourceBufferLsaMultimemPointer(ncclDevComm const &comm,
                                                                 ncclDevResourceHandle h);
#endif

#endif
