// How algorithms share out elements over ranks, lanes and chunks: at multiples of 64 bytes, so that
// no two writers share a cache line of an aligned buffer.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_ALGORITHMS_SHARE_H
#define TT_ALGORITHMS_SHARE_H

#include "base/split.h"
#include "plan/build.h"
#include "plan/parts.h"

enum {
    TT_LINE = 64,
    TT_LANE_BYTES = 1024, // a lane is not worth its while for less
};

// Elements of 64 bytes, at least one.
static inline size_t tt_line_elements(size_t element)
{
    return element < TT_LINE ? TT_LINE / element : 1;
}

// Share `index` of `shares` of a part; bounds are multiples of 64 bytes from the part's beginning.
static inline struct tt_part tt_share(struct tt_part part, size_t element, int shares, int index)
{
    size_t line = tt_line_elements(element);
    size_t lines = part.count / line + (part.count % line != 0);
    size_t first = tt_split_first(lines, (size_t)shares, (size_t)index) * line;
    size_t end = tt_split_first(lines, (size_t)shares, (size_t)index + 1) * line;
    first = first < part.count ? first : part.count;
    end = end < part.count ? end : part.count;
    return (struct tt_part){part.first + first, end - first};
}

// Chunk `index` of a part that is cut into chunks of `chunk` elements.
static inline struct tt_part tt_chunk(struct tt_part part, size_t chunk, size_t index)
{
    size_t first = index > part.count / chunk ? part.count : index * chunk;
    size_t count = part.count - first < chunk ? part.count - first : chunk;
    return (struct tt_part){part.first + first, count};
}

// Lanes for `count` elements of a rank, at most `most`.
static inline int tt_lanes_for(const struct tt_problem *problem, size_t count, int most)
{
    size_t worth =
        count / (TT_LANE_BYTES / problem->element > 0 ? TT_LANE_BYTES / problem->element : 1);
    int lanes = problem->lanes < most ? problem->lanes : most;
    lanes = worth < (size_t)lanes ? (int)worth : lanes;
    return lanes < 1 ? 1 : lanes;
}

// Elements of a chunk of `count`: `bytes` of them; fewer where there are no more, more where they
// would make more than 256 chunks.
static inline size_t tt_chunk_elements(size_t bytes, size_t count, size_t element)
{
    size_t line = tt_line_elements(element);
    size_t wanted = bytes / element;
    size_t least = count / 256 + 1;
    wanted = wanted < count ? wanted : count;
    wanted = wanted < least ? least : wanted;
    return (wanted + line - 1) / line * line;
}

static inline size_t tt_chunks(size_t count, size_t chunk)
{
    return count / chunk + (count % chunk != 0);
}

// No function exchanges all with all in place.
static inline bool tt_in_place_ok(const struct tt_problem *problem)
{
    return problem->function != TT_ALL_TO_ALL || !problem->in_place;
}

#endif
