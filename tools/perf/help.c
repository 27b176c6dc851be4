// The help: of the program, with all operations; of one operation, with what it measures. Options
// come from their table.
// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <string.h>

static void print_text(FILE *to, int column, const char *text)
{
    for (const char *line = text; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        (void)fprintf(to, "%.*s\n", (int)length, line);
        line += length;
        if (*line == '\n') {
            line++;
            (void)fprintf(to, "%*s", column, "");
        }
    }
}

// Whether an option does something to the operation (NULL: any).
static bool applies(const struct perf_option *o, const struct perf_operation *operation)
{
    if (operation == NULL) {
        return true;
    }
    return o->letter == 'o' ? operation->reduces
           : o->letter == 'r'
               ? operation->rooted
               : strcmp(o->name, "uneven") != 0 || operation->kind >= PERF_REDUCE_SCATTER_V;
}

static void print_options(FILE *to, const struct perf_operation *operation)
{
    enum { COLUMN = 32 };
    for (size_t i = 0; i < perf_options_count; i++) {
        const struct perf_option *o = &perf_option_table[i];
        if (o->kind == PERF_HEADING) {
            (void)fprintf(to, "\n%s\n", o->value);
            continue;
        }
        if (o->text == NULL || !applies(o, operation)) {
            continue;
        }
        char names[64];
        int length = o->letter != 0
                         ? snprintf(names, sizeof names, "  -%c, --%s %s", o->letter, o->name,
                                    o->value != NULL ? o->value : "")
                         : snprintf(names, sizeof names, "      --%s %s", o->name, o->value);
        (void)fprintf(to, "%-*s", COLUMN, names);
        if (length >= COLUMN) {
            (void)fprintf(to, "\n%*s", COLUMN, "");
        }
        print_text(to, COLUMN, o->text);
    }
}

void perf_help(FILE *to, const struct perf_operation *operation)
{
    if (operation == NULL) {
        (void)fputs("usage: tutti-perf OPERATION [options]\n\n"
                    "Measures and verifies an operation of the library: a line for each size.\n\n"
                    "Operations (tutti-perf OPERATION --help tells what is measured)\n",
                    to);
        for (int i = 0; i < PERF_KINDS; i++) {
            (void)fprintf(to, "  %-18s%s\n", perf_operations[i].name, perf_operations[i].text);
        }
    } else {
        (void)fprintf(to, "usage: tutti-perf %s [options]\n\n%s: %s\n\n%s", operation->name,
                      operation->function, operation->text, operation->bandwidth_text);
        (void)fprintf(to, "In place: %s\n",
                      operation->has_in_place ? "measured and verified too"
                                              : "has no such form; its columns say N/A");
    }
    print_options(to, operation);
    (void)fputs(
        "\nWith -t and --processes ranks are spread over the GPUs there are; ranks of tutti may "
        "share one.\nNCCL_TESTS_DEVICE: the first GPU. NCCL_TESTS_MIN_BW: the mean bus bandwidth, "
        "in GB/s, below 0.9 of which\nthe run fails.\n\n"
        "Exit status: 0 good; 7 wrong values or too slow; 1 system, 2 CUDA, 3 NCCL, 4 timeout, 5 "
        "not there, 6 misuse,\n255 an option that cannot be read.\n\n"
        "Example: tutti-perf all_reduce -b 8 -e 16M -f 4 --processes 4 --plot all_reduce.svg\n",
        to);
}
