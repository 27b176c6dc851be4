// Names of registers in inline PTX: declared ones, operands of the asm statement, special ones.
// SPDX-License-Identifier: Apache-2.0
#include "ptx_parse.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static int type_bytes(const char *type, size_t length)
{
    static const struct {
        const char *name;
        int bytes;
    } TYPES[] = {{"pred", 0}, {"b8", 1},  {"u8", 1},  {"s8", 1},    {"b16", 2},
                 {"u16", 2},  {"s16", 2}, {"f16", 2}, {"bf16", 2},  {"b32", 4},
                 {"u32", 4},  {"s32", 4}, {"f32", 4}, {"f16x2", 4}, {"bf16x2", 4},
                 {"b64", 8},  {"u64", 8}, {"s64", 8}, {"f64", 8},   {"b128", 16}};
    for (size_t i = 0; i < sizeof(TYPES) / sizeof(TYPES[0]); i++) {
        if (strlen(TYPES[i].name) == length && memcmp(TYPES[i].name, type, length) == 0) {
            return TYPES[i].bytes;
        }
    }
    return -1;
}

static const char *register_type(int bytes)
{
    switch (bytes) {
    case 0:
        return "bool";
    case 1:
        return "unsigned char";
    case 2:
        return "unsigned short";
    case 4:
        return "unsigned int";
    case 8:
        return "unsigned long long";
    default:
        return "unsigned __int128";
    }
}

static void declare(struct parser *p, const char *name, size_t length, int count, int bytes)
{
    if (p->declared_count == p->declared_capacity) {
        p->declared_capacity = p->declared_capacity ? p->declared_capacity * 2 : 8;
        p->declared = reallocate(p->declared, (size_t)p->declared_capacity * sizeof(*p->declared));
    }
    struct declared *d = &p->declared[p->declared_count++];
    *d = (struct declared){.name = copy_string(name, length),
                           .count = count,
                           .bytes = bytes,
                           .depth = p->depth,
                           .serial = ++p->serial};
    int first = 0, last = count ? count : 1;
    for (int i = first; i < last; i++) {
        // Not initialised: a branch may lead past it.
        text_printf(p->out, " %s vgpu_v%d_%d_%d; vgpu_v%d_%d_%d = 0; (void)vgpu_v%d_%d_%d;",
                    register_type(bytes), p->program->serial, d->serial, i, p->program->serial,
                    d->serial, i, p->program->serial, d->serial, i);
    }
}

// .reg .type name, name<count>;
bool ptx_read_declaration(struct parser *p)
{
    ptx_skip_space(p);
    if (!ptx_take_character(p, '.')) {
        return ptx_fail(p, "expected a type after .reg in inline PTX");
    }
    size_t length = 0;
    while (ptx_is_name_part(p->at[length])) {
        length++;
    }
    int bytes = type_bytes(p->at, length);
    if (bytes < 0) {
        return ptx_fail(p, "tutticc does not know the PTX register type '.%.*s'", (int)length,
                        p->at);
    }
    p->at += length;
    do {
        ptx_skip_space(p);
        p->at += strspn(p->at, "%");
        const char *name = p->at;
        while (ptx_is_name_part(*p->at)) {
            p->at++;
        }
        size_t name_length = (size_t)(p->at - name);
        if (name_length == 0) {
            return ptx_fail(p, "expected a name in a .reg declaration of inline PTX");
        }
        int count = 0;
        if (ptx_take_character(p, '<')) {
            char *end;
            long value = strtol(p->at, &end, 10);
            if (end == p->at || value < 1 || value > 256) {
                return ptx_fail(p, "a .reg declaration of inline PTX needs a count of 1 to 256");
            }
            p->at = end;
            count = (int)value;
            if (!ptx_take_character(p, '>')) {
                return ptx_fail(p, "expected '>' in a .reg declaration of inline PTX");
            }
        }
        declare(p, name, name_length, count, bytes);
    } while (ptx_take_character(p, ','));
    return true;
}

