// NCCL_ALGO and NCCL_PROTO: what they leave nothing for is refused by the call, on every rank, with
// the variable, its value and what would do; what they cannot mean, by the communicator's making.
// NVLS does any buffers, also those that the switch does not reach.
// SPDX-License-Identifier: Apache-2.0
#include "collectives.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <tutti.h>
#include <unistd.h>

enum { RANKS = 3, BYTES = 1 << 20 };

static void refused(struct member *m, ncclResult_t result, const char *text)
{
    EXPECT_EQ(result, ncclInvalidUsage);
    EXPECT_CONTAINS(ncclGetLastError(m->comm), text);
}

// A form that works, to see that nothing is left of what was refused.
static void works(struct member *m, struct area *area, enum function function, size_t count)
{
    struct form form = {.function = function, .type = ncclFloat32, .count = count};
    EXPECT_EQ(member_state(m), ncclSuccess);
    check_form(m, area, &form);
}

// Trees add nothing up here but for AllReduce.
static void only_trees(int rank, int size)
{
    struct member m;
    struct area area;
    size_t counts[RANKS] = {1, 2, 3};
    if (!join_with_area(&m, &area, rank, size, BYTES)) {
        return;
    }
    char *send = area.memory, *recv = area.memory + BYTES / 2, text[160];
    (void)snprintf(text, sizeof text,
                   "ncclReduceScatter: rank %d: NCCL_ALGO=Tree leaves no algorithm for "
                   "ReduceScatter on 3 ranks; these can do it: NVLS, direct, Ring, staged",
                   rank);
    for (size_t count = 1; count < 20000; count *= 141) { // small ones alike
        refused(&m, ncclReduceScatter(send, recv, count, ncclFloat, ncclSum, m.comm, m.stream),
                text);
        refused(&m, ncclAllGather(send, recv, count, ncclFloat, m.comm, m.stream), "AllGather");
        refused(&m, ncclReduce(send, recv, count, ncclFloat, ncclSum, 0, m.comm, m.stream),
                "for Reduce on");
    }
    refused(&m, tuttiReduceScatterV(send, recv, counts, ncclFloat, ncclSum, m.comm, m.stream),
            "leaves no algorithm for ReduceScatterV on 3 ranks");
    EXPECT_OK(ncclReduceScatter(send, recv, 0, ncclFloat, ncclSum, m.comm, m.stream));
    // Arguments first, as in NCCL.
    EXPECT_EQ(ncclReduceScatter(send, recv, 1, ncclNumTypes, ncclSum, m.comm, m.stream),
              ncclInvalidArgument);
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(ncclAllReduce(send, recv, 5, ncclFloat, ncclSum, m.comm, m.stream));
    refused(&m, ncclAllGather(send, recv, 5, ncclFloat, m.comm, m.stream), "NCCL_ALGO=Tree");
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    works(&m, &area, ALL_REDUCE, 4);
    works(&m, &area, ALL_REDUCE, 40000);
    works(&m, &area, BROADCAST, 40000);
    works(&m, &area, ALL_TO_ALL, 4000); // not chosen for
    works(&m, &area, GATHER, 4000);
    leave_with_area(&m, &area);
}

// The switch is asked for, and there is none.
static void no_switch(int rank, int size)
{
    struct member m;
    struct area area;
    if (!join_with_area(&m, &area, rank, size, BYTES)) {
        return;
    }
    char *send = area.memory, *recv = area.memory + BYTES / 2;
    if (size == 1) { // alone, no algorithm is needed
        works(&m, &area, ALL_REDUCE, 10000);
        works(&m, &area, REDUCE_SCATTER, 3);
    } else {
        refused(&m, ncclAllReduce(send, recv, 9, ncclInt, ncclSum, m.comm, m.stream),
                "NCCL_ALGO=nvls leaves no algorithm for AllReduce on 3 ranks, without multicast; "
                "these can do it: direct, Ring, Tree, staged");
    }
    leave_with_area(&m, &area);
}

// ---- Buffers that the switch does not reach -----------------------------------------------------

static const enum function by_switch[] = {ALL_REDUCE, REDUCE, BROADCAST, REDUCE_SCATTER,
                                          ALL_GATHER};

