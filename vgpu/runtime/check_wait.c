// Waits that nothing can end.
//
// Each worker looks 20 times a second whether its blocks' threads do anything but wait: at a
// meeting of the block, at a barrier between ranks (which says so itself), or in a loop that comes
// back to the same registers and stack. The watchdog asks whether that holds for all workers, and
// whether anybody else could end it: a block not yet begun, another process, a host thread that
// neither waits for the kernels nor sleeps for good (check_host.c). If nobody can, the kernels end
// with one report. If somebody could, it is a warning after 10 s, then after 20, 40 and so on.
// SPDX-License-Identifier: Apache-2.0
#include "block.h"
#include "check.h"
#include "error.h"
#include "pool.h"

#include "settings.h"
#include "vgpu/check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    THREADS_HASHED = 4096, // of a worker's, at a look; with more nothing is sure
    BLOCKS_TOLD = 16,      // of a worker's, in a report
    HOST_LOOKS = 4,        // of the watchdog's, at which no host thread could end the wait
    WARN_SECONDS = 10,     // VGPU_CHECK_SECONDS
    LONGEST_SECONDS = 86400,
};
static const uint64_t LOOK_NS = 50000000;
static const uint64_t SURE_NS = 1500000000;   // without any change
static const uint64_t FRESH_NS = 700000000;   // a worker's look counts for so long
static const uint64_t ANSWER_NS = 5000000000; // for workers to say where their threads are

static atomic_bool outsiders;
static atomic_uint question; // the watchdog's; workers answer it
static atomic_uint verdict;  // the question whose answers end all kernels

// After how long a wait that somebody might end is warned of; then after twice as long, and so on.
static uint64_t warn_ns = WARN_SECONDS * UINT64_C(1000000000); // constant once the process runs

void vgpu_check_read_seconds(void)
{
    const char *text = vgpu_setting(VGPU_SETTING_CHECK_SECONDS);
    char *end = NULL;
    if (!text || !*text) {
        return;
    }
    long seconds = strtol(text, &end, 10);
    if (*end != '\0' || seconds < 1 || seconds > LONGEST_SECONDS) {
        vgpu_say("VGPU_CHECK_SECONDS is \"%s\"; it may be 1 to %d. %d is used", text,
                 LONGEST_SECONDS, WARN_SECONDS);
        return;
    }
    warn_ns = (uint64_t)seconds * 1000000000;
}

void vgpuCheckOtherProcesses(void)
{
    vgpu_check_outsiders();
}

void vgpu_check_outsiders(void)
{
    atomic_store_explicit(&outsiders, true, memory_order_relaxed);
}

// ---- A worker's look ----------------------------------------------------------------------------

static inline uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9E3779B97F4A7C15ull;
    return hash ^ hash >> 29;
}

// Everything between the saved stack pointer and the stack's top, which the address sanitizer may
// have poisoned in part.
__attribute__((no_sanitize("address"))) static uint64_t hash_stack(uint64_t hash,
                                                                   const struct vgpu_thread *thread)
{
#ifdef VGPU_FIBER_UCONTEXT
    return mix(hash, (uintptr_t)thread);
#else
    const uint64_t *word = thread->context.stack_pointer;
    const uint64_t *top = (const uint64_t *)(const void *)thread->stack->top;
    for (; word < top; word++) {
        hash = mix(hash, *word);
    }
    return hash;
#endif
}

static uintptr_t depth_of(const struct vgpu_thread *thread)
{
#ifdef VGPU_FIBER_UCONTEXT
    (void)thread;
    return 0;
#else
    return (uintptr_t)(thread->stack->top - (const char *)thread->context.stack_pointer);
#endif
}

// What a look finds.
struct look {
    uint64_t hash;      // changes when anything happens in the worker's blocks
    bool sure;          // nothing in them can change by itself
    bool polls;         // a thread reads memory in a loop: whoever writes it can end that
    uint64_t oldest_ns; // since when a block's threads have been where they are
    unsigned hashed;
};

