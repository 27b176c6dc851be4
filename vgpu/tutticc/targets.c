// Architectures: nvcc's options for them, and the choice for a machine.
// SPDX-License-Identifier: Apache-2.0
#include "targets.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int ALL[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};
static const int ALL_MAJOR[] = {75, 80, 90, 100, 110, 120};
enum {
    ALL_COUNT = sizeof(ALL) / sizeof(ALL[0]),
    ALL_MAJOR_COUNT = sizeof(ALL_MAJOR) / sizeof(ALL_MAJOR[0])
};

static void add_target(struct targets *targets, struct target target)
{
    for (int i = 0; i < targets->count; i++) {
        const struct target *old = &targets->item[i];
        if (old->arch == target.arch && old->ptx == target.ptx && old->suffix == target.suffix &&
            old->virtual_arch == target.virtual_arch) {
            return;
        }
    }
    targets->item =
        reallocate(targets->item, ((size_t)targets->count + 1) * sizeof(*targets->item));
    targets->item[targets->count++] = target;
}

void targets_free(struct targets *targets)
{
    free(targets->item);
    *targets = (struct targets){0};
}

// Reads `90a` up to the end of text[0 .. length-1].
static bool read_arch(const char *text, size_t length, int *arch, char *suffix)
{
    int value = 0;
    size_t i = 0;
    for (; i < length && isdigit((unsigned char)text[i]) && i < 4; i++) {
        value = value * 10 + (text[i] - '0');
    }
    *suffix = 0;
    if (i > 0 && i + 1 == length && (text[i] == 'a' || text[i] == 'f')) {
        *suffix = text[i++];
    }
    *arch = value;
    return i == length && value >= 20 && value < 1000;
}

// Whether nvcc 13 compiles for it.
static bool is_known(int arch)
{
    bool known = false;
    for (size_t i = 0; i < ALL_COUNT; i++) {
        known |= ALL[i] == arch;
    }
    return known;
}

// Reads `sm_90` or `compute_90`.
static bool read_name(const char *text, size_t length, struct target *target)
{
    static const char SM[] = "sm_", COMPUTE[] = "compute_";
    *target = (struct target){0};
    bool sm = length > 3 && memcmp(text, SM, 3) == 0;
    target->ptx = length > 8 && memcmp(text, COMPUTE, 8) == 0;
    size_t skip = sm ? 3 : 8;
    return (sm || target->ptx) &&
           read_arch(text + skip, length - skip, &target->arch, &target->suffix) &&
           is_known(target->arch);
}

static char *bad_name(const char *text, size_t length)
{
    struct text list = {0};
    for (size_t i = 0; i < ALL_COUNT; i++) {
        text_printf(&list, "%s%d", i ? ", " : "", ALL[i]);
    }
    char *error = format_string("'%.*s' is no GPU architecture of CUDA 13: write sm_ or compute_ "
                                "and one of %s",
                                (int)length, text, list.data);
    text_free(&list);
    return error;
}

// Adds each of a comma list of code names, perhaps in brackets, for one virtual architecture.
static char *add_codes(struct targets *targets, const char *codes, size_t length, int virtual_arch)
{
    if (length >= 2 && codes[0] == '[' && codes[length - 1] == ']') {
        codes++;
        length -= 2;
    }
    while (length > 0) {
        const char *comma = memchr(codes, ',', length);
        size_t own = comma ? (size_t)(comma - codes) : length;
        const char *name = codes;
        size_t name_length = own;
        if (name_length >= 2 && (name[0] == '\'' || name[0] == '"')) {
            name++;
            name_length -= 2;
        }
        struct target target;
        if (!read_name(name, name_length, &target)) {
            return bad_name(name, name_length);
        }
        target.virtual_arch = virtual_arch;
        if (target.arch < virtual_arch) {
            return format_string("code for sm_%d cannot be made from compute_%d", target.arch,
                                 virtual_arch);
        }
        add_target(targets, target);
        size_t used = own + (comma ? 1 : 0);
        codes += used;
        length -= used;
    }
    return NULL;
}

char *targets_add_gencode(struct targets *targets, const char *value)
{
    const char *arch = strstr(value, "arch=");
    const char *code = strstr(value, "code=");
    if (!arch) {
        return format_string("-gencode needs arch=compute_..,code=.., not '%s'", value);
    }
    arch += 5;
    size_t length = strcspn(arch, ",");
    struct target target;
    bool known = read_name(arch, length, &target);
    if (!known && target.arch > 0) {
        return bad_name(arch, length);
    }
    if (!known || !target.ptx) {
        return format_string(
            "-gencode arch= needs a virtual architecture such as compute_90, not '%.*s'",
            (int)length, arch);
    }
    if (!code) {
        target.virtual_arch = target.arch;
        add_target(targets, target);
        return NULL;
    }
    code += 5;
    size_t code_length = code[0] == '[' ? strcspn(code, "]") + 1 : strlen(code);
    if (code_length > strlen(code)) {
        return format_string("-gencode code=[..] has no ']' in '%s'", value);
    }
    return add_codes(targets, code, code_length, target.arch);
}

