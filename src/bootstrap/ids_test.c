// Unique ids: used again, never used, wrong, replaced by a fixed address.
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/bootstrap.h"

#include "base/log.h"
#include "bootstrap/wire.h"

#include "expect.h"
#include "member.h"
#include "ranks.h"
#include "stopwatch.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ncclResult_t make_id(ncclUniqueId *id_out)
{
    return tt_bootstrap_make_id(TT_REACH_HOST, id_out);
}

static void use_id_again(int rank, int size)
{
    ncclUniqueId id = share_id_by(rank, make_id);
    struct tt_bootstrap *b = NULL;
    EXPECT_OK(tt_bootstrap_join(&id, rank, size, NULL, &b));
    ranks_barrier();
    struct tt_bootstrap *second = NULL;
    EXPECT_EQ(tt_bootstrap_join(&id, rank, size, NULL, &second), ncclInvalidUsage); // while it runs
    EXPECT_CONTAINS(tt_last_error(), "already used");
    ranks_barrier();
    tt_bootstrap_leave(b);
    ranks_barrier();
    struct stopwatch watch = stopwatch_start();
    struct tt_bootstrap *again = NULL;
    EXPECT(tt_bootstrap_join(&id, rank, size, NULL, &again) != ncclSuccess); // and afterwards
    EXPECT_WITHIN(watch, 3);
    EXPECT_CONTAINS(tt_last_error(), "already used");
}

static void used_id(void)
{
    run_thread_ranks(2, use_id_again, 30);
    run_ranks(2, use_id_again, 30);
}

static int count_entries(const char *folder)
{
    int count = 0;
    DIR *directory = opendir(folder);
    while (directory != NULL && readdir(directory) != NULL) {
        count++;
    }
    closedir(directory);
    return count;
}

// Ids that nobody uses cost no descriptor and no thread, and the one in between still works.
static void unused_ids(void)
{
    ncclUniqueId id, unused;
    struct tt_bootstrap *b = NULL;
    EXPECT_OK(make_id(&id));
    int descriptors = count_entries("/proc/self/fd"), tasks = count_entries("/proc/self/task");
    for (int i = 0; i < 3000; i++) {
        EXPECT_OK(make_id(&unused));
    }
    EXPECT_EQ(count_entries("/proc/self/fd"), descriptors);
    EXPECT_EQ(count_entries("/proc/self/task"), tasks);
    EXPECT_OK(tt_bootstrap_join(&id, 0, 1, NULL, &b));
    tt_bootstrap_leave(b);
}

// An id that was given up serves nobody; one in use is none.
static void dropped_ids(void)
{
    ncclUniqueId id, used;
    struct tt_bootstrap *b = NULL, *none = NULL;
    EXPECT_OK(make_id(&id));
    EXPECT_OK(make_id(&used));
    EXPECT_OK(tt_bootstrap_join(&used, 0, 1, NULL, &b));
    tt_bootstrap_drop_id(&used);
    tt_bootstrap_drop_id(&id);
    tt_bootstrap_drop_id(&id);
    EXPECT(tt_bootstrap_join(&id, 0, 1, NULL, &none) != ncclSuccess);
    EXPECT_CONTAINS(tt_last_error(), "already used");
    EXPECT_OK(tt_bootstrap_look(b));
    tt_bootstrap_leave(b);
}

// The other ranks of an id do not wait for one that was aborted before the root had heard of it.
static void given_up_ids(void)
{
    ncclUniqueId id;
    _Atomic uint32_t flag = 1;
    struct tt_bootstrap *b = NULL;
    EXPECT_OK(make_id(&id));
    EXPECT_EQ(tt_bootstrap_join(&id, 1, 2, &flag, &b), ncclInternalError);
    struct stopwatch watch = stopwatch_start();
    EXPECT_EQ(tt_bootstrap_join(&id, 0, 2, NULL, &b), ncclRemoteError);
    EXPECT_WITHIN(watch, 3);
    EXPECT_CONTAINS(tt_last_error(), "rank 1 (process");
    EXPECT_CONTAINS(tt_last_error(), "was aborted before it joined");
}

