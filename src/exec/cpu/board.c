// Entering, comparing, leaving; see board.h.
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/board.h"

#include "base/log.h"
#include "base/wait.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <vgpu/device_runtime.h>

// A rank that is this late is named, and again each time the wait has doubled. It is no error.
static const uint64_t late_ns = UINT64_C(10000000000);
// Looks between two looks at the clock. Between two looks a worker may sleep a millisecond or more.
enum { LOOKS_PER_CLOCK = 64 };

// Whether waiting is pointless: the communicator is aborted or has failed.
static bool has_ended(const struct tt_board *board)
{
    int error = atomic_load_explicit(board->async_error, memory_order_acquire);
    return (error != ncclSuccess && error != ncclInProgress) ||
           (board->abort_flag != NULL &&
            atomic_load_explicit(board->abort_flag, memory_order_acquire) != 0);
}

// A word that each rank writes into its line on this rank's board, once it has got so far.
struct step {
    size_t offset; // in struct tt_board_line
    const char *name;
};
static const struct step enter_step = {offsetof(struct tt_board_line, entered), "enter"};
static const struct step leave_step = {offsetof(struct tt_board_line, left), "finish"};

static bool has_come(const struct tt_meeting *meeting, int writer, const struct step *step)
{
    char *line = (char *)tt_board_line(meeting->board, meeting->rank, writer);
    const _Atomic uint64_t *word = (const _Atomic uint64_t *)(void *)(line + step->offset);
    // A2: pairs with R1 and R2 (the writer's release stores).
    return atomic_load_explicit(word, memory_order_acquire) >= meeting->number;
}

// One line that names all ranks that are late.
static void report_late(const struct tt_meeting *meeting, const struct step *step,
                        uint64_t waited_ns)
{
    char ranks[200] = "";
    size_t used = 0;
    int count = 0;
    for (int peer = 0; peer < meeting->nranks; peer++) {
        if (has_come(meeting, peer, step)) {
            continue;
        }
        if (used + 16 < sizeof ranks) {
            used += (size_t)snprintf(ranks + used, sizeof ranks - used, "%s%d",
                                     count > 0 ? ", " : "", peer);
        }
        count++;
    }
    const char *comm_name = meeting->board->comm_name;
    tt_say("rank %d: %s #%" PRIu64 " on %s: waiting for %d of %d to %s: %s, for %" PRIu64
           " s so far",
           meeting->rank, meeting->name, meeting->number, comm_name == NULL ? "?" : comm_name,
           count, meeting->nranks, step->name, ranks, waited_ns / 1000000000);
}

// Whether `writer` will never come: it has left. Its last words are visible then.
static bool will_never_come(const struct tt_meeting *meeting, int writer, const struct step *step)
{
    const struct tt_board *board = meeting->board;
    if (board->has_left == NULL ||
        atomic_load_explicit(&board->has_left[writer], memory_order_acquire) == 0 ||
        has_come(meeting, writer, step)) {
        return false;
    }
    int none = ncclSuccess;
    if (atomic_compare_exchange_strong(board->async_error, &none, ncclRemoteError)) {
        char text[320];
        (void)snprintf(text, sizeof text,
                       "rank %d: %s #%" PRIu64 " on %s: rank %d has destroyed the communicator and "
                       "will never %s it",
                       meeting->rank, meeting->name, meeting->number,
                       board->comm_name == NULL ? "?" : board->comm_name, writer, step->name);
        (void)tt_fail(ncclRemoteError, "%s", text);
        tt_say("%s; end the communicator with ncclCommAbort", text);
    }
    return true;
}

// Waits until rank `writer` has made the step of this meeting. False: it never will, or the
// communicator has ended before.
static bool wait_for(const struct tt_meeting *meeting, int writer, const struct step *step)
{
    if (has_come(meeting, writer, step)) {
        return true;
    }
    uint64_t start_ns = tt_now_ns(), next_report_ns = late_ns;
    for (unsigned look = 1; !has_come(meeting, writer, step); look++) {
        if (has_ended(meeting->board) || will_never_come(meeting, writer, step)) {
            return false;
        }
        vgpu_yield();
        if (look % LOOKS_PER_CLOCK != 0 || !meeting->speaks) {
            continue;
        }
        uint64_t waited_ns = tt_now_ns() - start_ns;
        if (waited_ns >= next_report_ns) {
            report_late(meeting, step, waited_ns);
            next_report_ns *= 2;
        }
    }
    return true;
}

