// Windows as kernels see them: every pointer function against every rank's memory, several windows
// in one allocation, teams on fake hosts, windows of more than 4 GiB.
// SPDX-License-Identifier: Apache-2.0
#include "ranks_of_devices.h"

#include <vector>

// What rank r's word i of window w holds.
static __host__ __device__ uint32_t word_of(int window, int rank, size_t i)
{
    return (uint32_t)(window * 1000003 + rank * 70001) + (uint32_t)(i * 2654435761u);
}

static bool upload(device_rank &me, void *to, const std::vector<uint32_t> &words)
{
    return EXPECT_CUDA(cudaMemcpyAsync(to, words.data(), words.size() * 4, cudaMemcpyHostToDevice,
                                       me.stream)) &&
           EXPECT_CUDA(cudaStreamSynchronize(me.stream));
}

static std::vector<uint32_t> download(device_rank &me, const void *from, size_t count)
{
    std::vector<uint32_t> words(count);
    read_back(me, words.data(), from, count * 4);
    return words;
}

static void fill(device_rank &me, void *memory, int window, size_t count)
{
    std::vector<uint32_t> words(count);
    for (size_t i = 0; i < count; i++) {
        words[i] = word_of(window, me.rank, i);
    }
    upload(me, memory, words);
}

enum way { LSA, PEER_WORLD, PEER_TEAM, SYMMETRIC, WAYS };

// Team member `member`'s word at `offset`, by each function. Counts words that differ from what
// that member wrote.
__global__ void read_peers(ncclWindow_t window, ncclDevComm comm, int number, size_t count,
                           unsigned *wrong)
{
    int first = comm.rank - comm.lsaRank;
    for (int member = 0; member < comm.lsaSize; member++) {
        for (size_t i = threadIdx.x; i < count; i += blockDim.x) {
            const void *address[WAYS];
            address[LSA] = ncclGetLsaPointer(window, 4 * i, member);
            address[PEER_WORLD] = ncclGetPeerPointer(window, 4 * i, first + member);
            address[PEER_TEAM] = ncclGetPeerPointer(window, 4 * i, ncclTeamLsa(comm), member);
            address[SYMMETRIC] = (ncclSymPtr<uint32_t>(window, 0) + i).lsaPtr(member);
            for (int way = 0; way < WAYS; way++) {
                if (*static_cast<const uint32_t *>(address[way]) !=
                    word_of(number, first + member, i)) {
                    atomicAdd(wrong, 1u);
                }
            }
        }
    }
    uint32_t own = *static_cast<const uint32_t *>(ncclGetLocalPointer(window, 0));
    bool found = ncclFindWindow(ncclCoopCta(), comm, ncclGetLocalPointer(window, 4)) == window;
    if (own != word_of(number, comm.rank, 0) || !found) {
        atomicAdd(wrong, 1u);
    }
}

static unsigned count_wrong(device_rank &me, ncclWindow_t window, const ncclDevComm &comm,
                            int number, size_t count)
{
    unsigned *wrong = nullptr;
    unsigned result = 0;
    EXPECT_CUDA(cudaMalloc((void **)&wrong, sizeof *wrong));
    EXPECT_CUDA(cudaMemsetAsync(wrong, 0, sizeof *wrong, me.stream));
    read_peers<<<1, 32, 0, me.stream>>>(window, comm, number, count, wrong);
    EXPECT_CUDA(cudaGetLastError());
    read_back(me, &result, wrong, sizeof result);
    EXPECT_CUDA(cudaFree(wrong));
    return result;
}

static void pointers(device_rank &me)
{
    enum { COUNT = 3000 };
    test_window window;
    ncclDevComm comm;
    if (!open_window(me, COUNT * 4, &window) || !open_device_comm(me, 1, &comm)) {
        return;
    }
    fill(me, window.memory, 1, COUNT);
    meet(me);
    EXPECT_EQ(count_wrong(me, window.handle, comm, 1, COUNT), 0);
    meet(me);

    // The same addresses on the host.
    for (int peer = 0; peer < me.size; peer++) {
        void *by_rank = nullptr;
        void *by_member = nullptr;
        EXPECT_OK(ncclGetPeerDevicePointer(window.handle, 8, peer, &by_rank));
        EXPECT_OK(ncclGetLsaDevicePointer(window.handle, 8, peer, &by_member));
        EXPECT(by_rank != nullptr && by_rank == by_member);
        EXPECT_EQ(download(me, by_rank, 1)[0], word_of(1, peer, 2));
    }
    void *pointer = nullptr;
    EXPECT_EQ(ncclGetLsaDevicePointer(window.handle, 0, me.size, &pointer), ncclInvalidArgument);
    EXPECT_EQ(ncclGetLsaDevicePointer(window.handle, 0, -1, &pointer), ncclInvalidArgument);
    EXPECT_EQ(ncclGetLsaDevicePointer(window.handle, COUNT * 4, 0, &pointer), ncclInvalidArgument);
    EXPECT_EQ(ncclGetPeerDevicePointer(nullptr, 0, 0, &pointer), ncclInvalidArgument);
    EXPECT_OK(ncclGetLsaMultimemDevicePointer(window.handle, 0, &pointer));
    EXPECT_EQ(pointer != nullptr, me.properties.multimemSupport);
    EXPECT_OK(ncclWinGetUserPtr(me.comm, window.handle, &pointer));
    EXPECT(pointer == window.memory);
    meet(me);
    EXPECT_OK(ncclDevCommDestroy(me.comm, &comm));
    EXPECT_EQ(ncclDevCommDestroy(me.comm, &comm), ncclInvalidArgument);
    close_window(me, &window);
    EXPECT_EQ(ncclCommWindowDeregister(me.comm, window.handle), ncclInvalidArgument);
}

