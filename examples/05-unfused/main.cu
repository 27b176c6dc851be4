// SPDX-License-Identifier: Apache-2.0
// Lesson 05: the operation of lesson 01 by two collectives and a kernel, beside the one kernel.
//
// Each rank holds a partial matrix; wanted on every rank is the sum of all of them with each row
// divided by its root mean square. Twice, from the same input:
//   unfused  ncclReduceScatter, a kernel that normalises this rank's rows, ncclAllGather
//   fused    one kernel that does all three by loads and stores to the peers' memory (lesson 01)
// Both add in rank order and both square by the same tree, so the results must agree in every bit.
#include "matrix.cuh"

#include <cuda_runtime.h>
#include <nccl.h>
#include <nccl_device.h>
#include <string.h>

static const size_t blocks_at_most = 1024;

enum way { UNFUSED, FUSED, WAYS };
static const char *const way_names[WAYS] = {"unfused", "fused"};

// What the kernels work on.
struct work {
    size_t first_token, end_token; // this rank's rows
    size_t hidden;
    float eps;
};

// The sum of partial[0 .. blockDim.x - 1] on every thread, by a tree that both kernels share. All
// threads call it. Destroys partial.
__device__ float sum_over_block(float *partial)
{
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
    __syncthreads();
    return sum;
}

// What a row is multiplied by, of which this thread has seen elements whose squares are `squares`.
__device__ float scale_of(float *partial, float squares, const struct work &work)
{
    partial[threadIdx.x] = squares;
    float root = sqrtf(sum_over_block(partial) / (float)work.hidden + work.eps);
    return root > 0 ? 1.0f / root : 0.0f;
}

// Unfused: rows that are summed already, in place. Dynamic shared memory: blockDim.x floats.
__global__ void normalise(float *matrix, struct work work)
{
    extern __shared__ float partial[];
    for (size_t token = work.first_token + blockIdx.x; token < work.end_token; token += gridDim.x) {
        float *row = matrix + token * work.hidden;
        float squares = 0;
        for (size_t i = threadIdx.x; i < work.hidden; i += blockDim.x) {
            squares += row[i] * row[i];
        }
        float scale = scale_of(partial, squares, work);
        for (size_t i = threadIdx.x; i < work.hidden; i += blockDim.x) {
            row[i] *= scale;
        }
    }
}

// The sum over all ranks of the element at `offset` bytes in the window, in rank order.
__device__ float sum_over_ranks(ncclWindow_t window, size_t offset, int ranks)
{
    float sum = *(const float *)ncclGetLsaPointer(window, offset, 0);
    for (int rank = 1; rank < ranks; rank++) {
        sum += *(const float *)ncclGetLsaPointer(window, offset, rank);
    }
    return sum;
}

// Fused. Dynamic shared memory: blockDim.x floats, and `hidden` for the row, which so never leaves
// the chip between the phases.
__global__ void fused(ncclWindow_t window, ncclDevComm comm, struct work work)
{
    extern __shared__ float partial[];
    float *row = partial + blockDim.x;
    ncclCoopCta block;
    ncclLsaBarrierSession<ncclCoopCta> barrier(block, comm, ncclTeamTagLsa(), blockIdx.x);
    barrier.sync(block, cuda::memory_order_acquire); // all inputs are there
    for (size_t token = work.first_token + blockIdx.x; token < work.end_token; token += gridDim.x) {
        size_t offset = token * work.hidden * sizeof(float);
        float squares = 0;
        for (size_t i = threadIdx.x; i < work.hidden; i += blockDim.x) {
            row[i] = sum_over_ranks(window, offset + i * sizeof(float), comm.lsaSize);
            squares += row[i] * row[i];
        }
        float scale = scale_of(partial, squares, work);
        for (size_t i = threadIdx.x; i < work.hidden; i += blockDim.x) {
            float value = row[i] * scale;
            for (int rank = 0; rank < comm.lsaSize; rank++) {
                *(float *)ncclGetLsaPointer(window, offset + i * sizeof(float), rank) = value;
            }
        }
    }
    barrier.sync(block, cuda::memory_order_release); // all rows have arrived
}

// A rank's memory and what it calls with.
struct rank {
    ncclComm_t comm;
    ncclDevComm device_comm;
    ncclWindow_t window;
    float *matrix; // the window's memory: input, then result
    cudaStream_t stream;
    size_t elements, part; // of the matrix, of one rank's rows
    unsigned blocks;
    struct work work;
};

