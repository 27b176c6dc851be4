// What is in a checkpoint: the text file `manifest`, written when all others are on the disk.
//     tutti-gpt-checkpoint 1
//     step STEP
//     setting NAME VALUE                        (any number)
//     file RANK BYTES HEADER-BYTES CHECKSUM     (any number: the pieces that a rank has written)
//     end CHECKSUM                              (of all lines above)
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_MANIFEST_H
#define GPT_MANIFEST_H

#include "piece_file.h"

enum { GPT_SETTINGS_BYTES = 4096 };

struct gpt_manifest {
    uint64_t step;                     // steps that were trained
    char settings[GPT_SETTINGS_BYTES]; // lines of "NAME VALUE"
    struct gpt_file_mark *files;       // [file_count], by the rank that wrote them
    int file_count;
};

// Writes the manifest of a folder.
bool gpt_manifest_write(const char *folder, const struct gpt_manifest *manifest,
                        struct gpt_problem *problem);

// Reads it; to be freed. Whatever is wrong with it is a problem that names the file.
bool gpt_manifest_read(const char *folder, struct gpt_manifest *manifest,
                       struct gpt_problem *problem);
void gpt_manifest_free(struct gpt_manifest *manifest);

// name: [GPT_PATH_MAX], receives the path of the file of rank `rank` in a checkpoint's folder.
bool gpt_manifest_file(const char *folder, int rank, char *path, struct gpt_problem *problem);

#endif
