// Workers: each carries any number of resident blocks and runs them in turns.
//
// A worker that has nothing takes a block at once. One that has blocks takes another only when a
// few rounds over them changed nothing, and beyond its fair share only after a longer while: so
// block i of every launch runs close together, a grid larger than memory allows at once still runs,
// and blocks that wait for blocks not yet begun see them begin. The next block comes from the
// launch that is
// furthest behind. SPDX-License-Identifier: Apache-2.0
#include "pool.h"

#include "block.h"
#include "cores.h"
#include "error.h"
#include "futex.h"
#include "vgpu/native.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ADMIT_ROUNDS = 8,    // rounds without change before one more block is admitted
    FREE_BLOCKS = 8,     // resident blocks that need no proof that they only poll
    YIELD_ROUNDS = 16,   // rounds without change before the core is given away
    YIELD_GAP = 32,      // at most so many rounds until it is again
    CLOCK_ROUNDS = 256,  // rounds between looks at the clock where things change
    EXIT_WAIT_MS = 100,  // for workers to stop at the process's exit
    SLEEP_FIRST_US = 50, // then doubling
    SLEEP_LAST_US = 1000,
};
static const uint64_t ADMIT_LATE_NS = 200000;    // without change, before a worker takes more than
                                                 // its share
static const uint64_t ADMIT_ALWAYS_NS = 1000000; // between admissions, even where things change
static const uint64_t YIELD_ALONE_NS = 1000;     // a call to sched_yield where nobody else ran
static const uint64_t SLEEP_AFTER_NS = 2000000;  // of polling alone, before sleeps
static const uint64_t IDLE_SPIN_NS = 50000;      // without any block, before sleeping until woken
static const uint64_t STARVED_NS = 2000000000;   // no memory for threads and no change: it fails

static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER; // guards the list and, of listed
                                                              // launches, next_block
static struct vgpu_launch *first_launch;
static struct vgpu_launch *last_launch;

static struct vgpu_worker workers[VGPU_MAX_WORKERS];
static atomic_int worker_count; // constant soon after start_once; relaxed
static pthread_once_t start_once = PTHREAD_ONCE_INIT;

// Where the commands for gdb begin (vgpu/gdb/gdbinit).
__attribute__((used)) static const struct {
    struct vgpu_worker *workers;
    atomic_int *worker_count;
} vgpu_debugger = {workers, &worker_count};

static atomic_uint generation; // futex: changes with every launch added
static atomic_uint sleepers;   // workers in or near the futex
static atomic_ullong pending;  // blocks of listed launches that no worker has taken
static atomic_uint residents;  // blocks that workers hold
static atomic_bool stopping;   // the process exits
static atomic_uint parked;     // workers that have stopped

static __thread bool on_pool_thread;

bool vgpu_on_pool_thread(void)
{
    return on_pool_thread;
}

void vgpu_mark_pool_thread(void)
{
    on_pool_thread = true;
}

bool vgpu_pool_has_pending(void)
{
    return atomic_load(&pending) > 0;
}

// ---- The list of launches -----------------------------------------------------------------------

// Under the lock.
static void unlist(struct vgpu_launch *launch)
{
    launch->listed = false;
    *(launch->previous ? &launch->previous->next : &first_launch) = launch->next;
    *(launch->next ? &launch->next->previous : &last_launch) = launch->previous;
}

static void wake_sleepers(int count)
{
    atomic_fetch_add(&generation, 1);
    if (atomic_load(&sleepers) > 0) {
        vgpu_futex_wake(&generation, count);
    }
}

void vgpu_pool_add(struct vgpu_launch *launch)
{
    vgpu_order_release(launch);           // acquired by each thread of its blocks
    uint64_t count = launch->block_count; // once unlocked, the launch may end at any time
    if (vgpu_checking) {
        vgpu_check_launch_begins(launch);
    }
    pthread_mutex_lock(&pool_lock);
    launch->listed = true;
    launch->next = NULL;
    launch->previous = last_launch;
    *(last_launch ? &last_launch->next : &first_launch) = launch;
    last_launch = launch;
    atomic_fetch_add(&pending, count);
    pthread_mutex_unlock(&pool_lock);
    wake_sleepers(count < INT_MAX ? (int)count : INT_MAX);
    vgpu_watchdog_wake();
}

