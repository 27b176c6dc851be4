// How a public function is defined: under its pnccl name, with the nccl name as a weak alias, so
// that a profiler can take the latter and call the former. Both are exported.
//   TT_FUNCTION(ncclResult_t, MemFree, (void *ptr)) { ... }
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_API_FUNCTION_H
#define TT_API_FUNCTION_H

#define TT_EXPORT __attribute__((visibility("default")))

#define TT_FUNCTION(result, name, parameters)                                                      \
    TT_EXPORT result pnccl##name parameters;                                                       \
    TT_EXPORT result nccl##name parameters __attribute__((weak, alias("pnccl" #name)));            \
    result pnccl##name parameters

#endif
