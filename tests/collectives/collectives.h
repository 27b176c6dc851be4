// What the tests of collectives share: how many ranks, how long, memory of a rank.
// SPDX-License-Identifier: Apache-2.0
#ifndef TESTS_COLLECTIVES_COLLECTIVES_H
#define TESTS_COLLECTIVES_COLLECTIVES_H

#include "expect.h"
#include "forms.h"
#include "member.h"
#include "ranks.h"
#include "stopwatch.h"

#include <stdint.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { IS_SANITIZED = 1 };
#else
enum { IS_SANITIZED = 0 };
#endif

// One more than a word of bits; more than devices; odd ones.
static const int test_sizes[] = {1, 2, 3, 5, 8, 16, 65};

// TUTTI_TEST_FULL=1: the sizes of the reports, minutes instead of seconds.
static inline bool is_full(void)
{
    const char *text = getenv("TUTTI_TEST_FULL");
    return text != NULL && text[0] == '1';
}

// Less of it under sanitizers.
static inline int few_or(int most, int fewer)
{
    return IS_SANITIZED ? fewer : most;
}

static inline int thread_size_count(void)
{
    return few_or(7, 5);
}

static inline int process_size_count(void)
{
#ifdef __SANITIZE_THREAD__ // which does not see other processes
    return 0;
#else
    return few_or(is_full() ? 7 : 6, 4);
#endif
}

// Whether processes are tested here; where not, that is said.
static inline bool has_processes(void)
{
    if (process_size_count() == 0) {
        SKIP("the thread sanitizer does not see other processes");
    }
    return process_size_count() > 0;
}

static inline void run_processes(int size, rank_function function, int timeout_s)
{
    if (has_processes()) {
        run_ranks(size, function, timeout_s);
    }
}

static inline bool make_area(struct area *area, size_t bytes)
{
    area->bytes = bytes;
    area->memory = NULL;
    return EXPECT_CUDA(cudaMalloc((void **)&area->memory, bytes));
}

static inline bool join_with_area(struct member *m, struct area *area, int rank, int size,
                                  size_t bytes)
{
    return member_join(m, rank, size) && make_area(area, bytes);
}

static inline void leave_with_area(struct member *m, struct area *area)
{
    EXPECT_CUDA(cudaFree(area->memory));
    member_leave(m);
}

// Waits for what was enqueued; at most `most_s` seconds. Failures of operations are in
// the communicator's state.
static inline ncclResult_t wait_within(struct member *m, double most_s)
{
    struct stopwatch watch = stopwatch_start();
    (void)cudaStreamSynchronize(m->stream);
    EXPECT_WITHIN(watch, most_s);
    return member_state(m);
}

#endif
