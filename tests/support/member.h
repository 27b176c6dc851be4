// What a rank of a test needs before it can call anything: the id that all share, a communicator, a
// stream of its device, a window. For C and for .cu; inline, so that only who uses it needs nccl.
//   static void body(int rank, int size) { struct member m; if (member_join(&m, rank, size)) {
//                                          ...; member_leave(&m); } }
// SPDX-License-Identifier: Apache-2.0
#ifndef TESTS_SUPPORT_MEMBER_H
#define TESTS_SUPPORT_MEMBER_H

#include "expect.h"
#include "ranks.h"

#include <nccl.h>

#include <stdbool.h>
#include <string.h>

// Rank 0 makes an id, and all get it. Collective (as ranks_broadcast).
static inline ncclUniqueId share_id_by(int rank, ncclResult_t (*make)(ncclUniqueId *id_out))
{
    ncclUniqueId id;
    memset(&id, 0, sizeof id);
    if (rank == 0) {
        EXPECT_OK(make(&id));
    }
    ranks_broadcast(&id, sizeof id);
    return id;
}

static inline ncclUniqueId share_id(int rank)
{
    return share_id_by(rank, ncclGetUniqueId);
}

struct member {
    int rank, size, device;
    ncclComm_t comm;
    cudaStream_t stream;
    char *memory; // by member_open_window; else NULL
    ncclWindow_t window;
};

// Makes rank `rank` of `size` with a known id; its device becomes the current one. False, and
// failed checks, where that went wrong.
static inline bool member_join_id(struct member *m, int rank, int size, ncclUniqueId id)
{
    int devices = 0;
    memset(m, 0, sizeof *m);
    expect_set_rank(rank);
    m->rank = rank;
    m->size = size;
    if (!EXPECT_CUDA(cudaGetDeviceCount(&devices)) || !EXPECT(devices > 0)) {
        return false;
    }
    m->device = rank % devices;
    return EXPECT_CUDA(cudaSetDevice(m->device)) &&
           EXPECT_OK(ncclCommInitRank(&m->comm, size, id, rank)) &&
           EXPECT_CUDA(cudaStreamCreateWithFlags(&m->stream, cudaStreamNonBlocking));
}

// The same with an id that rank 0 makes now. Collective.
static inline bool member_join(struct member *m, int rank, int size)
{
    return member_join_id(m, rank, size, share_id(rank));
}

// Memory of this rank, registered as a window on all ranks. Collective.
static inline bool member_open_window(struct member *m, size_t bytes)
{
    return EXPECT_OK(ncclMemAlloc((void **)&m->memory, bytes)) &&
           EXPECT_OK(ncclCommWindowRegister(m->comm, m->memory, bytes, &m->window,
                                            NCCL_WIN_COLL_SYMMETRIC)) &&
           EXPECT(m->window != NULL);
}

// Destroys what is left of it: m->comm, m->window and m->memory may be NULL.
static inline void member_leave(struct member *m)
{
    if (m->comm != NULL && m->window != NULL) {
        EXPECT_OK(ncclCommWindowDeregister(m->comm, m->window));
    }
    EXPECT_OK(ncclMemFree(m->memory));
    if (m->comm != NULL) {
        EXPECT_OK(ncclCommDestroy(m->comm));
    }
    EXPECT_CUDA(cudaStreamDestroy(m->stream));
}

// The communicator's state, as a query tells it.
static inline ncclResult_t member_state(const struct member *m)
{
    ncclResult_t state = ncclInternalError;
    EXPECT_OK(ncclCommGetAsyncError(m->comm, &state));
    return state;
}

#endif
