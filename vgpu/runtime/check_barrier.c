// Barriers, followed in checking mode: those between ranks, by what each member did last with each;
// and __syncthreads, by the line that each thread comes from.
// SPDX-License-Identifier: Apache-2.0
#include "block.h"
#include "check.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 1024 };

// What one member did with one barrier, seen from this process.
struct visit {
    const void *record; // the barrier: where member 0 keeps it
    int member;
    int rank, index;
    const char *kind;
    uint64_t arrived; // rounds that it has announced
    bool open;
    const char *kernel;  // outlives its launches
    uint64_t launch;     // the serial number of the last one
    uint64_t warned;     // the launch that was warned of
    uint3 block, thread; // who opened it last, or holds it
    // Return addresses: of the last step, of its opening, of the last round's announcement.
    uintptr_t place;
    uintptr_t opened_from;
    uintptr_t announced_from;
    struct visit *next;
};

// Members of one barrier are in different buckets, so that they do not wait for each other here.
static struct bucket {
    _Alignas(64) atomic_bool taken; // guards the list; held for some instructions
    struct visit *first;
} table[BUCKETS];

// The thread sanitizer sees neither the locks, whose order would hide races between ranks, nor what
// they guard.
extern void AnnotateIgnoreSyncBegin(const char *file, int line) __attribute__((weak));
extern void AnnotateIgnoreSyncEnd(const char *file, int line) __attribute__((weak));
#define GUARDED_ACCESS __attribute__((no_sanitize_thread))

static void lock(struct bucket *bucket)
{
    if (AnnotateIgnoreSyncBegin) {
        AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
    }
    while (atomic_exchange_explicit(&bucket->taken, true, memory_order_acquire)) {
        (void)sched_yield();
    }
}

static void unlock(struct bucket *bucket)
{
    atomic_store_explicit(&bucket->taken, false, memory_order_release);
    if (AnnotateIgnoreSyncEnd) {
        AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
    }
}

static struct bucket *bucket_of(const void *record, int member)
{
    return &table[((uintptr_t)record / 64 + (size_t)member * 37) % BUCKETS];
}

// In a locked bucket; NULL where there is none.
GUARDED_ACCESS static struct visit *find_visit(struct bucket *bucket, const void *record,
                                               int member)
{
    for (struct visit *v = bucket->first; v; v = v->next) {
        if (v->record == record && v->member == member) {
            return v;
        }
    }
    return NULL;
}

// A copy of what is known of a member at a barrier; false: nothing is.
GUARDED_ACCESS static bool look_up(const void *record, int member, struct visit *visit_out)
{
    struct bucket *bucket = bucket_of(record, member);
    lock(bucket);
    const struct visit *visit = find_visit(bucket, record, member);
    if (visit) {
        *visit_out = *visit;
    }
    unlock(bucket);
    return visit != NULL;
}

GUARDED_ACCESS static struct visit *get_visit(struct bucket *bucket,
                                              const struct vgpu_barrier_use *use)
{
    struct visit *visit = find_visit(bucket, use->record, use->member);
    if (!visit) {
        visit = calloc(1, sizeof(*visit));
        if (visit) {
            visit->record = use->record;
            visit->member = use->member;
            visit->arrived = use->round;
            visit->next = bucket->first;
            bucket->first = visit;
        }
    }
    return visit;
}

GUARDED_ACCESS void vgpu_check_forget_barriers(uintptr_t base, size_t bytes)
{
    for (int i = 0; i < BUCKETS; i++) {
        lock(&table[i]);
        struct visit **link = &table[i].first;
        while (*link) {
            struct visit *visit = *link;
            if ((uintptr_t)visit->record - base < bytes) {
                *link = visit->next;
                free(visit);
            } else {
                link = &visit->next;
            }
        }
        unlock(&table[i]);
    }
}

// Two groups have one barrier open.
static void refuse_second(const struct vgpu_barrier_use *use, const struct visit *first,
                          uintptr_t place)
{
    struct vgpu_thread *thread = vgpu_current_thread;
    const uint3 b = thread->block->index;
    const char *line = vgpu_place_of(first->opened_from, false);
    vgpu_fault(cudaErrorInvalidValue,
               "%s %d of rank %d is used by block (%u,%u,%u) and by block (%u,%u,%u) at once: "
               "opened by thread (%u,%u,%u) of kernel %s at %s and not yet closed, opened again "
               "by thread (%u,%u,%u) at %s; give each group its own index",
               use->kind, use->index, use->rank, first->block.x, first->block.y, first->block.z,
               b.x, b.y, b.z, first->thread.x, first->thread.y, first->thread.z, first->kernel,
               line, thread->index.x, thread->index.y, thread->index.z,
               vgpu_place_of(place, false));
}

