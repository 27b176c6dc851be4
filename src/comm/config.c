// Configurations: every version's structure read into one complete ncclConfig_t. See comm.h. SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "base/params.h"
#include "comm/comm.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

struct int_field {
    const char *name;
    size_t offset;
    unsigned since;            // fields newer than the caller's version are not read
    int least, most, standard; // standard NCCL_CONFIG_UNDEF_INT: stays undefined
};

#define FIELD(name) #name, offsetof(ncclConfig_t, name)
static const struct int_field fields[] = {
    {FIELD(blocking), 21400, 0, 1, 1},
    {FIELD(cgaClusterSize), 21700, 0, 8, 4},
    {FIELD(minCTAs), 21700, 1, INT_MAX, 1},
    {FIELD(maxCTAs), 21700, 1, INT_MAX, 64},
    {FIELD(splitShare), 21700, 0, 1, 0},
    {FIELD(trafficClass), 22500, INT_MIN, INT_MAX, NCCL_CONFIG_UNDEF_INT},
    {FIELD(collnetEnable), 22700, 0, 1, 0},
    {FIELD(CTAPolicy), 22700, 0, NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO,
     NCCL_CTA_POLICY_DEFAULT},
    {FIELD(shrinkShare), 22700, 0, 1, 0},
    {FIELD(nvlsCTAs), 22700, 1, INT_MAX, NCCL_CONFIG_UNDEF_INT},
    {FIELD(nChannelsPerNetPeer), 22800, 1, 64, NCCL_CONFIG_UNDEF_INT},
    {FIELD(nvlinkCentricSched), 22800, 0, 1, 0},
    {FIELD(graphUsageMode), 22900, 0, 2, 2},
    {FIELD(numRmaCtx), 22900, 0, INT_MAX, 1},
    {FIELD(maxP2pPeers), 23000, 1, INT_MAX, NCCL_CONFIG_UNDEF_INT},
    {FIELD(graphStreamOrdering), 23005, 0, 1, 1},
};
#undef FIELD
enum {
    MAX_CTAS = 64,
    LARGEST_SIZE = 4096, // of a structure of any version that will be
    FIRST_VERSION = 21400,
    LAST_VERSION = 29999, // of NCCL 2
};

static int *field_of(ncclConfig_t *config, const struct int_field *field)
{
    return (int *)(void *)((char *)config + field->offset);
}

// Takes what the caller's structure has; fields that its version does not know become undefined.
static ncclResult_t copy_known(const ncclConfig_t *config, const char *call, ncclConfig_t *out)
{
    static const ncclConfig_t undefined = NCCL_CONFIG_INITIALIZER;
    *out = undefined;
    if (config->magic != NCCL_API_MAGIC) {
        return tt_fail(ncclInvalidArgument,
                       "%s: config->magic is %#x, must be %#x; begin with NCCL_CONFIG_INITIALIZER",
                       call, config->magic, NCCL_API_MAGIC);
    }
    if (config->size < offsetof(ncclConfig_t, cgaClusterSize) || config->size > LARGEST_SIZE) {
        return tt_fail(ncclInvalidArgument,
                       "%s: config->size is %zu, must be %zu to %d; "
                       "begin with NCCL_CONFIG_INITIALIZER",
                       call, config->size, offsetof(ncclConfig_t, cgaClusterSize), LARGEST_SIZE);
    }
    if (config->version < FIRST_VERSION || config->version > LAST_VERSION) {
        return tt_fail(ncclInvalidArgument,
                       "%s: config->version is %u, must be a version of NCCL, %d to %d; "
                       "begin with NCCL_CONFIG_INITIALIZER",
                       call, config->version, FIRST_VERSION, LAST_VERSION);
    }
    memcpy(out, config, config->size < sizeof *out ? config->size : sizeof *out);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (config->version < fields[i].since) {
            *field_of(out, &fields[i]) = NCCL_CONFIG_UNDEF_INT;
        }
    }
    out->netName = config->version < 21700 ? NULL : out->netName;
    out->commName = config->version < 22700 ? NULL : out->commName;
    return ncclSuccess;
}

// A network that is asked for by name must be there; without a name any will do.
static ncclResult_t check_network(const char *name, const char *call)
{
    static const char *const networks[] = {"Socket"};
    char list[64] = "";
    for (size_t i = 0; i < sizeof networks / sizeof networks[0]; i++) {
        if (name == NULL || strcasecmp(name, networks[i]) == 0) {
            return ncclSuccess;
        }
        (void)snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i > 0 ? ", " : "",
                       networks[i]);
    }
    return tt_fail(ncclInvalidUsage,
                   "%s: config->netName is \"%.40s\", a network that this library does not have; "
                   "it has: %s",
                   call, name, list);
}

ncclResult_t tt_config_read(const ncclConfig_t *config, const struct ncclComm *parent,
                            const char *call, ncclConfig_t *out)
{
    static const ncclConfig_t undefined = NCCL_CONFIG_INITIALIZER;
    *out = undefined;
    if (config == NULL && parent != NULL) {
        *out = parent->config;
        return ncclSuccess;
    }
    if (config != NULL) {
        TRY(copy_known(config, call, out));
    }
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        int *value = field_of(out, &fields[i]);
        if (*value == NCCL_CONFIG_UNDEF_INT) {
            *value = fields[i].standard;
        } else if (*value < fields[i].least || *value > fields[i].most) {
            return tt_fail(ncclInvalidArgument, "%s: config->%s is %d, must be %d to %d", call,
                           fields[i].name, *value, fields[i].least, fields[i].most);
        }
    }
    TRY(check_network(out->netName, call));
    if (out->minCTAs > out->maxCTAs) {
        return tt_fail(ncclInvalidArgument, "%s: config->minCTAs is %d, more than maxCTAs, %d",
                       call, out->minCTAs, out->maxCTAs);
    }
    out->minCTAs = out->minCTAs > MAX_CTAS ? MAX_CTAS : out->minCTAs;
    out->maxCTAs = out->maxCTAs > MAX_CTAS ? MAX_CTAS : out->maxCTAs;
    if (out->CTAPolicy == (NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO)) {
        out->CTAPolicy = NCCL_CTA_POLICY_ZERO;
    }
    if (tt_param_int(TT_PARAM_COMM_BLOCKING) >= 0) {
        out->blocking = (int)tt_param_int(TT_PARAM_COMM_BLOCKING);
    }
    return ncclSuccess;
}
