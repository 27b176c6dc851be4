// Constants and types of device-initiated networking that host and device share.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_GIN__TYPES_H_
#define NCCL_DEVICE_GIN__TYPES_H_

#include "../core.h"

enum { NCCL_GIN_MAX_CONNECTIONS = 4 };

// What stands behind a network's device interface.
typedef enum {
    NCCL_NET_DEVICE_HOST = 0,
    NCCL_NET_DEVICE_UNPACK = 1,
    NCCL_NET_DEVICE_GIN_PROXY = 2,
    NCCL_NET_DEVICE_GIN_GDAKI = 3,
    NCCL_NET_DEVICE_GIN_GPI = 4,
} ncclNetDeviceType;

typedef void *ncclGinWindow_t;

typedef enum ncclGinSignalOp_t {
    ncclGinSignalInc = 0,
    ncclGinSignalAdd = 1,
} ncclGinSignalOp_t;

#ifndef NCCL_GIN_PROXY_ENABLE
#define NCCL_GIN_PROXY_ENABLE 1
#endif
#ifndef NCCL_GIN_GDAKI_ENABLE
#define NCCL_GIN_GDAKI_ENABLE 0
#endif
#ifndef NCCL_GIN_GPI_ENABLE
#define NCCL_GIN_GPI_ENABLE 0
#endif
#define NCCL_GIN_BACKEND_MASK_ALL                                                                  \
    ((NCCL_GIN_PROXY_ENABLE ? 1u << NCCL_NET_DEVICE_GIN_PROXY : 0u) |                              \
     (NCCL_GIN_GDAKI_ENABLE ? 1u << NCCL_NET_DEVICE_GIN_GDAKI : 0u) |                              \
     (NCCL_GIN_GPI_ENABLE ? 1u << NCCL_NET_DEVICE_GIN_GPI : 0u))

// Flags of one operation.
enum ncclGinOptFlags {
    ncclGinOptFlagsDefault = 0,
    ncclGinOptFlagsMaySkipCreditCheck = 1, // the caller knows that the queue has room
    ncclGinOptFlagsAggregateRequests = 2,  // may be started with a later operation
};

#if NCCL_CHECK_CUDACC
// Who may use one context object at the same time.
enum ncclGinResourceSharingMode : uint8_t {
    NCCL_GIN_RESOURCE_SHARING_GPU = 0,
    NCCL_GIN_RESOURCE_SHARING_CTA = 1,
    NCCL_GIN_RESOURCE_SHARING_THREAD = 2,
};

// Scratch space of one operation, in shared memory.
struct ncclGinDescriptorSmem {
    alignas(16) char space[64];
};
#endif

#endif
