// See interface.h. SPDX-License-Identifier: Apache-2.0
#include "bootstrap/interface.h"

#include "base/log.h"
#include "base/params.h"
#include "base/quote.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdatomic.h>
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

// Whether the interface has a name that is asked for; with no list, whether it leads out of the
// host and not only to its containers and virtual machines.
static bool is_wanted(const struct ifaddrs *interface, const char *list)
{
    static const char *const inner[] = {"docker", "br-", "veth", "virbr", "cni", "podman", "lxc"};
    if (*list != 0) {
        return is_named(list, interface->ifa_name);
    }
    for (size_t i = 0; i < sizeof inner / sizeof inner[0]; i++) {
        if (strncmp(interface->ifa_name, inner[i], strlen(inner[i])) == 0) {
            return false;
        }
    }
    return (interface->ifa_flags & IFF_LOOPBACK) == 0;
}

// Once in a process.
static void tell_choice(const char *name, const struct tt_address *address)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    char text[64];
    if (!atomic_flag_test_and_set(&told)) {
        tt_address_print(address, text, sizeof text);
        *strrchr(text, ':') = 0; // the port is not chosen yet
        tt_log(TT_LOG_INFO, TT_LOG_BOOTSTRAP, "Bootstrap: Using %s:%s", name, text);
    }
}

// Takes the first usable interface; false: there is none. IPv6 addresses of a link alone, which
// other hosts know by another name of the interface, only where the interface was named.
static bool take_first(const struct ifaddrs *all, const char *list, struct tt_address *address_out)
{
    for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
        int family = i->ifa_addr == NULL ? AF_UNSPEC : i->ifa_addr->sa_family;
        if ((i->ifa_flags & IFF_UP) == 0 || (family != AF_INET && family != AF_INET6) ||
            !is_wanted(i, list)) {
            continue;
        }
        struct sockaddr_storage copy = {0};
        memcpy(&copy, i->ifa_addr,
               family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
        tt_address_from_socket(&copy, address_out);
        address_out->port = 0;
        if (*list != 0 || address_out->scope == 0) {
            tell_choice(i->ifa_name, address_out);
            return true;
        }
    }
    return false;
}

ncclResult_t tt_interface_pick(enum tt_reach reach, struct tt_address *address_out)
{
    const struct tt_address loopback = {.family = AF_INET, .bytes = {127, 0, 0, 1}};
    const char *list = tt_param_text(TT_PARAM_SOCKET_IFNAME);
    *address_out = loopback;
    if (*list == 0 && reach == TT_REACH_HOST) {
        tell_choice("lo", address_out);
        return ncclSuccess;
    }
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0) {
        return tt_fail(ncclSystemError, "listing the network interfaces: %m");
    }
    bool found = take_first(all, list, address_out);
    freeifaddrs(all);
    if (!found && *list != 0) {
        return tt_fail(ncclInvalidUsage,
                       "NCCL_SOCKET_IFNAME=%s names no interface that is up with an address",
                       tt_quote(list).text);
    }
    if (!found) {
        *address_out = loopback;
        tell_choice("lo", address_out);
    }
    return ncclSuccess;
}
