// See meet.h. SPDX-License-Identifier: Apache-2.0
#include "comm/meet.h"

#include "base/log.h"
#include "bootstrap/bootstrap.h"
#include "comm/board.h"
#include "comm/comm.h"
#include "comm/family.h"

#include <stdio.h>
#include <string.h>

// A child, which has no rendezvous.
static bool meets_on_board(const struct ncclComm *comm)
{
    return comm->bootstrap == NULL && comm->board != NULL;
}

ncclResult_t tt_meet_allgather(struct ncclComm *comm, void *data, size_t bytes)
{
    if (meets_on_board(comm)) {
        return tt_board_allgather(comm, data, bytes);
    }
    return comm->nranks == 1 ? ncclSuccess : tt_bootstrap_allgather(comm->bootstrap, data, bytes);
}

ncclResult_t tt_meet_barrier(struct ncclComm *comm)
{
    char nothing;
    return tt_meet_allgather(comm, &nothing, 0);
}

static _Thread_local char described[96]; // what this thread's exchanges on a board are for

const char *tt_meet_what(void)
{
    const char *call = tt_call_name();
    if (call == NULL) {
        return "?";
    }
    return strncmp(described, call, strlen(call)) == 0 ? described : call;
}

void tt_meet_describe(struct ncclComm *comm, const char *what)
{
    if (comm->bootstrap != NULL) {
        tt_bootstrap_describe(comm->bootstrap, what);
    } else {
        (void)snprintf(described, sizeof described, "%s", what);
    }
}

ncclResult_t tt_meet_look(struct ncclComm *comm)
{
    if (meets_on_board(comm)) {
        return comm->has_reported ? ncclSuccess : tt_board_look(comm);
    }
    return comm->bootstrap == NULL ? ncclSuccess : tt_bootstrap_look(comm->bootstrap);
}

bool tt_meet_has_failed(const struct ncclComm *comm)
{
    if (meets_on_board(comm)) {
        return tt_board_failure(comm->board, NULL, NULL) != ncclSuccess;
    }
    return comm->bootstrap != NULL && tt_bootstrap_has_failed(comm->bootstrap);
}

void tt_meet_failure(const struct ncclComm *comm, char *text, size_t bytes)
{
    const char *said = "";
    if (meets_on_board(comm) && tt_board_failure(comm->board, NULL, &said) != ncclSuccess) {
        (void)snprintf(text, bytes, "rank %d: %s", comm->rank, said);
        return;
    }
    (void)snprintf(text, bytes, "%s",
                   comm->bootstrap == NULL ? "" : tt_bootstrap_failure(comm->bootstrap));
}

int tt_meet_dead_rank(const struct ncclComm *comm)
{
    int dead = -1;
    if (meets_on_board(comm)) {
        (void)tt_board_failure(comm->board, &dead, NULL);
        return dead;
    }
    return comm->bootstrap == NULL ? -1 : tt_bootstrap_dead_rank(comm->bootstrap);
}

const _Atomic unsigned char *tt_meet_left(const struct ncclComm *comm)
{
    if (meets_on_board(comm)) {
        return tt_board_left(comm->board);
    }
    return comm->bootstrap == NULL ? NULL : tt_bootstrap_left(comm->bootstrap);
}

static void report_on_board(struct ncclComm *comm, const char *text)
{
    char line[500];
    if (atomic_exchange(&comm->has_reported, true)) {
        return;
    }
    (void)snprintf(line, sizeof line, "rank %d failed: %.450s", comm->rank, text);
    tt_board_fail(comm->board, ncclRemoteError, -1, line);
}

void tt_meet_report_failure(struct ncclComm *comm, const char *text)
{
    if (meets_on_board(comm)) {
        report_on_board(comm, text);
    } else {
        tt_bootstrap_report_failure(comm->bootstrap, text);
    }
}

bool tt_meet_try_reporting(struct ncclComm *comm, const char *text)
{
    if (meets_on_board(comm)) {
        report_on_board(comm, text);
        return true;
    }
    return comm->bootstrap == NULL || tt_bootstrap_try_reporting(comm->bootstrap, text);
}

void tt_meet_derive_key(const struct ncclComm *comm, const char *label, unsigned char key_out[32])
{
    if (meets_on_board(comm)) {
        tt_family_derive_key(tt_board_family(comm->board), label, key_out);
    } else {
        tt_bootstrap_derive_key(comm->bootstrap, label, key_out);
    }
}

void tt_meet_leave(struct ncclComm *comm)
{
    tt_bootstrap_leave(comm->bootstrap);
    comm->bootstrap = NULL;
    if (comm->board != NULL) {
        atomic_store_explicit(&tt_board_left(comm->board)[comm->rank], 1, memory_order_release);
        tt_board_release(comm->board);
        comm->board = NULL;
    }
}
