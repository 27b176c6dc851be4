// The checks of expect.h: counters and messages. Counters are atomic; each message is one write, so
// that messages of threads and processes do not mix within a line.
// SPDX-License-Identifier: Apache-2.0
#include "expect.h"

#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES = 2048, ARGUMENT_BYTES = 4096, STATUS_SKIPPED = 77 };

static atomic_int checks_made;
static atomic_int checks_failed;
static atomic_int skips;
static atomic_int cases_run;
static char last_skip[LINE_BYTES];
static _Thread_local int thread_rank = -1;

// Present only in programs that link the libraries; the checks themselves need neither.
__attribute__((weak)) const char *ncclGetErrorString(int result);
__attribute__((weak)) const char *ncclGetLastError(void *comm);
__attribute__((weak)) const char *cudaGetErrorString(int error);

void expect_set_rank(int rank)
{
    thread_rank = rank;
}

__attribute__((format(printf, 3, 4))) static void print_line(const char *file, int line,
                                                             const char *format, ...)
{
    char text[LINE_BYTES];
    int used = snprintf(text, sizeof text, "%s:%d: ", file, line);
    if (thread_rank >= 0) {
        used += snprintf(text + used, sizeof text - (size_t)used, "rank %d: ", thread_rank);
    }
    va_list arguments;
    va_start(arguments, format);
    used += vsnprintf(text + used, sizeof text - (size_t)used, format, arguments);
    va_end(arguments);
    if (used > (int)sizeof text - 2) {
        used = (int)sizeof text - 2;
    }
    text[used++] = '\n';
    if (write(STDERR_FILENO, text, (size_t)used) < 0) {
        atomic_fetch_add(&checks_failed, 1); // nobody could read a failure: count one
    }
}

static bool count(bool holds)
{
    atomic_fetch_add(&checks_made, 1);
    if (!holds) {
        atomic_fetch_add(&checks_failed, 1);
    }
    return holds;
}

bool expect_true(bool holds, const char *text, const char *file, int line)
{
    if (!count(holds)) {
        print_line(file, line, "false: %s", text);
    }
    return holds;
}

bool expect_equal(long long a, long long b, const char *a_text, const char *b_text,
                  const char *file, int line)
{
    if (!count(a == b)) {
        print_line(file, line, "%s is %lld, but %s is %lld", a_text, a, b_text, b);
    }
    return a == b;
}

bool expect_string(const char *a, const char *b, const char *a_text, const char *b_text,
                   const char *file, int line)
{
    bool same = a && b ? strcmp(a, b) == 0 : a == b;
    if (!count(same)) {
        print_line(file, line, "%s is \"%s\", but %s is \"%s\"", a_text, a ? a : "(null)", b_text,
                   b ? b : "(null)");
    }
    return same;
}

bool expect_contains(const char *text, const char *part, const char *name, const char *file,
                     int line)
{
    bool found = text && strstr(text, part);
    if (!count(found)) {
        print_line(file, line, "%s does not contain \"%s\": \"%s\"", name, part,
                   text ? text : "(null)");
    }
    return found;
}

bool expect_near(double a, double b, double tolerance, const char *a_text, const char *b_text,
                 const char *file, int line)
{
    bool near = fabs(a - b) <= tolerance;
    if (!count(near)) {
        print_line(file, line, "%s is %.9g, but %s is %.9g (tolerance %g)", a_text, a, b_text, b,
                   tolerance);
    }
    return near;
}

bool expect_nccl(int result, const char *text, const char *file, int line)
{
    if (!count(result == 0)) {
        const char *name = ncclGetErrorString ? ncclGetErrorString(result) : "";
        const char *detail = ncclGetLastError ? ncclGetLastError(NULL) : "";
        print_line(file, line, "%s gave result %d: %s: %s", text, result, name,
                   detail ? detail : "");
    }
    return result == 0;
}

bool expect_cuda(int error, const char *text, const char *file, int line)
{
    if (!count(error == 0)) {
        print_line(file, line, "%s gave CUDA error %d: %s", text, error,
                   cudaGetErrorString ? cudaGetErrorString(error) : "");
    }
    return error == 0;
}

void expect_skip(const char *why, const char *file, int line)
{
    if (atomic_fetch_add(&skips, 1) == 0) {
        snprintf(last_skip, sizeof last_skip, "%s", why);
    }
    print_line(file, line, "skipped: %s", why);
}

// The value of option `name` on this program's command line, or NULL; "" for `-l`, which takes
// none.
static const char *command_line_option(const char *name)
{
    static char arguments[ARGUMENT_BYTES];
    static ssize_t bytes = -1;
    if (bytes < 0) {
        FILE *file = fopen("/proc/self/cmdline", "r");
        bytes = file ? (ssize_t)fread(arguments, 1, sizeof arguments - 1, file) : 0;
        if (file && fclose(file) != 0) {
            bytes = 0;
        }
    }
    for (const char *word = arguments; word < arguments + bytes; word += strlen(word) + 1) {
        const char *next = word + strlen(word) + 1;
        if (strcmp(word, name) == 0) {
            return next < arguments + bytes ? next : "";
        }
    }
    return NULL;
}

bool expect_begin_case(const char *name)
{
    if (command_line_option("-l")) {
        printf("%s\n", name);
        atomic_fetch_add(&cases_run, 1);
        return false;
    }
    const char *only = command_line_option("-t");
    if (only && strcmp(only, name) != 0) {
        return false;
    }
    atomic_fetch_add(&cases_run, 1);
    printf("case %s\n", name);
    fflush(stdout);
    return true;
}

void expect_end_case(void)
{
    fflush(stdout);
}

int expect_failures(void)
{
    return atomic_load(&checks_failed);
}

int expect_result(void)
{
    int made = atomic_load(&checks_made);
    int failed = atomic_load(&checks_failed);
    int skipped = atomic_load(&skips);
    if (command_line_option("-l")) {
        return 0;
    }
    bool is_rank = thread_rank >= 0; // a rank may check nothing; its parent judges how it ends
    if (is_rank && failed == 0 && (made > 0 || skipped == 0)) {
        return 0;
    }
    if (made == 0 && skipped == 0) {
        printf("failed: no check was made%s\n",
               command_line_option("-t") ? " (no such case?)" : "");
        return 1;
    }
    if (failed == 0 && made == 0) {
        printf("skipped: %s\n", last_skip);
        return STATUS_SKIPPED;
    }
    printf("%s: %d checks, %d failed, %d skipped\n", failed ? "FAILED" : "passed", made, failed,
           skipped);
    return failed ? 1 : 0;
}
