// What kernels ask of teams, windows, symmetric pointers, resource buffers and hybrid barriers,
// against answers computed by counting.
// SPDX-License-Identifier: Apache-2.0
#include "ranks_of_devices.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            atomicAdd(&wrong[0], 1u);                                                              \
            atomicExch(&wrong[1], (unsigned)__LINE__);                                             \
        }                                                                                          \
    } while (0)

// Two words: how many checks failed, and the line of one of them.
struct verdict {
    unsigned *device;
    explicit verdict(device_rank &me)
    {
        EXPECT_CUDA(cudaMalloc((void **)&device, 8));
        EXPECT_CUDA(cudaMemsetAsync(device, 0, 8, me.stream));
        EXPECT_CUDA(cudaStreamSynchronize(me.stream));
    }
    void expect_right(device_rank &me)
    {
        unsigned result[2] = {1, 0};
        EXPECT_CUDA(cudaGetLastError());
        read_back(me, result, device, 8);
        EXPECT_EQ(result[0], 0);
        EXPECT_EQ(result[1], 0); // the line
        EXPECT_CUDA(cudaFree(device));
    }
};

// ---- Teams
// -----------------------------------------------------------------------------------------------

// All teams by factors of one rank of a world of `size`: members counted one by one.
static __host__ __device__ int count_wrong_teams(int size, int self)
{
    int wrong = 0;
    ncclTeam world = {size, self, 1};
    for (int k = 1; k <= size; k++) {
        if (size % k != 0) {
            continue;
        }
        ncclTeam inner = ncclTeamInnerFactor(world, k);
        ncclTeam outer = ncclTeamOuterFactor(world, k);
        wrong += inner.nRanks != k || inner.rank != self % k || inner.stride != 1;
        wrong += outer.nRanks != size / k || outer.rank != self / k || outer.stride != k;
        int left_in = 0;
        int left_out = 0;
        for (int r = 0; r < size; r++) {
            bool is_in = r / k == self / k;
            bool is_out = r % k == self % k;
            wrong += ncclTeamRankIsMember(inner, world, r) != is_in;
            wrong += ncclTeamRankIsMember(outer, world, r) != is_out;
            wrong += is_in && ncclTeamRankToTeam(inner, world, r) != r % k;
            wrong += is_out && ncclTeamRankToTeam(outer, world, r) != r / k;
            wrong += is_in && ncclTeamRankToTeam(world, inner, r % k) != r;
            wrong += is_out && ncclTeamRankToTeam(world, outer, r / k) != r;
            wrong += !is_in && ncclTeamRankInDifference(world, inner, left_in++) != r;
            wrong += !is_out && ncclTeamRankInDifference(world, outer, left_out++) != r;
            for (int j = 1; j <= k; j++) { // a factor of a factor, seen from the other factor
                if (k % j == 0) {
                    ncclTeam part = ncclTeamOuterFactor(inner, j);
                    bool is_part = is_in && r % j == self % j;
                    wrong += ncclTeamRankIsMember(part, world, r) != is_part;
                    wrong += is_part && ncclTeamRankToTeam(part, world, r) != r % k / j;
                    wrong += is_part && ncclTeamRankToTeam(inner, part, r % k / j) != r % k;
                }
            }
        }
    }
    return wrong;
}

__global__ void teams_of_worlds(unsigned *wrong)
{
    for (int size = 1; size <= 24; size++) {
        for (int self = (int)threadIdx.x; self < size; self += (int)blockDim.x) {
            CHECK(count_wrong_teams(size, self) == 0);
        }
    }
}

static __device__ bool equal(ncclTeam a, ncclTeam b)
{
    return a.nRanks == b.nRanks && a.rank == b.rank && a.stride == b.stride;
}

