// The watchdog: names a thread of a kernel that has run for a second without letting others of its
// block run. It only looks; what it reads may just have changed, so it looks several times.
// SPDX-License-Identifier: Apache-2.0
#include "block.h"
#include "error.h"
#include "futex.h"
#include "pool.h"

#include <stdlib.h>

enum {
    LOOK_MS = 250,
    LOOK_NS = 250000000,
    LOOKS = 4, // alike, before it speaks
    IDLE_LOOKS = 8,
};

struct view {
    struct vgpu_block *block;
    unsigned switches;
    int looks;
    uint64_t spoken; // the launch that was spoken of
};

static struct vgpu_worker *watched;
static int watched_count;
static struct view *view;  // [watched_count]
static atomic_uint wanted; // futex: 0 while the watchdog sleeps until there is work

// Reads a worker's plain fields: the address they lie at is always valid, the values are hints.
#define HINT(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)

// Threads of the block that could run if the running one let them.
static bool others_could_run(struct vgpu_block *block)
{
    unsigned waiting = 0;
    for (int i = 0; i < VGPU_BARRIERS; i++) {
        waiting += HINT(block->barrier[i].arrived);
    }
    return HINT(block->live) > waiting + 1;
}

static void speak(struct vgpu_block *block, uint64_t *spoken)
{
    const char *name = HINT(block->name);
    uint64_t serial = HINT(block->launch_serial);
    if (!name || serial == *spoken) {
        return;
    }
    *spoken = serial;
    vgpu_say("%s: kernel %s: block (%u,%u,%u): a thread has run for %d ms without waiting or "
             "yielding while others of its block could run (a loop on a variable that is not "
             "volatile or atomic?)",
             vgpu_device_name(HINT(block->device)).text, name, HINT(block->index.x),
             HINT(block->index.y), HINT(block->index.z), LOOK_MS * LOOKS);
}

// Returns whether the worker runs a block.
static bool look_at(struct vgpu_worker *worker, struct view *last)
{
    struct vgpu_block *block = atomic_load_explicit(&worker->in_block, memory_order_relaxed);
    unsigned switches = atomic_load_explicit(&worker->switches, memory_order_relaxed);
    if (!block || block != last->block || switches != last->switches) {
        last->block = block;
        last->switches = switches;
        last->looks = 0;
    } else if (++last->looks == LOOKS && others_could_run(block)) {
        speak(block, &last->spoken);
    }
    return block != NULL;
}

static void *watch(void *argument)
{
    int idle = 0;
    for (;;) {
        struct timespec pause = {.tv_nsec = LOOK_NS};
        (void)nanosleep(&pause, NULL);
        bool busy = false;
        for (int i = 0; i < watched_count; i++) {
            busy |= look_at(&watched[i], &view[i]);
        }
        busy |= vgpu_checking && vgpu_check_look(watched, watched_count);
        idle = busy ? 0 : idle + 1;
        if (idle >= IDLE_LOOKS) {
            idle = 0;
            atomic_store(&wanted, 0);
            vgpu_futex_wait(&wanted, 0, 0);
        }
    }
    return argument;
}

void vgpu_watchdog_start(struct vgpu_worker *workers, int count)
{
    watched = workers;
    watched_count = count;
    view = calloc((size_t)count, sizeof(*view));
    if (view) {
        atomic_store(&wanted, 1);
        (void)vgpu_start_thread("vgpu-watch", watch,
                                NULL); // without it nothing but warnings is lost
    }
}

void vgpu_watchdog_wake(void)
{
    if (atomic_load_explicit(&wanted, memory_order_relaxed) == 0 &&
        atomic_exchange(&wanted, 1) == 0) {
        vgpu_futex_wake(&wanted, 1);
    }
}
