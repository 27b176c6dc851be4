// Dispatch and combine across (pretended) hosts: the same rows, sums in the order of hosts, and a
// token crosses once for each host where it has experts.
// SPDX-License-Identifier: Apache-2.0
#include "moe_for_tests.h"
#include "nccl_device.h"

#include <vgpu/stats.h>

static int lanes_of(void)
{
    return atoi(getenv("TUTTI_TEST_LANES"));
}

static void set_hosts(const char *hosts, const char *lanes)
{
    setenv("TUTTI_FAKE_HOSTS", hosts, 1);
    setenv("TUTTI_TEST_LANES", lanes, 1);
}

static void round_trip_rank(int rank, int size)
{
    static const ncclDataType_t types[] = {ncclFloat32, ncclBfloat16, ncclFloat64};
    struct member m;
    struct moe_case c = case_of(size, 2 * size + 3, 5, 45);
    c.tokens = odd_tokens;
    c.lanes = lanes_of();
    if (!member_join(&m, rank, size)) {
        return;
    }
    EXPECT_EQ(ncclTeamLsa(m.comm).nRanks, c.lanes);
    for (int type = 0; type < 3; type++) {
        c.options.datatype = types[type];
        c.options.rule = type == 2 ? tuttiMoeDrop : tuttiMoeGrow;
        c.options.capacity = 4;
        c.options.align = type == 1 ? 4 : 1;
        round_trip(&c, &m);
    }
    member_leave(&m);
}
static void two_hosts_of_four(void)
{
    set_hosts("4,4", "4");
    run_ranks(8, round_trip_rank, 60);
}
static void three_hosts_of_two(void)
{
    set_hosts("2,2,2", "2");
    run_ranks(6, round_trip_rank, 60);
}
static void hosts_of_one(void) // LSA teams of 2 and 1 ranks' hosts have one rank
{
    set_hosts("2,1", "1");
    run_ranks(3, round_trip_rank, 60);
}

// ---- Counts -------------------------------------------------------------------------------------

static size_t fifty(int rank)
{
    return 40 + (size_t)rank;
}

// How many of a rank's tokens have an expert in a host.
static size_t tokens_for(const struct moe_case *c, int rank, int host)
{
    size_t tokens = 0;
    int32_t chosen[64];
    for (size_t t = 0; t < c->tokens(rank); t++) {
        bool has = false;
        choose_experts(c, rank, t, chosen);
        for (int j = 0; j < c->options.choices; j++) {
            has = has || owner_of(c, chosen[j]) / c->lanes == host;
        }
        tokens += has;
    }
    return tokens;
}

static void count_dispatch(const struct moe_case *c, const struct member *m, tuttiMoe_t moe)
{
    struct moe_arrays a = make_arrays(c, m);
    tuttiMoeRoute_t route = NULL;
    struct tuttiMoeReport report = {0};
    int other = 1 - m->rank / c->lanes, partner = (m->rank + c->lanes) % c->size;
    size_t row = c->options.hidden * sizeof(float);
    EXPECT_OK(tuttiMoeDispatch(moe, a.tokens, a.count, a.indices, a.weights, &route, m->stream));
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
    EXPECT_OK(tuttiMoeGetReport(route, &report));
    size_t crossing = tokens_for(c, m->rank, other);
    EXPECT_EQ(report.toHosts, crossing);
    EXPECT_EQ(report.forwarded, tokens_for(c, partner, m->rank / c->lanes));
    EXPECT(report.toRanks > report.toHosts); // more than once where counted by rank
    // The bytes of rows that went to other hosts, and who they went to, without counts and records.
    ranks_barrier();
    vgpuStatsStart();
    ranks_barrier();
    EXPECT_OK(tuttiMoeDispatchAgain(route, a.tokens, m->stream));
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
    ranks_barrier();
    uint64_t bytes = 0;
    for (int r = other * c->lanes; r < (other + 1) * c->lanes; r++) {
        bytes += vgpuStatsLink(m->rank, r);
        EXPECT(r == partner || vgpuStatsLink(m->rank, r) < row);
    }
    EXPECT(bytes >= crossing * row && bytes < (crossing + 1) * row);
    ranks_barrier();
    EXPECT_OK(tuttiMoeRouteDestroy(route));
    free_arrays(m, &a);
}

static void count_rank(int rank, int size)
{
    struct member m;
    tuttiMoe_t moe = NULL;
    struct moe_case c = case_of(size, 32, 8, 1024);
    c.tokens = fifty;
    c.lanes = 4;
    if (!member_join(&m, rank, size)) {
        return;
    }
    if (EXPECT_OK(tuttiMoeCreate(m.comm, &c.options, &moe))) {
        count_dispatch(&c, &m, moe);
        EXPECT_OK(tuttiMoeDestroy(moe));
    }
    member_leave(&m);
}
static void crosses_once_per_host(void)
{
    set_hosts("4,4", "4");
    run_thread_ranks(8, count_rank, 60);
}

// The kernels' path is for one host.
static void no_kernels_rank(int rank, int size)
{
    struct member m;
    tuttiMoe_t moe = NULL;
    struct moe_case c = case_of(size, 4, 2, 8);
    c.options.path = tuttiMoePathKernel;
    if (member_join(&m, rank, size)) {
        EXPECT_EQ(tuttiMoeCreate(m.comm, &c.options, &moe), ncclInvalidUsage);
        member_leave(&m);
    }
}
static void kernels_are_refused(void)
{
    set_hosts("1,1", "1");
    run_ranks(2, no_kernels_rank, 60);
}

int main(void)
{
    RUN(two_hosts_of_four);
    RUN(three_hosts_of_two);
    RUN(hosts_of_one);
    RUN(crosses_once_per_host);
    RUN(kernels_are_refused);
    return expect_result();
}