__global__ void teams_of_comm(ncclDevComm comm, ncclTeam world_said, ncclTeam lsa_said,
                              ncclTeam rail_said, unsigned *wrong)
{
    ncclTeam world = ncclTeamWorld(comm);
    ncclTeam lsa = ncclTeamLsa(comm);
    ncclTeam rail = ncclTeamRail(comm);
    CHECK(equal(world, world_said));
    CHECK(equal(lsa, lsa_said));
    CHECK(equal(rail, rail_said));
    CHECK(world.nRanks == comm.nRanks && world.rank == comm.rank && world.stride == 1);
    CHECK(lsa.nRanks == comm.lsaSize && lsa.rank == comm.lsaRank && lsa.stride == 1);
    CHECK(rail.nRanks * lsa.nRanks == world.nRanks && rail.stride == lsa.nRanks);
    for (int r = 0; r < lsa.nRanks; r++) {
        CHECK(ncclTeamRankToWorld(comm, lsa, r) == comm.rank - comm.lsaRank + r);
        CHECK(ncclTeamRankToLsa(comm, lsa, r) == r);
        CHECK(ncclTeamRankToLsa(comm, world, comm.rank - comm.lsaRank + r) == r);
    }
    for (int r = 0; r < rail.nRanks; r++) {
        CHECK(ncclTeamRankToWorld(comm, rail, r) == r * lsa.nRanks + comm.lsaRank);
    }
}

static void teams(device_rank &me)
{
    verdict alone(me);
    if (me.rank == 0) {
        teams_of_worlds<<<1, 24, 0, me.stream>>>(alone.device);
        int wrong = 0;
        for (int size = 1; size <= 24; size++) {
            for (int self = 0; self < size; self++) {
                wrong += count_wrong_teams(size, self);
            }
        }
        EXPECT_EQ(wrong, 0);
    }
    alone.expect_right(me);
    ncclDevComm comm;
    if (!open_device_comm(me, 1, &comm)) {
        return;
    }
    verdict all(me);
    teams_of_comm<<<1, 1, 0, me.stream>>>(comm, ncclTeamWorld(me.comm), ncclTeamLsa(me.comm),
                                          ncclTeamRail(me.comm), all.device);
    all.expect_right(me);
    EXPECT_EQ(ncclTeamRankToWorld(me.comm, ncclTeamLsa(me.comm), 1), comm.rank - comm.lsaRank + 1);
    EXPECT_EQ(ncclTeamRankToLsa(me.comm, ncclTeamLsa(me.comm), 1), 1);
    EXPECT_OK(ncclDevCommDestroy(me.comm, &comm));
}

// ---- Symmetric pointers, windows by address, resource buffers
// ----------------------------------------------------------------

static __host__ __device__ bool symmetric_arithmetic(ncclWindow_t window)
{
    using pointer = ncclSymPtr<double>;
    pointer p(window, 64);
    bool right = p == pointer(window, 64) && !(p != pointer(window, 64));
    right = right && p != pointer(window, 72) && p != pointer(nullptr, 64);
    right = right && (p + 3).offset == 88 && (p + 3u).offset == 88 && (p + 3l).offset == 88;
    right = right && (p + 3ul).offset == 88 && (p + 3ll).offset == 88 && (p + 3ull).offset == 88;
    right = right && (p - 3).offset == 40 && (p - 3u).offset == 40 && (p - 3l).offset == 40;
    right = right && (p - 3ul).offset == 40 && (p - 3ll).offset == 40 && (p - 3ull).offset == 40;
    right = right && (p + -3).offset == 40 && (p - -3).offset == 88;
    right = right && (p + 5) - p == 5 && p - (p + 5) == -5;
    pointer q = p;
    q += 2;
    q -= 1u;
    right = right && q.offset == 72 && q.window == window;
    ncclSymPtr<char> bytes = q;
    right = right && bytes.offset == 72 && (bytes + 1).offset == 73;
    right = right && ncclSymPtr<int>().window == nullptr && ncclSymPtr<int>().offset == 0;
    return right;
}

