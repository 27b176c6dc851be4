// The algorithms there are, one file each. What each does is said in its file.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_ALGORITHMS_ALGORITHMS_H
#define TT_ALGORITHMS_ALGORITHMS_H

#include "plan/plan.h"

extern const struct tt_algorithm tt_switch, tt_direct, tt_ring, tt_tree, tt_far_switch, tt_staged;

#endif
