// The command line of tutti-perf: defaults, values, messages that name what is wrong, help.
// SPDX-License-Identifier: Apache-2.0
#include "expect.h"
#include "perf.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORDS = 40 };

static char *const *split(const char *line)
{
    static char copy[512], *words[WORDS + 1];
    int n = 0;
    (void)snprintf(copy, sizeof copy, "%s", line);
    char *rest = NULL;
    for (char *w = strtok_r(copy, " ", &rest); w != NULL && n < WORDS;
         w = strtok_r(NULL, " ", &rest)) {
        words[n++] = w;
    }
    words[n] = NULL;
    return words;
}

// Reads a command line; what it says on `from` (stderr, or stdout) is in `text`.
static int read_line(const char *line, struct perf_options *options, FILE *from, char *text,
                     size_t room)
{
    char path[] = "/tmp/tutti-perf-test-XXXXXX";
    int n = 0;
    char *const *words = split(line);
    while (words[n] != NULL) {
        n++;
    }
    (void)fflush(from);
    int file = mkstemp(path), before = dup(fileno(from));
    dup2(file, fileno(from));
    int status = perf_options_read(options, n, (char **)words);
    (void)fflush(from);
    dup2(before, fileno(from));
    ssize_t got = pread(file, text, room - 1, 0);
    text[got > 0 ? got : 0] = '\0';
    close(file), close(before), unlink(path);
    return status;
}

static void good(const char *line, struct perf_options *options)
{
    char text[4096];
    EXPECT_EQ(read_line(line, options, stderr, text, sizeof text), PERF_OK);
    EXPECT_STR(text, "");
}

static void bad(const char *line, const char *part, const char *other)
{
    struct perf_options options;
    char text[4096];
    EXPECT_EQ(read_line(line, &options, stderr, text, sizeof text), PERF_BAD_OPTION);
    EXPECT_CONTAINS(text, part);
    EXPECT_CONTAINS(text, other);
}

static void defaults_are_those_of_nccl_tests(void)
{
    struct perf_options o;
    good("tutti-perf all_reduce", &o);
    EXPECT_STR(o.operation->name, "all_reduce");
    EXPECT_EQ(o.processes * o.threads * o.gpus, 1);
    EXPECT_EQ(o.min_bytes, 32u << 20);
    EXPECT_EQ(o.max_bytes, 32u << 20);
    EXPECT_EQ(o.step_bytes, 1u << 20);
    EXPECT_EQ(o.factor, 1);
    EXPECT_EQ(o.iterations, 20);
    EXPECT_EQ(o.warmup, 1);
    EXPECT_EQ(o.aggregated, 1);
    EXPECT_EQ(o.checks, 1);
    EXPECT_EQ(o.op, ncclSum);
    EXPECT_EQ(o.type, ncclFloat32);
    EXPECT_EQ(o.root, 0);
    EXPECT_EQ(o.average, PERF_MEAN);
    EXPECT_EQ(o.registration, 0);
    EXPECT_EQ(o.blocking + o.graph + o.timeout_s + o.unalign, 0);
}

static void options_short_and_long(void)
{
    struct perf_options o;
    good("tutti-perf reduce -t 2 -g3 -b 8 -e 64K -f 4 -n 7 -w 0 -m 5 -p 1 -o mulsum -d half -r 5",
         &o);
    EXPECT_EQ(perf_ranks(&o), 6);
    EXPECT_EQ(o.min_bytes, 8);
    EXPECT_EQ(o.max_bytes, 65536);
    EXPECT_EQ(o.factor, 4);
    EXPECT_EQ(o.iterations * 100 + o.warmup * 10 + o.aggregated, 705);
    EXPECT(o.parallel_init);
    EXPECT_EQ(o.op, PERF_MULSUM);
    EXPECT_EQ(o.type, ncclFloat16);
    EXPECT_EQ(o.root, 5);
    good("x/gather_perf --nthreads 1 --minbytes=1M --maxbytes 2M --stepbytes 512K --op all "
         "--datatype "
         "all",
         &o);
    EXPECT_EQ(o.op, PERF_ALL);
    EXPECT_EQ(o.type, PERF_ALL);
    EXPECT_EQ(perf_next_size(&o, o.min_bytes), 3u << 19);
    EXPECT_EQ(perf_next_size(&o, 2u << 20), 0);
    good("tutti-perf put -C 1 -z 3 -a 3 -R 2 -y 1 -T 9 -S 1 -I 1 -K 2 -u 3 -c 4", &o);
    EXPECT(o.cpu_time && o.null_stream && o.timestamps && o.per_iteration);
    EXPECT_EQ(o.blocking * 1000 + (int)o.average * 100 + o.registration * 10 + o.timeout_s, 3329);
    EXPECT_EQ(o.skipped * 100 + o.unalign * 10 + o.checks, 234);
    good("tutti-perf put", &o);
    EXPECT_EQ(o.registration, 2);
    good("tutti-perf broadcast -e 64", &o); // the other size makes room
    EXPECT_EQ(o.min_bytes, 64);
    EXPECT_EQ(o.max_bytes, 64);
    good("tutti-perf broadcast -b 64M", &o);
    EXPECT_EQ(o.min_bytes, 64u << 20);
    EXPECT_EQ(o.max_bytes, 64u << 20);
    good("tutti-perf broadcast -e 64M -f 2", &o);
    EXPECT_EQ(o.min_bytes, 32u << 20);
    good("dir/all_gather_perf -b 8", &o); // by the program's name, as nccl-tests' are called
    EXPECT_STR(o.operation->name, "all_gather");
}

