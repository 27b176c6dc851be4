// A rank's part of what is split over a communicator, as tuttiSplitCounts shares it out.
// SPDX-License-Identifier: Apache-2.0
#ifndef PARALLEL_PART_H
#define PARALLEL_PART_H

#include <nccl.h>
#include <stddef.h>

struct parallel_part {
    int rank, size;      // of the communicator
    size_t first, count; // of the own part
    size_t total;
};

// Errors: those of ncclCommUserRank and ncclCommCount.
ncclResult_t parallel_part(ncclComm_t comm, size_t total, struct parallel_part *part_out);
// The part of another rank.
size_t parallel_part_count(const struct parallel_part *part, int rank);
// counts_out: to be freed; [size] the elements of every rank, of which each thing has `elements`.
// ncclSystemError without memory. call: the public function.
ncclResult_t parallel_part_counts(const char *call, const struct parallel_part *part,
                                  size_t elements, size_t **counts_out);

#endif
