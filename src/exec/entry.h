// What a rank says to the others when it enters an operation, or ends, as it lies in memory that
// they share.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXEC_ENTRY_H
#define TT_EXEC_ENTRY_H

#include "reduce/reduce.h"

#include <stdatomic.h>
#include <stdint.h>

// Why nothing of a rank runs or will run any more: it has destroyed or finalized the communicator
// and all that it did before is over, or its part ended otherwise, as the communicator had failed.
enum tt_end { TT_GOES_ON, TT_DESTROYED, TT_FINALIZED, TT_GAVE_UP };

enum { TT_ARENA_PAYLOAD = 40 }; // bytes of input that an entry can carry
enum { TT_CALL_UNEVEN = 1, TT_CALL_IN_PLACE = 2 };

// What a rank was asked for, as its peers may read it.
struct tt_call {
    uint64_t count; // as in tt_op; fused RMSNorm: tokens
    int32_t root;
    uint8_t function, type, op; // enum tt_function, ncclDataType_t, enum tt_reduce_operator
    uint8_t flags;              // TT_CALL_*
};
_Static_assert(sizeof(struct tt_call) == 16, "part of an entry");

// Where a rank's two buffers are, for its peers.
struct tt_places {
    uint64_t send, recv; // addresses, for ranks of the same process
    // For other processes: number of the segment in the upper 16 bits (from 1; 0: they cannot reach
    // it), offset in the lower 48.
    uint64_t send_shared, recv_shared;
};

// A rank's entry into an operation: one cache line, written by it alone, `word` last.
struct tt_entry {
    _Atomic uint64_t word; // sequence number (24 bits), signature (40 bits); release, acquire
    struct tt_call call;
    union {
        unsigned char payload[TT_ARENA_PAYLOAD]; // the whole input
        struct {
            union tt_scalar scale; // scaled sums: this rank's factor
            union {
                unsigned char scaled_payload[TT_ARENA_PAYLOAD - 8];
                struct tt_places places;
            };
        };
    };
};
_Static_assert(sizeof(struct tt_entry) == 64, "one cache line per writer");

#endif
