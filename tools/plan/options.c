// The command line of tutti-plan. See plan.h.
// SPDX-License-Identifier: Apache-2.0
#include "plan.h"

#include "plan/op.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MOST_RANKS = 1024, USAGE = 2 };

static const char help[] =
    "tutti-plan FUNCTION [options]: how a collective is done, step by step\n"
    "\n"
    "FUNCTION is all_reduce, reduce, broadcast, reduce_scatter, all_gather, alltoall, gather or\n"
    "scatter.\n"
    "\n"
    "  -n, --ranks N         ranks (4)\n"
    "  -c, --count N         elements, as NCCL counts them for the function (1000); 64K, 1M, 1G\n"
    "  -C, --counts LIST     uneven sizes: elements of each rank, 5,0,2; what a rank gets of a\n"
    "                        reduce_scatter or scatter, gives to an all_gather or gather, what "
    "each\n"
    "                        rank sends to it in an alltoall: or rows, one for each sender, "
    "1,2/0,3\n"
    "  -t, --type TYPE       float (default), half, bfloat16, double, f8e4m3, f8e5m2, int8, "
    "uint8,\n"
    "                        int32, uint32, int64, uint64\n"
    "  -r, --root R          root of rooted functions (0)\n"
    "  -l, --lanes N         lanes that a rank can use (1)\n"
    "  -i, --in-place        send and receive buffer are one, as NCCL defines it for the function\n"
    "  -a, --algorithm NAME  direct, ring, tree, switch (NVLS), far_switch, staged; else the "
    "first\n"
    "                        that can without a switch\n"
    "\n"
    "  -R, --rank R          list the steps of one rank only\n"
    "  -s, --svg FILE        draw all ranks: lanes by time, arrows for signals and data\n"
    "  -k, --check           prove the plans right instead of listing them; exit status 1 if not\n"
    "  -b, --traffic         bytes by port, all algorithms side by side; with --algorithm also\n"
    "                        bytes of every link\n"
    "  -L, --list            the algorithms and what they can do\n"
    "  -h, --help            this\n"
    "\n"
    "Examples: tutti-plan all_reduce -n 8 -a ring -R 2      one rank's steps\n"
    "          tutti-plan broadcast -n 8 -c 1M --traffic    what a switch saves\n"
    "          tutti-plan all_gather --counts 5,0,2         uneven sizes\n"
    "          tutti-plan all_reduce -a ring -c 64K -s ring.svg\n";