// Blocks of one launch have opened a barrier one after the other, the first done before the second
// began. On a GPU they may run at the same time.
static void warn_of_second(const struct vgpu_barrier_use *use, const struct visit *first,
                           uintptr_t place)
{
    enum { TEXT_BYTES = 800 };
    char text[TEXT_BYTES];
    const struct vgpu_block *block = vgpu_current_thread->block;
    const struct vgpu_kernel *kernel = block->launch->kernel;
    const uint3 a = first->block;
    const uint3 b = block->index;
    char where[128] = "";
    if (kernel && kernel->file) {
        (void)snprintf(where, sizeof(where), " (%s:%d)", kernel->file, kernel->line);
    }
    const char *line = vgpu_place_of(first->opened_from, false);
    (void)snprintf(text, sizeof(text),
                   "rank %d, %s: kernel %s%s: warning: %s %d of rank %d is used by block "
                   "(%u,%u,%u), which opened it at %s and has closed it, and now by block "
                   "(%u,%u,%u) of the same launch at %s: on a GPU blocks run at the same time: "
                   "give each its own index, unless they are ordered",
                   use->rank, vgpu_device_name(block->device).text, block->launch->name, where,
                   use->kind, use->index, use->rank, a.x, a.y, a.z, line, b.x, b.y, b.z,
                   vgpu_place_of(place, false));
    vgpu_check_say(text);
}

// Whether another block of the launch, not a cooperative one, has had the barrier that `block`
// opens, and nobody has been told yet.
GUARDED_ACCESS static bool is_second(const struct visit *visit, const struct vgpu_block *block)
{
    const uint3 a = visit->block;
    const uint3 b = block->index;
    return !visit->open && visit->launch == block->launch_serial &&
           visit->warned != block->launch_serial && !block->launch->cooperative &&
           (a.x != b.x || a.y != b.y || a.z != b.z);
}

// Writes a step down, in a locked bucket.
GUARDED_ACCESS static void note_step(struct visit *visit, enum vgpu_barrier_step step,
                                     const struct vgpu_barrier_use *use, uintptr_t place)
{
    const struct vgpu_thread *thread = vgpu_current_thread;
    visit->kind = use->kind;
    visit->rank = use->rank;
    visit->index = use->index;
    visit->kernel = thread->block->name;
    visit->launch = thread->block->launch_serial;
    visit->block = thread->block->index;
    visit->thread = thread->index;
    if (step == VGPU_BARRIER_OPENED) {
        visit->open = true;
        visit->place = place;
        visit->opened_from = place;
    } else if (step == VGPU_BARRIER_ARRIVED) {
        visit->arrived = use->round + 1;
        visit->place = place;
        visit->announced_from = place;
    } else {
        visit->open = false;
    }
}

GUARDED_ACCESS void vgpu_check_barrier(enum vgpu_barrier_step step,
                                       const struct vgpu_barrier_use *use)
{
    uintptr_t place = (uintptr_t)__builtin_return_address(0);
    struct vgpu_thread *thread = vgpu_current_thread;
    struct visit other = {0};
    bool taken = false;
    bool second = false;
    if (!thread) {
        return;
    }
    struct bucket *bucket = bucket_of(use->record, use->member);
    lock(bucket);
    struct visit *visit = get_visit(bucket, use);
    if (visit) {
        taken = step == VGPU_BARRIER_OPENED && visit->open;
        second = step == VGPU_BARRIER_OPENED && is_second(visit, thread->block);
        other = *visit;
        visit->warned = second ? thread->block->launch_serial : visit->warned;
        note_step(visit, step, use, place);
    }
    unlock(bucket);
    if (taken) {
        refuse_second(use, &other, place);
    }
    if (second) {
        warn_of_second(use, &other, place);
    }
}

GUARDED_ACCESS void vgpu_check_wait(const struct vgpu_barrier_use *use)
{
    struct vgpu_thread *thread = vgpu_current_thread;
    if (thread) {
        thread->waits_for = use;
        thread->place = (uintptr_t)__builtin_return_address(0);
    }
}

