// tutti.h: what tutti offers beyond NCCL's API. Every function and type here begins with `tutti`.
//
// The functions follow NCCL's manners: they return ncclResult_t, ncclGetLastError gives the text of
// the last failure, and what takes a stream returns before it has run. C99 or later and C++11 or
// later, or what CUDA's own headers ask for, where that is more.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_H
#define TUTTI_H

#include "nccl.h"

#include <cuda_runtime_api.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_MAJOR 0
#define TUTTI_MINOR 1
#define TUTTI_PATCH 0
// One number that orders versions: 10000 * major + 100 * minor + patch.
#define TUTTI_VERSION(major, minor, patch) ((major)*10000 + (minor)*100 + (patch))
#define TUTTI_VERSION_CODE                 TUTTI_VERSION(TUTTI_MAJOR, TUTTI_MINOR, TUTTI_PATCH)

// The version of the library that is loaded (TUTTI_VERSION_CODE is that of this header).
// version: receives 10000 * major + 100 * minor + patch.
// Errors: ncclInvalidArgument where version is NULL. Since 0.1.
ncclResult_t tuttiVersion(int *version);

// Splits `total` things over `nranks` ranks as evenly as whole things allow: the first total %
// nranks ranks get one more. 100 over 3 is 34, 33, 33. This is how the fused operations below share
// tokens out. counts: [nranks], things of each rank; may be NULL. displacements: [nranks], the
// first thing of each rank; may be NULL. Errors: ncclInvalidArgument where nranks < 1 or both
// arrays are NULL. Since 0.1.
ncclResult_t tuttiSplitCounts(size_t total, int nranks, size_t *counts, size_t *displacements);

