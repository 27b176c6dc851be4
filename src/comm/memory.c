// What communicators hold: for ncclCommMemStats, and in the log. See comm.h.
// SPDX-License-Identifier: Apache-2.0
#include "base/holdings.h"
#include "base/log.h"
#include "comm/board.h"
#include "comm/comm.h"
#include "comm/local_internal.h"
#include "exec/executor.h"
#include "window/window.h"

void tt_comm_memory(const struct ncclComm *comm, struct tt_comm_memory *memory_out)
{
    struct tt_memory memory = {0};
    const struct tt_local *local = comm->local;
    size_t connections = comm->bootstrap != NULL;
    if (comm->arena != NULL) {
        tt_executor->arena_memory(comm->arena, &memory);
    }
    if (comm->board != NULL) {
        memory.mappings += tt_board_bytes(comm->board) / (size_t)comm->nranks;
    } else if (comm->arena != NULL) {
        memory.mappings += tt_executor->arena_bytes(comm->nranks);
    }
    memory.mappings += tt_windows_memory(comm);
    for (int p = 0; local != NULL && local->sockets != NULL && p < local->socket_count; p++) {
        connections += local->sockets[p] >= 0;
    }
    *memory_out = (struct tt_comm_memory){.scratch = memory.scratch,
                                          .staging = memory.staging,
                                          .mappings = memory.mappings,
                                          .connections = connections};
}

void tt_comm_log_memory(const struct ncclComm *comm)
{
    struct tt_comm_memory memory;
    tt_comm_memory(comm, &memory);
    tt_log(TT_LOG_INFO, TT_LOG_DESTROY,
           "comm %p rank %d held scratch %zu, staging %zu, mappings %zu bytes; %zu connection%s",
           (const void *)comm, comm->rank, memory.scratch, memory.staging, memory.mappings,
           memory.connections, memory.connections == 1 ? "" : "s");
}

void tt_comm_log_rest(void)
{
    char text[160];
    tt_holdings_describe(text, sizeof text);
    tt_log(TT_LOG_INFO, TT_LOG_DESTROY, "all communicators of this process hold %s", text);
}
