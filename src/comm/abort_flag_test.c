// Abort flags: used again at once, or late where they are raised. SPDX-License-Identifier: Apache-2.0
#include "comm/comm.h"

#include "expect.h"

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

// Nobody lowers what is raised, for long.
static void raised_ones_rest(void)
{
    _Atomic uint32_t *kept = take();
    atomic_store(kept, NCCL_ABORT_FLAG_DEATH + 3);
    tt_abort_flag_give(kept);
    for (int i = 0; i < 250; i++) {
        _Atomic uint32_t *other = take();
        EXPECT(other != kept);
        atomic_store(other, 1);
        tt_abort_flag_give(other);
    }
    EXPECT_EQ(atomic_load(kept), NCCL_ABORT_FLAG_DEATH + 3);
    tt_abort_flag_give(NULL);
}

// However many communicators are aborted, their flags lie in little memory.
static void raised_ones_are_used_again(void)
{
    enum { ABORTS = 5000, MOST = 2 * 256 };
    static _Atomic uint32_t *seen[MOST];
    int count = 0;
    for (int i = 0; i < ABORTS; i++) {
        _Atomic uint32_t *flag = take();
        int place = 0;
        while (place < count && seen[place] != flag) {
            place++;
        }
        if (place == count && EXPECT(count < MOST)) {
            seen[count++] = flag;
        }
        atomic_store(flag, 1);
        tt_abort_flag_give(flag);
    }
}

int main(void)
{
    RUN(used_again);
    RUN(raised_ones_rest);
    RUN(raised_ones_are_used_again);
    return expect_result();
}
