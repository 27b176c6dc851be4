// --counts: what each rank has where sizes are uneven. See plan.h.
// SPDX-License-Identifier: Apache-2.0
#include "plan.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const unsigned long long most_count = 1ull
                                             << 40; // so that no sum passes what a size can say

static bool complain(const char *text, const char *what)
{
    (void)fprintf(stderr, "tutti-plan: --counts %s: %s\n", text, what);
    return false;
}

static size_t count_of(const char *text, const char *separators)
{
    size_t count = 1;
    for (; *text != 0; text++) {
        count += strchr(separators, *text) != NULL;
    }
    return count;
}

// Reads the numbers between commas and slashes.
static bool read_list(const char *text, size_t *numbers, size_t count)
{
    const char *at = text;
    for (size_t i = 0; i < count; i++) {
        char *end = NULL;
        errno = 0;
        unsigned long long number = isdigit((unsigned char)*at) ? strtoull(at, &end, 10) : 0;
        if (end == NULL || errno != 0 || number > most_count ||
            (*end != 0 && *end != ',' && *end != '/')) {
            return complain(text, "must be numbers from 0 to 2^40 between commas, as in 5,0,2; "
                                  "for alltoall also rows of them between slashes, 1,2/0,3");
        }
        numbers[i] = (size_t)number;
        at = end + 1;
    }
    return true;
}

// Every row has as many numbers as there are rows.
static bool is_square(const char *text, size_t rows)
{
    for (size_t row = 0; row < rows; row++) {
        size_t length = strcspn(text, "/");
        size_t commas = 0;
        for (size_t i = 0; i < length; i++) {
            commas += text[i] == ',';
        }
        if (commas + 1 != rows) {
            return false;
        }
        text += length + 1;
    }
    return true;
}

// One part behind the other in each row.
static void pack(const size_t *count, size_t *first, size_t n)
{
    for (size_t row = 0; row < n; row++) {
        size_t end = 0;
        for (size_t i = 0; i < n; i++) {
            first[row * n + i] = end;
            end += count[row * n + i];
        }
    }
}

// table: what each rank sends each, then what each receives from each, then where those start.
static void fill(struct tt_problem *problem, size_t *table, const size_t *list, bool is_matrix)
{
    size_t n = (size_t)problem->nranks;
    size_t *sent = table;
    size_t *received = sent + n * n;
    bool by_sender = problem->function == TT_ALL_GATHER || problem->function == TT_GATHER;
    for (size_t from = 0; from < n; from++) {
        for (size_t to = 0; to < n; to++) {
            size_t count = is_matrix ? list[from * n + to] : list[by_sender ? from : to];
            sent[from * n + to] = count;
            received[to * n + from] = count;
        }
    }
    pack(sent, received + n * n, n);
    pack(received, received + 2 * n * n, n);
    bool sends = problem->function == TT_REDUCE_SCATTER || problem->function == TT_SCATTER;
    bool both = problem->function == TT_ALL_TO_ALL;
    problem->is_uneven = true;
    problem->count = 0;
    if (sends || both) {
        problem->uneven.send_count = sent;
        problem->uneven.send_first = received + n * n;
    }
    if (!sends) {
        problem->uneven.recv_count = received;
        problem->uneven.recv_first = received + 2 * n * n;
    }
}

bool read_counts(struct request *request, const char *text, bool ranks_given, int most_ranks)
{
    struct tt_problem *problem = &request->problem;
    size_t rows = count_of(text, "/");
    size_t count = count_of(text, ",/");
    bool is_matrix = rows > 1;
    size_t n = is_matrix ? rows : count;
    if (problem->function == TT_ALL_REDUCE || problem->function == TT_REDUCE ||
        problem->function == TT_BROADCAST) {
        return complain(text, "uneven sizes are for reduce_scatter, all_gather, alltoall, gather, "
                              "scatter");
    }
    if (is_matrix && (problem->function != TT_ALL_TO_ALL || !is_square(text, rows))) {
        return complain(text, "rows between slashes are for alltoall, as many numbers in each as "
                              "there are rows: what that rank sends to each");
    }
    if (n > (size_t)most_ranks || (ranks_given && n != (size_t)problem->nranks)) {
        return complain(text, ranks_given ? "must have one number for each of the --ranks"
                                          : "these are too many ranks");
    }
    problem->nranks = (int)n;
    request->tables = malloc((4 * n * n + count) * sizeof *request->tables);
    if (request->tables == NULL) {
        return complain(text, "no memory");
    }
    size_t *list = request->tables + 4 * n * n;
    if (!read_list(text, list, count)) {
        free(request->tables);
        return false;
    }
    fill(problem, request->tables, list, is_matrix);
    return true;
}
