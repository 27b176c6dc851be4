// What a training writes beside its checkpoints, and how a sample's tokens are chosen.
// SPDX-License-Identifier: Apache-2.0
#include "curve.h"
#include "expect.h"
#include "export.h"
#include "losses.h"
#include "parameters.h"
#include "sample.h"
#include "storage.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[] = "/tmp/gpt_output_test.XXXXXX";

static void write_text(const char *text)
{
    struct gpt_problem problem = {0};
    EXPECT(gpt_write_file(path, text, strlen(text), &problem));
}

static void expect_text(const char *text)
{
    struct gpt_problem problem = {0};
    char *got = NULL;
    size_t bytes;
    EXPECT(gpt_read_file(path, &got, &bytes, &problem));
    EXPECT_STR(got, text);
    free(got);
}

// A run that goes on after `step`: later lines, and half ones, are cut off.
static void open_at(const char *before, uint64_t step, const char *after, int points)
{
    struct gpt_curve curve = {0};
    struct gpt_problem problem = {0};
    FILE *file = NULL;
    write_text(before);
    if (EXPECT(gpt_losses_open(path, step, &curve, &file, &problem))) {
        (void)fprintf(file, "next\n");
        (void)fclose(file);
        expect_text(after);
        EXPECT_EQ(curve.count, points);
        EXPECT(points == 0 || curve.points[points - 1].loss == 4.5);
    }
    gpt_curve_free(&curve);
}

static void losses(void)
{
    open_at("1 5\n2 4.5\n3 4\n", 2, "1 5\n2 4.5\nnext\n", 2);
    open_at("1 5\n2 4.5\n3 ", 3, "1 5\n2 4.5\nnext\n", 2);
    open_at("1 5\n2 4.5\n", 9, "1 5\n2 4.5\nnext\n", 2);
    open_at("1 5\n2 4.5\n", 0, "next\n", 0);
    open_at("nothing of ours\n", 2, "next\n", 0);
}

static void curves(void)
{
    struct gpt_curve training = {0}, validation = {0};
    struct gpt_problem problem = {0};
    char *text = NULL;
    size_t bytes;
    for (int count = 0; count < 3; count++) { // no point, one point, points
        EXPECT(gpt_curve_write(path, &training, &validation, &problem));
        EXPECT(gpt_read_file(path, &text, &bytes, &problem));
        EXPECT_CONTAINS(text, "</svg>");
        EXPECT(strstr(text, "nan") == NULL && strstr(text, "inf") == NULL);
        free(text);
        for (int i = 0; i < 1 + 99 * count; i++) {
            EXPECT(gpt_curve_add(&training, i + 1, 5.5 - 0.02 * i, &problem));
        }
    }
    EXPECT(gpt_curve_add(&validation, 50, 5, &problem));
    EXPECT(gpt_curve_write(path, &training, &validation, &problem));
    EXPECT(gpt_read_file(path, &text, &bytes, &problem));
    EXPECT_CONTAINS(text, "validation: 5.0000");
    free(text);
    EXPECT(!gpt_curve_write("/tmp/gpt_output_test/none/x", &training, &validation, &problem));
    EXPECT_CONTAINS(problem.text, "/tmp/gpt_output_test/none/x: cannot be made");
    gpt_curve_free(&training);
    gpt_curve_free(&validation);
}

// Losses that are one bit apart, so large that a mark's distance is less than that; and one loss.
static void flat_curve(void)
{
    struct gpt_curve training = {0}, none = {0};
    struct gpt_problem problem = {0};
    EXPECT(gpt_curve_add(&training, 1, 1e9, &problem));
    EXPECT(gpt_curve_write(path, &training, &none, &problem));
    EXPECT(gpt_curve_add(&training, 2, nextafter(1e9, 2e9), &problem));
    EXPECT(gpt_curve_write(path, &training, &none, &problem));
    gpt_curve_free(&training);
}

static int writes_that_fail;

static ssize_t write_or_fail(void *cookie, const char *text, size_t bytes)
{
    (void)cookie;
    (void)text;
    errno = ENOSPC;
    return writes_that_fail-- > 0 ? 0 : (ssize_t)bytes;
}

// A disk that is full at the end, or was full for a while.
static void full_disks(void)
{
    for (int early = 0; early < 2; early++) {
        struct gpt_problem problem = {0};
        FILE *file = fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_or_fail});
        if (!EXPECT(file != NULL)) {
            return;
        }
        writes_that_fail = early == 0 ? 99 : 1;
        (void)fputs("1 5.5\n", file);
        EXPECT(early == 0 || fflush(file) != 0);
        EXPECT(!gpt_close_file(file, "losses", &problem));
        EXPECT_CONTAINS(problem.text, "losses: cannot be written: ");
        EXPECT(early == 1 || strstr(problem.text, "No space left") != NULL);
    }
}

// How often each of the tokens is chosen, of evenly spaced numbers, as a share.
static void shares(const float *scores, int count, double temperature, int top_k, double *share)
{
    enum { DRAWS = 20000 };
    float work[8];
    for (int i = 0; i < count; i++) {
        share[i] = 0;
    }
    for (int i = 0; i < DRAWS; i++) {
        memcpy(work, scores, (size_t)count * sizeof *work);
        share[gpt_choose(work, count, temperature, top_k, (i + 0.5) / DRAWS)] += 1.0 / DRAWS;
    }
}

