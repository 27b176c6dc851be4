// What local.c and descriptors.c share. SPDX-License-Identifier: Apache-2.0
#ifndef TT_COMM_LOCAL_INTERNAL_H
#define TT_COMM_LOCAL_INTERNAL_H

#include <stdatomic.h>
#include <stdint.h>

// The ranks of one communicator in this process.
struct tt_local_group {
    struct tt_local_group *next; // local.c's mutex
    int references;              // local.c's mutex
    uint64_t hash;
    int size;
    int *world_rank;             // [size], ascending
    void **slots;                // [size]; slot i written by rank i between two barriers
    _Atomic int arrived;         // at the barrier
    _Atomic uint32_t generation; // of the barrier; release by the last to come, acquire by the waiting
    _Atomic int failed;          // a rank gave up: nobody may wait for it
};

// One rank's part.
struct tt_local {
    struct tt_local_group *group;
    int index;                   // among the process's ranks
    int *sockets;                // leader: [processes] connections to the others' leaders, -1 none; NULL before the first use
    int socket_count;
};

void tt_local_close_sockets(struct tt_local *local);

#endif
