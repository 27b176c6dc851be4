// The trace: all operations as JSON in the Trace Event Format, which Perfetto and chrome://tracing
// show (Google, "Trace Event Format", 2016). A communicator is a process there and a rank a thread,
// so that the traces of several processes make one when their events are put together; times are
// CLOCK_MONOTONIC in microseconds.
// SPDX-License-Identifier: Apache-2.0
#include "base/file_name.h"
#include "base/log.h"
#include "base/params.h"
#include "base/quote.h"
#include "record/record_internal.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct trace {
    FILE *file;
    struct tt_ticks_scale scale;
    uint64_t now;   // ticks
    bool has_event; // a comma is due
    const struct tt_record_owner *owner;
    unsigned process; // number of the communicator
    int track;        // of the rank
};

bool tt_record_traces(void)
{
    return tt_param_text(TT_PARAM_TRACE)[0] != 0;
}

static void print_string(FILE *file, const char *text)
{
    (void)fputc('"', file);
    for (const unsigned char *c = (const unsigned char *)text; *c != 0; c++) {
        if (*c == '"' || *c == '\\') {
            (void)fprintf(file, "\\%c", *c);
        } else if (*c < 0x20 || *c >= 0x7f) { // bytes that may be no UTF-8
            (void)fprintf(file, "\\u%04x", *c);
        } else {
            (void)fputc(*c, file);
        }
    }
    (void)fputc('"', file);
}

// Microseconds with the nanoseconds behind the point.
static void print_time(FILE *file, uint64_t ns)
{
    (void)fprintf(file, "%llu.%03u", (unsigned long long)(ns / 1000), (unsigned)(ns % 1000));
}

static uint64_t ns_of(const struct trace *trace, uint64_t ticks)
{
    return tt_ticks_ns(&trace->scale, ticks);
}

// {"ph":"X","name":"...","pid":1,"tid":0,"ts":1.234 - the caller goes on, and closes it.
static void begin_event(struct trace *trace, char phase, const char *name, uint64_t ns)
{
    (void)fprintf(trace->file, "%s\n{\"ph\":\"%c\",\"name\":", trace->has_event ? "," : "", phase);
    trace->has_event = true;
    print_string(trace->file, name);
    (void)fprintf(trace->file, ",\"pid\":%u,\"tid\":%d,\"ts\":", trace->process, trace->track);
    print_time(trace->file, ns);
}

static void print_duration(const struct trace *trace, uint64_t from, uint64_t to)
{
    (void)fprintf(trace->file, ",\"dur\":");
    print_time(trace->file, to > from ? to - from : 0);
}

static void print_arguments(struct trace *trace, const struct tt_record_seen *seen)
{
    FILE *file = trace->file;
    char text[256];
    tt_op_describe(&seen->op, text, sizeof text);
    (void)fprintf(file, ",\"args\":{\"call\":");
    print_string(file, text);
    (void)fprintf(file, ",\"sequence\":%llu", (unsigned long long)seen->sequence);
    if (tt_op_has_count(&seen->op)) {
        size_t each = seen->op.function == TT_WAIT_SIGNAL ? 0 // it counts signals
                                                          : tt_type_bytes(seen->op.type);
        (void)fprintf(file, ",\"count\":%zu,\"bytes\":%zu", seen->op.count, seen->op.count * each);
    }
    (void)fprintf(file, ",\"stream\":\"%p\",\"called\":", (void *)seen->stream);
    print_time(file, ns_of(trace, seen->called));
    if (seen->op.function >= TT_COLLECTIVES && seen->op.root >= 0) { // -1: several ranks
        (void)fprintf(file, ",\"peer\":%d", seen->op.root);
    }
    if (seen->is_replay) {
        (void)fprintf(file, ",\"graph\":true");
    }
    if (seen->state == TT_RECORD_FAILED) {
        (void)fprintf(file, ",\"error\":%d", (int)seen->result);
    } else if (seen->state < TT_RECORD_ENDED) {
        (void)fprintf(file, ",\"unfinished\":true");
    }
    (void)fprintf(file, "}");
}

