// The table of ranges: against a plain list, and with readers while a writer works.
// SPDX-License-Identifier: Apache-2.0
#include "range_table.h"

#include "expect.h"

#include <pthread.h>
#include <stdlib.h>

static void add_find_remove(void)
{
    static struct vgpu_range_table table;
    struct vgpu_range r;
    EXPECT(!vgpu_range_find(&table, 5, &r));
    EXPECT(!vgpu_range_remove(&table, 5));
    struct vgpu_range a = {.base = 100, .bytes = 10, .info = 1};
    struct vgpu_range b = {.base = 110, .bytes = 5, .info = 2};
    struct vgpu_range over = {.base = 105, .bytes = 20, .info = 3};
    struct vgpu_range around = {.base = 90, .bytes = 11, .info = 3};
    struct vgpu_range nothing = {.base = 50, .bytes = 0};
    struct vgpu_range wraps = {.base = UINTPTR_MAX - 1, .bytes = 10};
    EXPECT(vgpu_range_add(&table, b));
    EXPECT(vgpu_range_add(&table, a));
    EXPECT(!vgpu_range_add(&table, over));
    EXPECT(!vgpu_range_add(&table, around));
    EXPECT(!vgpu_range_add(&table, nothing));
    EXPECT(!vgpu_range_add(&table, wraps));
    EXPECT(!vgpu_range_find(&table, 99, &r));
    EXPECT(vgpu_range_find(&table, 100, &r) && r.info == 1);
    EXPECT(vgpu_range_find(&table, 109, &r) && r.info == 1);
    EXPECT(vgpu_range_find(&table, 110, &r) && r.info == 2);
    EXPECT(!vgpu_range_find(&table, 115, &r));
    EXPECT(vgpu_range_next(&table, 0, &r) && r.base == 100);
    EXPECT(vgpu_range_set_info(&table, 100, 7));
    EXPECT(vgpu_range_find(&table, 100, &r) && r.info == 7);
    EXPECT(vgpu_range_remove(&table, 100));
    EXPECT(!vgpu_range_find(&table, 105, &r));
    EXPECT(vgpu_range_remove(&table, 110));
    EXPECT(!vgpu_range_next(&table, 0, &r));
}

static void many_in_random_order(void)
{
    enum { COUNT = 3000 };
    static bool in[COUNT];
    static struct vgpu_range_table table;
    srand(7);
    for (int step = 0; step < 20000; step++) {
        int i = rand() % COUNT;
        struct vgpu_range range = {
            .base = (uintptr_t)i * 64 + 64, .bytes = 48, .info = (unsigned)i};
        if (in[i]) {
            EXPECT(vgpu_range_remove(&table, range.base));
        } else {
            EXPECT(vgpu_range_add(&table, range));
        }
        in[i] = !in[i];
    }
    for (int i = 0; i < COUNT; i++) {
        struct vgpu_range r;
        EXPECT_EQ(vgpu_range_find(&table, (uintptr_t)i * 64 + 64 + 47, &r), in[i]);
        EXPECT(!vgpu_range_find(&table, (uintptr_t)i * 64 + 64 + 48, &r));
    }
}

static struct vgpu_range_table shared;
static atomic_bool stop;

// Range 1000 is always there; whatever else is found must be whole.
static void *read_all_the_time(void *argument)
{
    long *wrong = argument;
    unsigned seed = 1;
    while (!atomic_load(&stop)) {
        struct vgpu_range r;
        seed = seed * 1103515245 + 12345;
        if (!vgpu_range_find(&shared, 1000 * 64 + seed % 32, &r) || r.info != 1000) {
            ++*wrong;
        }
        uintptr_t i = (seed >> 8) % 2000;
        if (vgpu_range_find(&shared, i * 64, &r) && (r.base != i * 64 || r.info != i)) {
            ++*wrong;
        }
    }
    return NULL;
}

static void readers_beside_a_writer(void)
{
    pthread_t thread[2];
    long wrong[2] = {0, 0};
    struct vgpu_range constant = {.base = 1000 * 64, .bytes = 32, .info = 1000};
    EXPECT(vgpu_range_add(&shared, constant));
    for (int i = 0; i < 2; i++) {
        pthread_create(&thread[i], NULL, read_all_the_time, &wrong[i]);
    }
    for (int round = 0; round < 30; round++) {
        for (uintptr_t i = 500; i < 1500; i++) {
            struct vgpu_range range = {.base = i * 64, .bytes = 32, .info = i};
            if (i != 1000) {
                vgpu_range_add(&shared, range);
            }
        }
        for (uintptr_t i = 500; i < 1500; i++) {
            if (i != 1000) {
                vgpu_range_remove(&shared, i * 64);
            }
        }
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++) {
        pthread_join(thread[i], NULL);
        EXPECT_EQ(wrong[i], 0);
    }
}

int main(void)
{
    RUN(add_find_remove);
    RUN(many_in_random_order);
    RUN(readers_beside_a_writer);
    return expect_result();
}
