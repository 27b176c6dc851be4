// Symmetric windows as the rest of the library sees them.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_WINDOW_H
#define TT_WINDOW_H

#include "nccl.h"
#include "nccl_device.h"

#include <stdbool.h>
#include <stddef.h>

struct ncclComm;
// The name without `struct`, as kernels write it.
typedef struct ncclDevComm ncclDevComm;

// A window's host side. `handle` is what users hold (ncclWindow_t).
struct tt_window {
    ncclWindow_t handle;
    void *user_pointer;  // this rank's memory as registered
    size_t bytes;        // as registered; equal on all ranks of the team
    char *flat_base;     // team member m's copy is flat_base + m * stride
    size_t stride;       // multiple of the granularity, at least 2 MiB
    char *multimem_base; // NULL without multicast
    int number;          // n-th window of the communicator, for messages
};

// The window of `comm` that holds [pointer, pointer + bytes) of this rank's memory and the offset
// in it; NULL where none does. pointer may be the registered address or this rank's own flat
// address.
const struct tt_window *tt_window_find(const struct ncclComm *comm, const void *pointer,
                                       size_t bytes, size_t *offset_out);

// The device communicator that the library's own kernels and native operations use; made with the
// first window. NULL where the communicator has no windows yet.
const ncclDevComm *tt_window_device_comm(const struct ncclComm *comm);

// Whether the communicator's LSA teams have multicast, as far as this rank can tell: all members'
// devices do, and devices that appear twice in a team may be added twice.
bool tt_multicast_possible(const struct ncclComm *comm);

// Memory of `bytes` bytes on each rank that the switch reaches, for the library's own use, until
// the communicator's windows end; once. Collective. *window_out: NULL where there is no multicast.
ncclResult_t tt_window_scratch(struct ncclComm *comm, size_t bytes,
                               const struct tt_window **window_out);

// Frees all that windows own for this rank; accepts a communicator without windows. Local: never
// waits for peers.
void tt_windows_destroy(struct ncclComm *comm);
// Bytes of mapped windows: of each one copy, which is a rank's share of those of all ranks.
size_t tt_windows_memory(const struct ncclComm *comm);

#endif
