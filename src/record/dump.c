// The state of all records as text: what each rank did last, what it waits for, who is missing.
// SPDX-License-Identifier: Apache-2.0
#include "base/file_name.h"
#include "base/gpu.h"
#include "base/log.h"
#include "base/params.h"
#include "record/record_internal.h"
#include "record/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { MOST_LINES = 16, MOST_MISSING = 8 };

struct dump {
    FILE *file;
    struct tt_ticks_scale scale;
    uint64_t now; // ticks
};

static void age(const struct dump *dump, uint64_t from, uint64_t to, char *text, size_t bytes)
{
    double ticks = to > from ? (double)(to - from) : 0;
    tt_text_time(ticks * dump->scale.ns_per_tick, text, bytes);
}

// "#17 AllReduce(count 1024, float32, sum)"; operations that have not been entered have no number.
static void describe(const struct tt_record_seen *seen, char *text, size_t bytes)
{
    int used = seen->sequence == 0
                   ? 0
                   : snprintf(text, bytes, "#%llu ", (unsigned long long)seen->sequence);
    tt_op_describe(&seen->op, text + used, bytes - (size_t)used);
}

// Whether this rank, which is in the operation, waits for another.
static bool is_missing(const struct tt_record_owner *owner, int rank,
                       const struct tt_record_seen *seen)
{
    return owner->team.waits_for(owner->team.team, rank, &seen->op, seen->sequence);
}

// Who has not come to an operation that this rank is in, and what they did last.
static void print_missing(const struct dump *dump, const struct tt_record_owner *owner,
                          const struct tt_record_seen *seen)
{
    int missing = 0;
    if (owner->team.waits_for == NULL) {
        (void)fprintf(dump->file, "; who has come is not known here\n");
        return;
    }
    for (int rank = 0; rank < owner->nranks; rank++) {
        missing += is_missing(owner, rank, seen);
    }
    enum tt_function function = seen->op.function;
    bool gives = function == TT_PUT_SIGNAL || function == TT_SIGNAL;
    (void)fprintf(dump->file, "%s\n",
                  gives                                       ? "; waits for nobody"
                  : missing > 0 && function == TT_WAIT_SIGNAL ? "; waits for signals of:"
                  : missing > 0                               ? "; waits for:"
                                                              : "; all have come");
    missing = 0;
    for (int rank = 0; rank < owner->nranks; rank++) {
        if (is_missing(owner, rank, seen) && missing++ < MOST_MISSING) {
            char text[256];
            owner->team.describe_last(owner->team.team, rank, &seen->op, text, sizeof text);
            (void)fprintf(dump->file, "    rank %d: %s\n", rank, text);
        }
    }
    if (missing > MOST_MISSING) {
        (void)fprintf(dump->file, "    and %d more\n", missing - MOST_MISSING);
    }
}

// What the rank waits for now: each operation that has begun and not ended, and the first that has
// not begun.
static void print_waits(const struct dump *dump, const struct tt_record_owner *owner,
                        const struct tt_record_seen *seen, size_t count)
{
    char text[256], time[32];
    size_t begun = 0, called = 0;
    const struct tt_record_seen *first_called = NULL;
    for (size_t i = 0; i < count; i++) {
        const struct tt_record_seen *s = &seen[i];
        if (s->state == TT_RECORD_CALLED) {
            first_called = first_called == NULL ? s : first_called;
            called++;
        } else if (s->state < TT_RECORD_ENDED && begun++ < MOST_LINES) {
            describe(s, text, sizeof text);
            age(dump, s->entered, dump->now, time, sizeof time);
            (void)fprintf(dump->file, "  is in %s for %s", text, time);
            print_missing(dump, owner, s);
        }
    }
    if (begun == 0) {
        (void)fprintf(dump->file, "  is in no operation\n");
    }
    if (first_called != NULL) {
        describe(first_called, text, sizeof text);
        age(dump, first_called->called, dump->now, time, sizeof time);
        (void)fprintf(dump->file, "  has called %s %s ago on stream %p, which has not begun%s\n",
                      text, time, (void *)first_called->stream,
                      called > 1 ? "; more behind it" : "");
    }
}

static void print_operation(const struct dump *dump, int rank, const struct tt_record_seen *seen)
{
    static const char *const states[] = {"called", "begun", "begun", "ended", "failed"};
    char text[256], called[32], took[32], waited[32];
    describe(seen, text, sizeof text);
    age(dump, seen->called, dump->now, called, sizeof called);
    (void)fprintf(dump->file, "    %-6s %s, called %s ago", states[seen->state], text, called);
    if (seen->state >= TT_RECORD_ENDED) {
        age(dump, seen->entered != 0 ? seen->entered : seen->called, seen->ended, took,
            sizeof took);
        (void)fprintf(dump->file, ", %s %s", seen->state == TT_RECORD_ENDED ? "took" : "after",
                      took);
    }
    if (seen->state == TT_RECORD_FAILED) {
        (void)fprintf(dump->file, ": %s", tt_result_text(seen->result));
    }
    if (seen->last == rank) {
        (void)fprintf(dump->file, ", came last");
    } else if (seen->last >= 0) {
        age(dump, seen->entered, seen->ready, waited, sizeof waited);
        (void)fprintf(dump->file, ", waited %s, for rank %d last", waited, seen->last);
    }
    (void)fprintf(dump->file, "%s\n", seen->is_replay ? ", of a graph" : "");
}

