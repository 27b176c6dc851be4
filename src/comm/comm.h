// The communicator: what every part may know of it, and its life.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_COMM_H
#define TT_COMM_H

#include "nccl.h"
#include "nccl_device.h"
#include "topology/peer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tt_arena;
struct tt_board;
struct tt_bootstrap;
struct tt_local;
struct tt_windows;
struct tt_host;
struct tt_operators;
struct tt_registrations;
struct tt_shrinks;

enum tt_comm_state { TT_COMM_INIT, TT_COMM_READY, TT_COMM_FINALIZED, TT_COMM_FAILED };

// A child while it is being made.
struct tt_making {
    struct ncclComm *parent;
    uint64_t tag;       // of the child on the parent's board
    const int *members; // [count] ranks of the parent, in the child's order
    int count;
    bool of_survivors; // the parent may have failed
};

struct ncclComm {
    uint64_t magic_start; // TT_COMM_MAGIC while alive
    int rank, nranks;
    int cuda_device;
    ncclConfig_t config;      // negotiated
    char name[64];            // config.commName or "comm-<hash>"
    uint64_t hash;            // identifies the communicator, equal on all its ranks
    _Atomic int state;        // enum tt_comm_state
    _Atomic int async_error;  // ncclResult_t; set once, by tt_comm_fail or the executor
    _Atomic int device_error; // cudaError_t: the device has dropped work of this rank
    bool is_ending;           // ncclCommDestroy ends it: handles.c's mutex
    _Atomic bool is_aborted;  // by ncclCommAbort
    _Atomic int under_way;    // groups that go on in the background with calls on it
    _Atomic int told;         // 1 while failure_text is written, then 2: it stands
    char *failure_text;       // why async_error is set; release by `told`
    // Abort: the host flag that waits watch, and the same word in memory that kernels read (mapped
    // pinned memory). 0: go on; 1: aborted or failed; NCCL_ABORT_FLAG_DEATH + r: rank r died.
    // Behind it the bits of members of the LSA team that have left
    // (nccl_device/impl/comm__types.h).
    _Atomic uint32_t *abort_flag; // host address
    uint32_t *abort_flag_device;  // device address of the same word
    struct tt_peer *peers;        // [nranks] once it has joined, `local` owns them
    // LSA team: consecutive ranks, size the gcd of ranks per host (NCCL_LSA_TEAM_SIZE overrides).
    int lsa_rank, lsa_size; // this rank's place; team's first world rank is rank - lsa_rank
    bool peer_access;       // every member of the team can map every other's memory
    // Where its ranks meet (meet.h). NULL: it is a child, or a rank alone; there is no memory that
    // all its ranks share.
    struct tt_bootstrap *bootstrap;
    struct tt_board *board;
    _Atomic bool has_reported;      // its own failure on the board: what is there is no news
    const struct tt_making *making; // NULL: it is made, or no child
    struct ncclComm *child;         // that is being made of it; NULL: none
    struct tt_shrinks *shrinks;     // of ncclCommShrink; NULL until the first
    struct tt_local
        *local; // ranks of this communicator in this process, and descriptors to other processes
    struct tt_windows *windows;     // owned by src/window; NULL until the first window
    struct tt_host *host;           // executor's part (team.c); NULL: there is no team
    struct tt_arena *arena;         // of the team: the board's, or its own where there is none
    uint32_t ruled_out[2];          // functions that NCCL_ALGO, NCCL_PROTO leave no way to do,
                                    // even and uneven: bits 1 << enum tt_function
    cudaStream_t checked_stream;    // the last one that a call found right
    struct tt_operators *operators; // of ncclRedOpCreatePreMulSum; NULL until the first
    _Atomic int users;              // calls inside this communicator now; freed only when 0
    _Atomic int lookers;            // of them, looks of the thread that watches
    bool holds_launch; // of tuttiCommInit: its launcher's service ends with the last one
    // Of ncclCommRegister; NULL: none.
    struct tt_registrations *registrations;
    uint64_t magic_end;
};

