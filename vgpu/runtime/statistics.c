// vgpu/stats.h: what moved between which devices.
//
// Every thread counts in a table of its own, so that counting takes no lock and is exact; reading
// sums all tables and subtracts what stood there when counting started. A thread's table outlives
// it.
// SPDX-License-Identifier: Apache-2.0
#include "statistics.h"

#include "counts.h"
#include "memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Bytes first; MESSAGES further on the messages that carried them.
enum field {
    IN,
    OUT,
    LOCAL,
    MULTIMEM_LOADS,
    MULTIMEM_STORES,
    MESSAGES,
    FIELD_COUNT = MESSAGES + 3
};
enum link_field { LINK_BYTES, LINK_MESSAGES, LINK_FIELD_COUNT };

struct totals {
    uint64_t field[FIELD_COUNT][VGPU_MAX_DEVICES];
    uint64_t link[LINK_FIELD_COUNT][VGPU_MAX_DEVICES][VGPU_MAX_DEVICES];
    uint64_t barriers[VGPU_MAX_DEVICES], launches[VGPU_MAX_DEVICES]; // the scheduler's
};

// Written by its thread only (relaxed), read by anyone.
struct table {
    struct table *next;
    _Atomic uint64_t field[FIELD_COUNT][VGPU_MAX_DEVICES];
    _Atomic uint64_t link[LINK_FIELD_COUNT][VGPU_MAX_DEVICES][VGPU_MAX_DEVICES];
};

bool vgpu_counting;

static _Atomic(struct table *) tables;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards `start`
static struct totals start;
static __thread struct table *mine;
static __thread bool paused; // see vgpu_count_pause

static struct table *my_table(void)
{
    if (!mine) {
        struct table *table = calloc(1, sizeof(*table));
        if (!table) {
            (void)fprintf(stderr, "vgpu: no memory to count in\n");
            abort(); // counts that are not exact are worse than none
        }
        table->next = atomic_load(&tables);
        while (!atomic_compare_exchange_weak(&tables, &table->next, table)) {
        }
        mine = table;
    }
    return mine;
}

static void add(_Atomic uint64_t *counter, uint64_t amount)
{
    uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, value + amount, memory_order_relaxed);
}

static bool valid(int device)
{
    return device >= 0 && device < VGPU_MAX_DEVICES;
}

// One message of `bytes` at a device's port, IN, OUT or LOCAL.
static void add_port(struct table *table, enum field field, int device, uint64_t bytes)
{
    add(&table->field[field][device], bytes);
    add(&table->field[MESSAGES + field][device], 1);
}

static void add_link(struct table *table, int from, int to, uint64_t bytes)
{
    add(&table->link[LINK_BYTES][from][to], bytes);
    add(&table->link[LINK_MESSAGES][from][to], 1);
}

// `bytes` went from one device's memory to another's port (-1: a device that is not visible here).
static void count_move(int from, int to, uint64_t bytes)
{
    struct table *table = my_table();
    if (from == to) {
        if (valid(from)) {
            add_port(table, LOCAL, from, bytes);
        }
        return;
    }
    if (valid(from)) {
        add_port(table, OUT, from, bytes);
    }
    if (valid(to)) {
        add_port(table, IN, to, bytes);
    }
    if (valid(from) && valid(to)) {
        add_link(table, from, to, bytes);
    }
}

// ---- Counting ----------------------------------------------------------------------------------

void vgpu_statistics_copy(const void *destination, const void *source, size_t bytes)
{
    struct vgpu_memory_range to = vgpu_memory_find(destination);
    struct vgpu_memory_range from = vgpu_memory_find(source);
    if (to.kind == VGPU_MEMORY_DEVICE && from.kind == VGPU_MEMORY_DEVICE) {
        count_move(from.device, to.device, bytes);
    }
}

// The last range that a thread counted in, and what it is. Valid while no mapping changes.
struct last_range {
    unsigned generation;
    enum vgpu_memory_kind kind;
    uintptr_t base;
    size_t bytes;
    int device;
};

static const struct last_range *look_up(const void *address)
{
    static __thread struct last_range last;
    unsigned now = atomic_load_explicit(&vgpu_memory_generation, memory_order_acquire);
    if (last.generation != now || (uintptr_t)address - last.base >= last.bytes) {
        struct vgpu_memory_range range = vgpu_memory_find(address);
        last.generation = now;
        last.kind = range.kind;
        last.base = range.base;
        last.bytes = range.bytes;
        last.device = range.device;
    }
    return &last;
}

static void count_access(int device, const void *address, size_t bytes, int is_store)
{
    const struct last_range *range = look_up(address);
    if (range->kind != VGPU_MEMORY_DEVICE) {
        return;
    }
    if (is_store) {
        count_move(device, range->device, bytes);
    } else {
        count_move(range->device, device, bytes);
    }
}

void vgpu_count_pause(bool now_paused)
{
    paused = now_paused;
}

