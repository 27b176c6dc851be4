// The exchange of small values whose arrival is seen in the data: every function, values of every
// width, many epochs over kernels, the turn of the epoch number, sub-teams, multicast, aborts.
// SPDX-License-Identifier: Apache-2.0
#include "ranks_of_devices.h"

#ifdef __SANITIZE_THREAD__
enum { EPOCHS = 6 };
#else
enum { EPOCHS = 25 };
#endif
enum { BLOCKS = 2, THREADS = 64, ELEMENTS = 16 };

struct triple { // three pieces, the last one not full
    int32_t a[5];
};
static_assert(sizeof(triple) == 20, "");

__device__ int value_of(int from, int to, int epoch, int i)
{
    return from * 1000003 + to * 10007 + epoch * 101 + i;
}

// One epoch of each kind of exchange, `epochs` times.
template <typename Coop>
__device__ void exchange(Coop coop, ncclDevComm const &comm, ncclTeam team, ncclLLA2AHandle handle,
                         int block, bool multimem, ncclMultimemHandle view, int epochs,
                         unsigned *wrong)
{
    int n = team.nRanks;
    ncclLLA2ASession<Coop> session(coop, comm, team, handle, block, ELEMENTS, multimem, view);
    for (int epoch = 0; epoch < epochs; epoch++) {
        // Slot s gets a value of rank s: each rank sends to each rank.
        for (int peer = coop.thread_rank(); peer < n; peer += coop.size()) {
            triple value;
            for (int i = 0; i < 5; i++) {
                value.a[i] = value_of(team.rank, peer, epoch, i);
            }
            session.send(peer, team.rank, value);
        }
        for (int peer = coop.thread_rank(); peer < n; peer += coop.size()) {
            triple value = session.template recv<triple>(peer);
            for (int i = 0; i < 5; i++) {
                if (value.a[i] != value_of(peer, team.rank, epoch, i)) {
                    atomicAdd(wrong, 1u);
                }
            }
        }
        session.endEpoch(coop);

        // Everybody's byte to all, all bytes read at once.
        if (coop.thread_rank() == coop.size() - 1) {
            session.bcast(team.rank, (uint8_t)value_of(team.rank, 0, epoch, 0));
        }
        uint8_t got[ELEMENTS];
        session.template recvUnrolled<1, ELEMENTS>(0, n, 1, got);
        for (int peer = 0; peer < n; peer++) {
            if (got[peer] != (uint8_t)value_of(peer, 0, epoch, 0)) {
                atomicAdd(wrong, 1u);
            }
        }
        session.endEpoch(coop);

        // A sum over the ranks, in rank order, of values of 8 bytes in every second slot.
        if (coop.thread_rank() == 0) {
            session.bcast(2 * team.rank, (double)value_of(team.rank, 0, epoch, 1) * 0.1);
        }
        float sum = session.template recvReduce<3, double>(
            0, n, 2, [](double x) { return (float)x; }, [](float a, float b) { return a + b; });
        float right = 0;
        for (int peer = 0; peer < n; peer++) {
            float next = (float)((double)value_of(peer, 0, epoch, 1) * 0.1);
            right = peer == 0 ? next : right + next;
        }
        if (sum != right) {
            atomicAdd(wrong, 1u);
        }
        session.endEpoch(coop);
    }
}

__global__ void exchange_all(ncclDevComm comm, ncclTeam team, ncclLLA2AHandle handle, bool multimem,
                             bool warps, int epochs, unsigned *wrong)
{
    if (warps) {
        int warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
        exchange(ncclCoopWarp(), comm, team, handle, warp, multimem, comm.lsaMultimem, epochs,
                 wrong);
    } else {
        exchange(ncclCoopCta(), comm, team, handle, blockIdx.x, multimem, comm.lsaMultimem, epochs,
                 wrong);
    }
}

