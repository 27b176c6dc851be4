// The device communicator: what a kernel needs to know of its communicator, passed by value.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_COMM_H_
#define NCCL_DEVICE_COMM_H_

#include "core.h"
#include "impl/comm__types.h"

#if NCCL_CHECK_CUDACC
// The window that holds the address `ptr` of this rank's memory (as registered, or its window
// address); nullptr where none does. Every thread of coop calls it with the same ptr.
template <typename Coop>
NCCL_DEVICE_INLINE ncclWindow_t ncclFindWindow(Coop coop, ncclDevComm const &comm, void const *ptr);
#endif

#endif