__global__ void addresses(ncclDevComm comm, ncclWindow_t window, ncclDevResourceHandle handle,
                          ncclMultimemHandle view, unsigned *wrong)
{
    CHECK(symmetric_arithmetic(window));
    ncclSymPtr<int> p(window, 16);
    ncclTeam lsa = ncclTeamLsa(comm);
    CHECK((void *)p.localPtr() == ncclGetLocalPointer(window, 16));
    int plain = 5;
    CHECK(*ncclSymPtr<int>(nullptr, (size_t)&plain).localPtr() == 5);
    ncclSymPtr<char> buffer = ncclGetResourceBuffer(comm, handle);
    CHECK(buffer.window == comm.resourceWindow);
    CHECK(buffer.offset == ncclGetResourceBufferOffset(handle));
    CHECK(buffer.localPtr() == ncclGetResourceBufferLocalPointer(comm, handle));
    for (int r = 0; r < comm.lsaSize; r++) {
        int world = comm.rank - comm.lsaRank + r;
        CHECK((void *)p.lsaPtr(r) == ncclGetLsaPointer(window, 16, r));
        CHECK((void *)p.peerPtr(world) == ncclGetLsaPointer(window, 16, r));
        CHECK((void *)p.peerPtr(lsa, r) == ncclGetLsaPointer(window, 16, r));
        CHECK((void *)p.peerPtr(ncclTeamWorld(comm), world) == ncclGetLsaPointer(window, 16, r));
        CHECK(buffer.lsaPtr(r) == ncclGetResourceBufferLsaPointer(comm, handle, r));
        CHECK(buffer.lsaPtr(r) == ncclGetResourceBufferPeerPointer(comm, handle, lsa, r));
    }
    if (view.mcBasePtr != nullptr) {
        CHECK((void *)p.multimemPtr(view) == ncclGetMultimemPointer(window, 16, view));
        CHECK((void *)p.lsaMultimemPtr(comm) == ncclGetLsaMultimemPointer(window, 16, comm));
        CHECK(p.multimemPtr(view) == p.lsaMultimemPtr(comm));
        CHECK(buffer.lsaMultimemPtr(comm) == ncclGetResourceBufferLsaMultimemPointer(comm, handle));
        CHECK(buffer.multimemPtr(view) == ncclGetResourceBufferMultimemPointer(comm, handle, view));
    }
}

// Windows are found by each kind of group, by registered and by flat address, first and last byte.
template <typename Coop>
__device__ void find(Coop coop, ncclDevComm const &comm, ncclWindow_t const *window, char *memory,
                     size_t bytes, int count, unsigned *wrong)
{
    for (int w = 0; w < count; w++) {
        char *mine = memory + w * bytes;
        CHECK(ncclFindWindow(coop, comm, mine) == window[w]);
        CHECK(ncclFindWindow(coop, comm, mine + bytes - 1) == window[w]);
        CHECK(ncclFindWindow(coop, comm, ncclGetLocalPointer(window[w], 7)) == window[w]);
    }
    CHECK(ncclFindWindow(coop, comm, memory + count * bytes) == nullptr);
    CHECK(ncclFindWindow(coop, comm, memory - 1) == nullptr);
    CHECK(ncclFindWindow(coop, comm, nullptr) == nullptr);
}

__global__ void find_windows(ncclDevComm comm, ncclWindow_t const *window, char *memory,
                             size_t bytes, int count, unsigned *wrong)
{
    find(ncclCoopCta(), comm, window, memory, bytes, count, wrong);
    find(ncclCoopThread(), comm, window, memory, bytes, count, wrong);
    find(ncclCoopWarp(), comm, window, memory, bytes, count, wrong);
    find(ncclCoopTile<4>(), comm, window, memory, bytes, count, wrong);
    find(ncclCoopWarpSpan(0, 2, 1), comm, window, memory, bytes, count, wrong);
    if (threadIdx.x % 2 == 1) {
        find(ncclCoopLanes(0xaaaaaaaau), comm, window, memory, bytes, count, wrong);
    }
}

