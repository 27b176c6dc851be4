// What the ranks of a communicator know of each other.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_TOPOLOGY_PEER_H
#define TT_TOPOLOGY_PEER_H

#include "base/gpu.h"

#include <stdbool.h>
#include <stdint.h>

// What each rank told the others at init; identical on all ranks.
struct tt_peer {
    uint64_t host_hash;    // same value: same host (NCCL_HOSTID and TUTTI_FAKE_HOSTS change it)
    uint64_t machine_hash; // same value: memory can be shared, whatever the host hash says
    uint64_t process_hash; // same value: same process
    unsigned char gpu_uuid[16];
    int cuda_device;     // CUDA's number in its process
    int physical;        // that GPU's number in its machine; -1: not known (base/gpu.h)
    int major, minor;    // compute capability
    bool multicast;      // device attribute and NCCL_NVLS_ENABLE
    bool device_memory;  // virtual memory management usable, NCCL_CUMEM_ENABLE and NCCL_WIN_ENABLE
                         // not 0
    int host;            // index of its host among the communicator's hosts, by first rank
    int process;         // index of its process, by first rank
    uint64_t algorithms; // hash of NCCL_ALGO
    uint64_t random;     // chosen by the rank; rank 0's names the communicator
};

static inline struct tt_gpu_name tt_peer_gpu(const struct tt_peer *peer)
{
    return tt_gpu_name(peer->cuda_device, peer->physical, peer->gpu_uuid);
}

#endif
