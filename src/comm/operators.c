// See operators.h. As with all of a communicator, one thread at a time calls. SPDX-License-Identifier: Apache-2.0
#include "comm/operators.h"

#include "base/log.h"
#include "comm/comm.h"

#include <limits.h>
#include <stdlib.h>

struct tt_operators {
    size_t count, capacity;
    struct tt_operator *list;
};

// The next handle of the process: one that belongs to another communicator, or is destroyed, is
// recognised.
static _Atomic unsigned next_handle;

static ncclRedOp_t take_handle(void)
{
    unsigned number = atomic_fetch_add_explicit(&next_handle, 1, memory_order_relaxed);
    return (ncclRedOp_t)(ncclNumOps + number % (INT_MAX - ncclNumOps));
}

ncclResult_t tt_operator_add(struct ncclComm *comm, struct tt_operator *operator_in_out)
{
    struct tt_operators *operators = comm->operators;
    if (operators == NULL) {
        operators = comm->operators = calloc(1, sizeof *operators);
    }
    if (operators != NULL && operators->count == operators->capacity) {
        size_t capacity = operators->capacity == 0 ? 4 : 2 * operators->capacity;
        struct tt_operator *list = realloc(operators->list, capacity * sizeof *list);
        if (list == NULL) {
            operators = NULL;
        } else {
            operators->list = list;
            operators->capacity = capacity;
        }
    }
    if (operators == NULL) {
        return tt_fail(ncclSystemError, "rank %d: no memory for another operator", comm->rank);
    }
    operator_in_out->handle = take_handle();
    operators->list[operators->count++] = *operator_in_out;
    return ncclSuccess;
}

// Its place in the list; the count where it is not there.
static size_t place_of(const struct tt_operators *operators, ncclRedOp_t handle)
{
    size_t i = 0;
    while (i < operators->count && operators->list[i].handle != handle) {
        i++;
    }
    return i;
}

const struct tt_operator *tt_operator_find(const struct ncclComm *comm, ncclRedOp_t handle)
{
    const struct tt_operators *operators = comm->operators;
    size_t place = operators == NULL ? 0 : place_of(operators, handle);
    return operators == NULL || place == operators->count ? NULL : &operators->list[place];
}

bool tt_operator_remove(struct ncclComm *comm, ncclRedOp_t handle)
{
    struct tt_operators *operators = comm->operators;
    size_t place = operators == NULL ? 0 : place_of(operators, handle);
    if (operators == NULL || place == operators->count) {
        return false;
    }
    operators->list[place] = operators->list[--operators->count];
    return true;
}

void tt_operators_free(struct tt_operators *operators)
{
    if (operators != NULL) {
        free(operators->list);
    }
    free(operators);
}
