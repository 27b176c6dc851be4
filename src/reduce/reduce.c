// Chooses among the element kernels and cuts a reduction into blocks where it has several outputs.
// SPDX-License-Identifier: Apache-2.0
#include "reduce/reduce.h"

#include <stdatomic.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum {
    BLOCK = 1024, // elements between reduction and stores: at most 8 KiB, in the first cache
    LINE = 64,
};

extern const struct tt_reduce_variant tt_reduce_portable;
#ifdef TT_REDUCE_X86
extern const struct tt_reduce_variant tt_reduce_avx2, tt_reduce_avx512;
#endif

const struct tt_reduce_variant *const tt_reduce_variants[] = {
#ifdef TT_REDUCE_X86
    &tt_reduce_avx512,
    &tt_reduce_avx2,
#endif
    &tt_reduce_portable,
    NULL,
};

const struct tt_reduce_variant *tt_reduce_variant(void)
{
    // Any thread may fill it, always with the same value.
    static _Atomic(const struct tt_reduce_variant *) chosen;
    const struct tt_reduce_variant *variant = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (variant == NULL) {
        variant = &tt_reduce_portable;
        for (size_t i = 0; tt_reduce_variants[i] != NULL; i++) {
            if (tt_reduce_variants[i]->usable()) {
                variant = tt_reduce_variants[i];
                break;
            }
        }
        atomic_store_explicit(&chosen, variant, memory_order_relaxed);
    }
    return variant;
}

size_t tt_type_bytes(ncclDataType_t type)
{
    static const unsigned char bytes[TT_REDUCE_TYPES] = {
        [ncclInt8] = 1,    [ncclUint8] = 1,    [ncclInt32] = 4,      [ncclUint32] = 4,
        [ncclInt64] = 8,   [ncclUint64] = 8,   [ncclFloat16] = 2,    [ncclFloat32] = 4,
        [ncclFloat64] = 8, [ncclBfloat16] = 2, [ncclFloat8e4m3] = 1, [ncclFloat8e5m2] = 1};
    return (unsigned)type < TT_REDUCE_TYPES ? bytes[type] : 0;
}

size_t tt_accumulator_bytes(ncclDataType_t type)
{
    switch (type) {
    case ncclFloat16:
    case ncclBfloat16:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
        return sizeof(float);
    default:
        return tt_type_bytes(type);
    }
}

void tt_reduce_fence(void)
{
#ifdef __SSE2__
    _mm_sfence();
#endif
}

// The block goes to one output: whole lines past the caches, the rest as it comes.
static void stream_block(const struct tt_reduce_variant *variant, char *to, const char *from,
                         size_t bytes)
{
    size_t head = (size_t)(-(uintptr_t)to % LINE);
    head = head < bytes ? head : bytes;
    size_t lines = (bytes - head) / LINE, done = head + lines * LINE;
    memmove(to, from, head);
    variant->stream(to + head, from + head, lines);
    memmove(to + done, from + done, bytes - done);
}

void tt_reduce_with(const struct tt_reduce_variant *variant, const struct tt_reduction *reduction,
                    const struct tt_reduce_places *places, size_t count, bool stream)
{
    tt_reduce_function *function = variant->function[reduction->type][reduction->op];
    if (places->outs == 1 && !stream) {
        function(places->out[0], places->in, places->ins, 0, count, reduction);
        return;
    }
    _Alignas(LINE) char block[BLOCK * sizeof(double)];
    size_t element = tt_type_bytes(reduction->type);
    size_t result = reduction->partial_out ? tt_accumulator_bytes(reduction->type) : element;
    // A first block that ends where the first output's lines begin, then whole lines.
    size_t take = (size_t)(-(uintptr_t)places->out[0] % LINE) / result;
    take = take == 0 ? BLOCK : take;
    for (size_t done = 0; done < count; done += take, take = BLOCK) {
        take = take < count - done ? take : count - done;
        function(block, places->in, places->ins, done * element, take, reduction);
        for (int i = 0; i < places->outs; i++) {
            char *to = (char *)places->out[i] + done * result;
            if (stream) {
                stream_block(variant, to, block, take * result);
            } else {
                memcpy(to, block, take * result);
            }
        }
    }
}

void tt_reduce(const struct tt_reduction *reduction, const struct tt_reduce_places *places,
               size_t count, bool stream)
{
    tt_reduce_with(tt_reduce_variant(), reduction, places, count, stream);
}

void tt_copy_with(const struct tt_reduce_variant *variant, void *const *out, int outs,
                  const void *in, size_t bytes, bool stream)
{
    // Several outputs take their turns, so that the input is read from the first cache. A program's
    // buffers may overlap, with results of no use: so memmove, here and in stream_block.
    size_t most = outs == 1 ? bytes : BLOCK * sizeof(double);
    for (size_t done = 0; done < bytes; done += most) {
        size_t take = bytes - done < most ? bytes - done : most;
        const char *from = (const char *)in + done;
        for (int i = 0; i < outs; i++) {
            char *to = (char *)out[i] + done;
            if (to == from) {
                continue;
            }
            if (stream) {
                stream_block(variant, to, from, take);
            } else {
                memmove(to, from, take);
            }
        }
    }
}

void tt_copy(void *const *out, int outs, const void *in, size_t bytes, bool stream)
{
    tt_copy_with(tt_reduce_variant(), out, outs, in, bytes, stream);
}
