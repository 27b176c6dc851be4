// The table of all options: what --help says, what is read, what is stored.
// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include "random.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define PLACE(field) offsetof(struct gpt_options, field)
#define WHOLE_ROW(name, group, field, least, about)                                                \
    {                                                                                              \
        name, GPT_WHOLE, group, PLACE(field), least, GPT_WHOLE_MOST, NULL, "N", about              \
    }
#define REAL_ROW(name, group, field, least, most, about)                                           \
    {                                                                                              \
        name, GPT_REAL, group, PLACE(field), least, most, NULL, "X", about                         \
    }
#define CHOICE_ROW(name, group, field, choices, about)                                             \
    {                                                                                              \
        name, GPT_CHOICE, group, PLACE(field), 0, 0, choices, choices, about                       \
    }
#define TEXT_ROW(name, group, field, argument, about)                                              \
    {                                                                                              \
        name, GPT_TEXT, group, PLACE(field), 0, 0, NULL, argument, about                           \
    }
#define SWITCH_ROW(name, group, field, about)                                                      \
    {                                                                                              \
        name, GPT_SWITCH, group, PLACE(field), 0, 0, NULL, NULL, about                             \
    }
#define SEED_ROW(name, group, field, about)                                                        \
    {                                                                                              \
        name, GPT_SEED, group, PLACE(field), 0, 0, NULL, "N", about                                \
    }

// Those that are not of the model.
static const struct gpt_row own_rows[] = {
    TEXT_ROW("corpus", GPT_TRAINING, corpus, "FILE", "any text; default: the one that ships"),
    WHOLE_ROW("steps", GPT_TRAINING, steps, 1, "of the whole training"),
    WHOLE_ROW("batch", GPT_TRAINING, batch, 1, "sequences of a step, over all ranks"),
    REAL_ROW("learning-rate", GPT_TRAINING, learning_rate, 0, 1e6, "after the warm-up"),
    REAL_ROW("minimum-rate", GPT_TRAINING, minimum_rate, 0, 1e6, "that the cosine ends at"),
    WHOLE_ROW("warmup", GPT_TRAINING, warmup, 0, "steps in which the rate rises"),
    REAL_ROW("beta1", GPT_TRAINING, beta1, 0, 0.999999, "AdamW: of the mean of gradients"),
    REAL_ROW("beta2", GPT_TRAINING, beta2, 0, 0.999999, "AdamW: of the mean of their squares"),
    REAL_ROW("adam-eps", GPT_TRAINING, adam_eps, 1e-30, 1, "AdamW: added to the root"),
    REAL_ROW("weight-decay", GPT_TRAINING, weight_decay, 0, 1e3, "AdamW: of matrices"),
    REAL_ROW("clip", GPT_TRAINING, clip, 0, 1e9, "most global norm of gradients; 0: any"),

    WHOLE_ROW("dp", GPT_MESH, dp, 0, "data parallel ranks; 0: what remains"),
    WHOLE_ROW("pp", GPT_MESH, pp, 1, "pipeline stages"),
    WHOLE_ROW("ep", GPT_MESH, ep, 1, "expert parallel ranks"),
    WHOLE_ROW("tp", GPT_MESH, tp, 1, "tensor parallel ranks"),
    SWITCH_ROW("sp", GPT_MESH, sp, "sequence parallel between the tensor ranks"),
    SWITCH_ROW("zero", GPT_MESH, zero, "ZeRO 1: the optimizer's state is split over data ranks"),
    WHOLE_ROW("micro-batches", GPT_MESH, micro_batches, 1, "into which a rank's batch is split"),
    CHOICE_ROW("schedule", GPT_MESH, schedule, "gpipe|1f1b", "of the pipeline"),
    WHOLE_ROW("bucket-bytes", GPT_MESH, bucket_bytes, 0, "of gradients, summed at once; 0: 25 MiB"),
    SWITCH_ROW("stub-communication", GPT_MESH, stub_communication,
               "for measurements: gradients are not summed"),

    TEXT_ROW("checkpoints", GPT_CHECKPOINTS, checkpoints, "FOLDER", "where they are saved"),
    WHOLE_ROW("save-every", GPT_CHECKPOINTS, save_every, 0, "steps; 0: at the end alone"),
    TEXT_ROW("resume", GPT_CHECKPOINTS, resume, "FOLDER", "go on from there, on any mesh"),

    WHOLE_ROW("validate-every", GPT_OUTPUT, validate_every, 0, "steps; 0: never"),
    WHOLE_ROW("validation-batches", GPT_OUTPUT, validation_batches, 1, "of the size of a step's"),
    TEXT_ROW("losses", GPT_OUTPUT, losses, "FILE", "a line for each step: number, loss"),
    TEXT_ROW("curve", GPT_OUTPUT, curve, "FILE", "the losses as SVG"),
    TEXT_ROW("pipeline-picture", GPT_OUTPUT, pipeline, "FILE", "the last step's stages as SVG"),
    TEXT_ROW("export", GPT_OUTPUT, export_folder, "FOLDER",
             "initial weights, batches, losses: to compare"),
    SWITCH_ROW("memory", GPT_OUTPUT, memory, "a table of bytes, predicted and allocated"),

    WHOLE_ROW("sample", GPT_SAMPLING, sample, 0, "write N tokens; with --resume"),
    TEXT_ROW("prompt", GPT_SAMPLING, prompt, "TEXT", "that the sample begins with"),
    REAL_ROW("temperature", GPT_SAMPLING, temperature, 0, 1e3, "0: always the likeliest"),
    WHOLE_ROW("top-k", GPT_SAMPLING, top_k, 0, "choose among the likeliest N; 0: all"),
    SEED_ROW("sample-seed", GPT_SAMPLING, sample_seed, "another one, another text"),
};

