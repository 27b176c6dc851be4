// Sorted ranges behind a sequence lock (see range_table.h).
//
// The writer's stores to entries are releases after its store of an odd sequence number; a reader's
// loads are acquires before its second look at the number. So a reader that saw any new value also
// sees that the number moved. SPDX-License-Identifier: Apache-2.0
#include "range_table.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 256, LOOKS_BEFORE_YIELD = 64 };

static void store(struct vgpu_range_entry *entry, struct vgpu_range range)
{
    atomic_store_explicit(&entry->base, range.base, memory_order_release);
    atomic_store_explicit(&entry->bytes, range.bytes, memory_order_release);
    atomic_store_explicit(&entry->info, range.info, memory_order_release);
    atomic_store_explicit(&entry->owner, range.owner, memory_order_release);
}

static struct vgpu_range load(struct vgpu_range_entry *entry)
{
    struct vgpu_range range;
    range.base = atomic_load_explicit(&entry->base, memory_order_acquire);
    range.bytes = atomic_load_explicit(&entry->bytes, memory_order_acquire);
    range.info = atomic_load_explicit(&entry->info, memory_order_acquire);
    range.owner = atomic_load_explicit(&entry->owner, memory_order_acquire);
    return range;
}

// Index of the first of `count` entries whose end lies above `address`.
static size_t position(struct vgpu_range_entry *entries, size_t count, uintptr_t address)
{
    size_t low = 0;
    size_t high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        uintptr_t base = atomic_load_explicit(&entries[middle].base, memory_order_acquire);
        size_t bytes = atomic_load_explicit(&entries[middle].bytes, memory_order_acquire);
        if (base + bytes > address) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static void begin_change(struct vgpu_range_table *table)
{
    atomic_fetch_add_explicit(&table->sequence, 1, memory_order_acq_rel);
}

static void end_change(struct vgpu_range_table *table)
{
    atomic_fetch_add_explicit(&table->sequence, 1, memory_order_release);
}

// Makes room for one more entry.
static bool grow(struct vgpu_range_table *table, size_t count)
{
    if (count < table->capacity) {
        return true;
    }
    size_t capacity = table->capacity ? 2 * table->capacity : FIRST_CAPACITY;
    struct vgpu_range_entry *entries = calloc(capacity, sizeof(*entries));
    if (!entries) {
        return false;
    }
    struct vgpu_range_entry *old = atomic_load_explicit(&table->entries, memory_order_relaxed);
    for (size_t i = 0; i < count; i++) {
        store(&entries[i], load(&old[i]));
    }
    atomic_store_explicit(&table->entries, entries, memory_order_release);
    if (old) {
        table->old[table->old_count++] = old; // at most one a doubling
    }
    table->capacity = capacity;
    return true;
}

bool vgpu_range_add(struct vgpu_range_table *table, struct vgpu_range range)
{
    size_t count = atomic_load_explicit(&table->count, memory_order_relaxed);
    if (range.bytes == 0 || range.base + range.bytes < range.base || !grow(table, count)) {
        return false;
    }
    struct vgpu_range_entry *entries = atomic_load_explicit(&table->entries, memory_order_relaxed);
    size_t at = position(entries, count, range.base);
    if (at < count && load(&entries[at]).base < range.base + range.bytes) {
        return false;
    }
    begin_change(table);
    for (size_t i = count; i > at; i--) {
        store(&entries[i], load(&entries[i - 1]));
    }
    store(&entries[at], range);
    atomic_store_explicit(&table->count, count + 1, memory_order_release);
    end_change(table);
    return true;
}

// The index of the range that begins at `base`, or `count`.
static size_t index_of(struct vgpu_range_entry *entries, size_t count, uintptr_t base)
{
    size_t at = position(entries, count, base);
    return at < count && load(&entries[at]).base == base ? at : count;
}

bool vgpu_range_remove(struct vgpu_range_table *table, uintptr_t base)
{
    size_t count = atomic_load_explicit(&table->count, memory_order_relaxed);
    struct vgpu_range_entry *entries = atomic_load_explicit(&table->entries, memory_order_relaxed);
    size_t at = index_of(entries, count, base);
    if (at == count) {
        return false;
    }
    begin_change(table);
    for (size_t i = at; i + 1 < count; i++) {
        store(&entries[i], load(&entries[i + 1]));
    }
    atomic_store_explicit(&table->count, count - 1, memory_order_release);
    end_change(table);
    return true;
}

bool vgpu_range_set_info(struct vgpu_range_table *table, uintptr_t base, uint64_t info)
{
    size_t count = atomic_load_explicit(&table->count, memory_order_relaxed);
    struct vgpu_range_entry *entries = atomic_load_explicit(&table->entries, memory_order_relaxed);
    size_t at = index_of(entries, count, base);
    if (at == count) {
        return false;
    }
    begin_change(table);
    atomic_store_explicit(&entries[at].info, info, memory_order_release);
    end_change(table);
    return true;
}

bool vgpu_range_next(struct vgpu_range_table *table, uintptr_t address, struct vgpu_range *out)
{
    for (int look = 1;; look++) {
        unsigned before = atomic_load_explicit(&table->sequence, memory_order_acquire);
        if (!(before & 1)) {
            // The entries are read after the count: an array is only ever replaced by one that
            // holds at least as many.
            size_t count = atomic_load_explicit(&table->count, memory_order_acquire);
            struct vgpu_range_entry *entries =
                atomic_load_explicit(&table->entries, memory_order_acquire);
            size_t at = position(entries, count, address);
            struct vgpu_range found = {0};
            if (at < count) {
                found = load(&entries[at]);
            }
            if (atomic_load_explicit(&table->sequence, memory_order_relaxed) == before) {
                *out = found;
                return at < count;
            }
        }
        if (look % LOOKS_BEFORE_YIELD == 0) {
            sched_yield(); // the writer was pre-empted in the middle of a change
        }
    }
}

bool vgpu_range_find(struct vgpu_range_table *table, uintptr_t address, struct vgpu_range *out)
{
    return vgpu_range_next(table, address, out) && out->base <= address;
}
