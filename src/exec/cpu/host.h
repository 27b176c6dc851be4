// One rank's part in the host team: the ranks of a communicator on one machine, which work through
// an arena (arena.h).
//
// A rank does one thing at a time in a communicator, in the order of its calls: it gets its *turn*,
// and nothing else of the rank begins before tt_host_end. Collectives then *enter* the next
// operation of the team: they write their entry, wait for everybody's, compare signatures, and only
// then touch data; where memory of others is read or written, they *leave*, and wait for all to
// have left. Sequence numbers are taken here, when work runs, so that a graph can be launched again
// and again. Nothing here blocks: callers look again.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXEC_CPU_HOST_H
#define TT_EXEC_CPU_HOST_H

#include "exec/cpu/arena.h"
#include "exec/executor.h"
#include "plan/select.h"
#include "record/record.h"

enum tt_progress { TT_DONE, TT_WAITING, TT_FAILED }; // failed: the communicator is, see async_error

struct tt_buffers;       // buffers.h: other processes' memory, and what they know of ours
struct tt_run;           // run.h: the running plan
struct tt_uneven_tables; // uneven.h
struct tt_plan_cache;

// How long something has been waited for.
struct tt_watch {
    uint64_t start_ns, next_report_ns; // 0: the clock has not been looked at
    uint64_t next_circle_ns;
    uint32_t looks;
};

struct tt_host {
    struct tt_team team; // as it was joined
    int rank, nranks;
    struct tt_arena *arena;
    const struct tt_choice *choice; // of algorithms
    uint64_t limit_ns;              // after which a wait is an error; 0: never
    int lanes;                      // that a rank can use; equal on all ranks; 0: not known yet
    bool is_one_process;            // all ranks are; known with `lanes`
    bool checks;                    // calls are compared (TUTTI_CHECK_CALLS); equal on all ranks
    struct tt_host *next;           // circle.c's
    _Atomic uint64_t queued;        // the turn that `behind` in the arena is of
    _Atomic int references;
    // The communicator has ended: nothing begins any more. Set before `inside` is looked at.
    _Atomic bool closed;
    // enum tt_end: nothing is called any more, and launches of graphs are left out. Set before
    // `launches` in the arena is looked at.
    _Atomic uint32_t ends;

    // Turns. Any thread.
    _Alignas(64) _Atomic uint64_t calls; // turns given
    _Atomic uint64_t calls_done;         // turns that have ended, in order (acquire, release)
    _Atomic uint32_t inside;             // work that looks whether it may begin, or has begun

    _Atomic uint64_t
        given_up_ns; // when this rank began to wait for the others' work; 0: it does not

    // Of the thread that calls: the last work that was captured, so that the next one of the same
    // graph comes behind it (task.c).
    unsigned long long capture_id;
    cudaStream_t capture_stream;
    cudaEvent_t captured;

    struct tt_record *record; // the flight recorder's

    // Of whoever has the turn.
    struct tt_record_line *line; // the running operation's in it
    uint64_t sequence;           // the last operation that was entered
    uint64_t word;               // what this rank's entry into it says (arena.h)
    int met, gone;               // ranks that were seen to enter it, to leave it: all below these
    int late;                    // the rank that this one waited for last to enter it; -1: for none
    struct tt_watch watch;
    struct tt_buffers *buffers;
    struct tt_run *run;         // NULL until there is a collective
    const struct tt_plan *plan; // of the last operation, from `plans`
    struct tt_plan_cache *plans;
    struct tt_uneven_tables *uneven; // NULL until there is an uneven operation
};

// Joins the team: one for each rank, one reference. Local. The arena is held until it ends.
ncclResult_t tt_host_join(const struct tt_team *team, struct tt_host **host_out);
void tt_host_hold(struct tt_host *host);
void tt_host_release(struct tt_host *host);
// Nothing is called any more: launches of graphs are left out from now on, and ranks that wait for
// this one fail once all that was called and launched before is over. end: TT_FINALIZED,
// TT_DESTROYED.
void tt_host_finish(struct tt_host *host, enum tt_end end);
// The same, and waits for it. Once it has waited 10 s for ranks that have called nothing to come
// with, the communicator fails. Of a communicator that has failed only what has begun is waited
// for. False: that has not ended in 10 s, and uses the team's pointers for ever. *gave_up_out:
// whether some of what was called or launched was given up.
bool tt_host_drain(struct tt_host *host, bool *gave_up_out);
// Ends this rank's part: drains it where nobody has done so. The reference of the join goes.
void tt_host_part(struct tt_host *host);

// ---- Turns --------------------------------------------------------------------------------------

