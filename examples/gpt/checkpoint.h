// Checkpoints: a folder for each saved step, with a file of pieces for each rank that has something
// to save, and a manifest. All is written to a folder of another name, forced to the disk, and then
// renamed: a folder `step-000050` is whole, whenever the program was killed. The file `latest`
// names the newest. Each element is saved once; who reads takes whatever parts it needs from all
// files, so that it may be another mesh.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_CHECKPOINT_H
#define GPT_CHECKPOINT_H

#include "manifest.h"
#include "world.h"

// Saves the pieces of all ranks in `folder`/step-NNNNNN. What a killed save has left in the folder
// is removed first. Collective; what pieces point to must not change meanwhile. pieces: [count],
// what this rank is to save; together every element once. manifest: step and settings, equal on
// all ranks. False: on all ranks; the checkpoints that were there are as they were, and what was
// written of this one is removed.
bool gpt_checkpoint_save(struct gpt_world *world, const char *folder,
                         const struct gpt_manifest *manifest, const struct gpt_piece *pieces,
                         int count, struct gpt_problem *problem);

// Makes the folder where it is not there; a problem where nothing can be saved in it, or where it
// has checkpoints and `step`, the one that the training goes on from (NULL: none), is not among
// them. Local, on rank 0: before the training, so that this is not found out after it.
bool gpt_checkpoint_prepare(const char *folder, const char *step, struct gpt_problem *problem);

// step: [GPT_PATH_MAX], receives the folder of the checkpoint that `path` names: path itself, if it
// has a manifest; else the one that its `latest` names; without such a file the highest step.
bool gpt_checkpoint_find(const char *path, char *step, struct gpt_problem *problem);

// Fills this rank's pieces from a checkpoint's folder. Local: ranks agree afterwards. Elements that
// are nowhere or twice, and everything that is damaged, is a problem that names the file.
bool gpt_checkpoint_load(const char *step, const struct gpt_manifest *manifest,
                         const struct gpt_piece *pieces, int count, struct gpt_problem *problem);

#endif