// Three windows over one allocation of 1 MiB: each reaches its own bytes only.
__global__ void shift_ranks(ncclWindow_t from, ncclWindow_t to, ncclDevComm comm, size_t words)
{
    int next = (comm.lsaRank + 1) % comm.lsaSize;
    const uint32_t *in = static_cast<const uint32_t *>(ncclGetLocalPointer(from, 0));
    uint32_t *out = static_cast<uint32_t *>(ncclGetLsaPointer(to, 0, next));
    for (size_t i = threadIdx.x; i < words; i += blockDim.x) {
        out[i] = in[i] + 1;
    }
}

static void one_allocation(device_rank &me)
{
    const size_t offset[] = {0, 256 << 10, 512 << 10, 1 << 20};
    char *memory = nullptr;
    ncclDevComm comm;
    ncclWindow_t window[3];
    EXPECT_OK(ncclMemAlloc((void **)&memory, offset[3]));
    for (int w = 0; w < 3; w++) {
        if (!EXPECT_OK(ncclCommWindowRegister(me.comm, memory + offset[w],
                                              offset[w + 1] - offset[w], &window[w], 0))) {
            return;
        }
    }
    if (!open_device_comm(me, 1, &comm)) {
        return;
    }
    for (int w = 0; w < 3; w++) {
        fill(me, memory + offset[w], w, (offset[w + 1] - offset[w]) / 4);
    }
    meet(me);
    size_t words = 1000;
    shift_ranks<<<1, 32, 0, me.stream>>>(window[0], window[2], comm, words);
    EXPECT_CUDA(cudaStreamSynchronize(me.stream));
    meet(me);
    int before = (me.rank + me.size - 1) % me.size;
    std::vector<uint32_t> all = download(me, memory, offset[3] / 4);
    size_t wrong = 0;
    for (int w = 0; w < 3; w++) {
        for (size_t i = 0; i < (offset[w + 1] - offset[w]) / 4; i++) {
            bool moved = w == 2 && i < words;
            uint32_t right = moved ? word_of(0, before, i) + 1 : word_of(w, me.rank, i);
            wrong += all[offset[w] / 4 + i] != right;
        }
    }
    EXPECT_EQ(wrong, 0);
    meet(me);
    EXPECT_OK(ncclDevCommDestroy(me.comm, &comm));
    for (int w = 0; w < 3; w++) {
        EXPECT_OK(ncclCommWindowDeregister(me.comm, window[w]));
    }
    EXPECT_OK(ncclMemFree(memory));
}

// Words far apart in a window of 5 GiB, most of which is never touched.
__global__ void touch_far(ncclWindow_t window, ncclDevComm comm, size_t last)
{
    int next = (comm.lsaRank + 1) % comm.lsaSize;
    size_t offset[] = {0, (size_t)4 << 30, last};
    for (size_t at : offset) {
        *static_cast<uint32_t *>(ncclGetLsaPointer(window, at, next)) =
            word_of(3, comm.rank, at / 4);
    }
}

static void sparse(device_rank &me)
{
    const size_t bytes = ((size_t)5 << 30) + 4096;
    test_window window;
    ncclDevComm comm;
    if (!open_window(me, bytes, &window) || !open_device_comm(me, 1, &comm)) {
        return;
    }
    meet(me);
    touch_far<<<1, 1, 0, me.stream>>>(window.handle, comm, bytes - 4);
    EXPECT_CUDA(cudaStreamSynchronize(me.stream));
    meet(me);
    int before = (me.rank + me.size - 1) % me.size;
    for (size_t at : {(size_t)0, (size_t)4 << 30, bytes - 4}) {
        EXPECT_EQ(download(me, window.memory + at, 1)[0], word_of(3, before, at / 4));
    }
    meet(me);
    EXPECT_OK(ncclDevCommDestroy(me.comm, &comm));
    close_window(me, &window);
}

static void run_pointers(void)
{
    run_ways<pointers>(4, 60);
}
static void run_pointers_alone(void)
{
    run_thread_ranks(1, as_rank<pointers>, 60);
}
static void run_pointers_odd(void)
{
    run_thread_ranks(5, as_rank<pointers>, 60);
}
static void run_one_allocation(void)
{
    run_ways<one_allocation>(4, 60);
}
static void run_sparse(void)
{
    run_thread_ranks(2, as_rank<sparse>, 60);
}

int main(void)
{
    RUN(run_pointers);
    RUN(run_pointers_alone);
    RUN(run_pointers_odd);
    RUN(run_one_allocation);
    RUN(run_sparse);
    return expect_result();
}
