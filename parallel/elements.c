// See elements.h. SPDX-License-Identifier: Apache-2.0
#include "elements.h"

#include "fail.h"

#include <stdlib.h>

size_t parallel_element_bytes(ncclDataType_t type)
{
    switch ((int)type) {
    case ncclFloat32:
        return 4;
    case ncclFloat64:
        return 8;
    case ncclBfloat16:
        return 2;
    default:
        return 0;
    }
}

const void *parallel_at(const void *data, ncclDataType_t type, size_t index)
{
    return data == NULL ? NULL : (const char *)data + index * parallel_element_bytes(type);
}

void *parallel_at_mutable(void *data, ncclDataType_t type, size_t index)
{
    return data == NULL ? NULL : (char *)data + index * parallel_element_bytes(type);
}

void parallel_load(const void *data, ncclDataType_t type, size_t first, size_t count, double *out)
{
    if (type == ncclFloat32) {
        const float *in = (const float *)data + first;
        for (size_t i = 0; i < count; i++) {
            out[i] = (double)in[i];
        }
    } else if (type == ncclFloat64) {
        const double *in = (const double *)data + first;
        for (size_t i = 0; i < count; i++) {
            out[i] = in[i];
        }
    } else {
        const uint16_t *in = (const uint16_t *)data + first;
        for (size_t i = 0; i < count; i++) {
            out[i] = (double)parallel_from_bf16(in[i]);
        }
    }
}

void parallel_store(void *data, ncclDataType_t type, size_t first, size_t count, const double *in)
{
    if (type == ncclFloat32) {
        float *out = (float *)data + first;
        for (size_t i = 0; i < count; i++) {
            out[i] = (float)in[i];
        }
    } else if (type == ncclFloat64) {
        double *out = (double *)data + first;
        for (size_t i = 0; i < count; i++) {
            out[i] = in[i];
        }
    } else {
        uint16_t *out = (uint16_t *)data + first;
        for (size_t i = 0; i < count; i++) {
            out[i] = parallel_to_bf16((float)in[i]);
        }
    }
}

ncclResult_t parallel_check_types(const char *call, const struct tuttiTypes *types)
{
    const struct {
        const char *name;
        ncclDataType_t type;
    } each[] = {{"activations", types->activations},
                {"weights", types->weights},
                {"gradients", types->gradients}};
    int doubles = 0;
    for (int i = 0; i < 3; i++) {
        if (parallel_element_bytes(each[i].type) == 0) {
            return tuttiFail(ncclInvalidArgument,
                             "%s: types.%s is %d, must be ncclFloat32 (%d), ncclBfloat16 (%d) or "
                             "ncclFloat64 (%d)",
                             call, each[i].name, (int)each[i].type, (int)ncclFloat32,
                             (int)ncclBfloat16, (int)ncclFloat64);
        }
        doubles += each[i].type == ncclFloat64;
    }
    if (doubles != 0 && doubles != 3) {
        return tuttiFail(ncclInvalidArgument,
                         "%s: types are activations %d, weights %d, gradients %d; ncclFloat64 (%d) "
                         "must be all three or none",
                         call, (int)types->activations, (int)types->weights, (int)types->gradients,
                         (int)ncclFloat64);
    }
    return ncclSuccess;
}

ncclDataType_t parallel_weight_gradients(const struct tuttiTypes *types)
{
    return types->activations == ncclFloat64 ? ncclFloat64 : ncclFloat32;
}

ncclResult_t parallel_check_elements(const char *call, const char *what, size_t a, size_t b)
{
    size_t bytes;
    if (__builtin_mul_overflow(a, b, &bytes) || bytes > PTRDIFF_MAX / 8) {
        return tuttiFail(ncclInvalidArgument,
                         "%s: %s is %zu x %zu elements, more than an address space holds", call,
                         what, a, b);
    }
    return ncclSuccess;
}

ncclResult_t parallel_row(const char *call, size_t count, double **row_out)
{
    *row_out = malloc((count == 0 ? 1 : count) * sizeof **row_out);
    return *row_out != NULL
               ? ncclSuccess
               : tuttiFail(ncclSystemError, "%s: no memory for a row of %zu elements", call, count);
}

ncclResult_t parallel_check_pointer(const char *call, const char *name, const void *pointer,
                                    size_t count)
{
    if (pointer == NULL && count > 0) {
        return tuttiFail(ncclInvalidArgument, "%s: %s is NULL, must point to %zu elements", call,
                         name, count);
    }
    return ncclSuccess;
}
