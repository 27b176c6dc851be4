// What to make of which inputs.
// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

#include "process.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *path_stem(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    return copy_string(name, dot && dot > name ? (size_t)(dot - name) : strlen(name));
}

int driver_command(const struct driver *driver, const struct strings *command)
{
    if (driver->options->verbose || driver->options->dry_run) {
        process_print(command);
    }
    return driver->options->dry_run ? 0 : process_run(command);
}

// gcc's name for C beside its name for C++.
static char *c_compiler(const char *cxx)
{
    static const char *const PAIRS[][2] = {{"clang++", "clang"}, {"g++", "gcc"}, {"c++", "cc"}};
    const char *slash = strrchr(cxx, '/');
    const char *name = slash ? slash + 1 : cxx;
    for (size_t i = 0; i < sizeof(PAIRS) / sizeof(PAIRS[0]); i++) {
        const char *found = strstr(name, PAIRS[i][0]);
        if (found) {
            return format_string("%.*s%s%s", (int)(found - cxx), cxx, PAIRS[i][1],
                                 found + strlen(PAIRS[i][0]));
        }
    }
    return format_string("%s", cxx);
}

void add_compiler(const struct driver *driver, struct strings *command, bool cxx)
{
    const char *given = driver->options->compiler ? driver->options->compiler : "g++";
    struct stat status;
    bool folder = stat(given, &status) == 0 && S_ISDIR(status.st_mode);
    char *name = folder ? format_string("%s/g++", given) : format_string("%s", given);
    if (!cxx) {
        char *c = c_compiler(name);
        free(name);
        name = c;
    }
    // -ccbin may carry options: "ccache g++".
    for (char *word = strtok(name, " "); word; word = strtok(NULL, " ")) {
        strings_add(command, word);
    }
    free(name);
}

// The parent of the folder that holds this program.
static char *find_prefix(void)
{
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (length <= 0) {
        return NULL;
    }
    path[length] = '\0';
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(path, '/');
        if (!slash) {
            return NULL;
        }
        *slash = '\0';
    }
    return format_string("%s", path);
}

static char *in_folder(const struct options *options, const char *name)
{
    return options->output_folder ? format_string("%s/%s", options->output_folder, name)
                                  : format_string("%s", name);
}

// ---- Linking -----------------------------------------------------------------------------------

static void add_libraries(const struct driver *driver, struct strings *command)
{
    const struct options *options = driver->options;
    strings_add_format(command, "-L%s/lib", driver->prefix);
    strings_add_format(command, "-Wl,-rpath,%s/lib", driver->prefix);
    // Libraries that our own need are found without being named.
    strings_add_format(command, "-Wl,-rpath-link,%s/lib", driver->prefix);
    if (options->count) {
        strings_add(command, "-Wl,--whole-archive");
        strings_add_format(command, "%s/lib/libvgpu_count.a", driver->prefix);
        strings_add(command, "-Wl,--no-whole-archive");
    }
    if (!options->no_cudart) {
        strings_add(command, "-lcudart");
    }
    char *nccl = format_string("%s/lib/libnccl.so", driver->prefix);
    if (access(nccl, R_OK) == 0) {
        strings_add(command, "-Wl,--as-needed");
        strings_add(command, "-lnccl");
        strings_add(command, "-Wl,--no-as-needed");
    }
    free(nccl);
}

// The library that a -l names, where it is one that a static name stands for here.
static const char *library_here(const char *text)
{
    return strcmp(text, "-lcudart_static") == 0 ? "-lcudart" : text;
}

static int link_program(const struct driver *driver, const struct strings *files)
{
    const struct options *options = driver->options;
    struct strings command = {0};
    add_compiler(driver, &command, true);
    if (options->debug || options->device_debug) {
        strings_add(&command, "-g");
    }
    strings_add_all(&command, &options->host);
    if (options->shared) {
        strings_add(&command, "-shared");
    }
    // As with nvcc, the order of archives does not matter.
    strings_add(&command, "-Wl,--start-group");
    strings_add_all(&command, files);
    strings_add(&command, "-Wl,--end-group");
    for (int i = 0; i < options->linker.count; i++) {
        strings_add(&command, "-Xlinker");
        strings_add(&command, options->linker.item[i]);
    }
    add_libraries(driver, &command);
    char *name =
        options->output ? format_string("%s", options->output) : in_folder(options, "a.out");
    strings_add(&command, "-o");
    strings_add(&command, name);
    int status = driver_command(driver, &command);
    free(name);
    strings_free(&command);
    return status;
}

