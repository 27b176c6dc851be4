// Layout and checks of what a device communicator is asked for, without any device.
// SPDX-License-Identifier: Apache-2.0
#include "window/requirements.h"

#include "comm/comm.h"
#include "expect.h"

#include <stdlib.h>
#include <string.h>

static struct ncclComm comm = {.rank = 5, .nranks = 8, .lsa_rank = 1, .lsa_size = 4};

static struct tt_requirements *copy_of(const ncclDevCommRequirements_t *needs)
{
    struct tt_requirements *copy = NULL;
    if (!EXPECT_OK(tt_requirements_copy(&comm, needs, &copy)) ||
        !EXPECT_OK(tt_requirements_lay_out(&comm, copy))) {
        abort();
    }
    return copy;
}

static void nothing(void)
{
    ncclDevCommRequirements_t needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    struct tt_requirements *copy = copy_of(&needs);
    EXPECT_EQ(copy->total_bytes, 128);
    EXPECT_EQ(copy->lsa_barrier.nBarriers, 0);
    EXPECT_EQ(copy->buffer_count, 0);
    free(copy);
}

static void packed(void)
{
    enum { COUNT = 40 };
    ncclDevResourceRequirements_t list[COUNT];
    memset(list, 0, sizeof list);
    for (int i = 0; i < COUNT; i++) {
        list[i].next = i + 1 < COUNT ? &list[i + 1] : NULL;
        list[i].bufferSize = (size_t)(i * i * 37 % 5000);
        list[i].bufferAlign = i % 4 == 0 ? 0 : (size_t)1 << (i % 22);
    }
    ncclDevCommRequirements_t needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    needs.lsaBarrierCount = 3;
    needs.resourceRequirementsList = list;
    struct tt_requirements *copy = copy_of(&needs);
    size_t end = 3 * ncclLsaBarrierWords(comm.lsa_size) * sizeof(uint32_t);
    EXPECT_EQ(copy->buffer_count, COUNT);
    for (int i = 0; i < COUNT; i++) {
        size_t alignment = list[i].bufferAlign > 128 ? list[i].bufferAlign : 128;
        EXPECT(copy->buffer[i].offset >= end);
        EXPECT(copy->buffer[i].offset < end + alignment); // no more than the alignment is lost
        EXPECT_EQ(copy->buffer[i].offset % alignment, 0);
        end = copy->buffer[i].offset + list[i].bufferSize;
    }
    EXPECT_EQ(copy->total_bytes, end);
    free(copy);
}

static void refuse(const ncclDevCommRequirements_t *needs, ncclResult_t result)
{
    struct tt_requirements *copy = NULL;
    EXPECT_EQ(tt_requirements_copy(&comm, needs, &copy), result);
    EXPECT(copy == NULL);
}

static void refused(void)
{
    const ncclDevCommRequirements_t good = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    ncclDevCommRequirements_t needs;
    memset(&needs, 0, sizeof needs); // as in 2.28
    refuse(&needs, ncclInvalidUsage);
    needs = good;
    needs.version = NCCL_VERSION(2, 29, 3);
    refuse(&needs, ncclInvalidUsage);
    needs = good;
    needs.size = 8;
    refuse(&needs, ncclInvalidUsage);
    needs = good;
    needs.worldGinBarrierCount = 1;
    refuse(&needs, ncclInvalidArgument);
    needs = good;
    needs.barrierCount = -1;
    refuse(&needs, ncclInvalidArgument);
    needs = good;
    needs.ginConnectionType = NCCL_GIN_CONNECTION_RAIL;
    refuse(&needs, ncclInvalidArgument);
    needs = good;
    needs.lsaLLA2ABlockCount = 1;
    refuse(&needs, ncclInvalidUsage);
    ncclDevResourceRequirements_t buffer = {.ginCounterCount = 1};
    needs = good;
    needs.resourceRequirementsList = &buffer;
    refuse(&needs, ncclInvalidArgument);
    ncclTeamRequirements_t team = {.team = {2, 1, 2}, .multimem = true};
    needs = good;
    needs.teamRequirementsList = &team;
    refuse(&needs, ncclInvalidArgument); // the other member would be rank -1
    team.multimem = false;
    struct tt_requirements *copy = copy_of(&needs);
    EXPECT(!copy->lsa_multimem);
    EXPECT_EQ(copy->views, 0);
    free(copy);
    team = (ncclTeamRequirements_t){.team = {2, 0, 2}, .multimem = true};
    copy = copy_of(&needs);
    EXPECT(!copy->lsa_multimem);
    EXPECT_EQ(copy->views, 1);
    free(copy);
    team = (ncclTeamRequirements_t){.team = {4, 1, 1}, .multimem = true};
    copy = copy_of(&needs);
    EXPECT(copy->lsa_multimem);
    free(copy);
}

// More than 32-bit handles can name.
static void lists_without_end(void)
{
    ncclDevResourceRequirements_t buffers[5] = {0};
    ncclTeamRequirements_t teams[3] = {0};
    for (int i = 0; i < 5; i++) {
        buffers[i].next = &buffers[i + 1 < 5 ? i + 1 : 0];
        buffers[i].bufferSize = 64;
    }
    for (int i = 0; i < 3; i++) {
        teams[i].next = i + 1 < 3 ? &teams[i + 1] : NULL;
        teams[i].team = (ncclTeam_t){4, 1, 1};
    }
    for (int back = 0; back < 5; back++) {
        ncclDevCommRequirements_t needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
        buffers[4].next = &buffers[back];
        needs.resourceRequirementsList = buffers;
        refuse(&needs, ncclInvalidArgument);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "resourceRequirementsList does not end");
    }
    for (int back = 0; back < 3; back++) {
        ncclDevCommRequirements_t needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
        needs.teamRequirementsList = teams;
        free(copy_of(&needs));
        teams[2].next = &teams[back];
        refuse(&needs, ncclInvalidArgument);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "teamRequirementsList does not end");
        teams[2].next = NULL;
    }
}

static void too_large(void)
{
    ncclDevResourceRequirements_t list[2] = {{.bufferSize = (size_t)500 << 30},
                                             {.bufferSize = (size_t)100 << 30}};
    list[0].next = &list[1];
    ncclDevCommRequirements_t needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    needs.resourceRequirementsList = list;
    struct tt_requirements *copy = NULL;
    EXPECT_OK(tt_requirements_copy(&comm, &needs, &copy));
    EXPECT_EQ(tt_requirements_lay_out(&comm, copy), ncclInvalidArgument);
    free(copy);
    list[1].bufferSize = SIZE_MAX - 4;
    EXPECT_OK(tt_requirements_copy(&comm, &needs, &copy));
    EXPECT_EQ(tt_requirements_lay_out(&comm, copy), ncclInvalidArgument);
    free(copy);
}

static void signatures(void)
{
    ncclDevCommRequirements_t needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    char text[96];
    struct tt_requirements *copy = copy_of(&needs);
    uint64_t none = tt_requirements_signature(copy, text, sizeof text);
    free(copy);
    needs.lsaBarrierCount = 2;
    copy = copy_of(&needs);
    uint64_t two = tt_requirements_signature(copy, text, sizeof text);
    EXPECT(none != two);
    EXPECT_EQ(two, tt_requirements_signature(copy, text, sizeof text));
    EXPECT_CONTAINS(text, "2 LSA barriers");
    free(copy);
}

int main(void)
{
    RUN(nothing);
    RUN(packed);
    RUN(refused);
    RUN(lists_without_end);
    RUN(too_large);
    RUN(signatures);
    return expect_result();
}
