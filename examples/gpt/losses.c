// SPDX-License-Identifier: Apache-2.0
#include "losses.h"

#include "storage.h"
#include "words.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// "NUMBER LOSS" of a step up to `step`.
static bool read_line(const char *line, uint64_t step, uint64_t *number, double *loss)
{
    char *end;
    if (!gpt_read_number(&line, step, number) || !gpt_read_text(&line, " ")) {
        return false;
    }
    *loss = strtod(line, &end);
    return end != line && *end == '\n';
}

// Bytes of the lines that stay.
static bool keep(const char *text, uint64_t step, struct gpt_curve *curve, size_t *bytes,
                 struct gpt_problem *problem)
{
    const char *line = text;
    for (const char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        uint64_t number;
        double loss;
        if (!read_line(line, step, &number, &loss)) {
            break;
        }
        if (!gpt_curve_add(curve, (int)number, loss, problem)) {
            return false;
        }
    }
    *bytes = (size_t)(line - text);
    return true;
}

bool gpt_losses_open(const char *path, uint64_t step, struct gpt_curve *curve, FILE **file,
                     struct gpt_problem *problem)
{
    char *text = NULL;
    size_t bytes = 0, kept = 0;
    if (step > 0 && access(path, F_OK) == 0) {
        bool right =
            gpt_read_file(path, &text, &bytes, problem) && keep(text, step, curve, &kept, problem);
        free(text);
        if (!right) {
            return false;
        }
        if (truncate(path, (off_t)kept) != 0) {
            return gpt_fail_errno(problem, path, "cannot be cut");
        }
    }
    *file = fopen(path, kept > 0 ? "ae" : "we");
    return *file != NULL || gpt_fail_errno(problem, path, "cannot be made");
}
