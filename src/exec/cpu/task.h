// Work of one rank on a stream: stepped by whoever has time for it, first by the thread that calls,
// while the stream is idle and the work short, then by blocks on the scheduler of kernels.
//
// A kind of work is a structure that begins with struct tt_task and a function that steps it.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXEC_CPU_TASK_H
#define TT_EXEC_CPU_TASK_H

#include "exec/cpu/host.h"

struct tt_task {
    struct tt_host *host;
    const char *name; // of the function, for traces; outlives it
    // Goes on with part `part` (0 .. parts - 1) of the work, which has its turn, as far as it can
    // go now. Parts are stepped by different threads, each by one at a time. TT_FAILED: over as
    // well, because the communicator has failed.
    enum tt_progress (*step)(struct tt_task *task, unsigned part);
    unsigned parts;
    bool is_short;      // the caller's thread may begin it
    size_t short_bytes; // that it moves then: peers take as long, and are waited for longer
    size_t op_offset;   // where in the structure its operation is, a struct tt_op, for the flight
                        // recorder; 0: it has none

    // task.c's.
    uint64_t turn;
    struct tt_record_line *line; // of this run; NULL: there is none yet
    bool is_left_out;            // a graph's run that was launched after the communicator's end
    _Atomic uint32_t state;
    _Atomic uint32_t parts_left;
    _Atomic bool has_failed; // a part has
};

// Puts work on `stream`: it runs behind what was put there before, in its rank's turn. task:
// `bytes` bytes, copied; the copy is what is stepped, so it may hold the work's state but no
// pointers into itself. Where the stream is being captured, the graph runs a fresh copy each time
// and keeps the host. Returns before the work has run, or after.
ncclResult_t tt_task_launch(struct tt_task *task, size_t bytes, cudaStream_t stream);

#endif
