// Small constructor functions for the runtime's structures.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_DRIVER_FUNCTIONS_H
#define VGPU_DRIVER_FUNCTIONS_H

#include "driver_types.h"

static inline __attribute__((unused)) struct cudaPitchedPtr
make_cudaPitchedPtr(void *pointer, size_t pitch, size_t width, size_t height)
{
    struct cudaPitchedPtr p = {pointer, pitch, width, height};
    return p;
}
static inline __attribute__((unused)) struct cudaPos make_cudaPos(size_t x, size_t y, size_t z)
{
    struct cudaPos p = {x, y, z};
    return p;
}
static inline __attribute__((unused)) struct cudaExtent make_cudaExtent(size_t width, size_t height,
                                                                        size_t depth)
{
    struct cudaExtent e = {width, height, depth};
    return e;
}

#endif