enum { ROWS = GPT_CONFIG_ROWS + sizeof own_rows / sizeof own_rows[0], WORD_BYTES = 64 };

// The model's rows first; their places are those of the options, which begin with it.
static const struct gpt_row *row_at(int i)
{
    static_assert(offsetof(struct gpt_options, config) == 0, "a config's places are the options'");
    return i < GPT_CONFIG_ROWS ? &gpt_config_rows[i] : &own_rows[i - GPT_CONFIG_ROWS];
}

static struct gpt_options default_options(void)
{
    struct gpt_options options = {
        .config = gpt_config_default(),
        .steps = 500,
        .batch = 16,
        .learning_rate = 1e-3,
        .minimum_rate = 1e-4,
        .warmup = 50,
        .beta1 = 0.9,
        .beta2 = 0.95,
        .adam_eps = 1e-8,
        .weight_decay = 0.1,
        .clip = 1,
        .validate_every = 100,
        .validation_batches = 2,
        .pp = 1,
        .ep = 1,
        .tp = 1,
        .schedule = GPT_1F1B,
        .micro_batches = 1,
        .prompt = "\n",
        .temperature = 0.8,
        .top_k = 40,
        .sample_seed = 1,
    };
    options.config.kv_heads = 0;
    return options;
}

// ---- Values -------------------------------------------------------------------------------------

// The number of a word among choices; -1: none of them.
static int find_choice(const char *choices, const char *word)
{
    size_t length = strlen(word);
    for (int number = 0;; number++) {
        size_t end = strcspn(choices, "|");
        if (end == length && strncmp(choices, word, end) == 0) {
            return number;
        }
        if (choices[end] == 0) {
            return -1;
        }
        choices += end + 1;
    }
}

static void write_choice(const char *choices, int number, char *word)
{
    for (; number > 0; number--) {
        choices += strcspn(choices, "|") + 1;
    }
    *(char *)mempcpy(word, choices, strcspn(choices, "|")) = 0;
}

// Whether a whole text is a number that the row allows.
static bool read_whole(const struct gpt_row *row, const char *text, int *value)
{
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    *value = (int)number;
    return end != text && *end == 0 && errno == 0 && (double)number >= row->least &&
           (double)number <= row->most;
}

static bool read_real(const struct gpt_row *row, const char *text, double *value)
{
    char *end;
    *value = strtod(text, &end);
    return end != text && *end == 0 && *value >= row->least && *value <= row->most;
}

static bool read_seed(const char *text, uint64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == 0 && errno == 0;
}

