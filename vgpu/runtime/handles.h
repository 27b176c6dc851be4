// The objects that programs hold handles of, so that a wrong handle is an error and not a crash.
// A handle is the object's address; objects are aligned to 16 bytes. Any thread.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_HANDLES_H
#define VGPU_RUNTIME_HANDLES_H

#include <stdbool.h>

enum vgpu_handle_kind {
    VGPU_HANDLE_STREAM,
    VGPU_HANDLE_EVENT,
    VGPU_HANDLE_GRAPH,
    VGPU_HANDLE_NODE,
    VGPU_HANDLE_EXECUTABLE,
    VGPU_HANDLE_USER_OBJECT,
    VGPU_HANDLE_POOL,
    VGPU_HANDLE_MODULE,
};

// False: no memory.
bool vgpu_handle_add(const void *object, enum vgpu_handle_kind kind);
void vgpu_handle_remove(const void *object);
// Whether the address is that of a known object of this kind.
bool vgpu_handle_known(const void *object, enum vgpu_handle_kind kind);

#endif
