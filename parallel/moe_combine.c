// Combine, and the backward passes. SPDX-License-Identifier: Apache-2.0
#include "device.h"
#include "fail.h"
#include "moe.h"
#include "moe_rails.h"

static ncclDataType_t gradient_type(const struct tuttiMoe *moe)
{
    return moe->options.datatype == ncclFloat64 ? ncclFloat64 : ncclFloat32;
}

// Rows back to their tokens. All ranks meet first: a slot may still be read for what was before.
static ncclResult_t combine(tuttiMoeRoute_t route, const void *rows, void *out, bool backward)
{
    tuttiMoe_t moe = route->moe;
    ncclDataType_t type = backward ? gradient_type(moe) : moe->options.datatype;
    size_t bytes = moe->options.hidden * parallel_type_bytes(type);
    // Never moves the window where `rows` may lie in it: who put them there has reserved the slots.
    TRY(moe_reserve(moe, 0, route->most_slots * bytes, route->stream));
    TRY(moe_meet_in(moe, backward ? ncclMax : ncclSum, route->stream));
    struct moe_job job = moe_job_of(route, type);
    job.weighted = !backward;
    return moe->path->combine(route, &job, rows, out, route->stream);
}

static ncclResult_t checked_combine(const char *call, tuttiMoeRoute_t route, const void *rows,
                                    void *out, cudaStream_t stream)
{
    bool backward = call[sizeof "tuttiMoe" - 1] == 'D'; // tuttiMoeDispatchBackward
    int previous = 0;
    TRY(moe_check_route(call, route));
    TRY(tuttiRefuseGroup(call));
    ncclDataType_t type = backward ? gradient_type(route->moe) : route->moe->options.datatype;
    TRY(moe_check_array(call, backward ? "rowGrads" : "rows", rows, route->row_count, type, route));
    TRY(moe_check_array(call, backward ? "tokenGrads" : "out", out, route->tokens, type, route));
    TRY(parallel_enter_known_device(route->moe->device, &previous));
    route->stream = stream;
    ncclResult_t result = combine(route, rows, out, backward);
    parallel_leave_device(previous);
    return result;
}

PARALLEL_EXPORT ncclResult_t tuttiMoeCombine(tuttiMoeRoute_t route, const void *rows, void *out,
                                             cudaStream_t stream)
{
    return checked_combine("tuttiMoeCombine", route, rows, out, stream);
}

PARALLEL_EXPORT ncclResult_t tuttiMoeDispatchBackward(tuttiMoeRoute_t route, const void *rowGrads,
                                                      void *tokenGrads, cudaStream_t stream)
{
    return checked_combine("tuttiMoeDispatchBackward", route, rowGrads, tokenGrads, stream);
}

// The gradients of records' weights to the tokens' ranks.
static ncclResult_t return_weight_grads(tuttiMoeRoute_t route, struct moe_job job,
                                        void *weight_grads)
{
    tuttiMoe_t moe = route->moe;
    size_t bytes = job.record_choices * moe->weight_bytes;
    TRY(moe_send_records(route, route->record_grad, route->pair_grad, bytes, true, route->stream));
    if (route->tokens == 0 || weight_grads == NULL) {
        return ncclSuccess;
    }
    size_t all = route->tokens * (size_t)moe->options.choices * moe->weight_bytes;
    TRY_CUDA(cudaMemsetAsync(weight_grads, 0, all, route->stream));
    job.record = route->pair;
    job.record_count = route->pairs;
    job.weight_grads = route->pair_grad;
    job.to = weight_grads;
    job.list_width = (size_t)moe->options.choices;
    return moe->path->scatter(route, &job, route->stream);
}

PARALLEL_EXPORT ncclResult_t tuttiMoeCombineBackward(tuttiMoeRoute_t route, const void *outGrads,
                                                     const void *rows, void **rowGrads,
                                                     void *weightGrads, cudaStream_t stream)
{
    static const char call[] = "tuttiMoeCombineBackward";
    int previous = 0;
    TRY(moe_check_route(call, route));
    TRY(tuttiRefuseGroup(call));
    ncclDataType_t type = gradient_type(route->moe);
    TRY(moe_check_array(call, "outGrads", outGrads, route->tokens, type, route));
    TRY(moe_check_array(call, "rows", rows, route->row_count, route->moe->options.datatype, route));
    TRY(moe_check_array(call, "weightGrads", weightGrads, 0, type, route)); // NULL: not wanted
    if (rowGrads == NULL) {
        return tuttiFail(ncclInvalidArgument, "%s: rowGrads is NULL", call);
    }
    tuttiMoe_t moe = route->moe;
    const char *given = rows, *end = moe->memory + moe->rows_room + moe->slots_room;
    if (given != NULL && given >= moe->memory && given < end) {
        return tuttiFail(ncclInvalidArgument,
                         "%s: rank %d: rows is %p, inside the received rows, which this call "
                         "overwrites: must be a copy",
                         call, moe->rank, rows);
    }
    TRY(parallel_enter_known_device(moe->device, &previous));
    route->stream = stream;
    size_t bytes = moe->options.hidden * parallel_type_bytes(type);
    ncclResult_t result =
        moe_reserve(moe, route->most_rows * bytes, route->most_slots * bytes, stream);
    if (result == ncclSuccess) {
        result = moe_meet_in(moe, ncclMin, stream);
    }
    struct moe_job job = moe_job_of(route, type);
    if (result == ncclSuccess) {
        result = moe->path->backward(route, &job, outGrads, rows, stream);
    }
    if (result == ncclSuccess) {
        result = return_weight_grads(route, job, weightGrads);
    }
    *rowGrads = moe->memory;
    parallel_leave_device(previous);
    return result;
}
