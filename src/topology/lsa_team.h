// The LSA team: the consecutive ranks whose memory kernels can load and store.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_TOPOLOGY_LSA_TEAM_H
#define TT_TOPOLOGY_LSA_TEAM_H

#include "topology/peer.h"

// All teams have one size, and world ranks m * size .. (m + 1) * size - 1 are team m. The size is
// the greatest common divisor of the lengths of the runs of neighbouring ranks that share a host
// and a machine; `forced` (NCCL_LSA_TEAM_SIZE, 0: not set) takes part in it, so it can only make
// teams smaller. peers: [nranks], host and machine_hash are read. Results: this rank's place in its
// team, and the size (at least 1).
void tt_lsa_team(const struct tt_peer *peers, int nranks, int rank, int forced, int *lsa_rank,
                 int *lsa_size);

#endif
