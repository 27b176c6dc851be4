// A libFuzzer target for all texts that say which machine and which devices a process sees: the
// first byte says which, the rest is the text. Nothing may crash or be read out of bounds; every
// result is a set of different devices, and none where there is an error. Build and run: the CMake
// target machine_fuzz.
// SPDX-License-Identifier: Apache-2.0
#include "machine.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct vgpu_machine *machine)
{
    uint64_t seen = 0;
    if (machine->error[0] && machine->device_count != 0) {
        abort();
    }
    for (int i = 0; i < machine->device_count; i++) {
        uint64_t bit = 1ull << machine->device[i].physical;
        if ((seen & bit) != 0) {
            abort();
        }
        seen |= bit;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct vgpu_machine machine;
    if (size == 0) {
        return 0;
    }
    char *text = malloc(size);
    if (!text) {
        return 0;
    }
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    vgpu_machine_builtin(&machine, "dgx-h100");
    long busid = 0;
    switch (data[0] % 5) {
    case 0:
        vgpu_machine_filter(&machine, text);
        break;
    case 1:
        vgpu_machine_restrict(&machine, text);
        break;
    case 2:
        vgpu_machine_order(&machine, text);
        break;
    case 3:
        if (vgpu_machine_parse(&machine, text, size - 1, "fuzz.xml")) {
            vgpu_machine_order(&machine, NULL);
        }
        break;
    default:
        if (vgpu_machine_busid(text, &busid) && (busid < 0 || busid > 0xffffffff)) {
            abort();
        }
        break;
    }
    check(&machine);
    free(text);
    return 0;
}
