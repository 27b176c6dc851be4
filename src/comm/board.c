// See board.h. SPDX-License-Identifier: Apache-2.0
#include "comm/board.h"

#include "base/holdings.h"
#include "base/log.h"
#include "comm/board_internal.h"
#include "comm/comm.h"
#include "exec/executor.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; // guards the list
static struct tt_board *boards;

// ---- Places -------------------------------------------------------------------------------------
//   data [place][rank] | notes [rank] | reason | then, from a page's start on, what everybody uses,
//   a page for 8 ranks: head | desks [rank] | left [rank] | the arena

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static size_t notes_offset(int nranks)
{
    return (size_t)TT_BOARD_PLACES * (size_t)nranks * TT_BOARD_PIECE;
}

static size_t reason_offset(int nranks)
{
    return notes_offset(nranks) + (size_t)nranks * sizeof(struct tt_note);
}

static size_t head_offset(int nranks)
{
    return round_up(reason_offset(nranks) + TT_BOARD_REASON, PAGE);
}

static size_t left_offset(int nranks)
{
    return head_offset(nranks) + sizeof(struct tt_board_head) +
           (size_t)nranks * sizeof(struct tt_desk);
}

static size_t arena_offset(int nranks)
{
    return round_up(left_offset(nranks) + (size_t)nranks, 64);
}

static size_t board_bytes(int nranks)
{
    return round_up(arena_offset(nranks) + tt_executor->arena_bytes(nranks), PAGE);
}

struct tt_board_head *tt_board_head(const struct tt_board *board)
{
    return (struct tt_board_head *)(void *)(board->base + head_offset(board->nranks));
}

static char *reason_of(const struct tt_board *board)
{
    return board->base + reason_offset(board->nranks);
}

struct tt_desk *tt_board_desk(const struct tt_board *board, int rank)
{
    return (struct tt_desk *)(void *)(tt_board_head(board) + 1) + rank;
}

struct tt_note *tt_board_note(const struct tt_board *board, int rank)
{
    return (struct tt_note *)(void *)(board->base + notes_offset(board->nranks)) + rank;
}

_Atomic unsigned char *tt_board_left(const struct tt_board *board)
{
    return (_Atomic unsigned char *)(board->base + left_offset(board->nranks));
}

_Atomic uint64_t *tt_board_data(const struct tt_board *board, int rank, uint64_t step, size_t bytes)
{
    if (bytes <= TT_BOARD_SMALL) {
        return &tt_board_desk(board, rank)->small[step % TT_BOARD_PLACES];
    }
    size_t index = (size_t)(step % TT_BOARD_PLACES) * (size_t)board->nranks + (size_t)rank;
    return (_Atomic uint64_t *)(void *)(board->base + index * TT_BOARD_PIECE);
}

struct tt_arena *tt_board_arena(const struct tt_board *board)
{
    return board->arena;
}

struct tt_family *tt_board_family(const struct tt_board *board)
{
    return board->family;
}

int tt_board_process(const struct tt_board *board, int rank)
{
    return board->process[rank];
}

size_t tt_board_bytes(const struct tt_board *board)
{
    return board_bytes(board->nranks);
}

// ---- Life ---------------------------------------------------------------------------------------

// Nobody here has the room any more, the arena neither.
static void end_board(void *owner)
{
    struct tt_board *board = owner;
    munmap(board->base, board_bytes(board->nranks));
    tt_holdings_remove(TT_HOLD_MAPPINGS, board_bytes(board->nranks));
    tt_family_leave(board->family, board->slot.number);
    tt_family_release(board->family);
    free(board);
}

static ncclResult_t map_board(struct tt_board *board)
{
    uint64_t offset = tt_family_offset(board->slot.number);
    size_t bytes = board_bytes(board->nranks);
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                      tt_family_descriptor(board->family), (off_t)offset);
    if (base == MAP_FAILED) {
        return tt_fail(ncclSystemError, "%zu bytes that %d ranks share cannot be mapped: %m", bytes,
                       board->nranks);
    }
    board->base = base;
    struct tt_room room = {.base = board->base + arena_offset(board->nranks),
                           .descriptor = tt_family_descriptor(board->family),
                           .later = offset + bytes,
                           .leave = end_board,
                           .owner = board};
    ncclResult_t result = tt_executor->arena_map(&room, board->nranks, &board->arena);
    if (result != ncclSuccess) {
        munmap(base, bytes);
        return result;
    }
    tt_holdings_add(TT_HOLD_MAPPINGS, bytes);
    return ncclSuccess;
}

