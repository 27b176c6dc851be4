// Again and again: communicators that come and go (C60), calls on one (C61). Nothing grows: no
// descriptor, no thread, no mapping, no memory. TUTTI_TEST_FULL=1: the numbers of the reports.
// SPDX-License-Identifier: Apache-2.0
#include <nccl.h>

#include "expect.h"
#include "member.h"
#include "ranks.h"

#include <dirent.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static bool is_full(void)
{
    const char *text = getenv("TUTTI_TEST_FULL");
    return text != NULL && text[0] == '1';
}

// ---- What a process has -------------------------------------------------------------------------

struct holdings {
    int descriptors, threads, mappings, shared_files;
    long kib;
};

// Entries of a folder whose names contain `part`.
static int count_entries(const char *path, const char *part)
{
    int count = 0;
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        count += strstr(entry->d_name, part) != NULL;
    }
    (void)closedir(directory);
    return count;
}

static struct holdings count_holdings(void)
{
    char line[512];
    struct holdings holdings = {.descriptors = count_entries("/proc/self/fd", ""),
                                .threads = count_entries("/proc/self/task", ""),
                                .shared_files = count_entries("/dev/shm", "tutti")};
    FILE *maps = fopen("/proc/self/maps", "re"), *memory = fopen("/proc/self/smaps_rollup", "re");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        holdings.mappings++;
    }
    while (memory != NULL && fgets(line, sizeof line, memory) != NULL &&
           sscanf(line, "Rss: %ld", &holdings.kib) != 1) { // NOLINT(cert-err34-c)
    }
    EXPECT(maps != NULL && memory != NULL && fclose(maps) == 0 && fclose(memory) == 0);
    return holdings;
}

// Nothing has come to `before`. Of memory a little may: the allocator's, and lines of tables that
// are first used. Sanitizers keep books of their own.
static void nothing_came(const struct holdings *before, long most_kib)
{
    struct holdings now = count_holdings();
    EXPECT(now.descriptors <= before->descriptors);
    EXPECT(now.threads <= before->threads);
    EXPECT(now.shared_files <= before->shared_files);
    // On more than two cores more blocks run at once, later: each worker keeps their stacks.
    long cores = sysconf(_SC_NPROCESSORS_ONLN), more = cores > 2 ? cores - 2 : 0;
    bool is_flat = SANITIZED || (now.mappings <= before->mappings + 4 + 4 * more &&
                                 now.kib <= before->kib + most_kib + 64 * more);
    if (!EXPECT(is_flat)) {
        fprintf(stderr, "mappings: %d, %d before; memory: %ld KiB, %ld before\n", now.mappings,
                before->mappings, now.kib, before->kib);
    }
}

// ---- C60: init, all-reduce, destroy (nccl#127, nccl#604, nccl PR#2087)
// ----------------------------

// In one process rank 0 counts for all: threads would count each other's files.
static void come_and_go(int rank, int size, bool counts)
{
    enum { COUNT = 1000 };
    struct holdings first = {0};
    float *memory = NULL, one = 1, sum = 0;
    int rounds = is_full() ? 1000 : SANITIZED ? 15 : 40;
    for (int round = 0; round <= rounds && expect_failures() == 0; round++) {
        struct member m;
        if (!member_join(&m, rank, size)) {
            return;
        }
        if (memory == NULL) {
            EXPECT_CUDA(cudaMalloc((void **)&memory, COUNT * sizeof *memory));
        }
        EXPECT_CUDA(cudaMemcpy(memory + COUNT - 1, &one, sizeof one, cudaMemcpyHostToDevice));
        EXPECT_OK(ncclAllReduce(memory, memory, COUNT, ncclFloat, ncclSum, m.comm, m.stream));
        EXPECT_CUDA(cudaStreamSynchronize(m.stream));
        EXPECT_CUDA(cudaMemcpy(&sum, memory + COUNT - 1, sizeof sum, cudaMemcpyDeviceToHost));
        EXPECT_NEAR(sum, size, 0);
        member_leave(&m);
        ranks_barrier();
        if (round == 1 && counts) { // round 0 is not counted: first uses of everything
            poll(NULL, 0, 200);
            first = count_holdings();
        }
        ranks_barrier();
    }
    if (counts) {
        poll(NULL, 0, 200);
        nothing_came(&first, 1024);
    }
    ranks_barrier();
    EXPECT_CUDA(cudaFree(memory));
}

static void as_thread(int rank, int size)
{
    come_and_go(rank, size, rank == 0);
}

static void as_process(int rank, int size)
{
    come_and_go(rank, size, true);
}

static void communicators(void)
{
    run_thread_ranks(4, as_thread, 900);
    run_ranks(4, as_process, 900);
}

// ---- C61 (a): a million grouped reduces on one communicator (nccl#1534, nccl#2363)
// ----------------

static void grouped_reduces(void)
{
    enum { RANKS = 2, EACH = 10 };
    ncclComm_t comm[RANKS];
    cudaStream_t stream[RANKS];
    int *memory[RANKS], groups = is_full() ? 1000000 / EACH : SANITIZED ? 600 : 2000, wrong = 0;
    struct holdings first = {0};
    EXPECT_OK(ncclCommInitAll(comm, RANKS, NULL));
    for (int r = 0; r < RANKS; r++) {
        EXPECT_CUDA(cudaSetDevice(r));
        EXPECT_CUDA(cudaStreamCreateWithFlags(&stream[r], cudaStreamNonBlocking));
        EXPECT_CUDA(cudaMalloc((void **)&memory[r], 2 * EACH * sizeof **memory));
    }
    for (int group = 0; group < groups && wrong == 0; group++) {
        int given[EACH], sums[EACH];
        for (int i = 0; i < EACH; i++) {
            given[i] = group + i;
        }
        for (int r = 0; r < RANKS; r++) {
            EXPECT_CUDA(cudaMemcpy(memory[r], given, sizeof given, cudaMemcpyDefault));
        }
        EXPECT_OK(ncclGroupStart());
        for (int i = 0; i < EACH * RANKS; i++) {
            int r = i % RANKS, at = i / RANKS;
            EXPECT_OK(ncclReduce(memory[r] + at, memory[r] + EACH + at, 1, ncclInt, ncclSum, 0,
                                 comm[r], stream[r]));
        }
        EXPECT_OK(ncclGroupEnd());
        for (int r = 0; r < RANKS; r++) {
            EXPECT_CUDA(cudaStreamSynchronize(stream[r]));
        }
        EXPECT_CUDA(cudaMemcpy(sums, memory[0] + EACH, sizeof sums, cudaMemcpyDefault));
        for (int i = 0; i < EACH; i++) {
            wrong += sums[i] != RANKS * given[i];
        }
        if (group == 500) {
            first = count_holdings();
        }
    }
    EXPECT_EQ(wrong, 0);
    nothing_came(&first, 1024);
    for (int r = 0; r < RANKS; r++) {
        EXPECT_OK(ncclCommDestroy(comm[r]));
        EXPECT_CUDA(cudaFree(memory[r]));
        EXPECT_CUDA(cudaStreamDestroy(stream[r]));
    }
}

int main(void)
{
    (void)mallopt(M_ARENA_MAX, 2); // so that what is freed is used again by other threads
    RUN(communicators);
    RUN(grouped_reduces);
    return expect_result();
}
