// The older name of nvtx3/nvToolsExt.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_NVTOOLSEXT_H
#define VGPU_NVTOOLSEXT_H
#include "nvtx3/nvToolsExt.h"
#endif