// Pieces of memory of this process that others can map: each is an open file without a name. (Its
// sockets and threads' files may be closed a little later than a communicator ends.)
static int shared_pieces(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    struct dirent *entry;
    char target[64];
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        ssize_t bytes = readlinkat(dirfd(folder), entry->d_name, target, sizeof target);
        count += bytes > 7 && memcmp(target, "/memfd:", 7) == 0 ? 1 : 0;
    }
    (void)(folder != NULL && closedir(folder));
    return count;
}

// Every byte of each function's result, in place by turns, in memory of one kind.
static void by_pieces(struct member *m, struct area *area, int turn)
{
    static const struct {
        ncclDataType_t type;
        ncclRedOp_t op;
        size_t count; // several pieces, one, less than a cache line
    } shapes[] = {{ncclFloat32, ncclSum, 150001},
                  {ncclFloat16, ncclAvg, 30003},
                  {ncclInt8, ncclMax, 300007},
                  {ncclFloat64, ncclProd, 1001},
                  {ncclUint8, ncclSum, 1}};
    for (int i = 0; i < 5 * 5; i++) {
        struct form form = {.function = by_switch[i % 5],
                            .type = shapes[i / 5].type,
                            .op = shapes[i / 5].op,
                            .count = shapes[i / 5].count,
                            .root = i % m->size,
                            .in_place = (i + i / 5 + turn) % 2 == 1,
                            .send_shift = (size_t)i % 3,
                            .seed = (unsigned)i};
        form.recv_shift = form.in_place ? form.send_shift : 1;
        if (form.function == REDUCE_SCATTER || form.function == ALL_GATHER) {
            form.count = form.count / (size_t)m->size + 1;
        }
        check_form(m, area, &form);
    }
}

// They go through memory of the communicator's own, whatever kind they are of.
static void far_from_the_switch(int rank, int size)
{
    enum { FAR_BYTES = 4 << 20 };
    struct member m;
    struct area area, host = {.memory = malloc(FAR_BYTES), .bytes = FAR_BYTES};
    void *handle = NULL;
    if (!EXPECT(host.memory != NULL) || !join_with_area(&m, &area, rank, size, FAR_BYTES)) {
        return;
    }
    by_pieces(&m, &area, 0);
    by_pieces(&m, &host, 1);
    EXPECT_OK(ncclCommRegister(m.comm, area.memory, area.bytes, &handle));
    by_pieces(&m, &area, 1);
    EXPECT_OK(ncclCommDeregister(m.comm, handle));
    works(&m, &area, ALL_TO_ALL, 40000); // not chosen for
    leave_with_area(&m, &area);
    free(host.memory);
}

static void far_as_threads(int rank, int size)
{
    (void)rank, (void)size;
    run_thread_ranks(RANKS, far_from_the_switch, 60);
}

// That memory ends with the communicator.
static void memory_of_its_own(int rank, int size)
{
    int pieces[3];
    for (int i = 0; i < 3; i++) { // the first sets up more
        struct member m;
        struct area area;
        if (!join_with_area(&m, &area, rank, size, BYTES)) {
            return;
        }
        for (int f = 0; f < 5; f++) {
            works(&m, &area, by_switch[f], 10000);
        }
        ranks_barrier();
        int held = shared_pieces();
        leave_with_area(&m, &area);
        ranks_barrier();
        pieces[i] = shared_pieces();
        EXPECT(pieces[i] < held);
    }
    EXPECT_EQ(pieces[2], pieces[1]);
}

// Where something else is left that reaches the buffers, that is taken.
static void reached_otherwise(int rank, int size)
{
    struct member m;
    struct area area;
    if (!join_with_area(&m, &area, rank, size, BYTES)) {
        return;
    }
    for (int f = 0; f < 5; f++) {
        works(&m, &area, by_switch[f], 10000);
    }
    leave_with_area(&m, &area);
}

