// tutti-plan: shows, checks, draws and counts the plans of a collective.
// SPDX-License-Identifier: Apache-2.0
#include "plan.h"

#include "plan/check.h"
#include "plan/draw.h"
#include "plan/parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(void)
{
    (void)fprintf(stderr, "tutti-plan: no memory; try fewer --ranks\n");
    return 1;
}

// Bad plans can neither be trusted nor drawn.
static int check(const struct request *request, const struct tt_plan *const *plans)
{
    struct tt_plan_finding finding;
    size_t steps = 0;
    for (int rank = 0; rank < request->problem.nranks; rank++) {
        steps += plans[rank]->steps;
    }
    if (!tt_plan_check(&request->problem, plans, &finding)) {
        (void)printf("%s: wrong: %s\n", request->algorithm->name, finding.text);
        return 1;
    }
    (void)printf(
        "%s: right, %zu steps of %d ranks: results, bounds, signals, no race, no deadlock\n",
        request->algorithm->name, steps, request->problem.nranks);
    return 0;
}

static int draw(const struct request *request, const struct tt_plan *const *plans)
{
    struct tt_plan_finding finding;
    if (!tt_plan_check(&request->problem, plans, &finding) && finding.fault == TT_PLAN_BOUNDS) {
        (void)fprintf(stderr, "tutti-plan: --svg: the plan is malformed: %s\n", finding.text);
        return 1;
    }
    FILE *file = fopen(request->svg, "we");
    if (file == NULL) {
        (void)fprintf(stderr, "tutti-plan: --svg %s: %s\n", request->svg, strerror(errno));
        return 1;
    }
    bool drawn = tt_plan_draw(file, &request->problem, plans);
    bool closed = fclose(file) == 0;
    if (!drawn || !closed) {
        (void)fprintf(stderr, "tutti-plan: --svg %s: could not be written\n", request->svg);
        return 1;
    }
    (void)printf("%s\n", request->svg);
    return 0;
}

static void list_steps(const struct request *request, const struct tt_plan *const *plans)
{
    char text[120];
    tt_problem_describe(&request->problem, text, sizeof text);
    (void)printf("%s: %s\n", request->algorithm->name, text);
    for (int rank = 0; rank < request->problem.nranks; rank++) {
        if (request->rank < 0 || request->rank == rank) {
            tt_plan_print(stdout, &request->problem, plans[rank]);
        }
    }
}

static int show(const struct request *request)
{
    const struct tt_plan **plans = make_plans(request->algorithm, &request->problem);
    if (plans == NULL) {
        return no_memory();
    }
    int status = 0;
    if (!request->checks && request->svg == NULL) {
        list_steps(request, plans);
    }
    if (request->checks) {
        status = check(request, plans);
    }
    if (request->svg != NULL && status == 0) {
        status = draw(request, plans);
    }
    free_plans(plans, request->problem.nranks);
    return status;
}

int main(int argc, char **argv)
{
    struct request request;
    int status = read_options(argc, argv, &request);
    if (status != 0) {
        return status;
    }
    if (request.lists) {
        list_algorithms();
    } else if (request.counts) {
        status = print_traffic(&request.problem, request.algorithm) ? 0 : no_memory();
    } else {
        status = show(&request);
    }
    free(request.tables);
    if (fflush(stdout) != 0) {
        (void)fprintf(stderr, "tutti-plan: standard output: %s\n", strerror(errno));
        return 1;
    }
    return status;
}
