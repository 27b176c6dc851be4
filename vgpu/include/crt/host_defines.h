// The words that mark functions and variables for the host, the device or both, for both kinds of
// compilers.
//
// tutticc (which defines __CUDACC__) translates __global__, __device__, __shared__, __constant__,
// __managed__,
// __launch_bounds__ and __noinline__ itself, so they stay plain words for it. For other compilers
// they are empty. SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_HOST_DEFINES_H
#define VGPU_HOST_DEFINES_H

#ifndef __CUDACC__
#define __global__
#define __device__
#define __shared__
#define __constant__
#define __managed__
#define __launch_bounds__(...)
#endif

#define __host__
#define __grid_constant__
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define __block_size__(...)
#define __forceinline__      __inline__ __attribute__((always_inline))
#define __align__(n)         __attribute__((aligned(n)))
#define __no_return__        __attribute__((noreturn))
#define __builtin_align__(n) __align__(n)
#define __device_builtin__
#define __cudart_builtin__
#define __nv_pure__
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define CUDART_CB

#endif
