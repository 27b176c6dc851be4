// From options to files: compiling each input, linking, dependencies.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTICC_DRIVER_H
#define TUTTICC_DRIVER_H

#include "options.h"

struct driver {
    const struct options *options;
    char *prefix; // where include/ and lib/ are
    int target;   // index of the target that is compiled
    bool fits;    // whether it fits the virtual machine
};

// Does what the options ask for; returns the exit status.
int driver_run(const struct options *options);

// compile.c: makes `output` of one input by the phase's rules (PHASE_COMPILE, PREPROCESS,
// DEPENDENCIES, REWRITE); NULL: the standard output. Returns an exit status.
int compile(const struct driver *driver, const struct link_item *input, enum phase phase,
            const char *output);

// Runs a command, or shows it, as the options say.
int driver_command(const struct driver *driver, const struct strings *command);
// The program's name without folders and without what follows its last dot. The caller frees.
char *path_stem(const char *path);
// Begins a command with the host compiler for C++ (or C).
void add_compiler(const struct driver *driver, struct strings *command, bool cxx);

#endif
