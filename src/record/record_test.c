// The flight recorder by itself: lines and blocks, readers beside writers, the text of a state, the
// trace by a strict reader and by the rules of its format, the summary, clocks.
// SPDX-License-Identifier: Apache-2.0
#include "base/file_name.h"
#include "base/wait.h"
#include "expect.h"
#include "json.h"
#include "record/record_internal.h"
#include "record/text.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { HASH = 0x1234, RANKS = 4 };

static struct tt_op make_op(enum tt_function function, size_t count, int root)
{
    return (struct tt_op){.function = function,
                          .count = count,
                          .type = ncclFloat32,
                          .op = TT_REDUCE_MAX,
                          .root = root};
}

static cudaStream_t some_stream(void)
{
    static int anything;
    return (cudaStream_t)(void *)&anything;
}

// Rank 2 has entered nothing beyond operation 4, rank 3 no message; all others have entered all.
static bool waits_for(const void *team, int rank, const struct tt_op *op, uint64_t sequence)
{
    (void)team;
    return op->function < TT_COLLECTIVES ? rank == 2 && sequence > 4
                                         : op->function != TT_SIGNAL && rank == 3;
}

static void describe_last(const void *team, int rank, const struct tt_op *op, char *text,
                          size_t bytes)
{
    (void)snprintf(text, bytes, "%s of rank %d, seen from %s", (const char *)team, rank,
                   tt_function_name(op->function));
}

static struct tt_record *open_record(int rank, uint64_t hash)
{
    struct tt_record_owner owner = {.name = "team \"a\\b\"",
                                    .hash = hash,
                                    .rank = rank,
                                    .nranks = RANKS,
                                    .device = rank,
                                    .team = {"the last call", waits_for, describe_last}};
    struct tt_record *record = NULL;
    EXPECT_OK(tt_record_open(&owner, &record));
    return record;
}

// One operation from call to end, in which the rank waits for `last`.
static void run_one(struct tt_record *record, const struct tt_op *op, uint64_t sequence, int last)
{
    struct tt_record_line *line = tt_record_called(&record->calls, op, some_stream());
    tt_record_entered(line, sequence);
    tt_record_ready(line, last);
    tt_record_ended(line);
}

static size_t read_record(const struct tt_record *record, struct tt_record_seen **seen_out)
{
    (void)tt_record_lock();
    size_t count = tt_record_read(record, seen_out);
    tt_record_unlock();
    return count;
}

// ---- Cases --------------------------------------------------------------------------------------

static void states_of_a_line(void)
{
    struct tt_record *record = open_record(1, HASH);
    struct tt_record_seen *seen;
    EXPECT_EQ(read_record(record, &seen), 0);
    free(seen);
    struct tt_op op = make_op(TT_BROADCAST, 77, 3);
    op.is_uneven = true;
    struct tt_record_line *line = tt_record_called(&record->calls, &op, some_stream());
    for (int state = TT_RECORD_CALLED; state <= TT_RECORD_ENDED; state++) {
        if (state == TT_RECORD_ENTERED) {
            tt_record_entered(line, 9);
        } else if (state == TT_RECORD_READY) {
            tt_record_ready(line, 2);
        } else if (state == TT_RECORD_ENDED) {
            tt_record_ended(line);
        }
        if (EXPECT_EQ(read_record(record, &seen), 1)) {
            EXPECT_EQ(seen->state, state);
            EXPECT(seen->op.function == TT_BROADCAST && seen->op.is_uneven);
            EXPECT(seen->op.type == ncclFloat32 && seen->op.op == TT_REDUCE_MAX);
            EXPECT(seen->op.count == 77 && seen->op.root == 3 && seen->number == 1);
            EXPECT(seen->stream == some_stream() && !seen->is_replay);
            EXPECT_EQ(seen->sequence, state >= TT_RECORD_ENTERED ? 9 : 0);
            EXPECT_EQ(seen->last, state >= TT_RECORD_READY ? 2 : -1);
        }
        free(seen);
    }
    // At once, of a graph, failed.
    line = tt_record_called(&record->replays, &op, NULL);
    tt_record_entered_at_once(line, 10);
    if (EXPECT_EQ(read_record(record, &seen), 2)) {
        EXPECT(seen[1].is_replay && seen[1].state == TT_RECORD_ENTERED && seen[1].sequence == 10);
        EXPECT(seen[1].entered == seen[1].called && seen[0].called <= seen[1].called);
    }
    free(seen);
    tt_record_failed(line, ncclInvalidUsage);
    if (EXPECT_EQ(read_record(record, &seen), 2)) {
        EXPECT(seen[1].state == TT_RECORD_FAILED && seen[1].result == ncclInvalidUsage);
    }
    free(seen);
    tt_record_close(record);
}