// Makes the blocks' count of epochs what it is after `done` of them.
__global__ void set_epoch(ncclDevComm comm, ncclLLA2AHandle handle, uint32_t done)
{
    char *buffer = (char *)ncclGetResourceBufferLocalPointer(comm, handle.bufHandle);
    for (uint32_t b = 0; b < handle.nBlocks; b++) {
        *(uint32_t *)(buffer + ncclLLA2ABytes(b, handle.nSlots)) = done;
    }
}

struct setup {
    ncclDevComm comm;
    ncclLLA2AHandle handle;
    unsigned *wrong;
};
static bool open(device_rank &me, setup *s)
{
    ncclDevResourceRequirements_t buffer;
    ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    int slots = ncclLLA2ACalcSlots(ELEMENTS, sizeof(triple));
    EXPECT_EQ(slots, ELEMENTS * 3);
    EXPECT_OK(ncclLLA2ACreateRequirement(2 * BLOCKS, slots, &s->handle, &buffer));
    needs.resourceRequirementsList = &buffer;
    needs.lsaMultimem = me.properties.multimemSupport;
    bool good = EXPECT_OK(ncclDevCommCreate(me.comm, &needs, &s->comm)) &&
                EXPECT_CUDA(cudaMalloc((void **)&s->wrong, sizeof *s->wrong)) &&
                EXPECT_CUDA(cudaMemset(s->wrong, 0, sizeof *s->wrong));
    meet(me);
    return good;
}
static void close(device_rank &me, setup *s)
{
    unsigned wrong = 1;
    EXPECT_CUDA(cudaGetLastError()); // of launches: the other ranks wait for them for ever
    read_back(me, &wrong, s->wrong, sizeof wrong);
    EXPECT_EQ(wrong, 0);
    EXPECT_CUDA(cudaFree(s->wrong));
    EXPECT_OK(ncclDevCommDestroy(me.comm, &s->comm));
}

static void exchanges(device_rank &me)
{
    setup s;
    if (!open(me, &s)) {
        return;
    }
    ncclTeam team = ncclTeamLsa(me.comm);
    for (int multimem = 0; multimem <= (me.properties.multimemSupport ? 1 : 0); multimem++) {
        exchange_all<<<BLOCKS, THREADS, 0, me.stream>>>(s.comm, team, s.handle, multimem != 0,
                                                        false, EPOCHS, s.wrong);
        exchange_all<<<BLOCKS, THREADS, 0, me.stream>>>(s.comm, team, s.handle, multimem != 0, true,
                                                        EPOCHS, s.wrong);
    }
    close(me, &s);
}

// The epoch number turns from its largest to its first value: what lies in the slots from before is
// not taken for new. Before that, the blocks run through the first numbers.
static void turns(device_rank &me)
{
    setup s;
    if (!open(me, &s)) {
        return;
    }
    ncclTeam team = ncclTeamLsa(me.comm);
    exchange_all<<<BLOCKS, THREADS, 0, me.stream>>>(s.comm, team, s.handle, false, false, 2,
                                                    s.wrong);
    EXPECT_CUDA(cudaStreamSynchronize(me.stream));
    meet(me);
    for (uint32_t before : {4u, 5u}) {
        set_epoch<<<1, 1, 0, me.stream>>>(s.comm, s.handle, 0u - before - NCCL_LL_A2A_FIRST_EPOCH);
        EXPECT_CUDA(cudaStreamSynchronize(me.stream));
        meet(me);
        exchange_all<<<BLOCKS, THREADS, 0, me.stream>>>(s.comm, team, s.handle, false, false, 5,
                                                        s.wrong);
        EXPECT_CUDA(cudaStreamSynchronize(me.stream));
        meet(me);
    }
    close(me, &s);
}

