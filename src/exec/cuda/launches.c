// See launches.h. SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/launches.h"

#include "base/gpu.h"
#include "base/log.h"
#include "exec/cuda/kernels.h"
#include "nccl_device.h"

#include <stddef.h>

#define TRY_DRIVER(call) TRY(tt_cuda((int)(call), #call)) // both kinds of error have CUDA's numbers

static struct tt_norm_launch describe(const struct tt_host *host,
                                      const struct tt_rmsnorm *operation, bool barriers)
{
    return (struct tt_norm_launch){.input = operation->input,
                                   .output = operation->output,
                                   .tokens = operation->tokens,
                                   .hidden = operation->hidden,
                                   .eps = operation->eps,
                                   .data_type = operation->data_type,
                                   .nranks = operation->nranks,
                                   .barriers = barriers,
                                   .alone = host->sharers == 1};
}

static void add_rank(struct tt_norm_launch *launch, const struct tt_rmsnorm *operation)
{
    launch->rank[launch->rank_count++] =
        (struct tt_norm_rank){.rank = operation->rank,
                              .gamma = operation->gamma,
                              .residual = operation->residual,
                              .residual_out = operation->residual_out,
                              .device_comm = operation->device_comm};
}

// Blocks of kernels that meet: the same number on all ranks, and no more than fit at once.
static ncclResult_t choose_resident(const struct tt_host *host, const struct tt_rmsnorm *operation,
                                    struct tt_norm_launch *launch)
{
    unsigned most = 0, wished = 0,
             barriers = (unsigned)operation->device_comm->lsaBarrier.nBarriers;
    cudaError_t error = tt_norm_most_blocks(launch, host->sharers, &most);
    if (error == cudaErrorInvalidValue) {
        return tt_fail(ncclInvalidUsage,
                       "rank %d: tuttiAllReduceRMSNorm: %s has %d ranks, and with hidden %zu "
                       "not even one block for each of them fits at once; use fewer ranks for each "
                       "GPU",
                       host->team.rank, tt_gpu(host->team.device)->name, host->sharers,
                       operation->hidden);
    }
    TRY(tt_cuda((int)error, "asking how many blocks fit"));
    TRY(tt_cuda((int)tt_norm_wished_blocks(launch, host->sharers, &wished),
                "asking how many blocks are wanted"));
    most = most < barriers ? most : barriers;
    launch->blocks = wished < most ? wished : most;
    return ncclSuccess;
}

static ncclResult_t choose_blocks(struct tt_host *host, const struct tt_rmsnorm *operation,
                                  struct tt_norm_launch *launch)
{
    struct tt_blocks *known = &host->blocks;
    if (known->blocks > 0 && known->tokens == launch->tokens && known->hidden == launch->hidden &&
        known->data_type == launch->data_type && known->rank_count == launch->rank_count &&
        known->barriers == launch->barriers) {
        launch->blocks = known->blocks;
        return ncclSuccess;
    }
    if (launch->barriers) {
        TRY(choose_resident(host, operation, launch));
    } else {
        TRY(tt_cuda((int)tt_norm_wished_blocks(launch, launch->rank_count, &launch->blocks),
                    "asking how many blocks are wanted"));
    }
    *known = (struct tt_blocks){launch->tokens,     launch->hidden,   launch->data_type,
                                launch->rank_count, launch->barriers, launch->blocks};
    return ncclSuccess;
}

// As many ranks of the group, from `first` on, as one launch covers.
static ncclResult_t start_some(struct tt_host *host, const struct tt_meeting *meeting, int first,
                               bool barriers, cudaStream_t stream)
{
    struct tt_norm_launch launch = describe(host, &meeting->arrival[first].operation, barriers);
    for (int i = first; i < host->group->size && launch.rank_count < TT_NORM_RANKS; i++) {
        add_rank(&launch, &meeting->arrival[i].operation);
    }
    TRY(choose_blocks(host, &meeting->arrival[first].operation, &launch));
    return tt_cuda((int)tt_norm_start(&launch, stream), "launching the fused RMSNorm");
}

