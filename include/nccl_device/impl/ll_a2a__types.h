// Handle of an all-to-all exchange of small values.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_LL_A2A__TYPES_H_
#define NCCL_DEVICE_LL_A2A__TYPES_H_

#include "../core.h"

struct ncclLLA2AHandle {
    ncclDevResourceHandle_t bufHandle;
    uint32_t nSlots;
};

#endif