// One operation: a slice from entry to end; inside it one for the wait, and the moment when all
// had entered.
static void print_operation(struct trace *trace, const struct tt_record_seen *seen)
{
    uint64_t start = ns_of(trace, seen->entered != 0 ? seen->entered : seen->called);
    uint64_t end = ns_of(trace, seen->ended != 0 ? seen->ended : trace->now);
    bool is_collective = seen->op.function < TT_COLLECTIVES;
    char function[32];
    (void)snprintf(function, sizeof function, "%s%s", tt_function_name(seen->op.function),
                   seen->op.is_uneven ? "V" : "");
    begin_event(trace, 'X', function, start);
    print_duration(trace, start, end);
    (void)fprintf(trace->file, ",\"cat\":\"%s\"", is_collective ? "collective" : "pair");
    print_arguments(trace, seen);
    (void)fprintf(trace->file, "}");
    if (seen->state != TT_RECORD_CALLED && seen->last != trace->owner->rank &&
        (seen->last >= 0 || seen->ready == 0)) {
        char name[48] = "wait";
        uint64_t ready = seen->ready != 0 ? ns_of(trace, seen->ready) : end;
        // What never ended does not know for whom, but between two ranks there is one.
        int of = seen->last >= 0 || is_collective ? seen->last : seen->op.root;
        if (of >= 0) {
            (void)snprintf(name, sizeof name, "wait for rank %d", of);
        }
        begin_event(trace, 'X', name, start);
        print_duration(trace, start, ready < end ? ready : end);
        (void)fprintf(trace->file, ",\"cat\":\"wait\"}");
    }
    if (seen->last >= 0 && seen->ready != 0 && is_collective) {
        begin_event(trace, 'i', "all entered", ns_of(trace, seen->ready));
        (void)fprintf(trace->file, ",\"s\":\"t\",\"cat\":\"entry\",\"args\":{\"last\":%d}}",
                      seen->last);
    }
}

static void print_name(struct trace *trace, const char *kind, const char *name)
{
    begin_event(trace, 'M', kind, 0);
    (void)fprintf(trace->file, ",\"args\":{\"name\":");
    print_string(trace->file, name);
    (void)fprintf(trace->file, "}}");
}

static void name_track(struct trace *trace, int lane)
{
    char name[64];
    int rank = trace->owner->rank;
    (void)snprintf(name, sizeof name, lane == 0 ? "rank %d" : "rank %d (%d)", rank, lane + 1);
    print_name(trace, "thread_name", name);
    begin_event(trace, 'M', "thread_sort_index", 0);
    (void)fprintf(trace->file, ",\"args\":{\"sort_index\":%d}}", trace->track);
}

enum { MOST_LANES = 64 };

// Operations that overlap, as sends and receives of a group do, go to tracks beside the rank's.
static void print_operations(struct trace *trace, const struct tt_record_seen *seen, size_t count)
{
    uint64_t free_at[MOST_LANES] = {0};
    int lanes = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t start = seen[i].entered != 0 ? seen[i].entered : seen[i].called;
        int lane = 0;
        while (lane < MOST_LANES - 1 && lane < lanes && free_at[lane] > start) {
            lane++;
        }
        trace->track = trace->owner->rank * MOST_LANES + lane;
        if (lane == lanes) {
            name_track(trace, lane);
            lanes++;
        }
        free_at[lane] = seen[i].ended != 0 ? seen[i].ended : UINT64_MAX;
        print_operation(trace, &seen[i]);
    }
}

static int by_start(const void *a, const void *b)
{
    const struct tt_record_seen *x = a, *y = b;
    uint64_t from = x->entered != 0 ? x->entered : x->called;
    uint64_t other = y->entered != 0 ? y->entered : y->called;
    return (from > other) - (from < other);
}

static void print_record(struct trace *trace, const struct tt_record *record)
{
    const struct tt_record_details *details = record->details;
    struct tt_record_seen *seen;
    char name[160];
    size_t count = tt_record_read(record, &seen), begun = 0;
    trace->owner = &details->owner;
    trace->process = (unsigned)(details->owner.hash % 1000000007u) + 1;
    trace->track = details->owner.rank * MOST_LANES;
    (void)snprintf(name, sizeof name, "communicator %s, %d ranks%s", details->owner.name,
                   details->owner.nranks, details->lost > 0 ? " (its last operations)" : "");
    print_name(trace, "process_name", name);
    for (size_t i = 0; i < count; i++) { // what has not begun is at no place in time yet
        if (seen[i].state != TT_RECORD_CALLED) {
            seen[begun++] = seen[i];
        }
    }
    if (begun > 0) {
        qsort(seen, begun, sizeof *seen, by_start);
        print_operations(trace, seen, begun);
    } else {
        name_track(trace, 0);
    }
    free(seen);
}

