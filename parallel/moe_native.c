// The stages of tuttiMoe on virtual GPUs: native blocks that copy and add rows, straight into the
// windows of the host's ranks. SPDX-License-Identifier: Apache-2.0
#include "fail.h"
#include "moe.h"
#include "moe_rails.h"
#include "moe_rows.h"

#include <string.h>
#include <vgpu/native.h>
#include <vgpu/stats.h>

typedef void (*stage)(void *argument, unsigned block, unsigned block_count);

// A block's part of `count` things: first to end - 1.
struct part {
    size_t first, end;
};

static struct part part_of(size_t count, unsigned block, unsigned block_count)
{
    return (struct part){count * block / block_count, count * (block + 1) / block_count};
}

static const struct moe_record *record_of(const struct moe_job *job, size_t i)
{
    return (const struct moe_record *)(job->record + i * job->record_bytes);
}

static const struct moe_choice *choices_of(const struct moe_record *record)
{
    return (const struct moe_choice *)(record + 1);
}

static char *row_of(const struct moe_job *job, int lane, int32_t row)
{
    return job->peers[lane] + (size_t)row * job->row_bytes;
}

static char *slot_of(const struct moe_job *job, char *window, int32_t slot)
{
    return window + job->slots + (size_t)slot * job->row_bytes;
}

static void copy(const struct moe_job *job, const struct moe_rows *rows, char *to, const char *from)
{
    rows->copy(to, from, job->row_bytes, job->past_caches);
    vgpuCountTransfer(to, job->row_bytes, 1);
}

static void add(const struct moe_job *job, const struct moe_rows *rows, char *to,
                const void *const *from, const double *weights, int count)
{
    int past = job->past_caches;
    if (count == 0) {
        memset(to, 0, job->row_bytes);
    } else if (job->type == ncclBfloat16) {
        rows->sum_bfloat16(to, from, weights, count, job->hidden, past);
    } else if (job->type == ncclFloat64) {
        rows->sum_float64(to, from, weights, count, job->hidden, past);
    } else {
        rows->sum_float32(to, from, weights, count, job->hidden, past);
    }
    vgpuCountTransfer(to, job->row_bytes, 1);
}

// ---- Dispatch -----------------------------------------------------------------------------------

// list: rows of `from` that go to `to`, one behind the other.
static void pack_rows(void *argument, unsigned block, unsigned block_count)
{
    const struct moe_job *job = argument;
    const struct moe_rows *rows = moe_rows_choose();
    struct part part = part_of(job->list_count, block, block_count);
    for (size_t i = part.first; i < part.end; i++) {
        copy(job, rows, job->to + i * job->row_bytes,
             job->from + (size_t)job->list[i] * job->row_bytes);
    }
    rows->fence();
}

// Items' rows to all ranks of the host that have experts for them. from: the rows of all tokens
// (list_width 1), or of the items one behind the other (0).
static void push_rows(void *argument, unsigned block, unsigned block_count)
{
    const struct moe_job *job = argument;
    const struct moe_rows *rows = moe_rows_choose();
    struct part part = part_of(job->item_count, block, block_count);
    for (size_t i = part.first; i < part.end; i++) {
        const int32_t *item = job->item + (job->item_first + i) * job->item_words;
        size_t row = job->list_width > 0 ? (size_t)item[MOE_ITEM_TOKEN] : i;
        for (int32_t r = 0; r < item[MOE_ITEM_RANKS]; r++) {
            const int32_t *place = item + MOE_ITEM_HEAD + 2 * (size_t)r;
            copy(job, rows, row_of(job, place[0], place[1]), job->from + row * job->row_bytes);
        }
    }
    rows->fence();
}

static void clear_padding(const struct moe_job *job, unsigned block, unsigned block_count)
{
    struct part part = part_of(job->padding_count, block, block_count);
    for (size_t e = part.first; e < part.end; e++) {
        const int32_t *rows = job->padding + 2 * e;
        memset(job->window + (size_t)rows[0] * job->row_bytes, 0, (size_t)rows[1] * job->row_bytes);
    }
}