// Sets a row's field from a text. where: what gives it, for messages.
static bool set(struct gpt_options *options, const struct gpt_row *row, const char *text,
                const char *where, struct gpt_problem *problem)
{
    void *field = (char *)options + row->place;
    switch (row->form) {
    case GPT_WHOLE:
        return read_whole(row, text, field) ||
               gpt_fail(problem, GPT_USAGE,
                        "%s%s is \"%s\", must be a whole number from %.0f to %.0f", where,
                        row->name, text, row->least, row->most);
    case GPT_REAL:
        return read_real(row, text, field) ||
               gpt_fail(problem, GPT_USAGE, "%s%s is \"%s\", must be a number from %g to %g", where,
                        row->name, text, row->least, row->most);
    case GPT_SEED:
        return read_seed(text, field) ||
               gpt_fail(problem, GPT_USAGE,
                        "%s%s is \"%s\", must be a whole number from 0 to 2^64 - 1", where,
                        row->name, text);
    case GPT_CHOICE:
        *(int *)field = find_choice(row->choices, text);
        return *(int *)field >= 0 ||
               gpt_fail(problem, GPT_USAGE, "%s%s is \"%s\", must be one of %s", where, row->name,
                        text, row->choices);
    case GPT_TEXT:
        *(const char **)field = text;
        return text[0] != 0 || row->place == PLACE(prompt) ||
               gpt_fail(problem, GPT_USAGE, "%s%s is empty, must be a %s", where, row->name,
                        row->argument);
    default:
        *(bool *)field = true;
        return true;
    }
}

// With as many digits as it takes to read the same number.
static void write_real(char *word, double value)
{
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(word, WORD_BYTES, "%.*g", digits, value);
        if (strtod(word, NULL) == value) {
            return;
        }
    }
}

// Writes the value of a row's field; of texts what fits. word: [WORD_BYTES].
static void write_value(const struct gpt_options *options, const struct gpt_row *row, char *word)
{
    const void *field = (const char *)options + row->place;
    switch (row->form) {
    case GPT_WHOLE:
        (void)snprintf(word, WORD_BYTES, "%d", *(const int *)field);
        return;
    case GPT_REAL:
        write_real(word, *(const double *)field);
        return;
    case GPT_SEED:
        (void)snprintf(word, WORD_BYTES, "%" PRIu64, *(const uint64_t *)field);
        return;
    case GPT_CHOICE:
        write_choice(row->choices, *(const int *)field, word);
        return;
    default:
        word[0] = 0;
    }
}

static const struct gpt_row *find_row(const char *name, size_t length)
{
    for (int i = 0; i < ROWS; i++) {
        const struct gpt_row *row = row_at(i);
        if (strlen(row->name) == length && strncmp(row->name, name, length) == 0) {
            return row;
        }
    }
    return NULL;
}

// ---- The command line ---------------------------------------------------------------------------

// One option at argv[i]. Returns how many arguments it is; 0: a problem.
static int read_argument(int argc, char **argv, int i, struct gpt_options *options,
                         struct gpt_problem *problem)
{
    const char *argument = argv[i];
    if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
        options->help = true;
        return 1;
    }
    size_t length = strncmp(argument, "--", 2) == 0 ? strcspn(argument + 2, "=") : 0;
    const struct gpt_row *row = find_row(argument + 2 * (length > 0), length);
    if (length == 0 || row == NULL) {
        gpt_fail(problem, GPT_USAGE, "there is no option \"%s\"; --help lists all", argument);
        return 0;
    }
    bool joined = argument[2 + length] == '=';
    if (row->form == GPT_SWITCH) {
        if (joined) {
            gpt_fail(problem, GPT_USAGE, "--%s takes no value", row->name);
            return 0;
        }
        return set(options, row, "", "--", problem);
    }
    if (!joined && i + 1 == argc) {
        gpt_fail(problem, GPT_USAGE, "--%s needs a value: %s", row->name, row->argument);
        return 0;
    }
    const char *value = joined ? argument + 2 + length + 1 : argv[i + 1];
    if (!set(options, row, value, "--", problem)) {
        return 0;
    }
    return joined ? 1 : 2;
}

static bool read_arguments(int argc, char **argv, struct gpt_options *options,
                           struct gpt_problem *problem)
{
    for (int i = 1; i < argc;) {
        int used = read_argument(argc, argv, i, options, problem);
        if (used == 0) {
            return false;
        }
        i += used;
    }
    if (options->config.kv_heads == 0) {
        options->config.kv_heads = options->config.heads;
    }
    return true;
}

