// A libFuzzer target for what other processes can write into the memory that a host team shares:
// entries, calls, segments, signals, counts, messages, failures. Rank 0 of three goes through its
// operations while ranks 1 and 2, of another process, have written anything there. Nothing may
// crash, block, or be read or written out of bounds, and texts end. Build and run: the CMake target
// host_fuzz.
//
// The input is a list of actions {what, rank, offset, length} with `length` bytes each.
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "exec/cpu/buffers.h"
#include "exec/cpu/circle.h"
#include "exec/cpu/pair.h"
#include "exec/cpu/run.h"
#include "exec/cpu/uneven.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <vgpu/share.h>

enum { RANKS = 3, ACTION_BYTES = 5, MEMORY_BYTES = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// No plan runs here.
void tt_run_free(struct tt_run *run)
{
    free(run);
}

struct team {
    struct tt_arena *arena;
    struct tt_arena_header good; // as the maker wrote it
    struct tt_team team;
    struct vgpuSharedPiece piece; // memory that a peer could tell of
    _Atomic uint32_t abort_flag;
    _Atomic int error;
    _Atomic unsigned char has_left[RANKS];
};

static void make(struct team *t)
{
    static const int process[RANKS] = {0, 1, 1};
    const struct tt_room room = {.base = mmap(NULL, tt_arena_bytes(RANKS), PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                                 .descriptor = -1};
    void *memory = NULL;
    uint64_t offset = 0;
    if (tt_arena_map(&room, RANKS, &t->arena) != ncclSuccess ||
        cudaMalloc(&memory, MEMORY_BYTES) != cudaSuccess ||
        vgpuSharedDescribe(memory, MEMORY_BYTES, &t->piece, &offset) == 0) {
        abort();
    }
    t->good = *tt_arena_header(t->arena);
    t->team.nranks = RANKS;
    t->team.process = process;
    t->team.comm_name = "fuzzed";
    t->team.comm_hash = 7; // as ranks can say that they are behind work of it
    t->team.abort_flag = &t->abort_flag;
    t->team.async_error = &t->error;
    t->team.has_left = t->has_left;
    t->team.arena = t->arena;
    t->team.limit_ns = 1; // the second look at the clock ends a wait
}

// As a new communicator finds it.
static void clean(struct team *t)
{
    memset(t->arena->base, 0, t->arena->bytes);
    memcpy(tt_arena_header(t->arena), &t->good, sizeof t->good);
    atomic_store(&t->abort_flag, 0);
    atomic_store(&t->error, ncclSuccess);
    memset((void *)t->has_left, 0, sizeof t->has_left);
}

// Bytes anywhere in what `rank` may write.
static void scribble(struct team *t, const struct tt_host *host, const uint8_t *action,
                     const uint8_t *data, size_t bytes)
{
    int rank = 1 + action[1] % 2;
    size_t offset = action[2] | (size_t)(action[1] & 0x70) << 4, room = 0;
    char *place = NULL;
    switch (action[0] % 7) {
    case 0:
        place = (char *)tt_arena_entry(t->arena, rank, host->sequence + 1);
        room = sizeof(struct tt_entry);
        break;
    case 1:
        place = (char *)tt_arena_own(t->arena, rank);
        room = sizeof(struct tt_own);
        break;
    case 2:
        place = (char *)tt_arena_signal(t->arena, 0, rank, 0);
        room = TT_CHANNELS * sizeof(uint64_t);
        break;
    case 3:
        place = (char *)tt_arena_uneven(t->arena, rank);
        room = 4 * RANKS * sizeof(uint64_t);
        break;
    case 4:
        place = (char *)tt_arena_header(t->arena);
        room = sizeof(struct tt_arena_header);
        break;
    case 5:
        place = tt_arena_pair(t->arena, rank, 0);
        room = TT_ARENA_PAIR_BYTES;
        break;
    default:
        place = tt_arena_pair(t->arena, 0, rank);
        room = TT_ARENA_PAIR_BYTES;
        break;
    }
    offset %= room;
    memcpy(place + offset, data, bytes < room - offset ? bytes : room - offset);
}

// Ranks 1 and 2 have entered the next operation, as far as the word says.
static void come(struct team *t, const struct tt_host *host, uint64_t signature)
{
    for (int rank = 1; rank < RANKS; rank++) {
        struct tt_entry *entry = tt_arena_entry(t->arena, rank, host->sequence);
        atomic_store(&entry->word, host->sequence << 40 | (signature & 0xffffffffff));
    }
}

static void operate(struct team *t, struct tt_host *host, uint8_t how)
{
    struct tt_op op = {.function = (enum tt_function)(how % TT_FUSED_RMSNORM),
                       .is_uneven = true,
                       .type = ncclFloat32,
                       .root = how / 8 % RANKS};
    struct tt_entry entry = {.call = {.function = (uint8_t)op.function, .type = ncclFloat32}};
    struct tt_uneven_all all;
    char text[64];
    tt_host_enter(host, &entry, tt_op_signature(&op));
    if ((how & 0x80) != 0) {
        come(t, host, tt_op_signature(&op));
    }
    for (int look = 0; look < 200 && tt_host_meet(host) == TT_WAITING; look++) {
    }
    (void)tt_uneven_collect(host, &op, &all);
    for (int rank = 1; rank < RANKS; rank++) {
        const struct tt_places *places = &tt_host_entry(host, rank)->places;
        char *reached = NULL;
        (void)tt_buffers_reach(host, rank, places->send, places->send_shared, MEMORY_BYTES,
                               &reached);
        (void)tt_host_signalled(host, rank, how % TT_CHANNELS, how);
        tt_host_describe_last(host, rank, text, sizeof text);
        if (strnlen(text, sizeof text) == sizeof text) {
            abort();
        }
    }
    tt_host_leave(host);
    for (int look = 0; look < 200 && tt_host_all_left(host) == TT_WAITING; look++) {
    }
    if (strnlen(tt_thread_error(), 4096) == 4096) {
        abort();
    }
}

// A message to or from rank 1, of any size, from and to memory of the host, which rank 1 reaches
// only through the pair's data; then a look for circles through what ranks 1 and 2 wrote.
static void exchange(struct tt_host *host, uint8_t how)
{
    static const size_t counts[] = {0, 1, 100, 105, 4000, 300000};
    static struct tt_record_line line;
    static char memory[300000];
    bool sends = how % 2 == 0;
    struct tt_message_run message = {.op = {.function = sends ? TT_SEND : TT_RECV,
                                            .send = sends ? memory : NULL,
                                            .recv = sends ? NULL : memory,
                                            .count = counts[how / 2 % 6],
                                            .type = ncclInt8,
                                            .root = 1},
                                     .line = &line};
    host->watch = (struct tt_watch){0};
    tt_message_begin(host, &message);
    for (int look = 0; look < 50; look++) {
        if (tt_message_step(host, &message) != TT_WAITING || tt_host_is_over(host)) {
            break;
        }
    }
    (void)tt_message_is_alone(host, &message.op, message.number);
    tt_circle_look(host);
}

// Signals with a rank, which may be this one; then a look for circles through ranks that say they
// wait for some.
static void signal_ranks(struct tt_host *host, uint8_t how)
{
    int peer = how % RANKS;
    uint64_t until = tt_signal_want(host, peer, how / 4 % 3);
    tt_signal_give(host, peer);
    (void)(tt_signal_given(host, peer) >= until);
    for (int rank = 0; rank < RANKS; rank++) {
        (void)tt_signal_is_owed(host, rank, peer);
    }
    tt_circle_look(host);
}

// A segment that is there, for tt_buffers_reach; what follows may damage it.
static void tell(struct team *t, const struct tt_host *host, int rank)
{
    struct tt_own *own = tt_arena_own(t->arena, rank);
    struct tt_arena_segment *segment = &tt_arena_segments(t->arena, rank)[0];
    segment->pid = t->piece.pid;
    segment->descriptor = t->piece.descriptor;
    segment->inode = t->piece.inode;
    memcpy(segment->key, t->piece.key, sizeof segment->key);
    segment->bytes = t->piece.bytes;
    atomic_fetch_add(&segment->version, 2);
    atomic_fetch_add(&own->segments_version, 1);
    tt_arena_entry(t->arena, rank, host->sequence + 1)->places.send_shared = (uint64_t)1 << 48;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct team team;
    struct tt_host *host = NULL;
    if (team.arena == NULL) {
        make(&team);
    }
    clean(&team);
    if (tt_host_join(&team.team, &host) != ncclSuccess) {
        abort();
    }
    static struct tt_record_line line;
    host->line = &line;
    while (size >= ACTION_BYTES) {
        size_t bytes = (data[3] | (size_t)data[4] << 8) % 600;
        bytes = bytes < size - ACTION_BYTES ? bytes : size - ACTION_BYTES;
        if ((data[0] & 0xe0) == 0xe0) {
            signal_ranks(host, data[1]);
        } else if ((data[0] & 0xc0) == 0xc0) {
            exchange(host, data[1]);
        } else if ((data[0] & 0x80) != 0) {
            operate(&team, host, data[1]);
        } else if ((data[0] & 0x40) != 0) {
            tell(&team, host, 1 + data[1] % 2);
        } else {
            scribble(&team, host, data, data + ACTION_BYTES, bytes);
        }
        data += ACTION_BYTES + bytes;
        size -= ACTION_BYTES + bytes;
    }
    tt_host_release(host);
    return 0;
}
