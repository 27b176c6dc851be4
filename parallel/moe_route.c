// Dispatch: a route is made of what all ranks' choices are, then tokens are sent its ways.
// SPDX-License-Identifier: Apache-2.0
#include "device.h"
#include "fail.h"
#include "moe.h"
#include "moe_rails.h"

#include <stdlib.h>

// ---- Making a route -----------------------------------------------------------------------------

static ncclResult_t upload(void *to, const void *from, size_t bytes, cudaStream_t stream)
{
    if (bytes > 0) {
        TRY_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream));
    }
    return ncclSuccess;
}

// The items that other hosts need.
static ncclResult_t hand_out_across(tuttiMoeRoute_t route, const struct moe_plan *plan,
                                    cudaStream_t stream)
{
    tuttiMoe_t moe = route->moe;
    size_t word = sizeof(int32_t), item = moe->item_words * word;
    TRY(moe_reserve_rail(moe, 0, route->out_rows * item, stream));
    TRY(upload(moe->rail[0].memory, plan->out_item, route->out_rows * item, stream));
    TRY(upload(route->out_token, plan->out_token, route->out_rows * word, stream));
    return moe_rails_items(route, (const int32_t *)(const void *)moe->rail[0].memory, stream);
}

// What this rank has planned, into device memory and to whom it concerns. The plan may be freed
// afterwards.
static ncclResult_t hand_out(tuttiMoeRoute_t route, const struct moe_plan *plan,
                             cudaStream_t stream)
{
    tuttiMoe_t moe = route->moe;
    size_t word = sizeof(int32_t), item = moe->item_words * word;
    size_t experts = moe->first_expert[moe->rank + 1] - moe->first_expert[moe->rank];
    TRY(upload(route->pair, plan->pair, route->pairs * moe->record_bytes, stream));
    TRY(upload(route->part, plan->part, route->tokens * (size_t)moe->hosts * word, stream));
    TRY(upload(route->padding, plan->padding, 2 * experts * word, stream));
    TRY(upload(route->item + route->own_first * moe->item_words, plan->own_item,
               route->own_items * item, stream));
    if (moe->hosts > 1) {
        TRY(hand_out_across(route, plan, stream));
    }
    TRY(moe_send_records(route, route->pair, route->record, moe->record_bytes, false, stream));
    TRY_CUDA(cudaStreamSynchronize(stream));
    return ncclSuccess;
}

static ncclResult_t make_route(const struct moe_counts *counts, tuttiMoeRoute_t route)
{
    struct moe_plan plan = {0};
    TRY(moe_layout(route->moe, counts, route));
    ncclResult_t result = moe_plan(counts, route, &plan);
    if (result == ncclSuccess) {
        result = hand_out(route, &plan, route->stream);
    }
    moe_plan_free(&plan);
    return result;
}

static ncclResult_t send_tokens(tuttiMoeRoute_t route, const void *tokens)
{
    tuttiMoe_t moe = route->moe;
    size_t bytes = moe->options.hidden * parallel_type_bytes(moe->options.datatype);
    TRY(moe_reserve(moe, route->most_rows * bytes, route->most_slots * bytes, route->stream));
    struct moe_job job = moe_job_of(route, moe->options.datatype);
    return moe->path->dispatch(route, &job, tokens, route->stream);
}

static void free_route(tuttiMoeRoute_t route)
{
    if (route->memory != NULL) {
        (void)cudaFreeAsync(route->memory, route->stream);
    }
    free(route->counts);
    free(route);
}

static ncclResult_t dispatch(tuttiMoe_t moe, const struct moe_choices *choices,
                             tuttiMoeRoute_t *route, cudaStream_t stream)
{
    struct moe_counts counts = {0};
    ncclResult_t result = moe_count(moe, choices, &counts, stream);
    tuttiMoeRoute_t made = NULL;
    if (result == ncclSuccess) {
        made = calloc(1, sizeof *made);
        result =
            made != NULL ? ncclSuccess : tuttiFail(ncclSystemError, "tuttiMoeDispatch: no memory");
    }
    if (result == ncclSuccess) {
        made->moe = moe;
        made->tokens = counts.tokens;
        made->stream = stream;
        result = make_route(&counts, made);
    }
    if (result == ncclSuccess) {
        result = send_tokens(made, choices->tokens);
    }
    moe_counts_free(&counts);
    if (result != ncclSuccess && made != NULL) {
        free_route(made);
    } else if (result == ncclSuccess && route != NULL) {
        *route = made;
    }
    return result;
}

