// Which algorithm does a problem: what NCCL_ALGO allows, what the buffers allow, in the order of
// tt_algorithms. NCCL_PROTO is read as NCCL reads it, but there is one way to move bytes here.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_PLAN_SELECT_H
#define TT_PLAN_SELECT_H

#include "plan/plan.h"

#include <stdbool.h>

enum { TT_CHOICE_FUNCTIONS = 5, TT_CHOICE_TEXT = 256 };

// What NCCL_ALGO says. Bit i of a mask is tt_algorithms[i].
struct tt_choice {
    // By Broadcast, Reduce, AllGather, ReduceScatter, AllReduce; others are not chosen for.
    uint32_t allowed[TT_CHOICE_FUNCTIONS];
    uint32_t refused[TT_CHOICE_FUNCTIONS]; // those named after a ^
    char text[TT_CHOICE_TEXT];             // for messages, shortened; "" where nothing is set
};

// Reads NCCL_ALGO's value: `list[;function:list]...`, a list is names between commas, after a ^ the
// names that are not allowed. Names are the algorithms' NCCL names and own names in any case;
// NCCL's names for algorithms that do not exist here (CollNetDirect, CollNetChain, NVLSTree, PAT)
// allow nothing. "" allows all, and so does a ^ alone; nothing between two commas is left out.
// ncclInvalidUsage for what has no such form; the text says what would.
ncclResult_t tt_choice_parse(const char *text, struct tt_choice *choice_out);
// The same for NCCL_PROTO's value, with LL, LL128 and Simple. *ruled_out: functions for which none
// is left, as bits 1 << enum tt_function.
ncclResult_t tt_protocols_parse(const char *text, uint32_t *ruled_out);

// Functions for which the choice leaves no algorithm, wherever buffers lie: bits 1 << enum
// tt_function. has_multicast: some buffers can be reached through the switch.
uint32_t tt_choice_rules_out(const struct tt_choice *choice, int nranks, bool has_multicast);

// Whether a function is left to nothing but staging in the switch where its buffers are far from
// it.
bool tt_choice_wants_scratch(const struct tt_choice *choice, int nranks);

// What a function that is ruled out is refused for.
struct tt_settings {
    const char *algorithms, *protocols; // NCCL_ALGO, NCCL_PROTO
    int nranks;
    bool is_uneven;     // the function's uneven form
    bool has_multicast; // as for tt_choice_rules_out
};
// Says which variable leaves nothing, and what would: ncclInvalidUsage.
ncclResult_t tt_choice_refuse(const char *call, int rank, enum tt_function function,
                              struct tt_settings set);

// What there is for a problem.
struct tt_means {
    bool has_multicast;  // both buffers can be reached through the switch
    bool is_mapped;      // every rank can load from and store to every other's buffers
    bool switch_scratch; // scratch can be reached through the switch
};

// The first algorithm that is allowed, can do the problem and has what it needs. Buffers that are
// not mapped are a matter of memory, not of choice: where nothing that is allowed can do them,
// staging is left out only if a ^ names it (in the switch it is always a matter of choice).
// ncclInvalidUsage where none is left; the text says why of each.
ncclResult_t tt_select(const struct tt_choice *choice, const struct tt_problem *problem,
                       struct tt_means means, const struct tt_algorithm **algorithm_out);

#endif
