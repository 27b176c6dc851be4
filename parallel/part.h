// A call of a public function over a communicator: how its failures begin, and the rank's part of
// what is split, as tuttiSplitCounts shares it out.
// SPDX-License-Identifier: Apache-2.0
#ifndef PARALLEL_PART_H
#define PARALLEL_PART_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stddef.h>

struct parallel_part {
    int rank, size;      // of the communicator
    size_t first, count; // of the own part
    size_t total;
};

struct parallel_call {
    char name[64]; // "tuttiRowLinearForward: rank 2", with which the texts of failures begin
    struct parallel_part part;
};

// Errors: those of ncclCommUserRank and ncclCommCount.
ncclResult_t parallel_part(ncclComm_t comm, size_t total, struct parallel_part *part_out);
// function: the public one. total: what is split, 0 where nothing is. Errors: the same.
ncclResult_t parallel_begin(const char *function, ncclComm_t comm, size_t total,
                            struct parallel_call *call_out);
// Waits until the stream has done what is in it. Fails where an operation of the communicator has
// failed by then: what it should have written is not there. ncclInvalidUsage in a group. call: as
// failures begin.
ncclResult_t parallel_wait(const char *call, ncclComm_t comm, cudaStream_t stream);
// The part of another rank.
size_t parallel_part_count(const struct parallel_part *part, int rank);
// counts_out: to be freed; [size] the elements of every rank, of which each thing has `elements`.
// ncclSystemError without memory. call: as failures begin.
ncclResult_t parallel_part_counts(const char *call, const struct parallel_part *part,
                                  size_t elements, size_t **counts_out);

#endif
