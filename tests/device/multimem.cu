// Multicast loads and stores of every type and width, by our helpers and as PTX, against sums in
// rank order computed on the host.
// SPDX-License-Identifier: Apache-2.0
#include "ranks_of_devices.h"

#include <vector>

enum { BYTES = 4096 };

// How an element is made, added and rounded on the host.
template <typename E> struct arithmetic {
    using sum = E;
    static E make(int value)
    {
        return (E)value;
    }
    static E result(sum total)
    {
        return total;
    }
};
template <> struct arithmetic<float> {
    using sum = float;
    static float make(int value)
    {
        return (float)value * 0.37f;
    }
    static float result(sum total)
    {
        return total;
    }
};
template <> struct arithmetic<double> {
    using sum = double;
    static double make(int value)
    {
        return value * 0.37;
    }
    static double result(sum total)
    {
        return total;
    }
};
template <> struct arithmetic<__half> {
    using sum = float;
    static __half make(int value)
    {
        return __float2half((float)value * 0.37f);
    }
    static __half result(sum total)
    {
        return __float2half(total);
    }
};
template <> struct arithmetic<__nv_bfloat16> {
    using sum = float;
    static __nv_bfloat16 make(int value)
    {
        return __float2bfloat16((float)value * 0.37f);
    }
    static __nv_bfloat16 result(sum total)
    {
        return __float2bfloat16(total);
    }
};
static float widen(__half value)
{
    return __half2float(value);
}
static float widen(__nv_bfloat16 value)
{
    return __bfloat162float(value);
}
template <typename T> static T widen(T value)
{
    return value;
}

static int value_of(int rank, int i)
{
    return (rank * 131 + i * 7) % 997 - 400;
}

// Every V of the window is summed over the ranks and kept; then every V is stored, shifted by one,
// to all ranks.
template <typename V>
__global__ void sum_values(ncclWindow_t window, ncclDevComm comm, V *out, int count)
{
    const V *all = static_cast<const V *>(ncclGetLsaMultimemPointer(window, 0, comm));
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        out[i] = tuttiMultimemLoadSum(all + i);
    }
}
template <typename V>
__global__ void store_values(ncclWindow_t window, ncclDevComm comm, const V *in, int count)
{
    V *all = static_cast<V *>(ncclGetMultimemPointer(window, 0, comm.lsaMultimem));
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        tuttiMultimemStore(all + i, in[i]);
    }
}

template <typename V, typename E>
static void sums_of(device_rank &me, const test_window &window, const ncclDevComm &comm)
{
    using rules = arithmetic<E>;
    const int elements = BYTES / (int)sizeof(E);
    std::vector<E> mine(elements), expected(elements), got(elements);
    for (int i = 0; i < elements; i++) {
        mine[i] = rules::make(value_of(me.rank, i));
        typename rules::sum total = widen(rules::make(value_of(0, i)));
        for (int r = 1; r < me.size; r++) {
            total += widen(rules::make(value_of(r, i)));
        }
        expected[i] = rules::result(total);
    }
    V *out = nullptr;
    EXPECT_CUDA(cudaMalloc((void **)&out, BYTES));
    meet(me);
    EXPECT_CUDA(
        cudaMemcpyAsync(window.memory, mine.data(), BYTES, cudaMemcpyHostToDevice, me.stream));
    EXPECT_CUDA(cudaStreamSynchronize(me.stream));
    meet(me);
    sum_values<V><<<1, 32, 0, me.stream>>>(window.handle, comm, out, BYTES / (int)sizeof(V));
    EXPECT_CUDA(cudaMemcpyAsync(got.data(), out, BYTES, cudaMemcpyDeviceToHost, me.stream));
    EXPECT_CUDA(cudaStreamSynchronize(me.stream));
    EXPECT_EQ(memcmp(got.data(), expected.data(), BYTES), 0);
    meet(me);
    if (me.rank == me.size - 1) { // all ranks have its sums afterwards
        store_values<V><<<1, 32, 0, me.stream>>>(window.handle, comm, out, BYTES / (int)sizeof(V));
        EXPECT_CUDA(cudaStreamSynchronize(me.stream));
    }
    meet(me);
    EXPECT_CUDA(
        cudaMemcpyAsync(got.data(), window.memory, BYTES, cudaMemcpyDeviceToHost, me.stream));
    EXPECT_CUDA(cudaStreamSynchronize(me.stream));
    EXPECT_EQ(memcmp(got.data(), expected.data(), BYTES), 0);
    EXPECT_CUDA(cudaFree(out));
}

