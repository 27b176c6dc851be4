// SPDX-License-Identifier: Apache-2.0
// Lesson 03: an all-reduce of your own, three times: one-shot, two-shot, multimem.
//
// Every rank has `elements` floats; wanted on every rank is their sum over all ranks.
//   one-shot   each rank reads everything from everybody and adds it up for itself: one step, much
//              traffic
//   two-shot   each rank adds up its own part only and stores the sums to everybody: a reduce-
//              scatter and an all-gather in one kernel; little traffic
//   multimem   two-shot, but the switch adds and copies: least traffic
// All three do the same between the same two barriers; they differ in who adds what. Small messages
// want few steps, large ones little traffic: README.md has the bytes, counted.
#include "matrix.cuh"

#include <cuda_runtime.h>
#include <nccl.h>
#include <nccl_device.h>
#ifdef COUNT // `make count`: virtual GPUs tell what moved
#include <vgpu/stats.h>
#endif

// More blocks than this do not help; threads then take several elements. Block i of one rank meets
// block i of the others in barrier i, so all ranks launch equally many.
static const size_t blocks_at_most = 64;

enum way { ONE_SHOT, TWO_SHOT, MULTIMEM, WAYS };
static const char *const way_names[WAYS] = {"one-shot", "two-shot", "multimem"};

// What the kernels work on. One window holds the input, and behind it the output.
struct work {
    size_t elements;
    size_t output_bytes; // where in the window the output begins
    size_t first, end;   // this rank's part of the elements; multiples of 4 but for the last end
};

// The number of the thread over all blocks, and of all threads.
__device__ size_t my_index()
{
    return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}
__device__ size_t all_threads()
{
    return (size_t)gridDim.x * blockDim.x;
}

// Input element i, summed over all ranks in rank order, so that every rank gets the same bits.
__device__ float sum_over_ranks(ncclWindow_t window, size_t i, int ranks)
{
    float sum = *(const float *)ncclGetLsaPointer(window, i * sizeof(float), 0);
    for (int rank = 1; rank < ranks; rank++) {
        sum += *(const float *)ncclGetLsaPointer(window, i * sizeof(float), rank);
    }
    return sum;
}

// Output element i of every rank.
__device__ void store_to_ranks(ncclWindow_t window, const struct work &work, size_t i, float sum,
                               int ranks)
{
    for (int rank = 0; rank < ranks; rank++) {
        size_t offset = work.output_bytes + i * sizeof(float);
        *(float *)ncclGetLsaPointer(window, offset, rank) = sum;
    }
}

__global__ void one_shot(ncclWindow_t window, ncclDevComm comm, struct work work)
{
    ncclCoopCta block;
    ncclLsaBarrierSession<ncclCoopCta> barrier(block, comm, ncclTeamTagLsa(), blockIdx.x);

    // Everybody's input is there: what a rank wrote before it released can be read after this rank
    // acquired.
    barrier.sync(block, cuda::memory_order_acq_rel);

    float *output = (float *)ncclGetLocalPointer(window, work.output_bytes);
    for (size_t i = my_index(); i < work.elements; i += all_threads()) {
        output[i] = sum_over_ranks(window, i, comm.lsaSize);
    }

    // Everybody has read this rank's input: the next kernel may overwrite it.
    barrier.sync(block, cuda::memory_order_acq_rel);
}

__global__ void two_shot(ncclWindow_t window, ncclDevComm comm, struct work work)
{
    ncclCoopCta block;
    ncclLsaBarrierSession<ncclCoopCta> barrier(block, comm, ncclTeamTagLsa(), blockIdx.x);
    barrier.sync(block, cuda::memory_order_acq_rel);

    for (size_t i = work.first + my_index(); i < work.end; i += all_threads()) {
        float sum = sum_over_ranks(window, i, comm.lsaSize);
        store_to_ranks(window, work, i, sum, comm.lsaSize);
    }

    // Everybody's part has arrived here.
    barrier.sync(block, cuda::memory_order_acq_rel);
}

