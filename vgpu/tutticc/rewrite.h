// From preprocessed CUDA C++ to C++ for the host compiler: kernels, launches, shared memory, device
// variables, PTX.
//
// The text changes token by token and keeps its lines, so that what the host compiler says points
// at the user's lines.
// The output needs vgpu/stub.h included before the first change. SPDX-License-Identifier: Apache-2.0
#ifndef TUTTICC_REWRITE_H
#define TUTTICC_REWRITE_H

#include "text.h"

#include <stdio.h>

struct rewrite_options {
    const char *file;        // the user's file, where line markers do not say
    int arch;                // __CUDA_ARCH__ / 10; decides which PTX instructions exist
    bool separate_variables; // -rdc=true: __device__ variables may be shared between translation
                             // units
    FILE *messages;          // where errors go, in gcc's form
};

// Rewrites `input` into the empty text `output`. Returns the number of errors, each of which was
// printed; with errors `output` is not usable.
int rewrite(const struct text *input, const struct rewrite_options *options, struct text *output);

#endif
