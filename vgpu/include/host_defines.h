// The older name of crt/host_defines.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_HOST_DEFINES_FORWARD_H
#define VGPU_HOST_DEFINES_FORWARD_H
#include "crt/host_defines.h"
#endif
