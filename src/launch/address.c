// An address that is given by name. See exchange.h. SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "base/quote.h"
#include "bootstrap/interface.h"
#include "launch/exchange.h"
#include "launch/numbers.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>

ncclResult_t tt_address_find(const char *text, const char *setting, bool is_own,
                             struct tt_address *address_out)
{
    char host[256];
    int port;
    if (!tt_read_host_port(text, host, sizeof host, &port)) {
        bool is_ours = strcmp(setting, "TUTTI_RENDEZVOUS") == 0;
        return tt_fail(ncclInvalidArgument,
                       is_ours ? "%s=%s: must be file:PATH, host:port or [address]:port, with a "
                                 "port from 1 to 65535"
                               : "%s: they give %s as the ranks' meeting place, which is no "
                                 "host:port; TUTTI_RENDEZVOUS gives another one",
                       setting, tt_quote(text).text);
    }
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int error = getaddrinfo(host, NULL, &hints, &found);
    if (error != 0) {
        return tt_fail(ncclSystemError,
                       "%s: the host %s, where the ranks were to meet, is not known here: %s; "
                       "TUTTI_RENDEZVOUS gives another meeting place",
                       setting, tt_quote(host).text, gai_strerror(error));
    }
    const struct addrinfo *best = found; // IPv4 where there is both: more networks carry it
    for (const struct addrinfo *a = found; a != NULL && best->ai_family != AF_INET;
         a = a->ai_next) {
        best = a->ai_family == AF_INET ? a : best;
    }
    struct sockaddr_storage copy = {0};
    memcpy(&copy, best->ai_addr, best->ai_addrlen);
    freeaddrinfo(found);
    tt_address_from_socket(&copy, address_out);
    // Many hosts know their own name as an address of the loopback, where nobody else comes in.
    bool is_numeric = strspn(host, "0123456789.") == strlen(host) || strchr(host, ':') != NULL;
    if (is_own && tt_address_is_loopback(address_out) && !is_numeric &&
        strcmp(host, "localhost") != 0) {
        TRY(tt_interface_pick(TT_REACH_HOSTS, address_out));
    }
    address_out->port = (uint16_t)port;
    return ncclSuccess;
}
