// Checks, copy and layout of ncclDevCommRequirements.
// SPDX-License-Identifier: Apache-2.0
#include "window/requirements.h"

#include "base/log.h"
#include "base/params.h"
#include "comm/comm.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RESOURCE_UNIT = 128 };
static const size_t largest_alignment = (size_t)2 << 20; // where the resource window starts
static const size_t largest_resources = (size_t)UINT32_MAX * RESOURCE_UNIT;

struct tt_wanted_team *tt_requirements_teams(struct tt_requirements *requirements)
{
    return (struct tt_wanted_team *)&requirements->buffer[requirements->buffer_count];
}

static ncclResult_t check_header(const ncclDevCommRequirements_t *requirements)
{
    if (requirements->magic != NCCL_API_MAGIC) {
        return tt_fail(ncclInvalidUsage,
                       "ncclDevCommCreate: reqs has magic 0x%x, expected 0x%x; start from "
                       "NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER (NCCL 2.28 had none: recompile with "
                       "this library's header)",
                       requirements->magic, NCCL_API_MAGIC);
    }
    unsigned int oldest = NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, 0);
    if (tt_param_int(TT_PARAM_VERSION_CHECK) != 0 &&
        (requirements->version > NCCL_VERSION_CODE || requirements->version < oldest)) {
        return tt_fail(ncclInvalidUsage,
                       "ncclDevCommCreate: reqs is of version %u, this library takes %u to %d; "
                       "recompile with its "
                       "header, or set NCCL_ENABLE_VERSION_CHECK=0",
                       requirements->version, oldest, NCCL_VERSION_CODE);
    }
    if (requirements->size < sizeof *requirements) {
        return tt_fail(ncclInvalidUsage, "ncclDevCommCreate: reqs has %zu bytes, expected %zu",
                       requirements->size, sizeof *requirements);
    }
    return ncclSuccess;
}

// Counts that only a network can serve.
static ncclResult_t check_network(const ncclDevCommRequirements_t *requirements)
{
    static const char *const advice = "this communicator has no GIN (device-initiated networking)";
    const struct {
        const char *field;
        int value;
    } asked[] = {
        {"ginSignalCount", requirements->ginSignalCount},
        {"ginCounterCount", requirements->ginCounterCount},
        {"railGinBarrierCount", requirements->railGinBarrierCount},
        {"worldGinBarrierCount", requirements->worldGinBarrierCount},
        {"ginConnectionType", (int)requirements->ginConnectionType},
        {"ginForceEnable", requirements->ginForceEnable},
    };
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        if (asked[i].value != 0) {
            return tt_fail(ncclInvalidArgument, "ncclDevCommCreate: reqs.%s is %d, expected 0: %s",
                           asked[i].field, asked[i].value, advice);
        }
    }
    return ncclSuccess;
}

static ncclResult_t check_barriers(const struct ncclComm *comm,
                                   const ncclDevCommRequirements_t *requirements)
{
    int teams = comm->nranks / comm->lsa_size;
    if (requirements->lsaBarrierCount < 0 || requirements->barrierCount < 0) {
        bool lsa = requirements->lsaBarrierCount < 0;
        return tt_fail(ncclInvalidArgument, "ncclDevCommCreate: reqs.%s is %d, expected at least 0",
                       lsa ? "lsaBarrierCount" : "barrierCount",
                       lsa ? requirements->lsaBarrierCount : requirements->barrierCount);
    }
    if (requirements->barrierCount > 0 && teams > 1) {
        return tt_fail(ncclInvalidArgument,
                       "ncclDevCommCreate: reqs.barrierCount is %d, expected 0: there are %d LSA "
                       "teams, and barriers between them need GIN, which this communicator does "
                       "not have; for barriers inside a team use lsaBarrierCount and "
                       "ncclLsaBarrierSession",
                       requirements->barrierCount, teams);
    }
    if (requirements->lsaLLA2ABlockCount != 0 || requirements->lsaLLA2ASlotCount != 0) {
        return tt_fail(ncclInvalidUsage,
                       "ncclDevCommCreate: reqs.lsaLLA2ABlockCount is %d, reqs.lsaLLA2ASlotCount "
                       "is %d, expected 0: a device communicator has no handle for them; put the "
                       "requirement of ncclLLA2ACreateRequirement into "
                       "reqs.resourceRequirementsList",
                       requirements->lsaLLA2ABlockCount, requirements->lsaLLA2ASlotCount);
    }
    return ncclSuccess;
}

