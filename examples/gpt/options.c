// One table of all options: what --help says, what is read, what is stored.
// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include "words.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum form { SWITCH, WHOLE, SEED, REAL, CHOICE, TEXT };

enum group {
    MODEL,    // must be as in the checkpoint that a run goes on from
    TRAINING, // stored in checkpoints too
    MESH,
    CHECKPOINTS,
    OUTPUT,
    SAMPLING,
    GROUPS
};

struct row {
    const char *name;
    enum form form;
    enum group group;
    size_t place;         // in struct gpt_options
    double least, most;   // WHOLE, REAL
    const char *choices;  // CHOICE: words with a | between them, numbered from 0
    const char *argument; // for --help; NULL: none
    const char *about;
};

#define PLACE(field) offsetof(struct gpt_options, field)
#define WHOLE_ROW(name, group, field, least, about)                                                \
    {                                                                                              \
        name, WHOLE, group, PLACE(field), least, 1 << 30, NULL, "N", about                         \
    }
#define REAL_ROW(name, group, field, least, most, about)                                           \
    {                                                                                              \
        name, REAL, group, PLACE(field), least, most, NULL, "X", about                             \
    }
#define CHOICE_ROW(name, group, field, choices, about)                                             \
    {                                                                                              \
        name, CHOICE, group, PLACE(field), 0, 0, choices, choices, about                           \
    }
#define TEXT_ROW(name, group, field, argument, about)                                              \
    {                                                                                              \
        name, TEXT, group, PLACE(field), 0, 0, NULL, argument, about                               \
    }
#define SWITCH_ROW(name, group, field, about)                                                      \
    {                                                                                              \
        name, SWITCH, group, PLACE(field), 0, 0, NULL, NULL, about                                 \
    }
#define SEED_ROW(name, group, field, about)                                                        \
    {                                                                                              \
        name, SEED, group, PLACE(field), 0, 0, NULL, "N", about                                    \
    }

