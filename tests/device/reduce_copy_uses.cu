// How programs use reduce_copy.h: groups by their types, UNROLL and types of counts; in place;
// between different teams; operators with a state; bits that must survive a copy; several blocks;
// and the mistakes that end a kernel.
// SPDX-License-Identifier: Apache-2.0
#include "ranks_of_devices.h"

#include <unistd.h>
#include <vector>

enum { COUNT = 4001, GROUPS = 8, BLOCK = 128 };

template <typename T> static T upload_element(int rank, size_t i)
{
    return T((float)((rank * 37 + (int)(i * 13 % 509)) % 401 - 200) * 0.013f);
}

// Two windows with room for `count` elements, the first one filled with upload_element.
template <typename T> struct two_windows {
    device_rank &me;
    size_t count;
    test_window from, to;
    ncclDevComm comm;

    two_windows(device_rank &me, size_t count) : me(me), count(count), from(), to(), comm() {}
    bool open()
    {
        if (!open_window(me, count * sizeof(T), &from) ||
            !open_window(me, count * sizeof(T), &to) || !open_device_comm(me, 1, &comm)) {
            return false;
        }
        std::vector<T> mine(count);
        for (size_t i = 0; i < count; i++) {
            mine[i] = upload_element<T>(me.rank, i);
        }
        return EXPECT_CUDA(cudaMemcpyAsync(from.memory, mine.data(), count * sizeof(T),
                                           cudaMemcpyHostToDevice, me.stream)) &&
               EXPECT_CUDA(cudaMemsetAsync(to.memory, 0, count * sizeof(T), me.stream)) &&
               EXPECT_CUDA(cudaStreamSynchronize(me.stream));
    }
    std::vector<T> download(const test_window &window)
    {
        std::vector<T> got(count);
        EXPECT_CUDA(cudaStreamSynchronize(me.stream));
        meet(me);
        EXPECT_CUDA(cudaMemcpyAsync(got.data(), window.memory, count * sizeof(T),
                                    cudaMemcpyDeviceToHost, me.stream));
        EXPECT_CUDA(cudaStreamSynchronize(me.stream));
        meet(me);
        return got;
    }
    void close()
    {
        EXPECT_OK(ncclDevCommDestroy(me.comm, &comm));
        close_window(me, &to);
        close_window(me, &from);
    }
};

// ---- Types of groups, counts and UNROLL --------------------------------------------------------

// Part `part` of the elements that rank `rank` reduces for all.
__device__ __host__ static inline size_t part_begin(int ranks, int rank, int part)
{
    return (size_t)COUNT * (size_t)(rank * GROUPS + part) / (size_t)(ranks * GROUPS);
}

template <typename T, int UNROLL, typename Coop, typename Count>
__device__ void reduce_part(Coop coop, ncclWindow_t from, ncclWindow_t to, ncclDevComm const &comm,
                            int part, Count)
{
    size_t begin = part_begin(comm.lsaSize, comm.lsaRank, part);
    Count count = (Count)(part_begin(comm.lsaSize, comm.lsaRank, part + 1) - begin);
    ncclSymPtr<T> in = ncclSymPtr<T>(from, 0) + begin;
    ncclSymPtr<T> out = ncclSymPtr<T>(to, 0) + begin;
    if (part % 2 == 0 || comm.lsaMultimem.mcBasePtr == nullptr) {
        ncclLsaReduceSumCopy<T, Coop, Count, UNROLL>(coop, in, out, count, comm);
    } else {
        ncclMultimemReduceSumLsaCopy<T, Coop, Count, UNROLL>(coop, in, comm.lsaMultimem, out,
                                                             ncclTeamLsa(comm), count);
    }
}

