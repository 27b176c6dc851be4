// Compiling one file: preprocess, rewrite, compile, each by the host compiler.
// SPDX-License-Identifier: Apache-2.0
#include "driver.h"
#include "process.h"
#include "rewrite.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void add_std(const struct options *options, struct strings *command, bool cxx)
{
    bool is_cxx = options->std && strstr(options->std, "++");
    if (options->std && is_cxx == cxx) {
        strings_add_format(command, "-std=%s", options->std);
    } else if (cxx) {
        strings_add(command, "-std=gnu++17");
    }
}

static bool has_option(const struct strings *list, const char *begin)
{
    for (int i = 0; i < list->count; i++) {
        if (strncmp(list->item[i], begin, strlen(begin)) == 0) {
            return true;
        }
    }
    return false;
}

// Optimisation and debugging. As with nvcc, kernels are optimised unless someone wants to look at
// them.
static void add_optimization(const struct options *options, struct strings *command)
{
    if (options->optimize && !options->device_debug) {
        strings_add_format(command, "-O%s", options->optimize);
    } else if (!options->debug && !options->device_debug && !has_option(&options->host, "-O")) {
        strings_add(command, "-O2");
    } else if (options->device_debug) {
        strings_add(command, "-O0");
    }
    if (options->debug || options->device_debug) {
        strings_add(command, "-g");
    } else {
        strings_add(command, "-g1"); // lines, for the reports of the checking mode
    }
}

// The processor that kernels are compiled for: this machine's, as far as processors of ten years
// have it (AVX2, F16C), unless -Xcompiler -march=... names another. Programs say so where they
// cannot run.
static void add_processor(const struct options *options, struct strings *command)
{
#ifdef __x86_64__
    bool able = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                __builtin_cpu_supports("bmi2");
    if (able && !has_option(&options->host, "-march=")) {
        strings_add(command, "-march=x86-64-v3");
    }
#else
    (void)options;
    (void)command;
#endif
}

// Where our headers are. The usual folders of the system are searched anyway, and naming them would
// change their order.
static void add_includes(const struct driver *driver, struct strings *command)
{
    bool usual = strcmp(driver->prefix, "/usr") == 0 || strcmp(driver->prefix, "/usr/local") == 0;
    if (!usual) {
        strings_add(command, "-isystem");
        strings_add_format(command, "%s/include", driver->prefix);
    }
}

// Whether two paths name one folder.
static bool same_folder(const char *a, const char *b)
{
    struct stat one, other;
    return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

// The user's -I, -D and so on. The host compiler forgets an -I of a folder that is a system one
// too, as ours is: from such an -I on, all of them become system ones, which keeps their order.
static void add_user_preprocessing(const struct driver *driver, struct strings *command)
{
    const struct strings *list = &driver->options->preprocess;
    char *own = format_string("%s/include", driver->prefix);
    bool system = false;
    for (int i = 0; i + 1 < list->count; i += 2) { // an option and its value
        bool folder = strcmp(list->item[i], "-I") == 0;
        system |= folder && same_folder(list->item[i + 1], own);
        strings_add(command, folder && system ? "-isystem" : list->item[i]);
        strings_add(command, list->item[i + 1]);
    }
    free(own);
}

static void add_cuda_macros(const struct driver *driver, const struct link_item *input,
                            struct strings *command)
{
    const struct options *options = driver->options;
    const struct target *target = &options->targets.item[driver->target];
    struct text list = {0}, archs = {0}, source = {0};
    int last = 0;
    for (int next;; last = next) { // the virtual architectures in ascending order
        next = 10000;
        for (int i = 0; i < options->targets.count; i++) {
            int arch = options->targets.item[i].virtual_arch;
            next = arch > last && arch < next ? arch : next;
        }
        if (next == 10000) {
            break;
        }
        text_printf(&archs, "%s%d0", archs.length ? "," : "", next);
    }
    for (int i = 0; i < options->targets.count; i++) {
        text_printf(&list, "%s{%d, %s}", i ? ", " : "", options->targets.item[i].arch,
                    options->targets.item[i].ptx ? "true" : "false");
    }
    text_add_literal(&source, input->text, strlen(input->text));
    strings_add(command, "-D__CUDACC__");
    strings_add_format(command, "-D__CUDA_ARCH__=%d0", target->virtual_arch);
    strings_add_format(command, "-D__CUDA_ARCH_LIST__=%s", archs.data);
    if (target->suffix) {
        strings_add_format(command, "-D__CUDA_ARCH_%sSPECIFIC__=%d0",
                           target->suffix == 'f' ? "FAMILY_" : "", target->virtual_arch);
    }
    if (target->suffix == 'a') {
        strings_add_format(command, "-D__CUDA_ARCH_FEAT_SM%d_ALL", target->virtual_arch);
    }
    strings_add_format(command, "-DVGPU_TARGETS=%s", list.data);
    strings_add_format(command, "-DVGPU_COMPILED_ARCH=%d", driver->fits ? target->virtual_arch : 0);
    strings_add_format(command, "-DVGPU_SOURCE=%s", source.data);
    static const char *const MACROS[] = {"-D__CUDACC_RDC__", "-D__CUDACC_EXTENDED_LAMBDA__",
                                         "-D__CUDACC_RELAXED_CONSTEXPR__", "-D__CUDACC_DEBUG__",
                                         "-D__USE_FAST_MATH__"};
    const bool given[] = {options->separate, options->extended_lambda, options->relaxed_constexpr,
                          options->device_debug, options->fast_math};
    for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++) {
        if (given[i]) {
            strings_add(command, MACROS[i]);
        }
    }
    text_free(&list);
    text_free(&archs);
    text_free(&source);
}

