// The row kernels for any processor: vectors of 16 bytes, which every compiler can lower, and half
// in software. SPDX-License-Identifier: Apache-2.0
#define TT_VECTOR_BYTES 16
#include "exec/cpu/rmsnorm_vectors.h"

#include <stdbool.h>
#include <string.h>

static bool vector_usable(void)
{
    return true;
}

static inline vector_float half_load(const void *from)
{
    uint16_t half[4];
    memcpy(half, from, sizeof half);
    return (vector_float){tt_float_from_half(half[0]), tt_float_from_half(half[1]),
                          tt_float_from_half(half[2]), tt_float_from_half(half[3])};
}

static inline void half_store(void *to, vector_float value)
{
    uint16_t half[4] = {tt_half_from_float(value[0]), tt_half_from_float(value[1]),
                        tt_half_from_float(value[2]), tt_half_from_float(value[3])};
    memcpy(to, half, sizeof half);
}

static inline void stream_store(void *to, vector_float value)
{
#if defined(__SSE__)
    __builtin_ia32_movntps((float *)to, value);
#else
    memcpy(to, &value, sizeof value);
#endif
}

#define VARIANT      tt_norm_portable
#define VARIANT_NAME "portable"
extern const struct tt_norm_variant VARIANT;
#include "exec/cpu/rmsnorm_body.h"
