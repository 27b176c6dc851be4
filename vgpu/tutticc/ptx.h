// Inline PTX: parsing its text, and the C++ that does the same.
//
// An asm statement becomes a block: its operands are evaluated into variables that hold registers'
// bits, each instruction becomes calls of templates in vgpu/ptx.h, and outputs are stored at the
// end.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTICC_PTX_H
#define TUTTICC_PTX_H

#include "text.h"

enum ptx_operand_kind {
    PTX_VALUE,   // a register, a special register or a number: `text` is a C++ expression
    PTX_VECTOR,  // {a, b, ...}: element[0 .. count-1]
    PTX_ADDRESS, // [a + offset]: `text` is a C++ expression for a number
    PTX_SINK,    // _
};

enum { PTX_MAX_PARTS = 16, PTX_MAX_OPERANDS = 8, PTX_MAX_ELEMENTS = 16 };

struct ptx_operand {
    enum ptx_operand_kind kind;
    char *text;
    char *element[PTX_MAX_ELEMENTS]; // of a vector; NULL for a sink
    int count;
    int bytes;   // of the register; 0 for numbers, predicates and special registers
    bool second; // follows a `|`: the second of two results
};

// One instruction: `multimem.ld_reduce.global.add.f32` has part[0] = "multimem", part[1] =
// "ld_reduce", ...
struct ptx_instruction {
    char *name; // as written
    char *part[PTX_MAX_PARTS];
    int part_count;
    struct ptx_operand operand[PTX_MAX_OPERANDS];
    int operand_count;
    char *guard; // C++ condition; NULL: always
};

// One operand of the asm statement.
struct ptx_asm_operand {
    char *name;      // [name]; NULL
    char constraint; // r l h f d q n
};

struct ptx_program {
    const struct ptx_asm_operand *operand;
    int operand_count;
    bool has_colons; // with operand lists % is written %%
    int arch;
    bool checks_arch; // refuse what the target does not have
    int serial;       // makes generated names differ
};

// The C++ name of asm operand i's register.
#define PTX_REGISTER "vgpu_r%d_%d"

// Whether the first instruction in `ptx` is spelled like PTX (not like x86).
bool ptx_looks_like(const char *ptx, bool in_device_code);

// Appends to `out` C++ statements for `ptx` (the template string's value). NULL, or what is wrong
// (the caller frees).
char *ptx_translate(const char *ptx, const struct ptx_program *program, struct text *out);

// One instruction; NULL or what is wrong. Implemented by the table in ptx_instructions.c.
char *ptx_emit(const struct ptx_instruction *instruction, const struct ptx_program *program,
               struct text *out);
// Whether there is any instruction of this first part.
bool ptx_known_opcode(const char *part, size_t length);

#endif
