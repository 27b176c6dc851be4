// Memory as a sorted list of stretches, cut where accesses begin and end. See check_internal.h.
// SPDX-License-Identifier: Apache-2.0
#include "plan/check_internal.h"

#include <stdlib.h>
#include <string.h>

size_t tt_memory_find(const struct tt_memory *memory, size_t at)
{
    size_t low = 0;
    size_t high = memory->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (memory->stretch[middle].begin <= at) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool make_room(struct tt_memory *memory, size_t count)
{
    if (count <= memory->room) {
        return true;
    }
    size_t room = 2 * count + 4;
    struct tt_stretch *stretch = realloc(memory->stretch, room * sizeof *stretch);
    if (stretch == NULL) {
        return false;
    }
    memory->stretch = stretch;
    memory->room = room;
    return true;
}

bool tt_memory_cut(struct tt_memory *memory, size_t at)
{
    if (at >= memory->bytes) {
        return true;
    }
    size_t index = tt_memory_find(memory, at);
    if (memory->stretch[index].begin == at) {
        return true;
    }
    if (!make_room(memory, memory->count + 1)) {
        return false;
    }
    struct tt_stretch *left = &memory->stretch[index];
    memmove(left + 1, left, (memory->count - index) * sizeof *left);
    left[1].begin = at;
    left[1].value.at += at - left->begin;
    memory->count++;
    return true;
}

bool tt_memory_replace(struct tt_memory *memory, size_t begin, size_t end,
                       const struct tt_stretch *with, size_t count)
{
    size_t first = tt_memory_find(memory, begin);
    size_t next = end >= memory->bytes ? memory->count : tt_memory_find(memory, end);
    if (!make_room(memory, memory->count - (next - first) + count)) {
        return false;
    }
    memmove(memory->stretch + first + count, memory->stretch + next,
            (memory->count - next) * sizeof *with);
    memcpy(memory->stretch + first, with, count * sizeof *with);
    memory->count = memory->count - (next - first) + count;
    return true;
}

bool tt_reads_add(struct tt_reads *reads, struct tt_access access, uint32_t *list)
{
    if (*list != 0 && reads->read[*list].access.lane == access.lane &&
        reads->read[*list].access.epoch == access.epoch) {
        return true;
    }
    if (reads->count == reads->room) {
        uint32_t room = reads->room == 0 ? 1024 : reads->room * 2;
        struct tt_read *read = realloc(reads->read, room * sizeof *read);
        if (read == NULL) {
            return false;
        }
        reads->read = read;
        reads->room = room;
        reads->count = reads->count == 0 ? 1 : reads->count;
    }
    // A later read of the same lane stands for its earlier one.
    bool replaces = *list != 0 && reads->read[*list].access.lane == access.lane;
    uint32_t next = replaces ? reads->read[*list].next : *list;
    reads->read[reads->count] = (struct tt_read){access, next};
    *list = reads->count++;
    return true;
}
