// All algorithms, the preferred first. SPDX-License-Identifier: Apache-2.0
#include "algorithms/algorithms.h"

const struct tt_algorithm *const tt_algorithms[] = {
    &tt_switch, &tt_direct, &tt_ring, &tt_tree, &tt_staged, &tt_far_switch, NULL,
};