// Whether the worker may carry one more block of the launch.
static bool has_room(const struct vgpu_worker *worker, const struct vgpu_launch *launch)
{
    unsigned limit = worker->stacks.tsan_limit;
    return limit == 0 || worker->resident_threads + launch->threads <= limit;
}

// Takes the next block of the launch that is furthest behind; false: there is none, or none that
// the worker has room for.
static bool take_block(struct vgpu_worker *worker, struct vgpu_launch **launch_out,
                       uint64_t *number_out)
{
    pthread_mutex_lock(&pool_lock);
    struct vgpu_launch *best = NULL;
    for (struct vgpu_launch *launch = first_launch; launch; launch = launch->next) {
        if (!has_room(worker, launch)) {
            worker->out_of_stacks = true;
        } else if (!best || launch->next_block < best->next_block) {
            best = launch;
        }
    }
    if (best) {
        *launch_out = best;
        *number_out = best->next_block++;
        if (best->next_block == best->block_count) {
            unlist(best);
        }
        atomic_fetch_sub(&pending, 1);
    }
    pthread_mutex_unlock(&pool_lock);
    return best != NULL;
}

// `count` blocks of the launch are over. The last ones complete it.
static void finish_blocks(struct vgpu_launch *launch, uint64_t count)
{
    if (count == 0 || atomic_fetch_sub(&launch->unfinished, count) != count) {
        return;
    }
    vgpu_order_acquire(&launch->unfinished);
    if (vgpu_checking) {
        vgpu_check_launch_ends(launch);
    }
    vgpu_operation_complete(&launch->operation);
}

// The launch failed: no worker is to take its blocks any more. Returns how many nobody had taken.
static uint64_t drop_pending(struct vgpu_launch *launch)
{
    uint64_t dropped = 0;
    pthread_mutex_lock(&pool_lock);
    if (launch->listed) {
        dropped = launch->block_count - launch->next_block;
        launch->next_block = launch->block_count;
        unlist(launch);
        atomic_fetch_sub(&pending, dropped);
    }
    pthread_mutex_unlock(&pool_lock);
    return dropped;
}

// ---- Resident blocks ----------------------------------------------------------------------------

static void add_resident(struct vgpu_worker *worker, struct vgpu_block *block)
{
    if (worker->resident) {
        block->next = worker->resident;
        block->previous = worker->resident->previous;
        block->previous->next = block;
        block->next->previous = block;
    } else {
        block->next = block;
        block->previous = block;
        worker->resident = block;
    }
    __atomic_store_n(&worker->resident_count, worker->resident_count + 1, __ATOMIC_RELAXED);
    atomic_fetch_add_explicit(&residents, 1, memory_order_relaxed);
}

static void remove_resident(struct vgpu_worker *worker, struct vgpu_block *block)
{
    struct vgpu_launch *launch = block->launch;
    __atomic_store_n(&worker->resident_count, worker->resident_count - 1, __ATOMIC_RELAXED);
    atomic_fetch_sub_explicit(&residents, 1, memory_order_relaxed);
    block->previous->next = block->next;
    block->next->previous = block->previous;
    if (worker->resident == block) {
        worker->resident = worker->resident_count > 0 ? block->next : NULL;
    }
    bool failed = block->live > 0;
    vgpu_block_end(worker, block);
    finish_blocks(launch, 1 + (failed ? drop_pending(launch) : 0));
}

// Makes one more block resident; false: there is none, or no memory for it now.
static bool admit(struct vgpu_worker *worker)
{
    struct vgpu_launch *launch = worker->deferred_launch;
    uint64_t number = worker->deferred_block;
    if (!launch && !take_block(worker, &launch, &number)) {
        return false;
    }
    struct vgpu_block *block = vgpu_block_begin(worker, launch, number);
    if (!block && worker->resident_count == 0) {
        vgpu_fault_launch(launch, cudaErrorLaunchOutOfResources,
                          "no memory for a block of %u threads", launch->threads);
        worker->deferred_launch = NULL;
        finish_blocks(launch, 1 + drop_pending(launch));
        return true;
    }
    worker->deferred_launch = block ? NULL : launch;
    worker->deferred_block = number;
    if (block) {
        add_resident(worker, block);
    }
    return block != NULL;
}

