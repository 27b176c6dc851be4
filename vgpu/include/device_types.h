// How a conversion rounds. SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_DEVICE_TYPES_H
#define VGPU_DEVICE_TYPES_H

enum cudaRoundMode { cudaRoundNearest, cudaRoundZero, cudaRoundPosInf, cudaRoundMinInf };

#endif
