// What the parts of the soak share. Some processes stay from its start to its end; in each scenario
// threads of theirs and guests, processes of their own, are the ranks of a team: its players. What
// happens is drawn from the seed and the scenario's number alone, by every player alike.
// SPDX-License-Identifier: Apache-2.0
#ifndef TESTS_SOAK_SOAK_H
#define TESTS_SOAK_SOAK_H

#include "expect.h"
#include "member.h"
#include "values.h"

#include <nccl.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    MOST_PROCESSES = 4,
    MOST_RANKS = 8 /* each has a device: cudaFree waits for all of one */,
    FAMILY = 8,
    MOST_IDS = 4
};

// ---- Numbers ------------------------------------------------------------------------------------

struct draws {
    uint64_t state;
};

// A number from 0 to n - 1; n >= 1.
unsigned draw(struct draws *draws, unsigned n);
// Seldom large: every number of bits is as likely; 0 to most - 1.
unsigned draw_size(struct draws *draws, unsigned most);
// Draws of their own, which do not shift those that follow.
struct draws draw_draws(struct draws *draws);

// ---- Scenarios ----------------------------------------------------------------------------------

struct scenario {
    uint64_t seed;
    int number;
    int processes;               // that stay
    int most;                    // ranks of a team
    int threads[MOST_PROCESSES]; // ranks of each; 0: it sits by
    int guests;                  // processes of one rank each, the last players
    bool is_deadly;              // the guests are killed
    int size;                    // ranks in all
    int shift;                   // player i is rank (i + shift) % size
    int steps;
    struct draws draws; // for what all players draw
};

// processes: 1 to MOST_PROCESSES that stay; most: ranks of a team, 2 to MOST_RANKS.
struct scenario draw_scenario(uint64_t seed, int number, int processes, int most);

// What happened so far, for the lines of progress.
enum event { SCENARIOS, STEPS, COMMUNICATORS, ABORTS, KILLS, SHRINKS, GUESTS, EVENTS };

// In memory that all processes of the soak share.
struct shared {
    atomic_int arrived, generation; // of meetings
    atomic_int failed;              // somebody has a failed check: all end
    atomic_int has_ids;             // of this scenario
    atomic_int begun;               // guests that are about to join
    atomic_int killed;              // all guests are dead
    atomic_int good[MOST_RANKS];    // by player
    atomic_long events[EVENTS];
    ncclUniqueId ids[MOST_IDS];
};
extern struct shared *shared;

void count_event(enum event event);

// ---- Players ------------------------------------------------------------------------------------

// A communicator as all players know it.
struct life {
    unsigned members;      // bits of ranks of the first communicator; 0: there is none
    int order[MOST_RANKS]; // [count] the members in the communicator's order
    int count;
    ncclComm_t comm; // NULL: this player is no member
};

struct player {
    const struct scenario *scenario;
    int index, rank, device;
    bool is_guest;
    int met; // players that meet
    struct draws common, own;
    cudaStream_t stream;
    struct life lives[FAMILY];
};

// Of player `index`; on a thread of its own.
void play(const struct scenario *scenario, int index);

// Ends the process where a check has failed, in any of them; the first says in which scenario.
void end_if_failed(const struct scenario *s);
// Waits for the others, or ends likewise.
void meet(const struct player *p);
// This player as a rank of a life that it is a member of.
struct member member_of(const struct player *p, const struct life *life);
int place_of(const struct life *life, int rank);
void sleep_ms(int milliseconds);

// ---- What players do ----------------------------------------------------------------------------

// The first communicators of the team. False: it did not come about, because guests died.
bool begin_lives(struct player *p);
// One step: work in a communicator, or a communicator is made or ended.
void step(struct player *p);
// Ends all that is left.
void end_lives(struct player *p);
// Until guests have died; then the others shrink. False: nothing is left to go on with.
bool survive(struct player *p);

// Whether a call went well, or is under way; a failed check with the library's text where not.
bool is_well(ncclResult_t result);
// A random piece of work of all of m's communicator, checked.
void work(struct member *m, struct draws draws);
// Frees what this thread has of earlier work; nobody works then.
void end_work(void);
// Integers are added up in a communicator; whether all calls went well; sums are checked where they
// did.
bool add_up(struct member *m, unsigned count);
// Until the communicator is ready or has failed; at most `most_s` seconds, then ncclInProgress.
ncclResult_t await_ready(ncclComm_t comm, double most_s);

#endif