PARALLEL_EXPORT ncclResult_t tuttiMoeDispatch(tuttiMoe_t moe, const void *tokens, size_t count,
                                              const int32_t *indices, const void *weights,
                                              tuttiMoeRoute_t *route, cudaStream_t stream)
{
    int previous = 0;
    if (moe == NULL) {
        return tuttiFail(ncclInvalidArgument, "tuttiMoeDispatch: moe is NULL");
    }
    if (route != NULL) {
        *route = NULL;
    }
    TRY(tuttiRefuseGroup("tuttiMoeDispatch"));
    TRY(parallel_enter_known_device(moe->device, &previous));
    struct moe_choices choices = {tokens, count, indices, weights, route != NULL};
    ncclResult_t result = dispatch(moe, &choices, route, stream);
    parallel_leave_device(previous);
    return result;
}

PARALLEL_EXPORT ncclResult_t tuttiMoeDispatchAgain(tuttiMoeRoute_t route, const void *tokens,
                                                   cudaStream_t stream)
{
    int previous = 0;
    TRY(moe_check_route("tuttiMoeDispatchAgain", route));
    TRY(tuttiRefuseGroup("tuttiMoeDispatchAgain"));
    TRY(moe_check_array("tuttiMoeDispatchAgain", "tokens", tokens, route->tokens,
                        route->moe->options.datatype, route));
    TRY(parallel_enter_known_device(route->moe->device, &previous));
    route->stream = stream;
    ncclResult_t result = moe_meet_in(route->moe, ncclProd, stream);
    if (result == ncclSuccess) {
        result = send_tokens(route, tokens);
    }
    parallel_leave_device(previous);
    return result;
}

// ---- What a route knows -------------------------------------------------------------------------

ncclResult_t moe_check_route(const char *call, tuttiMoeRoute_t route)
{
    return route != NULL ? ncclSuccess : tuttiFail(ncclInvalidArgument, "%s: route is NULL", call);
}

ncclResult_t moe_check_array(const char *call, const char *name, const void *array, size_t rows,
                             ncclDataType_t type, tuttiMoeRoute_t route)
{
    size_t bytes = parallel_type_bytes(type);
    if (array == NULL && rows > 0) {
        return tuttiFail(ncclInvalidArgument, "%s: rank %d: %s is NULL, but there are %zu rows",
                         call, route->moe->rank, name, rows);
    }
    return (uintptr_t)array % bytes == 0
               ? ncclSuccess
               : tuttiFail(ncclInvalidArgument,
                           "%s: rank %d: %s is %p, must be a multiple of its elements' %zu bytes",
                           call, route->moe->rank, name, array, bytes);
}

PARALLEL_EXPORT ncclResult_t tuttiMoeGetReceived(tuttiMoeRoute_t route,
                                                 struct tuttiMoeReceived *received)
{
    TRY(moe_check_route("tuttiMoeGetReceived", route));
    if (received == NULL) {
        return tuttiFail(ncclInvalidArgument, "tuttiMoeGetReceived: received is NULL");
    }
    const struct tuttiMoe *moe = route->moe;
    size_t first = moe->first_expert[moe->rank];
    *received =
        (struct tuttiMoeReceived){.rows = moe->memory,
                                  .rowCount = route->row_count,
                                  .firstExpert = (int)first,
                                  .experts = (int)(moe->first_expert[moe->rank + 1] - first),
                                  .counts = route->counts,
                                  .offsets = route->offsets};
    return ncclSuccess;
}

PARALLEL_EXPORT ncclResult_t tuttiMoeGetReport(tuttiMoeRoute_t route, struct tuttiMoeReport *report)
{
    TRY(moe_check_route("tuttiMoeGetReport", route));
    if (report == NULL) {
        return tuttiFail(ncclInvalidArgument, "tuttiMoeGetReport: report is NULL");
    }
    *report = route->report;
    return ncclSuccess;
}

PARALLEL_EXPORT ncclResult_t tuttiMoeRouteDestroy(tuttiMoeRoute_t route)
{
    int previous = 0;
    if (route == NULL) {
        return ncclSuccess;
    }
    TRY(parallel_enter_known_device(route->moe->device, &previous));
    ncclResult_t result =
        parallel_cuda((int)cudaStreamSynchronize(route->stream), "cudaStreamSynchronize");
    free_route(route);
    parallel_leave_device(previous);
    return result;
}
