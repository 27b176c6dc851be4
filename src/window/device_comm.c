// Device communicators: a resource window with everything that was asked for, and the structure
// that kernels take.
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "comm/comm.h"
#include "comm/group.h"
#include "window/register.h"
#include "window/requirements.h"
#include "window/window_internal.h"

#include <stdlib.h>
#include <string.h>

// Barriers of the library's own kernels: at most so many blocks per device take part in one
// operation.
enum { INTERNAL_LSA_BARRIERS = 528 };

void tt_device_comm_free(struct tt_device_comm *device_comm)
{
    if (device_comm == NULL) {
        return;
    }
    tt_registered_destroy(device_comm->resources);
    if (device_comm->memory != NULL) {
        (void)tt_memory_free(device_comm->memory);
    }
    free(device_comm);
}

// For divisions by x in kernels.
static uint32_t reciprocal(uint32_t x)
{
    return UINT32_MAX / x + ((x & (x - 1)) == 0);
}

static void fill_image(const struct ncclComm *comm, const struct tt_requirements *requirements,
                       struct tt_device_comm *device_comm)
{
    ncclDevComm_t *image = &device_comm->image;
    image->magic = NCCL_API_MAGIC;
    image->version = NCCL_VERSION_CODE;
    image->rank = comm->rank;
    image->nRanks = comm->nranks;
    image->nRanks_rcp32 = reciprocal((uint32_t)comm->nranks);
    image->lsaRank = comm->lsa_rank;
    image->lsaSize = comm->lsa_size;
    image->lsaSize_rcp32 = reciprocal((uint32_t)comm->lsa_size);
    image->windowTable = comm->windows->chunks->device;
    image->resourceWindow = device_comm->resources->window.handle;
    image->resourceWindow_inlined = device_comm->resources->image;
    image->lsaMultimem = tt_multimem_handle(requirements->lsa_multimem &&
                                            device_comm->resources->window.multimem_base != NULL);
    image->lsaBarrier = requirements->lsa_barrier;
    image->hybridLsaBarrier = requirements->hybrid_barrier;
    image->abortFlag = comm->abort_flag_device;
}

// This rank's memory for the resource window, all zero.
static void *make_resources(struct ncclComm *comm, size_t bytes, struct tt_verdict *verdict)
{
    struct tt_windows *windows = tt_windows_get(comm, verdict);
    void *memory = windows != NULL && tt_windows_table(windows, verdict) != NULL
                       ? tt_memory_allocate(comm->cuda_device, bytes, verdict)
                       : NULL;
    if (memory == NULL) {
        return NULL;
    }
    if (!tt_verdict_cuda(verdict, cudaMemsetAsync(memory, 0, bytes, windows->stream),
                         "cudaMemsetAsync") ||
        !tt_verdict_cuda(verdict, cudaStreamSynchronize(windows->stream),
                         "cudaStreamSynchronize")) {
        (void)tt_memory_free(memory);
        return NULL;
    }
    return memory;
}

// Collective. Requirements are laid out. *device_comm_out joins the communicator's list.
static ncclResult_t create(struct ncclComm *comm, const struct tt_requirements *requirements,
                           struct tt_device_comm **device_comm_out)
{
    char text[96];
    struct tt_wish wish = {
        .bytes = requirements->total_bytes,
        .what = "creating a device communicator",
        .signature = tt_requirements_signature(requirements, text, sizeof text),
        .signature_text = text,
    };
    struct tt_device_comm *device_comm = calloc(1, sizeof *device_comm);
    if (device_comm == NULL) {
        tt_verdict_fail(&wish.verdict, ncclSystemError,
                        "no memory for the description of a device communicator");
    } else if ((requirements->lsa_multimem || requirements->views > 0) &&
               !tt_multicast_possible(comm)) {
        tt_verdict_fail(&wish.verdict, ncclInvalidUsage,
                        "multimem was asked for (reqs.lsaMultimem, or by a team requirement), but "
                        "a rank's device has no multicast or "
                        "NCCL_NVLS_ENABLE is 0; load and store through ncclGetLsaPointer instead");
    } else {
        device_comm->memory = make_resources(comm, requirements->total_bytes, &wish.verdict);
        wish.pointer = device_comm->memory;
    }
    struct tt_registered *resources = NULL;
    ncclResult_t result = tt_registered_create(comm, &wish, &resources);
    if (result == ncclSuccess && resources == NULL) {
        result = tt_fail(ncclInvalidUsage,
                         "ncclDevCommCreate: rank %d: a rank cannot share memory with its team",
                         comm->rank);
    }
    if (result != ncclSuccess || device_comm == NULL) {
        tt_device_comm_free(device_comm);
        return result;
    }
    device_comm->resources = resources;
    fill_image(comm, requirements, device_comm);
    device_comm->next = comm->windows->device_comms;
    comm->windows->device_comms = device_comm;
    *device_comm_out = device_comm;
    return ncclSuccess;
}

