// Rows without instructions of a particular processor. SPDX-License-Identifier: Apache-2.0
#include "moe_rows.h"

#include <stdatomic.h>

#define MOE_ROWS moe_rows_portable
#define store_32(to, value)                                                                        \
    do {                                                                                           \
        floats stored = (value);                                                                   \
        memcpy((to), &stored, sizeof stored);                                                      \
    } while (0)

static void fence(void)
{
    atomic_thread_fence(memory_order_release);
}

#include "moe_rows_body.h"

const struct moe_rows *moe_rows_choose(void)
{
#ifdef MOE_X86
    if (__builtin_cpu_supports("avx2")) {
        return &moe_rows_avx2;
    }
#endif
    return &moe_rows_portable;
}