static const struct row rows[] = {
    WHOLE_ROW("layers", MODEL, config.layers, 1, "blocks"),
    WHOLE_ROW("width", MODEL, config.width, 1, "of the residual stream"),
    WHOLE_ROW("heads", MODEL, config.heads, 1, "of queries"),
    WHOLE_ROW("kv-heads", MODEL, config.kv_heads, 0, "of keys and values; 0: as many as heads"),
    WHOLE_ROW("context", MODEL, config.context, 1, "tokens of a sequence"),
    WHOLE_ROW("mlp-width", MODEL, config.mlp_width, 1, "inside an MLP or an expert"),
    CHOICE_ROW("norm", MODEL, config.norm, "rms|layer", "RMSNorm or LayerNorm"),
    CHOICE_ROW("activation", MODEL, config.activation, "swiglu|gelu", "of MLPs and experts"),
    CHOICE_ROW("type", MODEL, config.type, "float|bf16|double", "of weights and activations"),
    REAL_ROW("dropout", MODEL, config.dropout, 0, 0.999, "probability"),
    REAL_ROW("norm-eps", MODEL, config.eps, 0, 1, "added inside the norms' roots"),
    REAL_ROW("rope-theta", MODEL, config.rope_theta, 1.0001, 1e12, "base of rotary positions"),
    WHOLE_ROW("experts", MODEL, config.experts, 0, "of a mixture-of-experts layer; 0: none"),
    WHOLE_ROW("experts-per-token", MODEL, config.top_k, 1, "that the router chooses"),
    WHOLE_ROW("moe-every", MODEL, config.moe_every, 1, "every N-th layer has experts"),
    REAL_ROW("balance", MODEL, config.balance_alpha, 0, 1e6, "weight of the balance loss"),
    CHOICE_ROW("capacity", MODEL, config.capacity, "grow|drop|error", "when an expert is full"),
    REAL_ROW("capacity-factor", MODEL, config.capacity_factor, 1e-3, 1e6, "of an expert's mean"),
    SEED_ROW("seed", MODEL, config.seed, "of weights, batches and dropout"),

    TEXT_ROW("corpus", TRAINING, corpus, "FILE", "any text; default: the one that ships"),
    WHOLE_ROW("steps", TRAINING, steps, 1, "of the whole training"),
    WHOLE_ROW("batch", TRAINING, batch, 1, "sequences of a step, over all ranks"),
    REAL_ROW("learning-rate", TRAINING, learning_rate, 0, 1e6, "after the warm-up"),
    REAL_ROW("minimum-rate", TRAINING, minimum_rate, 0, 1e6, "that the cosine ends at"),
    WHOLE_ROW("warmup", TRAINING, warmup, 0, "steps in which the rate rises"),
    REAL_ROW("beta1", TRAINING, beta1, 0, 0.999999, "AdamW: of the mean of gradients"),
    REAL_ROW("beta2", TRAINING, beta2, 0, 0.999999, "AdamW: of the mean of their squares"),
    REAL_ROW("adam-eps", TRAINING, adam_eps, 1e-30, 1, "AdamW: added to the root"),
    REAL_ROW("weight-decay", TRAINING, weight_decay, 0, 1e3, "AdamW: of matrices"),
    REAL_ROW("clip", TRAINING, clip, 0, 1e9, "most global norm of gradients; 0: any"),

    WHOLE_ROW("dp", MESH, dp, 0, "data parallel ranks; 0: what remains"),
    WHOLE_ROW("pp", MESH, pp, 1, "pipeline stages"),
    WHOLE_ROW("ep", MESH, ep, 1, "expert parallel ranks"),
    WHOLE_ROW("tp", MESH, tp, 1, "tensor parallel ranks"),
    SWITCH_ROW("sp", MESH, sp, "sequence parallel between the tensor ranks"),
    SWITCH_ROW("zero", MESH, zero, "ZeRO 1: the optimizer's state is split over data ranks"),
    WHOLE_ROW("micro-batches", MESH, micro_batches, 1, "into which a rank's batch is split"),
    CHOICE_ROW("schedule", MESH, schedule, "gpipe|1f1b", "of the pipeline"),
    WHOLE_ROW("bucket-bytes", MESH, bucket_bytes, 0, "of gradients, summed at once; 0: 25 MiB"),
    SWITCH_ROW("stub-communication", MESH, stub_communication,
               "for measurements: gradients are not summed"),

    TEXT_ROW("checkpoints", CHECKPOINTS, checkpoints, "FOLDER", "where they are saved"),
    WHOLE_ROW("save-every", CHECKPOINTS, save_every, 0, "steps; 0: at the end alone"),
    TEXT_ROW("resume", CHECKPOINTS, resume, "FOLDER", "go on from there, on any mesh"),

    WHOLE_ROW("validate-every", OUTPUT, validate_every, 0, "steps; 0: never"),
    WHOLE_ROW("validation-batches", OUTPUT, validation_batches, 1, "of the size of a step's"),
    TEXT_ROW("losses", OUTPUT, losses, "FILE", "a line for each step: number, loss"),
    TEXT_ROW("curve", OUTPUT, curve, "FILE", "the losses as SVG"),
    TEXT_ROW("pipeline-picture", OUTPUT, pipeline, "FILE", "the last step's stages as SVG"),
    TEXT_ROW("export", OUTPUT, export_folder, "FOLDER",
             "initial weights, batches, losses: to compare"),
    SWITCH_ROW("memory", OUTPUT, memory, "a table of bytes, predicted and allocated"),

    WHOLE_ROW("sample", SAMPLING, sample, 0, "write N tokens; with --resume"),
    TEXT_ROW("prompt", SAMPLING, prompt, "TEXT", "that the sample begins with"),
    REAL_ROW("temperature", SAMPLING, temperature, 0, 1e3, "0: always the likeliest"),
    WHOLE_ROW("top-k", SAMPLING, top_k, 0, "choose among the likeliest N; 0: all"),
    SEED_ROW("sample-seed", SAMPLING, sample_seed, "another one, another text"),
};

enum { ROWS = sizeof rows / sizeof rows[0], WORD_BYTES = 64 };

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
static bool read_whole(const struct row *row, const char *text, int *value)
{
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    *value = (int)number;
    return end != text && *end == 0 && errno == 0 && (double)number >= row->least &&
           (double)number <= row->most;
}