// Four floats at once: the most that one multimem instruction moves. Lesson 02 explains them.
__device__ float4 multimem_sum(const void *address)
{
    float4 sum;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(sum.x), "=f"(sum.y), "=f"(sum.z), "=f"(sum.w)
                 : "l"(address)
                 : "memory");
    return sum;
}
__device__ void multimem_store(void *address, float4 value)
{
    asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(address), "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w)
                 : "memory");
}

__global__ void multimem(ncclWindow_t window, ncclDevComm comm, struct work work)
{
    ncclCoopCta block;
    ncclLsaBarrierSession<ncclCoopCta> barrier(block, comm, ncclTeamTagLsa(), blockIdx.x, true);
    barrier.sync(block, cuda::memory_order_acq_rel);

    const char *input = (const char *)ncclGetLsaMultimemPointer(window, 0, comm);
    char *output = (char *)ncclGetLsaMultimemPointer(window, work.output_bytes, comm);
    size_t whole = work.first + (work.end - work.first) / 4 * 4;
    for (size_t i = work.first + 4 * my_index(); i < whole; i += 4 * all_threads()) {
        multimem_store(output + i * sizeof(float), multimem_sum(input + i * sizeof(float)));
    }
    // At most three elements at the very end make no group of four.
    for (size_t i = whole + my_index(); i < work.end; i += all_threads()) {
        float sum = sum_over_ranks(window, i, comm.lsaSize);
        store_to_ranks(window, work, i, sum, comm.lsaSize);
    }

    barrier.sync(block, cuda::memory_order_acq_rel);
}

// Step 1's question to this rank's GPU. False on all ranks when one of them must refuse.
static bool capable(const struct lesson_rank *self)
{
    CHECK_CUDA(cudaSetDevice(self->device));
    cudaDeviceProp gpu;
    CHECK_CUDA(cudaGetDeviceProperties(&gpu, self->device));
    return lesson_require(
               self, gpu.major >= 9,
               "GPU %d (%s) has compute capability %d.%d, and the multimem kernel needs "
               "9.0 or higher. Lesson 01 runs here, built for this GPU (make clean; make "
               "ARCH=sm_%d%d): it needs loads and stores only.",
               self->device, gpu.name, gpu.major, gpu.minor, gpu.major, gpu.minor) &&
           lesson_kernel_fits(self, (const void *)multimem);
}

// The questions of step 2 to a fresh communicator. False on all ranks when one of them must refuse.
static bool can_run(const struct lesson_rank *self, ncclComm_t comm, bool *has_multimem)
{
    ncclCommProperties_t can = NCCL_COMM_PROPERTIES_INITIALIZER;
    CHECK_NCCL(ncclCommQueryProperties(comm, &can));
    bool ok =
        lesson_require(self, can.deviceApiSupport,
                       "this communicator has no device API: its GPUs cannot read each "
                       "other's memory. Use GPUs joined by NVLink, as virtual ones are "
                       "when VGPU_MACHINE is not set. (The way without: ncclAllReduce.)") &&
        lesson_require(self, can.nLsaTeams == 1,
                       "the ranks form %d LSA teams, and loads and stores reach only one. "
                       "Use ranks of one host only: fewer --ranks, or TUTTI_FAKE_HOSTS unset. "
                       "(The way over all: ncclAllReduce.)",
                       can.nLsaTeams);
    *has_multimem = ok && lesson_all(self, can.multimemSupport);
    if (ok) {
        lesson_say(self, "Checks\n  device API  yes\n  LSA teams   1, of %d ranks\n", self->ranks);
        lesson_say(self, "  multimem    %s\n",
                   *has_multimem ? "yes" : "no: needs a switch that adds and copies; left out");
    }
    return ok;
}

