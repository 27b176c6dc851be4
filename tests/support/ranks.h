// Runs a test function as n ranks: as processes (the test program executes itself again; nothing is
// forked after start-up) or as threads. All helpers below work the same way in both.
//   static void ring(int rank, int size) { ncclUniqueId id; if (rank == 0) ncclGetUniqueId(&id);
//                                          ranks_broadcast(&id, sizeof id); ... EXPECT_OK(...); }
//   static void ring_of_4(void) { run_ranks(4, ring, 30); }
// SPDX-License-Identifier: Apache-2.0
#ifndef TESTS_SUPPORT_RANKS_H
#define TESTS_SUPPORT_RANKS_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { RANKS_MAX = 1024, RANKS_SHARED_BYTES = 1 << 16 };

// What each rank runs. Failed checks inside make the whole run fail. In a rank process, variables
// of the parent have their initial values: pass data by ranks_broadcast, by the environment, or by
// constants.
typedef void (*rank_function)(int rank, int size);

// Runs `function` in n processes (1..RANKS_MAX) and waits at most timeout_s seconds; then the whole
// group is killed. A rank that fails, crashes or hangs is named in a message and fails the calling
// test. `function` must be in the test program itself (not in a shared library). True when every
// rank passed.
bool run_ranks(int n, rank_function function, int timeout_s);

// As run_ranks, but passes no judgement on how ranks end: statuses_out[rank] is the rank's wait
// status (as from waitpid; -1 when it had to be killed at the deadline). For tests in which ranks
// are meant to die. False, and a failed check, only when a rank could not be started or the
// deadline passed.
bool run_ranks_status(int n, rank_function function, int timeout_s, int *statuses_out);

// Runs `function` in n threads of this process. When the deadline passes, the ranks still running
// are named and the test program ends at once with status 1 (threads cannot be killed).
bool run_thread_ranks(int n, rank_function function, int timeout_s);

// Called by ranks. A barrier among all ranks of this run; the rank process (or, for threads, the
// test) ends with status 1 when another rank has already failed or ended.
void ranks_barrier(void);
// Copies rank 0's `bytes` (at most RANKS_SHARED_BYTES) to all ranks. Collective.
void ranks_broadcast(void *data, size_t bytes);
// all_out[r * bytes ...] becomes rank r's `mine`, on every rank; n * bytes <= RANKS_SHARED_BYTES.
// Collective.
void ranks_gather(const void *mine, void *all_out, size_t bytes);

// CPU time in seconds that this process has used, or in a rank process all ranks of its run; those
// that have ended with what they had when this was last called.
double ranks_cpu_s(void);

#ifdef __cplusplus
}
#endif
#endif
