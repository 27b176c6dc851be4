// Everything that device code may call without a further include. Only for code that tutticc
// compiles.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_DEVICE_FUNCTIONS_H
#define VGPU_DEVICE_FUNCTIONS_H

#ifdef __CUDACC__
#include "device_launch_parameters.h"
#include "vgpu/device/address_space.h"
#include "vgpu/device/atomics.h"
#include "vgpu/device/barriers.h"
#include "vgpu/device/cache_access.h"
#include "vgpu/device/clusters.h"
#include "vgpu/device/conversions.h"
#include "vgpu/device/fast_math.h"
#include "vgpu/device/integer.h"
#include "vgpu/device/rounding.h"
#include "vgpu/device/special_math.h"
#include "vgpu/device/three_way.h"
#include "vgpu/device/warp.h"
#include "vgpu/device/wide_atomics.h"
#include "vgpu/device/words.h"
#endif
#endif
