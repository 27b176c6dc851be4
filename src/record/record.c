// The lines of the flight recorder: where they lie, who may use them again, how they are read.
//
// A tape is a ring of blocks. Whoever writes it asks for the next block every 63 operations; all
// else happens with the lock of all records held, but for stamps, which need none. Readers take a
// block as a whole: its number is 0 while it changes hands, and another one afterwards.
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "base/params.h"
#include "record/record_internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LEAST_BLOCKS = 2 };

// Guards the lists, rings as far as they grow, and the summaries.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct tt_record_lists lists;
static pid_t owner;   // the process that opened the first record; 0: none has been opened
static pid_t parent;  // the owner from which this process was forked; 0: none
static bool has_news; // since the trace was written
static struct tt_record_line nowhere;

const struct tt_record_lists *tt_record_lock(void)
{
    pthread_mutex_lock(&mutex);
    return &lists;
}

void tt_record_unlock(void)
{
    pthread_mutex_unlock(&mutex);
}

// ---- Reading ------------------------------------------------------------------------------------

#define LOAD(field) atomic_load_explicit(&(field), memory_order_acquire)

// Stamps are loaded in the opposite order of their writing: an operation that is seen to have ended
// is seen to have waited, too.
static void read_line(const struct tt_record_line *line, struct tt_record_seen *seen)
{
    uint64_t head = LOAD(line->head), kind = LOAD(line->kind);
    *seen = (struct tt_record_seen){.called = LOAD(line->called), .last = -1};
    memcpy((char *)&seen->op + offsetof(struct tt_op, function), &head, sizeof head);
    memcpy((char *)&seen->op + offsetof(struct tt_op, type), &kind, sizeof kind);
    seen->op.count = LOAD(line->count);
    seen->op.root = LOAD(line->root);
    seen->stream = (cudaStream_t)(uintptr_t)LOAD(line->stream);
    uint64_t failed = LOAD(line->failed), ended = LOAD(line->ended);
    uint64_t ready = LOAD(line->ready);
    seen->sequence = LOAD(line->sequence);
    uint64_t entered = LOAD(line->entered);
    if (seen->sequence != 0 || entered >= seen->called) {
        seen->state = TT_RECORD_ENTERED;
        seen->entered = entered >= seen->called ? entered : seen->called;
    }
    if (ready >= seen->called) {
        seen->state = TT_RECORD_READY;
        seen->ready = ready;
        seen->last = LOAD(line->last);
    }
    if (failed >= seen->called) {
        seen->state = TT_RECORD_FAILED;
        seen->ended = failed;
        seen->result = (ncclResult_t)LOAD(line->result);
    } else if (ended >= seen->called) {
        seen->state = TT_RECORD_ENDED;
        seen->ended = ended;
        seen->entered = seen->entered == 0 ? seen->called : seen->entered;
    }
}

// An operation that ended and never had to wait: this rank came last.
static void read_no_wait(struct tt_record_seen *seen, int rank)
{
    if (seen->state == TT_RECORD_ENDED && seen->ready == 0) {
        seen->ready = seen->entered;
        seen->last = seen->op.function < TT_COLLECTIVES ? rank : -1;
    }
}

static struct tt_record_block *block_of(const struct tt_record_line *line)
{
    return (struct tt_record_block *)(((uintptr_t)line - 1) &
                                      ~(uintptr_t)(TT_RECORD_BLOCK_BYTES - 1));
}

// The lines of a block that stand, into seen[0 .. TT_RECORD_LINES); how many, 0 where the block
// changed hands meanwhile.
static size_t read_block(const struct tt_record_tape *tape, struct tt_record_block *block,
                         struct tt_record_seen *seen)
{
    uint64_t first = LOAD(block->first);
    const struct tt_record_line *next = LOAD(tape->next);
    size_t count =
        next != NULL && block_of(next) == block ? (size_t)(next - block->line) : TT_RECORD_LINES;
    for (size_t i = 0; first != 0 && i < count; i++) {
        read_line(&block->line[i], &seen[i]);
        read_no_wait(&seen[i], tape->record->details->owner.rank);
        seen[i].number = first + i;
        seen[i].is_replay = tape == &tape->record->replays;
    }
    return first != 0 && LOAD(block->first) == first ? count : 0;
}

static size_t read_tape(const struct tt_record_tape *tape, struct tt_record_block *ring,
                        struct tt_record_seen *seen, size_t room)
{
    size_t count = 0;
    struct tt_record_block *block = ring;
    do {
        if (ring == NULL || count + TT_RECORD_LINES > room) {
            break;
        }
        count += read_block(tape, block, seen + count);
        block = LOAD(block->next);
    } while (block != ring);
    return count;
}

static int by_call(const void *a, const void *b)
{
    const struct tt_record_seen *x = a, *y = b;
    if (x->is_replay == y->is_replay) {
        return (x->number > y->number) - (x->number < y->number);
    }
    return (x->called > y->called) - (x->called < y->called);
}