// Everything that preprocessing needs to know.
static void add_preprocessing(const struct driver *driver, const struct link_item *input,
                              struct strings *command)
{
    const struct options *options = driver->options;
    bool cuda = input->language == LANGUAGE_CUDA, cxx = input->language != LANGUAGE_C;
    add_compiler(driver, command, cxx);
    add_std(options, command, cxx);
    strings_add(command, "-D__NVCC__");
    strings_add(command, "-D__CUDACC_VER_MAJOR__=13");
    strings_add(command, "-D__CUDACC_VER_MINOR__=0");
    strings_add(command, "-D__CUDACC_VER_BUILD__=0");
    if (options->own_stream) {
        strings_add(command, "-DCUDA_API_PER_THREAD_DEFAULT_STREAM");
    }
    if (cuda) {
        add_cuda_macros(driver, input, command);
        add_processor(options, command);
    }
    add_optimization(options, command);
    strings_add_all(command, &options->host);
    if (options->no_warnings) {
        strings_add(command, "-w");
    }
    add_user_preprocessing(driver, command);
    add_includes(driver, command);
    if (cuda) {
        strings_add(command, "-include");
        strings_add(command, "cuda_runtime.h");
        strings_add(command, "-include");
        strings_add(command, "vgpu/stub.h");
    }
}

static void add_input(const struct link_item *input, struct strings *command)
{
    strings_add(command, "-x");
    strings_add(command, input->language == LANGUAGE_C ? "c" : "c++");
    strings_add(command, input->text);
}

static void add_output(struct strings *command, const char *output)
{
    if (output) {
        strings_add(command, "-o");
        strings_add(command, output);
    }
}

// -MD and its relatives: the rule is about the object, whatever step writes it.
static void add_dependencies(const struct options *options, struct strings *command,
                             const char *object)
{
    if (options->dependency.count == 0) {
        return;
    }
    strings_add_all(command, &options->dependency);
    if (!options->dependency_file) {
        const char *slash = strrchr(object, '/');
        const char *dot = strrchr(slash ? slash : object, '.');
        strings_add(command, "-MF");
        strings_add_format(command, "%.*s.d", (int)(dot ? (size_t)(dot - object) : strlen(object)),
                           object);
    }
    if (!options->dependency_target) {
        strings_add(command, "-MT");
        strings_add(command, object);
    }
}

static int preprocess(const struct driver *driver, const struct link_item *input,
                      const char *output, const char *object)
{
    struct strings command = {0};
    add_preprocessing(driver, input, &command);
    strings_add(&command, "-E");
    if (object) {
        add_dependencies(driver->options, &command, object);
    }
    add_input(input, &command);
    add_output(&command, output);
    int status = driver_command(driver, &command);
    strings_free(&command);
    return status;
}

static int dependencies(const struct driver *driver, const struct link_item *input,
                        const char *output)
{
    struct strings command = {0};
    add_preprocessing(driver, input, &command);
    strings_add(&command, driver->options->system_dependencies ? "-M" : "-MM");
    strings_add_all(&command, &driver->options->dependency);
    add_input(input, &command);
    add_output(&command, output);
    int status = driver_command(driver, &command);
    strings_free(&command);
    return status;
}