static void bad_ids(void)
{
    ncclUniqueId id;
    struct tt_bootstrap *b = NULL;
    memset(&id, 0, sizeof id);
    EXPECT_EQ(tt_bootstrap_join(&id, 0, 1, NULL, &b), ncclInvalidArgument);
    memset(&id, 0x5a, sizeof id);
    EXPECT_EQ(tt_bootstrap_join(&id, 0, 1, NULL, &b), ncclInvalidArgument);
    tt_bootstrap_denounce(&id, 3, 2, ""); // of no use, no harm
    EXPECT(b == NULL);
}

// ---- A fixed address instead of an id

static void meet_at_address(int rank, int size)
{
    for (int round = 0; round < 10; round++) { // one communicator after the other
        ncclUniqueId id;
        struct tt_bootstrap *b = NULL;
        EXPECT_OK(make_id(&id));
        if (!EXPECT_OK(tt_bootstrap_join(&id, rank, size, NULL, &b))) {
            EXPECT_STR(tt_last_error(), "");
            return;
        }
        int all[4] = {0};
        all[rank] = 10 * round + rank;
        EXPECT_OK(tt_bootstrap_allgather(b, all, sizeof all[0]));
        for (int r = 0; r < size; r++) {
            EXPECT_EQ(all[r], 10 * round + r);
        }
        tt_bootstrap_leave(b);
    }
}

static void refuse_address(int rank, int size)
{
    ncclUniqueId id;
    (void)rank;
    (void)size;
    EXPECT(make_id(&id) != ncclSuccess);
    EXPECT_CONTAINS(tt_last_error(), getenv("TUTTI_TEST_EXPECTED"));
}

static void refused_address(const char *address, const char *text)
{
    setenv("NCCL_COMM_ID", address, 1);
    setenv("TUTTI_TEST_EXPECTED", text, 1);
    run_ranks(1, refuse_address, 20);
}

static void fixed_address(void)
{
    char address[64];
    snprintf(address, sizeof address, "127.0.0.1:%d", 20000 + (int)getpid() % 10000);
    setenv("NCCL_COMM_ID", address, 1);
    setenv("TUTTI_SECRET", "a secret of this test", 1);
    run_ranks(4, meet_at_address, 60);
    snprintf(address, sizeof address, "[::1]:%d", 20000 + (int)getpid() % 10000);
    setenv("NCCL_COMM_ID", address, 1);
    run_ranks(2, meet_at_address, 60);
    unsetenv("TUTTI_SECRET");
    refused_address("10.1.2.3:4000", "needs TUTTI_SECRET");
    refused_address("[fe80::1]:4000", "needs TUTTI_SECRET");
    refused_address("127.0.0.1", "must be address:port");
    refused_address("127.0.0.1:99999", "must be address:port");
    refused_address("127.0.0.1:12x", "must be address:port");
    refused_address("nowhere:4000", "no numeric address");
    refused_address("[127.0.0.1]:4000", "no numeric address");
    unsetenv("NCCL_COMM_ID");
}

// ---- No way to the address

static void reach_nothing(int rank, int size)
{
    ncclUniqueId id;
    struct tt_bootstrap *b = NULL;
    (void)rank;
    if (getenv("NCCL_COMM_ID") == NULL && unshare(CLONE_NEWNET) != 0) {
        printf("without a network of its own: %s\n", strerror(errno));
        return;
    }
    EXPECT_OK(make_id(&id));
    EXPECT_EQ(tt_bootstrap_join(&id, 1, size + 1, NULL, &b), ncclSystemError);
    EXPECT_CONTAINS(tt_last_error(), "cannot be reached (Network is unreachable): ");
    EXPECT_CONTAINS(tt_last_error(), getenv("TUTTI_TEST_EXPECTED"));
}

static void unreachable_address(void)
{
    setenv("TUTTI_TEST_EXPECTED", "the loopback interface is down", 1);
    run_ranks(1, reach_nothing, 20);
    setenv("NCCL_COMM_ID", "255.255.255.255:4000", 1);
    setenv("TUTTI_SECRET", "a secret of this test", 1);
    setenv("TUTTI_TEST_EXPECTED", "no interface of this host leads there", 1);
    run_ranks(1, reach_nothing, 20);
    unsetenv("TUTTI_SECRET");
    unsetenv("NCCL_COMM_ID");
}

int main(void)
{
    RUN(used_id);
    RUN(unused_ids);
    RUN(dropped_ids);
    RUN(given_up_ids);
    RUN(bad_ids);
    RUN(fixed_address);
    RUN(unreachable_address);
    return expect_result();
}
