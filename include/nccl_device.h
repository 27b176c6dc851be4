// What kernels (and the host code that launches them) include to communicate from the device:
// thread groups, teams, symmetric windows, barriers. Source compatible with NCCL 2.30.7. Plain C
// and C++ code may include it too and then sees types and host functions; kernels are C++17 or
// later. What this version only declares (networking) ends the kernel that calls it, with "not
// implemented yet: NAME".
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_H_
#define NCCL_DEVICE_H_

#if defined(__CUDACC__) && defined(__cplusplus) && __cplusplus < 201703L
#error "nccl_device.h needs C++17 or later where kernels are compiled: give the compiler -std=c++17"
#endif

#include "nccl_device/barrier.h"
#include "nccl_device/comm.h"
#include "nccl_device/coop.h"
#include "nccl_device/core.h"
#include "nccl_device/gin.h"
#include "nccl_device/gin_barrier.h"
#include "nccl_device/ll_a2a.h"
#include "nccl_device/lsa_barrier.h"
#include "nccl_device/ptr.h"
#include "nccl_device/reduce_copy.h"
#include "nccl_device/tutti_multimem.h"

#include "nccl_device/impl/barrier__funcs.h"
#include "nccl_device/impl/core__funcs.h"
#include "nccl_device/impl/gin__funcs.h"
#include "nccl_device/impl/ll_a2a__funcs.h"
#include "nccl_device/impl/lsa_barrier__funcs.h"
#include "nccl_device/impl/ptr__funcs.h"
#include "nccl_device/impl/reduce_copy__funcs.h"

#endif
