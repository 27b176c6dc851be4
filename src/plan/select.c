// NCCL_ALGO's grammar, and the choice of an algorithm. See select.h.
// SPDX-License-Identifier: Apache-2.0
#include "plan/select.h"

#include "base/log.h"
#include "plan/parts.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const enum tt_function functions[TT_CHOICE_FUNCTIONS] = {
    TT_BROADCAST, TT_REDUCE, TT_ALL_GATHER, TT_REDUCE_SCATTER, TT_ALL_REDUCE};

// NCCL's names of what there is not here.
static const char *const absent[] = {"CollNetDirect", "CollNetChain", "NVLSTree", "PAT", NULL};

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

// "NVLS, Ring, Tree, ...": all names that may stand in a list.
static const char *all_names(char *text, size_t bytes)
{
    text[0] = 0;
    for (int i = 0; tt_algorithms[i] != NULL; i++) {
        add_name(text, bytes, tt_algorithms[i]->nccl_name);
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

// The algorithm's bit, 0 for one that does not exist here; false for no name.
static bool bit_of(struct word name, uint32_t *bit_out)
{
    for (int i = 0; tt_algorithms[i] != NULL; i++) {
        if (is_word(name, tt_algorithms[i]->name) || is_word(name, tt_algorithms[i]->nccl_name)) {
            *bit_out = 1u << i;
            return true;
        }
    }
    *bit_out = 0;
    for (int i = 0; absent[i] != NULL; i++) {
        if (is_word(name, absent[i])) {
            return true;
        }
    }
    return false;
}

// ---- Grammar ------------------------------------------------------------------------------------

static ncclResult_t parse_list(const char *text, struct word list, uint32_t *allowed_out,
                               uint32_t *refused_out)
{
    bool excludes = list.length > 0 && list.at[0] == '^';
    if (excludes) {
        list.at++;
        list.length--;
    }
    uint32_t named = 0;
    struct word name;
    while (next_word(&list, ',', &name)) {
        uint32_t bit = 0;
        if (!bit_of(name, &bit)) {
            char names[200];
            return tt_fail(ncclInvalidUsage, "NCCL_ALGO=%s: \"%.*s\" is no algorithm; there are %s",
                           text, (int)name.length, name.at, all_names(names, sizeof names));
        }
        named |= bit;
    }
    *allowed_out = excludes ? ~named : named;
    *refused_out = excludes ? named : 0;
    return ncclSuccess;
}

// One entry, `list` or `function:list`.
static ncclResult_t parse_entry(const char *text, struct word entry, bool is_first,
                                struct tt_choice *choice)
{
    struct word function = {NULL, 0};
    if (entry.length == 0) { // a ; may end the text
        return ncclSuccess;
    }
    if (memchr(entry.at, ':', entry.length) != NULL) {
        (void)next_word(&entry, ':', &function);
    } else if (!is_first) {
        return tt_fail(ncclInvalidUsage,
                       "NCCL_ALGO=%s: \"%.*s\" names no function; all entries but the first must, "
                       "as in ring;AllReduce:tree",
                       text, (int)entry.length, entry.at);
    }
    uint32_t allowed = 0;
    uint32_t refused = 0;
    TRY(parse_list(text, entry, &allowed, &refused));
    bool found = false;
    for (int i = 0; i < TT_CHOICE_FUNCTIONS; i++) {
        if (function.at == NULL || is_word(function, tt_function_name(functions[i]))) {
            choice->allowed[i] = allowed;
            choice->refused[i] = refused;
            found = true;
        }
    }
    if (!found) {
        return tt_fail(ncclInvalidUsage,
                       "NCCL_ALGO=%s: \"%.*s\" is no function to choose for; there are Broadcast, "
                       "Reduce, AllGather, ReduceScatter, AllReduce",
                       text, (int)function.length, function.at);
    }
    return ncclSuccess;
}

ncclResult_t tt_choice_parse(const char *text, struct tt_choice *choice_out)
{
    struct tt_choice choice = {.text = ""};
    for (int i = 0; i < TT_CHOICE_FUNCTIONS; i++) {
        choice.allowed[i] = ~0u;
    }
    (void)snprintf(choice.text, sizeof choice.text, "%s", text);
    struct word rest = {text, strlen(text)};
    struct word entry;
    bool is_first = true;
    while (text[0] != 0 && next_word(&rest, ';', &entry)) {
        ncclResult_t result = parse_entry(text, entry, is_first, &choice);
        if (result != ncclSuccess) {
            return result;
        }
        is_first = false;
    }
    *choice_out = choice;
    return ncclSuccess;
}

// ---- The choice ---------------------------------------------------------------------------------

// Why the algorithm cannot be taken; NULL where it can.
static const char *reason(const struct tt_choice *choice, const struct tt_problem *problem,
                          struct tt_means means, int index)
{
    const struct tt_algorithm *algorithm = tt_algorithms[index];
    bool is_forced = algorithm->is_staged && !means.is_mapped;
    for (int i = 0; i < TT_CHOICE_FUNCTIONS; i++) {
        uint32_t allowed = is_forced ? ~choice->refused[i] : choice->allowed[i];
        if (functions[i] == problem->function && (allowed >> index & 1) == 0) {
            return "not allowed";
        }
    }
    if (!algorithm->can(problem)) {
        return "cannot do it";
    }
    if (algorithm->needs_multicast && !means.has_multicast) {
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
                            tt_algorithms[i]->name, reason(choice, problem, means, i));
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
                       choice->text, reasons);
    }
    return tt_fail(ncclInvalidUsage, "%s: no algorithm can do it (%s)", text, reasons);
}

ncclResult_t tt_select(const struct tt_choice *choice, const struct tt_problem *problem,
                       struct tt_means means, const struct tt_algorithm **algorithm_out)
{
    for (int i = 0; tt_algorithms[i] != NULL; i++) {
        if (reason(choice, problem, means, i) == NULL) {
            *algorithm_out = tt_algorithms[i];
            return ncclSuccess;
        }
    }
    return none_left(choice, problem, means);
}