static void last_operations_stay(void)
{
    struct tt_record *record = open_record(0, HASH + 1);
    struct tt_record_seen *seen;
    for (uint64_t i = 1; i <= 10000; i++) {
        struct tt_op op = make_op(TT_ALL_REDUCE, i, 0);
        run_one(record, &op, i, 0);
    }
    size_t count = read_record(record, &seen);
    EXPECT(count >= TT_RECORD_LINES);
    EXPECT(count <= (size_t)2 * TT_RECORD_LINES);
    for (size_t i = 0; i < count; i++) {
        uint64_t number = 10000 - count + 1 + i;
        if (!EXPECT(seen[i].number == number && seen[i].op.count == number)) {
            break;
        }
    }
    free(seen);
    tt_record_close(record);
}

// What has not ended is not forgotten, however much of it there is; afterwards its memory serves.
static void unfinished_operations_stay(void)
{
    enum { MANY = 1000 };
    static struct tt_record_line *line[MANY];
    struct tt_record *record = open_record(0, HASH + 2);
    struct tt_record_seen *seen;
    for (int i = 0; i < MANY; i++) {
        struct tt_op op = make_op(TT_ALL_GATHER, (size_t)i, 0);
        line[i] = tt_record_called(&record->calls, &op, NULL);
    }
    EXPECT_EQ(read_record(record, &seen), MANY);
    for (size_t i = 0; i < MANY; i++) {
        EXPECT(seen[i].op.count == i && seen[i].state == TT_RECORD_CALLED);
    }
    free(seen);
    for (int i = 0; i < MANY; i++) {
        tt_record_entered_at_once(line[i], (uint64_t)i + 1);
        tt_record_ended(line[i]);
    }
    uint64_t blocks = record->details->blocks;
    for (int i = 0; i < 5 * MANY; i++) {
        struct tt_op op = make_op(TT_ALL_GATHER, 1, 0);
        run_one(record, &op, (uint64_t)(MANY + i + 1), 0);
    }
    EXPECT_EQ(record->details->blocks, blocks);
    EXPECT(read_record(record, &seen) > 0);
    free(seen);
    tt_record_close(record);
}

// Readers beside a writer see whole operations: each field says which one it is.
static _Atomic bool stop;
static void *read_on(void *argument)
{
    const struct tt_record *record = argument;
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    for (int i = 0; !atomic_load(&stop) || i < 20; i++) {
        struct tt_record_seen *seen;
        size_t count = read_record(record, &seen);
        for (size_t k = 0; k < count; k++) {
            uint64_t number = seen[k].number;
            EXPECT(seen[k].op.count == number && seen[k].op.root == (int)number % 1000);
            EXPECT(seen[k].sequence == 0 || seen[k].sequence == number);
            EXPECT(seen[k].last < 0 || seen[k].last == (int)number % RANKS);
            EXPECT(k == 0 || seen[k - 1].number < number);
        }
        free(seen);
        if (i % 8 == 0) {
            EXPECT_OK(tt_record_dump(0, null));
        }
    }
    close(null);
    return NULL;
}

static void readers_beside_a_writer(void)
{
    struct tt_record *record = open_record(0, HASH + 3);
    pthread_t reader[2];
    atomic_store(&stop, false);
    for (size_t i = 0; i < 2; i++) {
        EXPECT_EQ(pthread_create(&reader[i], NULL, read_on, record), 0);
    }
    for (uint64_t i = 1; i <= 100000; i++) {
        struct tt_op op = make_op(TT_REDUCE, i, (int)i % 1000);
        run_one(record, &op, i, (int)i % RANKS);
    }
    atomic_store(&stop, true);
    for (size_t i = 0; i < 2; i++) {
        EXPECT_EQ(pthread_join(reader[i], NULL), 0);
    }
    tt_record_close(record);
}

