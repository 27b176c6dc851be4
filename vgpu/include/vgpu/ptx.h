// Inline PTX as C++: what tutticc calls for each instruction. Programs do not use it by name.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_PTX_H
#define VGPU_PTX_H

#include "ptx/arithmetic.h"
#include "ptx/barriers.h"
#include "ptx/convert.h"
#include "ptx/half.h"
#include "ptx/memory.h"
#include "ptx/multimem.h"
#include "ptx/registers.h"
#include "ptx/special.h"

#endif
