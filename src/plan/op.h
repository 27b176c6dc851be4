// One operation of a communicator as its caller asked for it: checked, complete, independent of how
// it will be done. Entry points make it, groups keep it, plans are built from it, executors run it.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_PLAN_OP_H
#define TT_PLAN_OP_H

#include "nccl.h"
#include "reduce/reduce.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Uneven forms have the function of the even one.
enum tt_function {
    TT_ALL_REDUCE,
    TT_REDUCE,
    TT_BROADCAST,
    TT_REDUCE_SCATTER,
    TT_ALL_GATHER,
    TT_ALL_TO_ALL,
    TT_GATHER,
    TT_SCATTER,
    TT_FUSED_RMSNORM, // its own structure, tt_rmsnorm; here for its place in the order of
                      // operations
    TT_COLLECTIVES,   // how many of these
    TT_SEND = TT_COLLECTIVES,
    TT_RECV,
    TT_PUT_SIGNAL,
    TT_SIGNAL,
    TT_WAIT_SIGNAL,
    TT_FUNCTIONS,
};

// "AllReduce"; valid for good.
const char *tt_function_name(enum tt_function function);

// What a rank sends to, or receives from, each rank where sizes are uneven, in elements: [nranks]
// each. An array is NULL where it does not apply to the function or, for GatherV and ScatterV, to
// this rank.
struct tt_uneven {
    const size_t *send_count, *send_first; // first: where it starts in the send buffer
    const size_t *recv_count, *recv_first;
};

struct tt_op {
    enum tt_function function;
    bool is_uneven;
    const void *send; // NULL where this rank has none
    void *recv;
    // Elements, by NCCL's meaning: of the whole vector (AllReduce, Reduce, Broadcast, Send, Recv,
    // PutSignal), of one rank's part (the others). Uneven forms: see `uneven`; here what this rank
    // alone sends (GatherV) or receives (ScatterV), else 0. WaitSignal: signals.
    size_t count;
    struct tt_uneven uneven;
    ncclDataType_t type;
    enum tt_reduce_operator op; // reductions; TT_REDUCE_SUM elsewhere
    union tt_scalar scale;      // TT_REDUCE_SCALED_SUM: this rank's factor ...
    const void *scale_device;   // ... or where to read it when the operation runs; NULL: `scale`
    int root;                   // rooted collectives: the root; pairs: the peer (WaitSignal for
                                // several: -1); else 0
};

// Whether the function combines elements.
bool tt_op_reduces(enum tt_function function);

// What must agree between ranks, as one word: function, unevenness, count, type, operator kind,
// root. Never addresses or factors. Two different operations have different words but for chance
// (2^-40); the sequence number is not part of it. Uneven counts are compared one by one when the
// operation runs, not here.
uint64_t tt_op_signature(const struct tt_op *op);

// Whether op.count says how much: an uneven operation has many counts, but those at one root one
// for each rank.
static inline bool tt_op_has_count(const struct tt_op *op)
{
    return !op->is_uneven || op->function == TT_GATHER || op->function == TT_SCATTER;
}

// "AllReduce(count 1024, float32, sum)" into text; always ended by a null byte.
void tt_op_describe(const struct tt_op *op, char *text, size_t bytes);

// Bytes at `send` and `recv` that the operation may touch on this rank of `nranks`; 0 where it
// has no such buffer.
size_t tt_op_send_bytes(const struct tt_op *op, int rank, int nranks);
size_t tt_op_recv_bytes(const struct tt_op *op, int rank, int nranks);

#endif