static void windows_and_buffers(device_rank &me)
{
    enum { COUNT = 40, BYTES = 4096 }; // more than one chunk of the table
    char *memory = nullptr;
    ncclWindow_t window[COUNT];
    EXPECT_OK(ncclMemAlloc((void **)&memory, (COUNT + 2) * BYTES));
    for (int w = 0; w < COUNT; w++) {
        if (!EXPECT_OK(ncclCommWindowRegister(me.comm, memory + (w + 1) * BYTES, BYTES, &window[w],
                                              NCCL_WIN_COLL_SYMMETRIC))) {
            return;
        }
    }
    ncclDevResourceHandle handle[2] = {0, 0};
    ncclDevResourceRequirements_t second = {nullptr, 4096, 0, &handle[1], 0, 0, nullptr, nullptr};
    ncclDevResourceRequirements_t first = {&second, 100, 16, &handle[0], 0, 0, nullptr, nullptr};
    ncclMultimemHandle view = {nullptr};
    ncclTeamRequirements_t team = {nullptr, ncclTeamLsa(me.comm), me.properties.multimemSupport,
                                   &view};
    ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    needs.resourceRequirementsList = &first;
    needs.teamRequirementsList = &team;
    needs.lsaMultimem = me.properties.multimemSupport;
    ncclDevComm comm;
    if (!EXPECT_OK(ncclDevCommCreate(me.comm, &needs, &comm))) {
        return;
    }
    EXPECT(symmetric_arithmetic(window[0]));
    EXPECT_EQ(view.mcBasePtr != nullptr, me.properties.multimemSupport);
    verdict result(me);
    ncclWindow_t *list = nullptr;
    EXPECT_CUDA(cudaMalloc((void **)&list, sizeof window));
    EXPECT_CUDA(cudaMemcpy(list, window, sizeof window, cudaMemcpyHostToDevice));
    for (ncclDevResourceHandle h : handle) {
        addresses<<<1, 1, 0, me.stream>>>(comm, window[3], h, view, result.device);
    }
    find_windows<<<1, 64, 0, me.stream>>>(comm, list, memory + BYTES, BYTES, COUNT, result.device);
    result.expect_right(me);
    EXPECT_CUDA(cudaFree(list));
    EXPECT_OK(ncclDevCommDestroy(me.comm, &comm));
    for (int w = 0; w < COUNT; w++) {
        EXPECT_OK(ncclCommWindowDeregister(me.comm, window[w]));
    }
    EXPECT_OK(ncclMemFree(memory));
}

// ---- Addresses on the host
// -------------------------------------------------------------------------------------------