// Whether the launch is to end: it failed, or its device did.
static bool is_doomed(struct vgpu_launch *launch)
{
    return atomic_load_explicit(&launch->failed, memory_order_relaxed) ||
           atomic_load_explicit(&launch->operation.device->sticky_error, memory_order_relaxed) !=
               cudaSuccess;
}

// One turn of one block. Returns whether anything changed that another thread could wait for.
static bool run_turn(struct vgpu_worker *worker, struct vgpu_block *block)
{
    if (is_doomed(block->launch)) {
        remove_resident(worker, block);
        return true;
    }
    unsigned before = block->progress;
    vgpu_block_turn(worker, block);
    if (worker->fault.kind != VGPU_FAULT_NONE) {
        vgpu_fault_report(worker, block);
    } else if (vgpu_block_is_stuck(block)) {
        vgpu_fault_diverged(block);
    } else if (block->live > 0) {
        return block->progress != before;
    }
    remove_resident(worker, block);
    return true;
}

static bool run_round(struct vgpu_worker *worker, bool *starved_out)
{
    bool changed = false;
    bool starved = worker->deferred_launch != NULL;
    struct vgpu_block *block = worker->resident;
    for (unsigned left = worker->resident_count; left > 0; left--) {
        struct vgpu_block *next = block->next;
        changed |= run_turn(worker, block);
        starved |= worker->out_of_stacks;
        block = next;
    }
    *starved_out = starved;
    return changed;
}

// ---- Between rounds -----------------------------------------------------------------------------

// What a worker knows of the time since its blocks last changed.
struct quiet {
    unsigned rounds;     // since the last change
    unsigned all_rounds; // with changes, since the last look at the clock
    uint64_t since_ns;   // of the last change; known from ADMIT_ROUNDS on
    uint64_t admitted_ns;
    uint64_t fingerprint; // of the threads that yield, ADMIT_ROUNDS ago
    bool frozen;          // it has not changed since: they only poll
    uint64_t frozen_ns;   // since when
    unsigned yield_round; // when the core is given away next
    unsigned yield_gap;   // rounds until the one after that
    uint64_t sleep_us;    // the next sleep
};

// Whether the worker carries its part of all blocks that run or wait to begin.
static bool has_fair_share(const struct vgpu_worker *worker)
{
    uint64_t all = atomic_load_explicit(&residents, memory_order_relaxed) +
                   atomic_load_explicit(&pending, memory_order_relaxed);
    int sharers = atomic_load_explicit(&worker_count, memory_order_relaxed);
    return worker->resident_count * (uint64_t)sharers >= all;
}

// No memory for more threads, and those that exist wait: nothing will change any more.
static void fail_starved(struct vgpu_worker *worker)
{
    struct vgpu_launch *deferred = worker->deferred_launch;
    struct vgpu_launch *launch = deferred;
    worker->deferred_launch = NULL;
    if (!launch) {
        launch = worker->resident->launch;
        for (struct vgpu_block *b = worker->resident->next; b != worker->resident; b = b->next) {
            if (b->started < b->thread_count) {
                launch = b->launch;
            }
        }
    }
    vgpu_fault_launch(launch, cudaErrorLaunchOutOfResources,
                      "blocks of %u threads wait for more threads than there is room for%s",
                      launch->threads,
                      vgpu_tsan() ? " (the thread sanitizer allows 4096 in a process)" : "");
    if (deferred) {
        finish_blocks(deferred, 1 + drop_pending(deferred));
    }
}

// Whether the worker may take one more block now. Nothing has changed for some rounds, so the
// blocks that it has may wait for those that have not begun. Where they have grown many and cannot
// be told from blocks that compute, it takes its time: each block costs memory.
static bool may_admit(const struct vgpu_worker *worker, const struct quiet *quiet, uint64_t now)
{
    if (has_fair_share(worker)) {
        return now - quiet->since_ns >= ADMIT_LATE_NS;
    }
    uint64_t steps = worker->resident_count / FREE_BLOCKS;
    return quiet->frozen || now - quiet->admitted_ns >= steps * ADMIT_LATE_NS;
}

