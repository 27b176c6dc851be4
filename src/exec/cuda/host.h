// One rank's part in the host team on real GPUs: what it is joined from, how its ranks meet, how it
// ends and fails.
//
// Ranks meet on the host: the call of an operation that comes last launches it for all ranks of its
// *group*, the ranks of one process on one GPU. The other calls' streams wait for that launch.
// Between groups, on several GPUs or in several processes, either the kernels meet (barriers), or,
// where processes share a GPU without MPS and so their kernels do not run side by side, the streams
// do (words of the arena).
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXEC_CUDA_HOST_H
#define TT_EXEC_CUDA_HOST_H

#include "exec/cuda/arena.h"
#include "exec/cuda/group.h"
#include "exec/executor.h"

#include <pthread.h>

enum tt_way {
    TT_WAY_UNKNOWN,  // no operation yet
    TT_WAY_TOGETHER, // all ranks are one group: one launch
    TT_WAY_BARRIERS, // a launch for each group, whose kernels meet
    TT_WAY_STREAMS,  // a launch for each group, whose streams meet before and after
};

// What of an operation is waited for, and since when: of whoever looks.
struct tt_lateness {
    pthread_mutex_t mutex;
    uint64_t number, since_ns, next_report_ns;
    bool has_come;  // all have called it; its end is waited for
    uint32_t ended; // tt_words.met of the group, when it was looked at last
};

// How many blocks a launch takes, and for what that holds: asking takes several calls of CUDA.
struct tt_blocks {
    size_t tokens, hidden;
    ncclDataType_t data_type;
    int rank_count;
    bool barriers;
    unsigned blocks; // 0: nothing is known
};

// A call that waits for the others' at the end of its group.
struct tt_owed {
    struct tt_meeting *meeting;
    cudaStream_t stream;
    uint64_t patience_ns;
};

struct tt_host {
    struct tt_team team; // as it was joined; its arrays are copies
    struct tt_arena *arena;
    struct tt_group *group;
    int index;     // in the group
    bool compares; // calls are compared (TUTTI_CHECK_CALLS)

    // Of the thread that calls.
    enum tt_way way;
    int sharers;                  // most ranks of the team that one GPU has
    uint64_t patience_ns;         // that a call waits for the others'
    unsigned long long stream_id; // of the last call; 0: there was none
    struct tt_blocks blocks;      // of the last launch
    struct tt_owed *owed;
    int owed_count, owed_room;
    uint64_t captured;      // calls that are in graphs
    _Atomic uint64_t calls; // operations called, but for those that were captured
    // Behind the last operation whose end this rank's stream waits for by a word of the arena, or
    // that it launched alone.
    cudaEvent_t ended;
    _Atomic bool has_ended;
    struct tt_lateness late;
    _Atomic uint32_t ends; // enum tt_end: nothing is called any more
    bool is_drained;
};

// As the executor's functions of these names (executor.h).
ncclResult_t tt_host_join(const struct tt_team *team, struct tt_host **host_out);
// Of graphs it is not known when they are launched, nor when they have ended.
void tt_host_finalize(struct tt_host *host);
bool tt_host_drain(struct tt_host *host, bool *gave_up_out);
void tt_host_part(struct tt_host *host);
bool tt_host_is_over(struct tt_host *host);

// Fills way and sharers, once all ranks have joined. Says once for each GPU that processes share it
// without MPS.
ncclResult_t tt_host_choose_way(struct tt_host *host);
// Whether what the event is behind has yet to run; a device that has failed runs nothing.
bool tt_host_is_busy(const struct tt_host *host, cudaEvent_t event);
// Whether a rank is the first of its group.
bool tt_host_leads(const struct tt_host *host, int rank);

// The communicator fails on all ranks of the machine: their waits end. The first failure stays; its
// text, which begins with "rank N: ", is every rank's. Returns `result`.
ncclResult_t tt_host_fail(struct tt_host *host, ncclResult_t result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// The same with the text of this thread's last tt_fail.
ncclResult_t tt_host_fail_again(struct tt_host *host, ncclResult_t result);

// Tells the others what this rank calls, and compares it with what they called, as far as they
// have. False: the calls differ, and the communicator has failed. number: of tt_host.calls, or of
// the captured calls, which are compared with each other.
bool tt_host_tell(struct tt_host *host, const struct tt_rmsnorm *operation, uint64_t number,
                  bool captured);

// Whether all ranks have called what this one has: then operations wait for no rank any more, only
// for what is before them in streams.
bool tt_host_have_all_called(const struct tt_host *host);
// Lets this process's streams go on that wait for words of the arena. Only after a failure.
void tt_host_let_go(struct tt_host *host);
// Looks who or what is late: names it on stderr from 10 s on, and fails where TUTTI_TIMEOUT has
// passed or a rank has left.
void tt_host_look_for_late(struct tt_host *host);

// The fused operation, and what it leaves for the end of a group (executor.h).
ncclResult_t tt_fused_enqueue(const struct tt_rmsnorm *operation, cudaStream_t stream);
bool tt_fused_owes(void);
ncclResult_t tt_fused_settle(struct tt_host *host, bool may_wait);

#endif
