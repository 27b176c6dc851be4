// The vector types of the row kernels, of TT_VECTOR_BYTES bytes. Private to the rmsnorm_*.c files.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXEC_CPU_RMSNORM_VECTORS_H
#define TT_EXEC_CPU_RMSNORM_VECTORS_H

#include "exec/cpu/rmsnorm_rows.h"
#include "reduce/half.h"

#include <stdint.h>

typedef float vector_float __attribute__((vector_size(TT_VECTOR_BYTES)));
typedef int32_t vector_int __attribute__((vector_size(TT_VECTOR_BYTES)));
typedef uint16_t vector_short __attribute__((vector_size(TT_VECTOR_BYTES / 2)));

#endif