// A row that has arrived, to the places of the token's other experts here.
static void spread_rows(void *argument, unsigned block, unsigned block_count)
{
    const struct moe_job *job = argument;
    const struct moe_rows *rows = moe_rows_choose();
    struct part part = part_of(job->record_count, block, block_count);
    for (size_t i = part.first; i < part.end; i++) {
        const struct moe_record *record = record_of(job, i);
        const struct moe_choice *choice = choices_of(record);
        const char *from = job->window + (size_t)choice[0].row * job->row_bytes;
        for (int32_t c = 1; c < record->count; c++) {
            copy(job, rows, job->window + (size_t)choice[c].row * job->row_bytes, from);
        }
    }
    clear_padding(job, block, block_count);
    rows->fence();
}

// ---- Combine ------------------------------------------------------------------------------------

// The sum of a token's rows here, into the forwarder's slot.
static void sum_choices(void *argument, unsigned block, unsigned block_count)
{
    const struct moe_job *job = argument;
    const struct moe_rows *rows = moe_rows_choose();
    struct part part = part_of(job->record_count, block, block_count);
    for (size_t i = part.first; i < part.end; i++) {
        const struct moe_record *record = record_of(job, i);
        const struct moe_choice *choice = choices_of(record);
        const void *from[MOE_MOST_CHOICES];
        double weights[MOE_MOST_CHOICES];
        for (int32_t c = 0; c < record->count; c++) {
            from[c] = job->from + (size_t)choice[c].row * job->row_bytes;
            weights[c] = choice[c].weight;
        }
        add(job, rows, slot_of(job, job->peers[record->lane], record->slot), from,
            job->weighted ? weights : NULL, record->count);
    }
    rows->fence();
}

static void sum_item(const struct moe_job *job, const struct moe_rows *rows, const int32_t *item,
                     char *to)
{
    const void *from[MOE_MOST_CHOICES];
    for (int32_t r = 0; r < item[MOE_ITEM_RANKS]; r++) {
        from[r] = slot_of(job, job->window, item[MOE_ITEM_SLOT] + r);
    }
    add(job, rows, to, from, NULL, item[MOE_ITEM_RANKS]);
}

// One host: tokens' results from their items; list: [tokens] items.
static void sum_tokens(void *argument, unsigned block, unsigned block_count)
{
    const struct moe_job *job = argument;
    const struct moe_rows *rows = moe_rows_choose();
    struct part part = part_of(job->list_count, block, block_count);
    for (size_t t = part.first; t < part.end; t++) {
        char *to = job->to + t * job->row_bytes;
        if (job->list[t] < 0) {
            memset(to, 0, job->row_bytes);
        } else {
            sum_item(job, rows, job->item + (size_t)job->list[t] * job->item_words, to);
        }
    }
    rows->fence();
}

// Several hosts: items' sums, one behind the other.
static void sum_items(void *argument, unsigned block, unsigned block_count)
{
    const struct moe_job *job = argument;
    const struct moe_rows *rows = moe_rows_choose();
    struct part part = part_of(job->item_count, block, block_count);
    for (size_t i = part.first; i < part.end; i++) {
        sum_item(job, rows, job->item + (job->item_first + i) * job->item_words,
                 job->to + i * job->row_bytes);
    }
    rows->fence();
}

// Several hosts: tokens' results from the hosts' parts; list: [tokens x hosts] rows of `from`.
static void sum_hosts(void *argument, unsigned block, unsigned block_count)
{
    const struct moe_job *job = argument;
    const struct moe_rows *rows = moe_rows_choose();
    struct part part = part_of(job->list_count, block, block_count);
    for (size_t t = part.first; t < part.end; t++) {
        const void *from[MOE_MOST_CHOICES];
        int count = 0;
        for (size_t h = 0; h < job->list_width; h++) {
            int32_t row = job->list[t * job->list_width + h];
            if (row >= 0) {
                from[count++] = job->from + (size_t)row * job->row_bytes;
            }
        }
        add(job, rows, job->to + t * job->row_bytes, from, NULL, count);
    }
    rows->fence();
}

// ---- Backward -----------------------------------------------------------------------------------

// One number of an array of weights or gradients.
static void store_grad(const struct moe_job *job, void *array, size_t i, double value)
{
    if (job->type == ncclFloat64) {
        ((double *)array)[i] = value;
    } else {
        ((float *)array)[i] = (float)value;
    }
}

