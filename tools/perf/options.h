// The table of options, for the parser and for the help.
// SPDX-License-Identifier: Apache-2.0
#ifndef TOOLS_PERF_OPTIONS_H
#define TOOLS_PERF_OPTIONS_H

#include "perf.h"

enum perf_option_kind {
    PERF_HEADING, // `value` is the heading's text
    PERF_NUMBER,
    PERF_FLAG,
    PERF_SIZE,
    PERF_OPERATOR,
    PERF_TYPE,
    PERF_PATTERN,
    PERF_DATA,
    PERF_FILE,
    PERF_HELP,
    PERF_CHILD,
    PERF_REFUSED, // nccl-tests have it; its value's meaning is not ours
};

struct perf_option {
    char letter;       // 0: none
    const char *name;  // long
    const char *value; // what the help calls it; NULL: takes none
    enum perf_option_kind kind;
    size_t field; // offset in struct perf_options
    long long least, most;
    const char *text; // for the help, default in brackets; NULL: not in it
};

extern const struct perf_option perf_option_table[];
extern const size_t perf_options_count;

#endif