static int rewrite_file(const struct driver *driver, const struct link_item *input,
                        const char *from, const char *to)
{
    if (driver->options->verbose || driver->options->dry_run) {
        fprintf(stderr, "#$ tutticc --rewrite %s > %s\n", from, to ? to : "/dev/stdout");
        if (driver->options->dry_run) {
            return 0;
        }
    }
    struct text text = {0}, result = {0};
    int status = 1;
    struct rewrite_options options = {
        .file = input->text,
        .arch = driver->options->targets.item[driver->target].virtual_arch,
        .separate_variables = driver->options->separate,
        .messages = stderr};
    if (!text_read_file(&text, from)) {
        fprintf(stderr, "tutticc: error: cannot read %s: %s\n", from, strerror(errno));
    } else if (rewrite(&text, &options, &result) == 0) {
        bool written = to ? text_write_file(&result, to)
                          : fwrite(result.data, 1, result.length, stdout) == result.length;
        status = written ? 0 : 1;
        if (!written) {
            fprintf(stderr, "tutticc: error: cannot write %s: %s\n",
                    to ? to : "the standard output", strerror(errno));
        }
    }
    text_free(&text);
    text_free(&result);
    return status;
}

static int compile_rewritten(const struct driver *driver, const char *text, const char *object)
{
    const struct options *options = driver->options;
    struct strings command = {0};
    add_compiler(driver, &command, true);
    add_std(options, &command, true);
    strings_add(&command, "-fPIC");
    strings_add(&command, "-fno-semantic-interposition");
    add_processor(options, &command);
    add_optimization(options, &command);
    strings_add_all(&command, &options->host);
    if (options->no_warnings) {
        strings_add(&command, "-w");
    }
    strings_add(&command, "-fno-strict-aliasing");
    strings_add(&command, "-ffp-contract=off");
    strings_add(&command, "-Wno-psabi");
    if (options->count) {
        strings_add(&command, "-fsanitize=thread");
        strings_add(&command, "-Wno-tsan"); // fences are not what is instrumented for
    } else if (has_option(&options->host, "-fsanitize=thread")) {
        strings_add(&command, "--param");
        strings_add(&command, "tsan-distinguish-volatile=1");
    }
    strings_add(&command, "-c");
    strings_add(&command, "-x");
    strings_add(&command, "c++-cpp-output");
    strings_add(&command, text);
    add_output(&command, object);
    int status = driver_command(driver, &command);
    strings_free(&command);
    return status;
}

// The intermediate file of that suffix: in the private folder, or with --keep in this one.
static char *intermediate(const struct driver *driver, const char *stem, const char *suffix)
{
    return driver->options->keep ? format_string("%s%s", stem, suffix)
                                 : temporary_file(stem, suffix);
}

static int compile_cuda(const struct driver *driver, const struct link_item *input,
                        const char *object)
{
    char *stem = path_stem(input->text);
    char *preprocessed = intermediate(driver, stem, ".cpp1.ii");
    char *rewritten = intermediate(driver, stem, ".cpp2.ii");
    int status = preprocessed && rewritten ? preprocess(driver, input, preprocessed, object) : 1;
    if (status == 0) {
        status = rewrite_file(driver, input, preprocessed, object ? rewritten : NULL);
    }
    if (status == 0 && object) {
        status = compile_rewritten(driver, rewritten, object);
    }
    free(preprocessed);
    free(rewritten);
    free(stem);
    return status;
}

static int compile_host(const struct driver *driver, const struct link_item *input,
                        const char *object)
{
    struct strings command = {0};
    add_preprocessing(driver, input, &command);
    strings_add(&command, "-fPIC");
    add_dependencies(driver->options, &command, object);
    strings_add(&command, "-c");
    add_input(input, &command);
    add_output(&command, object);
    int status = driver_command(driver, &command);
    strings_free(&command);
    return status;
}

int compile(const struct driver *driver, const struct link_item *input, enum phase phase,
            const char *output)
{
    switch (phase) {
    case PHASE_PREPROCESS:
        return preprocess(driver, input, output, NULL);
    case PHASE_DEPENDENCIES:
        return dependencies(driver, input, output);
    case PHASE_REWRITE:
        if (input->language != LANGUAGE_CUDA) {
            fprintf(stderr, "tutticc: error: '%s' is no CUDA source; nothing is rewritten in it\n",
                    input->text);
            return 1;
        }
        return compile_cuda(driver, input, NULL);
    default:
        return input->language == LANGUAGE_CUDA ? compile_cuda(driver, input, output)
                                                : compile_host(driver, input, output);
    }
}
