// What ranks know of each other: hosts and processes under every setting that pretends some, teams,
// and a foreign CUDA runtime. Each
// case runs in processes of its own, because settings are read once. SPDX-License-Identifier: Apache-2.0
#include "comm/comm.h"

#include "base/log.h"
#include "expect.h"
#include "member.h"
#include "ranks.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// TUTTI_TEST_HOSTS and TUTTI_TEST_TEAM: the expected host of each rank, a digit each, and the size
// of the LSA team.
static void check_hosts(int rank, int size)
{
    ncclUniqueId id = share_id(rank);
    ncclComm_t comm = NULL;
    const char *hosts = getenv("TUTTI_TEST_HOSTS");
    if (!EXPECT_OK(ncclCommInitRank(&comm, size, id, rank))) {
        return;
    }
    for (int r = 0; r < size; r++) {
        EXPECT_EQ(comm->peers[r].host, hosts[r] - '0');
        EXPECT_EQ(comm->peers[r].machine_hash, comm->peers[rank].machine_hash);
    }
    EXPECT_EQ(comm->lsa_size, atoi(getenv("TUTTI_TEST_TEAM")));
    EXPECT_EQ(comm->lsa_rank, rank % comm->lsa_size);
    EXPECT_OK(ncclCommDestroy(comm));
}

static void hosts_are(const char *fake, const char *hosts, const char *team)
{
    setenv("TUTTI_FAKE_HOSTS", fake, 1);
    setenv("TUTTI_TEST_HOSTS", hosts, 1);
    setenv("TUTTI_TEST_TEAM", team, 1);
    run_ranks((int)strlen(hosts), check_hosts, 30);
}

static void fake_hosts(void)
{
    hosts_are("", "000", "3");
    hosts_are("2,2", "0011", "2");
    hosts_are("1,3", "0111", "1");
    hosts_are("2", "0011", "2"); // what follows the list is one more host
    hosts_are("8", "0000", "4");
    unsetenv("TUTTI_FAKE_HOSTS");
}

// Ranks as threads split by number, too.
static void in_threads(int rank, int size)
{
    (void)rank;
    (void)size;
    run_thread_ranks(4, check_hosts, 30);
}

static void fake_hosts_of_threads(void)
{
    setenv("TUTTI_FAKE_HOSTS", "2,2", 1);
    setenv("TUTTI_TEST_HOSTS", "0011", 1);
    setenv("TUTTI_TEST_TEAM", "2", 1);
    run_ranks(1, in_threads, 40);
    unsetenv("TUTTI_FAKE_HOSTS");
}

static void set_own_host(int rank, int size)
{
    setenv("NCCL_HOSTID", rank < 2 ? "one" : "two", 1); // before the settings are read
    check_hosts(rank, size);
}

static void host_ids(void)
{
    setenv("TUTTI_TEST_HOSTS", "0011", 1);
    setenv("TUTTI_TEST_TEAM", "2", 1);
    run_ranks(4, set_own_host, 30);
}

static void team_size(void)
{
    setenv("NCCL_LSA_TEAM_SIZE", "2", 1);
    hosts_are("", "0000", "2");
    unsetenv("NCCL_LSA_TEAM_SIZE");
}

static void refuse(int rank, int size)
{
    ncclUniqueId id = share_id(rank);
    ncclComm_t comm = NULL;
    EXPECT(ncclCommInitRank(&comm, size, id, rank) != ncclSuccess);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "TUTTI_FAKE_HOSTS=");
    EXPECT(comm == NULL);
    ranks_barrier();
}

static void bad_fake_hosts(void)
{
    static const char *const bad[] = {"0", "2,0", "x", "2,,2", "2;2", "-1", "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        setenv("TUTTI_FAKE_HOSTS", bad[i], 1);
        run_ranks(2, refuse, 30);
    }
    unsetenv("TUTTI_FAKE_HOSTS");
}

// A library that is CUDA's runtime by its name, but not the virtual devices'.
static void load_foreign(int rank, int size)
{
    char folder[] = "/tmp/tutti-peers-test-XXXXXX", path[128], command[512];
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    (void)rank;
    (void)size;
    EXPECT(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/libcudart.so.99", folder);
    snprintf(command, sizeof command, "echo 'int nothing;' | cc -shared -fPIC -x c - -o %s", path);
    bool made = system(command) == 0;
    void *library = made ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    unlink(path);
    rmdir(folder);
    if (library == NULL) {
        fprintf(stderr, "no C compiler at hand\n");
        return;
    }
    EXPECT_OK(ncclGetUniqueId(&id));
    EXPECT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclInvalidUsage);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "libcudart.so.99 is loaded");
    dlclose(library);
    EXPECT_OK(ncclGetUniqueId(&id));
    EXPECT_OK(ncclCommInitRank(&comm, 1, id, 0));
    EXPECT_OK(ncclCommDestroy(comm));
}

static void foreign_runtime(void)
{
    run_ranks(1, load_foreign, 30);
}

// Why a communicator has no host team.
static void without_team(void)
{
    enum { MANY = 3000 };
    struct tt_peer *peers = calloc(MANY, sizeof *peers);
    struct ncclComm comm = {.rank = 7, .nranks = MANY, .name = "crowd", .peers = peers};
    EXPECT_OK(tt_team_join(&comm));
    EXPECT(comm.host == NULL);
    EXPECT_EQ(tt_team_refuse(&comm, "AllReduce"), ncclInvalidUsage);
    EXPECT_STR(tt_last_error(), "rank 7: AllReduce: crowd has 3000 ranks on one machine, of which "
                                "at most 2048 can work together");
    peers[5].machine_hash = 1;
    comm.nranks = 8;
    EXPECT_OK(tt_team_join(&comm));
    EXPECT(comm.host == NULL);
    EXPECT_EQ(tt_team_refuse(&comm, "messages"), ncclInvalidUsage);
    EXPECT_STR(tt_last_error(), "not implemented yet: rank 7: messages among several machines");
    free(peers);
}

int main(void)
{
    RUN(fake_hosts);
    RUN(fake_hosts_of_threads);
    RUN(host_ids);
    RUN(team_size);
    RUN(bad_fake_hosts);
    RUN(foreign_runtime);
    RUN(without_team);
    return expect_result();
}