void tt_record_print_trace(const struct tt_record_lists *lists, FILE *file)
{
    struct trace trace = {.file = file, .scale = tt_ticks_measure()};
    trace.now = tt_ticks();
    char host[256] = "localhost";
    (void)gethostname(host, sizeof host - 1);
    (void)fprintf(file, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"host\":");
    print_string(file, host);
    (void)fprintf(file, ",\"process\":\"%d\"},\"traceEvents\":[", (int)getpid());
    const struct tt_record *heads[] = {lists->closed, lists->open};
    for (size_t i = 0; i < 2; i++) {
        for (const struct tt_record *r = heads[i]; r != NULL; r = r->details->next) {
            if (r->details->keeps) {
                print_record(&trace, r);
            }
        }
    }
    (void)fprintf(file, "\n]}\n");
}

static int count_ranks(const struct tt_record_lists *lists, uint64_t hash)
{
    int count = 0;
    for (const struct tt_record *r = lists->closed; r != NULL; r = r->details->next) {
        count += r->details->owner.hash == hash;
    }
    for (const struct tt_record *r = lists->open; r != NULL; r = r->details->next) {
        count += r->details->owner.hash == hash;
    }
    return count;
}

// The lowest rank of this process; *shared_out: in a communicator that other processes take part
// in too (-1: in none).
static int lowest_rank(const struct tt_record_lists *lists, int *shared_out)
{
    const struct tt_record *heads[] = {lists->closed, lists->open};
    int lowest = -1, shared = -1;
    for (size_t i = 0; i < 2; i++) {
        for (const struct tt_record *r = heads[i]; r != NULL; r = r->details->next) {
            int rank = r->details->owner.rank;
            bool here = count_ranks(lists, r->details->owner.hash) == r->details->owner.nranks;
            lowest = lowest < 0 || rank < lowest ? rank : lowest;
            shared = !here && (shared < 0 || rank < shared) ? rank : shared;
        }
    }
    *shared_out = shared;
    return lowest;
}

// What is there, and is no file that another may stand beside: a device, a folder.
static bool is_no_file(const char *name)
{
    struct stat status;
    return stat(name, &status) == 0 && !S_ISREG(status.st_mode);
}

// Where several processes would write one file, the rank comes before the ending: trace.3.json.
// False, and said: there is no such name.
static bool name_file(const struct tt_record_lists *lists, char *name, size_t bytes)
{
    const char *pattern = tt_param_text(TT_PARAM_TRACE);
    int rank, lowest = lowest_rank(lists, &rank);
    if (!tt_file_name(pattern, lowest, name, bytes)) {
        tt_say("TUTTI_TRACE: the name of the file is too long; no trace is written");
        return false;
    }
    if (rank < 0 || strstr(pattern, "%p") != NULL || strstr(pattern, "%r") != NULL) {
        return true;
    }
    if (is_no_file(name)) {
        if (rank == 0) {
            tt_say("TUTTI_TRACE=%s is no file, and each of several processes would write one; no "
                   "trace is written",
                   tt_quote(name).text);
        }
        return false;
    }
    char *folder = strrchr(name, '/'), *ending = strrchr(folder == NULL ? name : folder, '.');
    char rest[64] = "";
    size_t length = ending == NULL ? strlen(name) : (size_t)(ending - name);
    (void)snprintf(rest, sizeof rest, "%s", name + length);
    int added = snprintf(name + length, bytes - length, ".%d%s", rank, rest);
    if (added < 0 || (size_t)added >= bytes - length) {
        tt_say("TUTTI_TRACE: the name of the file is too long; no trace is written");
        return false;
    }
    return true;
}

void tt_record_write_trace(const struct tt_record_lists *lists)
{
    char name[1024];
    if (!name_file(lists, name, sizeof name)) {
        return;
    }
    FILE *file = fopen(name, "we");
    if (file == NULL) {
        tt_say("TUTTI_TRACE: cannot write %s: %m", name);
        return;
    }
    tt_record_print_trace(lists, file);
    bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed) {
        tt_say("TUTTI_TRACE: cannot write %s: %m", name);
    }
}
