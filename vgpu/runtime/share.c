// Pieces of memory for other processes, mapped as a whole. See vgpu/share.h.
// SPDX-License-Identifier: Apache-2.0
#include "vgpu/share.h"

#include "backing.h"
#include "error.h"
#include "memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct mapped {
    struct vgpu_mapping mapping;
    unsigned count;
    struct mapped *next;
};

static struct mapped *mapped_list; // under the memory lock

int vgpuSharedDescribe(const void *address, size_t bytes, struct vgpuSharedPiece *piece_out,
                       uint64_t *offset_out)
{
    vgpu_memory_lock();
    const struct vgpu_mapping *mapping = vgpu_mapping_find((uintptr_t)address);
    size_t offset = mapping ? (uintptr_t)address - mapping->base : 0;
    bool found = mapping && mapping->backing && mapping->kind != VGPU_MEMORY_MULTICAST &&
                 bytes <= mapping->bytes && offset <= mapping->bytes - bytes;
    if (found) {
        const struct vgpu_backing *backing = mapping->backing;
        *piece_out = (struct vgpuSharedPiece){.pid = getpid(),
                                              .descriptor = backing->fd,
                                              .inode = backing->inode,
                                              .bytes = backing->label.bytes};
        memcpy(piece_out->key, backing->label.key, sizeof(piece_out->key));
        *offset_out = mapping->backing_offset + offset;
    }
    vgpu_memory_unlock();
    return found;
}

unsigned vgpuSharedGeneration(void)
{
    return atomic_load_explicit(&vgpu_memory_generation, memory_order_acquire);
}

int vgpuSharedExists(const struct vgpuSharedPiece *piece)
{
    vgpu_memory_lock();
    bool exists = vgpu_backing_exists(piece->inode, piece->key);
    vgpu_memory_unlock();
    return exists;
}

// Maps a piece that is not mapped yet. Takes the backing's reference over. Under the lock.
static cudaError_t map_piece(const char *function, struct vgpu_backing *backing,
                             struct mapped **mapped_out)
{
    struct mapped *made = calloc(1, sizeof(*made));
    if (!made) {
        vgpu_backing_release(backing);
        return vgpu_fail_limit(function, "no memory for bookkeeping", ENOMEM);
    }
    size_t bytes = backing->label.bytes;
    void *base = vgpu_backing_map(backing, NULL, bytes, 0, PROT_READ | PROT_WRITE);
    cudaError_t error = cudaSuccess;
    if (!base) {
        error = vgpu_fail_limit(function, "another process's memory cannot be mapped", errno);
    } else {
        struct vgpu_mapping mapping = {.kind = VGPU_MEMORY_DEVICE,
                                       .source = VGPU_FROM_SHARE,
                                       .base = (uintptr_t)base,
                                       .bytes = bytes,
                                       .device = backing->device,
                                       .backing = backing,
                                       .owner = made};
        made->mapping = mapping;
        if (!vgpu_mapping_add(&made->mapping)) {
            error = vgpu_fail_limit(function, "no memory for bookkeeping", ENOMEM);
            munmap(base, bytes);
        }
    }
    if (error != cudaSuccess) {
        free(made);
        vgpu_backing_release(backing);
        return error;
    }
    made->next = mapped_list;
    mapped_list = made;
    *mapped_out = made;
    return cudaSuccess;
}

cudaError_t vgpuSharedOpen(const struct vgpuSharedPiece *piece, void **base_out)
{
    static const char function[] = "vgpuSharedOpen";
    struct vgpu_backing *backing = NULL;
    vgpu_memory_lock();
    cudaError_t error = vgpu_backing_open(function, piece->pid, piece->descriptor, piece->inode,
                                          piece->key, &backing);
    if (error == cudaSuccess && backing->label.bytes != piece->bytes) {
        vgpu_backing_release(backing);
        error =
            vgpu_fail(cudaErrorInvalidValue, "%s: the piece's description is damaged", function);
    }
    if (error == cudaSuccess) {
        struct mapped *mapped = mapped_list;
        while (mapped && mapped->mapping.backing != backing) {
            mapped = mapped->next;
        }
        if (mapped) {
            vgpu_backing_release(backing);
        } else {
            error = map_piece(function, backing, &mapped);
        }
        if (error == cudaSuccess) {
            mapped->count++;
            *base_out = (void *)mapped->mapping.base;
        }
    }
    vgpu_memory_unlock();
    return error;
}

cudaError_t vgpuSharedClose(void *base)
{
    cudaError_t error = cudaSuccess;
    vgpu_memory_lock();
    struct mapped **link = &mapped_list;
    while (*link && (*link)->mapping.base != (uintptr_t)base) {
        link = &(*link)->next;
    }
    struct mapped *mapped = *link;
    if (!mapped) {
        error = vgpu_fail(
            cudaErrorInvalidValue,
            "vgpuSharedClose: %p is not what vgpuSharedOpen gave, or is closed already", base);
    } else if (--mapped->count == 0) {
        *link = mapped->next;
        vgpu_mapping_remove(&mapped->mapping);
        munmap(base, mapped->mapping.bytes);
        vgpu_backing_release(mapped->mapping.backing);
        free(mapped);
    }
    vgpu_memory_unlock();
    return error;
}