// Threads of a block do not run while their worker looks at them; the thread sanitizer does not
// know.
__attribute__((no_sanitize_thread)) static void look_at_block(struct vgpu_block *block,
                                                              uint64_t now, struct look *look)
{
    uint64_t where = mix(block->progress, block->launch_serial + block->number);
    look->sure &= block->started == block->thread_count && !block->launch->task;
    look->hash = mix(look->hash, where);
    const struct vgpu_thread *thread = block->yielded.first;
    for (; thread; thread = thread->next) {
        const struct vgpu_barrier_use *use = thread->waits_for;
        where = mix(where, depth_of(thread));
        if (use) {
            look->sure &= !use->timed;
            where = mix(mix(where, (uintptr_t)use), use->round);
            look->hash = mix(mix(look->hash, (uintptr_t)use), use->round);
        } else if (look->hashed++ < THREADS_HASHED) {
            look->hash = hash_stack(look->hash, thread);
        }
        look->polls |= !use;
    }
    if (where != block->check_where) {
        block->check_where = where;
        block->check_since_ns = now;
    }
    if (!block->launch->task && block->check_since_ns < look->oldest_ns) {
        look->oldest_ns = block->check_since_ns;
    }
}

static struct look look_at_blocks(struct vgpu_worker *worker, uint64_t now)
{
    struct look look = {
        .hash = worker->resident_count, .sure = !worker->deferred_launch, .oldest_ns = now};
    struct vgpu_block *block = worker->resident;
    for (unsigned left = worker->resident_count; left > 0; left--, block = block->next) {
        look_at_block(block, now, &look);
    }
    look.sure &= look.hashed <= THREADS_HASHED;
    return look;
}

// ---- Saying where threads are -------------------------------------------------------------------

static bool are_together(const struct vgpu_thread *a, const struct vgpu_thread *b)
{
    const struct vgpu_barrier_use *mine = a->waits_for;
    const struct vgpu_barrier_use *others = b->waits_for;
    return a->state == b->state &&
           (a->state == VGPU_THREAD_ENDED || a->state == VGPU_THREAD_RUNNABLE ||
            a->place == b->place) &&
           (a->state != VGPU_THREAD_AT_BARRIER || a->barrier == b->barrier) &&
           (a->state != VGPU_THREAD_AT_WARP || a->warp_mask == b->warp_mask) &&
           (a->state != VGPU_THREAD_RUNNABLE || mine || others || depth_of(a) == depth_of(b)) &&
           (a->state != VGPU_THREAD_RUNNABLE || !mine == !others) &&
           (!mine || !others || mine->record == others->record);
}

static void describe_threads(struct vgpu_worker *worker, struct vgpu_block *block, unsigned first,
                             unsigned last, FILE *out)
{
    struct vgpu_thread *thread = &block->thread[first];
    if (first == last) {
        (void)fprintf(out, "\n      thread %u ", first);
    } else {
        (void)fprintf(out, "\n      threads %u-%u ", first, last);
    }
    if (thread->state == VGPU_THREAD_ENDED) {
        (void)fputs(first == last ? "has ended" : "have ended", out);
        return;
    }
    struct vgpu_trace trace;
    const char *place = NULL;
    if (vgpu_block_trace(worker, thread, &trace)) {
        place = vgpu_place_of_trace(&trace);
    }
    (void)fprintf(out, "%s at %s: ", first == last ? "waits" : "wait",
                  place ? place : "an unknown place");
    if (thread->state == VGPU_THREAD_AT_WARP) {
        (void)fprintf(out, "in the warp for mask 0x%08x", thread->warp_mask);
    } else if (thread->state == VGPU_THREAD_AT_BARRIER && thread->barrier != 0) {
        (void)fprintf(out, "at barrier %d of the block", thread->barrier);
    } else if (thread->state == VGPU_THREAD_AT_BARRIER) {
        (void)fputs("at __syncthreads", out);
    } else if (thread->waits_for) {
        (void)fputs("at ", out);
        vgpu_check_describe_wait(thread->waits_for, out);
    } else {
        (void)fputs("in a loop that reads memory until somebody else writes it", out);
    }
}

void vgpu_check_describe_threads(struct vgpu_worker *worker, struct vgpu_block *block, FILE *out)
{
    enum { GROUPS_TOLD = 16 };
    unsigned first = 0;
    for (int group = 0; first < block->started && group < GROUPS_TOLD; group++) {
        unsigned last = first;
        while (last + 1 < block->started &&
               are_together(&block->thread[first], &block->thread[last + 1])) {
            last++;
        }
        describe_threads(worker, block, first, last, out);
        first = last + 1;
    }
    if (first < block->started) {
        (void)fprintf(out, "\n      and %u more thread%s", block->started - first,
                      block->started - first == 1 ? "" : "s");
    }
}

