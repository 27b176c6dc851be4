// The grammar of NCCL_ALGO and NCCL_PROTO, and the choice of an algorithm. See select.h.
// SPDX-License-Identifier: Apache-2.0
#include "plan/select.h"

#include "base/log.h"
#include "base/quote.h"
#include "plan/parts.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const enum tt_function functions[TT_CHOICE_FUNCTIONS] = {
    TT_BROADCAST, TT_REDUCE, TT_ALL_GATHER, TT_REDUCE_SCATTER, TT_ALL_REDUCE};

// NCCL's names of what there is not here.
static const char *const absent[] = {"CollNetDirect", "CollNetChain", "NVLSTree", "PAT", NULL};

// NCCL's protocols. How bytes move here does not depend on them.
static const char *const protocols[] = {"LL", "LL128", "Simple", NULL};

// A piece of the text: [at, at + length).
struct word {
    const char *at;
    size_t length;
};

static bool is_word(struct word word, const char *name)
{
    return name != NULL && strlen(name) == word.length &&
           strncasecmp(word.at, name, word.length) == 0;
}

// The next piece before `separator`, which *rest loses; false at the end.
static bool next_word(struct word *rest, char separator, struct word *word_out)
{
    if (rest->at == NULL) {
        return false;
    }
    const char *end = memchr(rest->at, separator, rest->length);
    *word_out = *rest;
    if (end == NULL) {
        rest->at = NULL;
    } else {
        word_out->length = (size_t)(end - rest->at);
        rest->length -= word_out->length + 1;
        rest->at = end + 1;
    }
    return true;
}

// ---- Names --------------------------------------------------------------------------------------

static void add_name(char *text, size_t bytes, const char *name)
{
    size_t used = strlen(text);
    if (name != NULL) {
        (void)snprintf(text + used, bytes - used, "%s%s", used > 0 ? ", " : "", name);
    }
}

// Whether an algorithm before this one has the same NCCL name.
static bool is_repeated(int index)
{
    const char *name = tt_algorithms[index]->nccl_name;
    for (int i = 0; i < index && name != NULL; i++) {
        const char *before = tt_algorithms[i]->nccl_name;
        if (before != NULL && strcmp(before, name) == 0) {
            return true;
        }
    }
    return false;
}

// "NVLS, Ring, Tree, ...": all names that may stand in a list.
static const char *all_names(char *text, size_t bytes)
{
    text[0] = 0;
    for (int i = 0; tt_algorithms[i] != NULL; i++) {
        add_name(text, bytes, is_repeated(i) ? NULL : tt_algorithms[i]->nccl_name);
    }
    for (int i = 0; tt_algorithms[i] != NULL; i++) { // own names that are not NCCL's as well
        const char *nccl = tt_algorithms[i]->nccl_name;
        bool is_said = nccl != NULL && strcasecmp(tt_algorithms[i]->name, nccl) == 0;
        add_name(text, bytes, is_said ? NULL : tt_algorithms[i]->name);
    }
    for (int i = 0; absent[i] != NULL; i++) {
        add_name(text, bytes, absent[i]);
    }
    return text;
}

// The bits of the algorithms with this name, 0 for one that does not exist here; false for no name.
static bool bit_of(struct word name, uint32_t *bit_out)
{
    *bit_out = 0;
    for (int i = 0; tt_algorithms[i] != NULL; i++) {
        if (is_word(name, tt_algorithms[i]->name) || is_word(name, tt_algorithms[i]->nccl_name)) {
            *bit_out |= 1u << i;
        }
    }
    if (*bit_out != 0) {
        return true;
    }
    for (int i = 0; absent[i] != NULL; i++) {
        if (is_word(name, absent[i])) {
            return true;
        }
    }
    return false;
}

static bool bit_of_protocol(struct word name, uint32_t *bit_out)
{
    for (int i = 0; protocols[i] != NULL; i++) {
        if (is_word(name, protocols[i])) {
            *bit_out = 1u << i;
            return true;
        }
    }
    return false;
}

static const char *all_protocols(char *text, size_t bytes)
{
    text[0] = 0;
    for (int i = 0; protocols[i] != NULL; i++) {
        add_name(text, bytes, protocols[i]);
    }
    return text;
}

// ---- Grammar ------------------------------------------------------------------------------------

// What a variable chooses among.
struct variable {
    const char *name, *what;
    bool (*bit_of)(struct word name, uint32_t *bit_out);
    const char *(*all_names)(char *text, size_t bytes);
};
static const struct variable algo = {"NCCL_ALGO", "algorithm", bit_of, all_names};
static const struct variable proto = {"NCCL_PROTO", "protocol", bit_of_protocol, all_protocols};

// What is being read.
struct parse {
    const struct variable *variable;
    const char *text;
    uint32_t *allowed, *refused; // [TT_CHOICE_FUNCTIONS]
};

