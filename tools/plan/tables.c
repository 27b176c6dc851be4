// Tables of tutti-plan: algorithms, bytes by port and by link. See plan.h.
// SPDX-License-Identifier: Apache-2.0
#include "plan.h"

#include "plan/build.h"
#include "plan/parts.h"
#include "plan/traffic.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_ALGORITHMS = 16, MOST_COLUMNS = 16 };

const struct tt_plan **make_plans(const struct tt_algorithm *algorithm,
                                  const struct tt_problem *problem)
{
    const struct tt_plan **plans = calloc((size_t)problem->nranks, sizeof *plans);
    for (int rank = 0; plans != NULL && rank < problem->nranks; rank++) {
        plans[rank] = tt_plan_build(algorithm, problem, rank);
        if (plans[rank] == NULL) {
            free_plans(plans, problem->nranks);
            return NULL;
        }
    }
    return plans;
}

void free_plans(const struct tt_plan **plans, int nranks)
{
    for (int rank = 0; rank < nranks; rank++) {
        tt_plan_free(plans[rank]);
    }
    free(plans);
}

void list_algorithms(void)
{
    (void)printf("%-10s %-10s %s\n", "algorithm", "NCCL_ALGO", "does");
    for (int i = 0; tt_algorithms[i] != NULL; i++) {
        const struct tt_algorithm *algorithm = tt_algorithms[i];
        (void)printf("%-10s %-10s", algorithm->name,
                     algorithm->nccl_name != NULL ? algorithm->nccl_name : algorithm->name);
        for (int function = 0; function < TT_FUSED_RMSNORM; function++) {
            struct tt_problem problem = {.function = (enum tt_function)function,
                                         .nranks = 4,
                                         .count = 1,
                                         .element = 4,
                                         .accumulator = 4,
                                         .lanes = 1};
            if (algorithm->can(&problem)) {
                (void)printf(" %s", tt_function_name((enum tt_function)function));
            }
        }
        const char *buffers = algorithm->needs_multicast && algorithm->is_staged
                                  ? " (any buffers, through scratch with multicast)"
                              : algorithm->needs_multicast ? " (buffers with multicast)"
                              : algorithm->is_staged       ? " (buffers that others cannot map)"
                                                           : "";
        (void)printf("%s\n", buffers);
    }
}

static bool count(const struct tt_algorithm *algorithm, const struct tt_problem *problem,
                  struct tt_traffic *traffic_out)
{
    const struct tt_plan **plans = make_plans(algorithm, problem);
    bool counted = plans != NULL && tt_plan_traffic(problem, plans, traffic_out);
    if (plans != NULL) {
        free_plans(plans, problem->nranks);
    }
    return counted;
}

struct column {
    const struct tt_algorithm *algorithm;
    struct tt_traffic traffic;
};

static void print_ports(const struct tt_problem *problem, const struct column *column, int columns)
{
    (void)printf("bytes by port\n         ");
    for (int i = 0; i < columns; i++) {
        (void)printf("  | %-*s", i + 1 < columns ? 23 : 0, column[i].algorithm->name);
    }
    (void)printf("\n     rank");
    for (int i = 0; i < columns; i++) {
        (void)printf("  | %11s %11s", "in", "out");
    }
    (void)printf("\n");
    struct tt_port most[MOST_ALGORITHMS] = {{0, 0}};
    struct tt_port all[MOST_ALGORITHMS] = {{0, 0}};
    for (int rank = 0; rank < problem->nranks; rank++) {
        (void)printf("%9d", rank);
        for (int i = 0; i < columns; i++) {
            struct tt_port port = tt_traffic_port(&column[i].traffic, rank);
            (void)printf("  | %11" PRIu64 " %11" PRIu64, port.in, port.out);
            most[i].in = port.in > most[i].in ? port.in : most[i].in;
            most[i].out = port.out > most[i].out ? port.out : most[i].out;
            all[i].in += port.in;
            all[i].out += port.out;
        }
        (void)printf("\n");
    }
    (void)printf("%9s", "busiest");
    for (int i = 0; i < columns; i++) {
        (void)printf("  | %11" PRIu64 " %11" PRIu64, most[i].in, most[i].out);
    }
    (void)printf("\n%9s", "all");
    for (int i = 0; i < columns; i++) {
        (void)printf("  | %11" PRIu64 " %11" PRIu64, all[i].in, all[i].out);
    }
    (void)printf("\n");
}

static void print_links(const struct tt_problem *problem, const struct tt_algorithm *algorithm,
                        const struct tt_traffic *traffic)
{
    int nranks = problem->nranks;
    (void)printf("\nbytes by link, %s: from the row's rank to the column's\n         ",
                 algorithm->name);
    for (int to = 0; to < nranks && to < MOST_COLUMNS; to++) {
        (void)printf(" %10d", to);
    }
    (void)printf("%s %10s %10s\n", nranks > MOST_COLUMNS ? " ..." : "", "to switch", "from it");
    for (int from = 0; from < nranks; from++) {
        (void)printf("%9d", from);
        for (int to = 0; to < nranks && to < MOST_COLUMNS; to++) {
            uint64_t bytes = traffic->link[(size_t)from * (size_t)nranks + (size_t)to];
            if (from == to) {
                (void)printf(" %10s", "-");
            } else {
                (void)printf(" %10" PRIu64, bytes);
            }
        }
        (void)printf("%s %10" PRIu64 " %10" PRIu64 "\n", nranks > MOST_COLUMNS ? " ..." : "",
                     traffic->to_switch[from], traffic->from_switch[from]);
    }
}

bool print_traffic(const struct tt_problem *problem, const struct tt_algorithm *algorithm)
{
    struct column column[MOST_ALGORITHMS];
    int columns = 0;
    bool counted = true;
    for (int i = 0; counted && tt_algorithms[i] != NULL && columns < MOST_ALGORITHMS; i++) {
        if (tt_algorithms[i]->can(problem)) {
            column[columns].algorithm = tt_algorithms[i];
            counted = count(tt_algorithms[i], problem, &column[columns].traffic);
            columns += counted;
        }
    }
    if (counted) {
        char text[120];
        tt_problem_describe(problem, text, sizeof text);
        (void)printf("%s\n\n", text);
        print_ports(problem, column, columns);
    }
    for (int i = 0; i < columns; i++) {
        if (counted && column[i].algorithm == algorithm) {
            print_links(problem, algorithm, &column[i].traffic);
        }
        tt_traffic_free(&column[i].traffic);
    }
    return counted;
}