// A declared register's C++ name, and its size; NULL if there is none of that name.
char *ptx_find_declared(const struct parser *p, const char *name, size_t length, int *bytes)
{
    for (int i = p->declared_count - 1; i >= 0; i--) {
        const struct declared *d = &p->declared[i];
        size_t own = strlen(d->name);
        if (d->count == 0 && own == length && memcmp(d->name, name, length) == 0) {
            *bytes = d->bytes;
            return format_string("vgpu_v%d_%d_0", p->program->serial, d->serial);
        }
        if (d->count > 0 && own < length && memcmp(d->name, name, own) == 0) {
            int number = 0;
            size_t k = own;
            while (k < length && isdigit((unsigned char)name[k]) && number < 1000) {
                number = number * 10 + (name[k++] - '0');
            }
            if (k == length && number < d->count) {
                *bytes = d->bytes;
                return format_string("vgpu_v%d_%d_%d", p->program->serial, d->serial, number);
            }
        }
    }
    return NULL;
}

static int constraint_bytes(char constraint)
{
    switch (constraint) {
    case 'h':
        return 2;
    case 'r':
    case 'f':
        return 4;
    case 'l':
    case 'd':
        return 8;
    case 'q':
        return 16;
    default:
        return 0;
    }
}

// %0, %[name]: an operand of the asm statement. Leaves p->at where it was and returns NULL if it is
// none.
char *ptx_read_asm_operand(struct parser *p, int *bytes)
{
    const struct ptx_program *program = p->program;
    int found = -1;
    const char *end = p->at + 1;
    if (isdigit((unsigned char)*end)) {
        long number = strtol(end, (char **)&end, 10);
        if (number >= program->operand_count) {
            ptx_fail(p, "inline PTX names operand %%%ld, but there are %d operands", number,
                     program->operand_count);
            return NULL;
        }
        found = (int)number;
    } else if (*end == '[') {
        const char *name = ++end;
        end += strcspn(end, "]");
        for (int i = 0; i < program->operand_count; i++) {
            const char *own = program->operand[i].name;
            if (own && strlen(own) == (size_t)(end - name) && memcmp(own, name, strlen(own)) == 0) {
                found = i;
            }
        }
        if (found < 0 || *end != ']') {
            ptx_fail(p, "inline PTX names an operand [%.*s] that the statement does not have",
                     (int)(end - name), name);
            return NULL;
        }
        end++;
    }
    if (found < 0) {
        return NULL;
    }
    p->at = end;
    *bytes = constraint_bytes(program->operand[found].constraint);
    return format_string(PTX_REGISTER, program->serial, found);
}

// %laneid, %tid.x, ...: a call of the function of that name.
char *ptx_read_special(struct parser *p)
{
    static const char *const SPECIAL[] = {"tid.x",
                                          "tid.y",
                                          "tid.z",
                                          "ntid.x",
                                          "ntid.y",
                                          "ntid.z",
                                          "ctaid.x",
                                          "ctaid.y",
                                          "ctaid.z",
                                          "nctaid.x",
                                          "nctaid.y",
                                          "nctaid.z",
                                          "laneid",
                                          "warpid",
                                          "nwarpid",
                                          "smid",
                                          "nsmid",
                                          "gridid",
                                          "lanemask_eq",
                                          "lanemask_lt",
                                          "lanemask_le",
                                          "lanemask_gt",
                                          "lanemask_ge",
                                          "clock",
                                          "clock_hi",
                                          "clock64",
                                          "globaltimer",
                                          "globaltimer_lo",
                                          "globaltimer_hi",
                                          "dynamic_smem_size",
                                          "total_smem_size",
                                          "clusterid.x",
                                          "clusterid.y",
                                          "clusterid.z",
                                          "nclusterid.x",
                                          "nclusterid.y",
                                          "nclusterid.z",
                                          "cluster_ctaid.x",
                                          "cluster_ctaid.y",
                                          "cluster_ctaid.z",
                                          "cluster_nctaid.x",
                                          "cluster_nctaid.y",
                                          "cluster_nctaid.z",
                                          "cluster_ctarank",
                                          "cluster_nctarank"};
    const char *name = p->at;
    size_t length = 0;
    while (ptx_is_name_part(name[length]) ||
           (name[length] == '.' && isalpha((unsigned char)name[length + 1]))) {
        length++;
    }
    for (size_t i = 0; i < sizeof(SPECIAL) / sizeof(SPECIAL[0]); i++) {
        if (strlen(SPECIAL[i]) == length && memcmp(SPECIAL[i], name, length) == 0) {
            p->at += length;
            char *text = format_string("::vgpu::ptx::special_%s()", SPECIAL[i]);
            for (char *c = text; *c; c++) {
                *c = *c == '.' ? '_' : *c;
            }
            return text;
        }
    }
    ptx_fail(p, "tutticc does not know the PTX register '%%%.*s'", (int)length, name);
    return NULL;
}
