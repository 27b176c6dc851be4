// A libFuzzer target for the public functions that communicate: three ranks, each a thread, make
// calls with any arguments, alike or not, in groups or not. Each call must return, what it began
// must end, with a result or an error, and nothing may be read or written out of bounds. A rank
// that does not come is aborted after a while, which must end the others. Build and run: the CMake
// target api_fuzz.
//
// The input is a list of calls of CALL_BYTES bytes: see struct choice.
// SPDX-License-Identifier: Apache-2.0
#include "nccl.h"
#include "tutti.h"

#include <cuda_runtime_api.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 3, MOST_CALLS = 6, BUFFER_BYTES = 1 << 16, ENDLESS_S = 30 };
enum { FUNCTIONS = 20, FIRST_IN_WINDOWS = 18 };

// Bytes of the input.
struct choice {
    uint8_t function, count, type, op, root;
    uint8_t send, recv, stream, comm;
    uint8_t odd_rank; // whose call differs: RANKS and more: nobody's
    uint8_t odd_byte, odd_value;
    uint8_t group; // bits: begin one before; end one after; the odd rank does not call
    uint8_t parts; // of the uneven functions; of puts and the fused one: see call_in_windows
};
enum { CALL_BYTES = sizeof(struct choice), COMPARED_BYTES = 9 };

struct rank {
    int number;
    ncclComm_t comm;
    ncclRedOp_t op; // an operator of its own
    cudaStream_t stream;
    char *memory[2];    // of its device: for these calls one of the two kinds
    char *device[2];    // of cudaMalloc
    char *symmetric[2]; // of ncclMemAlloc: windows, where a call needs them
    ncclWindow_t window[2];
    char *plain; // not of any device
    _Atomic bool is_done, has_failed;
    pthread_t thread;
};

static struct rank ranks[RANKS];
static cudaStream_t gone; // destroyed
static struct choice calls[MOST_CALLS];
static int calls_count;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static double now_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void give_up(const char *what)
{
    (void)fprintf(stderr, "api_fuzz: %s\n", what);
    (void)tuttiDumpState(NULL, NULL);
    abort();
}

// ---- Arguments ----------------------------------------------------------------------------------

// What fits into the buffers, in any type and for each of all ranks; and what nothing holds.
static size_t count_of(uint8_t choice)
{
    static const size_t counts[] = {
        1, 0, 5, 40, 41, 105, 333, 512, 700, SIZE_MAX, SIZE_MAX / 2 + 1};
    return counts[choice % 11];
}

static int root_of(uint8_t choice)
{
    static const int roots[] = {0, 1, 2, 0, 3, -1, INT_MAX, INT_MIN};
    return roots[choice % 8];
}

static char *buffer_of(const struct rank *rank, uint8_t choice, char *usual)
{
    switch (choice % 16) {
    case 0:
        return NULL;
    case 1:
        return rank->plain;
    case 2:
        return usual + 3;
    case 3:
        return rank->memory[0]; // may be both
    default:
        return usual;
    }
}

static cudaStream_t stream_of(const struct rank *rank, uint8_t choice)
{
    switch (choice % 16) {
    case 0:
        return NULL;
    case 1:
        return ranks[(rank->number + 1) % RANKS].stream; // of another device
    case 2:
        return gone;
    case 3:
        return cudaStreamPerThread;
    default:
        return rank->stream;
    }
}

static ncclComm_t comm_of(const struct rank *rank, uint8_t choice)
{
    static uint64_t zeros[64];
    switch (choice % 32) {
    case 0:
        return NULL;
    case 1:
        return (ncclComm_t)zeros;
    case 2:
        return (ncclComm_t)(uintptr_t)0x1230;
    default:
        return rank->comm;
    }
}

static ncclRedOp_t op_of(const struct rank *rank, uint8_t choice)
{
    if (choice % 16 == 15) {
        return rank->op;
    }
    return (ncclRedOp_t)(choice % 16 == 14 ? INT_MAX : choice % 16 == 13 ? -1 : choice % 8);
}