template <typename T> __global__ void by_types(ncclWindow_t from, ncclWindow_t to, ncclDevComm comm)
{
    unsigned t = threadIdx.x;
    reduce_part<T, 1>(ncclCoopCta(), from, to, comm, 0, (size_t)0);
    if (t < 32) {
        reduce_part<T, 7>(ncclCoopWarp(), from, to, comm, 1, (int)0);
    } else if (t < 64) {
        if (t < 36) {
            reduce_part<T, 64>(ncclCoopTile<4>(), from, to, comm, 2, (short)0);
        } else if (t == 36) {
            reduce_part<T, 1000>(ncclCoopThread(), from, to, comm, 3, (unsigned)0);
        } else if (t % 2 == 1) {
            reduce_part<T, 16>(ncclCoopLanes(0xaaaaaaa0u), from, to, comm, 4, (long long)0);
        }
    } else {
        reduce_part<T, 32>(ncclCoopWarpSpan(2, 2, 1), from, to, comm, 5, (unsigned short)0);
    }
    reduce_part<T, 2>(ncclCoopAny(ncclCoopCta()), from, to, comm, 6, (unsigned long)0);
    reduce_part<T, 2>(ncclCoopCta(), from, to, comm, 7, (unsigned char)0); // at most 255 elements
}

template <typename T> static void types(device_rank &me)
{
    two_windows<T> windows(me, COUNT);
    if (!windows.open()) {
        return;
    }
    meet(me);
    by_types<T><<<1, BLOCK, 0, me.stream>>>(windows.from.handle, windows.to.handle, windows.comm);
    std::vector<T> got = windows.download(windows.to);
    size_t wrong = 0;
    for (size_t i = 0; i < COUNT; i++) {
        float sum = (float)upload_element<T>(0, i);
        for (int r = 1; r < me.size; r++) {
            sum += (float)upload_element<T>(r, i);
        }
        T right = T(sum);
        wrong += memcmp(&right, &got[i], sizeof right) != 0;
    }
    EXPECT_EQ(wrong, 0);
    windows.close();
}

// ---- In place, many blocks ---------------------------------------------------------------------

// Each rank its slice, each block a part of it.
__global__ void in_place(ncclWindow_t window, ncclDevComm comm, size_t count)
{
    size_t parts = gridDim.x * (size_t)comm.lsaSize;
    size_t part = blockIdx.x + gridDim.x * (size_t)comm.lsaRank;
    size_t begin = count * part / parts;
    size_t end = count * (part + 1) / parts;
    ncclLsaReduceSumCopy<float>(ncclCoopCta(), window, begin * 4, window, begin * 4, end - begin,
                                comm);
}

static void in_place_blocks(device_rank &me)
{
    enum { MANY = 100003 };
    two_windows<float> windows(me, MANY);
    if (!windows.open()) {
        return;
    }
    meet(me);
    in_place<<<5, 96, 0, me.stream>>>(windows.from.handle, windows.comm, MANY);
    std::vector<float> got = windows.download(windows.from);
    size_t wrong = 0;
    for (size_t i = 0; i < MANY; i++) {
        float sum = upload_element<float>(0, i);
        for (int r = 1; r < me.size; r++) {
            sum += upload_element<float>(r, i);
        }
        wrong += sum != got[i];
    }
    EXPECT_EQ(wrong, 0);
    windows.close();
}

// ---- Different teams, operators with a state ----------------------------------------------------

// The pair of neighbours is added and given to every second rank.
__global__ void between_teams(ncclWindow_t from, ncclWindow_t to, ncclDevComm comm, int count)
{
    ncclTeam lsa = ncclTeamLsa(comm);
    ncclTeam pair = ncclTeamInnerFactor(lsa, 2);
    ncclTeam alike = ncclTeamOuterFactor(lsa, 2);
    ncclSymPtr<double> in(from, 0), out(to, 0);
    int share = count / alike.nRanks;
    ncclLsaReduceSumCopy(ncclCoopWarp(), in + share * alike.rank, pair, out + share * alike.rank,
                         alike, share);
}

static void teams(device_rank &me)
{
    two_windows<double> windows(me, COUNT);
    if (!windows.open()) {
        return;
    }
    meet(me);
    int share = COUNT / (me.size / 2);
    between_teams<<<1, 32, 0, me.stream>>>(windows.from.handle, windows.to.handle, windows.comm,
                                           COUNT);
    std::vector<double> got = windows.download(windows.to);
    size_t wrong = 0;
    for (int i = 0; i < share * (me.size / 2); i++) {
        int pair = i / share;
        double right = upload_element<double>(2 * pair, (size_t)i) +
                       upload_element<double>(2 * pair + 1, (size_t)i);
        wrong += right != got[(size_t)i];
    }
    EXPECT_EQ(wrong, 0);
    windows.close();
}

