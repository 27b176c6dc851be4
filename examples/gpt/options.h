// The command line: what to train, how, on which mesh, and what to write. The settings of the model
// and of the training are stored in checkpoints too.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_OPTIONS_H
#define GPT_OPTIONS_H

#include "config.h"
#include "storage.h"

#include <stdio.h>

enum gpt_schedule { GPT_GPIPE, GPT_1F1B };

struct gpt_options {
    struct gpt_config config; // first: its rows have its own places
    // Training.
    const char *corpus;                      // a text file; NULL: the one that ships
    char corpus_of_checkpoint[GPT_PATH_MAX]; // what it points to where a checkpoint names it
    int batch;                               // sequences of a step, over all ranks
    int steps;
    double learning_rate, minimum_rate; // the cosine goes from the one to the other
    int warmup;                         // steps
    double beta1, beta2, adam_eps, weight_decay;
    double clip; // the largest global norm of the gradient; 0: no clipping
    int validate_every, validation_batches;
    // Mesh.
    int dp, pp, ep, tp; // 0: what remains
    bool sp, zero;
    int schedule; // enum gpt_schedule
    int micro_batches;
    int bucket_bytes;        // 0: the library's
    bool stub_communication; // no communication of gradients, for measurements
    // Checkpoints.
    const char *checkpoints; // a folder; NULL: none are written
    int save_every;          // steps; 0: at the end alone
    const char *resume;      // a folder of checkpoints or one of them; NULL: from the start
    // What else is written.
    const char *losses, *curve, *pipeline, *export_folder; // NULL: not written
    bool memory;                                           // the table of memory
    // Sampling instead of training.
    int sample; // tokens; 0: training
    const char *prompt;
    double temperature;
    int top_k; // the likeliest tokens that are chosen from; 0: all
    uint64_t sample_seed;
    bool help;
};

// Reads the command line. False: it is wrong, and the problem says what would be right. Texts of
// the options point into argv.
bool gpt_options_read(int argc, char **argv, struct gpt_options *options,
                      struct gpt_problem *problem);

void gpt_options_help(FILE *file);

enum { GPT_OPTIONS_MOST = 64 };

// Marks that differ where options do, by which ranks see that theirs are the same. Of paths, which
// may differ between hosts, only whether they are given. Returns how many options there are.
// marks: [GPT_OPTIONS_MOST].
int gpt_options_mark(const struct gpt_options *options, uint64_t *marks);
// The name of option number i.
const char *gpt_options_name(int i);

// The settings of model and training as lines "NAME VALUE", which give the same values when they
// are read; the corpus with its whole path. text: [bytes].
bool gpt_options_settings(const struct gpt_options *options, char *text, size_t bytes,
                          struct gpt_problem *problem);

// Whether the mesh is one of that many ranks; else a problem that names its options.
bool gpt_options_fit(const struct gpt_options *options, int ranks, struct gpt_problem *problem);

// Settings of a checkpoint, for a run that goes on from it: what the command line does not say is
// taken from them; options then points into itself. A setting of the model that the command line
// gives otherwise is a problem. argc, argv: again. where: of the checkpoint, for messages.
bool gpt_options_adopt(int argc, char **argv, struct gpt_options *options, const char *settings,
                       const char *where, struct gpt_problem *problem);

#endif