// Counts and starts of the uneven functions; true: starts are given. Parts fit into the buffers
// behind each other.
static bool parts_of(uint8_t choice, size_t *counts, size_t *starts)
{
    size_t start = 0;
    for (int r = 0; r < RANKS; r++) {
        counts[r] = (choice >> r & 1) != 0 ? (size_t)(choice & 0x30) + (size_t)r : 0;
        starts[r] = start;
        start += counts[r] + (choice >> 6 & 1) * 5;
    }
    if (choice % 29 == 0) {
        counts[choice % RANKS] = count_of(choice);
    }
    if (choice % 31 == 0) {
        starts[choice % RANKS] = count_of((uint8_t)(choice / 31 + 8));
    }
    return choice >= 0x80;
}

// ---- Calls --------------------------------------------------------------------------------------

struct arguments {
    char *send, *recv;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int root;
    ncclComm_t comm;
    cudaStream_t stream;
    size_t counts[RANKS], starts[RANKS];
    const size_t *given_starts;
};

static ncclResult_t call_even(int function, const struct arguments *a)
{
    switch (function) {
    case 0:
        return ncclAllReduce(a->send, a->recv, a->count, a->type, a->op, a->comm, a->stream);
    case 1:
        return ncclReduce(a->send, a->recv, a->count, a->type, a->op, a->root, a->comm, a->stream);
    case 2:
        return ncclBroadcast(a->send, a->recv, a->count, a->type, a->root, a->comm, a->stream);
    case 3:
        return ncclBcast(a->recv, a->count, a->type, a->root, a->comm, a->stream);
    case 4:
        return ncclReduceScatter(a->send, a->recv, a->count, a->type, a->op, a->comm, a->stream);
    case 5:
        return ncclAllGather(a->send, a->recv, a->count, a->type, a->comm, a->stream);
    case 6:
        return ncclAlltoAll(a->send, a->recv, a->count, a->type, a->comm, a->stream);
    case 7:
        return ncclGather(a->send, a->recv, a->count, a->type, a->root, a->comm, a->stream);
    default:
        return ncclScatter(a->send, a->recv, a->count, a->type, a->root, a->comm, a->stream);
    }
}

// `mine`: how much this rank sends or receives where all counts are one rank's alone.
static ncclResult_t call_uneven(int function, const struct arguments *a, size_t mine)
{
    const size_t sends[RANKS] = {mine, mine, mine};
    switch (function) {
    case 9:
        return tuttiAllGatherV(a->send, mine, a->recv, a->counts, a->given_starts, a->type, a->comm,
                               a->stream);
    case 10:
        return tuttiReduceScatterV(a->send, a->recv, a->counts, a->type, a->op, a->comm, a->stream);
    case 11:
        return tuttiAllToAllV(a->send, sends, NULL, a->recv, a->counts, a->given_starts, a->type,
                              a->comm, a->stream);
    case 12:
        return tuttiGatherV(a->send, mine, a->recv, a->counts, a->given_starts, a->type, a->root,
                            a->comm, a->stream);
    default:
        return tuttiScatterV(a->send, a->counts, a->given_starts, a->recv, mine, a->type, a->root,
                             a->comm, a->stream);
    }
}

static ncclResult_t call_one(const struct rank *rank, int function, const struct arguments *a)
{
    ncclWaitSignalDesc_t wait = {.opCnt = (int)(a->count % 3), .peer = a->root};
    int next = (rank->number + 1) % RANKS, before = (rank->number + RANKS - 1) % RANKS;
    switch (function) {
    case 14: // to and from whom all name, or around the ring
        return ncclSend(a->send, a->count, a->type, a->root == 2 ? next : a->root, a->comm,
                        a->stream);
    case 15:
        return ncclRecv(a->recv, a->count, a->type, a->root == 2 ? before : a->root, a->comm,
                        a->stream);
    case 16:
        return ncclSignal(a->root == 2 ? next : a->root, 0, 0, 0, a->comm, a->stream);
    default:
        wait.peer = a->root == 2 ? before : a->root;
        return ncclWaitSignal((int)(a->count % 2), &wait, a->comm, a->stream);
    }
}

