// The executor's contract: what differs per kind of device. One const table per kind; the CPU
// build has cpu/, the CUDA build cuda/. Plans (algorithms as data) run through it.
// Nothing here knows communicators or windows: callers resolve them into addresses.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXECUTOR_H
#define TT_EXECUTOR_H

#include "exec/symmetric.h"
#include "nccl.h"
#include "plan/op.h"

#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What a rank's part in the host team is made of: the ranks of a communicator that share a machine.
// It keeps what the pointers point to in use until tt_executor's `part` has returned.
struct tt_arena;
struct tt_host;
struct tt_choice; // plan/select.h

// Where the memory of a team lies: zeros in a file that all processes of the team have, of which
// only what is used takes memory.
#define TT_ROOM_BYTES (UINT64_C(1) << 42) // that a team may use
struct tt_room {
    char *base;     // tt_executor->arena_bytes bytes that are mapped; 64-byte aligned
    int descriptor; // for more of it; stays the caller's; -1: of a rank alone, there is no file
    uint64_t later; // where that more begins in it: a multiple of a page
    // What has to outlive the arena, and is told once that it is gone; NULL: nothing.
    void (*leave)(void *owner);
    void *owner;
};

struct tt_team {
    int rank, nranks;                   // in the team
    int device;                         // CUDA's number
    const int *devices;                 // [nranks] those of all ranks; -1: not of this process
    const int *process;                 // [nranks] equal numbers: one address space
    const _Atomic uint32_t *abort_flag; // not 0: waits end and the operation with them
    _Atomic int *async_error; // ncclResult_t; the first error found while running is left here
    // cudaError_t: the device has dropped work of this rank; what it waits for ends, and the caller
    // tells (NULL: nobody does).
    _Atomic int *device_error;
    const char *comm_name; // for messages
    uint64_t comm_hash;    // identifies the communicator, equal on all its ranks
    // [nranks] 1: the rank has left the communicator and enters nothing any more (acquire). NULL:
    // nobody knows.
    const _Atomic unsigned char *has_left;
    struct tt_arena *arena; // of the process
    // Tells the communicator that it has failed: the first reason stays. Any thread, until the part
    // has ended.
    void (*fail)(void *owner, ncclResult_t result, const char *text);
    void *owner;
    const struct tt_choice *choice; // of algorithms; stays for ever; NULL: all
    // TT_SWITCH_SCRATCH bytes of each rank, and their multicast address. NULL: there are none.
    struct tt_symmetric switch_scratch;
    char *switch_scratch_multicast;
    uint64_t limit_ns; // after which a wait is an error; 0: never
};

struct ncclDevComm;

// One fused all-reduce + RMSNorm, checked. Shapes: tokens x hidden, row-major, contiguous.
struct tt_rmsnorm {
    int rank, nranks;
    struct tt_host *host; // the rank's part in the host team
    struct tt_symmetric input,
        output; // row 0 of the input and of the output on each rank; equal or disjoint
    size_t input_offset, output_offset; // the same as bytes in the windows, equal on all ranks
    int input_window, output_window;    // numbers of the windows, compared between ranks
    ncclWindow_t input_handle, output_handle;
    const struct ncclDevComm *device_comm;
    size_t tokens, hidden; // hidden at least 1; without tokens ranks only compare their calls
    const void *gamma;     // [hidden] in the data type, or NULL
    const void
        *residual; // [tokens x hidden] on this rank, or NULL; read for this rank's own tokens only
    void *residual_out; // [tokens x hidden] on this rank, or NULL; written for this rank's own
                        // tokens only
    float eps;
    ncclDataType_t data_type; // ncclFloat32, ncclFloat16, ncclBfloat16
    bool may_wait;            // as in tt_call_context
};

// Where the switch reaches the buffers of a collective on all ranks: multicast addresses. Those
// that the switch loads from (`send`) or stores to (`recv`) by the operation's function.
struct tt_multicast {
    char *send, *recv;
    uint64_t where; // the same on ranks whose buffers are the same memory; 0: there is none
};

// What a collective's call knows besides the operation.
struct tt_call_context {
    struct tt_multicast multicast;
    bool may_wait; // the calling thread may wait a little for other ranks: it is none of them
};

// One send or receive of a group.
struct tt_message {
    struct tt_op op; // TT_SEND or TT_RECV
    cudaStream_t stream;
};