static void bad_options_are_named(void)
{
    bad("tutti-perf", "operation is missing", "all_to_all_v");
    bad("tutti-perf --foo", "--foo: the operation is missing", "all_to_all_v");
    bad("tutti-perf allreduce", "\"allreduce\"", "all_reduce");
    bad("tutti-perf all_reduce -q", "-q", "--help");
    bad("tutti-perf all_reduce --sizes 3", "--sizes", "--help");
    bad("tutti-perf all_reduce -n", "-n", "missing");
    bad("tutti-perf all_reduce -n 0", "-n, --iters: 0", "1 to");
    bad("tutti-perf all_reduce -n 3x", "\"3x\"", "whole number");
    bad("tutti-perf broadcast -r 99 -e 64", "-r, --root: 99 is no rank", "0 to 0");
    bad("tutti-perf broadcast -b 65 -e 64", "-b, --minbytes: 65", "more than -e, --maxbytes, 64");
    bad("tutti-perf all_reduce -b 12Q", "-b, --minbytes: \"12Q\"", "64K");
    bad("tutti-perf all_reduce -b -3", "\"-3\"", "size");
    bad("tutti-perf all_reduce -b 2M -e 1M", "2097152", "1048576");
    bad("tutti-perf all_reduce -d float16", "\"float16\"", "bfloat16");
    bad("tutti-perf all_reduce -o add", "\"add\"", "mulsum");
    bad("tutti-perf reduce -r 2 -t 2", "-r, --root: 2", "0 to 1");
    bad("tutti-perf all_reduce -t 64 -g 64", "-t 64", "1024 ranks");
    bad("tutti-perf all_reduce -G 1 -I 1", "--per_iter_timing", "-G 1");
    bad("tutti-perf all_reduce -G 1 -z 2", "--blocking: 2", "-G 1");
    bad("tutti-perf all_reduce -n 3 -K 3", "-K, --per_iter_skip: 3", "0 to 2");
    bad("tutti-perf put -R 1", "-R, --local_register: 1", "-R 2");
    bad("tutti-perf all_reduce -b 0 -e 8 -f 2", "--minbytes: 0", "begin with 1");
    bad("tutti-perf all_reduce -b 0 -e 8 -i 0", "--stepbytes: 0", "-f 2");
    bad("tutti-perf all_reduce -D 1", "-D, --device_implementation", "host functions");
    bad("tutti-perf all_reduce word", "\"word\"", "too many");
    bad("tutti-perf all_to_all_v --uneven steep", "\"steep\"", "ramp");
}

static void help_of_program_and_operation(void)
{
    struct perf_options o;
    char text[16384];
    EXPECT_EQ(read_line("tutti-perf --help", &o, stdout, text, sizeof text), -1);
    for (int i = 0; i < PERF_KINDS; i++) {
        EXPECT_CONTAINS(text, perf_operations[i].name);
    }
    for (int i = 0; i < PERF_KINDS; i++) {
        char line[64];
        (void)snprintf(line, sizeof line, "tutti-perf %s -h", perf_operations[i].name);
        EXPECT_EQ(read_line(line, &o, stdout, text, sizeof text), -1);
        EXPECT_CONTAINS(text, perf_operations[i].function);
        EXPECT_CONTAINS(text, "Bus bandwidth:");
        EXPECT_CONTAINS(text, "--minbytes");
    }
}

static void sizes(void)
{
    static const struct {
        const char *text;
        size_t bytes;
    } right[] = {{"0", 0},          {"8", 8},           {"64K", 65536}, {"1m", 1 << 20},
                 {"1.5M", 3 << 19}, {"2G", 2ull << 30}, {"4KiB", 4096}, {"1T", 1ull << 40}};
    static const char *const wrong[] = {"", "K", "-1", "1X", "8 K", "1KK", "nan", "9e99"};
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        EXPECT(perf_size_read(right[i].text, &bytes));
        EXPECT_EQ(bytes, right[i].bytes);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        EXPECT(!perf_size_read(wrong[i], &bytes));
    }
}

int main(void)
{
    RUN(defaults_are_those_of_nccl_tests);
    RUN(options_short_and_long);
    RUN(bad_options_are_named);
    RUN(help_of_program_and_operation);
    RUN(sizes);
    return expect_result();
}
