// Three windows over one allocation of 1 MiB, 4 ranks on two (fake) hosts: data is permuted inside
// each host's team through each window in turn, by every kind of pointer; each window reaches its
// own bytes only. Run with TUTTI_FAKE_HOSTS=2,2. (NCCL issue 2198.)
// SPDX-License-Identifier: Apache-2.0
#include "ranks_of_devices.h"

#include <vector>

enum { WINDOWS = 3, KINDS = 5 };
static const size_t edge[WINDOWS + 1] = {0, 256 << 10, 512 << 10, 1 << 20};

static __host__ __device__ uint32_t guard(int rank, size_t word)
{
    return 0xa5000000u + (uint32_t)rank * 0x10000u + (uint32_t)(word * 2654435761u >> 20);
}
static __host__ __device__ uint32_t value(int rank, int window, int kind, size_t word)
{
    return (uint32_t)(rank * 7919 + window * 104729 + kind * 1299709) + (uint32_t)word * 31;
}

// Writes this rank's values into the next member's window: to word w goes word w * 5 + 1 (modulo
// the count, a power of two), so that a wrong offset cannot come out right.
__global__ void permute(ncclWindow_t window, ncclDevComm comm, int number, int kind, size_t words)
{
    int next = (comm.lsaRank + 1) % comm.lsaSize;
    int world = comm.rank - comm.lsaRank + next;
    ncclSymPtr<uint32_t> p(window, 0);
    for (size_t w = threadIdx.x; w < words; w += blockDim.x) {
        size_t to = (w * 5 + 1) % words;
        void *address = nullptr;
        switch (kind) {
        case 0:
            address = ncclGetLsaPointer(window, 4 * to, next);
            break;
        case 1:
            address = ncclGetPeerPointer(window, 4 * to, world);
            break;
        case 2:
            address = ncclGetPeerPointer(window, 4 * to, ncclTeamLsa(comm), next);
            break;
        case 3:
            address = (p + to).peerPtr(ncclTeamWorld(comm), world);
            break;
        default:
            address = (p + to).lsaPtr(next);
            break;
        }
        *static_cast<uint32_t *>(address) = value(comm.rank, number, kind, w);
    }
}

static size_t wrong_words(device_rank &me, const std::vector<uint32_t> &memory, int window,
                          int kind, int team)
{
    int before = me.rank / team * team + (me.rank % team + team - 1) % team;
    size_t first = edge[window] / 4;
    size_t words = (edge[window + 1] - edge[window]) / 4;
    std::vector<uint32_t> right(memory.size());
    for (size_t w = 0; w < right.size(); w++) {
        right[w] = guard(me.rank, w);
    }
    for (size_t w = 0; w < words; w++) {
        right[first + (w * 5 + 1) % words] = value(before, window, kind, w);
    }
    size_t wrong = 0;
    for (size_t w = 0; memory != right && w < right.size(); w++) {
        wrong += memory[w] != right[w];
    }
    return wrong;
}

static void three_windows(device_rank &me)
{
    char *memory = nullptr;
    ncclWindow_t window[WINDOWS];
    ncclDevComm comm;
    EXPECT_EQ(me.properties.nLsaTeams, 2);
    EXPECT_OK(ncclMemAlloc((void **)&memory, edge[WINDOWS]));
    for (int w = 0; w < WINDOWS; w++) {
        if (!EXPECT_OK(ncclCommWindowRegister(me.comm, memory + edge[w], edge[w + 1] - edge[w],
                                              &window[w], NCCL_WIN_COLL_SYMMETRIC))) {
            return;
        }
    }
    if (!open_device_comm(me, 1, &comm)) {
        return;
    }
    int team = comm.lsaSize;
    EXPECT_EQ(team, 2);
    std::vector<uint32_t> words(edge[WINDOWS] / 4);
    std::vector<uint32_t> guards(words.size());
    for (size_t w = 0; w < guards.size(); w++) {
        guards[w] = guard(me.rank, w);
    }
    for (int w = 0; w < WINDOWS; w++) {
        for (int kind = 0; kind < KINDS; kind++) {
            EXPECT_CUDA(cudaMemcpyAsync(memory, guards.data(), edge[WINDOWS],
                                        cudaMemcpyHostToDevice, me.stream));
            EXPECT_CUDA(cudaStreamSynchronize(me.stream));
            meet(me);
            permute<<<1, 32, 0, me.stream>>>(window[w], comm, w, kind, (edge[w + 1] - edge[w]) / 4);
            EXPECT_CUDA(cudaStreamSynchronize(me.stream));
            meet(me);
            EXPECT_CUDA(cudaMemcpyAsync(words.data(), memory, edge[WINDOWS], cudaMemcpyDeviceToHost,
                                        me.stream));
            EXPECT_CUDA(cudaStreamSynchronize(me.stream));
            EXPECT_EQ(wrong_words(me, words, w, kind, team), 0);
            meet(me);
        }
    }
    // The other host's memory has no address.
    for (int peer = 0; peer < me.size; peer++) {
        void *pointer = nullptr;
        EXPECT_OK(ncclGetPeerDevicePointer(window[1], 4, peer, &pointer));
        EXPECT_EQ(pointer != nullptr, peer / team == me.rank / team);
    }
    // A barrier of the world needs the network, one of the team does not.
    ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    ncclDevComm other;
    needs.barrierCount = 1;
    EXPECT_EQ(ncclDevCommCreate(me.comm, &needs, &other), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(me.comm), "there are 2 LSA teams");
    meet(me);
    EXPECT_OK(ncclDevCommDestroy(me.comm, &comm));
    for (int w = 0; w < WINDOWS; w++) {
        EXPECT_OK(ncclCommWindowDeregister(me.comm, window[w]));
    }
    EXPECT_OK(ncclMemFree(memory));
}

static void run_three_windows(void)
{
    run_thread_ranks(4, as_rank<three_windows>, 60);
#ifndef __SANITIZE_THREAD__ // which does not see other processes
    run_ranks(4, as_rank<three_windows>, 60);
#endif
}

int main(void)
{
    RUN(run_three_windows);
    return expect_result();
}
