// One window, made by all ranks together: what each rank brings is checked and compared, the flat
// range and the multicast view are made, and the window is described to kernels.
// SPDX-License-Identifier: Apache-2.0
#include "base/gpu.h"
#include "base/log.h"
#include "comm/comm.h"
#include "comm/meet.h"
#include "window/window_internal.h"

#include <stdio.h>
#include <stdlib.h>

enum { REQUIRED_ALIGNMENT = NCCL_WIN_REQUIRED_ALIGNMENT };
static const size_t smallest_stride = (size_t)2 << 20;
// From this stride on, members are one granule further apart than a power of two: processors that
// predict a cache way by the low 27 or so bits of an address would take their copies for one
// another (measured on AMD Zen 5: storing to two members in turn at a distance of 128 MiB is 5
// times slower).
static const size_t skewed_stride = (size_t)8 << 20;
// Where every team's multicast range is said to start. Windows add their own distance to it, so any
// address serves; this one is never mapped, and using it as it is faults.
static char *const multicast_anchor = (char *)NCCL_MULTIMEM_ANCHOR;

// What a rank tells the others about its part.
struct claim {
    struct tt_verdict verdict;
    uint64_t bytes, offset, allocation_bytes, granularity, signature;
    int32_t number;
    uint8_t supported, multimem;
    char signature_text[96];
};

// ---- This rank's part
// ------------------------------------------------------------------------------------------------------

// Whether the memory is an allocation that can be shared, of the communicator's device. Holds it.
static void inspect_allocation(struct ncclComm *comm, const struct tt_wish *wish,
                               struct tt_registered *registered, struct tt_verdict *verdict)
{
    CUdeviceptr pointer = (CUdeviceptr)(uintptr_t)wish->pointer;
    CUdeviceptr base = 0;
    size_t allocated = 0;
    if (cuMemRetainAllocationHandle(&registered->memory, wish->pointer) != CUDA_SUCCESS ||
        cuMemGetAddressRange(&base, &allocated, pointer) != CUDA_SUCCESS) {
        registered->memory = 0;
        tt_verdict_fail(verdict, ncclInvalidArgument,
                        "buff %p is not memory that ranks can share; allocate it with ncclMemAlloc "
                        "or cuMemCreate",
                        wish->pointer);
        return;
    }
    registered->memory_held = true;
    CUmemAllocationProp properties;
    if (!tt_verdict_driver(verdict,
                           cuMemGetAllocationPropertiesFromHandle(&properties, registered->memory),
                           "cuMemGetAllocationPropertiesFromHandle")) {
        return;
    }
    registered->offset = pointer - base;
    registered->allocation_bytes = allocated;
    if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        properties.location.id != comm->cuda_device) {
        tt_verdict_fail(
            verdict, ncclInvalidArgument,
            "buff %p lies on %s, but the communicator's is %s; call cudaSetDevice before "
            "ncclMemAlloc",
            wish->pointer, tt_gpu(properties.location.id)->name, tt_gpu(comm->cuda_device)->name);
    } else if (wish->bytes > allocated - registered->offset) {
        tt_verdict_fail(
            verdict, ncclInvalidArgument,
            "buff %p + %zu bytes ends beyond its allocation, which has %zu bytes from buff on",
            wish->pointer, wish->bytes, allocated - registered->offset);
    } else if (registered->offset % REQUIRED_ALIGNMENT != 0) {
        tt_verdict_fail(verdict, ncclInvalidArgument,
                        "buff %p is %zu bytes into its allocation; that must be a multiple of %d "
                        "(as addresses from "
                        "ncclMemAlloc are)",
                        wish->pointer, registered->offset, REQUIRED_ALIGNMENT);
    }
}

static void make_claim(struct ncclComm *comm, const struct tt_wish *wish,
                       struct tt_registered *registered, struct claim *claim)
{
    claim->verdict = wish->verdict;
    claim->number = wish->number;
    claim->bytes = wish->bytes;
    claim->signature = wish->signature;
    (void)snprintf(claim->signature_text, sizeof claim->signature_text, "%s",
                   wish->signature_text != NULL ? wish->signature_text : "");
    claim->supported = tt_symmetric_obstacle(comm) == NULL;
    if (claim->verdict.result == ncclSuccess) {
        if (wish->pointer == NULL) {
            tt_verdict_fail(&claim->verdict, ncclInvalidArgument,
                            "buff is NULL, expected memory from ncclMemAlloc");
        } else if (wish->bytes == 0) {
            tt_verdict_fail(&claim->verdict, ncclInvalidArgument,
                            "size is 0, expected at least one byte");
        }
    }
    if (!claim->supported || claim->verdict.result != ncclSuccess) {
        return;
    }
    claim->multimem = tt_multicast_possible(comm);
    inspect_allocation(comm, wish, registered, &claim->verdict);
    claim->offset = registered->offset;
    claim->allocation_bytes = registered->allocation_bytes;
    claim->granularity = tt_memory_granularity(
        comm->cuda_device, claim->multimem ? comm->lsa_size : 0, &claim->verdict);
}

