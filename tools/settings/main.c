// Prints docs/env.md: every setting from the environment, from the tables that are read by.
// SPDX-License-Identifier: Apache-2.0
#include "base/params.h"
#include "parallel/settings.h"
#include "settings.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES = 80 };

// A row of the page.
struct line {
    const char *name, *values, *standard, *since, *help;
};

// What programs read, for themselves.
static const struct line programs[] = {
    {"NTHREADS", "1 to 4096", "as many as there are GPUs", "0.1", "number of ranks of a lesson"},
    {"PATH", "folders between colons", "", "0.1", "where `tutti-run` looks for the program"},
    {"PMIX_NAMESPACE", "a launcher's", "", "0.1",
     "lesson 09: there is a PMIx server. All that `tuttiCommInit` reads of launchers: "
     "[launching.md](launching.md)"},
    {"PMIX_RANK", "a launcher's", "", "0.1", "the same"},
    {"TMPDIR", "a folder", "`/tmp`", "0.1", "where `tutticc` puts intermediate files"},
    {"NCCL_TESTS_DEVICE", "a number", "`0`", "0.1",
     "`tutti-perf`: the GPU of rank 0; the others have those behind it, as in nccl-tests"},
    {"NCCL_TESTS_MIN_BW", "GB/s", "none", "0.1",
     "`tutti-perf`: an average bus bandwidth below nine tenths of it is a failure, as in "
     "nccl-tests"},
};

static const char head[] =
    "# Environment variables\n\n"
    "All that the libraries, the virtual GPUs and the tools read; made from their tables by "
    "`./dev docs`. Settings are read once. Wrong values\n"
    "are reported with the allowed ones; numbers then keep their default. What differs from NCCL: "
    "[differences.md](differences.md#settings).\n";

static const char not_read[] =
    "\nNot read, on purpose: `NCCL_MULTI_RANK_GPU_ENABLE`: several ranks may always share a GPU; "
    "one line says which ranks do. NCCL's other\n"
    "variables have nothing to act on here (channels, networks, buffers) and are not looked "
    "at.\n";

static void print_head(const char *title)
{
    printf("\n## %s\n\n| variable | values | default | since | meaning |\n|---|---|---|---|---|\n",
           title);
}

static void print_line(const struct line *line)
{
    printf("| `%s` | %s | %s%s| %s | %s |\n", line->name, line->values, line->standard,
           line->standard[0] == 0 ? "" : " ", line->since, line->help);
}

// The library's rows whose names begin with `prefix`.
static void print_params(const char *title, const char *prefix)
{
    print_head(title);
    for (int i = 0; i < TT_PARAM_COUNT; i++) {
        const struct tt_param_row *row = tt_param_row((enum tt_param)i);
        char values[TEXT_BYTES], standard[TEXT_BYTES];
        if (strncmp(row->name, prefix, strlen(prefix)) != 0) {
            continue;
        }
        (void)snprintf(values, sizeof values,
                       row->most - row->least == 1 ? "`%ld`, `%ld`" : "%ld to %ld", row->least,
                       row->most);
        (void)snprintf(standard, sizeof standard, "`%ld`", row->standard);
        print_line(&(struct line){row->name, row->values != NULL ? row->values : values,
                                  !row->is_text        ? standard
                                  : row->unset != NULL ? row->unset
                                                       : "",
                                  row->since, row->help});
    }
}

static int usage(const char *word)
{
    bool asks = strcmp(word, "-h") == 0 || strcmp(word, "--help") == 0;
    if (!asks) {
        (void)fprintf(stderr, "tutti-settings: %s: what is that?\n", word);
    }
    (void)fprintf(asks ? stdout : stderr, "usage: tutti-settings   prints docs/env.md\n");
    return asks ? 0 : 2;
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        return usage(argv[1]);
    }
    printf("%s", head);
    print_params("tutti", "TUTTI_");
    print_head("libtutti_parallel");
    for (int i = 0; i < PARALLEL_SETTINGS; i++) {
        const struct parallel_setting_row *row = &parallel_setting_rows[i];
        print_line(&(struct line){row->name, row->values, row->standard, row->since, row->help});
    }
    print_head("Virtual GPUs");
    for (int i = 0; i < VGPU_SETTINGS; i++) {
        const struct vgpu_setting_row *row = &vgpu_setting_rows[i];
        print_line(&(struct line){row->name, row->values, row->standard, row->since, row->help});
    }
    print_params("Real GPUs", "CUDA_");
    print_params("NCCL's, honoured", "NCCL_");
    printf("%s", not_read);
    print_head("Programs");
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        print_line(&programs[i]);
    }
    return ferror(stdout) != 0 || fflush(stdout) != 0;
}
