// The shape of each function. See parts.h.
// SPDX-License-Identifier: Apache-2.0
#include "plan/parts.h"

#include <stdio.h>

static struct tt_part part(size_t first, size_t count)
{
    return (struct tt_part){first, count};
}

// Entry [of][with] of an uneven function's tables.
static struct tt_part entry(const struct tt_problem *problem, const size_t *count,
                            const size_t *first, int of, int with)
{
    size_t index = (size_t)of * (size_t)problem->nranks + (size_t)with;
    return part(first[index], count[index]);
}

static struct tt_part listed_sent(const struct tt_problem *problem, int of, int with)
{
    return entry(problem, problem->uneven.send_count, problem->uneven.send_first, of, with);
}

static struct tt_part listed_received(const struct tt_problem *problem, int of, int with)
{
    return entry(problem, problem->uneven.recv_count, problem->uneven.recv_first, of, with);
}

struct tt_part tt_part_sent(const struct tt_problem *problem, int from, int to)
{
    size_t count = problem->count;
    switch (problem->function) {
    case TT_ALL_REDUCE:
        return part(0, count);
    case TT_BROADCAST:
        return part(0, from == problem->root ? count : 0);
    case TT_REDUCE:
        return part(0, to == problem->root ? count : 0);
    case TT_ALL_GATHER:
        return part(0, problem->is_uneven ? listed_received(problem, from, from).count : count);
    case TT_GATHER:
        if (to != problem->root) {
            return part(0, 0);
        }
        return part(0, problem->is_uneven ? listed_received(problem, to, from).count : count);
    case TT_SCATTER:
        if (from != problem->root) {
            return part(0, 0);
        }
        __attribute__((fallthrough));
    case TT_REDUCE_SCATTER:
    case TT_ALL_TO_ALL:
        return problem->is_uneven ? listed_sent(problem, from, to)
                                  : part((size_t)to * count, count);
    default:
        return part(0, 0);
    }
}

struct tt_part tt_part_received(const struct tt_problem *problem, int by, int from)
{
    size_t count = problem->count;
    switch (problem->function) {
    case TT_ALL_REDUCE:
        return part(0, count);
    case TT_BROADCAST:
        return part(0, from == problem->root ? count : 0);
    case TT_REDUCE:
        return part(0, by == problem->root ? count : 0);
    case TT_REDUCE_SCATTER:
        return part(0, problem->is_uneven ? listed_sent(problem, by, by).count : count);
    case TT_SCATTER:
        if (from != problem->root) {
            return part(0, 0);
        }
        return part(0, problem->is_uneven ? listed_sent(problem, from, by).count : count);
    case TT_GATHER:
        if (by != problem->root) {
            return part(0, 0);
        }
        __attribute__((fallthrough));
    case TT_ALL_GATHER:
    case TT_ALL_TO_ALL:
        return problem->is_uneven ? listed_received(problem, by, from)
                                  : part((size_t)from * count, count);
    default:
        return part(0, 0);
    }
}

typedef struct tt_part part_function(const struct tt_problem *, int, int);

static size_t end_of_parts(const struct tt_problem *problem, int rank, part_function *function)
{
    size_t end = 0;
    for (int q = 0; q < problem->nranks; q++) {
        struct tt_part one = function(problem, rank, q);
        if (one.count > 0 && one.first + one.count > end) {
            end = one.first + one.count;
        }
    }
    return end;
}

size_t tt_problem_send_count(const struct tt_problem *problem, int rank)
{
    return end_of_parts(problem, rank, tt_part_sent);
}

size_t tt_problem_recv_count(const struct tt_problem *problem, int rank)
{
    return end_of_parts(problem, rank, tt_part_received);
}

bool tt_in_place_first(const struct tt_problem *problem, int rank, size_t *send_out,
                       size_t *recv_out)
{
    *send_out = 0;
    *recv_out = 0;
    switch (problem->function) {
    case TT_ALL_REDUCE:
    case TT_REDUCE:
    case TT_BROADCAST:
        return true;
    case TT_ALL_GATHER:
    case TT_GATHER: // what a rank sends lies where it is received
        *send_out = tt_part_received(problem, rank, rank).first;
        return true;
    case TT_REDUCE_SCATTER:
    case TT_SCATTER:
        *recv_out = tt_part_sent(problem, rank, rank).first;
        return true;
    default:
        return false;
    }
}

void tt_problem_describe(const struct tt_problem *problem, char *text, size_t bytes)
{
    const char *name = tt_function_name(problem->function);
    const char *place = problem->in_place ? ", in place" : "";
    char root[32] = "";
    switch (problem->function) {
    case TT_REDUCE:
    case TT_BROADCAST:
    case TT_GATHER:
    case TT_SCATTER:
        (void)snprintf(root, sizeof root, ", root %d", problem->root);
        break;
    default:
        break;
    }
    if (problem->is_uneven) {
        (void)snprintf(text, bytes, "%sV of elements of %zu bytes, %d ranks%s%s", name,
                       problem->element, problem->nranks, root, place);
    } else {
        (void)snprintf(text, bytes, "%s of %zu elements of %zu bytes, %d ranks%s%s", name,
                       problem->count, problem->element, problem->nranks, root, place);
    }
}
