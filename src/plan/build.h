// Builds plans: lanes are opened, steps are appended to the open lane.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_PLAN_BUILD_H
#define TT_PLAN_BUILD_H

#include "plan/plan.h"

// Opens the next lane. An empty lane is no lane.
void tt_build_lane(struct tt_builder *builder);

static inline struct tt_place tt_place(enum tt_buffer buffer, int rank, size_t offset)
{
    return (struct tt_place){buffer, rank, offset};
}

// Steps of the open lane. count: elements; 0 adds nothing. Places are copied. A copy to where the
// input already lies, because the operation is in place, is left out.
void tt_build_reduce(struct tt_builder *builder, const struct tt_place *out, int outs,
                     const struct tt_place *in, int ins, size_t count, unsigned flags);
void tt_build_copy(struct tt_builder *builder, const struct tt_place *out, int outs,
                   struct tt_place in, size_t count);
void tt_build_signal(struct tt_builder *builder, int peer, int channel);
void tt_build_wait(struct tt_builder *builder, int peer, int channel, uint32_t number);
// Room for `count` places to be filled and given to a step, valid until the next call; NULL without
// memory.
struct tt_place *tt_build_list(struct tt_builder *builder, int count);
// Bytes of scratch on each rank, the largest that was asked for; multiples of 64. Every rank's plan
// must ask for the same.
void tt_build_scratch(struct tt_builder *builder, size_t bytes);

// Makes rank's plan of the problem by the algorithm; NULL: no memory. Freed by tt_plan_free.
const struct tt_plan *tt_plan_build(const struct tt_algorithm *algorithm,
                                    const struct tt_problem *problem, int rank);
void tt_plan_free(const struct tt_plan *plan);
// What the plan takes.
size_t tt_plan_bytes(const struct tt_plan *plan);

#endif