static void describe_block(struct vgpu_worker *worker, struct vgpu_block *block, FILE *out)
{
    const struct vgpu_launch *launch = block->launch;
    const struct vgpu_kernel *kernel = launch->kernel;
    int rank = vgpu_check_rank_of(launch);
    (void)fputs("\n  ", out);
    if (rank >= 0) {
        (void)fprintf(out, "rank %d, ", rank);
    }
    (void)fprintf(out, "%s: kernel %s", vgpu_device_name(launch->operation.device->ordinal).text,
                  launch->name);
    if (kernel && kernel->file) {
        (void)fprintf(out, " (%s:%d)", kernel->file, kernel->line);
    }
    (void)fprintf(out, ": block (%u,%u,%u)", block->index.x, block->index.y, block->index.z);
    vgpu_check_describe_threads(worker, block, out);
}

// Says where the worker's threads are.
static void answer(struct vgpu_worker *worker, unsigned asked)
{
    struct vgpu_check_worker *check = &worker->check;
    uint64_t now = vgpu_now_ns();
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out) {
        struct vgpu_block *block = worker->resident;
        unsigned told = 0;
        unsigned stuck = 0;
        for (unsigned left = worker->resident_count; left > 0; left--, block = block->next) {
            if (block->launch->task || now - block->check_since_ns < SURE_NS) {
                continue;
            }
            if (++stuck <= BLOCKS_TOLD) {
                describe_block(worker, block, out);
                told++;
            }
        }
        if (told < stuck) {
            (void)fprintf(out, "\n  and %u more block%s", stuck - told,
                          stuck - told == 1 ? "" : "s");
        }
        if (fclose(out) != 0) {
            free(text);
            text = NULL;
        }
    }
    check->text = text;
    check->hash = look_at_blocks(worker, now).hash; // being asked has moved the threads' stacks
    atomic_store_explicit(&check->answered, asked, memory_order_release);
}

// The report has been said: everything that this worker runs ends.
static void end_launches(struct vgpu_worker *worker)
{
    struct vgpu_block *block = worker->resident;
    for (unsigned left = worker->resident_count; left > 0; left--, block = block->next) {
        atomic_store(&block->launch->failed, true);
        vgpu_device_fail(block->launch->operation.device, cudaErrorLaunchTimeout);
    }
}

void vgpu_check_round(struct vgpu_worker *worker)
{
    struct vgpu_check_worker *check = &worker->check;
    unsigned asked = atomic_load_explicit(&question, memory_order_acquire);
    uint64_t now = vgpu_now_ns();
    if (asked == atomic_load_explicit(&check->answered, memory_order_relaxed) &&
        now < check->next_ns) {
        return;
    }
    struct look look = look_at_blocks(worker, now);
    if (look.hash != check->hash) {
        check->hash = look.hash;
        check->changed_ns = now;
    }
    atomic_store_explicit(&check->stuck_ns, look.sure ? check->changed_ns : 0,
                          memory_order_relaxed);
    atomic_store_explicit(&check->polls, look.polls, memory_order_relaxed);
    atomic_store_explicit(&check->oldest_ns, look.oldest_ns, memory_order_relaxed);
    atomic_store_explicit(&check->looked_ns, now, memory_order_release);
    check->next_ns = now + LOOK_NS;
    unsigned answered = atomic_load_explicit(&check->answered, memory_order_relaxed);
    if (asked != answered) {
        answer(worker, asked);
    } else if (atomic_load_explicit(&verdict, memory_order_acquire) == asked &&
               check->ended != asked) {
        check->ended = asked;
        end_launches(worker);
    }
}

// ---- The watchdog's part ------------------------------------------------------------------------

struct waiting {
    uint64_t since_ns;  // the last change in any worker's blocks; 0: something may change by itself
    uint64_t oldest_ns; // since when a block has been where it is; UINT64_MAX: none has
    bool any;           // there are blocks
    bool polls;         // a thread of them reads memory in a loop
};

static struct waiting look_at_workers(struct vgpu_worker *workers, int count, uint64_t now)
{
    struct waiting all = {.since_ns = 1, .oldest_ns = UINT64_MAX};
    for (int i = 0; i < count; i++) {
        if (__atomic_load_n(&workers[i].resident_count, __ATOMIC_RELAXED) == 0) {
            continue;
        }
        const struct vgpu_check_worker *check = &workers[i].check;
        uint64_t looked = atomic_load_explicit(&check->looked_ns, memory_order_acquire);
        uint64_t stuck = atomic_load_explicit(&check->stuck_ns, memory_order_relaxed);
        uint64_t oldest = atomic_load_explicit(&check->oldest_ns, memory_order_relaxed);
        all.any = true;
        all.polls |= atomic_load_explicit(&check->polls, memory_order_relaxed);
        if (looked && oldest < all.oldest_ns) {
            all.oldest_ns = oldest;
        }
        if (stuck == 0 || now - looked > FRESH_NS) {
            all.since_ns = 0;
        } else if (all.since_ns && stuck > all.since_ns) {
            all.since_ns = stuck;
        }
    }
    return all;
}

