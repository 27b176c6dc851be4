// Which token goes where: records and items of one rank's tokens, in host memory.
// SPDX-License-Identifier: Apache-2.0
#include "fail.h"
#include "moe.h"

#include <stdlib.h>
#include <string.h>

// Where the next of everything goes.
struct cursors {
    size_t *row;       // [experts] rows of this source and those before it
    size_t *pair;      // [ranks] among the pairs
    size_t *slot;      // [hosts] among the forwarder's slots
    size_t *item;      // [hosts] among the forwarder's items
    size_t *part;      // [hosts] among the parts
    size_t *out;       // [hosts] among the rows to other hosts
    size_t *row_first; // [experts] the first row of each on its rank
};

struct planner {
    const struct tuttiMoe *moe;
    const struct moe_counts *counts;
    tuttiMoeRoute_t route;
    struct moe_plan *plan;
    struct cursors at;
};

static void start_rows(struct planner *p)
{
    const struct tuttiMoe *moe = p->moe;
    size_t align = moe->options.align;
    for (int r = 0; r < moe->ranks; r++) {
        size_t row = 0;
        for (size_t e = moe->first_expert[r]; e < moe->first_expert[r + 1]; e++) {
            p->at.row_first[e] = row;
            row += (p->counts->kept[e] + align - 1) / align * align;
        }
    }
    memcpy(p->at.row, p->counts->base, (size_t)moe->options.experts * sizeof *p->at.row);
}

// Forwarders have slots and items by source host, then token.
static void start_hosts(struct planner *p)
{
    const struct tuttiMoe *moe = p->moe;
    size_t part = 0, out = 0, pair = 0;
    for (int h = 0; h < moe->hosts; h++) {
        for (int before = 0; before < moe->host; before++) {
            int source = before * moe->lanes + moe->lane;
            p->at.item[h] += (size_t)moe_items_for(moe, p->counts, source, h);
            for (int lane = 0; lane < moe->lanes; lane++) {
                p->at.slot[h] +=
                    (size_t)moe_records_for(moe, p->counts, source, h * moe->lanes + lane);
            }
        }
        size_t items = (size_t)moe_items_for(moe, p->counts, moe->rank, h);
        p->at.part[h] = part;
        p->at.out[h] = out;
        part += items;
        out += h == moe->host ? 0 : items;
    }
    for (int r = 0; r < moe->ranks; r++) {
        p->at.pair[r] = pair;
        pair += p->route->pairs_to[r];
    }
}

// A token's item in host h, with no ranks yet.
static int32_t *begin_item(struct planner *p, size_t token, int h)
{
    const struct tuttiMoe *moe = p->moe;
    size_t hosts = (size_t)moe->hosts, width = moe->item_words;
    int32_t *item;
    if (h == moe->host) {
        item = p->plan->own_item + (p->at.item[h] - p->route->own_first) * width;
    } else {
        size_t out = p->at.out[h]++;
        p->plan->out_token[out] = (int32_t)token;
        item = p->plan->out_item + out * width;
    }
    // One host: sums are made of its items at once; else of parts.
    p->plan->part[token * hosts + (size_t)h] =
        (int32_t)(hosts == 1 ? p->at.item[h] : p->at.part[h]);
    p->at.item[h]++;
    p->at.part[h]++;
    item[MOE_ITEM_TOKEN] = (int32_t)token;
    item[MOE_ITEM_SLOT] = (int32_t)p->at.slot[h];
    item[MOE_ITEM_RANKS] = 0;
    return item;
}

// A token's record on a rank, whose first choice will have `row`; noted in its item too.
static struct moe_record *begin_record(struct planner *p, int32_t *item, int rank, int32_t row)
{
    int h = rank / p->moe->lanes;
    char *at = p->plan->pair + p->at.pair[rank]++ * p->moe->record_bytes;
    struct moe_record *record = (struct moe_record *)at;
    *record = (struct moe_record){.lane = p->moe->lane,
                                  .slot = (int32_t)p->at.slot[h]++,
                                  .item = (int32_t)p->at.item[h] - 1,
                                  .token = item[MOE_ITEM_TOKEN]};
    int32_t *place = item + MOE_ITEM_HEAD + 2 * (size_t)item[MOE_ITEM_RANKS]++;
    place[0] = rank % p->moe->lanes;
    place[1] = row;
    return record;
}