// What is written to a descriptor, as a text to be freed.
static char *dump_text(uint64_t hash)
{
    FILE *file = tmpfile();
    EXPECT_OK(tt_record_dump(hash, fileno(file)));
    rewind(file);
    char *text = calloc(1, 1 << 16);
    EXPECT(fread(text, 1, (1 << 16) - 1, file) > 0);
    EXPECT_EQ(fclose(file), 0);
    return text;
}

static void the_state_as_text(void)
{
    struct tt_record *zero = open_record(0, HASH + 4), *one = open_record(1, HASH + 4);
    struct tt_record *other = open_record(0, HASH + 5);
    struct tt_op op = make_op(TT_ALL_REDUCE, 1024, 0), send = make_op(TT_SEND, 5, 3);
    struct tt_op wait = make_op(TT_WAIT_SIGNAL, 2, 3), give = make_op(TT_SIGNAL, 0, 3);
    run_one(zero, &op, 4, 2);
    struct tt_record_line *line = tt_record_called(&zero->calls, &op, some_stream());
    tt_record_entered(line, 5);
    struct tt_record_line *second = tt_record_called(&zero->calls, &op, some_stream());
    struct tt_record_line *pair = tt_record_called(&one->calls, &send, NULL);
    tt_record_entered_at_once(pair, 7);
    struct tt_record_line *waiting = tt_record_called(&one->calls, &wait, NULL);
    tt_record_entered_at_once(waiting, 1);
    struct tt_record_line *giving = tt_record_called(&one->calls, &give, NULL);
    tt_record_entered_at_once(giving, 2);
    char *text = dump_text(HASH + 4);
    EXPECT_CONTAINS(text, "rank 0 of 4, GPU 0 (physical 0)");
    EXPECT_CONTAINS(text, "is in #5 AllReduce(count 1024, float32, max) for ");
    EXPECT_CONTAINS(text, "waits for:\n    rank 2: the last call of rank 2, seen from AllReduce\n"
                          "  has called AllReduce(");
    EXPECT_CONTAINS(text, "which has not begun");
    EXPECT_CONTAINS(text, ", for rank 2 last");
    EXPECT_CONTAINS(text, "is in #7 Send(");
    EXPECT_CONTAINS(text, "; waits for:\n    rank 3: the last call of rank 3, seen from Send\n");
    EXPECT_CONTAINS(text, "; waits for signals of:\n"
                          "    rank 3: the last call of rank 3, seen from WaitSignal\n");
    EXPECT_CONTAINS(text, "is in #2 Signal(to rank 3) for ");
    EXPECT_CONTAINS(text, "; waits for nobody\n");
    EXPECT(strstr(text, "rank 0 of 4") < strstr(text, "rank 1 of 4"));
    EXPECT(strstr(text, "1239") == NULL); // not the other communicator
    free(text);
    text = dump_text(0);
    EXPECT_CONTAINS(text, "1239");
    EXPECT_CONTAINS(text, "is in no operation");
    free(text);
    tt_record_ready(line, 2);
    tt_record_ended(line);
    tt_record_failed(second, ncclRemoteError);
    tt_record_ended(pair);
    tt_record_ended(waiting);
    tt_record_ended(giving);
    text = dump_text(HASH + 4);
    EXPECT_CONTAINS(text, "failed AllReduce(count 1024, float32, max), called ");
    EXPECT_CONTAINS(text, ": another rank failed or ended (");
    EXPECT(strstr(text, "is in #") == NULL);
    free(text);
    tt_record_close(zero);
    tt_record_close(one);
    tt_record_close(other);
    text = dump_text(HASH + 4);
    EXPECT_CONTAINS(text, "no communicator");
    free(text);
}

// Perfetto's rules: X has a duration, i a scope, M a name for its argument; slices of one track
// lie beside or inside each other.
static void check_event(const struct json *event, int *counts)
{
    const char *phase = json_string(event, "ph", "?");
    EXPECT(json_string(event, "name", NULL) != NULL);
    EXPECT(json_number(event, "pid", -1) > 0 && json_number(event, "tid", -1) >= 0);
    EXPECT(json_number(event, "ts", -1) >= 0);
    switch (phase[0]) {
    case 'X':
        EXPECT(json_number(event, "dur", -1) >= 0);
        break;
    case 'i':
        EXPECT_STR(json_string(event, "s", ""), "t");
        break;
    case 'M':
        EXPECT(json_get(json_get(event, "args"), "name") != NULL ||
               json_get(json_get(event, "args"), "sort_index") != NULL);
        break;
    default:
        EXPECT_STR(phase, "X, i or M");
    }
    counts[(unsigned char)phase[0]]++;
}