static void print_record(const struct dump *dump, const struct tt_record *record)
{
    const struct tt_record_owner *owner = &record->details->owner;
    struct tt_record_seen *seen;
    size_t count = tt_record_read(record, &seen);
    (void)fprintf(dump->file, "communicator %s (%016llx), rank %d of %d, %s\n", owner->name,
                  (unsigned long long)owner->hash, owner->rank, owner->nranks,
                  tt_gpu(owner->device)->name);
    print_waits(dump, owner, seen, count);
    (void)fprintf(dump->file, "  last operations, latest first%s\n", count == 0 ? ": none" : ":");
    for (size_t i = 0; i < count && i < MOST_LINES; i++) {
        print_operation(dump, owner->rank, &seen[count - 1 - i]);
    }
    free(seen);
}

static void print_head(const struct dump *dump)
{
    char host[256] = "localhost", date[64] = "";
    time_t now = time(NULL);
    struct tm parts;
    (void)gethostname(host, sizeof host - 1);
    if (localtime_r(&now, &parts) != NULL) {
        (void)strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &parts);
    }
    (void)fprintf(dump->file, "tutti: state of process %d on %s, %s\n", (int)getpid(), host, date);
}

// Records by communicator, in ascending order of ranks within each.
static const struct tt_record *next_record(const struct tt_record_lists *lists, uint64_t hash,
                                           const struct tt_record *after)
{
    const struct tt_record *best = NULL;
    for (const struct tt_record *r = lists->open; r != NULL; r = r->details->next) {
        const struct tt_record_owner *a = &r->details->owner;
        const struct tt_record_owner *b = after != NULL ? &after->details->owner : NULL;
        const struct tt_record_owner *c = best != NULL ? &best->details->owner : NULL;
        bool behind = b == NULL || a->hash > b->hash || (a->hash == b->hash && a->rank > b->rank);
        bool before = c == NULL || a->hash < c->hash || (a->hash == c->hash && a->rank < c->rank);
        if ((hash == 0 || a->hash == hash) && behind && before) {
            best = r;
        }
    }
    return best;
}

static ncclResult_t write_all(int descriptor, const char *name, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t written = write(descriptor, text, bytes);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return tt_fail(ncclSystemError, "cannot write %s: %m", name);
        }
        text += written;
        bytes -= (size_t)written;
    }
    return ncclSuccess;
}

static void print_none(const struct dump *dump)
{
    (void)fprintf(dump->file, "no communicator\n");
    if (tt_record_parent() != 0) {
        (void)fprintf(dump->file,
                      "this process was forked from process %d, whose communicators it does not "
                      "have\n",
                      (int)tt_record_parent());
    }
}

static ncclResult_t tell_to(uint64_t hash, const char *unmade, int descriptor, const char *name)
{
    char *text = NULL;
    size_t bytes = 0;
    struct dump dump = {.file = open_memstream(&text, &bytes)};
    if (dump.file == NULL) {
        return tt_fail(ncclSystemError, "no memory to tell the state");
    }
    const struct tt_record_lists *lists = tt_record_lock();
    dump.scale = tt_ticks_measure();
    dump.now = tt_ticks();
    print_head(&dump);
    const struct tt_record *record = unmade == NULL ? next_record(lists, hash, NULL) : NULL;
    if (unmade != NULL) {
        (void)fprintf(dump.file, "%s\n", unmade);
    } else if (record == NULL) {
        print_none(&dump);
    }
    for (; record != NULL; record = next_record(lists, hash, record)) {
        print_record(&dump, record);
    }
    tt_record_unlock();
    if (fclose(dump.file) != 0) {
        free(text);
        return tt_fail(ncclSystemError, "no memory to tell the state");
    }
    ncclResult_t result = write_all(descriptor, name, text, bytes);
    free(text);
    return result;
}

ncclResult_t tt_record_dump(uint64_t hash, int descriptor)
{
    return tell_to(hash, NULL, descriptor, "the state");
}

static int lowest_rank(void)
{
    int lowest = -1;
    for (const struct tt_record *r = tt_record_lock()->open; r != NULL; r = r->details->next) {
        int rank = r->details->owner.rank;
        lowest = lowest < 0 || rank < lowest ? rank : lowest;
    }
    tt_record_unlock();
    return lowest < 0 ? 0 : lowest;
}

ncclResult_t tt_record_dump_to(uint64_t hash, int rank, const char *unmade, const char *path)
{
    char name[1024];
    const char *pattern = path != NULL ? path : tt_param_text(TT_PARAM_DUMP_FILE);
    if (pattern[0] == 0) {
        return tell_to(hash, unmade, STDERR_FILENO, "the state");
    }
    if (!tt_file_name(pattern, rank >= 0 ? rank : lowest_rank(), name, sizeof name)) {
        return tt_fail(ncclInvalidArgument, "path has %zu characters and more; at most %zu fit",
                       sizeof name, sizeof name - 1);
    }
    int descriptor = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (descriptor < 0) {
        return tt_fail(ncclSystemError, "cannot write %s: %m", name);
    }
    ncclResult_t result = tell_to(hash, unmade, descriptor, name);
    if (close(descriptor) != 0 && result == ncclSuccess) {
        result = tt_fail(ncclSystemError, "cannot write %s: %m", name);
    }
    return result;
}
