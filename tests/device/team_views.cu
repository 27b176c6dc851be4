// Multicast views of parts of the LSA team: each rank of a pair reads, stores and meets through the
// pair's own view, in windows that are older and younger than the view.
// SPDX-License-Identifier: Apache-2.0
#include "ranks_of_devices.h"

enum { WORDS = 256, BLOCKS = 2, ROUNDS = 10 };

// What a team of each rank makes: two views, by neighbours and by equal places.
enum side { INNER, OUTER, SIDES };

static __device__ void check(bool right, unsigned *wrong, int line)
{
    if (!right) {
        atomicAdd(&wrong[0], 1u);
        atomicExch(&wrong[1], (unsigned)line);
    }
}

struct asked {
    ncclTeam team;
    ncclMultimemHandle view;
    ncclLsaBarrierHandle barrier;
    ncclLLA2AHandle values;
};

// Sums over the team alone; what rank 0 of the team stores arrives at its members alone.
__global__ void use_view(ncclWindow_t window, ncclDevComm comm, asked a, unsigned *wrong)
{
    ncclCoopCta cta;
    ncclLsaBarrierSession<ncclCoopCta> barrier(cta, comm, a.team, a.barrier, blockIdx.x, true,
                                               a.view);
    uint32_t *mine = (uint32_t *)ncclGetLocalPointer(window, 0) + blockIdx.x * WORDS;
    uint32_t *all = (uint32_t *)ncclGetMultimemPointer(window, blockIdx.x * WORDS * 4, a.view);
    for (int round = 1; round <= ROUNDS; round++) {
        for (int i = threadIdx.x; i < WORDS; i += blockDim.x) {
            mine[i] = (uint32_t)(round * 1000 * (comm.rank + 1) + i);
        }
        barrier.sync(cta, cuda::memory_order_acq_rel);
        uint32_t right = 0;
        for (int m = 0; m < a.team.nRanks; m++) {
            right += (uint32_t)(round * 1000 * (ncclTeamRankToWorld(comm, a.team, m) + 1));
        }
        for (int i = threadIdx.x; i < WORDS; i += blockDim.x) {
            uint32_t sum = tuttiMultimemLoadSum(all + i);
            check(sum == right + (uint32_t)(i * a.team.nRanks), wrong, __LINE__);
        }
        barrier.sync(cta, cuda::memory_order_acq_rel);
        if (a.team.rank == round % a.team.nRanks) {
            for (int i = threadIdx.x; i < WORDS; i += blockDim.x) {
                tuttiMultimemStore(all + i, (uint32_t)(round * 77 + comm.rank));
            }
        }
        barrier.sync(cta, cuda::memory_order_acq_rel);
        int root = ncclTeamRankToWorld(comm, a.team, round % a.team.nRanks);
        for (int i = threadIdx.x; i < WORDS; i += blockDim.x) {
            check(mine[i] == (uint32_t)(round * 77 + root), wrong, __LINE__);
        }
        barrier.sync(cta, cuda::memory_order_acq_rel);
    }
}

// Small values to the team by multicast.
__global__ void exchange(ncclDevComm comm, asked a, unsigned *wrong)
{
    ncclCoopCta cta;
    ncclLLA2ASession<ncclCoopCta> session(cta, comm, a.team, a.values, blockIdx.x, 8, true, a.view);
    for (int round = 0; round < ROUNDS; round++) {
        if (threadIdx.x == 0) {
            session.bcast(a.team.rank, comm.rank * 100 + round);
        }
        for (int m = threadIdx.x; m < a.team.nRanks; m += blockDim.x) {
            int from = ncclTeamRankToWorld(comm, a.team, m);
            check(session.recv<int>(m) == from * 100 + round, wrong, __LINE__);
        }
        session.endEpoch(cta);
    }
}

static bool ask(device_rank &me, asked *a, ncclDevComm *comm)
{
    ncclDevResourceRequirements_t buffer[2 * SIDES];
    ncclTeamRequirements_t team[SIDES];
    ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    for (int s = 0; s < SIDES; s++) {
        ncclTeam lsa = ncclTeamLsa(me.comm);
        a[s].team = s == INNER ? ncclTeamInnerFactor(lsa, 2) : ncclTeamOuterFactor(lsa, 2);
        a[s].view.mcBasePtr = nullptr;
        EXPECT_OK(
            ncclLsaBarrierCreateRequirement(a[s].team, BLOCKS, &a[s].barrier, &buffer[2 * s]));
        EXPECT_OK(ncclLLA2ACreateRequirement(BLOCKS, 8, &a[s].values, &buffer[2 * s + 1]));
        buffer[2 * s].next = &buffer[2 * s + 1];
        buffer[2 * s + 1].next = s + 1 < SIDES ? &buffer[2 * s + 2] : nullptr;
        team[s] = {s + 1 < SIDES ? &team[s + 1] : nullptr, a[s].team, true, &a[s].view};
    }
    needs.resourceRequirementsList = buffer;
    needs.teamRequirementsList = team;
    return EXPECT_OK(ncclDevCommCreate(me.comm, &needs, comm));
}

