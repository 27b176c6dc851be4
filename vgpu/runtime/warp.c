// Warp meetings: __syncwarp, and the exchange under shuffles, ballots and reductions; __activemask.
//
// Lanes meet by mask: those that wait with different masks are separate meetings. A meeting keeps
// the values of two rounds, since a lane may bring its next value before the slowest has read the
// last. Compiled without the thread sanitizer, which is told. SPDX-License-Identifier: Apache-2.0
#include "block.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOT_BYTES = 16 };

struct vgpu_meeting {
    unsigned mask;
    unsigned arrived;      // of the round that is open
    unsigned unread;       // lanes of the last round that have not taken its result
    unsigned round;        // parity: which values are the open round's
    unsigned last_arrived; // of the last round
    struct vgpu_thread *waiting[VGPU_WARP_THREADS];
    struct vgpu_meeting *next;
    _Alignas(64) char value[2][VGPU_WARP_THREADS][SLOT_BYTES];
};

void vgpu_warp_begin(struct vgpu_block *block)
{
    unsigned left = block->thread_count;
    for (int i = 0; left > 0; i++) {
        unsigned lanes = left < VGPU_WARP_THREADS ? left : VGPU_WARP_THREADS;
        block->warp[i].live = lanes == VGPU_WARP_THREADS ? ~0u : (1u << lanes) - 1;
        block->warp[i].open = 0;
        block->warp[i].gathering.first = NULL;
        for (struct vgpu_meeting *m = block->warp[i].meetings; m; m = m->next) {
            m->arrived = 0;
            m->unread = 0;
        }
        left -= lanes;
    }
}

void vgpu_warp_free(struct vgpu_block *block)
{
    for (int i = 0; i < VGPU_BLOCK_WARPS; i++) {
        while (block->warp[i].meetings) {
            struct vgpu_meeting *next = block->warp[i].meetings->next;
            free(block->warp[i].meetings);
            block->warp[i].meetings = next;
        }
    }
}

// The warp's meeting for the mask: the one where lanes wait or have yet to read, or one at rest.
static struct vgpu_meeting *find_meeting(struct vgpu_warp *warp, unsigned mask)
{
    struct vgpu_meeting *at_rest = NULL;
    for (struct vgpu_meeting *m = warp->meetings; m; m = m->next) {
        if (m->mask == mask) {
            return m;
        }
        if (m->arrived == 0 && m->unread == 0) {
            at_rest = m;
        }
    }
    if (!at_rest) {
        at_rest = aligned_alloc(64, sizeof(*at_rest));
        if (!at_rest) {
            vgpu_fault(cudaErrorLaunchOutOfResources, "no memory for a warp's exchange");
        }
        memset(at_rest, 0, sizeof(*at_rest));
        at_rest->next = warp->meetings;
        warp->meetings = at_rest;
        vgpu_order_release(at_rest);
    }
    at_rest->mask = mask;
    return at_rest;
}

// Ends the open round: everybody who waits is ready.
static void close_round(struct vgpu_block *block, struct vgpu_warp *warp,
                        struct vgpu_meeting *meeting, struct vgpu_thread *self)
{
    unsigned arrived = meeting->arrived;
    for (unsigned left = arrived; left; left &= left - 1) {
        struct vgpu_thread *thread = meeting->waiting[__builtin_ctz(left)];
        if (thread != self) {
            vgpu_thread_append(&block->ready, thread);
        }
    }
    meeting->last_arrived = arrived;
    meeting->unread = arrived;
    meeting->arrived = 0;
    meeting->round ^= 1;
    memset(meeting->value[meeting->round], 0, sizeof(meeting->value[0]));
    block->progress++;
    (void)warp;
}

void vgpu_warp_thread_ended(struct vgpu_block *block, const struct vgpu_thread *thread)
{
    struct vgpu_warp *warp = &block->warp[thread->linear / VGPU_WARP_THREADS];
    warp->live &= ~(1u << thread->linear % VGPU_WARP_THREADS);
    if (warp->open == 0) {
        return;
    }
    for (struct vgpu_meeting *m = warp->meetings; m; m = m->next) {
        if (m->arrived && m->arrived == (m->mask & warp->live)) {
            warp->open--;
            close_round(block, warp, m, NULL);
        }
    }
}

