// The virtual machine: which devices there are, how they are linked, which of them are visible.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_MACHINE_H
#define VGPU_RUNTIME_MACHINE_H

#include "device.h"
#include "vgpu/stats.h"

struct vgpu_machine {
    char name[256];
    int device_count;
    struct vgpu_device_info device[VGPU_MAX_DEVICES];
    uint64_t linked[VGPU_MAX_DEVICES]; // bit p of linked[d]: NVLink between physical devices d, p
    char error[512];  // why no device can be used: a bad setting; "" if nothing is wrong
    int error_code;   // the cudaError_t of calls then: InvalidDevice or InitializationError
    char hidden[256]; // which setting hides devices, for a process that sees none
};

// The machine as this process sees it: VGPU_MACHINE, of that what vgpu/limit.h and VGPU_DEVICES
// leave, numbered by CUDA_DEVICE_ORDER, then CUDA_VISIBLE_DEVICES. Made on the first call (any
// thread); a bad setting gives no devices and an error, which is said once on stderr unless it is
// one of CUDA's own settings.
const struct vgpu_machine *vgpu_machine(void);

// Fills *machine with the built-in machine `name`; false where there is none of that name.
bool vgpu_machine_builtin(struct vgpu_machine *machine, const char *name);

// Fills *machine from a topology in NCCL's XML form. name: what messages call it. On a mistake
// returns false and leaves "name:line: what is wrong" in machine->error. Reads nothing outside
// text[0 .. length-1].
bool vgpu_machine_parse(struct vgpu_machine *machine, const char *text, size_t length,
                        const char *name);

// Keeps the devices that `devices` lists (VGPU_DEVICES: the machine's numbers, or uuids and
// beginnings of them, between commas, in any order; NULL: all) and that vgpu/limit.h allows, in the
// machine's order. What is no list of its devices leaves none, and machine->error.
void vgpu_machine_restrict(struct vgpu_machine *machine, const char *devices);

// Numbers the devices as CUDA_DEVICE_ORDER says: NULL and FASTEST_FIRST by capability and number of
// multiprocessors, the machine's order among equals; PCI_BUS_ID by address. Anything else leaves
// none, and the error that CUDA gives then.
void vgpu_machine_order(struct vgpu_machine *machine, const char *order);

// Applies the rules of CUDA_VISIBLE_DEVICES: keeps the devices that `visible` lists, in its order,
// up to the first invalid entry; none, and an error, where one is listed twice before that. NULL
// keeps all.
void vgpu_machine_filter(struct vgpu_machine *machine, const char *visible);

// Reads "domain:bus:device[.function]" or "bus:device.function" (hexadecimal) into *busid_out as
// domain << 16 | bus << 8 | device << 3 | function. False where `text` is anything else.
bool vgpu_machine_busid(const char *text, long *busid_out);

// Makes a uuid that is the same in every process from two names and a number.
void vgpu_machine_uuid(unsigned char uuid[16], const char *machine, int number);

#endif
