// A program as users of MPI write it: MPI carries the unique id, ncclCommInitRank does the rest.
// Then the same by tuttiCommInit, which must leave MPI as it is: MPI goes on while its communicator
// is there and after it has ended.
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>
#include <mpi.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti.h>

enum { COUNT = 5000 };

static void fail(const char *call, const char *text)
{
    (void)fprintf(stderr, "%s: %s\n", call, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}
#define CHECK_NCCL(call)                                                                           \
    do {                                                                                           \
        if ((call) != ncclSuccess) {                                                               \
            fail(#call, ncclGetLastError(NULL));                                                   \
        }                                                                                          \
    } while (0)
#define CHECK_CUDA(call)                                                                           \
    do {                                                                                           \
        if ((call) != cudaSuccess) {                                                               \
            fail(#call, "CUDA failed");                                                            \
        }                                                                                          \
    } while (0)

// Sums over all ranks by NCCL and by MPI: they must be equal.
static void compare(ncclComm_t comm, int rank, const char *name)
{
    long mine[COUNT], by_mpi[COUNT], by_nccl[COUNT], *memory;
    for (int i = 0; i < COUNT; i++) {
        mine[i] = (long)(rank + 1) * 1000003 + i;
    }
    CHECK_CUDA(cudaMalloc((void **)&memory, sizeof mine));
    CHECK_CUDA(cudaMemcpy(memory, mine, sizeof mine, cudaMemcpyHostToDevice));
    CHECK_NCCL(ncclAllReduce(memory, memory, COUNT, ncclInt64, ncclSum, comm, NULL));
    CHECK_CUDA(cudaMemcpy(by_nccl, memory, sizeof by_nccl, cudaMemcpyDeviceToHost));
    CHECK_CUDA(cudaFree(memory));
    MPI_Allreduce(mine, by_mpi, COUNT, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (memcmp(by_mpi, by_nccl, sizeof by_mpi) != 0) {
        fail(name, "the sums differ");
    }
}

// The number among this host's ranks, as MPI tells it.
static int find_local_rank(void)
{
    MPI_Comm host;
    int local;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &local);
    MPI_Comm_free(&host);
    return local;
}

static void by_hand(int rank, int size)
{
    ncclUniqueId id;
    ncclComm_t comm;
    int devices = 0;
    if (rank == 0) {
        CHECK_NCCL(ncclGetUniqueId(&id));
    }
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    CHECK_CUDA(cudaGetDeviceCount(&devices));
    CHECK_CUDA(cudaSetDevice(find_local_rank() % devices));
    CHECK_NCCL(ncclCommInitRank(&comm, size, id, rank));
    compare(comm, rank, "by hand");
    CHECK_NCCL(ncclCommDestroy(comm));
}

int main(int argc, char **argv)
{
    int rank, size, nccl_rank, nccl_size, together = 0;
    ncclComm_t comm;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    by_hand(rank, size);
    CHECK_NCCL(tuttiCommInit(&comm));
    CHECK_NCCL(ncclCommUserRank(comm, &nccl_rank));
    CHECK_NCCL(ncclCommCount(comm, &nccl_size));
    if (nccl_rank != rank || nccl_size != size) {
        fail("tuttiCommInit", "another rank or size than MPI's");
    }
    compare(comm, rank, "tuttiCommInit");
    CHECK_NCCL(ncclCommDestroy(comm));
    MPI_Allreduce(&rank, &together, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (together != size * (size - 1) / 2) {
        fail("MPI_Allreduce", "MPI has suffered");
    }
    printf("rank %d of %d: right\n", rank, size);
    MPI_Finalize();
    return 0;
}
