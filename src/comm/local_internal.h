// What local.c, leaders.c and descriptors.c share.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_COMM_LOCAL_INTERNAL_H
#define TT_COMM_LOCAL_INTERNAL_H

#include "nccl.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ncclComm;

// The ranks of one communicator in this process.
struct tt_local_group {
    struct tt_local_group *next; // local.c's mutex
    int references;              // local.c's mutex
    uint64_t hash;
    int size;
    int *world_rank;             // [size], ascending
    struct tt_peer *peers;       // [nranks] of the communicator, for all ranks of the process
    void **slots;                // [size]; slot i written by rank i between two barriers
    _Atomic int arrived;         // at the barrier
    _Atomic uint32_t generation; // of the barrier; release by the last to come, acquire by the rest
    // 1 while a rank writes the reason, then 2: a rank gave up, nobody may wait for it. Release by
    // who fails, acquire by who waits.
    _Atomic int failed;
    ncclResult_t failure;
    char *failure_text; // NULL: no memory for it
};

// One rank's part.
struct tt_local {
    struct tt_local_group *group;
    int index; // among the process's ranks
    // Leader: connections to the leaders of the machine's other processes, by process number, -1
    // none. NULL before the first use.
    int *sockets;
    int socket_count;
    uint32_t passes; // of descriptors so far; equal on all leaders
};

// leaders.c: connects the leaders of all processes of each machine. Collective over the
// communicator.
ncclResult_t tt_leaders_connect(struct ncclComm *comm);
void tt_leaders_disconnect(struct tt_local *local);
// Waits for `events` of fd, at most `patience_ms` (0: for ever). Fails when the communicator is
// aborted or has failed; *in_time_out false: the time is up.
ncclResult_t tt_leaders_wait(struct ncclComm *comm, int fd, short events, int patience_ms,
                             bool *in_time_out);

#endif
