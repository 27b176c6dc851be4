// Whether a norm and a number of tokens make sense. SPDX-License-Identifier: Apache-2.0
#ifndef PARALLEL_NORM_CHECK_H
#define PARALLEL_NORM_CHECK_H

#include "tutti_parallel/norm.h"

// call: the public function.
ncclResult_t parallel_norm_check(const char *call, const struct tuttiNorm *norm, size_t tokens);

#endif