static ncclResult_t start_on_own_streams(struct tt_host *host, const struct tt_meeting *meeting)
{
    struct tt_group *group = host->group;
    for (int first = TT_NORM_RANKS; first < group->size; first += TT_NORM_RANKS) {
        cudaStream_t other = tt_group_stream(group, first / TT_NORM_RANKS);
        if (other == NULL) {
            return ncclUnhandledCudaError;
        }
        TRY_CUDA(cudaStreamWaitEvent(other, group->fork, 0));
        TRY(start_some(host, meeting, first, true, other));
    }
    return ncclSuccess;
}

// Launches that meet run side by side, so that each needs a stream: all but the first one of the
// group's. Whatever fails, `stream` comes behind all that was launched.
static ncclResult_t start_meeting_launches(struct tt_host *host, const struct tt_meeting *meeting,
                                           cudaStream_t stream)
{
    struct tt_group *group = host->group;
    if (group->size > TT_NORM_RANKS) {
        TRY_CUDA(cudaEventRecord(group->fork, stream));
    }
    ncclResult_t result = start_on_own_streams(host, meeting);
    if (result == ncclSuccess) {
        result = start_some(host, meeting, 0, true, stream);
    }
    for (int i = 1; i < TT_GROUP_STREAMS && group->stream[i] != NULL; i++) {
        TRY_CUDA(cudaEventRecord(group->fork, group->stream[i]));
        TRY_CUDA(cudaStreamWaitEvent(stream, group->fork, 0));
    }
    return result;
}

static ncclResult_t start_launches(struct tt_host *host, const struct tt_meeting *meeting,
                                   cudaStream_t stream)
{
    for (int first = 0; first < host->group->size; first += TT_NORM_RANKS) {
        TRY(start_some(host, meeting, first, false, stream));
    }
    return ncclSuccess;
}

// The stream says `number` in its group's word, and waits until all groups have. word: the offset
// of one of struct tt_words.
static ncclResult_t meet_streams(struct tt_host *host, size_t word, uint64_t number,
                                 cudaStream_t stream)
{
    int own = host->group->rank[0];
    TRY_DRIVER(cuStreamWriteValue32(stream, tt_arena_word(host->arena, own, word), (uint32_t)number,
                                    CU_STREAM_WRITE_VALUE_DEFAULT));
    for (int r = 0; r < host->team.nranks; r++) {
        if (r != own && tt_host_leads(host, r)) {
            TRY_DRIVER(cuStreamWaitValue32(stream, tt_arena_word(host->arena, r, word),
                                           (uint32_t)number, CU_STREAM_WAIT_VALUE_GEQ));
        }
    }
    return ncclSuccess;
}

ncclResult_t tt_launch_group(struct tt_host *host, const struct tt_meeting *meeting,
                             cudaStream_t stream)
{
    bool has_work = meeting->arrival[0].operation.tokens > 0;
    if (host->way == TT_WAY_STREAMS) {
        TRY(meet_streams(host, offsetof(struct tt_words, in), meeting->number, stream));
        if (has_work) {
            TRY(start_launches(host, meeting, stream));
        }
        return meet_streams(host, offsetof(struct tt_words, out), meeting->number, stream);
    }
    if (!has_work) {
        return ncclSuccess;
    }
    return host->way == TT_WAY_BARRIERS ? start_meeting_launches(host, meeting, stream)
                                        : start_launches(host, meeting, stream);
}

ncclResult_t tt_launch_rank(struct tt_host *host, const struct tt_rmsnorm *operation,
                            cudaStream_t stream)
{
    struct tt_norm_launch launch = describe(host, operation, operation->nranks > 1);
    add_rank(&launch, operation);
    if (operation->tokens == 0) {
        return ncclSuccess;
    }
    TRY(choose_blocks(host, operation, &launch));
    return tt_cuda((int)tt_norm_start(&launch, stream), "launching the fused RMSNorm");
}
