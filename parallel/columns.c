// See columns.h. SPDX-License-Identifier: Apache-2.0
#include "columns.h"

#include "device.h"
#include "elements.h"
#include "fail.h"

#include <stdlib.h>

// Room for the own columns, then for those of all ranks. In the order of the stream: cudaFree would
// wait for other ranks that share the device.
ncclResult_t parallel_columns_memory(const struct parallel_columns *columns, void **memory_out)
{
    const struct parallel_part *part = &columns->part;
    size_t elements = columns->rows * (part->count + part->total);
    size_t bytes = elements * parallel_element_bytes(columns->type);
    int previous = 0;
    *memory_out = NULL;
    TRY(parallel_enter_device(columns->comm, &previous));
    ncclResult_t result =
        parallel_cuda((int)cudaMallocAsync(memory_out, bytes == 0 ? 1 : bytes, columns->stream),
                      "cudaMallocAsync for gathered columns");
    if (result == ncclSuccess) {
        result =
            parallel_cuda((int)cudaStreamSynchronize(columns->stream), "cudaStreamSynchronize");
    }
    parallel_leave_device(previous);
    return result;
}

// One rank's columns [rows x count] into their place.
static void place(const struct parallel_columns *columns, size_t first, size_t count,
                  const char *from, void *all)
{
    size_t bytes = parallel_element_bytes(columns->type);
    for (size_t row = 0; count > 0 && row < columns->rows; row++) {
        memcpy((char *)all + (row * columns->part.total + first) * bytes,
               from + row * count * bytes, count * bytes);
    }
}

ncclResult_t parallel_columns_gather(const struct parallel_columns *columns, void *memory,
                                     void *all)
{
    const struct parallel_part *part = &columns->part;
    const size_t own = columns->rows * part->count, bytes = parallel_element_bytes(columns->type);
    char *gathered = (char *)memory + own * bytes;
    size_t *counts = NULL;
    TRY(parallel_part_counts(columns->call, part, columns->rows, &counts));
    ncclResult_t result = tuttiAllGatherV(memory, own, gathered, counts, NULL, columns->type,
                                          columns->comm, columns->stream);
    free(counts);
    TRY(result);
    TRY(parallel_wait(columns->call, columns->comm, columns->stream));
    size_t first = 0;
    for (int r = 0; r < part->size; r++) {
        size_t count = parallel_part_count(part, r);
        place(columns, first, count, gathered + first * columns->rows * bytes, all);
        first += count;
    }
    return ncclSuccess;
}
