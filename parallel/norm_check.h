// What is wrong with a norm's arguments. SPDX-License-Identifier: Apache-2.0
#ifndef PARALLEL_NORM_CHECK_H
#define PARALLEL_NORM_CHECK_H

#include "tutti_parallel/norm.h"

// call: with what the texts of failures begin.
ncclResult_t parallel_norm_check(const char *call, const struct tuttiNorm *norm, size_t tokens);
// beta, or dbeta (name), is for LayerNorm only.
ncclResult_t parallel_norm_check_beta(const char *call, const struct tuttiNorm *norm,
                                      const char *name, const void *beta);

#endif
