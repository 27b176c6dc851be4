// Which way the unique id goes. See exchange.h. SPDX-License-Identifier: Apache-2.0
#include "launch/exchange.h"

#include "base/log.h"
#include "base/params.h"
#include "base/quote.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/wire.h"
#include "launch/numbers.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

// Pretended hosts (TUTTI_FAKE_HOSTS) are all this one.
static bool is_on_one_host(const struct tt_place *place)
{
    return place->local_size == place->size || *tt_param_text(TT_PARAM_FAKE_HOSTS) != 0;
}

// Rank 0 makes the id, or says why it cannot: either is handed on, so that nobody waits for it.
static void make_offer(const struct tt_place *place, struct tt_offer *offer)
{
    *offer = (struct tt_offer){.magic = TT_OFFER_MAGIC};
    offer->result = (int32_t)tt_bootstrap_make_id(
        is_on_one_host(place) ? TT_REACH_HOST : TT_REACH_HOSTS, &offer->id);
    if (offer->result != ncclSuccess) {
        (void)snprintf(offer->text, sizeof offer->text, "%s", tt_thread_error());
    }
}

static ncclResult_t by_file(const struct tt_place *place, const char *path,
                            struct tt_exchange *exchange)
{
    exchange->way = "a file";
    if (place->rank != 0) {
        return tt_file_take(place, path, &exchange->offer);
    }
    make_offer(place, &exchange->offer);
    return tt_file_put(exchange, path);
}

static ncclResult_t by_pmix(const struct tt_place *place, struct tt_exchange *exchange)
{
    exchange->way = "PMIx";
    if (place->rank == 0) {
        make_offer(place, &exchange->offer);
    }
    return tt_pmix_exchange(place, exchange->turn, &exchange->offer);
}

static ncclResult_t by_munge(const struct tt_place *place, const struct tt_address *address,
                             struct tt_exchange *exchange)
{
    exchange->way = "munge";
    if (place->rank != 0) {
        return tt_credentials_take(place, address, &exchange->offer);
    }
    make_offer(place, &exchange->offer);
    return tt_credentials_put(exchange, address);
}

// Every further communicator of the process has the port behind: those before may still be there.
static ncclResult_t by_address(const struct tt_place *place, const char *text, const char *setting,
                               struct tt_exchange *exchange)
{
    struct tt_address address;
    const char *why = NULL;
    TRY(tt_address_find(text, setting, place->rank == 0, &address));
    if (exchange->turn > 65535 - address.port) {
        return tt_fail(ncclInvalidUsage,
                       "%s: communicator %d of this process would meet at port %d, which there is "
                       "not: use a lower port",
                       setting, exchange->turn + 1, address.port + exchange->turn);
    }
    address.port = (uint16_t)(address.port + exchange->turn);
    if (*tt_param_text(TT_PARAM_SECRET) == 0 && tt_munge_is_there(&why)) {
        return by_munge(place, &address, exchange);
    }
    if (*tt_param_text(TT_PARAM_SECRET) == 0 && !tt_address_is_loopback(&address) &&
        tt_param_int(TT_PARAM_INSECURE) == 0) {
        return tt_fail(ncclInvalidUsage,
                       "rank %d: the ranks would meet at %s (%s), where anybody can come: set "
                       "TUTTI_SECRET, the same on all ranks, or TUTTI_RENDEZVOUS=file:PATH, a file "
                       "that all of them see, or run munge (%s; TUTTI_MUNGE_SOCKET says where it "
                       "listens); TUTTI_INSECURE=1 does without",
                       place->rank, text, setting, why);
    }
    exchange->way = "an address";
    exchange->offer.result = ncclSuccess;
    return tt_bootstrap_fixed_id(&address, setting, &exchange->offer.id);
}

static ncclResult_t by_rendezvous(const struct tt_place *place, const char *text,
                                  struct tt_exchange *exchange)
{
    char path[PATH_MAX];
    exchange->setting = "TUTTI_RENDEZVOUS";
    (void)snprintf(exchange->meeting, sizeof exchange->meeting, "%s", tt_quote(text).text);
    if (strncmp(text, "file:", 5) != 0) {
        return by_address(place, text, "TUTTI_RENDEZVOUS", exchange);
    }
    int length = exchange->turn == 0
                     ? snprintf(path, sizeof path, "%s", text + 5)
                     : snprintf(path, sizeof path, "%s.%d", text + 5, exchange->turn);
    if (text[5] == 0 || length >= (int)sizeof path) {
        return tt_fail(ncclInvalidArgument, "TUTTI_RENDEZVOUS=%s: %s", tt_quote(text).text,
                       text[5] == 0 ? "no path behind file:" : "the path is too long");
    }
    return by_file(place, path, exchange);
}

static ncclResult_t by_file_of_job(const struct tt_place *place, struct tt_exchange *exchange)
{
    struct tt_place own = *place;
    char path[PATH_MAX];
    (void)snprintf(own.job, sizeof own.job, "%d#%.240s", exchange->turn, place->job);
    TRY(tt_file_of_job(&own, path, sizeof path));
    return by_file(place, path, exchange);
}

static ncclResult_t exchange_any(const struct tt_place *place, struct tt_exchange *exchange)
{
    const char *rendezvous = tt_param_text(TT_PARAM_RENDEZVOUS);
    if (place->size == 1) {
        exchange->way = "nobody";
        make_offer(place, &exchange->offer);
        return ncclSuccess;
    }
    if (strcmp(place->source, "pmix") == 0) {
        return by_pmix(place, exchange);
    }
    if (*rendezvous != 0) {
        return by_rendezvous(place, rendezvous, exchange);
    }
    if (is_on_one_host(place) && place->job[0] != 0) {
        return by_file_of_job(place, exchange);
    }
    if (place->meeting[0] != 0) {
        exchange->setting = place->meant_by;
        (void)snprintf(exchange->meeting, sizeof exchange->meeting, "%s",
                       tt_quote(place->meeting).text);
        return by_address(place, place->meeting, place->meant_by, exchange);
    }
    return tt_fail(ncclInvalidUsage,
                   "rank %d of %d (%s): nothing says where the ranks meet: set "
                   "TUTTI_RENDEZVOUS=file:PATH, a file that all of them see, or host:port, an "
                   "address of rank 0, the same on all ranks",
                   place->rank, place->size, place->source);
}

ncclResult_t tt_exchange_begin(const struct tt_place *place, int turn, struct tt_exchange *exchange,
                               ncclUniqueId *id_out)
{
    exchange->turn = turn;
    exchange->fd = exchange->listener = exchange->wake = -1;
    if (sodium_init() < 0) {
        return tt_fail(ncclSystemError, "libsodium does not start: no source of random numbers");
    }
    TRY(exchange_any(place, exchange));
    const struct tt_offer *offer = &exchange->offer;
    if (offer->failed_ns != 0) {
        return tt_fail(ncclRemoteError, "rank %d: the start has failed before this rank came: %s",
                       place->rank, offer->text);
    }
    if (offer->result != ncclSuccess) {
        return place->rank == 0
                   ? (ncclResult_t)offer->result // its text is this thread's last
                   : tt_fail(ncclRemoteError, "rank %d: rank 0 makes no unique id: %.200s",
                             place->rank, offer->text);
    }
    *id_out = offer->id;
    return ncclSuccess;
}

void tt_exchange_end(struct tt_exchange *exchange, ncclResult_t result)
{
    tt_file_end(exchange, result);
    tt_credentials_end(exchange);
    sodium_memzero(&exchange->offer, sizeof exchange->offer);
}
