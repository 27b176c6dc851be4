// The command line. One table says of each option its names, what its value may be and where it
// goes; parser and help go by it. Names and defaults are those of nccl-tests 2.19 (README there,
// "Arguments"); options with a long name alone are ours.
// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define FIELD(name) offsetof(struct perf_options, name)

const struct perf_option perf_option_table[] = {
    {0, NULL, "Ranks", PERF_HEADING, 0, 0, 0, NULL},
    {'t', "nthreads", "N", PERF_NUMBER, FIELD(threads), 1, PERF_MAX_RANKS,
     "threads of each process (1)"},
    {'g', "ngpus", "N", PERF_NUMBER, FIELD(gpus), 1, PERF_MAX_RANKS,
     "GPUs, each a rank, of each thread (1)"},
    {0, "processes", "N", PERF_NUMBER, FIELD(processes), 1, PERF_MAX_RANKS,
     "processes on this host (1: threads of this one)"},
    {0, NULL, "Sizes", PERF_HEADING, 0, 0, 0, NULL},
    {'b', "minbytes", "SIZE", PERF_SIZE, FIELD(min_bytes), 0, 0,
     "first size (32M, or -e where that is less); K, M, G are powers of 1024"},
    {'e', "maxbytes", "SIZE", PERF_SIZE, FIELD(max_bytes), 0, 0,
     "last size (32M, or -b where that is more)"},
    {'i', "stepbytes", "SIZE", PERF_SIZE, FIELD(step_bytes), 0, 0,
     "from one size to the next (1M), where no factor is given"},
    {'f', "stepfactor", "N", PERF_NUMBER, FIELD(factor), 1, 1 << 20,
     "each size is so many times the one before (1: steps)"},
    {0, "align", "BYTES", PERF_NUMBER, FIELD(align), 1, 1 << 20,
     "what a rank gets is a multiple of it (16); 1: any count"},
    {'u', "unalign", "N", PERF_NUMBER, FIELD(unalign), 0, 4096, "buffers begin at element N (0)"},
    {0, NULL, "What", PERF_HEADING, 0, 0, 0, NULL},
    {'o', "op", "OP", PERF_OPERATOR, FIELD(op), 0, 0,
     "sum, prod, max, min, avg, mulsum or all (sum)"},
    {'d', "datatype", "TYPE", PERF_TYPE, FIELD(type), 0, 0,
     "int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 f8e5m2\n"
     "or all (float)"},
    {'r', "root", "RANK", PERF_NUMBER, FIELD(root), -1, PERF_MAX_RANKS - 1, "root (0); -1: each"},
    {0, "uneven", "PATTERN", PERF_PATTERN, FIELD(uneven), 0, 0,
     "counts of the uneven forms: ramp (rank r gets r + 1 shares), split (as even as\n"
     "whole elements allow) or holes (every second rank gets nothing) (ramp)"},
    {0, NULL, "How often", PERF_HEADING, 0, 0, 0, NULL},
    {'n', "iters", "N", PERF_NUMBER, FIELD(iterations), 1, 10000000, "timed iterations (20)"},
    {'w', "warmup_iters", "N", PERF_NUMBER, FIELD(warmup), 0, 10000000,
     "iterations before, for each size (1)"},
    {'m', "agg_iters", "N", PERF_NUMBER, FIELD(aggregated), 1, 65536,
     "calls in one group, as one iteration (1)"},
    {'N', "run_cycles", "N", PERF_NUMBER, FIELD(cycles), 0, INT_MAX,
     "times through all sizes (1); 0: until interrupted (Ctrl-C: the line\nis finished, the "
     "summary and files are written)"},
    {'c', "check", "N", PERF_NUMBER, FIELD(checks), 0, 10000000,
     "verified iterations, bit for bit (1); 0: none"},
    {0, "data", "KIND", PERF_DATA, FIELD(data), 0, 0,
     "contract: inputs whose result tells the order of the ranks (default with tutti's\n"
     "library); exact: inputs that give the same in any order (default with another)"},
    {0, NULL, "How", PERF_HEADING, 0, 0, 0, NULL},
    {'p', "parallel_init", "0|1", PERF_FLAG, FIELD(parallel_init), 0, 1,
     "each thread makes its own communicators (0: the first makes all of the process)"},
    {'z', "blocking", "0..3", PERF_NUMBER, FIELD(blocking), 0, 3,
     "1: wait and meet after each call; 2: wait only; 3: wait and meet after each\n"
     "iteration, the meeting not timed (0: the stream runs on)"},
    {'G', "cudagraph", "N", PERF_NUMBER, FIELD(graph), 0, 1000000,
     "capture the iterations as a graph, launch it N times (0: none)"},
    {'R', "local_register", "0..2", PERF_NUMBER, FIELD(registration), 0, 2,
     "1: register buffers; 2: as symmetric windows (0; put: 2)"},
    {'x', "cta_policy", "0..2", PERF_NUMBER, FIELD(cta_policy), 0, 2,
     "of the communicators (as the library likes)"},
    {'y', "stream_null", "0|1", PERF_FLAG, FIELD(null_stream), 0, 1, "use the null stream (0)"},
    {'T', "timeout", "SECONDS", PERF_NUMBER, FIELD(timeout_s), 0, 1000000,
     "an operation that takes longer ends the run with status 4 (0: never)"},
    {0, NULL, "What is told", PERF_HEADING, 0, 0, 0, NULL},
    {'a', "average", "0..3", PERF_NUMBER, FIELD(average), 0, 3,
     "time of rank 0 (0), mean (1), smallest (2), largest (3) of all threads (1)"},
    {'C', "report_cputime", "0|1", PERF_FLAG, FIELD(cpu_time), 0, 1,
     "time that the calls take, instead of the operations (0)"},
    {'I', "per_iter_timing", "0|1", PERF_FLAG, FIELD(per_iteration), 0, 1,
     "time each iteration by events: columns i_min, i_max, i_p99, i_cv% (0)"},
    {'P', "percentiles", "0|1", PERF_FLAG, FIELD(percentiles), 0, 1,
     "the same over iterations and ranks: columns p50, p90, p99, max (0)"},
    {'K', "per_iter_skip", "N", PERF_NUMBER, FIELD(skipped), 0, 10000000,
     "leave the first N out of these (0)"},
    {'S', "report_timestamps", "0|1", PERF_FLAG, FIELD(timestamps), 0, 1,
     "the time of day in each line (0)"},
    {'M', "memory", "0|1", PERF_FLAG, FIELD(memory), 0, 1, "device memory used (0)"},
    {'J', "output_file", "FILE", PERF_FILE, FIELD(json), 0, 0,
     "write everything as JSON, percentiles included"},
    {0, "plot", "FILE", PERF_FILE, FIELD(plot), 0, 0,
     "draw bus bandwidth and latency by size, as SVG"},
    {'h', "help", NULL, PERF_HELP, 0, 0, 0, "this text"},
    {'D', "device_implementation", "N", PERF_REFUSED, 0, 0, 0, NULL},
    {0, "child", "N:FD", PERF_CHILD, FIELD(child), 0, 0, NULL}, // between launcher and process
};
const size_t perf_options_count = sizeof perf_option_table / sizeof *perf_option_table;

