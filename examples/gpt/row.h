// A row of the table of settings: what an option is called, what it may be, and what it is about.
// config.c has the rows of the model, options.c those of the program.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_ROW_H
#define GPT_ROW_H

#include <stddef.h>

enum gpt_form { GPT_SWITCH, GPT_WHOLE, GPT_SEED, GPT_REAL, GPT_CHOICE, GPT_TEXT };

enum gpt_group {
    GPT_MODEL,    // must be as in the checkpoint that a run goes on from
    GPT_TRAINING, // stored in checkpoints too
    GPT_MESH,
    GPT_CHECKPOINTS,
    GPT_OUTPUT,
    GPT_SAMPLING,
    GPT_GROUPS
};

struct gpt_row {
    const char *name;
    enum gpt_form form;
    enum gpt_group group;
    size_t place;         // of the value: bool, int, uint64_t, double, int, const char *
    double least, most;   // GPT_WHOLE, GPT_REAL
    const char *choices;  // GPT_CHOICE: words with a | between them, numbered from 0
    const char *argument; // for --help; NULL: none
    const char *about;
};

enum { GPT_WHOLE_MOST = 1 << 30 };

#endif
