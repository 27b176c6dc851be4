// Rendezvous of the ranks of one communicator over authenticated sockets, and the small collectives
// that set-up needs.
//
// A unique id carries a root's address, its number and a random secret (libsodium). One thread of
// the process that made the ids serves all its roots; each rank keeps one connection to its root.
// Nothing that a peer says is believed before it has proved the secret, and every frame is sealed.
// All calls block, watch the communicator's abort flag and end with an error when a rank dies.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_BOOTSTRAP_H
#define TT_BOOTSTRAP_H

#include "nccl.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tt_bootstrap;
struct tt_address;

// Where a unique id's ranks may be.
enum tt_reach { TT_REACH_HOST, TT_REACH_HOSTS };

// Starts a root in this process and describes it in *id_out.
ncclResult_t tt_bootstrap_make_id(enum tt_reach reach, ncclUniqueId *id_out);
// The id of a rendezvous at an address that all ranks know: rank 0 opens it when it joins. The
// secret is TUTTI_SECRET; without one ncclInvalidUsage off loopback, unless TUTTI_INSECURE=1.
// setting: what has given the address, for messages.
ncclResult_t tt_bootstrap_fixed_id(const struct tt_address *address, const char *setting,
                                   ncclUniqueId *id_out);
// Nobody will join with this id: what this process keeps for it goes, where it has made it.
void tt_bootstrap_drop_id(const ncclUniqueId *id);
// Joins as `rank` of `nranks`; returns when all have joined, or with an error on all ranks that
// names the conflicting claims (same rank twice, different nranks, other library version) or, after
// TUTTI_INIT_TIMEOUT, the missing ranks.
ncclResult_t tt_bootstrap_join(const ncclUniqueId *id, int rank, int nranks,
                               const _Atomic uint32_t *abort_flag,
                               struct tt_bootstrap **bootstrap_out);
// data: nranks slots of `bytes` bytes, the caller's own filled; all filled on return. Collective.
ncclResult_t tt_bootstrap_allgather(struct tt_bootstrap *bootstrap, void *data, size_t bytes);
ncclResult_t tt_bootstrap_barrier(struct tt_bootstrap *bootstrap);
// What the next exchanges are for, for the line that names ranks that are late for one: the public
// call. "": making the communicator.
void tt_bootstrap_describe(struct tt_bootstrap *bootstrap, const char *what);
// Whether the communicator has been ended by a rank that failed or died: its error, else
// ncclSuccess. Never blocks; any thread, also while another one is inside a call.
ncclResult_t tt_bootstrap_look(struct tt_bootstrap *bootstrap);
// Whether a look, or a call, has found that; any thread, at any time.
bool tt_bootstrap_has_failed(const struct tt_bootstrap *bootstrap);
// After a failure: its text, and the rank whose death it was (-1: of none).
const char *tt_bootstrap_failure(const struct tt_bootstrap *bootstrap);
int tt_bootstrap_dead_rank(const struct tt_bootstrap *bootstrap);
// [nranks]: 1 where the rank has left in good order (acquire: what it did before is visible).
const _Atomic unsigned char *tt_bootstrap_left(const struct tt_bootstrap *bootstrap);

// To learn of all that without a call: `watcher`, an epoll descriptor, gets the connection under
// `key`. It wakes once there is something to look at, from tt_bootstrap_arm on; who is woken says
// so (tt_bootstrap_woken) and looks, and is then woken again.
ncclResult_t tt_bootstrap_watch(struct tt_bootstrap *bootstrap, int watcher, void *key);
void tt_bootstrap_arm(struct tt_bootstrap *bootstrap);
void tt_bootstrap_woken(struct tt_bootstrap *bootstrap);

// For a rank that cannot join (text says why) or that lies outside: tells the ranks that wait for
// each other under this id, so that they fail instead of waiting. Bounded.
void tt_bootstrap_denounce(const ncclUniqueId *id, int rank, int nranks, const char *text);
// Tells the others that this rank failed, so that their pending calls end with "rank 2 failed:
// text". Never blocks. try: false where another thread is inside a call; nothing was told then.
void tt_bootstrap_report_failure(struct tt_bootstrap *bootstrap, const char *text);
bool tt_bootstrap_try_reporting(struct tt_bootstrap *bootstrap, const char *text);
// The id's secret stretched for another purpose (fd sockets): `label` keeps the keys of different
// uses apart.
void tt_bootstrap_derive_key(const struct tt_bootstrap *bootstrap, const char *label,
                             unsigned char key_out[32]);
// A clean leave (orderly) or a drop; accepts NULL. Where the root is in this process: returns when
// the root has told the others, so that the process may end at once.
void tt_bootstrap_leave(struct tt_bootstrap *bootstrap);

#endif
