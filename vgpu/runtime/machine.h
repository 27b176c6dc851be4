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
    char error[512];                   // what is wrong with VGPU_MACHINE; "" if nothing is
};

// The machine as this process sees it: VGPU_MACHINE, then CUDA_VISIBLE_DEVICES. Made on the first
// call (any thread); a bad VGPU_MACHINE is said once on stderr and gives no devices and an error.
const struct vgpu_machine *vgpu_machine(void);

// Fills *machine with the built-in machine `name`; false where there is none of that name.
bool vgpu_machine_builtin(struct vgpu_machine *machine, const char *name);

// Fills *machine from a topology in NCCL's XML form. name: what messages call it. On a mistake
// returns false and leaves "name:line: what is wrong" in machine->error. Reads nothing outside
// text[0 .. length-1].
bool vgpu_machine_parse(struct vgpu_machine *machine, const char *text, size_t length,
                        const char *name);

// Applies the rules of CUDA_VISIBLE_DEVICES: keeps the devices that `visible` lists, in its order,
// up to the first invalid entry; none where one is listed twice. NULL keeps all.
void vgpu_machine_filter(struct vgpu_machine *machine, const char *visible);

// Reads "[domain:]bus:device[.function]" (hexadecimal) into *busid_out as
// domain << 16 | bus << 8 | device << 3 | function. False where `text` is anything else.
bool vgpu_machine_busid(const char *text, long *busid_out);

// Makes a uuid that is the same in every process from two names and a number.
void vgpu_machine_uuid(unsigned char uuid[16], const char *machine, int number);

#endif
