// The command line, right and wrong, and settings of checkpoints.
// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include "expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 24, BYTES = 4096 };

// Splits a line at spaces: argv of a program.
static int split(char *line, char **argv)
{
    int argc = 0;
    for (char *word; argc < WORDS && (word = strsep(&line, " ")) != NULL;) {
        argv[argc++] = word;
    }
    return argc;
}

static bool read(const char *text, struct gpt_options *options, struct gpt_problem *problem)
{
    static char line[512];
    char *argv[WORDS];
    memset(problem, 0, sizeof *problem);
    (void)snprintf(line, sizeof line, "gpt%s%s", text[0] == 0 ? "" : " ", text);
    int argc = split(line, argv);
    return gpt_options_read(argc, argv, options, problem);
}

static void right_ones(void)
{
    struct gpt_options o;
    struct gpt_problem problem;
    EXPECT(read("", &o, &problem));
    EXPECT_EQ(o.config.layers, 4);
    EXPECT_EQ(o.config.kv_heads, 4);
    EXPECT_EQ(o.steps, 500);
    EXPECT_EQ(o.dp, 0);
    EXPECT(read("--heads 8 --tp=2 --sp --zero --norm layer --type=bf16 --dropout 0.25 --losses a=b "
                "--seed 18446744073709551615 --schedule gpipe",
                &o, &problem));
    EXPECT_EQ(o.config.kv_heads, 8);
    EXPECT_EQ(o.tp, 2);
    EXPECT(o.sp && o.zero && !o.memory);
    EXPECT_EQ(o.config.norm, GPT_NORM_LAYER);
    EXPECT_EQ(o.config.type, GPT_BF16);
    EXPECT(o.config.dropout == 0.25);
    EXPECT_STR(o.losses, "a=b");
    EXPECT(o.config.seed == UINT64_MAX);
    EXPECT_EQ(o.schedule, GPT_GPIPE);
    EXPECT(read("--help", &o, &problem) && o.help);
}

static void wrong_ones(void)
{
    static const struct {
        const char *line, *text;
    } cases[] = {
        {"--layers 0", "--layers is \"0\", must be a whole number from 1"},
        {"--layers 4x", "--layers is \"4x\""},
        {"--layers=", "--layers is \"\""},
        {"--layers", "--layers needs a value: N"},
        {"--layers 99999999999", "--layers is \"99999999999\""},
        {"--dropout 1", "--dropout is \"1\", must be a number from 0 to 0.999"},
        {"--dropout nan", "--dropout is \"nan\""},
        {"--learning-rate -1", "--learning-rate is \"-1\""},
        {"--norm both", "--norm is \"both\", must be one of rms|layer"},
        {"--norm rms|layer", "must be one of rms|layer"},
        {"--seed -1", "--seed is \"-1\""},
        {"--seed 18446744073709551616", "must be a whole number from 0 to 2^64 - 1"},
        {"--zero=1", "--zero takes no value"},
        {"--corpus=", "--corpus is empty, must be a FILE"},
        {"--nothing", "there is no option \"--nothing\"; --help lists all"},
        {"layers 4", "there is no option \"layers\""},
        {"--", "there is no option \"--\""},
        {"-", "there is no option \"-\""},
        {"--=4", "there is no option \"--=4\""},
        {"--layer 4", "there is no option \"--layer\""},
        {"--minimum-rate 1",
         "--minimum-rate is 1, must be at most --learning-rate, which is 0.001"},
        {"--save-every 5", "--save-every is 5, which needs --checkpoints FOLDER"},
        {"--sample 5", "--sample is 5, which needs --resume FOLDER"},
        {"--sample 5 --resume a --pp 2", "--pp is 2, must be 1 for --sample"},
        {"--export a --resume b", "not with --resume"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gpt_options o;
        struct gpt_problem problem;
        EXPECT(!read(cases[i].line, &o, &problem));
        EXPECT_EQ(problem.status, GPT_USAGE);
        EXPECT_CONTAINS(problem.text, cases[i].text);
    }
}

// Adopts the settings of `stored` for a run with another command line.
static bool adopt(const char *stored, const char *text, struct gpt_options *o,
                  struct gpt_problem *problem)
{
    char settings[BYTES], line[512];
    char *argv[WORDS];
    EXPECT(read(stored, o, problem));
    EXPECT(gpt_options_settings(o, settings, sizeof settings, problem));
    (void)snprintf(line, sizeof line, "gpt%s%s", text[0] == 0 ? "" : " ", text);
    int argc = split(line, argv);
    return gpt_options_adopt(argc, argv, o, settings, "here", problem);
}

static void adopted(void)
{
    struct gpt_options o;
    struct gpt_problem problem;
    EXPECT(adopt("--heads 8 --learning-rate 0.1234567890123456789 --tp 2 --batch 6 --seed 5", "",
                 &o, &problem));
    EXPECT_EQ(o.config.heads, 8);
    EXPECT_EQ(o.config.kv_heads, 8);
    EXPECT(o.learning_rate == 0.1234567890123456789);
    EXPECT_EQ(o.batch, 6);
    EXPECT_EQ(o.tp, 1); // the mesh is the run's own
    EXPECT(o.config.seed == 5);
    EXPECT(adopt("--heads 8 --batch 6", "--batch 12 --heads 8 --pp 2", &o, &problem));
    EXPECT_EQ(o.batch, 12);
    EXPECT_EQ(o.pp, 2);
    EXPECT(!adopt("--heads 8", "--heads 4", &o, &problem));
    EXPECT_STR(problem.text, "here: heads is 8 there, and 4 in this run");
    EXPECT(!adopt("--norm rms", "--norm layer", &o, &problem));
    EXPECT_STR(problem.text, "here: norm is rms there, and layer in this run");
}

// The corpus is found again from another folder, unless the command line names another one.
static void adopted_corpus(void)
{
    struct gpt_options o;
    struct gpt_problem problem;
    EXPECT(adopt("--corpus /etc/../etc/passwd", "", &o, &problem));
    EXPECT_STR(o.corpus, "/etc/passwd");
    EXPECT(adopt("--corpus /etc/passwd", "--corpus other", &o, &problem));
    EXPECT_STR(o.corpus, "other");
    EXPECT(adopt("", "", &o, &problem));
    EXPECT(o.corpus == NULL);
    char path[2 * GPT_PATH_MAX], program[] = "gpt";
    char *argv[] = {program};
    memset(&problem, 0, sizeof problem);
    (void)snprintf(path, sizeof path, "kv-heads 4\ncorpus /a b\n");
    EXPECT(gpt_options_adopt(1, argv, &o, path, "here", &problem));
    EXPECT_STR(o.corpus, "/a b");
    (void)snprintf(path, sizeof path, "corpus %0*d\n", GPT_PATH_MAX, 7);
    EXPECT(!gpt_options_adopt(1, argv, &o, path, "here", &problem));
    EXPECT_CONTAINS(problem.text, "here: a path is too long: 000");
}

// Marks differ where options do, whatever their form.
static void marks(void)
{
    static const char *const lines[] = {"--layers 5",   "--dropout 0.1", "--seed 2",
                                        "--norm layer", "--zero",        "--losses a",
                                        "--tp 2",       "--prompt a",    "--capacity drop"};
    struct gpt_options usual, other;
    struct gpt_problem problem;
    uint64_t a[GPT_OPTIONS_MOST], b[GPT_OPTIONS_MOST];
    EXPECT(read("", &usual, &problem));
    int count = gpt_options_mark(&usual, a);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        int differ = -1;
        EXPECT(read(lines[i], &other, &problem));
        EXPECT_EQ(gpt_options_mark(&other, b), count);
        for (int j = 0; j < count; j++) {
            EXPECT(a[j] == b[j] || differ < 0);
            differ = a[j] == b[j] ? differ : j;
        }
        if (EXPECT(differ >= 0)) {
            const char *name = gpt_options_name(differ);
            EXPECT(strncmp(lines[i] + 2, name, strlen(name)) == 0);
        }
    }
    EXPECT(read("--losses a", &usual, &problem)); // paths may differ between hosts
    EXPECT(read("--losses b", &other, &problem));
    (void)gpt_options_mark(&usual, a);
    (void)gpt_options_mark(&other, b);
    EXPECT_EQ(memcmp(a, b, (size_t)count * sizeof *a), 0);
}

