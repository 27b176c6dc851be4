// What tutti-plan was asked for, and its tables.
// SPDX-License-Identifier: Apache-2.0
#ifndef TOOLS_PLAN_PLAN_H
#define TOOLS_PLAN_PLAN_H

#include "plan/plan.h"

#include <stdbool.h>

struct request {
    struct tt_problem problem;
    const struct tt_algorithm *algorithm; // NULL: the first that can
    int rank;                             // whose steps are listed; -1: all
    const char *svg;                      // file; NULL: no picture
    bool lists, checks, counts;
};

// Fills the request from the command line. 0; else the exit status, after --help or a complaint.
int read_options(int argc, char **argv, struct request *request_out);

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
