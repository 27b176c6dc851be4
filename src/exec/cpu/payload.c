// Small operations; see payload.h. SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/payload.h"

#include "exec/cpu/run.h"

#include <string.h>

static bool is_scaled(const struct tt_op *op)
{
    return op->op == TT_REDUCE_SCALED_SUM;
}

// Elements of the largest input of a rank, in units of op->count.
static size_t inputs(const struct tt_op *op, int nranks)
{
    bool is_split = op->function == TT_REDUCE_SCATTER || op->function == TT_ALL_TO_ALL ||
                    op->function == TT_SCATTER;
    return is_split ? (size_t)nranks : 1;
}

bool tt_payload_fits(const struct tt_op *op, int nranks)
{
    size_t room = TT_ARENA_PAYLOAD - (is_scaled(op) ? sizeof(union tt_scalar) : 0);
    size_t elements = room / tt_type_bytes(op->type);
    return !op->is_uneven && op->count <= elements && op->count * inputs(op, nranks) <= elements;
}

void tt_payload_write(const struct tt_host *host, const struct tt_op *op, struct tt_entry *entry)
{
    size_t bytes = tt_op_send_bytes(op, host->rank, host->nranks);
    if (bytes > 0) { // else the root's alone counts
        memcpy(is_scaled(op) ? entry->scaled_payload : entry->payload, op->send, bytes);
    }
}

static const unsigned char *payload_of(const struct tt_host *host, const struct tt_op *op, int rank)
{
    const struct tt_entry *entry = tt_host_entry(host, rank);
    return is_scaled(op) ? entry->scaled_payload : entry->payload;
}

static void reduce(struct tt_host *host, const struct tt_op *op, size_t offset)
{
    struct tt_run *run = host->run;
    const void **in = (const void **)(void *)run->send;
    for (int rank = 0; rank < host->nranks; rank++) {
        in[rank] = payload_of(host, op, rank) + offset;
        if (is_scaled(op)) {
            run->scale[rank] = tt_host_entry(host, rank)->scale;
        }
    }
    struct tt_reduction reduction = {.type = op->type,
                                     .op = op->op,
                                     .divisor = (uint64_t)host->nranks,
                                     .scale = is_scaled(op) ? run->scale : NULL};
    void *out = op->recv;
    struct tt_reduce_places places = {&out, 1, in, host->nranks};
    tt_reduce(&reduction, &places, op->count, false);
}

// Part `part` of every rank's input, one behind the other.
static void collect(const struct tt_host *host, const struct tt_op *op, int part, size_t bytes)
{
    for (int rank = 0; rank < host->nranks; rank++) {
        memcpy((char *)op->recv + (size_t)rank * bytes,
               payload_of(host, op, rank) + (size_t)part * bytes, bytes);
    }
}

void tt_payload_finish(struct tt_host *host, const struct tt_op *op)
{
    size_t bytes = op->count * tt_type_bytes(op->type);
    bool is_root = host->rank == op->root;
    switch (op->function) {
    case TT_ALL_REDUCE:
        reduce(host, op, 0);
        break;
    case TT_REDUCE:
        if (is_root) {
            reduce(host, op, 0);
        }
        break;
    case TT_REDUCE_SCATTER:
        reduce(host, op, (size_t)host->rank * bytes);
        break;
    case TT_BROADCAST:
        memcpy(op->recv, payload_of(host, op, op->root), bytes);
        break;
    case TT_SCATTER:
        memcpy(op->recv, payload_of(host, op, op->root) + (size_t)host->rank * bytes, bytes);
        break;
    case TT_ALL_GATHER:
        collect(host, op, 0, bytes);
        break;
    case TT_GATHER:
        if (is_root) {
            collect(host, op, 0, bytes);
        }
        break;
    default: // AlltoAll
        collect(host, op, host->rank, bytes);
    }
}
