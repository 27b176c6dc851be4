// What several parts of this library need of a communicator's device. Internal.
// SPDX-License-Identifier: Apache-2.0
#ifndef PARALLEL_DEVICE_H
#define PARALLEL_DEVICE_H

#include "tutti.h"

// Makes the communicator's device the calling thread's current one; *previous: the one before, for
// parallel_leave_device, which follows whatever happens in between.
ncclResult_t parallel_enter_device(ncclComm_t comm, int *previous);
// The same where the device is known: also when the communicator has been aborted.
ncclResult_t parallel_enter_known_device(int device, int *previous);
void parallel_leave_device(int previous);

// Bytes of an element; 0: there is no such type.
size_t parallel_type_bytes(ncclDataType_t type);

// Every rank's `bytes` at `mine` to all ranks: all [ranks of comm x bytes]. Both in host memory.
// Collective; synchronous, in `stream`.
ncclResult_t parallel_exchange(const void *mine, void *all, size_t bytes, ncclComm_t comm,
                               cudaStream_t stream);

#endif
