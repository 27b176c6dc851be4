// What the row kernels need beyond reduce/vectors.h. Private to the rmsnorm_*.c files.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXEC_CPU_RMSNORM_VECTORS_H
#define TT_EXEC_CPU_RMSNORM_VECTORS_H

#include "exec/cpu/rmsnorm_rows.h"
#include "reduce/half.h"
#include "reduce/vectors.h"

// PICK(a, b, EVEN) and PICK(a, b, ODD): the even and the odd elements of two vectors.
#if TT_VECTOR_BYTES == 64
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODD  1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#elif TT_VECTOR_BYTES == 32
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define ODD  1, 3, 5, 7, 9, 11, 13, 15
#else
#define EVEN 0, 2, 4, 6
#define ODD  1, 3, 5, 7
#endif
#ifdef __clang__
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PICK(a, b, ...) __builtin_shuffle(a, b, (vector_int){__VA_ARGS__})
#endif

#endif
