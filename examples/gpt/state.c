// SPDX-License-Identifier: Apache-2.0
#include "state.h"

#include <stdlib.h>
#include <string.h>

// Whether this rank is the first of those that have the same slice of a parameter.
// over_data: of all data ranks, else only of the tensor ranks.
static bool is_first(const struct tuttiMesh *mesh, const struct gpt_parameter *parameter,
                     bool over_data)
{
    if (parameter->split == GPT_SPLIT_NONE && mesh->tpRank != 0) {
        return false;
    }
    return !over_data || (mesh->dpRank == 0 && (parameter->expert >= 0 || mesh->epRank == 0));
}

// A parameter's slice, without data.
static struct gpt_piece slice(const struct gpt_parameter *parameter)
{
    return (struct gpt_piece){
        .name = parameter->name,
        .kind = GPT_WEIGHT,
        .rows = parameter->rows,
        .columns = parameter->columns,
        .first_row = parameter->first_row,
        .row_count = parameter->slice_rows,
        .first_column = parameter->first_column,
        .column_count = parameter->slice_columns,
        .count = gpt_slice_elements(parameter),
    };
}

static struct gpt_piece weights_piece(struct gpt_model *model,
                                      const struct gpt_parameter *parameter)
{
    struct gpt_piece piece = slice(parameter);
    piece.type = gpt_model_data_type(model);
    piece.data =
        (char *)gpt_model_weights(model) + parameter->offset * gpt_data_type_bytes(piece.type);
    return piece;
}

static bool make_room(struct gpt_state *state, size_t count, struct gpt_problem *problem)
{
    state->count = 0;
    state->pieces = calloc(count + 1, sizeof *state->pieces);
    return state->pieces != NULL ||
           gpt_fail(problem, GPT_FAILED, "no memory for %zu pieces", count);
}

// Moments and master of one part. at: where its state is, in elements.
static void add_part(const struct gpt_optimizer *optimizer, const struct gpt_parameter *parameter,
                     size_t first, size_t count, size_t at, struct gpt_state *state)
{
    struct gpt_piece piece = slice(parameter);
    piece.first = first;
    piece.count = count;
    piece.type = gpt_model_gradient_type(optimizer->model);
    const struct {
        enum gpt_kind kind;
        void *data;
    } all[] = {{GPT_MOMENT1, optimizer->moment1},
               {GPT_MOMENT2, optimizer->moment2},
               {GPT_MASTER, optimizer->master}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i].data != NULL) {
            piece.kind = all[i].kind;
            piece.data = (char *)all[i].data + at * optimizer->element_bytes;
            state->pieces[state->count++] = piece;
        }
    }
}

// saving: only what no rank before this one has.
static bool list(const struct gpt_optimizer *optimizer, bool saving, struct gpt_state *state,
                 struct gpt_problem *problem)
{
    const struct gpt_parameters *table = gpt_model_parameters(optimizer->model);
    const struct tuttiMesh *mesh = optimizer->mesh;
    size_t parts = (size_t)optimizer->sets[0].part_count + (size_t)optimizer->sets[1].part_count;
    if (!make_room(state, (size_t)table->count + 3 * parts, problem)) {
        return false;
    }
    for (int i = 0; i < table->count; i++) {
        if (!saving || is_first(mesh, &table->all[i], true)) {
            state->pieces[state->count++] = weights_piece(optimizer->model, &table->all[i]);
        }
    }
    for (int s = 0; s < 2; s++) {
        const struct gpt_set *set = &optimizer->sets[s];
        size_t at = set->state;
        for (int i = 0; i < set->part_count; i++) {
            const struct tuttiPart *part = &set->parts[i];
            const struct gpt_parameter *parameter = &table->all[set->first + part->gradient];
            if (!saving || is_first(mesh, parameter, !optimizer->zero)) {
                add_part(optimizer, parameter, part->offset + set->base - parameter->offset,
                         part->count, at, state);
            }
            at += part->count;
        }
    }
    return true;
}

bool gpt_state_to_save(const struct gpt_optimizer *optimizer, struct gpt_state *state,
                       struct gpt_problem *problem)
{
    return list(optimizer, true, state, problem);
}

bool gpt_state_to_load(const struct gpt_optimizer *optimizer, struct gpt_state *state,
                       struct gpt_problem *problem)
{
    return list(optimizer, false, state, problem);
}

bool gpt_state_weights(struct gpt_model *model, struct gpt_state *state,
                       struct gpt_problem *problem)
{
    const struct gpt_parameters *table = gpt_model_parameters(model);
    if (!make_room(state, (size_t)table->count, problem)) {
        return false;
    }
    for (int i = 0; i < table->count; i++) {
        state->pieces[state->count++] = weights_piece(model, &table->all[i]);
    }
    return true;
}

void gpt_state_free(struct gpt_state *state)
{
    free(state->pieces);
    memset(state, 0, sizeof *state);
}
