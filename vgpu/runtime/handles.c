// A hash set of the objects that programs hold handles of. SPDX-License-Identifier: Apache-2.0
#include "handles.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

enum { FIRST_CAPACITY = 256, KIND_MASK = 15 };

// Guards the table: open addressing, linear probing, no tombstones.
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static uintptr_t *table; // [capacity]: address and kind; 0: free
static size_t capacity;  // a power of two
static size_t used;

static uintptr_t address_of(uintptr_t entry)
{
    return entry & ~(uintptr_t)KIND_MASK;
}

static size_t home(uintptr_t address)
{
    return (size_t)(address * 0x9E3779B97F4A7C15ull >> 20) & (capacity - 1);
}

// The slot that holds the object, or the free one where it would go. Under the lock.
static size_t find_slot(uintptr_t address)
{
    size_t slot = home(address);
    while (table[slot] && address_of(table[slot]) != address) {
        slot = (slot + 1) & (capacity - 1);
    }
    return slot;
}

static bool grow(void)
{
    uintptr_t *old = table;
    size_t old_capacity = capacity;
    size_t wanted = capacity ? capacity * 2 : FIRST_CAPACITY;
    uintptr_t *larger = calloc(wanted, sizeof(*larger));
    if (!larger) {
        return false;
    }
    table = larger;
    capacity = wanted;
    for (size_t i = 0; i < old_capacity; i++) {
        if (old[i]) {
            table[find_slot(address_of(old[i]))] = old[i];
        }
    }
    free(old);
    return true;
}

// Grows with every handle that is removed: what threads remember of handles ends.
static _Atomic uint64_t removals = 1;

bool vgpu_handle_add(const void *object, enum vgpu_handle_kind kind)
{
    pthread_mutex_lock(&table_lock);
    bool room = used < capacity / 2 || grow();
    if (room) {
        table[find_slot((uintptr_t)object)] = (uintptr_t)object | (uintptr_t)kind;
        used++;
    }
    pthread_mutex_unlock(&table_lock);
    return room;
}

void vgpu_handle_remove(const void *object)
{
    pthread_mutex_lock(&table_lock);
    atomic_fetch_add_explicit(&removals, 1, memory_order_release);
    size_t hole = capacity ? find_slot((uintptr_t)object) : 0;
    if (capacity && table[hole]) {
        used--;
        // Later entries of the same run move up, so that they are still found.
        for (size_t slot = (hole + 1) & (capacity - 1); table[slot];
             slot = (slot + 1) & (capacity - 1)) {
            size_t from_home = (slot - home(address_of(table[slot]))) & (capacity - 1);
            if (from_home >= ((slot - hole) & (capacity - 1))) {
                table[hole] = table[slot];
                hole = slot;
            }
        }
        table[hole] = 0;
    }
    pthread_mutex_unlock(&table_lock);
}

// Entries that the calling thread found, and `removals` at that time.
enum { REMEMBERED = 4 };
static __thread struct {
    uintptr_t entry;
    uint64_t removals;
} remembered[REMEMBERED];

bool vgpu_handle_known(const void *object, enum vgpu_handle_kind kind)
{
    uintptr_t entry = (uintptr_t)object | (uintptr_t)kind;
    size_t place = (uintptr_t)object / (KIND_MASK + 1) % REMEMBERED;
    if (remembered[place].entry == entry &&
        remembered[place].removals == atomic_load_explicit(&removals, memory_order_acquire)) {
        return true;
    }
    pthread_mutex_lock(&table_lock);
    bool known = object && capacity && ((uintptr_t)object & KIND_MASK) == 0 &&
                 table[find_slot((uintptr_t)object)] == entry;
    if (known) {
        remembered[place].entry = entry;
        remembered[place].removals = atomic_load_explicit(&removals, memory_order_relaxed);
    }
    pthread_mutex_unlock(&table_lock);
    return known;
}