// What one option alone does not show.
static bool check(const struct gpt_options *o, struct gpt_problem *problem)
{
    if (o->minimum_rate > o->learning_rate) {
        return gpt_fail(problem, GPT_USAGE,
                        "--minimum-rate is %g, must be at most --learning-rate, which is %g",
                        o->minimum_rate, o->learning_rate);
    }
    if (o->save_every > 0 && o->checkpoints == NULL) {
        return gpt_fail(problem, GPT_USAGE, "--save-every is %d, which needs --checkpoints FOLDER",
                        o->save_every);
    }
    if (o->export_folder != NULL && o->resume != NULL) {
        return gpt_fail(problem, GPT_USAGE, "--export writes initial weights: not with --resume");
    }
    if (o->sample > 0 && o->resume == NULL) {
        return gpt_fail(problem, GPT_USAGE, "--sample is %d, which needs --resume FOLDER",
                        o->sample);
    }
    if (o->sample > 0 && o->pp > 1) {
        return gpt_fail(problem, GPT_USAGE, "--pp is %d, must be 1 for --sample", o->pp);
    }
    return true;
}

bool gpt_options_fit(const struct gpt_options *o, int ranks, struct gpt_problem *problem)
{
    double rest = (double)o->pp * o->ep * o->tp; // far beyond what an int holds, too
    if (o->dp > 0) {
        return o->dp * rest == ranks ||
               gpt_fail(problem, GPT_USAGE,
                        "mesh: --dp x --pp x --ep x --tp is %d x %d x %d x %d, must be the number "
                        "of ranks, which is %d; tutti-run -n N starts N",
                        o->dp, o->pp, o->ep, o->tp, ranks);
    }
    return (rest <= ranks && ranks % (int)rest == 0) ||
           gpt_fail(problem, GPT_USAGE,
                    "mesh: --pp x --ep x --tp is %d x %d x %d, must divide the number of ranks, "
                    "which is %d; tutti-run -n N starts N",
                    o->pp, o->ep, o->tp, ranks);
}

bool gpt_options_read(int argc, char **argv, struct gpt_options *options,
                      struct gpt_problem *problem)
{
    *options = default_options();
    return read_arguments(argc, argv, options, problem) &&
           (options->help || check(options, problem));
}

void gpt_options_help(FILE *file)
{
    static const char *const titles[GPT_GROUPS] = {
        "Model", "Training", "Mesh: dp x pp x ep x tp ranks", "Checkpoints", "Output", "Sampling"};
    struct gpt_options defaults = default_options();
    (void)fprintf(file, "Trains a GPT on a text, by all ranks of a job, or samples from it.\n"
                        "    gpt [OPTION...]        tutti-run -n 4 gpt --tp 2 [OPTION...]\n");
    for (int group = 0; group < GPT_GROUPS; group++) {
        (void)fprintf(file, "\n%s\n", titles[group]);
        for (int i = 0; i < ROWS; i++) {
            char left[WORD_BYTES], value[WORD_BYTES];
            const struct gpt_row *row = row_at(i);
            if (row->group == (enum gpt_group)group) {
                (void)snprintf(left, sizeof left, "--%s %s", row->name,
                               row->argument != NULL ? row->argument : "");
                write_value(&defaults, row, value);
                (void)fprintf(file, "  %-28s %s%s%s%s\n", left, row->about,
                              value[0] != 0 ? " [" : "", value, value[0] != 0 ? "]" : "");
            }
        }
    }
    (void)fprintf(file,
                  "\nA run that goes on from a checkpoint takes from it what the command line "
                  "does not say of\nmodel and training. Exit status: 0; 1: the run failed; "
                  "2: a wrong argument.\n");
}

// ---- The same on all ranks ----------------------------------------------------------------------

static uint64_t mark(const struct gpt_options *options, const struct gpt_row *row)
{
    const void *field = (const char *)options + row->place;
    char word[WORD_BYTES];
    if (row->form == GPT_SWITCH) {
        return *(const bool *)field;
    }
    if (row->form == GPT_TEXT) {
        const char *text = *(const char *const *)field;
        return row->place == PLACE(prompt) ? gpt_hash(text) : text != NULL;
    }
    write_value(options, row, word);
    return gpt_hash(word);
}

