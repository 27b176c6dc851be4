// The stages of tuttiMoe on virtual GPUs: native blocks that copy and add rows, straight into the
// windows of the host's ranks. SPDX-License-Identifier: Apache-2.0
#include "device.h"
#include "fail.h"
#include "moe.h"
#include "moe_rails.h"
#include "moe_rows.h"

#include <string.h>
#include <vgpu/native.h>
#include <vgpu/stats.h>

// What is done with thing number i of a job: an item, a record, a token, ...
typedef void (*action)(const struct moe_job *job, const struct moe_rows *rows, size_t i);

// A launch: the action for each of `count` things, shared out over the blocks.
struct loop {
    struct moe_job job;
    size_t count;
    action act;
};

static void run_part(void *argument, unsigned block, unsigned block_count)
{
    const struct loop *loop = argument;
    const struct moe_rows *rows = moe_rows_choose();
    size_t end = loop->count * (block + 1) / block_count;
    for (size_t i = loop->count * block / block_count; i < end; i++) {
        loop->act(&loop->job, rows, i);
    }
    rows->fence();
}

// As many blocks as this rank has cores for itself.
static ncclResult_t launch(const struct tuttiMoe *moe, const char *name, action act, size_t count,
                           const struct moe_job *job, cudaStream_t stream)
{
    struct loop loop = {*job, count, act};
    int blocks = vgpuWorkerCount() / moe->lanes;
    if (count > 0) {
        TRY_CUDA(vgpuLaunchNative(name, run_part, &loop, sizeof loop,
                                  blocks > 1 ? (unsigned)blocks : 1, stream));
    }
    return ncclSuccess;
}

// ---- Where things lie ---------------------------------------------------------------------------

static const int32_t *item_of(const struct moe_job *job, size_t i)
{
    return job->item + (job->item_first + i) * job->item_words;
}

static const struct moe_record *record_of(const struct moe_job *job, size_t i)
{
    return (const struct moe_record *)(job->record + i * job->record_bytes);
}

static const struct moe_choice *choices_of(const struct moe_record *record)
{
    return (const struct moe_choice *)(record + 1);
}

