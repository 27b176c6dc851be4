// Plans kept: found again, told apart, dropped, shared by threads. SPDX-License-Identifier: Apache-2.0
#include "plan/cache.h"

#include "expect.h"
#include "plan/build.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const struct tt_problem base = {.function = TT_ALL_REDUCE,
                                       .nranks = 4,
                                       .count = 1000,
                                       .element = 4,
                                       .accumulator = 4,
                                       .lanes = 1};

static const struct tt_algorithm *named(const char *name)
{
    for (int i = 0; tt_algorithms[i] != NULL; i++) {
        if (strcmp(tt_algorithms[i]->name, name) == 0) {
            return tt_algorithms[i];
        }
    }
    return NULL;
}

static const struct tt_plan *get(struct tt_plan_cache *cache, struct tt_problem problem, int rank)
{
    return tt_plan_cache_get(cache, named("direct"), &problem, rank);
}

static void finds_again(void)
{
    struct tt_plan_cache *cache = tt_plan_cache_create(1 << 20);
    const struct tt_plan *first = get(cache, base, 1);
    EXPECT_EQ(first->rank, 1);
    EXPECT(get(cache, base, 1) == first);
    tt_plan_cache_put(cache, first);
    tt_plan_cache_put(cache, first);
    EXPECT(get(cache, base, 1) == first);
    EXPECT_EQ(tt_plan_cache_count(cache).found, 2);
    EXPECT_EQ(tt_plan_cache_count(cache).built, 1);
    tt_plan_cache_put(cache, first);
    tt_plan_cache_destroy(cache);
    tt_plan_cache_destroy(NULL);
}

static void tells_apart(void)
{
    struct tt_plan_cache *cache = tt_plan_cache_create(1 << 20);
    struct tt_problem problems[10];
    for (int i = 0; i < 10; i++) {
        problems[i] = base;
    }
    problems[1].function = TT_REDUCE;
    problems[2].nranks = 5;
    problems[3].count = 1001;
    problems[4].element = 2;
    problems[5].accumulator = 8;
    problems[6].in_place = true;
    problems[7].lanes = 2;
    problems[8].root = 3;
    for (int i = 0; i < 9; i++) {
        (void)get(cache, problems[i], 0);
        EXPECT_EQ(tt_plan_cache_count(cache).built, i + 1);
    }
    (void)get(cache, base, 2);
    (void)tt_plan_cache_get(cache, named("ring"), &base, 0);
    EXPECT_EQ(tt_plan_cache_count(cache).built, 11);
    EXPECT_EQ(tt_plan_cache_count(cache).found, 0);
    tt_plan_cache_destroy(cache);
}

static void compares_uneven_counts(void)
{
    struct tt_plan_cache *cache = tt_plan_cache_create(1 << 20);
    size_t count[4] = {1, 2, 1, 2};
    size_t first[4] = {0, 1, 0, 1};
    struct tt_problem problem = {.function = TT_ALL_GATHER,
                                 .nranks = 2,
                                 .element = 4,
                                 .accumulator = 4,
                                 .is_uneven = true,
                                 .uneven = {.recv_count = count, .recv_first = first},
                                 .lanes = 1};
    const struct tt_plan *plan = get(cache, problem, 0);
    size_t copy[4] = {1, 2, 1, 2};
    problem.uneven.recv_count = copy; // the same elsewhere
    EXPECT(get(cache, problem, 0) == plan);
    memset(count, 0xff, sizeof count); // the cache has its own
    EXPECT(get(cache, problem, 0) == plan);
    copy[3] = 3;
    EXPECT(get(cache, problem, 0) != plan);
    EXPECT_EQ(tt_plan_cache_count(cache).built, 2);
    tt_plan_cache_destroy(cache);
}

// Bounded: the least recently used go, but never those that are held.
static void drops_the_oldest(void)
{
    struct tt_plan_cache *cache = tt_plan_cache_create(16 * 1024);
    struct tt_problem problem = base;
    const struct tt_plan *held = get(cache, base, 3);
    for (size_t i = 1; i <= 200; i++) {
        problem.count = i;
        tt_plan_cache_put(cache, get(cache, problem, 0));
        EXPECT(tt_plan_cache_count(cache).bytes <= 16 * 1024);
        const struct tt_plan *again = get(cache, base, 2); // used again and again: stays
        tt_plan_cache_put(cache, again);
    }
    EXPECT_EQ(tt_plan_cache_count(cache).built, 202);
    EXPECT(tt_plan_cache_count(cache).plans > 5);
    EXPECT(tt_plan_cache_count(cache).plans < 100);
    EXPECT(get(cache, base, 3) == held);
    EXPECT_EQ(held->rank, 3);
    struct tt_plan_cache_counts before = tt_plan_cache_count(cache);
    problem.count = 200;
    tt_plan_cache_put(cache, get(cache, problem, 0));
    EXPECT_EQ(tt_plan_cache_count(cache).found, before.found + 1);
    problem.count = 1;
    tt_plan_cache_put(cache, get(cache, problem, 0));
    EXPECT_EQ(tt_plan_cache_count(cache).built, before.built + 1);
    tt_plan_cache_destroy(cache);
}

static void no_room_at_all(void)
{
    struct tt_plan_cache *cache = tt_plan_cache_create(0);
    const struct tt_plan *plan = get(cache, base, 0);
    EXPECT_EQ(plan->nranks, 4);
    EXPECT_EQ(tt_plan_cache_count(cache).plans, 1);
    tt_plan_cache_put(cache, plan);
    EXPECT_EQ(tt_plan_cache_count(cache).plans, 0);
    tt_plan_cache_destroy(cache);
}

static void *use(void *argument)
{
    struct tt_plan_cache *cache = argument;
    struct tt_problem problem = base;
    for (size_t i = 0; i < 3000; i++) {
        problem.count = 1 + i * i % 37;
        const struct tt_plan *plan = get(cache, problem, (int)(i % 4));
        EXPECT(plan != NULL && plan->rank == (int)(i % 4) && plan->steps <= 1);
        tt_plan_cache_put(cache, plan);
    }
    return NULL;
}

static void many_threads(void)
{
    struct tt_plan_cache *cache = tt_plan_cache_create(8 * 1024); // always too small
    pthread_t thread[4];
    for (int i = 0; i < 4; i++) {
        EXPECT_EQ(pthread_create(&thread[i], NULL, use, cache), 0);
    }
    for (int i = 0; i < 4; i++) {
        EXPECT_EQ(pthread_join(thread[i], NULL), 0);
    }
    struct tt_plan_cache_counts counts = tt_plan_cache_count(cache);
    EXPECT_EQ(counts.found + counts.built, 4 * 3000);
    EXPECT(counts.bytes <= 8 * 1024);
    tt_plan_cache_destroy(cache);
}

int main(void)
{
    RUN(finds_again);
    RUN(tells_apart);
    RUN(compares_uneven_counts);
    RUN(drops_the_oldest);
    RUN(no_room_at_all);
    RUN(many_threads);
    return expect_result();
}
