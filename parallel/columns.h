// Matrices of which each rank has some columns. SPDX-License-Identifier: Apache-2.0
#ifndef PARALLEL_COLUMNS_H
#define PARALLEL_COLUMNS_H

#include "part.h"

#include <cuda_runtime_api.h>

// Where a gather happens.
struct parallel_columns {
    const char *call; // as failures begin
    struct parallel_part part;
    size_t rows;
    ncclDataType_t type;
    ncclComm_t comm;
    cudaStream_t stream;
};

// Device memory for own columns [rows x count] and for everybody's; to be freed with cudaFreeAsync,
// in the stream.
ncclResult_t parallel_columns_memory(const struct parallel_columns *columns, void **memory_out);
// The memory holds this rank's own columns at its start; all [rows x total] receives all ranks'.
// Synchronous, collective. The memory's contents are lost.
ncclResult_t parallel_columns_gather(const struct parallel_columns *columns, void *memory,
                                     void *all);

#endif
