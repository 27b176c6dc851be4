// What tutti-plan was asked for, and its tables.
// SPDX-License-Identifier: Apache-2.0
#ifndef TOOLS_PLAN_PLAN_H
#define TOOLS_PLAN_PLAN_H

#include "plan/plan.h"

#include <stdbool.h>
#include <stddef.h>

struct request {
    struct tt_problem problem;
    const struct tt_algorithm *algorithm; // NULL: the first that can
    int rank;                             // whose steps are listed; -1: all
    const char *svg;                      // file; NULL: no picture
    bool lists, checks, counts;
    const char *uneven; // of --counts; NULL: sizes are even
    bool ranks_given;   // by --ranks
    size_t *tables;     // the problem's uneven counts and starts; freed by the caller; or NULL
};

// Fills the request from the command line. 0; else the exit status, after --help or a complaint.
int read_options(int argc, char **argv, struct request *request_out);

// Fills the problem's uneven sizes, and its ranks, from a list; false after a complaint.
bool read_counts(struct request *request, const char *text, bool ranks_given, int most_ranks);

// Plans of all ranks; NULL: no memory. Freed by free_plans.
const struct tt_plan **make_plans(const struct tt_algorithm *algorithm,
                                  const struct tt_problem *problem);
void free_plans(const struct tt_plan **plans, int nranks);

// Prints what there is, which algorithm does what.
void list_algorithms(void);
// Prints bytes by port for all algorithms that can do the problem, side by side; then, with an
// algorithm, bytes of every link. False: no memory.
bool print_traffic(const struct tt_problem *problem, const struct tt_algorithm *algorithm);

#endif
