// Where messages go: whole lines, each by one write, so that threads and processes with one file do
// not mix theirs, and nothing is held back for a child of fork to say again.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_BASE_LOG_OUTPUT_H
#define TT_BASE_LOG_OUTPUT_H

#include <stddef.h>

// Chooses the file by NCCL_DEBUG_FILE's pattern (base/file_name.h), and empties it; "" and
// /dev/stdout: standard output; /dev/stderr: standard error. A file that cannot be opened is told
// of on standard error, which then takes its place.
void tt_output_open(const char *pattern);

// Writes a line, its end included, from any thread. Where the file takes no more (a full disk, a
// pipe that nobody reads, a descriptor that the program has closed), that is told once on standard
// error, where this line and all later ones then go. Keeps errno.
void tt_output_line(const char *line, size_t bytes);

// The same on standard error.
void tt_output_error(const char *line, size_t bytes);

#endif
