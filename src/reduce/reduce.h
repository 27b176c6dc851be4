// Reduction of elements: out[i] = in[0][i] op in[1][i] op ..., in that order, for every NCCL type
// and operator, in several instruction sets that agree in every bit (but for which NaN a NaN is, of
// float and double).
//
// Accumulators (the contract on bits): float for half, bfloat16 and 8-bit floats, with one rounding
// at the end; 8-bit floats saturate there. float, double and integers accumulate in themselves;
// integers wrap. min and max of a number and a NaN is the number, and -0 is below +0, as in CUDA.
//
// A reduction can be cut after any input: the first part leaves accumulators (a partial result),
// the second begins with them, and the bits are those of the whole.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_REDUCE_REDUCE_H
#define TT_REDUCE_REDUCE_H

#include "nccl.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tt_reduce_operator {
    TT_REDUCE_SUM,
    TT_REDUCE_PROD,
    TT_REDUCE_MIN,
    TT_REDUCE_MAX,
    TT_REDUCE_AVERAGE,    // the sum, divided once by `divisor`; integers towards zero
    TT_REDUCE_SCALED_SUM, // in[r] times scale[r], added; products rounded to the accumulator;
                          // a partial result is not scaled again
    TT_REDUCE_OPERATORS,
};

// A factor as the accumulator of its type; integers as they wrap.
union tt_scalar {
    float float32; // of float and all smaller floats
    double float64;
    uint64_t integer;
};

struct tt_reduction {
    ncclDataType_t type;
    enum tt_reduce_operator op;
    uint64_t divisor;             // TT_REDUCE_AVERAGE: at least 1
    const union tt_scalar *scale; // TT_REDUCE_SCALED_SUM: scale[r] is that of in[r]
    bool partial_in;              // in[0] is a partial result: accumulators
    bool partial_out;             // outputs are: neither divided nor rounded
};

// Bytes of an element; 0 for what is no type.
size_t tt_type_bytes(ncclDataType_t type);
// Bytes of its accumulator, likewise.
size_t tt_accumulator_bytes(ncclDataType_t type);
// The factor whose `tt_type_bytes(type)` bytes are at `element`.
union tt_scalar tt_scalar_of(ncclDataType_t type, const void *element);

// Where a reduction comes from and goes to: at least one of each, at any addresses. An output may
// be one of the inputs where both have elements or both accumulators; otherwise outputs overlap
// nothing.
struct tt_reduce_places {
    void *const *out;
    int outs;
    const void *const *in;
    int ins;
};

// Each of out[..][0 .. count) = the reduction of in[..][0 .. count). stream: stores go past the
// caches, for outputs larger than them; the caller then orders them with tt_reduce_fence before it
// tells anyone.
void tt_reduce(const struct tt_reduction *reduction, const struct tt_reduce_places *places,
               size_t count, bool stream);
// Each of out[..][0 .. bytes) = in[0 .. bytes), at any addresses. An output may be the input;
// otherwise outputs overlap nothing. stream: as above.
void tt_copy(void *const *out, int outs, const void *in, size_t bytes, bool stream);
// Orders streamed stores before what follows.
void tt_reduce_fence(void);

// ---- For tests and benchmarks

// Reduces `count` elements that begin `offset` bytes into each input; a partial in[0] begins as
// many elements into its accumulators. out may be one of the inputs' places, as above.
typedef void tt_reduce_function(void *out, const void *const *in, int ins, size_t offset,
                                size_t count, const struct tt_reduction *reduction);

enum { TT_REDUCE_TYPES = 12 };

struct tt_reduce_variant {
    const char *name;
    bool (*usable)(void); // on this processor
    tt_reduce_function *function[TT_REDUCE_TYPES][TT_REDUCE_OPERATORS];
    // Copies `lines` times 64 bytes past the caches; `to` is a multiple of 64.
    void (*stream)(void *to, const void *from, size_t lines);
};

// All variants that were compiled in, best first; NULL ends the list. The last one, "portable", is
// usable everywhere.
extern const struct tt_reduce_variant *const tt_reduce_variants[];
// The best one that is usable here; the same at every call.
const struct tt_reduce_variant *tt_reduce_variant(void);
// tt_reduce with a given variant.
void tt_reduce_with(const struct tt_reduce_variant *variant, const struct tt_reduction *reduction,
                    const struct tt_reduce_places *places, size_t count, bool stream);
void tt_copy_with(const struct tt_reduce_variant *variant, void *const *out, int outs,
                  const void *in, size_t bytes, bool stream);

#endif