static const struct option options[] = {
    {"ranks", required_argument, NULL, 'n'},
    {"count", required_argument, NULL, 'c'},
    {"counts", required_argument, NULL, 'C'},
    {"type", required_argument, NULL, 't'},
    {"root", required_argument, NULL, 'r'},
    {"lanes", required_argument, NULL, 'l'},
    {"in-place", no_argument, NULL, 'i'},
    {"algorithm", required_argument, NULL, 'a'},
    {"rank", required_argument, NULL, 'R'},
    {"svg", required_argument, NULL, 's'},
    {"check", no_argument, NULL, 'k'},
    {"traffic", no_argument, NULL, 'b'},
    {"list", no_argument, NULL, 'L'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

// ---- Values -------------------------------------------------------------------------------------

static bool read_number(const char *name, const char *text, size_t least, size_t most,
                        size_t *value_out)
{
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    unsigned shift = 0;
    if (end != text && *end != 0 && end[1] == 0) {
        static const char suffixes[] = "KMG";
        const char *suffix = strchr(suffixes, toupper((unsigned char)*end));
        shift = suffix == NULL ? 0 : 10 * (unsigned)(suffix - suffixes + 1);
        end += suffix == NULL ? 0 : 1;
    }
    bool is_number = isdigit((unsigned char)text[0]) && *end == 0 && errno == 0;
    if (!is_number || value > (unsigned long long)most >> shift || value << shift < least) {
        (void)fprintf(stderr, "tutti-plan: --%s %s: must be a number from %zu to %zu\n", name, text,
                      least, most);
        return false;
    }
    *value_out = (size_t)value << shift;
    return true;
}

static bool read_int(const char *name, const char *text, int least, int most, int *value_out)
{
    size_t value = 0;
    if (!read_number(name, text, (size_t)least, (size_t)most, &value)) {
        return false;
    }
    *value_out = (int)value;
    return true;
}

// Equal but for case and underscores: AllReduce, all_reduce, allreduce.
static bool is_alike(const char *a, const char *b)
{
    for (;; a++, b++) {
        a += strspn(a, "_-");
        b += strspn(b, "_-");
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) {
            return false;
        }
        if (*a == 0) {
            return true;
        }
    }
}

static bool read_function(const char *text, enum tt_function *function_out)
{
    for (int function = 0; function < TT_FUSED_RMSNORM; function++) {
        if (is_alike(text, tt_function_name((enum tt_function)function))) {
            *function_out = (enum tt_function)function;
            return true;
        }
    }
    (void)fprintf(stderr,
                  "tutti-plan: \"%s\" is no collective; there are all_reduce, reduce, broadcast, "
                  "reduce_scatter, all_gather, alltoall, gather, scatter\n",
                  text);
    return false;
}

static bool read_type(const char *text, struct tt_problem *problem)
{
    static const struct {
        const char *name;
        ncclDataType_t type;
    } types[] = {{"float", ncclFloat32},   {"float32", ncclFloat32},   {"half", ncclFloat16},
                 {"float16", ncclFloat16}, {"bfloat16", ncclBfloat16}, {"double", ncclFloat64},
                 {"float64", ncclFloat64}, {"f8e4m3", ncclFloat8e4m3}, {"f8e5m2", ncclFloat8e5m2},
                 {"int8", ncclInt8},       {"uint8", ncclUint8},       {"int32", ncclInt32},
                 {"uint32", ncclUint32},   {"int64", ncclInt64},       {"uint64", ncclUint64}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcasecmp(text, types[i].name) == 0) {
            problem->element = tt_type_bytes(types[i].type);
            problem->accumulator = tt_accumulator_bytes(types[i].type);
            return true;
        }
    }
    (void)fprintf(stderr,
                  "tutti-plan: --type %s: there are float, half, bfloat16, double, f8e4m3, f8e5m2, "
                  "int8, uint8, int32, uint32, int64, uint64\n",
                  text);
    return false;
}

static bool read_algorithm(const char *text, const struct tt_algorithm **algorithm_out)
{
    for (int i = 0; tt_algorithms[i] != NULL; i++) {
        const char *nccl = tt_algorithms[i]->nccl_name;
        if (strcasecmp(text, tt_algorithms[i]->name) == 0 ||
            (nccl != NULL && strcasecmp(text, nccl) == 0)) {
            *algorithm_out = tt_algorithms[i];
            return true;
        }
    }
    (void)fprintf(stderr, "tutti-plan: --algorithm %s: there are", text);
    for (int i = 0; tt_algorithms[i] != NULL; i++) {
        (void)fprintf(stderr, "%s %s", i == 0 ? "" : ",", tt_algorithms[i]->name);
    }
    (void)fprintf(stderr, " (tutti-plan --list says what each can do)\n");
    return false;
}

static bool read_option(int option, const char *value, struct request *request)
{
    struct tt_problem *problem = &request->problem;
    switch (option) {
    case 'C':
        request->uneven = value;
        return true;
    case 'n':
        request->ranks_given = true;
        return read_int("ranks", value, 1, MOST_RANKS, &problem->nranks);
    case 'c': // so that no buffer's bytes pass what a size can say
        return read_number("count", value, 0, (size_t)1 << 48, &problem->count);
    case 't':
        return read_type(value, problem);
    case 'r':
        return read_int("root", value, 0, MOST_RANKS - 1, &problem->root);
    case 'l':
        return read_int("lanes", value, 1, 64, &problem->lanes);
    case 'i':
        problem->in_place = true;
        return true;
    case 'a':
        return read_algorithm(value, &request->algorithm);
    case 'R':
        return read_int("rank", value, 0, MOST_RANKS - 1, &request->rank);
    case 's':
        request->svg = value;
        return true;
    case 'k':
        request->checks = true;
        return true;
    case 'b':
        request->counts = true;
        return true;
    case 'L':
        request->lists = true;
        return true;
    default:
        (void)fprintf(stderr, "tutti-plan --help says what there is\n");
        return false;
    }
}

