// What ends a kernel with cudaErrorIllegalAddress or cudaErrorInvalidValue, and what it says:
// offsets beyond windows, ranks outside the team, missing multicast, misused barriers. Each in a
// process of its own, because the error stays.
// SPDX-License-Identifier: Apache-2.0
#include "ranks_of_devices.h"

#include <fcntl.h>
#include <unistd.h>

enum mistake {
    BEYOND_WINDOW,
    BEYOND_LAST_RANK,
    NEGATIVE_RANK,
    WORLD_RANK_OUTSIDE,
    NULL_WINDOW,
    NO_MULTIMEM,
    BARRIER_INDEX,
    BARRIER_SHARED,
    PLAIN_ACCESS_TO_MULTICAST,
    GIN_PUT,
    GIN_BARRIER,
    GIN_C_FLUSH,
    NO_LSA_PART,
    NO_GIN_PART,
    LL_BLOCK,
    LL_SLOT,
    LL_PEER,
    LL_COUNT,
    LL_INSIDE_EPOCH,
    SPAN_THREAD,
    TEAM_LOAD_BEYOND,
    TEAM_STORE_UNALIGNED,
    RESOURCE_BEYOND,
};

// Uses of the exchange of small values: two blocks of eight slots, all of the session's.
__device__ void mistake_with_values(mistake which, ncclDevComm const &comm, ncclLLA2AHandle handle)
{
    ncclCoopCta cta;
    ncclLLA2ASession<ncclCoopCta> session(cta, comm, ncclTeamLsa(comm), handle,
                                          which == LL_BLOCK ? 2 : 1, 4);
    double got[4];
    switch (which) {
    case LL_SLOT:
        session.send(0, 4, 1.0);
        break;
    case LL_PEER:
        session.send(1, 0, 1.0);
        break;
    case LL_COUNT:
        session.recvUnrolled<1, 4>(0, 5, 1, got);
        break;
    default:
        session.send(0, 0, 1.0); // and no endEpoch
        break;
    }
}

// Uses of what needs a network.
__device__ void mistake_with_gin(mistake which, ncclWindow_t window, ncclDevComm const &comm)
{
    ncclCoopCta cta;
    ncclGin gin(comm, 0);
    if (which == GIN_PUT) {
        gin.put(ncclTeamWorld(comm), 0, window, 0, window, 8, 8);
    } else if (which == GIN_C_FLUSH) {
        ncclGin_C c(comm, NCCL_GIN_BACKEND_MASK_ALL, 0);
        ncclGinFlush(&c, ncclCoopAny(cta), cuda::memory_order_acquire);
    } else if (which == NO_LSA_PART) {
        ncclBarrierSession<ncclCoopCta>(cta, ncclTeamTagRail(), gin, 0).lsaBarrier();
    } else if (which == NO_GIN_PART) {
        ncclBarrierSession<ncclCoopCta>(cta, ncclTeamTagLsa(), comm, 0).ginBarrier();
    } else {
        ncclTeam two = {2, 0, 1};
        ncclGinBarrierSession<ncclCoopCta>(cta, gin, two, comm.railGinBarrier, 0)
            .sync(cta, cuda::memory_order_acq_rel);
    }
}

__global__ void make_mistake(mistake which, ncclWindow_t window, ncclDevComm comm,
                             ncclLLA2AHandle handle, unsigned *out)
{
    ncclCoopCta cta;
    void *address = ncclGetLocalPointer(window, 4096); // one past the end can be formed
    switch (which) {
    case BEYOND_WINDOW:
        address = ncclGetLsaPointer(window, 5000, 0);
        break;
    case BEYOND_LAST_RANK:
        address = ncclGetLsaPointer(window, 0, comm.lsaSize);
        break;
    case NEGATIVE_RANK:
        address = ncclGetPeerPointer(window, 0, ncclTeamLsa(comm), -1);
        break;
    case WORLD_RANK_OUTSIDE:
        address = ncclGetPeerPointer(window, 0, comm.nRanks + 2);
        break;
    case NULL_WINDOW:
        address = ncclGetLocalPointer(nullptr, 0);
        break;
    case NO_MULTIMEM:
        address = ncclGetLsaMultimemPointer(window, 0, comm);
        break;
    case BARRIER_INDEX: {
        ncclLsaBarrierSession<ncclCoopCta> barrier(cta, comm, ncclTeamTagLsa(), 3);
        break;
    }
    case BARRIER_SHARED: {
        // Both blocks take barrier 1 and hold it until both have it.
        ncclLsaBarrierSession<ncclCoopCta> barrier(cta, comm, ncclTeamTagLsa(), 1);
        atomicAdd(out, 1u);
        while (cuda::atomic_ref<unsigned, cuda::thread_scope_device>(*out).load() < 2) {
        }
        break;
    }
    case PLAIN_ACCESS_TO_MULTICAST:
        *static_cast<int *>(ncclGetLsaMultimemPointer(window, 0, comm)) = 1;
        break;
    case SPAN_THREAD:
        ncclCoopWarpSpan(1, 1, 0).sync();
        break;
    case TEAM_LOAD_BEYOND:
        *out = tuttiMultimemLoadReduce<tuttiMax, uint8_t>(window, 4096, comm);
        break;
    case TEAM_STORE_UNALIGNED:
        tuttiMultimemStore(window, 5, comm, (short)1);
        break;
    case RESOURCE_BEYOND:
        address = ncclGetResourceBufferLsaPointer(comm, 1 << 20, 0);
        break;
    case GIN_PUT:
    case GIN_BARRIER:
    case GIN_C_FLUSH:
    case NO_LSA_PART:
    case NO_GIN_PART:
        mistake_with_gin(which, window, comm);
        break;
    default:
        mistake_with_values(which, comm, handle);
        break;
    }
    *out = (unsigned)(uintptr_t)address;
}

