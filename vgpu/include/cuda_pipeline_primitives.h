// A thread's asynchronous copies as C functions: done at once here, so that there is nothing to
// wait
// for. SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_CUDA_PIPELINE_PRIMITIVES_H
#define VGPU_CUDA_PIPELINE_PRIMITIVES_H

#include "cuda_runtime.h"

#if defined(__cplusplus) && defined(__CUDACC__)
#include "vgpu/mbarrier.h"

extern "C++" {

typedef unsigned long long __mbarrier_t;

// 4, 8 or 16 bytes, of which the last `zeros` become 0.
VGPU_FUNCTION void __pipeline_memcpy_async(void *to, const void *from, size_t bytes,
                                           size_t zeros = 0)
{
    if ((bytes != 4 && bytes != 8 && bytes != 16) || zeros > bytes)
        vgpu_fault(cudaErrorLaunchFailure,
                   "__pipeline_memcpy_async of %zu bytes, %zu of them zeros: must be 4, 8 or 16",
                   bytes, zeros);
    memcpy(to, from, bytes - zeros);
    memset(static_cast<char *>(to) + (bytes - zeros), 0, zeros);
}
VGPU_FUNCTION void __pipeline_commit(void) {}
VGPU_FUNCTION void __pipeline_wait_prior(size_t) {}
// The barrier's expected arrivals grow by one, which arrives.
VGPU_FUNCTION void __pipeline_arrive_on(__mbarrier_t *) {}

} // extern "C++"
#endif
#endif
