// tuttiAllReduceRMSNorm: checks the arguments, resolves addresses to windows, hands one operation
// to the group.
// SPDX-License-Identifier: Apache-2.0
#include "tutti.h"

#include "api/arguments.h"
#include "api/function.h"
#include "base/gpu.h"
#include "base/log.h"
#include "comm/comm.h"
#include "comm/estimate.h"
#include "comm/group.h"
#include "exec/executor.h"
#include "window/window.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static const char function_name[] = "tuttiAllReduceRMSNorm";

// What the group keeps until its end.
struct launch {
    struct tt_rmsnorm operation;
    cudaStream_t stream;
};

// The options as this library knows them: defaults where the caller has none, refused where the
// caller sets fields that this version does not have.
static ncclResult_t read_options(const struct ncclComm *comm,
                                 const struct tuttiRMSNormOptions *options,
                                 struct tuttiRMSNormOptions *out)
{
    *out = (struct tuttiRMSNormOptions)TUTTI_RMSNORM_OPTIONS_INITIALIZER;
    if (options == NULL) {
        return ncclSuccess;
    }
    if (options->size < sizeof *out || options->size > 4096) {
        return tt_fail(ncclInvalidArgument,
                       "%s: rank %d: options->size is %zu; begin with "
                       "TUTTI_RMSNORM_OPTIONS_INITIALIZER (%zu bytes in this version)",
                       function_name, comm->rank, options->size, sizeof *out);
    }
    const char *bytes = (const char *)options;
    for (size_t i = sizeof *out; i < options->size; i++) {
        if (bytes[i] != 0) {
            return tt_fail(ncclInvalidArgument,
                           "%s: rank %d: options have a field at byte %zu that version %d.%d.%d "
                           "does not know",
                           function_name, comm->rank, i, TUTTI_MAJOR, TUTTI_MINOR, TUTTI_PATCH);
        }
    }
    *out = *options;
    if (!(out->eps >= 0.0f && isfinite(out->eps))) {
        return tt_fail(ncclInvalidArgument, "%s: rank %d: eps is %g, must be finite and >= 0",
                       function_name, comm->rank, (double)out->eps);
    }
    return ncclSuccess;
}

// Bytes of an element; 0 for types that the operation does not take.
static size_t element_bytes(ncclDataType_t type)
{
    switch (type) {
    case ncclFloat32:
        return sizeof(float);
    case ncclFloat16:
    case ncclBfloat16:
        return sizeof(uint16_t);
    default:
        return 0;
    }
}

static ncclResult_t check_shape(const struct ncclComm *comm, size_t tokens, size_t hidden,
                                ncclDataType_t type, size_t *element_out, size_t *bytes_out)
{
    size_t element = element_bytes(type);
    if (element == 0) {
        return tt_fail(ncclInvalidArgument,
                       "%s: rank %d: datatype is %d; ncclFloat32 (%d), ncclFloat16 (%d) and "
                       "ncclBfloat16 (%d) are possible",
                       function_name, comm->rank, (int)type, (int)ncclFloat32, (int)ncclFloat16,
                       (int)ncclBfloat16);
    }
    if (hidden == 0) {
        return tt_fail(ncclInvalidArgument, "%s: rank %d: hidden is 0, must be at least 1",
                       function_name, comm->rank);
    }
    size_t bytes;
    if (__builtin_mul_overflow(tokens, hidden, &bytes) ||
        __builtin_mul_overflow(bytes, element, &bytes) || bytes > SIZE_MAX / 2) {
        return tt_fail(
            ncclInvalidArgument,
            "%s: rank %d: tokens (%zu) times hidden (%zu) times %zu bytes is more than an "
            "address space holds",
            function_name, comm->rank, tokens, hidden, element);
    }
    *element_out = element;
    *bytes_out = bytes;
    return ncclSuccess;
}

static ncclResult_t check_alignment(const struct ncclComm *comm, const char *name,
                                    const void *pointer, size_t element)
{
    if (pointer == NULL) {
        return tt_fail(ncclInvalidArgument, "%s: rank %d: %s is NULL", function_name, comm->rank,
                       name);
    }
    if (((uintptr_t)pointer & (element - 1)) != 0) {
        return tt_fail(ncclInvalidArgument,
                       "%s: rank %d: %s %p is not a multiple of the element size, %zu bytes",
                       function_name, comm->rank, name, pointer, element);
    }
    return ncclSuccess;
}