// ---- Where the others are -----------------------------------------------------------------------

// Another barrier that the rank has open on its device; false: none.
GUARDED_ACCESS static bool find_other_open(const struct vgpu_barrier_use *use, int rank, int device,
                                           struct visit *visit_out)
{
    bool found = false;
    for (int i = 0; i < BUCKETS && !found; i++) {
        lock(&table[i]);
        for (const struct visit *v = table[i].first; v && !found; v = v->next) {
            found = v->rank == rank && v->open && v->record != use->record &&
                    vgpu_check_device_of(v->record, rank) == device;
            if (found) {
                *visit_out = *v;
            }
        }
        unlock(&table[i]);
    }
    return found;
}

// How often a member came to a barrier, and where; NULL: nothing is known of it.
static void describe_visits(const struct visit *visit, FILE *out)
{
    if (!visit || visit->arrived == 0) {
        (void)fputs(" never came to it", out);
    } else {
        (void)fprintf(out, " came to it for %llu round%s, last at %s",
                      (unsigned long long)visit->arrived, visit->arrived == 1 ? "" : "s",
                      vgpu_place_of(visit->announced_from, false));
    }
    if (visit && visit->open && visit->place == visit->opened_from) {
        (void)fprintf(out, " (opened it%s at %s)", visit->arrived == 0 ? "" : " again",
                      vgpu_place_of(visit->opened_from, false));
    }
}

static void describe_absent(const struct vgpu_barrier_use *use, int member, FILE *out)
{
    int rank = use->rank + (member - use->member) * use->rank_step;
    int device = vgpu_check_device_of(use->record, rank);
    (void)fprintf(out, "\n        rank %d", rank);
    if (device < 0) {
        (void)fprintf(out, " has not arrived; it is in another process");
        return;
    }
    struct visit here = {0};
    struct visit there = {0};
    describe_visits(look_up(use->record, member, &here) ? &here : NULL, out);
    if (find_other_open(use, rank, device, &there)) {
        (void)fprintf(out, "; block (%u,%u,%u) of its kernel %s is at %s %d, round %llu, at %s",
                      there.block.x, there.block.y, there.block.z, there.kernel, there.kind,
                      there.index, (unsigned long long)there.arrived,
                      vgpu_place_of(there.place, false));
    } else {
        (void)fputs("; ", out);
        vgpu_check_describe_device(device, out);
    }
}

// Whether a member has not announced the round that `use` waits for.
static bool is_absent(const struct vgpu_barrier_use *use, int member)
{
    if (member == use->member) {
        return false;
    }
    if (!use->counts) {
        uint32_t word = __atomic_load_n(&use->inbox[member], __ATOMIC_ACQUIRE);
        return (int32_t)(word - use->target) < 0;
    }
    struct visit visit;
    return !look_up(use->record, member, &visit) || visit.arrived <= use->round;
}

void vgpu_check_describe_wait(const struct vgpu_barrier_use *use, FILE *out)
{
    enum { TOLD = 8 };
    int absent = 0;
    (void)fprintf(out, "%s %d of rank %d, round %llu", use->kind, use->index, use->rank,
                  (unsigned long long)use->round + 1);
    for (int m = 0; m < use->members; m++) {
        if (is_absent(use, m) && absent++ < TOLD) {
            describe_absent(use, m, out);
        }
    }
    if (absent > TOLD) {
        (void)fprintf(out, "\n        and %d more rank%s", absent - TOLD,
                      absent - TOLD == 1 ? "" : "s");
    }
}

// ---- __syncthreads ------------------------------------------------------------------------------

void vgpu_check_meeting(struct vgpu_block *block, uintptr_t first, uintptr_t place)
{
    if (!vgpu_places_differ(first, place)) {
        return;
    }
    const struct vgpu_thread *waiting = block->barrier[0].waiting.first;
    uint3 index = waiting ? waiting->index : (uint3){0, 0, 0};
    unsigned waits = block->barrier[0].arrived;
    vgpu_fault(
        cudaErrorLaunchFailure,
        "divergent barrier: %u thread%s of the block wait%s at __syncthreads at %s (the "
        "first is (%u,%u,%u)), this one came to __syncthreads at %s: all threads must come to "
        "the same one",
        waits, waits == 1 ? "" : "s", waits == 1 ? "s" : "", vgpu_place_of(first, false), index.x,
        index.y, index.z, vgpu_place_of(place, false));
}