static void plan_token(struct planner *p, size_t token)
{
    int choices = p->moe->options.choices, last_rank = -1, last_host = -1;
    size_t first = token * (size_t)choices;
    const int32_t *indices = p->counts->indices + first;
    int32_t columns[MOE_MOST_CHOICES], *item = NULL;
    struct moe_record *record = NULL;
    moe_sort_choices(indices, choices, columns);
    for (int j = 0; j < choices; j++) {
        int expert = indices[columns[j]], rank = moe_rank_of(p->moe, expert);
        size_t place = p->at.row[expert]++;
        if (place >= p->counts->kept[expert]) {
            continue;
        }
        int32_t row = (int32_t)(p->at.row_first[expert] + place);
        if (item == NULL || rank / p->moe->lanes != last_host) {
            last_host = rank / p->moe->lanes;
            item = begin_item(p, token, last_host);
        }
        if (record == NULL || rank != last_rank) {
            last_rank = rank;
            record = begin_record(p, item, rank, row);
        }
        struct moe_choice *choice = (struct moe_choice *)(record + 1) + record->count++;
        *choice =
            (struct moe_choice){row, columns[j], p->counts->weights[first + (size_t)columns[j]]};
    }
}

static void plan_padding(struct planner *p)
{
    const tuttiMoeRoute_t route = p->route;
    size_t experts = p->moe->first_expert[p->moe->rank + 1] - p->moe->first_expert[p->moe->rank];
    for (size_t e = 0; e < experts; e++) {
        size_t end = e + 1 < experts ? route->offsets[e + 1] : route->row_count;
        size_t first = route->offsets[e] + route->counts[e];
        p->plan->padding[2 * e] = (int32_t)first;
        p->plan->padding[2 * e + 1] = (int32_t)(end - first);
    }
}

static ncclResult_t allocate_plan(const struct tuttiMoe *moe, const struct tuttiMoeRoute *route,
                                  struct moe_plan *plan)
{
    size_t parts = route->tokens * (size_t)moe->hosts, width = moe->item_words;
    plan->pair = calloc(route->pairs + 1, moe->record_bytes);
    plan->own_item = calloc(route->own_items * width + 1, sizeof *plan->own_item);
    plan->out_item = calloc(route->out_rows * width + 1, sizeof *plan->out_item);
    plan->out_token = calloc(route->out_rows + 1, sizeof *plan->out_token);
    plan->part = malloc((parts + 1) * sizeof *plan->part);
    plan->padding = calloc(2 * (size_t)moe->options.experts, sizeof *plan->padding);
    if (plan->pair == NULL || plan->own_item == NULL || plan->out_item == NULL ||
        plan->out_token == NULL || plan->part == NULL || plan->padding == NULL) {
        return tuttiFail(ncclSystemError, "tuttiMoeDispatch: rank %d: no memory for %zu tokens",
                         moe->rank, route->tokens);
    }
    memset(plan->part, 0xff, (parts + 1) * sizeof *plan->part); // -1
    return ncclSuccess;
}

void moe_plan_free(struct moe_plan *plan)
{
    free(plan->pair);
    free(plan->own_item);
    free(plan->out_item);
    free(plan->out_token);
    free(plan->part);
    free(plan->padding);
}

ncclResult_t moe_plan(const struct moe_counts *counts, tuttiMoeRoute_t route, struct moe_plan *plan)
{
    const struct tuttiMoe *moe = route->moe;
    size_t experts = (size_t)moe->options.experts, hosts = (size_t)moe->hosts;
    *plan = (struct moe_plan){0};
    TRY(allocate_plan(moe, route, plan));
    size_t *all = calloc(2 * experts + (size_t)moe->ranks + 4 * hosts, sizeof *all);
    if (all == NULL) {
        return tuttiFail(ncclSystemError, "tuttiMoeDispatch: rank %d: no memory for %zu experts",
                         moe->rank, experts);
    }
    size_t *of_hosts = all + 2 * experts + (size_t)moe->ranks;
    struct planner p = {moe, counts, route, plan, {0}};
    p.at = (struct cursors){.row = all,
                            .row_first = all + experts,
                            .pair = all + 2 * experts,
                            .slot = of_hosts,
                            .item = of_hosts + hosts,
                            .part = of_hosts + 2 * hosts,
                            .out = of_hosts + 3 * hosts};
    start_rows(&p);
    start_hosts(&p);
    for (size_t t = 0; t < route->tokens; t++) {
        plan_token(&p, t);
    }
    plan_padding(&p);
    free(all);
    return ncclSuccess;
}
