// Counts of what moved, exact: bytes and messages per link and direction, multimem operations,
// barriers, launches. Plain loads and stores are counted in code compiled with `tutticc --count`;
// native code reports with vgpuCountTransfer.
//
// A message is one operation that moves bytes from one device to another: one load or store (an
// atomic operation that reads and writes is two), one copy by cudaMemcpy or its relatives, one
// multimem load or store, one call of vgpuCountTransfer. Messages are counted wherever bytes are.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_STATS_H
#define VGPU_STATS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { VGPU_MAX_DEVICES = 64 };

// Traffic of one device's port in this process's view. What stays on a device is in `local`.
// A load from device p by device d adds to in[d] and out[p]; a store from d to p to out[d] and
// in[p]. A multimem load of B bytes over m members adds B to out of each member and B to in of the
// loader (the switch adds); a multimem store adds B to out of the storer and B to in of each
// member.
struct vgpu_device_stats {
    uint64_t bytes_in;
    uint64_t bytes_out;
    uint64_t bytes_local;
    uint64_t multimem_loads;
    uint64_t multimem_stores;
    uint64_t barriers; // __syncthreads and named barriers, one per block and meeting
    uint64_t launches;
    uint64_t messages_in; // these since 0.2
    uint64_t messages_out;
    uint64_t messages_local;
};

// Starts (or stops) counting from zero. VGPU_STATS in the environment starts it at load: with `1`
// tables are printed at exit, with `json:FILE` they are written there (`%p`: the process id).
void vgpuStatsStart(void);
void vgpuStatsStop(void);
// Fills stats[0..count-1] by device number as CUDA numbers them; returns the number of devices.
int vgpuStatsRead(struct vgpu_device_stats *stats, int count);
// Bytes from device `from` to device `to` since the start: loads by `to` and stores by `from`. A
// multimem access appears as one transfer between its device and each member (that device's own
// copy included), though the ports carry it once.
uint64_t vgpuStatsLink(int from, int to);
// The messages that carried those bytes. Since 0.2.
uint64_t vgpuStatsLinkMessages(int from, int to);
// For native code: `bytes` at `address` (memory of any device) were read (or written) by the
// running block's device.
void vgpuCountTransfer(const void *address, size_t bytes, int is_store);
// The same for memory that stands for that of a device, but is not: a library's own buffers for
// transfers. Nothing is counted for what is no device's number. Since 0.2.
void vgpuCountDeviceTransfer(int device, size_t bytes, int is_store);

#ifdef __cplusplus
}
#endif
#endif
