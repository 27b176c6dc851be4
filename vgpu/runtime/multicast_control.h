// What a multicast object's memfd holds, and what a process keeps of an object. Used by multicast.c
// and resolve.c only. SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_MULTICAST_CONTROL_H
#define VGPU_RUNTIME_MULTICAST_CONTROL_H

#include "virtual_memory.h"

#include <stdatomic.h>
#include <stdint.h>

enum { VGPU_MAX_MEMBERS = 1024, VGPU_MAX_BINDINGS = 4096 };

enum {
    VGPU_BINDING_NEVER = 0, // must be 0: what a new memfd holds
    VGPU_BINDING_READY = 1,
    VGPU_BINDING_GONE = 2, // may be used again
};

// Shared between processes: fixed layout, 64-bit numbers aligned.
struct vgpu_member {
    unsigned char uuid[16];
    int32_t pid, tid; // who added it
};

struct vgpu_binding {
    _Atomic uint32_t state; // stored last (release), loaded first (acquire)
    uint32_t member;
    int32_t pid, fd; // where the memory is
    uint64_t inode;
    unsigned char key[16];
    uint64_t offset; // in the multicast object
    uint64_t memory_offset, bytes;
};

struct vgpu_control {
    uint32_t device_count;
    _Atomic uint32_t added;      // members that are complete
    _Atomic uint32_t generation; // changes with every binding and unbinding
    uint32_t padding;
    struct vgpu_member member[VGPU_MAX_MEMBERS];
    struct vgpu_binding binding[VGPU_MAX_BINDINGS];
};
_Static_assert(sizeof(struct vgpu_member) == 24 && sizeof(struct vgpu_binding) == 64,
               "other processes read it");

// A binding that this process made: keeps the memory alive.
struct vgpu_bound {
    struct vgpu_bound *next;
    int index;
    int tid;
    struct vgpu_backing *backing;
    struct vgpu_physical *physical;
};

struct vgpu_resolved;

// Another process's memory, mapped because nothing else in this process maps it.
struct vgpu_borrowed {
    struct vgpu_borrowed *next;
    struct vgpu_mapping mapping;
};

struct vgpu_multicast {
    struct vgpu_physical *physical;
    struct vgpu_control *control;
    int device_count;
    struct vgpu_bound *bound;
    uint32_t resolved_generation;   // control->generation and vgpu_multimem_epoch() when
    unsigned resolved_epoch;        // `resolved` was made
    struct vgpu_resolved *resolved; // valid pieces
    struct vgpu_resolved *retired;  // pieces that threads may still look at
    struct vgpu_borrowed *borrowed;
};

// Makes all resolved pieces invalid; everything: frees them and what was borrowed, too.
void vgpu_multicast_unresolve(struct vgpu_multicast *multicast, bool everything);

#endif
