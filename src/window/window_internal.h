// What the files of this folder share: how a window is made by all ranks together, and what each
// rank keeps of it.
//
// A window lives in one *flat range* per process and LSA team: address = base + member * stride +
// offset. The range is made by the process's leader and shared by its ranks (struct tt_flat,
// counted). What one rank holds is a struct tt_registered. Making a window is a chain of collective
// steps; each rank carries a struct tt_verdict through them and all ranks compare their verdicts
// before the next step, so all succeed or all fail with the same text.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_WINDOW_INTERNAL_H
#define TT_WINDOW_INTERNAL_H

#include "window/window.h"

#include <cuda.h>
#include <cuda_runtime.h>
#include <stdatomic.h>
#include <stdint.h>

struct ncclComm;

// ---- Verdicts (agree.c)
// ----------------------------------------------------------------------------------------------------

// How a rank's own part of a step went. The first failure stays.
struct tt_verdict {
    int32_t result; // ncclResult_t
    char text[236];
};
void tt_verdict_fail(struct tt_verdict *verdict, ncclResult_t result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// Notes a failed driver or runtime call; true where it succeeded.
bool tt_verdict_driver(struct tt_verdict *verdict, CUresult error, const char *call);
bool tt_verdict_cuda(struct tt_verdict *verdict, cudaError_t error, const char *call);
// All ranks: success on all, or on all the failure of the lowest rank that failed, reported with
// its number and `what`.
ncclResult_t tt_agree(struct ncclComm *comm, const struct tt_verdict *mine, const char *what);

// ---- Memory (memory.c)
// -----------------------------------------------------------------------------------------------------

// Memory of `device` that peers can map: its own allocation, rounded up to whole granules; NULL and
// a verdict on failure.
void *tt_memory_allocate(int device, size_t bytes, struct tt_verdict *verdict);
// Frees what tt_memory_allocate returned.
CUresult tt_memory_free(void *pointer);
// The size granule that fits single mappings and, where `multicast_members` > 0, multicast objects
// of as many members.
size_t tt_memory_granularity(int device, int multicast_members, struct tt_verdict *verdict);

// ---- Flat ranges (flat.c)
// --------------------------------------------------------------------------------------------------

// One process's view of one window of one LSA team.
struct tt_flat {
    atomic_int users;
    int first_rank, members; // world rank of member 0; LSA size
    CUdeviceptr base;
    size_t stride, span; // distance of members; mapped bytes of each
    int mapped;          // members mapped so far
    int local_count;     // ranks of this process in the team
    int *local_device;   // [local_count] CUDA devices, in rank order
    // Multicast (multicast.c); 0 where there is none.
    CUmemGenericAllocationHandle multicast;
    int bound; // local ranks whose memory is bound, in rank order
    CUdeviceptr alias;
    bool alias_mapped;
};
struct tt_flat *tt_flat_hold(struct tt_flat *flat);
// The alignment for an address range of members at this distance: as much as the distance keeps,
// 512 MiB at most (the largest page of real devices).
static inline size_t tt_flat_alignment(size_t stride)
{
    size_t kept = stride & (~stride + 1);
    return kept < ((size_t)1 << 29) ? kept : (size_t)1 << 29;
}
// Drops one use; the last one unmaps all. Accepts NULL.
void tt_flat_drop(struct tt_flat *flat);
// Opens `bytes` bytes from `pointer` to each of the team's devices in this process.
bool tt_flat_open(const struct tt_flat *flat, CUdeviceptr pointer, size_t bytes,
                  struct tt_verdict *verdict);

// Collective. Sends `handle` (0: none) as a descriptor to the other processes of this rank's team.
// *descriptors_out: on the process's leader what the other ranks sent, by world rank, -1: nothing;
// NULL where the communicator is one process.
ncclResult_t tt_descriptors_exchange(struct ncclComm *comm, CUmemGenericAllocationHandle handle,
                                     int **descriptors_out, struct tt_verdict *verdict);
// Closes and frees them; accepts NULL.
void tt_descriptors_close(const struct ncclComm *comm, int *descriptors);

// ---- Meeting of a process's ranks in one step (share.c)
// --------------------------------------------------------------------

struct tt_share_slot {
    bool filled;
    int world_rank, device;
    CUmemGenericAllocationHandle memory;
    CUmemGenericAllocationHandle multicast; // made by the first rank of a team
    struct tt_flat *flat;                   // the share's use
};
struct tt_share {
    struct tt_share *next;
    uint64_t comm_hash;
    int sequence, users, size;
    struct tt_verdict verdict;   // of what the leader did for all
    struct tt_share_slot slot[]; // [size], by local rank
};
// Joins (or opens) the process's share for step number `sequence` of a communicator and fills the
// caller's slot. NULL: no memory. Between entering and leaving, ranks meet with tt_local_barrier.
struct tt_share *tt_share_enter(const struct ncclComm *comm, int sequence,
                                const struct tt_share_slot *mine);
void tt_share_leave(struct tt_share *share);

// ---- A window of one rank
// --------------------------------------------------------------------------------------------------

struct tt_registered {
    struct tt_window window;
    struct ncclComm *comm; // for comparing; gone before the window after an abort
    int nranks;
    struct tt_windows *windows;
    struct tt_registered *next; // in the process's list of handles
    int flags;
    size_t offset; // of the window in its allocation
    size_t allocation_bytes;
    CUmemGenericAllocationHandle memory;
    bool memory_held;
    int sequence; // of the step that began it: orders the windows of a communicator, on all ranks
    struct tt_flat *flat;
    struct tt_flat *view[NCCL_MULTIMEM_VIEWS]; // multicast views of other teams; NULL: none
    struct ncclWindow_vidmem image;            // what kernels see at window.handle
    bool listed;
};

// What a rank brings to the making of a window. signature: anything that must be equal on all
// ranks; what: its name in messages. verdict: a failure of this rank from before.
struct tt_wish {
    void *pointer;
    size_t bytes;
    int flags;
    int number;
    uint64_t signature;
    const char *signature_text;
    const char *what;
    struct tt_verdict verdict;
};
// What all ranks found together.
struct tt_agreement {
    bool supported; // every rank can share memory with its team
    bool multimem;  // every rank can take part in multicast
    size_t span, stride;
};

// Collective. *registered_out NULL with ncclSuccess where windows are not supported on some rank.
ncclResult_t tt_registered_create(struct ncclComm *comm, struct tt_wish *wish,
                                  struct tt_registered **registered_out);
// Local. Accepts NULL and half-made ones.
void tt_registered_destroy(struct tt_registered *registered);

// Steps of tt_registered_create. Collective; verdict: this rank's so far, which gathers what goes
// wrong.
ncclResult_t tt_flat_create(struct ncclComm *comm, struct tt_registered *registered,
                            const struct tt_agreement *agreement, struct tt_verdict *verdict);
// Makes the multicast object of each team over its members' `memory`, mapped at the alias of the
// team's flat range. teams: [nranks] which team each rank is in.
ncclResult_t tt_multicast_create(struct ncclComm *comm, const ncclTeam_t *teams,
                                 CUmemGenericAllocationHandle memory, struct tt_flat *flat,
                                 struct tt_verdict *verdict);
// Tells the runtime, for its reports, that a window exists or will soon be gone (announce.c).
void tt_window_announce(const struct ncclComm *comm, const struct tt_registered *registered);
void tt_window_withdraw(struct tt_registered *registered);
// Of a process's flat range: unbinds and unmaps its multicast part.
void tt_multicast_destroy(struct tt_flat *flat);

// The handle of the LSA team that has multicast; an empty one otherwise.
ncclMultimemHandle_t tt_multimem_handle(bool available);

// ---- Multicast views of teams inside the LSA team (views.c)
// ---------------------------------------------------------------------
//
// All ranks ask for a view together, each for its own team; the teams of the ranks make one *view*
// of the communicator, with a number. Each window then has an alias range per view. Views last as
// long as the communicator's windows.

// World rank of a member of `rank`'s team.
static inline int tt_team_member(const ncclTeam_t *teams, int rank, int member)
{
    return rank + (member - teams[rank].rank) * teams[rank].stride;
}
// The LSA team of each rank: [nranks], freed with free(). NULL: no memory.
ncclTeam_t *tt_lsa_teams(const struct ncclComm *comm);
// Collective. The number of the view with this rank's team, made where it is new, for all windows.
// Errors: ncclInvalidArgument where the ranks' teams do not fit together, ncclInvalidUsage where
// there are too many.
ncclResult_t tt_view_obtain(struct ncclComm *comm, ncclTeam_t team, int *view_out);
// Collective. Gives a new window its alias ranges of all views there are.
ncclResult_t tt_views_add(struct ncclComm *comm, struct tt_registered *registered);
ncclMultimemHandle_t tt_view_handle(int view);
// Whether windows can be made at all: NULL, or why not.
const char *tt_symmetric_obstacle(const struct ncclComm *comm);

// ---- All windows of one rank (table.c)
// ---------------------------------------------------------------------------------------

struct tt_window_range {
    uintptr_t base;
    size_t bytes;
    struct tt_registered *registered;
};
struct tt_table_chunk {
    struct tt_table_chunk *next;
    struct ncclDevCommWindowTable image;
    struct ncclDevCommWindowTable *device;
};
struct tt_device_comm {
    struct tt_device_comm *next;
    ncclDevComm_t image;
    struct tt_registered *resources;
    void *memory;
};
struct tt_windows {
    int device;
    cudaStream_t stream; // for the copies that set things up; never waits for the user's work
    int sequence;        // steps made so far; equal on all ranks
    int last_number;     // of the newest window
    int count, capacity;
    struct tt_window_range *range; // [count] ascending by base, then by number; two per window
    struct tt_table_chunk *chunks; // the same for kernels (registered addresses)
    int view_count;
    ncclTeam_t *view_teams[NCCL_MULTIMEM_VIEWS]; // [nranks] of each view
    struct tt_device_comm *internal;             // the library's own; first in device_comms
    struct tt_device_comm *device_comms;
    struct tt_registered *scratch; // tt_window_scratch's; NULL: none
    void *scratch_memory;
};

// comm->windows, made on first use; NULL and a verdict on failure.
struct tt_windows *tt_windows_get(struct ncclComm *comm, struct tt_verdict *verdict);
// The first chunk of the table that kernels search, made on first use; NULL and a verdict on
// failure.
struct tt_table_chunk *tt_windows_table(struct tt_windows *windows, struct tt_verdict *verdict);
bool tt_windows_add(struct tt_windows *windows, struct tt_registered *registered,
                    struct tt_verdict *verdict);
void tt_windows_remove(struct tt_windows *windows, const struct tt_registered *registered);
// Copies `bytes` bytes to device memory and waits.
bool tt_windows_upload(struct tt_windows *windows, void *device, const void *host, size_t bytes,
                       struct tt_verdict *verdict);

// Handles of the process.
void tt_handles_add(struct tt_registered *registered);
void tt_handles_remove(struct tt_registered *registered);
// All windows of one rank's communicator, oldest first; resource windows too. *list_out is freed
// with free(). Returns how many, -1: no memory.
int tt_handles_of(const struct tt_windows *windows, struct tt_registered ***list_out);
// What is known of a window, as it is now; false: there is none with this handle.
bool tt_handles_read(ncclWindow_t handle, struct tt_registered *out);
// Takes a user's window of `comm` out of the list, for its end; NULL: it has none with this handle.
struct tt_registered *tt_handles_take(ncclWindow_t handle, const struct ncclComm *comm);

// Of tt_window_scratch (scratch.c).
void tt_scratch_free(struct tt_windows *windows);

// ---- Device communicators (device_comm.c)
// ----------------------------------------------------------------------------------

// The library's own, made on first use; collective. multimem: whether windows have it.
ncclResult_t tt_device_comm_internal(struct ncclComm *comm, bool multimem);
void tt_device_comm_free(struct tt_device_comm *device_comm);

#endif
