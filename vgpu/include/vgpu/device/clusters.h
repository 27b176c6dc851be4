// Thread block clusters: a virtual GPU launches clusters of one block, so each block is all of its
// cluster, and the cluster's barrier is the block's.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_DEVICE_CLUSTERS_H
#define VGPU_DEVICE_CLUSTERS_H

#include "address_space.h"
#include "barriers.h"

#if defined(__cplusplus) && defined(__CUDACC__)
extern "C++" {

VGPU_FUNCTION unsigned __clusterDimIsSpecified(void)
{
    return 0;
}
VGPU_FUNCTION dim3 __clusterDim(void)
{
    return dim3(1, 1, 1);
}
VGPU_FUNCTION dim3 __clusterRelativeBlockIdx(void)
{
    return dim3(0, 0, 0);
}
VGPU_FUNCTION dim3 __clusterGridDimInClusters(void)
{
    return gridDim;
}
VGPU_FUNCTION dim3 __clusterIdx(void)
{
    return dim3(blockIdx);
}
VGPU_FUNCTION unsigned __clusterRelativeBlockRank(void)
{
    return 0;
}
VGPU_FUNCTION unsigned __clusterSizeInBlocks(void)
{
    return 1;
}
// Every thread arrives and then waits: meeting at the wait is enough.
VGPU_FUNCTION void __cluster_barrier_arrive(void)
{
    __threadfence();
}
VGPU_FUNCTION void __cluster_barrier_arrive_relaxed(void) {}
void __cluster_barrier_wait(void) __asm__("vgpu_syncthreads");
VGPU_FUNCTION void __threadfence_cluster(void)
{
    __threadfence();
}

// A block's number in the cluster must be 0; the address is then the block's own.
VGPU_FUNCTION void *__cluster_map_shared_rank(const void *pointer, unsigned rank)
{
    if (rank != 0)
        vgpu_fault(cudaErrorIllegalAddress,
                   "shared memory of block %u of the cluster, which has one block", rank);
    return const_cast<void *>(pointer);
}
VGPU_FUNCTION unsigned __cluster_query_shared_rank(const void *)
{
    return 0;
}
VGPU_FUNCTION unsigned __isClusterShared(const void *pointer)
{
    return __isShared(pointer);
}
VGPU_FUNCTION unsigned __isCtaShared(const void *pointer)
{
    return __isShared(pointer);
}

} // extern "C++"
#endif
#endif