// The next turn, for work that is called now. Work of a graph has none: 0.
uint64_t tt_host_call(struct tt_host *host);
// The last turn is not needed after all: nothing was called since.
void tt_host_uncall(struct tt_host *host);
// Whether everything called before has ended.
bool tt_host_is_idle(const struct tt_host *host);
// TT_DONE: the work has its turn now and must call tt_host_end. turn: of tt_host_call, or 0: as
// soon as nothing runs. TT_FAILED: the communicator has failed or ended; do nothing (a call's turn
// is then over).
enum tt_progress tt_host_begin(struct tt_host *host, uint64_t turn);
void tt_host_end(struct tt_host *host, uint64_t turn);
// Work of a graph is launched; false: too late, it is to be left out. True: until tt_host_landed.
bool tt_host_launch(struct tt_host *host);
void tt_host_landed(struct tt_host *host);
// Work will not go on, as its device has failed or was reset, with this error: the communicator
// fails (tt_team.device_error). has_begun: it has its turn, which ends.
void tt_host_drop(struct tt_host *host, uint64_t turn, bool has_begun, int device_error);

// For a call that is made now, where nothing else was called and has not ended: it has its turn.
// False: something runs, of a graph perhaps. tt_host_give ends it; or tt_host_keep makes it one
// with a turn that tt_host_end ends, for work that others go on with.
bool tt_host_take(struct tt_host *host);
void tt_host_give(struct tt_host *host);
uint64_t tt_host_keep(struct tt_host *host);

// ---- Operations of the team, for whoever has the turn -------------------------------------------

// Enters the next operation. entry: everything but the word; signature: 40 bits are compared; 0,
// on all ranks, where calls are not (tt_host.checks).
void tt_host_enter(struct tt_host *host, const struct tt_entry *entry, uint64_t signature);
// Whether all have entered and mean the same. Where not, the communicator fails on all ranks with a
// text that names both calls.
enum tt_progress tt_host_meet(struct tt_host *host);
// The entry of a rank into the running operation, after tt_host_meet.
static inline const struct tt_entry *tt_host_entry(const struct tt_host *host, int rank)
{
    return tt_arena_entry(host->arena, rank, host->sequence);
}
// This rank touches no memory of others in the running operation any more.
void tt_host_leave(struct tt_host *host);
// Whether all have left.
enum tt_progress tt_host_all_left(struct tt_host *host);

// One more signal for rank `peer` in the running operation, and whether `peer` has given this rank
// `number` of them in it. channel: below TT_CHANNELS. Everything before the signal happens before
// everything after the wait.
void tt_host_signal(struct tt_host *host, int peer, int channel);
bool tt_host_signalled(const struct tt_host *host, int peer, int channel, uint32_t number);

// ---- Waiting and failing ------------------------------------------------------------------------

// What to do between two looks at something that has not come. To be called after each.
enum tt_news {
    TT_GO_ON,
    TT_REPORT, // it is late: say for what, naming ranks (10 s, then doubling)
    TT_LIMIT,  // TUTTI_TIMEOUT has passed: fail
    TT_OVER,   // the communicator is aborted or has failed: give up
};
enum tt_news tt_host_wait(struct tt_host *host, struct tt_watch *watch);
// Whether the communicator is aborted or has failed, on whichever rank.
bool tt_host_is_over(struct tt_host *host);
// Work of this rank has failed, and touches nothing any more; it does not begin anything else. The
// program may free the memory that it gave once the others do not work with it any more either:
// they have failed too, or will have in a moment. False: some of them work; look again. True after
// half a second whatever they do, and of those whose process has died.
void tt_host_give_up(struct tt_host *host);
bool tt_host_is_let_go(struct tt_host *host);
// Seconds that the watch has run.
uint64_t tt_watch_seconds(const struct tt_watch *watch);

// What a rank has done with the communicator, "destroyed" or "finalized"; NULL: neither. It enters
// nothing any more, and what it did before is visible.
const char *tt_host_departure(const struct tt_host *host, int rank);

// The communicator fails on all ranks of the machine: their waits end. The first failure stays; its
// text, which begins with "rank N: ", is every rank's. Returns `result`.
ncclResult_t tt_host_fail(struct tt_host *host, ncclResult_t result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// The same with the text of this thread's last tt_fail.
ncclResult_t tt_host_fail_again(struct tt_host *host, ncclResult_t result);

// "AllReduce(count 1024, float32, sum)" of a call.
void tt_call_describe(const struct tt_call *call, char *text, size_t bytes);
// "AllReduce(count 1024, float32, sum) #17 on NAME": the running operation, as this rank was asked
// for it.
void tt_host_describe_own(const struct tt_host *host, char *text, size_t bytes);
// "its last operation was ... #16", or that it has entered none.
void tt_host_describe_last(const struct tt_host *host, int rank, char *text, size_t bytes);

#endif