static void damaged_settings(void)
{
    static const struct {
        const char *settings, *text;
    } cases[] = {
        {"layers\n", "here: a setting is not NAME VALUE"},
        {"layers \n", "here: a setting is not NAME VALUE"},
        {" 4\n", "here: a setting is not NAME VALUE"},
        {"layers 4 5\n", "here: layers is \"4 5\", must be a whole number"},
        {"layers 4", "here: a setting is not NAME VALUE"},
        {"layers four\n", "here: layers is \"four\""},
        {"losses a\n", "here: there is no setting \"losses\""},
        {"tp 2\n", "here: there is no setting \"tp\""},
    };
    char program[] = "gpt";
    char *argv[] = {program};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gpt_options o;
        struct gpt_problem problem = {0};
        EXPECT(!gpt_options_adopt(1, argv, &o, cases[i].settings, "here", &problem));
        EXPECT_CONTAINS(problem.text, cases[i].text);
        EXPECT_EQ(problem.status, GPT_FAILED);
    }
}

// Each option of --help is one that is read.
static void help(void)
{
    char *text = NULL;
    size_t bytes = 0;
    int count = 0;
    FILE *file = open_memstream(&text, &bytes);
    gpt_options_help(file);
    (void)fclose(file);
    for (char *line = text, *next; line != NULL; line = next) {
        char name[64], argument[64], command[160];
        next = strchr(line, '\n');
        next = next == NULL ? NULL : next + 1;
        if (sscanf(line, "  --%40s %40s", name, argument) == 2) {
            struct gpt_options o;
            struct gpt_problem problem;
            (void)snprintf(command, sizeof command, "--%s", name);
            EXPECT(read(command, &o, &problem) || strstr(problem.text, "needs a value") != NULL);
            count++;
        }
    }
    EXPECT(count > 45);
    free(text);
}

int main(void)
{
    RUN(right_ones);
    RUN(wrong_ones);
    RUN(adopted);
    RUN(adopted_corpus);
    RUN(marks);
    RUN(damaged_settings);
    RUN(help);
    return expect_result();
}