// Meets the live lanes of the mask. Returns the meeting; *round_out: the parity of its values.
static inline struct vgpu_meeting *meet(struct vgpu_thread *thread, const char *what, unsigned mask,
                                        const void *value, size_t bytes, void *caller)
{
    struct vgpu_block *block = thread->block;
    struct vgpu_warp *warp = &block->warp[thread->linear / VGPU_WARP_THREADS];
    unsigned lane = thread->linear % VGPU_WARP_THREADS;
    if (__builtin_expect(!(mask >> lane & 1), 0)) {
        vgpu_fault(cudaErrorLaunchFailure, "%s: mask 0x%08x lacks the calling lane, %u", what, mask,
                   lane);
    }
    struct vgpu_meeting *meeting = find_meeting(warp, mask);
    vgpu_order_acquire(meeting); // the values of two rounds ago have been read
    if (bytes > 0) {
        memcpy(meeting->value[meeting->round][lane], value, bytes);
    }
    vgpu_order_release(meeting);
    meeting->waiting[lane] = thread;
    meeting->arrived |= 1u << lane;
    if (meeting->arrived == (mask & warp->live)) {
        if (meeting->arrived != 1u << lane) {
            warp->open--;
        }
        close_round(block, warp, meeting, thread);
    } else {
        if (meeting->arrived == 1u << lane) {
            warp->open++;
        }
        thread->state = VGPU_THREAD_AT_WARP;
        thread->warp_mask = mask;
        thread->place = (uintptr_t)caller;
        vgpu_thread_wait(thread);
        thread->state = VGPU_THREAD_RUNNABLE;
    }
    meeting->unread &= ~(1u << lane);
    vgpu_order_acquire(meeting);
    return meeting;
}

static struct vgpu_thread *calling_thread(const char *what)
{
    struct vgpu_thread *thread = vgpu_current_thread;
    if (__builtin_expect(!thread, 0)) {
        (void)fprintf(stderr, "vgpu: %s was called outside a kernel\n", what);
        abort();
    }
    return thread;
}

void vgpu_syncwarp(unsigned mask)
{
    (void)meet(calling_thread("__syncwarp"), "__syncwarp", mask, NULL, 0,
               __builtin_return_address(0));
}

unsigned vgpu_warp_exchange(unsigned mask, const void *value, size_t bytes, void *lanes_out)
{
    struct vgpu_thread *thread = calling_thread("a warp exchange");
    if (bytes == 0 || bytes > SLOT_BYTES) {
        vgpu_fault(cudaErrorLaunchFailure, "a warp exchange of %zu bytes: must be 1 to %d", bytes,
                   SLOT_BYTES);
    }
    struct vgpu_meeting *meeting =
        meet(thread, "a warp exchange", mask, value, bytes, __builtin_return_address(0));
    // The round that this lane took part in is the last one until it arrives again.
    memcpy(lanes_out, meeting->value[meeting->round ^ 1], sizeof(meeting->value[0]));
    return meeting->last_arrived;
}

// ---- Lanes that are together --------------------------------------------------------------------

unsigned vgpu_active_mask(unsigned line)
{
    struct vgpu_thread *thread = calling_thread("__activemask");
    struct vgpu_block *block = thread->block;
    unsigned number = thread->linear / VGPU_WARP_THREADS;
    if (block->warp[number].live == 1u << thread->linear % VGPU_WARP_THREADS) {
        return block->warp[number].live;
    }
    // The line in front, so that calls are ordered as in the source wherever the compiler put them.
    thread->call = (uint64_t)line << 48 | ((uintptr_t)__builtin_return_address(0) & 0xffffffffffff);
    thread->warp_mask = 0;
    vgpu_thread_append(&block->warp[number].gathering, thread);
    block->gathering |= 1u << number;
    vgpu_thread_wait(thread);
    return thread->warp_mask;
}

// Takes those of the list out that are at the first call in the source: lanes further on wait for
// those behind them. Returns their lanes.
static unsigned take_hindmost(struct vgpu_thread_list *list, struct vgpu_thread_list *taken)
{
    uint64_t lowest = UINT64_MAX;
    for (const struct vgpu_thread *thread = list->first; thread; thread = thread->next) {
        lowest = thread->call < lowest ? thread->call : lowest;
    }
    struct vgpu_thread_list left = {NULL, NULL};
    unsigned lanes = 0;
    for (struct vgpu_thread *thread = list->first, *next; thread; thread = next) {
        next = thread->next;
        bool takes = thread->call == lowest;
        lanes |= takes ? 1u << thread->linear % VGPU_WARP_THREADS : 0;
        vgpu_thread_append(takes ? taken : &left, thread);
    }
    *list = left;
    return lanes;
}

void vgpu_warp_gathered(struct vgpu_block *block)
{
    for (unsigned warps = block->gathering; warps; warps &= warps - 1) {
        unsigned number = (unsigned)__builtin_ctz(warps);
        struct vgpu_thread_list *list = &block->warp[number].gathering;
        struct vgpu_thread_list taken = {NULL, NULL};
        unsigned lanes = take_hindmost(list, &taken);
        for (struct vgpu_thread *thread = taken.first; thread; thread = thread->next) {
            thread->warp_mask = lanes;
        }
        vgpu_thread_splice(&block->ready, &taken);
        block->gathering &= list->first ? ~0u : ~(1u << number);
    }
}
