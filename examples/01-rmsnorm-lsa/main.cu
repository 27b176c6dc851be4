// SPDX-License-Identifier: Apache-2.0
// Lesson 01: RMSNorm over all ranks in one kernel, by plain loads and stores to the peers' memory.
//
// Each rank holds a partial matrix of `tokens` x `hidden`; wanted on every rank is the sum of all
// partial matrices with each row divided by its root mean square. Three collectives' worth of work:
//   1. reduce-scatter  a rank adds up the rows it owns, reading them from all ranks
//   2. RMSNorm         and normalises them, which takes no communication
//   3. all-gather      and stores them into all ranks' matrices
// One kernel does all three; a row never leaves the chip between the phases.
#include "matrix.cuh"

#include <cuda_runtime.h>
#include <nccl.h>
#include <nccl_device.h>

// More blocks than this do not help: each then handles several rows. All ranks must launch equally
// many, because block i of one rank meets block i of the others in barrier i.
static const size_t blocks_at_most = 1024;

// Shared memory that every GPU grants without being asked.
static const size_t shared_bytes_at_most = 48 * 1024;

// What the kernel works on.
struct work {
    size_t first_token; // this rank owns the rows first_token .. end_token - 1
    size_t end_token;
    size_t hidden;
    float eps;
    bool row_in_shared; // a summed row fits into shared memory, behind the partial sums
};

// The sum of partial[0 .. blockDim.x - 1], on every thread. Destroys partial. All threads call it.
__device__ float sum_over_block(float *partial)
{
    // Halving by a power of two, which also works when the number of threads is none.
    unsigned stride = 1;
    while (stride * 2 < blockDim.x) {
        stride *= 2;
    }
    __syncthreads();
    for (; stride > 0 && blockDim.x > 1; stride /= 2) {
        if (threadIdx.x < stride && threadIdx.x + stride < blockDim.x) {
            partial[threadIdx.x] += partial[threadIdx.x + stride];
        }
        __syncthreads();
    }
    float sum = partial[0];
    __syncthreads(); // nobody writes the next row's partial sums before all have read this one
    return sum;
}

// The sum over all ranks of the element at `offset` bytes in the window, in rank order.
template <typename T> __device__ float sum_over_ranks(ncclWindow_t window, size_t offset, int ranks)
{
    float sum = 0;
    for (int rank = 0; rank < ranks; rank++) {
        sum += to_float(*(const T *)ncclGetLsaPointer(window, offset, rank));
    }
    return sum;
}

// Block-per-row: block b of a rank takes its rows b, b + gridDim.x, ...
// Dynamic shared memory: blockDim.x floats, and `hidden` more if row_in_shared.
template <typename T>
__global__ void rmsnorm_lsa(ncclWindow_t window, ncclDevComm comm, struct work work)
{
    extern __shared__ float shared[];
    float *partial = shared;
    float *row = shared + blockDim.x;
    ncclCoopCta block;
    ncclLsaBarrierSession<ncclCoopCta> barrier(block, comm, ncclTeamTagLsa(), blockIdx.x);

    // Nobody reads a peer's matrix before that peer has started its kernel: its input is there
    // then.
    barrier.sync(block, cuda::memory_order_acquire);

    for (size_t token = work.first_token + blockIdx.x; token < work.end_token; token += gridDim.x) {
        size_t offset = token * work.hidden * sizeof(T);

        // Phase 1, reduce-scatter. Threads take neighbouring elements, so that loads coalesce. On
        // the way each collects the squares of what it saw.
        float squares = 0;
        for (size_t i = threadIdx.x; i < work.hidden; i += blockDim.x) {
            float sum = sum_over_ranks<T>(window, offset + i * sizeof(T), comm.lsaSize);
            squares += sum * sum;
            if (work.row_in_shared) {
                row[i] = sum;
            }
        }

        // Phase 2, RMSNorm. A row of zeros (with eps 0) stays zero.
        partial[threadIdx.x] = squares;
        float mean = sum_over_block(partial) / (float)work.hidden;
        float root = sqrtf(mean + work.eps);
        float scale = root > 0 ? 1.0f / root : 0.0f;

        // Phase 3, all-gather. Element i is read and written by this one thread only, so the matrix
        // may be overwritten in place, and a row that did not fit can be added up once more.
        for (size_t i = threadIdx.x; i < work.hidden; i += blockDim.x) {
            size_t element = offset + i * sizeof(T);
            float sum =
                work.row_in_shared ? row[i] : sum_over_ranks<T>(window, element, comm.lsaSize);
            T value = from_float<T>(sum * scale);
            for (int rank = 0; rank < comm.lsaSize; rank++) {
                *(T *)ncclGetLsaPointer(window, element, rank) = value;
            }
        }
    }

    // No rank's kernel ends before all ranks' rows have arrived.
    barrier.sync(block, cuda::memory_order_release);
}

