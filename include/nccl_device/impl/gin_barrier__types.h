// Handle of a barrier over the network.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_GIN_BARRIER__TYPES_H_
#define NCCL_DEVICE_GIN_BARRIER__TYPES_H_

#include "../core.h"

struct ncclGinBarrierHandle {
    ncclGinSignal_t signal0;
    ncclDevResourceHandle_t unused;
};

#endif