// What the process says on stderr while `run` runs.
struct capture {
    int saved, file;
    char name[40];
    char text[8192];
    void begin()
    {
        strcpy(name, "/tmp/tutti-faults-XXXXXX");
        file = mkstemp(name);
        unlink(name);
        fflush(stderr);
        saved = dup(2);
        dup2(file, 2);
    }
    void end()
    {
        fflush(stderr);
        dup2(saved, 2);
        close(saved);
        ssize_t length = pread(file, text, sizeof text - 1, 0);
        text[length > 0 ? length : 0] = 0;
        close(file);
    }
};

static void expect_fault(device_rank &me, mistake which, unsigned blocks, bool multimem,
                         cudaError_t error, const char *part)
{
    test_window window;
    ncclDevComm comm;
    ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    needs.lsaBarrierCount = 2;
    needs.lsaMultimem = multimem;
    needs.barrierCount = 1;
    ncclLLA2AHandle handle;
    ncclDevResourceRequirements_t buffer;
    EXPECT_OK(ncclLLA2ACreateRequirement(2, 8, &handle, &buffer));
    needs.resourceRequirementsList = &buffer;
    if (!open_window(me, 4096, &window) || !EXPECT_OK(ncclDevCommCreate(me.comm, &needs, &comm))) {
        return;
    }
    unsigned *out = nullptr;
    EXPECT_CUDA(cudaMalloc((void **)&out, sizeof *out));
    EXPECT_CUDA(cudaMemsetAsync(out, 0, sizeof *out, me.stream));
    capture said;
    said.begin();
    make_mistake<<<blocks, 1, 0, me.stream>>>(which, window.handle, comm, handle, out);
    cudaError_t got = cudaStreamSynchronize(me.stream);
    said.end();
    EXPECT_EQ(got, error);
    EXPECT_CONTAINS(said.text, part);
    EXPECT_EQ(cudaDeviceSynchronize(), error); // it stays
    _exit(expect_failures() != 0);             // nothing of the device can be used any more
}