// Asks the workers where their threads are. The text is to be freed; NULL: they do not answer.
static char *ask_workers(struct vgpu_worker *workers, int count)
{
    unsigned asked = atomic_fetch_add(&question, 1) + 1;
    uint64_t end = vgpu_now_ns() + ANSWER_NS;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    bool complete = out != NULL;
    for (int i = 0; i < count && complete; i++) {
        struct vgpu_check_worker *check = &workers[i].check;
        bool busy = true;
        while (busy && atomic_load_explicit(&check->answered, memory_order_acquire) != asked) {
            struct timespec pause = {.tv_nsec = 1000000};
            (void)nanosleep(&pause, NULL);
            busy = __atomic_load_n(&workers[i].resident_count, __ATOMIC_RELAXED) > 0;
            complete &= vgpu_now_ns() < end;
            busy &= complete;
        }
        if (atomic_load_explicit(&check->answered, memory_order_acquire) == asked) {
            (void)fputs(check->text ? check->text : "", out);
            free(check->text);
            check->text = NULL;
        }
    }
    if (out && fclose(out) != 0) {
        complete = false;
    }
    if (!complete) {
        free(text);
        text = NULL;
    }
    return text;
}

static void report(const char *head, const char *tail, const char *text)
{
    size_t bytes = strlen(head) + strlen(tail) + strlen(text) + 2;
    char *all = malloc(bytes);
    if (all) {
        (void)snprintf(all, bytes, "%s%s%s", head, text, tail);
        vgpu_check_say(all);
        free(all);
    }
}

static void end_deadlock(struct vgpu_worker *workers, int count)
{
    char *text = ask_workers(workers, count);
    if (text && *text) {
        report(
            "deadlock: all kernels of this process wait, and nothing is left that could end that "
            "(cudaErrorLaunchTimeout)",
            "", text);
        atomic_store_explicit(&verdict, atomic_load(&question), memory_order_release);
    }
    free(text);
}

static void warn(struct vgpu_worker *workers, int count, uint64_t seconds, bool strangers)
{
    char head[160];
    char *text = ask_workers(workers, count);
    (void)snprintf(head, sizeof(head),
                   "these blocks have been waiting for %llu s:", (unsigned long long)seconds);
    if (text && *text) {
        report(head,
               atomic_load(&outsiders) ? "\n  another process may yet end this: the kernels go on"
               : strangers
                   ? "\n  another process with which this one shares memory, or a signal "
                     "handler, may yet end this: the kernels go on"
                   : "\n  other work or a thread of the host may yet end this: the kernels go on",
               text);
    }
    free(text);
}

bool vgpu_check_look(struct vgpu_worker *workers, int count)
{
    // The watchdog alone reads and writes these.
    static uint64_t last_change;
    static uint64_t oldest;
    static uint64_t warn_after;
    static int host_looks;
    uint64_t now = vgpu_now_ns();
    struct waiting all = look_at_workers(workers, count, now);
    if (all.oldest_ns != oldest) {
        oldest = all.oldest_ns;
        warn_after = warn_ns;
    }
    if (!all.any || all.since_ns == 0 || all.since_ns != last_change) {
        last_change = all.any ? all.since_ns : 0;
        host_looks = 0;
    } else {
        bool alone = !atomic_load_explicit(&outsiders, memory_order_relaxed) &&
                     !vgpu_pool_has_pending() && vgpu_check_host_is_stuck(now) &&
                     !(all.polls && vgpu_check_strangers_write());
        host_looks = alone ? host_looks + 1 : 0;
    }
    if (host_looks >= HOST_LOOKS && now - all.since_ns >= SURE_NS) {
        host_looks = 0;
        end_deadlock(workers, count);
    } else if (all.any && oldest < now && now - oldest >= warn_after) {
        warn_after *= 2;
        warn(workers, count, (now - oldest) / 1000000000,
             all.polls && vgpu_check_strangers_write());
    }
    return all.any;
}
