// Memory that ends at any moment: builder, checker, cache, counts and drawings say so, and leak
// nothing (under the address sanitizer). The linker puts these allocators in front of the real
// ones.
// SPDX-License-Identifier: Apache-2.0
#include "expect.h"
#include "plan/build.h"
#include "plan/cache.h"
#include "plan/check.h"
#include "plan/draw.h"
#include "plan/traffic.h"

#include <limits.h>
#include <stdlib.h>

// Visible: the linker takes the libraries' own references for these too.
#pragma GCC visibility push(default)
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
#pragma GCC visibility pop

static int left = INT_MAX; // allocations until one fails

static bool fails(void)
{
    return left != INT_MAX && left-- <= 0;
}

void *__wrap_malloc(size_t bytes)
{
    return fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return fails() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
    return fails() ? NULL : __real_realloc(old, bytes);
}

enum { N = 4 };

static const struct tt_problem problem = {.function = TT_REDUCE_SCATTER,
                                          .nranks = N,
                                          .count = 30000,
                                          .element = 2,
                                          .accumulator = 4,
                                          .lanes = 2};
static const struct tt_algorithm *algorithm;
static const struct tt_plan *plans[N];
static FILE *nowhere;

static bool build(void)
{
    const struct tt_plan *plan = tt_plan_build(algorithm, &problem, 1);
    bool built = plan != NULL && plan->rank == 1;
    tt_plan_free(plan);
    return built;
}

static bool check(void)
{
    struct tt_plan_finding finding;
    bool right = tt_plan_check(&problem, plans, &finding);
    EXPECT(right || finding.fault == TT_PLAN_MEMORY);
    return right;
}

static bool cache(void)
{
    struct tt_plan_cache *kept = tt_plan_cache_create(1 << 20);
    const struct tt_plan *plan =
        kept == NULL ? NULL : tt_plan_cache_get(kept, algorithm, &problem, 2);
    tt_plan_cache_destroy(kept);
    return plan != NULL;
}

static bool count(void)
{
    struct tt_traffic traffic = {0};
    bool counted = tt_plan_traffic(&problem, plans, &traffic);
    tt_traffic_free(&traffic);
    return counted;
}

static bool draw(void)
{
    return tt_plan_draw(nowhere, &problem, plans);
}

// Lets each allocation fail in turn until none does.
static void sweep(bool (*action)(void), int least)
{
    int failures = 0;
    bool done = false;
    while (!done && failures < 10000) {
        left = failures;
        done = action();
        bool reached = left < 0;
        left = INT_MAX;
        EXPECT(done != reached); // exactly where one failed
        failures += !done;
    }
    EXPECT(failures >= least);
}

static void memory_ends(void)
{
    nowhere = fopen("/dev/null", "we");
    for (int i = 0; tt_algorithms[i] != NULL; i++) {
        algorithm = tt_algorithms[i];
        if (!algorithm->can(&problem)) {
            continue;
        }
        for (int rank = 0; rank < N; rank++) {
            plans[rank] = tt_plan_build(algorithm, &problem, rank);
        }
        sweep(build, 4);
        sweep(check, 20);
        sweep(cache, 5);
        sweep(count, 3);
        sweep(draw, 4);
        for (int rank = 0; rank < N; rank++) {
            tt_plan_free(plans[rank]);
        }
    }
    (void)fclose(nowhere);
}

int main(void)
{
    RUN(memory_ends);
    return expect_result();
}