static ncclResult_t make_board(struct tt_family *family, struct tt_room_slot slot,
                               const int *process, int nranks, struct tt_board **board_out)
{
    struct tt_board *board = calloc(1, sizeof *board + (size_t)nranks * sizeof *process);
    if (board == NULL) {
        return tt_fail(ncclSystemError, "no memory for a communicator of %d ranks", nranks);
    }
    board->family = family;
    board->slot = slot;
    board->nranks = nranks;
    memcpy(board->process, process, (size_t)nranks * sizeof *process);
    ncclResult_t result = tt_family_join(family, slot);
    if (result == ncclSuccess) {
        result = map_board(board);
        if (result != ncclSuccess) {
            tt_family_leave(family, slot.number);
        }
    }
    if (result != ncclSuccess) {
        free(board);
        return result;
    }
    tt_family_hold(family);
    *board_out = board;
    return ncclSuccess;
}

ncclResult_t tt_board_open(struct tt_family *family, struct tt_room_slot slot, const int *process,
                           int nranks, struct tt_board **board_out)
{
    ncclResult_t result = ncclSuccess;
    pthread_mutex_lock(&mutex);
    struct tt_board *board = boards;
    while (board != NULL && (board->family != family || board->slot.number != slot.number ||
                             board->slot.turn != slot.turn)) {
        board = board->next;
    }
    if (board == NULL) {
        result = make_board(family, slot, process, nranks, &board);
        if (result == ncclSuccess) {
            board->next = boards;
            boards = board;
        }
    }
    if (result == ncclSuccess) {
        board->ranks++;
        *board_out = board;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

void tt_board_release(struct tt_board *board)
{
    if (board == NULL) {
        return;
    }
    pthread_mutex_lock(&mutex);
    bool last = --board->ranks == 0;
    if (last) {
        struct tt_board **at = &boards;
        while (*at != board) {
            at = &(*at)->next;
        }
        *at = board->next;
    }
    pthread_mutex_unlock(&mutex);
    if (last) {
        tt_executor->arena_release(board->arena); // graphs may keep it still: end_board
    }
}

// ---- Failing ------------------------------------------------------------------------------------

void tt_board_fail(struct tt_board *board, ncclResult_t result, int dead, const char *text)
{
    struct tt_board_head *head = tt_board_head(board);
    uint32_t mine = TT_FAILURE_OF + (uint32_t)tt_family_process(board->family), now = 0;
    while (!atomic_compare_exchange_strong(&head->failed, &now, mine)) {
        // Who died while he wrote it is replaced.
        if (now == TT_FAILURE_STANDS ||
            (now != 0 && !tt_family_is_dead(board->family, (int)(now - TT_FAILURE_OF)))) {
            return;
        }
    }
    head->result = (int32_t)result;
    head->dead = dead;
    (void)snprintf(reason_of(board), TT_BOARD_REASON, "%s", text);
    atomic_store_explicit(&head->failed, TT_FAILURE_STANDS, memory_order_release);
}

ncclResult_t tt_board_failure(const struct tt_board *board, int *dead_out, const char **text_out)
{
    const struct tt_board_head *head = tt_board_head(board);
    if (atomic_load_explicit(&head->failed, memory_order_acquire) != TT_FAILURE_STANDS) {
        return ncclSuccess;
    }
    if (dead_out != NULL) {
        *dead_out = head->dead;
    }
    if (text_out != NULL) {
        *text_out = reason_of(board);
    }
    return (ncclResult_t)head->result;
}

bool tt_board_has_died(const struct tt_board *board, int rank)
{
    return tt_family_is_dead(board->family, board->process[rank]) &&
           atomic_load_explicit(&tt_board_left(board)[rank], memory_order_acquire) == 0;
}

void tt_board_describe_death(const struct tt_board *board, int rank, char *text, size_t bytes)
{
    char host[64] = "?";
    (void)gethostname(host, sizeof host - 1);
    host[sizeof host - 1] = 0;
    (void)snprintf(text, bytes, "rank %d (process %d on %s) died, or ended without ncclCommDestroy",
                   rank, tt_family_pid(board->family, board->process[rank]), host);
}

ncclResult_t tt_board_look(const struct ncclComm *comm)
{
    struct tt_board *board = comm->board;
    bool has_deaths = tt_family_has_deaths(board->family);
    for (int r = 0; has_deaths && r < board->nranks; r++) {
        char text[300];
        if (tt_board_has_died(board, r)) {
            tt_board_describe_death(board, r, text, sizeof text);
            tt_board_fail(board, ncclRemoteError, r, text);
            break;
        }
    }
    return tt_board_failure(board, NULL, NULL);
}