static int make_archive(const struct driver *driver, const struct strings *files)
{
    const struct options *options = driver->options;
    struct strings command = {0};
    strings_add(&command, "ar");
    strings_add(&command, "rcs");
    strings_add_all(&command, &options->archive);
    char *name = options->output ? format_string("%s", options->output) : in_folder(options, "a.a");
    strings_add(&command, name);
    for (int i = 0; i < files->count; i++) {
        if (files->item[i][0] != '-') {
            strings_add(&command, files->item[i]);
        }
    }
    int status = driver_command(driver, &command);
    free(name);
    strings_free(&command);
    return status;
}

// Objects carry all there is: what nvcc would link for the device is an object without content.
static int make_empty_object(const struct driver *driver)
{
    struct strings command = {0};
    add_compiler(driver, &command, false);
    const char *output = driver->options->output ? driver->options->output : "a_dlink.o";
    char *arguments[] = {"-c", "-x", "c", "/dev/null", "-o"};
    for (size_t i = 0; i < sizeof(arguments) / sizeof(arguments[0]); i++) {
        strings_add(&command, arguments[i]);
    }
    strings_add(&command, output);
    int status = driver_command(driver, &command);
    strings_free(&command);
    return status;
}

// Compiles what is source, and links or archives everything.
static int make_whole(const struct driver *driver)
{
    const struct options *options = driver->options;
    struct strings files = {0};
    int status = 0;
    for (int i = 0; i < options->item_count && status == 0; i++) {
        const struct link_item *item = &options->item[i];
        if (!item->is_input || item->language == LANGUAGE_OBJECT) {
            strings_add(&files, library_here(item->text));
            continue;
        }
        char *stem = path_stem(item->text);
        char *object = temporary_file(stem, ".o");
        status = object ? compile(driver, item, PHASE_COMPILE, object) : 1;
        if (object) {
            strings_add(&files, object);
        }
        free(object);
        free(stem);
    }
    if (status == 0) {
        status = options->phase == PHASE_LIBRARY ? make_archive(driver, &files)
                                                 : link_program(driver, &files);
    }
    strings_free(&files);
    return status;
}

// Each input on its own.
static int make_each(const struct driver *driver)
{
    const struct options *options = driver->options;
    int status = 0;
    for (int i = 0; i < options->item_count && status == 0; i++) {
        const struct link_item *item = &options->item[i];
        if (!item->is_input || item->language == LANGUAGE_OBJECT) {
            continue;
        }
        char *output = options->output ? format_string("%s", options->output) : NULL;
        if (!output && options->phase == PHASE_COMPILE) {
            char *stem = path_stem(item->text);
            char *name = format_string("%s.o", stem);
            output = in_folder(options, name);
            free(name);
            free(stem);
        }
        status = compile(driver, item, options->phase, output);
        free(output);
    }
    return status;
}

// Whether two names lead to one file.
static bool is_same_file(const char *left, const char *right)
{
    struct stat a, b;
    return stat(left, &a) == 0 && stat(right, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

// Nothing is written over what it is made from.
static bool output_is_free(const struct options *options)
{
    for (int i = 0; options->output && i < options->item_count; i++) {
        const struct link_item *item = &options->item[i];
        if (item->is_input && is_same_file(item->text, options->output)) {
            fprintf(stderr, "tutticc: error: the output '%s' is the input '%s'\n", options->output,
                    item->text);
            return false;
        }
    }
    return true;
}

static bool readable(const struct options *options)
{
    for (int i = 0; i < options->item_count; i++) {
        if (options->item[i].is_input && access(options->item[i].text, R_OK) != 0) {
            fprintf(stderr, "tutticc: error: %s: %s\n", options->item[i].text, strerror(errno));
            return false;
        }
    }
    return true;
}

int driver_run(const struct options *options)
{
    struct driver driver = {.options = options, .prefix = find_prefix()};
    if (!driver.prefix) {
        fputs("tutticc: error: cannot find out where tutticc lies (/proc/self/exe)\n", stderr);
        return 1;
    }
    int chosen = targets_choose(&options->targets, options->device_arch);
    driver.fits = chosen >= 0;
    driver.target = driver.fits ? chosen : targets_highest(&options->targets);
    int status = 1;
    if (!readable(options) || !output_is_free(options)) {
        status = 1;
    } else if (options->phase == PHASE_LINK || options->phase == PHASE_LIBRARY) {
        status = make_whole(&driver);
    } else if (options->phase == PHASE_DEVICE_LINK) {
        status = make_empty_object(&driver);
    } else {
        status = make_each(&driver);
    }
    free(driver.prefix);
    return status;
}