// Step 2's communicator; NULL on all ranks when it cannot do what this lesson needs.
static ncclComm_t make_communicator(const struct lesson_rank *self, bool *has_multimem)
{
    ncclUniqueId id;
    if (self->rank == 0) {
        CHECK_NCCL(ncclGetUniqueId(&id));
    }
    lesson_broadcast(self, &id, sizeof id);
    ncclComm_t comm;
    CHECK_NCCL(ncclCommInitRank(&comm, self->ranks, id, self->rank));
    if (!can_run(self, comm, has_multimem)) {
        CHECK_NCCL(ncclCommFinalize(comm));
        CHECK_NCCL(ncclCommDestroy(comm));
        return NULL;
    }
    return comm;
}

// Step 3's memory of one rank.
struct buffers {
    char *memory; // input, then output
    ncclWindow_t window;
    cudaStream_t stream;
};

// Who adds what in the two-shot ways: groups of four elements, split evenly; the last rank also
// takes the at most three elements that make no group.
static struct work share_of(const struct lesson_rank *self)
{
    const struct lesson_options *options = self->options;
    struct work work;
    work.elements = options->tokens * options->hidden;
    work.output_bytes = (work.elements * sizeof(float) + 15) / 16 * 16;
    size_t groups = work.elements / 4;
    work.first = 4 * lesson_first_token(groups, self->ranks, self->rank);
    work.end = 4 * lesson_first_token(groups, self->ranks, self->rank + 1);
    if (self->rank == self->ranks - 1) {
        work.end = work.elements;
    }
    return work;
}

#ifdef COUNT
// Begins or ends counting; prints what went in and out of rank 0's GPU, in units of the message.
static void count(const struct lesson_rank *self, bool start, size_t bytes)
{
    struct vgpu_device_stats stats[VGPU_MAX_DEVICES];
    lesson_all(self, true); // nobody's kernel runs now
    if (self->rank == 0 && start) {
        vgpuStatsStart();
    } else if (self->rank == 0) {
        vgpuStatsStop();
        vgpuStatsRead(stats, VGPU_MAX_DEVICES);
        printf("            moved: %5.2f S in, %5.2f S out\n",
               (double)stats[self->device].bytes_in / (double)bytes,
               (double)stats[self->device].bytes_out / (double)bytes);
    }
    lesson_all(self, true);
}
#else
static void count(const struct lesson_rank *, bool, size_t) {}
#endif

static void (*const kernels[WAYS])(ncclWindow_t, ncclDevComm, struct work) = {one_shot, two_shot,
                                                                              multimem};

// Steps 5 and 6 for one way: launches it as often as there are iterations, and checks the last
// result.
static bool run_way(const struct lesson_rank *self, enum way way, const struct work &work,
                    size_t blocks, const struct buffers &buffers, const ncclDevComm &comm,
                    const float *expected)
{
    const struct lesson_options *options = self->options;
    const size_t bytes = work.elements * sizeof(float);

    // Step 5: launch, on a stream. The output starts as something that cannot be right. That goes
    // through the stream too: cudaMemset would wait for all of the GPU, and so, where ranks share
    // one, for a kernel that waits for this rank's.
    CHECK_CUDA(cudaMemsetAsync(buffers.memory + work.output_bytes, 0xff, bytes, buffers.stream));
    count(self, true, bytes);
    for (int i = 0; i < options->iterations; i++) {
        kernels[way]<<<(unsigned)blocks, options->threads, 0, buffers.stream>>>(buffers.window,
                                                                                comm, work);
        CHECK_CUDA(cudaGetLastError());
    }
    CHECK_CUDA(cudaStreamSynchronize(buffers.stream));

    // Step 6: check every element on every rank.
    float *result = (float *)malloc(bytes);
    CHECK_CUDA(
        cudaMemcpy(result, buffers.memory + work.output_bytes, bytes, cudaMemcpyDeviceToHost));
    bool right = compare(result, expected, work.elements, options->hidden, self->rank);
    free(result);
    if (lesson_all(self, right)) {
        lesson_say(self, "  %s  %zu elements on each rank agree with the reference\n",
                   way_names[way], work.elements);
    }
    count(self, false, bytes);
    return right;
}

