// Names of files that settings give as patterns.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_BASE_FILE_NAME_H
#define TT_BASE_FILE_NAME_H

#include <stdbool.h>
#include <stddef.h>

// Writes `pattern` into name with %h replaced by the host's name (its first label), %p by the
// process id, %r by `rank` (negative: %r stays) and %% by %. False where it does not fit.
bool tt_file_name(const char *pattern, int rank, char *name, size_t bytes);

#endif