static ncclResult_t check_buffer(const ncclDevResourceRequirements_t *node, int index)
{
    if (node->ginSignalCount != 0 || node->ginCounterCount != 0) {
        return tt_fail(ncclInvalidArgument,
                       "ncclDevCommCreate: entry %d of reqs.resourceRequirementsList asks for %d "
                       "GIN signals and %d "
                       "counters, expected 0: this communicator has no GIN",
                       index, node->ginSignalCount, node->ginCounterCount);
    }
    if ((node->bufferAlign & (node->bufferAlign - 1)) != 0 ||
        node->bufferAlign > largest_alignment) {
        return tt_fail(ncclInvalidArgument,
                       "ncclDevCommCreate: entry %d of reqs.resourceRequirementsList has "
                       "bufferAlign %zu, expected a power "
                       "of two of at most %zu",
                       index, node->bufferAlign, largest_alignment);
    }
    return ncclSuccess;
}

static bool is_lsa_team(const struct ncclComm *comm, ncclTeam_t team)
{
    return team.nRanks == comm->lsa_size && team.rank == comm->lsa_rank &&
           (team.stride == 1 || team.nRanks == 1);
}

static ncclResult_t check_team(const struct ncclComm *comm, const ncclTeamRequirements_t *node,
                               int index)
{
    const ncclTeam_t *team = &node->team;
    bool is_team = team->nRanks >= 1 && team->rank >= 0 && team->rank < team->nRanks &&
                   (team->stride != 0 || team->nRanks == 1);
    long long first = comm->lsa_rank - (long long)team->rank * team->stride;
    long long last = first + (long long)(team->nRanks - 1) * team->stride;
    bool inside =
        is_team && first >= 0 && first < comm->lsa_size && last >= 0 && last < comm->lsa_size;
    if (!is_team || (node->multimem && !inside)) {
        return tt_fail(ncclInvalidArgument,
                       "ncclDevCommCreate: entry %d of reqs.teamRequirementsList is rank %d of a "
                       "team of %d ranks with stride %d; expected a team%s of %d ranks",
                       index, team->rank, team->nRanks, team->stride,
                       is_team ? " inside the LSA team" : ", for multimem inside the LSA team",
                       comm->lsa_size);
    }
    return ncclSuccess;
}

// Entries of both lists begin with the pointer to the next.
_Static_assert(offsetof(ncclDevResourceRequirements_t, next) == 0, "next_of");
_Static_assert(offsetof(ncclTeamRequirements_t, next) == 0, "next_of");
static const void *next_of(const void *entry)
{
    const void *next = NULL;
    if (entry != NULL) {
        memcpy(&next, entry, sizeof next);
    }
    return next;
}

static ncclResult_t check_end(const void *first, const char *list)
{
    const void *slow = first;
    const void *fast = next_of(first);
    for (int entries = 1; fast != NULL; entries++) {
        if (fast == slow) {
            return tt_fail(ncclInvalidArgument,
                           "ncclDevCommCreate: reqs.%s does not end: it comes back to one of its "
                           "first %d entries; the last entry's next must be NULL",
                           list, entries);
        }
        slow = next_of(slow);
        fast = next_of(next_of(fast));
    }
    return ncclSuccess;
}

// Both lists, and how many entries they have.
static ncclResult_t check_lists(const struct ncclComm *comm,
                                const ncclDevCommRequirements_t *requirements, int *buffers_out,
                                int *teams_out)
{
    TRY(check_end(requirements->resourceRequirementsList, "resourceRequirementsList"));
    TRY(check_end(requirements->teamRequirementsList, "teamRequirementsList"));
    *buffers_out = *teams_out = 0;
    for (const ncclDevResourceRequirements_t *node = requirements->resourceRequirementsList;
         node != NULL; node = node->next) {
        TRY(check_buffer(node, (*buffers_out)++));
    }
    for (const ncclTeamRequirements_t *node = requirements->teamRequirementsList; node != NULL;
         node = node->next) {
        TRY(check_team(comm, node, (*teams_out)++));
    }
    return ncclSuccess;
}

static void copy_lists(const struct ncclComm *comm, const ncclDevCommRequirements_t *requirements,
                       struct tt_requirements *copy)
{
    for (const ncclDevResourceRequirements_t *node = requirements->resourceRequirementsList;
         node != NULL; node = node->next) {
        copy->buffer[copy->buffer_count++] = (struct tt_wanted_buffer){
            node->bufferSize, node->bufferAlign, 0, node->outBufferHandle};
    }
    struct tt_wanted_team *team = tt_requirements_teams(copy);
    for (const ncclTeamRequirements_t *node = requirements->teamRequirementsList; node != NULL;
         node = node->next) {
        bool own_view = node->multimem && !is_lsa_team(comm, node->team);
        team[copy->team_count++] = (struct tt_wanted_team){
            .team = node->team,
            .own_view = own_view,
            .handle_out = node->multimem ? node->outMultimemHandle : NULL,
        };
        copy->views += own_view;
        copy->lsa_multimem = copy->lsa_multimem || (node->multimem && !own_view);
    }
}