// ---- Values -------------------------------------------------------------------------------------

bool perf_size_read(const char *text, size_t *bytes_out)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || errno != 0 || !(value >= 0) || *text == '-') {
        return false;
    }
    static const char *const units = "kmgt";
    if (*end != '\0') {
        const char *unit = strchr(units, *end | 0x20);
        if (unit == NULL) {
            return false;
        }
        value *= (double)(1ull << (10 * (unit - units + 1)));
        end++;
        if (*end == 'i' || *end == 'I') { // KiB
            end++;
        }
        if (*end == 'B' || *end == 'b') {
            end++;
        }
    }
    if (*end != '\0' || value > 0x1p62) {
        return false;
    }
    *bytes_out = (size_t)value;
    return true;
}

static bool read_number(const char *text, long long *value_out)
{
    char *end;
    errno = 0;
    *value_out = strtoll(text, &end, 0);
    return end != text && *end == '\0' && errno == 0;
}

static void print_names(const struct perf_option *option)
{
    if (option->letter != 0) {
        (void)fprintf(stderr, "tutti-perf: -%c, --%s: ", option->letter, option->name);
    } else {
        (void)fprintf(stderr, "tutti-perf: --%s: ", option->name);
    }
}

__attribute__((format(printf, 2, 3))) static bool refuse(const struct perf_option *option,
                                                         const char *format, ...)
{
    print_names(option);
    va_list arguments;
    va_start(arguments, format);
    (void)vfprintf(stderr, format, arguments);
    va_end(arguments);
    (void)fputc('\n', stderr);
    return false;
}