// ---- What all ranks brought
// ------------------------------------------------------------------------------------------------

static ncclResult_t compare_claims(const struct ncclComm *comm, const struct claim *all,
                                   const char *what)
{
    for (int r = 0; r < comm->nranks; r++) {
        if (all[r].verdict.result != ncclSuccess) {
            return tt_fail((ncclResult_t)all[r].verdict.result, "%s: rank %d: %.235s", what, r,
                           all[r].verdict.text);
        }
    }
    for (int r = 1; r < comm->nranks; r++) {
        if (all[r].number != all[0].number) {
            return tt_fail(
                ncclInvalidUsage,
                "%s: rank 0 makes window %d, rank %d window %d; all ranks must register the "
                "same windows in the same order",
                what, all[0].number, r, all[r].number);
        }
        if (all[r].signature != all[0].signature) {
            return tt_fail(ncclInvalidArgument,
                           "%s: ranks differ: rank 0 asks for %.95s, rank %d for %.95s", what,
                           all[0].signature_text, r, all[r].signature_text);
        }
        if (all[r].bytes != all[0].bytes) {
            return tt_fail(
                ncclInvalidArgument,
                "%s: sizes differ: rank 0 has %zu bytes, rank %d has %zu; all ranks must "
                "give the same size",
                what, (size_t)all[0].bytes, r, (size_t)all[r].bytes);
        }
        if (all[r].supported && all[0].supported && all[r].offset != all[0].offset) {
            return tt_fail(ncclInvalidArgument,
                           "%s: offsets in the allocation differ: %zu bytes on rank 0, %zu on rank "
                           "%d; they must be equal",
                           what, (size_t)all[0].offset, (size_t)all[r].offset, r);
        }
    }
    return ncclSuccess;
}

static ncclResult_t size_range(const struct ncclComm *comm, const struct claim *all,
                               const char *what, struct tt_agreement *agreement)
{
    size_t granularity = 1;
    size_t smallest = SIZE_MAX;
    agreement->supported = true;
    agreement->multimem = true;
    for (int r = 0; r < comm->nranks; r++) {
        granularity = all[r].granularity > granularity ? all[r].granularity : granularity;
        smallest = all[r].allocation_bytes < smallest ? all[r].allocation_bytes : smallest;
        agreement->supported = agreement->supported && all[r].supported;
        agreement->multimem = agreement->multimem && all[r].multimem;
    }
    if (!agreement->supported) {
        return ncclSuccess;
    }
    size_t needed = all[0].offset + all[0].bytes;
    agreement->span = (needed + granularity - 1) / granularity * granularity;
    agreement->stride = smallest_stride;
    while (agreement->stride < agreement->span && agreement->stride <= SIZE_MAX / 4) {
        agreement->stride *= 2;
    }
    if (agreement->stride >= skewed_stride) {
        agreement->stride += granularity > smallest_stride ? granularity : smallest_stride;
    }
    if (agreement->span < needed || agreement->span > smallest) {
        return tt_fail(ncclInvalidArgument,
                       "%s: %zu bytes rounded up to the granularity of %zu do not fit the smallest "
                       "allocation of %zu bytes; allocate with ncclMemAlloc",
                       what, needed, granularity, smallest);
    }
    if (agreement->stride > (SIZE_MAX >> 17) / (size_t)comm->lsa_size) { // 47 bits of address space
        return tt_fail(ncclInvalidArgument,
                       "%s: %d members of %zu bytes do not fit the address space", what,
                       comm->lsa_size, (size_t)all[0].bytes);
    }
    return ncclSuccess;
}

static ncclResult_t agree_on_claims(struct ncclComm *comm, const struct tt_wish *wish,
                                    struct tt_registered *registered,
                                    struct tt_agreement *agreement)
{
    struct claim *all = calloc((size_t)comm->nranks, sizeof *all);
    if (all == NULL) {
        return tt_fail(ncclSystemError, "rank %d: no memory for the claims of %d ranks", comm->rank,
                       comm->nranks);
    }
    make_claim(comm, wish, registered, &all[comm->rank]);
    ncclResult_t result = tt_meet_allgather(comm, all, sizeof *all);
    if (result == ncclSuccess) {
        result = compare_claims(comm, all, wish->what);
    }
    if (result == ncclSuccess) {
        result = size_range(comm, all, wish->what, agreement);
    }
    free(all);
    return result;
}

// ---- The window
// ------------------------------------------------------------------------------------------------------------

