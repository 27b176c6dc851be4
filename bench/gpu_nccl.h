// NCCL's own library in the same process as ours, which has the same name: its functions by
// address.
// SPDX-License-Identifier: Apache-2.0
#ifndef BENCH_GPU_NCCL_H
#define BENCH_GPU_NCCL_H

#include <nccl.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct bench_nccl {
    int version;
    ncclResult_t (*init_all)(ncclComm_t *comms, int count, const int *devices);
    ncclResult_t (*destroy)(ncclComm_t comm);
    ncclResult_t (*group_start)(void);
    ncclResult_t (*group_end)(void);
    ncclResult_t (*reduce_scatter)(const void *send, void *recv, size_t recv_count,
                                   ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                   cudaStream_t stream);
    ncclResult_t (*all_reduce)(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
    ncclResult_t (*all_gather)(const void *send, void *recv, size_t send_count, ncclDataType_t type,
                               ncclComm_t comm, cudaStream_t stream);
};

// Loads the library `file`; false, after saying why on stderr, where that does not work.
bool bench_nccl_open(const char *file, struct bench_nccl *nccl);

#ifdef __cplusplus
}
#endif
#endif