size_t tt_record_read(const struct tt_record *record, struct tt_record_seen **seen_out)
{
    const struct tt_record_details *details = record->details;
    size_t room = details->blocks * TT_RECORD_LINES, count;
    struct tt_record_seen *seen = calloc(room, sizeof *seen);
    *seen_out = seen;
    if (seen == NULL) {
        return 0;
    }
    count = read_tape(&record->calls, details->calls, seen, room);
    count += read_tape(&record->replays, details->replays, seen + count, room - count);
    qsort(seen, count, sizeof *seen, by_call);
    return count;
}

// ---- Blocks -------------------------------------------------------------------------------------

// Pages of zeros that take memory when they are touched: a record with few operations has one page.
static struct tt_record_block *make_block(void)
{
    size_t room = 2 * (size_t)TT_RECORD_BLOCK_BYTES; // in which a multiple of the size begins one
    char *base = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        return NULL;
    }
    size_t before =
        (TT_RECORD_BLOCK_BYTES - (uintptr_t)base % TT_RECORD_BLOCK_BYTES) % TT_RECORD_BLOCK_BYTES;
    if (before > 0) {
        munmap(base, before);
    }
    munmap(base + before + TT_RECORD_BLOCK_BYTES, TT_RECORD_BLOCK_BYTES - before);
    struct tt_record_block *block = (void *)(base + before);
    atomic_init(&block->next, block);
    return block;
}

static void free_ring(struct tt_record_block *ring)
{
    struct tt_record_block *block = ring;
    while (block != NULL) {
        struct tt_record_block *next = LOAD(block->next);
        munmap(block, TT_RECORD_BLOCK_BYTES);
        block = next == ring ? NULL : next;
    }
}

// Adds a block's operations that are over to the summary. The lock is held.
static void add_block(const struct tt_record_tape *tape, struct tt_record_block *block)
{
    struct tt_record_seen seen[TT_RECORD_LINES];
    struct tt_record_details *details = tape->record->details;
    size_t count = read_block(tape, block, seen);
    for (size_t i = block->added; i < count; i++) {
        tt_record_add(details, &seen[i]);
    }
    block->added = (uint32_t)count;
}

// Looked at for every operation once: few instructions.
static bool is_over(const struct tt_record_block *block)
{
#pragma GCC unroll 63
    for (size_t i = 0; i < TT_RECORD_LINES; i++) {
        const struct tt_record_line *line = &block->line[i];
        uint64_t called = tt_record_get(&line->called);
        if (tt_record_get(&line->ended) < called && tt_record_get(&line->failed) < called) {
            return false;
        }
    }
    return true;
}

// The block behind `last`: the oldest of the ring, where all its operations are over; else a new
// one.
static struct tt_record_block *next_block(struct tt_record_tape *tape, struct tt_record_block *last)
{
    struct tt_record_details *details = tape->record->details;
    if (last == NULL) { // the first
        struct tt_record_block *first = make_block();
        *(tape == &tape->record->calls ? &details->calls : &details->replays) = first;
        details->blocks += first != NULL;
        return first;
    }
    struct tt_record_block *oldest = LOAD(last->next);
    bool may_grow = !details->keeps || details->blocks < details->most_blocks;
    bool must_grow = oldest == last || details->keeps || !is_over(oldest);
    struct tt_record_block *made = may_grow && must_grow ? make_block() : NULL;
    if (made != NULL) {
        atomic_init(&made->next, oldest);
        atomic_store_explicit(&last->next, made, memory_order_release);
        details->blocks++;
        return made;
    }
    if (details->waits != NULL) {
        add_block(tape, oldest);
    }
    details->lost += LOAD(oldest->first) != 0 ? TT_RECORD_LINES : 0;
    return oldest;
}

struct tt_record_line *tt_record_turn(struct tt_record_tape *tape, const struct tt_op *op,
                                      cudaStream_t stream)
{
    pthread_mutex_lock(&mutex);
    struct tt_record_line *line = LOAD(tape->next);
    if ((uintptr_t)line % TT_RECORD_BLOCK_BYTES == 0) {
        struct tt_record_block *last = line == NULL ? NULL : block_of(line);
        struct tt_record_block *block = next_block(tape, last);
        if (block == NULL) { // no memory: another time perhaps
            pthread_mutex_unlock(&mutex);
            return tape->record->nowhere;
        }
        uint64_t first = last == NULL ? 1 : LOAD(last->first) + TT_RECORD_LINES;
        atomic_store_explicit(&block->first, 0, memory_order_release);
        line = block->line;
        // Nothing of the block is read until there is an operation in it.
        atomic_store_explicit(&tape->next, line, memory_order_release);
        block->added = 0;
        atomic_store_explicit(&block->first, first, memory_order_release);
    }
    pthread_mutex_unlock(&mutex);
    return tt_record_begin(tape, line, op, stream);
}

