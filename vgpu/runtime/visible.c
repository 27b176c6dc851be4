// Which devices of its machine a process sees, and how they are numbered.
//
// A task's limit (vgpu/limit.h, VGPU_DEVICES) comes first and keeps the machine's order, as cgroups
// do with real devices; CUDA's own settings count from 0 among what that leaves. The rules of
// CUDA_VISIBLE_DEVICES are documented in outline only: they were read off CUDA 13.0 with two H200s,
// and visible_test.c has the questions and answers.
// SPDX-License-Identifier: Apache-2.0
#include "driver_types.h"
#include "machine.h"
#include "vgpu/limit.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UUID_DIGITS = 32, QUOTED = 60 };

// ---- Uuids -------------------------------------------------------------------------------------

// Reads the hexadecimal digits of a uuid, or of its beginning, up to a comma or the end; hyphens
// may stand anywhere, and what follows the last digit of a whole uuid is not looked at. Returns how
// many there are; -1: something else stands among them.
static int read_digits(const char *text, unsigned char digits[UUID_DIGITS])
{
    int count = 0;
    for (const char *c = text; *c && *c != ',' && count < UUID_DIGITS; c++) {
        if (*c == '-') {
            continue;
        }
        if (!isxdigit((unsigned char)*c)) {
            return -1;
        }
        int digit = tolower((unsigned char)*c);
        digits[count++] = (unsigned char)(digit <= '9' ? digit - '0' : digit - 'a' + 10);
    }
    return count;
}

static bool uuid_begins(const unsigned char uuid[16], const unsigned char *digits, int count)
{
    for (int i = 0; i < count; i++) {
        int digit = i % 2 == 0 ? uuid[i / 2] >> 4 : uuid[i / 2] & 15;
        if (digit != digits[i]) {
            return false;
        }
    }
    return true;
}

// The one device whose uuid has the digits at `text`, or begins with them; -1: none, or several, or
// nothing stands there (one hyphen fits all uuids).
static int find_uuid(const struct vgpu_machine *machine, const char *text)
{
    unsigned char digits[UUID_DIGITS];
    int count = *text && *text != ',' ? read_digits(text, digits) : -1;
    int found = -1;
    for (int i = 0; count >= 0 && i < machine->device_count; i++) {
        if (uuid_begins(machine->device[i].uuid, digits, count)) {
            if (found >= 0) {
                return -1;
            }
            found = i;
        }
    }
    return found;
}

// ---- A task's limit ----------------------------------------------------------------------------

// The device of one entry of VGPU_DEVICES; -1: it names none.
static int find_listed(const struct vgpu_machine *machine, const char *entry)
{
    if (strncmp(entry, "GPU-", 4) == 0) {
        return find_uuid(machine, entry + 4);
    }
    char *end;
    unsigned long number = strtoul(entry, &end, 10);
    bool is_number = isdigit((unsigned char)entry[0]) && (*end == '\0' || *end == ',');
    return is_number && number < (unsigned long)machine->device_count ? (int)number : -1;
}

static int entry_length(const char *entry)
{
    size_t length = strcspn(entry, ",");
    return length < QUOTED ? (int)length : QUOTED;
}

// What VGPU_DEVICES lists, as a set of the machine's numbers; false with machine->error.
static bool read_list(struct vgpu_machine *machine, const char *devices, uint64_t *set_out)
{
    *set_out = 0;
    for (const char *entry = devices; *entry;) {
        int index = find_listed(machine, entry);
        if (index < 0) {
            (void)snprintf(
                machine->error, sizeof(machine->error),
                "VGPU_DEVICES is \"%.*s\": \"%.*s\" names none of the %d GPUs of %.100s; "
                "it must be numbers from 0 to %d, or UUIDs such as GPU-1234abcd, "
                "between commas",
                QUOTED, devices, entry_length(entry), entry, machine->device_count, machine->name,
                machine->device_count - 1);
            return false;
        }
        *set_out |= 1ull << index;
        entry = strchr(entry, ',');
        if (!entry) {
            break;
        }
        entry++;
    }
    return true;
}