template <mistake which, unsigned blocks, bool multimem> static void one(device_rank &me)
{
    switch (which) {
    case BEYOND_WINDOW:
        return expect_fault(me, which, blocks, multimem, cudaErrorIllegalAddress,
                            "window 1 of rank 0 has 4096 bytes, offset 5000");
    case BEYOND_LAST_RANK:
        return expect_fault(me, which, blocks, multimem, cudaErrorIllegalAddress,
                            "rank 1 is outside its LSA team (world ranks 0 to 0)");
    case NEGATIVE_RANK:
        return expect_fault(me, which, blocks, multimem, cudaErrorIllegalAddress,
                            "rank -1 is outside its LSA team");
    case WORLD_RANK_OUTSIDE:
        return expect_fault(me, which, blocks, multimem, cudaErrorIllegalAddress,
                            "rank 3 is outside its LSA team");
    case NULL_WINDOW:
        return expect_fault(me, which, blocks, multimem, cudaErrorIllegalAddress,
                            "the window is NULL");
    case NO_MULTIMEM:
        return expect_fault(me, which, blocks, multimem, cudaErrorIllegalAddress,
                            "the multimem handle is empty");
    case BARRIER_INDEX:
        return expect_fault(me, which, blocks, multimem, cudaErrorInvalidValue,
                            "LSA barrier 3 of rank 0: only 2 barriers");
    case BARRIER_SHARED:
        return expect_fault(me, which, blocks, multimem, cudaErrorInvalidValue,
                            "LSA barrier 1 of rank 0 is used by block");
    case PLAIN_ACCESS_TO_MULTICAST:
        return expect_fault(me, which, blocks, multimem, cudaErrorIllegalAddress, "");
    case GIN_PUT:
        return expect_fault(me, which, blocks, multimem, cudaErrorNotSupported,
                            "not implemented yet: ncclGin::put");
    case GIN_BARRIER:
        return expect_fault(me, which, blocks, multimem, cudaErrorNotSupported,
                            "not implemented yet: ncclGinBarrierSession of more than one rank");
    case GIN_C_FLUSH:
        return expect_fault(me, which, blocks, multimem, cudaErrorNotSupported,
                            "not implemented yet: ncclGinFlush");
    case NO_LSA_PART:
        return expect_fault(me, which, blocks, multimem, cudaErrorInvalidValue,
                            "a session of ncclTeamTagRail has no LSA part");
    case NO_GIN_PART:
        return expect_fault(me, which, blocks, multimem, cudaErrorInvalidValue,
                            "a session of ncclTeamTagLsa has no GIN part");
    case LL_BLOCK:
        return expect_fault(me, which, blocks, multimem, cudaErrorInvalidValue,
                            "block 2, expected 0 to 1");
    case LL_SLOT:
        return expect_fault(me, which, blocks, multimem, cudaErrorInvalidValue,
                            "slot 4 for a value of 1 pieces");
    case LL_PEER:
        return expect_fault(me, which, blocks, multimem, cudaErrorInvalidValue,
                            "peer 1, the team has ranks 0 to 0");
    case LL_COUNT:
        return expect_fault(me, which, blocks, multimem, cudaErrorInvalidValue,
                            "5 values, expected 1 to 4");
    case LL_INSIDE_EPOCH:
        return expect_fault(me, which, blocks, multimem, cudaErrorInvalidValue, "call endEpoch");
    case SPAN_THREAD:
        return expect_fault(me, which, blocks, multimem, cudaErrorInvalidValue,
                            "thread 0, span of warps 1 to 1");
    case TEAM_LOAD_BEYOND:
        return expect_fault(me, which, blocks, multimem, cudaErrorIllegalAddress,
                            "1 bytes at offset 4096 do not fit");
    case TEAM_STORE_UNALIGNED:
        return expect_fault(me, which, blocks, multimem, cudaErrorMisalignedAddress,
                            "2 bytes at offset 5");
    case RESOURCE_BEYOND:
        return expect_fault(me, which, blocks, multimem, cudaErrorIllegalAddress,
                            "is beyond its end");
    }
}

template <mistake which, unsigned blocks = 1, bool multimem = false> static void check()
{
    run_ranks(1, as_rank<one<which, blocks, multimem>>, 30);
}

static void beyond_window(void)
{
    check<BEYOND_WINDOW>();
}
static void beyond_last_rank(void)
{
    check<BEYOND_LAST_RANK>();
}
static void negative_rank(void)
{
    check<NEGATIVE_RANK>();
}
static void world_rank_outside(void)
{
    check<WORLD_RANK_OUTSIDE>();
}
static void null_window(void)
{
    check<NULL_WINDOW>();
}
static void no_multimem(void)
{
    check<NO_MULTIMEM>();
}
static void barrier_index(void)
{
    check<BARRIER_INDEX>();
}
static void barrier_shared(void)
{
    check<BARRIER_SHARED, 2>();
}
// The rest, each in a process of its own too.
template <mistake... which> static void check_each()
{
    (check<which>(), ...);
}
[[maybe_unused]] static void gin(void)
{
    check_each<GIN_PUT, GIN_BARRIER, GIN_C_FLUSH, NO_LSA_PART, NO_GIN_PART>();
}
[[maybe_unused]] static void small_values(void)
{
    check_each<LL_BLOCK, LL_SLOT, LL_PEER, LL_COUNT, LL_INSIDE_EPOCH>();
}
[[maybe_unused]] static void groups_and_loops(void)
{
    check_each<SPAN_THREAD, TEAM_LOAD_BEYOND, TEAM_STORE_UNALIGNED, RESOURCE_BEYOND>();
}
[[maybe_unused]] static void plain_access(void)
{
    check<PLAIN_ACCESS_TO_MULTICAST, 1, true>();
}

int main(void)
{
    RUN(beyond_window);
    RUN(beyond_last_rank);
    RUN(negative_rank);
    RUN(world_rank_outside);
    RUN(null_window);
    RUN(no_multimem);
    RUN(barrier_index);
    RUN(barrier_shared);
#ifndef __SANITIZE_THREAD__ // each process takes a second there
    RUN(gin);
    RUN(small_values);
    RUN(groups_and_loops);
#endif
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    RUN(plain_access); // sanitizers end the program at a bad address before the runtime sees it
#endif
    return expect_result();
}
