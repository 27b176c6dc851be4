// An algorithm as data: what one rank does in one collective, as lanes of steps.
//
// A plan says which pieces of which ranks' buffers are combined into which others, and in what
// order; not where the buffers lie, nor how bytes move. So it can be run (exec/), proved right
// (check.h), drawn (draw.h) and kept (cache.h).
//
// Around the lanes of every plan stand two meetings of all ranks, which no step spells out.
//   Enter: no step begins before every rank has entered. From then on the rank's send buffer may be
//          read by all, its receive and scratch buffers written.
//   Leave: a rank leaves when all its lanes have ended. The operation ends on a rank when every
//          rank has left: nobody reads or writes its buffers any more.
// Lanes run independently of each other, on one rank as well; what is more than that is ordered by
// signals alone. A signal orders everything before it in its lane before everything after the wait
// that sees it.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_PLAN_PLAN_H
#define TT_PLAN_PLAN_H

#include "nccl.h"
#include "plan/op.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ---- The problem: all that a plan depends on ----------------------------------------------------

// The uneven counts and starts of all ranks, in elements: element [r * nranks + q] is what rank r
// sends to, or receives from, rank q. NULL where the function has no such thing: AllGatherV has
// recv_*, ReduceScatterV send_*, AlltoAllV all four; GatherV has the root's row of recv_*, ScatterV
// the root's row of send_*, other rows mean nothing. What a rank sends in AllGatherV is its own
// count in its own row; every rank's receive counts agree.
struct tt_uneven_all {
    const size_t *send_count, *send_first;
    const size_t *recv_count, *recv_first;
};

struct tt_problem {
    enum tt_function function; // a collective, no TT_FUSED_RMSNORM
    int nranks;
    int root;           // rooted functions; else 0
    size_t count;       // as in tt_op; uneven: 0
    size_t element;     // bytes of an element
    size_t accumulator; // bytes of an accumulator of a reduction: what a partial result takes
    bool in_place;      // send and receive buffer are one, by NCCL's rules of the function
    bool is_uneven;
    struct tt_uneven_all uneven;
    int lanes; // at least 1: how many a rank can use
};

// ---- Steps --------------------------------------------------------------------------------------

enum tt_buffer { TT_BUFFER_SEND, TT_BUFFER_RECV, TT_BUFFER_SCRATCH, TT_BUFFERS };

// Instead of a rank.
enum {
    TT_EVERY = -1,  // every rank in ascending order, at the same offset of the same buffer
    TT_SWITCH = -2, // the same, by one multicast access: loads combine, stores go to all
};

struct tt_place {
    enum tt_buffer buffer;
    int rank;      // or TT_EVERY, TT_SWITCH
    size_t offset; // bytes into that rank's buffer
};

enum tt_step_kind {
    TT_STEP_REDUCE, // out[..] = in[0] op in[1] op ..., `count` elements each
    TT_STEP_COPY,   // out[..] = in[0]: bit by bit; in[0] is one rank's
    TT_STEP_SIGNAL, // one more on `channel` for rank `peer` (TT_EVERY: for each, itself included)
    TT_STEP_WAIT,   // until `peer` (TT_EVERY: each) has signalled `channel` to this rank `number`
                    // times in this plan
};

// An output may be exactly one of the inputs (in place; then a copy does nothing). Apart from that
// no place of a step overlaps another one.
//
// How a reduction begins and ends. An input that is no partial result is an element of the send
// buffer of the rank whose buffer it lies in, also where that rank copied it to its scratch: it is
// scaled by that rank's factor. An average is divided where the result is rounded.
enum {
    TT_PARTIAL_IN = 1,  // in[0] is a partial result: accumulators
    TT_PARTIAL_OUT = 2, // the result stays a partial result: not divided, not rounded
};

enum { TT_CHANNELS = 64 };

struct tt_step {
    enum tt_step_kind kind;
    unsigned flags;   // TT_PARTIAL_*
    size_t count;     // elements
    uint32_t in, ins; // places in[in .. in + ins) of the plan's list
    uint32_t out, outs;
    int peer;
    uint16_t channel; // below TT_CHANNELS
    uint32_t number;
};

struct tt_lane {
    uint32_t step, steps; // first, how many
};

// One rank's part. Made by a builder (build.h), one block of memory, never changed afterwards.
struct tt_plan {
    const struct tt_algorithm *algorithm;
    int rank, nranks;
    size_t scratch; // bytes of scratch that each rank needs, the same in all ranks' plans
    int lanes;
    uint32_t steps, places;
    const struct tt_lane *lane;
    const struct tt_step *step;
    const struct tt_place *place;
};

// Most bytes of scratch that the switch reaches, on each rank.
enum { TT_SWITCH_SCRATCH = 16 << 20 };

// ---- Algorithms ---------------------------------------------------------------------------------

struct tt_builder;

// One file of algorithms/ each; `tt_algorithms` lists them.
struct tt_algorithm {
    const char *name;      // "direct": as in messages, drawings and tables
    const char *nccl_name; // what selects it in NCCL_ALGO, "ring"; NULL: nothing does
    bool needs_multicast;  // plans have TT_SWITCH places: in buffers, or, if staged, in scratch
    bool is_staged;        // a rank touches its own buffers and scratch alone, so that buffers need
                           // not be mapped by others
    // Whether it can do the problem.
    bool (*can)(const struct tt_problem *problem);
    // Adds rank's lanes and steps. Errors of memory are kept by the builder.
    void (*build)(const struct tt_problem *problem, int rank, struct tt_builder *builder);
};

// In order of preference; NULL ends the list.
extern const struct tt_algorithm *const tt_algorithms[];

#endif
