// Running the host compiler, and the private folder for temporary files.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTICC_PROCESS_H
#define TUTTICC_PROCESS_H

#include "text.h"

// Makes signals that end the program clean up first. Call once, before the others.
void process_start(void);

// Runs argv[0] with its arguments and waits. Returns its exit status, 128 + n where signal n ended
// it, or 127 with a message where it could not be run. Signals that came meanwhile are passed on to
// it.
int process_run(const struct strings *arguments);
// Prints a command as a shell would take it, after "#$ ".
void process_print(const struct strings *arguments);

// A new name in the private folder, which is made on the first call: FOLDER/n-STEM.SUFFIX. The
// caller frees. NULL with a message where there can be no folder.
char *temporary_file(const char *stem, const char *suffix);
// Removes the folder and what is in it, and, where a signal came, ends the program by it.
void process_finish(void);

#endif
