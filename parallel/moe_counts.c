// What ranks tell each other before tokens move: how many rows they have for each expert, for each
// rank, for each host; what is wrong with their choices; what the capacity leaves.
//
// A rank's table, in words: status, token, choice, value (of what is wrong); tokens; [experts]
// rows; [ranks] records; [hosts] items. SPDX-License-Identifier: Apache-2.0
#include "device.h"
#include "fail.h"
#include "moe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_STATUS, WORD_TOKEN, WORD_CHOICE, WORD_VALUE, WORD_TOKENS, TABLE_HEAD };
enum { FINE, BAD_ARGUMENT, BAD_INDEX, EXPERT_TWICE }; // status

static const char call[] = "tuttiMoeDispatch";

static const int32_t *table_of(const struct moe_counts *counts, int source)
{
    return counts->all + (size_t)source * counts->words + TABLE_HEAD;
}

int32_t moe_rows_for(const struct moe_counts *counts, int source, int expert)
{
    return table_of(counts, source)[expert];
}

int32_t moe_records_for(const struct tuttiMoe *moe, const struct moe_counts *counts, int source,
                        int rank)
{
    return table_of(counts, source)[moe->options.experts + rank];
}

int32_t moe_items_for(const struct tuttiMoe *moe, const struct moe_counts *counts, int source,
                      int host)
{
    return table_of(counts, source)[moe->options.experts + moe->ranks + host];
}

int moe_rank_of(const struct tuttiMoe *moe, int expert)
{
    int low = 0, high = moe->ranks - 1;
    while (low < high) { // the last rank whose first expert is not behind it
        int middle = (low + high + 1) / 2;
        if (moe->first_expert[middle] <= (size_t)expert) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

void moe_sort_choices(const int32_t *indices, int choices, int32_t *columns)
{
    for (int j = 0; j < choices; j++) {
        int place = j;
        while (place > 0 && indices[columns[place - 1]] > indices[j]) {
            columns[place] = columns[place - 1];
            place--;
        }
        columns[place] = j;
    }
}

// ---- This rank's choices ------------------------------------------------------------------------

static ncclResult_t check_choices(const struct tuttiMoe *moe, const struct moe_choices *choices)
{
    const struct {
        const char *name;
        const void *pointer;
        size_t bytes; // of an element
    } arrays[] = {{"tokens", choices->tokens, parallel_type_bytes(moe->options.datatype)},
                  {"indices", choices->indices, sizeof *choices->indices},
                  {"weights", choices->weights, moe->weight_bytes}};
    if (choices->count > moe->options.maxTokens) {
        return tuttiFail(ncclInvalidArgument,
                         "%s: rank %d: count is %zu, must be at most maxTokens, %zu", call,
                         moe->rank, choices->count, moe->options.maxTokens);
    }
    if (!choices->has_route) {
        return tuttiFail(ncclInvalidArgument, "%s: rank %d: route is NULL", call, moe->rank);
    }
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0] && choices->count > 0; i++) {
        if (arrays[i].pointer == NULL) {
            return tuttiFail(ncclInvalidArgument, "%s: rank %d: %s is NULL, but count is %zu", call,
                             moe->rank, arrays[i].name, choices->count);
        }
        if ((uintptr_t)arrays[i].pointer % arrays[i].bytes != 0) {
            return tuttiFail(ncclInvalidArgument,
                             "%s: rank %d: %s is %p, must be a multiple of its elements' %zu bytes",
                             call, moe->rank, arrays[i].name, arrays[i].pointer, arrays[i].bytes);
        }
    }
    return ncclSuccess;
}

static ncclResult_t allocate(tuttiMoe_t moe, size_t tokens, struct moe_counts *counts)
{
    size_t experts = (size_t)moe->options.experts, ranks = (size_t)moe->ranks;
    size_t choices = tokens * (size_t)moe->options.choices;
    counts->tokens = tokens;
    counts->words = TABLE_HEAD + experts + ranks + (size_t)moe->hosts;
    counts->indices = malloc(choices * sizeof *counts->indices + 1);
    counts->weights = malloc(choices * sizeof *counts->weights + 1);
    counts->mine = calloc(counts->words, sizeof *counts->mine);
    counts->all = calloc(counts->words * ranks, sizeof *counts->all);
    counts->base = calloc(3 * experts, sizeof *counts->base);
    if (counts->indices == NULL || counts->weights == NULL || counts->mine == NULL ||
        counts->all == NULL || counts->base == NULL) {
        return tuttiFail(ncclSystemError, "%s: rank %d: no memory for %zu tokens of %d ranks", call,
                         moe->rank, tokens, moe->ranks);
    }
    counts->demand = counts->base + experts;
    counts->kept = counts->base + 2 * experts;
    return ncclSuccess;
}

