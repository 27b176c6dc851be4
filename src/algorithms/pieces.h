// Steps that several algorithms have: reductions and copies whose places differ from rank to rank
// where sizes are uneven.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_ALGORITHMS_PIECES_H
#define TT_ALGORITHMS_PIECES_H

#include "plan/build.h"
#include "plan/parts.h"

// ReduceScatter: reduces elements `share` of rank's result out of all send buffers into `out`.
void tt_reduce_sent(struct tt_builder *builder, const struct tt_problem *problem, int rank,
                    struct tt_place out, struct tt_part share);
// AllGather: copies elements `share` of what rank sends to all receive buffers.
void tt_copy_received(struct tt_builder *builder, const struct tt_problem *problem, int rank,
                      struct tt_part share);

#endif
