// SPDX-License-Identifier: Apache-2.0
// Lesson 08: ranks that have different amounts, done twice.
//
// Four ranks have 5, 0, 2 and 9 rows; wanted on every rank are all rows, one behind the other.
//   padded   every rank sends as much as the largest: ncclAllGather of 9 rows each, then a kernel
//            that moves the rows together. Works with every NCCL.
//   counts   tuttiAllGatherV is told who has how many: one call, no padding, no kernel. tutti only.
#include "lesson.h"

#include <cuda_runtime.h>
#include <nccl.h>
#include <string.h>
#include <tutti.h>

enum { RANKS = 4, HIDDEN = 256 };

static const size_t rows[RANKS] = {5, 0, 2, 9};

// What all ranks know: how many rows each has, where they go, the largest, all.
struct layout {
    size_t counts[RANKS], first[RANKS]; // in elements
    size_t largest, all;                // in elements
};

static struct layout make_layout()
{
    struct layout layout = {{0}, {0}, 0, 0};
    for (int rank = 0; rank < RANKS; rank++) {
        layout.counts[rank] = rows[rank] * HIDDEN;
        layout.first[rank] = layout.all;
        layout.all += layout.counts[rank];
        layout.largest =
            layout.counts[rank] > layout.largest ? layout.counts[rank] : layout.largest;
    }
    return layout;
}

// Element i of a rank's rows.
static float element(int rank, size_t i)
{
    return (float)(1000 * rank) + (float)i / 4;
}

// Moves the rows of a padded gather together. One block for each rank.
__global__ void compact(float *out, const float *padded, struct layout layout)
{
    size_t rank = blockIdx.x;
    for (size_t i = threadIdx.x; i < layout.counts[rank]; i += blockDim.x) {
        out[layout.first[rank] + i] = padded[rank * layout.largest + i];
    }
}

struct buffers {
    float *own, *padded, *result; // [largest], [RANKS x largest], [all]
    cudaStream_t stream;
};

static void gather_padded(const struct layout *layout, const struct buffers *b, ncclComm_t comm)
{
    CHECK_NCCL(ncclAllGather(b->own, b->padded, layout->largest, ncclFloat, comm, b->stream));
    compact<<<RANKS, 256, 0, b->stream>>>(b->result, b->padded, *layout);
    CHECK_CUDA(cudaGetLastError());
}

// Counts and displacements are elements, equal on all ranks. Displacements may be NULL for one
// behind the other; a rank without rows makes the call too.
static void gather_by_counts(const struct lesson_rank *self, const struct layout *layout,
                             const struct buffers *b, ncclComm_t comm)
{
    CHECK_NCCL(tuttiAllGatherV(b->own, layout->counts[self->rank], b->result, layout->counts,
                               layout->first, ncclFloat, comm, b->stream));
}

// Waits, compares every element, and clears the result for the next way.
static bool check(const struct lesson_rank *self, const struct layout *layout,
                  const struct buffers *b, const char *way)
{
    size_t bytes = layout->all * sizeof(float);
    float *result = (float *)malloc(bytes);
    bool right = true;
    CHECK_CUDA(cudaMemcpyAsync(result, b->result, bytes, cudaMemcpyDeviceToHost, b->stream));
    CHECK_CUDA(cudaMemsetAsync(b->result, 0xff, bytes, b->stream));
    CHECK_CUDA(cudaStreamSynchronize(b->stream));
    for (int rank = 0; rank < RANKS; rank++) {
        for (size_t i = 0; right && i < layout->counts[rank]; i++) {
            float got = result[layout->first[rank] + i];
            right = got == element(rank, i);
            if (!right) {
                printf("rank %d: %s: element %zu of rank %d is %g, should be %g\n", self->rank, way,
                       i, rank, (double)got, (double)element(rank, i));
            }
        }
    }
    free(result);
    return lesson_all(self, right);
}

// What a rank receives from the others, and what it has to hold besides the result.
static void print_table(const struct lesson_rank *self, const struct layout *layout)
{
    lesson_say(self, "Rows\n ");
    for (int rank = 0; rank < RANKS; rank++) {
        lesson_say(self, " rank %d: %zu%s", rank, rows[rank], rank < RANKS - 1 ? "," : "\n");
    }
    lesson_say(self, "Bytes that arrive         padded   counts\n");
    for (int rank = 0; rank < RANKS; rank++) {
        lesson_say(self, "  at rank %d               %7zu  %7zu\n", rank,
                   (RANKS - 1) * layout->largest * sizeof(float),
                   (layout->all - layout->counts[rank]) * sizeof(float));
    }
    lesson_say(self, "Memory beside the result  %7zu  %7d\n",
               (size_t)RANKS * layout->largest * sizeof(float), 0);
    lesson_say(self, "Calls, kernels               1, 1     1, 0\n");
}

static bool run_rank(const struct lesson_rank *self)
{
    // The kernel that moves padded rows together must have been compiled for these GPUs.
    if (!lesson_kernel_fits(self, (const void *)compact)) {
        return false;
    }

    // Step 1: who has how many. Here all ranks know; where they do not, each first tells the others
    // its number, by an ncclAllGather of one element.
    const struct layout layout = make_layout();
    print_table(self, &layout);

    // Step 2: a communicator, memory, the rows of this rank.
    ncclComm_t comm;
    ncclUniqueId id;
    struct buffers b;
    CHECK_CUDA(cudaSetDevice(self->device));
    if (self->rank == 0) {
        CHECK_NCCL(ncclGetUniqueId(&id));
    }
    lesson_broadcast(self, &id, sizeof id);
    CHECK_NCCL(ncclCommInitRank(&comm, self->ranks, id, self->rank));
    CHECK_CUDA(cudaStreamCreate(&b.stream));
    CHECK_CUDA(cudaMalloc((void **)&b.own, layout.largest * sizeof(float)));
    CHECK_CUDA(cudaMalloc((void **)&b.padded, RANKS * layout.largest * sizeof(float)));
    CHECK_CUDA(cudaMalloc((void **)&b.result, layout.all * sizeof(float)));
    float *mine = (float *)calloc(layout.largest, sizeof(float)); // zeros are the padding
    for (size_t i = 0; i < layout.counts[self->rank]; i++) {
        mine[i] = element(self->rank, i);
    }
    CHECK_CUDA(cudaMemcpy(b.own, mine, layout.largest * sizeof(float), cudaMemcpyHostToDevice));

    // Step 3: both ways.
    gather_padded(&layout, &b, comm);
    bool right = check(self, &layout, &b, "padded");
    gather_by_counts(self, &layout, &b, comm);
    right = check(self, &layout, &b, "counts") && right;
    if (right) {
        lesson_say(self, "Result\n  %zu rows on each rank, the same both ways\n",
                   layout.all / HIDDEN);
    }

    // Step 4: give everything back.
    free(mine);
    CHECK_CUDA(cudaFree(b.own));
    CHECK_CUDA(cudaFree(b.padded));
    CHECK_CUDA(cudaFree(b.result));
    CHECK_CUDA(cudaStreamDestroy(b.stream));
    CHECK_NCCL(ncclCommDestroy(comm));
    return lesson_report(self, right);
}

int main(int argc, char **argv)
{
    struct lesson_options defaults = {16, HIDDEN, 256, 0, LESSON_FLOAT, 1, RANKS, 0};
    return lesson_run(argc, argv, "Lesson 08: uneven sizes, padded and by counts", &defaults,
                      run_rank);
}
