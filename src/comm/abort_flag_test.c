// Abort flags: used again, unless they are raised. SPDX-License-Identifier: Apache-2.0
#include "comm/comm.h"

#include "expect.h"

enum { MANY = 600 }; // more than one slab has

static _Atomic uint32_t *take(void)
{
    _Atomic uint32_t *host = NULL;
    uint32_t *device = NULL;
    EXPECT_OK(tt_abort_flag_take(&host, &device));
    EXPECT(device != NULL);
    for (int word = 0; word < NCCL_ABORT_FLAG_WORDS; word++) {
        EXPECT_EQ(atomic_load(host + word), 0);
    }
    return host;
}

static void used_again(void)
{
    _Atomic uint32_t *first = take();
    atomic_store(first + 1, 5); // who has left
    tt_abort_flag_give(first);
    _Atomic uint32_t *second = take();
    EXPECT(second == first);
    tt_abort_flag_give(second);
}

// Nobody lowers what is raised any more.
static void never_used_again(void)
{
    _Atomic uint32_t *kept = take();
    atomic_store(kept, NCCL_ABORT_FLAG_DEATH + 3);
    tt_abort_flag_give(kept);
    for (int i = 0; i < MANY; i++) {
        _Atomic uint32_t *other = take();
        EXPECT(other != kept);
    }
    EXPECT_EQ(atomic_load(kept), NCCL_ABORT_FLAG_DEATH + 3);
    tt_abort_flag_give(NULL);
}

int main(void)
{
    RUN(used_again);
    RUN(never_used_again);
    return expect_result();
}