// Lets other threads of the machine run. Often where that helped somebody, seldom where the core
// was given straight back.
static void give_core_away(struct quiet *quiet, uint64_t now)
{
    if (quiet->rounds < quiet->yield_round) {
        return;
    }
    (void)sched_yield();
    bool nobody = vgpu_now_ns() - now < YIELD_ALONE_NS;
    quiet->yield_gap = !nobody                        ? 1
                       : quiet->yield_gap < YIELD_GAP ? quiet->yield_gap * 2
                                                      : YIELD_GAP;
    quiet->yield_round = quiet->rounds + quiet->yield_gap;
}

static void sleep_a_little(struct quiet *quiet)
{
    unsigned seen = atomic_load(&generation);
    atomic_fetch_add(&sleepers, 1);
    vgpu_futex_wait(&generation, seen, quiet->sleep_us * 1000);
    atomic_fetch_sub(&sleepers, 1);
    quiet->sleep_us = quiet->sleep_us * 2 < SLEEP_LAST_US ? quiet->sleep_us * 2 : SLEEP_LAST_US;
}

static void look_at_fingerprint(struct vgpu_worker *worker, struct quiet *quiet, uint64_t now)
{
    uint64_t fingerprint = vgpu_worker_fingerprint(worker);
    bool frozen = quiet->rounds > ADMIT_ROUNDS && fingerprint == quiet->fingerprint;
    if (!frozen) {
        quiet->frozen_ns = now;
        quiet->sleep_us = SLEEP_FIRST_US;
    }
    quiet->frozen = frozen;
    quiet->fingerprint = fingerprint;
}

// After a round without change.
static void stay_quiet(struct vgpu_worker *worker, struct quiet *quiet, bool starved)
{
    if (++quiet->rounds % ADMIT_ROUNDS != 0) {
        if (quiet->rounds >= quiet->yield_round && quiet->rounds > YIELD_ROUNDS) {
            give_core_away(quiet, vgpu_now_ns());
        }
        return;
    }
    uint64_t now = vgpu_now_ns();
    if (quiet->rounds == ADMIT_ROUNDS) {
        quiet->since_ns = now;
        quiet->yield_round = YIELD_ROUNDS;
        quiet->yield_gap = 1;
    }
    bool more = worker->deferred_launch || atomic_load_explicit(&pending, memory_order_relaxed) > 0;
    // Hashing is for when its answer matters.
    if ((more && worker->resident_count >= FREE_BLOCKS) ||
        now - quiet->since_ns >= SLEEP_AFTER_NS / 2) {
        look_at_fingerprint(worker, quiet, now);
    } else {
        quiet->frozen = false;
        quiet->frozen_ns = now;
    }
    if (more && may_admit(worker, quiet, now) && admit(worker)) {
        quiet->rounds = 0;
        quiet->admitted_ns = now;
    } else if ((starved || worker->out_of_stacks) && now - quiet->since_ns >= STARVED_NS) {
        fail_starved(worker);
        quiet->rounds = 0;
    } else if (quiet->frozen && now - quiet->frozen_ns >= SLEEP_AFTER_NS) {
        sleep_a_little(quiet);
    } else if (quiet->rounds > YIELD_ROUNDS) {
        give_core_away(quiet, now);
    }
}

// After a round with a change: a block that is always busy must not keep others from beginning.
static void stay_busy(struct vgpu_worker *worker, struct quiet *quiet)
{
    quiet->rounds = 0;
    if (++quiet->all_rounds < CLOCK_ROUNDS || atomic_load(&pending) == 0) {
        return;
    }
    quiet->all_rounds = 0;
    uint64_t now = vgpu_now_ns();
    if (now - quiet->admitted_ns > ADMIT_ALWAYS_NS) {
        quiet->admitted_ns = now;
        (void)admit(worker);
    }
}

