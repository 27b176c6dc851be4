// The GPU architectures that a program is compiled for, and which of them fits the virtual machine.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTICC_TARGETS_H
#define TUTTICC_TARGETS_H

#include "text.h"

// One pair of -gencode arch=compute_X,code=Y.
struct target {
    int virtual_arch; // compute_80: 80; what __CUDA_ARCH__ says
    int arch;         // of the code: sm_86: 86
    bool ptx;         // code=compute_X: also for every later device
    char suffix;      // 'a': this device only; 'f': this family; 0
};

struct targets {
    struct target *item;
    int count;
};

// Adds what -arch=VALUE means (with `code` the value of -code, or NULL). NULL, or what is wrong
// (the caller frees).
char *targets_add_arch(struct targets *targets, const char *arch, const char *code, int machine);
// Adds what -gencode VALUE means.
char *targets_add_gencode(struct targets *targets, const char *value);
void targets_free(struct targets *targets);

// The compute capability times ten of the machine that `name` (VGPU_MACHINE; NULL: the default)
// describes. NULL, or what is wrong.
char *machine_arch(const char *name, int *arch_out);

// Index of the target that fits a device of this capability best; -1 where none does.
int targets_choose(const struct targets *targets, int device_arch);
// Index of the highest target.
int targets_highest(const struct targets *targets);

#endif
