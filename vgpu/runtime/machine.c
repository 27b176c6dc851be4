// Built-in virtual machines, and the choice by VGPU_MACHINE. visible.c has what a process sees of
// it.
//
// A machine is a table of facts about real ones: devices, PCI addresses, memory, links. Uuids come
// from a hash of machine name and index, so that every process names the same device alike.
// SPDX-License-Identifier: Apache-2.0
#include "machine.h"

#include "settings.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_FILE_BYTES = 4 << 20 };

struct builtin {
    const char *name;
    const char *device_name;
    int device_count;
    int major, minor, multiprocessors;
    size_t memory_mib;
    bool nvlink, multicast;
    unsigned char bus[8];
};

static const struct builtin BUILTINS[] = {
    {"dgx-h100",
     "tutti virtual H100",
     8,
     9,
     0,
     132,
     81559,
     true,
     true,
     {0x1b, 0x43, 0x52, 0x61, 0x9d, 0xc3, 0xd1, 0xdf}},
    {"hgx-a100",
     "tutti virtual A100-SXM4",
     8,
     8,
     0,
     108,
     81251,
     true,
     false,
     {0x07, 0x0f, 0x47, 0x4e, 0x87, 0x90, 0xb7, 0xbd}},
    {"pcie-4",
     "tutti virtual H100 PCIe",
     4,
     9,
     0,
     114,
     81559,
     false,
     false,
     {0x17, 0x65, 0xca, 0xe3}},
    {"none", "", 0, 0, 0, 0, 0, false, false, {0}},
};
enum { BUILTIN_COUNT = sizeof(BUILTINS) / sizeof(BUILTINS[0]) };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct vgpu_machine chosen;

// One round of a 64-bit mixer (the finaliser of splitmix64).
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

void vgpu_machine_uuid(unsigned char uuid[16], const char *machine, int number)
{
    uint64_t hash = (uint64_t)number;
    for (const char *c = machine; *c; c++) {
        hash = mix(hash ^ (unsigned char)*c);
    }
    uint64_t half[2] = {mix(hash), mix(hash + 1)};
    memcpy(uuid, half, 16);
    uuid[6] = (unsigned char)((uuid[6] & 0x0f) | 0x40); // the form of a random uuid (version 4)
    uuid[8] = (unsigned char)((uuid[8] & 0x3f) | 0x80);
}

// Reads one hexadecimal field of at most `digits` digits; NULL where there is none.
// NOLINTNEXTLINE(readability-function-size): it counts what <ctype.h>'s macros expand to
static const char *read_field(const char *text, int digits, long *value)
{
    int count = 0;
    *value = 0;
    while (count < digits && isxdigit((unsigned char)*text)) {
        int digit = tolower((unsigned char)*text);
        *value = *value * 16 + (isdigit(digit) ? digit - '0' : digit - 'a' + 10);
        text++;
        count++;
    }
    return count > 0 ? text : NULL;
}

bool vgpu_machine_busid(const char *text, long *busid_out)
{
    long field[3];
    int count = 0;
    const char *at = text + strspn(text, " \t\n\v\f\r");
    do {
        at = read_field(count > 0 ? at + 1 : at, 8, &field[count]);
        count++;
    } while (at && *at == ':' && count < 3);
    if (!at || count < 2 || (count == 2 && *at != '.')) {
        return false;
    }
    long function = 0;
    if (*at == '.') {
        at = read_field(at + 1, 1, &function);
    }
    long domain = count == 3 ? field[0] : 0;
    long bus = field[count - 2];
    long device = field[count - 1];
    if (!at || *at || domain > 0xffff || bus > 0xff || device > 31 || function > 7) {
        return false;
    }
    *busid_out = domain << 16 | bus << 8 | device << 3 | function;
    return true;
}

bool vgpu_machine_builtin(struct vgpu_machine *machine, const char *name)
{
    const struct builtin *found = NULL;
    for (int i = 0; i < BUILTIN_COUNT; i++) {
        if (strcmp(BUILTINS[i].name, name) == 0) {
            found = &BUILTINS[i];
        }
    }
    if (!found) {
        return false;
    }
    memset(machine, 0, sizeof(*machine));
    (void)snprintf(machine->name, sizeof(machine->name), "%s", name);
    machine->device_count = found->device_count;
    uint64_t all = (1ull << found->device_count) - 1;
    for (int i = 0; i < found->device_count; i++) {
        struct vgpu_device_info *info = &machine->device[i];
        (void)snprintf(info->name, sizeof(info->name), "%s", found->device_name);
        vgpu_machine_uuid(info->uuid, found->name, i);
        info->pci_bus = found->bus[i];
        info->major = found->major;
        info->minor = found->minor;
        info->multiprocessors = found->multiprocessors;
        info->memory_bytes = found->memory_mib << 20;
        info->multicast = found->multicast;
        info->nvlink = found->nvlink;
        info->physical = i;
        machine->linked[i] = found->nvlink ? all & ~(1ull << i) : 0;
    }
    return true;
}

// ---- The choice --------------------------------------------------------------------------------

// Reads a whole file of at most MAX_FILE_BYTES; NULL with a reason in machine->error.
static char *read_file(struct vgpu_machine *machine, const char *path, size_t *length_out)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        (void)snprintf(machine->error, sizeof(machine->error), "%.200s: %m", path);
        return NULL;
    }
    char *text = malloc(MAX_FILE_BYTES + 1);
    size_t length = text ? fread(text, 1, MAX_FILE_BYTES + 1, file) : 0;
    bool failed = ferror(file) != 0;
    (void)fclose(file);
    if (!text || failed || length > MAX_FILE_BYTES) {
        (void)snprintf(machine->error, sizeof(machine->error), "%.200s: %s", path,
                       !text    ? "no memory to read it"
                       : failed ? "cannot be read"
                                : "is longer than 4 MiB");
        free(text);
        return NULL;
    }
    *length_out = length;
    return text;
}

static void choose_machine(void)
{
    const char *name = vgpu_setting(VGPU_SETTING_MACHINE);
    if (!name || !*name) {
        name = "dgx-h100";
    }
    if (!vgpu_machine_builtin(&chosen, name)) {
        if (strchr(name, '/') || strstr(name, ".xml")) {
            size_t length = 0;
            char *text = read_file(&chosen, name, &length);
            if (text) {
                vgpu_machine_parse(&chosen, text, length, name);
                free(text);
            }
        } else {
            (void)snprintf(
                chosen.error, sizeof(chosen.error),
                "VGPU_MACHINE is \"%.100s\"; it must be dgx-h100, hgx-a100, pcie-4, none or "
                "the path of a topology file (*.xml)",
                name);
        }
    }
    if (!chosen.error[0]) {
        vgpu_machine_restrict(&chosen, vgpu_setting(VGPU_SETTING_DEVICES));
    }
    if (chosen.error[0]) {
        chosen.device_count = 0;
        chosen.error_code = cudaErrorInitializationError;
        (void)fprintf(stderr, "vgpu: %s\n", chosen.error);
        return;
    }
    vgpu_machine_order(&chosen, vgpu_setting(VGPU_SETTING_DEVICE_ORDER));
    vgpu_machine_filter(&chosen, vgpu_setting(VGPU_SETTING_VISIBLE_DEVICES));
}

const struct vgpu_machine *vgpu_machine(void)
{
    pthread_once(&once, choose_machine);
    return &chosen;
}