static double dot(const struct moe_job *job, const struct moe_rows *rows, const char *grad,
                  int32_t row)
{
    size_t bytes = job->row_type == ncclBfloat16 ? 2 : job->row_bytes / job->hidden;
    const char *result = job->results + (size_t)row * job->hidden * bytes;
    return job->row_type == ncclBfloat16  ? rows->dot_bfloat16(grad, result, job->hidden)
           : job->row_type == ncclFloat64 ? rows->dot_float64(grad, result, job->hidden)
                                          : rows->dot_float32(grad, result, job->hidden);
}

// A gradient that has arrived, weighted to the places of the token's experts here, its own last;
// the weights' gradients.
static void spread_grads(void *argument, unsigned block, unsigned block_count)
{
    const struct moe_job *job = argument;
    const struct moe_rows *rows = moe_rows_choose();
    struct part part = part_of(job->record_count, block, block_count);
    for (size_t i = part.first; i < part.end; i++) {
        const struct moe_record *record = record_of(job, i);
        const struct moe_choice *choice = choices_of(record);
        const char *grad = job->window + (size_t)choice[0].row * job->row_bytes;
        const void *from = grad;
        for (int32_t c = record->count - 1; c >= 0; c--) {
            store_grad(job, job->weight_grads, i * job->record_choices + (size_t)c,
                       dot(job, rows, grad, choice[c].row));
            add(job, rows, job->window + (size_t)choice[c].row * job->row_bytes, &from,
                &choice[c].weight, 1);
        }
    }
    clear_padding(job, block, block_count);
    rows->fence();
}

// The gradients of pairs to [tokens x list_width].
static void scatter_grads(void *argument, unsigned block, unsigned block_count)
{
    const struct moe_job *job = argument;
    struct part part = part_of(job->record_count, block, block_count);
    size_t bytes = job->type == ncclFloat64 ? sizeof(double) : sizeof(float);
    for (size_t i = part.first; i < part.end; i++) {
        const struct moe_record *record = record_of(job, i);
        const struct moe_choice *choice = choices_of(record);
        for (int32_t c = 0; c < record->count; c++) {
            size_t at = (size_t)record->token * job->list_width + (size_t)choice[c].column;
            memcpy(job->to + at * bytes,
                   (const char *)job->weight_grads + (i * job->record_choices + (size_t)c) * bytes,
                   bytes);
        }
    }
}

// ---- Launches -----------------------------------------------------------------------------------

// As many blocks as this rank has cores for itself.
static ncclResult_t launch(const struct tuttiMoe *moe, const char *name, stage function,
                           const struct moe_job *job, cudaStream_t stream)
{
    int blocks = vgpuWorkerCount() / moe->lanes;
    TRY_CUDA(vgpuLaunchNative(name, function, job, sizeof *job, blocks > 1 ? (unsigned)blocks : 1,
                              stream));
    return ncclSuccess;
}

// The items first to first + count - 1, whose rows lie at `from`.
static ncclResult_t push(const struct tuttiMoe *moe, struct moe_job job, struct part items,
                         const char *from, bool by_token, cudaStream_t stream)
{
    job.item_first = items.first;
    job.item_count = items.end - items.first;
    job.from = from;
    job.list_width = by_token;
    return job.item_count == 0 ? ncclSuccess : launch(moe, "moe push", push_rows, &job, stream);
}

// Rows to the forwarders on other hosts; theirs arrive in the second rail.
static ncclResult_t cross_hosts(tuttiMoeRoute_t route, const struct moe_job *job,
                                const char *tokens, cudaStream_t stream)
{
    tuttiMoe_t moe = route->moe;
    struct moe_job packing = *job;
    TRY(moe_reserve_rail(moe, 0, route->out_rows * job->row_bytes, stream));
    TRY(moe_reserve_rail(moe, 1, route->in_rows * job->row_bytes, stream));
    packing.list = route->out_token;
    packing.list_count = route->out_rows;
    packing.from = tokens;
    packing.to = moe->rail[0].memory;
    TRY(launch(moe, "moe pack", pack_rows, &packing, stream));
    return moe_rails_out(route, job, stream);
}