ncclResult_t tt_requirements_copy(const struct ncclComm *comm,
                                  const ncclDevCommRequirements_t *requirements,
                                  struct tt_requirements **copy_out)
{
    int buffers = 0, teams = 0;
    TRY(check_header(requirements));
    TRY(check_network(requirements));
    TRY(check_barriers(comm, requirements));
    TRY(check_lists(comm, requirements, &buffers, &teams));
    size_t bytes = sizeof(struct tt_requirements) +
                   (size_t)buffers * sizeof(struct tt_wanted_buffer) +
                   (size_t)teams * sizeof(struct tt_wanted_team);
    struct tt_requirements *copy = calloc(1, bytes);
    if (copy == NULL) {
        return tt_fail(ncclSystemError,
                       "ncclDevCommCreate: no memory for %zu bytes of requirements", bytes);
    }
    copy->bytes = bytes;
    copy->lsa_multimem = requirements->lsaMultimem;
    copy->lsa_barrier.nBarriers = requirements->lsaBarrierCount;
    copy->hybrid_barrier.nBarriers = requirements->barrierCount;
    copy_lists(comm, requirements, copy);
    *copy_out = copy;
    return ncclSuccess;
}

// Takes `bytes` bytes at the next multiple of the alignment; false where they do not fit what a
// handle can name.
static bool place(size_t *total, size_t bytes, size_t alignment, size_t *offset_out)
{
    size_t unit = alignment > RESOURCE_UNIT ? alignment : RESOURCE_UNIT;
    size_t offset = (*total + unit - 1) / unit * unit;
    if (bytes > largest_resources || offset > largest_resources - bytes) {
        return false;
    }
    *offset_out = offset;
    *total = offset + bytes;
    return true;
}

ncclResult_t tt_requirements_lay_out(const struct ncclComm *comm,
                                     struct tt_requirements *requirements)
{
    size_t total = 0;
    size_t offset = 0;
    size_t record_bytes = ncclLsaBarrierWords(comm->lsa_size) * sizeof(uint32_t);
    ncclLsaBarrierHandle_t *const barriers[] = {&requirements->lsa_barrier,
                                                &requirements->hybrid_barrier};
    bool fits = true;
    for (size_t i = 0; fits && i < sizeof barriers / sizeof barriers[0]; i++) {
        fits = place(&total, (size_t)barriers[i]->nBarriers * record_bytes, RESOURCE_UNIT, &offset);
        barriers[i]->bufHandle = (ncclDevResourceHandle_t)(offset / RESOURCE_UNIT);
    }
    for (int i = 0; fits && i < requirements->buffer_count; i++) {
        struct tt_wanted_buffer *buffer = &requirements->buffer[i];
        fits = place(&total, buffer->bytes, buffer->alignment, &buffer->offset);
    }
    if (!fits) {
        return tt_fail(
            ncclInvalidArgument,
            "ncclDevCommCreate: reqs asks for more than the %zu bytes that handles can name",
            largest_resources);
    }
    requirements->total_bytes = total > 0 ? total : RESOURCE_UNIT;
    return ncclSuccess;
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ (hash >> 29);
}

uint64_t tt_requirements_signature(const struct tt_requirements *requirements, char *text,
                                   size_t text_bytes)
{
    (void)snprintf(
        text, text_bytes,
        "%d LSA barriers, %d world barriers, %d buffers, %zu bytes in all%s, %d teams' multimem",
        requirements->lsa_barrier.nBarriers, requirements->hybrid_barrier.nBarriers,
        requirements->buffer_count, requirements->total_bytes,
        requirements->lsa_multimem ? ", multimem" : "", requirements->views);
    uint64_t hash = mix(0, (uint64_t)requirements->lsa_barrier.nBarriers);
    hash = mix(hash, (uint64_t)requirements->hybrid_barrier.nBarriers);
    hash = mix(hash, requirements->lsa_multimem);
    hash = mix(hash, (uint64_t)requirements->views);
    for (int i = 0; i < requirements->buffer_count; i++) {
        hash = mix(hash, requirements->buffer[i].bytes);
        hash = mix(hash, requirements->buffer[i].offset);
    }
    return mix(hash, requirements->total_bytes);
}