static void views(device_rank &me)
{
    test_window window[2];
    ncclDevComm comm[2];
    asked a[SIDES], again[SIDES];
    if (!open_window(me, BLOCKS * WORDS * 4, &window[0]) || !ask(me, a, &comm[0]) ||
        !open_window(me, BLOCKS * WORDS * 4, &window[1]) || !ask(me, again, &comm[1])) {
        return;
    }
    EXPECT(comm[0].lsaMultimem.mcBasePtr == nullptr); // only the pairs' was asked for
    unsigned *wrong = nullptr;
    unsigned result[2] = {1, 0};
    EXPECT_CUDA(cudaMalloc((void **)&wrong, sizeof result));
    EXPECT_CUDA(cudaMemsetAsync(wrong, 0, sizeof result, me.stream));
    for (int s = 0; s < SIDES; s++) {
        EXPECT(a[s].view.mcBasePtr != nullptr);
        EXPECT(a[s].view.mcBasePtr == again[s].view.mcBasePtr);
        for (int c = 0; c < 2; c++) {
            const asked &with = c == 0 ? a[s] : again[s];
            for (int w = 0; w < 2; w++) {
                use_view<<<BLOCKS, 32, 0, me.stream>>>(window[w].handle, comm[c], with, wrong);
            }
            exchange<<<BLOCKS, 32, 0, me.stream>>>(comm[c], with, wrong);
            EXPECT_CUDA(cudaStreamSynchronize(me.stream));
            meet(me); // the other side writes to the same windows
        }
        void *on_host = nullptr;
        void *lsa = nullptr;
        EXPECT_OK(ncclGetMultimemDevicePointer(window[1].handle, 8, a[s].view, &on_host));
        EXPECT_OK(ncclGetLsaMultimemDevicePointer(window[1].handle, 8, &lsa));
        EXPECT(on_host != nullptr && on_host != lsa);
    }
    ncclMultimemHandle strange = {(char *)a[OUTER].view.mcBasePtr + 1};
    void *pointer = nullptr;
    EXPECT_EQ(ncclGetMultimemDevicePointer(window[0].handle, 0, strange, &pointer),
              ncclInvalidArgument);
    EXPECT_CUDA(cudaMemcpyAsync(result, wrong, sizeof result, cudaMemcpyDeviceToHost, me.stream));
    EXPECT_CUDA(cudaStreamSynchronize(me.stream));
    EXPECT_EQ(result[0], 0);
    EXPECT_EQ(result[1], 0); // the line
    EXPECT_CUDA(cudaFree(wrong));
    for (int i = 0; i < 2; i++) {
        EXPECT_OK(ncclDevCommDestroy(me.comm, &comm[i]));
        close_window(me, &window[i]);
    }
}

// Teams that are none, that leave the LSA team, that do not fit together; one team too many.
static void bad_views(device_rank &me)
{
    ncclMultimemHandle view;
    ncclTeamRequirements_t team = {nullptr, {2, 0, 1}, true, &view};
    ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    ncclDevComm comm;
    needs.teamRequirementsList = &team;
    const struct {
        ncclTeam team;
        const char *text;
    } bad[] = {
        {{0, 0, 1}, "rank 0 of a team of 0 ranks"},
        {{2, 2, 1}, "rank 2 of a team of 2 ranks"},
        {{2, 0, 0}, "with stride 0"},
        {{4, me.rank, 2}, "inside the LSA team"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        team.team = bad[i].team;
        EXPECT_EQ(ncclDevCommCreate(me.comm, &needs, &comm), ncclInvalidArgument);
        EXPECT_CONTAINS(ncclGetLastError(me.comm), bad[i].text);
        meet(me);
    }
    team.team = {2, me.rank % 2, me.rank < 2 ? 1 : -1}; // 2 and 3 both say where the other is wrong
    if (me.rank >= 2) {
        team.team = {2, 3 - me.rank, -1};
    }
    // Rank 3 is first of {3, 2}: such a team may run downwards.
    EXPECT_OK(ncclDevCommCreate(me.comm, &needs, &comm));
    EXPECT_OK(ncclDevCommDestroy(me.comm, &comm));
    team.team = {2, me.rank == 3 ? 0 : me.rank % 2, me.rank == 3 ? -1 : 1};
    EXPECT_EQ(ncclDevCommCreate(me.comm, &needs, &comm), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(me.comm), "that rank asks for another team");
    meet(me);
    // One view was made above; seven more fit: all ways of two neighbours and the rest alone.
    int made = 1;
    ncclResult_t result = ncclSuccess;
    for (int code = 1; code < 16 && result == ncclSuccess; code++) {
        // Bit b of the code: ranks b and b + 1 are a pair, unless b - 1 and b are.
        if (code == 7) {
            continue; // the pairs of 5
        }
        int first = 0;
        int partner = -1;
        while (first < 4) {
            bool pair = (code >> first & 1) != 0 && first < 3;
            if (pair && (first == me.rank || first + 1 == me.rank)) {
                partner = first == me.rank ? 1 : 0;
            }
            first += pair ? 2 : 1;
        }
        team.team = partner < 0 ? ncclTeam{1, 0, 1 + code} : ncclTeam{2, 1 - partner, 1};
        result = ncclDevCommCreate(me.comm, &needs, &comm);
        if (result == ncclSuccess) {
            made++;
            EXPECT_OK(ncclDevCommDestroy(me.comm, &comm));
        }
    }
    EXPECT_EQ(made, NCCL_MULTIMEM_VIEWS);
    EXPECT_EQ(result, ncclInvalidUsage);
    EXPECT_CONTAINS(ncclGetLastError(me.comm), "has 8 already");
    meet(me);
}

static void run_views(void)
{
    run_ways<views>(4, 60);
}
static void run_bad_views(void)
{
    run_thread_ranks(4, as_rank<bad_views>, 60);
}

int main(void)
{
    RUN(run_views);
    RUN(run_bad_views);
    return expect_result();
}
