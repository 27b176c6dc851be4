// One stage of a group: its jobs, side by side where they must be.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_COMM_STAGE_H
#define TT_COMM_STAGE_H

#include "comm/group.h"

#include <stdbool.h>

struct tt_job {
    struct tt_job *next;
    struct ncclComm *comm;
    struct ncclComm *lane; // whose jobs it keeps its place among: comm, or that it is split from
    int rank, device;
    bool is_blocking;    // its communicator
    cudaStream_t stream; // of launches
    const char *call;    // the public function, for messages
    enum tt_group_stage stage;
    ncclResult_t (*run)(struct ncclComm *comm, void *argument);
    bool begun;
    _Alignas(16) char argument[];
};

struct tt_jobs {
    struct tt_job *first, *last;
};

// Runs the stage's jobs and waits for them. The result, and the process's last error, are those of
// the job that failed first.
ncclResult_t tt_stage_run(struct tt_jobs *jobs, enum tt_group_stage stage);

// Runs a launch at once with the communicator's device current. The caller is inside `comm`.
ncclResult_t tt_stage_run_here(struct ncclComm *comm,
                               ncclResult_t (*run)(struct ncclComm *comm, void *argument),
                               void *argument);

#endif