static bool run_rank(const struct lesson_rank *self)
{
    const struct lesson_options *options = self->options;
    const struct work work = share_of(self);

    // Step 1: what the GPU can do. The multimem kernel was compiled for compute capability 9.0, and
    // older GPUs load nothing of a program that holds it.
    if (!capable(self)) {
        return false;
    }

    // Step 2: the communicator, and what it can do.
    bool has_multimem = false;
    ncclComm_t comm = make_communicator(self, &has_multimem);
    if (!comm) {
        return false;
    }

    // Step 3: device memory that peers may use, as a window: registered by all ranks together.
    const size_t bytes = work.elements * sizeof(float);
    struct buffers buffers;
    CHECK_CUDA(cudaStreamCreate(&buffers.stream));
    CHECK_NCCL(ncclMemAlloc((void **)&buffers.memory, 2 * work.output_bytes));
    CHECK_NCCL(ncclCommWindowRegister(comm, buffers.memory, 2 * work.output_bytes, &buffers.window,
                                      NCCL_WIN_COLL_SYMMETRIC));
    float *input = (float *)malloc(bytes);
    float *expected = (float *)lesson_share(self, bytes);
    if (!lesson_require(self, input && expected,
                        "no host memory for %zu elements: use fewer --tokens, --hidden or --ranks.",
                        work.elements)) {
        exit(1);
    }
    fill_input(input, work.elements, self->rank);
    CHECK_CUDA(cudaMemcpy(buffers.memory, input, bytes, cudaMemcpyHostToDevice));
    expect_sums<float>(expected, work.first, work.end, self->ranks);
    lesson_all(self, true); // all of the reference is there

    // Step 4: the device communicator: what a kernel needs to know of the ranks, one barrier for
    // each block, and the multicast address where there is one.
    size_t threads = (size_t)options->threads;
    size_t blocks = (work.elements + threads - 1) / threads;
    blocks = blocks < blocks_at_most ? blocks : blocks_at_most;
    for (int way = ONE_SHOT; way < WAYS; way++) { // where ranks share a GPU
        blocks = lesson_blocks(self, (const void *)kernels[way], 0, blocks);
    }
    ncclDevComm device_comm;
    ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    needs.lsaBarrierCount = (int)blocks;
    needs.lsaMultimem = has_multimem;
    CHECK_NCCL(ncclDevCommCreate(comm, &needs, &device_comm));
    lesson_say(self, "Configuration\n  elements    %zu floats\n  blocks      %zu of %d threads\n",
               work.elements, blocks, options->threads);

    lesson_say(self, "Result\n");
    bool right = true;
    for (int way = ONE_SHOT; way < (has_multimem ? WAYS : MULTIMEM); way++) {
        right = run_way(self, (enum way)way, work, blocks, buffers, device_comm, expected) && right;
    }

    // Step 7: give everything back, in this order: what a thing was made from goes after it.
    CHECK_NCCL(ncclDevCommDestroy(comm, &device_comm));
    CHECK_NCCL(ncclCommWindowDeregister(comm, buffers.window));
    CHECK_NCCL(ncclMemFree(buffers.memory));
    CHECK_NCCL(ncclCommFinalize(comm));
    CHECK_NCCL(ncclCommDestroy(comm));
    CHECK_CUDA(cudaStreamDestroy(buffers.stream));
    free(input);
    lesson_unshare(self, expected, bytes);

    // Step 8: report.
    return lesson_report(self, right);
}

int main(int argc, char **argv)
{
    struct lesson_options defaults = {1000, 1024, 256, 0, LESSON_FLOAT, 1, 0, LESSON_SHAPE};
    return lesson_run(argc, argv, "Lesson 03: your own all-reduce: one-shot, two-shot, multimem",
                      &defaults, run_rank);
}
