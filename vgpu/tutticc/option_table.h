// The table of options: names, kinds of value, what they do. options.c applies it.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTICC_OPTION_TABLE_H
#define TUTTICC_OPTION_TABLE_H

#include <stddef.h>

enum option_kind {
    FLAG,
    VALUE,  // -o x, -o=x
    JOINED, // -Ix, -I x, -I=x
};

enum option_action {
    DO_NOTHING,
    DO_TEXT,  // argument: offset of a string
    DO_PHASE, // argument: enum phase
    DO_PREPROCESS,
    DO_DEPENDENCIES,
    DO_COMPILE_DEPENDENCIES,
    DO_DEPENDENCY_OPTION,
    DO_LINK,
    DO_OPTIMIZE,
    DO_LANGUAGE,
    DO_HOST_LIST,
    DO_LINKER_LIST,
    DO_ARCHIVE_LIST,
    DO_GENCODE,
    DO_SET, // argument: offset of a bool
    DO_SEPARATE,
    DO_DEVICE_COMPILE,
    DO_CUDART,
    DO_STREAM,
    DO_WERROR,
    DO_FILE,
    DO_REFUSE_RUN,
    DO_REFUSE,
};

struct option {
    const char *name, *letter; // --name, -letter; either may be written with one dash or two
    enum option_kind kind;
    enum option_action action;
    size_t argument;
};

// Finds the option that `text` (dashes removed) names; *value_out is what follows it in the same
// word, or NULL. NULL where there is none.
const struct option *find_option(const char *text, const char **value_out);

#endif
