// Chooses among the row kernels, and the scalar step that they share.
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/rmsnorm_rows.h"

#include <math.h>
#include <stdatomic.h>

extern const struct tt_norm_variant tt_norm_portable;
#ifdef TT_NORM_X86
extern const struct tt_norm_variant tt_norm_avx2, tt_norm_avx512;
#endif

const struct tt_norm_variant *const tt_norm_variants[] = {
#ifdef TT_NORM_X86
    &tt_norm_avx512,
    &tt_norm_avx2,
#endif
    &tt_norm_portable,
    NULL,
};

const struct tt_norm_variant *tt_norm_variant(void)
{
    // Any thread may fill it, always with the same value.
    static _Atomic(const struct tt_norm_variant *) chosen;
    const struct tt_norm_variant *variant = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (variant == NULL) {
        variant = &tt_norm_portable;
        for (size_t i = 0; tt_norm_variants[i] != NULL; i++) {
            if (tt_norm_variants[i]->usable()) {
                variant = tt_norm_variants[i];
                break;
            }
        }
        atomic_store_explicit(&chosen, variant, memory_order_relaxed);
    }
    return variant;
}

float tt_norm_scale(float sum, size_t hidden, float eps)
{
    float mean = sum / (float)hidden;
    float root = sqrtf(mean + eps);
    return root == 0.0f ? 0.0f : 1.0f / root;
}