// Ranks that chose differently have no such memory either, and none waits for it.
static void chosen_differently(int rank, int size)
{
    struct member m;
    struct area area;
    (void)setenv("NCCL_ALGO", rank == 0 ? "NVLS" : "Ring", 1);
    if (!join_with_area(&m, &area, rank, size, BYTES)) {
        return;
    }
    char *send = area.memory, *recv = area.memory + BYTES / 2;
    EXPECT_OK(ncclAllReduce(send, recv, 40000, ncclInt, ncclSum, m.comm, m.stream));
    EXPECT_EQ(wait_within(&m, 1), ncclInvalidUsage);
    EXPECT_CONTAINS(ncclGetLastError(m.comm), "NCCL_ALGO=NVLS leaves no algorithm");
    EXPECT_CONTAINS(ncclGetLastError(m.comm), "switch: needs buffers with multicast");
    EXPECT_CONTAINS(ncclGetLastError(m.comm), "far_switch: needs scratch with multicast");
    ranks_barrier();
    EXPECT_OK(ncclCommAbort(m.comm));
    m.comm = NULL;
    leave_with_area(&m, &area);
}

// No protocol is left for one function.
static void no_protocol(int rank, int size)
{
    struct member m;
    struct area area;
    if (!join_with_area(&m, &area, rank, size, BYTES)) {
        return;
    }
    char *send = area.memory, *recv = area.memory + BYTES / 2;
    refused(&m, ncclReduce(send, recv, 9, ncclInt, ncclSum, 1, m.comm, m.stream),
            "NCCL_PROTO=LL;reduce:^LL,LL128,Simple leaves no protocol for Reduce; there are LL, "
            "LL128, Simple");
    works(&m, &area, ALL_REDUCE, 40000);
    leave_with_area(&m, &area);
}

static void bad_value(int rank, int size)
{
    ncclUniqueId id = share_id(rank);
    ncclComm_t comm = NULL;
    EXPECT_CUDA(cudaSetDevice(rank));
    ncclResult_t result = ncclCommInitRank(&comm, size, id, rank), all[RANKS];
    EXPECT_CONTAINS(ncclGetLastError(NULL), getenv("TUTTI_TEST_TEXT"));
    EXPECT(comm == NULL);
    bool found = false; // the first to find it tells the others, who may be about to
    ranks_gather(&result, all, sizeof result);
    for (int r = 0; r < size; r++) {
        EXPECT(all[r] == ncclInvalidUsage || all[r] == ncclRemoteError);
        found = found || all[r] == ncclInvalidUsage;
    }
    EXPECT(found);
}

static void with(const char *name, const char *value, int size, rank_function function)
{
    (void)setenv(name, value, 1);
    run_processes(size, function, 30);
    (void)unsetenv(name);
}

static void algorithms(void)
{
    with("NCCL_ALGO", "Tree", RANKS, only_trees);
    (void)setenv("NCCL_NVLS_ENABLE", "0", 1);
    with("NCCL_ALGO", "nvls", RANKS, no_switch);
    with("NCCL_ALGO", "nvls", 1, no_switch);
    (void)unsetenv("NCCL_NVLS_ENABLE");
}

static void any_buffers(void)
{
    with("NCCL_ALGO", "NVLS", RANKS, far_from_the_switch);
    with("NCCL_ALGO", "NVLS", 1, far_as_threads);
    with("NCCL_ALGO", "NVLS", RANKS, memory_of_its_own);
    with("NCCL_ALGO", "NVLS,Ring", RANKS, reached_otherwise);
    run_processes(RANKS, chosen_differently, 30);
}

static void protocols(void)
{
    with("NCCL_PROTO", "LL;reduce:^LL,LL128,Simple", RANKS, no_protocol);
}

static void bad_values(void)
{
    (void)setenv("TUTTI_TEST_TEXT", "NCCL_ALGO=rings: \"rings\" is no algorithm; there are", 1);
    with("NCCL_ALGO", "rings", 2, bad_value);
    (void)setenv("TUTTI_TEST_TEXT", "NCCL_ALGO=Ring;Tree: \"Tree\" names no function", 1);
    with("NCCL_ALGO", "Ring;Tree", 1, bad_value);
    (void)setenv("TUTTI_TEST_TEXT", "NCCL_PROTO=LL64: \"LL64\" is no protocol; there are LL,", 1);
    with("NCCL_PROTO", "LL64", 2, bad_value);
    (void)unsetenv("TUTTI_TEST_TEXT");
}

int main(void)
{
    RUN(algorithms);
    RUN(any_buffers);
    RUN(protocols);
    RUN(bad_values);
    return expect_result();
}