static bool read_real(const struct row *row, const char *text, double *value)
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
static bool set(struct gpt_options *options, const struct row *row, const char *text,
                const char *where, struct gpt_problem *problem)
{
    void *field = (char *)options + row->place;
    switch (row->form) {
    case WHOLE:
        return read_whole(row, text, field) ||
               gpt_fail(problem, GPT_USAGE,
                        "%s%s is \"%s\", must be a whole number from %.0f to %.0f", where,
                        row->name, text, row->least, row->most);
    case REAL:
        return read_real(row, text, field) ||
               gpt_fail(problem, GPT_USAGE, "%s%s is \"%s\", must be a number from %g to %g", where,
                        row->name, text, row->least, row->most);
    case SEED:
        return read_seed(text, field) ||
               gpt_fail(problem, GPT_USAGE,
                        "%s%s is \"%s\", must be a whole number from 0 to 2^64 - 1", where,
                        row->name, text);
    case CHOICE:
        *(int *)field = find_choice(row->choices, text);
        return *(int *)field >= 0 ||
               gpt_fail(problem, GPT_USAGE, "%s%s is \"%s\", must be one of %s", where, row->name,
                        text, row->choices);
    case TEXT:
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
static void write_value(const struct gpt_options *options, const struct row *row, char *word)
{
    const void *field = (const char *)options + row->place;
    switch (row->form) {
    case WHOLE:
        (void)snprintf(word, WORD_BYTES, "%d", *(const int *)field);
        return;
    case REAL:
        write_real(word, *(const double *)field);
        return;
    case SEED:
        (void)snprintf(word, WORD_BYTES, "%" PRIu64, *(const uint64_t *)field);
        return;
    case CHOICE:
        write_choice(row->choices, *(const int *)field, word);
        return;
    default:
        word[0] = 0;
    }
}

static const struct row *find_row(const char *name, size_t length)
{
    for (int i = 0; i < ROWS; i++) {
        if (strlen(rows[i].name) == length && strncmp(rows[i].name, name, length) == 0) {
            return &rows[i];
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
    const struct row *row = find_row(argument + (length > 0 ? 2 : 0), length);
    if (length == 0 || row == NULL) {
        gpt_fail(problem, GPT_USAGE, "there is no option \"%s\"; --help lists all", argument);
        return 0;
    }
    bool joined = argument[2 + length] == '=';
    if (row->form == SWITCH) {
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

bool gpt_options_read(int argc, char **argv, struct gpt_options *options,
                      struct gpt_problem *problem)
{
    *options = default_options();
    return read_arguments(argc, argv, options, problem) &&
           (options->help || check(options, problem));
}

void gpt_options_help(FILE *file)
{
    static const char *const titles[GROUPS] = {
        "Model", "Training", "Mesh: dp x pp x ep x tp ranks", "Checkpoints", "Output", "Sampling"};
    struct gpt_options defaults = default_options();
    (void)fprintf(file, "Trains a GPT on a text, by all ranks of a job, or samples from it.\n"
                        "    gpt [OPTION...]        tutti-run -n 4 gpt --tp 2 [OPTION...]\n");
    for (int group = 0; group < GROUPS; group++) {
        (void)fprintf(file, "\n%s\n", titles[group]);
        for (int i = 0; i < ROWS; i++) {
            char left[WORD_BYTES], value[WORD_BYTES];
            if (rows[i].group == (enum group)group) {
                (void)snprintf(left, sizeof left, "--%s %s", rows[i].name,
                               rows[i].argument != NULL ? rows[i].argument : "");
                write_value(&defaults, &rows[i], value);
                (void)fprintf(file, "  %-28s %s%s%s%s\n", left, rows[i].about,
                              value[0] != 0 ? " [" : "", value, value[0] != 0 ? "]" : "");
            }
        }
    }
    (void)fprintf(file,
                  "\nA run that goes on from a checkpoint takes from it what the command line "
                  "does not say of\nmodel and training. Exit status: 0; 1: the run failed; "
                  "2: a wrong argument.\n");
}

// ---- Settings of checkpoints --------------------------------------------------------------------

static bool is_stored(const struct row *row)
{
    return (row->group == MODEL || row->group == TRAINING) && row->form != TEXT;
}

bool gpt_options_settings(const struct gpt_options *options, char *text, size_t bytes,
                          struct gpt_problem *problem)
{
    size_t used = 0;
    for (int i = 0; i < ROWS; i++) {
        char value[WORD_BYTES];
        if (is_stored(&rows[i])) {
            write_value(options, &rows[i], value);
            int length = snprintf(text + used, bytes - used, "%s %s\n", rows[i].name, value);
            used += (size_t)length;
            if (used >= bytes) {
                return gpt_fail(problem, GPT_FAILED, "settings need more than %zu bytes", bytes);
            }
        }
    }
    return true;
}

// Texts of `settings` are not kept.
static bool read_settings(struct gpt_options *options, const char *settings, const char *where,
                          struct gpt_problem *problem)
{
    while (*settings != 0) {
        char name[WORD_BYTES], value[WORD_BYTES], whose[256];
        if (!gpt_read_word(&settings, name, sizeof name) || !gpt_read_text(&settings, " ") ||
            !gpt_read_word(&settings, value, sizeof value) || !gpt_read_text(&settings, "\n")) {
            return gpt_fail(problem, GPT_FAILED, "%s: a setting is not NAME VALUE", where);
        }
        const struct row *row = find_row(name, strlen(name));
        if (row == NULL || !is_stored(row)) {
            return gpt_fail(problem, GPT_FAILED, "%s: there is no setting \"%s\"", where, name);
        }
        (void)snprintf(whose, sizeof whose, "%s: ", where);
        if (!set(options, row, value, whose, problem)) {
            problem->status = GPT_FAILED;
            return false;
        }
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
        if (rows[i].group == MODEL && is_stored(&rows[i])) {
            write_value(options, &rows[i], here);
            write_value(&stored, &rows[i], there);
            if (strcmp(here, there) != 0) {
                return gpt_fail(problem, GPT_USAGE, "%s: %s is %s there, and %s in this run", where,
                                rows[i].name, there, here);
            }
        }
    }
    return check(options, problem);
}
