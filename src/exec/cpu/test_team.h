// A host team for tests: its ranks are hosts of one thread.
//   struct team team; make_team(&team, 3, true, 0, 1); ...; free_team(&team);
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXEC_CPU_TEST_TEAM_H
#define TT_EXEC_CPU_TEST_TEAM_H

#include "exec/cpu/host.h"
#include "expect.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST = 12 };

struct team {
    int ranks, file;
    struct tt_host *host[MOST];
    _Atomic int errors[MOST];
    _Atomic uint32_t abort_flag;
    _Atomic unsigned char left[MOST];
    char told[MOST][512]; // of the last team that was made: what its failures say
};

static struct team *failing;

// A file with room for one arena; to be closed.
static inline int make_file(void)
{
    int descriptor = memfd_create("test", MFD_CLOEXEC);
    EXPECT(descriptor >= 0 && ftruncate(descriptor, (off_t)TT_ROOM_BYTES) == 0);
    return descriptor;
}

// A mapping of it of its own; descriptor -1: of no file.
static inline struct tt_arena *map_arena(int descriptor, int ranks)
{
    struct tt_arena *arena = NULL;
    size_t bytes = (tt_arena_bytes(ranks) + 4095) / 4096 * 4096;
    int flags = descriptor < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    struct tt_room room = {
        .base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, descriptor, 0), // stays
        .descriptor = descriptor,
        .later = bytes};
    EXPECT(room.base != MAP_FAILED);
    EXPECT_OK(tt_arena_map(&room, ranks, &arena));
    return arena;
}

static inline void tell(void *owner, ncclResult_t result, const char *text)
{
    int rank = *(int *)owner, none = ncclSuccess;
    (void)snprintf(failing->told[rank], sizeof failing->told[rank], "%s", text);
    (void)atomic_compare_exchange_strong(&failing->errors[rank], &none, (int)result);
}

// apart: each rank with a mapping of its own, as other processes have. limit_ns: of waits, 0: none.
static inline void make_team(struct team *team, int ranks, bool apart, uint64_t limit_ns,
                             uint64_t hash)
{
    static int numbers[MOST] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    static const int one[MOST];
    int descriptor = make_file();
    struct tt_arena *arena = NULL;
    memset(team, 0, sizeof *team);
    failing = team;
    team->ranks = ranks;
    for (int rank = 0; rank < ranks; rank++) {
        if (rank == 0 || apart) {
            tt_arena_release(arena);
            arena = map_arena(descriptor, ranks);
        }
        struct tt_team mine = {.rank = rank,
                               .nranks = ranks,
                               .process = apart ? numbers : one,
                               .abort_flag = &team->abort_flag,
                               .async_error = &team->errors[rank],
                               .comm_name = "test",
                               .comm_hash = hash,
                               .has_left = team->left,
                               .arena = arena,
                               .fail = tell,
                               .owner = &numbers[rank],
                               .limit_ns = limit_ns};
        EXPECT_OK(tt_host_join(&mine, &team->host[rank]));
    }
    tt_arena_release(arena);
    team->file = descriptor;
}

static inline void free_team(struct team *team)
{
    for (int rank = 0; rank < team->ranks; rank++) {
        tt_host_part(team->host[rank]);
    }
    close(team->file);
}

#endif