static bool lie_well(const struct json *a, const struct json *b)
{
    double from = json_number(a, "ts", 0), to = from + json_number(a, "dur", 0);
    double other = json_number(b, "ts", 0), end = other + json_number(b, "dur", 0);
    const double least = 0.0005; // half a nanosecond: sums of decimals
    bool apart = to <= other + least || end <= from + least;
    bool inside = (from <= other + least && end <= to + least) ||
                  (other <= from + least && to <= end + least);
    return apart || inside;
}

static void check_slices(const struct json *events)
{
    for (const struct json *a = events->first; a != NULL; a = a->next) {
        for (const struct json *b = a->next; b != NULL; b = b->next) {
            if (json_string(a, "ph", "")[0] == 'X' && json_string(b, "ph", "")[0] == 'X' &&
                json_number(a, "pid", 0) == json_number(b, "pid", 0) &&
                json_number(a, "tid", 0) == json_number(b, "tid", 0)) {
                EXPECT(lie_well(a, b));
            }
        }
    }
}

static struct json *trace_json(void)
{
    char *text = NULL;
    size_t bytes, wrong;
    FILE *file = open_memstream(&text, &bytes);
    tt_record_print_trace(tt_record_lock(), file);
    tt_record_unlock();
    EXPECT_EQ(fclose(file), 0);
    struct json *trace = json_parse(text, &wrong);
    if (!EXPECT(trace != NULL)) {
        printf("  at %.80s\n", text + wrong);
    }
    free(text);
    return trace;
}

static void the_trace(void)
{
    struct tt_record *zero = open_record(0, HASH + 6), *one = open_record(1, HASH + 6);
    struct tt_op op = make_op(TT_ALL_REDUCE, 1024, 0), recv = make_op(TT_RECV, 5, 3);
    uint64_t before = tt_now_ns();
    for (uint64_t i = 1; i <= 20; i++) {
        run_one(zero, &op, i, 1);
        run_one(one, &op, i, 1);
    }
    struct tt_record_line *overlapping[3];
    for (size_t i = 0; i < 3; i++) {
        overlapping[i] = tt_record_called(&one->calls, &recv, NULL);
        tt_record_entered(overlapping[i], i + 1);
    }
    tt_record_failed(overlapping[1], ncclRemoteError);
    tt_record_ended(overlapping[0]);
    (void)tt_record_called(&one->calls, &op, NULL); // has not begun: not in the trace
    struct json *trace = trace_json();
    const struct json *events = json_get(trace, "traceEvents");
    int counts[256] = {0}, slices = 0, waits = 0, unended = 0, unfinished = 0, tracks = 0;
    for (const struct json *e = events != NULL ? events->first : NULL; e != NULL; e = e->next) {
        if (json_number(e, "pid", 0) != (HASH + 6) % 1000000007 + 1) {
            continue;
        }
        check_event(e, counts);
        const struct json *args = json_get(e, "args");
        bool is_operation = json_get(args, "call") != NULL;
        slices += is_operation;
        waits += strcmp(json_string(e, "name", ""), "wait for rank 1") == 0;
        unended += strcmp(json_string(e, "name", ""), "wait for rank 3") == 0;
        unfinished += json_get(args, "unfinished") != NULL;
        tracks += strcmp(json_string(e, "name", ""), "thread_name") == 0;
        EXPECT(!is_operation || (json_number(e, "ts", 0) * 1e3 >= (double)before - 1e5 &&
                                 json_number(e, "ts", 0) * 1e3 <= (double)tt_now_ns() + 1e5));
    }
    EXPECT_EQ(slices, 43);
    EXPECT_EQ(waits, 20);  // of rank 0; rank 1 waits for itself
    EXPECT_EQ(unended, 2); // receives of rank 1, of which one failed
    EXPECT_EQ(counts['i'], 40);
    EXPECT_EQ(unfinished, 1);
    EXPECT_EQ(tracks, 4); // two ranks, and two for what overlaps
    if (events != NULL) {
        check_slices(events);
    }
    json_free(trace);
    tt_record_ended(overlapping[2]);
    tt_record_close(zero);
    tt_record_close(one);
}