// Three launches in one stream: each runs when the one before it has ended, on this rank; the
// collectives wait for the other ranks. All in place: this rank's rows stay where they are.
static void run_unfused(const struct lesson_rank *self, const struct rank *r)
{
    int threads = self->options->threads;
    float *own = r->matrix + (size_t)self->rank * r->part;
    CHECK_NCCL(ncclReduceScatter(r->matrix, own, r->part, ncclFloat, ncclSum, r->comm, r->stream));
    normalise<<<r->blocks, threads, (size_t)threads * sizeof(float), r->stream>>>(r->matrix,
                                                                                  r->work);
    CHECK_CUDA(cudaGetLastError());
    CHECK_NCCL(ncclAllGather(own, r->matrix, r->part, ncclFloat, r->comm, r->stream));
}

// Dynamic shared memory of a block of the fused kernel.
static size_t shared_bytes_of(const struct lesson_rank *self)
{
    return ((size_t)self->options->threads + self->options->hidden) * sizeof(float);
}

static void run_fused(const struct lesson_rank *self, const struct rank *r)
{
    int threads = self->options->threads;
    fused<<<r->blocks, threads, shared_bytes_of(self), r->stream>>>(r->window, r->device_comm,
                                                                    r->work);
    CHECK_CUDA(cudaGetLastError());
}

// One way, as often as there are iterations; the result goes to `result`. Seconds of one iteration
// without the copy of the input.
static double run(const struct lesson_rank *self, const struct rank *r, enum way way,
                  const float *input, float *result)
{
    size_t bytes = r->elements * sizeof(float);
    double seconds = 0;
    for (int i = 0; i < self->options->iterations; i++) {
        CHECK_CUDA(cudaMemcpy(r->matrix, input, bytes, cudaMemcpyHostToDevice));
        lesson_all(self, true); // all inputs are there: the time is that of the operation alone
        double start = lesson_seconds();
        if (way == FUSED) {
            run_fused(self, r);
        } else {
            run_unfused(self, r);
        }
        CHECK_CUDA(cudaStreamSynchronize(r->stream));
        seconds += lesson_seconds() - start;
        lesson_all(self, true); // nobody copies the next input while a peer still reads this one
    }
    CHECK_CUDA(cudaMemcpy(result, r->matrix, bytes, cudaMemcpyDeviceToHost));
    return seconds / self->options->iterations;
}

// What this lesson needs; false on all ranks where something is missing.
static bool can_run(const struct lesson_rank *self, ncclComm_t comm)
{
    const struct lesson_options *options = self->options;
    ncclCommProperties_t can = NCCL_COMM_PROPERTIES_INITIALIZER;
    CHECK_NCCL(ncclCommQueryProperties(comm, &can));
    return lesson_kernel_fits(self, (const void *)fused) &&
           lesson_require(self, options->tokens % (size_t)self->ranks == 0,
                          "%zu tokens over %d ranks: ncclReduceScatter gives all ranks equally "
                          "many. Use a multiple of %d, or tuttiReduceScatterV (lesson 08).",
                          options->tokens, self->ranks, self->ranks) &&
           lesson_require(self, options->hidden <= 8192,
                          "a row of %zu elements does not fit into shared memory beside the "
                          "partial sums. Use --hidden 8192 or less.",
                          options->hidden) &&
           lesson_require(self, can.deviceApiSupport && can.nLsaTeams == 1,
                          "the fused way needs GPUs that all reach each other's memory. The "
                          "unfused one does not.");
}

// Bytes of one rank by one way, in multiples of its part of the matrix; n ranks. In: what it loads
// from peers, and what they store to it; out: what they load from it, and what it stores to them.
static void print_table(const struct lesson_rank *self, const struct rank *r, const double *seconds)
{
    const size_t part = r->part * sizeof(float), peers = (size_t)self->ranks - 1;
    lesson_say(self, "On each rank                    unfused        fused\n");
    lesson_say(self, "  launches                 %12d %12d\n", 3, 1);
    lesson_say(self, "  bytes in                 %12zu %12zu\n", 2 * peers * part,
               2 * peers * part);
    lesson_say(self, "  bytes out                %12zu %12zu\n", 2 * peers * part,
               2 * peers * part);
    // Unfused: the input is read, the sums are written, read twice, written as rows, read to be
    // sent. Fused: the input is read, the rows are written.
    lesson_say(self, "  bytes of own memory      %12zu %12zu\n", 6 * part, 2 * part);
    if (self->options->iterations > 1) {
        lesson_say(self, "  ms                       %12.3f %12.3f\n", seconds[UNFUSED] * 1e3,
                   seconds[FUSED] * 1e3);
    }
}

