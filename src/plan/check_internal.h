// The checker's parts: symbolic values, memory cut into stretches of equal history, and what the
// function asks for. Private to check*.c.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_PLAN_CHECK_INTERNAL_H
#define TT_PLAN_CHECK_INTERNAL_H

#include "plan/check.h"
#include "plan/parts.h"
#include "plan/walk.h"

#include <stdarg.h>

// ---- Values: which inputs, in which order (check_values.c) --------------------------------------

// A list of operands, made by appending one to a shorter list. Equal lists are one node; node 0 is
// the empty one. shift: where the operand lies in its rank's send buffer, in elements after where
// the first operand lies in its own.
struct tt_operands {
    uint32_t before;
    int rank;
    ptrdiff_t shift;
};

struct tt_operand_lists {
    struct tt_operands *node;
    uint32_t count, room;
    uint32_t *table; // hash to node, 0 where empty
    uint32_t table_room;
};

enum tt_form {
    TT_FORM_NOTHING, // never written
    TT_FORM_INPUT,   // one rank's input, untouched
    TT_FORM_PARTIAL, // accumulators
    TT_FORM_RESULT,  // rounded
};

// What a stretch of memory holds. at: how far into the first operand's send buffer the stretch
// begins, in bytes of this form (TT_FORM_PARTIAL: elements times the accumulator's size).
struct tt_value {
    enum tt_form form;
    uint32_t node;
    size_t at;
};

// Node of the list with one more operand; 0: no memory.
uint32_t tt_operands_append(struct tt_operand_lists *lists, uint32_t before, int rank,
                            ptrdiff_t shift);
void tt_operands_free(struct tt_operand_lists *lists);
// "rank 0's element 5 + rank 1's", and what is wrong with it compared with the wanted list.
void tt_value_describe(const struct tt_operand_lists *lists, struct tt_value value, size_t element,
                       char *text, size_t bytes);
const char *tt_operands_fault(const struct tt_operand_lists *lists, uint32_t is, uint32_t wanted);

// ---- Memory (check_memory.c) --------------------------------------------------------------------

// A step of a lane (numbered through): epoch is its number in the lane, from 1. lane -1: none.
struct tt_access {
    int lane;
    uint32_t epoch;
};

struct tt_stretch {
    size_t begin; // bytes; it ends where the next one begins
    struct tt_value value;
    struct tt_access written;
    uint32_t reads; // since then: a list in tt_reads; 0 ends it
};

struct tt_read {
    struct tt_access access;
    uint32_t next;
};

struct tt_reads {
    struct tt_read *read; // [0] is not used
    uint32_t count, room;
};

// One block of memory of a rank.
struct tt_memory {
    size_t bytes;
    struct tt_stretch *stretch;
    size_t count, room;
};

// Which stretch the byte is in.
size_t tt_memory_find(const struct tt_memory *memory, size_t at);
static inline size_t tt_memory_end(const struct tt_memory *memory, size_t stretch)
{
    return stretch + 1 < memory->count ? memory->stretch[stretch + 1].begin : memory->bytes;
}
// Makes a stretch begin at the byte. False: no memory.
bool tt_memory_cut(struct tt_memory *memory, size_t at);
// Replaces the stretches of [begin, end), at whose bounds stretches begin, by others.
bool tt_memory_replace(struct tt_memory *memory, size_t begin, size_t end,
                       const struct tt_stretch *with, size_t count);
bool tt_reads_add(struct tt_reads *reads, struct tt_access access, uint32_t *list);

// ---- The check ----------------------------------------------------------------------------------

// Bytes [begin, end) of a rank's memory that the function fills, and with what.
struct tt_wanted {
    size_t begin, end;
    struct tt_value value;
};

struct tt_checked_rank {
    struct tt_memory memory[TT_BUFFERS]; // in place SEND holds both buffers, RECV nothing
    size_t bytes[TT_BUFFERS];            // of the buffers
    enum tt_buffer in[TT_BUFFERS];       // whose memory holds the buffer ...
    size_t base[TT_BUFFERS];             // ... and where in it
    struct tt_wanted *wanted;
    int wanteds;
};

// A place of a step for one rank.
struct tt_operand {
    struct tt_place place;
    struct tt_memory *memory;
    size_t begin, width; // bytes into the memory, bytes of an element
    bool is_partial;
    size_t stretch; // where the reading is
};

struct tt_check {
    const struct tt_problem *problem;
    const struct tt_plan *const *plans;
    struct tt_walk walk;
    struct tt_operand_lists lists;
    struct tt_reads reads;
    struct tt_checked_rank *rank;
    uint32_t *clock;             // [lane][lane]: of each lane, the epochs that came before
    uint32_t *kept;              // such rows of [lane], one for each signal that was given
    size_t kepts, kept_room;     // rows
    uint32_t *kept_row;          // [step of all lanes]: which row a signal's is
    size_t *first_step;          // [lane]: of the lane in kept_row
    struct tt_operand *in, *out; // of the step that runs, as many as the largest has
    int ins, outs;
    struct tt_stretch *result; // what the step writes; begin: elements
    size_t results, result_room;
    int lane; // the one whose step runs
    uint32_t epoch;
    struct tt_plan_finding *finding;
};

// Notes a fault unless a graver one, or an earlier one of the kind, is noted.
void tt_check_note(struct tt_check *check, enum tt_plan_fault fault, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// "rank 2, lane 0, step 5 (reduce)" of a lane's step.
const char *tt_check_step(const struct tt_check *check, struct tt_access access, char *text,
                          size_t bytes);
// "element 12 of rank 3's receive buffer".
const char *tt_check_place(const struct tt_check *check, int rank, enum tt_buffer memory, size_t at,
                           char *text, size_t bytes);

// Whether plans are what walk.c can number the lanes of; then, whether all steps are well formed
// and stay inside buffers. What not is noted (check_form.c).
bool tt_check_plans(struct tt_check *check);
bool tt_check_form(struct tt_check *check);
// Buffers, initial values and wanted results (check_result.c).
bool tt_check_prepare(struct tt_check *check);
void tt_check_results(struct tt_check *check);
// Runs one step on symbols (check_step.c). False: no memory.
bool tt_check_run(struct tt_check *check, const struct tt_step *step);

#endif
