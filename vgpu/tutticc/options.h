// The command line: nvcc's options, as far as they mean something here.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTICC_OPTIONS_H
#define TUTTICC_OPTIONS_H

#include "targets.h"
#include "text.h"

enum phase {
    PHASE_LINK,
    PHASE_COMPILE,      // -c, -dc
    PHASE_PREPROCESS,   // -E
    PHASE_DEPENDENCIES, // -M, -MM
    PHASE_REWRITE,      // --rewrite: shows what the host compiler gets
    PHASE_DEVICE_LINK,  // -dlink: an empty object
    PHASE_LIBRARY,      // -lib
    PHASE_VERSION,
    PHASE_HELP,
};

enum language { LANGUAGE_CUDA, LANGUAGE_C, LANGUAGE_CXX, LANGUAGE_OBJECT };

// What the linker gets, in the order of the command line: an input or an option.
struct link_item {
    char *text; // the path or option
    enum language language;
    bool is_input;
};

struct options {
    enum phase phase;
    char *output;
    char *output_folder;
    char *compiler;            // -ccbin
    char *std;                 // c++17
    struct strings preprocess; // -I -D -U -isystem -include ...
    struct strings host;    // for preprocessing, compiling and linking: -Xcompiler, -f, -m, -W ...
    struct strings linker;  // -Xlinker
    struct strings archive; // -Xarchive
    struct strings dependency; // -MD -MF ..., for compilations
    struct link_item *item;
    int item_count;
    int input_count;
    struct targets targets;
    char *arch, *code;
    int device_arch; // of the virtual machine
    char *optimize;  // value of -O
    bool debug, device_debug, line_info;
    bool verbose, dry_run, keep, count, separate, shared, no_warnings;
    bool system_dependencies; // -M, -MD: not -MM, -MMD
    bool dependency_file;     // -MF was given
    bool dependency_target;   // -MT was given
    bool no_cudart;
    bool extended_lambda, relaxed_constexpr, fast_math, own_stream;
};

// Reads argv[1 ..]. False with a message where something is wrong.
bool options_read(struct options *options, int argc, char **argv);
void options_free(struct options *options);
void options_print_help(void);

#endif
