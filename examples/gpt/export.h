// For a comparison with another framework: the model's sizes, initial weights and all batches, in a
// folder of plain files.
//     manifest.txt   lines of words: "tutti-gpt-export 1"; "NAME VALUE" for each setting of model
//                    and training, as the command line names them; "parameter NAME ROWS COLUMNS
//                    FILE"; "batches STEPS SEQUENCES LENGTH FILE"
//     *.float32      whole matrices, row by row, little-endian
//     batches.int32  [steps x sequences x length], little-endian; length is context + 1: inputs
//                    are the first `context` tokens, targets the last
//     losses.txt     "STEP LOSS", written while this program trains
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_EXPORT_H
#define GPT_EXPORT_H

#include "corpus.h"
#include "options.h"

// Writes all but the losses. One rank calls it; the mesh does not matter.
bool gpt_export(const struct gpt_options *options, const struct gpt_corpus *corpus,
                struct gpt_problem *problem);

#endif