// ---- The whole ----------------------------------------------------------------------------------

static bool check_ranks(const struct request *request)
{
    const struct tt_problem *problem = &request->problem;
    if (problem->root >= problem->nranks || request->rank >= problem->nranks) {
        bool is_root = problem->root >= problem->nranks;
        (void)fprintf(stderr, "tutti-plan: --%s %d: with %d ranks it must be 0 to %d\n",
                      is_root ? "root" : "rank", is_root ? problem->root : request->rank,
                      problem->nranks, problem->nranks - 1);
        return false;
    }
    return true;
}

// The algorithm that was named, or the first that needs no switch, can do it.
static bool choose(struct request *request)
{
    const struct tt_algorithm *wanted = request->algorithm;
    for (int i = 0; wanted == NULL && tt_algorithms[i] != NULL; i++) {
        if (!tt_algorithms[i]->needs_multicast && tt_algorithms[i]->can(&request->problem)) {
            wanted = tt_algorithms[i];
        }
    }
    if (wanted != NULL && wanted->can(&request->problem)) {
        request->algorithm = request->counts ? request->algorithm : wanted;
        return true;
    }
    const char *function = tt_function_name(request->problem.function);
    const char *uneven = request->problem.is_uneven ? "V" : "";
    if (request->problem.in_place && request->problem.function == TT_ALL_TO_ALL) {
        (void)fprintf(stderr, "tutti-plan: %s has no in-place form; leave out --in-place\n",
                      function);
        return false;
    }
    (void)fprintf(stderr, "tutti-plan: %s cannot do %s%s for %d rank%s; these can:",
                  wanted == NULL ? "nothing" : wanted->name, function, uneven,
                  request->problem.nranks, request->problem.nranks == 1 ? "" : "s");
    for (int i = 0; tt_algorithms[i] != NULL; i++) {
        if (tt_algorithms[i]->can(&request->problem)) {
            (void)fprintf(stderr, " %s", tt_algorithms[i]->name);
        }
    }
    (void)fprintf(stderr, "\n");
    return false;
}

int read_options(int argc, char **argv, struct request *request_out)
{
    struct request request = {
        .problem = {.nranks = 4, .count = 1000, .element = 4, .accumulator = 4, .lanes = 1},
        .rank = -1};
    int option = 0;
    while ((option = getopt_long(argc, argv, "n:c:C:t:r:l:ia:R:s:kbLh", options, NULL)) != -1) {
        if (option == 'h') {
            (void)printf("%s", help);
            exit(0);
        }
        if (!read_option(option, optarg, &request)) {
            return USAGE;
        }
    }
    if (request.lists) {
        *request_out = request;
        return 0;
    }
    if (optind + 1 != argc) {
        (void)fprintf(stderr,
                      optind == argc
                          ? "tutti-plan: which function? As in: tutti-plan all_reduce --ranks 4\n"
                          : "tutti-plan: one function at a time, and options begin with --\n");
        return USAGE;
    }
    if (!read_function(argv[optind], &request.problem.function) ||
        (request.uneven != NULL &&
         !read_counts(&request, request.uneven, request.ranks_given, MOST_RANKS))) {
        return USAGE;
    }
    if (!check_ranks(&request) || !choose(&request)) {
        free(request.tables);
        return USAGE;
    }
    *request_out = request;
    return 0;
}
