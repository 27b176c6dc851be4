// Groups: calls between ncclGroupStart and ncclGroupEnd, run at the outermost end. A lone call is a
// group of one.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_COMM_GROUP_H
#define TT_COMM_GROUP_H

#include "nccl.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>

struct ncclComm;

// When a job runs inside a group's end: all jobs of one stage before the next stage, each
// communicator's jobs in order, on a thread per communicator where a stage has several (a rank of a
// collective job must not wait for another of its thread).
// Messages are no jobs of their own: see messages.h. Launches are made by one thread, in order.
enum tt_group_stage {
    TT_GROUP_INIT,
    TT_GROUP_WINDOW,
    TT_GROUP_DEVICE_COMM,
    TT_GROUP_STREAMS,   // before launches on several of them: see streams.h
    TT_GROUP_ONE_SIDED, // launches before all others of the group, as NCCL's
    TT_GROUP_LAUNCH,
    TT_GROUP_JOIN, // behind what launches leave for the end (tt_executor->settle): see streams.h
    TT_GROUP_DEREGISTER, // takes back what launches of the group may use
    TT_GROUP_MESSAGE,
};

// Hands a job to the calling thread's group. argument: `bytes` bytes, copied. Outside a group it
// runs at once and its result is returned; inside, ncclSuccess, and the first failing job's result
// is ncclGroupEnd's. The current CUDA device is comm's while the job runs, and is restored
// afterwards.
ncclResult_t tt_group_submit(struct ncclComm *comm, enum tt_group_stage stage,
                             ncclResult_t (*run)(struct ncclComm *comm, void *argument),
                             const void *argument, size_t bytes);
// A job that puts work on `stream`, of a stage from TT_GROUP_ONE_SIDED on, for calls that are
// inside `comm` already. Outside a group it runs at once, in place. TT_GROUP_DEREGISTER: no stream.
ncclResult_t tt_group_launch(struct ncclComm *comm, enum tt_group_stage stage, cudaStream_t stream,
                             ncclResult_t (*run)(struct ncclComm *comm, void *argument),
                             void *argument, size_t bytes);
// Whether the calling thread is in a group.
bool tt_group_is_open(void);
// Refuses `call`, which ends `comm`, where the calling thread's group has calls on it that are yet
// to be carried out: ncclInvalidUsage, latched. Taking back windows does not count.
ncclResult_t tt_group_check_ending(const struct ncclComm *comm, int rank, const char *call);
// Whether nothing else that the calling thread launches now may be what its peers wait for: false
// in the end of a group that launches on several communicators.
bool tt_group_may_wait(void);
// Latches an error of a call made inside a group (the group then does nothing); returns it.
ncclResult_t tt_group_latch(ncclResult_t result);

// ncclGroupStart and ncclGroupEnd. call: the public function, for messages.
void tt_group_start(void);
ncclResult_t tt_group_end(const char *call);
// The same, but the outermost end estimates the launches, and drops everything: nothing is made or
// registered, nobody is waited for or told. Pointers to communicators become NULL. *us_out:
// microseconds; untouched by an inner end and where it fails.
ncclResult_t tt_group_simulate_end(float *us_out);

#endif