// Rows to all ranks: of other hosts by way of their forwarders.
static ncclResult_t push_all(tuttiMoeRoute_t route, const struct moe_job *job, const char *tokens,
                             cudaStream_t stream)
{
    tuttiMoe_t moe = route->moe;
    const char *arrived = NULL;
    if (moe->hosts > 1) {
        TRY(cross_hosts(route, job, tokens, stream));
        arrived = moe->rail[1].memory;
    }
    struct part before = {0, route->own_first}, own = {route->own_first, 0}, after = {0};
    own.end = own.first + route->own_items;
    after = (struct part){own.end, route->items};
    TRY(push(moe, *job, own, tokens, true, stream));
    TRY(push(moe, *job, before, arrived, false, stream));
    return push(moe, *job, after,
                arrived == NULL ? NULL : arrived + route->own_first * job->row_bytes, false,
                stream);
}

static ncclResult_t native_dispatch(tuttiMoeRoute_t route, const struct moe_job *job,
                                    const void *tokens, cudaStream_t stream)
{
    TRY(push_all(route, job, tokens, stream));
    TRY(moe_meet(route->moe, stream));
    return launch(route->moe, "moe spread", spread_rows, job, stream);
}

// The host's parts of the items of all, to their sources, which add them.
static ncclResult_t combine_hosts(tuttiMoeRoute_t route, const struct moe_job *job, void *out,
                                  cudaStream_t stream)
{
    tuttiMoe_t moe = route->moe;
    TRY(moe_reserve_rail(moe, 0, route->parts * job->row_bytes, stream));
    TRY(moe_reserve_rail(moe, 1, route->in_rows * job->row_bytes, stream));
    struct moe_job sum = *job;
    sum.item_first = 0;
    sum.item_count = route->own_first;
    sum.to = moe->rail[1].memory;
    TRY(launch(moe, "moe sum before", sum_items, &sum, stream));
    sum.to = sum.to == NULL ? NULL : sum.to + route->own_first * job->row_bytes;
    sum.item_first = route->own_first + route->own_items;
    sum.item_count = route->items - sum.item_first;
    TRY(launch(moe, "moe sum after", sum_items, &sum, stream));
    sum.item_first = route->own_first;
    sum.item_count = route->own_items;
    sum.to = moe->rail[0].memory == NULL ? NULL
                                         : moe->rail[0].memory + route->part_first * job->row_bytes;
    TRY(launch(moe, "moe sum own", sum_items, &sum, stream));
    TRY(moe_rails_back(route, job, stream));
    sum = *job;
    sum.from = moe->rail[0].memory;
    sum.to = out;
    return launch(moe, "moe sum hosts", sum_hosts, &sum, stream);
}

static ncclResult_t native_combine(tuttiMoeRoute_t route, const struct moe_job *job,
                                   const void *rows, void *out, cudaStream_t stream)
{
    struct moe_job sum = *job;
    sum.from = rows;
    TRY(launch(route->moe, "moe sum choices", sum_choices, &sum, stream));
    TRY(moe_meet(route->moe, stream));
    if (route->moe->hosts > 1) {
        return combine_hosts(route, job, out, stream);
    }
    sum.to = out;
    return launch(route->moe, "moe sum tokens", sum_tokens, &sum, stream);
}

static ncclResult_t native_backward(tuttiMoeRoute_t route, const struct moe_job *job,
                                    const void *grads, const void *rows, cudaStream_t stream)
{
    struct moe_job spread = *job;
    spread.results = rows;
    TRY(push_all(route, job, grads, stream));
    TRY(moe_meet(route->moe, stream));
    return launch(route->moe, "moe spread gradients", spread_grads, &spread, stream);
}

static ncclResult_t native_scatter(tuttiMoeRoute_t route, const struct moe_job *job,
                                   cudaStream_t stream)
{
    return launch(route->moe, "moe scatter", scatter_grads, job, stream);
}

const struct moe_path moe_native_path = {
    .dispatch = native_dispatch,
    .combine = native_combine,
    .backward = native_backward,
    .scatter = native_scatter,
};
