// See interface.h. SPDX-License-Identifier: Apache-2.0
#include "bootstrap/interface.h"

#include "base/log.h"
#include "base/params.h"
#include "base/quote.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ncclResult_t tt_interface_parse(const char *text, struct tt_address *address_out)
{
    char host[64];
    const char *colon = strrchr(text, ':');
    size_t length = colon == NULL ? 0 : (size_t)(colon - text);
    bool bracketed = length >= 2 && text[0] == '[' && text[length - 1] == ']';
    char *end = NULL;
    unsigned long port = colon == NULL ? 0 : strtoul(colon + 1, &end, 10);
    if (length == 0 || length >= sizeof host || port == 0 || port > 65535 || *end != 0) {
        return tt_fail(ncclInvalidArgument,
                       "NCCL_COMM_ID=%s: must be address:port or [address]:port",
                       tt_quote(text).text);
    }
    (void)snprintf(host, sizeof host, "%.*s", (int)(bracketed ? length - 2 : length),
                   text + bracketed);
    memset(address_out, 0, sizeof *address_out);
    address_out->port = (uint16_t)port;
    address_out->family = bracketed ? AF_INET6 : AF_INET;
    if (inet_pton(address_out->family, host, address_out->bytes) != 1) {
        return tt_fail(ncclInvalidArgument, "NCCL_COMM_ID=%s: %s is no numeric address", text,
                       host);
    }
    return ncclSuccess;
}

static bool is_named(const char *list, const char *name)
{
    bool inverted = *list == '^';
    bool exact = list[inverted] == '=';
    char copy[256];
    (void)snprintf(copy, sizeof copy, "%s", list + inverted + exact);
    char *rest = copy;
    for (char *word; (word = strsep(&rest, ",")) != NULL;) {
        if (*word != 0 &&
            (exact ? strcmp(word, name) == 0 : strncmp(word, name, strlen(word)) == 0)) {
            return !inverted;
        }
    }
    return inverted;
}

ncclResult_t tt_interface_pick(struct tt_address *address_out)
{
    const char *list = tt_param_text(TT_PARAM_SOCKET_IFNAME);
    *address_out = (struct tt_address){.family = AF_INET, .bytes = {127, 0, 0, 1}};
    if (*list == 0) {
        return ncclSuccess;
    }
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0) {
        return tt_fail(ncclSystemError, "listing the network interfaces: %m");
    }
    bool found = false;
    for (const struct ifaddrs *i = all; i != NULL && !found; i = i->ifa_next) {
        bool usable = i->ifa_addr != NULL && (i->ifa_flags & IFF_UP) != 0 &&
                      (i->ifa_addr->sa_family == AF_INET || i->ifa_addr->sa_family == AF_INET6);
        if (usable && is_named(list, i->ifa_name)) {
            struct sockaddr_storage copy = {0};
            memcpy(&copy, i->ifa_addr,
                   i->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                                     : sizeof(struct sockaddr_in6));
            tt_address_from_socket(&copy, address_out);
            found = true;
        }
    }
    freeifaddrs(all);
    if (!found) {
        return tt_fail(ncclInvalidUsage,
                       "NCCL_SOCKET_IFNAME=%s names no interface that is up with an address",
                       tt_quote(list).text);
    }
    address_out->port = 0;
    return ncclSuccess;
}