static ncclResult_t parse_list(const struct parse *parse, struct word list, uint32_t *allowed_out,
                               uint32_t *refused_out)
{
    const struct variable *variable = parse->variable;
    bool excludes = list.length > 0 && list.at[0] == '^';
    if (excludes) {
        list.at++;
        list.length--;
    }
    uint32_t named = 0;
    struct word name;
    while (next_word(&list, ',', &name)) {
        uint32_t bit = 0;
        if (name.length > 0 && !variable->bit_of(name, &bit)) { // nothing between commas is nothing
            char names[200];
            return tt_fail(ncclInvalidUsage, "%s=%s: \"%s\" is no %s; there are %s", variable->name,
                           tt_quote(parse->text).text, tt_quote_part(name.at, name.length).text,
                           variable->what, variable->all_names(names, sizeof names));
        }
        named |= bit;
    }
    *allowed_out = excludes ? ~named : named;
    *refused_out = excludes ? named : 0;
    return ncclSuccess;
}

// One entry, `list` or `function:list`.
static ncclResult_t parse_entry(const struct parse *parse, struct word entry, bool is_first)
{
    const char *variable = parse->variable->name;
    struct word function = {NULL, 0};
    if (entry.length == 0) { // a ; may end the text
        return ncclSuccess;
    }
    if (memchr(entry.at, ':', entry.length) != NULL) {
        (void)next_word(&entry, ':', &function);
    } else if (!is_first) {
        return tt_fail(ncclInvalidUsage,
                       "%s=%s: \"%s\" names no function; all entries but the first must, as in "
                       "%s",
                       variable, tt_quote(parse->text).text,
                       tt_quote_part(entry.at, entry.length).text,
                       parse->variable == &algo ? "ring;AllReduce:tree" : "Simple;AllReduce:LL");
    }
    uint32_t allowed = 0;
    uint32_t refused = 0;
    TRY(parse_list(parse, entry, &allowed, &refused));
    bool found = false;
    for (int i = 0; i < TT_CHOICE_FUNCTIONS; i++) {
        if (function.at == NULL || is_word(function, tt_function_name(functions[i]))) {
            parse->allowed[i] = allowed;
            parse->refused[i] = refused;
            found = true;
        }
    }
    if (!found) {
        return tt_fail(ncclInvalidUsage,
                       "%s=%s: \"%s\" is no function to choose for; there are Broadcast, "
                       "Reduce, AllGather, ReduceScatter, AllReduce",
                       variable, tt_quote(parse->text).text,
                       tt_quote_part(function.at, function.length).text);
    }
    return ncclSuccess;
}

static ncclResult_t parse_all(const struct parse *parse)
{
    struct word rest = {parse->text, strlen(parse->text)};
    struct word entry;
    bool is_first = true;
    for (int i = 0; i < TT_CHOICE_FUNCTIONS; i++) {
        parse->allowed[i] = ~0u;
        parse->refused[i] = 0;
    }
    while (parse->text[0] != 0 && next_word(&rest, ';', &entry)) {
        TRY(parse_entry(parse, entry, is_first));
        is_first = false;
    }
    return ncclSuccess;
}

ncclResult_t tt_choice_parse(const char *text, struct tt_choice *choice_out)
{
    struct tt_choice choice = {.text = ""};
    TRY(parse_all(&(struct parse){&algo, text, choice.allowed, choice.refused}));
    (void)snprintf(choice.text, sizeof choice.text, "%s", text);
    *choice_out = choice;
    return ncclSuccess;
}

ncclResult_t tt_protocols_parse(const char *text, uint32_t *ruled_out)
{
    uint32_t allowed[TT_CHOICE_FUNCTIONS], refused[TT_CHOICE_FUNCTIONS];
    TRY(parse_all(&(struct parse){&proto, text, allowed, refused}));
    *ruled_out = 0;
    for (int i = 0; i < TT_CHOICE_FUNCTIONS; i++) {
        bool is_left = false;
        for (int k = 0; protocols[k] != NULL; k++) {
            is_left = is_left || (allowed[i] >> k & 1) != 0;
        }
        *ruled_out |= is_left ? 0 : 1u << functions[i];
    }
    return ncclSuccess;
}

// ---- The choice ---------------------------------------------------------------------------------

// Why the algorithm cannot be taken; NULL where it can. may_force: staging may be taken without
// being allowed, for buffers that need it.
static const char *reason(const struct tt_choice *choice, const struct tt_problem *problem,
                          struct tt_means means, int index, bool may_force)
{
    const struct tt_algorithm *algorithm = tt_algorithms[index];
    bool is_forced =
        may_force && algorithm->is_staged && !algorithm->needs_multicast && !means.is_mapped;
    for (int i = 0; i < TT_CHOICE_FUNCTIONS; i++) {
        uint32_t allowed = is_forced ? ~choice->refused[i] : choice->allowed[i];
        if (functions[i] == problem->function && problem->nranks > 1 &&
            (allowed >> index & 1) == 0) {
            return "not allowed";
        }
    }
    if (!algorithm->can(problem)) {
        return "cannot do it";
    }
    if (algorithm->needs_multicast && algorithm->is_staged && !means.switch_scratch) {
        return "needs scratch with multicast";
    }
    if (algorithm->needs_multicast && !algorithm->is_staged && !means.has_multicast) {
        return "needs buffers with multicast";
    }
    if (!algorithm->is_staged && !means.is_mapped) {
        return "needs buffers that all ranks can map";
    }
    return NULL;
}

