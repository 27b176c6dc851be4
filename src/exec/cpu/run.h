// A plan that runs: how far each of its lanes is, and where the buffers lie that it names. Its
// state is here and never on a stack, so any thread may step any lane. One for each rank: a rank
// runs one plan at a time.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXEC_CPU_RUN_H
#define TT_EXEC_CPU_RUN_H

#include "exec/cpu/host.h"

// How far a lane is. One thread at a time steps it.
struct tt_run_lane {
    uint32_t step; // of the lane's; those before are done
    size_t done;   // elements of that step
    bool is_over;
    struct tt_watch watch;
    // Room for the places of one step.
    size_t capacity;
    void **out;
    const void **in;
    union tt_scalar *scale;
};

struct tt_run {
    const struct tt_plan *plan;
    ncclDataType_t type;
    enum tt_reduce_operator op;
    bool is_scaled; // TT_REDUCE_SCALED_SUM
    bool stream;    // the output is larger than the caches
    // [nranks] Addresses here of the ranks' buffers; NULL where the plan does not name them.
    char **send, **recv;
    union tt_scalar *scale; // [nranks]
    unsigned char *needs;   // [nranks] for choose.c
    char *scratch;
    size_t scratch_stride;
    // Multicast addresses of the buffers on all ranks, by enum tt_buffer; NULL: none.
    char *in_switch[TT_BUFFERS];
    int nranks;
    int lane_capacity;
    struct tt_run_lane *lane;
};

struct tt_run *tt_run_new(int nranks); // NULL: no memory
void tt_run_free(struct tt_run *run);  // NULL: nothing

// Prepares to run `plan`; the fields above it are the caller's to fill. The plan stays until all
// lanes are over. False: no memory.
bool tt_run_begin(struct tt_run *run, const struct tt_plan *plan);
// Runs a lane of the plan as far as it goes now. TT_DONE: it is over, and was before if called
// again.
enum tt_progress tt_run_step(struct tt_host *host, struct tt_run *run, int number);

#endif