static ncclResult_t run_creation(struct ncclComm *comm, void *argument)
{
    struct tt_requirements *requirements = argument;
    struct tt_device_comm *device_comm = NULL;
    struct tt_wanted_team *team = tt_requirements_teams(requirements);
    TRY(create(comm, requirements, &device_comm));
    for (int i = 0; i < requirements->team_count; i++) {
        ncclResult_t result =
            team[i].own_view ? tt_view_obtain(comm, team[i].team, &team[i].view) : ncclSuccess;
        if (result != ncclSuccess) {
            comm->windows->device_comms = device_comm->next;
            tt_device_comm_free(device_comm);
            return result;
        }
    }
    for (int i = 0; i < requirements->buffer_count; i++) {
        const struct tt_wanted_buffer *buffer = &requirements->buffer[i];
        if (buffer->handle_out != NULL) {
            *buffer->handle_out = (ncclDevResourceHandle_t)(buffer->offset / 128);
        }
    }
    for (int i = 0; i < requirements->team_count; i++) {
        if (team[i].handle_out != NULL) {
            *team[i].handle_out =
                team[i].own_view ? tt_view_handle(team[i].view) : device_comm->image.lsaMultimem;
        }
    }
    *requirements->device_comm_out = device_comm->image;
    return ncclSuccess;
}

ncclResult_t tt_dev_comm_create(struct ncclComm *comm,
                                const ncclDevCommRequirements_t *requirements,
                                ncclDevComm_t *device_comm_out)
{
    const char *obstacle = tt_symmetric_obstacle(comm);
    if (obstacle != NULL) {
        return tt_fail(
            ncclInvalidUsage,
            "ncclDevCommCreate: this communicator has no device API (see deviceApiSupport of "
            "ncclCommQueryProperties): %s",
            obstacle);
    }
    struct tt_requirements *copy = NULL;
    TRY(tt_requirements_copy(comm, requirements, &copy));
    copy->device_comm_out = device_comm_out;
    ncclResult_t result = tt_requirements_lay_out(comm, copy);
    if (result == ncclSuccess) {
        result = tt_group_submit(comm, TT_GROUP_DEVICE_COMM, run_creation, copy, copy->bytes);
    }
    free(copy);
    return result;
}

// The link to a device communicator of the user's; NULL: there is none with this resource window.
static struct tt_device_comm **find(struct tt_windows *windows, ncclWindow_t resources)
{
    struct tt_device_comm **link = windows != NULL ? &windows->device_comms : NULL;
    while (link != NULL && *link != NULL &&
           (*link == windows->internal || (*link)->image.resourceWindow != resources)) {
        link = &(*link)->next;
    }
    return link != NULL && *link != NULL ? link : NULL;
}

static ncclResult_t run_destruction(struct ncclComm *comm, void *argument)
{
    ncclWindow_t resources;
    memcpy(&resources, argument, sizeof resources);
    struct tt_device_comm **link = find(comm->windows, resources);
    if (link == NULL) {
        return tt_fail(ncclInvalidArgument,
                       "ncclDevCommDestroy: devComm was not made by this communicator (rank %d, "
                       "\"%s\"), or is destroyed already",
                       comm->rank, comm->name);
    }
    struct tt_device_comm *found = *link;
    *link = found->next;
    tt_device_comm_free(found);
    return ncclSuccess;
}

ncclResult_t tt_dev_comm_destroy(struct ncclComm *comm, const ncclDevComm_t *device_comm)
{
    ncclWindow_t resources = device_comm->resourceWindow;
    if (find(comm->windows, resources) == NULL) { // says so
        return run_destruction(comm, &resources);
    }
    return tt_group_launch(comm, TT_GROUP_DEREGISTER, NULL, run_destruction, &resources,
                           sizeof resources);
}

ncclResult_t tt_device_comm_internal(struct ncclComm *comm, bool multimem)
{
    if (comm->windows->internal != NULL) {
        return ncclSuccess;
    }
    struct tt_requirements requirements = {
        .bytes = sizeof requirements,
        .lsa_multimem = multimem,
        .lsa_barrier = {.nBarriers = INTERNAL_LSA_BARRIERS},
    };
    TRY(tt_requirements_lay_out(comm, &requirements));
    return create(comm, &requirements, &comm->windows->internal);
}

const ncclDevComm_t *tt_window_device_comm(const struct ncclComm *comm)
{
    const struct tt_windows *windows = comm->windows;
    return windows != NULL && windows->internal != NULL ? &windows->internal->image : NULL;
}
