// Which elements of whose buffers a problem is about: the one place that knows each function's
// shape, even and uneven, for algorithms, the checker and whoever sizes buffers.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_PLAN_PARTS_H
#define TT_PLAN_PARTS_H

#include "plan/plan.h"

#include <stdbool.h>
#include <stddef.h>

// Elements [first, first + count) of a buffer.
struct tt_part {
    size_t first, count;
};

// Where in rank `from`'s send buffer that lies which is for rank `to`: all of it for functions that
// treat all ranks alike. Count 0 where there is nothing.
struct tt_part tt_part_sent(const struct tt_problem *problem, int from, int to);
// Where in rank `by`'s receive buffer that lies which comes from rank `from`: all of it where
// results come from all ranks together, or from the root. Count 0 where there is nothing.
struct tt_part tt_part_received(const struct tt_problem *problem, int by, int from);

// Elements that rank has in its send, its receive buffer; 0 where it has none.
size_t tt_problem_send_count(const struct tt_problem *problem, int rank);
size_t tt_problem_recv_count(const struct tt_problem *problem, int rank);

// In place: elements from the beginning of the memory that both buffers share to where rank's send
// and receive buffer begin; one of the two is 0. False where the function has no in-place form.
bool tt_in_place_first(const struct tt_problem *problem, int rank, size_t *send_out,
                       size_t *recv_out);

// "AllReduce of 1000 elements of 4 bytes, 4 ranks": always ended by a null byte.
void tt_problem_describe(const struct tt_problem *problem, char *text, size_t bytes);

#endif