static void all_types(device_rank &me)
{
    test_window window;
    ncclDevComm comm;
    if (!EXPECT(me.properties.multimemSupport) || !open_window(me, BYTES, &window) ||
        !open_device_comm(me, 1, &comm)) {
        return;
    }
    sums_of<float, float>(me, window, comm);
    sums_of<float2, float>(me, window, comm);
    sums_of<float4, float>(me, window, comm);
    sums_of<tuttiVector<float, 4>, float>(me, window, comm);
    sums_of<double, double>(me, window, comm);
    sums_of<tuttiVector<double, 2>, double>(me, window, comm);
    sums_of<__half2, __half>(me, window, comm);
    sums_of<tuttiVector<__half, 4>, __half>(me, window, comm);
    sums_of<tuttiVector<__half, 8>, __half>(me, window, comm);
    sums_of<__nv_bfloat162, __nv_bfloat16>(me, window, comm);
    sums_of<tuttiVector<__nv_bfloat16, 4>, __nv_bfloat16>(me, window, comm);
    sums_of<tuttiVector<__nv_bfloat16, 8>, __nv_bfloat16>(me, window, comm);
    sums_of<int32_t, int32_t>(me, window, comm);
    sums_of<uint32_t, uint32_t>(me, window, comm);
    sums_of<tuttiVector<int32_t, 4>, int32_t>(me, window, comm);
    sums_of<int64_t, int64_t>(me, window, comm);
    sums_of<uint64_t, uint64_t>(me, window, comm);
    sums_of<tuttiVector<uint64_t, 2>, uint64_t>(me, window, comm);
    EXPECT_OK(ncclDevCommDestroy(me.comm, &comm));
    close_window(me, &window);
}

// As NCCL programs write it. Every rank adds one to a counter of every rank; rank 0 stores to all.
__global__ void plain_ptx(ncclWindow_t window, ncclDevComm comm, float *out)
{
    float *all = static_cast<float *>(ncclGetLsaMultimemPointer(window, 0, comm));
    float x, y, z, w;
    asm volatile("multimem.ld_reduce.global.add.f32 %0, [%1];" : "=f"(x) : "l"(all) : "memory");
    out[0] = x;
    asm volatile("multimem.ld_reduce.global.add.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(x), "=f"(y), "=f"(z), "=f"(w)
                 : "l"(all)
                 : "memory");
    out[1] = x + 10 * y + 100 * z + 1000 * w;
    asm volatile("multimem.red.relaxed.sys.global.add.u32 [%0], %1;"
                 :
                 : "l"(all + 8), "r"(1)
                 : "memory");
    if (comm.rank != 0) { // plain stores by several ranks at once would be a race
        return;
    }
    asm volatile("multimem.st.global.b32 [%0], %1;" : : "l"(all + 16), "r"(77) : "memory");
    asm volatile("multimem.st.global.v4.f32 [%0], {%1,%2,%3,%4};"
                 :
                 : "l"(all + 20), "f"(1.0f), "f"(2.0f), "f"(3.0f), "f"(4.0f)
                 : "memory");
}

static void ptx(device_rank &me)
{
    test_window window;
    ncclDevComm comm;
    if (!open_window(me, BYTES, &window) || !open_device_comm(me, 1, &comm)) {
        return;
    }
    float start[4] = {1, 2, 3, 4};
    EXPECT_CUDA(cudaMemsetAsync(window.memory, 0, BYTES, me.stream));
    EXPECT_CUDA(
        cudaMemcpyAsync(window.memory, start, sizeof start, cudaMemcpyHostToDevice, me.stream));
    EXPECT_CUDA(cudaStreamSynchronize(me.stream));
    float *out = nullptr;
    float got[2];
    EXPECT_CUDA(cudaMalloc((void **)&out, sizeof got));
    meet(me);
    plain_ptx<<<1, 1, 0, me.stream>>>(window.handle, comm, out);
    EXPECT_CUDA(cudaMemcpyAsync(got, out, sizeof got, cudaMemcpyDeviceToHost, me.stream));
    EXPECT_CUDA(cudaStreamSynchronize(me.stream));
    meet(me);
    EXPECT_EQ(got[0], me.size);
    EXPECT_EQ(got[1], 4321 * me.size);
    unsigned words[32];
    EXPECT_CUDA(
        cudaMemcpyAsync(words, window.memory, sizeof words, cudaMemcpyDeviceToHost, me.stream));
    EXPECT_CUDA(cudaStreamSynchronize(me.stream));
    EXPECT_EQ(words[8], me.size);
    EXPECT_EQ(words[16], 77);
    float stored[4];
    memcpy(stored, &words[20], sizeof stored);
    EXPECT(stored[0] == 1 && stored[1] == 2 && stored[2] == 3 && stored[3] == 4);
    EXPECT_CUDA(cudaFree(out));
    EXPECT_OK(ncclDevCommDestroy(me.comm, &comm));
    close_window(me, &window);
}

static void run_all_types(void)
{
    run_ways<all_types>(4, 60);
}
static void run_all_types_alone(void)
{
    run_thread_ranks(1, as_rank<all_types>, 60);
}
static void run_all_types_shared_devices(void)
{
    run_thread_ranks(12, as_rank<all_types>, 60);
}
static void run_ptx(void)
{
    run_ways<ptx>(4, 60);
}

int main(void)
{
    RUN(run_all_types);
    RUN(run_all_types_alone);
    RUN(run_all_types_shared_devices);
    RUN(run_ptx);
    return expect_result();
}