// Finds the window of one of the two buffers; NULL after saying what is wrong.
static const struct tt_window *find_window(const struct ncclComm *comm, const char *name,
                                           const void *pointer, size_t bytes, size_t *offset_out)
{
    const struct tt_window *window = tt_window_find(comm, pointer, bytes, offset_out);
    if (window != NULL) {
        return window;
    }
    window = tt_window_find(comm, pointer, 1, offset_out);
    if (window != NULL) {
        (void)tt_fail(ncclInvalidArgument,
                      "%s: rank %d: %s %p needs %zu bytes, but window %d has %zu left from there",
                      function_name, comm->rank, name, pointer, bytes, window->number,
                      window->bytes - *offset_out);
        return NULL;
    }
    (void)tt_fail(ncclInvalidArgument,
                  "%s: rank %d: %s %p is not in a symmetric window of this communicator; "
                  "register its memory with ncclCommWindowRegister and NCCL_WIN_COLL_SYMMETRIC",
                  function_name, comm->rank, name, pointer);
    return NULL;
}

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    uintptr_t a_start = (uintptr_t)a, b_start = (uintptr_t)b;
    return a_start < b_start + b_bytes && b_start < a_start + a_bytes;
}

// gamma, residual or residualOut: NULL or aligned memory of the communicator's device, or host
// memory that CUDA knows.
static ncclResult_t check_extra(const struct ncclComm *comm, const char *name, const void *pointer,
                                size_t element)
{
    if (pointer == NULL) {
        return ncclSuccess;
    }
    TRY(check_alignment(comm, name, pointer, element));
    struct cudaPointerAttributes attributes;
    TRY_CUDA(cudaPointerGetAttributes(&attributes, pointer));
    if (attributes.type == cudaMemoryTypeUnregistered) {
        return tt_fail(
            ncclInvalidArgument,
            "%s: rank %d: %s %p is host memory that CUDA does not know; use device memory",
            function_name, comm->rank, name, pointer);
    }
    if (attributes.type == cudaMemoryTypeDevice && attributes.device != comm->cuda_device) {
        return tt_fail(ncclInvalidArgument,
                       "%s: rank %d: %s %p is memory of %s, but the communicator's is %s",
                       function_name, comm->rank, name, pointer, tt_gpu(attributes.device)->name,
                       tt_gpu(comm->cuda_device)->name);
    }
    return ncclSuccess;
}

// Memory that is written must not be read as something else in the same operation.
static ncclResult_t check_overlaps(const struct ncclComm *comm,
                                   const struct tuttiRMSNormOptions *options, const void *sendbuff,
                                   const void *recvbuff, size_t hidden_bytes, size_t bytes)
{
    const struct {
        const char *written_name, *other_name;
        const void *written, *other;
        size_t other_bytes;
        bool may_be_equal;
    } pair[] = {
        {"recvbuff", "sendbuff", recvbuff, sendbuff, bytes, true},
        {"recvbuff", "gamma", recvbuff, options->gamma, hidden_bytes, false},
        {"recvbuff", "residual", recvbuff, options->residual, bytes, false},
        {"residualOut", "recvbuff", options->residualOut, recvbuff, bytes, false},
        {"residualOut", "sendbuff", options->residualOut, sendbuff, bytes, false},
        {"residualOut", "gamma", options->residualOut, options->gamma, hidden_bytes, false},
        {"residualOut", "residual", options->residualOut, options->residual, bytes, true},
    };
    for (size_t i = 0; i < sizeof pair / sizeof pair[0]; i++) {
        if (pair[i].written == NULL || pair[i].other == NULL ||
            !overlap(pair[i].written, bytes, pair[i].other, pair[i].other_bytes) ||
            (pair[i].may_be_equal && pair[i].written == pair[i].other)) {
            continue;
        }
        return tt_fail(ncclInvalidArgument,
                       "%s: rank %d: %s %p and %s %p overlap; they must be %sdisjoint",
                       function_name, comm->rank, pair[i].written_name, pair[i].written,
                       pair[i].other_name, pair[i].other, pair[i].may_be_equal ? "equal or " : "");
    }
    return ncclSuccess;
}

// Whether this communicator can run the operation at all.
static ncclResult_t check_communicator(const struct ncclComm *comm)
{
    int error = atomic_load_explicit(&comm->async_error, memory_order_acquire);
    if (error != ncclSuccess && error != ncclInProgress) {
        return tt_fail((ncclResult_t)error,
                       "%s: rank %d: the communicator has failed before (ncclCommGetAsyncError); "
                       "abort it",
                       function_name, comm->rank);
    }
    if (comm->lsa_size != comm->nranks) {
        return tt_fail(
            ncclInvalidUsage,
            "%s: rank %d: needs all ranks in one LSA team; the %d ranks of this "
            "communicator are in teams of %d (ncclCommQueryProperties, nLsaTeams); use a "
            "communicator whose ranks are on one host",
            function_name, comm->rank, comm->nranks, comm->lsa_size);
    }
    return comm->host == NULL ? tt_team_refuse(comm, function_name) : ncclSuccess;
}