// Index of text among names, or -1.
static int find(const char *text, const char *const *names, int n)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(text, names[i]) == 0) {
            return i;
        }
    }
    return -1;
}

static bool set_name(const struct perf_option *option, const char *text, int *field)
{
    static const char *const patterns[] = {"ramp", "split", "holes"};
    static const char *const kinds[] = {"contract", "exact"};
    int value = option->kind == PERF_OPERATOR  ? perf_op_find(text)
                : option->kind == PERF_TYPE    ? perf_type_find(text)
                : option->kind == PERF_PATTERN ? find(text, patterns, 3)
                                               : find(text, kinds, 2);
    bool may_be_all = option->kind == PERF_OPERATOR || option->kind == PERF_TYPE;
    if (value < (may_be_all ? PERF_ALL : 0)) {
        return refuse(option, "there is no \"%s\"; it may be %s", text, option->text);
    }
    *field = value;
    return true;
}

static bool set_number(const struct perf_option *option, const char *text, void *field)
{
    long long value;
    if (!read_number(text, &value)) {
        return refuse(option, "\"%s\" is no whole number; it may be %lld to %lld", text,
                      option->least, option->most);
    }
    if (value < option->least || value > option->most) {
        return refuse(option, "%lld is out of range; it may be %lld to %lld", value, option->least,
                      option->most);
    }
    if (option->kind == PERF_FLAG) {
        *(bool *)field = value != 0;
    } else {
        *(int *)field = (int)value;
    }
    return true;
}

// "N:FD"
static bool set_child(struct perf_options *options, const char *text)
{
    char *end;
    long child = strtol(text, &end, 10);
    if (end == text || *end != ':' || child < 0 || child > PERF_MAX_RANKS) {
        return false;
    }
    const char *rest = end + 1;
    long fd = strtol(rest, &end, 10);
    options->child = (int)child;
    options->child_fd = (int)fd;
    return end != rest && *end == '\0' && fd >= 0 && fd <= INT_MAX;
}

static bool set(struct perf_options *options, const struct perf_option *option, const char *text)
{
    void *field = (char *)options + option->field;
    switch (option->kind) {
    case PERF_NUMBER:
    case PERF_FLAG:
        return set_number(option, text, field);
    case PERF_SIZE:
        if (!perf_size_read(text, field)) {
            return refuse(option, "\"%s\" is no size; write bytes, or a number and K, M or G: 64K",
                          text);
        }
        return true;
    case PERF_DATA:
        options->data_given = true;
        return set_name(option, text, field);
    case PERF_OPERATOR:
    case PERF_TYPE:
    case PERF_PATTERN:
        return set_name(option, text, field);
    case PERF_FILE:
        if (*text == '\0') {
            return refuse(option, "the name is empty; give a file's name");
        }
        *(const char **)field = text;
        return true;
    case PERF_CHILD:
        return set_child(options, text) ||
               refuse(option, "\"%s\" is not what this program passes to its processes", text);
    case PERF_REFUSED:
        return refuse(option,
                      "%s is not possible: host functions are measured here; kernels with "
                      "the device API are in nccl-tests and bench/",
                      text);
    default:
        return true;
    }
}

// ---- The whole ----------------------------------------------------------------------------------

__attribute__((format(printf, 1, 2))) static int complain(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)fputs("tutti-perf: ", stderr);
    (void)vfprintf(stderr, format, arguments);
    (void)fputc('\n', stderr);
    va_end(arguments);
    return PERF_BAD_OPTION;
}