// Every element against the reference, and every bit of one way against the other.
static bool check(const struct lesson_rank *self, const struct rank *r, float *const *result,
                  float *reference)
{
    const struct lesson_options *options = self->options;
    bool right = true;
    expect_rows<float>(reference, r->work.first_token, r->work.end_token, options->hidden,
                       self->ranks, options->eps);
    lesson_all(self, true); // all ranks' rows of the reference are there
    for (int way = 0; way < WAYS; way++) {
        bool good = compare(result[way], reference, r->elements, options->hidden, self->rank);
        if (!good) {
            printf("rank %d: that was the %s way\n", self->rank, way_names[way]);
        }
        right = right && good;
    }
    if (memcmp(result[UNFUSED], result[FUSED], r->elements * sizeof(float)) != 0) {
        printf("rank %d: the two ways differ in some bit\n", self->rank);
        right = false;
    }
    return right;
}

// NULL on all ranks where this lesson cannot run.
static ncclComm_t make_communicator(const struct lesson_rank *self)
{
    ncclUniqueId id;
    ncclComm_t comm;
    if (self->rank == 0) {
        CHECK_NCCL(ncclGetUniqueId(&id));
    }
    lesson_broadcast(self, &id, sizeof id);
    CHECK_NCCL(ncclCommInitRank(&comm, self->ranks, id, self->rank));
    if (!can_run(self, comm)) {
        CHECK_NCCL(ncclCommDestroy(comm));
        return NULL;
    }
    return comm;
}

static bool run_rank(const struct lesson_rank *self)
{
    const struct lesson_options *options = self->options;
    struct rank r;
    memset((void *)&r, 0, sizeof r);

    // Step 1: the communicator.
    CHECK_CUDA(cudaSetDevice(self->device));
    r.comm = make_communicator(self);
    if (!r.comm) {
        return false;
    }

    // Step 2: this rank's rows, the same in both ways.
    size_t most_rows = options->tokens / (size_t)self->ranks;
    r.elements = options->tokens * options->hidden;
    r.part = most_rows * options->hidden;
    r.blocks = (unsigned)lesson_blocks(self, (const void *)fused, shared_bytes_of(self),
                                       most_rows < blocks_at_most ? most_rows : blocks_at_most);
    r.work = {most_rows * (size_t)self->rank, most_rows * ((size_t)self->rank + 1), options->hidden,
              options->eps};

    // Step 3: memory. The unfused way would take any; the fused one needs a window and a device
    // communicator.
    size_t bytes = r.elements * sizeof(float);
    ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    needs.lsaBarrierCount = (int)r.blocks;
    CHECK_CUDA(cudaStreamCreate(&r.stream));
    CHECK_NCCL(ncclMemAlloc((void **)&r.matrix, bytes));
    CHECK_NCCL(ncclCommWindowRegister(r.comm, r.matrix, bytes, &r.window, NCCL_WIN_COLL_SYMMETRIC));
    CHECK_NCCL(ncclDevCommCreate(r.comm, &needs, &r.device_comm));
    float *input = (float *)malloc(bytes), *result[WAYS], *reference;
    reference = (float *)lesson_share(self, bytes);
    for (int way = 0; way < WAYS; way++) {
        result[way] = (float *)malloc(bytes);
    }
    if (!lesson_require(self, input && result[UNFUSED] && result[FUSED] && reference,
                        "no host memory for %zu elements: use fewer.", r.elements)) {
        exit(1);
    }
    fill_input(input, r.elements, self->rank);

    // Step 4: both ways, from the same input.
    double seconds[WAYS];
    for (int way = 0; way < WAYS; way++) {
        seconds[way] = run(self, &r, (enum way)way, input, result[way]);
    }

    // Step 5: compare.
    bool right = check(self, &r, result, reference);
    print_table(self, &r, seconds);
    if (lesson_all(self, right)) {
        lesson_say(self,
                   "Result\n  %zu elements on each rank: right, and the same bits both ways\n",
                   r.elements);
    }

    // Step 6: give everything back.
    CHECK_NCCL(ncclDevCommDestroy(r.comm, &r.device_comm));
    CHECK_NCCL(ncclCommWindowDeregister(r.comm, r.window));
    CHECK_NCCL(ncclMemFree(r.matrix));
    CHECK_NCCL(ncclCommDestroy(r.comm));
    CHECK_CUDA(cudaStreamDestroy(r.stream));
    free(input);
    free(result[UNFUSED]);
    free(result[FUSED]);
    lesson_unshare(self, reference, bytes);
    return lesson_report(self, right);
}

int main(int argc, char **argv)
{
    struct lesson_options defaults = {4096,         1024, 256, 1e-6f,
                                      LESSON_FLOAT, 1,    0,   LESSON_SHAPE | LESSON_EPS};
    return lesson_run(argc, argv, "Lesson 05: two collectives and a kernel, or one kernel",
                      &defaults, run_rank);
}
