// Memory of virtual devices that other processes of the same user may map: for libraries that bring
// their own way of telling each other about it, and want whole pieces mapped once.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_SHARE_H
#define VGPU_SHARE_H

#include "../driver_types.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// A piece of memory that is mapped as a whole: what cudaMalloc cuts its blocks from, or what one
// cuMemCreate made. Fixed layout: it may be handed to another process.
struct vgpuSharedPiece {
    int32_t pid, descriptor;
    uint64_t inode;
    unsigned char key[16];
    uint64_t bytes;
};

// Finds the piece that holds the `bytes` bytes at `address`, and where in it they begin. Returns 1;
// 0 where other processes cannot map them: host memory, bytes of several allocations. Any thread.
// Since 0.2.
int vgpuSharedDescribe(const void *address, size_t bytes, struct vgpuSharedPiece *piece_out,
                       uint64_t *offset_out);
// Changes whenever memory is allocated, freed, mapped or unmapped in this process: while it stays
// the same, so does every answer of the functions here. Since 0.2.
unsigned vgpuSharedGeneration(void);
// 1 while this process still has the piece, which it has described. Since 0.2.
int vgpuSharedExists(const struct vgpuSharedPiece *piece);

// Maps another process's piece; a piece that is mapped already is counted up. base_out: its first
// byte. The memory stays until vgpuSharedClose even if its owner frees it meanwhile. Errors:
// cudaErrorInvalidResourceHandle where the piece is gone or belongs to another user,
// cudaErrorMemoryAllocation at a limit, which the text names. Since 0.2.
cudaError_t vgpuSharedOpen(const struct vgpuSharedPiece *piece, void **base_out);
// Gives one vgpuSharedOpen back. Errors: cudaErrorInvalidValue for any other address. Since 0.2.
cudaError_t vgpuSharedClose(void *base);

#ifdef __cplusplus
}
#endif
#endif
