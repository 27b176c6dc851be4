// See rmsnorm_claim.h. SPDX-License-Identifier: Apache-2.0
#include "exec/rmsnorm_claim.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// The payload of the entry; tokens and type are in its call.
struct claim {
    uint64_t hidden;
    uint64_t input_offset, output_offset;
    float eps;
    uint16_t input_window, output_window;
    uint8_t has_gamma, has_residual;
    uint8_t unused[6];
};
_Static_assert(sizeof(struct claim) == TT_ARENA_PAYLOAD, "it fills the payload");

void tt_rmsnorm_claim(const struct tt_rmsnorm *operation, struct tt_entry *entry_out)
{
    struct claim claim = {
        .hidden = operation->hidden,
        .input_offset = operation->input_offset,
        .output_offset = operation->output_offset,
        .eps = operation->eps,
        .input_window = (uint16_t)operation->input_window,
        .output_window = (uint16_t)operation->output_window,
        .has_gamma = operation->gamma != NULL,
        .has_residual = operation->residual != NULL,
    };
    memset(entry_out, 0, sizeof *entry_out);
    entry_out->call = (struct tt_call){.count = operation->tokens,
                                       .function = TT_FUSED_RMSNORM,
                                       .type = (uint8_t)operation->data_type};
    memcpy(entry_out->payload, &claim, sizeof claim);
}

// As FNV-1a (Fowler, Noll, Vo) over words of 8 bytes, folded to the bits that are compared.
uint64_t tt_rmsnorm_signature(const struct tt_entry *entry)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325), word[7];
    memcpy(word, &entry->call, sizeof entry->call);
    memcpy(&word[2], entry->payload, sizeof entry->payload);
    for (size_t i = 0; i < sizeof word / sizeof word[0]; i++) {
        hash = (hash ^ word[i]) * UINT64_C(0x100000001b3);
        hash ^= hash >> 29; // a product's upper bits reach no lower ones
    }
    return hash ^ hash >> 40;
}
_Static_assert(sizeof(struct tt_call) + TT_ARENA_PAYLOAD == 7 * sizeof(uint64_t), "seven words");

bool tt_rmsnorm_difference(const struct tt_entry *mine, const struct tt_entry *theirs, char *text,
                           size_t bytes)
{
    struct claim a, b;
    memcpy(&a, mine->payload, sizeof a);
    memcpy(&b, theirs->payload, sizeof b);
    const struct {
        const char *name;
        uint64_t mine, theirs;
    } field[] = {
        {"tokens", mine->call.count, theirs->call.count},
        {"hidden", a.hidden, b.hidden},
        {"datatype", mine->call.type, theirs->call.type},
        {"sendbuff's window", a.input_window, b.input_window},
        {"sendbuff's offset", a.input_offset, b.input_offset},
        {"recvbuff's window", a.output_window, b.output_window},
        {"recvbuff's offset", a.output_offset, b.output_offset},
        {"gamma given", a.has_gamma, b.has_gamma},
        {"residual given", a.has_residual, b.has_residual},
    };
    for (size_t i = 0; i < sizeof field / sizeof field[0]; i++) {
        if (field[i].mine != field[i].theirs) {
            (void)snprintf(text, bytes, "%s is %" PRIu64 " here and %" PRIu64 " there",
                           field[i].name, field[i].mine, field[i].theirs);
            return true;
        }
    }
    if (a.eps < b.eps || a.eps > b.eps) {
        (void)snprintf(text, bytes, "eps is %g here and %g there", (double)a.eps, (double)b.eps);
        return true;
    }
    return false;
}