// For libraries that are built on this one and follow its manners: makes a text the calling
// thread's last failure, which ncclGetLastError gives, and warns of it as of the library's own.
// result: what the caller will return; returned. format: as for printf, of a text that names the
// argument, its value, the rank and what would be right. Since 0.1.
ncclResult_t tuttiFail(ncclResult_t result, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;
// For the same libraries: refuses a call that waits for what it enqueues, where the calling thread
// is in a group, which enqueues nothing before its end. call: with what the text begins.
// ncclSuccess outside of groups; else ncclInvalidUsage, which ncclGroupEnd will return, too: such a
// group does nothing. Since 0.1.
ncclResult_t tuttiRefuseGroup(const char *call);

// ---- Starting -----------------------------------------------------------------------------------

// One communicator for all processes of a job, in one call: finds out this process's rank, the
// number of ranks and its number among those of its host from its launcher (PMIx, Open MPI's or
// MPICH's mpirun, torchrun, srun, tutti-run, or variables set by hand: docs/launching.md has the
// table); makes one of the GPUs that it sees current, by its number on the host; gets the unique id
// from rank 0; and joins. A process without a launcher is a job of one rank. Rank 0 says on stderr
// who is where (TUTTI_MAP=0: nobody does). Collective over the job, also when it is called again.
// Waits for the other ranks, whatever the configuration, at most TUTTI_INIT_TIMEOUT at each step.
// comm: receives the communicator, which ends as others do; the rank is ncclCommUserRank's.
// Errors: those of ncclCommInitRank; ncclInvalidUsage where the launcher's variables contradict
// each other, where more tasks are announced but this one's rank is not known, where nothing says
// how the ranks can meet in safety, and in a group; ncclUnhandledCudaError where the process sees
// no GPU. Since 0.1.
ncclResult_t tuttiCommInit(ncclComm_t *comm);

// ---- Uneven sizes -------------------------------------------------------------------------------
// Collectives in which each rank has as much as it has. As in MPI's functions of these names:
// counts and displacements are [nranks] elements (not bytes), in host memory, read before the call
// returns; element r is about rank r, and 0 is allowed anywhere. A displacement is where in the
// buffer rank r's part begins; displacements NULL: one part behind the other, in rank order,
// without gaps. Elements between parts are neither read nor written. Buffers: device memory (or
// what NCCL's functions take) in the data type; NULL where nothing of this rank is in it. stream:
// of the communicator's device; the operations run in its order, on every rank. Every rank must
// make the call, also one that has nothing to send or to receive. In place, each rank for itself:
// this rank's own part lies in both buffers at one address. Results are those of the even
// functions, bit for bit. Errors, all five: ncclInvalidArgument for a bad argument, for parts of a
// receive buffer that overlap (senders would race), and for buffers that overlap but in place.
// Ranks whose calls do not fit together, in the counts too, find out when the operation runs:
// nothing is moved and ncclCommGetAsyncError gives ncclInvalidUsage on every rank, with a text that
// names both values. May be called between ncclGroupStart and ncclGroupEnd.

// Every rank gets what all ranks send: recvcounts[r] elements of rank r at recvdispls[r].
// sendbuff: [sendcount], where sendcount is recvcounts[own rank]. recvcounts are equal on all
// ranks; recvdispls may differ. In place: sendbuff is recvbuff + recvdispls[own rank]. Since 0.1.
ncclResult_t tuttiAllGatherV(const void *sendbuff, size_t sendcount, void *recvbuff,
                             const size_t *recvcounts, const size_t *recvdispls,
                             ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream);

// The ranks' vectors are reduced, and rank r gets the recvcounts[r] elements of the result that
// follow those of ranks 0 to r - 1. sendbuff: [sum of recvcounts]. recvbuff: [recvcounts[own
// rank]]. op: NCCL's operators and those of ncclRedOpCreatePreMulSum. recvcounts are equal on all
// ranks. In place: recvbuff is where the own part begins in sendbuff. Since 0.1.
ncclResult_t tuttiReduceScatterV(const void *sendbuff, void *recvbuff, const size_t *recvcounts,
                                 ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                 cudaStream_t stream);

// Each rank sends sendcounts[r] elements at senddispls[r] to rank r, and gets recvcounts[r]
// elements of rank r at recvdispls[r]. What one rank sends to another is what that expects; parts
// that are sent may overlap. There is no in-place form. Since 0.1.
ncclResult_t tuttiAllToAllV(const void *sendbuff, const size_t *sendcounts,
                            const size_t *senddispls, void *recvbuff, const size_t *recvcounts,
                            const size_t *recvdispls, ncclDataType_t datatype, ncclComm_t comm,
                            cudaStream_t stream);

// The root gets what all ranks send: recvcounts[r] elements of rank r at recvdispls[r]. sendbuff:
// [sendcount] on each rank, the root too. recvbuff, recvcounts, recvdispls: the root's count, other
// ranks' are not looked at. root: 0 to nranks - 1. In place, on the root: sendbuff is recvbuff +
// recvdispls[root]. Since 0.1.
ncclResult_t tuttiGatherV(const void *sendbuff, size_t sendcount, void *recvbuff,
                          const size_t *recvcounts, const size_t *recvdispls,
                          ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream);

// Each rank gets its part of the root's vector: rank r the sendcounts[r] elements at senddispls[r].
// recvbuff: [recvcount] on each rank, the root too. sendbuff, sendcounts, senddispls: the root's
// count, other ranks' are not looked at; parts may overlap. root: 0 to nranks - 1. In place, on the
// root: recvbuff is sendbuff + senddispls[root]. Since 0.1.
ncclResult_t tuttiScatterV(const void *sendbuff, const size_t *sendcounts, const size_t *senddispls,
                           void *recvbuff, size_t recvcount, ncclDataType_t datatype, int root,
                           ncclComm_t comm, cudaStream_t stream);

// ---- Programs that hang -------------------------------------------------------------------------

// Tells what the ranks of this process are doing: for each communicator and rank the operation that
// it is in and for how long, which ranks have not come to it and what those did last, and its own
// last operations with their times. For programs that hang: call it from a thread of your own, or
// let a signal do it (TUTTI_DUMP_SIGNAL).
// comm: only this communicator, in any state; NULL: all.
// path: a file, at whose end the text is put in one piece; %h becomes the host's name, %p the
// process id, %r the rank (with comm NULL the lowest of the process). NULL: the file that
// TUTTI_DUMP_FILE names, else stderr.
// Waits for nobody. Not for signal handlers. Errors: ncclInvalidArgument where comm is no
// communicator; ncclSystemError where the file cannot be written. Since 0.1.
ncclResult_t tuttiDumpState(ncclComm_t comm, const char *path);

// ---- Fused operations ---------------------------------------------------------------------------

// What tuttiAllReduceRMSNorm may do besides its two main steps. Begin with
// TUTTI_RMSNORM_OPTIONS_INITIALIZER, so that programs stay right when fields are added at the end.
struct tuttiRMSNormOptions {
    size_t size;          // sizeof(struct tuttiRMSNormOptions) as the program was compiled
    const void *gamma;    // [hidden] weights in the data type, device memory; NULL: all 1. Given on
                          // all ranks or on none, with equal values.
    const void *residual; // [tokens x hidden] in the data type, device memory; NULL: none. Added to
                          // the sum before the norm. Each rank reads only the rows of its own
                          // tokens. Given on all ranks or on none.
    void
        *residualOut; // [tokens x hidden] in the data type, device memory; NULL: none. Receives sum
                      // + residual, rounded once, for this rank's own tokens. May equal residual.
    float
        eps; // added to the mean of the squares inside the root; finite, >= 0. Equal on all ranks.
};

#define TUTTI_RMSNORM_OPTIONS_INITIALIZER                                                          \
    {                                                                                              \
        sizeof(struct tuttiRMSNormOptions), /* size */                                             \
            NULL,                           /* gamma */                                            \
            NULL,                           /* residual */                                         \
            NULL,                           /* residualOut */                                      \
            1e-6f                           /* eps */                                              \
    }

// All-reduce and RMSNorm in one pass: for each token (row)
//     x[i]  = sum over ranks of sendbuff[token][i]  (+ residual[token][i])
//     out   = x[i] / sqrt(mean of x[j]^2 over the row + eps)  (* gamma[i])
// and `out` is stored in recvbuff[token][i] of every rank. Rank r reduces, normalises and stores
// the tokens that tuttiSplitCounts(tokens, nranks) gives it. A row whose squares sum to zero with
// eps 0 becomes zeros.
//
// The result is the same in every bit on all ranks, in every run and for every alignment: sums in
// rank order, all arithmetic in float, one rounding at the end, the squares added in a fixed tree.
// (The bits of a NaN's payload are not promised.)
//
// sendbuff, recvbuff: [tokens x hidden] row-major in the data type, inside symmetric windows of
// `comm` (ncclCommWindowRegister with
//   NCCL_WIN_COLL_SYMMETRIC), at the same window and offset on all ranks. Equal (in place) or
//   disjoint.
// tokens: rows, equal on all ranks; with 0 the buffers may be NULL and the ranks only compare their
// calls. hidden: elements of a row, at least 1.
// options: NULL means TUTTI_RMSNORM_OPTIONS_INITIALIZER.
// datatype: ncclFloat32, ncclFloat16 or ncclBfloat16.
// stream: of the communicator's device; the operation runs in its order, on every rank; every rank
// must make the call.
// Errors: ncclInvalidArgument for a bad argument; ncclInvalidUsage where the ranks do not share
// memory (more than one LSA team, or
//   no window support). Ranks that call with different tokens, hidden, eps, type, windows or
//   offsets find out when the operation runs: nothing is computed and ncclCommGetAsyncError gives
//   ncclInvalidUsage on every rank.
// In a graph, on real GPUs: all ranks capture the call, or none; captured calls are compared as
//   they are captured, the n-th of each rank with the n-th of the others. While a stream is
//   captured each rank of a GPU has a stream of its own (else ncclInvalidUsage). Graphs of one
//   communicator, and its calls outside of graphs, run one after another: the program orders them.
// May be called between ncclGroupStart and ncclGroupEnd. Since 0.1.
ncclResult_t tuttiAllReduceRMSNorm(const void *sendbuff, void *recvbuff, size_t tokens,
                                   size_t hidden, const struct tuttiRMSNormOptions *options,
                                   ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream);

// ---- Kernels with barriers on shared GPUs -------------------------------------------------------

// The most blocks with which every rank of `comm` may launch a kernel that waits for the other
// ranks' (LSA barriers, flags in windows), where several ranks share a GPU: the launches of all
// ranks of the GPU, in whichever processes, are then resident at once. With more, blocks wait for
// others that cannot begin until they end, and nothing ever does. Virtual GPUs run any number of
// blocks; the answer there is that of the GPU that they stand for.
// kernel: as for cudaLaunchKernel. threadsPerBlock, dynamicSharedBytes: as it will be launched (set
// cudaFuncAttributeMaxDynamicSharedMemorySize before, where it is needed). comm: ready; its GPU is
// the current device. blocks: receives the number, at least 1; use the least of all ranks where
// GPUs differ. It counts on GPUs that run nothing else. Local: no rank waits for another.
// Errors: ncclInvalidUsage where not even one block for each rank of the GPU fits, with what fits;
// ncclInvalidArgument for a bad comm, blocks NULL, a number that no multiprocessor can hold, or
// another current device; ncclUnhandledCudaError where CUDA does not answer for the kernel. Since
// 0.1.
static inline ncclResult_t tuttiMaxBlocks(const void *kernel, int threadsPerBlock,
                                          size_t dynamicSharedBytes, ncclComm_t comm, int *blocks);

// The same from what the program's own CUDA runtime says of its kernel: the runtime inside the
// library does not know it. error: of cudaOccupancyMaxActiveBlocksPerMultiprocessor;
// blocksPerMultiprocessor: what it gave. Since 0.1.
ncclResult_t tuttiMaxBlocksOf(cudaError_t error, int blocksPerMultiprocessor, ncclComm_t comm,
                              int *blocks);

static inline ncclResult_t tuttiMaxBlocks(const void *kernel, int threadsPerBlock,
                                          size_t dynamicSharedBytes, ncclComm_t comm, int *blocks)
{
    int perMultiprocessor = 0;
    cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &perMultiprocessor, kernel, threadsPerBlock, dynamicSharedBytes);
    return tuttiMaxBlocksOf(error, perMultiprocessor, comm, blocks);
}

#ifdef __cplusplus
}
#endif
#endif