int gpt_options_mark(const struct gpt_options *options, uint64_t *marks)
{
    static_assert((int)ROWS <= (int)GPT_OPTIONS_MOST, "each option has a mark");
    for (int i = 0; i < ROWS; i++) {
        marks[i] = mark(options, row_at(i));
    }
    return ROWS;
}

const char *gpt_options_name(int i)
{
    return row_at(i)->name;
}

// ---- Settings of checkpoints --------------------------------------------------------------------

static bool is_stored(const struct gpt_row *row)
{
    return row->group == GPT_MODEL || row->group == GPT_TRAINING;
}

// The corpus as it is found from every folder; "" where none is named, or in no line.
static void write_path(const char *corpus, char *path)
{
    char *whole = corpus == NULL ? NULL : realpath(corpus, NULL);
    bool right = whole != NULL && strlen(whole) < GPT_PATH_MAX && strchr(whole, '\n') == NULL;
    (void)stpcpy(path, right ? whole : "");
    free(whole);
}

bool gpt_options_settings(const struct gpt_options *options, char *text, size_t bytes,
                          struct gpt_problem *problem)
{
    size_t used = 0;
    for (int i = 0; i < ROWS; i++) {
        char value[GPT_PATH_MAX];
        const struct gpt_row *row = row_at(i);
        if (row->form == GPT_TEXT) {
            write_path(options->corpus, value);
        } else {
            write_value(options, row, value);
        }
        if (is_stored(row) && value[0] != 0) {
            int length = snprintf(text + used, bytes - used, "%s %s\n", row->name, value);
            used += (size_t)length;
            if (used >= bytes) {
                return gpt_fail(problem, GPT_FAILED, "settings need more than %zu bytes", bytes);
            }
        }
    }
    return true;
}

// One line of `settings`, without its end.
static bool read_setting(struct gpt_options *options, char *line, const char *where,
                         struct gpt_problem *problem)
{
    char whose[GPT_PATH_MAX + 2];
    char *value = strchr(line, ' ');
    const struct gpt_row *row = value == NULL ? NULL : find_row(line, (size_t)(value - line));
    if (value == NULL || value == line || value[1] == 0) {
        return gpt_fail(problem, GPT_FAILED, "%s: a setting is not NAME VALUE", where);
    }
    *value++ = 0;
    if (row == NULL || !is_stored(row)) {
        return gpt_fail(problem, GPT_FAILED, "%s: there is no setting \"%s\"", where, line);
    }
    if (row->form == GPT_TEXT) {
        if (strlen(value) >= sizeof options->corpus_of_checkpoint) {
            return gpt_fail(problem, GPT_FAILED, "%s: a path is too long: %s", where, value);
        }
        (void)stpcpy(options->corpus_of_checkpoint, value);
        value = options->corpus_of_checkpoint;
    }
    (void)snprintf(whose, sizeof whose, "%s: ", where);
    if (!set(options, row, value, whose, problem)) {
        problem->status = GPT_FAILED;
        return false;
    }
    return true;
}

static bool read_settings(struct gpt_options *options, const char *settings, const char *where,
                          struct gpt_problem *problem)
{
    char line[GPT_PATH_MAX + WORD_BYTES];
    while (*settings != 0) {
        size_t length = strcspn(settings, "\n");
        if (settings[length] == 0 || length >= sizeof line) {
            return gpt_fail(problem, GPT_FAILED, "%s: a setting is not NAME VALUE", where);
        }
        *(char *)mempcpy(line, settings, length) = 0;
        if (!read_setting(options, line, where, problem)) {
            return false;
        }
        settings += length + 1;
    }
    return true;
}

bool gpt_options_adopt(int argc, char **argv, struct gpt_options *options, const char *settings,
                       const char *where, struct gpt_problem *problem)
{
    *options = default_options();
    if (!read_settings(options, settings, where, problem)) {
        return false;
    }
    struct gpt_options stored = *options;
    if (!read_arguments(argc, argv, options, problem)) {
        return false;
    }
    for (int i = 0; i < ROWS; i++) {
        char here[WORD_BYTES], there[WORD_BYTES];
        const struct gpt_row *row = row_at(i);
        write_value(options, row, here);
        write_value(&stored, row, there);
        if (row->group == GPT_MODEL && strcmp(here, there) != 0) {
            return gpt_fail(problem, GPT_USAGE, "%s: %s is %s there, and %s in this run", where,
                            row->name, there, here);
        }
    }
    return check(options, problem);
}
