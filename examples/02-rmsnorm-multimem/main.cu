// SPDX-License-Identifier: Apache-2.0
// Lesson 02: RMSNorm over all ranks in one kernel, by multimem: the switch between the GPUs adds up
// what it loads from all of them and copies to all what is stored once.
//
// Each rank holds a partial matrix of `tokens` x `hidden`; wanted on every rank is the sum of all
// partial matrices with each row divided by its root mean square:
//   1. reduce-scatter  one multimem load gives the sum over all ranks
//   2. RMSNorm         as in lesson 01
//   3. all-gather      one multimem store writes to all ranks
// A rank moves each element of its rows twice, whatever the number of ranks; in lesson 01 it moves
// them twice for each rank. Needs compute capability 9.0 and a switch that can do it.
#include "matrix.cuh"

#include <cuda_runtime.h>
#include <nccl.h>
#include <nccl_device.h>
#include <string.h>

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

// What one multimem instruction handles: an element of float, an aligned pair of half or bf16. They
// exist for 4 bytes and more, never for 2.
template <typename T> struct word;

template <> struct word<float> {
    static constexpr size_t elements = 1;
    float element[1];

    static __device__ word load_sum(const void *address)
    {
        word sum;
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add.f32 %0, [%1];"
                     : "=f"(sum.element[0])
                     : "l"(address)
                     : "memory");
        return sum;
    }
    __device__ void store(void *address) const
    {
        asm volatile("multimem.st.relaxed.sys.global.f32 [%0], %1;" ::"l"(address), "f"(element[0])
                     : "memory");
    }
};

// Half and bf16 differ in one word of the load only. The hardware adds in float (acc::f32) and
// rounds the sum once.
template <> struct alignas(4) word<__half> {
    static constexpr size_t elements = 2;
    __half element[2];

    static __device__ word load_sum(const void *address)
    {
        unsigned bits;
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.f16x2 %0, [%1];"
                     : "=r"(bits)
                     : "l"(address)
                     : "memory");
        word sum;
        memcpy(&sum, &bits, sizeof bits);
        return sum;
    }
    __device__ void store(void *address) const
    {
        unsigned bits;
        memcpy(&bits, this, sizeof bits);
        asm volatile("multimem.st.relaxed.sys.global.f16x2 [%0], %1;" ::"l"(address), "r"(bits)
                     : "memory");
    }
};

template <> struct alignas(4) word<__nv_bfloat16> {
    static constexpr size_t elements = 2;
    __nv_bfloat16 element[2];

    static __device__ word load_sum(const void *address)
    {
        unsigned bits;
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.bf16x2 %0, [%1];"
                     : "=r"(bits)
                     : "l"(address)
                     : "memory");
        word sum;
        memcpy(&sum, &bits, sizeof bits);
        return sum;
    }
    __device__ void store(void *address) const
    {
        unsigned bits;
        memcpy(&bits, this, sizeof bits);
        asm volatile("multimem.st.relaxed.sys.global.bf16x2 [%0], %1;" ::"l"(address), "r"(bits)
                     : "memory");
    }
};

// The matrix as the kernel sees it: through the switch, and (for single elements) peer by peer.
template <typename T> struct matrix {
    ncclWindow_t window;
    int ranks;
    T *multimem;

    // The sum of element i of all ranks, alone.
    __device__ float sum_of_one(size_t i) const
    {
        float sum = 0;
        for (int rank = 0; rank < ranks; rank++) {
            sum += to_float(*(const T *)ncclGetLsaPointer(window, i * sizeof(T), rank));
        }
        return sum;
    }
    __device__ void store_one(size_t i, T value) const
    {
        for (int rank = 0; rank < ranks; rank++) {
            *(T *)ncclGetLsaPointer(window, i * sizeof(T), rank) = value;
        }
    }
};

// A row is a run of elements of the matrix. Whole words inside it go through the switch; with half
// and bf16 and an odd `hidden`, its first or last element shares a word with another row and goes
// alone.
struct row_parts {
    size_t first;                  // of the row
    size_t words_first, words_end; // elements that are in whole words
    size_t alone[2];
    int alone_count;
};

template <typename T> __device__ row_parts parts_of_row(size_t token, size_t hidden)
{
    const size_t size = word<T>::elements;
    size_t end = (token + 1) * hidden;
    row_parts parts;
    parts.first = token * hidden;
    parts.words_first = (parts.first + size - 1) / size * size;
    parts.words_end = end / size * size;
    parts.alone_count = 0;
    if (parts.first % size != 0) {
        parts.alone[parts.alone_count++] = parts.first;
    }
    if (end % size != 0) {
        parts.alone[parts.alone_count++] = end - 1;
    }
    return parts;
}

// This thread's part of phase 1: sums into row[] (unless NULL); returns the sum of their squares.
template <typename T>
__device__ float reduce_row(const matrix<T> &matrix, const row_parts &parts, float *row)
{
    const size_t size = word<T>::elements;
    float squares = 0;
    for (size_t i = parts.words_first + threadIdx.x * size; i < parts.words_end;
         i += blockDim.x * size) {
        word<T> sums = word<T>::load_sum(matrix.multimem + i);
        for (size_t k = 0; k < size; k++) {
            float sum = to_float(sums.element[k]);
            squares += sum * sum;
            if (row) {
                row[i + k - parts.first] = sum;
            }
        }
    }
    for (int k = threadIdx.x; k < parts.alone_count; k += blockDim.x) {
        float sum = matrix.sum_of_one(parts.alone[k]);
        squares += sum * sum;
        if (row) {
            row[parts.alone[k] - parts.first] = sum;
        }
    }
    return squares;
}