static void print_configuration(const struct lesson_rank *self, size_t blocks)
{
    const struct lesson_options *options = self->options;
    lesson_say(self, "Configuration\n");
    lesson_say(self, "  ranks       %d\n", self->ranks);
    lesson_say(self, "  matrix      %zu tokens x %zu, %s\n", options->tokens, options->hidden,
               lesson_type_name(options->type));
    lesson_say(self, "  blocks      %zu of %d threads on each rank\n", blocks, options->threads);
    lesson_say(self, "  epsilon     %g\n", (double)options->eps);
    lesson_say(self, "  iterations  %d\n", options->iterations);
}

// The questions of step 2 to a fresh communicator. False on all ranks when one of them must refuse.
static bool can_run(const struct lesson_rank *self, ncclComm_t comm)
{
    ncclCommProperties_t can = NCCL_COMM_PROPERTIES_INITIALIZER;
    CHECK_NCCL(ncclCommQueryProperties(comm, &can));
    bool ok =
        lesson_require(self, can.deviceApiSupport,
                       "this communicator has no device API: its GPUs cannot read each "
                       "other's memory. Use GPUs joined by NVLink, as virtual ones are "
                       "when VGPU_MACHINE is not set. (The way without: ncclReduceScatter, a "
                       "kernel, ncclAllGather; lesson 05.)") &&
        lesson_require(self, can.nLsaTeams == 1,
                       "the ranks form %d LSA teams, and loads and stores reach only one. "
                       "Use ranks of one host only: fewer --ranks, or TUTTI_FAKE_HOSTS unset. "
                       "(The way over all: ncclReduceScatter, a kernel, ncclAllGather; lesson 05.)",
                       can.nLsaTeams);
    if (ok) {
        lesson_say(self, "Checks\n  device API  yes\n  LSA teams   1, of %d ranks\n", self->ranks);
    }
    return ok;
}

// Step 2's communicator; NULL on all ranks when it cannot do what this lesson needs.
static ncclComm_t make_communicator(const struct lesson_rank *self)
{
    ncclUniqueId id;
    if (self->rank == 0) {
        CHECK_NCCL(ncclGetUniqueId(&id));
    }
    lesson_broadcast(self, &id, sizeof id);
    ncclComm_t comm;
    CHECK_NCCL(ncclCommInitRank(&comm, self->ranks, id, self->rank));
    if (!can_run(self, comm)) {
        CHECK_NCCL(ncclCommFinalize(comm));
        CHECK_NCCL(ncclCommDestroy(comm));
        return NULL;
    }
    return comm;
}

// Step 3's memory of one rank.
struct buffers {
    void *memory; // the matrix on the device
    ncclWindow_t window;
    cudaStream_t stream;
};

// The rows of one rank.
static struct work share_of(const struct lesson_rank *self)
{
    const struct lesson_options *options = self->options;
    struct work work;
    work.first_token = lesson_first_token(options->tokens, self->ranks, self->rank);
    work.end_token = lesson_first_token(options->tokens, self->ranks, self->rank + 1);
    work.hidden = options->hidden;
    work.eps = options->eps;
    size_t partial_bytes = (size_t)options->threads * sizeof(float);
    work.row_in_shared = options->hidden <= (shared_bytes_at_most - partial_bytes) / sizeof(float);
    return work;
}

// Dynamic shared memory of a block.
static size_t shared_bytes_of(const struct lesson_options *options, const struct work &work)
{
    size_t row = work.row_in_shared ? options->hidden : 0;
    return ((size_t)options->threads + row) * sizeof(float);
}

// Step 5's launches: as many as there are iterations, one after the other. The kernel overwrites
// its input, so each iteration copies it anew, and no kernel starts before all copies are done: on
// a GPU that ranks share, a copy can wait for a kernel that waits for this rank's. Returns the
// seconds that all took.
template <typename T>
static double launch(const struct lesson_rank *self, const struct work &work, size_t blocks,
                     const struct buffers &buffers, const ncclDevComm &comm, const T *input)
{
    const struct lesson_options *options = self->options;
    size_t bytes = options->tokens * options->hidden * sizeof(T);
    size_t shared_bytes = shared_bytes_of(options, work);
    double start = lesson_seconds();
    for (int i = 0; i < options->iterations; i++) {
        CHECK_CUDA(
            cudaMemcpyAsync(buffers.memory, input, bytes, cudaMemcpyHostToDevice, buffers.stream));
        CHECK_CUDA(cudaStreamSynchronize(buffers.stream));
        lesson_all(self, true);
        rmsnorm_lsa<T><<<(unsigned)blocks, options->threads, shared_bytes, buffers.stream>>>(
            buffers.window, comm, work);
        CHECK_CUDA(cudaGetLastError());
    }
    CHECK_CUDA(cudaStreamSynchronize(buffers.stream));
    return lesson_seconds() - start;
}

