// Checks for tests. A failed check prints file, line, rank and both values, is counted, and the
// test goes on: no longjmp and no exit, so checks are safe in threads, in rank processes and in C++
// (.cu) sources.
//   static void adds(void) { EXPECT_EQ(1 + 1, 2); }
//   int main(void) { RUN(adds); return expect_result(); }
// Every program takes `-t NAME` (run one case) and `-l` (list them). Exit status: 0 passed, 1
// failed, 77 skipped. SPDX-License-Identifier: Apache-2.0
#ifndef TESTS_SUPPORT_EXPECT_H
#define TESTS_SUPPORT_EXPECT_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

// Each check evaluates its arguments once and is true when it holds, so `if (!EXPECT(p)) return;`
// works.
#define EXPECT(condition) expect_true(!!(condition), #condition, __FILE__, __LINE__)
// Two integers (also sizes, enums, booleans) are equal.
#define EXPECT_EQ(a, b) expect_equal((long long)(a), (long long)(b), #a, #b, __FILE__, __LINE__)
// Two C strings are equal; NULL equals only NULL.
#define EXPECT_STR(a, b) expect_string((a), (b), #a, #b, __FILE__, __LINE__)
// The string `text` contains `part`.
#define EXPECT_CONTAINS(text, part) expect_contains((text), (part), #text, __FILE__, __LINE__)
// |a - b| <= tolerance; NaN never is.
#define EXPECT_NEAR(a, b, tolerance)                                                               \
    expect_near((double)(a), (double)(b), (double)(tolerance), #a, #b, __FILE__, __LINE__)
// A ncclResult_t, or a cudaError_t, is success; otherwise its number and the library's text are
// printed.
#define EXPECT_OK(result)  expect_nccl((int)(result), #result, __FILE__, __LINE__)
#define EXPECT_CUDA(error) expect_cuda((int)(error), #error, __FILE__, __LINE__)
// Notes that the case cannot run here, and why; does not return: write `{ SKIP("why"); return; }`.
#define SKIP(why) expect_skip((why), __FILE__, __LINE__)
// Runs the case `void function(void)` unless `-t` names another.
#define RUN(function)                                                                              \
    do {                                                                                           \
        if (expect_begin_case(#function)) {                                                        \
            function();                                                                            \
            expect_end_case();                                                                     \
        }                                                                                          \
    } while (0)

bool expect_true(bool holds, const char *text, const char *file, int line);
bool expect_equal(long long a, long long b, const char *a_text, const char *b_text,
                  const char *file, int line);
bool expect_string(const char *a, const char *b, const char *a_text, const char *b_text,
                   const char *file, int line);
bool expect_contains(const char *text, const char *part, const char *name, const char *file,
                     int line);
bool expect_near(double a, double b, double tolerance, const char *a_text, const char *b_text,
                 const char *file, int line);
bool expect_nccl(int result, const char *text, const char *file, int line);
bool expect_cuda(int error, const char *text, const char *file, int line);
void expect_skip(const char *why, const char *file, int line);
bool expect_begin_case(const char *name);
void expect_end_case(void);

// Failed checks so far in this process (ranks that failed count as one each).
int expect_failures(void);
// The exit status for main: 1 after a failed check (or when nothing ran at all), 77 when something
// was skipped and no check was made, else 0. Prints one summary line.
int expect_result(void);
// The rank that messages of this thread are marked with; -1 (the default) for none.
void expect_set_rank(int rank);

#ifdef __cplusplus
}
#endif
#endif
