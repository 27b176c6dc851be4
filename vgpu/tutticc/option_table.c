// nvcc's options, as rows.
// SPDX-License-Identifier: Apache-2.0
#include "option_table.h"

#include "options.h"

#include <string.h>

#define TEXT(field) DO_TEXT, offsetof(struct options, field)
#define SET(field)  DO_SET, offsetof(struct options, field)

static const struct option OPTIONS[] = {
    {"output-file", "o", VALUE, TEXT(output)},
    {"output-directory", "odir", VALUE, TEXT(output_folder)},
    {"compile", "c", FLAG, DO_PHASE, PHASE_COMPILE},
    {"preprocess", "E", FLAG, DO_PHASE, PHASE_PREPROCESS},
    {"link", "link", FLAG, DO_PHASE, PHASE_LINK},
    {"lib", "lib", FLAG, DO_PHASE, PHASE_LIBRARY},
    {"rewrite", "rewrite", FLAG, DO_PHASE, PHASE_REWRITE},
    {"version", "V", FLAG, DO_PHASE, PHASE_VERSION},
    {"help", "h", FLAG, DO_PHASE, PHASE_HELP},
    {"device-c", "dc", FLAG, DO_DEVICE_COMPILE, 1},
    {"device-w", "dw", FLAG, DO_DEVICE_COMPILE, 0},
    {"device-link", "dlink", FLAG, DO_PHASE, PHASE_DEVICE_LINK},
    {"relocatable-device-code", "rdc", VALUE, DO_SEPARATE, 0},
    {"generate-dependencies", "M", FLAG, DO_DEPENDENCIES, 1},
    {"generate-nonsystem-dependencies", "MM", FLAG, DO_DEPENDENCIES, 0},
    {"generate-dependencies-with-compile", "MD", FLAG, DO_COMPILE_DEPENDENCIES, 1},
    {"generate-nonsystem-dependencies-with-compile", "MMD", FLAG, DO_COMPILE_DEPENDENCIES, 0},
    {"generate-dependency-targets", "MP", FLAG, DO_DEPENDENCY_OPTION, 0},
    {"dependency-output", "MF", VALUE, DO_DEPENDENCY_OPTION, 0},
    {"dependency-target-name", "MT", VALUE, DO_DEPENDENCY_OPTION, 0},
    {"include-path", "I", JOINED, DO_PREPROCESS, 0},
    {"system-include", "isystem", JOINED, DO_PREPROCESS, 0},
    {"iquote", "iquote", JOINED, DO_PREPROCESS, 0},
    {"idirafter", "idirafter", JOINED, DO_PREPROCESS, 0},
    {"pre-include", "include", VALUE, DO_PREPROCESS, 0},
    {"define-macro", "D", JOINED, DO_PREPROCESS, 0},
    {"undefine-macro", "U", JOINED, DO_PREPROCESS, 0},
    {"library", "l", JOINED, DO_LINK, 0},
    {"library-path", "L", JOINED, DO_LINK, 0},
    {"optimize", "O", JOINED, DO_OPTIMIZE, offsetof(struct options, optimize)},
    {"Ofast-compile", "Ofc", VALUE, DO_NOTHING, 0},
    {"debug", "g", FLAG, SET(debug)},
    {"device-debug", "G", FLAG, SET(device_debug)},
    {"generate-line-info", "lineinfo", FLAG, SET(line_info)},
    {"std", "std", VALUE, TEXT(std)},
    {"x", "x", VALUE, DO_LANGUAGE, 0},
    {"compiler-options", "Xcompiler", VALUE, DO_HOST_LIST, 0},
    {"linker-options", "Xlinker", VALUE, DO_LINKER_LIST, 0},
    {"archive-options", "Xarchive", VALUE, DO_ARCHIVE_LIST, 0},
    {"ptxas-options", "Xptxas", VALUE, DO_NOTHING, 0},
    {"fatbin-options", "Xfatbin", VALUE, DO_NOTHING, 0},
    {"cudafe-options", "Xcudafe", VALUE, DO_NOTHING, 0},
    {"nvlink-options", "Xnvlink", VALUE, DO_NOTHING, 0},
    {"compiler-bindir", "ccbin", VALUE, TEXT(compiler)},
    {"gpu-architecture", "arch", VALUE, TEXT(arch)},
    {"gpu-code", "code", VALUE, TEXT(code)},
    {"generate-code", "gencode", VALUE, DO_GENCODE, 0},
    {"expt-relaxed-constexpr", "expt-relaxed-constexpr", FLAG, SET(relaxed_constexpr)},
    {"expt-extended-lambda", "expt-extended-lambda", FLAG, SET(extended_lambda)},
    {"extended-lambda", "extended-lambda", FLAG, SET(extended_lambda)},
    {"use_fast_math", "use_fast_math", FLAG, SET(fast_math)},
    {"cudart", "cudart", VALUE, DO_CUDART, 0},
    {"default-stream", "default-stream", VALUE, DO_STREAM, 0},
    {"shared", "shared", FLAG, SET(shared)},
    {"disable-warnings", "w", FLAG, SET(no_warnings)},
    {"Werror", "Werror", FLAG, DO_WERROR, 0},
    {"verbose", "v", FLAG, SET(verbose)},
    {"dryrun", "dryrun", FLAG, SET(dry_run)},
    {"keep", "keep", FLAG, SET(keep)},
    {"count", "count", FLAG, SET(count)},
    {"options-file", "optf", VALUE, DO_FILE, 0},
    {"ptx", "ptx", FLAG, DO_REFUSE, 0},
    {"cubin", "cubin", FLAG, DO_REFUSE, 0},
    {"fatbin", "fatbin", FLAG, DO_REFUSE, 0},
    {"run", "run", FLAG, DO_REFUSE_RUN, 0},
    // What has no meaning for virtual GPUs.
    {"keep-dir", "keep-dir", VALUE, DO_NOTHING, 0},
    {"threads", "t", VALUE, DO_NOTHING, 0},
    {"split-compile", "split-compile", VALUE, DO_NOTHING, 0},
    {"maxrregcount", "maxrregcount", VALUE, DO_NOTHING, 0},
    {"ftz", "ftz", VALUE, DO_NOTHING, 0},
    {"fmad", "fmad", VALUE, DO_NOTHING, 0},
    {"prec-div", "prec-div", VALUE, DO_NOTHING, 0},
    {"prec-sqrt", "prec-sqrt", VALUE, DO_NOTHING, 0},
    {"time", "time", VALUE, DO_NOTHING, 0},
    {"compress-mode", "compress-mode", VALUE, DO_NOTHING, 0},
    {"diag-suppress", "diag-suppress", VALUE, DO_NOTHING, 0},
    {"diag-error", "diag-error", VALUE, DO_NOTHING, 0},
    {"diag-warn", "diag-warn", VALUE, DO_NOTHING, 0},
    {"entries", "e", VALUE, DO_NOTHING, 0},
    {"no-compress", "no-compress", FLAG, DO_NOTHING, 0},
    {"no-device-link", "nodlink", FLAG, DO_NOTHING, 0},
    {"resource-usage", "res-usage", FLAG, DO_NOTHING, 0},
    {"restrict", "restrict", FLAG, DO_NOTHING, 0},
    {"source-in-ptx", "src-in-ptx", FLAG, DO_NOTHING, 0},
    {"extra-device-vectorization", "extra-device-vectorization", FLAG, DO_NOTHING, 0},
    {"dlink-time-opt", "dlto", FLAG, DO_NOTHING, 0},
    {"allow-unsupported-compiler", "allow-unsupported-compiler", FLAG, DO_NOTHING, 0},
    {"display-error-number", "err-no", FLAG, DO_NOTHING, 0},
    {"no-display-error-number", "no-err-no", FLAG, DO_NOTHING, 0},
    {"forward-unknown-to-host-compiler", "forward-unknown-to-host-compiler", FLAG, DO_NOTHING, 0},
    {"Wno-deprecated-gpu-targets", "Wno-deprecated-gpu-targets", FLAG, DO_NOTHING, 0},
    {"Wdefault-stream-launch", "Wdefault-stream-launch", FLAG, DO_NOTHING, 0},
    {"Wmissing-launch-bounds", "Wmissing-launch-bounds", FLAG, DO_NOTHING, 0},
    {"Wext-lambda-captures-this", "Wext-lambda-captures-this", FLAG, DO_NOTHING, 0},
};
enum { OPTION_COUNT = sizeof(OPTIONS) / sizeof(OPTIONS[0]) };

const struct option *find_option(const char *text, const char **value_out)
{
    const char *equals = strchr(text, '=');
    size_t length = equals ? (size_t)(equals - text) : strlen(text);
    *value_out = equals ? equals + 1 : NULL;
    for (int i = 0; i < OPTION_COUNT; i++) {
        const char *names[] = {OPTIONS[i].name, OPTIONS[i].letter};
        for (int k = 0; k < 2; k++) {
            bool same = strlen(names[k]) == length && memcmp(names[k], text, length) == 0;
            if (same && !(equals && OPTIONS[i].kind == FLAG && OPTIONS[i].action != DO_WERROR)) {
                return &OPTIONS[i];
            }
        }
    }
    for (int i = 0; i < OPTION_COUNT; i++) {
        size_t n = strlen(OPTIONS[i].letter);
        if (OPTIONS[i].kind == JOINED && strncmp(text, OPTIONS[i].letter, n) == 0 && text[n]) {
            *value_out = text + n;
            return &OPTIONS[i];
        }
    }
    return NULL;
}