// Operators as lambdas; a source that is given twice; no destination.
__global__ void with_state(ncclWindow_t from, ncclWindow_t to, ncclDevComm comm, float scale)
{
    ncclSymPtr<float> in(from, 0);
    float *mine = static_cast<float *>(ncclGetLocalPointer(to, 0));
    ncclCoopCta cta;
    int n = comm.lsaSize;
    auto source = [=] __device__(int i) -> const float * { return in.lsaPtr(i % n); };
    auto result = [=] __device__(int i) -> float * { return mine + 1000 * i; };
    auto scaled = [=] __device__(float const &sum, float const &next) -> float {
        return sum * scale + next;
    };
    ncclLsaReduceLsaCopy<float>(cta, source, n + 1, result, 2, scaled, 999);
    ncclLsaReduceLsaCopy<float>(cta, source, n, result, 0, scaled, 999);
    ncclLocalReduceSum(cta, 2, mine, (size_t)0, mine + 2500, 500); // after the barrier of the block
}

static void operators(device_rank &me)
{
    two_windows<float> windows(me, COUNT);
    if (!windows.open()) {
        return;
    }
    meet(me);
    with_state<<<1, 1, 0, me.stream>>>(windows.from.handle, windows.to.handle, windows.comm, 0.25f);
    std::vector<float> got = windows.download(windows.to);
    size_t wrong = 0;
    for (size_t i = 0; i < 999; i++) {
        float sum = upload_element<float>(0, i);
        for (int s = 1; s <= me.size; s++) {
            sum = sum * 0.25f + upload_element<float>(s % me.size, i);
        }
        wrong += sum != got[i] || sum != got[1000 + i];
        wrong += i < 500 && got[2500 + i] != sum + sum;
    }
    EXPECT_EQ(wrong, 0);
    EXPECT(got[999] == 0 && got[1999] == 0 && got[3000] == 0);
    windows.close();
}

// ---- A copy keeps every bit, NaNs and all -------------------------------------------------------

template <typename T> __global__ void copy_all(void *from, void *to, size_t count)
{
    ncclLocalCopy(ncclCoopCta(), static_cast<T *>(from), 1, static_cast<T *>(to), 0, count);
}

static void every_bit(device_rank &me)
{
    std::vector<uint16_t> all(65536), got(65536);
    for (size_t i = 0; i < all.size(); i++) {
        all[i] = (uint16_t)(i * 40503u); // each value once
    }
    char *memory = nullptr;
    size_t bytes = all.size() * 2;
    EXPECT_CUDA(cudaMalloc((void **)&memory, 2 * bytes));
    for (int type = 0; type < 5; type++) {
        void *to = memory + bytes;
        EXPECT_CUDA(cudaMemcpyAsync(memory, all.data(), bytes, cudaMemcpyHostToDevice, me.stream));
        EXPECT_CUDA(cudaMemsetAsync(to, 0, bytes, me.stream));
        if (type == 0) {
            copy_all<__half><<<1, 64, 0, me.stream>>>(memory, to, bytes / 2);
        } else if (type == 1) {
            copy_all<__nv_bfloat16><<<1, 64, 0, me.stream>>>(memory, to, bytes / 2);
        } else if (type == 2) {
            copy_all<float><<<1, 64, 0, me.stream>>>(memory, to, bytes / 4);
        } else if (type == 3) {
            copy_all<__nv_fp8_e4m3><<<1, 64, 0, me.stream>>>(memory, to, bytes);
        } else {
            copy_all<float4><<<1, 64, 0, me.stream>>>(memory, to, bytes / 16);
        }
        EXPECT_CUDA(cudaMemcpyAsync(got.data(), to, bytes, cudaMemcpyDeviceToHost, me.stream));
        EXPECT_CUDA(cudaStreamSynchronize(me.stream));
        EXPECT_EQ(memcmp(got.data(), all.data(), bytes), 0);
    }
    EXPECT_CUDA(cudaFree(memory));
}