// Fills in the window and writes its description for kernels.
static bool describe(struct ncclComm *comm, const struct tt_wish *wish,
                     struct tt_registered *registered, struct tt_verdict *verdict)
{
    const struct tt_flat *flat = registered->flat;
    struct tt_window *window = &registered->window;
    window->user_pointer = wish->pointer;
    window->bytes = wish->bytes;
    window->flat_base = (char *)(uintptr_t)flat->base + registered->offset;
    window->stride = flat->stride;
    window->multimem_base =
        flat->alias_mapped ? (char *)(uintptr_t)flat->alias + registered->offset : NULL;
    window->number = wish->number;
    registered->image = (struct ncclWindow_vidmem){
        .winHost = registered,
        .lsaFlatBase = window->flat_base,
        .stride = window->stride,
        .size = window->bytes,
        .mcOffset = window->multimem_base != NULL
                        ? (uintptr_t)window->multimem_base - (uintptr_t)multicast_anchor
                        : 0,
        .lsaRank = comm->lsa_rank,
        .worldRank = comm->rank,
        .lsaSize = comm->lsa_size,
        .number = window->number,
    };
    static const uint64_t no_views[NCCL_MULTIMEM_VIEWS];
    char *handle = NULL;
    size_t bytes = sizeof registered->image + sizeof no_views;
    if (!tt_verdict_cuda(verdict, cudaMalloc((void **)&handle, bytes), "cudaMalloc")) {
        return false;
    }
    window->handle = (ncclWindow_t)(void *)handle;
    if (!tt_windows_upload(comm->windows, handle + sizeof registered->image, no_views,
                           sizeof no_views, verdict)) {
        return false;
    }
    if (!tt_windows_upload(comm->windows, handle, &registered->image, sizeof registered->image,
                           verdict)) {
        return false;
    }
    tt_window_announce(comm, registered);
    return true;
}

static ncclResult_t create_in_steps(struct ncclComm *comm, const struct tt_wish *wish,
                                    struct tt_registered *registered,
                                    const struct tt_agreement *agreement)
{
    struct tt_verdict verdict = {0};
    TRY(tt_flat_create(comm, registered, agreement, &verdict));
    TRY(tt_agree(comm, &verdict, wish->what));
    if (agreement->multimem) {
        ncclTeam_t *teams = tt_lsa_teams(comm);
        if (teams == NULL) {
            return tt_fail(ncclSystemError, "rank %d: no memory for %d teams", comm->rank,
                           comm->nranks);
        }
        ncclResult_t result =
            tt_multicast_create(comm, teams, registered->memory, registered->flat, &verdict);
        free(teams);
        TRY(result);
    }
    if (verdict.result == ncclSuccess) {
        (void)describe(comm, wish, registered, &verdict);
    }
    if (verdict.result == ncclSuccess && wish->number > 0) {
        (void)tt_windows_add(comm->windows, registered, &verdict);
    }
    TRY(tt_agree(comm, &verdict, wish->what));
    return tt_views_add(comm, registered);
}

ncclResult_t tt_registered_create(struct ncclComm *comm, struct tt_wish *wish,
                                  struct tt_registered **registered_out)
{
    char what[96];
    *registered_out = NULL;
    (void)snprintf(what, sizeof what, "%s, %s", tt_call_name() != NULL ? tt_call_name() : "?",
                   wish->what);
    tt_meet_describe(comm, what);
    (void)tt_windows_get(comm, &wish->verdict);
    struct tt_registered nowhere = {0};
    struct tt_registered *registered = calloc(1, sizeof *registered);
    if (registered == NULL) {
        tt_verdict_fail(&wish->verdict, ncclSystemError,
                        "no memory for the description of a window");
        registered = &nowhere; // the others must hear of it
    }
    registered->comm = comm;
    registered->nranks = comm->nranks;
    registered->windows = comm->windows;
    registered->sequence = comm->windows != NULL ? comm->windows->sequence : 0;
    struct tt_agreement agreement = {0};
    ncclResult_t result = agree_on_claims(comm, wish, registered, &agreement);
    if (result == ncclSuccess && agreement.supported) {
        result = create_in_steps(comm, wish, registered, &agreement);
    }
    if (registered != &nowhere) {
        if (result != ncclSuccess || !agreement.supported) {
            tt_registered_destroy(registered);
        } else {
            tt_handles_add(registered);
            *registered_out = registered;
        }
    }
    return result;
}

void tt_registered_destroy(struct tt_registered *registered)
{
    if (registered == NULL) {
        return;
    }
    tt_handles_remove(registered);
    if (registered->listed) {
        tt_windows_remove(registered->windows, registered);
    }
    if (registered->window.handle != NULL) {
        tt_window_withdraw(registered);
        (void)cudaFree(registered->window.handle);
    }
    for (int v = 0; v < NCCL_MULTIMEM_VIEWS; v++) {
        tt_flat_drop(registered->view[v]);
    }
    tt_flat_drop(registered->flat);
    if (registered->memory_held) {
        (void)cuMemRelease(registered->memory);
    }
    free(registered);
}

ncclMultimemHandle_t tt_multimem_handle(bool available)
{
    return (ncclMultimemHandle_t){available ? multicast_anchor : NULL};
}