// A put to whom all name or to the next, at the second start in bytes; or the fused operation with
// rows as long as the second start. parts: last values: what is not 0 of a put's numbers, or which
// options the fused one has.
static ncclResult_t call_in_windows(const struct rank *rank, int function,
                                    const struct arguments *a, uint8_t parts)
{
    int next = (rank->number + 1) % RANKS;
    if (function == 18) {
        return ncclPutSignal(a->send, a->count, a->type, a->root == 2 ? next : a->root,
                             rank->window[parts & 1], a->starts[1], parts == 0xff, parts == 0xfe,
                             parts == 0xfd, a->comm, a->stream);
    }
    struct tuttiRMSNormOptions options = TUTTI_RMSNORM_OPTIONS_INITIALIZER;
    options.gamma = (parts & 0x80) != 0 ? rank->device[0] : NULL;
    options.residual = (parts & 0x88) == 0x88 ? rank->device[1] : NULL;
    options.residualOut = (parts & 0x90) == 0x90 ? rank->device[1] : NULL;
    options.size -= parts == 0xff;
    return tuttiAllReduceRMSNorm(a->send, a->recv, a->count, a->starts[1],
                                 (parts & 2) != 0 ? &options : NULL, a->type, a->comm, a->stream);
}

static ncclResult_t call(const struct rank *rank, const struct choice *choice)
{
    struct arguments a = {.send = buffer_of(rank, choice->send, rank->memory[0]),
                          .recv = buffer_of(rank, choice->recv, rank->memory[1]),
                          .count = count_of(choice->count),
                          .type = (ncclDataType_t)(choice->type % 16 - 2),
                          .op = op_of(rank, choice->op),
                          .root = root_of(choice->root),
                          .comm = comm_of(rank, choice->comm),
                          .stream = stream_of(rank, choice->stream)};
    int function = choice->function % FUNCTIONS;
    a.given_starts = parts_of(choice->parts, a.counts, a.starts) ? a.starts : NULL;
    if (function < 9) {
        return call_even(function, &a);
    }
    if (function < 14) {
        return call_uneven(function, &a, a.counts[rank->number]);
    }
    return function < FIRST_IN_WINDOWS ? call_one(rank, function, &a)
                                       : call_in_windows(rank, function, &a, choice->parts);
}

// ---- Ranks --------------------------------------------------------------------------------------

static void expect_text(ncclResult_t result)
{
    if (result < 0 || result >= ncclNumResults || ncclGetErrorString(result) == NULL) {
        give_up("a result that there is not");
    }
    const char *text = ncclGetLastError(NULL);
    if (text == NULL || (result == ncclInvalidArgument && text[0] == '\0') ||
        strnlen(text, 4096) == 4096) {
        give_up("an error without a text");
    }
}

static void make_calls(struct rank *rank)
{
    int depth = 0;
    for (int i = 0; i < calls_count; i++) {
        struct choice choice = calls[i];
        bool is_odd = choice.odd_rank % (2 * RANKS) == rank->number;
        if (is_odd) {
            ((uint8_t *)&choice)[choice.odd_byte % COMPARED_BYTES] = choice.odd_value;
        }
        if ((choice.group & 1) != 0) {
            expect_text(ncclGroupStart());
            depth++;
        }
        if (!is_odd || (choice.group & 0x0c) != 0x0c) {
            expect_text(call(rank, &choice));
        }
        if ((choice.group & 2) != 0 && depth > 0) {
            expect_text(ncclGroupEnd());
            depth--;
        }
    }
    for (; depth > 0; depth--) {
        expect_text(ncclGroupEnd());
    }
}

static void *run_rank(void *argument)
{
    struct rank *rank = argument;
    ncclResult_t state = ncclSuccess;
    (void)cudaSetDevice(rank->number);
    make_calls(rank);
    while (cudaStreamQuery(rank->stream) == cudaErrorNotReady ||
           cudaStreamQuery(NULL) == cudaErrorNotReady ||
           cudaStreamQuery(cudaStreamPerThread) == cudaErrorNotReady) {
        (void)usleep(50);
    }
    atomic_store(&rank->has_failed,
                 ncclCommGetAsyncError(rank->comm, &state) != ncclSuccess || state != ncclSuccess);
    atomic_store(&rank->is_done, true);
    return NULL;
}

static int done(void)
{
    int count = 0;
    for (int r = 0; r < RANKS; r++) {
        count += atomic_load(&ranks[r].is_done) ? 1 : 0;
    }
    return count;
}

// Until all ranks are done, or nothing has changed for so long.
static void wait_for(double seconds)
{
    double end = now_s() + seconds;
    while (done() < RANKS && now_s() < end) {
        (void)usleep(50);
    }
}