// ---- Mistakes -----------------------------------------------------------------------------------

enum mistake { NEGATIVE_COUNT, NO_SOURCE, EMPTY_TEAM, MISALIGNED, BEYOND, BEYOND_MULTIMEM };

__global__ void make_mistake(mistake which, ncclWindow_t window, ncclDevComm comm)
{
    ncclCoopCta cta;
    float *mine = static_cast<float *>(ncclGetLocalPointer(window, 0));
    ncclSymPtr<float> all(window, 0);
    ncclTeam nobody = {0, 0, 1};
    switch (which) {
    case NEGATIVE_COUNT:
        ncclLsaCopy(cta, mine, all, -3, ncclTeamLsa(comm));
        break;
    case NO_SOURCE:
        ncclLocalReduceSum(cta, 0, mine, (size_t)4, mine, 4);
        break;
    case EMPTY_TEAM:
        ncclLsaReduceSum(cta, all, mine, 4, nobody);
        break;
    case MISALIGNED:
        ncclLsaReduceSum<float>(cta, window, 2, mine, 4, comm);
        break;
    case BEYOND:
        ncclLsaCopy(cta, mine, all + 1000, 25, comm);
        break;
    case BEYOND_MULTIMEM:
        ncclMultimemCopy(cta, mine, all, 1025, comm.lsaMultimem);
        break;
    }
}

template <mistake which> static void one_mistake(device_rank &me)
{
    static const struct {
        cudaError_t error;
        const char *part;
    } expected[] = {
        {cudaErrorInvalidValue, "of -3 elements: the count must be 0 or more"},
        {cudaErrorInvalidValue, "from 0 sources to 1 destinations"},
        {cudaErrorInvalidValue, "from 0 sources to 1 destinations"},
        {cudaErrorMisalignedAddress, "elements of 4 bytes, but not all addresses"},
        {cudaErrorIllegalAddress, "window 1 of rank 0 has 4096 bytes, offset 4100"},
        {cudaErrorIllegalAddress, "window 1 of rank 0 has 4096 bytes, offset 4100"},
    };
    test_window window;
    ncclDevComm comm;
    if (!open_window(me, 4096, &window) || !open_device_comm(me, 1, &comm)) {
        return;
    }
    char name[] = "/tmp/tutti-uses-XXXXXX";
    char text[4096] = "";
    int file = mkstemp(name);
    unlink(name);
    int saved = dup(2);
    dup2(file, 2);
    make_mistake<<<1, 32, 0, me.stream>>>(which, window.handle, comm);
    cudaError_t got = cudaStreamSynchronize(me.stream);
    dup2(saved, 2);
    ssize_t length = pread(file, text, sizeof text - 1, 0);
    text[length > 0 ? length : 0] = 0;
    EXPECT_EQ(got, expected[which].error);
    EXPECT_CONTAINS(text, expected[which].part);
    _exit(expect_failures() != 0); // nothing of the device can be used any more
}

static void run_types(void)
{
    run_thread_ranks(4, as_rank<types<float>>, 60);
    run_thread_ranks(3, as_rank<types<__half>>, 60);
}
static void run_in_place(void)
{
    run_all_ways<in_place_blocks>(4, 60);
}
static void run_teams(void)
{
    run_thread_ranks(6, as_rank<teams>, 60);
}
static void run_operators(void)
{
    run_thread_ranks(3, as_rank<operators>, 60);
}
static void run_every_bit(void)
{
    run_thread_ranks(1, as_rank<every_bit>, 60);
}
template <mistake... which> static void run_each(void)
{
    (run_ranks(1, as_rank<one_mistake<which>>, 30), ...);
}
static void run_mistakes(void)
{
    run_each<NEGATIVE_COUNT, NO_SOURCE, EMPTY_TEAM, MISALIGNED, BEYOND, BEYOND_MULTIMEM>();
}

int main(void)
{
    RUN(run_types);
    RUN(run_in_place);
    RUN(run_teams);
    RUN(run_operators);
    RUN(run_every_bit);
    if (is_virtual) { // real ones do not look for mistakes
        RUN(run_mistakes);
    }
    return expect_result();
}