// window: of a rank of this host.
static char *row_of(const struct moe_job *job, char *window, int32_t row)
{
    return window + (size_t)row * job->row_bytes;
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
static void pack_row(const struct moe_job *job, const struct moe_rows *rows, size_t i)
{
    copy(job, rows, job->to + i * job->row_bytes,
         job->from + (size_t)job->list[i] * job->row_bytes);
}

// An item's row to all ranks of the host that have experts for it. from: the rows of all tokens
// (list_width 1), or of the items one behind the other (0).
static void push_row(const struct moe_job *job, const struct moe_rows *rows, size_t i)
{
    const int32_t *item = item_of(job, i);
    size_t row = job->list_width > 0 ? (size_t)item[MOE_ITEM_TOKEN] : i;
    for (int32_t r = 0; r < item[MOE_ITEM_RANKS]; r++) {
        const int32_t *place = item + MOE_ITEM_HEAD + 2 * (size_t)r;
        copy(job, rows, row_of(job, job->peers[place[0]], place[1]),
             job->from + row * job->row_bytes);
    }
}

// A row that has arrived, to the places of the token's other experts here.
static void spread_row(const struct moe_job *job, const struct moe_rows *rows, size_t i)
{
    const struct moe_record *record = record_of(job, i);
    const struct moe_choice *choice = choices_of(record);
    const char *from = row_of(job, job->window, choice[0].row);
    for (int32_t c = 1; c < record->count; c++) {
        copy(job, rows, row_of(job, job->window, choice[c].row), from);
    }
}

// The rows behind those of one expert.
static void clear_padding(const struct moe_job *job, const struct moe_rows *rows, size_t expert)
{
    const int32_t *padding = job->padding + 2 * expert;
    (void)rows;
    memset(row_of(job, job->window, padding[0]), 0, (size_t)padding[1] * job->row_bytes);
}

// ---- Combine ------------------------------------------------------------------------------------

// The sum of a token's rows here, into the forwarder's slot.
static void sum_choices(const struct moe_job *job, const struct moe_rows *rows, size_t i)
{
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

static void sum_slots(const struct moe_job *job, const struct moe_rows *rows, const int32_t *item,
                      char *to)
{
    const void *from[MOE_MOST_CHOICES];
    for (int32_t r = 0; r < item[MOE_ITEM_RANKS]; r++) {
        from[r] = slot_of(job, job->window, item[MOE_ITEM_SLOT] + r);
    }
    add(job, rows, to, from, NULL, item[MOE_ITEM_RANKS]);
}

// One host: a token's result from its item; list: [tokens] items.
static void sum_token(const struct moe_job *job, const struct moe_rows *rows, size_t token)
{
    char *to = job->to + token * job->row_bytes;
    if (job->list[token] < 0) {
        memset(to, 0, job->row_bytes);
    } else {
        sum_slots(job, rows, item_of(job, (size_t)job->list[token]), to);
    }
}

// Several hosts: items' sums, one behind the other.
static void sum_item(const struct moe_job *job, const struct moe_rows *rows, size_t i)
{
    sum_slots(job, rows, item_of(job, i), job->to + i * job->row_bytes);
}

// Several hosts: a token's result from the hosts' parts; list: [tokens x hosts] rows of `from`.
static void sum_hosts(const struct moe_job *job, const struct moe_rows *rows, size_t token)
{
    const void *from[MOE_MOST_CHOICES];
    int count = 0;
    for (size_t h = 0; h < job->list_width; h++) {
        int32_t row = job->list[token * job->list_width + h];
        if (row >= 0) {
            from[count++] = job->from + (size_t)row * job->row_bytes;
        }
    }
    add(job, rows, job->to + token * job->row_bytes, from, NULL, count);
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
    size_t bytes = job->hidden * parallel_type_bytes(job->row_type);
    const char *result = job->results + (size_t)row * bytes;
    return job->row_type == ncclBfloat16  ? rows->dot_bfloat16(grad, result, job->hidden)
           : job->row_type == ncclFloat64 ? rows->dot_float64(grad, result, job->hidden)
                                          : rows->dot_float32(grad, result, job->hidden);
}

// A gradient that has arrived, weighted to the places of the token's experts here, its own last;
// the weights' gradients.
static void spread_grad(const struct moe_job *job, const struct moe_rows *rows, size_t i)
{
    const struct moe_record *record = record_of(job, i);
    const struct moe_choice *choice = choices_of(record);
    const char *grad = row_of(job, job->window, choice[0].row);
    const void *from = grad;
    for (int32_t c = record->count - 1; c >= 0; c--) {
        store_grad(job, job->weight_grads, i * job->record_choices + (size_t)c,
                   dot(job, rows, grad, choice[c].row));
        add(job, rows, row_of(job, job->window, choice[c].row), &from, &choice[c].weight, 1);
    }
}

// The gradients of a pair to [tokens x list_width].
static void scatter_grads(const struct moe_job *job, const struct moe_rows *rows, size_t i)
{
    const struct moe_record *record = record_of(job, i);
    const struct moe_choice *choice = choices_of(record);
    size_t bytes = parallel_type_bytes(job->type);
    (void)rows;
    for (int32_t c = 0; c < record->count; c++) {
        size_t at = (size_t)record->token * job->list_width + (size_t)choice[c].column;
        memcpy(job->to + at * bytes,
               (const char *)job->weight_grads + (i * job->record_choices + (size_t)c) * bytes,
               bytes);
    }
}

// ---- Stages -------------------------------------------------------------------------------------

// Items of a rank as forwarder, first to end - 1.
struct range {
    size_t first, end;
};

static struct range items_before(const struct tuttiMoeRoute *route)
{
    return (struct range){0, route->own_first};
}

static struct range own_items(const struct tuttiMoeRoute *route)
{
    return (struct range){route->own_first, route->own_first + route->own_items};
}

static struct range items_after(const struct tuttiMoeRoute *route)
{
    return (struct range){route->own_first + route->own_items, route->items};
}

// from: the items' rows, by token or one behind the other.
static ncclResult_t push(const struct tuttiMoe *moe, struct moe_job job, struct range items,
                         const char *from, bool by_token, cudaStream_t stream)
{
    job.item_first = items.first;
    job.from = from;
    job.list_width = by_token;
    return launch(moe, "moe push", push_row, items.end - items.first, &job, stream);
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
    packing.from = tokens;
    packing.to = moe->rail[0].memory;
    TRY(launch(moe, "moe pack", pack_row, route->out_rows, &packing, stream));
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
    TRY(push(moe, *job, own_items(route), tokens, true, stream));
    TRY(push(moe, *job, items_before(route), arrived, false, stream));
    return push(moe, *job, items_after(route),
                arrived == NULL ? NULL : arrived + route->own_first * job->row_bytes, false,
                stream);
}

// Only where experts' rows begin at multiples of something.
static ncclResult_t clear_all_padding(tuttiMoeRoute_t route, const struct moe_job *job,
                                      cudaStream_t stream)
{
    size_t experts = route->report.padded > 0 ? job->padding_count : 0;
    return launch(route->moe, "moe padding", clear_padding, experts, job, stream);
}

static ncclResult_t native_dispatch(tuttiMoeRoute_t route, const struct moe_job *job,
                                    const void *tokens, cudaStream_t stream)
{
    TRY(push_all(route, job, tokens, stream));
    TRY(moe_meet(route->moe, stream));
    TRY(launch(route->moe, "moe spread", spread_row, job->record_count, job, stream));
    return clear_all_padding(route, job, stream);
}

static ncclResult_t sum_into(const struct tuttiMoe *moe, struct moe_job job, struct range items,
                             char *to, cudaStream_t stream)
{
    job.item_first = items.first;
    job.to = to;
    return launch(moe, "moe sum items", sum_item, items.end - items.first, &job, stream);
}

// The host's parts of the items of all, to their sources, which add them.
static ncclResult_t combine_hosts(tuttiMoeRoute_t route, const struct moe_job *job, void *out,
                                  cudaStream_t stream)
{
    tuttiMoe_t moe = route->moe;
    TRY(moe_reserve_rail(moe, 0, route->parts * job->row_bytes, stream));
    TRY(moe_reserve_rail(moe, 1, route->in_rows * job->row_bytes, stream));
    char *mine = moe->rail[0].memory, *others = moe->rail[1].memory;
    TRY(sum_into(moe, *job, items_before(route), others, stream));
    TRY(sum_into(moe, *job, items_after(route),
                 others == NULL ? NULL : others + route->own_first * job->row_bytes, stream));
    TRY(sum_into(moe, *job, own_items(route),
                 mine == NULL ? NULL : mine + route->part_first * job->row_bytes, stream));
    TRY(moe_rails_back(route, job, stream));
    struct moe_job sum = *job;
    sum.from = mine;
    sum.to = out;
    return launch(moe, "moe sum hosts", sum_hosts, route->tokens, &sum, stream);
}

static ncclResult_t native_combine(tuttiMoeRoute_t route, const struct moe_job *job,
                                   const void *rows, void *out, cudaStream_t stream)
{
    struct moe_job sum = *job;
    sum.from = rows;
    TRY(launch(route->moe, "moe sum choices", sum_choices, job->record_count, &sum, stream));
    TRY(moe_meet(route->moe, stream));
    if (route->moe->hosts > 1) {
        return combine_hosts(route, job, out, stream);
    }
    sum.to = out;
    return launch(route->moe, "moe sum tokens", sum_token, route->tokens, &sum, stream);
}

static ncclResult_t native_backward(tuttiMoeRoute_t route, const struct moe_job *job,
                                    const void *grads, const void *rows, cudaStream_t stream)
{
    struct moe_job spread = *job;
    spread.results = rows;
    TRY(push_all(route, job, grads, stream));
    TRY(moe_meet(route->moe, stream));
    TRY(launch(route->moe, "moe spread gradients", spread_grad, job->record_count, &spread,
               stream));
    return clear_all_padding(route, job, stream);
}

static ncclResult_t native_scatter(tuttiMoeRoute_t route, const struct moe_job *job,
                                   cudaStream_t stream)
{
    return launch(route->moe, "moe scatter", scatter_grads, job->record_count, job, stream);
}

const struct moe_path moe_native_path = {
    .dispatch = native_dispatch,
    .combine = native_combine,
    .backward = native_backward,
    .scatter = native_scatter,
};
