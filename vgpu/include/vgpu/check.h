// The checking mode of virtual GPUs (VGPU_CHECK=1), for a library on top of them: it tells the
// runtime what its memory and its threads are, so that reports can name them.
//
// Plain C; includes nothing of CUDA, so that one source can be compiled for real GPUs too, where
// these functions do not exist: declare a pointer by dlsym, or link weakly. docs/checking.md says
// what users see.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_CHECK_H
#define VGPU_CHECK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// A window: one piece of memory of each of `members` ranks, at equal distances in this process.
struct vgpu_check_window {
    const void *handle;      // what kernels are given for it; one per owner
    const char *name;        // "window 3"; copied, at most 47 bytes
    int rank;                // the owner: a rank of this process, on the current device
    int first_rank, members; // ranks first_rank ... first_rank + members - 1 have a copy here
    uintptr_t base;          // member m's copy begins at base + m * stride
    size_t stride, bytes;
    uintptr_t multicast; // where the multicast view begins; 0: none
    uintptr_t local;     // the owner's memory at the address that it registered; 0: unknown
};

// The window exists from now on, until its handle is gone. Faults near it are reported with its
// name; in checking mode the pages of its mappings that lie outside the window are closed, under
// the address sanitizer its bytes outside are poisoned. Any host thread.
void vgpuCheckWindowMade(const struct vgpu_check_window *window);
// Before its memory is unmapped. The runtime remembers some gone windows, to name what is still
// used. A handle that is not known is ignored.
void vgpuCheckWindowGone(const void *handle);

// Source files whose path contains `part` ("/mylib_device/") hold inlined code of the library:
// reports name the line that called it. Kept, not copied; at most 8.
void vgpuCheckLibraryHeaders(const char *part);

// Kernels of this process take part in something with kernels of other processes, which may
// therefore end their waits.
void vgpuCheckOtherProcesses(void);
// The calling host thread waits, and has nothing else to do, for other threads of this process or
// for other processes. To be called at least every 100 ms of such a wait that is no plain futex.
void vgpuCheckHostWaits(void);
// The calling thread never changes what kernels wait for (it answers strangers on a socket, say):
// it is left out when the runtime looks whether anybody could end a wait.
void vgpuCheckServiceThread(void);

#ifdef __cplusplus
}
#endif
#endif