template <typename T> static bool run_rank(const struct lesson_rank *self)
{
    const struct lesson_options *options = self->options;
    const size_t elements = options->tokens * options->hidden;
    const size_t bytes = elements * sizeof(T);

    // Step 1: what the GPU can do. Loads and stores to peers work on every GPU since compute
    // capability 7.0 (lesson 02 asks for more), but the kernel must have been compiled for it.
    CHECK_CUDA(cudaSetDevice(self->device));
    if (!lesson_kernel_fits(self, (const void *)rmsnorm_lsa<T>)) {
        return false;
    }

    // Step 2: the communicator, and what it can do. Only when all ranks can go on do they allocate
    // host memory: the matrix, first as input and later as result, and one reference for all.
    ncclComm_t comm = make_communicator(self);
    if (!comm) {
        return false;
    }
    T *matrix = (T *)malloc(bytes);
    float *expected = (float *)lesson_share(self, elements * sizeof(float));
    if (!lesson_require(self, matrix && expected,
                        "no host memory for %zu elements: use fewer "
                        "--tokens, --hidden or --ranks.",
                        elements)) {
        exit(1);
    }
    fill_input(matrix, elements, self->rank);

    // Step 3: device memory that peers may use, as a window: registered by all ranks together.
    struct buffers buffers;
    CHECK_CUDA(cudaStreamCreate(&buffers.stream));
    CHECK_NCCL(ncclMemAlloc(&buffers.memory, bytes));
    CHECK_NCCL(ncclCommWindowRegister(comm, buffers.memory, bytes, &buffers.window,
                                      NCCL_WIN_COLL_SYMMETRIC));

    // Step 4: the device communicator: what a kernel needs to know of the ranks, and one barrier
    // for each block. The first rank owns the most rows, and every rank launches as many blocks as
    // it, unless ranks share a GPU that cannot run so many at once.
    size_t most_rows = lesson_first_token(options->tokens, self->ranks, 1);
    struct work work = share_of(self);
    size_t blocks =
        lesson_blocks(self, (const void *)rmsnorm_lsa<T>, shared_bytes_of(options, work),
                      most_rows < blocks_at_most ? most_rows : blocks_at_most);
    ncclDevComm device_comm;
    ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    needs.lsaBarrierCount = (int)blocks;
    CHECK_NCCL(ncclDevCommCreate(comm, &needs, &device_comm));
    print_configuration(self, blocks);

    // Step 5: launch, on a stream.
    double seconds = launch(self, work, blocks, buffers, device_comm, matrix);

    // Step 6: check every element on every rank. The ranks share the work of the reference.
    CHECK_CUDA(cudaMemcpy(matrix, buffers.memory, bytes, cudaMemcpyDeviceToHost));
    expect_rows<T>(expected, work.first_token, work.end_token, options->hidden, self->ranks,
                   options->eps);
    lesson_all(self, true); // all rows of the reference are there
    bool right = compare(matrix, expected, elements, options->hidden, self->rank);
    if (lesson_all(self, right)) {
        lesson_say(self, "Result\n  %zu elements on each rank agree with the reference\n",
                   elements);
    }

    // Step 7: give everything back, in this order: what a thing was made from goes after it.
    CHECK_NCCL(ncclDevCommDestroy(comm, &device_comm));
    CHECK_NCCL(ncclCommWindowDeregister(comm, buffers.window));
    CHECK_NCCL(ncclMemFree(buffers.memory));
    CHECK_NCCL(ncclCommFinalize(comm));
    CHECK_NCCL(ncclCommDestroy(comm));
    CHECK_CUDA(cudaStreamDestroy(buffers.stream));
    free(matrix);
    lesson_unshare(self, expected, elements * sizeof(float));

    // Step 8: report.
    if (options->iterations > 1) {
        lesson_say(self, "  %.3f ms per iteration, copy of the input included\n",
                   seconds * 1e3 / options->iterations);
    }
    return lesson_report(self, right);
}

static bool run_rank_of_type(const struct lesson_rank *self)
{
    switch (self->options->type) {
    case LESSON_HALF:
        return run_rank<__half>(self);
    case LESSON_BF16:
        return run_rank<__nv_bfloat16>(self);
    default:
        return run_rank<float>(self);
    }
}

int main(int argc, char **argv)
{
    struct lesson_options defaults = {
        4096, 1024, 256, 1e-6f, LESSON_FLOAT, 1, 0, LESSON_SHAPE | LESSON_TYPE | LESSON_EPS};
    return lesson_run(argc, argv, "Lesson 01: RMSNorm over all ranks by load and store (LSA)",
                      &defaults, run_rank_of_type);
}
