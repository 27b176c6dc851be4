// A hash table of plans with chains, and one list of all in the order of their last use. See
// cache.h.
// SPDX-License-Identifier: Apache-2.0
#include "plan/cache.h"

#include "plan/build.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 256, TABLES = 4 };

struct entry {
    struct tt_problem problem; // its tables are the entry's own
    const struct tt_algorithm *algorithm;
    const struct tt_plan *plan;
    int rank, holders;
    uint64_t hash;
    size_t bytes;
    struct entry *next;          // of the slot
    struct entry *older, *newer; // by last use
    size_t table[];
};

struct tt_plan_cache {
    pthread_mutex_t mutex; // guards all below
    size_t most;
    struct tt_plan_cache_counts counts;
    struct entry *slot[SLOTS];
    struct entry *oldest, *newest;
};

// ---- Problems -----------------------------------------------------------------------------------

static size_t table_count(const struct tt_problem *problem)
{
    return problem->is_uneven ? (size_t)problem->nranks * (size_t)problem->nranks : 0;
}

static const size_t *table_of(const struct tt_problem *problem, int index)
{
    const size_t *tables[TABLES] = {problem->uneven.send_count, problem->uneven.send_first,
                                    problem->uneven.recv_count, problem->uneven.recv_first};
    return problem->is_uneven ? tables[index] : NULL;
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static uint64_t hash_of(const struct tt_algorithm *algorithm, const struct tt_problem *problem,
                        int rank)
{
    uint64_t hash = mix((uintptr_t)algorithm, (uint64_t)rank);
    hash = mix(hash, (uint64_t)problem->function << 32 | (uint32_t)problem->root);
    hash = mix(hash, (uint64_t)problem->nranks << 32 | (uint32_t)problem->lanes);
    hash = mix(hash, problem->count);
    hash = mix(hash, problem->element << 8 | problem->accumulator << 2 |
                         (problem->in_place ? 2u : 0u) | (problem->is_uneven ? 1u : 0u));
    for (int i = 0; i < TABLES; i++) {
        const size_t *table = table_of(problem, i);
        for (size_t k = 0; table != NULL && k < table_count(problem); k++) {
            hash = mix(hash, table[k]);
        }
    }
    return hash;
}

static bool is_same(const struct tt_problem *a, const struct tt_problem *b)
{
    if (a->function != b->function || a->nranks != b->nranks || a->root != b->root ||
        a->count != b->count || a->element != b->element || a->accumulator != b->accumulator ||
        a->in_place != b->in_place || a->is_uneven != b->is_uneven || a->lanes != b->lanes) {
        return false;
    }
    for (int i = 0; i < TABLES; i++) {
        const size_t *left = table_of(a, i);
        const size_t *right = table_of(b, i);
        if ((left == NULL) != (right == NULL) ||
            (left != NULL && memcmp(left, right, table_count(a) * sizeof *left) != 0)) {
            return false;
        }
    }
    return true;
}

// ---- Lists --------------------------------------------------------------------------------------

static void unlink_use(struct tt_plan_cache *cache, struct entry *entry)
{
    *(entry->older == NULL ? &cache->oldest : &entry->older->newer) = entry->newer;
    *(entry->newer == NULL ? &cache->newest : &entry->newer->older) = entry->older;
}

static void link_newest(struct tt_plan_cache *cache, struct entry *entry)
{
    entry->older = cache->newest;
    entry->newer = NULL;
    *(cache->newest == NULL ? &cache->oldest : &cache->newest->newer) = entry;
    cache->newest = entry;
}

static struct entry *find(struct tt_plan_cache *cache, const struct entry *wanted)
{
    struct entry *entry = cache->slot[wanted->hash % SLOTS];
    while (entry != NULL &&
           (entry->hash != wanted->hash || entry->rank != wanted->rank ||
            entry->algorithm != wanted->algorithm || !is_same(&entry->problem, &wanted->problem))) {
        entry = entry->next;
    }
    return entry;
}

static void drop(struct tt_plan_cache *cache, struct entry *entry)
{
    struct entry **link = &cache->slot[entry->hash % SLOTS];
    while (*link != entry) {
        link = &(*link)->next;
    }
    *link = entry->next;
    unlink_use(cache, entry);
    cache->counts.plans--;
    cache->counts.bytes -= entry->bytes;
    tt_plan_free(entry->plan);
    free(entry);
}

// Drops plans that nobody holds, oldest first, until the rest fits.
static void make_room(struct tt_plan_cache *cache)
{
    struct entry *entry = cache->oldest;
    while (entry != NULL && cache->counts.bytes > cache->most) {
        struct entry *newer = entry->newer;
        if (entry->holders == 0) {
            drop(cache, entry);
        }
        entry = newer;
    }
}

// ---- The cache ----------------------------------------------------------------------------------

struct tt_plan_cache *tt_plan_cache_create(size_t bytes)
{
    struct tt_plan_cache *cache = calloc(1, sizeof *cache);
    if (cache == NULL) {
        return NULL;
    }
    cache->most = bytes;
    (void)pthread_mutex_init(&cache->mutex, NULL);
    return cache;
}

void tt_plan_cache_destroy(struct tt_plan_cache *cache)
{
    if (cache == NULL) {
        return;
    }
    while (cache->oldest != NULL) {
        drop(cache, cache->oldest);
    }
    (void)pthread_mutex_destroy(&cache->mutex);
    free(cache);
}

// An entry of its own for what `wanted` says, with its plan; NULL: no memory.
static struct entry *make_entry(const struct entry *wanted)
{
    size_t count = table_count(&wanted->problem);
    size_t bytes = sizeof(struct entry) + TABLES * count * sizeof(size_t);
    struct entry *entry = malloc(bytes);
    if (entry == NULL) {
        return NULL;
    }
    *entry = *wanted;
    const size_t **own[TABLES] = {
        &entry->problem.uneven.send_count, &entry->problem.uneven.send_first,
        &entry->problem.uneven.recv_count, &entry->problem.uneven.recv_first};
    for (int i = 0; i < TABLES; i++) {
        const size_t *table = table_of(&wanted->problem, i);
        if (table != NULL) {
            memcpy(entry->table + (size_t)i * count, table, count * sizeof *table);
        }
        *own[i] = table == NULL ? NULL : entry->table + (size_t)i * count;
    }
    entry->plan = tt_plan_build(entry->algorithm, &entry->problem, entry->rank);
    if (entry->plan == NULL) {
        free(entry);
        return NULL;
    }
    entry->bytes = bytes + tt_plan_bytes(entry->plan);
    return entry;
}

// Adds the entry; where another thread was faster, its entry stands. The mutex is held.
static struct entry *insert(struct tt_plan_cache *cache, struct entry *entry)
{
    struct entry *there = find(cache, entry);
    if (there != NULL) {
        tt_plan_free(entry->plan);
        free(entry);
        return there;
    }
    entry->next = cache->slot[entry->hash % SLOTS];
    cache->slot[entry->hash % SLOTS] = entry;
    link_newest(cache, entry);
    cache->counts.plans++;
    cache->counts.bytes += entry->bytes;
    return entry;
}

const struct tt_plan *tt_plan_cache_get(struct tt_plan_cache *cache,
                                        const struct tt_algorithm *algorithm,
                                        const struct tt_problem *problem, int rank)
{
    struct entry wanted = {.problem = *problem,
                           .algorithm = algorithm,
                           .rank = rank,
                           .hash = hash_of(algorithm, problem, rank)};
    (void)pthread_mutex_lock(&cache->mutex);
    struct entry *entry = find(cache, &wanted);
    cache->counts.found += entry != NULL;
    if (entry == NULL) { // building takes a while: not under the mutex
        (void)pthread_mutex_unlock(&cache->mutex);
        struct entry *made = make_entry(&wanted);
        if (made == NULL) {
            return NULL;
        }
        (void)pthread_mutex_lock(&cache->mutex);
        cache->counts.built++;
        entry = insert(cache, made);
    }
    entry->holders++;
    unlink_use(cache, entry);
    link_newest(cache, entry);
    const struct tt_plan *plan = entry->plan;
    make_room(cache);
    (void)pthread_mutex_unlock(&cache->mutex);
    return plan;
}

void tt_plan_cache_put(struct tt_plan_cache *cache, const struct tt_plan *plan)
{
    (void)pthread_mutex_lock(&cache->mutex);
    struct entry *entry = cache->newest; // most often the one
    while (entry != NULL && entry->plan != plan) {
        entry = entry->older;
    }
    if (entry != NULL) {
        entry->holders--;
        make_room(cache);
    }
    (void)pthread_mutex_unlock(&cache->mutex);
}

struct tt_plan_cache_counts tt_plan_cache_count(struct tt_plan_cache *cache)
{
    (void)pthread_mutex_lock(&cache->mutex);
    struct tt_plan_cache_counts counts = cache->counts;
    (void)pthread_mutex_unlock(&cache->mutex);
    return counts;
}