void vgpu_machine_restrict(struct vgpu_machine *machine, const char *devices)
{
    uint64_t listed = UINT64_MAX;
    int count = 0;
    if (devices && !read_list(machine, devices, &listed)) {
        machine->device_count = 0;
        return;
    }
    for (int i = 0; i < machine->device_count; i++) {
        if ((listed >> i & 1) != 0 && vgpuDeviceIsAllowed(i)) {
            machine->device[count++] = machine->device[i];
        }
    }
    if (count == 0 && machine->device_count > 0) {
        (void)snprintf(machine->hidden, sizeof(machine->hidden),
                       "%s%.*s%s leaves none of the machine's %d GPUs to this task",
                       devices ? "VGPU_DEVICES=\"" : "", QUOTED, devices ? devices : "",
                       devices ? "\"" : "its launcher", machine->device_count);
    }
    machine->device_count = count;
}

// ---- CUDA_DEVICE_ORDER -------------------------------------------------------------------------

static long address_of(const struct vgpu_device_info *info)
{
    return (long)info->pci_domain << 16 | (long)info->pci_bus << 8 | (long)info->pci_device;
}

static bool is_faster(const struct vgpu_device_info *a, const struct vgpu_device_info *b)
{
    int capability = (a->major - b->major) * 1000 + a->minor - b->minor;
    return capability > 0 || (capability == 0 && a->multiprocessors > b->multiprocessors);
}

// A setting of CUDA's that it refuses: every call then fails with this error.
static void refuse(struct vgpu_machine *machine)
{
    machine->device_count = 0;
    machine->error_code = cudaErrorInvalidDevice;
}

void vgpu_machine_order(struct vgpu_machine *machine, const char *order)
{
    bool by_address = order && strcmp(order, "PCI_BUS_ID") == 0;
    if (order && !by_address && strcmp(order, "FASTEST_FIRST") != 0) {
        (void)snprintf(machine->error, sizeof(machine->error),
                       "CUDA_DEVICE_ORDER is \"%.*s\"; it must be FASTEST_FIRST or PCI_BUS_ID",
                       QUOTED, order);
        refuse(machine);
        return;
    }
    for (int i = 1; i < machine->device_count; i++) { // stable: equals stay as they are
        struct vgpu_device_info moved = machine->device[i];
        int at = i;
        while (at > 0 && (by_address ? address_of(&moved) < address_of(&machine->device[at - 1])
                                     : is_faster(&moved, &machine->device[at - 1]))) {
            machine->device[at] = machine->device[at - 1];
            at--;
        }
        machine->device[at] = moved;
    }
}

// ---- CUDA_VISIBLE_DEVICES ----------------------------------------------------------------------

static bool is_uuid(const char *entry)
{
    return strncmp(entry, "GPU-", 4) == 0 || strncmp(entry, "MIG-", 4) == 0;
}

// The device that one entry names, or -1. As CUDA does: a number is what strtoul makes of it, cut
// to an int, and what stands behind it does not matter; in a list that begins with a uuid all
// entries are uuids, of whole GPUs too where MIG stands before them.
static int find_visible(const struct vgpu_machine *machine, const char *entry, bool by_uuid)
{
    if (by_uuid) {
        return is_uuid(entry) ? find_uuid(machine, entry + 4) : -1;
    }
    char *end;
    int number = (int)(unsigned)strtoul(entry, &end, 10);
    return end != entry && number >= 0 && number < machine->device_count ? number : -1;
}

void vgpu_machine_filter(struct vgpu_machine *machine, const char *visible)
{
    if (!visible || machine->device_count == 0) {
        return;
    }
    struct vgpu_device_info kept[VGPU_MAX_DEVICES];
    int count = 0;
    bool by_uuid = is_uuid(visible);
    const char *entry = visible;
    while (entry) {
        int index = find_visible(machine, entry, by_uuid);
        if (index < 0) {
            break;
        }
        for (int i = 0; i < count; i++) {
            if (kept[i].physical == machine->device[index].physical) {
                (void)snprintf(machine->error, sizeof(machine->error),
                               "CUDA_VISIBLE_DEVICES is \"%.*s\": it names GPU %d twice", QUOTED,
                               visible, index);
                refuse(machine);
                return;
            }
        }
        kept[count++] = machine->device[index];
        entry = strchr(entry, ',');
        entry = entry ? entry + 1 : NULL;
    }
    if (count == 0) {
        (void)snprintf(machine->hidden, sizeof(machine->hidden),
                       "CUDA_VISIBLE_DEVICES is \"%.*s\": its first entry names none of %d GPU%s",
                       QUOTED, visible, machine->device_count,
                       machine->device_count == 1 ? "" : "s");
    }
    memcpy(machine->device, kept, (size_t)count * sizeof(kept[0]));
    machine->device_count = count;
}