static void pairs(device_rank &me)
{
    setup s;
    if (!open(me, &s)) {
        return;
    }
    ncclTeam inner = ncclTeamInnerFactor(ncclTeamLsa(me.comm), 2);
    ncclTeam outer = ncclTeamOuterFactor(ncclTeamLsa(me.comm), 2);
    exchange_all<<<BLOCKS, THREADS, 0, me.stream>>>(s.comm, inner, s.handle, false, false, EPOCHS,
                                                    s.wrong);
    EXPECT_CUDA(cudaStreamSynchronize(me.stream));
    meet(me); // another team on the same blocks: nobody may still read
    exchange_all<<<BLOCKS, THREADS, 0, me.stream>>>(s.comm, outer, s.handle, false, true, EPOCHS,
                                                    s.wrong);
    close(me, &s);
}

// A value that nobody sends: an abort ends the wait.
__global__ void wait_forever(ncclDevComm comm, ncclLLA2AHandle handle)
{
    ncclLLA2ASession<ncclCoopCta> session(ncclCoopCta(), comm, ncclTeamLsa(comm), handle, 0,
                                          ELEMENTS);
    session.recv<int>(0);
}

static void *abort_later(void *argument)
{
    struct timespec pause = {0, 50000000};
    nanosleep(&pause, nullptr);
    EXPECT_OK(ncclCommAbort(static_cast<ncclComm_t>(argument)));
    return nullptr;
}

static void aborted(device_rank &me)
{
    setup s;
    if (!open(me, &s)) {
        return;
    }
    wait_forever<<<1, THREADS, 0, me.stream>>>(s.comm, s.handle);
    EXPECT_CUDA(cudaGetLastError());
    pthread_t thread;
    EXPECT_EQ(pthread_create(&thread, nullptr, abort_later, me.comm), 0);
    EXPECT_CUDA(cudaStreamSynchronize(me.stream));
    pthread_join(thread, nullptr);
    me.comm = nullptr;
    EXPECT_CUDA(cudaFree(s.wrong));
}

static void numbers(void)
{
    ncclLLA2AHandle handle;
    ncclDevResourceRequirements_t buffer;
    EXPECT_EQ(ncclLLA2ACalcSlots(10, 1), 10);
    EXPECT_EQ(ncclLLA2ACalcSlots(10, 8), 10);
    EXPECT_EQ(ncclLLA2ACalcSlots(10, 9), 20);
    EXPECT_EQ(ncclLLA2ACalcSlots(0, 9), 0);
    EXPECT_EQ(ncclLLA2ACalcSlots(-1, 8), -1);
    EXPECT_EQ(ncclLLA2ACalcSlots(1 << 30, 64), -1);
    EXPECT_EQ(ncclLLA2ACreateRequirement(1, -1, &handle, &buffer), ncclInvalidArgument);
    EXPECT_EQ(ncclLLA2ACreateRequirement(-1, 1, &handle, &buffer), ncclInvalidArgument);
    EXPECT_EQ(ncclLLA2ACreateRequirement(1, 1, nullptr, &buffer), ncclInvalidArgument);
    EXPECT_EQ(ncclLLA2ACreateRequirement(1, 1, &handle, nullptr), ncclInvalidArgument);
    EXPECT_OK(ncclLLA2ACreateRequirement(3, 5, &handle, &buffer));
    EXPECT_EQ(buffer.bufferSize, 3 * (1 + 2 * 5) * 16);
    EXPECT(buffer.outBufferHandle == &handle.bufHandle);
}

static void run_exchanges(void)
{
    run_ways<exchanges>(4, 60);
}
static void run_exchanges_odd(void)
{
    run_thread_ranks(3, as_rank<exchanges>, 60);
    run_thread_ranks(1, as_rank<exchanges>, 60);
}
static void run_turns(void)
{
    run_thread_ranks(4, as_rank<turns>, 60);
}
static void run_pairs(void)
{
    run_thread_ranks(4, as_rank<pairs>, 60);
}
static void run_aborted(void)
{
    run_thread_ranks(2, as_rank<aborted>, 60);
}

int main(void)
{
    RUN(numbers);
    RUN(run_exchanges);
    RUN(run_exchanges_odd);
    RUN(run_turns);
    RUN(run_pairs);
    RUN(run_aborted);
    return expect_result();
}
