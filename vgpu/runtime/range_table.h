// A table of disjoint address ranges, sorted, that many threads read while one writes.
//
// Readers take no lock: a sequence number tells them that a writer was busy, and they look again.
// Writers hold the lock that protects the table's owner. SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_RANGE_TABLE_H
#define VGPU_RUNTIME_RANGE_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vgpu_range {
    uintptr_t base;
    size_t bytes;
    uint64_t info; // the owner's
    void *owner;   // what the range belongs to; to be followed only under the owner's lock
};

struct vgpu_range_entry {
    _Atomic uintptr_t base;
    _Atomic size_t bytes;
    _Atomic uint64_t info;
    _Atomic(void *) owner;
};

struct vgpu_range_table {
    atomic_uint sequence;                       // odd while a writer changes entries
    atomic_size_t count;                        // writer: the lock's holder
    _Atomic(struct vgpu_range_entry *) entries; // replaced by a larger one when full; old ones stay
                                                // allocated, since readers may still look at them
    size_t capacity;
    struct vgpu_range_entry *old[48]; // the replaced ones
    int old_count;
};

// Adds a range of at least one byte. False: no memory, or it overlaps another.
bool vgpu_range_add(struct vgpu_range_table *table, struct vgpu_range range);
// Removes the range that begins at `base`; false where none does.
bool vgpu_range_remove(struct vgpu_range_table *table, uintptr_t base);
// Changes the info of the range that begins at `base`; false where none does.
bool vgpu_range_set_info(struct vgpu_range_table *table, uintptr_t base, uint64_t info);
// The range that holds `address`; false where none does. Any thread, no lock.
bool vgpu_range_find(struct vgpu_range_table *table, uintptr_t address, struct vgpu_range *out);
// The first range whose end lies above `address`; false where none does. Any thread, no lock.
bool vgpu_range_next(struct vgpu_range_table *table, uintptr_t address, struct vgpu_range *out);

#endif