static ncclResult_t none_left(const struct tt_choice *choice, const struct tt_problem *problem,
                              struct tt_means means)
{
    char text[120];
    char reasons[400] = "";
    size_t used = 0;
    for (int i = 0; tt_algorithms[i] != NULL && used < sizeof reasons; i++) {
        int more = snprintf(reasons + used, sizeof reasons - used, "%s%s: %s", used > 0 ? ", " : "",
                            tt_algorithms[i]->name, reason(choice, problem, means, i, true));
        used += more > 0 ? (size_t)more : 0;
    }
    tt_problem_describe(problem, text, sizeof text);
    if (problem->function == TT_ALL_TO_ALL && problem->in_place) {
        return tt_fail(ncclInvalidUsage,
                       "%s: there is no in-place form; send and receive buffer must not overlap",
                       text);
    }
    if (choice->text[0] != 0) {
        return tt_fail(ncclInvalidUsage, "%s: NCCL_ALGO=%s leaves no algorithm (%s)", text,
                       tt_quote(choice->text).text, reasons);
    }
    return tt_fail(ncclInvalidUsage, "%s: no algorithm can do it (%s)", text, reasons);
}

ncclResult_t tt_select(const struct tt_choice *choice, const struct tt_problem *problem,
                       struct tt_means means, const struct tt_algorithm **algorithm_out)
{
    for (int may_force = 0; may_force < 2; may_force++) {
        for (int i = 0; tt_algorithms[i] != NULL; i++) {
            if (reason(choice, problem, means, i, may_force == 1) == NULL) {
                *algorithm_out = tt_algorithms[i];
                return ncclSuccess;
            }
        }
    }
    return none_left(choice, problem, means);
}

// ---- What no buffers could make possible --------------------------------------------------------

static struct tt_problem problem_of(enum tt_function function, int nranks)
{
    return (struct tt_problem){.function = function,
                               .nranks = nranks,
                               .count = 1,
                               .element = 1,
                               .accumulator = 4,
                               .lanes = 1};
}

// Functions that nothing is left for with these means.
static uint32_t ruled_out(const struct tt_choice *choice, int nranks, struct tt_means means)
{
    uint32_t out = 0;
    for (int i = 0; i < TT_CHOICE_FUNCTIONS; i++) {
        struct tt_problem problem = problem_of(functions[i], nranks);
        bool is_left = false;
        for (int k = 0; tt_algorithms[k] != NULL; k++) {
            is_left = is_left || reason(choice, &problem, means, k, true) == NULL;
        }
        out |= is_left ? 0 : 1u << functions[i];
    }
    return out;
}

uint32_t tt_choice_rules_out(const struct tt_choice *choice, int nranks, bool has_multicast)
{
    return ruled_out(choice, nranks,
                     (struct tt_means){.is_mapped = true,
                                       .has_multicast = has_multicast,
                                       .switch_scratch = has_multicast});
}

bool tt_choice_wants_scratch(const struct tt_choice *choice, int nranks)
{
    struct tt_means without = {.is_mapped = true};
    struct tt_means with = {.is_mapped = true, .switch_scratch = true};
    return (ruled_out(choice, nranks, without) & ~ruled_out(choice, nranks, with)) != 0;
}

ncclResult_t tt_choice_refuse(const char *call, int rank, enum tt_function function,
                              struct tt_settings set)
{
    char fits[120] = "";
    uint32_t without_protocol = 0;
    TRY(tt_protocols_parse(set.protocols, &without_protocol));
    if ((without_protocol >> function & 1) != 0) {
        return tt_fail(ncclInvalidUsage,
                       "%s: rank %d: NCCL_PROTO=%s leaves no protocol for %s; there are %s", call,
                       rank, tt_quote(set.protocols).text, tt_function_name(function),
                       all_protocols(fits, sizeof fits));
    }
    struct tt_problem problem = problem_of(function, set.nranks);
    problem.is_uneven = set.is_uneven;
    for (int i = 0; tt_algorithms[i] != NULL; i++) {
        const struct tt_algorithm *algorithm = tt_algorithms[i];
        bool is_possible = set.has_multicast || !algorithm->needs_multicast;
        if (is_possible && !is_repeated(i) && algorithm->can(&problem)) {
            add_name(fits, sizeof fits,
                     algorithm->nccl_name != NULL ? algorithm->nccl_name : algorithm->name);
        }
    }
    return tt_fail(ncclInvalidUsage,
                   "%s: rank %d: NCCL_ALGO=%s leaves no algorithm for %s%s on %d ranks%s; these "
                   "can do it: %s",
                   call, rank, tt_quote(set.algorithms).text, tt_function_name(function),
                   set.is_uneven ? "V" : "", set.nranks,
                   set.is_uneven       ? ", and the switch does no uneven sizes"
                   : set.has_multicast ? ""
                                       : ", without multicast",
                   fits);
}