void moe_counts_free(struct moe_counts *counts)
{
    free(counts->indices);
    free(counts->weights);
    free(counts->mine);
    free(counts->all);
    free(counts->base);
}

static ncclResult_t read_array(const struct tuttiMoe *moe, const char *name, const void *from,
                               size_t bytes, void *to, cudaStream_t stream)
{
    cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream);
    return error == cudaSuccess
               ? ncclSuccess
               : tuttiFail(ncclUnhandledCudaError,
                           "%s: rank %d: %s is %p: %zu bytes of device memory cannot be read "
                           "there: %s (%d)",
                           call, moe->rank, name, from, bytes, cudaGetErrorString(error),
                           (int)error);
}

// Into host memory; weights as double.
static ncclResult_t read_choices(tuttiMoe_t moe, const struct moe_choices *choices,
                                 struct moe_counts *counts, cudaStream_t stream)
{
    size_t n = counts->tokens * (size_t)moe->options.choices;
    if (n == 0) {
        return ncclSuccess;
    }
    TRY(read_array(moe, "indices", choices->indices, n * sizeof *counts->indices, counts->indices,
                   stream));
    TRY(read_array(moe, "weights", choices->weights, n * moe->weight_bytes, counts->weights,
                   stream));
    TRY_CUDA(cudaStreamSynchronize(stream));
    if (moe->weight_bytes == sizeof(float)) { // from the end, so that none is overwritten unread
        const char *narrow = (const char *)counts->weights;
        for (size_t i = n; i-- > 0;) {
            float weight;
            memcpy(&weight, narrow + i * sizeof weight, sizeof weight);
            counts->weights[i] = (double)weight;
        }
    }
    return ncclSuccess;
}

static bool note(struct moe_counts *counts, int32_t status, size_t token, int choice, int32_t value)
{
    counts->mine[WORD_STATUS] = status;
    counts->mine[WORD_TOKEN] = (int32_t)token;
    counts->mine[WORD_CHOICE] = choice;
    counts->mine[WORD_VALUE] = value;
    return false;
}

// Whether all are experts, none twice for one token; notes the first that is not.
static bool are_right(const struct tuttiMoe *moe, struct moe_counts *counts)
{
    int choices = moe->options.choices;
    int32_t columns[MOE_MOST_CHOICES];
    for (size_t t = 0; t < counts->tokens; t++) {
        const int32_t *indices = counts->indices + t * (size_t)choices;
        for (int j = 0; j < choices; j++) {
            if (indices[j] < 0 || indices[j] >= moe->options.experts) {
                return note(counts, BAD_INDEX, t, j, indices[j]);
            }
        }
        moe_sort_choices(indices, choices, columns);
        for (int j = 1; j < choices; j++) {
            if (indices[columns[j]] == indices[columns[j - 1]]) {
                return note(counts, EXPERT_TWICE, t, columns[j], indices[columns[j]]);
            }
        }
    }
    return true;
}

// This rank's table. limited: of the rows that the capacity leaves (kept); else of all.
static void fill_table(const struct tuttiMoe *moe, struct moe_counts *counts, bool limited)
{
    int choices = moe->options.choices;
    int32_t *rows = counts->mine + TABLE_HEAD, *records = rows + moe->options.experts;
    int32_t *items = records + moe->ranks, columns[MOE_MOST_CHOICES];
    memset(rows, 0, (counts->words - TABLE_HEAD) * sizeof *rows);
    for (size_t t = 0; t < counts->tokens; t++) {
        const int32_t *indices = counts->indices + t * (size_t)choices;
        int last_rank = -1, last_host = -1;
        moe_sort_choices(indices, choices, columns);
        for (int j = 0; j < choices; j++) {
            int expert = indices[columns[j]], rank = moe_rank_of(moe, expert);
            size_t place = counts->base[expert] + (size_t)rows[expert]++;
            if (limited && place >= counts->kept[expert]) {
                continue;
            }
            records[rank] += rank != last_rank;
            items[rank / moe->lanes] += rank / moe->lanes != last_host;
            last_rank = rank;
            last_host = rank / moe->lanes;
        }
    }
}

// ---- All ranks' ---------------------------------------------------------------------------------