// How many more signals of a rank are waited for.
struct tt_signal_wait {
    int peer; // of the team; the rank itself too
    uint64_t signals;
};

// A put with its signal, a signal alone, or a wait for signals.
struct tt_one_sided {
    // TT_PUT_SIGNAL: send: of this rank, recv: where it goes, in the peer's memory by an address of
    // this process. TT_WAIT_SIGNAL: count: all signals; root: the rank, -1: several.
    struct tt_op op;
    size_t wait_count;
    struct tt_signal_wait wait[]; // [wait_count]
};

// What a rank's part of a communicator holds, in bytes; of memory that ranks share, its share.
struct tt_memory {
    size_t scratch, staging, mappings;
};

struct tt_executor {
    const char *name;
    const char *no_device_hint; // what to look at where there is no device

    // ---- The host team.
    int most_ranks; // of a team
    // How much of the memory that `nranks` ranks of a machine share is mapped from the start.
    size_t (*arena_bytes)(int nranks);
    // Takes it into use: once for each process; one reference. Where it fails, nobody is told that
    // it is gone.
    ncclResult_t (*arena_map)(const struct tt_room *room, int nranks, struct tt_arena **arena_out);
    void (*arena_release)(struct tt_arena *arena);
    // Adds each rank's share of what was mapped of it later. Any thread.
    void (*arena_memory)(const struct tt_arena *arena, struct tt_memory *memory);
    // A rank's part. Local; operations may follow once all have joined.
    ncclResult_t (*join)(const struct tt_team *team, struct tt_host **host_out);
    // Nothing is enqueued any more. Once what was enqueued before has ended, launches of graphs
    // too, operations of ranks that wait for this one fail. Graphs leave it out from now on.
    void (*finalize)(struct tt_host *host);
    // The same, and waits for that end. Where other ranks have called nothing for 10 s that could
    // end the operations, these are given up, and the team fails; what only stands behind other
    // work in a stream is waited for, with a line on stderr now and then. A failed or aborted
    // communicator's are given up at once. False: something does not end, and uses for ever what
    // the team's pointers point to; no `part`. *gave_up_out: whether something was given up
    // meanwhile.
    bool (*drain)(struct tt_host *host, bool *gave_up_out);
    // Ends it, after `drain`. NULL: nothing.
    void (*part)(struct tt_host *host);
    // Whether the team has failed, or is aborted: what waits in a stream for other ranks is then
    // let go. A failure of another rank becomes this one's, for ranks that wait for nothing. Any
    // thread, while the rank has its part; called several times a second, also after a failure.
    bool (*is_over)(struct tt_host *host);

    // ---- Operations: enqueued on `stream`, before they have run. Stream-ordered on every rank.
    // NULL: this kind of device has it not yet.
    // A checked collective with something to do. Its arrays are copied.
    ncclResult_t (*collective)(struct tt_host *host, const struct tt_op *op,
                               const struct tt_call_context *context, cudaStream_t stream);
    // Checked messages of one group, at least one: they go on side by side, those between the same
    // two ranks in order. As many to the rank itself as from it, which fit together. They are put
    // on the first one's stream; the others are for the flight recorder.
    ncclResult_t (*messages)(struct tt_host *host, const struct tt_message *messages, size_t count,
                             bool may_wait);
    // A checked one-sided operation, copied. A signal happens after what the rank put before; waits
    // use up the signals that they waited for.
    ncclResult_t (*one_sided)(struct tt_host *host, const struct tt_one_sided *call, bool may_wait,
                              cudaStream_t stream);
    // The caller has made what comes next on `after` wait for what is on `before` now, streams of
    // the rank's device: who waits for whom may be looked for later. NULL: never.
    void (*joined)(struct tt_host *host, cudaStream_t before, cudaStream_t after);
    ncclResult_t (*all_reduce_rmsnorm)(const struct tt_rmsnorm *operation, cudaStream_t stream);
    // Whether operations that the calling thread launched, and that were not to wait, have left
    // something for the end of its group: for `settle`, which follows at once. NULL: never.
    bool (*owes)(void);
    // That rest, by the same thread, for each communicator that the group launched on: first what
    // needs no wait, of all of them, then the rest.
    ncclResult_t (*settle)(struct tt_host *host, bool may_wait);
};

extern const struct tt_executor *const tt_executor;

#endif
