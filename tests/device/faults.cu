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
};

__global__ void make_mistake(mistake which, ncclWindow_t window, ncclDevComm comm, unsigned *out)
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
    if (!open_window(me, 4096, &window) || !EXPECT_OK(ncclDevCommCreate(me.comm, &needs, &comm))) {
        return;
    }
    unsigned *out = nullptr;
    EXPECT_CUDA(cudaMalloc((void **)&out, sizeof *out));
    EXPECT_CUDA(cudaMemsetAsync(out, 0, sizeof *out, me.stream));
    capture said;
    said.begin();
    make_mistake<<<blocks, 1, 0, me.stream>>>(which, window.handle, comm, out);
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
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    RUN(plain_access); // sanitizers end the program at a bad address before the runtime sees it
#endif
    return expect_result();
}
