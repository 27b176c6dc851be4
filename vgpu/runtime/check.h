// The checking mode, inside the runtime: what reports are made of.
//
// check.c knows the setting, launches and ranks; check_window.c the windows; check_place.c turns
// program counters into source lines; check_barrier.c follows barriers between ranks;
// check_wait.c finds waits that nothing can end, check_host.c who else could. All but
// check_window.c does nothing while vgpu_checking is false. Locks here are leaves: nothing is
// called under them but check_place.c.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_CHECK_H
#define VGPU_RUNTIME_CHECK_H

#include "launch.h"

#include <stdio.h>

struct vgpu_worker;
struct vgpu_block;
struct vgpu_thread;

// ---- Launches and ranks (check.c) ---------------------------------------------------------------

// A launch goes to the pool; all its blocks are over.
void vgpu_check_launch_begins(const struct vgpu_launch *launch);
void vgpu_check_launch_ends(const struct vgpu_launch *launch);
// The rank whose window the launch was given, or that alone has windows on its device; -1: not
// known.
int vgpu_check_rank_of(const struct vgpu_launch *launch);
// "kernel f runs on device 1 (physical 1)", "no kernel runs on device 1 (physical 1); ...".
void vgpu_check_describe_device(int device, FILE *out);
// Writes lines to stderr in one piece; the first gets "vgpu: " before it.
void vgpu_check_say(const char *text);

// ---- Windows (check_window.c) -------------------------------------------------------------------

// Says of an address which window it is in or near, ": offset 4120 of window 1 of rank 0, which has
// 4096 bytes"; "" where there is none.
void vgpu_check_describe_address(uintptr_t address, char *out, size_t bytes);
// Whether [address, address + bytes) lies among the copies of a window, and not all of it inside
// one; the text goes on after the address.
bool vgpu_check_is_closed(uintptr_t address, size_t bytes, char *out, size_t out_bytes);
// The rank whose window handle is among `bytes` bytes of arguments; -1: none.
int vgpu_check_rank_in(const void *arguments, size_t bytes);
// The one rank that owns windows on a device; -1: none or several.
int vgpu_check_rank_on(int device);
// The device of a rank that owns a window whose memory holds `address`; -1: not in this process.
int vgpu_check_device_of(const void *address, int rank);
// Narrows [*low, *high), addresses of a multicast view, to the window that begins there.
void vgpu_check_narrow(uintptr_t *low, uintptr_t *high);
// Forgotten with its window: what is known of barriers in [base, base + bytes) (check_barrier.c).
void vgpu_check_forget_barriers(uintptr_t base, size_t bytes);

// ---- Places (check_place.c) ---------------------------------------------------------------------

enum { VGPU_TRACE_FRAMES = 16 };

// Return addresses, innermost first, without the runtime's own. exact: the first is the address of
// the instruction itself.
struct vgpu_trace {
    int count;
    bool exact;
    uintptr_t pc[VGPU_TRACE_FRAMES];
};
// Of the calling thread, from its caller outwards. fault_pc: where a signal met it, or 0.
void vgpu_trace_here(struct vgpu_trace *trace, uintptr_t fault_pc);
// The first line of users' code at `pc` and its inlined calls: "a.cu:12", or where that is not
// known "function+0x14". exact as above. The text stays valid for good.
const char *vgpu_place_of(uintptr_t pc, bool exact);
// The first place of a trace that is users' code; NULL where the trace is empty.
const char *vgpu_place_of_trace(const struct vgpu_trace *trace);
// Whether two return addresses belong to calls on different lines of users' code; false where that
// is not known.
bool vgpu_places_differ(uintptr_t a, uintptr_t b);
// Lines "    at a.cu:12 in f" and "    called from b.cu:20 in k".
void vgpu_trace_print(const struct vgpu_trace *trace, FILE *out);

// ---- Barriers between ranks (check_barrier.c) ---------------------------------------------------

// A thread of a block comes to __syncthreads at `place`; others wait there since `first`. Faults
// where these are different lines.
void vgpu_check_meeting(struct vgpu_block *block, uintptr_t first, uintptr_t place);
// Says for whom a barrier's user waits and where those are.
void vgpu_check_describe_wait(const struct vgpu_barrier_use *use, FILE *out);

// ---- Waits that nothing can end (check_wait.c) --------------------------------------------------

// What a worker knows of its blocks' waiting. The watchdog reads and writes the atomic fields.
struct vgpu_check_worker {
    uint64_t next_ns;    // when to look again
    uint64_t hash;       // of all that its blocks' threads are, at the last look
    uint64_t changed_ns; // when it was last found changed
    unsigned ended;      // the last verdict that was carried out
    atomic_ullong looked_ns;
    atomic_ullong stuck_ns;  // since when nothing has changed; 0: something may change by itself
    atomic_ullong oldest_ns; // since when one of its blocks has been where it is
    atomic_bool polls;       // a thread reads memory in a loop
    atomic_uint answered;    // the last question that `text` answers
    char *text;              // written by the worker, freed by the watchdog
};
// Lines "threads 0-31 wait at a.cu:12: at __syncthreads", each after a line's end.
void vgpu_check_describe_threads(struct vgpu_worker *worker, struct vgpu_block *block, FILE *out);
// Reads VGPU_CHECK_SECONDS; says so where it is wrong. Before there are threads.
void vgpu_check_read_seconds(void);
// Between rounds of a worker with resident blocks.
void vgpu_check_round(struct vgpu_worker *worker);
// Four times a second while there is work. Whether there is.
bool vgpu_check_look(struct vgpu_worker *workers, int count);
// Memory of this process was given to another, or the reverse: others may end waits.
void vgpu_check_outsiders(void);

// ---- Who else could end a wait (check_host.c) ---------------------------------------------------

// Whether no thread of the host can end what kernels wait for. False too where that cannot be seen.
bool vgpu_check_host_is_stuck(uint64_t now);
// Whether another process, or a signal handler, could write what a kernel reads in a loop. True too
// where that cannot be seen.
bool vgpu_check_strangers_write(void);

#endif
