// SPDX-License-Identifier: Apache-2.0
#include "export.h"

#include "parameters.h"
#include "storage.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SETTINGS_BYTES = 4096 };

static bool write_settings(FILE *file, const struct gpt_options *o, struct gpt_problem *problem)
{
    char settings[SETTINGS_BYTES];
    if (!gpt_options_settings(o, settings, sizeof settings, problem)) {
        return false;
    }
    (void)fprintf(file, "tutti-gpt-export 1\n%svocabulary %d\n", settings, o->config.vocabulary);
    return true;
}

static bool write_parameter(FILE *manifest, const char *folder, const struct gpt_parameter *p,
                            uint64_t seed, struct gpt_problem *problem)
{
    char path[GPT_PATH_MAX], name[GPT_NAME_BYTES + 16];
    size_t count = p->rows * p->columns;
    float *values = malloc(count * sizeof *values);
    if (values == NULL) {
        return gpt_fail(problem, GPT_FAILED, "no memory for %s", p->name);
    }
    gpt_parameter_initial(p, seed, values);
    (void)snprintf(name, sizeof name, "%s.float32", p->name);
    (void)fprintf(manifest, "parameter %s %zu %zu %s\n", p->name, p->rows, p->columns, name);
    bool right = gpt_path_join(path, folder, name, problem) &&
                 gpt_write_file(path, values, count * sizeof *values, problem);
    free(values);
    return right;
}

static bool write_parameters(FILE *manifest, const struct gpt_options *o,
                             struct gpt_problem *problem)
{
    const struct gpt_place whole = gpt_place_whole();
    struct gpt_parameters table;
    if (!gpt_nccl(problem, gpt_parameters_make(&o->config, &whole, &table), "export")) {
        return false;
    }
    bool right = true;
    for (int i = 0; right && i < table.count; i++) {
        right = write_parameter(manifest, o->export_folder, &table.all[i], o->config.seed, problem);
    }
    gpt_parameters_free(&table);
    return right;
}

// sequence: [2 * context + 1].
static void write_batches(FILE *file, const struct gpt_options *o, const struct gpt_corpus *corpus,
                          int32_t *sequence)
{
    size_t context = (size_t)o->config.context;
    for (int step = 1; step <= o->steps; step++) {
        for (int i = 0; i < o->batch; i++) {
            gpt_corpus_sequence(corpus, o->config.seed, (uint64_t)step, (uint64_t)i, sequence,
                                sequence + context + 1);
            sequence[context] = sequence[2 * context]; // the last target
            (void)fwrite(sequence, sizeof *sequence, context + 1, file);
        }
    }
}

static bool open_file(const struct gpt_options *o, const char *name, FILE **file, char *path,
                      struct gpt_problem *problem)
{
    if (!gpt_path_join(path, o->export_folder, name, problem)) {
        return false;
    }
    *file = fopen(path, "we");
    return *file != NULL || gpt_fail_errno(problem, path, "cannot be made");
}

static bool export_batches(FILE *manifest, const struct gpt_options *o,
                           const struct gpt_corpus *corpus, struct gpt_problem *problem)
{
    char path[GPT_PATH_MAX];
    FILE *file;
    int32_t *sequence = malloc((2 * (size_t)o->config.context + 1) * sizeof *sequence);
    if (sequence == NULL) {
        return gpt_fail(problem, GPT_FAILED, "no memory for a sequence");
    }
    bool right = open_file(o, "batches.int32", &file, path, problem);
    if (right) {
        write_batches(file, o, corpus, sequence);
        right = gpt_close_file(file, path, problem);
    }
    (void)fprintf(manifest, "batches %d %d %d batches.int32\n", o->steps, o->batch,
                  o->config.context + 1);
    free(sequence);
    return right;
}

bool gpt_export(const struct gpt_options *options, const struct gpt_corpus *corpus,
                struct gpt_problem *problem)
{
    char path[GPT_PATH_MAX];
    FILE *manifest;
    if (mkdir(options->export_folder, 0777) != 0 && errno != EEXIST) {
        return gpt_fail_given(problem, options->export_folder, "cannot be made");
    }
    if (!open_file(options, "manifest.txt", &manifest, path, problem)) {
        return false;
    }
    bool right = write_settings(manifest, options, problem) &&
                 write_parameters(manifest, options, problem) &&
                 export_batches(manifest, options, corpus, problem);
    return gpt_close_file(manifest, path, problem) && right;
}
