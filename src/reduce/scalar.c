// Factors of scaled sums: from an element to its accumulator.
// SPDX-License-Identifier: Apache-2.0
#include "reduce/fp8.h"
#include "reduce/half.h"
#include "reduce/reduce.h"

#include <string.h>

union tt_scalar tt_scalar_of(ncclDataType_t type, const void *element)
{
    union tt_scalar scalar = {.integer = 0};
    uint16_t half = 0;
    uint8_t byte = 0;
    switch (type) {
    case ncclFloat32:
        memcpy(&scalar.float32, element, sizeof scalar.float32);
        break;
    case ncclFloat16:
    case ncclBfloat16:
        memcpy(&half, element, sizeof half);
        scalar.float32 =
            type == ncclFloat16 ? tt_float_from_half(half) : tt_float_from_bfloat16(half);
        break;
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
        memcpy(&byte, element, sizeof byte);
        scalar.float32 =
            type == ncclFloat8e4m3 ? tt_float_from_e4m3(byte) : tt_float_from_e5m2(byte);
        break;
    default: // double, and integers in their lowest bytes
        memcpy(&scalar, element, tt_type_bytes(type));
    }
    return scalar;
}