static ncclResult_t run_launch(struct ncclComm *comm, void *argument)
{
    struct launch *launch = argument;
    struct tt_rmsnorm *operation = &launch->operation;
    size_t row = operation->hidden * tt_type_bytes(operation->data_type);
    if (tt_estimate_instead(comm, 2 * operation->tokens * row)) {
        return ncclSuccess;
    }
    operation->may_wait = tt_group_may_wait();
    return tt_executor->all_reduce_rmsnorm(operation, launch->stream);
}

static ncclResult_t check_pointers(const struct ncclComm *comm, const void *sendbuff,
                                   const void *recvbuff, const struct tuttiRMSNormOptions *options,
                                   size_t element)
{
    TRY(check_alignment(comm, "sendbuff", sendbuff, element));
    TRY(check_alignment(comm, "recvbuff", recvbuff, element));
    TRY(check_extra(comm, "gamma", options->gamma, element));
    TRY(check_extra(comm, "residual", options->residual, element));
    return check_extra(comm, "residualOut", options->residualOut, element);
}

// Fills the rest of the operation from the two buffers, or says what is wrong with them.
static ncclResult_t resolve(struct ncclComm *comm, const void *sendbuff, const void *recvbuff,
                            const struct tuttiRMSNormOptions *options, size_t hidden_bytes,
                            size_t bytes, struct tt_rmsnorm *operation)
{
    const struct tt_window *input =
        find_window(comm, "sendbuff", sendbuff, bytes, &operation->input_offset);
    const struct tt_window *output =
        input == NULL ? NULL
                      : find_window(comm, "recvbuff", recvbuff, bytes, &operation->output_offset);
    if (output == NULL) {
        return ncclInvalidArgument;
    }
    // As addresses of this rank's registered memory, whichever address the caller gave.
    const char *in = (const char *)input->user_pointer + operation->input_offset;
    const char *out = (const char *)output->user_pointer + operation->output_offset;
    TRY(check_overlaps(comm, options, in, out, hidden_bytes, bytes));
    operation->input =
        (struct tt_symmetric){input->flat_base + operation->input_offset, input->stride};
    operation->output =
        (struct tt_symmetric){output->flat_base + operation->output_offset, output->stride};
    operation->input_window = input->number;
    operation->output_window = output->number;
    operation->input_handle = input->handle;
    operation->output_handle = output->handle;
    return ncclSuccess;
}

// What the caller gave, checked one after the other; fills the operation.
struct call {
    const void *sendbuff;
    void *recvbuff;
    const struct tuttiRMSNormOptions *options;
    cudaStream_t stream;
};

static ncclResult_t prepare(struct ncclComm *comm, const struct call *call,
                            struct tt_rmsnorm *operation)
{
    struct tuttiRMSNormOptions known;
    size_t element = 0, bytes = 0;
    TRY(read_options(comm, call->options, &known));
    TRY(check_shape(comm, operation->tokens, operation->hidden, operation->data_type, &element,
                    &bytes));
    TRY(check_communicator(comm));
    TRY(tt_check_stream(comm, function_name, call->stream));
    operation->eps = known.eps + 0.0f; // -0 is 0, for ranks that compare bits
    if (operation->tokens > 0) {
        operation->gamma = known.gamma;
        operation->residual = known.residual;
        operation->residual_out = known.residualOut;
        TRY(check_pointers(comm, call->sendbuff, call->recvbuff, &known, element));
        TRY(resolve(comm, call->sendbuff, call->recvbuff, &known, operation->hidden * element,
                    bytes, operation));
    }
    operation->host = comm->host;
    operation->device_comm = tt_window_device_comm(comm);
    return ncclSuccess;
}

// NOLINTNEXTLINE(readability-function-size): eight parameters, in the manner of NCCL's collectives
TT_EXPORT ncclResult_t tuttiAllReduceRMSNorm(const void *sendbuff, void *recvbuff, size_t tokens,
                                             size_t hidden,
                                             const struct tuttiRMSNormOptions *options,
                                             ncclDataType_t datatype, ncclComm_t comm,
                                             cudaStream_t stream)
{
    ncclResult_t result = tt_comm_enter(comm, function_name);
    if (result != ncclSuccess) {
        return tt_group_latch(result);
    }
    struct call call = {sendbuff, recvbuff, options, stream};
    struct launch launch = {.stream = stream,
                            .operation = {.rank = comm->rank,
                                          .nranks = comm->nranks,
                                          .tokens = tokens,
                                          .hidden = hidden,
                                          .data_type = datatype}};
    result = prepare(comm, &call, &launch.operation);
    if (result != ncclSuccess) {
        (void)tt_group_latch(result);
    } else {
        result = tt_group_launch(comm, TT_GROUP_LAUNCH, stream, run_launch, &launch, sizeof launch);
    }
    tt_comm_leave(comm);
    return result;
}
