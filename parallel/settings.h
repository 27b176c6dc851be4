// Every setting of this library from the environment, one row each in settings.c, which docs/env.md
// is made from. The only place of the library that reads the environment.
// SPDX-License-Identifier: Apache-2.0
#ifndef PARALLEL_SETTINGS_H
#define PARALLEL_SETTINGS_H

enum parallel_setting {
    PARALLEL_SETTING_BLAS, // TUTTI_BLAS
    PARALLEL_SETTINGS
};

struct parallel_setting_row {
    const char *name;
    const char *values;   // that it may have
    const char *standard; // what holds where it is not set
    const char *since;    // version
    const char *help;     // as in docs/env.md, Markdown
};

extern const struct parallel_setting_row parallel_setting_rows[PARALLEL_SETTINGS];

// The value as the environment has it; NULL where it is not set.
const char *parallel_setting(enum parallel_setting setting);

#endif
