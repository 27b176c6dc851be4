// What of a training is in its checkpoints: weights, masters and moments, as pieces of matrices.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_STATE_H
#define GPT_STATE_H

#include "optimizer.h"
#include "piece.h"

struct gpt_state {
    struct gpt_piece *pieces; // [count]
    int count;
};

// What this rank saves: of replicas one rank each. To be freed.
bool gpt_state_to_save(const struct gpt_optimizer *optimizer, struct gpt_state *state,
                       struct gpt_problem *problem);

// What this rank needs: all that it has. To be freed.
bool gpt_state_to_load(const struct gpt_optimizer *optimizer, struct gpt_state *state,
                       struct gpt_problem *problem);

// The weights alone, for sampling. To be freed.
bool gpt_state_weights(struct gpt_model *model, struct gpt_state *state,
                       struct gpt_problem *problem);

void gpt_state_free(struct gpt_state *state);

#endif
