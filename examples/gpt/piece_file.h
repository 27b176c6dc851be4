// A file of pieces: a header in text, which has each piece's place in its matrix and in the file,
// and a checksum of its bytes; then the bytes.
//     tutti-gpt-pieces 1 little-endian
//     piece NAME KIND TYPE ROWS COLUMNS FIRST-ROW ROWS-HERE FIRST-COLUMN COLUMNS-HERE
//           FIRST COUNT OFFSET CHECKSUM                                  (in one line)
//     end
// The header's own checksum stands in the checkpoint's manifest.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_PIECE_FILE_H
#define GPT_PIECE_FILE_H

#include "piece.h"
#include "storage.h"

#include <stdint.h>

// What a manifest says of a file.
struct gpt_file_mark {
    uint64_t bytes;                   // of the file; 0: there is none
    uint64_t header;                  // bytes of its header
    char checksum[GPT_CHECKSUM_TEXT]; // of its header
};

// Writes the pieces to a new file and waits until the disk has it. mark: receives what the manifest
// must say.
bool gpt_piece_file_write(const char *path, const struct gpt_piece *pieces, int count,
                          struct gpt_file_mark *mark, struct gpt_problem *problem);

// Copies what the file has of `wanted` pieces into them, and adds to filled[i] how many elements of
// piece i that were. Of pieces nobody wants nothing is read. Anything that is not as the mark and
// the checksums say is a problem that names the file. wanted, filled: [count].
bool gpt_piece_file_read(const char *path, const struct gpt_file_mark *mark,
                         const struct gpt_piece *wanted, size_t *filled, int count,
                         struct gpt_problem *problem);

#endif