static void make(void)
{
    for (int r = 0; r < RANKS; r++) {
        struct rank *rank = &ranks[r];
        rank->number = r;
        rank->plain = calloc(1, BUFFER_BYTES);
        if (cudaSetDevice(r) != cudaSuccess || cudaStreamCreate(&rank->stream) != cudaSuccess ||
            rank->plain == NULL) {
            give_up("no devices");
        }
        for (int i = 0; i < 2; i++) {
            if (cudaMalloc((void **)&rank->device[i], BUFFER_BYTES) != cudaSuccess ||
                ncclMemAlloc((void **)&rank->symmetric[i], BUFFER_BYTES) != ncclSuccess) {
                give_up("no memory of devices");
            }
        }
    }
    (void)cudaStreamCreate(&gone);
    (void)cudaStreamDestroy(gone);
}

static bool needs_windows(void)
{
    bool needs = false;
    for (int i = 0; i < calls_count; i++) {
        needs = needs || calls[i].function % FUNCTIONS >= FIRST_IN_WINDOWS;
    }
    return needs;
}

static void open_windows(void)
{
    (void)ncclGroupStart();
    for (int r = 0; r < RANKS; r++) {
        for (int i = 0; i < 2; i++) {
            (void)ncclCommWindowRegister(ranks[r].comm, ranks[r].symmetric[i], BUFFER_BYTES,
                                         &ranks[r].window[i], NCCL_WIN_COLL_SYMMETRIC);
        }
    }
    if (ncclGroupEnd() != ncclSuccess) {
        give_up(ncclGetLastError(NULL));
    }
}

static void close_windows(void)
{
    (void)ncclGroupStart();
    for (int r = 0; r < RANKS; r++) {
        for (int i = 0; i < 2; i++) {
            (void)ncclCommWindowDeregister(ranks[r].comm, ranks[r].window[i]);
        }
    }
    if (ncclGroupEnd() != ncclSuccess) {
        give_up(ncclGetLastError(NULL));
    }
}

static void open_comms(void)
{
    ncclComm_t comms[RANKS];
    bool with_windows = needs_windows();
    float scale = 2;
    if (ncclCommInitAll(comms, RANKS, NULL) != ncclSuccess) {
        give_up(ncclGetLastError(NULL));
    }
    for (int r = 0; r < RANKS; r++) {
        ranks[r].comm = comms[r];
        atomic_store(&ranks[r].is_done, false);
        if (ncclRedOpCreatePreMulSum(&ranks[r].op, &scale, ncclFloat32, ncclScalarHostImmediate,
                                     comms[r]) != ncclSuccess) {
            give_up(ncclGetLastError(NULL));
        }
        for (int i = 0; i < 2; i++) {
            ranks[r].memory[i] = with_windows ? ranks[r].symmetric[i] : ranks[r].device[i];
            ranks[r].window[i] = NULL;
        }
    }
    if (with_windows) {
        open_windows();
    }
}

// In a group, as one thread must.
static void close_comms(bool aborts)
{
    if (!aborts && ranks[0].window[0] != NULL) {
        close_windows();
    }
    (void)ncclGroupStart();
    for (int r = 0; r < RANKS; r++) {
        (void)(aborts ? ncclCommAbort(ranks[r].comm) : ncclCommDestroy(ranks[r].comm));
    }
    if (ncclGroupEnd() != ncclSuccess && !aborts) {
        give_up("communicators without a failure that do not end");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    calls_count = 0;
    for (; size >= CALL_BYTES && calls_count < MOST_CALLS; calls_count++) {
        memcpy(&calls[calls_count], data, CALL_BYTES);
        data += CALL_BYTES;
        size -= CALL_BYTES;
    }
    if (ranks[0].stream == NULL) {
        make();
    }
    open_comms();
    for (int r = 0; r < RANKS; r++) {
        if (pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]) != 0) {
            give_up("no threads");
        }
    }
    wait_for(0.2); // a rank that does not come is waited for by the others
    bool aborts = done() < RANKS;
    if (aborts) {
        close_comms(true);
        wait_for(ENDLESS_S);
    }
    if (done() < RANKS) {
        give_up("a call or its work did not end after its communicator was aborted");
    }
    for (int r = 0; r < RANKS; r++) {
        (void)pthread_join(ranks[r].thread, NULL);
        aborts = aborts || atomic_load(&ranks[r].has_failed);
    }
    if (ranks[0].comm != NULL && !aborts) {
        close_comms(false);
    } else if (aborts && ranks[0].comm != NULL) {
        close_comms(true); // again where it was before: a handle that is gone is an error
    }
    return 0;
}
