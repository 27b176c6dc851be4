// Names, signatures, texts and sizes of operations. See op.h.
// SPDX-License-Identifier: Apache-2.0
#include "plan/op.h"

#include <stdio.h>

static const char *const function_names[TT_FUNCTIONS] = {
    [TT_ALL_REDUCE] = "AllReduce",
    [TT_REDUCE] = "Reduce",
    [TT_BROADCAST] = "Broadcast",
    [TT_REDUCE_SCATTER] = "ReduceScatter",
    [TT_ALL_GATHER] = "AllGather",
    [TT_ALL_TO_ALL] = "AlltoAll",
    [TT_GATHER] = "Gather",
    [TT_SCATTER] = "Scatter",
    [TT_FUSED_RMSNORM] = "AllReduceRMSNorm",
    [TT_SEND] = "Send",
    [TT_RECV] = "Recv",
    [TT_PUT_SIGNAL] = "PutSignal",
    [TT_SIGNAL] = "Signal",
    [TT_WAIT_SIGNAL] = "WaitSignal",
};

const char *tt_function_name(enum tt_function function)
{
    return (unsigned)function < TT_FUNCTIONS ? function_names[function] : "(no function)";
}

// Of all functions that reduce: bits 1 << enum tt_function.
static const unsigned reducing = 1u << TT_ALL_REDUCE | 1u << TT_REDUCE | 1u << TT_REDUCE_SCATTER;

bool tt_op_reduces(enum tt_function function)
{
    return (reducing >> function & 1) != 0;
}

uint64_t tt_op_signature(const struct tt_op *op)
{
    uint64_t kind = (uint64_t)op->function | (uint64_t)op->type << 8 |
                    (uint64_t)op->is_uneven << 24 | (uint64_t)(uint32_t)op->root << 32;
    if (tt_op_reduces(op->function)) {
        kind |= (uint64_t)op->op << 16;
    }
    // Uneven counts differ between ranks.
    uint64_t count = op->is_uneven ? 0 : op->count;
    // A product with both halves added without carries: each bit that goes in turns about half of
    // those that come out. The words of one kind, and those of one count, differ before it.
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)((kind + 1) * 0x9e3779b97f4a7c15u + count) * 0xbf58476d1ce4e5b9u;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static const char *type_name(ncclDataType_t type)
{
    static const char *const names[] = {
        [ncclInt8] = "int8",
        [ncclUint8] = "uint8",
        [ncclInt32] = "int32",
        [ncclUint32] = "uint32",
        [ncclInt64] = "int64",
        [ncclUint64] = "uint64",
        [ncclFloat16] = "float16",
        [ncclFloat32] = "float32",
        [ncclFloat64] = "float64",
        [ncclBfloat16] = "bfloat16",
        [ncclFloat8e4m3] = "float8e4m3",
        [ncclFloat8e5m2] = "float8e5m2",
    };
    return (unsigned)type < sizeof names / sizeof names[0] ? names[type] : "no type";
}

static const char *operator_name(enum tt_reduce_operator op)
{
    static const char *const names[TT_REDUCE_OPERATORS] = {
        [TT_REDUCE_SUM] = "sum", [TT_REDUCE_PROD] = "prod",   [TT_REDUCE_MIN] = "min",
        [TT_REDUCE_MAX] = "max", [TT_REDUCE_AVERAGE] = "avg", [TT_REDUCE_SCALED_SUM] = "scaled sum",
    };
    return (unsigned)op < TT_REDUCE_OPERATORS ? names[op] : "no operator";
}