static void host_pointers(device_rank &me)
{
    test_window window;
    if (!open_window(me, 5000, &window)) {
        return;
    }
    void *pointer = &window;
    ncclWindow_t w = window.handle;
    ncclMultimemHandle none = {nullptr};
    EXPECT_OK(ncclGetLsaDevicePointer(w, 4999, me.size - 1, &pointer));
    EXPECT(pointer != nullptr);
    EXPECT_EQ(ncclGetLsaDevicePointer(w, 5000, 0, &pointer), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(me.comm), "5000");
    EXPECT_EQ(ncclGetLsaDevicePointer(w, SIZE_MAX, 0, &pointer), ncclInvalidArgument);
    EXPECT_EQ(ncclGetLsaDevicePointer(w, 0, me.size, &pointer), ncclInvalidArgument);
    EXPECT_EQ(ncclGetLsaDevicePointer(w, 0, -1, &pointer), ncclInvalidArgument);
    EXPECT_EQ(ncclGetLsaDevicePointer(w, 0, 0, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclGetLsaDevicePointer(nullptr, 0, 0, &pointer), ncclInvalidArgument);
    EXPECT_EQ(ncclGetLsaDevicePointer((ncclWindow_t)window.memory, 0, 0, &pointer),
              ncclInvalidArgument);
    EXPECT_EQ(ncclGetPeerDevicePointer(w, 5000, 0, &pointer), ncclInvalidArgument);
    EXPECT_EQ(ncclGetPeerDevicePointer(w, 0, me.size, &pointer), ncclInvalidArgument);
    EXPECT_EQ(ncclGetPeerDevicePointer(w, 0, -1, &pointer), ncclInvalidArgument);
    EXPECT_EQ(ncclGetPeerDevicePointer(w, 0, 0, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclGetMultimemDevicePointer(w, 5000, none, &pointer), ncclInvalidArgument);
    EXPECT_EQ(ncclGetMultimemDevicePointer(w, 0, none, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclGetLsaMultimemDevicePointer(w, 5000, &pointer), ncclInvalidArgument);
    EXPECT_EQ(ncclGetLsaMultimemDevicePointer(nullptr, 0, &pointer), ncclInvalidArgument);
    EXPECT_OK(ncclGetMultimemDevicePointer(w, 8, none, &pointer));
    EXPECT(pointer == nullptr); // an empty handle reaches nobody
    ncclDevComm comm;
    if (open_device_comm(me, 1, &comm)) {
        void *by_team = nullptr;
        EXPECT_OK(ncclGetMultimemDevicePointer(w, 8, comm.lsaMultimem, &by_team));
        EXPECT_OK(ncclGetLsaMultimemDevicePointer(w, 8, &pointer));
        EXPECT(by_team == pointer && (pointer != nullptr) == me.properties.multimemSupport);
        EXPECT_OK(ncclDevCommDestroy(me.comm, &comm));
    }
    EXPECT_OK(ncclWinGetUserPtr(me.comm, w, &pointer));
    EXPECT(pointer == window.memory);
    EXPECT_EQ(ncclWinGetUserPtr(me.comm, w, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclWinGetUserPtr(nullptr, w, &pointer), ncclInvalidArgument);
    EXPECT_EQ(ncclWinGetUserPtr(me.comm, (ncclWindow_t)window.memory, &pointer),
              ncclInvalidArgument);
    meet(me);
    close_window(me, &window);
    EXPECT_EQ(ncclWinGetUserPtr(me.comm, w, &pointer), ncclInvalidArgument);
    EXPECT_EQ(ncclGetPeerDevicePointer(w, 0, 0, &pointer), ncclInvalidArgument);
}

// ---- Hybrid barriers in a world of one LSA team
// -------------------------------------------------------------------------

enum kind { WORLD, WORLD_MULTIMEM, LSA, RAIL_AFTER_LSA, HANDLES, FREE, TIMED, KINDS };

// Each rank writes the round into every other's word, meets them, and looks.
template <typename Meet>
__device__ void rounds(ncclDevComm const &comm, ncclWindow_t window, int first, unsigned *wrong,
                       Meet meet_all)
{
    for (int round = first; round < first + 4; round++) {
        for (int m = threadIdx.x; m < comm.lsaSize; m += blockDim.x) {
            size_t own = 4 * ((size_t)blockIdx.x * comm.lsaSize + comm.lsaRank);
            *(int *)ncclGetLsaPointer(window, own, m) = round;
        }
        meet_all();
        for (int m = threadIdx.x; m < comm.lsaSize; m += blockDim.x) {
            size_t word = 4 * ((size_t)blockIdx.x * comm.lsaSize + m);
            CHECK(*(int *)ncclGetLocalPointer(window, word) == round);
        }
        meet_all();
    }
}

__global__ void hybrid(ncclDevComm comm, ncclWindow_t window, kind which, int first,
                       ncclLsaBarrierHandle lsa, ncclGinBarrierHandle gin_handle, unsigned *wrong)
{
    ncclCoopCta cta;
    ncclGin gin(comm, 0);
    const cuda::memory_order order = cuda::memory_order_acq_rel;
    if (which == WORLD || which == WORLD_MULTIMEM || which == TIMED) {
        ncclBarrierSession<ncclCoopCta> all(cta, ncclTeamTagWorld(), gin, blockIdx.x,
                                            which == WORLD_MULTIMEM);
        rounds(comm, window, first, wrong, [&] {
            if (which == TIMED) {
                CHECK(all.sync(cta, order, None, 100000000000ull) == ncclSuccess);
            } else {
                all.sync(cta, order);
            }
        });
        all.lsaBarrier().sync(cta, order);
        all.ginBarrier().sync(cta, order, Put | Get);
    } else if (which == LSA) {
        ncclBarrierSession<ncclCoopCta> team(cta, ncclTeamTagLsa(), comm, blockIdx.x);
        rounds(comm, window, first, wrong, [&] { team.sync(cta, order, Relaxed); });
        rounds(comm, window, first + 100, wrong, [&] {
            team.lsaBarrier().arrive(cta, cuda::memory_order_release);
            team.lsaBarrier().wait(cta, cuda::memory_order_acquire);
        });
    } else if (which == RAIL_AFTER_LSA) {
        ncclBarrierSession<ncclCoopCta> team(cta, ncclTeamTagLsa(), comm, blockIdx.x);
        ncclBarrierSession<ncclCoopCta> rail(cta, ncclTeamTagRail(), gin, blockIdx.x);
        rounds(comm, window, first, wrong, [&] {
            team.sync(cta, order);
            rail.sync(cta, order, Put);
            CHECK(rail.sync(cta, order, Get, 1000) == ncclSuccess);
        });
        ncclGinBarrier(cta, ncclGinAllContexts(comm), ncclTeamTagRail(), blockIdx.x);
        ncclBarrier(cta, ncclTeamTagRail(), gin, blockIdx.x);
    } else if (which == HANDLES) {
        ncclTeam alone = ncclTeamInnerFactor(ncclTeamLsa(comm), 1);
        ncclBarrierSession<ncclCoopCta> all(cta, ncclTeamLsa(comm), alone, gin, lsa, gin_handle,
                                            blockIdx.x);
        rounds(comm, window, first, wrong, [&] { all.sync(cta, order); });
    } else {
        rounds(comm, window, first, wrong,
               [&] { ncclBarrier(cta, ncclTeamTagWorld(), gin, blockIdx.x, order, None); });
    }
}

static void hybrid_barriers(device_rank &me)
{
    enum { BLOCKS = 3 };
    test_window window;
    if (!open_window(me, 65536, &window)) {
        return;
    }
    ncclLsaBarrierHandle lsa;
    ncclGinBarrierHandle gin = {};
    ncclDevResourceRequirements_t buffer;
    ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    EXPECT_OK(ncclLsaBarrierCreateRequirement(ncclTeamLsa(me.comm), BLOCKS, &lsa, &buffer));
    needs.resourceRequirementsList = &buffer;
    needs.barrierCount = BLOCKS;
    needs.lsaBarrierCount = 1;
    needs.lsaMultimem = me.properties.multimemSupport;
    ncclDevComm comm;
    if (!EXPECT_OK(ncclDevCommCreate(me.comm, &needs, &comm))) {
        return;
    }
    EXPECT_EQ(comm.hybridLsaBarrier.nBarriers, BLOCKS);
    EXPECT_EQ(comm.lsaBarrier.nBarriers, 1);
    for (int which = 0; which < KINDS; which++) {
        verdict result(me);
        meet(me);
        hybrid<<<BLOCKS, 64, 0, me.stream>>>(comm, window.handle, (kind)which, 1000 * which + 1,
                                             lsa, gin, result.device);
        result.expect_right(me);
    }
    EXPECT_OK(ncclDevCommDestroy(me.comm, &comm));
    close_window(me, &window);
}

static void run_teams(void)
{
    run_thread_ranks(4, as_rank<teams>, 60);
}
static void run_windows_and_buffers(void)
{
    run_thread_ranks(3, as_rank<windows_and_buffers>, 60);
    run_ranks(2, as_rank<windows_and_buffers>, 60);
}
static void run_host_pointers(void)
{
    run_ranks(2, as_rank<host_pointers>, 60);
}
static void run_hybrid_barriers(void)
{
    run_ways<hybrid_barriers>(4, 60);
}
static void run_hybrid_barriers_alone(void)
{
    run_thread_ranks(1, as_rank<hybrid_barriers>, 60);
}

int main(void)
{
    RUN(run_teams);
    RUN(run_windows_and_buffers);
    RUN(run_host_pointers);
    RUN(run_hybrid_barriers);
    RUN(run_hybrid_barriers_alone);
    return expect_result();
}