int perf_ranks(const struct perf_options *options)
{
    long long ranks = (long long)options->processes * options->threads * options->gpus;
    return ranks > PERF_MAX_RANKS ? PERF_MAX_RANKS + 1 : (int)ranks;
}

enum { USUAL_BYTES = 32 << 20 };
static const size_t not_given = SIZE_MAX;

// A size that is not given makes room for the other.
static void choose_sizes(struct perf_options *o)
{
    if (o->min_bytes == not_given) {
        o->min_bytes = o->max_bytes < USUAL_BYTES ? o->max_bytes : USUAL_BYTES;
    }
    if (o->max_bytes == not_given) {
        o->max_bytes = o->min_bytes > USUAL_BYTES ? o->min_bytes : USUAL_BYTES;
    }
}

// What the options say together.
static int check_together(struct perf_options *o)
{
    if (perf_ranks(o) > PERF_MAX_RANKS) {
        return complain("--processes %d x -t %d x -g %d are more than %d ranks", o->processes,
                        o->threads, o->gpus, PERF_MAX_RANKS);
    }
    if (o->min_bytes > o->max_bytes) {
        return complain("-b, --minbytes: %zu is more than -e, --maxbytes, %zu", o->min_bytes,
                        o->max_bytes);
    }
    if (o->factor == 1 && o->step_bytes == 0 && o->min_bytes != o->max_bytes) {
        return complain("-i, --stepbytes: 0 never gets from %zu to %zu; give a step, or -f 2",
                        o->min_bytes, o->max_bytes);
    }
    if (o->factor > 1 && o->min_bytes == 0 && o->max_bytes != 0) {
        return complain("-b, --minbytes: 0 times -f %d never gets to %zu; begin with 1 or more",
                        o->factor, o->max_bytes);
    }
    if (o->root >= perf_ranks(o)) {
        return complain("-r, --root: %d is no rank; of %d ranks it may be 0 to %d, or -1 for each",
                        o->root, perf_ranks(o), perf_ranks(o) - 1);
    }
    if (o->graph > 0 && (o->per_iteration || o->percentiles)) {
        return complain("%s: a graph's iterations cannot be timed one by one; leave out -G %d or "
                        "this",
                        o->per_iteration ? "-I, --per_iter_timing 1" : "-P, --percentiles 1",
                        o->graph);
    }
    if (o->graph > 0 && o->blocking != 0) {
        return complain("-z, --blocking: %d waits for what -G %d only captures; use 0", o->blocking,
                        o->graph);
    }
    if (o->graph > 0 && o->null_stream) {
        return complain("-y, --stream_null: 1: the null stream cannot be captured; leave out -G %d "
                        "or this",
                        o->graph);
    }
    if (o->skipped >= o->iterations && o->skipped > 0) {
        return complain("-K, --per_iter_skip: %d leaves nothing of -n %d; it may be 0 to %d",
                        o->skipped, o->iterations, o->iterations - 1);
    }
    if (o->operation->kind == PERF_PUT && o->registration >= 0 && o->registration != 2) {
        return complain("-R, --local_register: %d: put needs symmetric windows, -R 2",
                        o->registration);
    }
    if (o->registration < 0) {
        o->registration = o->operation->kind == PERF_PUT ? 2 : 0;
    }
    return PERF_OK;
}

// The operation is the program's name where that is "all_reduce_perf", else the first word.
static const struct perf_operation *operation_of(int *argc, char ***argv)
{
    const char *slash = strrchr((*argv)[0], '/');
    char name[64];
    (void)snprintf(name, sizeof name, "%s", slash != NULL ? slash + 1 : (*argv)[0]);
    char *end = strstr(name, "_perf");
    if (end != NULL && end[5] == '\0') {
        *end = '\0';
        const struct perf_operation *operation = perf_operation_find(name);
        if (operation != NULL) {
            return operation;
        }
    }
    if (*argc < 2 || (*argv)[1][0] == '-') {
        return NULL;
    }
    ++*argv, --*argc;
    return perf_operation_find((*argv)[0]);
}

enum { OPTIONS_MOST = 64 };
_Static_assert(sizeof perf_option_table / sizeof *perf_option_table < OPTIONS_MOST, "room");

