// What the files that turn PTX instructions into C++ share.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTICC_PTX_EMIT_H
#define TUTTICC_PTX_EMIT_H

#include "ptx.h"

struct ptx_type {
    const char *name;    // as in PTX
    const char *type;    // in vgpu::ptx, with its own arithmetic
    const char *storage; // in vgpu::ptx, as moved
    int bytes;
    char kind; // b, u, s, f (float), h (16-bit floats and pairs), e (8-bit floats), p (predicate)
};

// NULL where there is no such type.
const struct ptx_type *ptx_find_type(const char *name);

// The parts of an instruction after its opcode, taken one by one; what nobody takes makes it
// unknown.
struct ptx_modifiers {
    const struct ptx_instruction *instruction;
    bool taken[PTX_MAX_PARTS];
};
void ptx_begin(struct ptx_modifiers *m, const struct ptx_instruction *instruction,
               int opcode_parts);
// Whether `part` is there; takes it.
bool ptx_take(struct ptx_modifiers *m, const char *part);
// Takes the first of a list of words ("a b c") that is there; returns its index, or -1.
int ptx_take_one(struct ptx_modifiers *m, const char *words);
// Takes all of a list that are there. A word that ends in * stands for all that begin so.
void ptx_take_all(struct ptx_modifiers *m, const char *words);
// Takes the last part that is a type; NULL if there is none left.
const struct ptx_type *ptx_take_type(struct ptx_modifiers *m);
// Whether nothing is left.
bool ptx_done(const struct ptx_modifiers *m);

// Words that may stand in the names of many instructions and change nothing here.
#define PTX_SPACES                                                                                 \
    "global shared shared::cta shared::cluster const local param param::entry generic"
#define PTX_HINTS  "ca cg cs lu cv wb wt nc L1::* L2::* level::* noftz unified"
#define PTX_SCOPES "cta cluster gpu sys"

// Whether there are `count` operands; a cache policy may follow, which means nothing here.
bool ptx_operand_count_fits(const struct ptx_instruction *instruction, int count);
// Whether operands first .. count-1 are all registers or numbers.
bool ptx_all_values(const struct ptx_instruction *instruction, int first);

// The sentence for an instruction that is not known.
char *ptx_unknown(const struct ptx_instruction *instruction);
char *ptx_wrong_operands(const struct ptx_instruction *instruction);

// Appends the C++ for an address operand, as a char *.
void ptx_add_address(struct text *out, const struct ptx_operand *operand);
// Appends `::vgpu::ptx::set(d, ` ... the caller adds the value and `);`. A sink: `(void)(`.
void ptx_add_result(struct text *out, const struct ptx_operand *operand);

// Handlers of the families; NULL or what is wrong.
typedef char *ptx_handler(const struct ptx_instruction *instruction,
                          const struct ptx_program *program, struct text *out);
ptx_handler ptx_emit_load, ptx_emit_store, ptx_emit_atomic, ptx_emit_fence, ptx_emit_multimem;
ptx_handler ptx_emit_async_copy, ptx_emit_mbarrier, ptx_emit_map, ptx_emit_is_space;
ptx_handler ptx_emit_move, ptx_emit_compare, ptx_emit_convert, ptx_emit_barrier, ptx_emit_vote,
    ptx_emit_shuffle;

#endif