#define TT_COMM_MAGIC UINT64_C(0x7475747469636f6d)

// Its rank, also while that is not known yet: of a child, then, its parent's.
static inline int tt_comm_rank(const struct ncclComm *comm)
{
    return __atomic_load_n(&comm->rank, __ATOMIC_RELAXED);
}

// Has all its parts, and has not failed while it was made.
static inline bool tt_comm_is_made(const struct ncclComm *comm)
{
    int state = atomic_load(&comm->state);
    return state == TT_COMM_READY || state == TT_COMM_FINALIZED;
}

// The way into a communicator for every call that takes one. ncclInvalidArgument where `comm` is
// NULL, freed, overwritten or inherited over fork(); the failed or unfinished state's error where
// it is not ready or ncclCommDestroy ends it. On success the call is inside until tt_comm_leave:
// the communicator is not freed meanwhile, and this thread's failures are told with `call` and the
// rank.
ncclResult_t tt_comm_enter(struct ncclComm *comm, const char *call);
// The same in any state.
ncclResult_t tt_comm_enter_any(struct ncclComm *comm, const char *call);
void tt_comm_leave(struct ncclComm *comm);

// ---- create.c, lifecycle.c: the bodies of the public functions ----------------------------------
// `call` names the function for messages.

// Makes a communicator in state TT_COMM_INIT on the current device and hands its joining to the
// group. *comm_out is valid at once, so that another thread can abort the wait.
ncclResult_t tt_comm_init(ncclComm_t *comm_out, int nranks, const ncclUniqueId *id, int rank,
                          const ncclConfig_t *config, const char *call);
// What the argument of every job of TT_GROUP_INIT begins with.
struct tt_beginning {
    struct ncclComm *parent; // that is split; NULL: none
    ncclComm_t *user_comm;   // the caller's variable: NULL is written there when a blocking init
                             // fails. NULL: the job makes no communicator, and runs on the parent
    bool is_nonblocking; // of a job that makes none: whether its group may go on behind the call
    // Tells the ranks that wait for this one that it will not come, and why: this thread's last
    // failure, which stays. Returns result.
    ncclResult_t (*tell_others)(const void *argument, ncclResult_t result);
};
// How many GPUs the process sees. An error where it sees none: the launcher, or a setting, gave it
// none. rank: -1: of none.
ncclResult_t tt_comm_count_devices(const char *call, int rank, int *count_out);
// A communicator in state TT_COMM_INIT on the current device, with its handle; what its ranks are
// may be unknown (nranks 0).
ncclResult_t tt_comm_allocate(int nranks, int rank, const ncclConfig_t *config, const char *call,
                              struct ncclComm **comm_out);
// Names one that has its hash and no name.
void tt_comm_name(struct ncclComm *comm);
// The end of its making, from a result: TT_COMM_READY, or TT_COMM_FAILED, which the other ranks are
// told.
ncclResult_t tt_comm_begun(struct ncclComm *comm, ncclResult_t result, uint64_t start_ns);
// Ends an initialisation that its group dropped: the other ranks are told, with this thread's last
// failure. comm: may be gone, aborted by another call. argument: the job's.
void tt_comm_give_up(struct ncclComm *comm, const void *argument);
// A rank that cannot begin to join, because of this thread's last failure: the state is set, the
// other ranks are told. The caller has entered.
void tt_comm_cannot_join(struct ncclComm *comm, const void *argument, ncclResult_t result);
// What follows a failed blocking init: nothing is left, unless an abort has taken the communicator.
void tt_comm_discard(struct ncclComm *comm, const void *argument);
// Frees all parts but windows.
void tt_comm_free(struct ncclComm *comm);
ncclResult_t tt_comm_finalize(struct ncclComm *comm);
ncclResult_t tt_comm_destroy(struct ncclComm *comm);
ncclResult_t tt_comm_abort(struct ncclComm *comm);
// ncclInProgress while it is being made; its first error, also of a rank that failed or died
// meanwhile; else ncclSuccess. The caller has entered.
ncclResult_t tt_comm_async_error(struct ncclComm *comm);