// Nothing is resident: looks for work for a while, then sleeps until there is some.
static void stay_idle(void)
{
    uint64_t end = vgpu_now_ns() + IDLE_SPIN_NS;
    do {
        if (atomic_load(&pending) > 0 || atomic_load(&stopping)) {
            return;
        }
        (void)sched_yield();
    } while (vgpu_now_ns() < end);
    unsigned seen = atomic_load(&generation);
    atomic_fetch_add(&sleepers, 1);
    if (atomic_load(&pending) == 0 && !atomic_load(&stopping)) {
        vgpu_futex_wait(&generation, seen, 0);
    }
    atomic_fetch_sub(&sleepers, 1);
}

static void *run_worker(void *argument)
{
    struct vgpu_worker *worker = argument;
    struct quiet quiet = {0};
    vgpu_mark_pool_thread();
    vgpu_fault_prepare_worker();
    if (vgpu_tsan()) {
        worker->tsan_fiber = __tsan_get_current_fiber();
        worker->stacks.tsan_maker = __tsan_create_fiber(0);
        worker->stacks.tsan_limit = (unsigned)(VGPU_TSAN_FIBERS / atomic_load(&worker_count));
    }
    while (!atomic_load_explicit(&stopping, memory_order_relaxed)) {
        bool starved = false;
        if (worker->resident_count == 0) {
            if (!admit(worker)) {
                stay_idle();
            }
        } else {
            if (run_round(worker, &starved)) {
                stay_busy(worker, &quiet);
            } else {
                stay_quiet(worker, &quiet, starved);
            }
            if (vgpu_checking && worker->resident_count > 0) {
                vgpu_check_round(worker);
            }
        }
    }
    atomic_fetch_add(&parked, 1);
    for (;;) {
        vgpu_futex_wait(&parked, atomic_load(&parked), 0);
    }
    return NULL;
}

// ---- Start and end ------------------------------------------------------------------------------

bool vgpu_start_thread(const char *name, void *(*run)(void *), void *argument)
{
    sigset_t blocked;
    sigset_t before;
    pthread_t thread;
    (void)sigfillset(&blocked);
    static const int FAULTS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
    for (size_t i = 0; i < sizeof(FAULTS) / sizeof(FAULTS[0]); i++) {
        (void)sigdelset(&blocked, FAULTS[i]);
    }
    (void)pthread_sigmask(SIG_SETMASK, &blocked, &before);
    bool made = pthread_create(&thread, NULL, run, argument) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (made) {
        (void)pthread_setname_np(thread, name);
        (void)pthread_detach(thread);
    }
    return made;
}

// Runs at exit: kernels that still run are left where they next yield.
static void stop_workers(void)
{
    atomic_store(&stopping, true);
    atomic_fetch_add(&generation, 1);
    vgpu_futex_wake(&generation, INT_MAX);
    for (int i = 0; i < EXIT_WAIT_MS && atomic_load(&parked) < (unsigned)atomic_load(&worker_count);
         i++) {
        struct timespec millisecond = {.tv_nsec = 1000000};
        (void)nanosleep(&millisecond, NULL);
    }
}

static void start_workers(void)
{
    vgpu_fault_prepare_process();
    int wanted = vgpu_usable_cores();
    if (vgpu_tsan() && wanted > VGPU_TSAN_WORKERS) {
        wanted = VGPU_TSAN_WORKERS;
    }
    int made = 0;
    atomic_store(&worker_count, wanted);
    while (made < wanted) {
        char name[16];
        (void)snprintf(name, sizeof(name), "vgpu-%d", made);
        workers[made].number = made;
        if (!vgpu_start_thread(name, run_worker, &workers[made])) {
            break;
        }
        made++;
    }
    atomic_store(&worker_count, made);
    if (made > 0) {
        vgpu_watchdog_start(workers, made);
        (void)atexit(stop_workers);
    }
}

cudaError_t vgpu_pool_start(void)
{
    pthread_once(&start_once, start_workers);
    if (atomic_load(&worker_count) == 0) {
        return vgpu_fail(cudaErrorLaunchOutOfResources,
                         "no thread could be made to run kernels (limits of the process?)");
    }
    return cudaSuccess;
}

int vgpuWorkerCount(void)
{
    pthread_once(&start_once, start_workers);
    int count = atomic_load(&worker_count);
    return count > 0 ? count : 1;
}
