// Reading the command line by a table of options.
// SPDX-License-Identifier: Apache-2.0
#include "options.h"
#include "option_table.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Options that go to the host compiler as they are, by how they begin.
static const char *const HOST_PREFIXES[] = {
    "-f",     "-m",    "-W",        "-g",          "-pthread", "-pedantic",
    "-pipe",  "-pg",   "-rdynamic", "-static-lib", "-no-pie",  "-pie",
    "-nostd", "-ansi", "-B",        "--coverage",  "--param="};

__attribute__((format(printf, 1, 2))) static bool complain(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("tutticc: error: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return false;
}

static void replace(char **string, const char *value)
{
    free(*string);
    *string = format_string("%s", value);
}

static void add_item(struct options *options, const char *text, bool is_input,
                     enum language language)
{
    options->item =
        reallocate(options->item, ((size_t)options->item_count + 1) * sizeof(*options->item));
    options->item[options->item_count++] = (struct link_item){
        .text = format_string("%s", text), .language = language, .is_input = is_input};
    options->input_count += is_input;
}

// Splits at commas that no backslash and no quotes protect.
static void add_list(struct strings *list, const char *value)
{
    struct text part = {0};
    char quote = 0;
    text_add(&part, "");
    for (const char *c = value; *c; c++) {
        if (*c == '\\' && c[1] == ',') {
            text_append(&part, ++c, 1);
        } else if (quote ? *c == quote : (*c == '"' || *c == '\'')) {
            quote = quote ? 0 : *c;
        } else if (*c == ',' && !quote) {
            strings_add(list, part.data);
            part.length = 0;
        } else {
            text_append(&part, c, 1);
        }
    }
    if (part.length > 0) {
        part.data[part.length] = '\0';
        strings_add(list, part.data);
    }
    text_free(&part);
}

// ---- Inputs ------------------------------------------------------------------------------------

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static bool add_input(struct options *options, const char *path, const char *language)
{
    static const struct {
        const char *end;
        enum language language;
    } ENDS[] = {{".cu", LANGUAGE_CUDA},  {".c", LANGUAGE_C},       {".cc", LANGUAGE_CXX},
                {".cpp", LANGUAGE_CXX},  {".cxx", LANGUAGE_CXX},   {".C", LANGUAGE_CXX},
                {".c++", LANGUAGE_CXX},  {".o", LANGUAGE_OBJECT},  {".obj", LANGUAGE_OBJECT},
                {".a", LANGUAGE_OBJECT}, {".so", LANGUAGE_OBJECT}, {".lo", LANGUAGE_OBJECT}};
    if (language) {
        bool cuda = strcmp(language, "cu") == 0, c = strcmp(language, "c") == 0;
        if (!cuda && !c && strcmp(language, "c++") != 0) {
            return complain("-x takes cu, c or c++, not '%s'", language);
        }
        add_item(options, path, true, cuda ? LANGUAGE_CUDA : c ? LANGUAGE_C : LANGUAGE_CXX);
        return true;
    }
    for (size_t i = 0; i < sizeof(ENDS) / sizeof(ENDS[0]); i++) {
        if (ends_with(path, ENDS[i].end)) {
            add_item(options, path, true, ENDS[i].language);
            return true;
        }
    }
    const char *so = strstr(path, ".so.");
    if (so && isdigit((unsigned char)so[4])) {
        add_item(options, path, true, LANGUAGE_OBJECT);
        return true;
    }
    return complain("'%s': a file of this name is neither source (.cu .c .cc .cpp .cxx) nor object "
                    "(.o .a .so); -x says what it is",
                    path);
}

// ---- Options -----------------------------------------------------------------------------------

struct reader {
    struct options *options;
    int argc;
    char **argv;
    int at;
    char *language; // of -x
    int depth;      // of options files
};

static bool read_all(struct reader *reader);

static bool read_options_file(struct reader *reader, const char *path)
{
    struct text file = {0};
    if (reader->depth > 8 || !text_read_file(&file, path)) {
        text_free(&file);
        return complain("cannot read the options file '%s': %s", path,
                        reader->depth > 8 ? "it names itself" : strerror(errno));
    }
    struct strings words = {0};
    for (char *word = strtok(file.data, " \t\r\n"); word; word = strtok(NULL, " \t\r\n")) {
        strings_add(&words, word);
    }
    struct reader inner = {.options = reader->options,
                           .argc = words.count,
                           .argv = words.item,
                           .language = reader->language,
                           .depth = reader->depth + 1};
    bool good = read_all(&inner);
    reader->language = inner.language;
    strings_free(&words);
    text_free(&file);
    return good;
}

static bool read_language(struct reader *reader, const char *value)
{
    free(reader->language);
    reader->language = strcmp(value, "none") == 0 ? NULL : format_string("%s", value);
    return true;
}

static bool read_targets(struct options *options)
{
    char *error = NULL;
    if (options->arch) {
        error =
            targets_add_arch(&options->targets, options->arch, options->code, options->device_arch);
    } else if (options->code) {
        return complain("-code needs -arch");
    }
    if (!error && options->targets.count == 0) {
        error = targets_add_arch(&options->targets, "native", NULL, options->device_arch);
    }
    if (error) {
        complain("%s", error);
        free(error);
    }
    return !error;
}

static bool read_gencode(struct options *options, const char *value)
{
    char *error = targets_add_gencode(&options->targets, value);
    if (error) {
        complain("%s", error);
        free(error);
    }
    return !error;
}

// Options whose value has to be one of a few.
static bool read_choice(struct options *options, const struct option *option, const char *value)
{
    bool yes = strcmp(value, "true") == 0;
    switch (option->action) {
    case DO_SEPARATE:
        options->separate = yes;
        return yes || strcmp(value, "false") == 0 ||
               complain("-rdc takes true or false, not '%s'", value);
    case DO_CUDART:
        options->no_cudart = strcmp(value, "none") == 0;
        return options->no_cudart || strcmp(value, "shared") == 0 || strcmp(value, "static") == 0 ||
               complain("-cudart takes none, shared or static, not '%s'", value);
    default:
        options->own_stream = strcmp(value, "per-thread") == 0;
        return options->own_stream || strcmp(value, "legacy") == 0 || strcmp(value, "null") == 0 ||
               complain("--default-stream takes legacy, null or per-thread, not '%s'", value);
    }
}

static void add_dependency(struct options *options, const struct option *option, const char *value)
{
    options->dependency_file |= strcmp(option->letter, "MF") == 0;
    options->dependency_target |= strcmp(option->letter, "MT") == 0;
    strings_add_format(&options->dependency, "-%s", option->letter);
    if (option->kind != FLAG) {
        strings_add(&options->dependency, value);
    }
}

// -Werror, alone or with the kinds of nvcc.
static void read_werror(struct reader *reader, const char *value)
{
    static const char KINDS[] = "all-warnings";
    const char *next = reader->at < reader->argc ? reader->argv[reader->at] : "";
    if (!value && strncmp(next, KINDS, strlen(KINDS)) == 0) {
        reader->at++;
    }
    bool all = !value || strstr(value, KINDS);
    if (all) {
        strings_add(&reader->options->host, "-Werror");
    }
}

static bool apply(struct reader *reader, const struct option *option, const char *value)
{
    struct options *options = reader->options;
    switch (option->action) {
    case DO_NOTHING:
        return true;
    case DO_TEXT:
    case DO_OPTIMIZE:
        replace((char **)((char *)options + option->argument), value);
        return true;
    case DO_PHASE:
        options->phase = (enum phase)option->argument;
        return true;
    case DO_PREPROCESS:
        strings_add_format(&options->preprocess, "-%s", option->letter);
        strings_add(&options->preprocess, value);
        return true;
    case DO_DEPENDENCIES:
        options->phase = PHASE_DEPENDENCIES;
        options->system_dependencies = option->argument;
        return true;
    case DO_COMPILE_DEPENDENCIES:
    case DO_DEPENDENCY_OPTION:
        add_dependency(options, option, value);
        return true;
    case DO_LINK: {
        char *text = format_string("-%s%s", option->letter, value);
        add_item(options, text, false, LANGUAGE_OBJECT);
        free(text);
        return true;
    }
    case DO_LANGUAGE:
        return read_language(reader, value);
    case DO_HOST_LIST:
        add_list(&options->host, value);
        return true;
    case DO_LINKER_LIST:
        add_list(&options->linker, value);
        return true;
    case DO_ARCHIVE_LIST:
        add_list(&options->archive, value);
        return true;
    case DO_GENCODE:
        return read_gencode(options, value);
    case DO_SET:
        *(bool *)((char *)options + option->argument) = true;
        return true;
    case DO_SEPARATE:
    case DO_CUDART:
    case DO_STREAM:
        return read_choice(options, option, value);
    case DO_DEVICE_COMPILE:
        options->phase = PHASE_COMPILE;
        options->separate = option->argument;
        return true;
    case DO_WERROR:
        read_werror(reader, value);
        return true;
    case DO_FILE:
        return read_options_file(reader, value);
    case DO_REFUSE_RUN:
        return complain("--%s: tutticc starts no programs; build one (-o FILE) and start it by "
                        "hand",
                        option->name);
    case DO_REFUSE:
        return complain("--%s: there is no machine code for a virtual GPU; -c makes an object, no "
                        "option a program",
                        option->name);
    }
    return true;
}

static bool is_host_option(const char *word)
{
    for (size_t i = 0; i < sizeof(HOST_PREFIXES) / sizeof(HOST_PREFIXES[0]); i++) {
        if (strncmp(word, HOST_PREFIXES[i], strlen(HOST_PREFIXES[i])) == 0) {
            return true;
        }
    }
    return false;
}

// `-O` and `-optimize` aside, a letter with an attached value must not swallow a longer option of
// another meaning.
static bool read_option(struct reader *reader, const char *word)
{
    const char *name = word + (word[1] == '-' ? 2 : 1);
    const char *value;
    const struct option *option = find_option(name, &value);
    if (option && option->kind == JOINED && value && word[1] == '-' && strchr(word, '=') == NULL) {
        option = NULL; // --Ix is none
    }
    if (!option) {
        if (is_host_option(word)) {
            strings_add(&reader->options->host, word);
            return true;
        }
        return complain("unknown option '%s'", word);
    }
    if (option->action == DO_OPTIMIZE && !value) {
        value = "1"; // -O alone
    }
    if (option->kind != FLAG && !value) {
        if (reader->at >= reader->argc) {
            return complain("option '%s' needs a value", word);
        }
        value = reader->argv[reader->at++];
    }
    return apply(reader, option, value);
}

static bool read_all(struct reader *reader)
{
    while (reader->at < reader->argc) {
        const char *word = reader->argv[reader->at++];
        bool good = word[0] == '-' && word[1] ? read_option(reader, word)
                                              : add_input(reader->options, word, reader->language);
        if (!good) {
            return false;
        }
    }
    return true;
}

// --count is made of what the compiler does for -fsanitize=thread: the first option for a sanitizer
// that does not go with it; NULL: none.
static const char *find_rival_of_count(const struct options *options)
{
    static const char BEGIN[] = "-fsanitize=";
    static const char *const RIVALS[] = {"address", "thread", "leak"};
    for (int i = 0; i < options->host.count; i++) {
        const char *word = options->host.item[i];
        bool rival = false;
        for (size_t k = 0; k < sizeof(RIVALS) / sizeof(RIVALS[0]); k++) {
            rival |= strncmp(word, BEGIN, strlen(BEGIN)) == 0 && strstr(word, RIVALS[k]);
        }
        if (rival) {
            return word;
        }
    }
    return NULL;
}

bool options_read(struct options *options, int argc, char **argv)
{
    *options = (struct options){.phase = PHASE_LINK};
    struct reader reader = {.options = options, .argc = argc - 1, .argv = argv + 1};
    bool good = read_all(&reader);
    free(reader.language);
    if (!good || options->phase == PHASE_VERSION || options->phase == PHASE_HELP) {
        return good;
    }
    char *error = machine_arch(getenv("VGPU_MACHINE"), &options->device_arch);
    if (error) {
        complain("%s", error);
        free(error);
        return false;
    }
    if (!read_targets(options)) {
        return false;
    }
    if (options->input_count == 0) {
        return complain("no input files");
    }
    const char *rival = options->count ? find_rival_of_count(options) : NULL;
    if (rival) {
        return complain("--count takes the place of a sanitizer: leave out %s, or build a second "
                        "program with it",
                        rival);
    }
    bool one = options->phase != PHASE_LINK && options->phase != PHASE_LIBRARY &&
               options->phase != PHASE_DEVICE_LINK;
    if (one && options->output && options->input_count > 1) {
        return complain("-o names one file, but there are %d to make", options->input_count);
    }
    return true;
}

void options_free(struct options *options)
{
    free(options->output);
    free(options->output_folder);
    free(options->compiler);
    free(options->std);
    free(options->arch);
    free(options->code);
    free(options->optimize);
    strings_free(&options->preprocess);
    strings_free(&options->host);
    strings_free(&options->linker);
    strings_free(&options->archive);
    strings_free(&options->dependency);
    for (int i = 0; i < options->item_count; i++) {
        free(options->item[i].text);
    }
    free(options->item);
    targets_free(&options->targets);
}

void options_print_help(void)
{
    fputs("usage: tutticc [options] file...\n"
          "Compiles CUDA C++ (.cu) for virtual GPUs on the CPU, C and C++, and links programs. "
          "Takes nvcc's options.\n"
          "\n"
          "  -o FILE             name of the result\n"
          "  -c, -dc             compile to an object\n"
          "  -E, -M, -MM         preprocess; print dependencies (-MD -MMD -MP -MF -MT with "
          "compilation)\n"
          "  --rewrite           print what the host compiler gets\n"
          "  -lib, -shared       make an archive, a shared library\n"
          "  -I -isystem -include -D -U -L -l -O -g -std -x     as the host compiler\n"
          "  -arch, -code, -gencode   targets; the one that fits the virtual machine "
          "(VGPU_MACHINE) is compiled\n"
          "  -G                  no optimisation\n"
          "  -Xcompiler, -Xlinker LIST   options for the host compiler and the linker\n"
          "  -f... -m... -W...   go to the host compiler\n"
          "  -ccbin PROGRAM      the host compiler (default: g++)\n"
          "  --count             count every load and store of kernels (VGPU_STATS=1)\n"
          "  -v, --dryrun, --keep   show commands; only show them; keep intermediate files\n"
          "  --version, --help\n",
          stdout);
}