// ---- watch.c: what happens to a communicator while nobody calls ---------------------------------

// Starts to watch a communicator that is ready; one thread watches all of the process. Ranks that
// fail, die or leave are then known within milliseconds, and so is a failed device.
ncclResult_t tt_watch_add(struct ncclComm *comm);
// Looks now. The caller has entered.
void tt_watch_look(struct ncclComm *comm);
// The communicator has failed: async_error (the first stays), its text, the end of every wait for
// it in this process. True where no rank of this process has said so before.
bool tt_comm_fail(struct ncclComm *comm, ncclResult_t result, const char *text);
const char *tt_comm_failure_text(const struct ncclComm *comm); // once comm->told is 2

// A mutex of memory that other processes see is held by the thread that watches, as long as the
// process lives. Behind tt_watch_add. Waits for the thread, at most TUTTI_INIT_TIMEOUT, or until
// the abort flag is set.
ncclResult_t tt_watch_hold(pthread_mutex_t *held, const _Atomic uint32_t *abort_flag);
// False: the process ends, and it is held still.
bool tt_watch_let_go(pthread_mutex_t *held);

// ---- split.c, shrink.c: children ----------------------------------------------------------------

ncclResult_t tt_comm_split(struct ncclComm *parent, int color, int key, ncclComm_t *comm_out,
                           const ncclConfig_t *config);
ncclResult_t tt_comm_shrink(struct ncclComm *parent, const int *excluded, int count,
                            ncclComm_t *comm_out, const ncclConfig_t *config, int flags);
void tt_shrinks_free(struct tt_shrinks *shrinks); // NULL: nothing
// Whether a tag is `other`, or that of a later shrink to the same ranks.
bool tt_shrinks_reach(uint64_t tag, uint64_t other);
// Whether this rank has been in the shrink of this tag.
bool tt_shrinks_know(const struct tt_shrinks *shrinks, uint64_t tag);

// ---- config.c -----------------------------------------------------------------------------------
// Reads a caller's configuration of any version into a complete one: ranges checked, defaults
// filled in. NULL: defaults, or those of `parent` where there is one. Its texts are the caller's:
// not to be kept.
ncclResult_t tt_config_read(const ncclConfig_t *config, const struct ncclComm *parent,
                            const char *call, ncclConfig_t *out);

// ---- peers.c ------------------------------------------------------------------------------------
// What this rank tells the others. The current device is the communicator's.
ncclResult_t tt_peer_describe(int rank, struct tt_peer *out);
// Whether two ranks have one device.
bool tt_peer_same_device(const struct tt_peer *a, const struct tt_peer *b);
// How many ranks of the communicator have this rank's device, itself too.
int tt_peers_sharing(const struct ncclComm *comm);
// Fills hosts, processes and the LSA team from what all ranks told. Local.
void tt_peers_arrange(struct ncclComm *comm);
// One rank of each machine says on stderr which ranks share a device.
void tt_peers_tell_shared(const struct ncclComm *comm);
// Fills peer_access. Collective, and the last step of init: a rank that comes so far cannot fail
// any more.
ncclResult_t tt_peers_agree(struct ncclComm *comm);

// ---- memory.c -----------------------------------------------------------------------------------
// What this rank's part of the communicator holds; of memory that ranks share, its share.
struct tt_comm_memory {
    size_t scratch, staging, mappings; // bytes
    size_t connections;                // sockets
};
void tt_comm_memory(const struct ncclComm *comm, struct tt_comm_memory *memory_out);
// At INFO, at a communicator's end: what it held; and what this process holds afterwards.
void tt_comm_log_memory(const struct ncclComm *comm);
void tt_comm_log_rest(void);

