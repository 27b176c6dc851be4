// See matmul_tiles.h. SPDX-License-Identifier: Apache-2.0
#include "matmul_tiles.h"

// Vectors of `bytes` bytes of `real`, at any address.
#define DEFINE_TILE(name, real, bytes, attributes)                                                 \
    typedef real name##_vector                                                                     \
        __attribute__((vector_size(bytes), aligned(sizeof(real)), may_alias));                     \
    attributes static void name(size_t inner, const real *a, const real *b, real *out)             \
    {                                                                                              \
        const size_t lanes = (bytes) / sizeof(real);                                               \
        name##_vector c00 = {0}, c01 = {0}, c10 = {0}, c11 = {0};                                  \
        name##_vector c20 = {0}, c21 = {0}, c30 = {0}, c31 = {0};                                  \
        for (size_t p = 0; p < inner; p++) {                                                       \
            name##_vector b0 = *(const name##_vector *)b;                                          \
            name##_vector b1 = *(const name##_vector *)(b + lanes);                                \
            c00 += a[0] * b0;                                                                      \
            c01 += a[0] * b1;                                                                      \
            c10 += a[1] * b0;                                                                      \
            c11 += a[1] * b1;                                                                      \
            c20 += a[2] * b0;                                                                      \
            c21 += a[2] * b1;                                                                      \
            c30 += a[3] * b0;                                                                      \
            c31 += a[3] * b1;                                                                      \
            a += TILE_ROWS;                                                                        \
            b += 2 * lanes;                                                                        \
        }                                                                                          \
        name##_vector *to = (name##_vector *)out;                                                  \
        to[0] = c00;                                                                               \
        to[1] = c01;                                                                               \
        to[2] = c10;                                                                               \
        to[3] = c11;                                                                               \
        to[4] = c20;                                                                               \
        to[5] = c21;                                                                               \
        to[6] = c30;                                                                               \
        to[7] = c31;                                                                               \
    }

DEFINE_TILE(float_16, float, 16, )
DEFINE_TILE(double_16, double, 16, )
const struct parallel_tiles parallel_plain_tiles = {8, 4, float_16, double_16};

#if defined(__x86_64__)
DEFINE_TILE(float_32, float, 32, __attribute__((target("avx2,fma"))))
DEFINE_TILE(double_32, double, 32, __attribute__((target("avx2,fma"))))
static const struct parallel_tiles wide = {16, 8, float_32, double_32};
#endif

const struct parallel_tiles *parallel_tiles(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return &wide;
    }
#endif
    return &parallel_plain_tiles;
}
