// Lists of operands, each stored once. See check_internal.h.
// SPDX-License-Identifier: Apache-2.0
#include "plan/check_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t hash(uint32_t before, int rank, ptrdiff_t shift)
{
    uint64_t word = (uint64_t)before << 32 ^ (uint64_t)(uint32_t)rank ^ (uint64_t)shift << 12;
    word *= 0x9e3779b97f4a7c15u;
    return (uint32_t)(word >> 32);
}

static bool grow(struct tt_operand_lists *lists)
{
    uint32_t room = lists->room == 0 ? 256 : lists->room * 2;
    struct tt_operands *node = realloc(lists->node, room * sizeof *node);
    if (node == NULL) {
        return false;
    }
    lists->node = node;
    lists->room = room;
    if (lists->count == 0) {
        node[0] = (struct tt_operands){0, -1, 0};
        lists->count = 1;
    }
    uint32_t *table = calloc(2 * (size_t)room, sizeof *table);
    if (table == NULL) {
        return false;
    }
    free(lists->table);
    lists->table = table;
    lists->table_room = 2 * room;
    for (uint32_t i = 1; i < lists->count; i++) {
        uint32_t slot = hash(node[i].before, node[i].rank, node[i].shift);
        while (table[slot & (lists->table_room - 1)] != 0) {
            slot++;
        }
        table[slot & (lists->table_room - 1)] = i;
    }
    return true;
}

uint32_t tt_operands_append(struct tt_operand_lists *lists, uint32_t before, int rank,
                            ptrdiff_t shift)
{
    if (lists->count == lists->room && !grow(lists)) {
        return 0;
    }
    uint32_t mask = lists->table_room - 1;
    uint32_t slot = hash(before, rank, shift);
    for (; lists->table[slot & mask] != 0; slot++) {
        const struct tt_operands *node = &lists->node[lists->table[slot & mask]];
        if (node->before == before && node->rank == rank && node->shift == shift) {
            return lists->table[slot & mask];
        }
    }
    lists->node[lists->count] = (struct tt_operands){before, rank, shift};
    lists->table[slot & mask] = lists->count;
    return lists->count++;
}

void tt_operands_free(struct tt_operand_lists *lists)
{
    free(lists->node);
    free(lists->table);
}

enum { SHOWN = 6 };

void tt_value_describe(const struct tt_operand_lists *lists, struct tt_value value, size_t element,
                       char *text, size_t bytes)
{
    if (value.form == TT_FORM_NOTHING) {
        (void)snprintf(text, bytes, "nothing that a rank has written");
        return;
    }
    int length = 0;
    uint32_t last[SHOWN] = {0};
    for (uint32_t node = value.node; node != 0; node = lists->node[node].before) {
        memmove(last + 1, last, sizeof last - sizeof last[0]); // the first ones stay
        last[0] = node;
        length++;
    }
    const char *form = value.form == TT_FORM_INPUT     ? "the input"
                       : value.form == TT_FORM_PARTIAL ? "a partial result"
                                                       : "the result";
    int used = snprintf(text, bytes, "%s of rank%s", form, length == 1 ? "" : "s");
    for (int i = 0; i < SHOWN && last[i] != 0 && used >= 0 && (size_t)used < bytes; i++) {
        used += snprintf(text + used, bytes - (size_t)used, "%s %d", i == 0 ? "" : " +",
                         lists->node[last[i]].rank);
    }
    if (used >= 0 && (size_t)used < bytes) {
        (void)snprintf(text + used, bytes - (size_t)used, "%s (element %zu)",
                       length > SHOWN ? " + ..." : "", element);
    }
}

static int count_of(const struct tt_operand_lists *lists, uint32_t list, int rank)
{
    int count = 0;
    for (; list != 0; list = lists->node[list].before) {
        count += lists->node[list].rank == rank;
    }
    return count;
}

const char *tt_operands_fault(const struct tt_operand_lists *lists, uint32_t is, uint32_t wanted)
{
    for (uint32_t node = wanted; node != 0; node = lists->node[node].before) {
        if (count_of(lists, is, lists->node[node].rank) == 0) {
            return "an input is missing";
        }
    }
    for (uint32_t node = is; node != 0; node = lists->node[node].before) {
        int rank = lists->node[node].rank;
        if (count_of(lists, is, rank) > 1) {
            return "an input counts twice";
        }
        if (count_of(lists, wanted, rank) == 0) {
            return "an input is not asked for";
        }
    }
    for (; is != 0 && wanted != 0;
         is = lists->node[is].before, wanted = lists->node[wanted].before) {
        if (lists->node[is].rank != lists->node[wanted].rank) {
            return "operands are not in rank order";
        }
    }
    return "an input is of another element";
}
