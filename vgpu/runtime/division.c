// Integer division by zero does not trap on a GPU, and programs count on that: they compute a
// quotient first and look at whether it means anything later. The processor traps; this gives the
// division a result (all ones, with the dividend as remainder; the dividend itself for the one
// quotient that does not fit) and steps over it. The checking mode reports it instead.
// SPDX-License-Identifier: Apache-2.0
#include "division.h"

#if defined(__x86_64__)
#include <stdint.h>
#include <ucontext.h>

struct division {
    unsigned bytes; // operand size: 1, 2, 4 or 8
    bool is_signed;
    unsigned length; // of the instruction
};

// Bytes of the operand behind ModRM.
static unsigned operand_length(const uint8_t *modrm)
{
    unsigned mode = modrm[0] >> 6;
    unsigned rm = modrm[0] & 7;
    unsigned sib = mode != 3 && rm == 4;
    bool no_base = mode == 0 && (sib ? (modrm[1] & 7) == 5 : rm == 5);
    return sib + (mode == 1 ? 1 : mode == 2 || no_base ? 4 : 0);
}

// Whether `code` is DIV or IDIV (F6 or F7, /6 or /7).
static bool decode(const uint8_t *code, struct division *division)
{
    const uint8_t *at = code;
    bool narrow = false;
    bool wide = false;
    for (; *at == 0x66 || *at == 0x2e || *at == 0x3e || *at == 0x64 || *at == 0x65; at++) {
        narrow |= *at == 0x66;
    }
    if ((*at & 0xf0) == 0x40) { // REX
        wide = (*at & 8) != 0;
        at++;
    }
    if (*at != 0xf6 && *at != 0xf7) {
        return false;
    }
    unsigned operation = at[1] >> 3 & 7;
    division->bytes = *at == 0xf6 ? 1 : wide ? 8 : narrow ? 2 : 4;
    division->is_signed = operation == 7;
    division->length = (unsigned)(at + 2 - code) + operand_length(at + 1);
    return operation >= 6;
}

// The register with its low `bytes` bytes replaced; 4 bytes clear the rest, as instructions do.
static greg_t replace(greg_t before, uint64_t value, unsigned bytes)
{
    uint64_t mask = bytes == 8 ? ~0ull : (1ull << 8 * bytes) - 1;
    uint64_t keep = bytes >= 4 ? 0 : ~mask;
    return (greg_t)(((uint64_t)before & keep) | (value & mask));
}

bool vgpu_step_over_division(void *context)
{
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    struct division division;
    if (!decode((const uint8_t *)registers[REG_RIP], &division)) {
        return false;
    }
    unsigned bytes = division.bytes;
    uint64_t low = (uint64_t)registers[REG_RAX];
    uint64_t sign = 1ull << (8 * bytes - 1);
    uint64_t dividend = low & (sign | (sign - 1));
    bool overflow = division.is_signed && dividend == sign; // the least number by -1
    uint64_t quotient = overflow ? sign : ~0ull;
    uint64_t remainder = overflow ? 0 : dividend;
    if (bytes == 1) { // AL and AH
        registers[REG_RAX] = replace(registers[REG_RAX], (quotient & 0xff) | remainder << 8, 2);
    } else {
        registers[REG_RAX] = replace(registers[REG_RAX], quotient, bytes);
        registers[REG_RDX] = replace(registers[REG_RDX], remainder, bytes);
    }
    registers[REG_RIP] += division.length;
    return true;
}
#else
bool vgpu_step_over_division(void *context) // other processors do not trap
{
    (void)context;
    return false;
}
#endif
