// The kernels' path of tuttiMoe: each stage one launch, in which the kernels of the ranks meet. For
// one host. SPDX-License-Identifier: Apache-2.0
#include "device.h"
#include "fail.h"
#include "moe.h"
#include "moe_launch.h"

#include <stdlib.h>

#ifdef MOE_KERNELS

enum { MOST_BLOCKS = 64 };

struct kernels {
    struct ncclDevComm comm;
    unsigned blocks;
    bool has_comm;
};

// The least of all ranks' blocks; 0 of a rank that failed to learn its own.
static ncclResult_t agree_on_blocks(const struct tuttiMoe *moe, int *blocks, cudaStream_t stream)
{
    int *all = calloc((size_t)moe->ranks, sizeof *all);
    if (all == NULL) {
        return tuttiFail(ncclSystemError, "tuttiMoeCreate: no memory for %d ranks", moe->ranks);
    }
    ncclResult_t result = parallel_exchange(blocks, all, sizeof *blocks, moe->comm, stream);
    for (int r = 0; r < moe->ranks && result == ncclSuccess; r++) {
        *blocks = all[r] < *blocks ? all[r] : *blocks;
        if (all[r] < 1) {
            result = tuttiFail(ncclRemoteError,
                               "tuttiMoeCreate: rank %d's GPU runs no block of the kernels", r);
        }
    }
    free(all);
    return result;
}

static ncclResult_t open_kernels(tuttiMoe_t moe, cudaStream_t stream)
{
    int blocks = 0;
    if (moe->hosts > 1) {
        return tuttiFail(ncclInvalidUsage,
                         "tuttiMoeCreate: rank %d: path: kernels need all ranks in one host (LSA "
                         "team), not %d hosts of %d",
                         moe->rank, moe->hosts, moe->lanes);
    }
    struct kernels *kernels = calloc(1, sizeof *kernels);
    if (kernels == NULL) {
        return tuttiFail(ncclSystemError, "tuttiMoeCreate: rank %d: no memory", moe->rank);
    }
    moe->kernel = kernels;
    ncclResult_t own = moe_most_blocks(moe->comm, moe->options.datatype, &blocks);
    blocks = own == ncclSuccess ? blocks : 0;
    ncclResult_t agreed = agree_on_blocks(moe, &blocks, stream);
    TRY(own);
    TRY(agreed);
#ifdef MOE_NATIVE // virtual GPUs: more blocks than cores cost switches
    blocks = blocks < 2 ? blocks : 2;
#endif
    kernels->blocks = (unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS);
    ncclDevCommRequirements_t needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    needs.lsaBarrierCount = (int)kernels->blocks;
    TRY(ncclDevCommCreate(moe->comm, &needs, &kernels->comm));
    kernels->has_comm = true;
    return ncclSuccess;
}

static void close_kernels(tuttiMoe_t moe)
{
    struct kernels *kernels = moe->kernel;
    if (kernels != NULL && kernels->has_comm) {
        (void)ncclDevCommDestroy(moe->comm, &kernels->comm);
    }
    free(kernels);
    moe->kernel = NULL;
}

static ncclResult_t launch(tuttiMoeRoute_t route, enum moe_stage stage, const struct moe_job *job,
                           cudaStream_t stream)
{
    const struct kernels *kernels = route->moe->kernel;
    struct moe_team team = {route->moe->window, &kernels->comm, kernels->blocks};
    return parallel_cuda((int)moe_launch(stage, job, &team, stream), "cudaLaunchKernel");
}

static ncclResult_t kernel_dispatch(tuttiMoeRoute_t route, const struct moe_job *job,
                                    const void *tokens, cudaStream_t stream)
{
    struct moe_job work = *job;
    work.from = tokens;
    return launch(route, MOE_DISPATCH, &work, stream);
}

static ncclResult_t kernel_combine(tuttiMoeRoute_t route, const struct moe_job *job,
                                   const void *rows, void *out, cudaStream_t stream)
{
    struct moe_job work = *job;
    work.from = rows;
    work.to = out;
    return launch(route, MOE_COMBINE, &work, stream);
}

static ncclResult_t kernel_backward(tuttiMoeRoute_t route, const struct moe_job *job,
                                    const void *grads, const void *rows, cudaStream_t stream)
{
    struct moe_job work = *job;
    work.from = grads;
    work.results = rows;
    return launch(route, MOE_BACKWARD, &work, stream);
}

static ncclResult_t kernel_scatter(tuttiMoeRoute_t route, const struct moe_job *job,
                                   cudaStream_t stream)
{
    return launch(route, MOE_SCATTER, job, stream);
}

const struct moe_path moe_kernel_path = {open_kernels,   close_kernels,   kernel_dispatch,
                                         kernel_combine, kernel_backward, kernel_scatter};

#else

static ncclResult_t open_kernels(tuttiMoe_t moe, cudaStream_t stream)
{
    (void)stream;
    return tuttiFail(ncclInvalidUsage,
                     "tuttiMoeCreate: rank %d: path: this library was built without kernels",
                     moe->rank);
}

const struct moe_path moe_kernel_path = {.open = open_kernels};

#endif
