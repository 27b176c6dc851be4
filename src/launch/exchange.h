// How the unique id comes from rank 0 to the others, where no program carries it. The first way
// that there is: a rendezvous that the user gives, PMIx, a 0600 file where all ranks are on one
// host, an address of rank 0 with TUTTI_SECRET or munge. See ARCHITECTURE.md, idea 6.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_LAUNCH_EXCHANGE_H
#define TT_LAUNCH_EXCHANGE_H

#include "launch/sources.h"

#include <limits.h>
#include <pthread.h>
#include <stdint.h>

// What rank 0 hands on: an id, or why there is none.
struct tt_offer {
    uint64_t magic;
    int32_t result;     // ncclResult_t
    uint64_t failed_ns; // when the start failed, CLOCK_REALTIME; 0: it has not
    uint64_t machine;   // whose clock
    ncclUniqueId id;
    char text[256];
};
#define TT_OFFER_MAGIC UINT64_C(0x3266666f74747574)

// From begin to end of one exchange; zeroed before.
struct tt_exchange {
    const char *way;     // for people: "PMIx"
    const char *setting; // what the user gave the meeting place by; NULL: nothing
    char meeting[256];   // that place, quoted
    // Of rank 0: the file, locked while it is valid; -1: none.
    int fd;
    char path[PATH_MAX];
    // Of rank 0: the thread that hands out credentials.
    bool serves;
    pthread_t server;
    int listener;
    int wake; // eventfd: enough
    int turn; // which communicator of the process
    struct tt_offer offer;
};

// Gives every rank rank 0's id; turn: how many communicators were begun so before, the same on all
// ranks. Waits for rank 0, at most TUTTI_INIT_TIMEOUT. To be ended once all have joined, whatever
// it returns. ncclInvalidUsage where there is no way, with what to set.
ncclResult_t tt_exchange_begin(const struct tt_place *place, int turn, struct tt_exchange *exchange,
                               ncclUniqueId *id_out);
// result: of the start. Ranks that come late hear of a failure, as tt_last_error tells it,
// where the way can keep it.
void tt_exchange_end(struct tt_exchange *exchange, ncclResult_t result);

// ---- The ways: each one file. Rank 0's part puts exchange->offer out, others' part takes it.
// -----

// file.c. The path's folder must be there; a file of rank 0's that has ended is not believed.
ncclResult_t tt_file_put(struct tt_exchange *exchange, const char *path);
ncclResult_t tt_file_take(const struct tt_place *place, const char *path, struct tt_offer *out);
// Removes the file; after a failure its text stays in its place, for ranks of this job that come
// late: for processes that began before it.
void tt_file_end(struct tt_exchange *exchange, ncclResult_t result);
// The path of a file for a job of this host, in a folder that only this user can enter; made where
// it is not there.
ncclResult_t tt_file_of_job(const struct tt_place *place, char *path, size_t bytes);

// launch.c. When the process began, in ticks since its machine did; 0: not known.
long long tt_process_start(int pid);

// pmix.c, or pmix_absent.c where its headers were not there: libpmix, loaded at run time. Asking,
// where it succeeds, begins a use of PMIx that tt_pmix_release ends; a communicator that stays has
// one more, unless the program uses PMIx itself (false). The last one ends it.
bool tt_pmix_ask(struct tt_place *place, const char **why_out);
bool tt_pmix_hold(void);
void tt_pmix_release(void);
ncclResult_t tt_pmix_exchange(const struct tt_place *place, int turn, struct tt_offer *offer);

// munge.c, or munge_absent.c. Whether munge answers; *why_out: why it does not.
bool tt_munge_is_there(const char **why_out);
// The bytes as a credential that only processes of this user can read, on any host of the cluster.
// *text_out: a text, to be freed.
ncclResult_t tt_munge_seal(const void *data, size_t bytes, char **text_out);
// What a credential of this user's own holds. ncclRemoteError: it is none, somebody else's, used up
// or too old.
ncclResult_t tt_munge_open(const char *text, void *data, size_t bytes);

// address.c: "host:port" as an address. is_own: rank 0's, to listen at.
struct tt_address;
ncclResult_t tt_address_find(const char *text, const char *setting, bool is_own,
                             struct tt_address *address_out);
// credentials.c: rank 0 gives the offer to whoever asks at the address, sealed by munge.
ncclResult_t tt_credentials_put(struct tt_exchange *exchange, const struct tt_address *address);
ncclResult_t tt_credentials_take(const struct tt_place *place, const struct tt_address *address,
                                 struct tt_offer *out);
void tt_credentials_end(struct tt_exchange *exchange);

#endif
