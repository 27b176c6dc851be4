// Functions of nccl.h that later versions bring: each answers ncclInvalidUsage, "not implemented yet". SPDX-License-Identifier: Apache-2.0
#include "api/unavailable.h"

#include "api/function.h"
#include "comm/group.h"
#include "nccl.h"

#include <stdint.h>
#include <stdio.h>

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define UNAVAILABLE(name, parameters)                                                              \
    TT_FUNCTION(ncclResult_t, name, parameters)                                                    \
    {                                                                                              \
        return tt_group_latch(tt_unavailable("nccl" #name));                                       \
    }

UNAVAILABLE(CommRevoke, (ncclComm_t comm, int revokeFlags))
UNAVAILABLE(CommGetUniqueId, (ncclComm_t comm, ncclUniqueId *uniqueId))
UNAVAILABLE(CommGrow, (ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank,
                       ncclComm_t *newcomm, ncclConfig_t *config))
UNAVAILABLE(CommSuspend, (ncclComm_t comm, int flags))
UNAVAILABLE(CommResume, (ncclComm_t comm))
UNAVAILABLE(ParamBind, (ncclParamHandle_t * out, const char *key))
UNAVAILABLE(ParamGetI8, (ncclParamHandle_t h, int8_t *out))
UNAVAILABLE(ParamGetI16, (ncclParamHandle_t h, int16_t *out))
UNAVAILABLE(ParamGetI32, (ncclParamHandle_t h, int32_t *out))
UNAVAILABLE(ParamGetI64, (ncclParamHandle_t h, int64_t *out))
UNAVAILABLE(ParamGetU8, (ncclParamHandle_t h, uint8_t *out))
UNAVAILABLE(ParamGetU16, (ncclParamHandle_t h, uint16_t *out))
UNAVAILABLE(ParamGetU32, (ncclParamHandle_t h, uint32_t *out))
UNAVAILABLE(ParamGetU64, (ncclParamHandle_t h, uint64_t *out))
UNAVAILABLE(ParamGetStr, (ncclParamHandle_t h, const char **out))
UNAVAILABLE(ParamGet, (ncclParamHandle_t h, void *out, int maxLen, int *len))
UNAVAILABLE(ParamGetParameter, (const char *key, const char **value, int *valueLen))
UNAVAILABLE(ParamGetAllParameterKeys, (const char ***table, int *tableLen))

TT_FUNCTION(void, ParamDumpAll, (void))
{
    tt_unavailable("ncclParamDumpAll");
    (void)fprintf(stderr, "tutti: not implemented yet: ncclParamDumpAll\n");
}