void tt_op_describe(const struct tt_op *op, char *text, size_t bytes)
{
    const char *name = tt_function_name(op->function);
    const char *uneven = op->is_uneven ? "V" : "";
    char count[48] = "";
    if (tt_op_has_count(op)) {
        (void)snprintf(count, sizeof count, "count %zu, ", op->count);
    }
    char rest[48] = "";
    switch (op->function) {
    case TT_ALL_REDUCE:
    case TT_REDUCE_SCATTER:
        (void)snprintf(rest, sizeof rest, ", %s", operator_name(op->op));
        break;
    case TT_REDUCE:
        (void)snprintf(rest, sizeof rest, ", %s, root %d", operator_name(op->op), op->root);
        break;
    case TT_BROADCAST:
    case TT_GATHER:
    case TT_SCATTER:
        (void)snprintf(rest, sizeof rest, ", root %d", op->root);
        break;
    case TT_SEND:
    case TT_PUT_SIGNAL:
        (void)snprintf(rest, sizeof rest, ", to rank %d", op->root);
        break;
    case TT_RECV:
        (void)snprintf(rest, sizeof rest, ", from rank %d", op->root);
        break;
    case TT_SIGNAL:
        (void)snprintf(text, bytes, "%s(to rank %d)", name, op->root);
        return;
    case TT_WAIT_SIGNAL:
        (void)snprintf(rest, sizeof rest, op->root < 0 ? "several ranks" : "rank %d", op->root);
        (void)snprintf(text, bytes, "%s(%zu signal%s, from %s)", name, op->count,
                       op->count == 1 ? "" : "s", rest);
        return;
    default:
        break;
    }
    (void)snprintf(text, bytes, "%s%s(%s%s%s)", name, uneven, count, type_name(op->type), rest);
}

// Bytes of `elements`; as many as there can be where that is more.
static size_t bytes_of(const struct tt_op *op, size_t elements)
{
    size_t bytes = 0;
    return __builtin_mul_overflow(elements, tt_type_bytes(op->type), &bytes) ? SIZE_MAX : bytes;
}

static size_t times(size_t count, int nranks)
{
    size_t product = 0;
    return __builtin_mul_overflow(count, (size_t)nranks, &product) ? SIZE_MAX : product;
}

// Where the last of the ranks' parts ends.
static size_t end_of(const size_t *count, const size_t *first, int nranks)
{
    size_t end = 0;
    for (int q = 0; count != NULL && q < nranks; q++) {
        size_t last = 0;
        if (count[q] == 0) {
            continue;
        }
        if (__builtin_add_overflow(first == NULL ? 0 : first[q], count[q], &last)) {
            return SIZE_MAX;
        }
        end = last > end ? last : end;
    }
    return end;
}

size_t tt_op_send_bytes(const struct tt_op *op, int rank, int nranks)
{
    const struct tt_uneven *uneven = &op->uneven;
    bool is_root = rank == op->root;
    switch (op->function) {
    case TT_ALL_REDUCE:
    case TT_REDUCE:
    case TT_GATHER:
    case TT_SEND:
    case TT_PUT_SIGNAL:
        return bytes_of(op, op->count);
    case TT_BROADCAST:
        return is_root ? bytes_of(op, op->count) : 0;
    case TT_ALL_GATHER:
        return bytes_of(op, op->is_uneven ? uneven->recv_count[rank] : op->count);
    case TT_SCATTER:
        if (!is_root) {
            return 0;
        }
        __attribute__((fallthrough));
    case TT_REDUCE_SCATTER:
    case TT_ALL_TO_ALL:
        return bytes_of(op, op->is_uneven ? end_of(uneven->send_count, uneven->send_first, nranks)
                                          : times(op->count, nranks));
    default:
        return 0;
    }
}

size_t tt_op_recv_bytes(const struct tt_op *op, int rank, int nranks)
{
    const struct tt_uneven *uneven = &op->uneven;
    bool is_root = rank == op->root;
    switch (op->function) {
    case TT_ALL_REDUCE:
    case TT_BROADCAST:
    case TT_SCATTER:
    case TT_RECV:
        return bytes_of(op, op->count);
    case TT_REDUCE:
        return is_root ? bytes_of(op, op->count) : 0;
    case TT_REDUCE_SCATTER:
        return bytes_of(op, op->is_uneven ? uneven->send_count[rank] : op->count);
    case TT_GATHER:
        if (!is_root) {
            return 0;
        }
        __attribute__((fallthrough));
    case TT_ALL_GATHER:
    case TT_ALL_TO_ALL:
        return bytes_of(op, op->is_uneven ? end_of(uneven->recv_count, uneven->recv_first, nranks)
                                          : times(op->count, nranks));
    default:
        return 0;
    }
}