// ---- A record's life ----------------------------------------------------------------------------

static void free_rings(struct tt_record_details *details)
{
    free_ring(details->calls);
    free_ring(details->replays);
    details->calls = NULL;
    details->replays = NULL;
    details->blocks = 0;
}

static void free_record(struct tt_record *record)
{
    if (record->details != NULL) {
        free_rings(record->details);
        free(record->details->waits);
        free(record->details);
    }
    free(record);
}

static struct tt_record *make_record(const struct tt_record_owner *whose)
{
    struct tt_record *record = calloc(1, sizeof *record);
    struct tt_record_details *details = calloc(1, sizeof *details);
    if (record == NULL || details == NULL) {
        free(record);
        free(details);
        return NULL;
    }
    record->details = details;
    details->owner = *whose;
    (void)snprintf(details->name, sizeof details->name, "%s", whose->name);
    details->owner.name = details->name;
    details->keeps = tt_record_traces();
    details->most_blocks = (uint64_t)tt_param_int(TT_PARAM_TRACE_LIMIT) / TT_RECORD_LINES + 2;
    record->nowhere = &nowhere;
    record->calls.record = record->replays.record = record; // tapes without a block
    bool sums = tt_record_summarises();
    details->waits = sums ? calloc((size_t)whose->nranks, sizeof *details->waits) : NULL;
    if (sums && details->waits == NULL) {
        free_record(record);
        return NULL;
    }
    return record;
}

// In a child made by fork(): the records are its parent's, whose other threads may have had the
// lock.
static void disown(void)
{
    if (owner != 0) {
        parent = owner;
        owner = 0;
        lists = (struct tt_record_lists){0};
        has_news = false;
        (void)pthread_mutex_init(&mutex, NULL);
        tt_record_signal_anew();
    }
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, disown);
}

pid_t tt_record_parent(void)
{
    return parent;
}

ncclResult_t tt_record_open(const struct tt_record_owner *whose, struct tt_record **record_out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct tt_record *record = make_record(whose);
    (void)pthread_once(&once, watch_forks);
    if (record == NULL) {
        return tt_fail(ncclSystemError, "rank %d: no memory to record operations of %s",
                       whose->rank, whose->name);
    }
    pthread_mutex_lock(&mutex);
    if (owner == 0) {
        owner = getpid();
        (void)tt_ticks_measure(); // from here on the clocks are compared
    }
    record->details->next = lists.open;
    lists.open = record;
    has_news = true;
    pthread_mutex_unlock(&mutex);
    *record_out = record;
    return ncclSuccess;
}

// The rest of a record's operations goes to its summary.
static void add_rest(struct tt_record *record)
{
    struct tt_record_tape *tapes[] = {&record->calls, &record->replays};
    for (size_t i = 0; i < 2 && record->details->waits != NULL; i++) {
        struct tt_record_line *next = LOAD(tapes[i]->next);
        struct tt_record_block *ring = next == NULL ? NULL : block_of(next), *block = ring;
        while (block != NULL) {
            add_block(tapes[i], block);
            block = LOAD(block->next);
            block = block == ring ? NULL : block;
        }
    }
}

// Writes the trace where it has something new. The lock is held.
static void write_trace_once(void)
{
    if (has_news && tt_record_traces()) {
        tt_record_write_trace(&lists);
    }
    has_news = false;
}

void tt_record_close(struct tt_record *record)
{
    if (record == NULL) {
        return;
    }
    pthread_mutex_lock(&mutex);
    struct tt_record **link = &lists.open;
    while (*link != NULL && *link != record) {
        link = &(*link)->details->next;
    }
    if (*link == NULL) { // of the process from which this one was forked
        pthread_mutex_unlock(&mutex);
        return;
    }
    *link = record->details->next;
    add_rest(record);
    record->details->is_closed = true;
    record->details->owner.team = (struct tt_record_team){0};
    bool wanted = record->details->keeps || record->details->waits != NULL;
    if (!record->details->keeps) {
        free_rings(record->details);
    }
    if (wanted) {
        record->details->next = lists.closed;
        lists.closed = record;
    }
    if (lists.open == NULL) {
        write_trace_once();
    }
    pthread_mutex_unlock(&mutex);
    if (!wanted) {
        free_record(record);
    }
}

__attribute__((destructor)) static void end_of_process(void)
{
    if (owner != getpid()) {
        return; // nothing was recorded
    }
    pthread_mutex_lock(&mutex);
    for (struct tt_record *record = lists.open; record != NULL; record = record->details->next) {
        add_rest(record);
    }
    has_news = has_news || lists.open != NULL;
    write_trace_once();
    if (tt_record_summarises()) {
        tt_record_print_summary(&lists, stderr);
    }
    pthread_mutex_unlock(&mutex);
}