bool tt_meeting_enter(const struct tt_meeting *meeting, const struct tt_claim *claim)
{
    const struct tt_board *board = meeting->board;
    struct tt_board_local *local = tt_board_local(board, meeting->rank);
    // The operation before ends by itself, also when aborted; only then may its lines be written
    // anew.
    while (atomic_load_explicit(&local->done, memory_order_acquire) + 1 < meeting->number) {
        vgpu_yield();
    }
    // After a disagreement nothing may be written: a peer may still be comparing the lines.
    if (has_ended(board)) {
        return false;
    }
    if (atomic_exchange_explicit(&local->begun, meeting->number, memory_order_acq_rel) !=
        meeting->number) {
        for (int peer = 0; peer < meeting->nranks; peer++) {
            struct tt_board_line *line = tt_board_line(board, peer, meeting->rank);
            line->claim = *claim;
            // R1: what this rank wrote before (its input among it) is visible to who reads the
            // number.
            atomic_store_explicit(&line->entered, meeting->number, memory_order_release);
        }
    }
    for (int peer = 0; peer < meeting->nranks; peer++) {
        if (!wait_for(meeting, peer, &enter_step)) {
            return false;
        }
    }
    return true;
}

// The first field in which two claims differ, as text; NULL where they agree.
static const char *difference(const struct tt_claim *mine, const struct tt_claim *theirs,
                              char *text, size_t text_bytes)
{
    const struct {
        const char *name;
        uint64_t mine, theirs;
    } field[] = {
        {"tokens", mine->tokens, theirs->tokens},
        {"hidden", mine->hidden, theirs->hidden},
        {"datatype", mine->data_type, theirs->data_type},
        {"sendbuff's window", mine->input_window, theirs->input_window},
        {"sendbuff's offset", mine->input_offset, theirs->input_offset},
        {"recvbuff's window", mine->output_window, theirs->output_window},
        {"recvbuff's offset", mine->output_offset, theirs->output_offset},
        {"gamma given", mine->has_gamma, theirs->has_gamma},
        {"residual given", mine->has_residual, theirs->has_residual},
    };
    for (size_t i = 0; i < sizeof field / sizeof field[0]; i++) {
        if (field[i].mine != field[i].theirs) {
            (void)snprintf(text, text_bytes, "%s is %" PRIu64 " here and %" PRIu64 " there",
                           field[i].name, field[i].mine, field[i].theirs);
            return text;
        }
    }
    if (mine->eps < theirs->eps || mine->eps > theirs->eps) {
        (void)snprintf(text, text_bytes, "eps is %g here and %g there", (double)mine->eps,
                       (double)theirs->eps);
        return text;
    }
    return NULL;
}

bool tt_meeting_agrees(const struct tt_meeting *meeting, const struct tt_claim *claim)
{
    const struct tt_board *board = meeting->board;
    char text[160];
    for (int peer = 0; peer < meeting->nranks; peer++) {
        const struct tt_claim *theirs = &tt_board_line(board, meeting->rank, peer)->claim;
        if (difference(claim, theirs, text, sizeof text) == NULL) {
            continue;
        }
        int none = ncclSuccess;
        if (atomic_compare_exchange_strong(board->async_error, &none, ncclInvalidUsage)) {
            (void)tt_fail(ncclInvalidUsage,
                          "rank %d: %s #%" PRIu64 ": the call of rank %d differs: %s",
                          meeting->rank, meeting->name, meeting->number, peer, text);
        }
        return false;
    }
    return true;
}

void tt_meeting_leave(const struct tt_meeting *meeting, unsigned block_count, bool failed)
{
    const struct tt_board *board = meeting->board;
    struct tt_board_local *local = tt_board_local(board, meeting->rank);
    if (atomic_fetch_add_explicit(&local->blocks_done, 1, memory_order_acq_rel) + 1 !=
        block_count) {
        return;
    }
    for (int peer = 0; peer < meeting->nranks; peer++) {
        // R2: the results that this rank stored are visible to who reads the number.
        atomic_store_explicit(&tt_board_line(board, peer, meeting->rank)->left, meeting->number,
                              memory_order_release);
    }
    for (int peer = 0; peer < meeting->nranks && !failed; peer++) {
        failed = !wait_for(meeting, peer, &leave_step);
    }
    atomic_store_explicit(&local->next_token, 0, memory_order_relaxed);
    atomic_store_explicit(&local->blocks_done, 0, memory_order_relaxed);
    atomic_store_explicit(&local->done, meeting->number, memory_order_release);
}
