// Plans kept, so that an operation that comes again costs no building. Thread-safe.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_PLAN_CACHE_H
#define TT_PLAN_CACHE_H

#include "plan/plan.h"

struct tt_plan_cache;

// Keeps at most `bytes` of plans that nobody holds, and their problems; those least recently used
// go first. NULL: no memory.
struct tt_plan_cache *tt_plan_cache_create(size_t bytes);
// No plan may be held. NULL is accepted.
void tt_plan_cache_destroy(struct tt_plan_cache *cache);

// Rank's plan of the problem by the algorithm, kept or built. Problems are compared field by field,
// uneven counts one by one. The plan stays until it is put back. NULL: no memory.
const struct tt_plan *tt_plan_cache_get(struct tt_plan_cache *cache,
                                        const struct tt_algorithm *algorithm,
                                        const struct tt_problem *problem, int rank);
void tt_plan_cache_put(struct tt_plan_cache *cache, const struct tt_plan *plan);

// Gets that found a plan, gets that built one, plans kept and their bytes.
struct tt_plan_cache_counts {
    uint64_t found, built;
    size_t plans, bytes;
};
struct tt_plan_cache_counts tt_plan_cache_count(struct tt_plan_cache *cache);

#endif
