// Buffers of other ranks: how a rank tells where its own are, and how it gets at the others'.
//
// Ranks of one process use addresses. Between processes a rank makes the pieces of virtual device
// memory known that hold its buffers (vgpu/share.h), in its part of the arena; readers map them
// once and keep them until the owner has freed them. Host memory of another process cannot be
// reached. All for whoever has the rank's turn (host.h).
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXEC_CPU_BUFFERS_H
#define TT_EXEC_CPU_BUFFERS_H

#include "exec/cpu/host.h"

struct tt_buffers *tt_buffers_new(int nranks); // NULL: no memory
void tt_buffers_free(struct tt_buffers *memory);

// New work begins: what earlier work told of may be forgotten for it.
void tt_buffers_begin(struct tt_buffers *memory);
// How other processes find `bytes` bytes at `address`, for tt_buffers_reach; 0: they cannot.
// Valid until this rank's work ends.
uint64_t tt_buffers_tell(struct tt_host *host, const void *address, size_t bytes);
// Whether a buffer that `rank` told of can be reached from here.
static inline bool tt_buffers_is_reachable(const struct tt_host *host, int rank, uint64_t shared)
{
    return shared != 0 || host->team.process[rank] == host->team.process[host->rank];
}
// A buffer of `bytes` bytes of another rank, as an address of this process: `address` where it is
// that rank's process, else what it told as `shared`. ncclRemoteError where that rank's process has
// died, before others have heard of it, perhaps.
ncclResult_t tt_buffers_reach(struct tt_host *host, int rank, uint64_t address, uint64_t shared,
                              size_t bytes, char **out);
// Copies between buffers, which do not overlap; counted where the runtime counts what moves.
void tt_buffers_move(void *to, const void *from, size_t bytes);

#endif
