// Files that are whole or not there: written, forced to the disk and renamed, one step at a time.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_STORAGE_H
#define GPT_STORAGE_H

#include "problem.h"

#include <stddef.h>
#include <stdio.h>

enum { GPT_PATH_MAX = 512, GPT_CHECKSUM_TEXT = 65 }; // a hash: 64 hexadecimal digits and the end

// For tests: called before each change to the file system, with its number from 1 on. NULL: none.
extern void (*gpt_storage_hook)(int change);

// Counts a change and calls the hook. What changes files outside of this file calls it too.
void gpt_storage_change(void);

// A problem with a file: "path: what: " and errno's text. Always false.
bool gpt_fail_errno(struct gpt_problem *problem, const char *path, const char *what);

// The same for a path that the user has given: one that is not there, or is no folder or no file
// as it must be, is a wrong argument.
bool gpt_fail_given(struct gpt_problem *problem, const char *path, const char *what);

// path: [GPT_PATH_MAX], receives "folder/name". False, and a problem, where it does not fit.
bool gpt_path_join(char *path, const char *folder, const char *name, struct gpt_problem *problem);

// path: [GPT_PATH_MAX], receives the path of a file in the running program's folder.
bool gpt_path_beside_program(char *path, const char *name, struct gpt_problem *problem);

// Writes all bytes at an offset of an open file. path: for messages.
bool gpt_write_at(int fd, const void *data, size_t bytes, size_t offset, const char *path,
                  struct gpt_problem *problem);

// Makes a file of these bytes, or replaces what is in it, and waits until the disk has them.
bool gpt_write_file(const char *path, const void *data, size_t bytes, struct gpt_problem *problem);

// Closes a stream that was written to; false, and a problem, where not all of it has arrived.
bool gpt_close_file(FILE *file, const char *path, struct gpt_problem *problem);

// Reads a whole file. text: receives the bytes and a 0 behind them, to be freed; bytes: without it.
bool gpt_read_file(const char *path, char **text, size_t *bytes, struct gpt_problem *problem);

// Waits until the disk has the names in a folder.
bool gpt_sync_folder(const char *path, struct gpt_problem *problem);

// Removes a folder with the files in it (no folders); one that is not there is no problem.
bool gpt_remove_folder(const char *path, struct gpt_problem *problem);

// Gives a folder its final name. Where one of that name is there, the two change places in one step
// and the older one is removed. The folder above them is then forced to the disk.
bool gpt_publish_folder(const char *temporary, const char *path, const char *above,
                        struct gpt_problem *problem);

// BLAKE2b (Aumasson, Neves, Wilcox-O'Hearn and Winnerlein 2013), 32 bytes, as text.
// text: [GPT_CHECKSUM_TEXT].
void gpt_checksum(const void *data, size_t bytes, char *text);

#endif
