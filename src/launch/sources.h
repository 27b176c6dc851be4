// Which rank of which job this process is, from what launchers leave in the environment: one table
// of sources, in the order in which they are asked.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_LAUNCH_SOURCES_H
#define TT_LAUNCH_SOURCES_H

#include "nccl.h"

#include <stdbool.h>

// What a process is in its job.
struct tt_place {
    const char *source; // its name in the table, "slurm"; "none": nobody launched it
    int rank, size;
    int local_rank;       // among the ranks of this host
    int local_size;       // ranks of this host; 0: not known
    char job[256];        // tells jobs of one user on one host apart; "": not known
    char meeting[256];    // "host:port", an address of rank 0 to meet at; "": not known
    const char *meant_by; // the variables that `meeting` comes from
};

struct tt_environment {
    // The value of a variable; NULL: not set.
    const char *(*get)(void *context, const char *name);
    // Asks the PMIx server of this process: fills rank, size, local_rank, local_size. False: none
    // answers, and *why_out says why.
    bool (*ask_pmix)(void *context, struct tt_place *place, const char **why_out);
    // Whose process a descriptor's other end is, in words that differ from job to job; false: not
    // known. For PMI_FD.
    bool (*name_peer)(void *context, int fd, char *text, int bytes);
    void *context;
};

// Fills *place_out from the first source that is there; only: the name of a source, which must then
// be there ("": any). Where none is: a job of one rank. ncclInvalidUsage: a source contradicts
// itself, `only` names none, or the environment announces more tasks but nothing tells this one's
// rank.
ncclResult_t tt_sources_find(const struct tt_environment *environment, const char *only,
                             struct tt_place *place_out);

#endif