void vgpu_count_access(const void *address, size_t bytes, int is_store)
{
    if (vgpu_counting && vgpu_running_device && !paused) {
        count_access(vgpu_running_device->ordinal, address, bytes, is_store);
    }
}

void vgpuCountTransfer(const void *address, size_t bytes, int is_store)
{
    if (!vgpu_counting) {
        return;
    }
    struct vgpu_device *device = vgpu_current_device();
    if (device) {
        count_access(device->ordinal, address, bytes, is_store);
    }
}

void vgpuCountDeviceTransfer(int device, size_t bytes, int is_store)
{
    struct vgpu_device *own = vgpu_counting ? vgpu_current_device() : NULL;
    if (own && valid(device)) {
        count_move(is_store ? own->ordinal : device, is_store ? device : own->ordinal, bytes);
    }
}

void vgpu_count_multimem(const struct vgpu_multimem_range *range, size_t bytes, bool is_load)
{
    struct vgpu_device *device = vgpu_current_device();
    if (!vgpu_counting || !device) {
        return;
    }
    struct table *table = my_table();
    int self = device->ordinal;
    const int *owner = (const int *)(range->member + range->member_count);
    for (int i = 0; i < range->member_count; i++) {
        if (!valid(owner[i])) {
            continue;
        }
        add_port(table, is_load ? OUT : IN, owner[i], bytes);
        add_link(table, is_load ? owner[i] : self, is_load ? self : owner[i], bytes);
    }
    add_port(table, is_load ? IN : OUT, self, bytes);
    add(&table->field[is_load ? MULTIMEM_LOADS : MULTIMEM_STORES][self], 1);
}

// ---- Reading -----------------------------------------------------------------------------------

static void sum(struct totals *totals)
{
    memset(totals, 0, sizeof(*totals));
    for (int d = 0; d < VGPU_MAX_DEVICES; d++) {
        totals->barriers[d] = atomic_load_explicit(&vgpu_counted_barriers[d], memory_order_relaxed);
        totals->launches[d] = atomic_load_explicit(&vgpu_counted_launches[d], memory_order_relaxed);
    }
    for (struct table *t = atomic_load(&tables); t; t = t->next) {
        for (int d = 0; d < VGPU_MAX_DEVICES; d++) {
            for (int f = 0; f < FIELD_COUNT; f++) {
                totals->field[f][d] += atomic_load_explicit(&t->field[f][d], memory_order_relaxed);
            }
        }
        const _Atomic uint64_t *link = &t->link[0][0][0];
        uint64_t *total = &totals->link[0][0][0];
        for (size_t i = 0; i < sizeof(totals->link) / sizeof(*total); i++) {
            total[i] += atomic_load_explicit(&link[i], memory_order_relaxed);
        }
    }
}

static void set_counting(bool on)
{
    __atomic_store_n(&vgpu_counting, on, __ATOMIC_RELEASE);
}

void vgpuStatsStart(void)
{
    pthread_mutex_lock(&lock);
    sum(&start);
    pthread_mutex_unlock(&lock);
    set_counting(true);
}

void vgpuStatsStop(void)
{
    set_counting(false);
}

int vgpuStatsRead(struct vgpu_device_stats *stats, int count)
{
    static struct totals now; // under the lock
    int devices = vgpu_device_count();
    pthread_mutex_lock(&lock);
    sum(&now);
    for (int d = 0; d < count && d < devices; d++) {
        uint64_t value[FIELD_COUNT];
        for (int f = 0; f < FIELD_COUNT; f++) {
            value[f] = now.field[f][d] - start.field[f][d];
        }
        struct vgpu_device_stats one = {
            .bytes_in = value[IN],
            .bytes_out = value[OUT],
            .bytes_local = value[LOCAL],
            .multimem_loads = value[MULTIMEM_LOADS],
            .multimem_stores = value[MULTIMEM_STORES],
            .barriers = now.barriers[d] - start.barriers[d],
            .launches = now.launches[d] - start.launches[d],
            .messages_in = value[MESSAGES + IN],
            .messages_out = value[MESSAGES + OUT],
            .messages_local = value[MESSAGES + LOCAL],
        };
        stats[d] = one;
    }
    pthread_mutex_unlock(&lock);
    return devices;
}

static uint64_t read_link(enum link_field field, int from, int to)
{
    if (!valid(from) || !valid(to)) {
        return 0;
    }
    uint64_t value = 0;
    pthread_mutex_lock(&lock);
    for (struct table *t = atomic_load(&tables); t; t = t->next) {
        value += atomic_load_explicit(&t->link[field][from][to], memory_order_relaxed);
    }
    value -= start.link[field][from][to];
    pthread_mutex_unlock(&lock);
    return value;
}

uint64_t vgpuStatsLink(int from, int to)
{
    return read_link(LINK_BYTES, from, to);
}

uint64_t vgpuStatsLinkMessages(int from, int to)
{
    return read_link(LINK_MESSAGES, from, to);
}