// ---- team.c -------------------------------------------------------------------------------------
// Whether its ranks can be a host team: they are on one machine, and not too many.
bool tt_team_is_possible(const struct ncclComm *comm);
// Joins it where it is possible, on the communicator's board. Collective.
ncclResult_t tt_team_join(struct ncclComm *comm);
// ncclInvalidUsage for an operation, `what`, of a communicator that has none, or whose executor has
// not this operation; the text says why.
ncclResult_t tt_team_refuse(const struct ncclComm *comm, const char *what);
// Nothing is called any more (exec/executor.h): the others hear of it once all has ended.
void tt_team_finalize(struct ncclComm *comm);
// Waits until its operations have ended, or are given up meanwhile, as the communicator fails
// (*gave_up_out). False: some do not end, and the communicator's memory must stay.
bool tt_team_drain(struct ncclComm *comm, bool *gave_up_out);
// Ends this rank's part of it, drained. May be called again.
void tt_team_leave(struct ncclComm *comm);

// ---- handles.c: which handles are alive ---------------------------------------------------------
// ncclInvalidUsage in a child by fork() of a process that had communicators: it can make none.
ncclResult_t tt_handle_check_process(const char *call);
ncclResult_t tt_handle_add(struct ncclComm *comm);
// For a look, which is short and waits for nothing: the n-th live communicator (NULL: there are not
// so many), or one that may be gone (false: it is). Left with tt_handle_looked.
struct ncclComm *tt_handle_look_at_nth(size_t n);
bool tt_handle_look(struct ncclComm *comm);
void tt_handle_looked(struct ncclComm *comm);
// Enters a communicator that may be gone, for `call` (NULL: none of the user's, which enters also
// while ncclCommDestroy ends it); false: it is.
bool tt_handle_enter(struct ncclComm *comm, const char *call);
// The same without a call: any thread may let go.
bool tt_handle_hold(struct ncclComm *comm);
void tt_handle_let_go(struct ncclComm *comm);
// Raises the abort flag of a communicator that may be gone.
void tt_handle_raise_abort(struct ncclComm *comm);
// Takes the handle out: no call enters any more. False where another thread was first, or ends it.
// The memory of a communicator is kept for a while, so that a stale handle is recognised.
bool tt_handle_remove(struct ncclComm *comm);
// For ncclCommDestroy: from now on no call of the user's enters, where none is inside
// (TT_HANDLE_IDLE); else what keeps it. The handle stays until tt_handle_remove_ending.
enum tt_handle_use {
    TT_HANDLE_IDLE,
    TT_HANDLE_IN_CALL,
    TT_HANDLE_LOOKED_AT,
    TT_HANDLE_IN_INIT,
    TT_HANDLE_GONE
};
enum tt_handle_use tt_handle_begin_ending(struct ncclComm *comm);
void tt_handle_remove_ending(struct ncclComm *comm);
// For ncclCommAbort: where ncclCommDestroy ends the communicator, aborts that, waits until it has
// taken the handle out, and returns true.
bool tt_handle_abort_ending(struct ncclComm *comm);
// Waits until all calls have left a communicator that was taken out.
void tt_handle_await_calls(const struct ncclComm *comm);
void tt_handle_bury(struct ncclComm *comm);

// ---- runtime_check.c ----------------------------------------------------------------------------

// Refuses to work beside a CUDA runtime that is not the one this library was built for.
ncclResult_t tt_check_runtime(const char *call);

// ---- abort_flag.c: a word that host and kernels see ---------------------------------------------
ncclResult_t tt_abort_flag_take(_Atomic uint32_t **host_out, uint32_t **device_out);
// Gives the word back. One that is raised stays so until 256 others were given back raised: a
// kernel that has not looked yet would wait for ever if the next communicator lowered it.
void tt_abort_flag_give(_Atomic uint32_t *host);

#endif