static void the_summary(void)
{
    struct tt_record *zero = open_record(0, HASH + 7), *one = open_record(1, HASH + 7);
    struct tt_op op = make_op(TT_ALL_REDUCE, 1024, 0);
    for (uint64_t i = 1; i <= 200; i++) {
        int last = i % 4 == 0 ? 0 : 1;
        struct tt_record_line *line = tt_record_called(&zero->calls, &op, NULL);
        tt_record_entered(line, i);
        for (uint64_t start = tt_now_ns(); last == 1 && tt_now_ns() - start < 20000;) {
        }
        tt_record_ready(line, last);
        tt_record_ended(line);
        run_one(one, &op, i, last);
    }
    tt_record_close(zero);
    tt_record_close(one);
    EXPECT(zero->details->waits[1].ticks > 0);
    EXPECT_EQ(zero->details->waits[1].times, 150);
    char *text = NULL;
    size_t bytes;
    FILE *file = open_memstream(&text, &bytes);
    tt_record_print_summary(tt_record_lock(), file);
    tt_record_unlock();
    EXPECT_EQ(fclose(file), 0);
    EXPECT_CONTAINS(text, "200         50 of 200 (25 %)");
    EXPECT_CONTAINS(text, "200        150 of 200 (75 %)");
    EXPECT_CONTAINS(text, " ms ");
    EXPECT_CONTAINS(text, "rank 1 (100 %)");
    free(text);
}

static void clocks_agree(void)
{
    struct tt_ticks_scale scale = tt_ticks_measure();
    for (int i = 0; i < 50; i++) {
        uint64_t before = tt_now_ns(), ns = tt_ticks_ns(&scale, tt_ticks()), after = tt_now_ns();
        EXPECT(ns + 50000 >= before && ns <= after + 50000);
        usleep(1000);
    }
    char text[32];
    tt_text_time(12345, text, sizeof text);
    EXPECT_STR(text, "12.3 us");
    tt_text_time(7, text, sizeof text);
    EXPECT_STR(text, "7 ns");
    tt_text_time(1234567890123.0, text, sizeof text);
    EXPECT_STR(text, "1235 s");
}

static void names_of_files(void)
{
    char name[64], wanted[64];
    (void)snprintf(wanted, sizeof wanted, "a.%d.3.%%", (int)getpid());
    EXPECT(tt_file_name("a.%p.%r.%%", 3, name, sizeof name));
    EXPECT_STR(name, wanted);
    EXPECT(tt_file_name("%r%q", -1, name, sizeof name));
    EXPECT_STR(name, "%r%q");
    EXPECT(tt_file_name("%h", 0, name, sizeof name) && name[0] != 0 && name[0] != '%');
    EXPECT(!tt_file_name("0123456789", 0, name, 10));
    EXPECT(tt_file_name("012345678", 0, name, 10));
}

// A trace keeps the last TUTTI_TRACE_LIMIT operations.
static void a_trace_has_a_limit(void)
{
    struct tt_record *record = open_record(0, HASH + 8);
    struct tt_op op = make_op(TT_ALL_REDUCE, 1, 0);
    uint64_t limit = record->details->most_blocks * TT_RECORD_LINES;
    for (uint64_t i = 1; i <= limit + 1000; i++) {
        run_one(record, &op, i, 1);
    }
    struct tt_record_seen *seen;
    size_t count = read_record(record, &seen);
    EXPECT(count > limit - 3 * TT_RECORD_LINES && count <= limit);
    EXPECT_EQ(seen[count - 1].number, limit + 1000);
    EXPECT(record->details->lost >= 1000 && record->details->waits[1].times >= 1000);
    free(seen);
    tt_record_close(record);
    EXPECT_EQ(record->details->waits[1].times, limit + 1000);
}

// Once as it is by default and once with TUTTI_TRACE, which changes what is kept.
int main(void)
{
    if (tt_record_traces()) {
        RUN(the_trace);
        RUN(the_summary);
        RUN(a_trace_has_a_limit);
        return expect_result();
    }
    RUN(states_of_a_line);
    RUN(last_operations_stay);
    RUN(unfinished_operations_stay);
    RUN(readers_beside_a_writer);
    RUN(the_state_as_text);
    RUN(clocks_agree);
    RUN(names_of_files);
    return expect_result();
}