static void choices(void)
{
    const float scores[] = {1, 3, 3, -2, 2};
    double share[5], sum = 0;
    for (int i = 0; i < 5; i++) {
        sum += exp(scores[i] / 0.7);
    }
    shares(scores, 5, 0.7, 0, share);
    for (int i = 0; i < 5; i++) {
        EXPECT_NEAR(share[i], exp(scores[i] / 0.7) / sum, 1e-4);
    }
    shares(scores, 5, 1, 3, share); // 3, 3, 2
    sum = 2 * exp(3) + exp(2);
    EXPECT_NEAR(share[1], exp(3) / sum, 1e-4);
    EXPECT_NEAR(share[4], exp(2) / sum, 1e-4);
    EXPECT_EQ(share[0] + share[3] > 0, 0);
    shares(scores, 5, 1, 1, share); // of two with the same score the first
    EXPECT_NEAR(share[1], 1, 1e-9);
    shares(scores, 5, 0, 0, share);
    EXPECT_NEAR(share[1], 1, 1e-9);
    shares(scores, 5, 1e-9, 0, share); // no overflow
    EXPECT_NEAR(share[1] + share[2], 1, 1e-9);
    shares(scores, 5, 1, 99, share);
    EXPECT(share[3] > 0);
}

static bool read_file(const char *folder, const char *name, char **data, size_t *bytes)
{
    struct gpt_problem problem = {0};
    char file[GPT_PATH_MAX];
    return EXPECT(gpt_path_join(file, folder, name, &problem)) &&
           EXPECT(gpt_read_file(file, data, bytes, &problem));
}

// Batches are those that a training takes, weights those that it begins with.
static void check_export(const struct gpt_options *o, const struct gpt_corpus *corpus)
{
    enum { LENGTH = 9, BATCHES = 3 * 4 };
    const struct gpt_place whole = gpt_place_whole();
    struct gpt_parameters table;
    char *data = NULL;
    size_t bytes = 0, found = 0;
    if (read_file(o->export_folder, "batches.int32", &data, &bytes) &&
        EXPECT_EQ(bytes, BATCHES * LENGTH * sizeof(int32_t))) {
        for (size_t i = 0; i < BATCHES; i++) {
            int32_t tokens[LENGTH], targets[LENGTH];
            const char *at = data + i * sizeof tokens;
            gpt_corpus_sequence(corpus, 5, 1 + i / 4, i % 4, tokens, targets);
            EXPECT_EQ(memcmp(at, tokens, sizeof tokens - sizeof *tokens), 0);
            EXPECT_EQ(memcmp(at + sizeof *tokens, targets, sizeof tokens - sizeof *tokens), 0);
        }
    }
    free(data);
    EXPECT_OK(gpt_parameters_make(&o->config, &whole, &table));
    const struct gpt_parameter *up = gpt_parameter_find(&table, "layer.1.mlp.up");
    if (EXPECT(up != NULL) &&
        read_file(o->export_folder, "layer.1.mlp.up.float32", &data, &bytes)) {
        float values[12 * 8];
        gpt_parameter_initial(up, 5, values);
        EXPECT_EQ(bytes, sizeof values);
        EXPECT_EQ(memcmp(data, values, sizeof values), 0);
        free(data);
    }
    if (read_file(o->export_folder, "manifest.txt", &data, &bytes)) {
        for (const char *p = data; (p = strstr(p, "\nparameter ")) != NULL; p++) {
            found++;
        }
        EXPECT_EQ(found, table.count);
        EXPECT_CONTAINS(data, "\nlayers 2\n");
        EXPECT_CONTAINS(data, "\nparameter layer.1.mlp.up 12 8 layer.1.mlp.up.float32\n");
        EXPECT_CONTAINS(data, "\nbatches 3 4 9 batches.int32\n");
        free(data);
    }
    gpt_parameters_free(&table);
}

static void exports(void)
{
    char folder[] = "/tmp/gpt_output_test.XXXXXX", option[64], command[64];
    char *argv[] = {"gpt",         "--layers=2", "--width=8", "--heads=2", "--mlp-width=12",
                    "--context=8", "--steps=3",  "--batch=4", "--seed=5",  option};
    struct gpt_options o;
    struct gpt_corpus corpus;
    struct gpt_problem problem = {0};
    if (!EXPECT(mkdtemp(folder) != NULL)) {
        return;
    }
    (void)snprintf(option, sizeof option, "--export=%s", folder);
    write_text("What is the use of a book, thought Alice, without pictures or conversations? and "
               "so she was considering in her own mind");
    EXPECT(gpt_options_read(10, argv, &o, &problem));
    if (EXPECT(gpt_corpus_open(&corpus, path, 8, &problem)) &&
        EXPECT(gpt_export(&o, &corpus, &problem))) {
        check_export(&o, &corpus);
    }
    EXPECT_STR(problem.text, "");
    gpt_corpus_close(&corpus);
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    EXPECT_EQ(system(command), 0);
}

int main(void)
{
    int fd = mkstemp(path);
    if (!EXPECT(fd >= 0)) {
        return expect_result();
    }
    close(fd);
    RUN(losses);
    RUN(curves);
    RUN(flat_curve);
    RUN(full_disks);
    RUN(choices);
    RUN(exports);
    (void)unlink(path);
    return expect_result();
}