// The first rank that has something wrong, told alike on all ranks; own: what this one has said.
static ncclResult_t judge(const struct tuttiMoe *moe, const struct moe_counts *counts,
                          ncclResult_t own)
{
    for (int r = 0; r < moe->ranks && own == ncclSuccess; r++) {
        const int32_t *words = counts->all + (size_t)r * counts->words;
        switch (words[WORD_STATUS]) {
        case BAD_ARGUMENT:
            return tuttiFail(ncclInvalidArgument, "%s: rank %d's arguments are refused there", call,
                             r);
        case BAD_INDEX:
            return tuttiFail(ncclInvalidArgument,
                             "%s: rank %d: indices: token %d, choice %d: %d, must be 0 to %d", call,
                             r, words[WORD_TOKEN], words[WORD_CHOICE], words[WORD_VALUE],
                             moe->options.experts - 1);
        case EXPERT_TWICE:
            return tuttiFail(ncclInvalidArgument,
                             "%s: rank %d: indices: token %d chooses expert %d twice (again as "
                             "choice %d)",
                             call, r, words[WORD_TOKEN], words[WORD_VALUE], words[WORD_CHOICE]);
        default:
            break;
        }
    }
    return own;
}

// base, demand, kept, capacity.
static ncclResult_t apply_capacity(const struct tuttiMoe *moe, struct moe_counts *counts)
{
    const struct tuttiMoeOptions *options = &moe->options;
    double tokens = 0;
    for (int r = 0; r < moe->ranks; r++) {
        tokens += counts->all[(size_t)r * counts->words + WORD_TOKENS];
    }
    counts->capacity = options->rule == tuttiMoeGrow ? 0 : options->capacity;
    if (options->rule != tuttiMoeGrow && options->capacity == 0 && options->capacityFactor > 0) {
        double capacity =
            ceil(options->capacityFactor * tokens * options->choices / options->experts);
        counts->capacity = capacity < 1 ? 1 : capacity > INT32_MAX ? INT32_MAX : (size_t)capacity;
    }
    for (int e = 0; e < options->experts; e++) {
        counts->base[e] = 0;
        counts->demand[e] = 0;
        for (int r = 0; r < moe->ranks; r++) {
            size_t rows = (size_t)moe_rows_for(counts, r, e);
            counts->base[e] += r < moe->rank ? rows : 0;
            counts->demand[e] += rows;
        }
        bool beyond = counts->capacity > 0 && counts->demand[e] > counts->capacity;
        counts->kept[e] = beyond ? counts->capacity : counts->demand[e];
        if (beyond && options->rule == tuttiMoeError) {
            return tuttiFail(ncclInvalidUsage,
                             "%s: expert %d (rank %d): %zu rows are for it, its capacity is %zu",
                             call, e, moe_rank_of(moe, e), counts->demand[e], counts->capacity);
        }
    }
    return ncclSuccess;
}

static bool drops(const struct tuttiMoe *moe, const struct moe_counts *counts)
{
    for (int e = 0; e < moe->options.experts; e++) {
        if (counts->kept[e] < counts->demand[e]) {
            return true;
        }
    }
    return false;
}

static ncclResult_t exchange(tuttiMoe_t moe, struct moe_counts *counts, cudaStream_t stream)
{
    return parallel_exchange(counts->mine, counts->all, counts->words * sizeof *counts->mine,
                             moe->comm, stream);
}

ncclResult_t moe_count(tuttiMoe_t moe, const struct moe_choices *choices, struct moe_counts *counts,
                       cudaStream_t stream)
{
    *counts = (struct moe_counts){0};
    ncclResult_t own = check_choices(moe, choices);
    TRY(allocate(moe, own == ncclSuccess ? choices->count : 0, counts));
    if (own == ncclSuccess) {
        own = read_choices(moe, choices, counts, stream);
    }
    counts->mine[WORD_TOKENS] = (int32_t)counts->tokens;
    if (own != ncclSuccess) {
        (void)note(counts, BAD_ARGUMENT, 0, 0, 0);
    } else if (are_right(moe, counts)) {
        fill_table(moe, counts, false);
    }
    TRY(exchange(moe, counts, stream));
    TRY(judge(moe, counts, own));
    TRY(apply_capacity(moe, counts));
    if (drops(moe, counts)) { // records and items of the rows that are left
        fill_table(moe, counts, true);
        TRY(exchange(moe, counts, stream));
    }
    return ncclSuccess;
}