char *targets_add_arch(struct targets *targets, const char *arch, const char *code, int machine)
{
    bool all = strcmp(arch, "all") == 0, major = strcmp(arch, "all-major") == 0;
    if (all || major) {
        const int *list = all ? ALL : ALL_MAJOR;
        int count = all ? ALL_COUNT : ALL_MAJOR_COUNT;
        for (int i = 0; i < count; i++) {
            add_target(targets, (struct target){.virtual_arch = list[i], .arch = list[i]});
        }
        int last = list[count - 1];
        add_target(targets, (struct target){.virtual_arch = last, .arch = last, .ptx = true});
        return NULL;
    }
    if (strcmp(arch, "native") == 0) {
        add_target(targets, (struct target){.virtual_arch = machine, .arch = machine});
        return NULL;
    }
    struct target target;
    if (!read_name(arch, strlen(arch), &target)) {
        return bad_name(arch, strlen(arch));
    }
    target.virtual_arch = target.arch;
    if (code) {
        return add_codes(targets, code, strlen(code), target.arch);
    }
    if (!target.ptx) {
        add_target(targets, target);
    }
    target.ptx = true;
    add_target(targets, target);
    return NULL;
}

// ---- The choice --------------------------------------------------------------------------------

static bool fits(const struct target *target, int device)
{
    if (target->suffix == 'a') {
        return target->arch == device;
    }
    if (target->suffix == 'f' || !target->ptx) {
        return target->arch / 10 == device / 10 && target->arch <= device;
    }
    return target->arch <= device;
}

int targets_choose(const struct targets *targets, int device_arch)
{
    int best = -1;
    for (int i = 0; i < targets->count; i++) {
        const struct target *target = &targets->item[i];
        if (!fits(target, device_arch)) {
            continue;
        }
        // Of equal ones the one with more features, then ready code.
        const struct target *old = best >= 0 ? &targets->item[best] : NULL;
        bool better = !old || target->arch > old->arch ||
                      (target->arch == old->arch && (target->suffix != 0) > (old->suffix != 0)) ||
                      (target->arch == old->arch && (target->suffix != 0) == (old->suffix != 0) &&
                       target->ptx < old->ptx);
        best = better ? i : best;
    }
    return best;
}

int targets_highest(const struct targets *targets)
{
    int best = 0;
    for (int i = 1; i < targets->count; i++) {
        best = targets->item[i].arch > targets->item[best].arch ? i : best;
    }
    return best;
}

// ---- The machine -------------------------------------------------------------------------------

// The first attribute sm="90" of a gpu element in a topology file; the runtime judges the rest of
// it.
static bool find_sm(const char *text, int *arch)
{
    for (const char *at = text; (at = strchr(at, '<'));) {
        if (strncmp(at, "<!--", 4) == 0) {
            at = strstr(at, "-->");
            if (!at) {
                return false;
            }
            continue;
        }
        size_t length = strcspn(at, ">");
        bool gpu = strncmp(at, "<gpu", 4) == 0 && isspace((unsigned char)at[4]);
        for (const char *sm = at; gpu && (sm = strstr(sm, "sm=")) && sm < at + length; sm += 3) {
            if (isspace((unsigned char)sm[-1]) && (sm[3] == '"' || sm[3] == '\'')) {
                char suffix;
                return read_arch(sm + 4, strspn(sm + 4, "0123456789"), arch, &suffix);
            }
        }
        at += length;
    }
    return false;
}

char *machine_arch(const char *name, int *arch_out)
{
    static const struct {
        const char *name;
        int arch;
    } MACHINES[] = {{"dgx-h100", 90}, {"hgx-a100", 80}, {"pcie-4", 90}, {"none", 90}};
    const char *wanted = name && name[0] ? name : MACHINES[0].name;
    for (size_t i = 0; i < sizeof(MACHINES) / sizeof(MACHINES[0]); i++) {
        if (strcmp(MACHINES[i].name, wanted) == 0) {
            *arch_out = MACHINES[i].arch;
            return NULL;
        }
    }
    struct text file = {0};
    char *error = NULL;
    if (!text_read_file(&file, wanted)) {
        error = format_string("VGPU_MACHINE is '%s': neither dgx-h100, hgx-a100, pcie-4 nor a "
                              "readable topology file (%s)",
                              wanted, strerror(errno));
    } else if (!find_sm(file.data, arch_out)) {
        error = format_string("VGPU_MACHINE is '%s', which has no <gpu ... sm=\"..\">", wanted);
    }
    text_free(&file);
    return error;
}