// As getopt_long wants them. Long ones are told from short ones by 256 and more.
static void list_options(char *letters, struct option *longs)
{
    *letters++ = ':';
    for (size_t i = 0; i < perf_options_count; i++) {
        const struct perf_option *o = &perf_option_table[i];
        if (o->kind == PERF_HEADING) {
            continue;
        }
        bool takes = o->kind != PERF_HELP;
        *longs++ =
            (struct option){o->name, takes ? required_argument : no_argument, NULL, 256 + (int)i};
        if (o->letter != 0) {
            *letters++ = o->letter;
            if (takes) {
                *letters++ = ':';
            }
        }
    }
    *letters = '\0';
    *longs = (struct option){0};
}

// What getopt_long has found.
static const struct perf_option *option_of(int found)
{
    for (size_t i = 0; i < perf_options_count && found < 256; i++) {
        if (perf_option_table[i].letter == found) {
            return &perf_option_table[i];
        }
    }
    return &perf_option_table[found - 256];
}

static int parse(struct perf_options *options, int argc, char **argv)
{
    char letters[2 * OPTIONS_MOST];
    struct option longs[OPTIONS_MOST];
    list_options(letters, longs);
    opterr = 0;
    optind = 0; // glibc: begin anew
    for (;;) {
        int found = getopt_long(argc, argv, letters, longs, NULL);
        if (found == -1) {
            break;
        }
        if (found == ':') {
            return complain("%s: its value is missing; --help tells what it may be",
                            argv[optind - 1]);
        }
        if (found == '?') {
            return complain("%s: there is no such option; --help lists all", argv[optind - 1]);
        }
        const struct perf_option *option = option_of(found);
        if (option->kind == PERF_HELP) {
            perf_help(stdout, options->operation);
            return -1;
        }
        if (!set(options, option, optarg)) {
            return PERF_BAD_OPTION;
        }
    }
    if (optind < argc) {
        return complain("\"%s\" is one word too many; options begin with -", argv[optind]);
    }
    return PERF_OK;
}

int perf_options_read(struct perf_options *options, int argc, char **argv)
{
    *options = (struct perf_options){.processes = 1,
                                     .threads = 1,
                                     .gpus = 1,
                                     .min_bytes = not_given,
                                     .max_bytes = not_given,
                                     .step_bytes = 1 << 20,
                                     .factor = 1,
                                     .iterations = 20,
                                     .aggregated = 1,
                                     .warmup = 1,
                                     .cycles = 1,
                                     .checks = 1,
                                     .op = ncclSum,
                                     .type = ncclFloat32,
                                     .registration = -1,
                                     .cta_policy = -1,
                                     .align = 16,
                                     .average = PERF_MEAN,
                                     .child = -1,
                                     .child_fd = -1};
    if (argc < 1) {
        return PERF_BAD_OPTION;
    }
    const char *word = argc > 1 ? argv[1] : "";
    options->operation = operation_of(&argc, &argv);
    if (options->operation == NULL) {
        if (strcmp(word, "-h") == 0 || strcmp(word, "--help") == 0) {
            perf_help(stdout, NULL);
            return -1;
        }
        if (*word == '\0' || *word == '-') {
            (void)fprintf(stderr, "tutti-perf: %s%sthe operation is missing; the first word may be",
                          word, *word == '\0' ? "" : ": ");
        } else {
            (void)fprintf(stderr, "tutti-perf: there is no operation \"%s\"; it may be", word);
        }
        for (int i = 0; i < PERF_KINDS; i++) {
            (void)fprintf(stderr, " %s", perf_operations[i].name);
        }
        (void)fputc('\n', stderr);
        return PERF_BAD_OPTION;
    }
    int status = parse(options, argc, argv);
    choose_sizes(options);
    return status == PERF_OK ? check_together(options) : status;
}

size_t perf_next_size(const struct perf_options *options, size_t bytes)
{
    size_t next;
    bool over = options->factor > 1 ? __builtin_mul_overflow(bytes, (size_t)options->factor, &next)
                                    : __builtin_add_overflow(bytes, options->step_bytes, &next);
    return over || next > options->max_bytes || next <= bytes ? 0 : next;
}
