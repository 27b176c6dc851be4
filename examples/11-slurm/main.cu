// SPDX-License-Identifier: Apache-2.0
// Lesson 11: a job. Each task that the scheduler starts is a rank; tuttiCommInit finds out which.
//
// The work is that of lesson 01, a sum over all ranks with every row divided by its root mean
// square, done by the library in one call. Every rank checks every element. Nothing here says how
// many ranks there are, where they run or which GPU is whose: that is the job script's affair
// (../slurm/rmsnorm.sbatch).
#include "matrix.cuh"

#include <cuda_runtime.h>
#include <nccl.h>
#include <nccl_device.h>
#include <string.h>
#include <tutti.h>
#include <unistd.h>

enum { TOKENS = 256, HIDDEN = 512 };
static const size_t elements = (size_t)TOKENS * HIDDEN;
static const float eps = 1e-6f;

// What one rank holds.
struct work {
    ncclComm_t comm;
    int rank, size;
    float *matrix; // [TOKENS x HIDDEN] in a window, in place
    ncclWindow_t window;
};

static void open_work(struct work *work)
{
    // The launcher, the rank, the GPU, the unique id, the communicator.
    CHECK_NCCL(tuttiCommInit(&work->comm));
    CHECK_NCCL(ncclCommUserRank(work->comm, &work->rank));
    CHECK_NCCL(ncclCommCount(work->comm, &work->size));
}

// Memory that all ranks can reach. False: they are on hosts that share none.
static bool open_window(struct work *work)
{
    ncclCommProperties_t properties = NCCL_COMM_PROPERTIES_INITIALIZER;
    CHECK_NCCL(ncclCommQueryProperties(work->comm, &properties));
    if (!properties.deviceApiSupport || properties.nLsaTeams != 1) {
        // Each says so: when the first task fails, the launcher ends the others.
        printf("REFUSED: the %d tasks are in %d groups that share memory: this operation needs "
               "one host. Use --nodes=1.\n",
               work->size, properties.nLsaTeams);
        return false;
    }
    CHECK_NCCL(ncclMemAlloc((void **)&work->matrix, elements * sizeof(float)));
    CHECK_NCCL(ncclCommWindowRegister(work->comm, work->matrix, elements * sizeof(float),
                                      &work->window, NCCL_WIN_COLL_SYMMETRIC));
    return true;
}

// The operation, and whether every element is right.
static bool run(const struct work *work)
{
    float *host = (float *)malloc(elements * sizeof(float));
    float *expected = (float *)malloc(elements * sizeof(float));
    struct tuttiRMSNormOptions options = TUTTI_RMSNORM_OPTIONS_INITIALIZER;
    ncclResult_t state = ncclSuccess;
    options.eps = eps;
    fill_input(host, elements, work->rank);
    CHECK_CUDA(cudaMemcpy(work->matrix, host, elements * sizeof(float), cudaMemcpyHostToDevice));
    CHECK_NCCL(tuttiAllReduceRMSNorm(work->matrix, work->matrix, TOKENS, HIDDEN, &options,
                                     ncclFloat, work->comm, 0));
    CHECK_CUDA(cudaMemcpy(host, work->matrix, elements * sizeof(float), cudaMemcpyDeviceToHost));
    CHECK_NCCL(ncclCommGetAsyncError(work->comm, &state));
    CHECK_NCCL(state);
    expect_rows<float>(expected, 0, TOKENS, HIDDEN, work->size, eps);
    bool right = compare(host, expected, elements, HIDDEN, work->rank);
    free(host);
    free(expected);
    return right;
}

// How many ranks were right: a sum of ones. The same on all ranks.
static int count_right(const struct work *work, bool right)
{
    int *number, mine = right, sum = 0;
    CHECK_CUDA(cudaMalloc((void **)&number, sizeof *number));
    CHECK_CUDA(cudaMemcpy(number, &mine, sizeof mine, cudaMemcpyHostToDevice));
    CHECK_NCCL(ncclAllReduce(number, number, 1, ncclInt, ncclSum, work->comm, 0));
    CHECK_CUDA(cudaMemcpy(&sum, number, sizeof sum, cudaMemcpyDeviceToHost));
    CHECK_CUDA(cudaFree(number));
    return sum;
}

int main(int argc, char **argv)
{
    struct work work = {};
    if (argc > 1) {
        bool asks = strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0;
        fprintf(asks ? stdout : stderr, "%s%susage: srun -n 4 slurm   (no options)\n",
                asks ? "" : argv[1], asks ? "" : ": what is that?\n");
        return asks ? 0 : 1;
    }
    open_work(&work);
    if (!open_window(&work)) {
        CHECK_NCCL(ncclCommDestroy(work.comm));
        return 1;
    }
    int right = count_right(&work, run(&work));
    CHECK_NCCL(ncclCommWindowDeregister(work.comm, work.window));
    CHECK_NCCL(ncclMemFree(work.matrix));
    CHECK_NCCL(ncclCommDestroy(work.comm));
    if (work.rank == 0) {
        printf("RMSNorm of %d x %d over %d ranks: right on %d\n", TOKENS, HIDDEN, work.size, right);
        printf(right == work.size ? "SUCCESS: Example completed successfully!\n" : "FAILED\n");
    }
    return right == work.size ? 0 : 1;
}