// This thread's part of phase 3: the sums (from row[], or once more from the ranks) times `scale`
// to all ranks. The thread that stores an element is the one that loaded it.
template <typename T>
__device__ void broadcast_row(const matrix<T> &matrix, const row_parts &parts, const float *row,
                              float scale)
{
    const size_t size = word<T>::elements;
    for (size_t i = parts.words_first + threadIdx.x * size; i < parts.words_end;
         i += blockDim.x * size) {
        word<T> values;
        if (!row) {
            values = word<T>::load_sum(matrix.multimem + i);
        }
        for (size_t k = 0; k < size; k++) {
            float sum = row ? row[i + k - parts.first] : to_float(values.element[k]);
            values.element[k] = from_float<T>(sum * scale);
        }
        values.store(matrix.multimem + i);
    }
    for (int k = threadIdx.x; k < parts.alone_count; k += blockDim.x) {
        size_t i = parts.alone[k];
        float sum = row ? row[i - parts.first] : matrix.sum_of_one(i);
        matrix.store_one(i, from_float<T>(sum * scale));
    }
}

// Block-per-row: block b of a rank takes its rows b, b + gridDim.x, ...
// Dynamic shared memory: blockDim.x floats, and `hidden` more if row_in_shared.
template <typename T>
__global__ void rmsnorm_multimem(ncclWindow_t window, ncclDevComm comm, struct work work)
{
    extern __shared__ float shared[];
    float *partial = shared;
    float *row = work.row_in_shared ? shared + blockDim.x : NULL;
    ncclCoopCta block;
    ncclLsaBarrierSession<ncclCoopCta> barrier(block, comm, ncclTeamTagLsa(), blockIdx.x, true);
    matrix<T> all = {window, comm.lsaSize, (T *)ncclGetLsaMultimemPointer(window, 0, comm)};

    // Nobody reads a peer's matrix before that peer has started its kernel: its input is there
    // then.
    barrier.sync(block, cuda::memory_order_acquire);

    for (size_t token = work.first_token + blockIdx.x; token < work.end_token; token += gridDim.x) {
        row_parts parts = parts_of_row<T>(token, work.hidden);

        // Phase 1, reduce-scatter.
        partial[threadIdx.x] = reduce_row(all, parts, row);

        // Phase 2, RMSNorm. A row of zeros (with eps 0) stays zero.
        float mean = sum_over_block(partial) / (float)work.hidden;
        float root = sqrtf(mean + work.eps);
        float scale = root > 0 ? 1.0f / root : 0.0f;

        // Phase 3, all-gather. In the next row an element may belong to another thread, so all wait
        // before row[] is written again.
        broadcast_row(all, parts, row, scale);
        block.sync();
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
                       "the ranks form %d LSA teams, and multimem reaches only one. "
                       "Use ranks of one host only: fewer --ranks, or TUTTI_FAKE_HOSTS unset. "
                       "(The way over all: ncclReduceScatter, a kernel, ncclAllGather; lesson 05.)",
                       can.nLsaTeams) &&
        lesson_require(self, can.multimemSupport,
                       "this communicator has no multimem: the GPUs are not joined by a "
                       "switch that adds and copies, or NCCL_NVLS_ENABLE=0 turned it off. "
                       "Use lesson 01 (LSA) instead: it needs loads and stores only.");
    if (ok) {
        lesson_say(self,
                   "  device API          yes\n  LSA teams           1, of %d ranks\n"
                   "  multimem            yes\n",
                   self->ranks);
    }
    return ok;
}

// Step 1's question to this rank's GPU. False on all ranks when one of them must refuse.
static bool capable(const struct lesson_rank *self, const void *kernel)
{
    CHECK_CUDA(cudaSetDevice(self->device));
    cudaDeviceProp gpu;
    CHECK_CUDA(cudaGetDeviceProperties(&gpu, self->device));
    bool ok = lesson_require(self, gpu.major >= 9,
                             "GPU %d (%s) has compute capability %d.%d, and multimem needs 9.0 or "
                             "higher. Use lesson 01 (LSA) instead, built for this GPU (make clean; "
                             "make ARCH=sm_%d%d): it needs loads and stores only.",
                             self->device, gpu.name, gpu.major, gpu.minor, gpu.major, gpu.minor) &&
              lesson_kernel_fits(self, kernel);
    if (ok) {
        lesson_say(self, "Checks\n  compute capability  %d.%d\n", gpu.major, gpu.minor);
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
        rmsnorm_multimem<T><<<(unsigned)blocks, options->threads, shared_bytes, buffers.stream>>>(
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

    // Step 1: what the GPU can do. The multimem instructions came with compute capability 9.0; a
    // kernel that has them would not even start on an older GPU.
    if (!capable(self, (const void *)rmsnorm_multimem<T>)) {
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

    // Step 4: the device communicator: what a kernel needs to know of the ranks, one barrier for
    // each block, and multimem, for the data and for the barriers. The first rank owns the most
    // rows; every rank launches as many blocks as it, unless ranks share a GPU that is too small.
    size_t most_rows = lesson_first_token(options->tokens, self->ranks, 1);
    struct work work = share_of(self);
    size_t blocks =
        lesson_blocks(self, (const void *)rmsnorm_multimem<T>, shared_bytes_of(options, work),
                      most_rows < blocks_at_most ? most_rows : blocks_at_most);
    ncclDevComm device_comm;
    ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    needs.lsaBarrierCount = (int)blocks;
    needs.lsaMultimem = true;
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
    return lesson_run(argc, argv, "Lesson 02: RMSNorm over all ranks by multimem", &defaults,
                      run_rank_of_type);
}
